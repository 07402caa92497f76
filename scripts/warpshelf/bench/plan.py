"""What a run will do and how long: snippets, records and the ledger go in, turns of work come out.

A turn is one machine: a GPU, then the CPU that it is in. It goes batch by batch, since a run that
is stopped has recorded only what was verified and timed; what times nothing is one batch. Of a
snippet whose record on a CPU has the digest of the sources the demo runs, once in a checkout. How
long jobs take is asked of what is known best first; on a CPU it is seconds of CPU, which other work
does not lengthen.
"""

from __future__ import annotations

import heapq
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from warpshelf.bench.assemble import SnippetRun
from warpshelf.bench.pool import Job, most_on_gpu
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import ledger, store
from warpshelf.records.ledger import CPU, Ledger
from warpshelf.records.schema import SPENT, Record
from warpshelf.worker import timing
from warpshelf.worker.context import Task

# Where seconds are from, the best known first.
BASES = HERE, RECORD, OTHER, ALIKE, METHOD, GUESS = (
    "earlier runs here", "records", "records of other GPUs", "similar snippets", "the method",
    "a guess",
)  # fmt: skip
# By the method, in seconds; on the high side, since a short wait is forgiven more easily.
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
        taken = {task: self._estimate_task(work, task, records) for task in tasks}
        return [
            JobEstimate(job, min(total / tasks.count(job.do), job.seconds), basis)
            for job, (total, basis) in ((job, taken[job.do]) for job in jobs)
        ]

    def _estimate_task(
        self, work: SnippetRun, task: Task, records: Mapping[str, Record]
    ) -> tuple[float, str]:
        """Seconds of all jobs of one task, and what they rest on."""
        name, slug = task.name.lower(), work.machine["slug"]
        others = (_record_seconds(r) for key, r in records.items() if _tells_of(task, slug, key))
        sources: dict[str, Iterable[Spent]] = {
            HERE: [self.book.task_seconds(work.snippet.id, slug)],
            RECORD: [_record_seconds(records.get(slug))],
            OTHER: others,
            ALIKE: self._similar_seconds(work.snippet, task, slug),
        }
        for basis, known in sources.items():
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
        """Of each snippet the language, and what its records say that it took, by machine; without
        the checks of a record, which take longer."""
        found: dict[str, tuple[str, dict[str, dict[str, float]]]] = {}
        for path in sorted(self.project.snippets.glob("*/results/[!.]*.json")):
            try:
                text = path.read_text(encoding="utf-8")
                record = json.loads(text)
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(record, dict):  # whose rows of what was compiled say its language
                words = (word for word in ("Triton", "CUDA C++") if f'"{word}"' in text)
                language = next(words, str(record.get("kind")))
                _, records = found.setdefault(path.parents[1].name, (language, {}))
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


def estimate_by_method(task: Task, due: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of a task on a GPU without any history, by what is due."""
    rows = [(row, [*row["variants"], *row["peers"]]) for row in due]
    start = START + FIRST * len({name for _, names in rows for name in names})
    if task is Task.VERIFY:
        return start + CALL * sum(len(names) for row, names in rows if not row["timed"])
    timed = [(row.get("unit"), len(names)) for row, names in rows if row["timed"]]
    each = timing.WARM_UP + timing.SAMPLING + LARGE_CALL
    units = {unit for unit, _ in timed}
    return start + CEILING * (1 + len(units)) + each * sum(count for _, count in timed)


def end_times(
    jobs: Sequence[JobEstimate],
    workers: int,
    most_on_gpu: int,
    start: float = 0.0,
    begun: Set[int] = frozenset(),
) -> list[float]:
    """When each ends, as `Pool.run` starts them: `workers` at a time, `most_on_gpu` of them on the
    GPU, those that run alone last. Those in the places `begun` run already, for what is left."""
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


class Round(NamedTuple):
    """Jobs that share a machine, in the order in which they may start, until all are done."""

    jobs: Sequence[JobEstimate]
    workers: int
    most_on_gpu: int


# What runs, and why.

BATCH = 4, 16  # snippets in a batch at least and at most; between, twice as many as children

# Why a snippet runs.
NEVER, CHANGED, FAILED = "never run", "changed since its record", "failed here before"
TRUSTED, REPEATED = "its record is trusted", "current, and repeated"
FORCED = "current, but forced"


@dataclass
class Options:
    """What the command line asks of a run.

    `everything` repeats what is current, and holds it against its record; `force` records it anew.
    `both` asks a machine with a GPU for the records of its CPU as well, without which none of a GPU
    can be checked; `only`, "gpu" or "cpu", for those of the one or the other alone.
    """

    force: bool = False
    everything: bool = False
    budget: float | None = None
    out: Path | None = None
    workers: int | None = None
    both: bool = True
    only: str | None = None
    origin: dict[str, str] | None = None  # who makes the records of a GPU

    @property
    def repeats(self) -> str | None:
        """Why a current snippet runs again; None if it does not."""
        return FORCED if self.force else REPEATED if self.everything else None

    @property
    def children(self) -> int:
        return self.workers or os.cpu_count() or 1


@dataclass
class Part:
    """One snippet that runs in a turn: why, and its jobs in order, with what each will take."""

    work: SnippetRun
    why: str
    jobs: list[JobEstimate]

    @property
    def id(self) -> str:
        return self.work.snippet.id

    @property
    def is_timed(self) -> bool:
        return any(one.job.do is Task.TIME for one in self.jobs)

    @property
    def basis(self) -> str:
        """The weakest of what its seconds rest on."""
        return max((one.basis for one in self.jobs), key=BASES.index, default=BASES[0])


@dataclass
class Turn:
    """One machine's part of a run: what runs, the stalest first, and what does not. What times
    nothing begins with what takes longest, unless a budget is better spent on what is stalest."""

    where: dict[str, Any]
    workers: int
    longest_first: bool = True
    parts: list[Part] = field(default_factory=list)
    current: list[Snippet] = field(default_factory=list)
    skipped: list[tuple[Snippet, str]] = field(default_factory=list)

    @property
    def slug(self) -> str:
        return str(self.where["slug"])

    def split_batches(self) -> list[list[Part]]:
        """What is verified together and timed after that; everything if nothing is timed."""
        parts, (least, most) = self.parts, BATCH
        size = max(least, min(most, 2 * self.workers))
        if not any(part.is_timed for part in parts):
            size = max(1, len(parts))
            if self.longest_first:
                parts = sorted(parts, key=lambda part: -sum(one.seconds for one in part.jobs))
        return [parts[at : at + size] for at in range(0, len(parts), size)]

    def make_round(self, batch: Iterable[Part]) -> Round:
        """The jobs of a batch, on this machine."""
        jobs = [one for part in batch for one in part.jobs]
        return Round(jobs, self.workers, most_on_gpu(self.where))


@dataclass
class Plan:
    """What a run will do, turn by turn, within its budget."""

    turns: list[Turn]
    budget: float | None = None

    @property
    def verdicts(self) -> int:
        return sum(len(turn.parts) for turn in self.turns)

    @cached_property
    def end_times(self) -> dict[tuple[str, str], float]:
        """When each snippet is done on each machine, in seconds from the start."""
        found: dict[tuple[str, str], float] = {}
        start = 0.0
        for turn in self.turns:
            for batch in turn.split_batches():
                # One with nothing left to do is done at once.
                found |= {(part.id, turn.slug): start for part in batch}
                jobs = turn.make_round(batch)
                for one, end in zip(jobs.jobs, end_times(*jobs, start), strict=True):
                    key = one.job.key, turn.slug
                    found[key] = max(found[key], end)
                start = max(found.values())
        return found

    @property
    def seconds(self) -> float:
        return max(self.end_times.values(), default=0.0)

    @property
    def left(self) -> list[tuple[str, str]]:
        """What the budget will leave out, by snippet and machine."""
        if self.budget is None:
            return []
        return [key for key, end in self.end_times.items() if end > self.budget]

    @property
    def rounds(self) -> list[Round]:
        return [turn.make_round(batch) for turn in self.turns for batch in turn.split_batches()]


@dataclass
class Planner:
    """Decides what must run on a machine. `brought` are records that the file of `--out` has;
    `done` says of a snippet, machine and digest whether a run that is carried on repeated it."""

    options: Options
    book: Ledger
    estimator: Estimator
    brought: dict[tuple[str, str], Record] = field(default_factory=dict)
    done: Callable[[str, str, str], bool] = lambda snippet, slug, digest: False
    _found: dict[str, dict[str, Record]] = field(default_factory=dict)

    def load_records(self, snippet: Snippet) -> dict[str, Record]:
        """The records in place of a snippet, as they were when first asked for."""
        if snippet.id not in self._found:
            self._found[snippet.id] = store.load_records(snippet)[0]
        return self._found[snippet.id]

    def plan_turns(self, here: dict[str, Any], snippets: list[Snippet]) -> list[Turn]:
        """What to run as on which machine: the GPU first, since it may be borrowed."""
        only, cpu = self.options.only, ledger.without_gpu(here)
        if only == "gpu" and not here["gpus"]:
            what, mend = "torch finds none on this machine", "use a machine with one"
            raise ShelfError(Finding("GPU", None, what, mend))
        if not here["gpus"] or only == "cpu":
            return [self.plan_turn(cpu, snippets)]
        gpu = self.plan_turn(here, [snippet for snippet in snippets if snippet.wants_gpu])
        if only == "gpu":
            return [gpu]
        compiled = {p.id for p in gpu.parts if any(one.job.do is Task.COMPILE for one in p.jobs)}
        on_cpu = [one for one in snippets if self.options.both or not one.wants_gpu]
        return [gpu, self.plan_turn(cpu, on_cpu, compiled)]

    def plan_turn(
        self, where: dict[str, Any], snippets: Iterable[Snippet], compiled: Set[str] = frozenset()
    ) -> Turn:
        """What to do on one machine; nothing that another turn has `compiled` compiles again."""
        turn = Turn(where, self.options.children, longest_first=self.options.budget is None)
        stale: list[tuple[str, str, Snippet, str]] = []
        for snippet in snippets:
            if why := self.staleness_reason(snippet, turn.slug):
                old = self.old_record(snippet, turn.slug)
                stale.append((old["date"] if old else "", snippet.id, snippet, why))
            else:
                turn.current.append(snippet)
        for *_, snippet, why in sorted(stale, key=lambda row: row[:2]):
            records = self.load_records(snippet)
            known = store.newest_record(records, turn.slug, snippet.digest)
            work = SnippetRun(snippet, where, known, self._runs_demo_only(snippet, turn.slug, why))
            if not self.options.force and not work.on_cpu and work.only_compiled() is None:
                # The same wherever they are made: borrowed time is not spent on them.
                same = (one for one in records.values() if one["digest"] == snippet.digest)
                if figures := next((one["compiled"] for one in same if "compiled" in one), None):
                    work.parts[Task.COMPILE] = {"compiled": figures}
            if reason := work.cannot_run():
                turn.skipped.append((snippet, reason))
            elif work.trusted and work.only_compiled():
                turn.current.append(snippet)  # nothing of it is executed here: it has no demo
            else:
                jobs = self.untimed_jobs(work)
                if snippet.id in compiled:
                    jobs = [job for job in jobs if job.do is not Task.COMPILE]
                jobs += filter(None, [work.timing_job()])
                part = Part(work, why, self.estimator.estimate_jobs(work, jobs, records))
                turn.parts.append(part)
        return turn

    def untimed_jobs(self, work: SnippetRun) -> list[Job]:
        viewed = self.options.out is None and work.on_cpu
        return work.untimed_jobs(self.options.force, viewed)

    def old_record(self, snippet: Snippet, slug: str) -> Record | None:
        """The record that there is, in the file of `--out` or in place."""
        kept = store.newest_record(self.load_records(snippet), slug, snippet.digest)
        return self.brought.get((snippet.id, slug)) or kept

    def staleness_reason(self, snippet: Snippet, slug: str) -> str | None:
        """Why a snippet must run on a machine; None where its record is current."""
        brought = self.brought.get((snippet.id, slug))
        if self.book.failure_line(snippet.id, slug, snippet.digest):
            return FAILED
        if self.options.out is not None and brought and brought["digest"] == snippet.digest:
            return None  # this run's own, even where it is forced: another file begins another run
        why = self._record_staleness(snippet, slug)
        if (again := self.options.repeats) and why in (None, TRUSTED):
            return None if self.done(snippet.id, slug, snippet.digest) else again
        return why

    def _runs_demo_only(self, snippet: Snippet, slug: str, why: str) -> bool:
        """Whether only the demo runs for `why`, also after it was the only failure."""
        if why == FAILED and self._record_staleness(snippet, slug) in (None, TRUSTED):
            demo_alone = self.book.demo_alone(snippet.id, slug, snippet.digest)
            return demo_alone and not self.options.repeats
        return why == TRUSTED

    def _record_staleness(self, snippet: Snippet, slug: str) -> str | None:
        old = self.old_record(snippet, slug)
        if old is None:
            return NEVER
        if old["digest"] != snippet.digest:
            return CHANGED
        # A demo on the CPU is cheap: every checkout runs it once.
        cheap = slug == ledger.CPU and self.options.out is None
        unchecked = cheap and not self.book.has_passed(snippet.id, slug, snippet.digest)
        return TRUSTED if unchecked else None
