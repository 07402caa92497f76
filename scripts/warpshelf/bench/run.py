"""A run: what is stale is verified, timed, compiled and recorded; a quick run records nothing.

Of what is not, the demo runs, and has to print what the record has.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from warpshelf.bench import assemble, pool
from warpshelf.bench import pool as pools
from warpshelf.bench.assemble import SnippetRun
from warpshelf.bench.eta import Estimator, Eta, job_key
from warpshelf.bench.plan import Options, Part, Plan, Planner, Turn
from warpshelf.bench.pool import AHEAD, Job, Outcome, Pool, most_on_gpu
from warpshelf.contract import pictures
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project
from warpshelf.look import view_store
from warpshelf.records import bundle, claim_check, ledger, store
from warpshelf.records.schema import Record
from warpshelf.worker.context import Task

__all__ = ["Options", "Plan", "Run", "Verdict"]

SPENT = "the budget was spent"


@dataclass(frozen=True)
class Verdict:
    """What became of one snippet in a run on one machine; `machine` is a slug.

    `state` is "passed", "trusted" (its demo has printed what the record has), "failed", "current",
    "skipped" or "left". `trusted` is the date and the commit of a record that is trusted here;
    `verified` says that this checkout has verified it, now or before. `told` has a line for each
    set of published figures that the snippet predicts: its errors.
    """

    snippet: str
    state: str
    note: str = ""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    machine: str = ledger.CPU
    told: tuple[str, ...] = ()
    trusted: tuple[str, str | None] | None = None
    verified: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether it is of a machine with a GPU."""
        return self.machine != ledger.CPU


@dataclass
class Run:
    """One run over some snippets.

    `tell` hears the plan and the outlook if anything is to run, then each start of a job and each
    verdict.
    """

    project: Project
    options: Options
    tell: Callable[[object], None] = lambda event: None
    verdicts: list[Verdict] = field(default_factory=list)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    here: dict[str, Any] = field(default_factory=dict)
    planned: Plan = field(default_factory=lambda: Plan([]))
    outlook: Eta = field(default_factory=Eta)
    repeated: ledger.RepeatProgress | None = None
    # Compiled figures by snippet and digest: made ahead of time, they are the same on the CPU.
    compiled: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)

    def make_plan(self, chosen: Iterable[Snippet]) -> Plan:
        """What a run over these would do. Nothing is run, but for a look at a GPU.

        Raises:
            ShelfError: the GPU cannot be asked, or the file of `--out` cannot be carried on.
        """
        sound = [snippet for snippet in chosen if not snippet.findings]
        planner = self._make_planner(sound)
        if not ledger.may_have_gpu():
            self.here = ledger.describe_host()
        else:
            pools.require_torch()
            with Pool(1) as pool:
                self.here = pools.describe_machine(pool, self.project)
        return Plan(planner.plan_turns(self.here, sound), self.options.budget)

    def run_stale(self, chosen: Iterable[Snippet]) -> list[Verdict]:
        """Run whatever is stale among the snippets; every verdict, in the order reached.

        Whatever ends it early, be it an exception that a signal raises, its children are ended and
        what has passed is kept.

        Raises:
            ShelfError: torch is missing, or the file of `--out` cannot be carried on.
        """
        started = time.monotonic()
        budget = self.options.budget
        deadline = None if budget is None else started + budget
        sound = []
        for snippet in chosen:
            if snippet.findings:
                self._add_verdict(Verdict(snippet.id, "failed", "not run", snippet.findings))
            else:
                sound.append(snippet)
        planner = self._make_planner(sound)
        out = self.options.out
        if out is not None and not out.exists():
            write_atomically(out, bundle.bundle_text([]))  # who waits for it finds one in any case
        ahead: tuple[str, ...] = ()
        if not ledger.may_have_gpu():
            self.here = ledger.describe_host()
            self.planned = Plan(planner.plan_turns(self.here, sound), budget)
            runs = [part.work.snippet for turn in self.planned.turns for part in turn.parts]
            if not runs:
                for turn in self.planned.turns:
                    self._report_not_run(turn, planner)
                return self.verdicts
            if any(snippet.uses_triton or snippet.cuda_path for snippet in runs):
                ahead = AHEAD  # of a GPU's children few have a use for it
        pools.require_torch()
        if ahead:
            _build_engine()
        with Pool(self.options.workers or os.cpu_count() or 1, preload=ahead) as pool:
            if not self.here:
                self.here = pools.describe_machine(pool, self.project)
                self.planned = Plan(planner.plan_turns(self.here, sound), budget)
            pool.most_on_gpu = most_on_gpu(self.here)
            if self.planned.verdicts:
                self.outlook = Eta(self.planned.rounds)
                self.tell(self.planned)
                self.tell(self.outlook)
            for turn in self.planned.turns:
                self._report_not_run(turn, planner)
                self._run_turn(pool, turn, planner, deadline)
        if self.repeated and not any(verdict.state == "left" for verdict in self.verdicts):
            self.repeated.finish()
        return self.verdicts

    def mark_left(self, note: str) -> None:
        """Have a verdict on all that was planned and not reached."""
        for turn in self.planned.turns:
            self._mark_turn_left(turn, note)

    def _make_planner(self, chosen: list[Snippet]) -> Planner:
        options = self.options
        if options.out is not None and options.out.exists():
            for item in bundle.read_bundle(options.out):
                self.records[item["snippet"], item["machine"]["slug"]] = item
        if options.repeats and options.out is None:
            names = [snippet.id for snippet in chosen]
            self.repeated = ledger.resume_repeat(self.project, options.repeats, names)
        book = ledger.load_ledger(self.project)
        return Planner(
            options,
            book,
            Estimator(self.project, book),
            options.workers or os.cpu_count() or 1,
            dict(self.records),
            self.repeated.has_passed if self.repeated else (lambda *_: False),
        )

    def _report_not_run(self, turn: Turn, planner: Planner) -> None:
        """The verdicts on all that a turn does not run."""
        for snippet in turn.current:
            old, book = planner.old_record(snippet, turn.slug) or {}, planner.book
            key = snippet.id, turn.slug, snippet.digest
            here = self.options.out is None and turn.slug == ledger.CPU and bool(old)
            verified = here and book.has_passed(*key) and not book.demo_alone(*key)
            trusted = _record_origin(old) if here and not verified else None
            done = Verdict(snippet.id, "current", machine=turn.slug, told=_prediction_lines(old))
            self._add_verdict(replace(done, trusted=trusted, verified=verified))
        for snippet, why in turn.skipped:
            self._add_verdict(Verdict(snippet.id, "skipped", why, machine=turn.slug))

    def _run_turn(self, pool: Pool, turn: Turn, planner: Planner, deadline: float | None) -> None:
        for batch in turn.split_batches():
            self._run_batch(pool, batch, planner, deadline)
        self._mark_turn_left(turn, SPENT)

    def _run_batch(
        self, pool: Pool, batch: list[Part], planner: Planner, deadline: float | None
    ) -> None:
        gathered = {part.id: part.work for part in batch}
        jobs: list[Job] = []
        for work in gathered.values():
            if figures := self.compiled.get((work.snippet.id, work.digest)):
                work.parts[Task.COMPILE] = {"compiled": figures}
            mine = planner.untimed_jobs(work)
            jobs.extend(mine)
            if not mine:
                self._finish_snippet(work, planner.book)
        if not any(part.timing for part in batch):  # the longest of a snippet's jobs first
            due = {job_key(one.job): one.seconds for part in batch for one in part.before}
            place = {name: at for at, name in enumerate(gathered)}
            jobs.sort(key=lambda job: (place[job.key], -due.get(job_key(job), 0.0)))
        waiting: list[Job] = []
        for work in self._run_jobs(pool, jobs, gathered, deadline):
            if not work.verified:
                continue
            if not work.findings and (job := work.timing_job()):
                waiting.append(job)
            else:
                self._finish_snippet(work, planner.book)
        # One at a time, and only when nothing else runs: a neighbour would show in the times.
        order = {name: place for place, name in enumerate(gathered)}
        waiting.sort(key=lambda job: order[job.key])
        for work in self._run_jobs(pool, waiting, gathered, deadline):
            self._finish_snippet(work, planner.book)

    def _run_jobs(
        self,
        pool: Pool,
        jobs: list[Job],
        gathered: dict[str, SnippetRun],
        deadline: float | None,
    ) -> Iterator[SnippetRun]:
        """Run jobs, and yield what is gathered of a snippet whenever one of its jobs has ended."""
        for outcome in pool.run(jobs, deadline, self._on_job_start):
            self.outlook.job_ended(outcome)
            work = gathered[outcome.job.key]
            work.add_outcome(outcome)
            yield work

    def _on_job_start(self, job: Job) -> None:
        self.outlook.job_started(job)
        self.tell(job)

    def _mark_turn_left(self, turn: Turn, note: str) -> None:
        done = {one.snippet for one in self.verdicts if one.machine == turn.slug}
        for part in turn.parts:
            if part.id not in done:
                self._add_verdict(Verdict(part.id, "left", note, machine=turn.slug))

    def _finish_snippet(self, work: SnippetRun, book: ledger.Ledger) -> None:
        """Keep what came of a snippet, and its verdict: both of them, or neither."""
        with pool.defer_signals():
            self._save_result(work, book)

    def _save_result(self, work: SnippetRun, book: ledger.Ledger) -> None:
        snippet, slug = work.snippet, work.machine["slug"]
        if work.trusted:
            self._save_trusted(work, book)
            return
        new = {} if work.final_findings() else work.build_record()
        if new and slug != ledger.CPU and self.options.origin:
            new["origin"] = self.options.origin
        spared = self.options.out is None and slug == ledger.CPU and not self.options.force
        if new and spared and work.old_is_current:
            self._compare_records(work, new)
        if work.findings:
            book.save_verdict(
                snippet.id, slug, work.current_digest(), str(work.findings[0]), work.spent
            )
            found = tuple(work.findings)
            self._add_verdict(Verdict(snippet.id, "failed", "", found, work.seconds, slug))
            return
        self.compiled[snippet.id, work.digest] = new.get("compiled", [])
        if self.options.out is not None:
            self.records[snippet.id, slug] = new
            write_atomically(self.options.out, bundle.bundle_text(self.records.values()))
            note = ""
        else:
            written = (
                not (spared and work.old_is_current) and store.save_record(snippet, new) is not None
            )
            note = "" if written else "agrees with its record"
            if work.views:
                view_store.write_views(snippet, work.views)
        book.save_verdict(snippet.id, slug, work.digest, None, work.spent)
        if self.repeated:
            self.repeated.add_passed(snippet.id, slug, work.digest)
        told = _prediction_lines(new)
        done = Verdict(snippet.id, "passed", note, seconds=work.seconds, machine=slug, told=told)
        self._add_verdict(replace(done, verified=self.options.out is None))

    def _save_trusted(self, work: SnippetRun, book: ledger.Ledger) -> None:
        """Keep what the demo of a trusted record came to."""
        name, slug, old = work.snippet.id, work.machine["slug"], work.old or {}
        found = tuple(work.final_findings())
        failure = str(found[0]) if found else None
        book.save_verdict(name, slug, work.current_digest(), failure, work.spent, demo_alone=True)
        if found:
            self._add_verdict(Verdict(name, "failed", "", found, work.seconds, slug))
            return
        date, commit = origin = _record_origin(old)
        note = f"prints what its record of {date} has" + (f", commit {commit}" if commit else "")
        done = Verdict(name, "trusted", note, (), work.seconds, slug, _prediction_lines(old))
        self._add_verdict(replace(done, trusted=origin))

    def _compare_records(self, work: SnippetRun, new: Record) -> None:
        """See that the record in place, which is kept, claims what this run would claim."""
        assert work.old is not None
        where = self.project.relative_path(store.record_path(work.snippet, work.machine["slug"]))
        mend = f"write what holds by `shelf run --force {work.snippet.id}`"
        for fault in claim_check.claim_errors(work.old, new, work.snippet):
            work.findings.append(Finding(where, None, fault, mend))

    def _add_verdict(self, verdict: Verdict) -> None:
        self.outlook.snippet_settled(verdict.snippet, verdict.machine)
        self.verdicts.append(verdict)
        self.tell(verdict)


def _build_engine() -> None:
    """Compile the engine, if it is not yet, before the limit of time of any child begins."""
    # Where it cannot be, as on Windows, whichever child needs it says why.
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        from papergpu.build import compile_engine

        compile_engine()


def _record_origin(record: Record) -> tuple[str, str | None]:
    """The day and the commit of a record."""
    return record["date"][:10], record.get("commit")


def _prediction_lines(record: Record) -> tuple[str, ...]:
    return tuple(one.words for one in pictures.errors_by_set(record.get("predictions", ())))


# Whether a changed snippet is right, within seconds, by what tells most; nothing is recorded.
#
# A kernel runs on one architecture, from PTX, on the cases that together reject the most mutants,
# one after another until the time is spent; no demo, no views, no compiled figures. Facts are all
# looked at. What passes here may still be wrong: `shelf run` says so.

SECONDS = 1.5  # of CPU that a child may have spent and still begin another case
PRELOADED = ("triton", "papergpu.triton", "papergpu.decode")


@dataclass
class QuickResult:
    """What a quick look at a snippet came to; `skipped` says why there was none.

    `ran` are numbers of cases, of `cases` in all; `kills` the mutants, of `mutants`, that those
    which ran would reject. A model or program has `facts` instead. `seconds` are of CPU, in the
    child that took longest.
    """

    snippet: str
    target: str | None = None
    skipped: str | None = None
    findings: list[Finding] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    cases: int = 0
    kills: list[str] = field(default_factory=list)
    mutants: int = 0
    facts: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        whole = f"`shelf run {self.snippet}` verifies all and records it"
        if self.skipped:
            return f"{self.snippet}: not looked at, {self.skipped}"
        if self.findings:
            return f"{self.snippet}: wrong"
        if not self.cases:
            return f"{self.snippet}: right, {self.facts} facts hold; nothing is recorded, {whole}"
        return (
            f"{self.snippet}: right on {len(self.ran)} of {self.cases} cases, {self.target}, which "
            f"reject {len(self.kills)} of {self.mutants} mutants; nothing is recorded, {whole}"
        )


def check_snippets(chosen: Iterable[Snippet], workers: int | None = None) -> Iterator[QuickResult]:
    """A quick look at each snippet; one alone is shared out among all cores."""
    here, glances, jobs = ledger.describe_host(), {}, []
    snippets = list(chosen)
    workers = workers or os.cpu_count() or 1
    for one in snippets:
        work = assemble.SnippetRun(one, here, None)
        glance = glances[one.id] = QuickResult(one.id, work.targets[0], findings=[*one.findings])
        glance.skipped = one.cannot_run(here["sm"], here["gpus"])
        if glance.findings or glance.skipped:
            continue
        turns = workers if one.kind == "kernel" and len(snippets) == 1 else 1
        known = assemble.job_details(one, here, glance.target)
        for turn in range(turns):
            details = {**known, "turn": (turn, turns), "seconds": SECONDS}
            jobs.append(Job(Task.GLANCE, one.id, one.seconds, details))
    by_id = {one.id: one for one in snippets}
    awaited = {name: sum(job.key == name for job in jobs) for name in glances}
    yield from (glance for name, glance in glances.items() if not awaited[name])
    if not jobs:
        return
    executes = any(one.uses_triton or one.cuda_path for one in snippets)
    os.environ["TRITON_INTERPRET"] = "0"  # Triton reads it at its import
    with Pool(workers, preload=PRELOADED if executes else ()) as pool:
        for outcome in pool.run(jobs):
            glance = glances[outcome.job.key]
            _add_outcome(glance, by_id[glance.snippet], outcome)
            awaited[glance.snippet] -= 1
            if not awaited[glance.snippet]:
                yield glance


def _add_outcome(glance: QuickResult, snippet: Snippet, outcome: Outcome) -> None:
    answer = outcome.answer or {}
    found = assemble.outcome_findings(snippet, outcome)
    glance.findings += [one for one in found if one not in glance.findings]
    glance.ran = sorted({*glance.ran, *answer.get("ran", ())})
    glance.kills = sorted({*glance.kills, *answer.get("kills", ())})
    glance.cases = answer.get("cases", glance.cases)
    glance.mutants = answer.get("mutants", glance.mutants)
    glance.facts += answer.get("facts", 0)
    glance.seconds = max(glance.seconds, answer.get("cpu_seconds", 0.0))
