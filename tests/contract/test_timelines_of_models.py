"""What a model's timelines() may return, and that nothing it returns stops the check."""

from __future__ import annotations

import math

import pytest
from anything import ANY
from hypothesis import given
from synthetic import timelines

from warpshelf.contract.timelines import MOST_PASSES, PASS_KEYS, timelines_problem


def test_sound_timelines_have_no_problem() -> None:
    assert timelines_problem(timelines()) is None
    assert timelines_problem(tuple(timelines())) is None


def drawn(**changed: object) -> list[dict]:
    """One timeline, with some of its keys replaced."""
    return [timelines()[1] | changed]


def passed(**changed: object) -> list[dict]:
    """The same, with some keys of its first pass replaced."""
    first, *rest = timelines()[1]["passes"]
    return drawn(passes=[first | changed, *rest])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "timelines() returned [], no list of rows"),
        ({}, "no list of rows"),
        (["gpipe"], "timelines() holds 'gpipe', not a dict of"),
        ([{"name": "x"}], "not a dict of held, name, note, passes, title, unit and perhaps other"),
        ([timelines()[0] | {"colour": "red"}], "not a dict of"),
        (timelines() * 2, "timeline 'one-by-one' stands twice"),
        (drawn(name="ZB/H1"), "timeline 'ZB/H1': its name is no name of small letters"),
        (drawn(name=3), "its name is no name"),
        (drawn(title=" "), "timeline 'pair': its title is ' ', no words"),
        (drawn(note=None), "its note is None, no words"),
        (drawn(other=""), "its other is '', no words"),
        (drawn(unit=0), "its unit is 0, no whole number above 0"),
        (drawn(unit=1.5), "its unit is 1.5"),
        (drawn(unit=True), "its unit is True"),
        (drawn(held=[]), "its held is [], no list"),
        (drawn(held=[1, math.nan]), "its held is"),
        (drawn(held=[1, 1, 1]), "rank 2 has no pass; leave it out of held"),
        (drawn(held=[1]), "is of a rank that held says nothing of: it has 1"),
        (drawn(passes=[]), "its passes are [], no list of 1 to"),
        (drawn(passes=[{}] * (MOST_PASSES + 1)), "no list of 1 to"),
        (drawn(passes=[{"rank": 0}]), "is no dict of chunk, end, kind, micro_batch, rank, start"),
        (passed(start=-1), "has the start -1, no whole number from 0 on"),
        (passed(end=2.0), "has the end 2.0"),
        (passed(micro_batch="0"), "has the micro_batch '0'"),
        (passed(kind="X"), "is of kind 'X', none of F, B, I, W"),
        (passed(kind=["F"]), "is of kind ['F']"),
        (passed(start=2), "ends before it has begun"),
        (passed(end=4), "rank 0 starts a pass at 3, before another ends at 4"),
        (passed(rank=1, end=6), "rank 1 does F and F and B at once, from 0 to 6"),
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
    for key in timelines()[1]:
        timelines_problem(drawn(**{key: value}))
    for key in PASS_KEYS:
        timelines_problem(passed(**{key: value}))
