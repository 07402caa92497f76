"""The times of a record: rates, shares of the limits, and speed against a peer."""

from __future__ import annotations

from typing import Any

from warpshelf.core import units
from warpshelf.records import limits
from warpshelf.records.limits import tie as ties
from warpshelf.records.schema import Record
from warpshelf.render import provenance, rates, tables


def _standing(time: dict[str, Any], times: list[dict[str, Any]]) -> str:
    fastest = min(times, key=lambda t: t["median"])
    if len(times) < 2 or not ties(time, fastest):
        return ""
    if sum(ties(other, fastest) for other in times) > 1:
        return "tied for fastest"
    return "fastest"


def _against(result: dict[str, Any], yardstick: dict[str, Any] | None) -> str:
    if yardstick is None:
        return "no peer"
    if result is yardstick:
        return "the yardstick"
    time, other = tables.time_of(result), tables.time_of(yardstick)
    if other is None:
        state = "untimed" if "untimed" in yardstick else yardstick["verdict"]
        return f"{yardstick['name']} {state}"
    if time is None or ties(time, other):
        return "tie"
    return units.ratio(units.divided(other["median"], time["median"]))


def timing(record: Record, apart: str = "") -> str:
    """Times of each timed case: rate, shares of the limits, and speed against the first peer.

    `apart` tells the record from others of the same kind of device, where there are any.
    """
    cases = tables.timed(record)
    if not cases:
        return ""
    groups, yardsticks = [], set()
    for name, case in zip(units.labels([c["case"] for c in cases]), cases, strict=True):
        limit = rates.bound(record, case)
        times = [t for r in case["results"] if (t := tables.time_of(r))]
        yardstick = next((r for r in case["results"] if r["role"] == "peer"), None)
        yardsticks.add(yardstick["name"] if yardstick else "")
        rows = []
        for result in case["results"]:
            time = tables.time_of(result)
            if time is None:
                reason = (
                    tables.missing(result) or result.get("untimed") or "passed, but was not timed"
                )
                rows.append(tables.wide(result["name"], reason, 7, tables.note_of(result)))
                continue
            speed = limit.rate(time["median"]) if limit else None
            standing = _standing(time, times)
            cells = (
                units.seconds(time["median"]),
                f"{units.seconds(time['p20'])} to {units.seconds(time['p80'])}",
                units.integer(time["n"]) + (f" ({time['void']} void)" if time.get("void") else ""),
                units.rate(speed, limit.unit) if limit else "cost not stated",
                units.share(units.divided(speed, limit.peak if limit else None)),
                units.share(units.divided(speed, limit.ceiling if limit else None)),
                _against(result, yardstick),
            )
            note = ", ".join(filter(None, (tables.note_of(result), standing)))
            rows.append(tables.row(result["name"], cells, note, "ws-fastest" if standing else ""))
        groups.append(tables.group(name, rows, 8))
    peer = yardsticks.pop() if len(yardsticks) == 1 else ""
    named = units.sides([c["case"] for c in cases])
    title = f"Times of {len(cases)} cases" if len(cases) > 1 else "Times of one case"
    origin = ", ".join(filter(None, (provenance.line(record), apart)))
    caption = f"{title}{f' ({named})' if named else ''}\n{origin}"
    if reasons := limits.slowed(record):
        caption += f"; the GPU was slowed down meanwhile: {', '.join(reasons)}"
    against = f"Speed against {peer or 'the first peer'}"
    head = ("Variant", "Median", "p20 to p80", "n", "Rate", "Of peak", "Of measured limit", against)
    return tables.table(caption, head, groups, "timing")
