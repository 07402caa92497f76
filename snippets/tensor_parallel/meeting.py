"""Where ranks that share a product meet, forward and back: five functions of autograd.

Each takes the collectives of its group, so that a caller chooses and counts them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from snippets.collectives import Library


# --8<-- [start:whole]
class Copied(torch.autograd.Function):
    """All ranks have x; its gradient is the sum of theirs. Keeps nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Library) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.group.all_reduce(dy), None


class Summed(torch.autograd.Function):
    """The sum over ranks, whose gradient all have. Keeps nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Library) -> torch.Tensor:
        return group.all_reduce(x)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        return dy, None
# --8<-- [end:whole]


# --8<-- [start:rows]
class Scattered(torch.autograd.Function):
    """The rank's rows of the sum; gradients of all rows are gathered. Keeps nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Library) -> torch.Tensor:
        ctx.group = group
        return group.reduce_scatter(x)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.group.all_gather(dy), None


class GatheredProduct(torch.autograd.Function):
    """x w^T + bias of all ranks' rows x. Keeps the rank's own, and gathers twice."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        w: torch.Tensor,
        bias: torch.Tensor | None,
        group: Library,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.group, ctx.biased = group, bias is not None
        return F.linear(group.all_gather(x), w, bias)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w = ctx.saved_tensors
        rows = dy.flatten(0, -2)
        dw = rows.mT @ ctx.group.all_gather(x).flatten(0, -2)
        db = rows.sum(0) if ctx.biased else None
        return ctx.group.reduce_scatter(dy @ w), dw, db, None
# --8<-- [end:rows]
