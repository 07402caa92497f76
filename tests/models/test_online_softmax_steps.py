"""online_softmax_steps: any blocks and any merge give the whole row's sum."""

from __future__ import annotations

from functools import reduce
from math import exp, fsum, inf
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.online_softmax_steps import cases
from snippets.online_softmax_steps import online_softmax_steps as softmax
from snippets.online_softmax_steps.online_softmax_steps import Part

LOGITS = st.floats(-1e4, 1e4) | st.just(-inf)
ROWS = st.lists(LOGITS, min_size=1, max_size=40)


def sum_row_exactly(row: list[float]) -> Part:
    m = max(row)
    return Part(m, fsum(exp(value - m) for value in row if value > -inf))


@given(ROWS, st.integers(1, 12))
def test_blocks_give_the_whole_row(row: list[float], block: int) -> None:
    steps, exponentials = softmax.online(row, block)
    assert steps[-1].after.m == sum_row_exactly(row).m
    assert steps[-1].after.d == pytest.approx(sum_row_exactly(row).d, rel=1e-12)
    assert softmax.direct(row).d == pytest.approx(sum_row_exactly(row).d, rel=1e-12)
    assert exponentials == len(row) + len(steps)


@given(st.lists(ROWS, min_size=1, max_size=6), st.randoms())
def test_parts_merge_in_any_order(rows: list[list[float]], draw: object) -> None:
    whole = sum_row_exactly([value for row in rows for value in row])
    parts = [Part(), *map(softmax.direct, rows)]
    draw.shuffle(parts)  # type: ignore[attr-defined]
    merged = reduce(add, parts)
    assert merged.m == whole.m
    assert merged.d == pytest.approx(whole.d, rel=1e-12)


def test_facts_hold_and_a_sum_that_is_not_rescaled_breaks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert broken_facts(cases.facts()) == []
    monkeypatch.setattr(Part, "scaled", lambda self, m: self.d)
    assert "merged backwards: sum" in broken_facts(cases.facts())


def test_the_picture_ends_with_the_sum() -> None:
    (grid,) = cases.grids()
    assert grid["cells"][-1][-1] == (f"{softmax.direct(softmax.ROW).d:.3f}", 0)


def test_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="an empty row"):
        softmax.direct([])
    with pytest.raises(ValueError, match="blocks of 0"):
        softmax.online([1.0], 0)
