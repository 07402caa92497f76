"""The gradients of RMSNorm, and the operator that autograd and torch.compile know.

A few blocks stay, take many rows each and keep a sum of every column; see rms_norm.py
for the shapes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Without a GPU it also has papergpu execute kernels on the CPU, those below too.
from snippets.rms_norm.rms_norm import (
    LOADS,
    check,
    chosen,
    chunk,
    forward,
    lanes,
    row_stride,
    rows_of,
    sms_and_cache,
    tile,
)


# --8<-- [start:stay]
@triton.jit
def rms_norm_backward_one_pass(dx_ptr, part_ptr, dy_ptr, x_ptr, w_ptr, rstd_ptr,
                               dtotal_ptr, m, n, dy_stride, x_stride, dtotal_stride,
                               ROWS: tl.constexpr, BLOCK: tl.constexpr,
                               KEEP: tl.constexpr, STAGES: tl.constexpr):
    col = tl.arange(0, BLOCK)[None, :]
    dw = tl.zeros([ROWS, BLOCK], tl.float32)
    if w_ptr is not None and KEEP:
        w = tl.load(w_ptr + col, mask=col < n, other=0.0, eviction_policy="evict_last")
    step = tl.num_programs(0) * ROWS
    # The copies of the next rows are under way while these are summed: STAGES.
    for first in tl.range(tl.program_id(0) * ROWS, m, step, num_stages=STAGES):
        row = tl.cast(first, tl.int64) + tl.arange(0, ROWS)
        source, here = row[:, None], col < n
        if ROWS > 1:  # dy is 0 past the last row: it adds nothing
            source, here = tl.minimum(source, m - 1), here & (row < m)[:, None]
        x = tl.load(x_ptr + source * x_stride + col, mask=here, other=0.0)
        dy = tl.load(dy_ptr + source * dy_stride + col, mask=here, other=0.0)
        rstd = tl.load(rstd_ptr + source)
        x_hat = x.to(tl.float32) * rstd
        dy = dy.to(tl.float32)
        dw += dy * x_hat
        g = dy
        if w_ptr is not None:
            if not KEEP:  # from L1 and L2, for every row
                w = tl.load(w_ptr + col, mask=col < n, other=0.0)
            g = dy * w.to(tl.float32)
        dot = tl.sum(g * x_hat, axis=1) / n
        dx = (g - x_hat * dot[:, None]) * rstd
        if dtotal_ptr is not None:  # the sum has gone on as the residual of the next
            dtotal = tl.load(dtotal_ptr + source * dtotal_stride + col, mask=here,
                             other=0.0)
            dx += dtotal.to(tl.float32)
        tl.store(dx_ptr + row[:, None] * n + col, dx.to(dx_ptr.dtype.element_ty),
                 mask=here, eviction_policy="evict_first")
    if part_ptr is not None:
        at = tl.program_id(0).to(tl.int64) * n + tl.arange(0, BLOCK)
        tl.store(part_ptr + at, tl.sum(dw, axis=0), mask=tl.arange(0, BLOCK) < n)
# --8<-- [end:stay]


# --8<-- [start:parts]
@triton.jit
def rms_norm_sum_parts(dw_ptr, part_ptr, parts, n, ROWS: tl.constexpr,
                       COLS: tl.constexpr):
    # In the same order at every run, as no atomic addition would be.
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    dw = tl.zeros([ROWS, COLS], tl.float32)
    for first in tl.range(0, parts, ROWS):
        part = first + tl.arange(0, ROWS)[:, None]
        dw += tl.load(part_ptr + part.to(tl.int64) * n + col,
                      mask=(part < parts) & (col < n), other=0.0)
    total = tl.sum(dw, axis=0)[None, :]
    tl.store(dw_ptr + col, total.to(dw_ptr.dtype.element_ty), mask=col < n)
# --8<-- [end:parts]


# --8<-- [start:long-backward]
@triton.jit
def rms_norm_backward_dots(dot_ptr, dy_ptr, x_ptr, w_ptr, rstd_ptr, m, n, dy_stride,
                           x_stride, LOADS: tl.constexpr, LANES: tl.constexpr,
                           WIDTH: tl.constexpr):
    """rstd * mean(g * x_hat) of each row: all that its columns must know of it."""
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    col = chunk(LOADS, LANES, WIDTH)
    row = tl.program_id(0).to(tl.int64)
    partial = tl.zeros([LANES], tl.float32)
    rstd = tl.load(rstd_ptr + row)
    for start in tl.range(0, n, CHUNK):
        here = start + col
        x = tl.load(x_ptr + row * x_stride + here, mask=here < n, other=0.0)
        dy = tl.load(dy_ptr + row * dy_stride + here, mask=here < n, other=0.0)
        product = x.to(tl.float32) * rstd * dy.to(tl.float32)
        if w_ptr is not None:
            w = tl.load(w_ptr + here, mask=here < n, other=0.0,
                        eviction_policy="evict_last")
            product = product * w.to(tl.float32)
        partial += tl.sum(tl.sum(product, axis=2), axis=0)
    tl.store(dot_ptr + row, tl.sum(partial, axis=0) / n * rstd)


@triton.jit
def rms_norm_backward_columns(dx_ptr, part_ptr, dy_ptr, x_ptr, w_ptr, rstd_ptr, dot_ptr,
                              dtotal_ptr, m, n, dy_stride, x_stride, dtotal_stride,
                              ROWS: tl.constexpr, COLS: tl.constexpr):
    """Some columns of every so many rows: with its dot known, a row can be cut."""
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    dw = tl.zeros([1, COLS], tl.float32)
    if w_ptr is not None:
        w = tl.load(w_ptr + col, mask=col < n, other=0.0, eviction_policy="evict_last")
    for first in tl.range(tl.program_id(1) * ROWS, m, tl.num_programs(1) * ROWS):
        row = tl.cast(first, tl.int64) + tl.arange(0, ROWS)[:, None]
        here = (row < m) & (col < n)
        x = tl.load(x_ptr + row * x_stride + col, mask=here, other=0.0,
                    eviction_policy="evict_first")
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=here, other=0.0,
                     eviction_policy="evict_first")
        rstd = tl.load(rstd_ptr + row, mask=row < m, other=0.0)
        dot = tl.load(dot_ptr + row, mask=row < m, other=0.0)
        x_hat = x.to(tl.float32) * rstd
        dy = dy.to(tl.float32)
        dw += tl.sum(dy * x_hat, axis=0)[None, :]
        g = dy
        if w_ptr is not None:
            g = dy * w.to(tl.float32)
        dx = g * rstd - x_hat * dot
        if dtotal_ptr is not None:
            dtotal = tl.load(dtotal_ptr + row * dtotal_stride + col, mask=here,
                             other=0.0, eviction_policy="evict_first")
            dx += dtotal.to(tl.float32)
        tl.store(dx_ptr + row * n + col, dx.to(dx_ptr.dtype.element_ty), mask=here,
                 eviction_policy="evict_first")
    if part_ptr is not None:
        at = tl.program_id(1).to(tl.int64) * n + col
        tl.store(part_ptr + at, dw, mask=col < n)
# --8<-- [end:long-backward]


# --8<-- [start:launch]
def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
    dtotal: torch.Tensor | None = None,
    variant: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """dx and dweight (None without a weight); x is what was normalised."""
    check(x, weight, 0.0, {"dy": dy, "dtotal": dtotal})
    variant = chosen("backward", variant, x)
    rows, grads, past = rows_of(x), rows_of(dy), rows_of(dtotal)
    m, n = rows.shape
    if (rstd.shape, rstd.dtype, rstd.device) != ((m,), torch.float32, x.device):
        raise ValueError(
            f"rms_norm: rstd is {tuple(rstd.shape)} of {rstd.dtype} on {rstd.device}; "
            f"with this x it must be ({m},) of torch.float32 on {x.device}"
        )
    dx = torch.empty((m, n), dtype=x.dtype, device=x.device)
    dweight = None if weight is None else torch.empty_like(weight).contiguous()
    if m == 0 or n == 0:
        return dx.view(x.shape), None if dweight is None else dweight.zero_()
    rstd = rstd.contiguous()
    weight = None if weight is None else weight.contiguous()
    sms, _ = sms_and_cache(x.device)
    strides = (row_stride(grads), row_stride(rows), row_stride(past))
    size = x.element_size()
    part = None

    def parts(count: int) -> torch.Tensor | None:
        if weight is None:
            return None
        return torch.empty((count, n), dtype=torch.float32, device=x.device)

    with torch.cuda.device_of(x):
        if variant == "one pass":
            block, many, warps = tile(n, size, 32)
            # 16 warps an SM, or a block of 32, whose 64 registers have no room for the
            # weight; and for each block the copy of a tile under way.
            programs = min(triton.cdiv(m, many), sms * max(1, 16 // warps))
            part = parts(programs)
            rms_norm_backward_one_pass[(programs,)](
                dx, part, grads, rows, weight, rstd, past, m, n, *strides,
                ROWS=many, BLOCK=block, KEEP=warps < 32, STAGES=2, num_warps=warps,
            )  # fmt: skip
        else:
            dot = torch.empty_like(rstd)
            loads, threads, width = lanes(n, size, LOADS // 2, 16)
            rms_norm_backward_dots[(m,)](
                dot, grads, rows, weight, rstd, m, n, *strides[:2],
                LOADS=loads, LANES=threads, WIDTH=width, num_warps=threads // 32,
                enable_fp_fusion=False,
            )  # fmt: skip
            # Of each row 32 bytes a thread, whose rstd and dot it loads as well.
            cols = min(triton.next_power_of_2(n), 128 * 32 // size)
            across = triton.cdiv(n, cols)
            groups = min(triton.cdiv(m, 2), max(1, 8 * sms // across))
            part = parts(groups)
            rms_norm_backward_columns[(across, groups)](
                dx, part, grads, rows, weight, rstd, dot, past, m, n, *strides,
                ROWS=2, COLS=cols, num_warps=4,
            )  # fmt: skip
        if part is not None:
            # 128 bytes a row: whole lines, and blocks enough for narrow tensors.
            rms_norm_sum_parts[(triton.cdiv(n, 32),)](
                dweight, part, part.shape[0], n, ROWS=64, COLS=32, num_warps=1
            )
    return dx.view(x.shape), dweight
# --8<-- [end:launch]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::rms_norm", mutates_args=())
def normed(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    y, _, rstd = forward(x, weight, eps)
    return y, rstd


@torch.library.custom_op("warpshelf::add_rms_norm", mutates_args=())
def added_and_normed(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return forward(x, weight, eps, residual)


@torch.library.custom_op("warpshelf::rms_norm_backward", mutates_args=())
def normed_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
    dtotal: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    dx, dweight = backward(dy, x, weight, rstd, dtotal)
    return dx, x.new_empty(0) if dweight is None else dweight


@normed.register_fake
def _(x, weight, eps):
    rstd = x.new_empty(x.shape[:-1].numel(), dtype=torch.float32)
    return x.new_empty(x.shape), rstd


@added_and_normed.register_fake
def _(x, residual, weight, eps):
    rstd = x.new_empty(x.shape[:-1].numel(), dtype=torch.float32)
    return x.new_empty(x.shape), residual.new_empty(x.shape), rstd


@normed_backward.register_fake
def _(dy, x, weight, rstd, dtotal):
    dweight = x.new_empty(0) if weight is None else weight.new_empty(weight.shape)
    return x.new_empty(x.shape), dweight


def remember(ctx, inputs, output) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def remember_sum(ctx, inputs, output) -> None:
    x, _, weight, _ = inputs
    _, total, rstd = output
    ctx.dtype = x.dtype
    ctx.save_for_backward(total, weight, rstd)


def gradients(ctx, dy, drstd):
    x, weight, rstd = ctx.saved_tensors
    dx, dweight = normed_backward(dy, x, weight, rstd, None)
    return dx, None if weight is None else dweight, None


def gradients_of_sum(ctx, dy, dtotal, drstd):
    total, weight, rstd = ctx.saved_tensors
    dx, dweight = normed_backward(dy, total, weight, rstd, dtotal)
    return dx.to(ctx.dtype), dx, None if weight is None else dweight, None


normed.register_autograd(gradients, setup_context=remember)
added_and_normed.register_autograd(gradients_of_sum, setup_context=remember_sum)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6
) -> torch.Tensor:
    """RMSNorm of the last dimension; differentiable in x and weight."""
    check(x, weight, eps, {})
    return normed(x, weight, eps)[0]


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual, and x + residual; differentiable, both of them."""
    check(x, weight, eps, {"residual": residual})
    y, total, _ = added_and_normed(x, residual, weight, eps)
    return y, total
# --8<-- [end:operator]
