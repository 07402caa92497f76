"""The first version: a program for each query, which reads the whole cache for itself."""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
N = tl.constexpr(16)  # rows of a turn


# --8<-- [start:naive]
@triton.jit(do_not_specialize=["sizes"])  # a batch grows by the step
def mla_by_head(out, lse, q, cache, table, lengths, strides, sizes, scale2,
                PAGE: tl.constexpr, L: tl.constexpr, R: tl.constexpr):
    # A program is a query: one head of one token.
    to_q, to_row, to_table, to_length = strides
    tokens, h, longest = sizes
    query = tl.program_id(0).to(tl.int64)
    head, token, b = query % h, query // h % tokens, query // (h * tokens)
    length = tl.minimum(tl.load(lengths + b * to_length[0]).to(tl.int32), longest)
    limit = (length - tokens + 1 + token).to(tl.int32)  # how many rows it sees
    col, turned = tl.arange(0, L), L + tl.arange(0, R)
    q += b * to_q[0] + token * to_q[1] + head * to_q[2]
    latent_q = tl.load(q + col * to_q[3]).to(tl.float32)
    rope_q = tl.load(q + turned * to_q[3]).to(tl.float32)
    acc = tl.zeros([L], tl.float32)
    top = float("-inf")
    total = 0.0
    for start in tl.range(0, limit, N):
        pos = start + tl.arange(0, N)
        seen = pos < limit
        page = tl.load(table + b * to_table[0] + pos // PAGE * to_table[1],
                       mask=seen, other=0).to(tl.int64)
        row = cache + page * to_row[0] + (pos % PAGE).to(tl.int64) * to_row[1]
        latent = tl.load(row[:, None] + (col * to_row[2])[None, :],
                         mask=seen[:, None], other=0.0).to(tl.float32)
        rope = tl.load(row[:, None] + (turned * to_row[2])[None, :],
                       mask=seen[:, None], other=0.0).to(tl.float32)
        s = tl.sum(latent * latent_q[None, :], 1) + tl.sum(rope * rope_q[None, :], 1)
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=0) * scale2)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s * scale2 - shift)
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(p, axis=0)
        acc = acc * fade + tl.sum(p[:, None] * latent, axis=0)
        top = higher
    total = tl.where(total > 0, total, 1.0)  # nothing seen: acc is 0 and top is -inf
    tl.store(out + query * L + col, (acc / total).to(out.dtype.element_ty))
    tl.store(lse + query, (top + tl.log2(total)) * LN2)
# --8<-- [end:naive]
