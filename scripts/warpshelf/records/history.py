"""How the times of a record changed: its earlier versions, newest last, and what is slower now.

Enters: the records of GPUs in a checkout and in its version control. Leaves: for each what a
comparison needs of every version. Where nothing of a GPU is on record, git is not even asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warpshelf.core import shapes
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import reasons, siblings, versions
from warpshelf.records.schema import RECORD, Record
from warpshelf.records.siblings import Difference
from warpshelf.records.versions import Place

# What is kept of a version. Other parts may have been shaped in other ways at their time.
KEPT = (
    "snippet", "digest", "date", "commit", "method", "machine", "origin", "cases", "ceilings",
    "conditions",
)  # fmt: skip
SHAPE = {key: shape for key, shape in RECORD.items() if key.rstrip("?") in KEPT}
ABOUT = ("origin", "commit")  # a change of these alone is no other measurement
NEWEST = 4  # versions that surely hold the last two measurements: words about one make another
SHALLOW = (
    "this clone lacks older commits, and what they had is not in it; "
    "`git fetch --unshallow` brings it"
)
UNVERSIONED = "git knows nothing of this checkout, so what was measured before is not known"


class Version(NamedTuple):
    """A measurement: what is kept of its record, the commit that put it in place, its path then.

    Before it is committed, `commit` is None. `slower` says why it may be slower than before.
    """

    record: Record
    commit: str | None
    path: str
    slower: str = ""


@dataclass(frozen=True)
class History:
    """The versions of each record of a GPU, newest last, and what is not known of them."""

    of: Mapping[Place, Sequence[Version]] = field(default_factory=dict)
    damaged: Mapping[Place, Sequence[str]] = field(default_factory=dict)
    here: frozenset[Place] = frozenset()  # of which a record lies in the checkout
    shallow: bool = False
    versioned: bool = True

    def remarks(self) -> list[str]:
        """What is missing from all of it, in words."""
        return [
            *([] if self.versioned else [UNVERSIONED]),
            *([SHALLOW] if self.shallow else []),
        ]


def mark(project: Project) -> str:
    """What changes with the history of the records that there are; empty without any of a GPU."""
    if not versions.present(project):
        return ""
    found = versions.log(project)
    told = "none" if found is None else f"{found.shallow} {found.text}"
    return hashlib.sha256(told.encode()).hexdigest()


def read(
    project: Project, ids: Collection[str] | None = None, newest: int | None = None
) -> History:
    """The history of every record that lies in the checkout; of all snippets unless told which.

    Of the snippets in `ids` records are found as well that only version control has. With `newest`
    no more than so many versions of each are read.
    """
    here = versions.present(project)
    if ids is None and not here:
        return History()
    found = versions.log(project)
    steps = dict(found.steps) if found else {}
    every = {*here, *steps}
    places = set(here) if ids is None else {place for place in every if place[0] in ids}
    wanted = {place: steps.get(place, [])[:newest] for place in sorted(places)}
    texts = versions.contents(project, (step.blob for own in wanted.values() for step in own))
    known: dict[Place, list[Version]] = {}
    damaged: dict[Place, list[str]] = {}
    for place, own in wanted.items():
        known[place] = []
        for step in reversed(own):
            record = kept(texts.get(step.blob, b""))
            if isinstance(record, str):
                damaged.setdefault(place, []).append(f"{step.commit[:12]}: {record}")
            else:
                _add(known[place], Version(record, step.commit, step.path))
        if place in here:
            record = kept(here[place].read_bytes())
            if not isinstance(record, str):  # else it is a finding on the file itself
                _add(known[place], Version(record, None, project.relative(here[place])))
    return History(
        {place: _explained(project, place, own) for place, own in known.items() if own},
        damaged,
        frozenset(here),
        found is not None and found.shallow,
        found is not None,
    )


def _explained(project: Project, place: Place, own: list[Version]) -> list[Version]:
    """Versions with the words that people have put beside them."""
    try:
        found = reasons.load(project, place[0])
    except ShelfError:
        return own  # a finding of its own
    key = place[1]
    return [one._replace(slower=found.get((key, one.record["date"]), "")) for one in own]


def _add(known: list[Version], version: Version) -> None:
    """Add a version, or where it is of the same measurement as the last, take its words over."""
    if known and _measurement(known[-1].record) == _measurement(version.record):
        known[-1] = known[-1]._replace(record=version.record)
    else:
        known.append(version)


def _measurement(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in ABOUT}


def kept(data: bytes) -> Record | str:
    """What is kept of a record as it was written, or why nothing can be."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return "is not the JSON of a record" if data else "is not in this clone"
    if not isinstance(value, dict):
        return "is no record"
    record: dict[str, Any] = {key: value[key] for key in KEPT if key in value}
    if isinstance(record.get("cases"), list):
        record["cases"] = [
            case for case in record["cases"] if not isinstance(case, dict) or case.get("timed")
        ]
    if wrong := shapes.problem(record, SHAPE, "record"):
        return wrong
    return next(_impossible(record), record)


def _impossible(record: Record) -> Iterator[str]:
    for case in record.get("cases", ()):
        for result in case["results"]:
            time = result.get("time")
            if time and not 0 < time["p20"] <= time["median"] <= time["p80"]:
                yield f"{result['name']!r} has no possible time: {time}"


def slower(before: Record, after: Record) -> list[Difference]:
    """Where our variants take longer than in the record before, by more than the spread of both.

    A library that became slower is not ours to mend.
    """
    if before["machine"]["gpus"] != after["machine"]["gpus"]:
        return []
    return [
        one
        for one in siblings.differences(before, after)
        if one.role == "variant" and one.factor > 1
    ]
