"""What a model offers beside facts: predictions and goals, timelines and grids.

All are rows of known keys. The shapes are those of a record, too, and so in the order of its keys.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from warpshelf.contract.values import (
    amount_problem,
    is_amount,
    problem_unless,
    short_repr,
    words_problem,
)  # fmt: skip
from warpshelf.core.files import LARGEST_INTEGER, Shape, shape_problem

Row = Mapping[str, Any]
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")  # by which pages embed a picture


def _plain_rows(value: object, shape: Shape, place: str) -> tuple[list[Any], str | None]:
    """Rows with lists for tuples, and why they do not fit `shape`, or None."""
    try:
        rows = json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        return [], f"{place} cannot be recorded: {error}"
    return rows, shape_problem(rows, [shape], place)


def _rows_problem(
    name: str, value: object, shape: Shape, problem: Callable[[Any], str | None]
) -> str | None:
    """Why what a function such as grids() returned is malformed; `problem` checks each row."""
    if not isinstance(value, list | tuple) or not value:
        return f"{name}() returned {short_repr(value)}, not a list of rows"
    rows, wrong = _plain_rows(value, shape, f"{name}()")
    if wrong:
        return wrong
    seen = set()
    for row in rows:
        place, key = f"{name[:-1]} {short_repr(row['name'])}", (row.get("set"), row["name"])
        if key in seen:
            return f"{place} occurs twice"
        if what := problem(row):
            return f"{place}: {what}"
        seen.add(key)
    return None


MOST = 32  # columns or rows of a picture that can still be read
LONGEST = 6  # characters of a cell
COLOURS = 8  # 0 to 7; -1 is a cell of no colour


def _is_pair(value: object, kinds: list[type]) -> bool:
    return isinstance(value, list) and [*map(type, value)] == kinds


_cell_problem = problem_unless(
    lambda v: _is_pair(v, [str, int]) and len(v[0]) <= LONGEST and -1 <= v[1] < COLOURS,
    f"not a text of at most {LONGEST} and a colour from -1 to {COLOURS - 1}",
)
_legend_problem = problem_unless(
    lambda v: _is_pair(v, [int, str]) and 0 <= v[0] < COLOURS,
    "not a pair of a colour and its meaning",
)
_labels_problem = problem_unless(
    lambda v: isinstance(v, list) and 0 < len(v) <= MOST and all(isinstance(one, str) for one in v),
    f"not a list of 1 to {MOST} names",
)


# A table of small coloured cells, such as the bank that each lane meets.
GRID = {
    "name": NAME,
    "caption": words_problem,
    "across": words_problem,  # what its columns are
    "down": words_problem,  # and its rows
    "columns": _labels_problem,
    "rows": _labels_problem,
    "cells": [[_cell_problem]],  # by row
    "legend?": [_legend_problem],
}


def grids_problem(rows: object) -> str | None:
    """Why what grids() returned is malformed, or None: rows as GRID has them."""

    def sides_problem(row: Row) -> str | None:
        if len(row["cells"]) != len(row["rows"]):
            return f"its cells are not a list of {len(row['rows'])} rows"
        wide = len(row["columns"])
        odd = [number for number, line in enumerate(row["cells"]) if len(line) != wide]
        return f"row {odd[0]} of its cells is not a list of {wide}" if odd else None

    return _rows_problem("grids", rows, GRID, sides_problem)


PASS_KINDS = ("F", "B", "I", "W")  # forward, backward, and its halves: input and weight gradient
PASS = {
    "rank": int, "start": int, "end": int, "kind": PASS_KINDS, "micro_batch": int, "chunk": int
}  # fmt: skip
MOST_PASSES = 4096  # of a picture that can still be read
# A step of a pipeline.
TIMELINE = {
    "name": NAME,
    "title": words_problem,
    "note": words_problem,  # which ends the caption
    "other?": words_problem,  # what the passes of a chunk that is not 0 are
    "unit": int,  # of time, in which lengths are told
    "held": [amount_problem],  # the most micro-batches, by rank
    "passes": [PASS],
}


def timelines_problem(rows: object) -> str | None:
    """Why what timelines() returned is malformed, or None: rows as TIMELINE has them."""
    return _rows_problem("timelines", rows, TIMELINE, _passes_problem)


def _passes_problem(row: Row) -> str | None:
    """Why ranks cannot do their passes: one at a time, or a forward over a backward pass."""
    ranks, passes = len(row["held"]), row["passes"]
    if row["unit"] < 1:
        return f"its unit is {row['unit']}, not a whole number above 0"
    if not 0 < len(passes) <= MOST_PASSES:
        return f"its passes are {short_repr(passes)}, not a list of 1 to {MOST_PASSES}"
    slots: list[dict[tuple[int, int], list[str]]] = [{} for _ in range(ranks)]
    for one in passes:
        what = f"the pass {short_repr(one)}"
        if low := [key for key, value in one.items() if key != "kind" and value < 0]:
            return f"{what} has the {low[0]} {one[low[0]]}, not a whole number from 0 on"
        if one["rank"] >= ranks:
            return f"{what} has a rank that held does not list: it lists {ranks}"
        if one["start"] >= one["end"]:
            return f"{what} ends before it begins"
        slots[one["rank"]].setdefault((one["start"], one["end"]), []).append(one["kind"])
    for rank, taken in enumerate(slots):
        if not taken:
            return f"rank {rank} has no pass; remove it from held"
        for (start, end), kinds in taken.items():
            if len(kinds) > 1 and sorted(kinds) != ["B", "F"]:
                return f"rank {rank} does {' and '.join(kinds)} at once, from {start} to {end}"
        for (_, end), (start, _) in pairwise(sorted(taken)):
            if start < end:
                return f"rank {rank} starts a pass at {start}, before another ends at {end}"
    return None


# Errors of numbers further from 1 could not be added up.
_positive_problem = problem_unless(
    lambda v: is_amount(v) and 1 / LARGEST_INTEGER < v < LARGEST_INTEGER,
    "not a number between 1e-30 and 1e30",
)
# A published figure beside the model's. Rows come in sets, such as a paper's table. A row that a
# constant of the model was fitted on is shown, and counts towards no goal.
PREDICTION = {
    "set": words_problem,
    "name": words_problem,
    "predicted": _positive_problem,
    "published": _positive_problem,
    "unit": str,
    "source": words_problem,
    "fitted": bool,
}
MEASURES = ("within", "mean", "median", "worst")  # of a goal, one of them
GOAL = {
    "name": words_problem,
    "sets": [str],
    **{f"{key}?": _positive_problem for key in (*MEASURES, "share")},
}
NEAR = (0.05, 0.10)  # relative errors within which rows are counted


def predictions_problem(rows: object) -> str | None:
    """Why what predictions() returned is malformed, or None: rows as PREDICTION has them."""
    return _rows_problem("predictions", rows, PREDICTION, lambda row: None)


def goals_problem(goals: object, rows: Sequence[Row]) -> str | None:
    """Why GOALS is malformed, or asks of sets that `rows` do not have, or None."""
    plain, wrong = _plain_rows(goals, GOAL, "GOALS")
    sets = {row["set"] for row in rows}
    for goal in () if wrong else plain:
        place = f"goal {short_repr(goal['name'])}"
        if sum(key in goal for key in MEASURES) != 1 or ("share" in goal) != ("within" in goal):
            return f"{place} must ask for one of: within with share, mean, median, worst"
        if goal.get("share", 0) > 1:
            return f"{place} asks for a share over 1"
        if not goal["sets"]:
            return f"{place} names no sets"
        if unknown := [name for name in goal["sets"] if name not in sets]:
            return f"{place} names the set {short_repr(unknown[0])}, which has no rows"
        if not _judged_rows(goal, rows):
            return f"{place} has only fitted rows"
    return wrong


def relative_error(row: Row) -> float:
    """The relative error of a prediction; positive where it is too large."""
    return float((row["predicted"] - row["published"]) / row["published"])


@dataclass(frozen=True)
class SetErrors:
    """Relative errors, without their signs, of the rows of one set that were not fitted."""

    name: str
    errors: tuple[float, ...]
    fitted: int = 0  # rows beside them

    @property
    def measures(self) -> dict[str, float]:
        """Mean, median and worst."""
        return {
            "mean": math.fsum(self.errors) / len(self.errors),
            "median": statistics.median(self.errors),
            "worst": max(self.errors),
        }

    def count_within(self, limit: float) -> int:
        """How many rows are off by `limit` at most."""
        return sum(one <= limit for one in self.errors)

    @property
    def words(self) -> str:
        """The errors in a line, as a run prints them."""
        count = len(self.errors)
        beside = f", {self.fitted} fitted" if self.fitted else ""
        if not count:
            return f"{self.name}: no rows{beside}"
        rows = "1 row" if count == 1 else f"{count} rows"
        told = ", ".join(f"{name} {100 * one:.1f} %" for name, one in self.measures.items())
        near = ", ".join(f"{self.count_within(one)} within {100 * one:g} %" for one in NEAR)
        return f"{self.name}: {rows}{beside}, {told}; {near}"


def _judged_rows(goal: Row, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["set"] in goal["sets"] and not row["fitted"]]


def _set_errors(name: str, rows: Sequence[Row]) -> SetErrors:
    errors = tuple(abs(relative_error(row)) for row in rows if not row["fitted"])
    return SetErrors(name, errors, len(rows) - len(errors))


def errors_by_set(rows: Iterable[Row]) -> list[SetErrors]:
    """The errors of each set, in the order of the rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["set"], []).append(row)
    return [_set_errors(name, members) for name, members in found.items()]


def judge_goal(goal: Row, rows: Iterable[Row]) -> tuple[bool, str]:
    """Whether a goal is met, and in words what is: `11 of 12 rows within 10 %`."""
    found = _set_errors(goal["name"], _judged_rows(goal, rows))
    if "within" in goal:
        near, count = found.count_within(goal["within"]), len(found.errors)
        told = f"{near} of {count} rows within {100 * goal['within']:g} %"
        return near >= goal["share"] * count, told
    name = next(key for key in MEASURES if key in goal)
    value = found.measures[name]
    return value <= goal[name], f"{name} error {100 * value:.2f} %"


def describe_goal(goal: Row) -> str:
    """What a goal asks for, in words."""
    if "within" in goal:
        return f"{100 * goal['share']:g} % of rows within {100 * goal['within']:g} %"
    name = next(key for key in MEASURES if key in goal)
    return f"{name} error at most {100 * goal[name]:g} %"
