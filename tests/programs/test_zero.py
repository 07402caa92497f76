"""zero: its facts hold, and each of the usual mistakes breaks at least one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mistaken_ranks import plant_in_ranks
from snippet_facts import broken_facts, read_facts

from snippets import ranks
from snippets.collectives import Library
from snippets.zero import cases, unit, zero
from snippets.zero.unit import SIZES, Unit
from snippets.zero.zero import Want

TRUE_REDUCE, TRUE_UPDATE, TRUE_GATHER = Unit.reduce, Unit.update, Unit.gather


def test_facts_hold() -> None:
    rows = read_facts(cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    for n in (1, 2, 4, 8):
        for stage in ("plain", "stage 1", "stage 2", "stage 3"):
            own = [name for name in names if name.startswith(f"{n} ranks, {stage}")]
            assert len(own) >= 2 + 6 + 2


def train_in_this_process(want: Want) -> dict[str, Any]:
    """A group of one, here: `device` asks for a group that is there."""
    [told] = ranks.run(zero.each, 1, [want], backend="gloo")
    return told[0]


@pytest.mark.alone
def test_adam_is_torchs() -> None:
    losses, weights = cases.on_one_process(SIZES, 5)
    told = train_in_this_process(Want(0, steps=5))
    assert told["losses"] == pytest.approx(losses, rel=1e-13)
    for ours, due in zip(told["weights"], weights, strict=True):
        assert torch.allclose(ours, due, rtol=1e-12, atol=1e-14)
    assert losses[4] < losses[0]


def skip_reduction(self: Unit) -> None:
    """Gradients of a rank's own rows are taken for those of all."""
    self.grad = self.weights.grad if self.stage in (0, 3) else take_own_part(self)
    if self.stage == 2:
        self.weights.grad = None


def take_own_part(self: Unit) -> torch.Tensor:
    grad = self.weights.grad
    assert grad is not None
    return grad.chunk(self.group.size)[self.group.rank].clone()


def update_too_late(self: Unit) -> None:
    """Weights are handed out before they are updated."""
    before = self.weights.detach().clone()
    TRUE_UPDATE(self)
    if self.stage in (1, 2):
        with torch.no_grad():
            self.weights.copy_(before)


def keep_whole_gradient(self: Unit) -> None:
    TRUE_REDUCE(self)
    if self.stage == 2:
        self.whole = torch.zeros_like(self.weights)  # type: ignore[attr-defined]


def keep_gathered(self: Unit) -> torch.Tensor:
    whole = TRUE_GATHER(self)
    self.held = [*getattr(self, "held", []), whole]  # type: ignore[attr-defined]
    return whole


def scatter_every_time(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    """What was gathered for a backward pass is kept for the next."""
    return ctx.unit.group.reduce_scatter(grad), None


def overwrite_gradient(self: Unit) -> None:
    """Stage 2 takes the last micro-batch for all."""
    if self.stage == 2:
        self.grad = None
    TRUE_REDUCE(self)


def reduce_twice(self: Unit) -> None:
    if self.stage == 1:
        grad = self.weights.grad
        assert grad is not None
        self.group.reduce_scatter(grad)
    TRUE_REDUCE(self)


MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "gradients not summed": (
        Unit, "reduce", skip_reduction, "plain, float64: largest error of a layer",
    ),
    "stale weights": (Unit, "update", update_too_late, "stage 1, float64: largest error of a loss"),
    "stage 2 keeps a whole": (Unit, "reduce", keep_whole_gradient, "stage 2: held by a rank"),
    "stage 3 keeps layers": (Unit, "gather", keep_gathered, "gathered layers after"),
    "old weights backward": (
        unit.Gathered, "backward", staticmethod(scatter_every_time), "stage 3, float64: largest",
    ),
    "gradients overwritten": (
        Unit, "reduce", overwrite_gradient, "stage 2, micro-batches: largest",
    ),
    "reduced twice": (Unit, "reduce", reduce_twice, "stage 1, backward: sent"),
}  # fmt: skip


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name)
    failing = broken_facts(cases.of_ranks(2))
    assert any(MUTANTS[name][3] in fact for fact in failing), failing
    assert Unit.reduce is TRUE_REDUCE, "the mistake leaked into this process"


def count_held_bytes(rank: int, size: int, extra: int) -> int:
    from snippets.zero.live import forget, held

    there = torch.zeros(100)
    forget()
    kept = torch.zeros(extra, dtype=torch.float64, requires_grad=True)
    (kept.sum() + there.sum()).backward()  # its gradient has no name here
    view = kept.detach()[::2]  # of the same storage
    assert len(view)
    torch.zeros(10_000)  # gone at once
    return held()


@pytest.mark.alone
def test_held_counts_a_storage_once_and_gradients_too() -> None:
    assert ranks.run(count_held_bytes, 1, 30, backend="gloo") == [2 * 30 * 8]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^zero: no stage 4; there are 0 \(plain\), 1, 2 and 3"):
        zero.Training(4, Library(), SIZES, torch.float64, torch.float64)
    with pytest.raises(ValueError, match="^zero: 48 rows do not split over 1 ranks and 5 micro"):
        zero.on_rank(Library(), Want(0, micro_batches=5))
