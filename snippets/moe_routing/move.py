"""Moving: tokens to their rows, answers back, and the gradient of the weights.

Shapes  permute: x (T, H), sources (S,) -> (S, H). combine: y (S, H), slots (T, K),
        weights (T, K) -> (T, H). weigh: dx (T, H), y (S, H), slots -> (T, K) float32
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

from snippets.moe_routing.checks import check_beside, check_rows

TILE = 4096  # numbers of a row that a program moves: 32 a thread


# --8<-- [start:move]
@triton.jit
def moe_permute(y, x, sources, weights, x_stride, s, h, k, ROWS: tl.constexpr,
                COLS: tl.constexpr):
    """Rows of x in the order of slots, weighted if there are weights, 0 in padding."""
    across = tl.cdiv(h, COLS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(0) % across * COLS + tl.arange(0, COLS)[None, :]
    copy = tl.load(sources + row, mask=row < s, other=-1)
    at = (copy // k).to(tl.int64)[:, None] * x_stride[0]
    at += col.to(tl.int64) * x_stride[1]
    value = tl.load(x + at, mask=(copy >= 0)[:, None] & (col < h), other=0.0)
    if weights is not None:
        weight = tl.load(weights + copy, mask=copy >= 0, other=0.0)
        value = (value.to(tl.float32) * weight[:, None]).to(y.dtype.element_ty)
    tl.store(y + row[:, None] * h + col, value, mask=(row < s)[:, None] & (col < h))


@triton.jit
def moe_combine(x, y, slots, weights, y_stride, t, h, K: tl.constexpr,
                ROWS: tl.constexpr, COLS: tl.constexpr):
    """The sum of a token's copies, each by its weight; what was dropped is left out."""
    across = tl.cdiv(h, COLS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(0) % across * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros([ROWS, COLS], tl.float32)
    for j in tl.static_range(K):
        slot = tl.load(slots + row * K + j, mask=row < t, other=-1)
        at = slot.to(tl.int64)[:, None] * y_stride[0] + col.to(tl.int64) * y_stride[1]
        own = tl.load(y + at, mask=(slot >= 0)[:, None] & (col < h), other=0.0)
        own = own.to(tl.float32)
        if weights is not None:
            own *= tl.load(weights + row * K + j, mask=row < t, other=0.0)[:, None]
        total += tl.where((slot >= 0)[:, None], own, 0.0)  # a weight may be infinite
    tl.store(x + row[:, None] * h + col, total.to(x.dtype.element_ty),
             mask=(row < t)[:, None] & (col < h))


@triton.jit
def moe_weigh(dweights, dx, y, slots, dx_stride, y_stride, copies, h, k,
              ROWS: tl.constexpr, COLS: tl.constexpr):
    """Gradient of a weight: what its copy gave, times what the token asks for."""
    copy = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    slot = tl.load(slots + copy, mask=copy < copies, other=-1)
    wanted = dx + (copy // k).to(tl.int64)[:, None] * dx_stride[0]
    given = y + slot.to(tl.int64)[:, None] * y_stride[0]
    total = tl.zeros([ROWS, COLS], tl.float32)
    for first in tl.range(0, h, COLS):
        col = (first + tl.arange(0, COLS)).to(tl.int64)[None, :]
        here = (slot >= 0)[:, None] & (col < h)
        one = tl.load(wanted + col * dx_stride[1], mask=here, other=0.0)
        two = tl.load(given + col * y_stride[1], mask=here, other=0.0)
        total += one.to(tl.float32) * two.to(tl.float32)
    tl.store(dweights + copy, tl.sum(total, 1), mask=copy < copies)
# --8<-- [end:move]


# --8<-- [start:gather]
def tiles(rows: int, h: int) -> tuple[int, int]:
    """Rows and columns of a program's tile of TILE numbers."""
    cols = min(TILE // 4, triton.next_power_of_2(h))
    return min(TILE // cols, triton.next_power_of_2(rows)), cols


def gathered(
    x: torch.Tensor, sources: torch.Tensor, k: int, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """x (T, H) -> (S, H) by slot, each by the weight of its copy."""
    check_rows("x", x)
    s, (t, h) = sources.numel(), x.shape
    check_beside(x, {"sources": (s,), "weights": (t, k)}, sources, weights)
    if k < 1:
        raise ValueError(f"moe_routing: k = {k} copies of a token; give 1 or more")
    y = torch.empty((s, h), dtype=x.dtype, device=x.device)
    if y.numel():
        rows, cols = tiles(s, h)
        weights = None if weights is None else weights.float().contiguous()
        with torch.cuda.device_of(x):
            moe_permute[(triton.cdiv(s, rows) * triton.cdiv(h, cols),)](
                y, x, sources.contiguous(), weights, x.stride(), s, h, k, ROWS=rows,
                COLS=cols,
            )  # fmt: skip
    return y


def summed(
    y: torch.Tensor, slots: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """y (S, H) -> (T, H), the weighted sum of each token's copies."""
    check_rows("y", y)
    (t, k), h = (1, *slots.shape)[-2:], y.shape[1]
    check_beside(y, {"slots": (t, k), "weights": (t, k)}, slots, weights)
    x = torch.empty((t, h), dtype=y.dtype, device=y.device)
    if x.numel():
        rows, cols = tiles(t, h)
        weights = None if weights is None else weights.float().contiguous()
        with torch.cuda.device_of(y):
            moe_combine[(triton.cdiv(t, rows) * triton.cdiv(h, cols),)](
                x, y, slots.contiguous(), weights, y.stride(), t, h, K=k, ROWS=rows,
                COLS=cols,
            )  # fmt: skip
    return x


def weighed(dx: torch.Tensor, y: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Gradient of the weights (T, K), float32."""
    check_rows("y", y)
    (t, k), h = (1, *slots.shape)[-2:], y.shape[1]
    check_beside(y, {"dx": (t, h), "slots": (t, k)}, dx, slots)
    dweights = torch.empty((t, k), dtype=torch.float32, device=y.device)
    if t * k:
        rows, cols = tiles(t * k, h) if h else (1, 1)
        with torch.cuda.device_of(y):
            moe_weigh[(triton.cdiv(t * k, rows),)](
                dweights, dx, y, slots.contiguous(), dx.stride(), y.stride(), t * k, h,
                k, ROWS=rows, COLS=cols,
            )  # fmt: skip
    return dweights
# --8<-- [end:gather]
