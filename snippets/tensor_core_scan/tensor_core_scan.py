"""Sums and running sums of rows on tensor cores: products with ones, and a triangle.

Shapes  sums: x (..., N) -> (...); scan: x (..., N) -> (..., N), inclusive; float16 or
        bfloat16, the result the same; N >= 0; rows with elements apart are copied
Bytes   x read once; a scan written once: 2 * M * N, or 4 * M * N
FLOPs   M * N additions, however they are made
Error   relative to float64: 1e-3 float16, 5e-3 bfloat16; sums are float32, the result
        is rounded once; infinities and NaN as torch has them
Raises  TypeError for another dtype; ValueError for no dimension, over 2**31 blocks, or
        a way that is not in WAYS
Source  tensor-core-reduction-scan, cub
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda

LIBRARIES = cuda.Source(Path(__file__).with_suffix(".cu"))
KERNELS = cuda.Source(LIBRARIES.path, ("-DWITHOUT_LIBRARIES",))
TYPES = {torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
WAYS = {
    "naive": None,
    "shuffles": "Shuffles",
    "wmma": "Wmma",
    "mma": "Products",
    "cub": None,
}
TILE, WARPS = 512, 8  # elements that a warp has at a time; warps of a block


def _rows(x: torch.Tensor) -> torch.Tensor:
    """View (..., N) as (M, N) with elements of a row side by side; else a copy."""
    n = x.shape[-1]
    rows = x.reshape(x.numel() // n, n)
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


def _wide(x: torch.Tensor) -> bool:
    """Whether rows are whole packs of 16 bytes, and begin on 16."""
    return not (x.data_ptr() % 16 or x.stride(0) % 8 or x.shape[1] % 8)


# --8<-- [start:run]
def run(job: str, way: str, x: torch.Tensor) -> torch.Tensor:
    """The "sums" of rows of x, or their "scan", by a way of WAYS."""
    if way not in WAYS:
        known = ", ".join(WAYS)
        raise ValueError(f"tensor_core_scan: no way {way!r}; there are {known}")
    if x.dtype not in TYPES:
        raise TypeError(
            f"tensor_core_scan: dtype {x.dtype} is neither float16 nor bfloat16; "
            "convert first"
        )
    if x.ndim == 0:
        raise ValueError("tensor_core_scan: a tensor of 0 dimensions has no row")
    shape, scan = x.shape if job == "scan" else x.shape[:-1], job == "scan"
    out = torch.zeros(shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return out
    rows = _rows(x)
    m, n = rows.shape
    wide, kind = int(_wide(rows)), TYPES[x.dtype]
    blocks, threads = m, WARPS * 32
    if way == "naive":
        kernel, blocks, threads = f"naive_rows<{scan:d}, {kind}>", -(-m // 128), 128
    elif way == "cub":
        kernel = f"cub_rows<{wide}, {scan:d}, {kind}>"
    elif n > TILE:
        kernel = f"long_rows<{WAYS[way]}, {kind}, {wide}, {scan:d}>"
        threads = min(-(-n // TILE), WARPS) * 32
    else:
        segment = max(16, 1 << (n - 1).bit_length())
        kernel = f"short_rows<{WAYS[way]}, {kind}, {wide}, {segment}, {scan:d}>"
        blocks = -(-m // (TILE // segment * WARPS))
    if blocks > cuda.MAX_GRID[0]:
        raise ValueError(
            f"tensor_core_scan: {m} rows are over {cuda.MAX_GRID[0]} blocks"
        )
    source = LIBRARIES if way == "cub" else KERNELS
    sizes = (np.int64(one) for one in (m, n, rows.stride(0)))
    source.launch(kernel, blocks, threads, rows, out, *sizes)
    return out
# --8<-- [end:run]


def sums(x: torch.Tensor) -> torch.Tensor:
    """The sums of the rows of x (..., N), on tensor cores."""
    return run("sums", "mma", x)


def scan(x: torch.Tensor) -> torch.Tensor:
    """The running sums of the rows of x (..., N), on tensor cores."""
    return run("scan", "mma", x)


def demo(device: str) -> None:
    """Every way against torch in float64, by length of the rows."""
    draw = torch.Generator(device).manual_seed(0)
    for n in (16, 96, 512, 1000):
        x = torch.randn(7, n, generator=draw, device=device).half()
        wanted = {"sums": x.double().sum(-1), "scan": x.double().cumsum(-1)}
        for job, y in wanted.items():
            good = [
                way for way in WAYS
                if way != "cub"
                and (run(job, way, x).double() - y).norm() < 1e-3 * y.norm()
            ]  # fmt: skip
            print(f"{job} of rows of {n:4}, right by {', '.join(good)}")
    x = torch.ones(40, device=device).half()
    x[20] = torch.inf
    print(f"running sums of ones about an infinity: {scan(x)[18:22].tolist()}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
