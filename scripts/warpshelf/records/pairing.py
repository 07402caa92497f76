"""Any two records side by side: the times of both, their errors where there are no times, facts.

Enters: two records of one snippet. Leaves: a row a function and case, and how the two stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from warpshelf.core import units
from warpshelf.records import conditions, limits
from warpshelf.records.schema import Record

WITHIN = "within the spread of both"
ONE = "on one only"


class Row(NamedTuple):
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


def rows(first: Record, second: Record) -> list[Row]:
    """The rows of two records, in the order of the first, what only the second has behind."""
    return [*_results(first, second), *_facts(first, second)]


def standing(first: dict[str, Any], second: dict[str, Any]) -> str:
    """How the second time stands to the first, in words."""
    if limits.tie(first, second):
        return "tie"
    if not limits.apart(first, second):
        return WITHIN
    factor = second["median"] / first["median"]
    if factor > 1:
        return f"{units.ratio(factor)} slower"
    return f"{units.ratio(1 / factor)} faster"


def _results(first: Record, second: Record) -> Iterator[Row]:
    one, other = _found(first), _found(second)
    for key in dict.fromkeys((*one, *other)):
        case, result = one.get(key) or other[key]
        pair = [found[key][1] if key in found else {} for found in (one, other)]
        times = [result.get("time") for result in pair]
        about = (conditions.case_words(case), result["name"], result["role"])
        if any(times):
            texts = [_time(result) for result in pair]
            if times[0] is None or times[1] is None:
                yield Row(*about, "time", texts[0], texts[1], standing=ONE)
                continue
            ratio = units.divided(times[1]["median"], times[0]["median"])
            yield Row(*about, "time", texts[0], texts[1], ratio, standing(times[0], times[1]))
        else:
            texts = [_error(result) for result in pair]
            yield Row(*about, "error", texts[0], texts[1])


def _found(record: Record) -> Found:
    return {
        json.dumps([case["case"], result["role"], result["name"]], sort_keys=True): (
            case["case"],
            result,
        )
        for case in record.get("cases", ())
        for result in case["results"]
    }


def _time(result: dict[str, Any]) -> str:
    if "time" in result:
        return conditions.brief(result["time"])
    if not result:
        return ""
    return f"no time: {result.get('untimed') or result.get('reason') or result['verdict']}"


def _error(result: dict[str, Any]) -> str:
    if "error" in result:
        return units.error(result["error"])
    return f"{result['verdict']}: {result.get('reason', 'no reason given')}" if result else ""


def _facts(first: Record, second: Record) -> Iterator[Row]:
    one, other = (
        {(fact["name"], fact["unit"]): fact["value"] for fact in record.get("facts", ())}
        for record in (first, second)
    )
    for name, unit in dict.fromkeys((*one, *other)):
        texts = [
            units.number(found[name, unit]) if (name, unit) in found else ""
            for found in (one, other)
        ]
        yield Row("", name, "fact", unit or "value", texts[0], texts[1])
