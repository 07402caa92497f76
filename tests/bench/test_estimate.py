"""What a job will take, by what is known of earlier runs."""

from __future__ import annotations

import json

import pytest
from conftest import Trial, sound_snippet
from synthetic import machine as imaginary

from warpshelf.bench.assemble import Gathered
from warpshelf.bench.estimate import (
    ALIKE,
    CALL,
    CEILING,
    FIRST,
    GUESS,
    GUESSES,
    HERE,
    LARGE_CALL,
    METHOD,
    OTHER,
    RECORD,
    START,
    Estimator,
    by_method,
)
from warpshelf.bench.pool import Job
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger, machine
from warpshelf.worker import timing
from warpshelf.worker.task import Task

CPU = machine.plain()
GPU = imaginary()
VERIFY, TIME = Job(Task.VERIFY, "sound", 120), Job(Task.TIME, "sound", 120)
COMPILE = Job(Task.COMPILE, "sound", 300)
DUE = [
    {"timed": False, "variants": ["a", "b"], "peers": ["torch"]},
    {"timed": False, "variants": ["a", "b"], "peers": []},
    {"timed": True, "variants": ["a"], "peers": ["torch"], "unit": "bf16"},
    {"timed": True, "variants": ["a"], "peers": ["torch"], "unit": "fp32"},
]


@pytest.fixture
def project(trial: Trial) -> Project:
    for name in ("sound", "other", "third"):
        trial.snippet(name, sound_snippet())
    return Project(trial.root)


def work_of(project: Project, where: dict) -> Gathered:
    return Gathered(snippet.read(project, project.snippets / "sound"), where, None)


def expect(project: Project, where: dict, *jobs: Job, **records: dict) -> list[tuple[float, str]]:
    named = {name.replace("_", "-"): record for name, record in records.items()}
    estimator = Estimator(project, ledger.load(project))
    found = estimator.expected(work_of(project, where), jobs, named)
    assert [one.job for one in found] == list(jobs)
    return [(one.seconds, one.basis) for one in found]


def write(project: Project, name: str, slug: str, text: str) -> None:
    path = project.snippets / name / "results" / f"{slug}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_what_it_took_here_is_known_best(project: Project) -> None:
    ledger.load(project).note("sound", "cpu", "d", None, {"verify": 8.0})
    record = {"seconds": {"verify": 50.0, "compile": 6.0}}
    assert expect(project, CPU, VERIFY, COMPILE, cpu=record) == [(8.0, HERE), (6.0, RECORD)]


def test_the_jobs_of_a_task_share_what_it_took(project: Project) -> None:
    record = {"seconds": {"verify": 60.0}}
    jobs = [Job(Task.VERIFY, "sound", 120, {"target": one}) for one in ("sm_80", "sm_90", "sm_100")]
    assert expect(project, CPU, *jobs, cpu=record) == [(20.0, RECORD)] * 3


def test_no_job_outlasts_its_limit(project: Project) -> None:
    assert expect(project, CPU, VERIFY, cpu={"seconds": {"verify": 5000.0}}) == [(120, RECORD)]


def test_other_gpus_tell_of_a_gpu_and_any_cpu_of_compilation(project: Project) -> None:
    cpu = {"seconds": {"verify": 60.0, "compile": 7.0}}
    others = {"imaginary_a": {"seconds": {"verify": 20.0, "time": 30.0}}}
    others["imaginary_b"] = {"seconds": {"verify": 22.0, "time": 50.0}}
    assert expect(project, GPU, VERIFY, TIME, COMPILE, cpu=cpu, **others) == [
        (21.0, OTHER), (40.0, OTHER), (7.0, OTHER)
    ]  # fmt: skip


def test_snippets_in_the_same_language_speak_for_each_other(project: Project) -> None:
    write(project, "other", "cpu", json.dumps({"kind": "kernel", "seconds": {"verify": 10}}))
    write(project, "third", "cpu", json.dumps({"kind": "model", "seconds": {"verify": 90}}))
    assert expect(project, CPU, VERIFY) == [(10.0, ALIKE)]
    ledger.load(project).note("other", "cpu", "d", None, {"verify": 30.0})
    assert expect(project, CPU, VERIFY) == [(30.0, ALIKE)]
    triton = {"kind": "kernel", "compiled": [{"language": "Triton"}], "seconds": {"verify": 10}}
    write(project, "other", "cpu", json.dumps(triton))
    assert expect(project, CPU, VERIFY) == [(GUESSES[Task.VERIFY], GUESS)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"seconds": 3}', '{"seconds": {"verify": "1"}, "kind": "kernel"}',
             '{"seconds": {"verify": -1, "x": 2}, "kind": "kernel"}', '{"compiled": [3]}']
)  # fmt: skip
def test_a_record_that_says_nothing_of_use_is_passed_over(project: Project, text: str) -> None:
    write(project, "other", "cpu", text)
    assert expect(project, CPU, VERIFY) == [(GUESSES[Task.VERIFY], GUESS)]


def test_what_was_never_timed_follows_from_the_method(project: Project) -> None:
    found = expect(project, GPU, VERIFY, TIME, cpu={"due": DUE})
    assert found == [(by_method(Task.VERIFY, DUE), METHOD), (by_method(Task.TIME, DUE), METHOD)]
    assert {basis for _, basis in expect(project, GPU, VERIFY, TIME)} == {GUESS}


def test_the_method_counts_functions_calls_and_ceilings() -> None:
    first = START + 3 * FIRST  # a, b and torch are compiled at their first call
    assert by_method(Task.VERIFY, DUE) == pytest.approx(first + 5 * CALL)
    each = timing.WARM_UP + timing.SAMPLING + LARGE_CALL
    assert by_method(Task.TIME, DUE) == pytest.approx(first + 3 * CEILING + 4 * each)
