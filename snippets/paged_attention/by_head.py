"""The first version: a program for each query, which reads what its neighbours read."""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
N = tl.constexpr(16)  # keys of a turn


# --8<-- [start:naive]
@triton.jit(do_not_specialize=["sizes"])  # a batch grows by the step
def paged_by_head(out, lse, q, k, v, table, lengths, strides, sizes, scale2,
                  PAGE: tl.constexpr, D: tl.constexpr):
    # A program is a query: one head of one token.
    to_out, to_q, to_k, to_v, to_table, to_length = strides
    tokens, h_q, group, longest = sizes
    query = tl.program_id(0).to(tl.int64)
    h, token, b = query % h_q, query // h_q % tokens, query // (h_q * tokens)
    length = tl.minimum(tl.load(lengths + b * to_length[0]).to(tl.int32), longest)
    limit = (length - tokens + 1 + token).to(tl.int32)  # how many keys it sees
    WIDTH: tl.constexpr = 16 if D < 16 else triton.next_power_of_2(D)
    col = tl.arange(0, WIDTH)
    inside = col < D
    at = b * to_q[0] + token * to_q[1] + h * to_q[2]
    x = tl.load(q + at + col * to_q[3], mask=inside, other=0.0).to(tl.float32)
    k += h // group * to_k[2]
    v += h // group * to_v[2]
    acc = tl.zeros_like(x)
    top = float("-inf")
    total = 0.0
    for start in tl.range(0, limit, N):
        pos = start + tl.arange(0, N)
        seen = pos < limit
        # Which page, then which slot of it: the one step that paging adds.
        page = tl.load(table + b * to_table[0] + pos // PAGE * to_table[1],
                       mask=seen, other=0).to(tl.int64)
        slot = (pos % PAGE).to(tl.int64)
        here = seen[:, None] & inside[None, :]
        row = (page * to_k[0] + slot * to_k[1])[:, None]
        keys = tl.load(k + row + (col * to_k[3])[None, :], mask=here,
                       other=0.0).to(tl.float32)
        s = tl.where(seen, tl.sum(keys * x[None, :], axis=1), float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=0) * scale2)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s * scale2 - shift)
        fade = tl.exp2(top - shift)
        row = (page * to_v[0] + slot * to_v[1])[:, None]
        values = tl.load(v + row + (col * to_v[3])[None, :], mask=here,
                         other=0.0).to(tl.float32)
        total = total * fade + tl.sum(p, axis=0)
        acc = acc * fade + tl.sum(p[:, None] * values, axis=0)
        top = higher
    total = tl.where(total > 0, total, 1.0)  # nothing seen: acc is 0 and top is -inf
    at = b * to_out[0] + token * to_out[1] + h * to_out[2]
    tl.store(out + at + col * to_out[3], (acc / total).to(out.dtype.element_ty),
             mask=inside)
    tl.store(lse + query, (top + tl.log2(total)) * LN2)
# --8<-- [end:naive]
