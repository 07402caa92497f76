"""What a job will take, by what is known of earlier runs; when jobs end that share a machine; what
is left of a run, as it goes."""

from __future__ import annotations

import json
import random

import pytest
from conftest import Trial, sound_snippet
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_machine as imaginary

from warpshelf.bench.assemble import SnippetRun
from warpshelf.bench.plan import (
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
    JobEstimate,
    Round,
    end_times,
    estimate_by_method,
)
from warpshelf.bench.pool import Job, Outcome
from warpshelf.bench.run import Eta, job_key
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger
from warpshelf.worker import timing
from warpshelf.worker.context import Task

CPU = ledger.describe_host()
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
def three_snippets(trial: Trial) -> Project:
    for name in ("sound", "other", "third"):
        trial.add_snippet(name, sound_snippet())
    return Project(trial.root)


def read_run(project: Project, where: dict) -> SnippetRun:
    return SnippetRun(snippet.read_snippet(project, project.snippets / "sound"), where, None)


def estimate_jobs(
    project: Project, where: dict, *jobs: Job, **records: dict
) -> list[tuple[float, str]]:
    named = {name.replace("_", "-"): record for name, record in records.items()}
    estimator = Estimator(project, ledger.load_ledger(project))
    found = estimator.estimate_jobs(read_run(project, where), jobs, named)
    assert [one.job for one in found] == list(jobs)
    return [(one.seconds, one.basis) for one in found]


def write_record(project: Project, name: str, slug: str, text: str) -> None:
    path = project.snippets / name / "results" / f"{slug}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_what_it_took_here_is_known_best(three_snippets: Project) -> None:
    ledger.load_ledger(three_snippets).save_verdict("sound", "cpu", "d", None, {"verify": 8.0})
    record = {"seconds": {"verify": 50.0, "compile": 6.0}}
    assert estimate_jobs(three_snippets, CPU, VERIFY, COMPILE, cpu=record) == [
        (8.0, HERE),
        (6.0, RECORD),
    ]


def test_the_jobs_of_a_task_share_what_it_took(three_snippets: Project) -> None:
    record = {"seconds": {"verify": 60.0}}
    jobs = [Job(Task.VERIFY, "sound", 120, {"target": one}) for one in ("sm_80", "sm_90", "sm_100")]
    assert estimate_jobs(three_snippets, CPU, *jobs, cpu=record) == [(20.0, RECORD)] * 3


def test_no_job_outlasts_its_limit(three_snippets: Project) -> None:
    assert estimate_jobs(three_snippets, CPU, VERIFY, cpu={"seconds": {"verify": 5000.0}}) == [
        (120, RECORD)
    ]


def test_other_gpus_tell_of_a_gpu_and_any_cpu_of_compilation(three_snippets: Project) -> None:
    cpu = {"seconds": {"verify": 60.0, "compile": 7.0}}
    others = {"imaginary_a": {"seconds": {"verify": 20.0, "time": 30.0}}}
    others["imaginary_b"] = {"seconds": {"verify": 22.0, "time": 50.0}}
    assert estimate_jobs(three_snippets, GPU, VERIFY, TIME, COMPILE, cpu=cpu, **others) == [
        (21.0, OTHER), (40.0, OTHER), (7.0, OTHER)
    ]  # fmt: skip


def test_snippets_in_the_same_language_speak_for_each_other(three_snippets: Project) -> None:
    write_record(
        three_snippets, "other", "cpu", json.dumps({"kind": "kernel", "seconds": {"verify": 10}})
    )
    write_record(
        three_snippets, "third", "cpu", json.dumps({"kind": "model", "seconds": {"verify": 90}})
    )
    assert estimate_jobs(three_snippets, CPU, VERIFY) == [(10.0, ALIKE)]
    ledger.load_ledger(three_snippets).save_verdict("other", "cpu", "d", None, {"verify": 30.0})
    assert estimate_jobs(three_snippets, CPU, VERIFY) == [(30.0, ALIKE)]
    for row in ({"language": "Triton"}, ["product", "Triton"]):  # as a record of a CPU has it
        triton = {"kind": "kernel", "compiled": [row], "seconds": {"verify": 10}}
        write_record(three_snippets, "other", "cpu", json.dumps(triton))
        assert estimate_jobs(three_snippets, CPU, VERIFY) == [(GUESSES[Task.VERIFY], GUESS)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"seconds": 3}', '{"seconds": {"verify": "1"}, "kind": "kernel"}',
             '{"seconds": {"verify": -1, "x": 2}, "kind": "kernel"}', '{"compiled": [3]}']
)  # fmt: skip
def test_a_record_that_says_nothing_of_use_is_passed_over(
    three_snippets: Project, text: str
) -> None:
    write_record(three_snippets, "other", "cpu", text)
    assert estimate_jobs(three_snippets, CPU, VERIFY) == [(GUESSES[Task.VERIFY], GUESS)]


def test_what_was_never_timed_follows_from_the_method(three_snippets: Project) -> None:
    found = estimate_jobs(three_snippets, GPU, VERIFY, TIME, cpu={"due": DUE})
    assert found == [
        (estimate_by_method(Task.VERIFY, DUE), METHOD),
        (estimate_by_method(Task.TIME, DUE), METHOD),
    ]
    assert {basis for _, basis in estimate_jobs(three_snippets, GPU, VERIFY, TIME)} == {GUESS}


def test_the_method_counts_functions_calls_and_ceilings() -> None:
    first = START + 3 * FIRST  # a, b and torch are compiled at their first call
    assert estimate_by_method(Task.VERIFY, DUE) == pytest.approx(first + 5 * CALL)
    each = timing.WARM_UP + timing.SAMPLING + LARGE_CALL
    assert estimate_by_method(Task.TIME, DUE) == pytest.approx(first + 3 * CEILING + 4 * each)


def make_estimate(seconds: float, on_gpu: bool = False, alone: bool = False) -> JobEstimate:
    return JobEstimate(Job(Task.VERIFY, "any", 600, on_gpu=on_gpu, alone=alone), seconds, HERE)


LOADS = st.lists(
    st.builds(make_estimate, st.integers(0, 50).map(float), st.booleans()), max_size=12
)


def test_as_many_go_at_a_time_as_there_are_workers() -> None:
    four = [make_estimate(seconds) for seconds in (3, 1, 1, 2)]
    assert end_times(four, 1, 1) == [3, 4, 5, 7]
    assert end_times(four, 2, 1) == [3, 1, 2, 4]
    assert end_times(four, 9, 1, start=10) == [13, 11, 11, 12]
    assert end_times([], 2, 1) == []


def test_a_gpu_is_shared_by_few_while_others_go_on() -> None:
    gpu, host = make_estimate(4, on_gpu=True), make_estimate(1)
    assert end_times([gpu, gpu, host, host], 3, 1) == [4, 8, 1, 1]
    assert end_times([gpu, gpu, gpu], 3, 2) == [4, 4, 8]


def test_what_runs_alone_waits_for_all_others_and_goes_by_itself() -> None:
    loads = [
        make_estimate(5, alone=True),
        make_estimate(3),
        make_estimate(4),
        make_estimate(2, alone=True),
    ]
    assert end_times(loads, 2, 1) == [9, 3, 4, 11]


def test_what_has_begun_keeps_its_place() -> None:
    assert end_times(
        [make_estimate(1), make_estimate(2), make_estimate(3)], 2, 1, begun={1, 2}
    ) == [3, 2, 3]
    gpu = [make_estimate(1, on_gpu=True), make_estimate(2, on_gpu=True)]
    assert end_times(gpu, 4, 1, begun={1}) == [3, 2]
    assert end_times(
        [make_estimate(7, alone=True), make_estimate(1, alone=True)], 4, 1, begun={0}
    ) == [7, 8]


@given(LOADS, st.integers(1, 4), st.integers(1, 3))
def test_it_takes_no_less_than_the_work_and_no_more_than_one_after_another(
    loads: list[JobEstimate], workers: int, most: int
) -> None:
    done = end_times(loads, workers, most)
    work = sum(load.seconds for load in loads)
    on_gpu = sum(load.seconds for load in loads if load.job.on_gpu)
    longest = max((load.seconds for load in loads), default=0)
    least = max(work / workers, on_gpu / min(most, workers), longest)
    assert least - 1e-9 <= max(done, default=0) <= work
    spans = [(end - load.seconds, end, load) for end, load in zip(done, loads, strict=True)]
    for begin, end, _ in spans:
        beside = [one for one in spans if one[0] <= begin < one[1]]
        assert begin < 0 or begin == end or len(beside) <= workers
        assert begin == end or sum(load.job.on_gpu for *_, load in beside) <= most


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_job(name: str, do: Task = Task.VERIFY, limit: float = 600) -> Job:
    return Job(do, name, limit, {"machine": CPU}, alone=do is Task.TIME)


def make_part(name: str, seconds: float, timing: float | None = None) -> list[JobEstimate]:
    timed = [] if timing is None else [JobEstimate(make_job(name, Task.TIME), timing, METHOD)]
    return [JobEstimate(make_job(name), seconds, HERE), *timed]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_eta(clock: Clock, *parts: list[JobEstimate], workers: int = 1) -> Eta:
    return Eta([Round([one for part in parts for one in part], workers, 1)], clock)


def end_job(one: Job, seconds: float, failed: bool = False) -> Outcome:
    answer = {"failures": [{}] if failed else []}
    return Outcome(one, answer, None, "", b"", "", seconds)


def test_before_it_starts_all_is_left(clock: Clock) -> None:
    parts = [make_part(name, 10, 5) for name in ("a", "b")]
    assert make_eta(clock, *parts).seconds_left() == 30
    assert make_eta(clock, *parts, workers=2).seconds_left() == 20  # timings go one at a time
    assert make_eta(clock).seconds_left() == 0


def test_what_runs_needs_what_it_has_not_run_yet(clock: Clock) -> None:
    view = make_eta(clock, make_part("a", 10), make_part("b", 20))
    view.job_started(make_job("a"))
    clock.now += 4
    assert view.seconds_left() == 26
    clock.now += 16  # twice what was expected: it may take some more
    assert view.seconds_left() == pytest.approx(0.1 * 20 + 20)
    view.job_ended(end_job(make_job("a"), 20))
    prior = view.weight
    overall = (prior + 20) / (prior + 10)
    assert view.seconds_left() == pytest.approx(20 * (prior * overall + 20) / (prior + 10))


def test_nothing_is_expected_beyond_its_limit(clock: Clock) -> None:
    view = make_eta(clock, make_part("a", 10))
    view.job_started(make_job("a", limit=600))
    clock.now += 599
    assert view.seconds_left() == pytest.approx(1.0)
    clock.now += 50
    assert view.seconds_left() == 0


@pytest.mark.parametrize("slower", [0.5, 1.0, 2.0, 3.0])
def test_a_slower_machine_shows_it_after_a_few(clock: Clock, slower: float) -> None:
    names = [f"s{number}" for number in range(20)]
    view = make_eta(clock, *(make_part(name, 60) for name in names))
    for name in names[:5]:
        view.job_started(make_job(name))
        clock.now += 60 * slower
        view.job_ended(end_job(make_job(name), 60 * slower))
    assert view.seconds_left() == pytest.approx(15 * 60 * slower, rel=0.12)


def test_one_kind_of_job_says_little_of_another(clock: Clock) -> None:
    parts = [make_part(f"s{number}", 60, 100) for number in range(10)]
    view = make_eta(clock, *parts)
    for one in parts:
        view.job_ended(end_job(one[0].job, 60))
    view.job_ended(end_job(parts[0][1].job, 300))
    # What the method promised was wrong, not the pace of the machine.
    assert view.expected_seconds(parts[1][1]) > 200
    assert view.expected_seconds(JobEstimate(make_job("new"), 60, HERE)) == pytest.approx(
        60, rel=0.05
    )


def test_a_failure_teaches_nothing_and_drops_the_rest(clock: Clock) -> None:
    view = make_eta(clock, make_part("a", 10, 100), make_part("b", 20, 5))
    view.job_started(make_job("a"))
    view.job_ended(end_job(make_job("a"), 0.1, failed=True))
    view.snippet_settled("a", "cpu")
    assert (view.seconds_left(), view.seen) == (25, {})
    view.job_ended(end_job(make_job("unheard"), 3))
    view.snippet_settled("unheard", "cpu")
    assert view.seconds_left() == 25


def test_jobs_may_end_while_it_is_asked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live line asks from a thread of its own."""
    view = make_eta(clock, make_part("a", 10), make_part("b", 20))

    class Ending(dict):
        def __contains__(self, key: object) -> bool:
            return self.pop(key, None) is not None  # over as soon as it was looked at

    view.running = Ending()
    view.job_started(make_job("a"))
    assert view.seconds_left() == 30
    expected = view.expected_seconds

    def end_one(one: JobEstimate) -> float:
        view.snippet_settled(one.job.key, "cpu")
        return expected(one)

    monkeypatch.setattr(view, "expected_seconds", end_one)
    assert view.seconds_left() == 30
    assert view.seconds_left() == 0


class Simulation:
    """A pool of two workers on a machine `slower` than the forecast has it, by the clock of a test.

    Each job takes what was expected times that, and times a chance of its own: two thirds of them
    are off by a factor of 1.5 at most.
    """

    def __init__(self, clock: Clock, seed: int, slower: float, scale: float) -> None:
        chance = random.Random(seed)
        drawn = sorted((scale * chance.lognormvariate(0, 1) for _ in range(71)), reverse=True)
        self.jobs = [
            JobEstimate(make_job(f"s{n}"), seconds, RECORD) for n, seconds in enumerate(drawn)
        ]
        self.took = [slower * one.seconds * 1.5 ** chance.gauss(0, 1) for one in self.jobs]
        self.clock, self.view = clock, Eta([Round(self.jobs, 2, 1)], clock)

    def list_forecasts(self) -> list[tuple[float, float]]:
        """At the end of each job the share of the run that is over, and its forecast over it."""
        begun, done = (
            self.clock.now,
            end_times([make_estimate(seconds) for seconds in self.took], 2, 1),
        )
        total, found = max(done), []
        begins = [end - seconds for end, seconds in zip(done, self.took, strict=True)]
        for at, place, over in sorted(
            [(end, n, True) for n, end in enumerate(done)]
            + [(start, n, False) for n, start in enumerate(begins)]
        ):
            self.clock.now = begun + at
            if over:
                self.view.job_ended(end_job(self.jobs[place].job, self.took[place]))
                found.append((at / total, (at + self.view.seconds_left()) / total))
            else:
                self.view.job_started(self.jobs[place].job)
        return found


@pytest.mark.parametrize("slower", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("scale", [0.7, 12.0])  # a minute of demos, a quarter of an hour of checks
def test_once_a_quarter_is_done_the_end_is_known_within_a_factor_of_one_and_a_half(
    clock: Clock, slower: float, scale: float
) -> None:
    for seed in range(20):
        for share, ratio in Simulation(clock, seed, slower, scale).list_forecasts():
            assert share < 0.25 or 1 / 1.5 < ratio < 1.5, (seed, share, ratio)


def test_what_runs_is_told_apart_by_machine_task_and_target() -> None:
    first = Job(Task.VERIFY, "a", 1, {"machine": CPU, "target": "sm_90"})
    others = [
        Job(Task.VERIFY, "a", 1, {"machine": GPU, "target": "sm_90"}),
        Job(Task.VERIFY, "a", 1, {"machine": CPU, "target": "sm_80"}),
        Job(Task.DEMO, "a", 1, {"machine": CPU, "target": "sm_90"}),
        Job(Task.VERIFY, "b", 1, {"machine": CPU, "target": "sm_90"}),
    ]
    assert len({job_key(one) for one in (first, *others)}) == 5
