"""How long a run will take: from what is known of earlier runs to the seconds of its jobs.

What is known best is asked first. Where nothing was ever run, as of timings before the first record
of a GPU, the seconds follow from the method: how many functions are called on how many cases, and
for how long. On a CPU they are seconds of CPU, which other work does not lengthen. Jobs are laid
out as the pool will start them; a slower machine shows it after a few.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple

from warpshelf.bench.assemble import SnippetRun
from warpshelf.bench.pool import Job, Outcome
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project
from warpshelf.records.ledger import CPU, Ledger
from warpshelf.records.schema import SPENT, Record
from warpshelf.worker import timing
from warpshelf.worker.context import Task

# Where seconds are from, the best known first.
BASES = HERE, RECORD, OTHER, ALIKE, METHOD, GUESS = (
    "earlier runs here", "records", "records of other GPUs", "similar snippets", "the method",
    "a guess",
)  # fmt: skip
# By the method, in seconds. What no rule of ours fixes is on the high side: a short wait
# is forgiven more easily than a long one.
START = 10.0  # to import torch and make a context on the GPU
FIRST = 4.0  # the first call of a function: its compilation
CEILING = 2.0  # each of the rates that a timing measures for itself
CALL = 0.1  # to call a function on a small case and compare what it gives
LARGE_CALL = 0.7  # the same of a case to time, with its reference, and the flushes between samples
GUESSES = {
    Task.DUE: 6.0, Task.DEMO: 2.0, Task.VERIFY: 15.0, Task.COMPILE: 15.0, Task.VIEW: 15.0,
    Task.TIME: 60.0,
}  # fmt: skip
LONG_GUESS = 300.0
# Seconds as expected that it takes to doubt a forecast, since the first jobs say little: so many at
# most, and of a short run this share of all that it is expected to take.
PRIOR, DOUBT = 30.0, 0.05
OVERDUE = 0.1  # of what a job has run, that one which should have ended is taken to need still

Key = tuple[str, str, str, str | None]  # machine, snippet, task, target
Spent = Mapping[str, float]  # seconds by task


@dataclass(frozen=True)
class JobEstimate:
    """How long a job is expected to take, and which of BASES that rests on."""

    job: Job
    seconds: float
    basis: str


class Estimator:
    """Estimates the seconds of jobs from the records and the ledger of a project."""

    def __init__(self, project: Project, book: Ledger) -> None:
        self.project = project
        self.book = book

    def estimate_jobs(
        self, work: SnippetRun, jobs: Sequence[Job], records: Mapping[str, Record]
    ) -> list[JobEstimate]:
        """What each of the jobs of one snippet will take; `records` are the snippet's own."""
        tasks = [job.do for job in jobs]
        found = []
        for job in jobs:
            total, basis = self._estimate_task(work, job.do, records)
            found.append(JobEstimate(job, min(total / tasks.count(job.do), job.seconds), basis))
        return found

    def _estimate_task(
        self, work: SnippetRun, task: Task, records: Mapping[str, Record]
    ) -> tuple[float, str]:
        """Seconds of all jobs of one task, and what they rest on."""
        name, slug = task.name.lower(), work.machine["slug"]
        own = _record_seconds(records.get(slug))
        others = (_record_seconds(r) for key, r in records.items() if _tells_of(task, slug, key))
        sources: tuple[tuple[str, Iterable[Spent]], ...] = (
            (HERE, [self.book.task_seconds(work.snippet.id, slug)]),
            (RECORD, [own]),
            (OTHER, others),
            (ALIKE, self._similar_seconds(work.snippet, task, slug)),
        )
        for basis, known in sources:
            if taken := [spent[name] for spent in known if name in spent]:
                return median(taken), basis
        if not work.on_cpu and task in (Task.TIME, Task.VERIFY):
            due = (records.get(CPU) or {}).get("due")
            return estimate_by_method(task, due or ()), METHOD if due else GUESS
        return GUESSES.get(task, LONG_GUESS), GUESS

    def _similar_seconds(self, snippet: Snippet, task: Task, slug: str) -> Iterator[Spent]:
        """What was spent on each of the snippets in the same language, where the task is known."""
        written = "Triton" if snippet.uses_triton else "CUDA C++" if snippet.cuda_path else ""
        for name, (language, records) in self._known_seconds.items():
            if language == (written or snippet.kind):
                taken = [self.book.task_seconds(name, slug)]
                taken += [spent for key, spent in records.items() if _tells_of(task, slug, key)]
                yield next((spent for spent in taken if task.name.lower() in spent), {})

    @cached_property
    def _known_seconds(self) -> dict[str, tuple[str, dict[str, dict[str, float]]]]:
        """Of each snippet the language, and what its records say that it took, by machine.

        Read without the checks of a record, which take longer: a wrong one misleads an estimate.
        """
        found: dict[str, tuple[str, dict[str, dict[str, float]]]] = {}
        for path in sorted(self.project.snippets.glob("*/results/[!.]*.json")):
            try:
                record = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                _, records = found.setdefault(path.parents[1].name, (_record_language(record), {}))
                records[path.stem] = _record_seconds(record)
        return found


def _record_seconds(record: object) -> dict[str, float]:
    said = record.get("seconds") if isinstance(record, dict) else None
    return {
        task: float(spent)
        for task, spent in (said.items() if isinstance(said, dict) else ())
        if task in SPENT and isinstance(spent, int | float) and 0 <= spent < float("inf")
    }


def _tells_of(task: Task, slug: str, other: str) -> bool:
    """Whether a task's time on one machine applies to another: compilers run on any CPU."""
    return task is Task.COMPILE or (slug == CPU) == (other == CPU)


def _record_language(record: Mapping[str, Any]) -> str:
    """What a record's snippet is written in: a word in the rows of what was compiled.

    In the file of a CPU's record a row has its values alone.
    """
    compiled = record.get("compiled")
    rows = compiled if isinstance(compiled, list) else []
    cells = [row.values() if isinstance(row, dict) else row for row in rows]
    said = [value for row in cells if isinstance(row, Iterable) for value in row]
    return next((one for one in ("Triton", "CUDA C++") if one in said), str(record.get("kind")))


def estimate_by_method(task: Task, due: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of a task on a GPU without any history, by what is due."""
    called = {False: 0, True: 0}  # by whether it is timed
    functions: set[str] = set()
    units = set()
    for row in due:
        names = [*row["variants"], *row["peers"]]
        called[row["timed"]] += len(names)
        functions |= set(names)
        if row["timed"]:
            units.add(row.get("unit"))
    start = START + FIRST * len(functions)
    if task is Task.VERIFY:
        return start + CALL * called[False]
    each = timing.WARM_UP + timing.SAMPLING + LARGE_CALL
    return start + CEILING * (1 + len(units)) + each * called[True]


def end_times(
    jobs: Sequence[JobEstimate],
    workers: int,
    most_on_gpu: int,
    start: float = 0.0,
    begun: Set[int] = frozenset(),
) -> list[float]:
    """When each ends, `workers` at a time and `most_on_gpu` of them on the GPU.

    As in `Pool.run`, the first that may start does; one that runs alone waits for all others. Those
    in the places `begun` run already, for what is left of their seconds.
    """
    found = [start] * len(jobs)
    now, running = start, list[tuple[float, bool]]()  # ends, and whether on the GPU
    waiting: dict[bool, deque[int]] = {True: deque(), False: deque()}
    for place, one in enumerate(jobs):
        if place in begun:
            found[place] = start + one.seconds
            heapq.heappush(running, (found[place], one.job.on_gpu))
        elif not one.job.alone:
            waiting[one.job.on_gpu].append(place)
    while waiting[True] or waiting[False]:
        free = sum(on_gpu for _, on_gpu in running) < most_on_gpu
        able = [line for line in (waiting[False], waiting[free]) if line]
        if len(running) >= workers or not able:
            now = heapq.heappop(running)[0]
            continue
        place = min(able, key=lambda line: line[0]).popleft()
        found[place] = now + jobs[place].seconds
        heapq.heappush(running, (found[place], jobs[place].job.on_gpu))
    now = max(found, default=start)
    for place, one in enumerate(jobs):
        if one.job.alone and place not in begun:
            now += one.seconds
            found[place] = now
    return found


def job_key(job: Job) -> Key:
    """What identifies a job within a run."""
    slug = job.details.get("machine", {}).get("slug", "")
    return slug, job.key, job.do, job.details.get("target")


class Round(NamedTuple):
    """Jobs that share a machine, in the order in which they may start, until all of them are done.

    `workers` of them go at a time, and `most_on_gpu` of these on the GPU.
    """

    jobs: Sequence[JobEstimate]
    workers: int
    most_on_gpu: int


class Eta:
    """Follows a run's jobs, which come in rounds, and estimates what is left.

    What jobs took over what they were expected to, first of all jobs and then of those of one task
    and basis, scales what is to come; `weight` seconds as expected hold it to what was known.
    """

    def __init__(
        self, rounds: Iterable[Round] = (), now: Callable[[], float] = time.monotonic
    ) -> None:
        self.now = now
        self.rounds = [
            ({job_key(one.job): one for one in jobs}, workers, most)
            for jobs, workers, most in rounds
        ]
        total = sum(one.seconds for jobs, *_ in self.rounds for one in jobs.values())
        self.weight = max(0.1, min(PRIOR, DOUBT * total))
        self.running: dict[Key, float] = {}  # since when
        # By task and basis, and of all: seconds that jobs took, and that they were expected to.
        self.seen: dict[tuple[str, str] | None, tuple[float, float]] = {}

    def job_started(self, job: Job) -> None:
        self.running[job_key(job)] = self.now()

    def job_ended(self, outcome: Outcome) -> None:
        """A job is over; a failed one says nothing about the time of others."""
        key = job_key(outcome.job)
        self.running.pop(key, None)
        one = next((jobs.pop(key) for jobs, *_ in self.rounds if key in jobs), None)
        if one is None or outcome.answer is None or outcome.answer.get("failures"):
            return
        for kind in (None, (one.job.do, one.basis)):
            took, expected = self.seen.get(kind, (0.0, 0.0))
            self.seen[kind] = took + outcome.seconds, expected + one.seconds

    def snippet_settled(self, snippet: str, slug: str) -> None:
        """A snippet has its verdict: whatever it had still to do is dropped."""
        for jobs, *_ in self.rounds:
            for key in [key for key in jobs if key[:2] == (slug, snippet)]:
                del jobs[key]
                self.running.pop(key, None)

    def expected_seconds(self, one: JobEstimate) -> float:
        """What a job is expected to take, by what the run has shown so far."""
        ratio = 1.0
        for kind in (None, (one.job.do, one.basis)):
            took, expected = self.seen.get(kind, (0.0, 0.0))
            ratio = (self.weight * ratio + took) / (self.weight + expected)
        return min(one.seconds * ratio, one.job.seconds)

    def seconds_left(self) -> float:
        now, total = self.now(), 0.0
        for jobs, workers, most in self.rounds:
            left, begun = [], set()
            # A live line asks from a thread of its own, while jobs start and end.
            for place, (key, one) in enumerate(list(jobs.items())):
                seconds, since = self.expected_seconds(one), self.running.get(key)
                if since is not None:
                    begun.add(place)
                    elapsed = now - since
                    seconds = max(seconds - elapsed, OVERDUE * elapsed)
                    seconds = max(0.0, min(seconds, one.job.seconds - elapsed))
                left.append(replace(one, seconds=seconds))
            total = max(end_times(left, workers, most, total, begun), default=total)
        return total
