"""A 7-point stencil in three dimensions: marching along z, and several steps a sweep.

Shapes  x (Z, Y, X) float32, dense -> the same after `steps` steps of
        c0 * x + c1 * (its six neighbours); cells on a face keep their values
Bytes   8 * Z * Y * X a sweep, and halos; a sweep is T steps, 1, 2 or 4
FLOPs   8 for each cell and step
Error   within 5e-6 of a float64 reference, and the same bits by every way
Raises  TypeError for another dtype or steps that are no integer; ValueError for a grid
        that has not three dimensions or is not dense, steps outside 0 ... MAX_STEPS,
        a side over MAX_SIDE, more blocks than 2**31 - 1, or a way that is not in WAYS
Source  nguyen-35d-blocking, micikevicius-finite-difference, meng-skadron-ghost-zones
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
MAX_SIDE = 2**31 - 256  # so that a tile's end is still an int
MAX_STEPS = 2**20  # of a call, which queues them all at once


class Way(NamedTuple):
    """How a sweep goes: its kernel, its block, and what a block writes of a plane."""

    kernel: str
    threads: tuple[int, int]
    tile: tuple[int, int]  # cells along y and x
    loads: int  # cells that it asks of memory for each plane of its tile
    depth: int = 1  # steps that a sweep takes
    planes: int = 0  # that a block writes; 0 where it marches as far as is best
    blocks: int = 1  # that a multiprocessor has at a time

    @property
    def shared(self) -> int:
        """Bytes of the queue: twice, for each level, a plane of 32 rows of 128."""
        return 2 * self.depth * 32 * 128 * 4 * (self.kernel == "stencil_time")


# --8<-- [start:ways]
WAYS = {
    "naive": Way("stencil_naive", (32, 8), (8, 32), 7 * 8 * 32, planes=1),
    "tiled": Way("stencil_tiled", (32, 8), (8, 32), 10 * 10 * 34 // 8, planes=8),
    "marching": Way("stencil_marching", (32, 16), (16, 32), 16 * 34 + 64, blocks=4),
    "float4": Way("stencil_time", (32, 16), (30, 120), 32 * 128, blocks=2),
    "two steps": Way("stencil_time", (32, 16), (28, 120), 32 * 128, depth=2),
    "four steps": Way("stencil_time", (32, 16), (24, 120), 32 * 128, depth=4),
}
# --8<-- [end:ways]


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 3  # so that a small grid has several blocks along z
    return torch.cuda.get_device_properties(device).multi_processor_count


# --8<-- [start:slabs]
def march(z: int, tiles: int, depth: int, room: int) -> int:
    """Planes that a block writes, where `room` blocks are at work at a time.

    A block takes 2 * depth planes more than it writes. Few blocks leave multiprocessors
    without work, many load too many planes twice: the least of waves times planes.
    """

    def planes_in_turn(slabs: int) -> int:
        return -(-tiles * slabs // room) * (-(-z // slabs) + 2 * depth)

    return -(-z // min(range(1, min(z, 64) + 1), key=planes_in_turn))
# --8<-- [end:slabs]


def _sweep(way: Way, x: torch.Tensor, y: torch.Tensor, c0: float, c1: float) -> None:
    """y from x, as many steps later as the way takes at once."""
    sides = z, high, wide = x.shape
    tiles = -(-high // way.tile[0]) * -(-wide // way.tile[1])
    room = way.blocks * _multiprocessors(x.device)
    planes = way.planes or march(z, tiles, way.depth, room)
    blocks = tiles * -(-z // planes)
    if blocks > cuda.MAX_GRID[0]:
        raise ValueError(
            f"stencil: a grid of {z} x {high} x {wide} takes {blocks} blocks, over "
            f"{cuda.MAX_GRID[0]}; split it, or make its longest side the last"
        )
    kernel = way.kernel
    if kernel == "stencil_time":
        quads = wide % 4 == 0 and x.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0
        kernel += f"<{way.depth}, {quads:d}>"
    numbers = (*map(np.int32, (*sides, planes)), np.float32(c0), np.float32(c1))
    KERNELS.launch(kernel, blocks, way.threads, x, y, *numbers, shared=way.shared)


# --8<-- [start:launch]
def advance(
    x: torch.Tensor, steps: int, c0: float, c1: float, way: str = "four steps"
) -> torch.Tensor:
    """The grid `steps` steps on, by a way of WAYS; never x itself."""
    if way not in WAYS:
        raise ValueError(f"stencil: no way {way!r}; there are {', '.join(WAYS)}")
    if x.dtype != torch.float32:
        raise TypeError(f"stencil: x is {x.dtype}, not float32; convert it")
    if x.ndim != 3:
        raise ValueError(f"stencil: x has {x.ndim} dimensions, not 3; reshape it")
    if not x.is_contiguous():
        raise ValueError(
            f"stencil: x has strides {x.stride()}, it must be dense; pass "
            "x.contiguous()"
        )
    if not isinstance(steps, int):
        raise TypeError(f"stencil: steps = {steps!r} is no integer; pass int(steps)")
    if steps < 0:
        raise ValueError(f"stencil: steps = {steps} is below 0; no step can be undone")
    if steps > MAX_STEPS:
        raise ValueError(
            f"stencil: steps = {steps} is over {MAX_STEPS}; call it several times"
        )
    if max(x.shape) > MAX_SIDE:
        raise ValueError(
            f"stencil: a side of {max(x.shape)} is over {MAX_SIDE}; split the grid"
        )
    if steps == 0 or x.numel() == 0:
        return x.clone()
    deep, rest = divmod(steps, WAYS[way].depth)
    sweeps = [WAYS[way]] * deep + [WAYS["float4"]] * rest  # the rest by single steps
    buffers = [torch.empty_like(x) for _ in sweeps[:2]]
    for i, each in enumerate(sweeps):
        y = buffers[i % 2]
        _sweep(each, x, y, c0, c1)
        x = y
    return x
# --8<-- [end:launch]


# --8<-- [start:moved]
def moved(way: Way) -> float:
    """Bytes a cell and step of a block that marches far, inside a large grid."""
    written = way.tile[0] * way.tile[1]
    return 4 * (way.loads / written + 1) / way.depth


def updates(way: Way) -> float:
    """Updates for one that is needed: halos take steps too."""
    if way.kernel != "stencil_time":
        return 1.0
    return 32 * 128 / (way.tile[0] * way.tile[1])
# --8<-- [end:moved]


def demo(device: str) -> None:
    """Eleven steps by every way, and what each moves and updates for a cell."""
    draw = torch.Generator(device).manual_seed(0)
    x = torch.randn(9, 34, 130, generator=draw, device=device)
    first = advance(x, 11, 0.4, 0.1, "naive")
    print("way          bytes a cell and step   updates for one   same bits")
    for name, way in WAYS.items():
        same = "yes" if torch.equal(advance(x, 11, 0.4, 0.1, name), first) else "no"
        print(f"{name:13}{moved(way):21.2f}{updates(way):18.2f}{same:>12}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
