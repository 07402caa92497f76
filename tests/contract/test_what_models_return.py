"""What a model's pictures and predictions may be, and how their errors are told."""

from __future__ import annotations

import math

import pytest
from calculator_project import ANY
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_goals, make_grids, make_predictions, make_timelines

from warpshelf.contract import pictures as rules
from warpshelf.contract.pictures import (
    GRID,
    LONGEST,
    MOST,
    MOST_PASSES,
    PASS,
    grids_problem,
    timelines_problem,
)

# What a model's grids() and timelines() may return, and that nothing stops the check.


def change_grid(**changed: object) -> list[dict]:
    """One grid, with some of its keys replaced."""
    return [make_grids()[0] | changed]


def change_cell(value: object) -> list[dict]:
    """The same, with another first cell."""
    (_, *first), *rest = make_grids()[0]["cells"]
    return change_grid(cells=[[value, *first], *rest])


def test_sound_grids_have_no_problem() -> None:
    assert grids_problem(make_grids()) is None
    assert grids_problem(tuple(make_grids())) is None


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "grids() returned [], not a list of rows"),
        (["padded"], "grids()[0] is not an object"),
        ([make_grids()[0] | {"colour": 1}], "grids()[0] has the unknown key 'colour'"),
        (make_grids() * 2, "grid 'padded' occurs twice"),
        (change_grid(name="A/b"), "grids()[0].name is 'A/b'"),
        (change_grid(caption=" "), "grids()[0].caption is ' ', not a text"),
        (change_grid(down=3), ".down is 3, not a text"),
        (change_grid(columns=[]), f".columns is [], not a list of 1 to {MOST} names"),
        (change_grid(rows=["0"] * (MOST + 1)), f"not a list of 1 to {MOST} names"),
        (change_grid(columns=["0", 1]), "columns is ['0', 1], not a list of 1 to"),
        (change_grid(cells=[]), "its cells are not a list of 2 rows"),
        (change_grid(cells=[[["0", 1]]] * 2), "row 0 of its cells is not a list of 2"),
        (change_cell("0"), ".cells[0][0] is '0', not a text of at most"),
        (change_cell([0, 1]), ".cells[0][0] is [0, 1], not a text of at most"),
        (change_cell(["x" * (LONGEST + 1), 1]), f", not a text of at most {LONGEST} and a colour"),
        (change_cell(["0", 8]), "and a colour from -1 to 7"),
        (change_cell(["0", True]), "and a colour from -1 to 7"),
        (change_grid(legend=3), ".legend is not a list"),
        (change_grid(legend=[[-1, "plain"]]), ".legend[0] is [-1, 'plain'], not a pair of"),
    ],
)
def test_a_malformed_grid_is_named(rows: object, says: str) -> None:
    assert says in str(grids_problem(rows))


@given(ANY)
def test_pictures_of_models_whatever_comes_back_is_judged(value: object) -> None:
    for rows in (
        value,
        [value],
        change_grid(cells=value),
        change_cell(value),
        change_grid(legend=value),
    ):
        assert grids_problem(rows) is None or "\n" not in str(grids_problem(rows))


def test_the_keys_are_those_of_a_row() -> None:
    assert make_grids()[0].keys() >= {key for key in GRID if not key.endswith("?")}


def test_sound_timelines_have_no_problem() -> None:
    assert timelines_problem(make_timelines()) is None
    assert timelines_problem(tuple(make_timelines())) is None


def change_timeline(**changed: object) -> list[dict]:
    """One timeline, with some of its keys replaced."""
    return [make_timelines()[1] | changed]


def change_pass(**changed: object) -> list[dict]:
    """The same, with some keys of its first pass replaced."""
    first, *rest = make_timelines()[1]["passes"]
    return change_timeline(passes=[first | changed, *rest])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "timelines() returned [], not a list of rows"),
        ({}, "timelines() returned {}, not a list of rows"),
        (["gpipe"], "timelines()[0] is not an object"),
        ([{"name": "x"}], "timelines()[0] lacks 'title'"),
        ([make_timelines()[0] | {"colour": "red"}], "has the unknown key 'colour'"),
        (make_timelines() * 2, "timeline 'one-by-one' occurs twice"),
        (change_timeline(name="ZB/H1"), "timelines()[0].name is 'ZB/H1'"),
        (change_timeline(name=3), "timelines()[0].name is 3"),
        (change_timeline(title=" "), ".title is ' ', not a text"),
        (change_timeline(note=None), ".note is None, not a text"),
        (change_timeline(other=""), ".other is '', not a text"),
        (change_timeline(unit=0), "timeline 'pair': its unit is 0, not a whole number above 0"),
        (change_timeline(unit=1.5), ".unit is 1.5"),
        (change_timeline(unit=True), ".unit is True"),
        (change_timeline(held=[]), "has a rank that held does not list: it lists 0"),
        (
            change_timeline(held=[1, math.nan]),
            "timelines()[0].held[1] is nan, not a number of 0 or more",
        ),
        (change_timeline(held=[1, 1, 1]), "rank 2 has no pass; remove it from held"),
        (change_timeline(held=[1]), "has a rank that held does not list: it lists 1"),
        (change_timeline(passes=[]), "its passes are [], not a list of 1 to"),
        (change_timeline(passes=make_timelines()[1]["passes"] * MOST_PASSES), "not a list of 1 to"),
        (change_timeline(passes=[{"rank": 0}]), ".passes[0] lacks 'start'"),
        (change_pass(start=-1), "has the start -1, not a whole number from 0 on"),
        (change_pass(end=2.0), ".passes[0].end is 2.0"),
        (change_pass(micro_batch="0"), ".passes[0].micro_batch is '0'"),
        (change_pass(kind="X"), ".passes[0].kind is 'X', not one of F, B, I, W"),
        (change_pass(kind=["F"]), ".passes[0].kind is ['F']"),
        (change_pass(start=2), "ends before it begins"),
        (change_pass(end=4), "rank 0 starts a pass at 3, before another ends at 4"),
        (change_pass(rank=1, end=6), "rank 1 does F and F and B at once, from 0 to 6"),
    ],
)
def test_what_is_wrong_with_a_timeline_is_said(rows: object, says: str) -> None:
    said = timelines_problem(rows)
    assert said is not None and says in said, said
    assert len(said) < 300


@given(ANY)
def test_no_value_stops_the_check_of_timelines(value: object) -> None:
    assert timelines_problem(value)
    assert timelines_problem([value])
    for key in make_timelines()[1]:
        timelines_problem(change_timeline(**{key: value}))
    for key in PASS:
        timelines_problem(change_pass(**{key: value}))


# What a model's predictions() may return, how its errors are told, and which goals they meet.


def change_row(**changed: object) -> list[dict]:
    """One row, with some of its keys replaced."""
    return [make_predictions()[1] | changed]


def change_goal(**changed: object) -> dict:
    """The first goal, with some of its keys replaced; None takes one out."""
    found = make_goals()[0] | changed
    return {key: value for key, value in found.items() if value is not None}


def test_sound_rows_and_goals_have_no_problem() -> None:
    assert rules.predictions_problem(make_predictions()) is None
    assert rules.goals_problem(make_goals(), make_predictions()) is None
    assert rules.goals_problem((), make_predictions()) is None


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "predictions() returned [], not a list of rows"),
        (None, "predictions() returned None, not a list of rows"),
        (["small"], "predictions()[0] is not an object"),
        (change_row(colour=1), "predictions()[0] has the unknown key 'colour'"),
        (change_row(name=" "), ".name is ' ', not a text"),
        (change_row(source=""), ".source is '', not a text"),
        (change_row(unit=1), ".unit is 1"),
        (
            change_row(predicted=math.nan),
            "predictions()[0].predicted is nan, not a number between 1e-30 and 1e30",
        ),
        (
            change_row(predicted=math.inf),
            "predictions()[0].predicted is inf, not a number between 1e-30 and 1e30",
        ),
        (
            change_row(published=0),
            "predictions()[0].published is 0, not a number between 1e-30 and 1e30",
        ),
        (change_row(published="100"), ".published is '100'"),
        (
            change_row(predicted=1.7e308),
            ".predicted is 1.7e+308, not a number between 1e-30 and 1e30",
        ),
        (change_row(published=1e-300), ".published is 1e-300, not a number between 1e-30 and 1e30"),
        (change_row(predicted={1}), "predictions() cannot be recorded: Object of type set is not"),
        (change_row(predicted=True), ".predicted is True"),
        (change_row(fitted=0), ".fitted is 0"),
        (change_row() * 2, "prediction 'middle' occurs twice"),
    ],
)
def test_a_malformed_row_is_named(rows: object, says: str) -> None:
    assert says in str(rules.predictions_problem(rows))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (3, "GOALS is not a list"),
        (["all"], "GOALS[0] is not an object"),
        ([change_goal(share=None)], "must ask for one of: within with share"),
        ([change_goal(mean=0.1)], "must ask for one of: within"),
        ([change_goal(within=None, share=None)], "must ask for one of: within"),
        ([change_goal(name="")], "GOALS[0].name is '', not a text"),
        ([change_goal(sets=[])], "names no sets"),
        ([change_goal(sets="Blog")], "GOALS[0].sets is not a list"),
        ([change_goal(share=1.2)], "asks for a share over 1"),
        ([change_goal(within=0)], "GOALS[0].within is 0, not a number between 1e-30 and 1e30"),
        ([change_goal(sets=["Blogs"])], "names the set 'Blogs', which has no rows"),
    ],
)
def test_a_malformed_goal_is_named(asked: object, says: str) -> None:
    assert says in str(rules.goals_problem(asked, make_predictions()))


def test_a_goal_of_fitted_rows_alone_could_not_fail() -> None:
    rows = [one | {"fitted": True} for one in make_predictions()]
    assert "has only fitted rows" in str(rules.goals_problem(make_goals(), rows))


@given(ANY)
def test_predictions_of_models_whatever_comes_back_is_judged(value: object) -> None:
    for rows in (
        value,
        [value],
        change_row(set=value),
        change_row(predicted=value),
        change_row(fitted=value),
    ):
        assert "\n" not in str(rules.predictions_problem(rows))
    for asked in (
        value,
        [value],
        [change_goal(sets=value)],
        [change_goal(within=value)],
        [change_goal(name=value)],
    ):
        assert "\n" not in str(rules.goals_problem(asked, make_predictions()))


def test_errors_are_told_by_set_and_fitted_rows_do_not_count() -> None:
    assert [one.words for one in rules.errors_by_set(make_predictions())] == [
        "Paper, table 1: 2 rows, 1 fitted, mean 5.0 %, median 5.0 %, worst 6.0 %; "
        "1 within 5 %, 2 within 10 %",
        "Blog: 1 row, mean 50.0 %, median 50.0 %, worst 50.0 %; 0 within 5 %, 0 within 10 %",
    ]
    fitted = [make_predictions()[0]]
    assert [one.words for one in rules.errors_by_set(fitted)] == [
        "Paper, table 1: no rows, 1 fitted"
    ]


@pytest.mark.parametrize(
    ("asked", "met", "told"),
    [
        (change_goal(), True, "2 of 2 rows within 10 %"),
        (change_goal(within=0.05), False, "1 of 2 rows within 5 %"),
        (change_goal(within=0.05, share=0.5), True, "1 of 2 rows within 5 %"),
        (change_goal(within=None, share=None, mean=0.051), True, "mean error 5.00 %"),
        (change_goal(within=None, share=None, mean=0.049), False, "mean error 5.00 %"),
        (change_goal(within=None, share=None, worst=0.059), False, "worst error 6.00 %"),
        (make_goals()[1], True, "median error 6.00 %"),
    ],
)
def test_a_goal_is_met_by_the_rows_of_its_sets(asked: dict, met: bool, told: str) -> None:
    assert rules.judge_goal(asked, make_predictions()) == (met, told)


def test_what_a_goal_asks_for_is_said() -> None:
    assert [rules.describe_goal(one) for one in make_goals()] == [
        "100 % of rows within 10 %",
        "median error at most 6 %",
    ]


@given(st.lists(st.tuples(st.floats(0.5, 2), st.booleans()), min_size=1, max_size=20))
def test_a_looser_goal_is_met_wherever_a_stricter_one_is(pairs: list[tuple[float, bool]]) -> None:
    rows = [
        {"set": "s", "name": str(at), "predicted": one, "published": 1.0, "unit": "", "source": "x",
         "fitted": fitted}
        for at, (one, fitted) in enumerate(pairs)
    ]  # fmt: skip
    if all(fitted for _, fitted in pairs):
        return
    told = [
        rules.judge_goal(change_goal(sets=["s"], within=limit), rows)[0]
        for limit in (0.1, 0.3, 1.0)
    ]
    assert told == sorted(told) and told[-1]
