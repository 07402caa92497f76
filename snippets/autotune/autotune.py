"""A float32 product whose seven sizes are parameters: what a tuner has to choose from.

Shapes  a (M, K), b (K, N) float32 -> (M, N) float32; M, N, K >= 0. Rows may lie any
        stride apart; where the elements of a row are apart, a copy is multiplied
FLOPs   2 * M * N * K
Bytes   a and b read once, the product written once: 4 * (M * K + K * N + M * N)
Error   within 5e-6 of a float64 reference
Raises  TypeError for another dtype; ValueError for other shapes, a side over MAX_SIDE
        or sizes that are not allowed
Source  siboehm-cuda-mmm, kernel-tuner, benchmarking-auto-tuning
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
MAX_SIDE = 2**31 - 256  # so that a tile's end is still an int
MAX_STATIC = 48 * 1024  # bytes of shared memory that a kernel may declare

# --8<-- [start:space]
PARAMETERS = {
    "bm": (32, 64, 128),  # rows of C that a block computes
    "bn": (32, 64, 128),  # and columns
    "bk": (8, 16, 32),  # steps of k in shared memory
    "tm": (4, 8, 16),  # rows of C that a thread computes
    "tn": (4, 8, 16),  # and columns
    "spread": (0, 1),  # whether the quads of a thread lie apart
    "buffers": (1, 2),  # slabs in shared memory
}
DEFAULT = {"bm": 128, "bn": 128, "bk": 8, "tm": 8, "tn": 8, "spread": 1, "buffers": 2}


def threads(bm: int, bn: int, tm: int, tn: int) -> int:
    """Of a block: one for each patch of its tile."""
    return bm * bn // (tm * tn)


def refusal(
    *, bm: int, bn: int, bk: int, tm: int, tn: int, spread: int, buffers: int
) -> str | None:
    """Why a configuration is not worth compiling; None for one of the space."""
    block = threads(bm, bn, tm, tn)
    if not 64 <= block <= 512:
        return f"a block of {block} threads, not 64 to 512"
    if tm * tn > 128:
        return f"{tm * tn} sums a thread; over 128 leave no registers"
    if bm * bk % (4 * block) or bk * bn % (4 * block):
        return f"slabs that {block} threads do not share evenly, 16 bytes each"
    if spread and tm == tn == 4:
        return "one quad a thread, which cannot be spread"
    if 4 * buffers * bk * (bm + 4 + bn) > MAX_STATIC:
        return f"over {MAX_STATIC} bytes of shared memory"
    return None


def allowed(**sizes: int) -> bool:
    """Whether a configuration belongs to the space."""
    return refusal(**sizes) is None
# --8<-- [end:space]


def configurations() -> Iterator[dict[str, int]]:
    """Those of the space; the last parameter changes first."""
    for values in itertools.product(*PARAMETERS.values()):
        sizes = dict(zip(PARAMETERS, values, strict=True))
        if allowed(**sizes):
            yield sizes


def _rows(name: str, x: torch.Tensor) -> torch.Tensor:
    """`x`, or a copy of it, with the elements of a row side by side."""
    if x.dtype != torch.float32:
        what = f"{name} is {x.dtype}, not float32; pass {name}.float()"
        raise TypeError(f"autotune: {what}")
    if x.ndim != 2 or max(x.shape) > MAX_SIDE:
        size = " x ".join(map(str, x.shape))
        what = f"{name} is {size}, no matrix of sides up to {MAX_SIDE}; reshape it"
        raise ValueError(f"autotune: {what}")
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


# --8<-- [start:launch]
def multiply(a: torch.Tensor, b: torch.Tensor, **sizes: int) -> torch.Tensor:
    """The product of `a` (M, K) and `b` (K, N) by one configuration.

    `sizes` are any of PARAMETERS; the others are those of DEFAULT.
    """
    if unknown := sizes.keys() - PARAMETERS.keys():
        what = f"no size {min(unknown)!r}; there are {', '.join(PARAMETERS)}"
        raise ValueError(f"autotune: {what}")
    chosen = {**DEFAULT, **sizes}
    for name, value in chosen.items():
        if value not in PARAMETERS[name]:
            what = f"{name} = {value} is none of {PARAMETERS[name]}; choose one"
            raise ValueError(f"autotune: {what}")
    if why := refusal(**chosen):
        raise ValueError(f"autotune: {chosen} makes {why}; choose others")
    a, b = _rows("a", a), _rows("b", b)
    if a.shape[1] != b.shape[0] or a.device != b.device:
        raise ValueError(
            f"autotune: a {tuple(a.shape)} on {a.device} and b {tuple(b.shape)} on "
            f"{b.device} cannot be multiplied; K and the device must be one"
        )
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk, tm, tn, spread, buffers = (chosen[name] for name in PARAMETERS)
    tiles = -(-m // bm) * -(-n // bn)
    if tiles > cuda.MAX_GRID[0]:
        raise ValueError(f"autotune: {m} x {n} has over 2**31 tiles; split it")
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if tiles:
        instance = f"sgemm_tile<{bm}, {bn}, {bk}, {tm}, {tn}, {spread}, {buffers}>"
        at = *map(np.int32, (m, n, k)), *map(np.int64, (a.stride(0), b.stride(0)))
        KERNELS.launch(instance, tiles, threads(bm, bn, tm, tn), a, b, c, *at)
    return c
# --8<-- [end:launch]


def demo(device: str) -> None:
    """The size of the space, and a few of its configurations against float64."""
    every = 1
    for values in PARAMETERS.values():
        every *= len(values)
    space = list(configurations())
    print(f"{every} combinations, {len(space)} of them allowed")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(s, generator=generator) for s in ((137, 67), (67, 130)))
    truth = a.double() @ b.double()
    print(f"{'  '.join(PARAMETERS)}  threads  within 5e-6")
    for sizes in (DEFAULT, space[0], space[len(space) // 2], space[-1]):
        c = multiply(a.to(device), b.to(device), **sizes).cpu()
        close = bool((c - truth).norm() <= 5e-6 * truth.norm())
        row = "  ".join(f"{sizes[name]:{len(name)}}" for name in PARAMETERS)
        block = threads(sizes["bm"], sizes["bn"], sizes["tm"], sizes["tn"])
        print(f"{row}  {block:7}  {close!s:>11}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
