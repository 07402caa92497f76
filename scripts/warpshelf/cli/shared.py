"""What the commands share: how snippets are named, who made a record, and how findings are told."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from warpshelf.core.findings import Finding
from warpshelf.core.project import Project

if TYPE_CHECKING:
    from warpshelf.contract.snippet import Snippet

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="All by default.")]
By = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who made the records of a GPU; a page says so.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON on standard output.")]


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings on standard error, one line each."""
    for finding in findings:
        sys.stderr.write(f"{finding}\n")


def select_snippets(project: Project, ids: list[str] | None) -> list[Snippet]:
    """The snippets of `ids`, all where there is none; an unknown id is wrong usage."""
    from warpshelf.contract import snippet as snippets

    if not ids:
        return snippets.discover_snippets(project)
    folders = {folder.name: folder for folder in snippets.snippet_folders(project)}
    for name in ids:
        if name not in folders:
            from difflib import get_close_matches

            near = get_close_matches(name, folders, 1)
            names = ", ".join(folders) or "none"
            hint = f"did you mean {near[0]}?" if near else f"there are {names}"
            raise typer.BadParameter(f"{name}: no such snippet; {hint}")
    return [snippets.read_snippet(project, folders[name]) for name in dict.fromkeys(ids)]
