"""What verifies scans with gates and segments, forward, back and as gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.gated_scan import gated_scan as ours
from snippets.segment_reduce.segment_reduce import TILE

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Whole sectors, 16 bytes a lane. Five blocks of 128 threads fit on a multiprocessor,
# three of triples.
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 168, "matrix_instructions": False},
    "scan_shares": {"sectors_over_ideal": 1.01, "wide_accesses": 0.93, "warps": 20},
    "share_maps": {"sectors_over_ideal": 1.01, "wide_accesses": 0.93, "warps": 24},
}


def alone(job: str, *told: object) -> torch.Tensor:
    """A program for each row or segment."""
    return ours.scan_alone(*told)


def in_shares(job: str, *told: object) -> torch.Tensor:
    """Equal shares for all programs."""
    return ours.scanned(*told, back=job == "back")


VARIANTS = {"a program each": alone, "equal shares": in_shares}


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


def library(job: str, x, gates, offsets) -> torch.Tensor:
    """The same by PyTorch's own kernels, in float32."""
    if gates is None and offsets is None and job == "scan":
        return torch.cumsum(x, -1)
    wide = None if gates is None else gates.float()
    return doubled(x.float(), wide, offsets, job == "back").to(x.dtype)


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


def reference(job: str, x, gates, offsets) -> torch.Tensor:
    """The truth, in float64."""
    wide = None if gates is None else gates.double()
    return doubled(x.double(), wide, offsets, job == "back")


def case(job: str, dtype: str, *kills: str, **more: object) -> dict:
    """A row of CASES, TIMED or COUNTED."""
    row = {"job": job, "dtype": dtype, **more}
    if job == "back":
        row["variants"] = ["equal shares"]
    return {**row, "kills": list(kills)} if kills else row


FLOAT, HALF = "float32", "float16"
CASES = (
    case("scan", FLOAT, "no carry between tiles", "a program each forgets its carry",
         n=20001, values="drift"),
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
    case("scan", FLOAT, m=2**14, n=2**12, gates="random"),
    case("scan", FLOAT, n=2**26, gates="random"),
    *(case("scan", FLOAT, s=s, n=2**26, lengths="ragged") for s in (2**20, 2**10)),
)
# As is timed, of several tiles a share.
COUNTED = (case("scan", FLOAT, n=65541, gates="random"),)


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
    """(job, x, gates, offsets)."""
    dtype = getattr(torch, case["dtype"])
    told = {"generator": generator, "device": device}
    shape = (case["m"], case["n"]) if "m" in case else (case["n"],)
    offsets = cuts(case, device, generator)
    x = torch.randn(shape, **told)
    x = torch.where(torch.rand(shape, **told) < 0.01, 10 * x, x)  # outliers
    if case.get("values") == "drift":
        x += 0.5  # how far a walk about 0 comes is a matter of luck, and so its error
    gates = None
    if "gates" in case:
        gates = torch.rand(shape, **told)
        if case["gates"] == "seldom":  # all others keep what came from far away
            rare = torch.rand(shape, **told) < 2**-11
            gates = torch.where(rare, (1 + gates) / 2, 1.0)
        gates = gates.to(dtype)
    return case["job"], x.to(dtype), gates, offsets


def cost(case: dict) -> dict:
    """An operation for each element, two with gates; each in float32."""
    elements = case.get("m", 1) * case["n"]
    return {"flops": (2 if case.get("gates") else 1) * elements, "unit": "fp32"}
