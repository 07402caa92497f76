"""The records of one snippet, by machine: reading, placing and renewing them.

Rows of a file have their names once, in `columns`. A record of a GPU is evidence, and all of it
stands there; one that a job has signed stands as it was signed. That of a CPU can be made again
anywhere, so its file is kept shorter still: rows of `due` that follow from its `cases` are left out
(`claim_check`), each refusal stands once and has a number, and what is bulky is `packed` beside it,
with its views (look/view_store.py).

Where two runs of the same code on one kind of device disagree by more than their spread, a reader
should see both, with their drivers and clocks. A record is known by its key, the name of its file:
the first is `<slug>.json`, further ones are `<slug>.2.json` and so on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.pictures import PREDICTION
from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.findings import Finding, ShelfError, file_error
from warpshelf.core.project import Project
from warpshelf.records import claim_check, schema
from warpshelf.records.ledger import CPU
from warpshelf.records.limits import times_differ
from warpshelf.records.schema import MACHINE, RECORD, SCHEMA, Record, result_key, timed_results

MOST = 9  # records of one kind of device; more of them tell a reader nothing
NUMBER = re.compile(r"[2-9]")
LARGEST = 64 * 2**20  # bytes of a file to read; a real one holds well under a mebibyte
BULKY = ("cases", "compiled", "facts", "grids", "predictions", "space", "timelines")
ROWS: dict[str, dict[str, Any]] = {
    "results": schema.RESULT,
    "facts": schema.FACT,
    "predictions": PREDICTION,
    "compiled": schema.COMPILED,
    "due": schema.DUE,
    "time": schema.TIME,  # of a result
}
# Characters of a part from which on it is packed: fewer of a kernel's, which has views to pack too.
BULK, OF_KERNELS = 8 * 1024, 4 * 1024
PACK = f"{CPU}.xz"  # beside the record of a CPU: what is bulky, and the views
SECTION = "record"  # of the packed file: parts of the record, and the digest that they are of
ATTESTATIONS = "attestations"  # a folder beside the records that they attest
PASSING = ("date", "commit", "command", "seconds")  # a change of these alone rewrites nothing
AGAIN = "make it again with `shelf run`"


class TimeDifference(NamedTuple):
    """The times of a function on a case in two records that disagree on it."""

    case: dict[str, Any]
    name: str
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    role: str = "variant"

    @property
    def factor(self) -> float:
        """How many times as long the second takes."""
        return float(self.second["median"]) / float(self.first["median"])


def key_slug(key: str) -> str | None:
    """The machine whose record `<key>.json` is; None where no record is named so."""
    slug, dot, number = key.partition(".")
    if dot and (not NUMBER.fullmatch(number) or slug == CPU):
        return None
    return slug if MACHINE.fullmatch(slug) else None


def record_keys(slug: str) -> Iterator[str]:
    """The names that the records of one kind of device may have, in the order of their use."""
    yield slug
    if slug != CPU:  # which is checked, not timed: there is nothing to disagree on
        yield from (f"{slug}.{number}" for number in range(2, MOST + 1))


def time_differences(first: Record, second: Record) -> list[TimeDifference]:
    """Where two records have times of the same function and case that `limits.times_differ`."""
    known = {result_key(row, one): one["time"] for row, one in timed_results(first)}
    pairs = [
        TimeDifference(row["case"], one["name"], known[key], one["time"], one["role"])
        for row, one in timed_results(second)
        if (key := result_key(row, one)) in known
    ]
    return [one for one in pairs if times_differ(one.first, one.second)]


def is_outranked(record: Record, known: Record) -> bool:
    """Whether `record` says no more than a `known` one of the same code, which a job has signed."""
    by_job = "job" in known.get("origin", {}) and "job" not in record.get("origin", {})
    return by_job and known["digest"] == record["digest"] and not time_differences(known, record)


def choose_key(record: Record, known: Mapping[str, Record]) -> str | None:
    """The key under which `record` is to stand, beside the `known` records of its snippet by key.

    It replaces one of the same code that comes from the same hands or agrees with it, else one of
    other code, and else it gets a place of its own. None: there are MOST, and all disagree.
    """
    keys = list(record_keys(record["machine"]["slug"]))
    of_this_code = {
        key: known[key] for key in keys if key in known and known[key]["digest"] == record["digest"]
    }
    origin = record.get("origin", {})
    for key, old in of_this_code.items():
        maker = old.get("origin", {})
        if ("job" in maker and "job" in origin) or ("who" in maker and maker == origin):
            return key
    agreeing = (key for key, old in of_this_code.items() if not time_differences(old, record))
    return next(chain(agreeing, (key for key in keys if key not in of_this_code)), None)


def read_json(path: Path, shown: str, largest: int = LARGEST) -> object:
    """What a JSON file of at most `largest` bytes holds; a ShelfError where it is none."""

    def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(pairs) != len(dict(pairs)):
            raise ValueError("a key occurs twice")
        return dict(pairs)

    try:
        size = path.stat().st_size
        if size <= largest:
            with path.open("rb") as file:
                data = file.read(largest + 1)  # a pipe or a device tells no size
            size = len(data)
        if size > largest:
            mend = "give a file that `shelf run --out FILE` wrote"
            raise file_error(shown, f"is larger than {largest} bytes", mend)
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique_keys)
        if flaw := files.json_flaw(value):
            raise ValueError(flaw)
    except OSError as error:
        mend = "give a readable file"
        raise file_error(shown, error.strerror or str(error), mend) from None
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise file_error(shown, f"is not the JSON of a record: {error}", AGAIN, line) from None
    return value


def schema_version(value: object) -> int:
    """The schema that a file says it is of; 0 where it says none."""
    schema = value.get("schema") if isinstance(value, dict) else None
    return schema if type(schema) is int else 0


def check_record(value: object, shown: str) -> Record:
    """`value` as a record; ShelfError if it is malformed or claims the impossible."""
    if (version := schema_version(value)) > SCHEMA:
        what = f"has schema {version}; this tooling reads up to {SCHEMA}"
        raise file_error(shown, what, "update this checkout")
    record: Record = value if isinstance(value, dict) else {}
    if wrong := schema.shape_problem(value) or schema.validation_error(record):
        raise file_error(shown, wrong, AGAIN)
    return record


def load_record(project: Project, path: Path) -> Record:
    """Read one record; ShelfError if it is not whole, or of another folder or name."""
    shown = project.relative_path(path)
    value = read_json(path, shown)
    if isinstance(value, dict) and schema_version(value) <= SCHEMA:
        value = _unpack_record(value, path, shown)
    record = check_record(value, shown)
    name, slug = record["snippet"], record["machine"]["slug"]
    if (name, slug) != (path.parents[1].name, key_slug(path.stem)):
        mend = "place it with `shelf import`"
        raise file_error(shown, f"is the record of {name} on {slug}", mend)
    return record


def _pack_record(record: Record) -> tuple[str, dict[str, Any]]:
    """The text of the file of a record, and what of a CPU's is packed beside it."""
    bulky = BULKY if record["machine"]["slug"] == CPU else ()
    most = OF_KERNELS if record.get("compiled") else BULK
    bulk = {key: record[key] for key in bulky if len(json.dumps(record.get(key, 0))) > most}
    ordered: Record = files.order_keys(record, RECORD)
    slim = {key: value for key, value in ordered.items() if key not in bulk}
    told = list(filter(None, map(claim_check.due_from_row, record.get("cases", ()))))
    rest = []
    for row in slim.pop("due", ()):
        if row in told:
            told.remove(row)  # the same case may be due twice
        else:
            rest.append(row)
    if rest:
        slim["due"] = rest
    cases = slim.get("cases", [])
    columns: dict[str, list[str]] = {}
    for name, shape in ROWS.items():
        rows = slim.get(name, ())
        if name == "results":
            rows = [one for row in cases for one in row["results"]]
        elif name == "time":
            rows = [one["time"] for row in cases for one in row["results"] if "time" in one]
        if rows:
            names = (key.rstrip("?") for key in shape)
            columns[name] = [key for key in names if any(key in row for row in rows)]

    refused = (one.get("refuses", {}).values() for row in cases for one in row["results"])
    numbers = {why: at for at, why in enumerate(dict.fromkeys(chain(*refused)))} if bulky else {}

    def list_cells(row: Mapping[str, Any], name: str) -> list[Any]:
        """A row by column, None where it has nothing; what is missing at its end is left out."""
        if numbers and "refuses" in row:
            row = {**row, "refuses": {key: numbers[why] for key, why in row["refuses"].items()}}
        cells = [row.get(key) for key in columns[name]]
        if name == "results" and "time" in row:
            cells[columns[name].index("time")] = list_cells(row["time"], "time")
        while cells and cells[-1] is None:
            cells.pop()
        return cells

    for name in columns.keys() & slim.keys():
        slim[name] = [list_cells(row, name) for row in slim[name]]
    for row in cases:
        row["results"] = [list_cells(one, "results") for one in row["results"]]
    head = {key: slim.pop(key) for key in list(slim) if key not in {*ROWS, *BULKY, "cases"}}
    known = {"columns": columns, "refusals": [*numbers], "packed": sorted(bulk)}
    text = files.pretty_json({**head, **{key: one for key, one in known.items() if one}, **slim})
    return text, {"digest": record["digest"], **bulk} if bulk else {}


def _unpack_record(value: dict[str, Any], path: Path, shown: str) -> dict[str, Any]:
    """The record whose own file holds `value`."""
    if names := value.get("packed"):
        pack = path.parent / PACK
        try:
            part: Any = files.read_sections(pack).get(SECTION)
            if not isinstance(part, dict) or part.get("digest") != value.get("digest"):
                raise ValueError("was made from different code than its record")
            if wrong := files.json_flaw(part):
                raise ValueError(wrong)
            if missing := [name for name in names if name not in BULKY or name not in part]:
                raise ValueError(f"lacks the {missing[0]!r:.40} of its record")
            value = {**value, **{name: part[name] for name in names}}
        except (OSError, ValueError, TypeError) as error:
            what = getattr(error, "strerror", None) or str(error)
            place = f"{Path(shown).parent.as_posix()}/{pack.name}"
            raise file_error(place, what, AGAIN) from None
    try:
        return restore_rows(value)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        what = f"has rows that do not fit its columns: {error}"
        raise file_error(shown, what, AGAIN) from None


def restore_rows(value: dict[str, Any]) -> dict[str, Any]:
    """A record with names in its rows, of what stands in columns, and with the rows that follow;
    ValueError, TypeError, AttributeError or LookupError where they do not fit."""
    machine, columns = value.get("machine"), value.get("columns", {})
    gpu = not isinstance(machine, dict) or machine.get("slug") != CPU
    if gpu and not columns:
        return value  # as a job has signed it
    refusals = value.get("refusals", [])
    unnamed = ("columns", "refusals", "packed")
    record = {key: one for key, one in value.items() if key not in unnamed}

    def name_cells(cells: Any, name: str) -> dict[str, Any]:
        if not isinstance(cells, list):
            return dict(cells)
        if len(cells) > len(columns[name]):
            raise ValueError(f"{name} has a row of {len(cells)} for {len(columns[name])} columns")
        pairs = zip(columns[name], cells, strict=False)
        row = {key: cell for key, cell in pairs if cell is not None}
        if refusals and "refuses" in row:
            row["refuses"] = {key: refusals[at] for key, at in row["refuses"].items()}
        return row | {"time": name_cells(row["time"], "time")} if "time" in row else row

    for name in ROWS.keys() & record.keys():
        record[name] = [name_cells(cells, name) for cells in record[name]]
    cases, rows = record.get("cases", []), record.get("due", [])
    for row in cases:
        row["results"] = [name_cells(cells, "results") for cells in row["results"]]
    if gpu:
        return record
    stated = [(row["case"], row["timed"]) for row in rows]
    told = []
    for row in filter(None, map(claim_check.due_from_row, cases)):
        if (key := (row["case"], row["timed"])) in stated:
            stated.remove(key)  # the file says so itself
        else:
            told.append(row)
    if told or rows:
        record["due"] = [*told, *rows]
    return record


def load_records(snippet: Snippet) -> tuple[dict[str, Record], list[Finding]]:
    """The records of a snippet by key, and what is wrong with the files that hold none."""
    records: dict[str, Record] = {}
    findings: list[Finding] = []
    for path in sorted(snippet.results.glob("[!.]*.json")):
        try:
            records[path.stem] = load_record(snippet.project, path)
        except ShelfError as error:
            findings.extend(error.findings)
    return records, findings


def record_path(snippet: Snippet, key: str) -> Path:
    """Where the record of `snippet` with this key stands."""
    return snippet.results / f"{key}.json"


def attestation_path(snippet: Snippet, key: str) -> Path:
    """Where the signed statement lies that attests the record with this key, if one does."""
    return snippet.results / ATTESTATIONS / f"{key}.json"


def newest_record(
    records: Mapping[str, Record], slug: str, digest: str | None = None
) -> Record | None:
    """The newest record of one kind of device; of the code of `digest`, where there is one."""
    mine = [records[key] for key in record_keys(slug) if key in records]
    return max(mine, key=lambda one: (one["digest"] == digest, one["date"]), default=None)


def plan_write(
    batch: files.Batch, snippet: Snippet, record: Record, attestation: str | None = None
) -> Path | None:
    """Have `batch` put `record` in its place; where that is, None where only its date would change.

    A record that a job has signed is not replaced by a person's that agrees with it. Records of
    other code of the same device go: they stay in version control. So does what attests a record
    that goes or is replaced; `attestation` is put beside the new one.

    Raises:
        ShelfError: so many records of its device disagree already that there is no place for it.
    """
    known, _ = load_records(snippet)
    slug, key = record["machine"]["slug"], choose_key(record, known)
    if key is None:
        where = snippet.project.relative_path(record_path(snippet, slug))
        what = f"disagrees with all {MOST - 1} others of its device"
        raise file_error(where, what, "remove the least trusted")
    path, old = record_path(snippet, key), known.get(key)
    parts = {*record, *(old or {})}.difference(PASSING)
    same = old is not None and all(old.get(part) == record.get(part) for part in parts)
    renewed = old is None or not (same or is_outranked(record, old))
    if renewed and slug != CPU:
        signed = attestation is not None
        batch.write(path, schema.record_text(record) if signed else _pack_record(record)[0])
    elif renewed:
        text, bulk = _pack_record(record)
        batch.write(path, text)
        pack = snippet.results / PACK
        if (packed := files.replace_section(pack, SECTION, bulk)) is not None:
            batch.write(pack, packed)
        else:
            batch.remove(pack)
    unchanged = old is not None and schema.record_text(old) == schema.record_text(record)
    if attestation is not None and (renewed or unchanged):
        batch.write(attestation_path(snippet, key), attestation)
    elif renewed:
        batch.remove(attestation_path(snippet, key))
    for other, one in known.items() if record["digest"] == snippet.digest else ():
        if other != key and key_slug(other) == slug and one["digest"] != record["digest"]:
            batch.remove(record_path(snippet, other))
            batch.remove(attestation_path(snippet, other))
    return path if renewed else None


def save_record(snippet: Snippet, record: Record) -> Path | None:
    """Put `record` in its place as `plan_write` says; the path if it was written."""
    batch = files.Batch()
    path = plan_write(batch, snippet, record)
    return path if path in batch.commit() else None


def current_record(snippet: Snippet, key: str) -> Record | None:
    """The record of the present code of `snippet` with this key, if there is a sound one."""
    path = record_path(snippet, key)
    try:
        record = load_record(snippet.project, path) if path.is_file() else None
    except ShelfError:
        return None
    return record if record is not None and record["digest"] == snippet.digest else None
