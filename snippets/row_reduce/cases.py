"""What verifies reductions of rows: ties, infinities, parts of a row, short rows."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.row_reduce import row_reduce as ours

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Whole sectors, 16 bytes a lane: what is narrower is one number for each row.
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 128, "matrix_instructions": False},
    "reduce_rows": {"sectors_over_ideal": 1, "wide_accesses": 0.95, "warps": 40},
}
VARIANTS = {"a program each": ours.rows_alone, "rows side by side": ours.rows}


def library(op: str, x: torch.Tensor):
    """The same by PyTorch's own kernels; of a maximum the first of equals."""
    if op == "max":
        y = x.amax(-1)
        index = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
        return y, torch.where(x == y[..., None], index, x.shape[-1]).amin(-1)
    return x.sum(-1) if op == "sum" else torch.logsumexp(x, -1)


@functools.cache
def compiler() -> Callable[..., object]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False)


def compiled(op: str, x: torch.Tensor):
    """The same by the kernels that torch.compile writes."""
    return compiler()(op, x)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(op: str, x: torch.Tensor):
    """The truth, in float64."""
    return library(op, x.double())


def case(op: str, dtype: str, m: int, n: int, *kills: str, **more: object) -> dict:
    """A row of CASES, TIMED or COUNTED."""
    row = {"op": op, "dtype": dtype, "m": m, "n": n, **more}
    if op == "max":
        row["out"] = [dtype, "int64"]
    return {**row, "kills": list(kills)} if kills else row


FLOAT, BRAIN = "float32", "bfloat16"
CASES = (
    case("sum", FLOAT, 67, 17,  # neither rows nor columns fill a tile
         "rows without their stride", "whole tiles of rows only"),
    case("max", FLOAT, 2, 20001,  # two parts a row, ties within and across them
         "of equals the last", "masked elements are 0 to a maximum",
         "masked elements of rows are 0 to a maximum",
         "the index is that within a part", values="ties"),
    case("logsumexp", FLOAT, 2, 20001,
         "an infinite maximum is subtracted", "sums of parts are not weighed",
         "a sum is not rescaled when the maximum grows", values="far"),
)  # fmt: skip
TIMED = (
    *(case("sum", BRAIN, 2**27 // n, n) for n in (16, 64, 256, 1024, 4096, 2**27)),
    case("max", BRAIN, 2**21, 64),
    case("logsumexp", BRAIN, 2**17, 1024),
)
COUNTED = (case("sum", BRAIN, 1024, 64),)  # as is timed: 16 divides the sides


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """(op, x)."""
    told = {"generator": generator, "device": device}
    shape = (case["m"], case["n"])
    x = torch.randn(shape, **told)
    x = torch.where(torch.rand(shape, **told) < 0.01, 10 * x, x)  # outliers
    if case.get("values") == "ties":
        x = x.round().clamp(max=1) - 9
        x[1:, : 2 * case["n"] // 3] -= 1  # the largest of this row lie in another part
    elif case.get("values") == "far":
        x = 200 + x.clamp(-4, 4)  # exp of it is beyond float32
        x[:, : case["n"] // 2] = float("-inf")
    return case["op"], x.to(getattr(torch, case["dtype"]))


def cost(case: dict) -> dict:
    """An operation for each element, in float32."""
    return {"flops": case["m"] * case["n"], "unit": "fp32"}
