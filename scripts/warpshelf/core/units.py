"""Numbers, dates and cases as a reader meets them; three significant digits unless exact."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

UNKNOWN = "unknown"  # what stands for a number that is missing or not finite
THIN = "\u202f"  # narrow no-break space between groups of digits
TIMES = (("s", 0), ("ms", -3), ("µs", -6), ("ns", -9))
PREFIXES = (("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0))
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


def finite_float(value: object) -> float | None:
    """`value` as a float, or None where it is no finite number (a bool is none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def safe_divide(above: object, below: object) -> float | None:
    """`above / below`, or None where either is unknown, `below` is 0 or the quotient overflows."""
    top, bottom = finite_float(above), finite_float(below)
    if top is None or not bottom:
        return None
    return finite_float(top / bottom)


def format_significant(value: object, digits: int = 3) -> str:
    """`value` to `digits` significant digits: `1.50`, `0.0123`, `1230`, `1.23e-8`; 0 is `0`."""
    number = finite_float(value)
    if not number:
        return UNKNOWN if number is None else "0"
    rounded = f"{number:.{digits - 1}e}"
    if -4 <= Decimal(rounded).adjusted() < 6:
        return format(Decimal(rounded), "f")
    return _shorten_exponent(rounded)


def _shorten_exponent(text: str) -> str:
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"


def _scale_value(value: object, scale: tuple[tuple[str, int], ...], unit: str = "") -> str:
    """The digits of `value`, and the first prefix of `scale` (large to small) that it reaches."""
    number = finite_float(value)
    if number is None:
        return UNKNOWN
    if number == 0:
        prefix = scale[-1][0] if scale[-1][1] == 0 else scale[0][0]
        return f"0 {prefix}{unit}"
    # Round first: 999.96 µs is 1.00 ms, not 1000 µs.
    exponent = Decimal(f"{number:.2e}").adjusted()
    prefix, power = next((item for item in scale if exponent >= item[1]), scale[-1])
    return f"{format_significant(float(Decimal(number).scaleb(-power)))} {prefix}{unit}"


def format_seconds(value: object) -> str:
    """A time in seconds as `12.0 µs`."""
    return _scale_value(value, TIMES)


def format_duration(value: float) -> str:
    """A time to wait for, as coarse as one knows it: `5 s`, `40 s`, `14 min`, `2 h 10 min`."""
    if value < 57.5:
        return f"{max(5, 5 * round(value / 5))} s"
    minutes = max(1, round(value / 60))
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(10 * round(minutes / 10), 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def format_rate(value: object, unit: str) -> str:
    """A rate in `unit` ("B/s" or "FLOP/s") as `2.81 TB/s`."""
    return _scale_value(value, PREFIXES, unit)


def format_bytes(value: object) -> str:
    """A number of bytes as `512 B`, `48 KiB`, `79.6 GiB`."""
    number = finite_float(value)
    if number is None:
        return UNKNOWN
    power = 0
    while abs(number) >= 1024 and power < len(SIZES) - 1:
        number /= 1024
        power += 1
    whole = number.is_integer() and abs(number) < 1024
    return f"{format_integer(int(number)) if whole else format_significant(number)} {SIZES[power]}"


def format_percent(value: object) -> str:
    """A fraction as `84.3 %`."""
    fraction = finite_float(value)
    digits = format_significant(None if fraction is None else 100 * fraction)
    return digits if digits == UNKNOWN else f"{digits} %"


def format_error(value: object) -> str:
    """A relative error as `3.10e-8`; 0 is `0`."""
    number = finite_float(value)
    return _shorten_exponent(f"{number:.2e}") if number else format_significant(number)


def format_ratio(value: object) -> str:
    """A factor as `1.23×`."""
    digits = format_significant(value)
    return digits if digits == UNKNOWN else f"{digits}×"


def format_integer(value: int) -> str:
    """A whole number; from five digits on in groups of three, with thin spaces between."""
    return f"{value:,}".replace(",", THIN) if abs(value) >= 10_000 else str(value)


def format_number(value: object) -> str:
    """A value that is shown as it is: whole numbers in full, others to six digits."""
    exact = finite_float(value)
    if exact is None:
        return UNKNOWN
    if isinstance(value, int) or (exact.is_integer() and abs(exact) < 1e15):
        return format_integer(value if isinstance(value, int) else int(exact))
    mantissa, mark, exponent = format_significant(exact, 6).partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + mark + exponent


def format_date(text: object, more: str = "") -> str:
    """The day of a record's date, `2026-11-21T01:02:03Z`, as `21 Nov 2026`; `more` as strftime."""
    try:
        moment = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return "an unknown date"
    month = MONTHS[3 * moment.month - 3 : 3 * moment.month]
    return f"{moment.day} {month} {moment.year}" + moment.strftime(more)


def format_datetime(text: object) -> str:
    """A record's date as `21 Nov 2026, 01:02 UTC`."""
    return format_date(text, ", %H:%M UTC")


def _is_dimension(key: str, value: object) -> bool:
    return len(key) == 1 and isinstance(value, int) and not isinstance(value, bool)


def _format_parameter(key: str, value: object) -> str:
    if key == "dtype" and isinstance(value, str):
        return value
    if isinstance(value, bool):
        return key if value else f"no {key}"
    if isinstance(value, int | float):
        return f"{key} {format_number(value)}"
    return f"{key} {value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"


def case_labels(cases: Sequence[dict[str, Any]]) -> list[str]:
    """A readable label for each case, as plain text: `37 × 781 float32`.

    What all cases share is left out. One-letter whole numbers are the sides, in their own order.
    Which variants a case is for is no property of its inputs, and is left out as well.
    """
    cases = [{k: v for k, v in case.items() if k != "variants"} for case in cases]
    shapes = [tuple(k for k, v in case.items() if _is_dimension(k, v)) for case in cases]
    compact = len(set(shapes)) == 1 and len(shapes[0]) > 1
    texts = [{k: json.dumps(v, sort_keys=True) for k, v in case.items()} for case in cases]
    keys = {key for text in texts for key in text}
    shared = {key for key in keys if len({text.get(key) for text in texts}) == 1}
    if compact and not set(shapes[0]) <= shared:
        shared -= set(shapes[0])  # a shape is shown whole

    def label_case(case: dict[str, Any], sides: tuple[str, ...], shared: set[str]) -> str:
        shown = [k for k in sides if k not in shared]
        named = ", ".join(f"{k} = {case[k]}" for k in shown)
        shape = " × ".join(str(case[k]) for k in shown) if compact else named
        rest = (k for k in case if k not in sides and k not in shared)
        return " ".join(filter(None, (shape, *(_format_parameter(k, case[k]) for k in rest))))

    return [
        (label_case(case, sides, shared) if len(cases) > 1 else "")
        or label_case(case, sides, set())
        or "no parameters"
        for case, sides in zip(cases, shapes, strict=True)
    ]


def dimension_names(cases: Sequence[dict[str, Any]]) -> str:
    """What the sides in the labels of `cases` are called: `m × n`, or ""."""
    found = {tuple(k for k, v in case.items() if _is_dimension(k, v)) for case in cases}
    names = found.pop() if len(found) == 1 else ()
    return " × ".join(names) if len(names) > 1 else ""
