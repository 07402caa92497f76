"""A run: what is stale is verified, timed, compiled and recorded; a quick run records nothing."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from warpshelf.bench import assemble, plan
from warpshelf.bench import pool as pools
from warpshelf.bench.assemble import SnippetRun, is_compiled
from warpshelf.bench.plan import Estimator, Options, Part, Plan, Planner, Turn
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
# Seconds as expected that it takes to doubt a forecast, since the first jobs say little: so many,
# or of a short run this share.
PRIOR, DOUBT = 30.0, 0.05
OVERDUE = 0.1  # of what a job has run, that one which should have ended is taken to need still
Key = tuple[str, str, str, str | None]  # machine, snippet, task, target


def job_key(job: Job) -> Key:
    """What identifies a job within a run."""
    slug = job.details.get("machine", {}).get("slug", "")
    return slug, job.key, job.do, job.details.get("target")


class Eta:
    """Follows a run's jobs, which come in rounds, and estimates what is left. What jobs took over
    what they were expected to, of all and then of one task and basis, scales what is to come."""

    def __init__(
        self, rounds: Iterable[plan.Round] = (), now: Callable[[], float] = time.monotonic
    ) -> None:
        self.now = now
        self.rounds = [
            ({job_key(one.job): one for one in jobs}, workers, most)
            for jobs, workers, most in rounds
        ]
        total = sum(one.seconds for jobs, *_ in self.rounds for one in jobs.values())
        self.weight = max(0.1, min(PRIOR, DOUBT * total))  # of what was known, in seconds
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

    def expected_seconds(self, one: plan.JobEstimate) -> float:
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
            total = max(plan.end_times(left, workers, most, total, begun), default=total)
        return total


@dataclass(frozen=True)
class Verdict:
    """What became of one snippet in a run on one machine; `machine` is a slug.

    `state` is "passed", "trusted" (its demo has printed what the record has), "failed", "current",
    "skipped" or "left". `verified` says that this checkout has verified it, now or before.
    """

    snippet: str
    state: str
    note: str = ""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    machine: str = ledger.CPU
    told: tuple[str, ...] = ()  # errors, a line for each set of figures that it predicts
    trusted: tuple[str, str | None] | None = None  # date and commit of a record
    verified: bool = False


@dataclass
class Run:
    """One run over some snippets. `tell` hears the plan and the outlook if anything is to run, then
    each start of a job and each verdict."""

    project: Project
    options: Options
    tell: Callable[[object], None] = lambda event: None
    verdicts: list[Verdict] = field(default_factory=list)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    planned: Plan = field(default_factory=lambda: Plan([]))
    outlook: Eta = field(default_factory=Eta)
    repeated: ledger.RepeatProgress | None = None
    # Compiled figures by snippet and digest: made ahead of time, they are the same on the CPU.
    compiled: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    planner: Planner = field(init=False)
    pool: Pool = field(init=False)
    deadline: float = math.inf

    def make_plan(self, chosen: Iterable[Snippet]) -> Plan:
        """What a run over these would do. Nothing is run, but for a look at a GPU."""
        sound = [snippet for snippet in chosen if not snippet.findings]
        self.planner = self._make_planner(sound)
        here = ledger.describe_host()
        if ledger.may_have_gpu():
            pools.require_torch()
            with Pool(1) as pool:
                here = pools.describe_machine(pool, self.project)
        return Plan(self.planner.plan_turns(here, sound), self.options.budget)

    def run_stale(self, chosen: Iterable[Snippet]) -> list[Verdict]:
        """Run whatever is stale among the snippets; every verdict, in the order reached. Whatever
        ends it early, its children are ended and what has passed is kept."""
        budget, out = self.options.budget, self.options.out
        self.deadline = math.inf if budget is None else time.monotonic() + budget
        sound = []
        for snippet in chosen:
            if snippet.findings:
                told = {"note": "not run", "findings": snippet.findings}
                self._add_verdict(snippet.id, "failed", ledger.CPU, **told)
            else:
                sound.append(snippet)
        self.planner = self._make_planner(sound)
        if out is not None and not out.exists():
            write_atomically(out, bundle.bundle_text([]))  # who waits for it finds one in any case
        here: dict[str, Any] = {}
        ahead: tuple[str, ...] = ()
        if not ledger.may_have_gpu():
            here = ledger.describe_host()
            self.planned = Plan(self.planner.plan_turns(here, sound), budget)
            runs = [part.work.snippet for turn in self.planned.turns for part in turn.parts]
            if not runs:
                for turn in self.planned.turns:
                    self._report_not_run(turn)
                return self.verdicts
            if any(map(is_compiled, runs)):
                ahead = AHEAD  # of a GPU's children few have a use for it
        pools.require_torch()
        if ahead:
            # Compile the engine before the limit of time of any child begins. Where it cannot be,
            # as on Windows, whichever child needs it says why.
            with contextlib.suppress(ImportError, OSError, RuntimeError):
                from papergpu.build import compile_engine

                compile_engine()
        with Pool(self.options.children, preload=ahead) as self.pool:
            if not here:
                here = pools.describe_machine(self.pool, self.project)
                self.planned = Plan(self.planner.plan_turns(here, sound), budget)
            self.pool.most_on_gpu = most_on_gpu(here)
            if self.planned.verdicts:
                self.outlook = Eta(self.planned.rounds)
                self.tell(self.planned)
                self.tell(self.outlook)
            for turn in self.planned.turns:
                self._report_not_run(turn)
                for batch in turn.split_batches():
                    self._run_batch(batch)
                self._mark_turn_left(turn, SPENT)
        if self.repeated and not any(verdict.state == "left" for verdict in self.verdicts):
            self.repeated.finish()
        return self.verdicts

    def mark_left(self, note: str) -> None:
        """Add a verdict on everything that was planned and not reached."""
        for turn in self.planned.turns:
            self._mark_turn_left(turn, note)

    def _mark_turn_left(self, turn: Turn, note: str) -> None:
        done = {one.snippet for one in self.verdicts if one.machine == turn.slug}
        for part in turn.parts:
            if part.id not in done:
                self._add_verdict(part.id, "left", turn.slug, note=note)

    def _make_planner(self, chosen: list[Snippet]) -> Planner:
        options = self.options
        if options.out is not None and options.out.exists():
            for item in bundle.read_bundle(options.out):
                self.records[item["snippet"], item["machine"]["slug"]] = item
        book = ledger.load_ledger(self.project)
        planner = Planner(options, book, Estimator(self.project, book), dict(self.records))
        if options.repeats and options.out is None:
            names = [snippet.id for snippet in chosen]
            self.repeated = ledger.resume_repeat(self.project, options.repeats, names)
            planner.done = self.repeated.has_passed
        return planner

    def _report_not_run(self, turn: Turn) -> None:
        """The verdicts on all that a turn does not run."""
        book = self.planner.book
        for one in turn.current:
            old = self.planner.old_record(one, turn.slug) or {}
            key = one.id, turn.slug, one.digest
            here = self.options.out is None and turn.slug == ledger.CPU and bool(old)
            verified = here and book.has_passed(*key) and not book.demo_alone(*key)
            trusted = _record_origin(old) if here and not verified else None
            known = {"told": _prediction_lines(old), "trusted": trusted, "verified": verified}
            self._add_verdict(one.id, "current", turn.slug, **known)
        for one, why in turn.skipped:
            self._add_verdict(one.id, "skipped", turn.slug, note=why)

    def _run_batch(self, batch: list[Part]) -> None:
        gathered = {part.id: part.work for part in batch}
        jobs: list[Job] = []
        for work in gathered.values():
            if figures := self.compiled.get((work.snippet.id, work.snippet.digest)):
                work.parts[Task.COMPILE] = {"compiled": figures}
            mine = self.planner.untimed_jobs(work)
            jobs.extend(mine)
            if not mine:
                self._save_result(work)
        place = {name: at for at, name in enumerate(gathered)}
        if not any(part.is_timed for part in batch):  # the longest of a snippet's jobs first
            due = {job_key(one.job): one.seconds for part in batch for one in part.jobs}
            jobs.sort(key=lambda job: (place[job.key], -due.get(job_key(job), 0.0)))
        waiting: list[Job] = []
        for work in self._run_jobs(jobs, gathered):
            if not work.awaited and not work.findings and (job := work.timing_job()):
                waiting.append(job)
            elif not work.awaited:
                self._save_result(work)
        # One at a time, and only when nothing else runs: a neighbour would show in the times.
        waiting.sort(key=lambda job: place[job.key])
        for work in self._run_jobs(waiting, gathered):
            self._save_result(work)

    def _run_jobs(self, jobs: list[Job], gathered: dict[str, SnippetRun]) -> Iterator[SnippetRun]:
        """Run jobs, and yield what is gathered of a snippet whenever one of its jobs has ended."""

        def tell_start(job: Job) -> None:
            self.outlook.job_started(job)
            self.tell(job)

        for outcome in self.pool.run(jobs, self.deadline, tell_start):
            self.outlook.job_ended(outcome)
            work = gathered[outcome.job.key]
            work.add_outcome(outcome)
            yield work

    @pools.defer_signals()
    def _save_result(self, work: SnippetRun) -> None:
        """Keep a snippet's results and its verdict: both or neither."""
        snippet, slug, book = work.snippet, work.machine["slug"], self.planner.book
        options, out = self.options, self.options.out
        held = out is None and slug == ledger.CPU and not options.force
        kept = work.current_record if held else {}
        work.final_findings()
        new = work.current_record
        if not work.trusted and not work.findings:
            new = work.build_record()
            if slug != ledger.CPU and options.origin:
                new["origin"] = options.origin
            if kept:  # it stays in place, and has to claim what this run would claim
                where = self.project.relative_path(store.record_path(snippet, slug))
                mend = f"rewrite the record with `shelf run --force {snippet.id}`"
                for fault in claim_check.claim_errors(kept, new, snippet):
                    work.findings.append(Finding(where, None, fault, mend))
        if found := tuple(work.findings):
            failure, digest = str(found[0]), work.current_digest()
            book.save_verdict(snippet.id, slug, digest, failure, work.spent, work.trusted)
            self._add_verdict(snippet.id, "failed", slug, findings=found, seconds=work.seconds)
            return
        note, trusted = "", None
        if work.trusted:
            trusted = date, commit = _record_origin(new)
            note = f"prints the same as its record of {date}"
            note += f", commit {commit}" if commit else ""
        else:
            self.compiled[snippet.id, snippet.digest] = new.get("compiled", [])
            if out is not None:
                self.records[snippet.id, slug] = new
                write_atomically(out, bundle.bundle_text(self.records.values()))
            elif kept or store.save_record(snippet, new) is None:
                note = "agrees with its record"
            if out is None and work.views:
                view_store.write_views(snippet, work.views)
        book.save_verdict(snippet.id, slug, snippet.digest, None, work.spent, work.trusted)
        if self.repeated:
            self.repeated.add_passed(snippet.id, slug, snippet.digest)
        known = {"note": note, "seconds": work.seconds, "told": _prediction_lines(new)}
        known |= {"trusted": trusted, "verified": out is None and not trusted}
        self._add_verdict(snippet.id, "trusted" if trusted else "passed", slug, **known)

    def _add_verdict(self, snippet: str, state: str, machine: str, **known: Any) -> None:
        verdict = Verdict(snippet, state, machine=machine, **known)
        self.outlook.snippet_settled(snippet, machine)
        self.verdicts.append(verdict)
        self.tell(verdict)


def _record_origin(record: Record) -> tuple[str, str | None]:
    return record["date"][:10], record.get("commit")


def _prediction_lines(record: Record) -> tuple[str, ...]:
    return tuple(one.words for one in pictures.errors_by_set(record.get("predictions", ())))


# Whether a changed snippet is right, within seconds, by what tells most: of a kernel, on one
# architecture, the cases that together reject the most mutants, until the time is spent.

SECONDS = 1.5  # of CPU that a child may have spent and still begin another case
PRELOADED = ("triton", "papergpu.triton", "papergpu.decode")


@dataclass
class QuickResult:
    """The result of a quick look at a snippet; `skipped` says why there was none. `ran` are numbers
    of cases, of `cases` in all; `kills` the mutants, of `mutants`, that these would reject."""

    snippet: str
    target: str | None = None
    skipped: str | None = None
    findings: list[Finding] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    cases: int = 0
    kills: list[str] = field(default_factory=list)
    mutants: int = 0
    facts: int = 0
    seconds: float = 0.0  # of CPU, in the child that took longest

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.snippet}: not checked, {self.skipped}"
        if self.findings:
            return f"{self.snippet}: wrong"
        said = f"{self.facts} facts hold"
        if self.cases:
            said = f"on {len(self.ran)} of {self.cases} cases, {self.target}, which reject "
            said += f"{len(self.kills)} of {self.mutants} mutants"
        whole = f"nothing is recorded; `shelf run {self.snippet}` verifies all and records it"
        return f"{self.snippet}: right{'' if self.cases else ','} {said}; {whole}"


def check_snippets(chosen: Iterable[Snippet], workers: int | None = None) -> Iterator[QuickResult]:
    """A quick look at each snippet; one alone is shared out among all cores."""
    here, glances, jobs = ledger.describe_host(), {}, []
    snippets = {one.id: one for one in chosen}
    workers = Options(workers=workers).children
    for one in snippets.values():
        target = assemble.SnippetRun(one, here, None).targets[0]
        skipped = one.cannot_run(here["sm"], here["gpus"])
        glance = glances[one.id] = QuickResult(one.id, target, skipped, [*one.findings])
        if glance.findings or glance.skipped:
            continue
        turns = workers if one.kind == "kernel" and len(snippets) == 1 else 1
        known = assemble.job_details(one, here, target)
        for turn in range(turns):
            details = {**known, "turn": (turn, turns), "seconds": SECONDS}
            jobs.append(Job(Task.GLANCE, one.id, one.seconds, details))
    awaited = {name: sum(job.key == name for job in jobs) for name in glances}
    yield from (glance for name, glance in glances.items() if not awaited[name])
    if not jobs:
        return
    os.environ["TRITON_INTERPRET"] = "0"  # Triton reads it at its import
    ahead = PRELOADED if any(map(is_compiled, snippets.values())) else ()
    with Pool(workers, preload=ahead) as pool:
        for outcome in pool.run(jobs):
            name, answer = outcome.job.key, outcome.answer or {}
            glance = glances[name]
            found = assemble.outcome_findings(snippets[name], outcome)
            glance.findings += [one for one in found if one not in glance.findings]
            glance.ran = sorted({*glance.ran, *answer.get("ran", ())})
            glance.kills = sorted({*glance.kills, *answer.get("kills", ())})
            glance.cases = answer.get("cases", glance.cases)
            glance.mutants = answer.get("mutants", glance.mutants)
            glance.facts += answer.get("facts", 0)
            glance.seconds = max(glance.seconds, answer.get("cpu_seconds", 0.0))
            awaited[name] -= 1
            if not awaited[name]:
                yield glance
