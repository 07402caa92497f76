"""What a job will take: what is known of earlier runs goes in, seconds and where they are from out.

What is known best is asked first: what the task took here, then what a record of such a machine
says, then those of other GPUs, then what the task takes for other snippets in the same language.
Where nothing was ever run, as of timings before the first record of a GPU, the seconds follow from
the method: how many functions are to be called on how many cases, and for how long each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from warpshelf.bench.assemble import Gathered
from warpshelf.bench.pool import Job
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project
from warpshelf.records.ledger import Ledger
from warpshelf.records.machine import CPU
from warpshelf.records.schema import SPENT, Record
from warpshelf.worker import timing
from warpshelf.worker.task import Task

# Where seconds are from, the best known first.
HERE, RECORD, OTHER, ALIKE, METHOD, GUESS = (
    "earlier runs here",
    "records",
    "records of other GPUs",
    "others like it",
    "the method",
    "a guess",
)
BASES = (HERE, RECORD, OTHER, ALIKE, METHOD, GUESS)
# By the method, in seconds. What no rule of ours fixes is on the high side: who waits less than was
# said minds it less.
START = 10.0  # to import torch and make a context on the GPU
FIRST = 4.0  # the first call of a function: its compilation
CEILING = 2.0  # each of the rates that a timing measures for itself
CALL = 0.1  # to call a function on a small case and compare what it gives
LARGE_CALL = 0.7  # the same of a case to time, with its reference, and the flushes between samples
GUESSES = {Task.DUE: 6.0, Task.VERIFY: 15.0, Task.COMPILE: 15.0, Task.VIEW: 15.0, Task.TIME: 60.0}
LONG_GUESS = 300.0


@dataclass(frozen=True)
class Expected:
    """What a job is expected to take, and which of BASES that rests on."""

    job: Job
    seconds: float
    basis: str


def name_of(task: Task) -> str:
    """A task as records and the ledger have it."""
    return task.name.lower()


class Estimator:
    """Expects seconds of jobs, from the records and the ledger of a project."""

    def __init__(self, project: Project, book: Ledger) -> None:
        self.project = project
        self.book = book

    def expected(
        self, work: Gathered, jobs: Sequence[Job], records: Mapping[str, Record]
    ) -> list[Expected]:
        """What each of the jobs of one snippet will take; `records` are the snippet's own."""
        alike = [job.do for job in jobs]
        found = []
        for job in jobs:
            total, basis = self._task(work, job.do, records)
            seconds = min(total / alike.count(job.do), job.seconds)
            found.append(Expected(job, seconds, basis))
        return found

    def _task(self, work: Gathered, task: Task, records: Mapping[str, Record]) -> tuple[float, str]:
        """Seconds of all jobs of one task, and what they rest on."""
        name, slug = name_of(task), work.machine["slug"]
        spent = self.book.seconds(work.snippet.id, slug)
        if name in spent:
            return spent[name], HERE
        own = _seconds(records.get(slug))
        if name in own:
            return own[name], RECORD
        others = [_seconds(one) for key, one in records.items() if _likens(task, slug, key)]
        if taken := [one[name] for one in others if name in one]:
            return median(taken), OTHER
        if taken := self._like(work.snippet, task, slug):
            return median(taken), ALIKE
        if not work.on_cpu and task in (Task.TIME, Task.VERIFY):
            due = (records.get(CPU) or {}).get("due")
            return by_method(task, due or ()), METHOD if due else GUESS
        return GUESSES.get(task, LONG_GUESS), GUESS

    def _like(self, snippet: Snippet, task: Task, slug: str) -> list[float]:
        """What the task took for the snippets written in the same language."""
        found = []
        for name, (written, records) in self._all.items():
            if written != language(snippet):
                continue
            taken = [self.book.seconds(name, slug)]
            taken += [spent for key, spent in records.items() if _likens(task, slug, key)]
            found += [spent[name_of(task)] for spent in taken if name_of(task) in spent][:1]
        return found

    @cached_property
    def _all(self) -> dict[str, tuple[str, dict[str, dict[str, float]]]]:
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
                _, records = found.setdefault(path.parents[1].name, (_language(record), {}))
                records[path.stem] = _seconds(record)
        return found


def _seconds(record: object) -> dict[str, float]:
    said = record.get("seconds") if isinstance(record, dict) else None
    if not isinstance(said, dict):
        return {}
    return {
        task: float(spent)
        for task, spent in said.items()
        if task in SPENT and isinstance(spent, int | float) and 0 <= spent < float("inf")
    }


def _likens(task: Task, slug: str, other: str) -> bool:
    """Whether what a task took on one machine tells of another: compilers run on any CPU."""
    return task is Task.COMPILE or (slug == CPU) == (other == CPU)


def language(snippet: Snippet) -> str:
    """What it is written in, as far as that decides what its checks take."""
    if snippet.uses_triton:
        return "Triton"
    return "CUDA C++" if snippet.cuda_path else snippet.kind


def _language(record: Mapping[str, Any]) -> str:
    """The same of the snippet of a record."""
    compiled = record.get("compiled")
    rows = compiled if isinstance(compiled, list) else []
    said = {row.get("language") for row in rows if isinstance(row, dict)}
    named = [one for one in ("Triton", "CUDA C++") if one in said]
    return named[0] if named else str(record.get("kind"))


def by_method(task: Task, due: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of a task on a GPU on which nothing is known of it, by what is due."""
    rows = list(due)
    calls = {timed: 0 for timed in (False, True)}
    functions: set[str] = set()
    for row in rows:
        names = [*row["variants"], *row["peers"]]
        calls[row["timed"]] += len(names)
        functions |= set(names)
    start = START + FIRST * len(functions)
    if task is Task.VERIFY:
        return start + CALL * calls[False]
    units = {row.get("unit") for row in rows if row["timed"]}
    each = timing.WARM_UP + timing.SAMPLING + LARGE_CALL
    return start + CEILING * (1 + len(units)) + each * calls[True]
