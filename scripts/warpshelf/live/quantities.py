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
from contextlib import suppress
from typing import Any

from warpshelf.core import units

NUMBERS = ("integer", "number")
INPUT_KINDS = (*NUMBERS, "choice", "flag", "config")
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
        yield "INPUTS is not a tuple of inputs"
        return
    names: set[str] = set()
    for place, one in enumerate(spec):
        if what := _input_fault(one, names):
            yield f"INPUTS[{place}] {what}"


def _input_fault(one: object, names: set[str]) -> str | None:
    if not isinstance(one, dict):
        return "is not a dict"
    if lacking := [key for key in NEEDED if key not in one]:
        return f"lacks {lacking[0]!r}"
    name, kind = one["name"], one["kind"]
    if not isinstance(name, str) or not name.isidentifier() or name in names:
        return f"is called {name!r}, not a unique identifier"
    names.add(name)
    if kind not in INPUT_KINDS:
        return f"has the kind {kind!r}, not one of {', '.join(INPUT_KINDS)}"
    if kind == "choice" and not one.get("choices"):
        return "lacks 'choices'"
    if kind in NUMBERS and (lacking := [key for key in LIMITS if key not in one]):
        return f"lacks {lacking[0]!r}"
    try:
        read = parse_inputs([one], {name: format_input(one, one["default"])})[name]
    except InputError as error:
        return f"has a default that it refuses: {error}"
    if read != one["default"]:
        return f"has the default {one['default']!r}, which no text gives"
    return None


def format_input(one: Mapping[str, Any], value: Any) -> str:
    """`value` of an input as a form shows it."""
    if one["kind"] == "flag":
        return TRUE if value else FALSE
    return f"{value:.12g}".replace("e+", "e") if isinstance(value, float) else str(value)


def format_input_limit(one: Mapping[str, Any], key: str) -> str:
    """The least or the most of an input as people write it: `1000`, `1e9`."""
    value = one[key]
    short = f"{value:g}".replace("e+0", "e").replace("e+", "e")
    return short if float(short) == value else format_input(one, value)


def parse_inputs(spec: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each input, from the text given for it, else its default.

    Raises:
        InputError: a text is not a value that the input may have.
    """
    found = {}
    for one in spec:
        name, kind, text = one["name"], one["kind"], given.get(one["name"])
        if text is None:
            found[name] = one["default"]
        elif kind == "flag":
            found[name] = text == TRUE
        elif kind == "config" and len(text) > LONGEST:
            line = f"{one['label']} has {len(text)} characters; paste at most {LONGEST}"
            raise InputError(name, line)
        elif kind == "choice" and text not in one["choices"]:
            known = ", ".join(one["choices"])
            raise InputError(name, f"{one['label']} is {text!r:.60}; choose one of {known}")
        else:
            found[name] = _parse_number(one, text) if kind in NUMBERS else text
    return found


def _parse_number(one: Mapping[str, Any], text: str) -> int | float:
    """A number within the limits of its input; 8192, 8_192, 8 192 and 8.192e3 are one."""
    example = format_input(one, one["default"])
    plain, shown = "".join(text.split()).replace("_", ""), text.strip()
    least, most = (format_input_limit(one, key) for key in ("least", "most"))
    value: int | float | None = None
    what = ""
    for kind in (float, int):
        with suppress(ValueError):
            value = kind(plain)
    if not plain:
        what = f" is empty; write a number such as {example}"
    elif value is None:
        what = f" is {shown!r:.60}, which is not a number; write one such as {example}"
    elif not math.isfinite(value):
        what = f" is not finite; write a number such as {example}"
    elif value < one["least"]:
        what = f" = {shown[:40]} is below {least}; write {least} to {most}"
    elif value > one["most"]:
        what = f" = {shown[:40]} is above {most}; write {least} to {most}"
    elif one["kind"] == "integer" and value != int(value):
        what = f" = {shown[:40]} is not a whole number; write one such as {example}"
    if what or value is None:
        raise InputError(one["name"], one["label"] + what)
    if one["kind"] == "number":
        return value if isinstance(one["default"], int) else float(value)
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
        yield "calculate does not return a dict"
        return
    if not isinstance(result.get("answer"), str) or not result["answer"].strip():
        yield "calculate returns no text 'answer'"
    rows = result.get("rows")
    if not isinstance(rows, Sequence) or not rows:
        yield "calculate returns no 'rows'"
        rows = ()
    names = [row["name"] for row in rows if isinstance(row, dict) and "name" in row]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two rows are called {name!r}"
    plots = result.get("plots") or ()
    for kind, members, keys in (("rows", rows, ROW), ("plots", plots, PLOT)):
        for place, one in enumerate(members):
            where = f"{kind}[{place}]"
            if lacking := [key for key in keys if not isinstance(one, dict) or key not in one]:
                yield f"{where} lacks {lacking[0]!r}"
            elif kind == "rows":
                value = one["value"]
                if not isinstance(value, str) and units.finite_float(value) is None:
                    yield f"{where} has the value {value!r}, which is not a finite number"
            elif one["kind"] not in PLOT_KINDS:
                yield f"{where} has the kind {one['kind']!r}, not one of {', '.join(PLOT_KINDS)}"
            elif not one["series"]:
                yield f"{where} has no series"


def format_value(value: object, unit: str) -> str:
    """A value with its unit: bytes in both ways of counting them, `12.5 GiB (13.4 GB)`.

    Seconds as `12.0 ms`, `4.21 h` or `23.1 days`; operations and rates as `989 TFLOP/s`, and past
    all prefixes `3.80e25 FLOP`; other whole numbers in full, and others to four digits.
    """
    if isinstance(value, str):
        return f"{value} {unit}".rstrip()
    number = units.finite_float(value)
    if number is None:
        return units.UNKNOWN
    if unit == "B":
        name, factor = next(((n, f) for n, f in DECIMAL if abs(number) >= f), ("", 1.0))
        decimal = f" ({units.format_significant(number / factor)} {name})" if name else ""
        return f"{units.format_bytes(number)}{decimal}"
    if unit == "s":
        factor, name = next(((f, n) for f, n in LONG if abs(number) >= 2 * f), (1.0, ""))
        long = number / factor
        shown = _plain_number(long) if long >= 1e6 else units.format_significant(long)
        return f"{shown} {name}" if name else units.format_seconds(number)
    if unit in SCALED:
        past = abs(number) >= LARGE or (unit == "FLOP" and abs(number) >= 1e18)
        shown = f"{units.format_significant(number)} {unit}"
        return shown if past else units.format_rate(number, unit)
    if unit == "%":
        return f"{units.format_significant(number, 4)} %"
    return f"{_plain_number(number)} {unit}".rstrip()


def _plain_number(number: float) -> str:
    if number.is_integer() and abs(number) < 1e15:
        return units.format_integer(int(number))
    return units.format_number(float(units.format_significant(number, 4)))


def compare_values(first: object, second: object) -> str:
    """How a value of the second configuration compares to that of the first."""
    if second == first:
        return "same"
    if isinstance(second, str) or isinstance(first, str):
        return "differs"
    ratio = units.safe_divide(second, first)
    return "differs" if ratio is None else units.format_ratio(ratio)


def pair_rows(results: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any] | None]]:
    """The rows of one or two results by name, those of the first before what only another has."""
    named = [{row["name"]: row for row in result["rows"]} for result in results]
    order = dict.fromkeys(name for rows in named for name in rows)
    return [[rows.get(name) for rows in named] for name in order]


def csv_table(results: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The rows as CSV, every value in full."""
    out, told = io.StringIO(), ("unit", "formula", "source", "test")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", *names, *told])
    for rows in pair_rows(results):
        one = next(row for row in rows if row)
        values = ["" if row is None else row["value"] for row in rows]
        shown = [value if isinstance(value, str) else json.dumps(value) for value in values]
        writer.writerow([one["name"], *shown, *(str(one[key]) for key in told)])
    return out.getvalue()
