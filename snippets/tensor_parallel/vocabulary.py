"""A vocabulary in parts: each rank has V / t words' rows, for input and output."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from snippets.collectives import Library


# --8<-- [start:embedding]
def embedded(ids: torch.Tensor, words: torch.Tensor, rank: int) -> torch.Tensor:
    """The rank's share of the embeddings: zero where another has the word.

    Shapes  ids (s, b), words (V / t, h) -> (s, b, h), to be summed over ranks
    """
    own = ids - rank * len(words)
    other = (own < 0) | (own >= len(words))
    found = F.embedding(own.masked_fill(other, 0), words)
    return found.masked_fill(other[..., None], 0)
# --8<-- [end:embedding]


# --8<-- [start:loss]
class CrossEntropy(torch.autograd.Function):
    """-log softmax at the target, where each rank has V / t of the logits.

    Shapes  logits (s, b, V / t), targets (s, b) -> (s, b), the same on all ranks
    Bytes   two all-reduces of 3 s b numbers in all, none of s b V; none backward
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, group: Library
    ) -> torch.Tensor:
        largest = group.all_reduce(logits.amax(-1), "max")
        logits = logits - largest[..., None]
        own = targets - group.rank * logits.shape[-1]
        other = (own < 0) | (own >= logits.shape[-1])
        at = own.masked_fill(other, 0)[..., None]
        there = logits.gather(-1, at)[..., 0].masked_fill(other, 0)
        exponentials = logits.exp()
        both = torch.stack([exponentials.sum(-1), there])
        total, there = group.all_reduce(both)
        ctx.save_for_backward(exponentials / total[..., None], at, other)
        return total.log() - there

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, at, other = ctx.saved_tensors
        mine = (~other).to(weights.dtype)[..., None]
        grad = weights.scatter_add(-1, at, -mine)  # less 1 at the target
        return grad * dy[..., None], None, None
# --8<-- [end:loss]
