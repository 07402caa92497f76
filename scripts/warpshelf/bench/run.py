"""A run: what is stale is verified, timed and compiled here, and its records written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warpshelf.bench import assemble
from warpshelf.bench.pool import AHEAD, Job, Outcome, Pool, most_on_gpu
from warpshelf.contract import predictions
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.look import kept
from warpshelf.records import agreement, bundle, ledger, machine, store
from warpshelf.records.schema import Record
from warpshelf.worker.task import Task

MACHINE_SECONDS = 60.0  # to import torch and look at the GPU, with a cold disk
COMPILE_SECONDS = 300.0


@dataclass(frozen=True)
class Plan:
    """How many verdicts a run will reach."""

    verdicts: int


@dataclass(frozen=True)
class Verdict:
    """What became of one snippet in a run on one machine; `machine` is a slug.

    `told` has a line for each set of published figures that the snippet predicts: its errors.
    """

    snippet: str
    state: str  # "passed", "failed", "current", "skipped" or "left"
    note: str = ""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    machine: str = machine.CPU
    told: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether it is of a machine with a GPU."""
        return self.machine != machine.CPU


@dataclass
class Options:
    """What the command line asks of a run.

    `both` asks a machine with a GPU for the records of its CPU as well, which anyone can make
    again, and without which no record of a GPU can be checked.
    """

    force: bool = False
    budget: float | None = None
    out: Path | None = None
    workers: int | None = None
    both: bool = True
    origin: dict[str, str] | None = None  # who makes the records of a GPU


@dataclass
class Run:
    """One run over some snippets. `tell` hears the plan, each start of a job and each verdict."""

    project: Project
    options: Options
    tell: Callable[[object], None] = lambda event: None
    verdicts: list[Verdict] = field(default_factory=list)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    here: dict[str, Any] = field(default_factory=dict)
    # Compiled figures by snippet and digest: made ahead of time, they are the same on the CPU.
    compiled: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    def over(self, snippets: Iterable[Snippet]) -> list[Verdict]:
        """Run whatever is stale among `snippets`; every verdict, in the order reached.

        Raises:
            ShelfError: torch is missing, or the file of `--out` cannot be carried on.
        """
        started = time.monotonic()
        budget = self.options.budget
        deadline = None if budget is None else started + budget
        sound = []
        for snippet in snippets:
            if snippet.findings:
                self._end(Verdict(snippet.id, "failed", "not run", snippet.findings))
            else:
                sound.append(snippet)
        self._carry_on()
        book = ledger.load(self.project)
        ahead: tuple[str, ...] = ()
        if not machine.may_have_gpu():
            stale = self._stale(sound, machine.CPU, book)
            if not stale:
                for snippet in sound:
                    self._current(snippet, machine.CPU)
                return self.verdicts
            if any(snippet.uses_triton or snippet.cuda_path for snippet in stale):
                ahead = AHEAD  # of a GPU's children few have a use for it
        self._need_torch()
        with Pool(self.options.workers or os.cpu_count() or 1, preload=ahead) as pool:
            self.here = self._describe(pool) if machine.may_have_gpu() else machine.plain()
            pool.most_on_gpu = most_on_gpu(self.here)
            turns = self._turns(sound)
            self.tell(Plan(len(self.verdicts) + sum(len(one) for _, one in turns)))
            for where, chosen in turns:
                stale = self._stale(chosen, where["slug"], book)
                for snippet in chosen:
                    if snippet not in stale:
                        self._current(snippet, where["slug"])
                self._work(pool, where, stale, book, deadline)
        return self.verdicts

    def _turns(self, snippets: list[Snippet]) -> list[tuple[dict[str, Any], list[Snippet]]]:
        """What to run as on which machine: the GPU first, since it may be borrowed."""
        cpu = machine.without_gpu(self.here)
        if not self.here["gpus"]:
            return [(cpu, snippets)]
        on_gpu = [snippet for snippet in snippets if snippet.wants_gpu]
        on_cpu = [one for one in snippets if self.options.both or not one.wants_gpu]
        return [(self.here, on_gpu), (cpu, on_cpu)]

    def _stale(self, snippets: list[Snippet], slug: str, book: ledger.Ledger) -> list[Snippet]:
        """What must run on the machine `slug`, the stalest first."""
        stale: list[tuple[str, str, Snippet]] = []
        for snippet in snippets:
            records, _ = store.load_all(snippet)
            kept_here = store.newest(records, slug, snippet.digest)
            old = self.records.get((snippet.id, slug)) or kept_here
            current = old is not None and old["digest"] == snippet.digest
            if book.failure(snippet.id, slug, snippet.digest):
                current = False
            elif slug == machine.CPU and self.options.out is None:
                # A check on the CPU is cheap: every checkout repeats it once.
                current = current and book.passed(snippet.id, slug, snippet.digest)
            if self.options.force or not current:
                stale.append((old["date"] if old else "", snippet.id, snippet))
        return [snippet for *_, snippet in sorted(stale, key=lambda row: row[:2])]

    def _work(
        self,
        pool: Pool,
        where: dict[str, Any],
        stale: list[Snippet],
        book: ledger.Ledger,
        deadline: float | None,
    ) -> None:
        gathered: dict[str, assemble.Gathered] = {}
        jobs: list[Job] = []
        for snippet in stale:
            records, _ = store.load_all(snippet)
            old = store.newest(records, where["slug"], snippet.digest)
            work = assemble.Gathered(snippet, where, old)
            if why := work.cannot_run():
                self._end(Verdict(snippet.id, "skipped", why, machine=where["slug"]))
                continue
            if figures := self.compiled.get((snippet.id, work.digest)):
                work.parts[Task.COMPILE] = {"compiled": figures}
            gathered[snippet.id] = work
            viewed = self.options.out is None and where["slug"] == machine.CPU
            mine = work.jobs(COMPILE_SECONDS, self.options.force, viewed)
            jobs.extend(mine)
            if not mine:
                self._finish(work, book)
        waiting: list[Job] = []
        for outcome in pool.run(jobs, deadline, self.tell):
            work = gathered[outcome.job.key]
            work.take(outcome)
            if not work.verified:
                continue
            if not work.findings and (job := work.timing_job()):
                waiting.append(job)
            else:
                self._finish(work, book)
        # One at a time, and only when nothing else runs: a neighbour would show in the times.
        order = {snippet.id: place for place, snippet in enumerate(stale)}
        for outcome in pool.run(sorted(waiting, key=lambda j: order[j.key]), deadline, self.tell):
            work = gathered[outcome.job.key]
            work.take(outcome)
            self._finish(work, book)
        done = {verdict.snippet for verdict in self.verdicts if verdict.machine == where["slug"]}
        for name in gathered:
            if name not in done:
                note = "the budget was spent; the next run goes on"
                self._end(Verdict(name, "left", note, machine=where["slug"]))

    def _finish(self, work: assemble.Gathered, book: ledger.Ledger) -> None:
        snippet, slug = work.snippet, work.machine["slug"]
        new = {} if work.verdict() else work.record()
        if new and slug != machine.CPU and self.options.origin:
            new["origin"] = self.options.origin
        spared = self.options.out is None and slug == machine.CPU and not self.options.force
        if new and spared and work.old_is_current:
            self._compare(work, new)
        if work.findings:
            book.note(snippet.id, slug, work.digest_now(), str(work.findings[0]))
            found = tuple(work.findings)
            self._end(Verdict(snippet.id, "failed", "", found, work.seconds, slug))
            return
        self.compiled[snippet.id, work.digest] = new.get("compiled", [])
        if self.options.out is not None:
            self.records[snippet.id, slug] = new
            write_atomically(self.options.out, bundle.text(self.records.values()))
            note = ""
        else:
            written = not (spared and work.old_is_current) and store.put(snippet, new) is not None
            note = "" if written else "agrees with its record"
            if work.views:
                kept.write(snippet, work.views)
        book.note(snippet.id, slug, work.digest, None)
        told = _told(new)
        done = Verdict(snippet.id, "passed", note, seconds=work.seconds, machine=slug, told=told)
        self._end(done)

    def _compare(self, work: assemble.Gathered, new: Record) -> None:
        """See that the record in place, which is kept, claims what this run would claim."""
        assert work.old is not None
        where = self.project.relative(store.path_of(work.snippet, work.machine["slug"]))
        mend = f"write what holds by `shelf run --force {work.snippet.id}`"
        for fault in agreement.faults(work.old, new, work.snippet):
            work.findings.append(Finding(where, None, fault, mend))

    def _carry_on(self) -> None:
        """Take up the records that a run cut short has left in the file of `--out`."""
        out = self.options.out
        if out is None:
            return
        if not out.exists():  # who waits for the file finds one even if nothing is stale
            write_atomically(out, bundle.text([]))
        for item in bundle.read(out):
            self.records[item["snippet"], item["machine"]["slug"]] = item

    def _describe(self, pool: Pool) -> dict[str, Any]:
        job = Job(Task.DESCRIBE, "machine", MACHINE_SECONDS, self._details())
        for outcome in pool.run([job]):
            if outcome.answer and "machine" in outcome.answer:
                found: dict[str, Any] = outcome.answer["machine"]
                return found
            raise ShelfError(self._no_machine(outcome))
        raise AssertionError("a pool without a deadline yields every outcome")

    def _no_machine(self, outcome: Outcome) -> Finding:
        failures = (outcome.answer or {}).get("failures", [{}])
        what = outcome.cause or failures[0].get("what", "gave no answer")
        return Finding("torch", None, what, "see that `import torch` works in this environment")

    def _details(self) -> dict[str, Any]:
        return {"root": str(self.project.root)}

    def _need_torch(self) -> None:
        if find_spec("torch") is None:
            what = "is not installed in this environment"
            raise ShelfError(Finding("torch", None, what, "run `make site`, which installs it"))

    def _current(self, snippet: Snippet, slug: str) -> None:
        known, _ = store.load_all(snippet)
        old = self.records.get((snippet.id, slug)) or store.newest(known, slug, snippet.digest)
        self._end(Verdict(snippet.id, "current", machine=slug, told=_told(old or {})))

    def _end(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.tell(verdict)


def _told(record: Record) -> tuple[str, ...]:
    return tuple(one.words for one in predictions.by_set(record.get("predictions", ())))
