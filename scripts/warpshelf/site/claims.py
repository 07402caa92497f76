"""What others state of a snippet: whose claim it is, and which case of ours it corresponds to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding
from warpshelf.readings import reported
from warpshelf.readings.messages import nearest
from warpshelf.readings.model import Shelf
from warpshelf.readings.reported import Figure
from warpshelf.records import store
from warpshelf.records.machine import CPU
from warpshelf.render.exhibit import Claim, Credit
from warpshelf.render.reported import matches


def claims(
    snippet: Snippet, shelf: Shelf, targets: Mapping[str, str]
) -> tuple[list[Claim], list[Finding]]:
    """What others state for a snippet, as far as the shelf has who states it."""
    folder = snippet.project.relative(snippet.folder)
    figures, findings = reported.load(snippet.folder, folder)
    return [
        Claim(figure, Credit(reading.title, targets[reading.id]), figure.url or reading.url)
        for figure in figures
        if (reading := shelf.readings.get(figure.reading))
    ], findings


def check(snippet: Snippet, shelf: Shelf) -> Iterator[Finding]:
    """What is wrong with the figures that others state of a snippet."""
    folder = snippet.project.relative(snippet.folder)
    where = f"{folder}/{reported.FILE}"
    figures, findings = reported.load(snippet.folder, folder)
    yield from findings
    truth = store.current(snippet, CPU)
    due = [row for row in truth.get("due", ()) if row["timed"]] if truth else None
    for figure in figures:
        name = figure.reading
        if name not in shelf.readings and name not in shelf.refused:
            near = nearest(name, shelf.readings, alike=70)
            meant = f"write {near}" if near else "name the id of a reading in docs/"
            what = f"the reading {name!r} is not on the shelf"
            yield Finding(where, figure.line_of("reading"), what, f"{meant}, or add the reading")
        if figure.case is None:
            continue
        if snippet.kind != "kernel":
            what = f"case is given, but a {snippet.kind} has no cases"
            yield Finding(where, figure.line_of("case"), what, "remove it")
        elif due is not None:  # without a current record of the CPU there is no telling
            yield from _case(figure, due, where)


def _case(figure: Figure, due: list[dict[str, Any]], where: str) -> Iterator[Finding]:
    found = [row for row in due if matches(figure.case or {}, row["case"])]
    if len(found) != 1:
        what = f"case fits {len(found) or 'none'} of the {len(due)} timed cases, not one"
        mend = "name what tells it from the others, as in TIMED of cases.py"
        yield Finding(where, figure.line_of("case"), what, mend)
        return
    names = {"variant": [*found[0]["variants"], *found[0]["peers"]], "share_of": found[0]["peers"]}
    for key, known in names.items():
        said = getattr(figure, key)
        if said is not None and said not in known:
            what = f"{key} {said!r} is none of that case"
            mend = f"write one of {', '.join(known)}" if known else "remove it"
            yield Finding(where, figure.line_of(key), what, mend)
