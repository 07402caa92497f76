"""Bundles: the records of a run in one file, and their way into a checkout, all or none.

Enters: what `shelf run --out FILE` wrote on another machine. Leaves: records in their places, or
every reason why the bundle is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import agreement, store
from warpshelf.records.machine import CPU
from warpshelf.records.schema import SCHEMA, Record

MOST = 10_000  # records in a bundle; each may have a finding


def text(records: Iterable[Record]) -> str:
    """The records of a run as the text of one file, for `shelf import`."""
    return dump({"schema": SCHEMA, "records": list(records)})


def _items(path: Path, shown: str) -> list[object]:
    value = store.json_of(path, shown)
    if store.schema_of(value) > SCHEMA:
        store.checked(value, shown)
    records = value.get("records") if isinstance(value, dict) and len(value) == 2 else None
    if not isinstance(records, list) or store.schema_of(value) < 1:
        what = "is no bundle of records"
        raise ShelfError(Finding(shown, None, what, "name what `shelf run --out FILE` wrote"))
    if len(records) > MOST:
        what, mend = f"holds {len(records)} records; {MOST} are the most", "import it in parts"
        raise ShelfError(Finding(shown, None, what, mend))
    return records


def read(path: Path) -> list[Record]:
    """The records of a bundle.

    Raises:
        ShelfError: it is no bundle, or a record in it is malformed.
    """
    shown = path.as_posix()
    items = _items(path, shown)
    return [store.checked(item, f"{shown} records[{index}]") for index, item in enumerate(items)]


def import_all(
    project: Project, snippets: Iterable[Snippet], path: Path, skip_stale: bool = False
) -> tuple[list[Path], list[str]]:
    """Put the records of a bundle in place: all of them, or none.

    Returns the paths written, and the ids of stale records that `skip_stale` left out.

    Raises:
        ShelfError: the file is truncated, foreign or of a newer schema, a record is malformed or
            of a snippet that is not here, was made from other code than this checkout's, or
            claims other than what its snippet's record of the CPU says is due.
    """
    shown = path.as_posix()
    items = _items(path, shown)
    by_id = {snippet.id: snippet for snippet in snippets}
    findings: list[Finding] = []
    good: list[tuple[Snippet, Record, str]] = []
    left: list[str] = []
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(items):
        place = f"{shown} records[{index}]"
        try:
            record = store.checked(item, place)
        except ShelfError as error:
            findings.extend(error.findings)
            continue
        snippet = by_id.get(record["snippet"])
        machine = record["machine"]["slug"]
        if snippet is None:
            what = f"is of the snippet {record['snippet']!r}, which is not here"
            findings.append(Finding(place, None, what, "check out the branch that has it"))
        elif (snippet.id, machine) in seen:
            what = f"is a second record of {snippet.id} on {machine}"
            findings.append(Finding(place, None, what, "leave one of them out"))
        elif record["digest"] != snippet.digest and skip_stale:
            left.append(snippet.id)
        elif record["digest"] != snippet.digest:
            what = f"{snippet.id}: was made from other code than this checkout's"
            mend = "check out the code it ran, or leave such records out by --skip-stale"
            findings.append(Finding(place, None, what, mend))
        elif record["kind"] != snippet.kind:
            what = f"{snippet.id}: is a {snippet.kind}, not a {record['kind']}"
            findings.append(Finding(place, None, what, "make it again with `shelf run`"))
        else:
            good.append((snippet, record, place))
        seen.add((record["snippet"], machine))
    findings.extend(_disagreements(good))
    for snippet, record, _ in good:  # see that there is a place for each before any is written
        try:
            store.destination(snippet, record)
        except ShelfError as error:
            findings.extend(error.findings)
    if findings:
        raise ShelfError(findings)
    written = []
    for snippet, record, _ in good:
        if changed := store.put(snippet, record):
            written.append(changed)
    return written, left


def _disagreements(good: Iterable[tuple[Snippet, Record, str]]) -> Iterator[Finding]:
    """What records claim against the CPU's: that in place, or else that of the same bundle."""
    taken = list(good)
    brought = {one.id: record for one, record, _ in taken if record["machine"]["slug"] == CPU}
    for snippet, record, place in taken:
        truth = store.current(snippet, CPU) or brought.get(snippet.id)
        if truth is None:
            what = f"{snippet.id}: there is no current record of the CPU to check it against"
            mend = f"run `shelf run {snippet.id}` first, on any machine"
            yield Finding(place, None, what, mend)
            continue
        for fault in agreement.faults(record, truth, snippet):
            what = f"{snippet.id} on {record['machine']['slug']}: {fault}"
            yield Finding(place, None, what, "make it again with `shelf run`")
