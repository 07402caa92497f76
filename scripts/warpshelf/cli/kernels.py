"""The commands that show kernels: their views, where they fit, their mutants and their rivals.

On which architectures each launch fits (`shelf reach`), which case rejects which mutant
(`shelf check --mutants`), what the public kernels are compiled to that stand beside it
(`shelf rivals`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.bench import compiling, mutants
from warpshelf.bench.compiling import Reach, ViewRequest, ViewResult
from warpshelf.cli import views
from warpshelf.cli.console import Reporter
from warpshelf.cli.printing import Output, make_table
from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.look import builds, ptx
from warpshelf.look.builds import CompiledRival, Difference
from warpshelf.look.view import View
from warpshelf.readings import published
from warpshelf.readings.published import Rival
from warpshelf.records import goals, store

GOAL_TEXTS = ("snippet", "variant", "case", "goal", "measured")
WIDEST = 400  # columns of a table: more than forty cases and a name need


def show_reach(
    snippets: Sequence[Snippet], archs: Sequence[str], largest: bool, as_json: bool
) -> list[Finding]:
    """Compile the snippets for the architectures, print the results, return the findings."""
    if unknown := next((arch for arch in archs if arch not in compiling.ARCHS), None):
        known = ", ".join(compiling.ARCHS)
        raise typer.BadParameter(f"{unknown} is not one of {known}", param_hint="--arch")
    compilable = compiling.compilable_snippets(snippets)
    broken = [finding for one in snippets for finding in one.findings]
    if not compilable and not broken:
        raise typer.BadParameter("has no kernel to compile", param_hint="ID")
    workers = max(1, (os.cpu_count() or 2) // 2)
    with Reporter(len(compilable)) as reporter:
        began = reporter if reporter.live else lambda job: None
        archs = archs or compiling.ARCHS
        found = list(compiling.compile_for_archs(compilable, archs, workers, largest, began))
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
    else:
        console = _wide_console()
        for snippet in compilable:
            mine = [one for one in found if one.snippet is snippet]
            console.print(_reach_table(snippet, mine), soft_wrap=True)
            for line in _reach_notes(mine):
                console.print(f"  {line}", markup=False, soft_wrap=True)
    return sorted({*broken, *(finding for one in found for finding in one.findings)})


def show_goals(project: Project, snippets: Sequence[Snippet], as_json: bool) -> list[Finding]:
    """Print a line for each goal, and for each GPU that has measured it."""
    chosen, rows = {one.id: one for one in snippets}, []
    for goal in goals.load_goals(project, chosen):
        records, findings = store.load_records(chosen[goal.snippet])
        if findings:
            return findings
        digest = chosen[goal.snippet].digest
        current = {key: one for key, one in records.items() if one["digest"] == digest}
        measured = {key: goal.measured_share(one) for key, one in current.items()}
        shares = {key: share for key, share in measured.items() if share is not None}
        rows.append((goal, shares))
    if as_json:
        print(
            json.dumps([{**goal._asdict(), "measured": shares} for goal, shares in rows], indent=1)
        )
        return []
    drawn = make_table("snippet", "variant", "case", "goal", "measured", left=GOAL_TEXTS)
    for goal, shares in rows:
        case = units.case_labels([goal.case])[0]
        said = [
            f"{share:.3g} on {key}{'' if share >= goal.share else ', missed'}"
            for key, share in shares.items()
        ]
        told = (goal.snippet, goal.variant, case, str(goal), "; ".join(said) or "not measured")
        drawn.add_row(*map(escape, told))
    _wide_console().print(drawn)
    return []


def _wide_console() -> Console:
    """Names folded to a few letters tell nothing, so lines may pass the terminal's width."""
    console = Console(highlight=False, emoji=False)
    console.width = max(console.width, WIDEST)
    return console


def _reach_table(snippet: Snippet, found: Sequence[Reach]) -> Table:
    """Variants by architecture: the most shared memory of a block, or that it does not run."""
    ordered = sorted(found, key=lambda one: compiling.ARCHS.index(one.arch))
    drawn = Table(title=escape(f"{snippet.id}: most shared memory of a block"))
    drawn.add_column("variant", no_wrap=True)
    for one in ordered:
        drawn.add_column(one.arch, justify="right")
    for name in dict.fromkeys(name for one in ordered for name in (*one.fits, *one.skips)):
        cells = []
        for one in ordered:
            if one.refusal or name in one.skips:
                cells.append("skipped")
            elif any(f"variant {name!r}" in finding.what for finding in one.findings):
                cells.append("FAILS")
            else:
                fit = one.fits.get(name)
                cells.append(units.format_bytes(fit["shared_bytes"]) if fit else "?")
        drawn.add_row(escape(name), *cells)
    return drawn


def _reach_notes(found: Sequence[Reach]) -> list[str]:
    """Why something is skipped and what could not be checked, each once."""
    said: list[str] = []
    for one in found:
        if one.refusal:
            said.append(f"everything {one.refusal}")
        said += [f"{name}: {why}" for name, why in one.skips.items()]
        said += [f"{one.arch}: not checked: {what}" for what in one.unseen[:1]]
        if more := one.unseen[1:]:
            said.append(f"{one.arch}: nor {len(more)} more calls, only smaller cases of them")
    return list(dict.fromkeys(said))


def show_mutants(snippet: Snippet, as_json: bool) -> list[Finding]:
    """Run every case on every mutant of `snippet`, print the matrix, return the findings."""
    with Reporter(1) as reporter:
        # Only a terminal is told how far it is: a log has no use for a line a mutant.
        found = mutants.run_mutants(snippet, began=reporter if reporter.live else lambda job: None)
    findings = found.findings()
    if as_json:
        told = {"snippet": snippet.id, "cases": found.cases, "mutants": found.judged}
        print(json.dumps({**told, "findings": list(map(str, findings))}, indent=1))
        return findings
    drawn = Table(title=escape(f"{snippet.id}: mutants by case"))
    drawn.add_column("mutant", no_wrap=True)
    for index in range(len(found.cases)):
        drawn.add_column(str(index), justify="center")
    marks = {True: "x", False: "."}  # rejected, or not; a case that cannot run here has neither
    for name, judged in found.judged.items():
        rejects = {index: words is not None for index, words in judged.items()}
        cells = (marks[rejects[i]] if i in rejects else "" for i in range(len(found.cases)))
        drawn.add_row(escape(name), *cells)
    console = _wide_console()
    console.print(drawn, soft_wrap=True)
    for index, case in enumerate(found.cases):
        console.print(f"{index:3}  {case}", markup=False, soft_wrap=True)
    return findings


def compile_rivals(snippet: Snippet, checkouts: Path | None) -> None:
    """Compile every kernel that the snippet's published.yml names, and keep the figures."""
    shown = snippet.project.relative_path(snippet.folder)
    where = f"{shown}/{published.FILE}"
    found, findings = published.load_published(snippet.folder, shown)
    if not found.rivals and not findings:
        what = "has no rivals" if (snippet.folder / published.FILE).is_file() else "is missing"
        mend = "list below `rivals:` the public kernels that do the same job"
        raise ShelfError(Finding(where, None, what, mend))
    answers = {}
    for one in found.rivals:
        print(f"compiling {one.kernel} of {one.repository or one.package}", flush=True)
        try:
            answers[one.digest] = _compile_rival(one, snippet.folder, checkouts)
        except ValueError as error:
            mend = "fix the entry, or fetch that commit"
            mend = f"fix {one.file}, or pip install {one.package}" if one.package else mend
            findings.append(Finding(where, one.line, f"{one.kernel}: {error}", mend))
    if findings:
        raise ShelfError(findings)
    changed = builds.write_rivals(snippet, answers)
    print(f"{'wrote' if changed else 'nothing changed in'} {builds.FILE}")


def _compile_rival(one: Rival, folder: Path, checkouts: Path | None) -> CompiledRival:
    if one.package:
        return compiling.compile_public_kernel(folder, one.compile_request())
    if checkouts is None:
        raise ValueError("needs a folder of clones; name one with --checkouts")
    with compiling.extract_clone(checkouts, one.repository, one.commit, one.file) as root:
        return compiling.compile_public_kernel(root, one.compile_request())


# What `shelf look` shows: the views of a snippet's kernels, or what changed of them.


@contextmanager
def _refuse_unknown() -> Iterator[None]:
    try:
        yield
    except compiling.UnknownName as unknown:
        raise typer.BadParameter(str(unknown)) from None


@_refuse_unknown()
def show_kernels(
    asked: ViewRequest, against: str | None, save: Path | None, sass: bool, as_json: bool
) -> list[Finding]:
    """Print what is asked for of a snippet; return the LIMITS that it breaks.

    Beside it, if asked for, the file or commit `against`. One kernel's PTX is written to `save`.
    """
    compiling.match_name(asked.arch, compiling.VIEWED, "architecture")
    path = Path(against) if against else None
    if path and not path.is_file():
        if path.suffix == ".ptx":
            raise compiling.UnknownName(f"{against}: no such file")
        path = None  # a commit
    whole = path is not None or save is not None
    with Reporter(1) as tell:
        seen = compiling.get_views(asked, tell, whole)
        if whole and len(seen.views) != 1:
            option = "--save" if path is None else "--against FILE.ptx"
            names = "; ".join(f"{one['variant']}: {one['kernel']}" for one in seen.views)
            what = f"{option} takes one kernel; choose it with --variant and --kernel from: {names}"
            raise compiling.UnknownName(what)
        if path is not None:
            _compare_file(asked, seen, path, as_json)
        elif against is not None:
            with compiling.snippet_at_commit(asked.snippet, against) as old:
                try:
                    before = compiling.get_views(replace(asked, snippet=old), tell).views
                except compiling.UnknownName:  # the variant or kernel is newer
                    before = []
            _compare_commit(seen.views, before, against, as_json)
        elif as_json:
            print(json.dumps(seen.views, indent=1))
        elif save is None:
            out = Output()
            several = len({one["variant"] for one in seen.views}) > 1
            if asked.variant is None and several and not sass:
                views.print_variants(out, asked.snippet.id, asked.arch, seen.views)
            else:
                for one in seen.views:
                    views.print_kernel(out, one, sass)
    if save is not None:
        write_atomically(save, ptx.format_ptx(seen.modules[0]))
        sys.stderr.write(f"wrote {save}: {seen.modules[0].name} for {asked.arch}\n")
    return seen.findings


def _compare_file(asked: ViewRequest, seen: ViewResult, path: Path, as_json: bool) -> None:
    view, now = seen.views[0], seen.modules[0]
    who, was, is_ = compiling.assemble_pair(compiling.load_ptx(path, now.symbol), now, asked.arch)
    changes = builds.changed_figures(builds.machine_figures(was), builds.machine_figures(is_))
    found = Difference(view["variant"], view["kernel"], changes)
    if as_json:
        print(json.dumps({"assembler": who, **found.as_dict()}, indent=1))
        return
    title = f"both assembled by {who} for {asked.arch}"
    views.print_difference(Output(), found, (path.name, "now"), title)


def _compare_commit(seen: list[View], before: list[View], then: str, as_json: bool) -> None:
    found: list[dict[str, Any]] = []
    out = Output()
    for was, now in builds.pair_views(before, seen):
        if was and now:
            change = builds.compare_views(was, now)
            found.append(change.as_dict())
            if not as_json:
                views.print_difference(out, change, (then, "now"), now["arch"])
        elif one := now or was:
            only = then if was else "now"
            found.append({"variant": one["variant"], "kernel": one["kernel"], "only": only})
            if not as_json:
                where = f"at {only}" if was else "now"
                out.print_title(f"{one['variant']}: {one['kernel']} exists only {where}")
    if as_json:
        print(json.dumps(found, indent=1))
