"""Goals: what they are of, and what a record says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Trial

from warpshelf.contract import snippet
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import goals, store
from warpshelf.records.goals import Goal

ROOT = Path(__file__).parents[2]
CASE = {"m": 8, "dtype": "float32"}
CEILINGS = {
    "copy_bytes_per_second": 100.0,
    "peak_bytes_per_second": 125.0,
    "matrix_flops_per_second": {"bf16": 1000.0},
    "peak_flops_per_second": {"bf16": 2000.0},
}


def make_record(**row: Any) -> dict[str, Any]:
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
    assert goal.measured_share(make_record(**row)) == pytest.approx(share)
    assert goal._replace(variant="untimed").measured_share(make_record(**row)) is None


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
