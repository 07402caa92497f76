"""What `shelf compare --with` shows: two records side by side, and nothing is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from warpshelf.cli.printing import columns, console, put, say, title
from warpshelf.contract.snippet import Snippet
from warpshelf.records import conditions, named, pairing
from warpshelf.records.named import Named
from warpshelf.records.pairing import Row

TWO = 2


def show(snippet: Snippet, names: Sequence[str], as_json: bool) -> None:
    """Print two records side by side; one name is set beside the newest record of its kind.

    Raises:
        ShelfError: a name means no record, or several.
        typer.BadParameter: there are more than two names.
    """
    if len(names) > TWO:
        raise typer.BadParameter(f"--with: {len(names)} records; two are set side by side")
    found = [named.find(snippet, name) for name in names]
    first, second = found if len(found) == TWO else (named.beside(snippet, found[0]), found[0])
    rows = pairing.rows(first.record, second.record)
    if as_json:
        print(json.dumps(_data(snippet, first, second, rows), indent=1))
    else:
        _print(snippet, first, second, rows)


def _data(snippet: Snippet, first: Named, second: Named, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "snippet": snippet.id,
        "records": [
            {
                "name": one.label,
                "date": one.record["date"],
                "commit": one.record["commit"],
                "digest": one.record["digest"],
                "machine": one.record["machine"],
            }
            for one in (first, second)
        ],
        "conditions": [
            {"name": one.name, "first": one.first, "second": one.second}
            for one in conditions.contrasts(first.record, second.record)
        ],
        "rows": [row._asdict() for row in rows],
    }


def _print(snippet: Snippet, first: Named, second: Named, rows: Sequence[Row]) -> None:
    out = console()
    say(out, f"{snippet.id}: {first.label}, then {second.label}", style="bold", hanging=2)
    for one in (first, second):
        say(out, f"{one.label}: {one.record['machine']['device']}", 2, hanging=2)
    other = conditions.contrasts(first.record, second.record)
    title(out, "What was different" if other else "Nothing else was different")
    for contrast in other:
        say(out, str(contrast), 2, hanging=2)
    timed = any(row.quantity == "time" for row in rows)
    shown = [row for row in rows if row.quantity != "error" or not timed]
    cases = dict.fromkeys(row.case for row in shown)
    for case in cases:
        title(out, case or "Facts")
        drawn = columns("function", "first", "second", "the second", left=("function",))
        for row in shown:
            if row.case == case:
                name = f"{row.name} (peer)" if row.role == "peer" else row.name
                unit = f", {row.quantity}" if row.role == "fact" else ""
                drawn.add_row(f"  {name}{unit}", row.first, row.second, row.standing)
        put(out, drawn)
    if not shown:
        say(out, "neither record has a result", 2)
    if timed and len(shown) < len(rows):
        say(out, f"{len(rows) - len(shown)} errors of cases that are not timed are left out", 2)
