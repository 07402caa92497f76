"""The space of a record: its rows, what no run would have written, what must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_record, make_space

from warpshelf.records import schema, space
from warpshelf.records.space import TIMES

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789_.-", min_size=1, max_size=12)
FIGURES = st.lists(st.floats(0, 1e12).map(lambda one: float(f"{one:.6g}")), max_size=6)


@given(st.lists(WORDS, min_size=1, max_size=5), FIGURES)
def test_a_row_is_read_as_it_was_written(values: list[str], figures: list[float]) -> None:
    if figures:
        assert space.parse_row(space.format_row(values, figures)) == (tuple(values), tuple(figures))


@given(st.text(max_size=40))
def test_a_line_that_is_no_row_is_a_value_error(line: str) -> None:
    try:
        row = space.parse_row(line)
    except ValueError as error:
        assert len(str(error).splitlines()) <= 1
    else:
        assert ": " in line and all(isinstance(one, float) for one in row.figures)


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_sound_space_is_taken(gpus: int) -> None:
    found = make_record(gpus, space=make_space(gpus))
    assert schema.shape_problem(found) is None
    assert schema.validation_error(found) is None


def get_rows(of: dict[str, Any]) -> list[str]:
    return of["rows"]["sm_90"]


def find_error_after(what: Callable[[dict[str, Any]], object], gpus: int = 0) -> str:
    made = make_space(gpus)
    what(made)
    found = make_record(gpus, space=made)
    assert schema.shape_problem(found) is None
    return schema.validation_error(found) or ""


def replace_first_line(line: str) -> Callable[[dict[str, Any]], object]:
    return lambda one: get_rows(one).__setitem__(0, line)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (lambda one: one.update(figures=list(TIMES)), "has the figures median"),
        (lambda one: one.update(rows={}), "is empty"),
        (lambda one: one["rows"].update(gpu=get_rows(one)), "'gpu', which is not an architecture"),
        (lambda one: get_rows(one).pop(), "has other configurations than on other targets"),
        (replace_first_line("16 0"), "no colon"),
        (replace_first_line("16 0: 1 2 three 4 5"), "a figure that is not a number"),
        (replace_first_line("16: 1 2 3 4 5"), "has 1 values for 2 parameters"),
        (
            replace_first_line("17 0: 1 2 3 4 5"),
            "has the value 17, which its parameter does not take",
        ),
        (replace_first_line("16 1: 1 2 3 4 5"), "has a configuration twice"),
        (replace_first_line("16 0: 1 2 3 4"), "has 4 figures, not 5"),
        (replace_first_line("16 0: 1 2 3 4 nan"), "has a figure that is negative or not finite"),
        (replace_first_line("16 0: 1 2 3 4 -5"), "has a figure that is negative or not finite"),
    ],
)
def test_what_no_run_would_have_written_is_refused(what: Callable, says: str) -> None:
    assert says in find_error_after(what)


@pytest.mark.parametrize("figures", ["0 0 0 15", "2 3 4 15", "2 1 1 15", "2 1 3 0"])
def test_a_time_that_cannot_be_is_refused(figures: str) -> None:
    assert "has no possible time" in find_error_after(
        replace_first_line(f"16 0: {figures}"), gpus=1
    )


def test_an_honest_space_has_no_fault() -> None:
    assert list(space.space_errors({"space": make_space(1)}, {"space": make_space()})) == []
    assert list(space.space_errors({}, {})) == []


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ({}, "leaves out its space"),
        ({"space": make_space(1, timed={"m": 8})}, "differs in the timed of its space"),
        (
            {"space": make_space(1, rows={"sm_90": ["16 0: 2 1 3 15"]})},
            "leaves out 3 configurations",
        ),
    ],
)
def test_a_space_that_leaves_out_what_is_due_is_found(claim: dict, says: str) -> None:
    assert says in next(space.space_errors(claim, {"space": make_space()}))


def test_a_space_that_adds_is_found() -> None:
    less = make_space(rows={"sm_90": make_space()["rows"]["sm_90"][:3]})
    assert "1 unexpected configurations" in next(
        space.space_errors({"space": make_space(1)}, {"space": less})
    )
    assert (
        next(space.space_errors({"space": make_space(1)}, {}))
        == "has a space, which is not expected"
    )
