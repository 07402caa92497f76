"""What goes into a calculator and what comes out of it.

Its inputs: what `INPUTS` must say, and the values that texts of a form mean. Its results: their
shape, and their values as a reader meets them.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpshelf.core import units

INPUT_KINDS = ("integer", "number", "choice", "flag", "config")
NEEDED = ("name", "label", "group", "kind", "default", "help")
LIMITS = ("least", "most", "unit")
LONGEST = 20_000  # characters of a pasted config.json
TRUE, FALSE = "1", "0"  # a flag as a form and an address have it


class InputError(ValueError):
    """What is wrong with the text of one input, in one line."""

    def __init__(self, name: str, line: str) -> None:
        super().__init__(line)
        self.name = name


def input_faults(spec: object) -> Iterator[str]:
    """What is wrong with `INPUTS`, a line each."""
    if not isinstance(spec, Sequence) or isinstance(spec, str) or not spec:
        yield "INPUTS is no tuple of inputs"
        return
    names: set[str] = set()
    for place, one in enumerate(spec):
        where = f"INPUTS[{place}]"
        if not isinstance(one, dict):
            yield f"{where} is no dict"
            continue
        if lacking := [key for key in NEEDED if key not in one]:
            yield f"{where} lacks {lacking[0]!r}"
            continue
        name = one["name"]
        if not isinstance(name, str) or not name.isidentifier() or name in names:
            yield f"{where} is called {name!r}, which is no name of its own"
            continue
        names.add(name)
        if one["kind"] not in INPUT_KINDS:
            yield f"{where} has the kind {one['kind']!r}, not one of {', '.join(INPUT_KINDS)}"
        elif one["kind"] == "choice" and not one.get("choices"):
            yield f"{where} lacks 'choices'"
        elif one["kind"] in ("integer", "number") and (
            lacking := [key for key in LIMITS if key not in one]
        ):
            yield f"{where} lacks {lacking[0]!r}"
        else:
            yield from _default_faults(where, one)


def _default_faults(where: str, one: Mapping[str, Any]) -> Iterator[str]:
    try:
        read = parse_inputs([one], {one["name"]: format_input(one, one["default"])})
    except InputError as error:
        yield f"{where} has a default that it refuses: {error}"
    else:
        if read[one["name"]] != one["default"]:
            yield f"{where} has the default {one['default']!r}, which no text of its kind means"


def format_input(one: Mapping[str, Any], value: Any) -> str:
    """`value` of an input as a form shows it."""
    if one["kind"] == "flag":
        return TRUE if value else FALSE
    if isinstance(value, float):
        shown = f"{value:.12g}"
        return shown.replace("e+", "e")
    return str(value)


def format_input_limit(one: Mapping[str, Any], key: str) -> str:
    """The least or the most of an input as people write it: `1000`, `1e9`."""
    value = one[key]
    short = f"{value:g}".replace("e+0", "e").replace("e+", "e")
    return short if float(short) == value else format_input(one, value)


def parse_inputs(spec: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each input, of the text that is given for it, else its default.

    Raises:
        InputError: a text means no value that the input may have.
    """
    return {
        one["name"]: _parse_value(one, given[one["name"]])
        if one["name"] in given
        else one["default"]
        for one in spec
    }


def _parse_value(one: Mapping[str, Any], text: str) -> Any:
    name, kind = one["name"], one["kind"]
    if kind == "flag":
        return text == TRUE
    if kind == "config":
        if len(text) > LONGEST:
            line = f"{one['label']} has {len(text)} characters; paste at most {LONGEST}"
            raise InputError(name, line)
        return text
    if kind == "choice":
        if text not in one["choices"]:
            known = ", ".join(one["choices"])
            raise InputError(name, f"{one['label']} is {text!r:.60}; choose one of {known}")
        return text
    return _parse_number(one, text)


def _parse_number(one: Mapping[str, Any], text: str) -> int | float:
    """A number within the limits of its input; 8192, 8_192, 8 192 and 8.192e3 are one."""
    name, label = one["name"], one["label"]
    example = format_input(one, one["default"])
    plain = "".join(text.split()).replace("_", "")
    if not plain:
        raise InputError(name, f"{label} is empty; write a number such as {example}")
    try:
        value: int | float = int(plain)
    except ValueError:
        try:
            value = float(plain)
        except ValueError:
            line = f"{label} is {text.strip()!r:.60}, which is no number; write one such as "
            raise InputError(name, line + example) from None
    if not math.isfinite(value):
        raise InputError(name, f"{label} is not finite; write a number such as {example}")
    least, most = format_input_limit(one, "least"), format_input_limit(one, "most")
    if not one["least"] <= value <= one["most"]:
        side = "below" if value < one["least"] else "above"
        limit = least if side == "below" else most
        line = f"{label} = {text.strip()[:40]} is {side} {limit}; write {least} to {most}"
        raise InputError(name, line)
    if one["kind"] == "number":
        return value if isinstance(one["default"], int) else float(value)
    if value != int(value):
        line = f"{label} = {text.strip()[:40]} is no whole number; write one such as {example}"
        raise InputError(name, line)
    return int(value)


ROW = ("name", "value", "unit", "formula", "source", "test")
PLOT = ("kind", "title", "x", "y", "series")
PLOT_KINDS = ("bars", "lines", "timeline")
DECIMAL = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
LONG = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))  # seconds past twice the unit
SCALED = ("FLOP", "FLOP/s", "B/s")
LARGE = 1e24  # what no prefix reaches is written with a power of ten


def result_faults(result: object) -> Iterator[str]:
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
        elif not isinstance(row["value"], str) and units.finite_float(row["value"]) is None:
            yield f"{where} has the value {row['value']!r}, which is no finite number"
    names = [row["name"] for row in rows if isinstance(row, dict) and "name" in row]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two rows are called {name!r}"
    for place, plot in enumerate(result.get("plots") or ()):
        where = f"plots[{place}]"
        if lacking := [key for key in PLOT if not isinstance(plot, dict) or key not in plot]:
            yield f"{where} lacks {lacking[0]!r}"
        elif plot["kind"] not in PLOT_KINDS:
            yield f"{where} has the kind {plot['kind']!r}, not one of {', '.join(PLOT_KINDS)}"
        elif not plot["series"]:
            yield f"{where} has no series"


def format_value(value: object, unit: str) -> str:
    """A value with its unit; bytes in both ways of counting them."""
    if isinstance(value, str):
        return f"{value} {unit}".rstrip()
    number = units.finite_float(value)
    if number is None:
        return units.UNKNOWN
    if unit == "B":
        return format_bytes(number)
    if unit == "s":
        return format_duration(number)
    if unit in SCALED:
        return format_scaled(number, unit)
    if unit == "%":
        return f"{units.format_significant(number, 4)} %"
    return f"{plain_number(value)} {unit}".rstrip()


def plain_number(value: object) -> str:
    """A number without a unit: whole ones in full, others to four digits."""
    number = units.finite_float(value)
    if number is None:
        return units.UNKNOWN
    if number.is_integer() and abs(number) < 1e15:
        return units.format_integer(int(number))
    return units.format_number(float(units.format_significant(number, 4)))


def format_bytes(number: float) -> str:
    """Bytes as `12.5 GiB (13.4 GB)`."""
    binary = units.format_bytes(number)
    name, factor = next(((n, f) for n, f in DECIMAL if abs(number) >= f), ("", 1.0))
    return f"{binary} ({units.format_significant(number / factor)} {name})" if name else binary


def format_duration(number: float) -> str:
    """Seconds as `12.0 ms`, `4.21 h` or `23.1 days`."""
    for length, name in LONG:
        if abs(number) >= 2 * length:
            days = number / length
            return f"{plain_number(days) if days >= 1e6 else units.format_significant(days)} {name}"
    return units.format_seconds(number)


def format_scaled(number: float, unit: str) -> str:
    """A number of operations or a rate as `989 TFLOP/s`, and past all prefixes `3.80e25 FLOP`."""
    if abs(number) >= LARGE or (unit == "FLOP" and abs(number) >= 1e18):
        return f"{units.format_significant(number)} {unit}"
    return units.format_rate(number, unit)


def compare_values(second: object, first: object) -> str:
    """How a value of the second configuration compares to that of the first."""
    if second == first:
        return "same"
    if isinstance(second, str) or isinstance(first, str):
        return "differs"
    ratio = units.safe_divide(second, first)
    return units.format_ratio(ratio) if ratio is not None and math.isfinite(ratio) else "differs"


def pair_rows(results: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any] | None]]:
    """The rows of one or two results by name, those of the first before what only another has."""
    named = [{row["name"]: row for row in result["rows"]} for result in results]
    order = dict.fromkeys(name for rows in named for name in rows)
    return [[rows.get(name) for rows in named] for name in order]


def csv_table(results: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The rows as CSV, every value in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", *names, "unit", "formula", "source", "test"])
    for rows in pair_rows(results):
        one = next(row for row in rows if row)
        values = ["" if row is None else _exact_text(row["value"]) for row in rows]
        told = (one["unit"], one["formula"], one["source"], one["test"])
        writer.writerow([one["name"], *values, *map(str, told)])
    return out.getvalue()


def _exact_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
