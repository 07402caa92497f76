"""Two records side by side: their times, errors and facts, and the conditions of each.

Enters: two records of one snippet, each by its key, a key as of a commit (`nvidia-h100@HEAD~3`), or
a file with a record or a bundle, where `FILE#KEY` picks one of several. Leaves: a row a function
and case, and how the two stand; why records of one kind of device stand side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.findings import file_error
from warpshelf.records import bundle, history, limits, schema, store
from warpshelf.records.ledger import CPU
from warpshelf.records.schema import Record, result_key
from warpshelf.records.store import TimeDifference

SOFTWARE = ("code", "driver", "CUDA", "torch", "Triton", "method")  # a change of these is told
BEARING = ("commit", "driver", "torch", "Triton", "SM clock", "temperature")
SHOWN_DIGITS = 8  # of a digest
SHORT = 12  # characters of a commit
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
    machine, origin = record["machine"], record.get("origin") or {}
    load = record.get("conditions", {}).get("load", {})
    clock, lowest, hottest = (
        ""
        if units.finite_float(load.get(key)) is None
        else f"{units.format_number(load[key])} {unit}"
        for key, unit in (("sm_mhz", "MHz"), ("sm_mhz_lowest", "MHz"), ("celsius_highest", "°C"))
    )
    found = {
        "driver": machine.get("driver"),
        "CUDA": machine.get("cuda"),
        "torch": machine.get("torch"),
        "Triton": machine.get("triton"),
        "SM clock": f"{clock}, {lowest} at the lowest" if clock and lowest else clock,
        "temperature": hottest,
        "slowed by": ", ".join(limits.slowdown_reasons(record)),
        "commit": record.get("commit"),
        "code": record["digest"].partition(":")[2][:SHOWN_DIGITS],
        "method": str(record["method"]),
        "made on": units.format_date(record["date"]),
        "made by": "a job of this project" if "job" in origin else origin.get("who"),
    }
    return {name: text for name, text in found.items() if text}


def changed_conditions(
    first: Mapping[str, Any], second: Mapping[str, Any], names: Iterable[str] | None = None
) -> list[ChangedCondition]:
    """The conditions that differ; of those in `names` alone, where given."""
    one, other = record_conditions(first), record_conditions(second)
    pairs = (
        ChangedCondition(name, one.get(name, ""), other.get(name, ""))
        for name in (dict.fromkeys((*one, *other)) if names is None else names)
    )
    return [pair for pair in pairs if pair.first != pair.second]


def side_by_side(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """What bears on a time, of two records: an arrow where they differ, else it is said once."""
    one, other = record_conditions(first), record_conditions(second)
    changed = {pair.name: str(pair) for pair in changed_conditions(first, second)}
    bearing = {name: f"{name} {one[name]}" for name in BEARING if name in one}
    names = dict.fromkeys((*BEARING, *one, *other))
    told = (changed.get(name) or bearing.get(name) for name in names)
    return ", ".join(filter(None, told))


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
    whole = format_time(found)
    unit = " " + units.format_seconds(found["median"]).rpartition(" ")[2]
    return whole.replace(unit, "").replace(" (", f"{unit} (") if whole.count(unit) == 3 else whole


def distinct_labels(records: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """For each of several records of one kind of device, by key, words that no other one has.

    One condition where it tells all apart, as `driver 580.65`, else as few as do; of one none.
    """
    if len(records) < 2:
        return dict.fromkeys(records, "")
    known = {key: record_conditions(record) for key, record in records.items()}
    traits = {
        key: {name: f"{name} {own.get(name, 'unknown')}" for name in TRAITS}
        for key, own in known.items()
    }
    if len({own["made on"] for own in traits.values()}) < len(records):
        for key, record in records.items():
            traits[key]["made on"] = f"made on {units.format_datetime(record['date'])}"
    counts = {name: len({own[name] for own in traits.values()}) for name in TRAITS}
    chosen = [name for name in TRAITS if counts[name] > 1]
    alone = [[name] for name in chosen if counts[name] == len(records)]
    for names in (*alone[:1], *(chosen[:count] for count in range(2, len(chosen) + 1))):
        words = {key: ", ".join(own[one] for one in names) for key, own in traits.items()}
        if len(set(words.values())) == len(records):
            return words
    return {key: f"record {key.partition('.')[2] or 1}" for key in records}


def format_case(case: Mapping[str, Any]) -> str:
    """A case in words, by itself."""
    return units.case_labels([dict(case)])[0]


def format_difference(one: TimeDifference) -> str:
    """Where two records differ, in one line: function, case, and both times with their spreads."""
    times = f"{format_time(one.first)} against {format_time(one.second)}"
    return f"{one.name}, {format_case(one.case)}: {times}"


class ComparisonRow(NamedTuple):
    """A function in a case, or a fact: its values in two records, and how the second stands."""

    case: str
    name: str
    role: str
    quantity: str
    first: str
    second: str
    ratio: float | None = None  # how many times as long the second takes, where both have a time
    standing: str = ""


def compare_records(first: Record, second: Record) -> list[ComparisonRow]:
    """The rows of two records, in the order of the first, what only the second has behind."""
    one, other = (
        {
            result_key(row, result): (row["case"], result)
            for row in record.get("cases", ())
            for result in row["results"]
        }
        for record in (first, second)
    )
    rows = []
    for key in dict.fromkeys((*one, *other)):
        case, known = one.get(key) or other[key]
        pair = [found[key][1] if key in found else {} for found in (one, other)]
        timed = [result for result in pair if "time" in result]
        quantity, ratio, standing = ("time" if timed else "error"), None, ""
        if len(timed) == 1:
            standing = "on one only"
        elif timed:
            times = [result["time"] for result in pair]
            ratio, standing = times[1]["median"] / times[0]["median"], _format_standing(*times)
        one_text, other_text = (_result_text(result, quantity) for result in pair)
        about = (format_case(case), known["name"], known["role"], quantity)
        rows.append(ComparisonRow(*about, one_text, other_text, ratio, standing))
    return [*rows, *_fact_rows(first, second)]


def _format_standing(first: dict[str, Any], second: dict[str, Any]) -> str:
    if limits.times_tie(first, second):
        return "tie"
    if not limits.times_differ(first, second):
        return "within the spread of both"
    factor = second["median"] / first["median"]
    slower = factor > 1
    return f"{units.format_ratio(max(factor, 1 / factor))} {'slower' if slower else 'faster'}"


def _result_text(result: Mapping[str, Any], quantity: str) -> str:
    if not result:
        return ""
    if quantity in result:
        time = quantity == "time"
        return format_brief_time(result["time"]) if time else units.format_error(result["error"])
    if quantity == "time":
        return f"no time: {result.get('untimed') or result.get('reason') or result['verdict']}"
    return f"{result['verdict']}: {result.get('reason', 'no reason given')}"


def _fact_rows(first: Record, second: Record) -> Iterator[ComparisonRow]:
    one, other = (
        {(fact["name"], fact["unit"]): units.format_number(fact["value"]) for fact in found}
        for found in (first.get("facts", ()), second.get("facts", ()))
    )
    for key in dict.fromkeys((*one, *other)):
        name, unit = key
        texts = (one.get(key, ""), other.get(key, ""))
        yield ComparisonRow("", name, "fact", unit or "value", *texts)


class LabeledRecord(NamedTuple):
    """A record with its label: its key, with the commit or file that it was read from."""

    label: str
    record: Record


def find_record(snippet: Snippet, name: str) -> LabeledRecord:
    """The record of `snippet` that `name` means; ShelfError unless it means just one."""
    key, at, commit = name.rpartition("@")
    if at and store.key_slug(key):
        return _record_at_commit(snippet, key, commit)
    path, mark, picked = name.partition("#")
    if Path(path).is_file():
        return _record_in_file(snippet, Path(path), picked if mark else None)
    place = store.record_path(snippet, name)
    if store.key_slug(name) and place.is_file():
        return LabeledRecord(name, store.load_record(snippet.project, place))
    known = ", ".join(sorted(store.load_records(snippet)[0])) or "none yet"
    mend = f"name a record of {snippet.id} ({known}), one as KEY@COMMIT, or a file"
    raise file_error(name, f"is neither a record of {snippet.id} nor a file", mend)


def _record_at_commit(snippet: Snippet, key: str, commit: str) -> LabeledRecord:
    path = snippet.project.relative_path(store.record_path(snippet, key))
    found = history.read_version(snippet.project, commit, path)
    if found is None:
        mend = f"`shelf history {snippet.id}` lists the commits that have one"
        raise file_error(f"{key}@{commit}", f"{path} does not exist at {commit}", mend)
    full, data = found
    record = history.parse_kept(data)
    if isinstance(record, str):
        raise file_error(f"{key}@{commit}", f"cannot be read: {record}", "name another commit")
    whole = store.restore_rows(json.loads(data))
    if not schema.shape_problem(whole):  # else records were shaped in another way
        record = whole
    return LabeledRecord(f"{key}@{full[:SHORT]}", record)


def _record_in_file(snippet: Snippet, path: Path, picked: str | None) -> LabeledRecord:
    shown = path.as_posix()
    value = store.read_json(path, shown)
    whole = isinstance(value, dict) and "records" in value
    records = bundle.read_bundle(path) if whole else [store.check_record(value, shown)]
    mine = [
        one
        for one in records
        if one["snippet"] == snippet.id and picked in (None, one["machine"]["slug"])
    ]
    if not mine:
        of = f"{snippet.id} on {picked}" if picked else snippet.id
        mend = "name a file that `shelf run` wrote"
        raise file_error(shown, f"has no record of {of}", mend)
    # A machine with a GPU hands in a record of its CPU as well, which has no times.
    chosen = [one for one in mine if one["machine"]["gpus"]] or mine
    if len(chosen) > 1:
        slugs = [one["machine"]["slug"] for one in mine]
        what = f"has {len(mine)} records of {snippet.id}: {', '.join(slugs)}"
        raise file_error(shown, what, f"name one, as {path.name}#{slugs[0]}")
    return LabeledRecord(f"{path.name}#{chosen[0]['machine']['slug']}", chosen[0])


def find_counterpart(snippet: Snippet, other: LabeledRecord) -> LabeledRecord:
    """What to compare a record with by default: the newest of its kind, or of any GPU."""

    def kept_part(record: Record) -> object:
        return history.parse_kept(schema.record_text(record).encode())

    slug, own = other.record["machine"]["slug"], kept_part(other.record)
    records, _ = store.load_records(snippet)
    rest = [LabeledRecord(key, one) for key, one in records.items() if kept_part(one) != own]
    fit = [one for one in rest if one.record["machine"]["slug"] == slug]
    fit = fit or [one for one in rest if one.record["machine"]["gpus"]]
    if not fit:
        what = f"is the only record of {snippet.id}"
        raise file_error(other.label, what, "name another with a second --with")
    return max(fit, key=lambda one: one.record["date"])


def _describe_disagreement(first: Record, second: Record) -> str:
    apart = store.time_differences(first, second)
    if not apart:
        return "they agree within the spread of both"
    worst = max(apart, key=lambda one: max(one.factor, 1 / one.factor))
    more = f" (and {len(apart) - 1} more)" if len(apart) > 1 else ""
    other = side_by_side(first, second)
    return f"they disagree on {format_difference(worst)}{more}; {other}"


def find_disagreements(snippets: Iterable[Snippet]) -> Iterator[str]:
    """A line for each record of the present code that stands beside another of its device."""
    for snippet in snippets:
        if snippet.findings or not any(snippet.results.glob("*.?.json")):
            continue  # as nearly always: nothing is read
        records, _ = store.load_records(snippet)
        current = {key: one for key, one in records.items() if one["digest"] == snippet.digest}
        for slug in sorted({one["machine"]["slug"] for one in current.values()} - {CPU}):
            first, *others = [key for key in store.record_keys(slug) if key in current]
            for key in others:
                path = snippet.project.relative_path(store.record_path(snippet, key))
                why = _describe_disagreement(current[first], current[key])
                yield f"{path}: stands beside {first}.json: {why}"
