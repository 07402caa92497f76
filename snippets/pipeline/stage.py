"""A slice of a model whose backward pass comes in two halves, each by itself.

The gradient of the input is what the slice before waits for; that of the weights is
for nobody but the optimizer. Autograd makes both at once, so here they are by hand.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

Parameters = dict[str, torch.Tensor]
WIDTH = 12  # of the hidden layer, beside h


# --8<-- [start:slice]
class Slice:
    """y = x + gelu(x up^T) down^T, which keeps what each micro-batch still needs."""

    def __init__(self, w: Parameters) -> None:
        self.w = w
        self.grads = {name: torch.zeros_like(one) for name, one in w.items()}
        self.kept: dict[int, tuple[torch.Tensor, ...]] = {}
        self.later: dict[int, tuple[torch.Tensor, ...]] = {}  # for the weights

    def forward(self, j: int, x: torch.Tensor) -> torch.Tensor:
        """y of micro-batch j."""
        before = x @ self.w["up"].T
        self.kept[j] = x, before
        return x + F.gelu(before) @ self.w["down"].T

    def input(self, j: int, dy: torch.Tensor) -> torch.Tensor:
        """dx of micro-batch j, for the slice before."""
        x, before = self.kept.pop(j)
        slope = (1 + torch.erf(before / math.sqrt(2))) / 2
        slope += before * torch.exp(-before.square() / 2) / math.sqrt(2 * math.pi)
        dbefore = dy @ self.w["down"] * slope
        self.later[j] = x, dbefore, F.gelu(before), dy
        return dy + dbefore @ self.w["up"]

    def weight(self, j: int) -> None:
        """Add what micro-batch j has in the gradients of the weights."""
        x, dbefore, hidden, dy = self.later.pop(j)
        self.grads["up"] += dbefore.T @ x
        self.grads["down"] += dy.T @ hidden

    def done(self, j: int) -> None:
        """Called when micro-batch j has left nothing behind."""

    def take(self, j: int) -> torch.Tensor:
        """What is kept of micro-batch j, to be put back before its backward pass."""
        return torch.cat(self.kept.pop(j), 1)

    def put(self, j: int, kept: torch.Tensor) -> None:
        """What `take` took."""
        self.kept[j] = tuple(kept.split([kept.shape[1] - WIDTH, WIDTH], 1))

    @property
    def held(self) -> int:
        """Micro-batches of which something is kept."""
        return len(self.kept) + len(self.later)
# --8<-- [end:slice]


# --8<-- [start:stashed]
class Stashed(Slice):
    """PipeDream's: weights change after each micro-batch, and a version is kept.

    A backward pass uses the weights that its forward pass saw.
    """

    RATE = 0.5

    def __init__(self, w: Parameters) -> None:
        super().__init__(w)
        self.now = w
        self.seen: dict[int, Parameters] = {}
        self.versions = 1  # at most, of those that are needed at once

    def forward(self, j: int, x: torch.Tensor) -> torch.Tensor:
        self.seen[j] = self.w = self.now
        return super().forward(j, x)

    def input(self, j: int, dy: torch.Tensor) -> torch.Tensor:
        self.w = self.seen[j]
        return super().input(j, dy)

    def done(self, j: int) -> None:
        """Update, and forget the version that micro-batch j saw."""
        del self.seen[j]
        self.now = {k: self.now[k] - self.RATE * self.grads[k] for k in self.now}
        self.grads = {k: torch.zeros_like(one) for k, one in self.now.items()}
        needed = {id(one) for one in (*self.seen.values(), self.now)}
        self.versions = max(self.versions, len(needed))
# --8<-- [end:stashed]


def whole(
    slices: int, micro_batches: int, b: int, h: int
) -> tuple[list[Parameters], torch.Tensor, torch.Tensor]:
    """Seeded parameters of all slices, and inputs and targets (m, b, h), float64."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    w = [
        {"up": normal(WIDTH, h) / math.sqrt(h), "down": normal(h, WIDTH) / 4}
        for _ in range(slices)
    ]
    return w, normal(micro_batches, b, h), normal(micro_batches, b, h)


def on_one_process(
    w: list[Parameters], x: torch.Tensor, target: torch.Tensor
) -> tuple[float, list[Parameters]]:
    """The loss and all gradients, by autograd, of the whole batch at once."""
    w = [{k: one.clone().requires_grad_() for k, one in each.items()} for each in w]
    for each in w:
        x = x + F.gelu(x @ each["up"].T) @ each["down"].T
    loss = (x - target).square().mean()
    loss.backward()
    grads = [{k: one.grad for k, one in each.items()} for each in w]
    return float(loss.detach()), grads


def late_updates(
    w: list[Parameters], x: torch.Tensor, target: torch.Tensor, rate: float
) -> list[Parameters]:
    """What PipeDream's rule gives, on one process: old versions in the first stages.

    Of p stages, stage r sees micro-batch j with what p - 1 - r updates fewer have made.
    """
    versions = [[each] for each in w]
    for j in range(len(x)):
        at = [max(0, j - (len(w) - 1 - r)) for r in range(len(w))]
        seen = [own[v] for own, v in zip(versions, at, strict=True)]
        _, grads = on_one_process(seen, x[j : j + 1], target[j : j + 1])
        for own, grad in zip(versions, grads, strict=True):
            # The loss is a mean over all micro-batches.
            new = {k: one - rate * grad[k] / len(x) for k, one in own[-1].items()}
            own.append(new)
    return [own[-1] for own in versions]
