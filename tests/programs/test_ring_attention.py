"""ring_attention: its facts hold, and each of the usual mistakes breaks at least one of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from conftest import read_demo
from snippet_facts import broken_facts, plant_in_ranks, read_facts

from snippets import ranks
from snippets.ring_attention import cases
from snippets.ring_attention import ring_attention as ring

pytestmark = pytest.mark.alone

TRUE_RUN = ranks.run
TRUE_WIRE = ranks.Wire
TRUE_CHUNKS = ring.chunks_of


@pytest.fixture(scope="module")
def fact_rows() -> list[dict[str, Any]]:
    return read_facts(cases)


def test_facts_hold(fact_rows: list[dict[str, Any]]) -> None:
    assert broken_facts(fact_rows) == []


def test_facts_cover_every_way_of_running(fact_rows: list[dict[str, Any]]) -> None:
    names = [row["name"] for row in fact_rows]
    assert len(names) == len(set(names))
    for world_size in (2, 4):
        for mask in ("full", "causal"):
            for order in ring.ORDERS:
                own = [n for n in names if n.startswith(f"{world_size} ranks, {mask}, {order}:")]
                for label in ("out", "dQ", "dK", "dV", "forward", "backward"):
                    assert any(name.endswith(label) for name in own), (own, label)
                assert sum("work" in name for name in own) == (2 if mask == "causal" else 0)


def merge_without_rescale(
    out: torch.Tensor, lse: torch.Tensor, block_out: torch.Tensor, block_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    total = torch.logaddexp(lse, block_lse)
    return out + block_out * (block_lse - total).exp()[..., None], total


def visible_one_block_late(self: ring.Ring, step: int) -> list[tuple[int, int, bool]]:
    owner = (self.rank - step) % self.world_size
    visiting = ring.chunks_of(owner, self.world_size, self.order)
    return [
        (i, j, self.causal and a == b)
        for i, a in enumerate(self.mine)
        for j, b in enumerate(visiting)
        if not self.causal or b <= a + 1
    ]


def visible_one_block_early(self: ring.Ring, step: int) -> list[tuple[int, int, bool]]:
    owner = (self.rank - step) % self.world_size
    visiting = ring.chunks_of(owner, self.world_size, self.order)
    return [
        (i, j, self.causal and a == b)
        for i, a in enumerate(self.mine)
        for j, b in enumerate(visiting)
        if not self.causal or b < a or a == b == 0
    ]


def scores_hiding_the_diagonal(q: torch.Tensor, k: torch.Tensor, diagonal: bool) -> torch.Tensor:
    pairs = q @ k.mT / math.sqrt(q.shape[-1])
    if diagonal:  # a query must see its own key
        later = torch.ones_like(pairs[0, 0], dtype=torch.bool).triu(0)
        later[0, 0] = False
        pairs.masked_fill_(later, -math.inf)
    return pairs


def pass_on_backwards(self: ring.Ring, tensors: ring.Tensors) -> Any:
    before, after = (self.rank - 1) % self.world_size, (self.rank + 1) % self.world_size
    return self.wire.exchange(tensors, before, after)


def pass_on_one_hop_short(self: ring.Ring, tensors: ring.Tensors) -> Any:
    """Every block but the first hop's stays where it is."""
    if self.wire.sent:
        return lambda: [tensor.clone() for tensor in tensors]
    before, after = (self.rank - 1) % self.world_size, (self.rank + 1) % self.world_size
    return self.wire.exchange(tensors, after, before)


def zigzag_without_turning(rank: int, world_size: int, order: str) -> list[int]:
    return [rank] if order == "plain" else [rank, world_size + rank]


class WireThatSendsTwice(ranks.Wire):
    def exchange(self, tensors: Any, to: int, source: int) -> Any:
        TRUE_WIRE.exchange(self, tensors, to, source)()
        return TRUE_WIRE.exchange(self, tensors, to, source)


MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "merge without rescale": (ring, "merge", merge_without_rescale, "error of out"),
    "mask one block late": (ring.Ring, "visible", visible_one_block_late, "error of out"),
    "mask one block early": (ring.Ring, "visible", visible_one_block_early, "error of out"),
    "diagonal hidden": (ring, "scores", scores_hiding_the_diagonal, "error of dK"),
    "ring turns the wrong way": (ring.Ring, "pass_on", pass_on_backwards, "error of out"),
    "ring one hop short": (ring.Ring, "pass_on", pass_on_one_hop_short, "forward"),
    "zigzag does not turn": (ring, "chunks_of", zigzag_without_turning, "most over least"),
    "sends twice": (ranks, "Wire", WireThatSendsTwice, "forward"),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_breaks_a_fact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_ranks(monkeypatch, __name__, name)
    failing = broken_facts(cases.facts())
    assert any(MUTANTS[name][3] in fact for fact in failing), failing
    assert ring.chunks_of is TRUE_CHUNKS, "the mistake leaked into this process"


class Eager(cases.Logged):
    """Waits for a hop as soon as it has started."""

    def pass_on(self, tensors: ring.Tensors) -> Any:
        came = super().pass_on(tensors)()
        return lambda: came


def run_eager_rank(rank: int, world_size: int) -> Any:
    cases.Logged = Eager  # type: ignore[misc]
    return cases.order_on_rank(rank, world_size)


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
def test_a_ring_that_waits_at_once_breaks_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "run", lambda _, world_size: TRUE_RUN(run_eager_rank, world_size))
    rows = cases.overlaps(4)
    assert [row["value"] for row in rows] == [0, 0]
    assert broken_facts(rows) == [row["name"] for row in rows]


def test_a_nan_breaks_a_fact() -> None:
    assert broken_facts([{"name": "x", "value": math.nan, "expected": 0, "tolerance": 1e-12}]) == [
        "x"
    ]


@pytest.mark.parametrize("order", ring.ORDERS)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_shards_are_the_sequence_dealt_once(order: str, world_size: int) -> None:
    x = torch.arange(16.0).reshape(1, 1, 16, 1)
    shards = [ring.shard(x, rank, world_size, order) for rank in range(world_size)]
    assert {shard.shape[2] for shard in shards} == {16 // world_size}
    assert sorted(torch.cat(shards, 2).flatten().tolist()) == list(range(16))


def test_zigzag_gives_an_early_and_a_late_chunk() -> None:
    assert [ring.chunks_of(rank, 3, "zigzag") for rank in range(3)] == [[0, 5], [1, 4], [2, 3]]


def test_shard_refuses_what_it_cannot_deal() -> None:
    with pytest.raises(ValueError, match="order 'spiral' is unknown; use one of"):
        ring.shard(torch.zeros(1, 1, 8, 1), 0, 2, "spiral")
    with pytest.raises(ValueError, match="S = 10 does not split into 4 chunks; pad"):
        ring.shard(torch.zeros(1, 1, 10, 1), 0, 2, "plain")


def test_demo_finds_both_ways_right() -> None:
    first = read_demo(ring)
    assert first.count("within 1e-12: yes") == 2
    assert len(first.splitlines()) <= 30
