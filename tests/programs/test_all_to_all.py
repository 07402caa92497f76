"""What each rank sends to each: tokens to experts, and heads of attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from snippet_facts import broken_facts, plant_in_ranks, read_facts

from snippets import ranks
from snippets.collectives import Library, Ring
from snippets.moe_all_to_all import cases as moe_all_to_all_cases
from snippets.moe_all_to_all import moe_all_to_all as ours
from snippets.moe_all_to_all import routing
from snippets.moe_all_to_all.moe_all_to_all import E, H, K, Layer, T
from snippets.moe_all_to_all.moe_all_to_all import Exchange as MoeAllToAllExchange
from snippets.moe_all_to_all.moe_all_to_all import Want as MoeAllToAllWant
from snippets.moe_all_to_all.routing import Route
from snippets.ulysses import cases as ulysses_cases
from snippets.ulysses import ulysses
from snippets.ulysses.ulysses import Exchange as UlyssesExchange
from snippets.ulysses.ulysses import Want as UlyssesWant

# moe_all_to_all: its facts hold, and each of the usual mistakes breaks at least one of them.


TRUE_CALL, TRUE_PADDED, MOE_ALL_TO_ALL_TRUE_EXCHANGE = (
    Layer.__call__,
    Layer.padded,
    MoeAllToAllExchange.forward,
)


def test_moe_all_to_all_facts_hold() -> None:
    rows = read_facts(moe_all_to_all_cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)) == 3 * (6 * 6 + 3) + 3
    assert broken_facts(rows) == []


def test_capacity_drops_copies_in_the_cases() -> None:
    for skew in ("learned", "skewed"):
        routes = moe_all_to_all_cases.one_process(2, MoeAllToAllWant(skew, 2))["routes"]
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
    came = MoeAllToAllExchange.apply(dy, into, out, ctx.group)
    return came.roll(1, 0), None, None, None


def exchange_twice(
    ctx: Any, x: torch.Tensor, out: list[int], into: list[int], group: Library
) -> torch.Tensor:
    MOE_ALL_TO_ALL_TRUE_EXCHANGE(ctx, x, out, into, group)
    return MOE_ALL_TO_ALL_TRUE_EXCHANGE(ctx, x, out, into, group)


MOE_ALL_TO_ALL_MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "weights of another token": (Layer, "__call__", return_unsorted, "learned: error of y"),
    "weights forgotten": (Route, "weighted", average_answers, "learned: error of y"),
    "gate without gradient": (Route, "weighted", detach_gate, "learned: largest error"),
    "a place less": (Layer, "padded", pad_one_place_less, "capacity 2: error of y"),
    "gradients of other rows": (
        MoeAllToAllExchange,
        "backward",
        staticmethod(return_same_counts),
        "largest",
    ),
    "sent twice": (
        MoeAllToAllExchange,
        "forward",
        staticmethod(exchange_twice),
        "uniform, forward: sent",
    ),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", MOE_ALL_TO_ALL_MUTANTS)
def test_moe_all_to_all_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name, "MOE_ALL_TO_ALL_MUTANTS")
    failing = broken_facts(moe_all_to_all_cases.of_ranks(4))
    assert any(MOE_ALL_TO_ALL_MUTANTS[name][3] in fact for fact in failing), failing
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
        for chosen in moe_all_to_all_cases.one_process(size, MoeAllToAllWant("uniform"))["routes"]:
            assert set(chosen.counts(E).tolist()) == {K * T // size // E}


def test_what_does_not_split_is_refused() -> None:
    group = Library()
    group.size = 3
    with pytest.raises(ValueError, match="^moe_all_to_all: 8 experts do not split over 3 ranks"):
        Layer({}, group)
    group.size = 5
    with pytest.raises(ValueError, match="^moe_all_to_all: 64 tokens do not split over 5"):
        ours.on_rank(group, MoeAllToAllWant())


def test_one_rank_is_the_loop() -> None:
    told = ours.on_rank(Library(), MoeAllToAllWant())
    due = moe_all_to_all_cases.one_process(1, MoeAllToAllWant())
    assert torch.allclose(told["y"], due["y"], rtol=1e-12, atol=1e-14)
    assert told["y"].shape == (T, H)


# ulysses: its facts hold, and each of the usual mistakes breaks at least one of them.


ULYSSES_TRUE_EXCHANGE, TRUE_ALL_TO_ALL = UlyssesExchange.forward, Ring.all_to_all


def test_ulysses_facts_hold() -> None:
    rows = read_facts(ulysses_cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)) == (4 + 5 + 6) * 8 + 3 * 2
    assert broken_facts(rows) == []


def reverse_heads(ctx: Any, x: torch.Tensor, group: Ring, back: bool) -> torch.Tensor:
    """Heads come back in the order of the ranks they did not come from."""
    y = ULYSSES_TRUE_EXCHANGE(ctx, x, group, back)
    return torch.cat(y.chunk(group.size, 1)[::-1], 1) if back else y


def reverse_tokens(ctx: Any, x: torch.Tensor, group: Ring, back: bool) -> torch.Tensor:
    """What the ranks sent, joined in the other order, and cut so again."""
    if back:
        x = torch.cat(x.chunk(group.size, 2)[::-1], 2)
        return ULYSSES_TRUE_EXCHANGE(ctx, x, group, back)
    y = ULYSSES_TRUE_EXCHANGE(ctx, x, group, back)
    return torch.cat(y.chunk(group.size, 2)[::-1], 2)


def repeat_in_turn(k: torch.Tensor, group: Ring) -> torch.Tensor:
    if k.shape[1] < group.size:
        k = k.repeat(1, group.size // k.shape[1], 1, 1)
    return UlyssesExchange.apply(k, group, False)


def detach_copies(k: torch.Tensor, group: Ring) -> torch.Tensor:
    """The gradient of one copy of a head for that of all."""
    if k.shape[1] < group.size:
        many = group.size // k.shape[1]
        k = torch.stack([k, *[k.detach()] * (many - 1)], 2).flatten(1, 2)
    return UlyssesExchange.apply(k, group, False)


def roll_gradient(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    group, size = ctx.group, ctx.group.size
    if ctx.back:  # as if the ranks' heads lay the other way round
        dy = dy.roll(dy.shape[1] // size, 1)
    return UlyssesExchange.apply(dy, group, not ctx.back), None, None


def all_to_all_twice(self: Ring, parts: Any, into: Any = None) -> Any:
    TRUE_ALL_TO_ALL(self, parts, into)
    return TRUE_ALL_TO_ALL(self, parts, into)


ULYSSES_MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "heads turned round": (
        UlyssesExchange, "forward", staticmethod(reverse_heads), "8 heads of k, full: error",
    ),
    "tokens turned round": (
        UlyssesExchange, "forward", staticmethod(reverse_tokens),
        "8 heads of k, causal: error of o",
    ),
    "heads of k in turn": (ulysses, "spread", repeat_in_turn, "2 heads of k, full: error of o"),
    "one copy's gradient": (ulysses, "spread", detach_copies, "2 heads of k, causal: error of dk"),
    "gradients the wrong way": (
        UlyssesExchange, "backward", staticmethod(roll_gradient), "full: error of dq",
    ),
    "sent twice": (Ring, "all_to_all", all_to_all_twice, "forward: sent by a rank"),
}  # fmt: skip


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", ULYSSES_MUTANTS)
def test_ulysses_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name, "ULYSSES_MUTANTS")
    failing = broken_facts(ulysses_cases.of_ranks(4))
    assert any(ULYSSES_MUTANTS[name][3] in fact for fact in failing), failing
    assert UlyssesExchange.forward is ULYSSES_TRUE_EXCHANGE, "the mistake leaked into this process"


def test_each_token_belongs_to_one_rank() -> None:
    x = torch.arange(48.0).view(1, 1, 48, 1)
    for size, rings in ((2, 1), (4, 1), (4, 2), (8, 2), (8, 4)):
        parts = [ulysses.own(x, rank, size, rings) for rank in range(size)]
        assert {part.shape[2] for part in parts} == {48 // size}
        assert sorted(torch.cat(parts, 2).flatten().tolist()) == list(range(48))


@pytest.mark.parametrize(
    ("heads", "grouped", "size", "message"),
    [
        (6, 6, 4, "6 heads of q do not split over 4 ranks and 6 heads of k; take fewer ranks"),
        (8, 3, 2, "8 heads of q do not split over 2 ranks and 3 heads of k"),
        (12, 4, 6, "4 heads of k neither split over 6 ranks nor repeat to as many"),
    ],
)
def test_heads_that_do_not_split_are_refused(
    heads: int, grouped: int, size: int, message: str
) -> None:
    group = Ring()
    group.size = size
    with pytest.raises(ValueError, match=f"^ulysses: {message}"):
        ulysses.check(torch.zeros(1, heads, 4, 2), torch.zeros(1, grouped, 4, 2), group)


def test_tokens_that_do_not_split_are_refused() -> None:
    with pytest.raises(ValueError, match="^ulysses: 10 tokens do not split over 4 ranks; pad"):
        ulysses.own(torch.zeros(1, 1, 10, 1), 0, 4, 1)


def test_one_rank_is_plain_attention() -> None:
    q, k, v, _ = ulysses.sequence(2)
    ours = ulysses.attention(q, k, v, Ring(), True)
    due, *_ = ulysses_cases.truth(UlyssesWant(grouped=2))
    assert torch.allclose(ours, due, rtol=1e-12, atol=1e-14)
