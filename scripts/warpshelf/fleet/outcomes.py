"""What an answer of a node is worth: a verdict and a record, or another try.

Enters: an item, the answer to it. Leaves: an outcome. An answer comes from a machine that is not
ours: a record is kept only if it is whole, of the code that was sent, and of the kind it was for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from warpshelf.bench.run import Verdict
from warpshelf.core.findings import Finding
from warpshelf.fleet.agenda import Item
from warpshelf.fleet.cluster import Lost
from warpshelf.fleet.spool import faults
from warpshelf.records.schema import Record

LINE = re.compile(r"(?P<path>.*?)(?::(?P<line>\d+))?: (?P<what>.*?)(?:; (?P<mend>[^;]*))?", re.S)


@dataclass(frozen=True)
class Outcome:
    """How a try of an item ended. Without a verdict it is to be tried again, `why` says the reason.

    `unfit` says what makes its node useless to all, `slug` that it is of a device by that name.
    """

    verdict: Verdict | None = None
    record: Record | None = None
    why: str = ""
    unfit: str = ""
    slug: str = ""


def outcome(item: Item, answer: dict[str, Any] | Lost, where: str) -> Outcome:
    """What `answer` to `item`, which comes from the node named `where`, is worth."""
    if isinstance(answer, Lost):
        return Outcome(None if answer.again else left(item, answer.why), why=answer.why)
    if why := answer.get("unfit"):
        return Outcome(why=f"node {where}: {why}", unfit=why)
    if why := answer.get("failed"):
        return Outcome(_failed(item, f"on node {where} {why}"))
    row, record = answer["row"], answer["record"]
    if record is not None:
        if wrong := faults(record):
            return Outcome(_failed(item, f"node {where} sent what is no record: {wrong}"))
        slug = record["machine"]["slug"]
        if slug != item.kind.slug:
            return Outcome(why=f"node {where} is of the kind {slug}", slug=slug)
        if (record["snippet"], record["digest"]) != (item.snippet.id, item.snippet.digest):
            what = f"node {where} ran other code than this checkout's"
            return Outcome(_failed(item, f"{what}: did it change meanwhile?"))
    elif row["state"] == "passed":
        return Outcome(_failed(item, f"node {where} sent no record"))
    found = tuple(_finding(line) for line in row["findings"])
    note = ", ".join(filter(None, (row["note"], f"node {where}" if found else "")))
    seconds, told = row["seconds"], tuple(row["errors"])
    verdict = Verdict(item.snippet.id, row["state"], note, found, seconds, item.kind.slug, told)
    return Outcome(verdict, record)


def left(item: Item, why: str) -> Verdict:
    """The verdict on what was not run."""
    return Verdict(item.snippet.id, "left", why, machine=item.kind.slug)


def _failed(item: Item, what: str) -> Verdict:
    path = item.snippet.project.relative(item.snippet.path)
    finding = Finding(path, None, what, f"run `shelf run {item.snippet.id}` there to see more")
    return Verdict(item.snippet.id, "failed", "", (finding,), machine=item.kind.slug)


def _finding(line: str) -> Finding:
    """A finding from the line that it was printed as; it prints as the same line again."""
    found = LINE.fullmatch(line)
    if found is None:
        return Finding("node", None, line, "")
    number = int(found["line"]) if found["line"] else None
    return Finding(found["path"], number, found["what"], found["mend"] or "")
