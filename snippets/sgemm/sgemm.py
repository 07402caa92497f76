"""A float32 matrix product as a ladder: each rung relieves what starves the one below.

Shapes  a (M, K), b (K, N) float32 -> (M, N) float32; M, N, K >= 0. Rows may lie any
        stride apart; where the elements of a row are apart, a copy is multiplied
FLOPs   2 * M * N * K
Bytes   a and b read once, the product written once: 4 * (M * K + K * N + M * N)
Error   within 5e-6 of a float64 reference
Raises  TypeError for another dtype; ValueError for other shapes, a side over MAX_SIDE
        or a rung that is not in RUNGS
Source  siboehm-cuda-mmm, xgemm-steps, nvidia-sgemm-practice, cutlass-efficient-gemm
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
MAX_SIDE = 2**31 - 256  # so that a tile's end is still an int


# --8<-- [start:rungs]
class Rung(NamedTuple):
    """A kernel and its sizes, in elements.

    block (BM, BN), warp (WM, WN) and patch (TM, TN) are the parts of C that a block, a
    warp and a thread compute. slab is the depth BK of what lies in shared memory, 0 for
    nothing; word is what one load from there fetches.
    """

    kernel: str  # with the places of its template arguments
    block: tuple[int, int]
    warp: tuple[int, int]
    patch: tuple[int, int] = (1, 1)
    slab: int = 0
    word: int = 1

    def instance(self) -> str:
        """The kernel's name with its template arguments: "sgemm_naive<32>"."""
        (bm, bn), (wm, wn), (tm, tn) = self.block, self.warp, self.patch
        sizes = {"bm": bm, "bn": bn, "bk": self.slab, "wm": wm, "wn": wn}
        return self.kernel.format(**sizes, tm=tm, tn=tn)

    def threads(self) -> tuple[int, ...]:
        """The threads of a block: a square where each has one element, else a row."""
        (bm, bn), (tm, tn) = self.block, self.patch
        return (bn, bm) if (tm, tn) == (1, 1) else (bm * bn // (tm * tn),)


RUNGS = {
    "naive": Rung("sgemm_naive<{bm}>", (32, 32), (32, 1)),
    "coalesced": Rung("sgemm_coalesced<{bm}>", (32, 32), (1, 32)),
    "shared": Rung("sgemm_shared<{bk}>", (32, 32), (1, 32), slab=32),
    "1-D coarse": Rung(
        "sgemm_coarse_1d<{bm}, {bn}, {bk}, {tm}>", (64, 64), (8, 32), (8, 1), slab=8
    ),
    "2-D coarse": Rung(
        "sgemm_coarse_2d<{bm}, {bn}, {bk}, {tm}, {tn}>",
        (128, 128), (16, 128), (8, 8), slab=8,
    ),
    "float4": Rung(
        "sgemm_float4<{bm}, {bn}, {bk}>", (128, 128), (16, 128), (8, 8), slab=8, word=4
    ),
    "warp tiles": Rung(
        "sgemm_warp_tiles<{bm}, {bn}, {bk}, {wm}, {wn}>",
        (128, 128), (32, 64), (8, 8), slab=8, word=4,
    ),
    "double buffered": Rung(
        "sgemm_double_buffered<{bm}, {bn}, {bk}, {wm}, {wn}>",
        (128, 128), (32, 64), (8, 8), slab=8, word=4,
    ),
}  # fmt: skip
# --8<-- [end:rungs]


def _rows(name: str, x: torch.Tensor) -> torch.Tensor:
    """`x`, or a copy of it, with the elements of a row side by side."""
    if x.dtype != torch.float32:
        raise TypeError(f"sgemm: {name} is {x.dtype}, not float32; pass {name}.float()")
    if x.ndim != 2:
        raise ValueError(f"sgemm: {name} has {x.ndim} dimensions, not 2; reshape it")
    if max(x.shape) > MAX_SIDE:
        size = " x ".join(map(str, x.shape))
        raise ValueError(f"sgemm: {name} is {size}, a side over {MAX_SIDE}; split it")
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


# --8<-- [start:launch]
def multiply(
    a: torch.Tensor, b: torch.Tensor, rung: str = "double buffered"
) -> torch.Tensor:
    """The product of `a` (M, K) and `b` (K, N), by a rung of RUNGS."""
    if rung not in RUNGS:
        raise ValueError(f"sgemm: no rung {rung!r}; there are {', '.join(RUNGS)}")
    a, b = _rows("a", a), _rows("b", b)
    if a.shape[1] != b.shape[0] or a.device != b.device:
        raise ValueError(
            f"sgemm: a {tuple(a.shape)} on {a.device} and b {tuple(b.shape)} on "
            f"{b.device} cannot be multiplied; K and the device must be one"
        )
    (m, k), n, step = a.shape, b.shape[1], RUNGS[rung]
    tiles = -(-m // step.block[0]) * -(-n // step.block[1])
    if tiles > cuda.MAX_GRID[0]:
        raise ValueError(f"sgemm: {m} x {n} has over 2**31 tiles; split it")
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if tiles:
        sizes = *map(np.int32, (m, n, k)), *map(np.int64, (a.stride(0), b.stride(0)))
        KERNELS.launch(step.instance(), tiles, step.threads(), a, b, c, *sizes)
    return c
# --8<-- [end:launch]


# --8<-- [start:predictions]
def global_bytes(rung: Rung) -> float:
    """Bytes that a multiply-add asks of global memory, were there no cache.

    Without shared memory a warp asks for whole sectors of 8 elements: one of A for each
    of its rows, and those of its columns of B. With it, a block loads its slabs once.
    """
    (bm, bn), (wm, wn) = rung.block, rung.warp
    if not rung.slab:
        return 32 * (wm + -(-wn // 8)) / (wm * wn)
    return 4 * (1 / bm + 1 / bn)


def shared_loads(rung: Rung) -> float:
    """Loads from shared memory that a thread issues a multiply-add."""
    tm, tn = rung.patch
    across = -(-tm // rung.word) + -(-tn // rung.word)
    return across / (tm * tn) if rung.slab else 0.0


def shared_words(rung: Rung) -> float:
    """Different words of shared memory that a warp's load touches, a multiply-add."""
    wm, wn = rung.warp
    return 1 / wm + 1 / wn if rung.slab else 0.0
# --8<-- [end:predictions]


def demo(device: str) -> None:
    """Every rung on 257 x 130 x 67 against float64, and what its tile sizes predict."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(s, generator=generator) for s in ((257, 67), (67, 130)))
    truth = a.double() @ b.double()
    print("a multiply-add asks for   global    shared  different   within")
    print("                           bytes     loads      words     5e-6")
    for name, rung in RUNGS.items():
        c = multiply(a.to(device), b.to(device), name).cpu()
        close = bool((c - truth).norm() <= 5e-6 * truth.norm())
        asked = f"{global_bytes(rung):8.4f}  {shared_loads(rung):8.4f}"
        print(f"{name:20}  {asked:>22}  {shared_words(rung):9.4f}  {close!s:>7}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
