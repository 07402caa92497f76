"""time_tiles: tiles alone reach what single steps reach, at the counted cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.time_tiles import cases
from snippets.time_tiles import time_tiles as tiles


@given(
    st.lists(st.integers(0, 96), min_size=1, max_size=40),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_a_sweep_is_so_many_steps(cells: list[int], n: int, r: int, depth: int) -> None:
    out, count = tiles.sweep(cells, n, r, depth)
    assert out == cases.plain(cells, r, depth)
    assert count.written == len(cells)
    assert count.read == len(cells) + 2 * r * depth * -(-len(cells) // n)


def test_facts_hold_and_a_halo_too_small_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(cases.facts()) == []
    true = tiles.step
    monkeypatch.setattr(tiles, "step", lambda cells, r, rule: true([0, *cells[1:]], r, rule))
    assert "tiles of 64, r 1, T 4: wrong cells" in broken_facts(cases.facts())


def test_the_picture_counts_what_the_formula_says() -> None:
    (grid,) = cases.grids()
    cells = [text for line in grid["cells"][1:] for text, _ in line if text]
    assert len(cells) / cells.count("own") == tiles.repeated(8, 1, 4)
    loaded = [text for text, _ in grid["cells"][0] if text]
    assert (len(loaded) + 8) / (8 * 4) == tiles.words(8, 1, 4)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="depth = 0 must be 1 or more"):
        tiles.sweep([1], 1, 1, 0)
