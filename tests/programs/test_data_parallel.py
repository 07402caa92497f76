"""data_parallel: its facts hold, each of the usual mistakes breaks one, a lost rank is named."""

from __future__ import annotations

import tempfile
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from mistaken_ranks import plant_in_ranks
from snippet_facts import broken_facts, read_facts
from torch import nn

from snippets.collectives import Library, Ring
from snippets.data_parallel import cases, planted
from snippets.data_parallel import data_parallel as ours
from snippets.data_parallel.data_parallel import Reducer, Want
from snippets.data_parallel.watch import MissingRank, Watch

TRUE_READY, TRUE_FINISH = Reducer.ready, Reducer.finish
TRUE_ALL_REDUCE = Library.all_reduce


def test_facts_hold() -> None:
    rows = read_facts(cases)
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
    made = ours.buckets(parameters, limit, first)
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


MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "sums for means": (Reducer, "finish", leave_sums, "one bucket: largest error"),
    "before it is full": (Reducer, "ready", send_too_early, "600 bytes: largest error"),
    "all at the end": (Reducer, "ready", send_at_the_end, "600 bytes: buckets started within"),
    "sent twice": (Library, "all_reduce", all_reduce_twice, "600 bytes: sent"),
    "a rank's own": (Library, "all_reduce", keep_own_gradients, "largest error of a parameter"),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name)
    failing = broken_facts(cases.of_ranks(2))
    assert any(MUTANTS[name][3] in fact for fact in failing), failing
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


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="^data_parallel: a limit of 0 bytes; take 1 or more"):
        ours.buckets([nn.Parameter(torch.zeros(3))], 5, 0)
    group = Ring()
    group.size = 7
    with pytest.raises(ValueError, match="^data_parallel: 48 rows do not split over 7 ranks and 1"):
        ours.on_rank(group, Want())
