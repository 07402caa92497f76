"""Who copies while others compute: tiles of a matrix through shared memory, five ways.

Shapes  x (M, N) float32, rows any distance apart, elements of a row side by side ->
        y (M, N), dense: 1 + v + ... + v**degree with v = x / 2, by Horner's rule
Bytes   x read once and y written once: 8 * M * N
FLOPs   2 * degree * M * N
Error   within 5e-6 of a float64 reference, and the same bits by every way
Raises  TypeError for another dtype or a degree that is no integer; ValueError for other
        than two dimensions, elements of a row apart, a degree outside 0 ... MAX_DEGREE,
        more than MAX_TILES tiles, or no such way; and by bulk copies for rows that do
        not begin and end on 16 bytes, or an architecture without them
Source  cudadma, async-copies, async-barriers
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
TILE = 2048  # floats, of one row
MAX_DEGREE = 64
MAX_TILES = 2**30  # so that a tile's number and the next's are ints


class Way(NamedTuple):
    """Who does what in a block, and how many blocks a multiprocessor is given."""

    kernel: str
    copy: int  # threads that copy
    compute: int  # threads that compute
    threads: int  # of the block
    blocks: int
    ahead: int  # tiles that a block has on their way while it computes
    loads: int  # and while it does not
    sm: int = 80  # the first architecture that has what it takes


# --8<-- [start:ways]
WAYS = {
    "direct": Way("series_direct", 256, 256, 256, blocks=8, ahead=0, loads=1),
    "staged": Way("series_staged", 256, 256, 256, blocks=8, ahead=0, loads=1),
    "producers": Way("series_producers", 64, 128, 192, blocks=4, ahead=1, loads=1),
    "cp.async": Way("series_async", 256, 256, 256, blocks=4, ahead=3, loads=3),
    "bulk copy": Way("series_bulk", 1, 128, 160, blocks=4, ahead=4, loads=4, sm=90),
}
# --8<-- [end:ways]


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _blocks(way: Way, device: torch.device) -> int:
    """All that are to be resident at a time; on a CPU two, so that their rings turn."""
    return way.blocks * _multiprocessors(device) if device.type == "cuda" else 2


def _architecture(device: torch.device) -> int:
    """Such as 90: a GPU's own, or that of the code that a CPU executes."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return 10 * major + minor
    return int((os.environ.get("PAPERGPU_TARGET") or "sm_90").removeprefix("sm_"))


def _refuse(what: str) -> None:
    raise ValueError(f"bulk_copy: {what}")


def _known(x: torch.Tensor, degree: int, way: str) -> None:
    if way not in WAYS:
        _refuse(f"no way {way!r}; there are {', '.join(WAYS)}")
    if x.dtype != torch.float32:
        raise TypeError(f"bulk_copy: x is {x.dtype}, not torch.float32; convert it")
    if x.ndim != 2:
        _refuse(f"x has {x.ndim} dimensions, not 2; reshape it")
    if not isinstance(degree, int):
        raise TypeError(f"bulk_copy: degree = {degree!r} is no integer; pass int(...)")
    if not 0 <= degree <= MAX_DEGREE:
        _refuse(f"degree = {degree} is outside 0 ... {MAX_DEGREE}; split the sum")
    if x.shape[1] > 1 and x.stride(1) != 1:
        _refuse(
            f"elements of a row of x lie {x.stride(1)} apart, they must lie side by "
            "side; pass x.contiguous()"
        )


# --8<-- [start:launch]
def series(x: torch.Tensor, degree: int, way: str = "cp.async") -> torch.Tensor:
    """The sum of (x / 2)**i for i from 0 to degree, by a way of WAYS."""
    _known(x, degree, way)
    given, (rows, columns), stride = WAYS[way], x.shape, x.stride(0)
    if x.is_contiguous():  # no gaps: a single row
        rows, columns, stride = 1, x.numel(), x.numel()
    if (tiles := rows * -(-columns // TILE)) > MAX_TILES:
        _refuse(f"x has {tiles} tiles, over {MAX_TILES}; split it")
    quads = columns % 4 == 0 and x.data_ptr() % 16 == 0
    quads &= rows == 1 or stride % 4 == 0
    if way == "bulk copy":
        if (found := _architecture(x.device)) < given.sm:
            _refuse(f'sm_{found} has no bulk copies, sm_90 has; use the way "cp.async"')
        if not quads:
            _refuse(
                f"rows of {columns} floats, {stride} apart, from address "
                f"{x.data_ptr():#x} on, do not all begin and end on 16 bytes, as bulk "
                'copies must; pad the rows to a multiple of 4, or use "cp.async"'
            )
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if tiles:
        pack = "<float4>" if quads else "<float>"
        grid = min(tiles, _blocks(given, x.device))
        KERNELS.launch(
            given.kernel + pack, grid, given.threads,
            x, np.int64(stride), y, np.int32(rows), np.int64(columns), np.int32(degree),
        )  # fmt: skip
    return y
# --8<-- [end:launch]


# --8<-- [start:in_flight]
def in_flight(way: Way) -> tuple[int, int]:
    """KiB on their way to a multiprocessor: while its blocks compute, and at most."""
    tile = TILE * 4 // 1024
    return way.blocks * way.ahead * tile, way.blocks * way.loads * tile
# --8<-- [end:in_flight]


def demo(device: str) -> None:
    """Every way on a pitched matrix, and what each has on its way."""
    draw = torch.Generator(device).manual_seed(0)
    x = torch.rand(9, 6200, generator=draw, device=device)[:, :6148]
    first = series(x, 12, "direct")
    print("           copy  compute   KiB on their way to a multiprocessor")
    print("way           (threads)     while it computes   at most   same bits")
    for name, way in WAYS.items():
        same = "not here"
        if _architecture(x.device) >= way.sm:
            same = "yes" if torch.equal(series(x, 12, name), first) else "no"
        computing, most = in_flight(way)
        print(
            f"{name:10}{way.copy:5}{way.compute:9}{computing:22}{most:10}{same:>12}"
        )


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
