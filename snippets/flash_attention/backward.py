"""The gradients of attention: kernels for D, for keys that a block owns, for queries.

Every sum stays on chip, and no atomic addition decides the last bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from snippets.flash_attention.tiles import (
    LENGTHS,
    LOG2E,
    load_rows,
    near,
    seeing_queries,
    seen_keys,
    store_rows,
)


# --8<-- [start:delta]
@triton.jit
def flash_delta(delta, out, dout, lse, dlse, out_stride, dout_stride, h_q, s_q,
                D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr):
    """delta = rowsum(out * dout) - dlse: what dS subtracts, for both kernels below."""
    tiles = tl.cdiv(s_q, M)
    head = tl.program_id(0) // tiles
    first = tl.program_id(0) % tiles * M
    b, h = head // h_q, head % h_q
    o = load_rows(out, out_stride, b, h, first, s_q, M, D, WIDTH, False, True)
    do = load_rows(dout, dout_stride, b, h, first, s_q, M, D, WIDTH, False, True)
    row = first + tl.arange(0, M)
    at = tl.cast(head, tl.int64) * s_q + row
    here = row < s_q
    value = tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1)
    if dlse is not None:
        value -= tl.load(dlse + at, mask=here, other=0.0)
    seen = tl.load(lse + at, mask=here, other=0.0) != float("-inf")
    tl.store(delta + at, tl.where(seen, value, 0.0), mask=here)
# --8<-- [end:delta]


# --8<-- [start:gather_keys]
@triton.jit
def weight(s, row_lse, scale, EXACT: tl.constexpr):
    """p = exp(scale * s - lse), made anew without a maximum: lse holds it."""
    if EXACT:  # subtract first: a large lse times LOG2E loses digits that float32 has
        p = tl.exp2((s * scale - row_lse) * LOG2E)
    else:
        p = tl.exp2(s * (scale * LOG2E) - row_lse * LOG2E)
    return p


@triton.jit
def gather_keys(dk, dv, keys, values, q, dout, lse, delta, apart, q_stride,
                dout_stride, b, h, col, low, high, s_q, scale, first, last,
                GROUP: tl.constexpr, M: tl.constexpr, D: tl.constexpr,
                WIDTH: tl.constexpr, TMA: tl.constexpr, BELOW: tl.constexpr,
                ABOVE: tl.constexpr, MASK: tl.constexpr):
    """Add what the queries first ... last - 1 of all heads of a group give to keys.

    lse and delta are those of the group's first head; the next begin `apart` after it.
    """
    tiles = tl.cdiv(last - first, M)
    for index in tl.range(0, GROUP * tiles):  # one loop, so that loads run ahead of it
        member = 0
        start = first + index * M
        if GROUP > 1:
            member = index // tiles
            start = first + index % tiles * M
        row = start + tl.arange(0, M)
        here = row < s_q
        at = member * apart + row
        head = h * GROUP + member
        queries = load_rows(q, q_stride, b, head, start, s_q, M, D, WIDTH, TMA, True)
        # Past the end p is 1, but q, dout and delta are 0, and so is what it adds.
        row_lse = tl.load(lse + at, mask=here, other=0.0)
        # Transposed, p is the left operand of its product, which registers can hold.
        s = tl.dot(keys, queries.T, input_precision="ieee")
        p = weight(s, row_lse[None, :], scale, queries.dtype == tl.float32)
        if MASK:
            seen = near(row[None, :], col[:, None], low, high, BELOW, ABOVE)
            p = tl.where(seen, p, 0.0)
        do = load_rows(dout, dout_stride, b, head, start, s_q, M, D, WIDTH, TMA, True)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        dp = tl.dot(values, do.T, input_precision="ieee")
        row_delta = tl.load(delta + at, mask=here, other=0.0)
        ds = p * (dp - row_delta[None, :])
        dk = tl.dot(ds.to(queries.dtype), queries, dk, input_precision="ieee")
    return dk, dv
# --8<-- [end:gather_keys]


# --8<-- [start:keys]
@triton.jit(do_not_specialize=LENGTHS)
def flash_backward_keys(dk, dv, q, k, v, dout, lse, delta, dk_stride, dv_stride,
                        q_stride, k_stride, v_stride, dout_stride, h_kv, s_q, s_kv,
                        left, right, scale, GROUP: tl.constexpr, D: tl.constexpr,
                        WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                        TMA: tl.constexpr, BELOW: tl.constexpr, ABOVE: tl.constexpr):
    tiles = tl.cdiv(s_kv, N)
    head_kv = tl.program_id(0) // tiles
    b, h = head_kv // h_kv, head_kv % h_kv
    first = tl.program_id(0) % tiles * N  # if causal, the first keys have most to do
    col = first + tl.arange(0, N)
    low, high = s_kv - s_q - left, s_kv - s_q + right
    begin, inner, outer, end = seeing_queries(first, s_q, low, high, M, N, BELOW, ABOVE)
    rows = tl.cast(head_kv, tl.int64) * GROUP * s_q  # of all heads before this group's
    lse += rows
    delta += rows
    apart = tl.cast(s_q, tl.int64)
    keys = load_rows(k, k_stride, b, h, first, s_kv, N, D, WIDTH, TMA, True)
    values = load_rows(v, v_stride, b, h, first, s_kv, N, D, WIDTH, TMA, True)
    dk_sum = tl.zeros([N, WIDTH], tl.float32)
    dv_sum = tl.zeros([N, WIDTH], tl.float32)
    if ABOVE:
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, lse, delta, apart, q_stride,
            dout_stride, b, h, col, low, high, s_q, scale, begin, inner, GROUP, M, D,
            WIDTH, TMA, BELOW, ABOVE, True)
    dk_sum, dv_sum = gather_keys(
        dk_sum, dv_sum, keys, values, q, dout, lse, delta, apart, q_stride, dout_stride,
        b, h, col, low, high, s_q, scale, inner, outer, GROUP, M, D, WIDTH, TMA, BELOW,
        ABOVE, False)
    if BELOW:
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, lse, delta, apart, q_stride,
            dout_stride, b, h, col, low, high, s_q, scale, outer, end, GROUP, M, D,
            WIDTH, TMA, BELOW, ABOVE, True)
    store_rows(dk, dk_stride, b, h, first, s_kv, dk_sum * scale, N, D, WIDTH)
    store_rows(dv, dv_stride, b, h, first, s_kv, dv_sum, N, D, WIDTH)
# --8<-- [end:keys]


# --8<-- [start:gather_queries]
@triton.jit
def gather_queries(dq, queries, do, row_lse, row_delta, k, v, k_stride, v_stride, b, h,
                   row, low, high, s_kv, scale, first, last, N: tl.constexpr,
                   D: tl.constexpr, WIDTH: tl.constexpr, TMA: tl.constexpr,
                   BELOW: tl.constexpr, ABOVE: tl.constexpr, MASK: tl.constexpr):
    """Add what the keys first ... last - 1 give to a tile of queries."""
    for start in tl.range(first, last, N):
        keys = load_rows(k, k_stride, b, h, start, s_kv, N, D, WIDTH, TMA, MASK)
        s = tl.dot(queries, keys.T, input_precision="ieee")
        p = weight(s, row_lse[:, None], scale, queries.dtype == tl.float32)
        if MASK:
            col = start + tl.arange(0, N)
            seen = (col < s_kv)[None, :]
            if BELOW or ABOVE:
                seen &= near(row[:, None], col[None, :], low, high, BELOW, ABOVE)
            p = tl.where(seen, p, 0.0)
        values = load_rows(v, v_stride, b, h, start, s_kv, N, D, WIDTH, TMA, MASK)
        dp = tl.dot(do, values.T, input_precision="ieee")
        ds = p * (dp - row_delta[:, None])
        dq = tl.dot(ds.to(keys.dtype), keys, dq, input_precision="ieee")
    return dq
# --8<-- [end:gather_queries]


# --8<-- [start:queries]
@triton.jit(do_not_specialize=LENGTHS)
def flash_backward_queries(dq, q, k, v, dout, lse, delta, dq_stride, q_stride, k_stride,
                           v_stride, dout_stride, h_q, s_q, s_kv, left, right, scale,
                           GROUP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
                           M: tl.constexpr, N: tl.constexpr, TMA: tl.constexpr,
                           BELOW: tl.constexpr, ABOVE: tl.constexpr):
    tiles = tl.cdiv(s_q, M)
    head = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    if ABOVE:
        tile = tiles - 1 - tile
    b, h = head // h_q, head % h_q
    kv = h // GROUP
    first = tile * M
    row = first + tl.arange(0, M)
    low, high = s_kv - s_q - left, s_kv - s_q + right
    begin, inner, outer, end = seen_keys(first, s_kv, low, high, M, N, BELOW, ABOVE)
    queries = load_rows(q, q_stride, b, h, first, s_q, M, D, WIDTH, TMA, True)
    do = load_rows(dout, dout_stride, b, h, first, s_q, M, D, WIDTH, TMA, True)
    at = tl.cast(head, tl.int64) * s_q + row
    row_lse = tl.load(lse + at, mask=row < s_q, other=0.0)
    row_delta = tl.load(delta + at, mask=row < s_q, other=0.0)
    acc = tl.zeros([M, WIDTH], tl.float32)
    if BELOW:
        acc = gather_queries(acc, queries, do, row_lse, row_delta, k, v, k_stride,
                             v_stride, b, kv, row, low, high, s_kv, scale, begin, inner,
                             N, D, WIDTH, TMA, BELOW, ABOVE, True)
    acc = gather_queries(acc, queries, do, row_lse, row_delta, k, v, k_stride, v_stride,
                         b, kv, row, low, high, s_kv, scale, inner, outer, N, D, WIDTH,
                         TMA, BELOW, ABOVE, False)
    acc = gather_queries(acc, queries, do, row_lse, row_delta, k, v, k_stride, v_stride,
                         b, kv, row, low, high, s_kv, scale, outer, end, N, D, WIDTH,
                         TMA, BELOW, ABOVE, True)
    store_rows(dq, dq_stride, b, h, first, s_q, acc * scale, M, D, WIDTH)
# --8<-- [end:queries]
