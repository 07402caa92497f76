"""This machine beside the published ones: the figures of one snippet, side by side."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from warpshelf.bench.run import Options, Run, Verdict
from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import record_comparison, store
from warpshelf.records.schema import Record

HERE = "here"


class Row(TypedDict):
    """One figure: of which case and function it is, and its value in words by machine."""

    case: str
    name: str
    quantity: str
    values: dict[str, str]


@dataclass(frozen=True)
class Comparison:
    """What this machine found of a snippet, beside its current records."""

    device: str
    machines: tuple[str, ...]  # HERE first, then the slugs of the records shown
    rows: tuple[Row, ...]
    remarks: tuple[str, ...]  # a line on each record that is withheld or damaged


def compare_here(
    project: Project, snippet: Snippet, tell: Callable[[object], None] = lambda event: None
) -> Comparison:
    """Run `snippet` here without touching its records; `tell` hears each start of a job.

    Raises:
        ShelfError: it failed here, or cannot run here.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Run(project, Options(force=True, out=Path(folder) / "records.json", both=False), tell)
        verdict = run.run_stale([snippet])[0]
        if verdict.state != "passed":
            raise ShelfError(verdict.findings or _not_run_finding(snippet, verdict))
        fresh = next(iter(run.records.values()))
    published, findings = store.load_records(snippet)
    current = {k: v for k, v in published.items() if v["digest"] == snippet.digest}
    withheld = [
        f"{name}: withheld, the source has changed since {old['date'][:10]}"
        for name, old in published.items()
        if name not in current
    ]
    return Comparison(
        fresh["machine"]["device"],
        (HERE, *current),
        tuple(comparison_rows(fresh, current)),
        (*map(str, findings), *withheld, *record_comparison.disagreement_lines(snippet)),
    )


def _not_run_finding(snippet: Snippet, verdict: Verdict) -> Finding:
    where = snippet.project.relative_path(snippet.path)
    return Finding(where, None, f"is {verdict.state}: {verdict.note}", "compare where it can run")


def comparison_rows(fresh: Record, published: dict[str, Record]) -> list[Row]:
    """One row a case, function and quantity: the value here and on each published machine."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}

    def set_value(machine: str, key: tuple[str, str, str], value: str) -> None:
        found.setdefault(key, {})[machine] = value

    for machine, one in {HERE: fresh, **published}.items():
        for case in one.get("cases", ()):
            label = _case_label(case["case"])
            for result in case["results"]:
                if "time" in result:
                    seconds = units.format_seconds(result["time"]["median"])
                    set_value(machine, (label, result["name"], "median"), seconds)
                if "error" in result:
                    set_value(
                        machine,
                        (label, result["name"], "error"),
                        units.format_error(result["error"]),
                    )
        for fact in one.get("facts", ()):
            key = ("", fact["name"], fact["unit"] or "value")
            set_value(machine, key, units.format_number(fact["value"]))
    timed = any(key[2] == "median" for key in found)
    return [
        {"case": case, "name": name, "quantity": quantity, "values": values}
        for (case, name, quantity), values in found.items()
        if quantity != "error" or not timed
    ]


def _case_label(case: dict[str, Any]) -> str:
    return json.dumps(case, sort_keys=True)[1:-1].replace('"', "")
