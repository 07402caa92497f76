"""async_tensor_parallel: its facts hold, and each of the usual mistakes breaks one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mistaken_ranks import plant_in_ranks
from snippet_facts import broken_facts, read_facts

from snippets.async_tensor_parallel import async_tensor_parallel as ours
from snippets.async_tensor_parallel import cases
from snippets.async_tensor_parallel.async_tensor_parallel import Event, Log, Loop
from snippets.collectives import Ring

TRUE_SHARDS, TRUE_SCATTER, TRUE_NOTE = Loop.shards, Loop.matmul_scatter, Loop.note
TRUE_PASS_ON = Ring.pass_on


def test_facts_hold() -> None:
    rows = read_facts(cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)) == 3 * 3 * 2 * (3 + 4 + 2 + len(cases.LINKS))
    assert broken_facts(rows) == []


@pytest.mark.exhaustive("facts once more, on two ranks")
@pytest.mark.alone
def test_two_ranks_meet_as_well() -> None:
    assert broken_facts(cases.of_ranks(2)) == []


def gather_all_first(self: Loop, x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Everything is there before anything is multiplied."""
    return iter(list(TRUE_SHARDS(self, x)))


def shift_owners(self: Loop, x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    t = self.ring.size
    return (((owner + 1) % t, shard) for owner, shard in TRUE_SHARDS(self, x))


def keep_own(self: Loop, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    TRUE_SCATTER(self, x, w)
    return x.chunk(self.ring.size)[self.ring.rank] @ w.T


def roll_rows(self: Loop, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return TRUE_SCATTER(self, x.roll(len(x) // self.ring.size, 0), w)


def pass_on_one_way(self: Ring, tensors: Any, hops: int = 1) -> Any:
    return TRUE_PASS_ON(self, tensors, 1)


def pass_on_twice(self: Ring, tensors: Any, hops: int = 1) -> Any:
    TRUE_PASS_ON(self, tensors, hops)()
    return TRUE_PASS_ON(self, tensors, hops)


MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "all gathered first": (Loop, "shards", gather_all_first, "ring: transfers under a product"),
    "another's shard": (Loop, "shards", shift_owners, "ring: error of y"),
    "what came is not added": (Loop, "matmul_scatter", keep_own, "scatter, ring: error of y"),
    "sums of another's rows": (Loop, "matmul_scatter", roll_rows, "gather, ring: error of dx"),
    "both go one way": (Ring, "pass_on", pass_on_one_way, "both ways: error of"),
    "sent twice": (Ring, "pass_on", pass_on_twice, "forward: sent by a rank"),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name)
    failing = broken_facts(cases.of_ranks(4))
    assert any(MUTANTS[name][3] in fact for fact in failing), failing
    assert Loop.shards is TRUE_SHARDS, "the mistake leaked into this process"


def record_gather_log(way: str, t: int) -> Log:
    """What rank 0 of t does to gather, without another rank: all have the same shard."""
    ring = Ring()
    ring.size = t
    ring.pass_on = lambda tensors, hops=1: lambda: list(tensors)  # type: ignore[method-assign]
    ring.all_gather = lambda x: x.repeat(t, 1)  # type: ignore[method-assign]
    loop = Loop(ring, way)
    loop.gather_matmul(torch.ones(2, 3), torch.ones(4, 3))
    return loop.log


@given(st.sampled_from(ours.WAYS), st.integers(2, 40), st.floats(0.01, 20))
def test_the_clock_is_its_formula_on_any_number_of_ranks(way: str, t: int, link: float) -> None:
    log = record_gather_log(way, t)
    assert {one.shard for one in log if one.what == "product"} == set(range(t))
    assert ours.clock(log, 1, link) == pytest.approx(cases.done(way, t, link)[0], rel=1e-12)
    assert cases.hidden(log) == (0 if way == "collective" else t - 1)


@given(st.integers(2, 40), st.floats(0.01, 20))
def test_a_loop_is_never_later_than_the_collective(t: int, link: float) -> None:
    due, _ = cases.done("collective", t, link)
    for way in ours.WAYS[1:]:
        found, _ = cases.done(way, t, link)
        assert max(t, link) <= found <= due + 1e-9
    assert cases.done("both ways", t, link)[0] <= cases.done("ring", t, link)[0] + 1e-9


def test_the_clock_waits_for_what_was_sent_first() -> None:
    log = [Event("send", 0), Event("product", 0), Event("send", 1), Event("arrive", 0)]
    assert ours.clock(log, 1, 3) == 3
    assert ours.clock([*log, Event("arrive", 1)], 1, 3) == 4


def test_one_rank_needs_nobody() -> None:
    x, w = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    for way in ours.WAYS:
        loop = Loop(Ring(), way)
        given = [one.clone().requires_grad_() for one in (x, w)]
        assert torch.allclose(loop.gather_matmul(x, w), x @ w.T)
        assert torch.allclose(loop.matmul_scatter(x, w), x @ w.T)
        for function in (ours.GatherMatmul, ours.MatmulScatter):
            assert torch.autograd.gradcheck(lambda *a, f=function, o=loop: f.apply(*a, o), given)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no way 'push'; there are collective, ring, both ways"):
        Loop(Ring(), "push")
    ring = Ring()
    ring.size = 3
    with pytest.raises(ValueError, match="^async_tensor_parallel: 4 rows do not split over 3; pad"):
        Loop(ring, "ring").matmul_scatter(torch.ones(4, 3), torch.ones(2, 3))
