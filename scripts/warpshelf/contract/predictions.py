"""Published measurements that a model predicts: the rows of predictions(), and the GOALS they meet.

A row is one published figure beside the model's. Rows come in sets, such as a paper's table. A row
that a constant of the model was fitted on is shown, and counts towards no goal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpshelf.contract.pictures import short_repr
from warpshelf.core.files import LARGEST_INTEGER

ROW_KEYS = ("set", "name", "predicted", "published", "unit", "source", "fitted")
MEASURES = ("within", "mean", "median", "worst")  # of a goal, one of them
NEAR = (0.05, 0.10)  # relative errors within which rows are counted

Row = Mapping[str, Any]


def rows_problem(rows: object) -> str | None:
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
