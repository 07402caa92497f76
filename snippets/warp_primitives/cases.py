"""What warp_primitives is held to: lengths about every tile, ties at a limit, skew."""

from __future__ import annotations

from collections.abc import Callable

import torch

from snippets.warp_primitives import warp_primitives as ours

NEEDS = {"variants": {"redux": {"sm": ">=80", "why": "redux.sync"}}}
FLOATS = ["shared", "shuffle", "groups", "cub"]
RANKED = ["shared", "ballot", "lookback"]
COUNTED_BY = ["global", "shared", "match"]


def added(n: int, dtype: str, *kills: str, **more: object) -> dict:
    """A case of a sum."""
    ways = FLOATS if dtype == "float32" else [*FLOATS, "redux"]
    return {"job": "sum", "dtype": dtype, "n": n, "variants": ways, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


def kept(n: int, share: float, *kills: str, **more: object) -> dict:
    """A case of a compaction that keeps this share of `n`."""
    return {"job": "compact", "share": share, "n": n, "variants": RANKED, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


def binned(n: int, bins: int, values: str, *kills: str) -> dict:
    """A case of a histogram."""
    return {"job": "histogram", "values": values, "n": n, "bins": bins,
            "variants": COUNTED_BY,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    added(2, "float32", "only whole quads"),
    added(6147, "float32",
          "a butterfly one step short", "tree without its barriers",
          "words of the warps unwaited for", "words past the last warp are added"),
    added(4102, "int32", "the first six for the last", "redux of half a warp",
          scale=2.0**30),
    added(21_013, "int32", "second load from the first place", scale=2.0**30),
    kept(1, 1.0, "whole tiles only"),
    kept(1500, 0.3, "what reaches the limit is kept", "flags unwaited for",
         "counts unwaited for", "added before all have read", "added unwaited for",
         "lanes count themselves"),
    kept(40_000, 0.1, "starts without those before", "starts after a lane's count",
         "count of the last tile for all"),
    kept(4097, 0.6, "every tile begins at 0", "every warp begins at 0",
         "kept unwaited for", "tile unwaited for", "warps' counts unwaited for",
         "a lane's own vote counts", "16 bytes at any address"),
    kept(139_400, 0.9, "lanes beyond the nearest are added",
         "the furthest that knows", "a tile tells its own for all"),
    binned(1021, 10, "uniform", "counts begin anywhere", "bins unwaited for",
           "counts merged unwaited for"),
    binned(2050, 7, "skewed", "the whole warp for each value", "every lane counts all",
           "values below 0 are counted", "lanes without a value match"),
)  # fmt: skip
TIMED = (
    added(2**28, "float32"),
    added(2**28, "int32"),
    added(2**20, "float32"),
    kept(2**28, 0.1),
    kept(2**28, 0.5),
    kept(2**28, 0.9),
    binned(2**28, 256, "uniform"),
    binned(2**28, 256, "skewed"),
    binned(2**28, 8192, "uniform"),
)
COUNTED = (
    added(32_768, "float32"),
    added(32_768, "int32"),
    kept(32_768, 0.5),
    binned(16_384, 256, "uniform"),
)
# A sum has 16 elements a thread in flight: 1536 threads, 96 KiB a multiprocessor.
# 32 registers let it have all 2048 threads. Of what is kept the runs begin anywhere.
LIMITS = {
    "*": {"spilled_bytes": 0},
    "sum_of": {
        "registers": 40, "warps": 48, "wide_accesses": 0.98, "sectors_over_ideal": 1,
    },
    "keep_looking_back<true>": {
        "registers": 48, "warps": 40, "sectors_over_ideal": 1.1,
    },
    "histogram": {"registers": 32, "warps": 64},
    "histogram<EachToShared>": {"sectors_over_ideal": 1},
    "histogram<MatchToShared>": {"sectors_over_ideal": 1},
}  # fmt: skip


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple:
    """The job, x, and the limit or the bins.

    Numbers to be added do not cancel. Of those to be kept a share lies over the limit,
    in any order, one is the limit itself, and some are infinite or no numbers. Values
    to be counted may be out of range; of "skewed" nine in ten are the same.
    """
    n = case["n"]

    def uniform() -> torch.Tensor:
        return torch.rand(n, generator=generator, device=device)

    if case["job"] == "sum":
        x = (1 + uniform()) * case.get("scale", 1.0)
        return "sum", x.to(getattr(torch, case["dtype"]))
    if case["job"] == "compact":
        order = torch.randperm(n, generator=generator, device=device)
        over = order < round(case["share"] * n)
        x = torch.where(over, 1.5 + uniform(), 0.5 - uniform())
        x[order == 1] = torch.inf
        x[order == n - 2], x[order == n - 3] = -torch.inf, 1.0
        x[order == n - 4] = torch.nan
        if n == 1:
            x += 1
        return "compact", x, 1.0
    x = (uniform() * (case["bins"] + 2)).int() - 1
    if case["values"] == "skewed":
        x = torch.where(uniform() < 0.9, x.new_tensor(case["bins"] // 2), x)
    return "histogram", x, case["bins"]


def reference(job: str, x: torch.Tensor, *rest: float) -> torch.Tensor:
    """The same by torch, in float64 or in integers."""
    if job == "sum" and x.dtype == torch.int32:
        return ((x.long().sum() + 2**31) % 2**32 - 2**31).int()
    if job == "sum":
        return x.double().sum()
    if job == "compact":
        return x[x > rest[0]].double()
    return counted(x, int(rest[0]))


def counted(x: torch.Tensor, bins: int) -> torch.Tensor:
    """torch's histogram of what is in range."""
    return torch.bincount(x[(x >= 0) & (x < bins)], minlength=bins)


def by(way: str) -> Callable:
    """One way of ours."""

    def run(job: str, x: torch.Tensor, *rest: float) -> torch.Tensor:
        if job == "sum":
            return ours.total(x, way)
        if job == "compact":
            return ours.compact(x, rest[0], way)
        return ours.histogram(x, int(rest[0]), way)

    return run


def library(job: str, x: torch.Tensor, *rest: float) -> torch.Tensor:
    """torch."""
    if job == "sum":
        return x.sum(dtype=x.dtype)
    if job == "compact":
        return torch.masked_select(x, x > rest[0])
    return counted(x, int(rest[0]))


WAYS = dict.fromkeys([*ours.SUMS, *ours.RANKS, "lookback", *ours.COUNTERS])
VARIANTS = {way: by(way) for way in WAYS}
PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """x read once, and what is kept, or the counts, written once."""
    written = {
        "sum": 4,
        "compact": 4 * round(case.get("share", 0) * case["n"]),
        "histogram": 8 * case.get("bins", 0),
    }
    return {"bytes": 4 * case["n"] + written[case["job"]], "unit": "fp32"}
