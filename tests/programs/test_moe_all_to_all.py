"""moe_all_to_all: its facts hold, and each of the usual mistakes breaks at least one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mistaken_ranks import plant_in_ranks
from snippet_facts import broken_facts, read_facts

from snippets import ranks
from snippets.collectives import Library, Ring
from snippets.moe_all_to_all import cases, routing
from snippets.moe_all_to_all import moe_all_to_all as ours
from snippets.moe_all_to_all.moe_all_to_all import E, Exchange, H, K, Layer, T, Want
from snippets.moe_all_to_all.routing import Route

TRUE_CALL, TRUE_PADDED, TRUE_EXCHANGE = Layer.__call__, Layer.padded, Exchange.forward


def test_facts_hold() -> None:
    rows = read_facts(cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)) == 3 * (6 * 6 + 3) + 3
    assert broken_facts(rows) == []


def test_capacity_drops_copies_in_the_cases() -> None:
    for skew in ("learned", "skewed"):
        routes = cases.one_process(2, Want(skew, 2))["routes"]
        assert any((one.places(E) >= 2).any() for one in routes)


def test_of_equal_scores_the_lower_number_wins() -> None:
    chosen = routing.route(torch.zeros(3, 5), 2)
    assert chosen.expert.tolist() == [[0, 1]] * 3
    assert torch.allclose(chosen.weight, torch.full((3, 2), 0.5))
    few = routing.route(torch.zeros(3, 5), 2, range(4, 5))
    assert few.expert.tolist() == [[4]] * 3 and few.weight.eq(1).all()


def test_places_count_copies_before() -> None:
    chosen = Route(torch.tensor([[0, 1], [1, 0], [0, 2]]), torch.ones(3, 2))
    assert chosen.places(3).tolist() == [[0, 0], [1, 1], [2, 0]]
    assert chosen.counts(3).tolist() == [3, 2, 1]


def return_unsorted(self: Layer, x: torch.Tensor, chosen: Route) -> torch.Tensor:
    """Answers are taken in the order in which tokens went out."""
    wrong = chosen._replace(weight=chosen.weight.roll(1, 0))
    return TRUE_CALL(self, x, wrong)


def average_answers(self: Route, answers: torch.Tensor) -> torch.Tensor:
    return answers.mean(1) + 0 * self.weight.sum()


def detach_gate(self: Route, answers: torch.Tensor) -> torch.Tensor:
    weight = self.weight.detach() + 0 * self.weight
    return (weight[..., None] * answers).sum(1)


def pad_one_place_less(self: Layer, x: torch.Tensor, chosen: Route, capacity: int) -> torch.Tensor:
    return TRUE_PADDED(self, x, chosen, capacity - 1)


def return_same_counts(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """A gradient takes the way of the dispatch once more."""
    out, into = ctx.counts
    came = Exchange.apply(dy, into, out, ctx.group)
    return came.roll(1, 0), None, None, None


def exchange_twice(
    ctx: Any, x: torch.Tensor, out: list[int], into: list[int], group: Library
) -> torch.Tensor:
    TRUE_EXCHANGE(ctx, x, out, into, group)
    return TRUE_EXCHANGE(ctx, x, out, into, group)


MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "weights of another token": (Layer, "__call__", return_unsorted, "learned: error of y"),
    "weights forgotten": (Route, "weighted", average_answers, "learned: error of y"),
    "gate without gradient": (Route, "weighted", detach_gate, "learned: largest error"),
    "a place less": (Layer, "padded", pad_one_place_less, "capacity 2: error of y"),
    "gradients of other rows": (Exchange, "backward", staticmethod(return_same_counts), "largest"),
    "sent twice": (Exchange, "forward", staticmethod(exchange_twice), "uniform, forward: sent"),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name)
    failing = broken_facts(cases.of_ranks(4))
    assert any(MUTANTS[name][3] in fact for fact in failing), failing
    assert Layer.padded is TRUE_PADDED, "the mistake leaked into this process"


def train_drawing_alone(rank: int, size: int) -> int:
    """Each rank draws for itself: one that stays local leaves the others waiting."""
    ours.stays_local = lambda step, p: rank == 0 and step == 1  # type: ignore[assignment]
    return ours.train(Ring(), 2, 0.5)[0]


@pytest.mark.alone
def test_ranks_that_draw_for_themselves_are_stopped() -> None:
    """They wait for what never comes, or gloo sees a message that was meant for another call."""
    with pytest.raises(ranks.RankError, match=r"^rank \d (did not return|died|raised)"):
        ranks.run(train_drawing_alone, 4, backend="gloo", seconds=4)


def test_local_steps_are_as_frequent_as_asked() -> None:
    share = sum(ours.stays_local(step, 0.3) for step in range(2000)) / 2000
    assert abs(share - 0.3) < 0.04
    assert not any(ours.stays_local(step, 0.0) for step in range(50))


def test_uniform_routing_gives_every_expert_as_many_tokens() -> None:
    for size in (2, 4, 8):
        for chosen in cases.one_process(size, Want("uniform"))["routes"]:
            assert set(chosen.counts(E).tolist()) == {K * T // size // E}


def test_what_does_not_split_is_refused() -> None:
    group = Library()
    group.size = 3
    with pytest.raises(ValueError, match="^moe_all_to_all: 8 experts do not split over 3 ranks"):
        Layer({}, group)
    group.size = 5
    with pytest.raises(ValueError, match="^moe_all_to_all: 64 tokens do not split over 5"):
        ours.on_rank(group, Want())


def test_one_rank_is_the_loop() -> None:
    told = ours.on_rank(Library(), Want())
    due = cases.one_process(1, Want())
    assert torch.allclose(told["y"], due["y"], rtol=1e-12, atol=1e-14)
    assert told["y"].shape == (T, H)
