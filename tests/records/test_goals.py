"""Goals, and spaces: what a record says of either."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Trial
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_record, make_space

from warpshelf.contract import snippet
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import goals, schema, space, store
from warpshelf.records.goals import Goal
from warpshelf.records.space import TIMES

# Goals: what they are of, and what a record says of them.

ROOT = Path(__file__).parents[2]
CASE = {"m": 8, "dtype": "float32"}
CEILINGS = {
    "copy_bytes_per_second": 100.0,
    "peak_bytes_per_second": 125.0,
    "matrix_flops_per_second": {"bf16": 1000.0},
    "peak_flops_per_second": {"bf16": 2000.0},
}


def make_record_of_goals(**row: Any) -> dict[str, Any]:
    results = [
        {"role": "variant", "name": "fast", "time": {"median": 2.0}},
        {"role": "variant", "name": "untimed"},
        {"role": "peer", "name": "torch", "time": {"median": 3.0}},
        {"role": "peer", "name": "fast", "time": {"median": 9.0}},
    ]
    found = {"case": CASE, "timed": True, "bytes": 100, "flops": 3000, "unit": "bf16"}
    return {"cases": [{**found, "results": results, **row}], "ceilings": CEILINGS}


@pytest.mark.parametrize(
    ("of", "row", "share"),
    [
        ("torch", {}, 1.5),
        ("fast", {}, 4.5),  # the peer of that name
        ("copy", {}, 0.5),
        ("product", {}, 1.5),
        ("peak", {}, 0.75),  # by FLOPs, which take longer
        ("peak", {"flops": 0}, 0.4),
        ("product", {"unit": "fp8"}, None),
        ("elsewhere", {}, None),
        ("torch", {"case": {**CASE, "m": 9}}, None),
        ("torch", {"timed": False}, None),
    ],
)
def test_the_share_that_a_record_has_measured(of: str, row: dict, share: float | None) -> None:
    goal = Goal("trial", "fast", 1.0, of, CASE)
    assert goal.measured_share(make_record_of_goals(**row)) == pytest.approx(share)
    assert goal._replace(variant="untimed").measured_share(make_record_of_goals(**row)) is None


def load_written(tmp_path: Path, text: str) -> list[Goal]:
    """The goals of a file beside the real snippets."""
    for name in ("stream", "other"):
        (tmp_path / "snippets" / name).mkdir(parents=True)
        (tmp_path / "snippets" / name / f"{name}.py").write_text("")
    (tmp_path / "snippets/goals.yml").write_text(text)
    known = [snippet.read_snippet(Project(ROOT), ROOT / "snippets" / "stream")]
    return goals.load_goals(Project(tmp_path), {one.id: one for one in known})


ROW = "- {snippet: stream, variant: float4, share: 1, of: torch, case: {op: copy, n: 1048576}}"


def test_a_goal_has_its_whole_case(tmp_path: Path) -> None:
    [goal] = load_written(
        tmp_path, f"{ROW}\n- {{snippet: other, variant: x, share: 1, of: y, case: {{}}}}"
    )
    assert goal == Goal("stream", "float4", 1, "torch", {"op": "copy", "n": 2**20})
    assert str(goal) == "1 of torch"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (", n: 1048576", "", "fits 3 timed cases; name what tells one case from the others"),
        ("1048576", "5", "fits 0 timed cases"),
        ("float4", "float8", "has no 'float8'; write one of float, float4, bulk copy"),
        ("of: torch", "of: cub", "has no 'cub'; write one of torch, copy, product, peak"),
        ("share: 1", "share: all", r"goals\[0\].share"),
        ("variant: float4, ", "", r"goals\[0\] lacks 'variant'"),
        ("- {", "- {{", "goals.yml"),
        ("snippet: stream", "snippet: steam", "no snippet 'steam'"),
    ],
)
def test_a_goal_of_what_there_is_not_is_refused(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(ShelfError, match=says):
        load_written(tmp_path, ROW.replace(old, new))


def test_every_goal_is_decided_by_one_case_and_printed() -> None:
    """With what each GPU's record has, and "not measured" where there is none."""
    found = json.loads(Trial(ROOT).run_shelf("goals", "--json").stdout)
    assert len({row["snippet"] for row in found}) >= 20
    records = {
        path.parents[1].name: store.load_record(Project(ROOT), path)
        for path in ROOT.glob("snippets/*/results/*.json")
        if path.stem != "cpu"
    }
    assert {row["snippet"] for row in found if row["measured"]} <= records.keys()
    printed = Trial(ROOT).run_shelf("goals", "stream").stdout
    assert printed.count("stream") == printed.count(" of torch") + printed.count(" of peak") == 2
    stale = [row for row in found if row["snippet"] == "stream" and not row["measured"]]
    assert printed.count("not measured") == len(stale)


# The space of a record: its rows, what no run would have written, what must agree.

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
