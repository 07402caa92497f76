"""The words of a calculator's plots: units, titles, what an axis shows, what a limit is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpshelf.live import results

Plot = Mapping[str, Any]
SIZES = ("B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")  # what a limit is a room of
UNITS = (  # what a label may be, or end with
    "FLOP/s", "TFLOP/s", "FLOP", "B/s", "GB/s", "s", "ms", "µs", "h", "days", "%", "tokens/s",
    *SIZES,
)  # fmt: skip
WRITTEN_OUT = {"seconds": "s", "bytes": "B", "FLOPs": "FLOP"}


def unit_of(label: str) -> str:
    """The unit that the label of an axis ends with: `ms` of `step, ms`, `FLOP` of `FLOP`."""
    if label in WRITTEN_OUT:
        return WRITTEN_OUT[label]
    _, comma, last = label.rpartition(", ")
    if comma:
        return last.strip()
    words = label.replace("(", " ").replace(")", " ").split()
    return words[-1] if words and words[-1] in UNITS else ""


def titled(name: str, plot: Plot) -> str:
    """The title of a plot, with the name of the configuration where there are two."""
    return f"{plot['title']}, {name}" if name else str(plot["title"])


def axes_of(plot: Plot) -> str:
    """What is drawn, in which unit, and over or by what."""
    label = str(plot["y"])
    said = f"in {label}" if label in UNITS else label
    if label in results.SCALED or label in ("B", "s"):
        said = ""  # each value is written with a unit of its own size
    if plot["x"]:
        said += f" {'by' if plot['kind'] == 'bars' else 'over'} {plot['x']}"
    said = said.strip()
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def span_of(first: float, last: float, unit: str) -> str:
    """The ends of a line in words: `1.2 to 3.4 ms`, `218 GFLOP to 4.34 TFLOP`."""
    one, other = results.shown(first, unit), results.shown(last, unit)
    mark = f" {other.rpartition(' ')[2]}"
    return f"{one.removesuffix(mark) if one.endswith(mark) else one} to {other}"


def limit_of(name: str, value: float, unit: str) -> str:
    """A limit in words: its name tells its value, or the value follows."""
    shown = results.shown(value, unit)
    return name if name.endswith(shown) else f"{name}: {shown}"
