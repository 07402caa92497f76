"""Ring self-attention, before the online softmax: whole rows of scores on a rank.

A rank has s / t of the tokens, and all heads. Keys go round once and leave it the
scores of its queries with all of them; then values go round.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets.collectives import Ring


# --8<-- [start:attention]
def around(x: torch.Tensor, ring: Ring) -> list[torch.Tensor]:
    """Each rank's x in turn, by rank, as it comes past."""
    found = [x] * ring.size
    for step in range(1, ring.size):
        (x,) = ring.pass_on([x])()
        found[(ring.rank - step) % ring.size] = x
    return found


class RingRows(torch.autograd.Function):
    """Causal attention of a rank's queries over all keys.

    Shapes  q, k, v (heads, s / t, d) -> the same
    Bytes   sent by a rank, with n those of its keys: forward 2 (t - 1) n, backward
            2 (t - 1) n, and 4 (t - 1) n as the sums of dK and dV are for all ranks
            (published), or 2 (t - 1) n as each gets its own
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        ring: Ring,
        published: bool,
    ) -> torch.Tensor:
        rows, scale = q.shape[1], 1 / math.sqrt(q.shape[-1])
        scores = torch.cat([q @ one.mT for one in around(k, ring)], -1) * scale
        place = torch.arange(scores.shape[-1], device=q.device)
        later = place > place[ring.rank * rows :][:rows, None]
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        ctx.save_for_backward(q, k, v, weights)
        ctx.ring, ctx.published, ctx.scale = ring, published, scale
        parts = zip(weights.split(rows, -1), around(v, ring), strict=True)
        return sum(part @ one for part, one in parts)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        ring, rows = ctx.ring, q.shape[1]
        dweights = torch.cat([dy @ one.mT for one in around(v, ring)], -1)
        mean = (weights * dweights).sum(-1, keepdim=True)
        dscores = weights * (dweights - mean) * ctx.scale
        parts = zip(dscores.split(rows, -1), around(k, ring), strict=True)
        dq = sum(part @ one for part, one in parts)
        totals = []
        for rowed in (dscores.mT @ q, weights.mT @ dy):  # of all keys, of own queries
            by_token = rowed.transpose(0, 1)
            if ctx.published:
                whole = ring.all_reduce(by_token)
                own = whole.split(rows)[ring.rank]
            else:
                own = ring.reduce_scatter(by_token)
            totals.append(own.transpose(0, 1))
        return dq, *totals, None, None
# --8<-- [end:attention]
