"""A product on tensor cores: from WMMA as first written to ldmatrix and mma.sync.

Shapes  a (M, K), b (K, N) float16 or bfloat16, elements of a row side by side, rows any
        distance apart -> c (M, N) of the same dtype, dense; M, N, K >= 0
FLOPs   2 * M * N * K
Error   within 1e-3 of a float64 reference for float16, 5e-3 for bfloat16: sums are
        float32, and c is rounded once
Raises  TypeError for another dtype or two; ValueError for other shapes, for a matrix
        whose rows have their elements apart, a side over MAX_SIDE, over 2**31 tiles, a
        way that is not in WAYS, or what "wmma" cannot read
Source  tensor-cores-cuda-9, simple-tensor-core-gemm, leimao-tensor-core, xgemm-steps
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
FIRST = cuda.Source(Path(__file__).with_name("wmma.cu"))
MAX_SIDE = 2**31 - 256  # so that a tile's end is still an int
TYPES = {torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
STAGES = 4
# A pair of slabs is 32 deep and 128 wide; padding adds 8 elements to each of its rows.
SHARED = {
    "wmma": 0,
    "shared": 0,
    "cp.async": STAGES * 2 * (128 * 40 + 32 * 136),  # bytes
    "ldmatrix": STAGES * 2 * (128 * 32 + 32 * 128),
}
WAYS = tuple(SHARED)


# --8<-- [start:product]
def _in_chunks(*matrices: torch.Tensor) -> bool:
    """Whether rows of each are whole chunks of 16 bytes, and begin on 16."""
    return all(
        x.data_ptr() % 16 == 0 and x.stride(0) % 8 == 0 and x.shape[1] % 8 == 0
        for x in matrices
        if x.numel()
    )


def _of_tiles(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether WMMA can read both where they lie."""
    sides = (*a.shape, *b.shape)
    return _in_chunks(a, b) and all(
        value % 16 == 0 for value in (*sides, a.data_ptr() // 2, b.data_ptr() // 2)
    )


def product(a: torch.Tensor, b: torch.Tensor, way: str = "ldmatrix") -> torch.Tensor:
    """a b by a way of WAYS."""
    if way not in WAYS:
        raise ValueError(
            f"tensor_core_gemm: no way {way!r}; there are {', '.join(WAYS)}"
        )
    for name, x in (("a", a), ("b", b)):
        if x.dtype not in TYPES:
            raise TypeError(
                f"tensor_core_gemm: {name} is {x.dtype}, not float16 or bfloat16; "
                "convert it"
            )
        if x.ndim != 2:
            raise ValueError(
                f"tensor_core_gemm: {name} has {x.ndim} dimensions, not 2; reshape it"
            )
        if x.shape[1] > 1 and x.stride(1) != 1:
            raise ValueError(
                f"tensor_core_gemm: elements of a row of {name} lie {x.stride(1)} "
                f"apart, they must lie side by side; pass {name}.contiguous()"
            )
    if a.dtype != b.dtype:
        raise TypeError(
            f"tensor_core_gemm: a is {a.dtype} and b is {b.dtype}; convert one of them"
        )
    if a.device != b.device:
        raise ValueError(
            f"tensor_core_gemm: a is on {a.device} and b on {b.device}; move one"
        )
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise ValueError(
            f"tensor_core_gemm: a is {m} x {k} and b is {b.shape[0]} x {n}; a's "
            "columns must be as many as b's rows"
        )
    if max(m, n, k) > MAX_SIDE:
        raise ValueError(
            f"tensor_core_gemm: a side is over {MAX_SIDE}; split the product"
        )
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    rows, columns = (16, 64) if way == "wmma" else (128, 128)
    tiles = -(-m // rows) * -(-n // columns)
    if tiles > cuda.MAX_GRID[0]:
        raise ValueError(
            f"tensor_core_gemm: c, {m} x {n}, has over 2**31 tiles; split it"
        )
    if not tiles:
        return c
    if way == "wmma" and not _of_tiles(a, b):
        raise ValueError(
            f"tensor_core_gemm: 'wmma' takes sides that are multiples of 16, rows on "
            f"16 bytes and matrices on 32, not {m} x {k} by {k} x {n} with rows "
            f"{a.stride(0)} and {b.stride(0)} apart; take another way"
        )
    kernel = f"gemm_{way.removeprefix('cp.')}<{TYPES[a.dtype]}"
    kernel += ">" if way == "wmma" else f", {_in_chunks(a, b):d}>"
    sizes = np.int32(m), np.int32(n), np.int32(k)
    strides = np.int64(a.stride(0)), np.int64(b.stride(0))
    source = FIRST if way == "wmma" else KERNELS
    source.launch(kernel, tiles, 128, a, b, c, *sizes, *strides, shared=SHARED[way])
    return c
# --8<-- [end:product]


def demo(device: str) -> None:
    """Every way on whole tiles and on ragged ones, in both types."""
    draw = torch.Generator(device).manual_seed(0)
    for dtype in TYPES:
        for m, n, k in ((64, 128, 96), (130, 133, 70)):
            a, b = (
                torch.randint(-4, 5, shape, generator=draw, device=device).to(dtype)
                for shape in ((m, k), (k, n))
            )
            exact = (a.double() @ b.double()).to(dtype)
            said = []
            for way in WAYS:
                try:
                    right = torch.equal(product(a, b, way), exact)
                    said.append(f"{way} {'right' if right else 'wrong'}")
                except ValueError:
                    said.append(f"{way} not for it")
            print(f"{str(dtype)[6:]:9}{m} x {n} x {k}: {', '.join(said)}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
