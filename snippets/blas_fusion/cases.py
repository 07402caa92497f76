"""What blas_fusion is held to: lengths about a block's, ragged and thin matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.blas_fusion import blas_fusion as ours

NEEDS = {
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for each shape; a GPU times it"},
    },
}


def case(job: str, m: int, n: int, *kills: str) -> dict:
    """A case of a sequence; of axpydot m is 1."""
    return {"job": job, "m": m, "n": n, **({"kills": [*kills]} if kills else {})}


CASES = (
    case("axpydot", 1, 1, "whole packs only"),
    case("axpydot", 1, 9003, "scale dropped", "part of the first block for all",
         "words of the warps unwaited for", "counted before it is there",
         "the last unwaited for"),
    case("bicgk", 37, 1027, "rows past the strip are read", "a fold one step short"),
    case("bicgk", 600, 1036, "sums of rows unwaited for",
         "factors of the rows unwaited for", "second tile of columns for the first",
         "strips dropped but for the first"),
    case("gemver", 21, 40, "second update skipped", "transposed factors",
         "x without b", "z dropped", "w without a", "16 bytes at any address"),
    case("gemver", 34, 1029, "columns past the end are written"),
)  # fmt: skip
TIMED = (
    case("axpydot", 1, 2**28),
    case("bicgk", 16_384, 16_384),
    case("gemver", 16_384, 16_384),
    case("gemver", 8191, 8191),  # nothing begins on 16 bytes
)
COUNTED = (
    case("axpydot", 1, 32_768),
    case("bicgk", 512, 2048),
    case("gemver", 512, 2048),
)
# Two blocks of 256 threads have 8 loads of 16 bytes a thread on their way: 64 KiB. The
# factors of rank-1 updates take registers; without them there are three blocks. Parts
# of sums are single words beside what is read 16 bytes at a time.
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 128, "warps": 16},
    "vectors": {
        "registers": 80,
        "warps": 24,
        "sectors_over_ideal": 1,
        "wide_accesses": 0.98,
    },
    "sweep": {
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 0.98,
    },
    "gather": {"sectors_over_ideal": 1},
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple:
    """The job and what it is of: normal numbers, and scales that are not 1."""
    m, n = case["m"], case["n"]

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    if case["job"] == "axpydot":
        w, v = draw(n), draw(n)
        return "axpydot", w, v, w + draw(n), 0.7  # the products do not cancel
    if case["job"] == "bicgk":
        return "bicgk", draw(m, n), draw(n), draw(m)
    vectors = draw(m), draw(n), draw(m), draw(n), draw(m), draw(n)
    return "gemver", draw(m, n), *vectors, 1.5, 0.6


def chain(job: str, *given) -> tuple:
    """The sequence by torch, in its inputs' dtype."""
    if job == "axpydot":
        w, v, u, a = given
        z = torch.add(w, v, alpha=-a)
        return z, torch.dot(z, u)
    if job == "bicgk":
        matrix, p, r = given
        return torch.mv(matrix, p), torch.mv(matrix.t(), r)
    matrix, u1, v1, u2, v2, y, z, a, b = given
    updated = torch.addr(torch.addr(matrix, u1, v1), u2, v2)
    x = torch.addmv(z, updated.t(), y, alpha=b)
    return updated, x, a * torch.mv(updated, x)


def reference(job: str, *given) -> tuple:
    """The same in float64."""
    return chain(job, *(x.double() if torch.is_tensor(x) else x for x in given))


def by(way: str) -> Callable:
    """One way of ours."""

    def run(job: str, *given) -> tuple:
        return getattr(ours, job)(*given, way)

    return run


@functools.cache
def compiler() -> Callable:
    """torch.compile of the sequences, compiled anew for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(chain, dynamic=False, fullgraph=True)


def compiled(*given) -> tuple:
    """The same by what torch.compile makes of them."""
    return compiler()(*given)


VARIANTS = {way: by(way) for way in ours.WAYS}
PEERS = {"torch": chain, "torch.compile": compiled}


def cost(case: dict) -> dict:
    """What must cross memory: B written by one pass of gemver is read by the next."""
    m, n = case["m"], case["n"]
    if case["job"] == "axpydot":
        return {"bytes": 16 * n + 4, "unit": "fp32"}
    if case["job"] == "bicgk":
        return {"bytes": 4 * (m * n + 2 * m + 2 * n), "unit": "fp32"}
    return {"bytes": 4 * (3 * m * n + 4 * m + 5 * n), "unit": "fp32"}
