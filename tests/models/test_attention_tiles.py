"""attention_tiles: tiles say what their scores say, and decoding reads each key once."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.attention_tiles import attention_tiles as attention
from snippets.attention_tiles import cases
from snippets.attention_tiles.attention_tiles import Tile

SIDES, TILES = st.integers(1, 30), st.integers(1, 9)


@given(SIDES, SIDES, TILES, TILES, st.booleans())
def test_a_tile_is_what_its_scores_are(
    queries: int, keys: int, rows: int, columns: int, causal: bool
) -> None:
    grid = attention.tiles(queries, keys, rows, columns, causal)
    for i, line in enumerate(grid):
        for j, tile in enumerate(line):
            scores = [
                key < keys and (not causal or key <= query + keys - queries)
                for query in range(i * rows, min((i + 1) * rows, queries))
                for key in range(j * columns, (j + 1) * columns)
            ]
            wanted = Tile.WHOLE if all(scores) else Tile.EDGE if any(scores) else Tile.NONE
            assert tile is wanted, (i, j)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 20), st.integers(1, 16))
def test_every_chunk_is_read_once(sequences: int, parts: int, chunks: int, sms: int) -> None:
    lines = attention.decode(sequences, parts, chunks, sms)
    cells = [cell for line in lines for cell in line]
    for one in range(sequences):
        assert cells.count(chr(ord("A") + one)) == chunks
    reading = len(lines) - (parts > 1)
    assert reading >= ceil(sequences * chunks / sms)
    assert 0 < attention.busy(lines) <= 1


def test_facts_hold_and_a_mask_off_by_one_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(cases.facts()) == []
    true = attention.tiles
    monkeypatch.setattr(attention, "tiles", lambda n, m, *more: true(n, m + 1, *more))
    assert "512 tokens: tiles with a mask" in broken_facts(cases.facts())


def test_pictures_agree_with_the_text_beside_them() -> None:
    grids = {one["name"]: one["cells"] for one in cases.grids()}
    assert all([cell for cell, _ in line].count("mask") == 2 for line in grids["causal"])
    idle = [cell == "" for line in grids["whole"] for cell, _ in line]
    assert sum(idle) / len(idle) == 3 / 4
    assert len(grids["cut"]) - 1 == len(grids["whole"]) / 4


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="keys = 0 must be 1 or more"):
        attention.tiles(4, 0)
    with pytest.raises(ValueError, match="parts = 0 must be 1 or more"):
        attention.decode(4, 0, 8, 16)
