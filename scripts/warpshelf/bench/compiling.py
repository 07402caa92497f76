"""What is only compiled: launches for every architecture, and public kernels.

Of launches, snippets and architectures enter; what each variant comes to there leaves, and a
finding for every launch that NEEDS admits and that would fail. Each architecture has a child of its
own: a compiler that dies there costs it alone, and the variant that it died of is told and left
out. Public kernels are taken from clones of their repositories.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warpshelf.bench import assemble
from warpshelf.bench.pool import AHEAD, Job, Outcome, Pool, Tell
from warpshelf.contract import architectures
from warpshelf.contract.snippet import Snippet
from warpshelf.core import project
from warpshelf.core.findings import Finding
from warpshelf.look import builds
from warpshelf.look.builds import CompiledRival
from warpshelf.records import ledger
from warpshelf.worker.context import Task

ARCHS = tuple(f"sm_{one}" for one in architectures.KNOWN)
SECONDS = 1800.0  # of one snippet for one architecture
VARIANT = re.compile(r"in variant (?P<name>'.+?'|\".+?\") on case")


@dataclass
class Reach:
    """A snippet on one architecture.

    `refusal` says why NEEDS keeps all of it from there. `fits` has by variant how many launches
    there is room for, and the most bytes of shared memory of one; `skips` why a variant is not for
    it; `unseen` what could not be looked at; `findings` what would fail.
    """

    snippet: Snippet
    arch: str
    refusal: str | None = None
    fits: dict[str, dict[str, int]] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """What a program would read."""
        findings = [str(finding) for finding in self.findings]
        return {**vars(self), "snippet": self.snippet.id, "findings": findings}


def compilable_snippets(snippets: Iterable[Snippet]) -> list[Snippet]:
    """Those that have something to compile."""
    kernels = (one for one in snippets if one.kind == "kernel" and not one.findings)
    return [one for one in kernels if assemble.is_compiled(one)]


def compile_for_archs(
    snippets: Iterable[Snippet],
    archs: Sequence[str] = ARCHS,
    workers: int = 1,
    largest: bool = False,
    began: Tell = lambda job: None,
) -> Iterator[Reach]:
    """Compile every launch of every variant that NEEDS allows, architecture by architecture.

    With `largest` the largest case of each form alone is called.
    """
    jobs: list[Job] = []
    known: dict[str, Reach] = {}
    here = ledger.describe_host()
    for snippet in compilable_snippets(snippets):
        for arch in archs:
            found = Reach(snippet, arch, snippet.cannot_run(architectures.sm_version(arch), 99))
            if found.refusal:
                yield found
                continue
            details = {"arch": arch, "largest": largest, "without": []}
            details = assemble.job_details(snippet, here) | details
            jobs.append(Job(Task.REACH, f"{snippet.id} for {arch}", SECONDS, details))
            known[jobs[-1].key] = found
    with Pool(workers, preload=AHEAD) as pool:
        while jobs:
            again = []
            for outcome in pool.run(jobs, began=began):
                found = known[outcome.job.key]
                if job_again := _apply_outcome(found, outcome):
                    again.append(job_again)
                else:
                    yield found
            jobs = again


def _apply_outcome(found: Reach, outcome: Outcome) -> Job | None:
    """Take in a child's answer; return the job that continues if a variant killed the compiler."""
    snippet, job, sm = found.snippet, outcome.job, architectures.sm_version(found.arch)

    def add_finding(what: str, variant: str | None) -> None:
        path, alone = map(snippet.project.relative_path, (snippet.cases_path, snippet.path))
        mend = f"run `python {alone}` to see it alone"
        if variant is not None:
            own = f'"variants": {{{json.dumps(variant)}: {{"sm": ..., "why": ...}}}}'
            mend = f"fix it, or exclude {sm} with NEEDS = {{{own}}}"
        line = snippet.places.get("VARIANTS", ("", None))[1]
        found.findings.append(Finding(path, line, what, mend))

    if outcome.cause:
        died = VARIANT.search(outcome.place)
        name = ast.literal_eval(died["name"]) if died else None
        add_finding(f"{found.arch}: the compiler {outcome.cause} {outcome.place}", name)
        if name is None or name in job.details["without"]:
            return None
        without = [*job.details["without"], name]
        return replace(job, details={**job.details, "without": without})
    answer = outcome.answer or {}
    for failure in answer.get("failures", ()):
        if "variant" in failure:
            add_finding(failure["what"], failure["variant"])
        else:  # of its source: it cannot be imported, or is malformed
            alone = replace(outcome, answer={"failures": [failure]})
            found.findings += assemble.outcome_findings(snippet, alone)
    found.fits, found.unseen = answer.get("fits", {}), answer.get("unseen", [])
    for name in answer.get("variants", ()):
        asked = architectures.required_architectures(snippet.needs, name)
        if why := next(filter(None, (each.refusal_reason(sm) for each in asked)), None):
            found.skips[name] = why
    return None


ENDINGS = (".py", ".cu", ".cuh", ".h", ".hpp", ".inl")  # of code that a kernel may need
RIVAL_SECONDS = 600.0  # to compile one kernel for all its architectures


def compile_public_kernel(root: Path, build: Mapping[str, Any]) -> CompiledRival:
    """What a kernel below `root` is compiled to; `build` is told to `worker.public_kernel`.

    Raises:
        ValueError: it is not compiled, or the package that it needs is not installed.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": cache}
        environment.pop("TRITON_INTERPRET", None)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "warpshelf.worker.public_kernel"],
                input=json.dumps({**build, "root": str(root)}),
                capture_output=True,
                text=True,
                check=False,
                env=environment,
                timeout=RIVAL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"did not compile within {RIVAL_SECONDS:.0f} s") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise ValueError(f"left with exit status {done.returncode}: {last}") from None
    if "error" in answer:
        raise ValueError(answer["error"])
    if wrong := builds.rival_problem(answer):
        raise ValueError(f"gave no figures: {wrong}")
    return CompiledRival(answer["compiler"], answer["builds"])


@contextmanager
def extract_clone(checkouts: Path, repository: str, commit: str, file: str) -> Iterator[Path]:
    """The code of a repository at a commit, in a folder that is removed afterwards.

    `checkouts` holds clones of whatever kind, as `owner/name`, `owner+name` or `name`; `file` is
    among what is extracted.

    Raises:
        ValueError: there is no such clone, commit or file.
    """
    owner, name = repository.split("/")
    for place in (f"{owner}/{name}", f"{owner}+{name}", name):
        clones = [checkouts / place, checkouts / place / "repo"]
        if clone := next(filter(_is_clone, clones), None):
            break
    else:
        raise ValueError(f"{checkouts} has no clone of {owner}/{name}; make one there")
    listed = project.run_git(clone, "ls-tree", "-r", "--name-only", "-z", commit)
    if listed is None:
        if project.git_line(clone, "cat-file", "-t", commit) is None:
            raise ValueError(f"{clone} has no commit {commit}, or Git did not answer")
        raise ValueError(f"{clone}: Git did not list the files of commit {commit}")
    names = listed.decode(errors="replace").split("\0")
    top = file.split("/")[0] if "/" in file else ""  # it may need any of them
    wanted = [one for one in names if one.endswith(ENDINGS) and top in ("", one.split("/")[0])]
    with unpack_commit(clone, commit, wanted) as root:
        if root is None and file in wanted:
            raise ValueError(f"{clone}: Git did not unpack {len(wanted)} files of commit {commit}")
        if root is None or not (root / file).is_file():
            raise ValueError(f"{repository} has no {file} at {commit:.12}")
        yield root


def _is_clone(folder: Path) -> bool:
    """Whether a folder itself, not a parent of it, is a checkout or a bare repository."""
    asked = ("rev-parse", "--resolve-git-dir")
    return any(project.run_git(folder, *asked, one) is not None for one in (".git", "."))


@contextmanager
def unpack_commit(clone: Path, commit: str, names: Sequence[str]) -> Iterator[Path | None]:
    """Files and folders at a commit, in a folder that is removed afterwards; None without any."""
    words = ("archive", "--format=tar", commit, "--", *names)
    packed = project.run_git(clone, *words) if names else None
    if packed is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)
