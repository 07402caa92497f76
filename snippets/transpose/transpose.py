"""A transpose in five ways: which sectors and which banks a warp touches at once.

Shapes  x (M, N) float32 -> (N, M) float32, dense; M, N >= 0. Rows of x may lie any
        stride apart
Bytes   x read once, its transpose written once: 8 * M * N
Error   none: elements are moved bit for bit
Raises  TypeError for another dtype; ValueError for other shapes, for a row whose
        elements are apart, a side over MAX_SIDE, over 2**31 tiles, or a way that is not
        in WAYS
Source  efficient-matrix-transpose, leimao-shared-memory-swizzling, cuda-best-practices
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
MAX_SIDE = 2**31 - 64  # so that a tile's end is still an int


# --8<-- [start:launch]
class Way(NamedTuple):
    """A kernel, the side of a block's tile in elements, and the block's threads."""

    kernel: str
    side: int
    threads: tuple[int, ...]


WAYS = {
    "naive": Way("transpose_naive", 32, (32, 8)),
    "tiled": Way("transpose_tiled<Plain>", 32, (32, 8)),
    "padded": Way("transpose_tiled<Padded>", 32, (32, 8)),
    "swizzled": Way("transpose_tiled<Swizzled>", 32, (32, 8)),
    "float4": Way("transpose_float4", 64, (256,)),
}


def _in_quads(*matrices: torch.Tensor) -> bool:
    """Whether every row begins on 16 bytes and is a whole number of them."""
    return all(
        a.data_ptr() % 16 == 0 and a.stride(0) % 4 == 0 and a.shape[1] % 4 == 0
        for a in matrices
    )


def transpose(x: torch.Tensor, way: str = "float4") -> torch.Tensor:
    """The transpose of `x` (M, N), by a way of WAYS.

    "float4" falls back to "swizzled" where 16 bytes cannot be moved at a time.
    """
    if way not in WAYS:
        raise ValueError(f"transpose: no way {way!r}; there are {', '.join(WAYS)}")
    if x.dtype != torch.float32:
        raise TypeError(f"transpose: x is {x.dtype}, not float32; pass x.float()")
    if x.ndim != 2:
        raise ValueError(f"transpose: x has {x.ndim} dimensions, not 2; reshape it")
    m, n = x.shape
    if max(m, n) > MAX_SIDE:
        raise ValueError(f"transpose: x is {m} x {n}, a side over {MAX_SIDE}; split it")
    if n > 1 and x.stride(1) != 1:
        raise ValueError(
            f"transpose: elements of a row lie {x.stride(1)} apart, they must lie side "
            "by side; pass x.contiguous()"
        )
    y = torch.empty(n, m, dtype=x.dtype, device=x.device)
    if way == "float4" and not _in_quads(x, y):
        way = "swizzled"
    kernel, side, threads = WAYS[way]
    tiles = -(-m // side) * -(-n // side)
    if tiles > cuda.MAX_GRID[0]:
        raise ValueError(f"transpose: x, {m} x {n}, has over 2**31 tiles; split it")
    if tiles:
        sizes = np.int32(m), np.int32(n), np.int64(x.stride(0))
        KERNELS.launch(kernel, tiles, threads, x, y, *sizes)
    return y
# --8<-- [end:launch]


# --8<-- [start:predictions]
# The places of a tile's elements in shared memory, in words, as the kernels have them.
LAYOUTS: dict[str, Callable[[int, int], int]] = {
    "tiled": lambda row, column: 32 * row + column,
    "padded": lambda row, column: 33 * row + column,
    "swizzled": lambda row, column: 32 * row + (column ^ row),
}


def passes(words: Sequence[int]) -> int:
    """Wavefronts of lanes served together: different words of the busiest bank."""
    return max(Counter(word % 32 for word in set(words)).values())


def in_quarters(quads: Sequence[int]) -> int:
    """The same of 16 bytes a lane, of which eight lanes fill a wavefront."""
    quarters = (quads[first : first + 8] for first in range(0, 32, 8))
    return sum(passes([4 * q + w for q in each for w in range(4)]) for each in quarters)


def wavefronts(way: str) -> tuple[int, int]:
    """What a warp's store to shared memory takes, and its load from there."""
    warp = range(32)
    if layout := LAYOUTS.get(way):  # along a row of the tile, then down a column
        rows, columns = ([layout(5, i) for i in warp], [layout(i, 5) for i in warp])
        return passes(rows), passes(columns)
    if way != "float4":
        return 0, 0

    def place(column: int, quad: int) -> int:
        return 16 * column + (quad ^ column // 4 % 8)

    stores = [place(4 * (i % 16), i // 16) for i in warp]  # a quad of every 4th column
    loads = [place(i // 16, i % 16) for i in warp]  # two columns
    return in_quarters(stores), in_quarters(loads)


def sectors(way: str, m: int) -> int:
    """Sectors of 32 bytes that a warp's store touches in rows of `m` elements."""
    apart = {"naive": [i * m for i in range(32)], "float4": [i * 4 for i in range(16)]}
    elements = apart.get(way, list(range(32)))
    if way == "float4":  # the first 16 lanes in one row, the others in the next
        elements += [m + element for element in elements]
    return len({element // 8 for element in elements})
# --8<-- [end:predictions]


def demo(device: str) -> None:
    """Every way on 136 x 196 against torch, and what a warp asks of the memories."""
    x = torch.arange(136.0 * 196, device=device).reshape(136, 196)
    print("a warp      its store to y     in shared memory, wavefronts    right")
    print("            bytes  sectors     of a store        of a load")
    for way in WAYS:
        right = torch.equal(transpose(x, way), x.t())
        size = 512 if way == "float4" else 128
        stores, loads = wavefronts(way)
        asked = f"{size:5}{sectors(way, 136):9}{stores:15}{loads:17}"
        print(f"{way:12}{asked}{right!s:>14}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
