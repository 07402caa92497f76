"""What a run will do: snippets, records and the ledger go in, turns of work with their time out.

A turn is one machine: a GPU, then the CPU that it is in. A turn goes batch by batch, since what was
verified still has to be timed, and a run that is stopped has recorded only what was. What times
nothing is one batch, and begins with what takes longest.

A record of a CPU whose digest is that of the sources is trusted. Of its snippet the demo runs, once
in a checkout, and has to print what the record has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from warpshelf.bench.assemble import SnippetRun
from warpshelf.bench.eta import BASES, Estimator, JobEstimate, Round, end_times
from warpshelf.bench.pool import Job, most_on_gpu
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.records import ledger, store
from warpshelf.records.ledger import Ledger
from warpshelf.records.schema import Record
from warpshelf.worker.context import Task

BATCH = 4, 16  # snippets in a batch at least and at most; between, twice as many as children

# Why a snippet runs.
NEVER, CHANGED, FAILED = "never run", "changed since its record", "failed here before"
TRUSTED, REPEATED = "its record is trusted", "current, and repeated"
FORCED = "current, but forced"


@dataclass
class Options:
    """What the command line asks of a run.

    `everything` repeats what is current, and holds it against its record; `force` records it anew.
    `both` asks a machine with a GPU for the records of its CPU as well, which anyone can make
    again, and without which no record of a GPU can be checked. `only`, "gpu" or "cpu", asks for the
    records of the one or the other alone.
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
    """One machine's part of a run: what runs, the stalest first, and what does not.

    `longest_first` has what times nothing begin with what takes longest; a budget is better spent
    on what is stalest.
    """

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
    """Decides what must run on a machine.

    `brought` are records that the file of `--out` has, by snippet and machine; `done` says of a
    snippet, a machine and a digest whether a run that is carried on has repeated it.
    """

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
