"""What verifies softmax: cases, their truth, and what else computes the same."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.softmax import softmax
from snippets.softmax.softmax import MAX_N

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Rows are read and written once: by whole sectors, 16 bytes a lane.
LIMITS = {"*": {"spilled_bytes": 0, "sectors_over_ideal": 1, "wide_accesses": 1}}
VARIANTS = {"one pass": softmax.one_pass, "online": softmax.online}
LONG = ("online",)  # variants for rows that do not fit


def library(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's own kernels."""
    if which == "forward":
        return torch.softmax(tensors[0], -1)
    y, dy = tensors
    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


@functools.cache
def compiler() -> Callable[..., torch.Tensor]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False, fullgraph=True)


def compiled(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """The same by the kernels that torch.compile writes."""
    return compiler()(which, *tensors)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """The truth, in float64."""
    if which == "forward":
        return torch.softmax(tensors[0].double(), -1)
    y, dy = (tensor.double() for tensor in tensors)
    return y * (dy - (y * dy).sum(-1, keepdim=True))


def case(m: int, n: int, dtype: str = "float32", **more: object) -> dict:
    """One row of CASES or TIMED; `variants` names ours that apply, where not all do."""
    row = {"pass": "forward", "m": m, "n": n, "dtype": dtype, **more}
    held = n if row["pass"] == "forward" else 2 * n
    return row if held <= MAX_N else {**row, "variants": list(LONG)}


BACK = {"pass": "backward"}
CASES = (
    case(1, 1, kills=["-inf is subtracted from -inf"]),  # most lanes have no column
    case(67, 17, kills=[  # neither rows nor columns fill a program's tile
        "whole tiles of rows only", "columns taken as adjacent",
        "one pass without the row stride", "online without the row stride",
    ]),
    case(5, 127, "float16", kills=["no mask", "exp for exp2"]),
    case(37, 781, kills=[  # no side a power of two
        "one pass sums in float16", "online sums in float16",
        "lanes are not rescaled to the row's maximum",
    ]),
    case(3, 1023, "bfloat16", kills=["lanes are not rescaled to the row's maximum"]),
    case(3, 1025, scale=1e4, kills=[  # exp overflows without the maximum
        "one pass without the maximum", "online without the maximum",
    ]),
    case(5, 781, shift=-200, kills=[  # far below 0: a masked column must not be near 0
        "masked logits are 0", "one pass, masked logits are -100",
        "online, masked logits are -100",
    ]),
    # Chunks of -inf alone before a logit.
    case(2, 20001, "float16", values="masked", kills=["-inf is subtracted from -inf"]),
    # The maximum grows in every chunk.
    case(2, 20000, values="rising", kills=[
        "the sum is not rescaled when the maximum grows",
    ]),
    case(5, 65537, kills=[  # more rows than programs, several chunks, one past 2**16
        "a program takes one row only", "sums without the last chunk",
    ]),
    case(1, 262144, "float16", scale=6, kills=["sums the first chunk only"]),
    case(2, 262144, "bfloat16", kills=["sums the first chunk only"]),
    case(1, 2, **BACK, kills=[
        "backward without the sum", "backward online without the sum",
    ]),
    case(67, 17, **BACK, kills=[
        "backward without the row stride of y", "backward without the row stride of dy",
        "backward online without the row stride of y",
        "backward online without the row stride of dy",
    ]),
    case(37, 781, "float16", **BACK, kills=["never writes the last chunk"]),
    case(3, 1025, "bfloat16", **BACK, kills=["never writes the last chunk"]),
    case(2, 127, "float16", shift=300, **BACK, kills=[  # dy - sum(y * dy) cancels
        "backward multiplies in the input's dtype",
    ]),
    case(5, 65537, **BACK, kills=["a program takes one row only"]),
)
TIMED = (
    *(case(2**27 // n, n, "bfloat16") for n in (256, 1024, 4096, 16384, 32768, 65536)),
    *(case(2**27 // n, n, "bfloat16") for n in (131072, 262144)),
    *(case(2**26 // n, n) for n in (4096, 32768, 131072)),
    case(2**15, 4096, "float16"),
    *(case(2**26 // n, n, "bfloat16", **BACK) for n in (4096, 32768)),
)

# Rows that "one pass" holds whole, rows of several chunks for "online". 16 divides m
# too, so Triton compiles what it compiles for TIMED.
COUNTED = (
    case(32, 4096, "bfloat16", variants=["one pass"]),
    case(32, 4096, "bfloat16", variants=["one pass"], **BACK),
    case(16, 65536, "bfloat16"),
    case(16, 32768, "bfloat16", **BACK),
)


def logits(case: dict, device: str, generator: torch.Generator) -> torch.Tensor:
    """Random (m, n) of the case's dtype, scale, shift and values."""
    m, n = case["m"], case["n"]
    dtype = getattr(torch, case["dtype"])
    x = torch.randn(m, n, generator=generator, device=device, dtype=dtype)
    x = x * case.get("scale", 1) + case.get("shift", 0)
    if case.get("values") == "masked":
        x[:, : n - 3] = float("-inf")
    elif case.get("values") == "rising":
        x += torch.arange(n, device=device) / 100
    return x


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", x), or ("backward", y, dy) with y a softmax."""
    x = logits(case, device, generator)
    if case["pass"] == "forward":
        return "forward", x
    dy = logits(case, device, generator)
    return "backward", torch.softmax(x.float(), -1).to(x.dtype), dy


def cost(case: dict) -> dict:
    """FLOPs by element: 5 forward (maximum, subtract, exp, sum, scale) and 4 backward
    (multiply, sum, subtract, multiply), all of them in float32."""
    elements = case["m"] * case["n"]
    flops = 5 if case["pass"] == "forward" else 4
    return {"flops": flops * elements, "unit": "fp32"}
