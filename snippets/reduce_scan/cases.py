"""What verifies reductions and scans: rows, segments, their scans and the gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.reduce_scan import reduce_scan as ours
from snippets.reduce_scan.reduce_scan import TILE

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Whole sectors, 16 bytes a lane: what is narrower are ends, marks, and one sum for each
# row or segment. Four blocks of 128 threads are a multiprocessor's; three of triples.
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 168, "matrix_instructions": False},
    "reduce_rows": {"sectors_over_ideal": 1, "wide_accesses": 0.95, "warps": 40},
    "segment_sums": {"sectors_over_ideal": 1.2, "wide_accesses": 0.6, "warps": 16},
    "scan_shares": {"sectors_over_ideal": 1.01, "wide_accesses": 0.93, "warps": 24},
    "share_maps": {"sectors_over_ideal": 1.01, "wide_accesses": 0.93, "warps": 24},
}


def alone(job: str, *told: object) -> object:
    """A program for each row or segment."""
    if job == "scan":
        return ours.scan_alone(*told)
    return ours.rows_alone(*told)


def in_shares(job: str, *told: object) -> object:
    """Equal shares for all programs."""
    if job == "rows":
        return ours.rows(*told)
    if job == "segments":
        return ours.sums(*told[1:])
    if job == "spread":
        return ours.spread_over(*told)
    return ours.scanned(*told, back=job == "back")


VARIANTS = {"a program each": alone, "equal shares": in_shares}
BOTH, SHARED = ["a program each", "equal shares"], ["equal shares"]


def owners(offsets: torch.Tensor, n: int) -> torch.Tensor:
    """For each of n elements how many offsets are at most its index."""
    place = torch.arange(n, device=offsets.device)
    return torch.searchsorted(offsets.long(), place, right=True)


def sum_of_rows(op: str, x: torch.Tensor):
    if op == "max":
        y = x.amax(-1)
        index = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
        return y, torch.where(x == y[..., None], index, x.shape[-1]).amin(-1)
    return x.sum(-1) if op == "sum" else torch.logsumexp(x, -1)


def sum_of_segments(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    y = x.new_zeros(len(offsets) + 1)
    return y.index_add(0, owners(offsets, len(x)), x)[1:-1]


def doubled(x, gates, offsets, back: bool) -> torch.Tensor:
    """A scan of log2 N steps, each of which joins neighbours twice as far apart."""
    shape, n = x.shape, x.numel()
    if n == 0:
        return x
    if x.ndim > 1:
        offsets = torch.arange(0, n + 1, max(shape[-1], 1), device=x.device)
    a = torch.ones_like(x).flatten() if gates is None else gates.flatten().clone()
    if offsets is not None:
        a = torch.cat([a, a[:1]]).index_fill(0, offsets.long(), 0)[:n]
    if back:  # the gate of the next, and all of it turned round
        a = torch.cat([a[1:], a[:1]]).flip(0)
    h = x.flatten().flip(0) if back else x.flatten().clone()
    step = 1
    while step < n:
        h[step:] = h[step:] + a[step:] * h[:-step]
        a[step:] = a[step:] * a[:-step]
        step *= 2
    return (h.flip(0) if back else h).view(shape)


def answer(job: str, *told: object):
    """All that is asked, by PyTorch's own operators."""
    if job == "rows":
        return sum_of_rows(*told)
    if job == "segments":
        return sum_of_segments(*told[1:])
    if job == "spread":
        dy, offsets, n = told
        dy = torch.cat([dy.new_zeros(1), dy, dy.new_zeros(1)])
        return dy[owners(offsets, n)]
    x, gates, offsets = told
    if gates is None and offsets is None and job == "scan":
        return torch.cumsum(x, -1)
    return doubled(x, gates, offsets, job == "back")


def library(job: str, *told: object):
    """The same by PyTorch's own kernels."""
    if job == "segments" and told[1].numel():
        _, x, offsets = told
        data = x if x.is_cuda else x.float()
        return torch.segment_reduce(data, "sum", offsets=offsets, initial=0).to(x.dtype)
    floats = [x for x in told if isinstance(x, torch.Tensor) and x.is_floating_point()]
    if job in ("scan", "back") and floats[0].dtype is not torch.float32:
        wide = [x.float() if any(x is y for y in floats) else x for x in told]
        return answer(job, *wide).to(floats[0].dtype)
    return answer(job, *told)


@functools.cache
def compiler() -> Callable[..., object]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False)


def compiled(job: str, *told: object):
    """The same by the kernels that torch.compile writes."""
    return compiler()(job, *told)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(job: str, *told: object):
    """The truth, in float64."""
    wide = (x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in told)  # fmt: skip
    return answer(job, *wide)


def case(job: str, dtype: str, *kills: str, **more: object) -> dict:
    """A row of CASES, TIMED or COUNTED."""
    row = {"job": job, "dtype": dtype, **more}
    if more.get("op") == "max":
        row["out"] = [dtype, "int64"]
    if job in ("spread", "back"):
        row.setdefault("variants", SHARED)
    return {**row, "kills": list(kills)} if kills else row


FLOAT, HALF, BRAIN = "float32", "float16", "bfloat16"
CASES = (
    case("rows", FLOAT,  # neither rows nor columns fill a tile
         "rows without their stride",
         "whole tiles of rows only", op="sum", m=67, n=17),
    case("rows", FLOAT,  # two parts a row, ties within and across them
         "of equals the last",
         "masked elements are 0 to a maximum",
         "masked elements of rows are 0 to a maximum",
         "the index is that within a part", op="max", m=2, n=20001, values="ties"),
    case("rows", FLOAT,
         "an infinite maximum is subtracted", "sums of parts are not weighed",
         "a sum is not rescaled when the maximum grows",
         op="logsumexp", m=2, n=20001, values="far"),
    case("segments", FLOAT,
         "infinities pass from segment to segment",
         "the carry goes on past the end of a tile",
         "empty segments get their neighbour's sum",
         "only so many ends in a tile are seen",
         "only so many sums of a tile are written",
         s=3000, n=20001, lengths="edges", index="int64"),
    case("segments", BRAIN,  # each of several shares
         "a segment ends with its tile", "the shares before are left out",
         "marks of an earlier tile count",
         s=5, n=50001, lengths="ragged"),
    case("spread", BRAIN,
         "what lies before the first segment is the first's",
         "of ends in one place the first", s=3000, n=20001, lengths="edges"),
    case("scan", FLOAT, "a share is open though a segment begins in it",
         "the share's total from its last opening is one too long",
         s=37, n=50001, lengths="ragged"),
    case("scan", FLOAT,  # what comes from shares before stays large
         "tiles of a share are joined in the wrong order", n=50000, gates="seldom"),
    case("scan", FLOAT, "maps are reduced as if they commuted",
         m=37, n=781, gates="random"),
    case("back", FLOAT,
         "going back, openings are one off",
         "going back, what lies past the first opening is in the total",
         s=7, n=50001, lengths="ragged"),
    case("back", FLOAT, "going back, an element's own gate",
         s=3000, n=20001, lengths="edges", index="int64", gates="random"),
    case("back", HALF,
         "tiles of a share are joined in the wrong order",
         n=50000, gates="seldom"),
)  # fmt: skip
TIMED = (
    *(case("rows", BRAIN, op="sum", m=2**27 // n, n=n)
      for n in (16, 64, 256, 1024, 4096, 2**27)),
    case("rows", BRAIN, op="max", m=2**21, n=64),
    case("rows", BRAIN, op="logsumexp", m=2**17, n=1024),
    *(case("segments", BRAIN, s=s, n=2**27, lengths="ragged")
      for s in (2**23, 2**20, 2**17, 2**10)),
    case("scan", FLOAT, n=2**26, values="drift"),
    *(case("scan", FLOAT, s=s, n=2**26, lengths="ragged") for s in (2**20, 2**10)),
    case("scan", FLOAT, m=2**14, n=2**12, gates="random"),
    case("scan", FLOAT, n=2**26, gates="random"),
)  # fmt: skip
# As is timed, of several tiles a share; 16 divides the sides of rows, and elsewhere no
# code depends on it.
COUNTED = (
    case("rows", BRAIN, op="sum", m=1024, n=64),
    case("segments", BRAIN, s=512, n=65541, lengths="ragged"),
    case("scan", FLOAT, "no carry between tiles", "a program each forgets its carry",
         n=65541, values="drift"),
)  # fmt: skip


def cuts(case: dict, device: str, generator: torch.Generator) -> torch.Tensor | None:
    """Offsets that rise from 0 to N, or from within to within."""
    if "s" not in case:
        return None
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
    """(job, ...) with what each of the jobs takes."""
    dtype = getattr(torch, case["dtype"])
    told = {"generator": generator, "device": device}
    shape = (case["m"], case["n"]) if "m" in case else (case["n"],)
    job, offsets = case["job"], cuts(case, device, generator)
    if job == "spread":
        dy = torch.randn(case["s"], **told).to(dtype)
        return job, dy, offsets, case["n"]
    x = torch.randn(shape, **told)
    x = torch.where(torch.rand(shape, **told) < 0.01, 10 * x, x)  # outliers
    if case.get("values") == "ties":
        x = x.round().clamp(max=1) - 9
        x[1:, : 2 * case["n"] // 3] -= 1  # the largest of this row lie in another part
    elif case.get("values") == "drift":
        x += 0.5  # how far a walk about 0 comes is a matter of luck, and so its error
    elif case.get("values") == "far":
        x = 200 + x.clamp(-4, 4)  # exp of it is beyond float32
        x[:, : case["n"] // 2] = float("-inf")
    x = x.to(dtype)
    if job == "segments" and case["lengths"] == "edges" and len(x):
        x[len(x) // 3] = float("inf")
    if job == "rows":
        return job, case["op"], x
    if job == "segments":
        return job, "sum", x, offsets
    gates = None
    if "gates" in case:
        gates = torch.rand(shape, **told)
        if case["gates"] == "seldom":  # all others keep what came from far away
            rare = torch.rand(shape, **told) < 2**-11
            gates = torch.where(rare, (1 + gates) / 2, 1.0)
        gates = gates.to(dtype)
    return job, x, gates, offsets


def cost(case: dict) -> dict:
    """An operation for each element, two with gates; each in float32."""
    elements = case.get("m", 1) * case["n"]
    return {"flops": (2 if case.get("gates") else 1) * elements, "unit": "fp32"}
