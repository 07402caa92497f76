"""warp_shuffles: both sums are sums, and only a butterfly leaves them everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.warp_shuffles import cases
from snippets.warp_shuffles import warp_shuffles as shuffles
from warpshelf.contract import syntax
from warpshelf.contract.pictures import grids_problem
from warpshelf.contract.values import fact_problem

VALUES = st.integers(0, 5).flatmap(
    lambda steps: st.lists(st.integers(-99, 99), min_size=2**steps, max_size=2**steps)
)
quick = settings(max_examples=60)


def test_facts_hold() -> None:
    assert broken_facts(cases.facts()) == [] and len(cases.facts()) == 5
    assert all(fact_problem(row) is None for row in cases.facts())


@quick
@given(VALUES)
def test_a_butterfly_leaves_the_sum_in_every_lane_and_a_tree_in_the_first(values) -> None:
    across, down = shuffles.butterfly(values), shuffles.tree(values)
    assert across[-1] == [sum(values)] * len(values)
    assert down[-1][0] == sum(values)
    assert len(across) == len(down) == len(values).bit_length()


@quick
@given(VALUES)
def test_the_lanes_that_are_needed_alone_give_the_sum(values) -> None:
    held = list(values)
    for offset, need in zip(shuffles.offsets(len(held)), shuffles.needed(len(held)), strict=True):
        held = [value + held[lane + offset] for lane, value in enumerate(held[:need])]
    assert held == [sum(values)]


@pytest.mark.parametrize("lanes", [0, 3, 24, 33])
def test_lanes_that_are_no_power_of_two_are_refused(lanes: int) -> None:
    with pytest.raises(ValueError, match=f"{lanes} lanes are no power of two"):
        shuffles.butterfly([1] * lanes)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("xor_step", shuffles.down_step, "butterfly: lanes"),
        ("down_step", lambda values, offset: list(values), "tree: sum"),
        ("needed", lambda: [32] * 5, "tree: additions"),
    ],
)
def test_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffles, name, value)
    assert any(fact in one for one in broken_facts(cases.facts()))


def test_pictures_show_who_takes_from_whom() -> None:
    rows = cases.grids()
    assert grids_problem(rows) is None
    across, down = rows
    values = list(range(32))
    for row, offset in enumerate(shuffles.offsets()):
        taken = [int(text) for text, _ in across["cells"][row]]
        moved = [value + values[source] for value, source in zip(values, taken, strict=True)]
        assert moved == shuffles.xor_step(values, offset)
        if offset <= 8:  # one colour, one value
            held = shuffles.butterfly(range(32))[row + 1]
            colours = [colour for _, colour in across["cells"][row]]
            assert len(set(zip(colours, held, strict=True))) == offset
        assert sum(bool(text) for text, _ in down["cells"][row]) == offset


def test_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(syntax.parse_python(Path(shuffles.__file__)).imports)
