"""Plots of a calculator: on one scale where two are compared, told in words, and inert."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from warpshelf.live import charts

BARS: dict[str, Any] = {
    "kind": "bars", "title": "Memory", "x": "rank", "y": "B",
    "series": [
        {"name": "weights", "points": [["rank 0", 3e10], ["rank 1", 6e10]]},
        {"name": "activations", "points": [["rank 0", 1e10], ["rank 1", 3e10]]},
    ],
    "limit": {"name": "80 GB", "value": 8e10},
}  # fmt: skip
LINES: dict[str, Any] = {
    "kind": "lines", "title": "Work", "x": "sequence, tokens", "y": "FLOP",
    "series": [{"name": "counted", "points": [[512 * 2**n, 1e9 * 2**n] for n in range(8)]}],
    "limit": {"name": "6 N", "value": 3e9},
}  # fmt: skip
TIMES: dict[str, Any] = {
    "kind": "timeline", "title": "1F1B", "x": "time, ms", "y": "rank",
    "series": [
        {"name": "forward", "points": [[0, 0.0, 10.0, "0"], [1, 10.0, 20.0, "0"]]},
        {"name": "backward", "points": [[1, 20.0, 40.0, "0"], [0, 40.0, 60.0, "0"]]},
    ],
}  # fmt: skip
ALL = [BARS, LINES, TIMES]


def draw_figures(*found: list[dict[str, Any]]) -> list[ElementTree.Element]:
    names = [""] if len(found) == 1 else ["first", "second"]
    return [ElementTree.fromstring(text) for text in charts.draw_charts(list(found), names)]


def read_words(figure: ElementTree.Element) -> str:
    return " ".join(" ".join(figure.itertext()).split())


def measure_bars(figure: ElementTree.Element) -> list[float]:
    """Of the bars, without those of the legend."""
    rects = [one for one in figure.iter() if one.tag.endswith("rect")]
    return [float(one.get("width") or 0) for one in rects if one.get("width") != "16"]


@pytest.mark.parametrize("plot", ALL, ids=lambda plot: plot["kind"])
def test_each_is_a_picture_that_is_told_in_words(plot: dict[str, Any]) -> None:
    [figure] = draw_figures([plot])
    picture = next(one for one in figure.iter() if one.tag.endswith("svg"))
    assert picture.get("role") == "img"
    said = read_words(figure)
    assert plot["title"] in said
    for one in plot["series"]:
        assert one["name"] in said


def test_parts_of_a_bar_stand_end_to_end_against_the_limit() -> None:
    [figure] = draw_figures([BARS])
    zero, one, two, three = measure_bars(figure)
    assert two == pytest.approx(2 * zero, abs=0.2) and three == pytest.approx(3 * one, abs=0.2)
    assert two + three == pytest.approx(392, abs=0.3)  # the longest fills the width
    said = read_words(figure)
    assert "37.3 GiB (40.0 GB)" in said and "83.8 GiB (90.0 GB), over" in said
    assert "80 GB: 74.5 GiB (80.0 GB)" in said


def test_parts_that_have_to_fit_together_are_one_bar() -> None:
    points = [["weights", 3e10], ["activations", 6e10]]
    parts = {**BARS, "x": "part", "series": [{"name": "GiB", "points": points}]}
    [figure] = draw_figures([parts])
    assert measure_bars(figure) == pytest.approx([392 / 3, 784 / 3], abs=0.2)
    said = read_words(figure)
    assert "together" in said and "83.8 GiB (90.0 GB), over" in said
    assert "A weights: 27.9 GiB (30.0 GB)" in said and "B activations: 55.9 GiB" in said
    [figure] = draw_figures([{**parts, "limit": None}])  # to be compared with each other
    assert measure_bars(figure) == pytest.approx([196, 392], abs=0.2)


def test_what_is_no_room_cannot_be_over() -> None:
    [figure] = draw_figures([{**BARS, "y": "step, ms"}])
    said = read_words(figure)
    assert "over" not in said and "rank 1: 90 000 000 000 ms;" in said


def test_two_are_drawn_on_one_scale() -> None:
    half = {**BARS, "series": [{"name": "weights", "points": [["rank 0", 4.5e10]]}]}
    first, second = draw_figures([BARS], [half])
    assert measure_bars(second)[0] == pytest.approx(196, abs=0.3)
    assert "Memory, first" in read_words(first) and "Memory, second" in read_words(second)
    short = {**TIMES, "series": [{"name": "forward", "points": [[0, 0.0, 30.0, "0"]]}]}
    first, second = draw_figures([TIMES], [short])
    assert max(measure_bars(second)) == pytest.approx(charts.SPAN / 2 - 1, abs=0.2)


def test_lines_of_two_share_a_picture_and_limits_are_told_apart() -> None:
    other = {**LINES, "limit": {"name": "6 N", "value": 6e9}}
    [figure] = draw_figures([LINES], [other])
    said = read_words(figure)
    assert "first: counted" in said and "second: counted" in said
    assert "first: 6 N: 3.00 GFLOP" in said and "second: 6 N: 6.00 GFLOP" in said
    [figure] = draw_figures([LINES], [LINES])
    assert read_words(figure).count("6 N: 3.00 GFLOP") == 2  # drawn, and told


@pytest.mark.parametrize("points", [[[1, 0.0]], [[0, 0.0], [0, 0.0]], [[5, 7.0], [9, 7.0]]])
def test_flat_and_single_lines_are_drawn(points: list[list[float]]) -> None:
    plot = {**LINES, "series": [{"name": "one", "points": points}], "limit": None}
    [figure] = draw_figures([plot])
    assert "nan" not in ElementTree.tostring(figure, encoding="unicode")


@pytest.mark.parametrize(
    ("first", "last", "unit", "said"),
    [
        (1.5, 3.25, "ms", "1.5 to 3.25 ms"),
        (2e11, 4e12, "FLOP", "200 GFLOP to 4.00 TFLOP"),
        (1e12, 4e12, "FLOP", "1.00 to 4.00 TFLOP"),
        (1, 2, "", "1 to 2"),
    ],
)
def test_the_ends_of_a_line_name_a_unit_once(
    first: float, last: float, unit: str, said: str
) -> None:
    assert charts.format_span(first, last, unit) == said


@pytest.mark.parametrize(
    ("label", "unit"),
    [("step, ms", "ms"), ("FLOP", "FLOP"), ("seconds", "s"), ("GiB", "GiB"), ("micro-batches", ""),
     ("memory a GPU (B)", "B"), ("output tokens/s of a GPU", "")],
)  # fmt: skip
def test_a_label_tells_its_unit(label: str, unit: str) -> None:
    assert charts.axis_unit(label) == unit


def test_empty_plots_leave_no_trace() -> None:
    assert draw_figures([{**LINES, "series": [{"name": "none", "points": []}]}]) == []
    [figure] = draw_figures(
        [{**BARS, "series": [{"name": "none", "points": [["a", 0]]}], "limit": None}]
    )
    assert measure_bars(figure) == []


def test_no_name_acts() -> None:
    evil = "<script>x</script>&\"'"
    for plot in ALL:
        bad = {**plot, "title": evil, "series": [{**plot["series"][0], "name": evil}]}
        [text] = charts.draw_charts([[bad]], [""])
        assert "<script" not in text
        assert evil in read_words(ElementTree.fromstring(text))
