"""sectors: brute force by bytes, and mistakes that break a published count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.sectors import cases, sectors
from warpshelf.contract import syntax
from warpshelf.contract.pictures import grids_problem
from warpshelf.contract.values import fact_problem

WIDTHS = st.sampled_from((4, 8, 16))
quick = settings(max_examples=60)


def test_facts_hold() -> None:
    rows = cases.facts()
    assert (
        broken_facts(cases.facts()) == [] and len({row["name"] for row in rows}) == len(rows) >= 16
    )
    assert all(fact_problem(row) is None and row["source"] for row in rows)


@quick
@given(st.lists(st.integers(0, 2048), min_size=1, max_size=32), WIDTHS)
def test_sectors_are_those_of_the_bytes(chosen: list[int], width: int) -> None:
    addresses = [width * place for place in chosen]
    asked = {address + byte for address in addresses for byte in range(width)}
    moved = {byte // 32 for byte in asked}
    assert sectors.sectors(addresses, width) == len(moved)
    assert sectors.lines(addresses, width) == len({byte // 128 for byte in asked})
    assert sectors.efficiency(addresses, width) == len(asked) / (32 * len(moved))
    assert sum(sectors.touched(addresses, width).values()) == len(chosen)


@quick
@given(st.integers(1, 64), WIDTHS)
def test_a_stride_touches_a_sector_an_element_at_most(stride: int, width: int) -> None:
    counted = sectors.sectors(sectors.strided(stride, width), width)
    assert counted == min(32, stride * width)  # bytes from one lane to the next


@quick
@given(st.integers(0, 31))
def test_side_by_side_is_the_least(shift: int) -> None:
    addresses = sectors.strided(1, start=4 * shift)
    assert sectors.least(addresses) == 4
    assert sectors.sectors(addresses) == (4 if shift % 8 == 0 else 5)
    assert sectors.sectors([*addresses[:8], *[None] * 24]) <= 2


@pytest.mark.parametrize(
    ("addresses", "width", "said"),
    [([2], 4, "no multiple of 4"), ([0], 5, "width = 5"), ([0] * 33, 4, "33 lanes")],
)
def test_bad_input_is_refused(addresses: list[int], width: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sectors.sectors(addresses, width)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("SECTOR", 64, "sectors of a load request"),
        ("least", lambda addresses, width=4: 0, "excessive"),
        ("efficiency", lambda addresses, width: 1.0, "used of what is"),
    ],
)
def test_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sectors, name, value)
    assert any(fact in one for one in broken_facts(cases.facts()))


def test_the_picture_counts_each_lane_once() -> None:
    [picture] = rows = cases.grids()
    assert grids_problem(rows) is None
    for line in picture["cells"]:
        assert sum(int(text or 0) for text, _ in line) == 32
    shifted = picture["cells"][picture["rows"].index("1+4B")]
    assert shifted[:6] == [("7", 1), ("8", 0), ("8", 0), ("8", 0), ("1", 1), ("", -1)]


def test_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(syntax.parse_python(Path(sectors.__file__)).imports)
