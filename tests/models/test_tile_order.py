"""tile_order: every tile once, and panels as a brute force counts them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.tile_order import cases
from snippets.tile_order import tile_order as tiles
from warpshelf.contract import syntax
from warpshelf.contract.pictures import grids_problem
from warpshelf.contract.values import fact_problem

SIDE, RESIDENT = st.integers(1, 12), st.integers(1, 40)
quick = settings(max_examples=60)


def test_facts_hold() -> None:
    rows = cases.facts()
    assert (
        broken_facts(cases.facts()) == [] and len({row["name"] for row in rows}) == len(rows) >= 8
    )
    assert all(fact_problem(row) is None for row in rows)


@quick
@given(SIDE, SIDE, SIDE)
def test_an_order_visits_each_tile_once_and_keeps_to_its_group(m: int, n: int, group: int) -> None:
    order = tiles.grouped(m, n, group)
    assert sorted(order) == [(row, column) for row in range(m) for column in range(n)]
    assert [row // group for row, _ in order] == sorted(row // group for row, _ in order)
    for (row, column), (below, after) in zip(order, order[1:], strict=False):
        same = row // group == below // group
        assert not same or (after, below) == (column, row + 1) or after == column + 1


@quick
@given(SIDE, SIDE)
def test_groups_of_one_row_are_row_major(m: int, n: int) -> None:
    assert tiles.row_major(m, n) == sorted(tiles.row_major(m, n))


@quick
@given(SIDE, SIDE, SIDE, RESIDENT)
def test_traffic_counts_the_panels_of_each_wave(m: int, n: int, group: int, p: int) -> None:
    order = tiles.grouped(m, n, group)
    read = {("A", at // p, row) for at, (row, _) in enumerate(order)}
    read |= {("B", at // p, column) for at, (_, column) in enumerate(order)}
    assert tiles.traffic(order, p) == len(read) <= 2 * m * n
    assert tiles.traffic(order, m * n) == m + n


@quick
@given(SIDE, SIDE, RESIDENT)
def test_no_group_reads_less_than_the_best(m: int, n: int, p: int) -> None:
    best = tiles.traffic(tiles.grouped(m, n, tiles.best_group(m, n, p)), p)
    assert best == min(tiles.traffic(tiles.grouped(m, n, g), p) for g in range(1, m + 1))


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="group = 0"):
        tiles.grouped(2, 2, 0)
    with pytest.raises(ValueError, match="resident = 0"):
        tiles.waves([(0, 0)], 0)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("grouped", lambda m, n, group: tiles.row_major(m, n), "groups of 3"),
        ("panels", lambda wave: (len(wave), len(wave)), "row-major"),
        ("best_group", lambda m, n, p: 1, "reads least"),
    ],
)
def test_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tiles.grouped
    monkeypatch.setattr(tiles, "row_major", lambda m, n: real(m, n, 1))
    monkeypatch.setattr(tiles, name, value)
    assert any(fact in one for one in broken_facts(cases.facts()))


def test_pictures_are_of_the_model() -> None:
    rows = cases.grids()
    assert grids_problem(rows) is None
    for picture, order in zip(
        rows, (tiles.row_major(16, 16), tiles.grouped(16, 16, 4)), strict=True
    ):
        for number, (row, column) in enumerate(order):
            assert picture["cells"][row][column] == (str(number), number // 32)
    assert "2 panels of A and 16 of B" in rows[0]["caption"]
    assert "4 panels of A and 8 of B" in rows[1]["caption"]


def test_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(syntax.parse_python(Path(tiles.__file__)).imports)
