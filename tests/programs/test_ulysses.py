"""ulysses: its facts hold, and each of the usual mistakes breaks at least one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mistaken_ranks import plant_in_ranks
from snippet_facts import broken_facts, read_facts

from snippets.collectives import Ring
from snippets.ulysses import cases, ulysses
from snippets.ulysses.ulysses import Exchange, Want

TRUE_EXCHANGE, TRUE_ALL_TO_ALL = Exchange.forward, Ring.all_to_all


def test_facts_hold() -> None:
    rows = read_facts(cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)) == (4 + 5 + 6) * 8 + 3 * 2
    assert broken_facts(rows) == []


def reverse_heads(ctx: Any, x: torch.Tensor, group: Ring, back: bool) -> torch.Tensor:
    """Heads come back in the order of the ranks they did not come from."""
    y = TRUE_EXCHANGE(ctx, x, group, back)
    return torch.cat(y.chunk(group.size, 1)[::-1], 1) if back else y


def reverse_tokens(ctx: Any, x: torch.Tensor, group: Ring, back: bool) -> torch.Tensor:
    """What the ranks sent, joined in the other order, and cut so again."""
    if back:
        x = torch.cat(x.chunk(group.size, 2)[::-1], 2)
        return TRUE_EXCHANGE(ctx, x, group, back)
    y = TRUE_EXCHANGE(ctx, x, group, back)
    return torch.cat(y.chunk(group.size, 2)[::-1], 2)


def repeat_in_turn(k: torch.Tensor, group: Ring) -> torch.Tensor:
    if k.shape[1] < group.size:
        k = k.repeat(1, group.size // k.shape[1], 1, 1)
    return Exchange.apply(k, group, False)


def detach_copies(k: torch.Tensor, group: Ring) -> torch.Tensor:
    """The gradient of one copy of a head for that of all."""
    if k.shape[1] < group.size:
        many = group.size // k.shape[1]
        k = torch.stack([k, *[k.detach()] * (many - 1)], 2).flatten(1, 2)
    return Exchange.apply(k, group, False)


def roll_gradient(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    group, size = ctx.group, ctx.group.size
    if ctx.back:  # as if the ranks' heads lay the other way round
        dy = dy.roll(dy.shape[1] // size, 1)
    return Exchange.apply(dy, group, not ctx.back), None, None


def all_to_all_twice(self: Ring, parts: Any, into: Any = None) -> Any:
    TRUE_ALL_TO_ALL(self, parts, into)
    return TRUE_ALL_TO_ALL(self, parts, into)


MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "heads turned round": (
        Exchange, "forward", staticmethod(reverse_heads), "8 heads of k, full: error",
    ),
    "tokens turned round": (
        Exchange, "forward", staticmethod(reverse_tokens), "8 heads of k, causal: error of o",
    ),
    "heads of k in turn": (ulysses, "spread", repeat_in_turn, "2 heads of k, full: error of o"),
    "one copy's gradient": (ulysses, "spread", detach_copies, "2 heads of k, causal: error of dk"),
    "gradients the wrong way": (
        Exchange, "backward", staticmethod(roll_gradient), "full: error of dq",
    ),
    "sent twice": (Ring, "all_to_all", all_to_all_twice, "forward: sent by a rank"),
}  # fmt: skip


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name)
    failing = broken_facts(cases.of_ranks(4))
    assert any(MUTANTS[name][3] in fact for fact in failing), failing
    assert Exchange.forward is TRUE_EXCHANGE, "the mistake leaked into this process"


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
    due, *_ = cases.truth(Want(grouped=2))
    assert torch.allclose(ours, due, rtol=1e-12, atol=1e-14)
