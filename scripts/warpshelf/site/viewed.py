"""What the views of a snippet and the counts of its record must have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding
from warpshelf.look import kept
from warpshelf.look.view import NUMBERS, View
from warpshelf.records.schema import Record

Key = tuple[str, str, str]  # variant, kernel, architecture


def check(one: Snippet, record: Record | None) -> Iterator[Finding]:
    """What is wrong with the views of a snippet; `record` is that of the present code on a CPU.

    Each kernel that it counts has a view on each architecture, whose lines did the same.
    """
    found, wrong = kept.views_of(one)
    yield from wrong
    if record is None or wrong:
        return
    counted = {
        (row["variant"], row["kernel"], target): row
        for row in record.get("counts", ())
        for target in row["targets"]
    }
    views = {(v.view["variant"], v.view["kernel"], v.view["arch"]): v for v in found}
    folder = one.project.relative(one.results / kept.FOLDER)
    again = f"run `shelf run --force {one.id}` and commit {folder}"
    if missing := sorted(counted.keys() - views.keys()):
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield Finding(folder, None, f"has no view of {_said(missing[0])}{more}", again)
    for key, view in sorted(views.items()):
        where = f"{folder}/{view.name}.json"
        if key not in counted:
            what = f"is the view of {_said(key)}, which its record does not count"
            yield Finding(where, None, what, again)
        elif fault := contradiction(view.view, counted[key]):
            yield Finding(where, None, fault, again)


def contradiction(view: View, row: dict[str, Any]) -> str | None:
    """Where a view and its record's counts do not say the same; None where they do.

    Of a kernel that a case launches in several builds the view is of one, and of its launches.
    """
    if view["case"] != row["case"]:
        return f"is of the case {view['case']}, and its record counts {row['case']}"
    some = view["launches"] < row["launches"]
    for name in ("executed", *NUMBERS):
        mine, theirs = _sum(view["lines"], name), _sum(row["lines"], name)
        fits = mine <= theirs if some else mine == theirs
        if not fits or mine != _sum([view["total"]], name):
            return f"has {mine:,} {name} in its lines, and its record counts {theirs:,}"
    return None


def _sum(rows: Sequence[dict[str, Any]], name: str) -> int:
    if name == "executed":
        return sum(sum(row["classes"].values()) for row in rows)
    return sum(row.get(name, 0) for row in rows)


def _said(key: Key) -> str:
    variant, kernel, arch = key
    return f"{kernel} ({variant}) on {arch}"
