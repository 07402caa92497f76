"""Inputs of a calculator: texts of a form become values, or one clear line says why not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.live import inputs
from warpshelf.live.inputs import InputError

LAYERS = {
    "name": "layers", "label": "Layers", "group": "Model", "kind": "integer",
    "default": 32, "least": 1, "most": 1000, "unit": "", "help": "How many.",
}  # fmt: skip
TIME = {**LAYERS, "name": "time", "label": "Time", "kind": "number", "default": 2.5, "most": 1e18}
STAGE = {**LAYERS, "name": "stage", "kind": "choice", "default": "0", "choices": ("0", "1")}
TIED = {**LAYERS, "name": "tied", "kind": "flag", "default": False}
PASTED = {**LAYERS, "name": "pasted", "label": "Config", "kind": "config", "default": ""}
SPEC = [LAYERS, TIME, STAGE, TIED, PASTED]


def read(one: dict[str, Any], text: str) -> Any:
    return inputs.typed([one], {one["name"]: text})[one["name"]]


@pytest.mark.parametrize(
    ("one", "text", "value"),
    [
        (LAYERS, "80", 80), (LAYERS, " 8 0 ", 80), (LAYERS, "8_0", 80), (LAYERS, "8e1", 80),
        (LAYERS, "1000", 1000), (TIME, "1e18", 1e18), (TIME, "3", 3.0), (TIME, "2.5", 2.5),
        (STAGE, "1", "1"), (TIED, "1", True), (TIED, "0", False), (PASTED, '{"a": 1}', '{"a": 1}'),
    ],
)  # fmt: skip
def test_a_text_means_a_value(one: dict[str, Any], text: str, value: Any) -> None:
    found = read(one, text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("one", "text", "line"),
    [
        (LAYERS, "", "Layers is empty; write a number such as 32"),
        (LAYERS, "0", "Layers = 0 is below 1; write 1 to 1000"),
        (LAYERS, "1001", "Layers = 1001 is above 1000; write 1 to 1000"),
        (LAYERS, "2.5", "Layers = 2.5 is no whole number; write one such as 32"),
        (LAYERS, "x<b>", "Layers is 'x<b>', which is no number; write one such as 32"),
        (LAYERS, "nan", "Layers is not finite; write a number such as 32"),
        (TIME, "1e999", "Time is not finite; write a number such as 2.5"),
        (TIME, "2e18", "Time = 2e18 is above 1e18; write 1 to 1e18"),
        (STAGE, "2", "Layers is '2'; choose one of 0, 1"),
        (PASTED, "x" * 20_001, "Config has 20001 characters; paste at most 20000"),
    ],
)
def test_a_text_that_means_none_is_named(one: dict[str, Any], text: str, line: str) -> None:
    with pytest.raises(InputError) as raised:
        read(one, text)
    assert str(raised.value) == line and raised.value.name == one["name"]


def test_what_is_not_given_is_as_the_calculator_has_it() -> None:
    assert inputs.typed(SPEC, {"layers": "2", "unknown": "7"}) == {
        "layers": 2, "time": 2.5, "stage": "0", "tied": False, "pasted": "",
    }  # fmt: skip


@given(st.sampled_from(SPEC), st.text(max_size=60))
def test_no_text_does_worse_than_being_refused(one: dict[str, Any], text: str) -> None:
    try:
        value = read(one, text)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 300
    else:
        assert read(one, inputs.text_of(one, value)) == value  # what a form shows means the same


def test_sound_inputs_have_no_fault() -> None:
    assert list(inputs.faults(SPEC)) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "colour"}, "INPUTS[0] has the kind 'colour', not one of integer, number"),
        ({"default": 0}, "INPUTS[0] has a default that it refuses: Layers = 0 is below 1"),
        ({"default": 2.5}, "INPUTS[0] has a default that it refuses: Layers = 2.5 is no whole"),
        ({"name": "two words"}, "INPUTS[0] is called 'two words', which is no name of its own"),
        ({"kind": "choice"}, "INPUTS[0] lacks 'choices'"),
        ({"kind": "choice", "choices": ("a",)}, "INPUTS[0] has a default that it refuses"),
    ],
)
def test_each_fault_is_named(change: dict[str, Any], says: str) -> None:
    [line] = inputs.faults([{**LAYERS, **change}])
    assert line.startswith(says)


def test_faults_of_the_whole() -> None:
    assert list(inputs.faults(())) == ["INPUTS is no tuple of inputs"]
    assert list(inputs.faults("abc")) == ["INPUTS is no tuple of inputs"]
    assert list(inputs.faults([LAYERS, LAYERS])) == [
        "INPUTS[1] is called 'layers', which is no name of its own"
    ]
    [lacking] = inputs.faults([{key: LAYERS[key] for key in LAYERS if key != "most"}])
    assert lacking == "INPUTS[0] lacks 'most'"
