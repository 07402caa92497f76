"""stream_k: every iteration once, and times by formula."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.stream_k import cases
from snippets.stream_k import stream_k as streams
from snippets.stream_k.stream_k import Schedule, Share
from warpshelf.contract import syntax
from warpshelf.contract.pictures import grids_problem
from warpshelf.contract.values import fact_problem

SIZE = st.integers(1, 24)
BUILDERS = (streams.data_parallel, streams.stream_k, streams.hybrid)
quick = settings(max_examples=60)


def list_covered_steps(made: Schedule) -> list[tuple[int, int]]:
    return sorted((s.tile, i) for mine in made.sms for s in mine for i in range(s.begin, s.end))


def test_facts_hold() -> None:
    rows = cases.facts()
    assert (
        broken_facts(cases.facts()) == [] and len({row["name"] for row in rows}) == len(rows) >= 14
    )
    assert all(fact_problem(row) is None for row in rows)


@quick
@given(SIZE, SIZE, SIZE, st.data())
def test_each_iteration_is_done_once(tiles: int, iterations: int, sms: int, data) -> None:
    parts = data.draw(st.integers(1, iterations))
    every = [(tile, i) for tile in range(tiles) for i in range(iterations)]
    made = [build(tiles, iterations, sms) for build in BUILDERS]
    for one in (*made, streams.split_k(tiles, iterations, sms, parts)):
        assert list_covered_steps(one) == every
        assert one.efficiency == len(every) / (sms * one.makespan)
        assert one.makespan >= ceil(len(every) / sms)


@quick
@given(SIZE, SIZE, SIZE)
def test_times_are_those_of_the_formulas(tiles: int, iterations: int, sms: int) -> None:
    whole, streamed, both = (build(tiles, iterations, sms) for build in BUILDERS)
    assert whole.makespan == ceil(tiles / sms) * iterations
    assert streamed.makespan == both.makespan == ceil(tiles * iterations / sms)
    assert whole.exchanges == whole.shared == 0
    for made in (streamed, both):
        assert made.shared < sms and made.exchanges < sms
    if tiles % sms == 0:
        assert both.exchanges == 0


def test_an_exchange_is_a_share_beyond_the_first() -> None:
    made = Schedule(
        "by hand", [[Share(0, 0, 2)], [Share(0, 2, 3), Share(1, 0, 1)], [Share(0, 3, 5)]]
    )
    assert (made.shared, made.exchanges, made.makespan) == (1, 2, 2)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [((0, 4, 4), "tiles = 0"), ((4, 0, 4), "iterations = 0"), ((4, 4, 0), "sms = 0")],
)
def test_bad_input_is_refused(sizes: tuple[int, int, int], said: str) -> None:
    for build in BUILDERS:
        with pytest.raises(ValueError, match=said):
            build(*sizes)
    with pytest.raises(ValueError, match="parts = 5 exceeds the 4"):
        streams.split_k(4, 4, 4, 5)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("stream_k", streams.data_parallel, "stream-K: busy"),
        ("split_k", lambda t, i, p, parts: streams.stream_k(t, i, p), "split in 2"),
        ("data_parallel", streams.stream_k, "128 x 128: busy"),
        ("hybrid", streams.data_parallel, "data-parallel: iterations"),
    ],
)
def test_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, name, value)
    assert any(fact in one for one in broken_facts(cases.facts()))


def test_pictures_are_of_the_model() -> None:
    rows = cases.grids()
    assert grids_problem(rows) is None
    by_name = {row["name"]: row["cells"] for row in rows}
    for cells in by_name.values():
        busy = [cell for line in cells for cell in line if cell[0]]
        assert len(busy) == 9 * 32 // 4
    assert [line.count(("", -1)) for line in by_name["data-parallel"]] == [0, 8, 8, 8]
    assert [line.count(("", -1)) for line in by_name["stream-k"]] == [6, 6, 6, 6]


def test_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(syntax.parse_python(Path(streams.__file__)).imports)
