"""What all pictures that a model offers have in common: rows of known keys, each with its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import Any

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def rows_problem(
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
        return f"{kind}s() returned {short(rows)}, no list of rows"
    names = set()
    for row in rows:
        if not isinstance(row, dict) or row.keys() - {optional} != keys:
            wanted = ", ".join(sorted(keys))
            return f"{kind}s() holds {short(row)}, not a dict of {wanted} and perhaps {optional}"
        if what := _name_problem(row["name"]) or problem(row):
            return f"{kind} {row['name']!r:.80}: {what}"
        if row["name"] in names:
            return f"{kind} {row['name']!r} stands twice"
        names.add(row["name"])
    return None


def _name_problem(name: object) -> str | None:
    good = isinstance(name, str) and NAME.fullmatch(name)
    return None if good else "its name is no name of small letters, digits and hyphens"


def short(value: object) -> str:
    """A value as a finding shows it."""
    return f"{value!r:.80}"
