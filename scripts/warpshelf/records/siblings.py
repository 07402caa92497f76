"""Several records of one kind of device: which stand side by side, and which renews another.

Two runs of the same code on one kind of device mostly agree, and then the newer one is all there
is to know. Where they disagree by more than their spread, neither is thrown away: a reader should
see both, with their drivers and clocks. The first stands in `<slug>.json`, further ones in
`<slug>.2.json` and so on. Who measures again replaces what they handed in before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from warpshelf.records.limits import times_differ
from warpshelf.records.machine import CPU
from warpshelf.records.schema import MACHINE, Record

MOST = 9  # records of one kind of device; more of them tell a reader nothing
NUMBER = re.compile(r"[2-9]")


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


class NoPlaceLeft(Exception):
    """There are MOST records of the device already, and all of them disagree."""


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
    """Where two records have times of the same function and case that lie apart.

    See `limits.apart`: they differ by more than the spread of both.
    """
    return [one for one in pair_times(first, second) if times_differ(one.first, one.second)]


def pair_times(first: Record, second: Record) -> list[TimeDifference]:
    """The times of all functions and cases that both records have, apart or not."""
    known = {key: time for key, (*_, time) in _timed_results(first)}
    return [
        TimeDifference(case, name, known[key], time, role)
        for key, (case, name, role, time) in _timed_results(second)
        if key in known
    ]


Timed = tuple[dict[str, Any], str, str, dict[str, Any]]  # case, name and role of a function, time


def _timed_results(record: Record) -> Iterator[tuple[str, Timed]]:
    for case in record.get("cases", ()):
        for result in case["results"]:
            if "time" in result:
                key = json.dumps([case["case"], result["role"], result["name"]], sort_keys=True)
                yield key, (case["case"], result["name"], result["role"], result["time"])


def same_maker(first: Record, second: Record) -> bool:
    """Whether both records say that the same person, or the project's own job, made them."""
    one, other = first.get("origin"), second.get("origin")
    if one is None or other is None:
        return False
    if "job" in one and "job" in other:
        return True
    return "who" in one and one.get("who") == other.get("who")


def is_outranked(record: Record, known: Record) -> bool:
    """Whether `record` says no more than a `known` one of the same code, which a job has signed."""
    by_job = "job" in known.get("origin", {}) and "job" not in record.get("origin", {})
    return by_job and known["digest"] == record["digest"] and not time_differences(known, record)


def choose_key(record: Record, known: Mapping[str, Record]) -> str:
    """The key under which `record` is to stand, beside the `known` records of its snippet by key.

    It replaces one of the same code that agrees with it or comes from the same hands, else one of
    other code, and else it gets a place of its own.

    Raises:
        Full: there is none left.
    """
    slug = record["machine"]["slug"]
    mine = {key: known[key] for key in record_keys(slug) if key in known}
    of_this_code = {k: old for k, old in mine.items() if old["digest"] == record["digest"]}
    for key, old in of_this_code.items():
        if same_maker(old, record):
            return key
    for key, old in of_this_code.items():
        if not time_differences(old, record):
            return key
    for key in record_keys(slug):
        if key not in of_this_code:
            return key
    raise NoPlaceLeft(slug)


def outdated_keys(record: Record, known: Mapping[str, Record]) -> list[str]:
    """The keys of records of other code, which have nothing to say beside a present `record`."""
    return [
        key
        for key in record_keys(record["machine"]["slug"])
        if key in known and known[key]["digest"] != record["digest"]
    ]
