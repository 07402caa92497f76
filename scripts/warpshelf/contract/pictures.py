"""The pictures that a model offers: what grids() and timelines() must return.

Both are rows of known keys, each with the name that pages embed it by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence, Set
from itertools import pairwise
from typing import Any, TypeGuard

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def rows_problem(
    rows: object,
    kind: str,
    keys: Set[str],
    optional: str,
    problem: Callable[[dict[str, Any]], str | None],
) -> str | None:
    """Why the `rows` that a function such as grids() returned are malformed, or None.

    `kind` is "grid" of grids(); each row has `keys` and may have `optional`; `problem` says what
    else is wrong with one.
    """
    if not isinstance(rows, list | tuple) or not rows:
        return f"{kind}s() returned {short_repr(rows)}, no list of rows"
    names = set()
    for row in rows:
        if not isinstance(row, dict) or row.keys() - {optional} != keys:
            wanted = ", ".join(sorted(keys))
            return (
                f"{kind}s() holds {short_repr(row)}, not a dict of {wanted} and perhaps {optional}"
            )
        if what := _name_problem(row["name"]) or problem(row):
            return f"{kind} {row['name']!r:.80}: {what}"
        if row["name"] in names:
            return f"{kind} {row['name']!r} stands twice"
        names.add(row["name"])
    return None


def _name_problem(name: object) -> str | None:
    good = isinstance(name, str) and NAME.fullmatch(name)
    return None if good else "its name is no name of small letters, digits and hyphens"


def short_repr(value: object) -> str:
    """A value as a finding shows it."""
    return f"{value!r:.80}"


GRID_KEYS = {"name", "caption", "across", "down", "columns", "rows", "cells"}
MOST = 32  # columns or rows of a picture that can still be read
LONGEST = 6  # characters of a cell
COLOURS = 8  # 0 to 7; -1 is a cell of no colour


def grids_problem(rows: object) -> str | None:
    """Why what grids() returned is malformed, or None.

    A row is one picture: a table of small coloured cells, such as the bank that each lane meets.
    It has a `name` that pages embed it by, a `caption`, what its columns are (`across`) and its
    rows (`down`), their names (`columns`, `rows`), the `cells`, a list of rows of pairs of a text
    and the number of its colour, and may have a `legend`: pairs of a colour and what it means.
    """
    return rows_problem(rows, "grid", GRID_KEYS, "legend", _grid_problem)


def _grid_problem(row: dict[str, Any]) -> str | None:
    cells = row["cells"]
    for key in ("caption", "across", "down"):
        if not isinstance(row[key], str) or not row[key].strip():
            return f"its {key} is {short_repr(row[key])}, no words"
    for key in ("columns", "rows"):
        if not _is_list(row[key]) or not 0 < len(row[key]) <= MOST:
            return f"its {key} are {short_repr(row[key])}, no list of 1 to {MOST} names"
        if not all(isinstance(one, str) for one in row[key]):
            return f"its {key} are {short_repr(row[key])}, not all of them texts"
    if not _is_list(cells) or len(cells) != len(row["rows"]):
        return f"its cells are no list of {len(row['rows'])} rows"
    for number, line in enumerate(cells):
        if not _is_list(line) or len(line) != len(row["columns"]):
            return f"row {number} of its cells is no list of {len(row['columns'])}"
        for cell in line:
            if what := cell_problem(cell):
                return f"the cell {short_repr(cell)} {what}"
    legend = row.get("legend", ())
    if not _is_list(legend):
        return f"its legend is {short_repr(legend)}, no list of pairs"
    for one in legend:
        if what := legend_problem(one):
            return f"its legend has {short_repr(one)}, which {what}"
    return None


def cell_problem(cell: object) -> str | None:
    """Why a cell is no pair of a short text and the number of its colour, or None."""
    if not _is_pair(cell) or not isinstance(cell[0], str) or len(cell[0]) > LONGEST:
        return f"is no text of at most {LONGEST} and a colour"
    return None if _is_colour(cell[1], -1) else f"has none of the colours -1 to {COLOURS - 1}"


def legend_problem(one: object) -> str | None:
    """Why an entry of a legend is no pair of a colour and what it means, or None."""
    good = _is_pair(one) and _is_colour(one[0], 0) and isinstance(one[1], str)
    return None if good else "is no pair of a colour and what it means"


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _is_pair(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple) and len(value) == 2


def _is_colour(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < COLOURS


PASS_KINDS = ("F", "B", "I", "W")  # forward, backward, and its halves: input and weight gradient
PASS_KEYS = {"rank", "start", "end", "kind", "micro_batch", "chunk"}
TIMELINE_KEYS = {"name", "title", "note", "unit", "held", "passes"}
MOST_PASSES = 4096  # of a picture that can still be read


def timelines_problem(rows: object) -> str | None:
    """Why what timelines() returned is malformed, or None.

    A row is a pipeline's step as a page draws it. It has a `name` that pages embed it by, a
    `title`, a `note` that ends the caption, the `unit` of time in which lengths are told, the most
    micro-batches that each rank `held`, the `passes`, and may have `other`: what the passes of a
    chunk that is not 0 are.
    """
    return rows_problem(rows, "timeline", TIMELINE_KEYS, "other", _timeline_problem)


def _timeline_problem(row: dict[str, Any]) -> str | None:
    held, passes = row["held"], row["passes"]
    for key in ("title", "note", *(["other"] if "other" in row else [])):
        if not isinstance(row[key], str) or not row[key].strip():
            return f"its {key} is {short_repr(row[key])}, no words"
    if not _is_count(row["unit"]) or not row["unit"]:
        return f"its unit is {short_repr(row['unit'])}, no whole number above 0"
    if not isinstance(held, list | tuple) or not held or not all(map(_is_amount, held)):
        return f"its held is {short_repr(held)}, no list of a number for each rank"
    if not isinstance(passes, list | tuple) or not 0 < len(passes) <= MOST_PASSES:
        return f"its passes are {short_repr(passes)}, no list of 1 to {MOST_PASSES}"
    for one in passes:
        if what := _pass_problem(one, len(held)):
            return f"the pass {short_repr(one)} {what}"
    for rank in range(len(held)):
        if what := _rank_problem([one for one in passes if one["rank"] == rank]):
            return f"rank {rank} {what}"
    return None


def _pass_problem(one: object, ranks: int) -> str | None:
    if not isinstance(one, dict) or one.keys() != PASS_KEYS:
        return f"is no dict of {', '.join(sorted(PASS_KEYS))}"
    for key in sorted(PASS_KEYS - {"kind"}):
        if not _is_count(one[key]):
            return f"has the {key} {short_repr(one[key])}, no whole number from 0 on"
    if one["kind"] not in PASS_KINDS:
        return f"is of kind {short_repr(one['kind'])}, none of {', '.join(PASS_KINDS)}"
    if one["rank"] >= ranks:
        return f"is of a rank that held says nothing of: it has {ranks}"
    return None if one["start"] < one["end"] else "ends before it has begun"


def _rank_problem(passes: list[dict[str, Any]]) -> str | None:
    """Why one rank cannot do `passes`: one at a time, or a forward over a backward pass."""
    if not passes:
        return "has no pass; leave it out of held"
    slots: dict[tuple[int, int], list[str]] = {}
    for one in passes:
        slots.setdefault((one["start"], one["end"]), []).append(one["kind"])
    for (start, end), kinds in slots.items():
        if len(kinds) > 1 and sorted(kinds) != ["B", "F"]:
            return f"does {' and '.join(kinds)} at once, from {start} to {end}"
    for (_, end), (start, _) in pairwise(sorted(slots)):
        if start < end:
            return f"starts a pass at {start}, before another ends at {end}"
    return None


def _is_count(value: object) -> bool:
    """A whole number from 0 on."""
    return isinstance(value, int) and _is_amount(value)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
