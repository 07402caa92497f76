"""Records of one kind of device that stand side by side: which they are, and why, in words.

Enters: the records of a snippet by key. Leaves: lines for `shelf import`, `check` and `compare`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from warpshelf.contract.snippet import Snippet
from warpshelf.records import conditions, siblings, store
from warpshelf.records.machine import CPU
from warpshelf.records.schema import Record


def groups(records: Mapping[str, Record], digest: str) -> list[dict[str, Record]]:
    """The records of the present code, by kind of GPU, where there are several of one kind."""
    slugs = sorted({record["machine"]["slug"] for record in records.values()} - {CPU})
    found = []
    for slug in slugs:
        mine = {
            key: records[key]
            for key in siblings.keys(slug)
            if key in records and records[key]["digest"] == digest
        }
        if len(mine) > 1:
            found.append(mine)
    return found


def why(first: Record, second: Record) -> str:
    """On what two records of one kind of device disagree, and what was different, in one line."""
    apart = siblings.differences(first, second)
    if not apart:
        return "they agree within the spread of both"
    worst = max(apart, key=lambda one: max(one.factor, 1 / one.factor))
    more = f" (and {len(apart) - 1} more)" if len(apart) > 1 else ""
    other = conditions.side_by_side(first, second)
    return f"they disagree on {conditions.difference_line(worst)}{more}; {other}"


def lines(snippet: Snippet, keys: Collection[str] | None = None) -> list[str]:
    """A line for each record, of those in `keys` where given, that stands beside another."""
    if not any(snippet.results.glob("*.?.json")):
        return []  # as nearly always: nothing is read
    records, _ = store.load_all(snippet)
    return [
        f"{snippet.project.relative(store.path_of(snippet, key))}: stands beside {first}.json: "
        f"{why(group[first], record)}"
        for group in groups(records, snippet.digest)
        for first in [next(iter(group))]
        for key, record in group.items()
        if key != first and (keys is None or key in keys)
    ]


def of_all(snippets: Iterable[Snippet]) -> list[str]:
    """The lines of all snippets."""
    return [line for snippet in snippets if not snippet.findings for line in lines(snippet)]
