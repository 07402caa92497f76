"""Which case rejects which mutant: every mutant is run, as a copy of its snippet, in the pool."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warpshelf.bench import assemble
from warpshelf.bench.pool import AHEAD, Job, Outcome, Pool, most_on_gpu
from warpshelf.contract import digest, mutants
from warpshelf.contract.mutants import Mutant
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.records import ledger
from warpshelf.worker.context import Task

UNCHANGED = "unchanged"  # the name under which the source itself is judged
MACHINE_SECONDS = 60.0
# What is raised before anything is computed, by Triton, NVRTC, or Python for a wrong name.
NEVER_RAN = tuple(
    f"raised {name}:"
    for name in ("CompilationError", "UnsupportedLanguageConstruct", "CompileError", "NameError")
)


@dataclass
class KillMatrix:
    """What became of the mutants of a snippet.

    `counted` are the numbers of the cases of COUNTED, which need not kill: one that claims no
    mutant is not asked. `judged` has by mutant and case the words of the rejection, None where
    there was none, and nothing where the case was not asked or cannot run here.
    """

    snippet: Snippet
    mutants: list[Mutant]
    cases: list[dict[str, Any]]
    kills: list[list[str]]
    counted: list[int] = field(default_factory=list)
    judged: dict[str, dict[int, str | None]] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        """Every claim that is false, every case that kills none, every mutant that none kills."""
        found = list(self._check_claims())
        for index, words in self.judged.get(UNCHANGED, {}).items():
            if words is not None:
                found.append(
                    self._case_finding(index, f"rejects the source itself: {words}", "mend it")
                )
        ran = {index for judged in self.judged.values() for index in judged}
        for index in sorted(ran):
            if all(self.judged[one.name].get(index) is None for one in self.mutants):
                mend = "drop it, or list the mutant for which it is there"
                found.append(self._case_finding(index, "rejects no mutant", mend))
        project = self.snippet.project
        where = project.relative_path(mutants.mutants_path(project, self.snippet.id))
        for mutant in self.mutants:
            judged = self.judged[mutant.name].values()
            if words := next((one for one in judged if one and one.startswith(NEVER_RAN)), None):
                what = f"mutant {mutant.name!r} does not compile, so no case rejects it: {words}"
                found.append(Finding(where, mutant.line, what, "write one that computes otherwise"))
            elif judged and not any(judged):
                what = f"mutant {mutant.name!r} survives every case"
                found.append(Finding(where, mutant.line, what, "add the case that rejects it"))
        return found

    def _check_claims(self) -> Iterator[Finding]:
        names = {mutant.name for mutant in self.mutants}
        for index, claimed in enumerate(self.kills):
            if not claimed and index not in self.counted:
                mend = "name in kills a mutant that it rejects, or drop the case"
                yield self._case_finding(index, "kills no mutant", mend)
            for name in claimed:
                if name not in names:
                    yield self._case_finding(
                        index, f"kills {name!r}, which is no mutant", "mend it"
                    )
                elif self.judged[name].get(index, "cannot run here") is None:
                    mend = "take the name out of kills"
                    yield self._case_finding(index, f"does not reject the mutant {name!r}", mend)

    def _case_finding(self, index: int, what: str, mend: str) -> Finding:
        path = self.snippet.project.relative_path(self.snippet.cases_path)
        name, place = (
            ("COUNTED", self.counted.index(index)) if index in self.counted else ("CASES", index)
        )
        line = self.snippet.places.get(name, ("", None))[1]
        return Finding(path, line, f"{name}[{place}] {self.cases[index]} {what}", mend)

    def as_json(self) -> dict[str, Any]:
        """What a program would read."""
        return {
            "snippet": self.snippet.id,
            "cases": self.cases,
            "mutants": self.judged,
            "findings": [str(finding) for finding in self.findings()],
        }


def run_mutants(
    snippet: Snippet,
    claims_alone: bool = False,
    workers: int | None = None,
    began: Callable[[Job], None] = lambda job: None,
) -> KillMatrix:
    """Judge every mutant of a snippet by every case on this machine, or by those that claim it.

    Raises:
        ShelfError: the list of mutants or the snippet is malformed, a mutant cannot be imported,
            or nothing of the snippet can run here.
    """
    made, findings = mutants.load_mutants(snippet)
    if not made and not findings:
        findings = mutants.check_mutants(snippet)
    if snippet.findings or findings:
        raise ShelfError([*snippet.findings, *findings])
    ahead = () if ledger.may_have_gpu() else AHEAD
    many = workers or os.cpu_count() or 1
    with Pool(many, preload=ahead) as pool, tempfile.TemporaryDirectory() as folder:
        here = _local_machine(pool, snippet)
        pool.most_on_gpu = most_on_gpu(here)
        if why := snippet.cannot_run(here["sm"], here["gpus"]):
            where = snippet.project.relative_path(snippet.path)
            raise ShelfError(Finding(where, None, f"cannot run here: {why}", "use another machine"))
        asked = _mutant_job(snippet, snippet.project.root, here, Task.LOOK)
        offered = _run_job(snippet, pool, asked)
        found = KillMatrix(snippet, made, offered["cases"], offered["kills"], offered["counted"])
        everything = [i for i, claims in enumerate(found.kills) if claims or i not in found.counted]
        wanted = {UNCHANGED: everything} if not claims_alone else {}
        for mutant in made:
            claimed = [i for i in everything if mutant.name in found.kills[i]]
            wanted[mutant.name] = claimed if claims_alone else everything
        changes: dict[str, Mutant | None] = {UNCHANGED: None, **{one.name: one for one in made}}
        jobs = []
        for number, (name, cases) in enumerate(wanted.items()):
            found.judged[name] = {}
            if not cases:
                continue
            root = _copy_project(snippet, changes[name], Path(folder) / str(number))
            jobs.append(_mutant_job(snippet, root, here, Task.JUDGE, key=name, cases=cases))
        again = _apply_outcomes(found, snippet, pool.run(jobs, began=began))
        # A child that died or hung tells of none of its cases: each gets one of its own.
        _apply_outcomes(found, snippet, pool.run(again, began=began))
    return found


def _apply_outcomes(found: KillMatrix, snippet: Snippet, outcomes: Iterable[Outcome]) -> list[Job]:
    """Take in what children answer; the jobs of those that must be asked case by case."""
    again: list[Job] = []
    for outcome in outcomes:
        job = outcome.job
        cases = job.details["cases"]
        if outcome.answer and "judged" in outcome.answer:
            judged = {int(index): words for index, words in outcome.answer["judged"].items()}
            found.judged[job.key].update(judged)
        elif outcome.cause and len(cases) == 1:
            found.judged[job.key][cases[0]] = f"{outcome.cause} {outcome.place}"
        elif outcome.cause:
            for index in cases:
                again.append(replace(job, details={**job.details, "cases": [index]}))
        else:
            [first, *_] = assemble.outcome_findings(snippet, outcome)
            what = f"mutant {job.key!r}: {first.what}"
            raise ShelfError(Finding(first.path, first.line, what, "let a mutant be imported"))
    return again


def _local_machine(pool: Pool, snippet: Snippet) -> dict[str, Any]:
    if not snippet.wants_gpu or not ledger.may_have_gpu():
        return ledger.describe_host()
    job = Job(Task.DESCRIBE, "machine", MACHINE_SECONDS, {"root": str(snippet.project.root)})
    return dict(_run_job(snippet, pool, job)["machine"])


def _run_job(snippet: Snippet, pool: Pool, job: Job) -> dict[str, Any]:
    [outcome] = pool.run([job])
    if findings := assemble.outcome_findings(snippet, outcome):
        raise ShelfError(findings)
    return outcome.answer or {}


def _mutant_job(
    snippet: Snippet, root: Path, here: dict[str, Any], do: Task, key: str = "", **more: object
) -> Job:
    target = assemble.TARGETS[0] if here["gpus"] == 0 else None
    details = assemble.job_details(snippet, here, target)
    details |= {"root": str(root), "path": str(root / "snippets" / snippet.id / snippet.path.name)}
    details |= {"demo": False, **more}
    return Job(do, key or snippet.id, snippet.seconds, details, on_gpu=here["gpus"] > 0)


def _copy_project(snippet: Snippet, mutant: Mutant | None, root: Path) -> Path:
    """A project in the folder `root` of what the snippet computes from, changed by a mutant."""
    project = snippet.project.root
    for path in digest.dependency_files(project, snippet.folder):
        target = root / path.relative_to(project)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if mutant is not None:
        changed = root / snippet.folder.relative_to(project) / mutant.file
        changed.write_text(
            mutant.mutate_text(changed.read_text(encoding="utf-8")), encoding="utf-8"
        )
    return root
