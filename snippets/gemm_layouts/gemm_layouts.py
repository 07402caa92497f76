"""A matrix product whose operands lie by rows or by columns: NN, NT, TN and TT.

Shapes  a (M, K), b (K, N) float32, each by rows or by columns -> c (M, N), by rows or
        by columns; M, N, K >= 0
FLOPs   2 * M * N * K
Error   within 5e-6 of a float64 reference
Raises  TypeError for another dtype; ValueError for other shapes, for a matrix of which
        neither rows nor columns have their elements side by side, a side over MAX_SIDE,
        over 2**31 tiles, or a way that is not in WAYS
Source  siboehm-cuda-mmm, leimao-shared-memory-swizzling, cutlass-efficient-gemm
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
MAX_SIDE = 2**31 - 256  # so that a tile's end is still an int
WAYS = {"naive": "", "tiled": "Plain", "padded": "Padded", "swizzled": "Swizzled"}


# --8<-- [start:layout]
def by_rows(x: torch.Tensor) -> bool:
    """Whether the elements of a row of `x` lie side by side, else those of a column."""
    return x.shape[1] <= 1 or x.stride(1) == 1


def layout(a: torch.Tensor, b: torch.Tensor) -> str:
    """BLAS's name of the pair: N for a matrix by rows, T for one by columns."""
    return "".join("N" if by_rows(x) else "T" for x in (a, b))


def _apart(x: torch.Tensor) -> int:
    """How far apart the rows lie, or the columns of a matrix that lies by columns."""
    return x.stride(0 if by_rows(x) else 1)


def _in_quads(*matrices: torch.Tensor) -> bool:
    """Whether each can be read 16 bytes at a time, along the way it lies."""
    return all(
        x.data_ptr() % 16 == 0
        and _apart(x) % 4 == 0
        and x.shape[1 if by_rows(x) else 0] % 4 == 0
        for x in matrices
    )


def product(
    a: torch.Tensor, b: torch.Tensor, way: str = "swizzled", columns: bool = False
) -> torch.Tensor:
    """a b by a way of WAYS, by rows; with `columns` by columns."""
    if columns:  # the transpose of b^T a^T by rows, and nothing is moved
        return product(b.t(), a.t(), way).t()
    if way not in WAYS:
        raise ValueError(f"gemm_layouts: no way {way!r}; there are {', '.join(WAYS)}")
    for name, x in (("a", a), ("b", b)):
        if x.dtype != torch.float32:
            raise TypeError(
                f"gemm_layouts: {name} is {x.dtype}, not float32; convert it"
            )
        if x.ndim != 2:
            raise ValueError(
                f"gemm_layouts: {name} has {x.ndim} dimensions, not 2; reshape it"
            )
        if not by_rows(x) and x.shape[0] > 1 and x.stride(0) != 1:
            raise ValueError(
                f"gemm_layouts: {name} has strides {x.stride()}, one of which must be "
                f"1; pass {name}.contiguous()"
            )
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise ValueError(
            f"gemm_layouts: a is {m} x {k} and b is {b.shape[0]} x {n}; a's columns "
            "must be as many as b's rows"
        )
    if max(m, n, k) > MAX_SIDE:
        raise ValueError(f"gemm_layouts: a side is over {MAX_SIDE}; split the product")
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    rows, across = (8, 32) if way == "naive" else (128, 128)
    tiles = -(-m // rows) * -(-n // across)
    if tiles > cuda.MAX_GRID[0]:
        raise ValueError(f"gemm_layouts: c, {m} x {n}, has over 2**31 tiles; split it")
    if not tiles:
        return c
    along_k = f"{by_rows(a):d}, {not by_rows(b):d}"
    kernel, threads = f"gemm_naive<{along_k}>", (32, 8)
    if way != "naive":
        kernel = f"gemm_tiled<{WAYS[way]}, {along_k}, {_in_quads(a, b):d}>"
        threads = (256,)
    sizes = np.int32(m), np.int32(n), np.int32(k)
    strides = np.int64(_apart(a)), np.int64(_apart(b))
    KERNELS.launch(kernel, tiles, threads, a, b, c, *sizes, *strides)
    return c
# --8<-- [end:layout]


# --8<-- [start:banks]
# The places of a slab's elements in shared memory, in words, as the kernel has them.
PLACES: dict[str, Callable[[int, int], int]] = {
    "tiled": lambda k, i: 128 * k + i,
    "padded": lambda k, i: 132 * k + i,
    "swizzled": lambda k, i: 128 * k + (i ^ k // 4 % 4 * 8),
}


def words(way: str, along_k: bool) -> list[list[int]]:
    """By lane of the first warp, the words that one store to a slab writes."""
    at = PLACES[way]
    if along_k:  # four lanes have a row's quads, and each stores them an element a time
        return [[at(lane % 4 * 4, lane // 4)] for lane in range(32)]
    return [[at(0, 4 * lane + j) for j in range(4)] for lane in range(32)]


def wavefronts(lanes: Sequence[Sequence[int]]) -> int:
    """Passes through shared memory: 128 bytes at a time, a word of each bank."""
    together = 32 // len(lanes[0])
    passes = 0
    for first in range(0, 32, together):
        asked = {word for lane in lanes[first : first + together] for word in lane}
        passes += max(Counter(word % 32 for word in asked).values())
    return passes
# --8<-- [end:banks]


def demo(device: str) -> None:
    """The four layouts by every way, and the bank of every lane of a store."""
    draw = torch.Generator(device).manual_seed(0)
    a, b = (torch.randint(-9, 9, (132, 132), generator=draw, device=device).float()
            for _ in "ab")  # fmt: skip
    pairs = [(x, y) for x in (a, a.t()) for y in (b, b.t())]
    for way in WAYS:
        same = [torch.equal(product(x, y, way), x @ y) for x, y in pairs]
        right = [layout(*pair) for pair, one in zip(pairs, same, strict=True) if one]
        print(f"{way:9} right: {' '.join(right)}")
    print("\na store of what lies along K: the bank of every lane, wavefronts")
    for way in PLACES:
        lanes = words(way, along_k=True)
        banks = " ".join(f"{word % 32}" for [word] in lanes)
        print(f"{way:9}{banks}: {wavefronts(lanes)}")
    print("a store of 16 bytes a lane, of what lies along M or N: wavefronts")
    each = {way: wavefronts(words(way, along_k=False)) for way in PLACES}
    print("   ".join(f"{way} {passes}" for way, passes in each.items()))


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
