"""What is compiled to be looked at: launches for every architecture, public kernels, views.

Of launches each architecture has a child of its own: a compiler that dies there costs it alone, and
the variant that it died of is told and left out. Public kernels are taken from clones of their
repositories. Views are those that are kept, else made here.
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
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from warpshelf.bench import assemble, pool
from warpshelf.bench.assemble import COMPILE_SECONDS
from warpshelf.bench.pool import AHEAD, Job, Outcome, Pool, Tell
from warpshelf.contract import architectures
from warpshelf.contract import snippet as snippets
from warpshelf.contract.snippet import Snippet
from warpshelf.core import project
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.look import builds, ptx, view_store
from warpshelf.look.builds import CompiledRival
from warpshelf.look.ptx import PtxModule
from warpshelf.look.view import Code, View, view_name
from warpshelf.records import claim_check, ledger
from warpshelf.worker.context import Task
from warpshelf.worker.kernel_views import at_fixed_addresses

ARCHS = tuple(f"sm_{one}" for one in architectures.KNOWN)
SECONDS = 1800.0  # of one snippet for one architecture
VARIANT = re.compile(r"in variant (?P<name>'.+?'|\".+?\") on case")


@dataclass
class Reach:
    """A snippet on one architecture; `findings` are what would fail there."""

    snippet: Snippet
    arch: str
    refusal: str | None = None  # why NEEDS keeps all of it from there
    # By variant how many launches there is room for, and the most bytes of shared memory of one.
    fits: dict[str, dict[str, int]] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)  # why a variant is not for it
    unseen: list[str] = field(default_factory=list)  # what could not be looked at
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
    """Compile every launch of every variant that NEEDS allows, architecture by architecture; with
    `largest` of the largest case of each form alone."""
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
    ValueError if it is not compiled, or the package that it needs is not installed."""
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
    """The code of a repository at a commit, in a folder that is removed afterwards. ValueError if
    `checkouts` has no clone of it (as `owner/name`, `owner+name` or `name`), commit or `file`."""
    places = repository, repository.replace("/", "+"), repository.split("/")[1]
    clones = (checkouts / one for place in places for one in (place, f"{place}/repo"))
    clone = next(filter(_is_clone, clones), None)
    if clone is None:
        raise ValueError(f"{checkouts} has no clone of {repository}; make one there")
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


# The views of one snippet: those that are kept, else made here, and those of another commit.

VIEWED = tuple(sorted(claim_check.TARGETS, key=architectures.sm_version))


class UnknownName(Exception):
    """The command line gave an unknown name; the message lists the known ones."""


@dataclass(frozen=True)
class ViewRequest:
    """What to look at: a snippet on an architecture, all variants and kernels or one of them."""

    snippet: Snippet
    arch: str
    variant: str | None = None
    kernel: str | None = None  # maybe without its template arguments


@dataclass(frozen=True)
class ViewResult:
    """Views, the whole PTX of each on request, and the LIMITS that they break."""

    views: list[View]
    modules: list[PtxModule] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def match_name(name: str, known: Sequence[str], what: str) -> str:
    """`name`, which is one of `known`; else UnknownName, with the nearest of those that are."""
    if name in known:
        return name
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UnknownName(f"{name}: no such {what}; {hint}known are {', '.join(known) or 'none'}")


def get_views(asked: ViewRequest, tell: Tell, whole: bool = False) -> ViewResult:
    """The requested views. With `whole`, or if none are kept, they are made here; ShelfError if
    that fails, UnknownName if there is no such variant or kernel."""
    snippet = asked.snippet
    if snippet.findings:
        raise ShelfError(snippet.findings)
    if snippet.kind != "kernel":
        what = f"is a {snippet.kind} and has no kernel"
        raise _snippet_error(snippet, what, "choose a snippet with kernels")
    known = [one for one in view_store.load_summaries(snippet)[0] if one["arch"] == asked.arch]
    if known and asked.variant is not None:
        names = list(dict.fromkeys(one["variant"] for one in known))
        match_name(asked.variant, names, "variant")
        known = [one for one in known if one["variant"] == asked.variant]
    if known and all(one["whole"] for one in known) and not whole:
        wanted = set(map(view_name, known))
        kept = view_store.load_views(snippet)[0]
        seen = ViewResult([one for one in kept if view_name(one) in wanted])
    else:
        seen = _make_views(asked, tell, whole)
    if asked.kernel is None:
        return seen
    bare = [one["kernel"].split("<")[0] for one in seen.views]
    name = asked.kernel
    if name not in bare:
        match_name(name, list(dict.fromkeys(one["kernel"] for one in seen.views)), "kernel")
    at = [i for i, one in enumerate(seen.views) if name in (one["kernel"], bare[i])]
    modules = [seen.modules[i] for i in at] if seen.modules else []
    return replace(seen, views=[seen.views[i] for i in at], modules=modules)


def _make_views(asked: ViewRequest, tell: Tell, whole: bool) -> ViewResult:
    snippet = asked.snippet
    here = ledger.describe_host()
    if why := snippet.cannot_run(here["sm"], here["gpus"]):
        raise _snippet_error(snippet, f"is not executed on a CPU: {why}", "choose another snippet")
    if why := assemble.SnippetRun(snippet, here, None).cannot_run():
        raise _snippet_error(snippet, f"cannot be executed here: {why}", "use another machine")
    pool.require_torch()
    details = assemble.job_details(snippet, here, asked.arch) | {"whole": whole}
    if asked.variant is not None:
        details["variants"] = [asked.variant]
    job = Job(Task.VIEW, snippet.id, COMPILE_SECONDS, details)
    with Pool(1, preload=AHEAD) as children:
        (outcome,) = children.run([job], began=tell)
    findings = assemble.outcome_findings(snippet, outcome)
    answer = outcome.answer or {}
    if "views" not in answer:
        if findings:
            raise ShelfError(findings)
        raise _snippet_error(snippet, "gave no views", "run it again")
    if asked.variant is not None:
        match_name(asked.variant, answer["variants"], "variant")
    if not answer["views"]:
        of = "it" if asked.variant is None else asked.variant
        what = f"{of} launches nothing on {asked.arch} that a CPU executes"
        raise _snippet_error(snippet, what, f"choose another of {', '.join(VIEWED)}, or see NEEDS")
    modules = [
        PtxModule(f"{view['variant']}, {view['kernel']}", one["ptx"], one["symbol"])
        for view, one in zip(answer["views"], answer.get("modules", ()), strict=False)
    ]
    return ViewResult(answer["views"], modules, findings)


def _snippet_error(snippet: Snippet, what: str, mend: str) -> ShelfError:
    return ShelfError(Finding(snippet.project.relative_path(snippet.path), None, what, mend))


def assemble_pair(before: PtxModule, after: PtxModule, arch: str) -> tuple[str, Code, Code]:
    """Who assembled two builds of a kernel, and the machine code of each as a view has it."""
    try:
        with at_fixed_addresses():
            who, (was, now) = ptx.assemble_modules((before, after), arch)
    except (ValueError, RuntimeError) as error:
        mend = "save it again from a build for this architecture"
        raise ShelfError(Finding(before.name, None, str(error), mend)) from None
    return who, was, now


def load_ptx(path: Path, symbol: str) -> PtxModule:
    """A kernel's PTX from a file that was saved."""
    try:
        return ptx.parse_module(str(path), path.read_text(encoding="utf-8"), symbol)
    except ValueError as error:  # what is not UTF-8 as well
        mend = "save one with `shelf look ID --save FILE.ptx`"
        raise ShelfError(Finding(str(path), None, str(error), mend)) from None


@contextmanager
def snippet_at_commit(snippet: Snippet, commit: str) -> Iterator[Snippet]:
    """The same snippet at a commit, in a folder that is removed afterwards. UnknownName if there is
    no such commit, ShelfError if it was not there, or is not what this tooling runs."""
    root = snippet.project.root
    asked = ("--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if (name := project.git_line(root, "rev-parse", *asked)) is None:
        raise UnknownName(f"{commit}: is neither a PTX file nor a commit of this checkout")
    with unpack_commit(root, name, ["snippets"]) as folder:
        if folder is None:
            raise UnknownName(f"{commit}: has no snippets/")
        there = snippets.discover_snippets(Project(folder))
        old = next((one for one in there if one.id == snippet.id), None)
        if old is None:
            where = snippet.project.relative_path(snippet.folder)
            what = f"does not exist at {commit}"
            raise ShelfError(Finding(where, None, what, "name a later commit"))
        if old.findings:
            raise ShelfError(replace(one, path=f"{commit}:{one.path}") for one in old.findings)
        yield old
