"""A product by wgmma and the copy engine: from one stage to warps that only load.

Shapes  a (M, K), b (K, N) float16 or bfloat16, each by rows or by columns, which lie a
        multiple of 8 elements apart and begin on 16 bytes -> c (M, N) of the same
        dtype, dense; M, N, K >= 0
FLOPs   2 * M * N * K
Error   within 1e-3 of a float64 reference for float16, 5e-3 for bfloat16: sums are
        float32, and c is rounded once
Raises  TypeError for another dtype or two; ValueError for other shapes, for a matrix
        that the copy engine cannot read, a side over MAX_SIDE, over 2**31 tiles, or a
        way that is not in WAYS
Source  outperforming-cublas-h100, gordic-matmul-anatomy, colfax-wgmma
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch

from snippets import cuda, tensor_maps

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
MAX_SIDE = 2**31 - 512  # so that a tile's end is still an int
TYPES = {torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
ROWS, COLUMNS, DEPTH = 128, 256, 64  # of a tile, and of a slab
STAGE = 2 * (ROWS + COLUMNS) * DEPTH  # bytes
WAYS = {  # stages
    "one stage": 1,
    "four stages": 4,
    "specialised": 4,
    "persistent": 4,
    "clusters": 4,
}


def _shared(stages: int) -> int:
    """Bytes of shared memory: slabs, the way out of 8 warps, two barriers a stage."""
    return stages * STAGE + 8 * 16 * 128 + stages * 2 * 8


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # a cluster, so that blocks take tiles in turn here too
    return torch.cuda.get_device_properties(device).multi_processor_count


# --8<-- [start:product]
def _map(x: torch.Tensor, along_k: bool, side: int) -> object:
    """What the copy engine is told of an operand; a tile's side along it is `side`."""
    lines = x if tensor_maps.mappable(x) else x.t()
    return tensor_maps.tensor_map(lines, (side if along_k else DEPTH, 64))


def product(a: torch.Tensor, b: torch.Tensor, way: str = "clusters") -> torch.Tensor:
    """a b by a way of WAYS."""
    if way not in WAYS:
        raise ValueError(f"hopper_gemm: no way {way!r}; there are {', '.join(WAYS)}")
    for name, x in (("a", a), ("b", b)):
        if x.dtype not in TYPES:
            raise TypeError(
                f"hopper_gemm: {name} is {x.dtype}, not float16 or bfloat16; convert it"
            )
        if x.ndim != 2:
            raise ValueError(
                f"hopper_gemm: {name} has {x.ndim} dimensions, not 2; reshape it"
            )
        if x.numel() and not any(map(tensor_maps.mappable, (x, x.t()))):
            raise ValueError(
                f"hopper_gemm: {name} has strides {x.stride()} and begins "
                f"{x.data_ptr() % 16} bytes past a multiple of 16; the copy engine "
                "wants one stride of 1, the other a multiple of 8, and a beginning on "
                "16 bytes: copy it, or take tensor_core_gemm"
            )
    if a.dtype != b.dtype:
        raise TypeError(
            f"hopper_gemm: a is {a.dtype} and b is {b.dtype}; convert one of them"
        )
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise ValueError(
            f"hopper_gemm: a is {m} x {k} and b is {b.shape[0]} x {n}; a's columns "
            "must be as many as b's rows"
        )
    if max(m, n, k) > MAX_SIDE:
        raise ValueError(f"hopper_gemm: a side is over {MAX_SIDE}; split the product")
    tiles = -(-m // ROWS) * -(-n // COLUMNS)
    if tiles > cuda.MAX_GRID[0]:
        raise ValueError(f"hopper_gemm: c, {m} x {n}, has over 2**31 tiles; split it")
    if not tiles or not k:
        return a.new_zeros(m, n)
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    a_along_k, b_along_k = tensor_maps.mappable(a), not tensor_maps.mappable(b)
    cluster = 2 if way == "clusters" else 1
    maps = _map(a, a_along_k, ROWS), _map(b, b_along_k, COLUMNS // cluster)
    # The kernel reads a and b by their maps alone; they are named to whoever watches.
    arguments = [a, b, *maps, c, np.int32(m), np.int32(n), np.int32(k)]
    kernel = f"<{TYPES[a.dtype]}, {a_along_k:d}, {b_along_k:d}, {WAYS[way]}"
    shared = _shared(WAYS[way])
    if way in ("one stage", "four stages"):
        KERNELS.launch(f"gemm_together{kernel}>", tiles, 256, *arguments, shared=shared)
        return c
    tiles = -(-m // (cluster * ROWS)) * -(-n // COLUMNS)  # of a cluster
    most = tiles if way == "specialised" else _multiprocessors(a.device) // cluster
    KERNELS.launch(
        f"gemm_specialised{kernel}, {cluster}>",
        cluster * min(tiles, most),
        384,
        *arguments,
        np.int32(tiles),
        shared=shared,
        cluster=cluster if cluster > 1 else None,
    )
    return c
# --8<-- [end:product]


def demo(device: str) -> None:
    """Every way on the four layouts, whole and ragged."""
    draw = torch.Generator(device).manual_seed(0)
    for m, n, k in ((256, 512, 192), (200, 264, 104)):
        a, b = (
            torch.randint(-4, 5, sides, generator=draw, device=device).half()
            for sides in ((m, k), (k, n))
        )
        exact = (a.double() @ b.double()).half()
        a_t, b_t = a.t().contiguous().t(), b.t().contiguous().t()
        pairs = {"NN": (a, b), "NT": (a, b_t), "TN": (a_t, b), "TT": (a_t, b_t)}
        for way in WAYS:
            right = [
                name
                for name, pair in pairs.items()
                if torch.equal(product(*pair, way), exact)
            ]
            print(f"{m} x {n} x {k} {way:12} right: {' '.join(right)}")


if __name__ == "__main__":
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != 9:
        raise SystemExit("hopper_gemm: wgmma is an instruction of sm_90 alone")
    demo("cuda" if torch.cuda.is_available() else "cpu")
