"""Which case rejects which mutant: every mutant is run, as a copy of its snippet, in the pool."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warpshelf.bench import assemble, pool
from warpshelf.bench.plan import Options
from warpshelf.bench.pool import AHEAD, Job, Outcome, Pool, Tell
from warpshelf.contract import digest, mutants
from warpshelf.contract.mutants import Mutant
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.records import claim_check, ledger
from warpshelf.worker.context import Task

UNCHANGED = "unchanged"  # the name under which the source itself is judged
# What is raised before anything is computed, by Triton, NVRTC, or Python for a wrong name.
NEVER_RAN = tuple(
    f"raised {name}:"
    for name in ("CompilationError", "UnsupportedLanguageConstruct", "CompileError", "NameError")
)


@dataclass
class KillMatrix:
    """What became of the mutants of a snippet. `judged` has by mutant and case the words of the
    rejection, None where there was none, and nothing where the case was not asked or cannot run."""

    snippet: Snippet
    mutants: list[Mutant]
    cases: list[dict[str, Any]]
    kills: list[list[str]]
    counted: list[int] = field(default_factory=list)  # cases that need not kill
    judged: dict[str, dict[int, str | None]] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        """Every false claim, every case that kills no mutant, every mutant that no case kills."""
        found = [self._case_finding(*row) for row in self._case_problems()]
        for mutant in self.mutants:
            judged = self.judged[mutant.name].values()
            if words := next((one for one in judged if one and one.startswith(NEVER_RAN)), None):
                what = f"does not compile, so no case rejects it: {words}"
                found.append(mutant.make_finding(what, "write one that compiles"))
            elif judged and not any(judged):
                mend = "add a case that rejects it"
                found.append(mutant.make_finding("survives every case", mend))
        return found

    def _case_problems(self) -> Iterator[tuple[int, str, str]]:
        """What is wrong with the cases: number, finding, mend."""
        names = {mutant.name for mutant in self.mutants}
        for index, claimed in enumerate(self.kills):
            if not claimed and index not in self.counted:
                mend = "list a mutant that it rejects in kills, or drop the case"
                yield index, "kills no mutant", mend
            for name in claimed:
                if name not in names:
                    yield index, f"kills {name!r}, which is not a mutant", "fix the name"
                elif self.judged[name].get(index, "cannot run here") is None:
                    what = f"does not reject the mutant {name!r}"
                    yield index, what, "remove the name from kills"
        for index, words in self.judged.get(UNCHANGED, {}).items():
            if words is not None:
                yield index, f"rejects the source itself: {words}", "fix the case"
        for index in sorted({index for judged in self.judged.values() for index in judged}):
            if all(self.judged[name].get(index) is None for name in names):
                mend = "drop it, or add the mutant that it is meant to reject"
                yield index, "rejects no mutant", mend

    def _case_finding(self, index: int, what: str, mend: str) -> Finding:
        name, place = "CASES", index
        if index in self.counted:
            name, place = "COUNTED", self.counted.index(index)
        path = self.snippet.project.relative_path(self.snippet.cases_path)
        line = self.snippet.places.get(name, ("", None))[1]
        return Finding(path, line, f"{name}[{place}] {self.cases[index]} {what}", mend)


def run_mutants(
    snippet: Snippet, claims_alone: bool = False, began: Tell = lambda job: None
) -> KillMatrix:
    """Run on every mutant of a snippet every case, or those that claim it, on this machine."""
    made, findings = mutants.load_mutants(snippet)
    if not made and not findings:
        findings = mutants.check_mutants(snippet)
    if snippet.findings or findings:
        raise ShelfError([*snippet.findings, *findings])
    project, has_gpu = snippet.project, ledger.may_have_gpu()
    ahead = () if has_gpu else AHEAD
    with (
        Pool(Options().children, preload=ahead) as children,
        tempfile.TemporaryDirectory() as folder,
    ):
        here = ledger.describe_host()
        if has_gpu and snippet.wants_gpu:
            here = pool.describe_machine(children, project)
        children.most_on_gpu = pool.most_on_gpu(here)
        if why := snippet.cannot_run(here["sm"], here["gpus"]):
            where = project.relative_path(snippet.path)
            raise ShelfError(Finding(where, None, f"cannot run here: {why}", "use another machine"))

        def make_job(do: Task, key: str, root: Path, **more: object) -> Job:
            target = claim_check.MAIN if here["gpus"] == 0 else None
            details = assemble.job_details(snippet, here, target) | {"demo": False, **more}
            path = root / "snippets" / snippet.id / snippet.path.name
            details |= {"root": str(root), "path": str(path)}
            return Job(do, key, snippet.seconds, details, on_gpu=here["gpus"] > 0)

        [outcome] = children.run([make_job(Task.LOOK, snippet.id, project.root)])
        if findings := assemble.outcome_findings(snippet, outcome):
            raise ShelfError(findings)
        offered = outcome.answer or {}
        found = KillMatrix(snippet, made, offered["cases"], offered["kills"], offered["counted"])
        everything = [i for i, claims in enumerate(found.kills) if claims or i not in found.counted]
        jobs = []
        for number, mutant in enumerate(made if claims_alone else [None, *made]):
            name, cases = mutant.name if mutant else UNCHANGED, everything
            if claims_alone:
                cases = [index for index in everything if name in found.kills[index]]
            found.judged[name] = {}
            if cases:
                root = _copy_project(snippet, mutant, Path(folder) / str(number))
                jobs.append(make_job(Task.JUDGE, name, root, cases=cases))
        again = _apply_outcomes(found, children.run(jobs, began=began))
        # A child that died or hung tells of none of its cases: each gets one of its own.
        _apply_outcomes(found, children.run(again, began=began))
    return found


def _apply_outcomes(found: KillMatrix, outcomes: Iterable[Outcome]) -> list[Job]:
    """Take in the children's answers; return jobs for those to run again case by case."""
    again: list[Job] = []
    for outcome in outcomes:
        job, cases = outcome.job, outcome.job.details["cases"]
        if outcome.answer and "judged" in outcome.answer:
            judged = {int(index): words for index, words in outcome.answer["judged"].items()}
            found.judged[job.key].update(judged)
        elif outcome.cause and len(cases) == 1:
            found.judged[job.key][cases[0]] = f"{outcome.cause} {outcome.place}"
        elif outcome.cause:
            again += [replace(job, details={**job.details, "cases": [one]}) for one in cases]
        else:
            [first, *_] = assemble.outcome_findings(found.snippet, outcome)
            what = f"mutant {job.key!r}: {first.what}"
            raise ShelfError(Finding(first.path, first.line, what, "keep mutants importable"))
    return again


def _copy_project(snippet: Snippet, mutant: Mutant | None, root: Path) -> Path:
    """A project in the folder `root` with the snippet's sources, changed by a mutant."""
    project = snippet.project.root
    reached = set(digest.dependency_files(project, snippet.folder))
    # Python runs all of a module, and so reads more of its folder than what counts of it.
    folders = {path.parent for path in reached} - {project / "snippets"}
    beside = {path for folder in folders for path in folder.iterdir() if path.is_file()}
    for path in reached | beside:
        target = root / path.relative_to(project)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if mutant is not None:
        changed = root / snippet.folder.relative_to(project) / mutant.file
        text = mutant.mutate_text(changed.read_text(encoding="utf-8"))
        changed.write_text(text, encoding="utf-8")
    return root
