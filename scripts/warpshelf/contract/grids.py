"""The tables of cells that a model offers as pictures: what grids() must return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from warpshelf.contract.pictures import rows_problem, short

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
    return rows_problem(rows, "grid", GRID_KEYS, "legend", _problem)


def _problem(row: dict[str, Any]) -> str | None:
    cells = row["cells"]
    for key in ("caption", "across", "down"):
        if not isinstance(row[key], str) or not row[key].strip():
            return f"its {key} is {short(row[key])}, no words"
    for key in ("columns", "rows"):
        if not _list(row[key]) or not 0 < len(row[key]) <= MOST:
            return f"its {key} are {short(row[key])}, no list of 1 to {MOST} names"
        if not all(isinstance(one, str) for one in row[key]):
            return f"its {key} are {short(row[key])}, not all of them texts"
    if not _list(cells) or len(cells) != len(row["rows"]):
        return f"its cells are no list of {len(row['rows'])} rows"
    for number, line in enumerate(cells):
        if not _list(line) or len(line) != len(row["columns"]):
            return f"row {number} of its cells is no list of {len(row['columns'])}"
        for cell in line:
            if what := cell_problem(cell):
                return f"the cell {short(cell)} {what}"
    legend = row.get("legend", ())
    if not _list(legend):
        return f"its legend is {short(legend)}, no list of pairs"
    for one in legend:
        if what := legend_problem(one):
            return f"its legend has {short(one)}, which {what}"
    return None


def cell_problem(cell: object) -> str | None:
    """Why a cell is no pair of a short text and the number of its colour, or None."""
    if not _pair(cell) or not isinstance(cell[0], str) or len(cell[0]) > LONGEST:
        return f"is no text of at most {LONGEST} and a colour"
    return None if _colour(cell[1], -1) else f"has none of the colours -1 to {COLOURS - 1}"


def legend_problem(one: object) -> str | None:
    """Why an entry of a legend is no pair of a colour and what it means, or None."""
    good = _pair(one) and _colour(one[0], 0) and isinstance(one[1], str)
    return None if good else "is no pair of a colour and what it means"


def _list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _pair(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple) and len(value) == 2


def _colour(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < COLOURS
