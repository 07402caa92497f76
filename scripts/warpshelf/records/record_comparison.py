"""Two records side by side: their times, errors and facts, and the conditions of each.

Enters: two records of one snippet, each by its key, a key as of a commit (`nvidia-h100@HEAD~3`), or
a file with a record or a bundle, where `FILE#KEY` picks one of several; or all records of a
snippet. Leaves: a row a function and case, and how the two stand; which records of one kind of
device stand side by side, and why, in words.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.records import bundle, history, limits, schema, store
from warpshelf.records.ledger import CPU
from warpshelf.records.schema import Record
from warpshelf.records.store import TimeDifference

# Under which conditions a record was made, in words: in what two differ, what tells them apart.
#
# Enters: records, or what is kept of past ones. Leaves: plain text by name, unknowns left out.

SOFTWARE = ("code", "driver", "CUDA", "torch", "Triton", "method")  # a change of these is told
BEARING = ("commit", "driver", "torch", "Triton", "SM clock", "temperature")
SHOWN_DIGITS = 8  # of a digest or a commit
# What tells records of one kind of device apart, what says most first.
TRAITS = ("driver", "torch", "Triton", "CUDA", "made on", "made by", "code")


class ChangedCondition(NamedTuple):
    """A condition that is not the same in two records."""

    name: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.name} {self.first or 'unknown'} → {self.second or 'unknown'}"


def record_conditions(record: Mapping[str, Any]) -> dict[str, str]:
    """The conditions of a record by name; what it does not say is left out."""
    machine, measured = record["machine"], record.get("conditions", {})
    load = measured.get("load", {})
    found = {
        "driver": machine.get("driver"),
        "CUDA": machine.get("cuda"),
        "torch": machine.get("torch"),
        "Triton": machine.get("triton"),
        "SM clock": _format_clock(load),
        "temperature": _format_reading(load.get("celsius_highest"), "°C"),
        "slowed by": ", ".join(limits.slowdown_reasons(record)),
        "commit": record.get("commit"),
        "code": record["digest"].partition(":")[2][:SHOWN_DIGITS],
        "method": str(record["method"]),
        "made on": units.format_date(record["date"]),
        "made by": _maker_text(record),
    }
    return {name: text for name, text in found.items() if text}


def _format_clock(load: Mapping[str, Any]) -> str:
    lowest = _format_reading(load.get("sm_mhz_lowest"), "MHz")
    said = _format_reading(load.get("sm_mhz"), "MHz")
    return f"{said}, {lowest} at the lowest" if said and lowest else said


def _format_reading(value: object, unit: str) -> str:
    return "" if units.finite_float(value) is None else f"{units.format_number(value)} {unit}"


def _maker_text(record: Mapping[str, Any]) -> str:
    origin = record.get("origin") or {}
    return "a job of this project" if "job" in origin else str(origin.get("who", ""))


def changed_conditions(
    first: Mapping[str, Any], second: Mapping[str, Any], names: Iterable[str] | None = None
) -> list[ChangedCondition]:
    """The conditions that differ; of those in `names` alone, where given."""
    one, other = record_conditions(first), record_conditions(second)
    known = dict.fromkeys((*one, *other)) if names is None else names
    return [
        ChangedCondition(name, one.get(name, ""), other.get(name, ""))
        for name in known
        if one.get(name) != other.get(name)
    ]


def side_by_side(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """What bears on a time, of two records: an arrow where they differ, else it is said once."""
    one, other = record_conditions(first), record_conditions(second)
    found = []
    for name in dict.fromkeys((*BEARING, *one, *other)):
        if one.get(name) != other.get(name):
            found.append(str(ChangedCondition(name, one.get(name, ""), other.get(name, ""))))
        elif name in BEARING and name in one:
            found.append(f"{name} {one[name]}")
    return ", ".join(found)


def format_conditions(record: Mapping[str, Any]) -> str:
    """The conditions that bear on a time, in one line."""
    known = record_conditions(record).items()
    return ", ".join(f"{name} {text}" for name, text in known if name not in ("code", "method"))


def format_time(found: Mapping[str, Any]) -> str:
    """A median with its spread: `49.1 µs (48.1 µs to 50.6 µs)`."""
    median, low, high = (units.format_seconds(found[key]) for key in ("median", "p20", "p80"))
    return f"{median} ({low} to {high})"


def format_brief_time(found: Mapping[str, Any]) -> str:
    """The same for a narrow column, where the unit is said once: `49.1 µs (48.1 to 50.6)`."""
    median, low, high = (units.format_seconds(found[key]) for key in ("median", "p20", "p80"))
    unit = median.rpartition(" ")[2]
    if {low.rpartition(" ")[2], high.rpartition(" ")[2]} != {unit}:
        return f"{median} ({low} to {high})"
    return f"{median} ({low.removesuffix(f' {unit}')} to {high.removesuffix(f' {unit}')})"


def distinct_labels(records: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """For each of several records of one kind of device, by key, words that no other one has.

    One condition where it tells all of them apart, as `driver 580.65`, and else as few as do.
    A single record needs no words.
    """
    if len(records) < 2:
        return dict.fromkeys(records, "")
    traits = {key: _trait_labels(record) for key, record in records.items()}
    days = [own["made on"] for own in traits.values()]
    if len(set(days)) < len(days):
        for key, record in records.items():
            traits[key]["made on"] = f"made on {units.format_datetime(record['date'])}"
    chosen: list[str] = []
    for trait in TRAITS:
        values = {own[trait] for own in traits.values()}
        if len(values) == len(records):
            return {key: own[trait] for key, own in traits.items()}
        if len(values) > 1:
            chosen.append(trait)
    for count in range(2, len(chosen) + 1):
        words = {key: ", ".join(own[one] for one in chosen[:count]) for key, own in traits.items()}
        if len(set(words.values())) == len(records):
            return words
    return {key: f"record {key.partition('.')[2] or 1}" for key in records}


def _trait_labels(record: Mapping[str, Any]) -> dict[str, str]:
    known = record_conditions(record)
    return {name: f"{name} {known.get(name, 'unknown')}" for name in TRAITS}


def format_case(case: Mapping[str, Any]) -> str:
    """A case in words, by itself."""
    return units.case_labels([dict(case)])[0]


def format_difference(one: TimeDifference) -> str:
    """Where two records differ, in one line: function, case, and both times with their spreads."""
    times = f"{format_time(one.first)} against {format_time(one.second)}"
    return f"{one.name}, {format_case(one.case)}: {times}"


WITHIN = "within the spread of both"
ONE = "on one only"


class ComparisonRow(NamedTuple):
    """A function in a case, or a fact, in two records: values in words, and how the second stands.

    `ratio` says how many times as long the second takes; None where not both have a time.
    """

    case: str
    name: str
    role: str
    quantity: str
    first: str
    second: str
    ratio: float | None = None
    standing: str = ""


Found = dict[str, tuple[dict[str, Any], dict[str, Any]]]  # by case and function: case, result


def compare_records(first: Record, second: Record) -> list[ComparisonRow]:
    """The rows of two records, in the order of the first, what only the second has behind."""
    return [*_result_rows(first, second), *_fact_rows(first, second)]


def format_standing(first: dict[str, Any], second: dict[str, Any]) -> str:
    """How the second time stands to the first, in words."""
    if limits.times_tie(first, second):
        return "tie"
    if not limits.times_differ(first, second):
        return WITHIN
    factor = second["median"] / first["median"]
    if factor > 1:
        return f"{units.format_ratio(factor)} slower"
    return f"{units.format_ratio(1 / factor)} faster"


def _result_rows(first: Record, second: Record) -> Iterator[ComparisonRow]:
    one, other = _index_results(first), _index_results(second)
    for key in dict.fromkeys((*one, *other)):
        case, result = one.get(key) or other[key]
        pair = [found[key][1] if key in found else {} for found in (one, other)]
        times = [result.get("time") for result in pair]
        about = (format_case(case), result["name"], result["role"])
        if any(times):
            texts = [_time_cell(result) for result in pair]
            if times[0] is None or times[1] is None:
                yield ComparisonRow(*about, "time", texts[0], texts[1], standing=ONE)
                continue
            ratio = units.safe_divide(times[1]["median"], times[0]["median"])
            yield ComparisonRow(
                *about, "time", texts[0], texts[1], ratio, format_standing(times[0], times[1])
            )
        else:
            texts = [_error_cell(result) for result in pair]
            yield ComparisonRow(*about, "error", texts[0], texts[1])


def _index_results(record: Record) -> Found:
    return {
        json.dumps([case["case"], result["role"], result["name"]], sort_keys=True): (
            case["case"],
            result,
        )
        for case in record.get("cases", ())
        for result in case["results"]
    }


def _time_cell(result: dict[str, Any]) -> str:
    if "time" in result:
        return format_brief_time(result["time"])
    if not result:
        return ""
    return f"no time: {result.get('untimed') or result.get('reason') or result['verdict']}"


def _error_cell(result: dict[str, Any]) -> str:
    if "error" in result:
        return units.format_error(result["error"])
    return f"{result['verdict']}: {result.get('reason', 'no reason given')}" if result else ""


def _fact_rows(first: Record, second: Record) -> Iterator[ComparisonRow]:
    one, other = (
        {(fact["name"], fact["unit"]): fact["value"] for fact in record.get("facts", ())}
        for record in (first, second)
    )
    for name, unit in dict.fromkeys((*one, *other)):
        texts = [
            units.format_number(found[name, unit]) if (name, unit) in found else ""
            for found in (one, other)
        ]
        yield ComparisonRow("", name, "fact", unit or "value", texts[0], texts[1])


SHORT = 12  # characters of a commit


class LabeledRecord(NamedTuple):
    """A record, and what it is called: its key, with the commit or the file that it was read of."""

    label: str
    record: Record


def find_record(snippet: Snippet, name: str) -> LabeledRecord:
    """The record of `snippet` that `name` means.

    Raises:
        ShelfError: there is none, it cannot be read, or there are several.
    """
    key, at, commit = name.rpartition("@")
    if at and store.key_slug(key):
        return _record_at_commit(snippet, key, commit)
    path, mark, picked = name.partition("#")
    if Path(path).is_file():
        return _record_in_file(snippet, Path(path), picked if mark else None)
    if store.key_slug(name) is None:
        raise _unknown_record(snippet, name)
    place = store.record_path(snippet, name)
    if not place.is_file():
        raise _unknown_record(snippet, name)
    return LabeledRecord(name, store.load_record(snippet.project, place))


def _unknown_record(snippet: Snippet, name: str) -> ShelfError:
    known = ", ".join(sorted(store.load_records(snippet)[0])) or "none yet"
    mend = f"name a record of {snippet.id} ({known}), one as KEY@COMMIT, or a file"
    return ShelfError(Finding(name, None, f"is no record of {snippet.id} and no file", mend))


def _record_at_commit(snippet: Snippet, key: str, commit: str) -> LabeledRecord:
    project = snippet.project
    path = project.relative_path(store.record_path(snippet, key))
    found = history.read_version(project, commit, path)
    shown = f"{key}@{commit}"
    if found is None:
        mend = f"`shelf history {snippet.id}` lists the commits that have one"
        raise ShelfError(Finding(shown, None, f"{path} is not there as of {commit}", mend))
    full, data = found
    record = _parse_record(data) or history.parse_kept(data)
    if isinstance(record, str):
        raise ShelfError(Finding(shown, None, f"cannot be read: {record}", "name another commit"))
    return LabeledRecord(f"{key}@{full[:SHORT]}", record)


def _parse_record(data: bytes) -> Record | None:
    """A record as it was written, if records are still shaped so."""
    try:
        value: Record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return None if schema.shape_problem(value) else value


def _record_in_file(snippet: Snippet, path: Path, picked: str | None) -> LabeledRecord:
    shown = path.as_posix()
    value = store.read_json(path, shown)
    if isinstance(value, dict) and "records" in value:
        mine = [one for one in bundle.read_bundle(path) if one["snippet"] == snippet.id]
    else:
        record = store.check_record(value, shown)
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
    return LabeledRecord(f"{path.name}#{chosen[0]['machine']['slug']}", chosen[0])


def find_counterpart(snippet: Snippet, other: LabeledRecord) -> LabeledRecord:
    """What to set a record beside, where nobody says: the newest one of its kind, or of any GPU.

    Raises:
        ShelfError: there is no other record.
    """
    records, _ = store.load_records(snippet)
    rest = {key: one for key, one in records.items() if not _same_record(one, other.record)}
    slug = other.record["machine"]["slug"]
    of_kind = {key: one for key, one in rest.items() if one["machine"]["slug"] == slug}
    gpus = {key: one for key, one in rest.items() if one["machine"]["slug"] != CPU}
    for choice in (of_kind, gpus):
        if choice:
            key = max(choice, key=lambda name: choice[name]["date"])
            return LabeledRecord(key, choice[key])
    what = f"is the only record of {snippet.id} that there is"
    raise ShelfError(Finding(other.label, None, what, "name another by a second --with"))


def _same_record(one: Record, other: Record) -> bool:
    return history.parse_kept(schema.record_text(one).encode()) == history.parse_kept(
        schema.record_text(other).encode()
    )


def group_by_device(records: Mapping[str, Record], digest: str) -> list[dict[str, Record]]:
    """The records of the present code, by kind of GPU, where there are several of one kind."""
    slugs = sorted({record["machine"]["slug"] for record in records.values()} - {CPU})
    found = []
    for slug in slugs:
        mine = {
            key: records[key]
            for key in store.record_keys(slug)
            if key in records and records[key]["digest"] == digest
        }
        if len(mine) > 1:
            found.append(mine)
    return found


def describe_disagreement(first: Record, second: Record) -> str:
    """On what two records of one kind of device disagree, and what was different, in one line."""
    apart = store.time_differences(first, second)
    if not apart:
        return "they agree within the spread of both"
    worst = max(apart, key=lambda one: max(one.factor, 1 / one.factor))
    more = f" (and {len(apart) - 1} more)" if len(apart) > 1 else ""
    other = side_by_side(first, second)
    return f"they disagree on {format_difference(worst)}{more}; {other}"


def disagreement_lines(snippet: Snippet, keys: Collection[str] | None = None) -> list[str]:
    """A line for each record, of those in `keys` where given, that stands beside another."""
    if not any(snippet.results.glob("*.?.json")):
        return []  # as nearly always: nothing is read
    records, _ = store.load_records(snippet)
    return [
        f"{snippet.project.relative_path(store.record_path(snippet, key))}: stands beside "
        f"{first}.json: {describe_disagreement(group[first], record)}"
        for group in group_by_device(records, snippet.digest)
        for first in [next(iter(group))]
        for key, record in group.items()
        if key != first and (keys is None or key in keys)
    ]


def all_disagreements(snippets: Iterable[Snippet]) -> list[str]:
    """The lines of all snippets."""
    return [
        line for snippet in snippets if not snippet.findings for line in disagreement_lines(snippet)
    ]
