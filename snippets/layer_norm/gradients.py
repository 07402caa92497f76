"""The gradients of LayerNorm, and the operator that autograd and torch.compile know.

A few blocks stay, take many rows each and keep two sums of every column; see
layer_norm.py for the shapes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Without a GPU it also has papergpu execute kernels on the CPU, those below too.
from snippets.layer_norm.layer_norm import (
    LOADS,
    check,
    chosen,
    chunk,
    contiguous,
    forward,
    lanes,
    rows_of,
    sms_and_cache,
    tile,
)


# --8<-- [start:stay]
@triton.jit
def layer_norm_backward_one_pass(dx_ptr, dw_part_ptr, db_part_ptr, dy_ptr, x_ptr, w_ptr,
                                 mean_ptr, rstd_ptr, m, n, dy_stride, x_stride,
                                 ROWS: tl.constexpr, BLOCK: tl.constexpr,
                                 STAGES: tl.constexpr):
    col = tl.arange(0, BLOCK)[None, :]
    dw = tl.zeros([ROWS, BLOCK], tl.float32)
    db = tl.zeros([ROWS, BLOCK], tl.float32)
    if w_ptr is not None:
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
        x_hat = (x.to(tl.float32) - tl.load(mean_ptr + source)) * rstd
        dy = dy.to(tl.float32)
        dw += dy * x_hat
        db += dy
        g = dy
        if w_ptr is not None:
            g = dy * w.to(tl.float32)
        dot = tl.sum(g * x_hat, axis=1) / n
        shift = tl.sum(g, axis=1) / n
        dx = (g - shift[:, None] - x_hat * dot[:, None]) * rstd
        tl.store(dx_ptr + row[:, None] * n + col, dx.to(dx_ptr.dtype.element_ty),
                 mask=here, eviction_policy="evict_first")
    at = tl.program_id(0).to(tl.int64) * n + tl.arange(0, BLOCK)
    if dw_part_ptr is not None:
        tl.store(dw_part_ptr + at, tl.sum(dw, axis=0), mask=tl.arange(0, BLOCK) < n)
    if db_part_ptr is not None:
        tl.store(db_part_ptr + at, tl.sum(db, axis=0), mask=tl.arange(0, BLOCK) < n)
# --8<-- [end:stay]


# --8<-- [start:parts]
@triton.jit
def layer_norm_sum_parts(out_ptr, part_ptr, parts, n, ROWS: tl.constexpr,
                         COLS: tl.constexpr):
    # In the same order at every run, as no atomic addition would be.
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    out = tl.zeros([ROWS, COLS], tl.float32)
    for first in tl.range(0, parts, ROWS):
        part = first + tl.arange(0, ROWS)[:, None]
        out += tl.load(part_ptr + part.to(tl.int64) * n + col,
                       mask=(part < parts) & (col < n), other=0.0)
    total = tl.sum(out, axis=0)[None, :]
    tl.store(out_ptr + col, total.to(out_ptr.dtype.element_ty), mask=col < n)
# --8<-- [end:parts]


# --8<-- [start:long-backward]
@triton.jit
def layer_norm_backward_dots(dot_ptr, dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, m, n,
                             dy_stride, x_stride, LOADS: tl.constexpr,
                             LANES: tl.constexpr, WIDTH: tl.constexpr):
    """rstd * mean(g * x_hat) and rstd * mean(g) of each row, (2, M): all that its
    columns must know of it."""
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    col = chunk(LOADS, LANES, WIDTH)
    row = tl.program_id(0).to(tl.int64)
    dot = tl.zeros([LANES], tl.float32)
    shift = tl.zeros([LANES], tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    for start in tl.range(0, n, CHUNK):
        here = start + col
        x = tl.load(x_ptr + row * x_stride + here, mask=here < n, other=0.0)
        g = tl.load(dy_ptr + row * dy_stride + here, mask=here < n, other=0.0)
        g = g.to(tl.float32)
        if w_ptr is not None:
            w = tl.load(w_ptr + here, mask=here < n, other=0.0,
                        eviction_policy="evict_last")
            g = g * w.to(tl.float32)
        shift += tl.sum(tl.sum(g, axis=2), axis=0)
        dot += tl.sum(tl.sum(g * (x.to(tl.float32) - mean), axis=2), axis=0)
    tl.store(dot_ptr + row, tl.sum(dot, axis=0) / n * rstd * rstd)
    tl.store(dot_ptr + m + row, tl.sum(shift, axis=0) / n * rstd)


@triton.jit
def layer_norm_backward_columns(dx_ptr, dw_part_ptr, db_part_ptr, dy_ptr, x_ptr, w_ptr,
                                mean_ptr, rstd_ptr, dot_ptr, m, n, dy_stride, x_stride,
                                ROWS: tl.constexpr, COLS: tl.constexpr):
    """Some columns of every so many rows: with its sums known, a row can be cut."""
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    dw = tl.zeros([1, COLS], tl.float32)
    db = tl.zeros([1, COLS], tl.float32)
    if w_ptr is not None:
        w = tl.load(w_ptr + col, mask=col < n, other=0.0, eviction_policy="evict_last")
    for first in tl.range(tl.program_id(1) * ROWS, m, tl.num_programs(1) * ROWS):
        row = tl.cast(first, tl.int64) + tl.arange(0, ROWS)[:, None]
        here = (row < m) & (col < n)
        x = tl.load(x_ptr + row * x_stride + col, mask=here, other=0.0,
                    eviction_policy="evict_first")
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=here, other=0.0,
                     eviction_policy="evict_first")
        mean = tl.load(mean_ptr + row, mask=row < m, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < m, other=0.0)
        dot = tl.load(dot_ptr + row, mask=row < m, other=0.0)
        shift = tl.load(dot_ptr + m + row, mask=row < m, other=0.0)
        x_hat = (x.to(tl.float32) - mean) * rstd
        dy = dy.to(tl.float32)
        dw += tl.sum(dy * x_hat, axis=0)[None, :]
        db += tl.sum(dy, axis=0)[None, :]
        g = dy
        if w_ptr is not None:
            g = dy * w.to(tl.float32)
        dx = g * rstd - shift - x_hat * dot
        tl.store(dx_ptr + row * n + col, dx.to(dx_ptr.dtype.element_ty), mask=here,
                 eviction_policy="evict_first")
    at = tl.program_id(1).to(tl.int64) * n + col
    if dw_part_ptr is not None:
        tl.store(dw_part_ptr + at, dw, mask=col < n)
    if db_part_ptr is not None:
        tl.store(db_part_ptr + at, db, mask=col < n)
# --8<-- [end:long-backward]


# --8<-- [start:launch]
def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    variant: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """dx, dweight and dbias, each None without its own; of bias, only the dtype."""
    check(x, 0.0, {"weight": weight, "bias": bias}, {"dy": dy})
    variant = chosen("backward", variant, x)
    rows, grads = rows_of(x), rows_of(dy)
    m, n = rows.shape
    for name, tensor in {"mean": mean, "rstd": rstd}.items():
        told = tensor.shape, tensor.dtype, tensor.device
        if told != ((m,), torch.float32, x.device):
            raise ValueError(
                f"layer_norm: {name} is {tuple(told[0])} of {told[1]} on {told[2]}; "
                f"with this x it must be ({m},) of torch.float32 on {x.device}"
            )
    dx = torch.empty((m, n), dtype=x.dtype, device=x.device)
    found = [
        None if each is None else each.new_empty(n, dtype=each.dtype)
        for each in (weight, bias)
    ]
    if m == 0 or n == 0:
        zeros = [None if each is None else each.zero_() for each in found]
        return dx.view(x.shape), *zeros
    given = (grads, rows, contiguous(weight), mean.contiguous(), rstd.contiguous())
    sms, _ = sms_and_cache(x.device)
    strides = (grads.stride(0), rows.stride(0))
    size = x.element_size()

    def parts(count: int) -> list[torch.Tensor | None]:
        told = {"dtype": torch.float32, "device": x.device}
        return [
            None if each is None else torch.empty((count, n), **told) for each in found
        ]

    with torch.cuda.device_of(x):
        if variant == "one pass":
            block, many, warps = tile(n, size, 32)
            # 16 warps an SM, and a tile on its way to each block.
            programs = min(triton.cdiv(m, many), sms * max(1, 16 // warps))
            partial = parts(programs)
            layer_norm_backward_one_pass[(programs,)](
                dx, *partial, *given, m, n, *strides,
                ROWS=many, BLOCK=block, STAGES=2, num_warps=warps,
            )  # fmt: skip
        else:
            dot = torch.empty((2, m), dtype=torch.float32, device=x.device)
            loads, threads, width = lanes(n, size, LOADS // 2, 16)
            layer_norm_backward_dots[(m,)](
                dot, *given, m, n, *strides,
                LOADS=loads, LANES=threads, WIDTH=width, num_warps=threads // 32,
                enable_fp_fusion=False,
            )  # fmt: skip
            # Of each row 32 bytes a thread, whose rstd and sums it loads as well.
            cols = min(triton.next_power_of_2(n), 128 * 32 // size)
            across = triton.cdiv(n, cols)
            groups = min(triton.cdiv(m, 2), max(1, 8 * sms // across))
            partial = parts(groups)
            layer_norm_backward_columns[(across, groups)](
                dx, *partial, *given, dot, m, n, *strides,
                ROWS=2, COLS=cols, num_warps=4,
            )  # fmt: skip
        for out, part in zip(found, partial, strict=True):
            if part is not None:
                # 128 bytes a row: whole lines, and blocks enough for narrow tensors.
                layer_norm_sum_parts[(triton.cdiv(n, 32),)](
                    out, part, part.shape[0], n, ROWS=64, COLS=32, num_warps=1
                )
    return dx.view(x.shape), *found
# --8<-- [end:launch]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::layer_norm", mutates_args=())
def normed(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y, mean, rstd = forward(x, weight, bias, eps)
    return y, mean.clone(), rstd.clone()


@torch.library.custom_op("warpshelf::layer_norm_backward", mutates_args=())
def normed_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dx, *found = backward(dy, x, weight, bias, mean, rstd)
    dweight, dbias = (x.new_empty(0) if each is None else each for each in found)
    return dx, dweight, dbias


@normed.register_fake
def _(x, weight, bias, eps):
    m = x.shape[:-1].numel()
    mean, rstd = (x.new_empty(m, dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape), mean, rstd


@normed_backward.register_fake
def _(dy, x, weight, bias, mean, rstd):
    dweight, dbias = (
        x.new_empty(0) if each is None else each.new_empty(each.shape)
        for each in (weight, bias)
    )
    return x.new_empty(x.shape), dweight, dbias


def remember(ctx, inputs, output) -> None:
    x, weight, bias, _ = inputs
    _, mean, rstd = output
    ctx.save_for_backward(x, weight, bias, mean, rstd)


def gradients(ctx, dy, dmean, drstd):
    x, weight, bias, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = normed_backward(dy, x, weight, bias, mean, rstd)
    dweight = None if weight is None else dweight
    return dx, dweight, None if bias is None else dbias, None


normed.register_autograd(gradients, setup_context=remember)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """LayerNorm of the last dimension; differentiable in x, weight and bias."""
    check(x, eps, {"weight": weight, "bias": bias}, {})
    return normed(x, weight, bias, eps)[0]
# --8<-- [end:operator]
