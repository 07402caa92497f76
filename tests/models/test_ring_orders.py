"""ring_orders: no pair is lost or computed twice, and balance is what the formulas say."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snippets.ring_orders import cases
from snippets.ring_orders import ring_orders as orders

RANKS = st.integers(1, 6)
HALVES = st.integers(1, 4)  # tokens in a chunk of zigzag
ORDER = st.sampled_from(orders.ORDERS)


@given(ORDER, RANKS, HALVES)
def test_each_token_has_one_rank(order: str, ranks: int, half: int) -> None:
    tokens = 2 * ranks * half
    held = [orders.tokens_of(order, rank, ranks, tokens) for rank in range(ranks)]
    assert sorted(token for each in held for token in each) == list(range(tokens))
    assert {len(each) for each in held} == {2 * half}


@given(ORDER, RANKS, HALVES, st.booleans())
def test_each_pair_is_computed_once(order: str, ranks: int, half: int, causal: bool) -> None:
    tokens = 2 * ranks * half
    found = Counter(
        pair
        for rank in range(ranks)
        for step in range(ranks)
        for pair in orders.pairs(order, rank, step, ranks, tokens, causal)
    )
    every = {(q, k) for q in range(tokens) for k in range(tokens) if not causal or k <= q}
    assert set(found) == every and set(found.values()) == {1}


@given(RANKS)
def test_each_block_visits_each_rank_and_comes_from_the_rank_before(ranks: int) -> None:
    for rank in range(ranks):
        owners = [orders.owner(rank, step, ranks) for step in range(ranks)]
        assert sorted(owners) == list(range(ranks)) and owners[0] == rank
        before = (rank - 1) % ranks
        assert owners[1:] == [orders.owner(before, step, ranks) for step in range(ranks - 1)]


@given(RANKS, HALVES)
def test_zigzag_is_even_at_every_step_and_no_order_is_faster(ranks: int, half: int) -> None:
    tokens = 2 * ranks * half
    for column in zip(*orders.work("zigzag", ranks, tokens), strict=True):
        assert len(set(column)) == 1
    assert orders.busy("zigzag", ranks, tokens) == 1
    times = [orders.time(order, ranks, tokens) for order in ("zigzag", "striped", "plain")]
    assert times == sorted(times)
    for order in orders.ORDERS:
        assert orders.busy(order, ranks, tokens, causal=False) == 1


def test_the_last_rank_of_the_plain_order_works_and_the_first_waits() -> None:
    first, *_, last = orders.work("plain", 4, 64)
    assert first == [136, 0, 0, 0] and last == [136, 256, 256, 256]
    assert 0.5 < orders.busy("plain", 8, 96) < 0.6


@pytest.mark.parametrize(
    ("order", "ranks", "tokens", "said"),
    [
        ("zigzagged", 2, 8, "order 'zigzagged' is unknown; use one of plain, striped, zigzag"),
        ("plain", 3, 8, "8 tokens do not divide into 3"),
        ("zigzag", 4, 12, "12 tokens do not divide into 8"),
        ("striped", 0, 8, "into 0"),
        ("plain", 2, 0, "0 tokens"),
    ],
)
def test_what_cannot_be_dealt_is_refused(order: str, ranks: int, tokens: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        orders.tokens_of(order, 0, ranks, tokens)


def test_facts_hold_and_a_block_left_out_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cases.facts()
    assert [row["name"] for row in rows if row["value"] != row["expected"]] == []
    assert len({row["name"] for row in rows}) == len(rows) >= 20
    monkeypatch.setattr(orders, "owner", lambda rank, step, ranks: (rank - max(step, 1)) % ranks)
    broken = [row["name"] for row in cases.facts() if row["value"] != row["expected"]]
    assert broken


def test_pictures_show_each_visible_pair_and_each_rank_s_work() -> None:
    pictures = {one["name"]: one for one in cases.grids()}
    assert set(pictures) == {f"{o}-{what}" for o in orders.ORDERS for what in ("mask", "load")}
    for order in orders.ORDERS:
        cells = pictures[f"{order}-mask"]["cells"]
        for query, row in enumerate(cells):
            assert [text != "" for text, _ in row] == [key <= query for key in range(16)]
        work = orders.work(order, 4, 16)
        load = pictures[f"{order}-load"]["cells"]
        assert [[int(text) for text, _ in row] for row in load] == work
        for rank, row in enumerate(work):
            colours = Counter(cell for line in cells for cell in line if cell[1] == rank)
            assert [colours[str(step), rank] for step in range(4)] == row
    assert {colour for row in pictures["zigzag-load"]["cells"] for _, colour in row} == {0, 1, 2, 3}


def test_it_imports_the_standard_library_alone() -> None:
    text = Path(orders.__file__).read_text(encoding="utf-8")
    lines = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith("from")]
    assert set(lines) <= sys.stdlib_module_names
