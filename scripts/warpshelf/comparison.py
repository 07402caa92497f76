"""This machine beside the published ones: what `shelf compare` shows of one snippet."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf import record, units
from warpshelf.console import Reporter
from warpshelf.findings import Finding, ShelfError
from warpshelf.pool import Job
from warpshelf.project import Project
from warpshelf.run import Options, Run, Verdict
from warpshelf.snippet import Snippet

HERE = "here"


def show(project: Project, snippet: Snippet, as_json: bool) -> None:
    """Run `snippet` here, without touching its records, and print it beside them.

    Raises:
        ShelfError: it failed here, or cannot run here.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "records.json"
        with Reporter(1) as reporter:
            run = Run(
                project,
                Options(force=True, out=out),
                lambda event: reporter(event) if isinstance(event, Job) else None,
            )
            verdict = run.over([snippet])[0]
        if verdict.state != "passed":
            raise ShelfError(verdict.findings or _not_here(snippet, verdict))
        fresh = next(iter(run.records.values()))
    published, findings = record.load_all(snippet)
    for finding in findings:
        sys.stderr.write(f"{finding}\n")
    current = {k: v for k, v in published.items() if v["digest"] == snippet.digest}
    for name, old in published.items():
        if name not in current:
            day = old["date"][:10]
            sys.stderr.write(f"{name}: withheld, the source has changed since {day}\n")
    found = rows(fresh, current)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    console = Console(highlight=False, emoji=False)
    machines = [HERE, *current]
    table = Table("case", "function", "quantity", *machines, title=snippet.id)
    for row in found:
        figures = (row["values"].get(name, "") for name in machines)
        table.add_row(*map(escape, (row["case"], row["name"], row["quantity"], *figures)))
    console.print(table)
    console.print(f"here: {fresh['machine']['device']}", markup=False, soft_wrap=True)


def _not_here(snippet: Snippet, verdict: Verdict) -> Finding:
    where = snippet.project.relative(snippet.path)
    return Finding(where, None, f"is {verdict.state}: {verdict.note}", "compare where it can run")


def rows(fresh: dict, published: dict[str, dict]) -> list[dict]:
    """One row a case, function and quantity: the value here and on each published machine."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for machine, one in {HERE: fresh, **published}.items():
        for case in one.get("cases", ()):
            label = json.dumps(case["case"], sort_keys=True)[1:-1].replace('"', "")
            for result in case["results"]:
                if "time" in result:
                    key = (label, result["name"], "median")
                    found.setdefault(key, {})[machine] = units.seconds(result["time"]["median"])
                if "error" in result:
                    key = (label, result["name"], "error")
                    found.setdefault(key, {})[machine] = units.error(result["error"])
        for fact in one.get("facts", ()):
            key = ("", fact["name"], fact["unit"] or "value")
            found.setdefault(key, {})[machine] = units.number(fact["value"])
    timed = any(key[2] == "median" for key in found)
    return [
        {"case": case, "name": name, "quantity": quantity, "values": values}
        for (case, name, quantity), values in found.items()
        if quantity != "error" or not timed
    ]
