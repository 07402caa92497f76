"""A snippet's times over the versions of a record: by case and function, with what changed between.

Enters: the history of records. Leaves: lines of versions for `shelf history`, and for the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.records import conditions, history, limits, siblings
from warpshelf.records.history import History, Version
from warpshelf.records.schema import Record
from warpshelf.records.siblings import Difference
from warpshelf.render import provenance, rates, tables

SHORT = 12  # characters of a commit
NOT_COMMITTED = "not yet"
AMOUNTS = {"B/s": "bytes", "FLOP/s": "flops"}


class Moment(NamedTuple):
    """The time of a function in a version, its rate as a point of a plot, and what changed.

    `factor` says how many times as long it takes as before, where that is beyond both spreads.
    """

    version: int  # from 0
    time: dict[str, Any]
    point: rates.Point | None
    factor: float | None

    @property
    def rate(self) -> float | None:
        """The rate at the median; None where no cost is stated."""
        return self.point.rate if self.point else None

    @property
    def standing(self) -> str:
        """The factor in words; "" where nothing changed."""
        if self.factor is None:
            return ""
        if self.factor > 1:
            return f"{units.ratio(self.factor)} slower"
        return f"{units.ratio(1 / self.factor)} faster"


class Course(NamedTuple):
    """A case over time: its name, the unit of its rates, and its functions with their points."""

    case: dict[str, Any]
    label: str
    unit: str  # "" where its cost is not stated
    amount: float
    functions: list[tuple[str, str, list[Moment]]]  # name, role, points

    @property
    def changes(self) -> int:
        """How many times are apart from those before."""
        points = (point for *_, points in self.functions for point in points)
        return sum(point.factor is not None for point in points)


@dataclass(frozen=True)
class Line:
    """The versions of one record, newest last; `present` where it still lies in the checkout."""

    key: str
    versions: Sequence[Version]
    present: bool

    @property
    def device(self) -> str:
        """The machine in words."""
        return provenance.device(self.versions[-1].record)

    def told(self) -> list[dict[str, str]]:
        """What each version was made under, and what changed since the one before."""
        found = []
        for number, version in enumerate(self.versions):
            changed = [] if number == 0 else self.contrasts(number)
            put = version.commit[:SHORT] if version.commit else NOT_COMMITTED
            words = ", ".join(map(str, changed))
            blank = dict.fromkeys(("driver", "CUDA", "torch", "Triton", "SM clock"), "")
            own = conditions.conditions(version.record)
            found.append({**blank, **own, "put": put, "changed": words})
        return found

    def contrasts(self, number: int) -> list[conditions.Contrast]:
        """What is not as in the version before `number`, of code and software."""
        before, after = (self.versions[at].record for at in (number - 1, number))
        return conditions.contrasts(before, after, conditions.SOFTWARE)

    def slower(self) -> list[Difference]:
        """Where ours are slower now than in the version before."""
        if len(self.versions) < 2:
            return []
        before, after = self.versions[-2:]
        return history.slower(before.record, after.record)

    def cases(self) -> list[Course]:
        """Every case that was ever timed, those of the newest version first."""
        return self._courses

    @cached_property
    def _courses(self) -> list[Course]:
        cases: dict[str, list[tuple[int, Record, dict[str, Any]]]] = {}
        for number, version in reversed(list(enumerate(self.versions))):
            for case in tables.timed(version.record):
                text = json.dumps(case["case"], sort_keys=True)
                cases.setdefault(text, []).append((number, version.record, case))
        found = [own for own in cases.values() if any(_times(case) for *_, case in own)]
        labels = units.labels([own[0][2]["case"] for own in found])
        return [_course(label, own) for label, own in zip(labels, found, strict=True)]


def _times(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [time for result in case["results"] if (time := tables.time_of(result))]


def _course(label: str, own: Sequence[tuple[int, Record, dict[str, Any]]]) -> Course:
    _, record, newest = own[0]
    limit = rates.bound(record, newest)
    unit = limit.unit if limit else ""
    functions: dict[tuple[str, str], list[Moment]] = {}
    for _, _, case in own:  # the order is that of the newest version
        for result in case["results"]:
            functions.setdefault((result["name"], result["role"]), [])
    for number, _, case in reversed(own):
        amount = units.finite(case.get(AMOUNTS.get(unit, ""))) or 0.0
        for result in case["results"]:
            if time := tables.time_of(result):
                points = functions[result["name"], result["role"]]
                drawn = rates.point(number, rates.Bound(amount, unit), time) if amount > 0 else None
                points.append(Moment(number, time, drawn, _factor(points, time)))
    timed = [(name, role, points) for (name, role), points in functions.items() if points]
    return Course(newest["case"], label, unit, limit.amount if limit else 0.0, timed)


def _factor(points: Sequence[Moment], time: dict[str, Any]) -> float | None:
    if not points or not limits.apart(points[-1].time, time):
        return None
    return units.divided(time["median"], points[-1].time["median"])


def lines(found: History, snippet: str) -> list[Line]:
    """The versions of each record of a snippet, in the order of their keys."""
    return list(_lines(found, snippet))


def _lines(found: History, snippet: str) -> Iterator[Line]:
    known = {key: own for (one, key), own in found.of.items() if one == snippet}
    slugs = sorted({siblings.slug_of(key) or key for key in known})
    for slug in slugs:
        for key in siblings.keys(slug):
            if key in known:
                yield Line(key, known[key], (snippet, key) in found.here)
