"""pipeline: its facts hold, and each of the usual mistakes breaks at least one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts, plant_in_ranks, read_facts

from snippets import ranks
from snippets.pipeline import cases, parking, pipeline, plan, stage
from snippets.pipeline.parking import Move
from snippets.pipeline.stage import Slice, Stashed
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.schedule import Kind, Schedule, Task, timed


def test_facts_hold() -> None:
    rows = read_facts(cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    for p, _ in cases.SIZES:
        for name in plan.SCHEDULES:
            own = [n for n in names if n.startswith(f"{p} ranks,") and f", {name}:" in n]
            assert len(own) >= 6
    assert sum("torch's" in name for name in names) >= 2 * 5 * 2


def test_a_slice_is_what_autograd_makes_of_it() -> None:
    w, x, target = stage.whole(1, 1, 3, 8)
    part = Slice(w[0])
    x = x[0].requires_grad_()
    y = part.forward(0, x)
    given_w = {k: one.clone().requires_grad_() for k, one in w[0].items()}
    due = x + torch.nn.functional.gelu(x @ given_w["up"].T) @ given_w["down"].T
    due.backward(target[0])
    assert torch.allclose(y, due, rtol=1e-14)
    assert part.held == 1
    assert torch.allclose(part.input(0, target[0]), x.grad, rtol=1e-12)
    assert part.held == 1 and not any(one.any() for one in part.grads.values())
    part.weight(0)
    assert part.held == 0
    for name, one in given_w.items():
        assert torch.allclose(part.grads[name], one.grad, rtol=1e-12)


def test_what_was_taken_can_be_put_back() -> None:
    w, x, target = stage.whole(1, 1, 3, 8)
    one, other = Slice(w[0]), Slice(w[0])
    one.forward(0, x[0])
    other.forward(0, x[0])
    kept = other.take(0)
    assert other.held == 0
    other.put(0, kept)
    assert torch.equal(one.input(0, target[0]), other.input(0, target[0]))


@given(st.integers(1, 9), st.integers(1, 24))
def test_parking_keeps_to_its_limit_and_everything_comes_back(p: int, m: int) -> None:
    made = schedules.one_f_one_b(p, m)
    rows = parking.parked(made)
    for rank, row in enumerate(rows):
        here: set[tuple[str, int]] = set()
        for step in row:
            key = ("lent" if isinstance(step, Move) and step.what in ("keep", "return") else "own",
                   step.micro_batch)  # fmt: skip
            if isinstance(step, Move):
                (here.remove if step.what in ("park", "return") else here.add)(key)
            elif step.kind is Kind.FORWARD:
                here.add(key)
            else:
                here.remove(key)
            assert len(here) <= parking.limit(p), (rank, step)
        assert not here
        passes = [step for step in row if not isinstance(step, Move)]
        assert passes == made.of(rank)
    if p >= 4 and m >= p:
        assert any(isinstance(step, Move) for row in rows for step in row)


def test_two_and_three_ranks_need_not_park() -> None:
    for p in (1, 2, 3):
        rows = parking.parked(schedules.one_f_one_b(p, 12))
        assert not any(isinstance(step, Move) for row in rows for step in row)


def leave_slope_out(self: Slice, j: int, dy: torch.Tensor) -> torch.Tensor:
    x, before = self.kept.pop(j)
    self.later[j] = x, dy @ self.w["down"], torch.nn.functional.gelu(before), dy
    return dy + dy @ self.w["down"] @ self.w["up"]


def add_weights_twice(self: Slice, j: int) -> None:
    """Of what was put off behind another, twice."""
    again = len(self.later) > 1
    before = {k: one.clone() for k, one in self.grads.items()}
    TRUE_WEIGHT(self, j)
    if again:
        self.grads = {k: 2 * one - before[k] for k, one in self.grads.items()}


def keep_for_good(self: Slice, j: int) -> None:
    before = self.later[j]
    TRUE_WEIGHT(self, j)
    self.kept[1000 + j] = before


def use_newest_weights(self: Stashed, j: int, dy: torch.Tensor) -> torch.Tensor:
    self.w = self.now
    return Slice.input(self, j, dy)


def skip_copies(rank: int, one: plan.Plan, state: pipeline.Rank) -> int:
    return 0


def park_nothing(made: Schedule) -> list[list[Any]]:
    return [list(made.of(rank)) for rank in range(made.ranks)]


TRUE_INPUT, TRUE_WEIGHT = Slice.input, Slice.weight
MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "gelu without its slope": (Slice, "input", leave_slope_out, "1F1B: largest error"),
    "put off, then added twice": (Slice, "weight", add_weights_twice, "ZB-H2: largest error"),
    "kept for good": (Slice, "weight", keep_for_good, "1F1B: held at most"),
    "newest weights backward": (Stashed, "input", use_newest_weights, "PipeDream: largest error"),
    "copies not added": (pipeline, "summed", skip_copies, "DualPipe: largest error"),
    "nothing is parked": (plan, "parked", park_nothing, "BPipe: held at most"),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name)
    failing = broken_facts(cases.of_ranks(4, 8))
    assert any(MUTANTS[name][3] in fact for fact in failing), failing
    assert Slice.input is TRUE_INPUT, "the mistake leaked into this process"


def swap_backward_passes(p: int, m: int) -> Schedule:
    """A table in which the first rank's backward passes come in the other order."""
    made = schedules.gpipe(p, m)
    order = [(Task(Kind.FORWARD, j),) for j in range(m)]
    back = [(Task(Kind.BACKWARD, j),) for j in range(m)]
    orders = [order + back[::-1], *[order + back] * (p - 1)]
    return timed("GPipe", orders, [[(r, 0) for r in range(p)]] * m, made.costs)


def run_swapped_table(rank: int, p: int) -> Any:
    plan.SCHEDULES["GPipe"] = swap_backward_passes
    return pipeline.on_rank(rank, plan.Plan("GPipe", p, 4))


@pytest.mark.alone
def test_messages_are_read_in_any_order() -> None:
    told = ranks.run(run_swapped_table, 2, backend="gloo")
    assert not broken_facts(cases.errors("swapped", told, 2, 4))


def test_differing_sees_a_swap() -> None:
    made = plan.Plan("ZB-V", 2, 4)
    row = [[(Task(one.kind, one.micro_batch, one.chunk),) for one in made.made.of(r)]
           for r in range(2)]  # fmt: skip
    assert cases.differing(made, row) == 0
    row[0][1], row[0][2] = row[0][2], row[0][1]
    assert cases.differing(made, row) == 2
    assert cases.differing(made, [row[0][:-3], row[1]]) > 2


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="^pipeline: no schedule 'GPipes'; there are GPipe, 1F1B"):
        plan.Plan("GPipes", 2, 4)
