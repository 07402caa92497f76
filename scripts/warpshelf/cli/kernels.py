"""What is shown of a snippet's kernels beside a run of it.

On which architectures each launch fits (`shelf reach`), which case rejects which mutant
(`shelf check --mutants`), what the public kernels are compiled to that stand beside it
(`shelf rivals`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.bench import compiling, mutants
from warpshelf.bench.compiling import Reach, Source
from warpshelf.bench.mutants import KillMatrix
from warpshelf.cli.console import Reporter
from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.look import builds
from warpshelf.look.builds import CompiledRival
from warpshelf.readings import published
from warpshelf.readings.published import Rival

WIDEST = 400  # columns of a table: more than forty cases and a name need
MARKS = {True: "x", False: "."}  # rejected, or not


def show_reach(
    snippets: Sequence[Snippet], archs: Sequence[str], largest: bool, as_json: bool
) -> list[Finding]:
    """Compile the snippets for the architectures and print what comes of it; what is wrong.

    Raises:
        typer.BadParameter: nothing is known of an architecture, or a snippet compiles nothing.
    """
    for arch in archs:
        if arch not in compiling.ARCHS:
            known = ", ".join(compiling.ARCHS)
            raise typer.BadParameter(f"{arch} is none of {known}", param_hint="--arch")
    compilable = compiling.compilable_snippets(snippets)
    broken = [finding for one in snippets for finding in one.findings]
    if not compilable and not broken:
        raise typer.BadParameter("it has no kernel to compile", param_hint="ID")
    workers = max(1, (os.cpu_count() or 2) // 2)
    with Reporter(len(compilable)) as reporter:
        began = reporter if reporter.live else lambda job: None
        found = list(
            compiling.compile_for_archs(
                compilable, archs or compiling.ARCHS, workers, largest, began
            )
        )
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
    else:
        console = Console(highlight=False, emoji=False)
        console.width = max(console.width, WIDEST)
        for snippet in compilable:
            mine = [one for one in found if one.snippet is snippet]
            console.print(reach_table(snippet, mine), soft_wrap=True)
            for line in reach_notes(mine):
                console.print(f"  {line}", markup=False, soft_wrap=True)
    return sorted({*broken, *(finding for one in found for finding in one.findings)})


def reach_table(snippet: Snippet, found: Sequence[Reach]) -> Table:
    """Variants by architectures: the most shared memory of a block, or that it does not run."""
    ordered = sorted(found, key=lambda one: compiling.ARCHS.index(one.arch))
    drawn = Table(title=escape(f"{snippet.id}: most shared memory of a block"))
    drawn.add_column("variant", no_wrap=True)
    for one in ordered:
        drawn.add_column(one.arch, justify="right")
    names = dict.fromkeys(name for one in ordered for name in (*one.fits, *one.skips))
    for name in names:
        drawn.add_row(escape(name), *(_reach_cell(one, name) for one in ordered))
    return drawn


def _reach_cell(one: Reach, name: str) -> str:
    if one.refusal or name in one.skips:
        return "skipped"
    if any(f"variant {name!r}" in finding.what for finding in one.findings):
        return "FAILS"
    if name not in one.fits:
        return "?"
    return units.format_bytes(one.fits[name]["shared_bytes"])


def reach_notes(found: Sequence[Reach]) -> list[str]:
    """Why something is skipped, and what could not be looked at; each said once."""
    said: dict[str, None] = {}
    for one in found:
        if one.refusal:
            said[f"everything {one.refusal}"] = None
        said |= {f"{name}: {why}": None for name, why in one.skips.items()}
        said |= {f"{one.arch}: not looked at: {what}": None for what in one.unseen[:1]}
        if more := one.unseen[1:]:
            said[f"{one.arch}: nor {len(more)} calls more; smaller cases of theirs were"] = None
    return list(said)


def show_mutants(snippet: Snippet, as_json: bool) -> list[Finding]:
    """Run every mutant of `snippet` by every case and print the matrix; what it finds wrong.

    Raises:
        ShelfError: it cannot be run.
    """
    with Reporter(1) as reporter:
        # Only a terminal is told how far it is: a log has no use for a line a mutant.
        found = mutants.run_mutants(snippet, began=reporter if reporter.live else lambda job: None)
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
        return found.findings()
    console = Console(highlight=False, emoji=False)
    drawn = mutant_table(found)
    # Names that are folded to a few letters tell nothing: let a line be longer than the terminal.
    console.width = max(console.width, WIDEST)
    console.print(drawn, soft_wrap=True)
    for index, case in enumerate(found.cases):
        console.print(f"{index:3}  {case}", markup=False, soft_wrap=True)
    return found.findings()


def mutant_table(found: KillMatrix) -> Table:
    """Mutants by cases; a case that cannot run here has an empty cell."""
    drawn = Table(title=escape(f"{found.snippet.id}: mutants by case"))
    drawn.add_column("mutant", no_wrap=True)
    for index in range(len(found.cases)):
        drawn.add_column(str(index), justify="center")
    for name, judged in found.judged.items():
        cells = (
            MARKS[judged[index] is not None] if index in judged else ""
            for index in range(len(found.cases))
        )
        drawn.add_row(escape(name), *cells)
    return drawn


def compile_rivals(snippet: Snippet, checkouts: Path | None) -> None:
    """Compile every kernel of the snippet's rivals.yml, and keep the figures.

    Raises:
        ShelfError: an entry is wrong, a commit is not there, or a kernel is not compiled. What was
            kept stays as it was.
    """
    shown = snippet.project.relative_path(snippet.folder)
    where = f"{shown}/{published.RIVALS}"
    known, findings = published.load_rivals(snippet.folder, shown)
    if not known and not findings:
        what, mend = "is not there", "write down which kernels of others do the same job"
        raise ShelfError(Finding(where, None, what, mend))
    answers = {}
    for one in known:
        print(f"compiling {one.kernel} of {one.repository or one.package}", flush=True)
        try:
            answers[one.digest] = _compile_rival(one, snippet.folder, checkouts)
        except ValueError as error:
            mend = "mend the entry, or fetch that commit"
            mend = f"mend {one.file}, or pip install {one.package}" if one.package else mend
            findings.append(Finding(where, one.line, f"{one.kernel}: {error}", mend))
    if findings:
        raise ShelfError(findings)
    changed = builds.write_rivals(snippet.folder, answers)
    print(f"{'wrote' if changed else 'nothing changed in'} {shown}/{builds.FILE}")


def _compile_rival(one: Rival, folder: Path, checkouts: Path | None) -> CompiledRival:
    if one.package:
        return compiling.compile_with_package(folder, one.compile_request())
    if checkouts is None:
        raise ValueError("there is no folder of clones; name one with --checkouts")
    return compiling.compile_from_clone(
        Source(one.repository, one.commit, one.file), one.compile_request(), checkouts
    )
