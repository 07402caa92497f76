"""Attention, forwards and backwards; its matrix of scores exists a tile at a time.

Shapes  q (B, H_q, S_q, D); k, v (B, H_kv, S_kv, D), H_q a multiple of H_kv; out and
        dout as q; lse (B, H_q, S_q) float32. Else float32, float16 or bfloat16, and any
        strides. 1 <= D <= 256; D is padded on chip to a power of two, to 16 at least.
        out = softmax(scale * q k^T) v by rows, lse = log(sum(exp(scale * q k^T))).
        Query i stands at key i + S_kv - S_q, so the last one at the last key. Causal:
        it sees none to the right of that. A window of (left, right) bounds how many it
        sees to either side of it, -1 for all. A query that sees none has out = 0 and
        lse = -inf
FLOPs   forward 4 B H_q S_q S_kv D, half of it if causal and S_q = S_kv, in a window
        4 B H_q S_q (left + 1 + right) D; backward 2.5 times that as everyone counts it,
        and 3.5 times as these two kernels work it out
Error   relative to float64: 5e-6 float32, which is multiplied as such, 1e-3 float16,
        5e-3 bfloat16, but 8e-3 its gradients where `out` was rounded, as by default;
        sums are float32. The same inputs give the same bits
Raises  ValueError, TypeError for shapes, scales, dtypes and devices other than these
Source  flash-attention, flash-attention-2, triton-fused-attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ALL = (-1, -1)  # a window without sides
MAX_D = 256  # 128 rows of float32 sums are then 128 registers for each of 256 threads
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
LN2 = tl.constexpr(0.6931471805599453)
# One code for all lengths and windows, also for 1, which else is a constant to Triton.
LENGTHS = ("s_q", "s_kv", "left", "right")
PACKED = tl.constexpr(2**30)  # rows of packed sequences, as flash_varlen describes them


# --8<-- [start:load]
@triton.jit
def addresses(base, stride, b, h, row, col):
    """Of a tile's elements, in 64 bits: a row's offset may pass 2**31."""
    head = base + tl.cast(b, tl.int64) * stride[0] + tl.cast(h, tl.int64) * stride[1]
    rows = row.to(tl.int64)[:, None] * stride[2]
    return head + rows + (col.to(tl.int64) * stride[3])[None, :]


@triton.jit
def load_rows(source, stride, b, h, first, rows, ROWS: tl.constexpr, D: tl.constexpr,
              WIDTH: tl.constexpr, TMA: tl.constexpr, MASK: tl.constexpr):
    """Rows first ... first + ROWS - 1 of a head; zeros past `rows` and past D."""
    if TMA:
        # The copy engine makes addresses and bounds, and a barrier in shared memory
        # tells that a tile is there: no registers of pointers, no meeting of warps.
        if len(source.shape) == 5:  # packed: this sequence begins at row b
            at = [PACKED, b + rows, h, PACKED - rows + first, 0]
        else:
            at = [b, h, first, 0]
        tile = source.load(at).reshape(ROWS, WIDTH)
    else:
        row = first + tl.arange(0, ROWS)
        col = tl.arange(0, WIDTH)
        at = addresses(source, stride, b, h, row, col)
        if MASK:
            inside = (row < rows)[:, None] & (col < D)[None, :]
            tile = tl.load(at, mask=inside, other=0.0)
        elif D < WIDTH:
            tile = tl.load(at, mask=(col < D)[None, :], other=0.0)
        else:
            tile = tl.load(at)
    return tile


@triton.jit
def store_rows(target, stride, b, h, first, rows, tile, ROWS: tl.constexpr,
               D: tl.constexpr, WIDTH: tl.constexpr):
    row = first + tl.arange(0, ROWS)
    col = tl.arange(0, WIDTH)
    at = addresses(target, stride, b, h, row, col)
    inside = (row < rows)[:, None] & (col < D)[None, :]
    tl.store(at, tile.to(target.dtype.element_ty), mask=inside)
# --8<-- [end:load]


# --8<-- [start:band]
@triton.jit
def near(row, col, low, high, BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """Whether query `row` sees key `col`: its band is row + low ... row + high."""
    if BELOW and ABOVE:
        inside = (col >= row + low) & (col <= row + high)
    elif ABOVE:
        inside = col <= row + high
    else:
        inside = col >= row + low
    return inside


@triton.jit
def seen_keys(first, s_kv, low, high, M: tl.constexpr, N: tl.constexpr,
              BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """Of M queries from `first` on, some see the keys begin ... end - 1, and all see
    inner ... outer - 1, which are whole tiles."""
    begin, inner, outer, end = 0, 0, s_kv, s_kv
    if ABOVE:
        outer = tl.minimum(tl.maximum(first + high + 1, 0), s_kv)
        end = tl.minimum(tl.maximum(first + M + high, 0), s_kv)
    outer = outer // N * N
    if BELOW:
        begin = tl.minimum(tl.maximum(first + low, 0), s_kv) // N * N
        inner = tl.cdiv(tl.maximum(first + M - 1 + low, 0), N) * N
        outer = tl.maximum(outer, begin)
        inner = tl.minimum(inner, outer)  # no tile is inside a narrow window
    return begin, inner, outer, end
# --8<-- [end:band]


# --8<-- [start:columns]
@triton.jit
def seeing_queries(first, s_q, low, high, M: tl.constexpr, N: tl.constexpr,
                   BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """Of N keys from `first` on, some are seen by the queries begin ... end - 1, all by
    inner ... outer - 1: whole tiles, if need be with what lies past the last query."""
    begin, inner, outer, end = 0, 0, s_q, s_q
    if ABOVE:
        begin = tl.maximum(first - high, 0) // M * M
        inner = tl.cdiv(tl.maximum(first + N - 1 - high, 0), M) * M
        inner = tl.minimum(inner, tl.cdiv(s_q, M) * M)
    if BELOW:
        end = tl.minimum(tl.maximum(first + N - low, 0), s_q)
        if first - low + 1 < s_q:
            outer = tl.maximum(first - low + 1, 0) // M * M
        outer = tl.maximum(outer, begin)
        inner = tl.minimum(inner, outer)
    return begin, inner, outer, end
# --8<-- [end:columns]


# --8<-- [start:attend]
@triton.jit
def attend(acc, top, total, q, k, v, k_stride, v_stride, b, h, row, low, high, s_kv,
           scale2, first, last, N: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
           TMA: tl.constexpr, BELOW: tl.constexpr, ABOVE: tl.constexpr,
           MASK: tl.constexpr):
    """Take in the keys first ... last - 1; MASK if some row does not see them all."""
    for start in tl.range(first, last, N):
        keys = load_rows(k, k_stride, b, h, start, s_kv, N, D, WIDTH, TMA, MASK)
        s = tl.dot(q, keys.T, input_precision="ieee")
        if MASK:
            col = start + tl.arange(0, N)
            seen = (col < s_kv)[None, :]
            if BELOW or ABOVE:
                seen &= near(row[:, None], col[None, :], low, high, BELOW, ABOVE)
            s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=1) * scale2)
        shift = higher
        if MASK:  # a row that has seen no key subtracts 0: -inf - -inf would be NaN
            shift = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s * scale2 - shift[:, None])  # a multiply-add and an exp2 a score
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(p, axis=1)
        acc = acc * fade[:, None]
        values = load_rows(v, v_stride, b, h, start, s_kv, N, D, WIDTH, TMA, MASK)
        acc = tl.dot(p.to(values.dtype), values, acc, input_precision="ieee")
        top = higher
    return acc, top, total
# --8<-- [end:attend]


# --8<-- [start:forward]
@triton.jit(do_not_specialize=LENGTHS)
def flash_forward(out, lse, q, k, v, out_stride, q_stride, k_stride, v_stride,
                  h_q, s_q, s_kv, left, right, scale2, GROUP: tl.constexpr,
                  D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr,
                  N: tl.constexpr, TMA: tl.constexpr, BELOW: tl.constexpr,
                  ABOVE: tl.constexpr):
    # Tiles of one head are neighbours, so that L2 serves its keys; under a causal mask
    # those with most keys start first.
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
    acc = tl.zeros([M, WIDTH], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)  # of scale2 * s, logarithms to base 2
    total = tl.zeros([M], tl.float32)
    if BELOW:
        acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b,
                                 kv, row, low, high, s_kv, scale2, begin, inner, N, D,
                                 WIDTH, TMA, BELOW, ABOVE, True)
    acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b, kv,
                             row, low, high, s_kv, scale2, inner, outer, N, D, WIDTH,
                             TMA, BELOW, ABOVE, False)
    acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b, kv,
                             row, low, high, s_kv, scale2, outer, end, N, D, WIDTH, TMA,
                             BELOW, ABOVE, True)
    total = tl.where(total > 0, total, 1.0)  # nothing seen: acc is 0 and top is -inf
    out_tile = acc / total[:, None]
    store_rows(out, out_stride, b, h, first, s_q, out_tile, M, D, WIDTH)
    logarithm = (top + tl.log2(total)) * LN2
    tl.store(lse + tl.cast(head, tl.int64) * s_q + row, logarithm, mask=row < s_q)
# --8<-- [end:forward]


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


# --8<-- [start:tiles]
class Tile(NamedTuple):
    """M queries and N keys a tile, warps, and tiles in flight."""

    m: int
    n: int
    warps: int
    stages: int


# By kernel and by the widest head that a tile is for. Of the 255 registers a thread has
# at most, 128 rows of D = 128 sums take 64 in 8 warps, scores of 128 keys 64 more.
TILES = {
    # sm_90, sm_100: 227 KiB of shared memory, from which matrix instructions read
    "descriptors": {
        "forward": {64: (128, 128, 8, 3), 128: (128, 128, 8, 2), 256: (128, 64, 8, 2)},
        "keys": {64: (64, 128, 8, 3), 128: (64, 128, 8, 2), 256: (32, 64, 8, 2)},
        "queries": {64: (128, 128, 8, 2), 128: (128, 64, 8, 2), 256: (64, 64, 8, 2)},
    },
    # sm_80: 163 KiB, and operands pass through registers
    "pointers": {
        "forward": {64: (128, 64, 4, 3), 128: (128, 64, 8, 3), 256: (64, 64, 8, 2),
                    512: (32, 32, 8, 2)},
        "keys": {64: (32, 128, 8, 3), 128: (64, 64, 8, 2), 256: (32, 64, 8, 2),
                 512: (16, 32, 8, 2)},
        "queries": {32: (64, 64, 4, 2), 64: (128, 64, 8, 2), 128: (128, 32, 8, 2),
                    256: (64, 32, 8, 2), 512: (32, 32, 8, 2)},
    },
    # sm_86, sm_89, sm_120: 99 KiB
    "small": {
        "forward": {64: (128, 32, 4, 3), 128: (128, 32, 8, 2), 512: (64, 32, 8, 2)},
        "keys": {64: (32, 128, 8, 2), 128: (64, 64, 8, 2), 512: (32, 32, 8, 2)},
        "queries": {32: (64, 64, 4, 2), 64: (128, 64, 8, 2), 128: (128, 32, 8, 2),
                    512: (32, 32, 8, 2)},
    },
    # float32, which no matrix instruction multiplies exactly: all is in registers
    "exact": {
        "forward": {64: (32, 32, 8, 1), 128: (32, 16, 8, 1), 256: (32, 16, 16, 1)},
        "keys": {64: (32, 32, 8, 1), 128: (32, 16, 8, 1), 256: (16, 16, 16, 1)},
        "queries": {64: (32, 32, 8, 1), 128: (16, 16, 8, 1), 256: (16, 16, 8, 1)},
    },
}  # fmt: skip


def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch


def tile_of(kernel: str, width: int, dtype: torch.dtype, tma: bool) -> Tile:
    """The tile of "forward", "keys" or "queries" for heads of `width` columns."""
    table = "descriptors" if tma else "pointers"
    if dtype is torch.float32:
        table = "exact"
    elif not tma and architecture() in (86, 89, 120, 121):
        table = "small"
    widest = TILES[table][kernel]
    return Tile(*widest[min((most for most in widest if width <= most), default=MAX_D)])
# --8<-- [end:tiles]


# --8<-- [start:descriptors]
def steps(tensor: torch.Tensor) -> list[int]:
    """Strides in elements, with 16 for a dimension of one element, which has none."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride if size > 1 else 16 for size, stride in pairs]


def describable(tensor: torch.Tensor) -> bool:
    """Whether the copy engine takes it: columns adjacent, all else 16 bytes apart."""
    *outer, inner = steps(tensor)
    size = tensor.element_size()
    return (
        (inner == 1 or tensor.shape[-1] == 1)
        and all(0 < step < 2**38 and step * size % 16 == 0 for step in outer)
        and tensor.data_ptr() % 16 == 0
    )


def described(tensor: torch.Tensor, rows: int, width: int) -> TensorDescriptor:
    """A tensor as the copy engine sees it: in tiles of `rows` rows of one head."""
    strides = [*steps(tensor)[:-1], 1]
    return TensorDescriptor(tensor, list(tensor.shape), strides, [1, 1, rows, width])


def by_descriptor(wanted: bool | None, *tensors: torch.Tensor) -> bool:
    """Whether to read so: if it can be, and unless told otherwise if it pays."""
    if wanted is None:
        wanted = architecture() in (90, 100, 103)
    half = tensors[0].dtype is not torch.float32
    return wanted and half and all(map(describable, tensors))
# --8<-- [end:descriptors]


# --8<-- [start:launch]
def sides(
    causal: bool, window: tuple[int, int], s_q: int, s_kv: int
) -> tuple[int | None, int | None]:
    """How many keys a query sees to the left and right of its own; None if all."""
    left, right = window
    right = 0 if causal else right
    # The first query stands at key s_kv - s_q, the last at the last.
    left = left if 0 <= left < s_kv - 1 else None
    return left, right if 0 <= right < s_q - 1 else None


def arguments(
    kernel: str,
    tma: bool,
    left: int | None,
    right: int | None,
    *tensors: torch.Tensor,
    describe: Callable = described,
) -> tuple[Tile, list, dict]:
    """Of q, k, v and perhaps dout: tile, sources and constants of a launch."""
    q, k = tensors[:2]
    d = q.shape[-1]
    width = max(16, triton.next_power_of_2(d))  # matrix instructions take 16 and more
    # Masks of columns cost registers, so a padded head takes the tile of a wider one.
    wide = width if tma or d == width else 2 * width
    tile = tile_of(kernel, wide, q.dtype, tma)
    sources = list(tensors)
    if tma:
        rows = (tile.m, tile.n, tile.n, tile.m)
        pairs = zip(tensors, rows, strict=False)
        sources = [describe(tensor, count, width) for tensor, count in pairs]
    constants = {
        "GROUP": q.shape[1] // k.shape[1], "D": d, "WIDTH": width, "M": tile.m,
        "N": tile.n, "TMA": tma, "BELOW": left is not None, "ABOVE": right is not None,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip
    return tile, sources, constants


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    descriptors: bool | None = None,
    window: tuple[int, int] = ALL,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out, float32 if `exact`, and lse. `descriptors`: None for what suits the GPU."""
    scale = checked(q, k, v, scale, window)
    (b, h_q, s_q, _), s_kv = q.shape, k.shape[2]
    # Of a (B, H, S, D) view of (B, S, H, D), another such.
    out = torch.empty_like(q, dtype=torch.float32 if exact else None)
    lse = torch.empty((b, h_q, s_q), dtype=torch.float32, device=q.device)
    if q.numel() == 0 or k.numel() == 0:
        return out.zero_(), lse.fill_(float("-inf"))
    tma = by_descriptor(descriptors, q, k, v)
    left, right = sides(causal, window, s_q, s_kv)
    tile, sources, constants = arguments("forward", tma, left, right, q, k, v)
    with torch.cuda.device_of(q):
        flash_forward[(triton.cdiv(s_q, tile.m) * b * h_q,)](
            out, lse, *sources, out.stride(), q.stride(), k.stride(), v.stride(),
            h_q, s_q, s_kv, left or 0, right or 0, scale * LOG2E.value, **constants,
        )  # fmt: skip
    return out, lse


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    dlse: torch.Tensor | None = None,
    descriptors: bool | None = None,
    window: tuple[int, int] = ALL,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk, dv, in `dtype` if told, of what `forward` returned and its gradients."""
    scale = checked(q, k, v, scale, window)
    told = {"out": out, "lse": lse, "dout": dout, "dlse": dlse}
    check_results(q, q.shape[:3], "flash_attention", **told)
    dq, dk, dv = (torch.empty_like(tensor, dtype=dtype) for tensor in (q, k, v))
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    (b, h_q, s_q, d), (h_kv, s_kv) = q.shape, k.shape[1:3]
    tma = by_descriptor(descriptors, q, k, v)
    if tma and not describable(dout):  # such as the gradient of a sum, one number
        dout = dout.clone(memory_format=torch.contiguous_format)
        tma = describable(dout)
    lse = lse.contiguous()
    dlse = None if dlse is None else dlse.contiguous()
    delta = torch.empty_like(lse)
    left, right = sides(causal, window, s_q, s_kv)
    width = triton.next_power_of_2(d)
    rows = max(8, 2048 // width)
    with torch.cuda.device_of(q):
        # Fused, a lane would add its own product unrounded to its neighbour's rounded
        # one, and lanes that hold the same sum differ in its last bit.
        flash_delta[(triton.cdiv(s_q, rows) * b * h_q,)](
            delta, out, dout, lse, dlse, out.stride(), dout.stride(), h_q, s_q,
            D=d, WIDTH=width, M=rows, enable_fp_fusion=False,
        )  # fmt: skip
        tensors = (q, k, v, dout)
        strides = [tensor.stride() for tensor in tensors]
        seen = (left or 0, right or 0)
        tile, sources, constants = arguments("keys", tma, left, right, *tensors)
        flash_backward_keys[(triton.cdiv(s_kv, tile.n) * b * h_kv,)](
            dk, dv, *sources, lse, delta, dk.stride(), dv.stride(), *strides,
            h_kv, s_q, s_kv, *seen, scale, **constants,
        )  # fmt: skip
        tile, sources, constants = arguments("queries", tma, left, right, *tensors)
        flash_backward_queries[(triton.cdiv(s_q, tile.m) * b * h_q,)](
            dq, *sources, lse, delta, dq.stride(), *strides,
            h_q, s_q, s_kv, *seen, scale, **constants,
        )  # fmt: skip
    return dq, dk, dv
# --8<-- [end:launch]


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    window: tuple[int, int] = ALL,
    who: str = "flash_attention",
) -> float:
    """The scale to use, after a look at what it is for.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, D is too large, the scale is not positive, or the
            window has not two sides of -1 and more.
    """
    named = {"q": q, "k": k, "v": v}
    for name, tensor in named.items():
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"{who}: {name} is {tensor.dtype}, none of float32, float16, "
                "bfloat16; convert it first"
            )
        if (tensor.dtype, tensor.device) != (q.dtype, q.device):
            raise TypeError(
                f"{who}: {name} is {tensor.dtype} on {tensor.device}, but q "
                f"{q.dtype} on {q.device}; bring them together"
            )
        if tensor.ndim != 4:
            raise ValueError(
                f"{who}: {name} has {tensor.ndim} dimensions; give it 4: "
                "sequence, head, position, column"
            )
    b, h_q, _, d = q.shape
    h_kv, s_kv = k.shape[1:3]
    if not 1 <= d <= MAX_D:
        raise ValueError(
            f"{who}: D = {d} is not from 1 to MAX_D = {MAX_D}; give the "
            "heads another width"
        )
    if not k.shape == v.shape == (b, h_kv, s_kv, d):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in named.items())
        raise ValueError(
            f"{who}: the shapes {shapes} do not fit; make k and v alike, "
            "with the sequences and columns of q"
        )
    if h_q % max(h_kv, 1) != 0 or h_q > 0 == h_kv:
        raise ValueError(
            f"{who}: H_q = {h_q} is no multiple of H_kv = {h_kv}; let each "
            "head of k and v serve as many heads of q"
        )
    if len(window) != 2 or min(window) < -1:
        raise ValueError(
            f"{who}: window = {tuple(window)} is no pair of -1 and more; say "
            "how many keys a query sees to its left and right, -1 for all"
        )
    scale = d**-0.5 if scale is None else float(scale)
    if not 0 < scale < math.inf:
        raise ValueError(
            f"{who}: scale = {scale} is not positive and finite; for a "
            "negative one, negate q"
        )
    return scale


def check_results(
    q: torch.Tensor, rows: tuple[int, ...], who: str, **tensors: torch.Tensor | None
) -> None:
    """See that out and dout are as q, out perhaps float32, the rest float32 of `rows`.

    Raises:
        ValueError: one is not.
    """
    for name, x in tensors.items():
        wide = "out" not in name or name == "out" and x.dtype is torch.float32
        due = q.shape if "out" in name else rows, torch.float32 if wide else q.dtype
        if x is not None and (x.shape, x.dtype, x.device) != (*due, q.device):
            raise ValueError(
                f"{who}: {name} is {tuple(x.shape)} of {x.dtype} on {x.device}; with "
                f"this q it must be {tuple(due[0])} of {due[1]} on {q.device}"
            )


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::flash_attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float,
    left: int = -1,
    right: int = -1,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return forward(q, k, v, causal, scale, window=(left, right), exact=exact)


@torch.library.custom_op("warpshelf::flash_attention_backward", mutates_args=())
def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    causal: bool,
    scale: float,
    left: int = -1,
    right: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return backward(q, k, v, out, lse, dout, causal, scale, dlse, None, (left, right))


@attention.register_fake
def _(q, k, v, causal, scale, left=-1, right=-1, exact=False):
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return torch.empty_like(q, dtype=torch.float32 if exact else None), lse


@attention_backward.register_fake
def _(q, k, v, out, lse, dout, dlse, causal, scale, left=-1, right=-1):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def remember(ctx, inputs, output) -> None:
    q, k, v, *ctx.told, _ = inputs  # causal, scale, left, right
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def gradients(ctx, dout, dlse):
    q, k, v, out, lse = ctx.saved_tensors
    dout = torch.zeros_like(q) if dout is None else dout.to(q.dtype)
    given = attention_backward(q, k, v, out, lse, dout, dlse, *ctx.told)
    return *given, None, None, None, None, None


attention.register_autograd(gradients, setup_context=remember)


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = ALL,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse, both differentiable; scale is 1 / sqrt(D) unless given. If `exact`,
    out is kept for backward in float32."""
    scale = checked(q, k, v, scale, window)
    out, lse = attention(q, k, v, causal, scale, *window, exact)
    return out.to(q.dtype), lse
# --8<-- [end:operator]


def relative(x: torch.Tensor, truth: torch.Tensor) -> float:
    """How far x is from the truth, by the norms."""
    return float((x.cpu().double() - truth).norm() / truth.norm())


def demo_test() -> None:
    """What a test with an absolute tolerance of 1e-2 sees at 2048 keys."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (0.5 * torch.randn(2048, 128, generator=generator) for _ in range(3))
    s = (q @ k.T / 128**0.5).masked_fill(torch.ones(2048, 2048).triu(1) > 0, -math.inf)
    truth = torch.softmax(s.double(), -1) @ v.double()
    flat = torch.softmax(s.masked_fill(s > -math.inf, 0), -1) @ v
    late = torch.where(torch.arange(2048)[:, None] < 1024, truth, flat)
    bare = torch.exp(s)
    wrong = {
        "zeros": torch.zeros_like(v),
        "ignores q and k": flat,
        "ignores q and k from row 1024": late,
        "exp without the maximum": bare / bare.sum(-1, keepdim=True) @ v,
    }
    print("attention with a fault         within 1e-2   relative error")
    for name, out in wrong.items():
        inside = float(((out - truth).abs() <= 1e-2).double().mean())
        error = relative(out, truth)
        shown = f"{error:.3f}" if error > 1e-3 else "below 1e-3"
        print(f"{name:30s} {inside:10.1%}   {shown:>13s}")


def demo(device: str) -> None:
    """Causal, four heads of queries on two of keys, against float64; a weak test."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (
        torch.randn(1, h, 160, 64, generator=generator).to(device, torch.float16)
        for h in (4, 2, 2, 4)
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, lse = flash_attention(*leaves, causal=True)
    out.backward(dout)
    found = {"out": out.detach(), "lse": lse.detach()}
    found |= {f"d{name}": leaf.grad for name, leaf in zip("qkv", leaves, strict=True)}
    query, key, value, wanted = (x.cpu().double() for x in (q, k, v, dout))
    exact = [x.requires_grad_() for x in (query, key, value)]
    pairs = [x.repeat_interleave(2, 1) for x in exact[1:]]
    s = exact[0] @ pairs[0].mT / 8
    s = s.masked_fill(torch.ones(160, 160).triu(1) > 0, -math.inf)
    truth = torch.softmax(s, -1) @ pairs[1]
    truths = [truth.detach(), torch.logsumexp(s, -1).detach()]
    truths += torch.autograd.grad(truth, exact, wanted)
    for (name, x), due in zip(found.items(), truths, strict=True):
        verdict = relative(x, due) <= 1e-3
        print(f"{name:4s} norm {float(due.norm()):9.3f}, within 1e-3: {verdict}")
    first = " ".join(f"{x:.3f}" for x in lse[0, 0, :5].tolist())
    print(f"lse of the first rows: {first}")
    demo_test()


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
