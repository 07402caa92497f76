"""What a calculator answers: its shape, and its values as a reader meets them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpshelf.core import units

ROW = ("name", "value", "unit", "formula", "source", "test")
PLOT = ("kind", "title", "x", "y", "series")
KINDS = ("bars", "lines", "timeline")
DECIMAL = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
LONG = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))  # seconds past twice the unit
SCALED = ("FLOP", "FLOP/s", "B/s")
LARGE = 1e24  # what no prefix reaches is written with a power of ten


def faults(result: object) -> Iterator[str]:
    """What is wrong with the result of `calculate`, a line each."""
    if not isinstance(result, dict):
        yield "calculate returns no dict"
        return
    if not isinstance(result.get("answer"), str) or not result["answer"].strip():
        yield "calculate returns no 'answer' in words"
    rows = result.get("rows")
    if not isinstance(rows, Sequence) or not rows:
        yield "calculate returns no 'rows'"
        rows = ()
    for place, row in enumerate(rows):
        where = f"rows[{place}]"
        if lacking := [key for key in ROW if not isinstance(row, dict) or key not in row]:
            yield f"{where} lacks {lacking[0]!r}"
        elif not isinstance(row["value"], str) and units.finite(row["value"]) is None:
            yield f"{where} has the value {row['value']!r}, which is no finite number"
    names = [row["name"] for row in rows if isinstance(row, dict) and "name" in row]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two rows are called {name!r}"
    for place, plot in enumerate(result.get("plots") or ()):
        where = f"plots[{place}]"
        if lacking := [key for key in PLOT if not isinstance(plot, dict) or key not in plot]:
            yield f"{where} lacks {lacking[0]!r}"
        elif plot["kind"] not in KINDS:
            yield f"{where} has the kind {plot['kind']!r}, not one of {', '.join(KINDS)}"
        elif not plot["series"]:
            yield f"{where} has no series"


def shown(value: object, unit: str) -> str:
    """A value with its unit; bytes in both ways of counting them."""
    if isinstance(value, str):
        return f"{value} {unit}".rstrip()
    number = units.finite(value)
    if number is None:
        return units.UNKNOWN
    if unit == "B":
        return sized(number)
    if unit == "s":
        return lasting(number)
    if unit in SCALED:
        return scaled(number, unit)
    if unit == "%":
        return f"{units.significant(number, 4)} %"
    return f"{plain(value)} {unit}".rstrip()


def plain(value: object) -> str:
    """A number without a unit: whole ones in full, others to four digits."""
    number = units.finite(value)
    if number is None:
        return units.UNKNOWN
    if number.is_integer() and abs(number) < 1e15:
        return units.integer(int(number))
    return units.number(float(units.significant(number, 4)))


def sized(number: float) -> str:
    """Bytes as `12.5 GiB (13.4 GB)`."""
    binary = units.size(number)
    name, factor = next(((n, f) for n, f in DECIMAL if abs(number) >= f), ("", 1.0))
    return f"{binary} ({units.significant(number / factor)} {name})" if name else binary


def lasting(number: float) -> str:
    """Seconds as `12.0 ms`, `4.21 h` or `23.1 days`."""
    for length, name in LONG:
        if abs(number) >= 2 * length:
            days = number / length
            return f"{plain(days) if days >= 1e6 else units.significant(days)} {name}"
    return units.seconds(number)


def scaled(number: float, unit: str) -> str:
    """A number of operations or a rate as `989 TFLOP/s`, and past all prefixes `3.80e25 FLOP`."""
    if abs(number) >= LARGE or (unit == "FLOP" and abs(number) >= 1e18):
        return f"{units.significant(number)} {unit}"
    return units.rate(number, unit)


def against(second: object, first: object) -> str:
    """How a value of the second configuration compares to that of the first."""
    if second == first:
        return "same"
    if isinstance(second, str) or isinstance(first, str):
        return "differs"
    ratio = units.divided(second, first)
    return units.ratio(ratio) if ratio is not None and math.isfinite(ratio) else "differs"


def paired(results: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any] | None]]:
    """The rows of one or two results by name, those of the first before what only another has."""
    named = [{row["name"]: row for row in result["rows"]} for result in results]
    order = dict.fromkeys(name for rows in named for name in rows)
    return [[rows.get(name) for rows in named] for name in order]


def table(results: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The rows as CSV, every value in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", *names, "unit", "formula", "source", "test"])
    for rows in paired(results):
        one = next(row for row in rows if row)
        values = ["" if row is None else _exact(row["value"]) for row in rows]
        told = (one["unit"], one["formula"], one["source"], one["test"])
        writer.writerow([one["name"], *values, *map(str, told)])
    return out.getvalue()


def _exact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
