"""What is only compiled: launches for every architecture, and the public kernels beside ours.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warpshelf.bench import assemble
from warpshelf.bench.pool import AHEAD, Job, Outcome, Pool
from warpshelf.contract import architectures
from warpshelf.contract.snippet import Snippet
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
        return {
            "snippet": self.snippet.id,
            "arch": self.arch,
            "refusal": self.refusal,
            "fits": self.fits,
            "skips": self.skips,
            "unseen": self.unseen,
            "findings": [str(finding) for finding in self.findings],
        }


def compilable_snippets(snippets: Iterable[Snippet]) -> list[Snippet]:
    """Those that have something to compile."""
    return [
        one
        for one in snippets
        if one.kind == "kernel" and not one.findings and (one.uses_triton or one.cuda_path)
    ]


def compile_for_archs(
    snippets: Iterable[Snippet],
    archs: Sequence[str] = ARCHS,
    workers: int = 1,
    largest: bool = False,
    began: Callable[[Job], None] = lambda job: None,
) -> Iterator[Reach]:
    """Compile every launch of every variant that NEEDS admits, one architecture after the other.

    With `largest` the largest case of each form alone is called.
    """
    jobs: list[Job] = []
    known: dict[str, Reach] = {}
    for snippet in compilable_snippets(snippets):
        for arch in archs:
            found = Reach(snippet, arch, snippet.cannot_run(architectures.sm_version(arch), 99))
            if found.refusal:
                yield found
                continue
            job = _reach_job(snippet, arch, largest)
            known[job.key] = found
            jobs.append(job)
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


def _reach_job(snippet: Snippet, arch: str, largest: bool) -> Job:
    details = assemble.job_details(snippet, ledger.describe_host())
    details |= {"arch": arch, "largest": largest, "without": []}
    return Job(Task.REACH, f"{snippet.id} for {arch}", SECONDS, details)


def _apply_outcome(found: Reach, outcome: Outcome) -> Job | None:
    """Take in what a child answers; the job that goes on where a compiler died of a variant."""
    snippet, job = found.snippet, outcome.job
    path = snippet.project.relative_path(snippet.cases_path)
    line = snippet.places.get("VARIANTS", ("", None))[1]
    answer = outcome.answer or {}
    if outcome.cause:
        what = f"{found.arch}: the compiler {outcome.cause} {outcome.place}"
        died = VARIANT.search(outcome.place)
        name = ast.literal_eval(died["name"]) if died else None
        found.findings.append(Finding(path, line, what, _variant_mend(found, name)))
        if name is None or name in job.details["without"]:
            return None
        without = [*job.details["without"], name]
        return replace(job, details={**job.details, "without": without})
    for failure in answer.get("failures", ()):
        if "variant" in failure:
            found.findings.append(
                Finding(path, line, failure["what"], _variant_mend(found, failure["variant"]))
            )
        else:  # of its source: it cannot be imported, or is malformed
            found.findings += assemble.outcome_findings(snippet, replace(outcome, answer={
                "failures": [failure]
            }))  # fmt: skip
    found.fits, found.unseen = answer.get("fits", {}), answer.get("unseen", [])
    sm = architectures.sm_version(found.arch)
    for name in answer.get("variants", ()):
        refusals = (
            each.refusal_reason(sm)
            for each in architectures.required_architectures(snippet.needs, name)
        )
        if why := next(filter(None, refusals), None):
            found.skips[name] = why
    return None


def _variant_mend(found: Reach, variant: str | None) -> str:
    if variant is None:
        path = found.snippet.project.relative_path(found.snippet.path)
        return f"run `python {path}` to see it alone"
    own = f'"variants": {{{json.dumps(variant)}: {{"sm": ..., "why": ...}}}}'
    return f"mend it, or leave {architectures.sm_version(found.arch)} out by NEEDS = {{{own}}}"


ENDINGS = (".py", ".cu", ".cuh", ".h", ".hpp", ".inl")  # of code that a kernel may need
RIVAL_SECONDS = 600.0  # to compile one kernel for all its architectures


@dataclass(frozen=True)
class Source:
    """Where a public kernel is: `owner/name` on GitHub, a whole commit, a file in it."""

    repository: str
    commit: str
    file: str


def compile_from_clone(source: Source, build: Mapping[str, Any], checkouts: Path) -> CompiledRival:
    """What a kernel is compiled to; `build` is what `warpshelf.worker.public_kernel` is told of it.

    `checkouts` holds the repositories, as `owner/name`, `owner+name` or `name`, each a clone of
    whatever kind.

    Raises:
        ValueError: the commit is not there, or the kernel is not compiled.
    """
    with _extract_commit(checkouts, source) as root:
        if not (root / source.file).is_file():
            raise ValueError(f"{source.repository} has no {source.file} at {source.commit:.12}")
        return _run_compiler({**build, "root": str(root)})


def compile_with_package(folder: Path, build: Mapping[str, Any]) -> CompiledRival:
    """What a kernel that lies in `folder` is compiled to, by the package that `build` names.

    Raises:
        ValueError: the package is not installed, or the kernel is not compiled.
    """
    return _run_compiler({**build, "root": str(folder)})


def _run_compiler(job: Mapping[str, Any]) -> CompiledRival:
    paths = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": cache}
        environment.pop("TRITON_INTERPRET", None)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "warpshelf.worker.public_kernel"],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                check=False,
                env=environment,
                timeout=RIVAL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"is not compiled in {RIVAL_SECONDS:.0f} s") from None
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
def _extract_commit(checkouts: Path, one: Source) -> Iterator[Path]:
    """The code of a repository at a commit, in a folder that is removed afterwards."""
    repository = _find_clone(checkouts, one)
    listed = _run_git(repository, "ls-tree", "-r", "--name-only", "-z", one.commit)
    if listed.returncode:
        raise ValueError(f"{repository} has no commit {one.commit}")
    names = [name for name in listed.stdout.decode(errors="replace").split("\0")
             if name.endswith(ENDINGS)]  # fmt: skip
    top = one.file.split("/")[0] if "/" in one.file else ""  # it may need any of them
    wanted = [name for name in names if top in ("", name.split("/")[0])]
    packed = _run_git(repository, "archive", "--format=tar", one.commit, "--", *wanted)
    if packed.returncode or not wanted:
        raise ValueError(f"{one.repository} has no {one.file} at {one.commit:.12}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def _find_clone(checkouts: Path, one: Source) -> Path:
    owner, name = one.repository.split("/")
    for place in (f"{owner}/{name}", f"{owner}+{name}", name):
        for folder in (checkouts / place, checkouts / place / "repo"):
            if folder.is_dir() and not _run_git(folder, "rev-parse", "--git-dir").returncode:
                return folder
    raise ValueError(f"{checkouts} has no clone {owner}/{name}; make one there")


def _run_git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    # A ceiling, or a folder inside some other checkout would pass for a clone.
    ceiling = {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    try:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, check=False, env=os.environ | ceiling)
    except OSError:
        return subprocess.CompletedProcess(words, 1, b"", b"")
