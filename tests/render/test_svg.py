from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from synthetic import steady

from warpshelf.render import svg


def test_coordinates_are_short_and_never_minus_zero() -> None:
    assert [svg.at(v) for v in (1.0, 1.26, -0.01, 120.0, 0.0)] == ["1", "1.3", "0", "120", "0"]


def test_words_are_cut_to_the_room_they_have() -> None:
    assert svg.shortened("one pass", 400) == "one pass"
    cut = svg.shortened("three passes over the row", 100)
    assert cut.endswith("…") and len(cut) * svg.TEXT * svg.BROAD <= 100
    assert len(svg.shortened("数" * 40, 100)) < len(svg.shortened("a" * 40, 100))
    assert svg.shortened("abc", 0) == "…"


def test_labels_apart_stay_where_they_are_and_close_ones_share_the_move() -> None:
    assert svg.spread([10, 50, 90], 12, 0, 100) == [10, 50, 90]
    assert svg.spread([50, 50], 12, 0, 100) == [44, 56]
    assert svg.spread([2, 3], 12, 0, 100) == [0, 12]
    assert svg.spread([99, 98], 12, 0, 100) == [100, 88]


@steady
@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_labels_never_overlap_and_keep_their_order(heights: list[float]) -> None:
    placed = svg.spread(heights, 12, 0, 200)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    ranked = [placed[i] for i in order]
    assert all(b - a >= 12 - 1e-6 for a, b in zip(ranked, ranked[1:], strict=False))
    assert min(placed) >= -1e-6 and max(placed) <= 200 + 1e-6


def test_a_legend_cuts_the_name_and_keeps_the_value() -> None:
    parts, end = svg.legend(100, [svg.Entry(0, "name " * 30, ", 12 TB")], [("ws-peak", "peak")])
    assert "12 TB" in parts[1] and "…" in parts[1]
    assert end == 100 + 2 * svg.LINE
