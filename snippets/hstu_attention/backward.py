"""The gradients of attention without softmax: a kernel owns keys, another queries.

Nothing of the forward pass is kept, and nothing is added by atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl

from snippets.flash_attention.tiles import load_rows, store_rows
from snippets.hstu_attention.sight import (
    seeing_queries,
    seen_keys,
    silu,
    tile_of_program,
)

NUMBERS = ("heads", "count", "window", "span")  # one code for all, also for 1


# --8<-- [start:gather_keys]
@triton.jit
def gather_keys(dk, dv, keys, values, q, dout, q_stride, dout_stride, b, h, start, col,
                rows, history, window, alpha, bias, span, M: tl.constexpr,
                D: tl.constexpr, E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr,
                TMA: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr):
    """Add what a tile of queries gives to keys. Nothing of the forward is kept."""
    row = start + tl.arange(0, M)
    queries = load_rows(q, q_stride, b, h, start, rows, M, D, DW, TMA, True)
    # Transposed, p is the left operand of its product, which registers can hold.
    s = tl.dot(keys, queries.T, input_precision="ieee")
    p, gate = silu(s, alpha, bias, row[None, :], col[:, None], history, window, span,
                   BIAS, MASK)
    do = load_rows(dout, dout_stride, b, h, start, rows, M, E, EW, TMA, True)
    dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
    dp = tl.dot(values, do.T, input_precision="ieee")
    ds = dp * (gate + p * (1.0 - gate))  # SiLU' = gate + x gate (1 - gate)
    dk = tl.dot(ds.to(queries.dtype), queries, dk, input_precision="ieee")
    return dk, dv
# --8<-- [end:gather_keys]


# --8<-- [start:keys]
@triton.jit(do_not_specialize=NUMBERS)
def hstu_backward_keys(dk, dv, q, k, v, dout, cu, targets, order, before, bias,
                       dk_stride, dv_stride, q_stride, k_stride, v_stride, dout_stride,
                       heads, count, window, span, alpha, share, D: tl.constexpr,
                       E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr,
                       M: tl.constexpr, N: tl.constexpr, TMA: tl.constexpr,
                       BIAS: tl.constexpr):
    b, rows, history, h, tile, tiles = tile_of_program(
        order, before, cu, targets, heads, count, N)
    first = tile * N  # the first keys are seen most
    if tile >= tiles or first >= rows:
        return
    col = first + tl.arange(0, N)
    if BIAS:
        bias += h * span
    begin, left, inner, outer, end = seeing_queries(first, rows, history, window, M, N)
    keys = load_rows(k, k_stride, b, h, first, rows, N, D, DW, TMA, True)
    values = load_rows(v, v_stride, b, h, first, rows, N, E, EW, TMA, True)
    dk_sum = tl.zeros([N, DW], tl.float32)
    dv_sum = tl.zeros([N, EW], tl.float32)
    for start in tl.range(inner, outer, M):
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, q_stride, dout_stride, b, h, start,
            col, rows, history, window, alpha, bias, span, M, D, E, DW, EW, TMA, BIAS,
            False)
    right = tl.cdiv(tl.maximum(end - outer, 0), M)
    for index in tl.range(0, left + right):
        start = tl.where(index < left, begin, outer - left * M) + index * M
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, q_stride, dout_stride, b, h, start,
            col, rows, history, window, alpha, bias, span, M, D, E, DW, EW, TMA, BIAS,
            True)
    dk_sum *= alpha * share
    store_rows(dk, dk_stride, b, h, first, rows, dk_sum, N, D, DW)
    store_rows(dv, dv_stride, b, h, first, rows, dv_sum * share, N, E, EW)
# --8<-- [end:keys]


# --8<-- [start:gather_queries]
@triton.jit
def gather_queries(dq, queries, do, k, v, k_stride, v_stride, b, h, start, row, rows,
                   history, window, alpha, bias, span, N: tl.constexpr,
                   D: tl.constexpr, E: tl.constexpr, DW: tl.constexpr,
                   EW: tl.constexpr, TMA: tl.constexpr, BIAS: tl.constexpr,
                   MASK: tl.constexpr):
    """Add what a tile of keys gives to queries."""
    keys = load_rows(k, k_stride, b, h, start, rows, N, D, DW, TMA, MASK)
    s = tl.dot(queries, keys.T, input_precision="ieee")
    col = start + tl.arange(0, N)
    p, gate = silu(s, alpha, bias, row[:, None], col[None, :], history, window, span,
                   BIAS, MASK)
    values = load_rows(v, v_stride, b, h, start, rows, N, E, EW, TMA, MASK)
    dp = tl.dot(do, values.T, input_precision="ieee")
    ds = dp * (gate + p * (1.0 - gate))
    return tl.dot(ds.to(keys.dtype), keys, dq, input_precision="ieee")
# --8<-- [end:gather_queries]


# --8<-- [start:queries]
@triton.jit(do_not_specialize=NUMBERS)
def hstu_backward_queries(dq, q, k, v, dout, cu, targets, order, before, bias,
                          dq_stride, q_stride, k_stride, v_stride, dout_stride, heads,
                          count, window, span, alpha, share, D: tl.constexpr,
                          E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr,
                          M: tl.constexpr, N: tl.constexpr, TMA: tl.constexpr,
                          BIAS: tl.constexpr):
    b, rows, history, h, tile, tiles = tile_of_program(
        order, before, cu, targets, heads, count, M)
    first = (tiles - 1 - tile) * M
    if tile >= tiles or first >= rows:
        return
    row = first + tl.arange(0, M)
    if BIAS:
        bias += h * span
    begin, left, inner, outer, edge, own, itself = seen_keys(
        first, rows, history, window, M, N)
    queries = load_rows(q, q_stride, b, h, first, rows, M, D, DW, TMA, True)
    do = load_rows(dout, dout_stride, b, h, first, rows, M, E, EW, TMA, True)
    acc = tl.zeros([M, DW], tl.float32)
    for start in tl.range(inner, outer, N):
        acc = gather_queries(acc, queries, do, k, v, k_stride, v_stride, b, h, start,
                             row, rows, history, window, alpha, bias, span, N, D, E,
                             DW, EW, TMA, BIAS, False)
    for index in tl.range(0, left + edge + itself):
        start = tl.where(index < left, begin, outer - left * N) + index * N
        start = tl.where(index < left + edge, start, own + (index - left - edge) * N)
        acc = gather_queries(acc, queries, do, k, v, k_stride, v_stride, b, h, start,
                             row, rows, history, window, alpha, bias, span, N, D, E,
                             DW, EW, TMA, BIAS, True)
    store_rows(dq, dq_stride, b, h, first, rows, acc * (alpha * share), M, D, DW)
# --8<-- [end:queries]
