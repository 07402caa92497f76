"""What verifies sums of segments: empty ones, ends at tiles and shares."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.segment_reduce import segment_reduce as ours
from snippets.segment_reduce.segment_reduce import TILE

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Whole sectors, 16 bytes a lane: what is narrower are ends, marks, and one sum for each
# segment. Four blocks of 128 threads are a multiprocessor's.
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 128, "matrix_instructions": False},
    "segment_sums": {"sectors_over_ideal": 1.2, "wide_accesses": 0.6, "warps": 16},
}


def alone(job: str, *told: object) -> torch.Tensor:
    """A program for each segment."""
    return ours.sums_alone(*told)


def in_shares(job: str, *told: object) -> torch.Tensor:
    """Equal shares for all programs."""
    return ours.sums(*told) if job == "sum" else ours.spread_over(*told)


VARIANTS = {"a program each": alone, "equal shares": in_shares}


def owners(offsets: torch.Tensor, n: int) -> torch.Tensor:
    """For each of n elements how many offsets are at most its index."""
    place = torch.arange(n, device=offsets.device)
    return torch.searchsorted(offsets.long(), place, right=True)


def answer(job: str, x: torch.Tensor, offsets: torch.Tensor, *n: int) -> torch.Tensor:
    """All that is asked, by PyTorch's own operators."""
    if job == "spread":
        x = torch.cat([x.new_zeros(1), x, x.new_zeros(1)])
        return x[owners(offsets, *n)]
    y = x.new_zeros(len(offsets) + 1)
    return y.index_add(0, owners(offsets, len(x)), x)[1:-1]


def library(job: str, x: torch.Tensor, *told: object) -> torch.Tensor:
    """The same by PyTorch's own kernels."""
    if job == "sum" and x.numel():
        data = x if x.is_cuda else x.float()
        y = torch.segment_reduce(data, "sum", offsets=told[0], initial=0)
        return y.to(x.dtype)
    return answer(job, x, *told)


@functools.cache
def compiler() -> Callable[..., torch.Tensor]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False)


def compiled(job: str, *told: object) -> torch.Tensor:
    """The same by the kernels that torch.compile writes."""
    return compiler()(job, *told)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(job: str, x: torch.Tensor, *told: object) -> torch.Tensor:
    """The truth, in float64."""
    return answer(job, x.double(), *told)


def case(job: str, dtype: str, s: int, n: int, *kills: str, **more: object) -> dict:
    """A row of CASES, TIMED or COUNTED."""
    row = {"job": job, "dtype": dtype, "s": s, "n": n, **more}
    if job == "spread":
        row["variants"] = ["equal shares"]
    return {**row, "kills": list(kills)} if kills else row


FLOAT, BRAIN = "float32", "bfloat16"
CASES = (
    case("sum", FLOAT, 6000, 20001,
         "infinities pass from segment to segment",
         "the carry goes on past the end of a tile",
         "empty segments get their neighbour's sum",
         "only so many ends in a tile are seen",
         "only so many sums of a tile are written", lengths="edges", index="int64"),
    case("sum", BRAIN, 5, 50001,  # each of several shares
         "a segment ends with its tile", "the shares before are left out",
         "marks of an earlier tile count", lengths="ragged"),
    case("spread", BRAIN, 3000, 20001,
         "what lies before the first segment is the first's",
         "of ends in one place the first", lengths="edges"),
)  # fmt: skip
TIMED = tuple(
    case("sum", BRAIN, s, 2**27, lengths="ragged")
    for s in (2**23, 2**20, 2**17, 2**10)
)
# As is timed, of several tiles a share.
COUNTED = (case("sum", BRAIN, 512, 65541, lengths="ragged"),)


def cuts(case: dict, device: str, generator: torch.Generator) -> torch.Tensor:
    """Offsets that rise from 0 to N, or from within to within."""
    s, n = case["s"], case["n"]
    told = {"generator": generator, "device": device}
    offsets = torch.randint(0, n + 1, (s + 1,), **told)
    if case["lengths"] == "edges" and n > 2 * TILE:  # many empty ones there
        near = (offsets + TILE // 2) // TILE * TILE
        offsets = torch.where(torch.rand(s + 1, **told) < 0.5, near, offsets)
    offsets = offsets.clamp(max=n).sort().values
    if case["lengths"] == "ragged":
        offsets[0], offsets[-1] = 0, n
    if s == 0:
        offsets = offsets[:1]
    return offsets.to(getattr(torch, case.get("index", "int32")))


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """(job, x, offsets), or (job, dy, offsets, n) where dy is spread."""
    dtype, n = getattr(torch, case["dtype"]), case["n"]
    told = {"generator": generator, "device": device}
    offsets = cuts(case, device, generator)
    if case["job"] == "spread":
        return "spread", torch.randn(case["s"], **told).to(dtype), offsets, n
    x = torch.randn(n, **told)
    x = torch.where(torch.rand(n, **told) < 0.01, 10 * x, x).to(dtype)  # outliers
    if case["lengths"] == "edges" and n:
        x[n // 3] = float("inf")
    return "sum", x, offsets


def cost(case: dict) -> dict:
    """An addition for each element, in float32."""
    return {"flops": case["n"], "unit": "fp32"}
