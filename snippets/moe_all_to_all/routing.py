"""Which experts a token goes to, and with which weights: plain torch, ties decided."""

from __future__ import annotations

from typing import NamedTuple

import torch


# --8<-- [start:route]
class Route(NamedTuple):
    """The experts of each token and their weights, both (tokens, K)."""

    expert: torch.Tensor
    weight: torch.Tensor

    def counts(self, experts: int) -> torch.Tensor:
        """Copies for each expert."""
        return self.expert.flatten().bincount(minlength=experts)

    def places(self, experts: int) -> torch.Tensor:
        """How many copies before it, in the order of tokens, go to the same expert."""
        flat = self.expert.flatten()
        is_for = torch.nn.functional.one_hot(flat, experts)
        before = is_for.cumsum(0) - is_for
        return before.gather(1, flat[:, None]).view(self.expert.shape)

    def weighted(self, answers: torch.Tensor) -> torch.Tensor:
        """The sum of a token's answers (tokens, K, h)."""
        return (self.weight[..., None] * answers).sum(1)


def route(logits: torch.Tensor, k: int, among: range | None = None) -> Route:
    """The best k experts by softmax, the lower number where two are equal.

    Weights are probabilities that add up to 1. among: experts that are asked; of fewer
    than k, all.
    """
    among = among or range(logits.shape[1])
    scores = logits.softmax(-1)[:, among.start : among.stop]
    best = scores.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    weight = scores.gather(1, best)
    return Route(best + among.start, weight / weight.sum(-1, keepdim=True))
# --8<-- [end:route]
