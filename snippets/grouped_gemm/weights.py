"""The gradient of each group's matrix: a product whose depth is what is jagged.

Shapes  x (M, K), dy (M, N), ends (E,) -> dw (E, K, N), 0 for an empty group
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

from snippets.grouped_gemm.tiles import (
    GROUP,
    LARGE,
    NARROW,
    checked,
    multiprocessors,
    place,
    store,
    tile_of,
    wide,
)


# --8<-- [start:weights]
@triton.jit
def grouped_weights(dw, x, dy, ends, x_stride, dy_stride, ends_stride, n, k, experts,
                    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                    GROUP: tl.constexpr):
    """dw[e] = x' dy over the rows of group e: here the depth is what is jagged."""
    tiles_k, tiles_n = tl.cdiv(k, BM), tl.cdiv(n, BN)
    each = tiles_k * tiles_n
    for index in tl.range(tl.program_id(0), each * experts, tl.num_programs(0)):
        e = (index // each).to(tl.int64)
        last = tl.load(ends + e * ends_stride)
        first = tl.load(ends + (e - 1) * ends_stride, mask=e > 0, other=0)
        i, j = tile_of(index % each, tiles_k, tiles_n, GROUP)
        row = i * BM + tl.arange(0, BM)
        col = j * BN + tl.arange(0, BN)
        deep = tl.arange(0, BK)
        acc = tl.zeros([BM, BN], tl.float32)
        for slab in tl.range(first, last, BK):
            here = deep < last - slab
            far = slab.to(tl.int64)
            # Both: a row of the next group may hold an infinity, and 0 * inf is NaN.
            at = place(x + far * x_stride[0], row, x_stride[1], deep, x_stride[0])
            left = tl.load(at, mask=here[None, :] & (row < k)[:, None], other=0.0)
            at = place(dy + far * dy_stride[0], deep, dy_stride[0], col, dy_stride[1])
            right = tl.load(at, mask=here[:, None] & (col < n)[None, :], other=0.0)
            acc = tl.dot(left, right, acc)
        own = dw + e * k * n
        store(own, acc, i * BM, j * BN, k, n)
# --8<-- [end:weights]


# --8<-- [start:gradient]
def weight_gradient(
    x: torch.Tensor, dy: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """dw (E, K, N), x' dy of each group."""
    checked(x, ends, dy=dy)
    k, n, experts = x.shape[1], dy.shape[1], ends.shape[0]
    dw = torch.empty((experts, k, n), dtype=x.dtype, device=x.device)
    if dw.numel() == 0:
        return dw
    with torch.cuda.device_of(x):
        tile = LARGE if wide(x, dy) else NARROW
        tiles = triton.cdiv(k, tile.m) * triton.cdiv(n, tile.n) * experts
        programs = min(tiles, multiprocessors(x.device) * tile.blocks)
        grouped_weights[(programs,)](
            dw, x, dy, ends, x.stride(), dy.stride(), ends.stride(0), n, k, experts,
            BM=tile.m, BN=tile.n, BK=tile.k, GROUP=GROUP, num_warps=tile.warps,
            num_stages=tile.stages,
        )  # fmt: skip
    return dw

# --8<-- [end:gradient]
