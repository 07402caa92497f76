"""The facts that a snippet claims, for tests of snippets."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from conftest import snippets_of_the_shelf

from warpshelf.contract.values import fact_holds
from warpshelf.records import store

Rows = list[dict[str, Any]]


def broken_facts(rows: Rows) -> list[str]:
    """Names of those that do not hold."""
    return [row["name"] for row in rows if not fact_holds(row)]


def read_facts(cases: ModuleType) -> Rows:
    """What `facts()` gave when the present code was recorded; of changed code, what it gives."""
    [one] = [one for one in snippets_of_the_shelf() if one.id == cases.__name__.split(".")[-2]]
    record = store.current_record(one, "cpu")
    return record["facts"] if record is not None else cases.facts()
