"""What float_formats must show: the formats' published ends, and pictures of values."""

from __future__ import annotations

from typing import Any

from snippets.facts import fact
from snippets.float_formats import float_formats as floats
from snippets.float_formats.float_formats import Format

FP8, MX = "fp8-formats", "OCP Microscaling Formats (MX), version 1.0"
# largest, smallest normal, smallest subnormal
PUBLISHED = (
    (floats.E4M3, (448, 2**-6, 2**-9), FP8),
    (floats.E5M2, (57344, 2**-14, 2**-16), FP8),
    (floats.E3M2, (28, 2**-2, 2**-4), MX),
    (floats.E2M3, (7.5, 1, 2**-3), MX),
    (floats.E2M1, (6, 1, 0.5), MX),
)


def facts() -> list[dict[str, Any]]:
    """The ends of each format's range."""
    rows = []
    for form, published, source in PUBLISHED:
        ours = form.largest, form.smallest_normal, form.smallest
        names = "largest", "smallest normal", "smallest subnormal"
        for name, value, expected in zip(names, ours, published, strict=True):
            rows.append(fact(f"{form.name}: {name}", value, expected, source))
    return rows


def grids() -> list[dict[str, Any]]:
    """Values of the two formats of eight bits, and a block of four beside outliers."""
    steps = "every value from {} on: a row is a power of two, and has {} of them"
    return [
        binades("e4m3", floats.E4M3, f"E4M3, {steps.format('1/4', 8)}; NaN took 480."),
        binades("e5m2", floats.E5M2, f"E5M2, {steps.format('1/4', 4)}; it goes on."),
        outliers(),
    ]


def binades(name: str, form: Format, caption: str) -> dict[str, Any]:
    """A row a power of two from 1/4 on, a column a fraction; its rows in turn."""
    each = 2**form.mantissa
    shown = [value for value in form.values if value >= 0.25]
    rows = [shown[start : start + each] for start in range(0, len(shown), each)]
    cells = []
    for place, row in enumerate(rows):
        line = [(short(value), place % 2) for value in row]
        cells.append(line + [("", -1)] * (each - len(row)))
    return {
        "name": name,
        "caption": caption,
        "across": "fraction",
        "down": "from",
        "columns": [f"{k}/{each}" for k in range(each)],
        "rows": [short(row[0]) for row in rows],
        "cells": cells,
    }


def outliers() -> dict[str, Any]:
    """What E2M1 makes of 1/16 ... 15/16 when a larger value shares their scale."""
    block = [k / 16 for k in range(1, 16)]
    sizes = (1.0, 4.0, 16.0, 64.0)
    cells = []
    for size in sizes:
        _, got = floats.scaled([*block, size], floats.E2M1)
        cells.append([(rough(value), 1 if value == 0 else 0) for value in got])
    return {
        "name": "outlier",
        "caption": "A block of 16 in E2M1: what is left of 1/16 to 15/16 when the last "
        "value, which shares their scale, is 1, 4, 16 and 64.",
        "across": "value",
        "down": "largest",
        "columns": [*(f"{k}/16" for k in range(1, 16)), "last"],
        "rows": [f"{size:g}" for size in sizes],
        "cells": cells,
        "legend": [(0, "kept, rounded"), (1, "lost: zero")],
    }


def rough(value: float) -> str:
    """Two decimals at most."""
    return short(round(value, 2))


def short(value: float) -> str:
    """At most six characters: no zero before the point."""
    text = f"{value:.6g}" if value >= 1 or not value else f"{value:.5f}".rstrip("0")
    return text.removeprefix("0")[:6] or "0"
