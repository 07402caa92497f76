"""Questions, answers and plots of a calculator, and the units of what goes in and comes out."""

from __future__ import annotations

import copy
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
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.live import charts, form, quantities
from warpshelf.live.quantities import InputError

# Questions, answers and plots.

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


# What goes in is taken or refused by name; what comes out has its unit.

LAYERS = {
    "name": "layers", "label": "Layers", "group": "Model", "kind": "integer",
    "default": 32, "least": 1, "most": 1000, "unit": "", "help": "How many.",
}  # fmt: skip
TIME = {**LAYERS, "name": "time", "label": "Time", "kind": "number", "default": 2.5, "most": 1e18}
STAGE = {**LAYERS, "name": "stage", "kind": "choice", "default": "0", "choices": ("0", "1")}
TIED = {**LAYERS, "name": "tied", "kind": "flag", "default": False}
PASTED = {**LAYERS, "name": "pasted", "label": "Config", "kind": "config", "default": ""}
SPEC = [LAYERS, TIME, STAGE, TIED, PASTED]


def parse_input(one: dict[str, Any], text: str) -> Any:
    return quantities.parse_inputs([one], {one["name"]: text})[one["name"]]


@pytest.mark.parametrize(
    ("one", "text", "value"),
    [
        (LAYERS, "80", 80), (LAYERS, " 8 0 ", 80), (LAYERS, "8_0", 80), (LAYERS, "8e1", 80),
        (LAYERS, "1000", 1000), (TIME, "1e18", 1e18), (TIME, "3", 3.0), (TIME, "2.5", 2.5),
        (STAGE, "1", "1"), (TIED, "1", True), (TIED, "0", False), (PASTED, '{"a": 1}', '{"a": 1}'),
    ],
)  # fmt: skip
def test_a_text_means_a_value(one: dict[str, Any], text: str, value: Any) -> None:
    found = parse_input(one, text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("one", "text", "line"),
    [
        (LAYERS, "", "Layers is empty; write a number such as 32"),
        (LAYERS, "0", "Layers = 0 is below 1; write 1 to 1000"),
        (LAYERS, "1001", "Layers = 1001 is above 1000; write 1 to 1000"),
        (LAYERS, "2.5", "Layers = 2.5 is not a whole number; write one such as 32"),
        (LAYERS, "x<b>", "Layers is 'x<b>', which is not a number; write one such as 32"),
        (LAYERS, "nan", "Layers is not finite; write a number such as 32"),
        (TIME, "1e999", "Time is not finite; write a number such as 2.5"),
        (TIME, "2e18", "Time = 2e18 is above 1e18; write 1 to 1e18"),
        (STAGE, "2", "Layers is '2'; choose one of 0, 1"),
        (PASTED, "x" * 20_001, "Config has 20001 characters; paste at most 20000"),
    ],
)
def test_a_text_that_means_none_is_named(one: dict[str, Any], text: str, line: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_input(one, text)
    assert str(raised.value) == line and raised.value.name == one["name"]


def test_what_is_not_given_is_as_the_calculator_has_it() -> None:
    assert quantities.parse_inputs(SPEC, {"layers": "2", "unknown": "7"}) == {
        "layers": 2, "time": 2.5, "stage": "0", "tied": False, "pasted": "",
    }  # fmt: skip


@given(st.sampled_from(SPEC), st.text(max_size=60))
def test_no_text_does_worse_than_being_refused(one: dict[str, Any], text: str) -> None:
    try:
        value = parse_input(one, text)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 300
    else:
        assert (
            parse_input(one, quantities.format_input(one, value)) == value
        )  # what a form shows means the same


def test_sound_inputs_have_no_fault() -> None:
    assert list(quantities.input_faults(SPEC)) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "colour"}, "INPUTS[0] has the kind 'colour', not one of integer, number"),
        ({"default": 0}, "INPUTS[0] has a default that it refuses: Layers = 0 is below 1"),
        ({"default": 2.5}, "INPUTS[0] has a default that it refuses: Layers = 2.5 is not a"),
        (
            {"name": "two words"},
            "INPUTS[0] is called 'two words', not a unique identifier",
        ),
        ({"kind": "choice"}, "INPUTS[0] lacks 'choices'"),
        ({"kind": "choice", "choices": ("a",)}, "INPUTS[0] has a default that it refuses"),
    ],
)
def test_each_fault_of_an_input_is_named(change: dict[str, Any], says: str) -> None:
    [line] = quantities.input_faults([{**LAYERS, **change}])
    assert line.startswith(says)


def test_faults_of_the_whole() -> None:
    assert list(quantities.input_faults(())) == ["INPUTS is not a tuple of inputs"]
    assert list(quantities.input_faults("abc")) == ["INPUTS is not a tuple of inputs"]
    assert list(quantities.input_faults([LAYERS, LAYERS])) == [
        "INPUTS[1] is called 'layers', not a unique identifier"
    ]
    [lacking] = quantities.input_faults([{key: LAYERS[key] for key in LAYERS if key != "most"}])
    assert lacking == "INPUTS[0] lacks 'most'"


ROW = {
    "name": "weights", "value": 1.5e9, "unit": "B", "formula": "2 * parameters",
    "source": "zero", "test": "weights of GPT-3",
}  # fmt: skip
PLOT = {
    "kind": "bars", "title": "Parts", "x": "part", "y": "B",
    "series": [{"name": "first", "points": [["weights", 1.5e9]]}], "limit": None,
}  # fmt: skip
RESULT: dict[str, Any] = {
    "answer": "1.5 GB", "rows": [ROW], "plots": [PLOT], "band": None, "notes": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (8e10, "B", "74.5 GiB (80.0 GB)"),
        (1024**3, "B", "1 GiB (1.07 GB)"),
        (12, "B", "12 B"),
        (0.0042, "s", "4.20 ms"),
        (90.0, "s", "90.0 s"),
        (7_300.0, "s", "2.03 h"),
        (200_000.0, "s", "2.31 days"),
        (9.89e14, "FLOP/s", "989 TFLOP/s"),
        (3.8e25, "FLOP", "3.80e25 FLOP"),
        (5.2e10, "FLOP", "52.0 GFLOP"),
        (28.994, "%", "28.99 %"),
        (8_030_261_248, "", "8\u202f030\u202f261\u202f248"),
        (338.4567, "ms", "338.5 ms"),
        (4, "micro-batches", "4 micro-batches"),
        ("1F1B", "", "1F1B"),
        (float("nan"), "B", "unknown"),
    ],
)
def test_values_are_shown_with_their_unit(value: object, unit: str, shown: str) -> None:
    assert quantities.format_value(value, unit) == shown


@pytest.mark.parametrize(
    ("second", "first", "shown"),
    [(2, 1, "2.00×"), (1, 1, "same"), (1, 0, "differs"), ("a", "b", "differs"), (0, 3, "0×")],
)
def test_a_second_value_is_set_against_the_first(second: object, first: object, shown: str) -> None:
    assert quantities.compare_values(first, second) == shown


def test_a_sound_result_has_no_fault() -> None:
    assert list(quantities.result_faults(RESULT)) == []


def change_result(path: list[Any], value: Any) -> dict[str, Any]:
    result = copy.deepcopy(RESULT)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return result


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["answer"], " ", "calculate returns no text 'answer'"),
        (["rows"], [], "calculate returns no 'rows'"),
        (["rows", 0, "test"], None, "rows[0] lacks 'test'"),
        (["rows", 0, "value"], float("inf"), "rows[0] has the value inf, which is not a finite"),
        (["rows"], [ROW, ROW], "two rows are called 'weights'"),
        (["plots", 0, "kind"], "pie", "plots[0] has the kind 'pie', not one of bars, lines"),
        (["plots", 0, "series"], [], "plots[0] has no series"),
        (["plots", 0, "x"], None, "plots[0] lacks 'x'"),
    ],
)
def test_each_fault_is_named(path: list[Any], value: Any, says: str) -> None:
    [line] = quantities.result_faults(change_result(path, value))
    assert line.startswith(says)


def test_no_result_at_all() -> None:
    assert list(quantities.result_faults(None)) == ["calculate does not return a dict"]


def test_csv_has_every_value_in_full() -> None:
    other = {**RESULT, "rows": [{**ROW, "value": 1 / 3}, {**ROW, "name": "more", "value": "a,b"}]}
    rows = list(csv.reader(io.StringIO(quantities.csv_table([RESULT, other], ["first", "second"]))))
    assert rows[0][:3] == ["quantity", "first", "second"]
    assert rows[1][:4] == ["weights", "1500000000.0", "0.3333333333333333", "B"]
    assert rows[2][:3] == ["more", "", "a,b"]  # what only one has
