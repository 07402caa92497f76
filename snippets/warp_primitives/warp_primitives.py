"""A sum, an ordered compaction, a histogram: what lanes tell each other in registers.

Shapes  total: x (n,) float32 or int32 -> () of the same dtype, int32 modulo 2**32;
        compact: x (n,) float32 -> the elements over a limit, in their order;
        histogram: x (n,) int32 -> (bins,) int64; a value that is none of 0 ... bins - 1
        is counted nowhere
Bytes   x read once: 4 * n; and what is kept written once
Error   integers are exact; a float32 sum within 5e-6 of float64, and the same bits
        every time on the same device
Raises  TypeError for another dtype; ValueError for a vector that is not dense, over
        MAX_BINS bins, more elements than a grid has blocks for, or no such way
Source  cuda-warp-primitives, warp-aggregated-atomics, cub-warp-collectives,
        cooperative-groups, decoupled-look-back
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch

from snippets import cuda

LIBRARIES = cuda.Source(Path(__file__).with_suffix(".cu"))
KERNELS = cuda.Source(LIBRARIES.path, ("-DWITHOUT_LIBRARIES",))
SHARED = 100 * 1024  # bytes that any multiprocessor from sm_80 on has for blocks
MAX_BINS = 12_288  # that fill the 48 KiB of shared memory a block has unasked
SUMS = {
    "shared": "Shared",
    "shuffle": "ByWarps<Butterfly>",
    "groups": "ByWarps<Group>",
    "redux": "ByWarps<Redux>",
    "cub": "Cub",
}
RANKS = {"shared": "SharedRank", "ballot": "BallotRank"}
COUNTERS = {
    "global": "EachToGlobal",
    "shared": "EachToShared",
    "match": "MatchToShared",
}
TYPES = {torch.float32: "float", torch.int32: "int"}


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def _blocks(x: torch.Tensor, elements: int, each: int) -> int:
    """One block for so many elements, and at most `each` a multiprocessor.

    That is as many as are on it at a time, or a few would begin when the others end.
    """
    return min(-(-x.numel() // elements), each * _multiprocessors(x.device))


def _dense(x: torch.Tensor, *dtypes: torch.dtype) -> None:
    if x.dtype not in dtypes:
        names = " or ".join(str(one).removeprefix("torch.") for one in dtypes)
        raise TypeError(f"warp_primitives: x is {x.dtype}, not {names}; convert it")
    if x.ndim != 1:
        raise ValueError(
            f"warp_primitives: x has {x.ndim} dimensions, not 1; pass x.flatten()"
        )
    if x.numel() > 1 and x.stride(0) != 1:
        raise ValueError(
            f"warp_primitives: elements of x lie {x.stride(0)} apart, they must lie "
            "side by side; pass x.contiguous()"
        )


def _known(way: str, ways: dict[str, str] | tuple[str, ...], what: str) -> None:
    if way not in ways:
        raise ValueError(
            f"warp_primitives: no way {way!r} to {what}; there are {', '.join(ways)}"
        )


# --8<-- [start:launch]
def total(x: torch.Tensor, way: str = "shuffle") -> torch.Tensor:
    """The sum of `x`, by a way of SUMS: of each block, then of the blocks' sums."""
    _known(way, SUMS, "sum")
    _dense(x, *TYPES)
    if way == "redux" and x.dtype != torch.int32:
        raise TypeError(
            f"warp_primitives: x is {x.dtype}, and redux adds int32; sum by shuffle"
        )
    source = LIBRARIES if way in ("groups", "cub") else KERNELS
    kernel = f"sum_of<{SUMS[way]}, {TYPES[x.dtype]}>"
    while True:  # twice at most: the sums of all blocks are few
        blocks = max(1, _blocks(x, 4096, each=6))
        sums = torch.empty(blocks, dtype=x.dtype, device=x.device)
        source.launch(kernel, blocks, 256, x, sums, np.int64(x.numel()))
        if blocks == 1:
            return sums[0]
        x = sums


def compact(x: torch.Tensor, limit: float, way: str = "lookback") -> torch.Tensor:
    """What of `x` is over `limit`, in its order, by a way of RANKS or "lookback".

    Waits for the GPU, since the length of the result is what it finds.
    """
    _known(way, (*RANKS, "lookback"), "compact")
    _dense(x, torch.float32)
    n, bound = x.numel(), np.float32(limit)
    size = 4096 if way == "lookback" else 1024
    blocks = -(-n // size)
    if blocks > cuda.MAX_GRID[0]:
        raise ValueError(f"warp_primitives: x has {n} elements; split it")
    if n == 0:
        return torch.empty_like(x)
    y = torch.empty_like(x)
    work = torch.zeros(blocks + 2, dtype=torch.int64, device=x.device)
    if way == "lookback":
        wide = "true" if x.data_ptr() % 16 == 0 else "false"
        kernel = f"keep_looking_back<{wide}>"
        KERNELS.launch(kernel, blocks, 256, x, y, work, np.int64(n), bound)
        return y[: int(work[1])]
    rank = RANKS[way]
    KERNELS.launch(f"keep_counts<{rank}>", blocks, size, x, work, np.int64(n), bound)
    KERNELS.launch("keep_starts", 1, 32, work, np.int64(blocks))
    elements = f"keep_elements<{rank}>"
    KERNELS.launch(elements, blocks, size, x, y, work, np.int64(n), bound)
    return y[: int(work[blocks])]


def histogram(x: torch.Tensor, bins: int, way: str = "match") -> torch.Tensor:
    """How often each of 0 ... bins - 1 is in `x`, by a way of COUNTERS."""
    _known(way, COUNTERS, "count")
    _dense(x, torch.int32)
    if not 1 <= bins <= MAX_BINS:
        raise ValueError(
            f"warp_primitives: bins = {bins} is outside 1 ... {MAX_BINS}; count a "
            "range of values at a time"
        )
    counts = torch.zeros(bins, dtype=torch.int64, device=x.device)
    kernel, shared = f"histogram<{COUNTERS[way]}>", 4 * bins * (way != "global")
    each = min(8, SHARED // (shared + 1024))  # blocks of 256 threads that have room
    if blocks := _blocks(x, 1024, each):
        sizes = np.int64(x.numel()), np.int32(bins)
        KERNELS.launch(kernel, blocks, 256, x, counts, *sizes, shared=shared)
    return counts
# --8<-- [end:launch]


def demo(device: str) -> None:
    """Each job by each way on 10,007 values, against torch."""
    x = (torch.arange(10_007, device=device) * 7919 % 1009).int()
    f = x.float()
    jobs = {
        "sum": (SUMS, lambda way: total(x, way), x.sum(dtype=torch.int32)),
        "over 504": (
            (*RANKS, "lookback"), lambda way: compact(f, 504, way), f[f > 504],
        ),
        "histogram": (
            COUNTERS, lambda way: histogram(x, 1009, way), x.bincount(minlength=1009),
        ),
    }
    for name, (ways, by, expected) in jobs.items():
        first = expected.flatten()[:3].tolist()
        values = ", ".join(f"{value:g}" for value in first)
        print(f"{name}: {expected.numel()} values, {values}")
        print("  right:", ", ".join(w for w in ways if torch.equal(by(w), expected)))


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
