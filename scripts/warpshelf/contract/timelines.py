"""The pictures that a model offers: what timelines() must return, and what no rank could do."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

PASS_KINDS = ("F", "B", "I", "W")  # forward, backward, and its halves: input and weight gradient
PASS_KEYS = {"rank", "start", "end", "kind", "micro_batch", "chunk"}
TIMELINE_KEYS = {"name", "title", "note", "unit", "held", "passes"}
MAY_HAVE = {"other"}
TIMELINE_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MOST_PASSES = 4096  # of a picture that can still be read


def timelines_problem(rows: object) -> str | None:
    """Why what timelines() returned is malformed, or None.

    A row is a pipeline's step as a page draws it. It has a `name` that pages embed it by, a
    `title`, a `note` that ends the caption, the `unit` of time in which lengths are told, the most
    micro-batches that each rank `held`, the `passes`, and may have `other`: what the passes of a
    chunk that is not 0 are.
    """
    if not isinstance(rows, list | tuple) or not rows:
        return f"timelines() returned {_short(rows)}, no list of rows"
    names = set()
    for row in rows:
        if not isinstance(row, dict) or row.keys() - MAY_HAVE != TIMELINE_KEYS:
            keys = ", ".join(sorted(TIMELINE_KEYS))
            return f"timelines() holds {_short(row)}, not a dict of {keys} and perhaps other"
        if what := _timeline_problem(row):
            return f"timeline {row['name']!r:.80}: {what}"
        if row["name"] in names:
            return f"timeline {row['name']!r} stands twice"
        names.add(row["name"])
    return None


def _timeline_problem(row: dict[str, Any]) -> str | None:
    name, held, passes = row["name"], row["held"], row["passes"]
    if not isinstance(name, str) or not TIMELINE_NAME.fullmatch(name):
        return "its name is no name of small letters, digits and hyphens, such as 'zb-h1'"
    for key in ("title", "note", *(["other"] if "other" in row else [])):
        if not isinstance(row[key], str) or not row[key].strip():
            return f"its {key} is {_short(row[key])}, no words"
    if not _count(row["unit"]) or not row["unit"]:
        return f"its unit is {_short(row['unit'])}, no whole number above 0"
    if not isinstance(held, list | tuple) or not held or not all(map(_amount, held)):
        return f"its held is {_short(held)}, no list of a number for each rank"
    if not isinstance(passes, list | tuple) or not 0 < len(passes) <= MOST_PASSES:
        return f"its passes are {_short(passes)}, no list of 1 to {MOST_PASSES}"
    for one in passes:
        if what := _pass_problem(one, len(held)):
            return f"the pass {_short(one)} {what}"
    for rank in range(len(held)):
        if what := _rank_problem([one for one in passes if one["rank"] == rank]):
            return f"rank {rank} {what}"
    return None


def _pass_problem(one: object, ranks: int) -> str | None:
    if not isinstance(one, dict) or one.keys() != PASS_KEYS:
        return f"is no dict of {', '.join(sorted(PASS_KEYS))}"
    for key in sorted(PASS_KEYS - {"kind"}):
        if not _count(one[key]):
            return f"has the {key} {_short(one[key])}, no whole number from 0 on"
    if one["kind"] not in PASS_KINDS:
        return f"is of kind {_short(one['kind'])}, none of {', '.join(PASS_KINDS)}"
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


def _count(value: object) -> bool:
    """A whole number from 0 on."""
    return isinstance(value, int) and _amount(value)


def _amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _short(value: object) -> str:
    return f"{value!r:.80}"
