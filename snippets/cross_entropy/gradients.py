"""The gradients of cross-entropy by slices of the vocabulary, and its operator.

A slice owns its rows of weight's gradient; sums of hidden's go on from slice to slice.
See cross_entropy.py for the shapes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Without a GPU it also has papergpu execute kernels on the CPU, those below too.
from snippets.cross_entropy.cross_entropy import (
    LOG2E,
    by_descriptor,
    check_forms,
    checked,
    constants,
    described,
    forward,
    load_tile,
    place,
    project,
    tile_of,
)

SLICE = 4096  # columns of logits whose gradients are in memory at a time


# --8<-- [start:slice]
@triton.jit
def cross_entropy_slice(dx, hidden, weight, target, top, rest, dloss, dlse, unit,
                        dx_stride, h_stride, w_stride, t, v, d, first, M: tl.constexpr,
                        N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
                        TMA: tl.constexpr):
    """Gradients of the logits of v words from `first` on, in units of `unit`."""
    tile, part = place(tl.program_id(0), tl.cdiv(t, M), tl.cdiv(v, N), GROUP)
    x = project(hidden, weight, h_stride, w_stride, tile * M, part * N, t, v, d, M, N,
                K, TMA)
    row = tile * M + tl.arange(0, M)
    col = part * N + tl.arange(0, N)
    here = row < t
    wanted = tl.load(target + row, mask=here, other=-1) - first
    row_dloss = tl.load(dloss + row, mask=here, other=0.0)
    row_dlse = tl.load(dlse + row, mask=here, other=0.0)
    row_top = tl.load(top + row, mask=here, other=0.0)
    row_rest = tl.load(rest + row, mask=here, other=0.0)
    scale = 1 / tl.load(unit)
    p = tl.exp2((x - row_top[:, None]) * LOG2E - row_rest[:, None])
    g = p * ((row_dloss + row_dlse) * scale)[:, None]
    hit = col[None, :] == wanted.to(tl.int32)[:, None]
    g -= tl.where(hit, (row_dloss * scale)[:, None], 0.0)
    at = dx + (row.to(tl.int64) * dx_stride)[:, None] + col[None, :]
    tl.store(at, g.to(dx.dtype.element_ty), mask=here[:, None] & (col < v)[None, :])
# --8<-- [end:slice]


# --8<-- [start:product]
@triton.jit
def add_tile(out, sums, unit, x, stride, row, col, rows, cols, ADD: tl.constexpr,
             LAST: tl.constexpr):
    r = row + tl.arange(0, x.shape[0])
    c = col + tl.arange(0, x.shape[1])
    at = (r.to(tl.int64) * stride)[:, None] + c[None, :]
    inside = (r < rows)[:, None] & (c < cols)[None, :]
    if ADD:
        x += tl.load(sums + at, mask=inside, other=0.0)
    if LAST:
        x = x * tl.load(unit)
        tl.store(out + at, x.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(sums + at, x, mask=inside)


@triton.jit
def cross_entropy_product(out, sums, a, b, unit, out_stride, a_stride, b_stride, m, n,
                          k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                          GROUP: tl.constexpr, TMA: tl.constexpr,
                          TRANSPOSED: tl.constexpr, ADD: tl.constexpr,
                          LAST: tl.constexpr):
    """out = unit * (sums + a b), or a^T b; but for the LAST slice, sums += a b."""
    tile, part = place(tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), GROUP)
    acc = tl.zeros([M, N], tl.float32)
    for at in tl.range(0, k, K):
        if TRANSPOSED:
            left = load_tile(a, a_stride, at, tile * M, k, m, K, M, TMA).T
        else:
            left = load_tile(a, a_stride, tile * M, at, m, k, M, K, TMA)
        right = load_tile(b, b_stride, at, part * N, k, n, K, N, TMA)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    # By halves: all sums and all that is added to them would not fit in registers.
    left, right = acc.reshape(M, 2, N // 2).permute(0, 2, 1).split()
    row, col = tile * M, part * N
    add_tile(out, sums, unit, left, out_stride, row, col, m, n, ADD, LAST)
    add_tile(out, sums, unit, right, out_stride, row, col + N // 2, m, n, ADD, LAST)
# --8<-- [end:product]


# --8<-- [start:launch]
def backward(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    top: torch.Tensor,
    rest: torch.Tensor,
    dloss: torch.Tensor,
    dlse: torch.Tensor,
    ignore_index: int = -100,
    descriptors: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """dhidden and dweight; a slice of the logits' gradients is in memory at a time."""
    rows = {"top": top, "rest": rest, "dloss": dloss, "dlse": dlse}
    t, v, d = checked(hidden, weight, target, ignore_index, **rows)
    dhidden = torch.empty((t, d), dtype=hidden.dtype, device=hidden.device)
    dweight = torch.empty((v, d), dtype=hidden.dtype, device=hidden.device)
    if not (t and v and d):
        return dhidden.zero_(), dweight.zero_()
    target, top, rest, dlse = (x.contiguous() for x in (target, top, rest, dlse))
    dloss, unit = scaled(target, dloss, dlse, ignore_index)
    tma = by_descriptor(descriptors, hidden, weight)
    tile = tile_of(tma, hidden, weight)
    width = min(v, SLICE)
    step = -(-width // 8) * 8  # rows begin at 16 bytes
    dx = torch.empty((t, step), dtype=hidden.dtype, device=hidden.device)
    sums = dhidden
    if v > SLICE and hidden.dtype is not torch.float32:
        sums = torch.empty((t, d), dtype=torch.float32, device=hidden.device)
    told = constants(tile, tma)
    tokens = triton.cdiv(t, tile.m)
    with torch.cuda.device_of(hidden):
        for first in range(0, v, SLICE):
            part, given = weight[first : first + SLICE], dx[:, : min(v - first, SLICE)]
            n = len(part)
            h, w = hidden, part
            if tma:
                h, w = described(h, tile.m, tile.k), described(w, tile.n, tile.k)
            cross_entropy_slice[(tokens * triton.cdiv(n, tile.n),)](
                dx, h, w, target, top, rest, dloss, dlse, unit, step, hidden.stride(),
                part.stride(), t, n, d, first, **told,
            )  # fmt: skip
            last = first + SLICE >= v
            a, b = given, part
            if tma:
                a, b = described(a, tile.m, tile.k), described(b, tile.k, tile.n)
            cross_entropy_product[(tokens * triton.cdiv(d, tile.n),)](
                dhidden, sums, a, b, unit, d, given.stride(), part.stride(), t, d, n,
                **told, TRANSPOSED=False, ADD=first > 0, LAST=last,
            )  # fmt: skip
            a, b = given, hidden
            if tma:
                a, b = described(a, tile.k, tile.m), described(b, tile.k, tile.n)
            cross_entropy_product[(triton.cdiv(n, tile.m) * triton.cdiv(d, tile.n),)](
                dweight[first:], dweight, a, b, unit, d, given.stride(),
                hidden.stride(), n, d, t, **told, TRANSPOSED=True, ADD=False, LAST=True,
            )  # fmt: skip
    return dhidden, dweight


def scaled(
    target: torch.Tensor, dloss: torch.Tensor, dlse: torch.Tensor, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """dloss without ignored rows, and the unit of the logits' gradients, on the device.

    A mean over T rows makes them smaller than float16 has numbers. In this unit none
    passes 2**14, and one of 2**-28 of the largest keeps a bit.
    """
    dloss = dloss.masked_fill(target == ignore_index, 0).contiguous()
    most = (dloss.abs() + dlse.abs()).amax()
    return dloss, most.clamp_min(2.0**-100) * 2.0**-14
# --8<-- [end:launch]


def tiled(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    dloss: torch.Tensor | None = None,
    dlse: torch.Tensor | None = None,
    descriptors: bool | None = None,
) -> tuple[torch.Tensor, ...]:
    """The same, logits in tiles."""
    rows = forward(hidden, weight, target, ignore_index, descriptors)
    if dloss is None:
        return rows[:2]
    dlse = torch.zeros_like(dloss) if dlse is None else dlse
    given = (rows.top, rows.rest, dloss, dlse, ignore_index, descriptors)
    return *rows[:2], *backward(hidden, weight, target, *given)


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::cross_entropy", mutates_args=())
def rows_of(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(forward(hidden, weight, target, ignore_index))


@torch.library.custom_op("warpshelf::cross_entropy_backward", mutates_args=())
def rows_backward(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    top: torch.Tensor,
    rest: torch.Tensor,
    dloss: torch.Tensor,
    dlse: torch.Tensor,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    return backward(hidden, weight, target, top, rest, dloss, dlse, ignore_index)


@rows_of.register_fake
def _(hidden, weight, target, ignore_index):
    row = hidden.new_empty(hidden.shape[0], dtype=torch.float32)
    return tuple(torch.empty_like(row) for _ in range(4))


@rows_backward.register_fake
def _(hidden, weight, target, top, rest, dloss, dlse, ignore_index):
    return hidden.new_empty(hidden.shape), weight.new_empty(weight.shape)


def remember(ctx, inputs, output) -> None:
    hidden, weight, target, ctx.ignore_index = inputs
    _, _, top, rest = output
    ctx.mark_non_differentiable(top, rest)
    ctx.save_for_backward(hidden, weight, target, top, rest)


def gradients(ctx, dloss, dlse, dtop, drest):
    given = (*ctx.saved_tensors, dloss, dlse, ctx.ignore_index)
    return *rows_backward(*given), None, None


rows_of.register_autograd(gradients, setup_context=remember)


def losses(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:
    """loss and lse of each row, both differentiable; lse of ignored rows too."""
    if hidden.ndim == 0 or hidden.shape[:-1] != target.shape:
        raise ValueError(
            f"cross_entropy: target is {tuple(target.shape)}, hidden "
            f"{tuple(hidden.shape)}; give each row of hidden a target"
        )
    rows = hidden.reshape(target.numel(), hidden.shape[-1])
    targets = target.reshape(-1)
    check_forms(rows, weight, targets)
    loss, lse, _, _ = rows_of(rows, weight, targets, ignore_index)
    return loss.view(target.shape), lse.view(target.shape)


def cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """As torch's cross_entropy(hidden @ weight.T, target), in float32."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(
            f"cross_entropy: reduction {reduction!r} is none of mean, sum, none; "
            "choose one"
        )
    loss, _ = losses(hidden, weight, target, ignore_index)
    if reduction == "none":
        return loss
    total = loss.sum()
    # The count stays on the device. With all rows ignored the mean is NaN, as torch's.
    return total if reduction == "sum" else total / (target != ignore_index).sum()
# --8<-- [end:operator]
