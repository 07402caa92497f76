"""What `shelf reach` shows: by variant and architecture what runs there, is skipped, would fail."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.bench import reach as reaches
from warpshelf.bench.reach import Reach
from warpshelf.cli.console import Reporter
from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.findings import Finding

WIDEST = 200  # columns of a table: eight architectures and a name


def show(
    snippets: Sequence[Snippet], archs: Sequence[str], largest: bool, as_json: bool
) -> list[Finding]:
    """Compile the snippets for the architectures and print what comes of it; what is wrong.

    Raises:
        typer.BadParameter: nothing is known of an architecture, or a snippet compiles nothing.
    """
    for arch in archs:
        if arch not in reaches.ARCHS:
            known = ", ".join(reaches.ARCHS)
            raise typer.BadParameter(f"{arch} is none of {known}", param_hint="--arch")
    compilable = reaches.compilable(snippets)
    broken = [finding for one in snippets for finding in one.findings]
    if not compilable and not broken:
        raise typer.BadParameter("it has no kernel to compile", param_hint="ID")
    workers = max(1, (os.cpu_count() or 2) // 2)
    with Reporter(len(compilable)) as reporter:
        began = reporter if reporter.live else lambda job: None
        found = list(reaches.reach(compilable, archs or reaches.ARCHS, workers, largest, began))
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
    else:
        console = Console(highlight=False, emoji=False)
        console.width = max(console.width, WIDEST)
        for snippet in compilable:
            mine = [one for one in found if one.snippet is snippet]
            console.print(table(snippet, mine), soft_wrap=True)
            for line in notes(mine):
                console.print(f"  {line}", markup=False, soft_wrap=True)
    return sorted({*broken, *(finding for one in found for finding in one.findings)})


def table(snippet: Snippet, found: Sequence[Reach]) -> Table:
    """Variants by architectures: the most shared memory of a block, or that it does not run."""
    ordered = sorted(found, key=lambda one: reaches.ARCHS.index(one.arch))
    drawn = Table(title=escape(f"{snippet.id}: most shared memory of a block"))
    drawn.add_column("variant", no_wrap=True)
    for one in ordered:
        drawn.add_column(one.arch, justify="right")
    names = dict.fromkeys(name for one in ordered for name in (*one.fits, *one.skips))
    for name in names:
        drawn.add_row(escape(name), *(_cell(one, name) for one in ordered))
    return drawn


def _cell(one: Reach, name: str) -> str:
    if one.refusal or name in one.skips:
        return "skipped"
    if any(f"variant {name!r}" in finding.what for finding in one.findings):
        return "FAILS"
    if name not in one.fits:
        return "?"
    return units.size(one.fits[name]["shared_bytes"])


def notes(found: Sequence[Reach]) -> list[str]:
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
