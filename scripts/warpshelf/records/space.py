"""What a record says of every configuration of a kernel's SPACE: its shape, its sense, its rows.

A row is a line of text, so that a change of one configuration shows as one: its values in the order
of the parameters, a colon, and its figures. On a CPU those are of each architecture, compiled and
counted; on a GPU they are times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

TARGET = re.compile(r"sm_[1-9][0-9]{1,2}")
COMPILED = ("registers", "spilled_bytes", "shared_bytes", "warps", "cycles")
TIMES = ("median", "p20", "p80", "n")
SPACE = {
    "parameters": [{"name": str, "values": [(int, float, str, bool)]}],
    "case": {"*": object},
    "timed": {"*": object},
    "flops?": int,
    "bytes?": int,
    "unit?": str,
    "figures": [str],
    "rows": {"*": [str]},
}


class SpaceRow(NamedTuple):
    """A configuration, as its values in words, and its figures."""

    values: tuple[str, ...]
    figures: tuple[float, ...]


def format_values(configuration: Iterable[object]) -> str:
    """The values of a configuration as a row has them."""
    return " ".join(map(str, configuration))


def format_row(configuration: Iterable[object], figures: Iterable[float]) -> str:
    """A row as a record has it; figures to six significant digits."""
    return f"{format_values(configuration)}: {' '.join(f'{one:.6g}' for one in figures)}"


def parse_row(line: str) -> SpaceRow:
    """The row that a line holds; a ValueError where it is none."""
    found, colon, figures = line.partition(": ")
    if not colon:
        raise ValueError(f"{line!r:.60} has no colon between values and figures")
    try:
        return SpaceRow(tuple(found.split()), tuple(map(float, figures.split())))
    except ValueError:
        raise ValueError(f"{line!r:.60} has a figure that is not a number") from None


def malformed_space(record: Mapping[str, Any]) -> Iterator[str]:
    """What a well-shaped space claims that no run writes; only the first counts."""
    space, on_gpu = record["space"], bool(record["machine"]["gpus"])
    if tuple(space["figures"]) != (TIMES if on_gpu else COMPILED):
        yield f"its space has the figures {', '.join(space['figures'])}"
    if not space["rows"]:
        yield "its space is empty"
    known = [set(map(str, one["values"])) for one in space["parameters"]]
    configurations: list[list[tuple[str, ...]]] = []
    for target, lines in space["rows"].items():
        if not TARGET.fullmatch(target):
            yield f"its space names {target!r:.40}, which is not an architecture"
        try:
            rows = [parse_row(line) for line in lines]
        except ValueError as error:
            yield f"its space on {target}: {error}"
            return
        for row in rows:
            if why := _row_error(row, known, len(space["figures"]), on_gpu):
                yield f"its space on {target}: the configuration {' '.join(row.values)} {why}"
        configurations.append([row.values for row in rows])
        if len(set(configurations[-1])) < len(rows):
            yield f"its space on {target} has a configuration twice"
        if configurations[-1] != configurations[0]:
            yield f"its space on {target} has other configurations than on other targets"


def _row_error(row: SpaceRow, known: Sequence[set[str]], count: int, on_gpu: bool) -> str | None:
    if len(row.values) != len(known):
        return f"has {len(row.values)} values for {len(known)} parameters"
    for value, taken in zip(row.values, known, strict=True):
        if value not in taken:
            return f"has the value {value}, which its parameter does not take"
    if len(row.figures) != count:
        return f"has {len(row.figures)} figures, not {count}"
    if not all(0 <= one < math.inf for one in row.figures):
        return "has a figure that is negative or not finite"
    if on_gpu:
        median, p20, p80, n = row.figures
        if not (0 < p20 <= median <= p80 and n >= 1):
            return "has no possible time"
    return None


def space_errors(claim: Mapping[str, Any], truth: Mapping[str, Any]) -> Iterator[str]:
    """What the space of a record lacks, adds or changes against the CPU's."""
    mine, due = claim.get("space"), truth.get("space")
    if mine is None or due is None:
        if mine != due:
            yield "has a space, which is not expected" if due is None else "leaves out its space"
        return
    for key in ("parameters", "case", "timed", "flops", "bytes", "unit"):
        if mine.get(key) != due.get(key):
            yield f"differs in the {key} of its space"
    told, wanted = (
        {parse_row(line).values for lines in one["rows"].values() for line in lines}
        for one in (mine, due)
    )
    if left := sorted(wanted - told):
        yield f"leaves out {len(left)} configurations of its space, {' '.join(left[0])} among them"
    if more := sorted(told - wanted):
        yield f"has {len(more)} unexpected configurations, {' '.join(more[0])} among them"
