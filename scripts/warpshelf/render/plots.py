"""The figures of one measured record, as inline SVG that follows the page's colours.

A sweep over at least four sizes is drawn as lines, other timed cases as bars; where the cost
and the limits are known, a roofline comes on top. What has no time is named, never drawn.
"""

from __future__ import annotations

from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import bars, provenance, rates, roofline, svg, sweeps, tables

BARS = 3  # cases drawn as bars; the table has all


def plots(record: Record, apart: str = "") -> list[str]:
    """The figures of a measured record, each one HTML block; none where nothing was timed.

    `apart` tells the record from others of the same kind of device, where there are any.
    """
    cases = [case for case in tables.timed(record) if any(map(tables.time_of, case["results"]))]
    if not cases:
        return []
    names = dict(zip(map(id, cases), units.labels([case["case"] for case in cases]), strict=True))
    drawn: list[tuple[svg.Drawing | None, list[dict[str, Any]]]] = []
    if found := sweeps.sweep(cases):
        drawn.append((sweeps.drawing(record, *found), [case for _, case in found[1]]))
    else:
        limits = [(case, limit) for case in cases if (limit := rates.bound(record, case))]
        for case, limit in limits[:BARS]:
            drawn.append((bars.drawing(names[id(case)], case, limit), [case]))
    if (most := roofline.most_work(cases)) is not None:
        drawn.append((roofline.drawing(record, names[id(most)], most), [most]))
    return [svg.figure(one, _note(record, shown, apart)) for one, shown in drawn if one]


def _note(record: Record, cases: list[dict[str, Any]], apart: str) -> str:
    """Where the rates come from, and which functions have none."""
    absent = {
        f"{result['name']} ({tables.missing(result) or 'was not timed'})": None
        for case in cases
        for result in case["results"]
        if not tables.time_of(result)
    }
    left_out = f" Not drawn: {'; '.join(absent)}." if absent else ""
    return f"{', '.join(filter(None, (provenance.line(record), apart)))}.{left_out}"
