"""What a model offers beside facts: predictions and goals, timelines and grids.

Both are rows of known keys, each with the name that pages embed it by.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

from warpshelf.contract.values import short_repr
from warpshelf.core.files import LARGEST_INTEGER

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def picture_rows_problem(
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
    return picture_rows_problem(rows, "grid", GRID_KEYS, "legend", _grid_problem)


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
    return picture_rows_problem(rows, "timeline", TIMELINE_KEYS, "other", _timeline_problem)


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


# Published measurements that a model predicts: the rows of predictions(), and the GOALS they meet.
#
# A row is one published figure beside the model's. Rows come in sets, such as a paper's table. A
# row that a constant of the model was fitted on is shown, and counts towards no goal.

ROW_KEYS = ("set", "name", "predicted", "published", "unit", "source", "fitted")
MEASURES = ("within", "mean", "median", "worst")  # of a goal, one of them
NEAR = (0.05, 0.10)  # relative errors within which rows are counted

Row = Mapping[str, Any]


def predictions_problem(rows: object) -> str | None:
    """Why what predictions() returned is malformed, or None."""
    if not isinstance(rows, list | tuple) or not rows:
        return f"predictions() returned {short_repr(rows)}, no list of rows"
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if not isinstance(row, dict) or set(row) != set(ROW_KEYS):
            return f"predictions() holds {short_repr(row)}, not a dict of {', '.join(ROW_KEYS)}"
        for key in ("set", "name", "unit", "source"):
            if not isinstance(row[key], str) or not (key == "unit" or row[key].strip()):
                return (
                    f"prediction {row['name']!r:.80}: its {key} is {short_repr(row[key])}, no words"
                )
        for key in ("predicted", "published"):
            if not _is_positive(row[key]):
                return f"prediction {row['name']!r:.80}: its {key} is {short_repr(row[key])}"
        if not isinstance(row["fitted"], bool):
            return f"prediction {row['name']!r:.80}: its fitted is {short_repr(row['fitted'])}"
        if (row["set"], row["name"]) in seen:
            return f"prediction {row['name']!r:.80} stands twice in {row['set']!r:.80}"
        seen.add((row["set"], row["name"]))
    return None


def goals_problem(goals: object, rows: Sequence[Row]) -> str | None:
    """Why GOALS is malformed, or asks of sets that `rows` do not have, or None."""
    if not isinstance(goals, list | tuple):
        return f"GOALS is {short_repr(goals)}, no tuple of goals"
    sets = {row["set"] for row in rows}
    for goal in goals:
        if what := goal_problem(goal):
            return f"GOALS has {short_repr(goal)}, which {what}"
        if unknown := [name for name in goal["sets"] if name not in sets]:
            return f"goal {goal['name']!r:.80} is of the set {unknown[0]!r:.80}, which has no rows"
        if not _judged_rows(goal, rows):
            return f"goal {goal['name']!r:.80} is of rows that were all fitted"
    return None


def goal_problem(goal: object) -> str | None:
    """Why a value is no goal, or None."""
    if not isinstance(goal, dict):
        return "is no dict"
    asked = [key for key in MEASURES if key in goal]
    wanted = {"name", "sets", *asked[:1]} | ({"share"} if asked[:1] == ["within"] else set())
    if len(asked) != 1 or set(goal) != wanted:
        return "asks not for name, sets and one of within with share, mean, median and worst"
    if not isinstance(goal["name"], str) or not goal["name"].strip():
        return "has no name"
    sets = goal["sets"]
    if not isinstance(sets, list | tuple) or not sets or not all(isinstance(s, str) for s in sets):
        return "names no sets"
    if not all(_is_positive(goal[key]) for key in wanted - {"name", "sets"}):
        return "asks for no positive number"
    return "asks for a share over 1" if goal.get("share", 0) > 1 else None


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


def errors_by_set(rows: Iterable[Row]) -> list[SetErrors]:
    """The errors of each set, in the order of the rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["set"], []).append(row)
    return [
        SetErrors(
            name,
            tuple(abs(relative_error(row)) for row in members if not row["fitted"]),
            sum(row["fitted"] for row in members),
        )
        for name, members in found.items()
    ]


def judge_goal(goal: Mapping[str, Any], rows: Iterable[Row]) -> tuple[bool, str]:
    """Whether a goal is met, and in words what is: `11 of 12 rows within 10 %`."""
    found = _judged_rows(goal, rows)
    errors = SetErrors(goal["name"], tuple(abs(relative_error(row)) for row in found))
    if "within" in goal:
        near, count = errors.count_within(goal["within"]), len(found)
        told = f"{near} of {count} rows within {100 * goal['within']:g} %"
        return near >= goal["share"] * count, told
    name = next(key for key in MEASURES if key in goal)
    value = errors.measures[name]
    return value <= goal[name], f"{name} error {100 * value:.2f} %"


def describe_goal(goal: Mapping[str, Any]) -> str:
    """What a goal asks for, in words."""
    if "within" in goal:
        return f"{100 * goal['share']:g} % of rows within {100 * goal['within']:g} %"
    name = next(key for key in MEASURES if key in goal)
    return f"{name} error at most {100 * goal[name]:g} %"


def _judged_rows(goal: Mapping[str, Any], rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["set"] in goal["sets"] and not row["fitted"]]


def _is_positive(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value < LARGEST_INTEGER  # of NaN as well
