"""A run: what is stale is verified, timed and compiled here, and its records written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from warpshelf import assemble, ledger, machine, record
from warpshelf.files import write_atomically
from warpshelf.findings import Finding, ShelfError
from warpshelf.pool import Job, Outcome, Pool
from warpshelf.project import Project
from warpshelf.snippet import Snippet

MACHINE_SECONDS = 60.0  # to import torch and look at the GPU, with a cold disk
COMPILE_SECONDS = 300.0


@dataclass(frozen=True)
class Verdict:
    """What became of one snippet in a run."""

    snippet: str
    state: str  # "passed", "failed", "current", "skipped" or "left"
    note: str = ""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0


@dataclass
class Options:
    """What the command line asks of a run."""

    force: bool = False
    budget: float | None = None
    out: Path | None = None
    workers: int | None = None


@dataclass
class Run:
    """One run over some snippets. `tell` hears each start as (snippet, phase) and each verdict."""

    project: Project
    options: Options
    tell: Callable[[object], None] = lambda event: None
    verdicts: list[Verdict] = field(default_factory=list)
    records: dict[tuple[str, str], dict] = field(default_factory=dict)
    here: dict = field(default_factory=dict)

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
        if not machine.may_have_gpu() and not self._stale(sound, machine.CPU, book):
            self._tell_current(sound)
            return self.verdicts
        self._need_torch()
        with Pool(self.options.workers or os.cpu_count() or 1) as pool:
            self.here = self._describe(pool) if machine.may_have_gpu() else machine.plain()
            stale = self._stale(sound, self.here["slug"], book)
            self._tell_current([snippet for snippet in sound if snippet not in stale])
            self._work(pool, stale, book, deadline)
        return self.verdicts

    def _machine_of(self, snippet: Snippet) -> dict:
        return self.here if snippet.wants_gpu else machine.without_gpu(self.here)

    def _tell_current(self, snippets: list[Snippet]) -> None:
        for snippet in snippets:
            self._end(Verdict(snippet.id, "current"))

    def _stale(self, snippets: list[Snippet], slug: str, book: ledger.Ledger) -> list[Snippet]:
        """What must run on the machine `slug`, the stalest first."""
        stale: list[tuple[str, str, Snippet]] = []
        for snippet in snippets:
            own = slug if snippet.wants_gpu else machine.CPU
            records, _ = record.load_all(snippet)
            old = self.records.get((snippet.id, own)) or records.get(own)
            current = old is not None and old["digest"] == snippet.digest
            if book.failure(snippet.id, own, snippet.digest):
                current = False
            elif own == machine.CPU and self.options.out is None:
                # A check on the CPU is cheap: every checkout repeats it once.
                current = current and book.passed(snippet.id, own, snippet.digest)
            if self.options.force or not current:
                stale.append((old["date"] if old else "", snippet.id, snippet))
        return [snippet for *_, snippet in sorted(stale, key=lambda row: row[:2])]

    def _work(
        self,
        pool: Pool,
        stale: list[Snippet],
        book: ledger.Ledger,
        deadline: float | None,
    ) -> None:
        gathered: dict[str, assemble.Gathered] = {}
        jobs: list[Job] = []
        for snippet in stale:
            work = assemble.Gathered(snippet, self._machine_of(snippet), self._kept(snippet))
            if why := work.cannot_run():
                self._end(Verdict(snippet.id, "skipped", why))
                continue
            gathered[snippet.id] = work
            jobs.extend(work.jobs(COMPILE_SECONDS, self.options.force))
        waiting: list[Job] = []
        for outcome in pool.run(jobs, deadline, self._began):
            work = gathered[outcome.job.key]
            work.take(outcome)
            if not work.verified:
                continue
            if not work.findings and (job := work.timing_job()):
                waiting.append(job)
            else:
                self._finish(work, book)
        # One at a time, and only when nothing else runs: a neighbour would show in the times.
        pool.workers = 1
        order = {snippet.id: place for place, snippet in enumerate(stale)}
        for outcome in pool.run(sorted(waiting, key=lambda j: order[j.key]), deadline, self._began):
            work = gathered[outcome.job.key]
            work.take(outcome)
            self._finish(work, book)
        done = {verdict.snippet for verdict in self.verdicts}
        for name in gathered:
            if name not in done:
                self._end(Verdict(name, "left", "the budget was spent; the next run goes on"))

    def _finish(self, work: assemble.Gathered, book: ledger.Ledger) -> None:
        snippet, slug = work.snippet, work.machine["slug"]
        findings = work.verdict()
        if findings:
            book.note(snippet.id, slug, work.digest_now(), str(findings[0]))
            self._end(Verdict(snippet.id, "failed", "", tuple(findings), work.seconds))
            return
        new = work.record()
        if self.options.out is not None:
            self.records[snippet.id, slug] = new
            write_atomically(self.options.out, record.bundle(self.records.values()))
            note = ""
        else:
            keep = work.old_is_current and slug == machine.CPU and not self.options.force
            written = not keep and record.write(snippet, new)
            note = "" if written else "agrees with its record"
        book.note(snippet.id, slug, work.digest, None)
        self._end(Verdict(snippet.id, "passed", note, seconds=work.seconds))

    def _kept(self, snippet: Snippet) -> dict | None:
        records, _ = record.load_all(snippet)
        return records.get(self._machine_of(snippet)["slug"])

    def _carry_on(self) -> None:
        """Take up the records that a run cut short has left in the file of `--out`."""
        out = self.options.out
        if out is None:
            return
        if not out.exists():  # who waits for the file finds one even if nothing is stale
            write_atomically(out, record.bundle([]))
        for item in record.read_bundle(out):
            self.records[item["snippet"], item["machine"]["slug"]] = item

    def _describe(self, pool: Pool) -> dict:
        job = Job("describe_machine", "machine", MACHINE_SECONDS, self._details())
        for outcome in pool.run([job]):
            if outcome.answer and "machine" in outcome.answer:
                return outcome.answer["machine"]
            raise ShelfError(self._no_machine(outcome))
        raise AssertionError("a pool without a deadline yields every outcome")

    def _no_machine(self, outcome: Outcome) -> Finding:
        failures = (outcome.answer or {}).get("failures", [{}])
        what = outcome.cause or failures[0].get("what", "gave no answer")
        return Finding("torch", None, what, "see that `import torch` works in this environment")

    def _details(self) -> dict:
        return {"root": str(self.project.root)}

    def _need_torch(self) -> None:
        if find_spec("torch") is None:
            what = "is not installed in this environment"
            raise ShelfError(Finding("torch", None, what, "run `make site`, which installs it"))

    def _began(self, job: Job) -> None:
        self.tell(job)

    def _end(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.tell(verdict)
