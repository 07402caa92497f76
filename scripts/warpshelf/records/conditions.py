"""Under which conditions a record was made, in words: in what two differ, what tells them apart.

Enters: records, or what is kept of past ones. Leaves: plain text by name, unknowns left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.records import limits
from warpshelf.records.siblings import TimeDifference

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
