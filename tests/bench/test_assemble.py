"""How the answers of the children of three targets become one record."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from conftest import Trial
from cudasnippet import CASES, MODULE, SOUND

from warpshelf.bench import assemble
from warpshelf.bench.pool import Outcome
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import machine, schema
from warpshelf.worker.task import Task

DEMO = "\n{token} demo 1\none\n\n{token} demo 2\none\n\n{token} end\n"
LINES = [{"at": "trial.cu:3", "classes": {"move": 1}}]
RESULT = {"name": "ours", "role": "variant", "verdict": "passed", "error": 0.0, "tolerance": 1.0}
CASE = {"m": 7}


def gathered(trial: Trial) -> assemble.Gathered:
    home = trial.root / "snippets" / "trial"
    home.mkdir(parents=True)
    for name, text in (("trial.py", MODULE), ("cases.py", CASES), ("trial.cu", SOUND)):
        (home / name).write_text(text)
    one = snippet.read(Project(trial.root), home)
    assert not one.findings, one.findings
    return assemble.Gathered(one, machine.plain(), None)


def answer(launches: int) -> dict[str, Any]:
    row = {"variant": "ours", "kernel": "k", "case": CASE, "launches": launches, "lines": LINES}
    cases = [{"case": CASE, "timed": False, "results": [RESULT]}]
    return {"cases": cases, "skips": [], "failures": [], "counts": [row], "due": []}


def test_one_child_lists_what_is_due(trial: Trial) -> None:
    jobs = [job for job in gathered(trial).jobs(1.0) if job.do is Task.VERIFY]
    assert {job.details["target"]: job.details["due"] for job in jobs} == {
        "sm_90": True,
        "sm_80": False,
        "sm_100": False,
    }
    trial.sound()
    plain = snippet.read(Project(trial.root), trial.root / "snippets" / "sound")
    assert assemble.details(plain, machine.plain())["due"]


@pytest.mark.parametrize(
    ("sm", "targets"),
    [
        (90, ("sm_90",)),
        ([80, 90], ("sm_90", "sm_80")),
        (">=90", ("sm_90", "sm_100")),
        (100, ("sm_90", "sm_100")),  # the record rests on sm_90, also where nothing runs there
    ],
)
def test_a_snippet_is_executed_for_what_it_is_for(
    trial: Trial, sm: object, targets: tuple[str, ...]
) -> None:
    one = gathered(trial)
    assert one.targets == assemble.TARGETS
    changed = dataclasses.replace(one.snippet, needs={"sm": sm})
    assert dataclasses.replace(one, snippet=changed).targets == targets


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_counts_of_every_target_are_recorded(trial: Trial, order: tuple[int, ...]) -> None:
    work = gathered(trial)
    launches = {"sm_90": 1, "sm_80": 1, "sm_100": 2}
    jobs = [job for job in work.jobs(1.0) if job.do is Task.VERIFY]
    for number in order:
        job = jobs[number]
        said = DEMO.format(token="t").encode()
        done = answer(launches[job.details["target"]])
        work.take(Outcome(job, done, None, "", said, "t", 1.0))
    assert work.findings == []
    record = work.record()
    assert schema.problem(record) is None and schema.contradiction(record) is None
    found = [(row["targets"], row["launches"]) for row in record["counts"]]
    assert found == [(["sm_80", "sm_90"], 1), (["sm_100"], 2)]


SPACE = '\nSPACE = {"parameters": {"tile": (16, 32)}}\n'


def spanned(trial: Trial) -> assemble.Gathered:
    work = gathered(trial)
    cases = work.snippet.cases_path
    cases.write_text(cases.read_text() + SPACE)
    one = snippet.read(Project(trial.root), work.snippet.folder)
    return assemble.Gathered(one, machine.plain(), None)


def space_of(target: str | None) -> dict[str, Any]:
    return {
        "parameters": [{"name": "tile", "values": [16, 32]}],
        "case": CASE,
        "timed": CASE,
        "figures": ["registers", "spilled_bytes", "shared_bytes", "warps", "cycles"],
        "rows": {target: [f"{tile}: 32 0 64 48 9.5" for tile in (16, 32)]},
    }


def run(work: assemble.Gathered) -> list[Task]:
    """Have imagined children do all jobs of a run; what they were, in order."""
    jobs = work.jobs(1.0)
    for job in jobs:
        target = job.details["target"]
        found = {"space": space_of(target), "failures": []} if job.do is Task.SPACE else answer(1)
        work.take(Outcome(job, found, None, "", DEMO.format(token="t").encode(), "t", 1.0))
    return [job.do for job in jobs]


def test_a_space_is_surveyed_for_each_target_and_kept_while_the_code_is_the_same(
    trial: Trial,
) -> None:
    work = spanned(trial)
    assert run(work).count(Task.SPACE) == 3
    record = work.record()
    assert sorted(record["space"]["rows"]) == ["sm_100", "sm_80", "sm_90"]
    assert schema.problem(record) is None and schema.contradiction(record) is None

    later = assemble.Gathered(work.snippet, machine.plain(), record)
    assert Task.SPACE not in run(later)
    assert later.record()["space"] == record["space"]

    old = {**record, "digest": "sha256:" + "0" * 64}
    stale = assemble.Gathered(work.snippet, machine.plain(), old)
    assert run(stale).count(Task.SPACE) == 3
    forced = assemble.Gathered(work.snippet, machine.plain(), record)
    assert [job.do for job in forced.jobs(1.0, force=True)].count(Task.SPACE) == 3


def test_a_survey_that_fails_is_a_finding(trial: Trial) -> None:
    work = spanned(trial)
    for job in work.jobs(1.0):
        if job.do is Task.SPACE:
            work.take(Outcome(job, None, "was killed", "in the configuration", b"", "t", 1.0))
    assert len(work.findings) == 3 and "was killed" in str(work.findings[0])


@pytest.mark.parametrize(("module", "extra"), [("no_such_library", "run"), ("simpy", "events")])
def test_a_module_that_is_not_there_is_said(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    work = gathered(trial)
    assert work.cannot_run() is None
    monkeypatch.setattr(assemble, "find_spec", lambda name: None if name == module else name)
    lacking = dataclasses.replace(work.snippet, needs={"modules": ["torch", module]})
    said = dataclasses.replace(work, snippet=lacking).cannot_run()
    assert said == (f"{module} is not installed in this environment; install the extra: "
                    f"`.venv/bin/pip install -c constraints.txt -e '.[{extra}]'`")  # fmt: skip
