"""Which versions of the records of GPUs a checkout's version control has, and what is in them.

Enters: a project. Leaves: by file the commits that changed it, newest first, and the text of these
versions. One `git log` and one `git cat-file` read all there is, however many commits there are;
the line of first parents is followed, so a branch that was merged counts as one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from warpshelf.contract.snippet import ID
from warpshelf.core import git
from warpshelf.core.project import Project
from warpshelf.records.machine import CPU
from warpshelf.records.siblings import slug_of

RECORDS = (":(glob)snippets/*/results/*.json", f":(exclude,glob)snippets/*/results/{CPU}.json")
COMMIT = "commit "
RAW = re.compile(r":\d+ \d+ [0-9a-f]+ (?P<blob>[0-9a-f]+) (?P<what>[A-Z])\d*\t(?P<paths>.+)")
PLACE = re.compile(r"snippets/(?P<id>[^/]+)/results/(?P<key>[^/]+)\.json")
OBJECT = re.compile(rb"(?P<blob>[0-9a-f]+) blob (?P<size>\d+)")

Place = tuple[str, str]  # the id of a snippet and the key of a record


class Step(NamedTuple):
    """A version of a file: the commit that put it there, its blob, and its path back then."""

    commit: str
    blob: str
    path: str


class Log(NamedTuple):
    """The versions of every record, newest first; `shallow` where the clone lacks older ones."""

    steps: Mapping[Place, list[Step]]
    shallow: bool
    text: str  # that it was read from


def place_of(path: str) -> Place | None:
    """The snippet and the key whose record a path is; None for any other file, and for a CPU's."""
    match = PLACE.fullmatch(path)
    if not match or not ID.fullmatch(match["id"]) or slug_of(match["key"]) in (None, CPU):
        return None
    return match["id"], match["key"]


def present(project: Project) -> dict[Place, Path]:
    """The records of GPUs that lie in the checkout."""
    found = {}
    for path in sorted(project.snippets.glob("*/results/*.json")):
        if place := place_of(project.relative(path)):
            found[place] = path
    return found


def log(project: Project) -> Log | None:
    """What version control knows of the records of GPUs; None where there is none."""
    words = ("log", "--first-parent", "-m", "--raw", "--no-abbrev", "--find-renames", "--relative")
    text = _git(project.root, *words, f"--format={COMMIT}%H", "--", *RECORDS)
    if text is None:
        return None
    said = _git(project.root, "rev-parse", "--is-shallow-repository")
    told = text.decode("utf-8", "replace")
    return Log(_steps(told), (said or b"").strip() == b"true", told)


def _steps(text: str) -> dict[Place, list[Step]]:
    steps: dict[Place, list[Step]] = {}
    now: dict[str, Place] = {}  # where what stood at a path then is today, if it was renamed since
    commit = ""
    for row in text.splitlines():
        if row.startswith(COMMIT):
            commit = row.removeprefix(COMMIT)
        elif match := RAW.fullmatch(row):
            old, _, new = match["paths"].partition("\t")
            path = new or old
            place = now.get(path) or place_of(path)
            if place is None or match["what"] == "D":
                continue
            steps.setdefault(place, []).append(Step(commit, match["blob"], path))
            if match["what"] == "R" and _renamed(old, path):
                now[old] = place
                now.pop(path, None)
    return steps


def _renamed(old: str, new: str) -> bool:
    """Whether a snippet was renamed: its record has the same key in another folder."""
    before, after = place_of(old), place_of(new)
    return before is not None and after is not None and before[1] == after[1]


def contents(project: Project, blobs: Iterable[str]) -> dict[str, bytes]:
    """The bytes of blobs; one that this clone lacks is left out."""
    asked = "".join(f"{blob}\n" for blob in dict.fromkeys(blobs))
    if not asked:
        return {}
    return dict(_objects(_git(project.root, "cat-file", "--batch", given=asked.encode()) or b""))


def _objects(answer: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(answer):
        head, _, _ = answer[at : at + 200].partition(b"\n")
        at += len(head) + 1
        if match := OBJECT.fullmatch(head):
            size = int(match["size"])
            yield match["blob"].decode(), answer[at : at + size]
            at += size + 1


def one(project: Project, commit: str, path: str) -> tuple[str, bytes] | None:
    """The commit that a name means, and a file as it was there; None where either is not there."""
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    full = (_git(project.root, *asked) or b"").decode().strip()
    data = _git(project.root, "cat-file", "blob", f"{full}:./{path}") if full else None
    return None if data is None else (full, data)


def _git(root: Path, *words: str, given: bytes = b"") -> bytes | None:
    """What git prints; None where it fails, or is not there."""
    settings = ("-c", "core.quotePath=false", "-c", "log.diffMerges=separate")
    return git.ask(root, *settings, *words, given=given)
