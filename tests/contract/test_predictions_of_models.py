"""What a model's predictions() may return, how its errors are told, and which goals they meet."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_goals, make_predictions
from plain_values import ANY

from warpshelf.contract import pictures as rules


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
def test_whatever_comes_back_is_judged(value: object) -> None:
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
