"""The facts that a snippet claims, for tests of snippets."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from conftest import snippets_of_the_shelf

from warpshelf.records import store

Rows = list[dict[str, Any]]


def broken_facts(rows: Rows) -> list[str]:
    """Names of those outside their tolerance, which is absolute where 0 is expected."""
    return [
        row["name"]
        for row in rows
        if not abs(row["value"] - row["expected"])
        <= row["tolerance"] * (abs(row["expected"]) or 1.0)
    ]


def read_facts(cases: ModuleType) -> Rows:
    """What `facts()` gave when the present code was recorded; of changed code, what it gives."""
    [one] = [one for one in snippets_of_the_shelf() if one.id == cases.__name__.split(".")[-2]]
    record = store.current_record(one, "cpu")
    return record["facts"] if record is not None else cases.facts()
