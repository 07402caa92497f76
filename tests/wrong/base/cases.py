"""What verifies the matrix product."""

import torch

from snippets.base import base

NEEDS = {"seconds": 20}
CASES = (
    {"m": 1, "n": 1, "k": 1, "kills": ["writes nothing"]},
    {"m": 17, "n": 5, "k": 33, "kills": ["adds one"]},
    {"m": 127, "n": 31, "k": 18, "kills": ["leaves a term out"]},
    {"m": 64, "n": 16, "k": 16, "kills": ["doubles its input"]},
)
TIMED = ({"m": 512, "n": 512, "k": 512},)


def inputs(case, device, generator):
    a = torch.randn(case["m"], case["k"], device=device, generator=generator)
    b = torch.randn(case["k"], case["n"], device=device, generator=generator)
    return a, b


def reference(a, b):
    return a.double() @ b.double()


VARIANTS = {"product": lambda a, b: base.kernel(a, b)}
PEERS = {"torch": lambda a, b: a @ b}


def cost(case):
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
