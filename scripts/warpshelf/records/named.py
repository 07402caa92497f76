"""One record by the name that somebody gives it: a key, a key as of a commit, or a file.

Enters: `nvidia-h100`, `nvidia-h100.2`, `nvidia-h100@HEAD~3`, or a file with a record or a bundle,
where `FILE#KEY` picks one of several. Leaves: the record and what to call it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.records import bundle, history, schema, siblings, store, versions
from warpshelf.records.machine import CPU
from warpshelf.records.schema import Record

SHORT = 12  # characters of a commit


class Named(NamedTuple):
    """A record, and what it is called: its key, with the commit or the file that it was read of."""

    label: str
    record: Record


def find(snippet: Snippet, name: str) -> Named:
    """The record of `snippet` that `name` means.

    Raises:
        ShelfError: there is none, it cannot be read, or there are several.
    """
    key, at, commit = name.rpartition("@")
    if at and siblings.slug_of(key):
        return _as_of(snippet, key, commit)
    path, mark, picked = name.partition("#")
    if Path(path).is_file():
        return _in_file(snippet, Path(path), picked if mark else None)
    if siblings.slug_of(name) is None:
        raise _unknown(snippet, name)
    place = store.path_of(snippet, name)
    if not place.is_file():
        raise _unknown(snippet, name)
    return Named(name, store.load(snippet.project, place))


def _unknown(snippet: Snippet, name: str) -> ShelfError:
    known = ", ".join(sorted(store.load_all(snippet)[0])) or "none yet"
    mend = f"name a record of {snippet.id} ({known}), one as KEY@COMMIT, or a file"
    return ShelfError(Finding(name, None, f"is no record of {snippet.id} and no file", mend))


def _as_of(snippet: Snippet, key: str, commit: str) -> Named:
    project = snippet.project
    path = project.relative(store.path_of(snippet, key))
    found = versions.one(project, commit, path)
    shown = f"{key}@{commit}"
    if found is None:
        mend = f"`shelf history {snippet.id}` lists the commits that have one"
        raise ShelfError(Finding(shown, None, f"{path} is not there as of {commit}", mend))
    full, data = found
    record = _whole(data) or history.kept(data)
    if isinstance(record, str):
        raise ShelfError(Finding(shown, None, f"cannot be read: {record}", "name another commit"))
    return Named(f"{key}@{full[:SHORT]}", record)


def _whole(data: bytes) -> Record | None:
    """A record as it was written, if records are still shaped so."""
    try:
        value: Record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return None if schema.problem(value) else value


def _in_file(snippet: Snippet, path: Path, picked: str | None) -> Named:
    shown = path.as_posix()
    value = store.json_of(path, shown)
    if isinstance(value, dict) and "records" in value:
        mine = [one for one in bundle.read(path) if one["snippet"] == snippet.id]
    else:
        record = store.checked(value, shown)
        mine = [record] if record["snippet"] == snippet.id else []
    if picked is not None:
        mine = [one for one in mine if one["machine"]["slug"] == picked]
    if not mine:
        of = f"{snippet.id} on {picked}" if picked else snippet.id
        mend = "name a file that `shelf run` wrote, with --out or without"
        raise ShelfError(Finding(shown, None, f"has no record of {of}", mend))
    # A machine with a GPU hands in a record of its CPU as well, which has no times.
    chosen = [one for one in mine if one["machine"]["gpus"]] or mine
    if len(chosen) > 1:
        slugs = [one["machine"]["slug"] for one in mine]
        what = f"has {len(mine)} records of {snippet.id}: {', '.join(slugs)}"
        raise ShelfError(Finding(shown, None, what, f"name one, as {path.name}#{slugs[0]}"))
    return Named(f"{path.name}#{chosen[0]['machine']['slug']}", chosen[0])


def beside(snippet: Snippet, other: Named) -> Named:
    """What to set a record beside, where nobody says: the newest one of its kind, or of any GPU.

    Raises:
        ShelfError: there is no other record.
    """
    records, _ = store.load_all(snippet)
    rest = {key: one for key, one in records.items() if not _same(one, other.record)}
    slug = other.record["machine"]["slug"]
    of_kind = {key: one for key, one in rest.items() if one["machine"]["slug"] == slug}
    gpus = {key: one for key, one in rest.items() if one["machine"]["slug"] != CPU}
    for choice in (of_kind, gpus):
        if choice:
            key = max(choice, key=lambda name: choice[name]["date"])
            return Named(key, choice[key])
    what = f"is the only record of {snippet.id} that there is"
    raise ShelfError(Finding(other.label, None, what, "name another by a second --with"))


def _same(one: Record, other: Record) -> bool:
    return history.kept(schema.text(one).encode()) == history.kept(schema.text(other).encode())
