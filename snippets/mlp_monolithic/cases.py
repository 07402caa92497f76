"""What verifies the monolithic MLP: barriers, shares of a tile, and their merge."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.mlp_monolithic import mlp_monolithic as ours

NEEDS = {"seconds": 300}
# One program an SM, so it may have all registers. Weights come in whole sectors, 16
# bytes a lane (the rest is counters and rows of x past the last), without conflicts.
LIMITS = {
    "*": {
        "registers": 128, "spilled_bytes": 0, "shared_bytes": 160 * 1024,
        "matrix_instructions": True, "warps": 4, "sectors_over_ideal": 1.01,
        "wavefronts_over_ideal": 1.01, "wide_accesses": 0.95,
    },
}  # fmt: skip


def by(variant: str) -> Callable:
    """One variant of ours."""

    def run(activation: str, programs: int, x: torch.Tensor, *rest) -> torch.Tensor:
        weights, biases = (rest, ()) if rest[-1] is None else (rest[::2], rest[1::2])
        if rest[-1] is None:
            weights = rest[:-1]
        return ours.forward(x, weights, biases, activation, variant, programs or None)

    return run


TOLERANCE = {
    "bfloat16": (1e-2, "rounded between layers too; alike, if all rows are one")
}
VARIANTS = {"chain": by("chain"), "monolithic": by("monolithic")}


def layers(activation: str, x: torch.Tensor, rest: tuple) -> torch.Tensor:
    """The same by one call for each operation."""
    pairs = [(w, None) for w in rest[:-1]]
    if rest[-1] is not None:
        pairs = list(zip(rest[::2], rest[1::2], strict=True))
    for i, (w, bias) in enumerate(pairs):
        x = F.linear(x, w, bias)
        if i + 1 < len(pairs):
            if activation == "swiglu":
                gate, up = x.chunk(2, -1)
                x = F.silu(gate) * up
            elif activation == "gelu_tanh":
                x = F.gelu(x, approximate="tanh")
            else:
                x = getattr(F, activation)(x)
    return x


def library(activation: str, programs: int, x: torch.Tensor, *rest) -> torch.Tensor:
    """PyTorch: cuBLAS for the products, a kernel for each activation."""
    return layers(activation, x, rest)


PEERS = {"torch": library}


def reference(activation: str, programs: int, x: torch.Tensor, *rest) -> torch.Tensor:
    """The truth, in float64."""
    rest = tuple(None if each is None else each.double() for each in rest)
    return layers(activation, x.double(), rest)


def case(
    m: int, k: int, f: int, n: int, dtype: str, activation: str, *kills: str, **more
) -> dict:
    """m rows; k columns, then f after each hidden layer, then n; 0 programs: as many as
    there are multiprocessors."""
    row = {"m": m, "k": k, "f": f, "n": n, "dtype": dtype, "activation": activation}
    row |= {"hidden": 1, "bias": True, "programs": 0, **more}
    return {**row, "kills": list(kills)} if kills else row


MONO = {"variants": ["monolithic"]}
CASES = (
    case(3, 150, 130, 70, "float32", "relu",
         "no barrier", "barrier of the first round for all",
         "barrier lets the last but one go", "barrier's counter not set back",
         "arrival is no release",
         "arrives before all threads have stored", "part is no release and no acquire",
         "part counts before all threads have stored", "tile's counter not set back",
         "the merge drops the last part", "the first to come merges",
         "one slot for a program's two parts", "last share dropped",
         "columns past the last", "no bias", "activation after the last layer",
         "rows of x taken as adjacent", "rows of weights taken as adjacent",
         hidden=2),
    case(16, 200, 90, 70, "bfloat16", "swiglu",
         "gate and up change places", "bias of the gate for both",
         "exp over 1 plus itself", "x past its columns", scale=100.0, **MONO),
    case(1, 600, 70, 33, "float16", "gelu_tanh",
         "GELU without its cube", "exp for exp2", bias=False, programs=3, **MONO),
)  # fmt: skip
# Qwen3 0.6B's feed-forward layer: what others report.
TIMED = (
    case(1, 1024, 3072, 1024, "bfloat16", "swiglu", bias=False),
    case(16, 1024, 3072, 1024, "bfloat16", "swiglu", bias=False),
    case(1, 4096, 14336, 4096, "bfloat16", "swiglu", bias=False),
)
COUNTED = (case(1, 512, 256, 512, "bfloat16", "swiglu", bias=False),)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """activation, programs, x, and of each layer weight and bias; None if no biases."""
    dtype = getattr(torch, case["dtype"])

    def draw(*shape: int, scale: float = 1.0) -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator, device=device)
        return (drawn * scale).to(dtype)

    gated = 2 if case["activation"] == "swiglu" else 1
    sides = [case["k"], *[case["f"]] * case["hidden"], case["n"]]
    tensors = []
    for i, (k, n) in enumerate(zip(sides, sides[1:], strict=False)):
        rows = n * (gated if i < case["hidden"] else 1)
        tensors.append(draw(rows, k, scale=max(k, 1) ** -0.5))
        if case["bias"]:
            tensors.append(draw(rows, scale=case.get("scale", 1.0)))
    x = draw(case["m"], case["k"], scale=case.get("scale", 1.0))
    return (case["activation"], case["programs"], x, *tensors,
            *([] if case["bias"] else [None]))  # fmt: skip


def cost(case: dict) -> dict:
    """Each weight once, x and y; what lies between stays in the cache."""
    gated = 2 if case["activation"] == "swiglu" else 1
    k, f, n, m = (case[side] for side in "kfnm")
    weights = k * f * gated + f * f * gated * (case["hidden"] - 1) + f * n
    size = getattr(torch, case["dtype"]).itemsize
    unit = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[case["dtype"]]
    moved = (weights + m * (k + n)) * size
    return {"bytes": moved, "flops": 2 * m * weights, "unit": unit}
