"""Replicas of a model, with whole states or with states in shards."""

from __future__ import annotations

import tempfile
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts, plant_in_ranks, read_facts
from torch import nn

from snippets import ranks
from snippets.collectives import Library, Ring
from snippets.data_parallel import cases as data_parallel_cases
from snippets.data_parallel import data_parallel, planted
from snippets.data_parallel.data_parallel import Reducer
from snippets.data_parallel.data_parallel import Want as DataParallelWant
from snippets.data_parallel.watch import MissingRank, Watch
from snippets.zero import cases as zero_cases
from snippets.zero import unit, zero
from snippets.zero.unit import SIZES, Unit
from snippets.zero.zero import Want as ZeroWant

# data_parallel: its facts hold, each of the usual mistakes breaks one, a lost rank is named.


TRUE_READY, TRUE_FINISH = Reducer.ready, Reducer.finish
TRUE_ALL_REDUCE = Library.all_reduce


def test_data_parallel_facts_hold() -> None:
    rows = read_facts(data_parallel_cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    assert sum("named from outside" in name for name in names) == 3
    assert sum("that name it" in name for name in names) == 2


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 900), st.data())
def test_each_parameter_is_in_one_bucket_in_the_order_of_backward(
    sizes: list[int], limit: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, limit))
    parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
    made = data_parallel.buckets(parameters, limit, first)
    assert [at for bucket in made for at in bucket] == list(reversed(range(len(sizes))))
    for n, bucket in enumerate(made):
        least = limit if n else first
        size = 4 * sum(sizes[at] for at in bucket)
        assert size >= least or n == len(made) - 1
        assert size - 4 * sizes[bucket[-1]] < least  # it was not full before


def leave_sums(self: Reducer) -> None:
    TRUE_FINISH(self)
    for one in self.parameters:
        assert one.grad is not None
        one.grad.mul_(self.group.size)


def send_too_early(self: Reducer, at: int) -> None:
    """A bucket leaves with its first gradient: what the others will be is not known."""
    for one in self.buckets[self.of[at]]:
        if self.parameters[one].grad is None:
            self.parameters[one].grad = torch.zeros_like(self.parameters[one])
    self.missing[self.of[at]].clear()
    TRUE_READY(self, at)


def send_at_the_end(self: Reducer, at: int) -> None:
    self.log.append(("gradient", at))


def all_reduce_twice(self: Library, x: torch.Tensor, how: str = "sum") -> torch.Tensor:
    TRUE_ALL_REDUCE(self, x, how)
    return TRUE_ALL_REDUCE(self, x, how)


def keep_own_gradients(self: Library, x: torch.Tensor, how: str = "sum") -> torch.Tensor:
    TRUE_ALL_REDUCE(self, x, how)
    return x * self.size


DATA_PARALLEL_MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "sums for means": (Reducer, "finish", leave_sums, "one bucket: largest error"),
    "before it is full": (Reducer, "ready", send_too_early, "600 bytes: largest error"),
    "all at the end": (Reducer, "ready", send_at_the_end, "600 bytes: buckets started within"),
    "sent twice": (Library, "all_reduce", all_reduce_twice, "600 bytes: sent"),
    "a rank's own": (Library, "all_reduce", keep_own_gradients, "largest error of a parameter"),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", DATA_PARALLEL_MUTANTS)
def test_data_parallel_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name, "DATA_PARALLEL_MUTANTS")
    failing = broken_facts(data_parallel_cases.of_ranks(2))
    assert any(DATA_PARALLEL_MUTANTS[name][3] in fact for fact in failing), failing
    assert Reducer.finish is TRUE_FINISH, "the mistake leaked into this process"


def test_a_watch_names_who_is_behind() -> None:
    before, over = set(threading.enumerate()), threading.Event()
    try:
        with tempfile.TemporaryDirectory() as folder:
            store = dist.FileStore(f"{folder}/store", 3)
            first, second, third = (Watch(store, rank, 3, 0.2) for rank in range(3))
            first.reach(2)
            second.reach(1)
            third.reach(3)
            assert first.behind() == [(1, 1)]
            assert third.behind() == [(0, 2), (1, 1)]
            assert second.behind() == []
            assert first.guard(lambda: 7) == 7
            with pytest.raises(MissingRank, match=r"at step 2 and waits for rank 1 \(at") as caught:
                first.guard(over.wait)
            assert caught.value.ranks == [1]
            with pytest.raises(MissingRank, match="a connection broke"):
                first.guard(lambda: (_ for _ in ()).throw(ConnectionError("gone")))
            with pytest.raises(KeyError):  # nobody is behind: it is this rank's own fault
                second.guard(lambda: {}["x"])
    finally:
        over.set()
        for thread in set(threading.enumerate()) - before:
            thread.join(5)  # beside a thread ranks are not forked


@pytest.mark.alone
@pytest.mark.exhaustive("waits until a deadline is over")
def test_the_lost_rank_is_named_in_time_by_all_others() -> None:
    told = planted.run("dies", 3, 1, 2)
    assert told.outside == 1 and sorted(told.notes) == [0, 2]
    for took, named, words in told.notes.values():
        assert named == "1" and took < planted.SECONDS + 1
        assert "waits for rank 1 (at step 1)" in words


def test_data_parallel_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="^data_parallel: a limit of 0 bytes; take 1 or more"):
        data_parallel.buckets([nn.Parameter(torch.zeros(3))], 5, 0)
    group = Ring()
    group.size = 7
    with pytest.raises(ValueError, match="^data_parallel: 48 rows do not split over 7 ranks and 1"):
        data_parallel.on_rank(group, DataParallelWant())


# zero: its facts hold, and each of the usual mistakes breaks at least one of them.


TRUE_REDUCE, TRUE_UPDATE, TRUE_GATHER = Unit.reduce, Unit.update, Unit.gather


def test_zero_facts_hold() -> None:
    rows = read_facts(zero_cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    for n in (1, 2, 4, 8):
        for stage in ("plain", "stage 1", "stage 2", "stage 3"):
            own = [name for name in names if name.startswith(f"{n} ranks, {stage}")]
            assert len(own) >= 2 + 6 + 2


def train_in_this_process(want: ZeroWant) -> dict[str, Any]:
    """A group of one, here: `device` asks for a group that is there."""
    [told] = ranks.run(zero.each, 1, [want], backend="gloo")
    return told[0]


@pytest.mark.alone
def test_adam_is_torchs() -> None:
    losses, weights = zero_cases.on_one_process(SIZES, 5)
    told = train_in_this_process(ZeroWant(0, steps=5))
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


ZERO_MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
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
@pytest.mark.parametrize("name", ZERO_MUTANTS)
def test_zero_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name, "ZERO_MUTANTS")
    failing = broken_facts(zero_cases.of_ranks(2))
    assert any(ZERO_MUTANTS[name][3] in fact for fact in failing), failing
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


def test_zero_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^zero: no stage 4; there are 0 \(plain\), 1, 2 and 3"):
        zero.Training(4, Library(), SIZES, torch.float64, torch.float64)
    with pytest.raises(ValueError, match="^zero: 48 rows do not split over 1 ranks and 5 micro"):
        zero.on_rank(Library(), ZeroWant(0, micro_batches=5))
