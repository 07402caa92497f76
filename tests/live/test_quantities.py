"""What goes into a calculator is taken or refused by name; what comes out has its unit."""

from __future__ import annotations

import copy
import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.live import quantities
from warpshelf.live.quantities import InputError

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
