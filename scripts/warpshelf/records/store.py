"""The records of one snippet, by machine: reading them and putting them in their places.

A record is known by its key, the name of its file: the slug of its machine, with a number where
several of one kind of device stand side by side, see siblings.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from warpshelf.contract.snippet import Snippet
from warpshelf.core.batches import Batch
from warpshelf.core.files import dump, flaw
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import siblings
from warpshelf.records.schema import SCHEMA, Record, contradiction, problem
from warpshelf.records.siblings import slug_of

LARGEST = 64 * 2**20  # bytes of a file to read; a real one holds well under a mebibyte
ATTESTATIONS = "attestations"  # a folder beside the records that they attest
PASSING = ("date", "commit", "command", "seconds")  # a change of these alone rewrites nothing


def _strict(text: str) -> object:
    def refuse(name: str) -> float:
        raise ValueError(f"{name} is no number of JSON")

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(pairs) != len(dict(pairs)):
            raise ValueError("a key stands twice")
        return dict(pairs)

    value = json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    if what := flaw(value):
        raise ValueError(what)
    return value


def json_of(path: Path, shown: str, largest: int = LARGEST) -> object:
    try:
        size = path.stat().st_size
        if size <= largest:
            with path.open("rb") as file:
                data = file.read(largest + 1)  # a pipe or a device tells no size
            size = len(data)
        if size > largest:
            what, mend = f"is larger than {largest} bytes", "name what `shelf run --out FILE` wrote"
            raise ShelfError(Finding(shown, None, what, mend))
        return _strict(data.decode("utf-8"))
    except OSError as error:
        what = error.strerror or str(error)
        raise ShelfError(Finding(shown, None, what, "name a file that can be read")) from None
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        what = f"is not the JSON of a record: {error}"
        raise ShelfError(Finding(shown, line, what, "make it again with `shelf run`")) from None


def schema_of(value: object) -> int:
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if type(schema) is int else 0


def checked(value: object, shown: str) -> Record:
    if (schema := schema_of(value)) > SCHEMA:
        what = f"is of schema {schema}; this tooling reads up to {SCHEMA}"
        raise ShelfError(Finding(shown, None, what, "update this checkout"))
    wrong = problem(value)
    record: Record = value if isinstance(value, dict) else {}
    if wrong := wrong or contradiction(record):
        raise ShelfError(Finding(shown, None, wrong, "make it again with `shelf run`"))
    return record


def load(project: Project, path: Path) -> Record:
    """Read one record.

    Raises:
        ShelfError: it is no whole record, or not that of its folder and file name.
    """
    shown = project.relative(path)
    record = checked(json_of(path, shown), shown)
    if (record["snippet"], record["machine"]["slug"]) != (path.parents[1].name, slug_of(path.stem)):
        what = f"is the record of {record['snippet']} on {record['machine']['slug']}"
        raise ShelfError(Finding(shown, None, what, "put it where it belongs by `shelf import`"))
    return record


def load_all(snippet: Snippet) -> tuple[dict[str, Record], list[Finding]]:
    """The records of a snippet by key, and what is wrong with the files that hold none."""
    records: dict[str, Record] = {}
    findings: list[Finding] = []
    for path in sorted(snippet.results.glob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            records[path.stem] = load(snippet.project, path)
        except ShelfError as error:
            findings.extend(error.findings)
    return records, findings


def path_of(snippet: Snippet, key: str) -> Path:
    """Where the record of `snippet` with this key stands."""
    return snippet.results / f"{key}.json"


def attestation_of(snippet: Snippet, key: str) -> Path:
    """Where the signed statement lies that attests the record with this key, if one does."""
    return snippet.results / ATTESTATIONS / f"{key}.json"


def newest(records: Mapping[str, Record], slug: str, digest: str | None = None) -> Record | None:
    """The newest record of one kind of device; of the code of `digest`, where there is one."""
    mine = [records[key] for key in siblings.keys(slug) if key in records]
    return max(mine, key=lambda one: (one["digest"] == digest, one["date"]), default=None)


def same(old: Record, new: Record) -> bool:
    """Whether nothing but what passes differs: the date, the commit, what it took."""
    return {k: v for k, v in old.items() if k not in PASSING} == {
        k: v for k, v in new.items() if k not in PASSING
    }


def destination(snippet: Snippet, record: Record) -> str:
    """The key that `record` will have in place.

    Raises:
        ShelfError: so many records of its device disagree already that there is no place for it.
    """
    try:
        return siblings.place(record, load_all(snippet)[0])
    except siblings.Full as full:
        where = snippet.project.relative(path_of(snippet, str(full)))
        what = f"stands beside {siblings.MOST - 1} others of its device, which all disagree"
        raise ShelfError(Finding(where, None, what, "remove those that nobody trusts")) from None


def plan(
    batch: Batch, snippet: Snippet, record: Record, attestation: str | None = None
) -> Path | None:
    """Have `batch` put `record` in its place; where that is, None where only its date would change.

    A record that a job has signed is not replaced by a person's that agrees with it. Records of
    other code of the same device go: they stay in version control. So does what attests a record
    that goes or is replaced; `attestation` is put beside the new one.

    Raises:
        ShelfError: there is no place for it, see `destination`.
    """
    known, _ = load_all(snippet)
    key = destination(snippet, record)
    path = path_of(snippet, key)
    old = known.get(key)
    renewed = old is None or not (same(old, record) or siblings.outranked(record, old))
    if renewed:
        batch.write(path, dump(record))
    if attestation is not None and (renewed or (old is not None and dump(old) == dump(record))):
        batch.write(attestation_of(snippet, key), attestation)
    elif renewed:
        batch.remove(attestation_of(snippet, key))
    if record["digest"] == snippet.digest:
        for other in siblings.outdated(record, known):
            if other != key:
                batch.remove(path_of(snippet, other))
                batch.remove(attestation_of(snippet, other))
    return path if renewed else None


def put(snippet: Snippet, record: Record) -> Path | None:
    """Put `record` in its place, unless only its date would change; the path if it was written.

    Raises:
        ShelfError: there is no place for it, see `destination`.
    """
    batch = Batch()
    path = plan(batch, snippet, record)
    return path if path in batch.commit() else None


def current(snippet: Snippet, key: str) -> Record | None:
    """The record of the present code of `snippet` with this key, if there is a sound one."""
    path = path_of(snippet, key)
    try:
        record = load(snippet.project, path) if path.is_file() else None
    except ShelfError:
        return None
    return record if record is not None and record["digest"] == snippet.digest else None
