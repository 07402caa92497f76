"""The record of one snippet on one machine: its shape, reading, writing, import."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump, flaw, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import agreement
from warpshelf.records.machine import CPU
from warpshelf.records.schema import SCHEMA, Record, contradiction, problem

LARGEST = 64 * 2**20  # bytes of a file to read; a real one holds well under a mebibyte
MOST = 10_000  # records in a bundle; each may have a finding
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


def _json(path: Path, shown: str) -> object:
    try:
        size = path.stat().st_size
        if size <= LARGEST:
            with path.open("rb") as file:
                data = file.read(LARGEST + 1)  # a pipe or a device tells no size
            size = len(data)
        if size > LARGEST:
            what, mend = f"is larger than {LARGEST} bytes", "name what `shelf run --out FILE` wrote"
            raise ShelfError(Finding(shown, None, what, mend))
        return _strict(data.decode("utf-8"))
    except OSError as error:
        what = error.strerror or str(error)
        raise ShelfError(Finding(shown, None, what, "name a file that can be read")) from None
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        what = f"is not the JSON of a record: {error}"
        raise ShelfError(Finding(shown, line, what, "make it again with `shelf run`")) from None


def _schema(value: object) -> int:
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if type(schema) is int else 0


def _checked(value: object, shown: str) -> Record:
    if (schema := _schema(value)) > SCHEMA:
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
    record = _checked(_json(path, shown), shown)
    if (record["snippet"], record["machine"]["slug"]) != (path.parents[1].name, path.stem):
        what = f"is the record of {record['snippet']} on {record['machine']['slug']}"
        raise ShelfError(Finding(shown, None, what, "put it where it belongs by `shelf import`"))
    return record


def load_all(snippet: Snippet) -> tuple[dict[str, Record], list[Finding]]:
    """The records of a snippet by machine, and what is wrong with the files that hold none."""
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


def path_of(snippet: Snippet, machine: str) -> Path:
    """Where the record of `snippet` on `machine` stands."""
    return snippet.results / f"{machine}.json"


def same(old: Record, new: Record) -> bool:
    """Whether nothing but what passes differs: the date, the commit, what it took."""
    return {k: v for k, v in old.items() if k not in PASSING} == {
        k: v for k, v in new.items() if k not in PASSING
    }


def write(snippet: Snippet, record: Record) -> bool:
    """Write `record` in its place, unless only its date would change; True where it was written."""
    path = path_of(snippet, record["machine"]["slug"])
    if path.is_file():
        try:
            if same(load(snippet.project, path), record):
                return False
        except ShelfError:
            pass  # what stands there is no record: replace it
    return write_atomically(path, dump(record))


def bundle(records: Iterable[Record]) -> str:
    """The records of a run as the text of one file, for `shelf import`."""
    return dump({"schema": SCHEMA, "records": list(records)})


def _items(path: Path, shown: str) -> list[object]:
    value = _json(path, shown)
    if _schema(value) > SCHEMA:
        _checked(value, shown)
    records = value.get("records") if isinstance(value, dict) and len(value) == 2 else None
    if not isinstance(records, list) or _schema(value) < 1:
        what = "is no bundle of records"
        raise ShelfError(Finding(shown, None, what, "name what `shelf run --out FILE` wrote"))
    if len(records) > MOST:
        what, mend = f"holds {len(records)} records; {MOST} are the most", "import it in parts"
        raise ShelfError(Finding(shown, None, what, mend))
    return records


def read_bundle(path: Path) -> list[Record]:
    """The records of a bundle.

    Raises:
        ShelfError: it is no bundle, or a record in it is malformed.
    """
    shown = path.as_posix()
    items = _items(path, shown)
    return [_checked(item, f"{shown} records[{index}]") for index, item in enumerate(items)]


def import_bundle(
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
            record = _checked(item, place)
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
    if findings:
        raise ShelfError(findings)
    written = []
    for snippet, record, _ in good:
        if write(snippet, record):
            written.append(path_of(snippet, record["machine"]["slug"]))
    return written, left


def _disagreements(good: Iterable[tuple[Snippet, Record, str]]) -> Iterator[Finding]:
    """What records claim against the CPU's: that in place, or else that of the same bundle."""
    taken = list(good)
    brought = {one.id: record for one, record, _ in taken if record["machine"]["slug"] == CPU}
    for snippet, record, place in taken:
        truth = current(snippet, CPU) or brought.get(snippet.id)
        if truth is None:
            what = f"{snippet.id}: there is no current record of the CPU to check it against"
            mend = f"run `shelf run {snippet.id}` first, on any machine"
            yield Finding(place, None, what, mend)
            continue
        for fault in agreement.faults(record, truth, snippet):
            what = f"{snippet.id} on {record['machine']['slug']}: {fault}"
            yield Finding(place, None, what, "make it again with `shelf run`")


def current(snippet: Snippet, machine: str) -> Record | None:
    """The record of the present code of `snippet` on `machine`, if there is a sound one."""
    path = path_of(snippet, machine)
    try:
        record = load(snippet.project, path) if path.is_file() else None
    except ShelfError:
        return None
    return record if record is not None and record["digest"] == snippet.digest else None
