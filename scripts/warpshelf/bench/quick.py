"""Whether a changed snippet is right, within seconds, by what tells most; nothing is recorded.

A kernel runs on one architecture, from PTX, on the cases that together reject the most mutants, one
after another until the time is spent; no demo, no views, no compiled figures. Facts are all looked
at. What passes here may still be wrong: `shelf run` says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from warpshelf.bench import assemble
from warpshelf.bench.pool import Job, Outcome, Pool
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding
from warpshelf.records import machine
from warpshelf.worker.task import Task

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
    here, glances, jobs = machine.describe_host(), {}, []
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
