"""The facts of a program or a model against what is expected of them."""

from __future__ import annotations

from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import provenance, tables

MOST = 24  # rows of a table that is shown unasked


def _difference(fact: dict[str, Any]) -> str:
    # Whole numbers may be past what a float holds, so they are subtracted as they are.
    away = fact["value"] - fact["expected"]
    if away == 0:
        return "none"
    relative = units.divided(away, abs(fact["expected"]))
    return units.share(relative) if relative is not None else units.number(away)


def facts(record: Record, sources: dict[str, str] | None = None) -> str:
    """The facts of a program or model; `sources` gives the titles of reading ids."""
    rows = []
    for fact in record.get("facts", []):
        unit = f" {fact['unit']}" if fact["unit"] else ""
        # Where 0 is expected there is nothing to be relative to: the tolerance is absolute.
        allowed = units.share if fact["expected"] else units.error
        tolerance = allowed(fact["tolerance"]) if fact["tolerance"] else "exact"
        cells = (
            units.number(fact["value"]) + unit,
            units.number(fact["expected"]) + unit,
            _difference(fact),
            tolerance,
            (sources or {}).get(fact["source"], fact["source"]),
        )
        rows.append(tables.row(fact["name"], cells))
    if not rows:
        return ""
    head = ("Fact", "Value", "Expected", "Difference", "Allowed", "Source of what is expected")
    caption = f"Facts checked\n{provenance.line(record)}"
    found = tables.table(caption, head, ["<tbody>", *rows, "</tbody>"], "facts")
    if len(rows) <= MOST:
        return found
    summary = f"All {len(rows)} facts, each within what is allowed"
    return f'<details class="ws-fold"><summary>{summary}</summary>\n{found}\n</details>'
