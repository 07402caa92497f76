"""Questions, answers and plots of a calculator."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import calculator_project
import pytest
from conftest import Trial

from warpshelf.live import charts, form

# Questions and answers: what is shown of one or two results, and whose line an error is.

AROUND = {
    "sources": {"a-paper": ["A paper <on> products", "kernels/products/#reading-a-paper"]},
    "bands": {"Measured, 2024": {"count": 10, "half": 0.01, "most": 0.05, "worst": 0.125}},
    "page": "kernels/products/#snippet-doubled",
}


@pytest.fixture
def importable_calculator(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The made-up calculator, importable as `snippets.doubled`."""
    import snippets

    calculator_project.write_calculator(trial)
    monkeypatch.setattr(snippets, "__path__", [str(trial.root / "snippets")])
    yield
    for name in [name for name in sys.modules if name.startswith("snippets.doubled")]:
        del sys.modules[name]


def ask_form(*configurations: dict[str, str], **more: Any) -> dict[str, Any]:
    question = {"id": "doubled", "root": "../../", "context": AROUND, **more}
    return form.answer_question({**question, "configurations": list(configurations)})


@pytest.mark.usefixtures("importable_calculator")
class TestAnswers:
    def test_an_answer_with_its_formula_source_test_and_band(self) -> None:
        found = ask_form({"number": "4"})
        assert "8 B of plain things" in found["answer"].replace("&#32;", " ")
        assert "half were predicted within 1.0 &#37;" in found["details"]
        assert "nine in ten within 5.0 &#37;, all within 12.5 &#37;" in found["details"]
        details = found["details"]
        assert "<code>2 &#42; number</code>" in details
        assert "A paper &#60;on&#62; products" in details and "<on>" not in details
        link = "..&#47;..&#47;kernels&#47;products&#47;&#35;snippet&#45;doubled"
        assert f'<a href="{link}">twice 2</a>' in details
        assert details.count("<svg") == 1

    def test_two_stand_side_by_side(self) -> None:
        found = ask_form({"number": "4"}, {"number": "6", "kind": "odd"})
        assert found["answer"].count("ws-calc-answer") == 2
        assert "<td>8 B</td> <td>12 B</td> <td>1.50×</td>" in found["details"]
        assert found["details"].count("<svg") == 2
        rows = list(csv.reader(io.StringIO(found["csv"])))
        assert rows[0][:4] == ["quantity", "first", "second", "unit"]
        assert rows[1][:4] == ["doubled", "8.0", "12.0", "B"]
        whole = json.loads(found["json"])
        assert [one["inputs"]["number"] for one in whole["configurations"]] == [4.0, 6.0]
        assert whole["configurations"][1]["rows"][0]["value"] == 12.0

    def test_no_band_where_no_record_has_the_set(self) -> None:
        found = ask_form({}, context={"sources": {}, "bands": {}, "page": None})
        assert "No current record compares it with Measured, 2024" in found["details"]
        assert "checked by twice 2" in found["details"]

    def test_what_is_wrong_is_one_line_at_its_input(self) -> None:
        assert ask_form({"number": "x"})["errors"] == [
            {
                "place": 0,
                "name": "number",
                "line": "Number is 'x', which is not a number; write one such as 2",
            }
        ]
        both = ask_form({"often": "13"}, {"number": "-1", "often": "17"})["errors"]
        assert both == [
            {"place": 0, "name": "often", "line": "doubled: often = 13 is unlucky; take another"},
            {"place": 1, "name": "number", "line": "Number = -1 is below 0; write 0 to 1e9"},
        ]
        [error] = ask_form({"often": "17"})["errors"]
        assert error == {"place": 0, "name": "", "line": "doubled: nothing is twice 17"}

    def test_what_is_no_error_of_values_is_not_taken_for_one(self) -> None:
        with pytest.raises(RuntimeError):
            ask_form({"often": "19"})

    def test_text_in_text_out(self) -> None:
        question = json.dumps({"id": "doubled", "configurations": [{"number": "4"}]})
        assert json.loads(form.answered(question))["csv"].startswith("quantity,value,unit")

    def test_a_field_that_is_unknown_is_named_and_does_not_act(self) -> None:
        found = ask_form({"config": json.dumps({"size": 1, "<img src=x>": 2})})
        assert "Unknown field&#58; &#60;img src&#61;x&#62;" in found["details"]
        assert "<img" not in found["details"]

    def test_a_calculator_describes_itself(self) -> None:
        found = form.describe_calculator("doubled")
        assert found["faults"] == [] and found["result"]["answer"] == "4 B of plain things"
        assert [one["name"] for one in found["inputs"]][:2] == ["number", "often"]


# Plots of a calculator: on one scale where two are compared, told in words, and inert.

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
