"""What bulk_copy is held to: rings that turn, rows that end early, every alignment."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.bulk_copy import bulk_copy as ours

NEEDS = {
    "variants": {
        "cp.async": {"sm": ">=80", "why": "cp.async"},
        "bulk copy": {"sm": ">=90", "why": "cp.async.bulk"},
        "torch.compile": {"cpu": "it would compile C++ for each shape; a GPU times it"},
    },
}
ANY = [way for way in ours.WAYS if way != "bulk copy"]  # where rows are no whole packs


def matrix(m: int, n: int, degree: int, *kills: str, **more: object) -> dict:
    """A case: m rows of n, and `pitch` from one to the next where there are gaps.

    pack: what the ways move at a time; there are bulk copies only of whole packs.
    """
    gaps = "pitch" in more
    quads = n % 4 == 0 and more["pitch"] % 4 == 0 if gaps else m * n % 4 == 0
    return {"m": m, "n": n, "degree": degree, **more,
            **({"pack": "float4"} if quads else {"pack": "float", "variants": ANY}),
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    matrix(1, 1, 3, "whole tiles only"),
    matrix(23, 132, 5,  # two blocks, and every ring of them turns
           "pitch ignored", "elements apart taken for side by side",
           "bulk copies of any row", "tile written over", "empty half unwaited for",
           "halves never swapped", "half given away before it is read",
           "barriers unwaited for", "empty stage unwaited for",
           "always the first phase", "stage given away before it is read",
           "copies overtake loads",
           pitch=148),
    matrix(3, 4100, 2,
           "last tile dropped", "last tile taken for a whole", "rows never end",
           "16 bytes at any address", "full stage unwaited for",
           "fewer bytes expected", "bytes of a whole tile asked for", pitch=4104),
    matrix(21, 37, 4,
           "gaps between rows overlooked", "one degree too many",
           "own copies unwaited for", "copies of others unwaited for", pitch=41),
    matrix(7, 2051, 1, "x not halved", "tile unwaited for"),
    matrix(9, 2052, 1, "halved by way of a square", values="extreme"),
    matrix(5, 26, 3, "16 bytes over the end of a row", pitch=28),
    matrix(2, 24, 0,
           "16 bytes from any row on", "full half unwaited for",
           "no group where no tile is left", pitch=26),
)  # fmt: skip
TIMED = (
    *(matrix(8192, 16_384, degree) for degree in (1, 8, 32)),
    matrix(8192, 16_000, 1, pitch=16_384),  # tiles that end early, rows that lie apart
    matrix(8192, 16_383, 1, pitch=16_385),  # no row on 16 bytes
)
COUNTED = (matrix(4, 8 * ours.TILE, 8),)  # every ring turns four times
# 32 registers let a multiprocessor have all 2048 threads; 80, and a ring of 16 or 32
# KiB, the four blocks that a launch gives it. Every byte is moved once, 16 at a time
# where rows allow it. Of a loop over tiles, Horner's rule four degrees at a time
# included, up to four instructions in five do something else.
LIMITS = {
    "*": {
        "spilled_bytes": 0, "registers": 80, "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1, "wide_accesses": 1, "instructions_per_fma": 5,
    },
    "series_direct": {"registers": 32, "warps": 64},
    "series_staged": {"registers": 32, "warps": 64, "shared_bytes": 4 * ours.TILE},
    "series_producers": {"warps": 24, "shared_bytes": 8 * ours.TILE},
    "series_async": {"registers": 64, "warps": 32, "shared_bytes": 16 * ours.TILE},
    "series_bulk": {"warps": 20, "shared_bytes": 16 * ours.TILE + 64},
}  # fmt: skip


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, int]:
    """x (m, n) between -1.9 and 1.9, so that no element's sum outweighs all others.

    "extreme" values are of every size whose sum is still a number.
    """
    m, n, degree = case["m"], case["n"], case["degree"]
    x = torch.rand(m, case.get("pitch", n), generator=generator, device=device)
    x = 3.8 * x - 1.9
    if case.get("values") == "extreme":
        top = 252 // max(degree, 1)  # |x / 2|**degree stays below 2**126
        power = torch.rand(x.shape, generator=generator, device=device)
        x = x.sign() * torch.exp2(power * top - top / 2)
    return x[:, :n], degree


def reference(x: torch.Tensor, degree: int) -> torch.Tensor:
    """Horner's rule in float64, which keeps what is infinite from being no number."""
    v = x.double() / 2
    y = torch.ones_like(v)
    for _ in range(degree):
        y = y * v + 1
    return y


def rule(x: torch.Tensor, degree: int) -> torch.Tensor:
    """The same as calls of torch: a kernel for each step."""
    v = x / 2
    one = torch.ones((), dtype=x.dtype, device=x.device)
    y = torch.ones_like(v)
    for _ in range(degree):
        y = torch.addcmul(one, y, v)
    return y


@functools.cache
def compiler() -> Callable:
    """torch.compile of the calls, compiled anew for each shape and degree it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(rule, dynamic=False, fullgraph=True)


def compiled(x: torch.Tensor, degree: int) -> torch.Tensor:
    """The same by what torch.compile makes of them: one kernel."""
    return compiler()(x, degree)


def by(way: str) -> Callable:
    """One way of ours."""
    return functools.partial(ours.series, way=way)


VARIANTS = {way: by(way) for way in ours.WAYS}
PEERS = {"torch": rule, "torch.compile": compiled}


def cost(case: dict) -> dict:
    """4 bytes in and 4 out, and a multiply-add for each degree."""
    elements = case["m"] * case["n"]
    return {"bytes": 8 * elements, "flops": 2 * case["degree"] * elements,
            "unit": "fp32"}  # fmt: skip
