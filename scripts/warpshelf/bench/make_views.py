"""The views of one snippet: those that are kept, else made here, and those of another commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from warpshelf.bench import assemble, compiling, pool
from warpshelf.bench.assemble import COMPILE_SECONDS
from warpshelf.bench.pool import AHEAD, Job, Pool, Tell
from warpshelf.contract import architectures
from warpshelf.contract import snippet as snippets
from warpshelf.contract.snippet import Snippet
from warpshelf.core import project
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.look import ptx, view_store
from warpshelf.look.ptx import PtxModule
from warpshelf.look.view import Code, View, view_name
from warpshelf.records import claim_check, ledger
from warpshelf.worker.context import Task
from warpshelf.worker.kernel_views import at_fixed_addresses

ARCHS = tuple(sorted(claim_check.TARGETS, key=architectures.sm_version))


class UnknownName(Exception):
    """The command line gave an unknown name; the message lists the known ones."""


@dataclass(frozen=True)
class ViewRequest:
    """What to look at: a snippet on an architecture, all its variants and kernels or one of them.

    A kernel's name may be without its template arguments.
    """

    snippet: Snippet
    arch: str
    variant: str | None = None
    kernel: str | None = None


@dataclass(frozen=True)
class ViewResult:
    """Views, the whole PTX of each on request, and the LIMITS that they break."""

    views: list[View]
    modules: list[PtxModule] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def match_name(name: str, known: Sequence[str], what: str) -> str:
    """`name`, which is one of `known`.

    Raises:
        UnknownName: it is not, with the nearest of those that are.
    """
    if name in known:
        return name
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UnknownName(f"{name}: no such {what}; {hint}known are {', '.join(known) or 'none'}")


def get_views(asked: ViewRequest, tell: Tell, whole: bool = False) -> ViewResult:
    """The requested views. With `whole`, or if none are kept, they are made here.

    Raises:
        UnknownName: there is no such variant or kernel.
        ShelfError: they cannot be made here, or what makes them failed.
    """
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
        raise _snippet_error(snippet, what, f"choose another of {', '.join(ARCHS)}, or see NEEDS")
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
    """The same snippet at a commit, in a folder that is removed afterwards.

    Raises:
        UnknownName: there is no such commit.
        ShelfError: the snippet was not there, or is not what this tooling runs.
    """
    root = snippet.project.root
    asked = ("--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if (name := project.git_line(root, "rev-parse", *asked)) is None:
        raise UnknownName(f"{commit}: is neither a PTX file nor a commit of this checkout")
    with compiling.unpack_commit(root, name, ["snippets"]) as folder:
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
