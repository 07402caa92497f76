"""What a run says it will do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from conftest import CUT, Trial, sound_snippet
from made_up_records import make_machine as imaginary

from tests.bench.test_gpu_machine import MODEL, TRITON, Simulated, simulated_pool
from warpshelf.bench import run as runs
from warpshelf.bench.plan import (
    CHANGED,
    FORCED,
    GUESSES,
    METHOD,
    NEVER,
    REPEATED,
    TRUSTED,
    Options,
    estimate_by_method,
)
from warpshelf.bench.pool import Job, Outcome
from warpshelf.bench.run import Run
from warpshelf.cli import console
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger, store
from warpshelf.worker.context import Task

__all__ = ["simulated_pool"]
PEAK = TRITON.replace('"a trial"', '"a trial", "sm": 100')
MANY = sound_snippet().replace("NEEDS = {", 'NEEDS = {"gpus": 4, ', 1)


def make_plan(trial: Trial, **options: object) -> runs.Plan:
    project = Project(trial.root)
    return Run(project, Options(**options)).make_plan(snippet.discover_snippets(project))


def test_a_machine_with_a_gpu_is_planned_by_one_look_at_it(
    trial: Trial, simulated_pool: type[Simulated]
) -> None:
    trial.add_snippet("sound", sound_snippet())
    trial.add_snippet("counts", MODEL)
    for name in ("many", "more"):
        trial.add_snippet(name, MANY)
    trial.add_snippet("peak", PEAK)
    plan = make_plan(trial, out=trial.root / "records.json", workers=2)
    assert [job.do for job in simulated_pool.asked] == [Task.DESCRIBE]
    assert not (trial.root / "records.json").exists()
    first, second, third, fourth, *rest = console.plan_lines(plan)
    device = f"{imaginary()['device']}, SM 90, "
    assert first.startswith(device) and ": 2 to verify (2 never run); about" in first
    assert " with 2 workers; estimate from " in first
    assert second == "  2 skipped: needs 4 GPUs; this machine has 1"
    assert third == "  1 only compiled: needs SM 100; this GPU is SM 90"
    assert fourth.startswith("CPU: 3 to verify (3 never run); about ")
    assert "  2 skipped: needs a GPU" in rest
    assert "  1 only compiled: a trial" in rest
    assert rest[-1].endswith(" in total")
    jobs = {part.id: [one.job.do for one in part.jobs] for part in plan.turns[0].parts}
    assert jobs == {"sound": [Task.VERIFY, Task.TIME], "peak": [Task.COMPILE]}
    # What the first turn compiles is compiled already in the second.
    jobs = {part.id: [one.job.do for one in part.jobs] for part in plan.turns[1].parts}
    assert jobs == {"sound": [Task.VERIFY], "counts": [Task.VERIFY], "peak": [Task.DUE]}


def test_timings_that_nobody_made_are_judged_by_the_method(
    trial: Trial, simulated_pool: type[Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.add_snippet("sound", sound_snippet())
    monkeypatch.setattr(ledger, "may_have_gpu", lambda: False)
    assert trial.run_shelf("run").returncode == 0
    path = trial.root / "snippets/sound/results/cpu.json"
    due = store.load_record(Project(trial.root), path)["due"]
    monkeypatch.setattr(ledger, "may_have_gpu", lambda: True)
    [part] = make_plan(trial).turns[0].parts
    found = {one.job.do: one.seconds for one in part.jobs}
    tasks = (Task.VERIFY, Task.TIME)
    assert found == {
        task: min(estimate_by_method(task, due), part.work.snippet.seconds) for task in tasks
    }
    assert part.basis == METHOD


def test_the_budget_is_held_against_when_each_is_done(
    trial: Trial, simulated_pool: type[Simulated]
) -> None:
    for name in ("one", "two", "three"):
        trial.add_snippet(name, MODEL)
    book = ledger.load_ledger(Project(trial.root))
    for name, seconds in (("one", 10.0), ("three", 20.0), ("two", 40.0)):
        book.save_verdict(name, "cpu", "d", None, {"verify": seconds})
    plan = make_plan(trial, budget=35.0, workers=1)
    assert plan.end_times == {("one", "cpu"): 10.0, ("three", "cpu"): 30.0, ("two", "cpu"): 70.0}
    assert plan.left == [("two", "cpu")]
    assert console.plan_lines(plan)[-1] == "a budget of 35 s is likely to leave out 1 of 3: two"
    assert make_plan(trial, budget=35.0, workers=3).left == [("two", "cpu")]
    assert not make_plan(trial, budget=40.0, workers=3).left


def test_what_takes_longest_begins_where_no_budget_runs_out(
    trial: Trial, simulated_pool: type[Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "may_have_gpu", lambda: False)
    for name in ("one", "two", "three"):
        trial.add_snippet(name, MODEL)
    book = ledger.load_ledger(Project(trial.root))
    for name, seconds in (("one", 10.0), ("two", 40.0), ("three", 20.0)):
        book.save_verdict(name, "cpu", "d", None, {"verify": seconds})
    plan = make_plan(trial, workers=2)
    assert [part.id for part in plan.turns[0].split_batches()[0]] == ["two", "three", "one"]
    assert plan.seconds == 40.0
    budgeted = make_plan(trial, workers=2, budget=90.0)
    assert [part.id for part in budgeted.turns[0].split_batches()[0]] == ["one", "three", "two"]
    asked: list[Job] = []

    def note_jobs(self: Simulated, jobs: list[Job], *more: object) -> Iterator[Outcome]:
        asked.extend(jobs)
        yield from ()

    monkeypatch.setattr(Simulated, "run", note_jobs)
    project = Project(trial.root)
    Run(project, Options(workers=2)).run_stale(snippet.discover_snippets(project))
    assert [job.key for job in asked] == ["two", "three", "one"]


def test_batches_keep_a_gpu_s_timings_near_their_checks(
    trial: Trial, simulated_pool: type[Simulated]
) -> None:
    for number in range(9):
        trial.add_snippet(f"s{number}", sound_snippet())
    gpu, cpu = make_plan(trial, workers=1).turns
    assert [len(batch) for batch in gpu.split_batches()] == [4, 4, 1]
    assert [len(batch) for batch in cpu.split_batches()] == [9]


def test_the_reason_is_told(trial: Trial) -> None:
    def list_reasons(*words: str) -> dict[str, str]:
        found = json.loads(trial.run_shelf("run", "--plan", "--json", *words).stdout)["snippets"]
        return {row["snippet"]: row.get("why", row["state"]) for row in found}

    trial.add_snippet("counts", MODEL)
    trial.add_snippet("other", MODEL)
    assert list_reasons() == {"counts": NEVER, "other": NEVER}
    assert trial.run_shelf("run", "counts").returncode == 0
    assert list_reasons() == {"counts": "current", "other": NEVER}
    assert list_reasons("--force") == {"counts": FORCED, "other": NEVER}
    assert list_reasons("--all") == {"counts": REPEATED, "other": NEVER}
    (trial.root / ".shelf" / "ledger.json").unlink()
    assert list_reasons("counts") == {"counts": TRUSTED}
    assert list_reasons("counts", "--out", "x.json") == {"counts": "current"}
    trial.add_snippet("counts", MODEL.replace('"one"', '"two"'))
    assert list_reasons("counts") == {"counts": CHANGED}
    assert not (trial.root / "x.json").exists()


def test_the_plan_is_shown_and_nothing_is_run(trial: Trial) -> None:
    trial.add_snippet("counts", MODEL)
    trial.add_snippet("broken", sound_snippet().partition(CUT)[0])
    run = trial.run_shelf("run", "--plan", "--workers", "1")
    seconds = round(GUESSES[Task.VERIFY])
    lines = [line.split() for line in run.stdout.splitlines() if line]
    assert " ".join(lines[0]) == (
        f"CPU: 1 to verify (never run); about {seconds} s with 1 worker; estimate from a guess"
    )
    assert lines[1] == ["snippet", "machine", "about", "why"]
    assert " ".join(lines[2]) == f"counts cpu {seconds} s never run; a guess"
    assert (run.returncode, "broken/cases.py: is missing" in run.stderr) == (1, True)
    assert not list(trial.root.glob("snippets/*/results"))


def test_a_run_says_first_what_it_will_do_but_not_where_all_is_current(trial: Trial) -> None:
    trial.add_snippet("counts", MODEL)
    first = trial.run_shelf("run", "--workers", "1").stderr.splitlines()
    assert first[0].startswith("CPU: 1 to verify (never run); about ")
    assert trial.run_shelf("run").stderr.splitlines() == [
        "0 demos run, 0 records trusted, 1 verified here"
    ]
    again = trial.run_shelf("run", "--force", "--workers", "1").stderr.splitlines()
    assert again[0].endswith("estimate from earlier runs here")


def test_what_tasks_took_is_recorded_and_alone_rewrites_nothing(trial: Trial) -> None:
    trial.add_snippet("counts", MODEL)
    assert trial.run_shelf("run").returncode == 0
    path = trial.root / "snippets/counts/results/cpu.json"
    record = json.loads(path.read_text())
    took = record["seconds"]["verify"]
    demo = record["seconds"]["demo"]
    assert record["seconds"] == {"demo": demo, "verify": took}
    assert 0 <= demo <= took + 0.01 < 60  # both are rounded to that
    del record["seconds"]  # as records have none that are older
    path.write_text(json.dumps(record))
    assert trial.run_shelf("run", "--force").returncode == 0
    assert json.loads(path.read_text()) == record
