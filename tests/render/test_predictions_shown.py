"""Predictions on a page: the plot of errors, errors by set and goal, and every row."""

from __future__ import annotations

import html
import re

from synthetic import exhibit, goals, predictions, record

from warpshelf.render.exhibit import MachineState
from warpshelf.render.fragments import fragments


def predicted(**more: object) -> MachineState:
    found = record(0, kind="model", **{"predictions": predictions(), "goals": goals()} | more)
    return MachineState(found, "verified", "cpu")


def words(text: str) -> str:
    """What a reader sees of HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_errors_stand_by_set_with_what_they_are_held_to() -> None:
    page = words(fragments(exhibit(predicted(), kind="model"))["predictions"])
    assert "Rows Mean error Median Worst Within 5 % Within 10 %" in page
    assert "Paper, table 1 and 1 fitted 2 5.0 % 5.0 % 6.0 % 1 of 2 2 of 2" in page
    assert "Blog 1 50.0 % 50.0 % 50.0 % 0 of 1 0 of 1" in page
    assert "table 1 2 of 2 rows within 10 %; a run fails below 100 % of rows" in page
    assert "median error 6.00 %; a run fails over 6 %" in page


def test_every_row_stands_beside_what_was_published() -> None:
    page = words(fragments(exhibit(predicted(), kind="model"))["whole"])
    assert "small fitted on it 101 TFLOP/s 100 TFLOP/s +1.0 % Online normalizer" in page
    assert "middle 96 TFLOP/s 100 TFLOP/s −4.0 %" in page
    assert "a <b> node 0.75 TFLOP/s 0.5 TFLOP/s +50.0 %" in page


def test_the_plot_has_a_mark_for_each_row_and_says_the_sets() -> None:
    text = fragments(exhibit(predicted(), kind="model"))["predictions"]
    plot = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    assert plot
    drawn = plot.group()
    assert drawn.count('class="ws-s0" fill="currentColor"') == 2 + 1  # and one in the legend
    assert drawn.count('class="ws-s0" fill="none"') == 1  # fitted
    assert drawn.count('class="ws-s1" fill="currentColor"') == 1 + 1
    told = html.unescape(drawn)
    assert "<desc>Paper, table 1: median 5.0 %; Blog: median 50.0 %</desc>" in told
    heights = [float(one) for one in re.findall(r'<circle cx="[^"]+" cy="([^"]+)"', drawn)]
    assert heights[0] < heights[1]  # 1 % too large lies above 4 % too small
    assert "Rows that a constant was fitted on are hollow." in html.unescape(text)


def test_without_fitted_rows_none_is_called_hollow() -> None:
    rows = [one | {"fitted": False} for one in predictions()]
    assert "hollow" not in fragments(exhibit(predicted(predictions=rows)))["predictions"]


def test_a_set_of_fitted_rows_alone_has_no_errors() -> None:
    rows = [one | {"fitted": one["set"] == "Blog"} for one in predictions()]
    page = words(fragments(exhibit(predicted(predictions=rows, goals=goals()[:1])))["predictions"])
    assert "Blog and 1 fitted 0 none none none none none" in page


def test_a_stale_record_shows_no_prediction() -> None:
    stale = MachineState(predicted().record, "stale", "cpu")
    page = words(fragments(exhibit(stale, kind="model"))["predictions"])
    assert "5.0 %" not in page
    assert "No predictions are recorded for the present code." in page
