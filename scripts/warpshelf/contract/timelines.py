"""The pictures that a model offers: what timelines() must return, and what no rank could do."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from warpshelf.contract.pictures import rows_problem, short

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
            return f"its {key} is {short(row[key])}, no words"
    if not _count(row["unit"]) or not row["unit"]:
        return f"its unit is {short(row['unit'])}, no whole number above 0"
    if not isinstance(held, list | tuple) or not held or not all(map(_amount, held)):
        return f"its held is {short(held)}, no list of a number for each rank"
    if not isinstance(passes, list | tuple) or not 0 < len(passes) <= MOST_PASSES:
        return f"its passes are {short(passes)}, no list of 1 to {MOST_PASSES}"
    for one in passes:
        if what := _pass_problem(one, len(held)):
            return f"the pass {short(one)} {what}"
    for rank in range(len(held)):
        if what := _rank_problem([one for one in passes if one["rank"] == rank]):
            return f"rank {rank} {what}"
    return None


def _pass_problem(one: object, ranks: int) -> str | None:
    if not isinstance(one, dict) or one.keys() != PASS_KEYS:
        return f"is no dict of {', '.join(sorted(PASS_KEYS))}"
    for key in sorted(PASS_KEYS - {"kind"}):
        if not _count(one[key]):
            return f"has the {key} {short(one[key])}, no whole number from 0 on"
    if one["kind"] not in PASS_KINDS:
        return f"is of kind {short(one['kind'])}, none of {', '.join(PASS_KINDS)}"
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
