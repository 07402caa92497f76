"""Results of a calculator: their shape is checked, and values are shown with their units."""

from __future__ import annotations

import copy
import csv
import io
from typing import Any

import pytest

from warpshelf.live import results

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
    assert results.shown(value, unit) == shown


@pytest.mark.parametrize(
    ("second", "first", "shown"),
    [(2, 1, "2.00×"), (1, 1, "same"), (1, 0, "differs"), ("a", "b", "differs"), (0, 3, "0×")],
)
def test_a_second_value_is_set_against_the_first(second: object, first: object, shown: str) -> None:
    assert results.against(second, first) == shown


def test_a_sound_result_has_no_fault() -> None:
    assert list(results.faults(RESULT)) == []


def changed(path: list[Any], value: Any) -> dict[str, Any]:
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
        (["answer"], " ", "calculate returns no 'answer' in words"),
        (["rows"], [], "calculate returns no 'rows'"),
        (["rows", 0, "test"], None, "rows[0] lacks 'test'"),
        (["rows", 0, "value"], float("inf"), "rows[0] has the value inf, which is no finite"),
        (["rows"], [ROW, ROW], "two rows are called 'weights'"),
        (["plots", 0, "kind"], "pie", "plots[0] has the kind 'pie', not one of bars, lines"),
        (["plots", 0, "series"], [], "plots[0] has no series"),
        (["plots", 0, "x"], None, "plots[0] lacks 'x'"),
    ],
)
def test_each_fault_is_named(path: list[Any], value: Any, says: str) -> None:
    [line] = results.faults(changed(path, value))
    assert line.startswith(says)


def test_no_result_at_all() -> None:
    assert list(results.faults(None)) == ["calculate returns no dict"]


def test_csv_has_every_value_in_full() -> None:
    other = {**RESULT, "rows": [{**ROW, "value": 1 / 3}, {**ROW, "name": "more", "value": "a,b"}]}
    rows = list(csv.reader(io.StringIO(results.table([RESULT, other], ["first", "second"]))))
    assert rows[0][:3] == ["quantity", "first", "second"]
    assert rows[1][:4] == ["weights", "1500000000.0", "0.3333333333333333", "B"]
    assert rows[2][:3] == ["more", "", "a,b"]  # what only one has
