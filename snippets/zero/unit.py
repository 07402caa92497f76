"""A layer of which a rank keeps a part: gathered, reduced and updated by its stage."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

from snippets.collectives import Library

STAGES = (0, 1, 2, 3)  # 0: plain, all ranks keep everything
RATE, BETAS, EPS = 1e-2, (0.9, 0.99), 1e-8  # of Adam


class Sizes(NamedTuple):
    """Of a model and its batch: layers, hidden, inner width, rows."""

    layers: int
    h: int
    inner: int
    rows: int


SIZES = Sizes(layers=2, h=8, inner=16, rows=48)


# --8<-- [start:layer]
def layer(x: torch.Tensor, flat: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """x + gelu(x up^T + bias) down^T, its parameters one after the other in `flat`."""
    h, inner = sizes.h, sizes.inner
    up, bias, down = flat[: psi(sizes)].split([inner * h, inner, h * inner])
    hidden = F.gelu(F.linear(x, up.view(inner, h), bias))
    return x + F.linear(hidden, down.view(h, inner))


def psi(sizes: Sizes) -> int:
    """Parameters of a layer."""
    return 2 * sizes.h * sizes.inner + sizes.inner
# --8<-- [end:layer]


# --8<-- [start:gathered]
class Gathered(torch.autograd.Function):
    """A layer's parameters out of all ranks' parts; gradients go back in parts."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, unit: Unit) -> torch.Tensor:
        ctx.unit = unit
        return unit.gather()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.unit.again = None  # its backward pass is over
        return ctx.unit.group.reduce_scatter(grad), None
# --8<-- [end:gathered]


# --8<-- [start:unit]
class Unit:
    """A layer of which this rank keeps as much as its stage says.

    `dtype` is that of weights and gradients; `exact` that of Adam's three tensors.
    """

    def __init__(
        self, flat: torch.Tensor, stage: int, group: Library,
        dtype: torch.dtype, exact: torch.dtype,
    ) -> None:  # fmt: skip
        flat = F.pad(flat, (0, -len(flat) % group.size))
        self.stage, self.group, self.size = stage, group, len(flat)
        part = flat.chunk(group.size)[group.rank]
        self.master = (part if stage else flat).to(exact, copy=True)
        self.mean, self.square = (torch.zeros_like(self.master) for _ in range(2))
        kept = part if stage == 3 else flat
        self.weights = kept.to(dtype, copy=True).requires_grad_()
        self.grad: torch.Tensor | None = None  # what the update wants, summed
        self.again: torch.Tensor | None = None  # gathered for the backward pass
        self.gathered: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
        self.steps = 0
        if stage == 2:  # as soon as a layer's gradient is there
            self.weights.register_post_accumulate_grad_hook(lambda _: self.reduce())

    def gather(self) -> torch.Tensor:
        """All of the parameters, for a while."""
        whole = self.group.all_gather(self.weights.detach())
        self.gathered.add(whole)
        return whole

    def run(self, x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        """The layer. Stage 3 keeps for the backward pass where a weight stands."""
        if self.stage < 3:
            return layer(x, self.weights, sizes)
        whole = Gathered.apply(self.weights, self)
        at = whole.untyped_storage().data_ptr()

        def pack(kept: torch.Tensor) -> Any:
            if kept.untyped_storage().data_ptr() != at:
                return kept
            return kept.shape, kept.stride(), kept.storage_offset()

        def unpack(kept: Any) -> torch.Tensor:
            if isinstance(kept, torch.Tensor):
                return kept
            if self.again is None:
                self.again = self.gather()
            return self.again.as_strided(*kept)

        with saved_tensors_hooks(pack, unpack):
            return layer(x, whole, sizes)

    def reduce(self) -> None:
        """Sum gradients over ranks: the whole, or the part that this rank updates."""
        grad = self.weights.grad
        assert grad is not None
        if self.stage == 0:
            grad.copy_(self.group.all_reduce(grad))
            self.grad = grad
        elif self.stage == 1:  # into its place: the whole gradient stays
            own = grad.chunk(self.group.size)[self.group.rank]
            own.copy_(self.group.reduce_scatter(grad))
            self.grad = own
        elif self.stage == 2:
            part = self.group.reduce_scatter(grad)
            self.grad = part if self.grad is None else self.grad.add_(part)
            self.weights.grad = None
        else:
            self.grad = grad  # each rank's part already

    @torch.no_grad()
    def update(self) -> None:
        """Adam on what this rank keeps of the layer, then weights for all who need."""
        assert self.grad is not None
        grad = self.grad.to(self.master.dtype)
        self.steps += 1
        for state, beta, new in zip(
            (self.mean, self.square), BETAS, (grad, grad * grad), strict=True
        ):
            state.lerp_(new, 1 - beta)
        mean, square = (
            state / (1 - beta**self.steps)
            for state, beta in zip((self.mean, self.square), BETAS, strict=True)
        )
        self.master -= RATE * mean / (square.sqrt() + EPS)
        new = self.master.to(self.weights.dtype)
        if self.stage in (1, 2):
            new = self.group.all_gather(new)
        self.weights.copy_(new)
        self.weights.grad = self.grad = None
# --8<-- [end:unit]
