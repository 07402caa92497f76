"""Records beside others: those of this machine beside the published ones, or any two.

And those of one machine over time (`shelf history`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.bench.pool import Job
from warpshelf.bench.run import Options, Run
from warpshelf.cli.console import Reporter
from warpshelf.cli.printing import Output, make_table
from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.findings import Finding, ShelfError, printable_line
from warpshelf.records import history, record_comparison, store
from warpshelf.records.schema import Record
from warpshelf.render import plots, tables
from warpshelf.render.plots import RecordHistory

HERE = "here"
TWO = 2
COLUMNS = ("driver", "CUDA", "torch", "Triton", "SM clock", "temperature")
LONGEST = 500  # characters of a reason


def show_here(snippet: Snippet, as_json: bool) -> None:
    """Run `snippet` here without touching its records, and print what it shows beside them."""
    where = snippet.project.relative_path(snippet.path)
    with tempfile.TemporaryDirectory() as folder, Reporter(1) as reporter:
        options = Options(force=True, out=Path(folder) / "records.json", both=False)
        run = Run(
            snippet.project,
            options,
            lambda event: reporter(event) if isinstance(event, Job) else None,
        )
        verdict = run.run_stale([snippet])[0]
        if verdict.state != "passed":
            what = f"is {verdict.state}: {verdict.note}"
            refused = Finding(where, None, what, "compare on a machine that can run it")
            raise ShelfError(verdict.findings or refused)
        fresh = next(iter(run.records.values()))
    published, findings = store.load_records(snippet)
    current = {k: v for k, v in published.items() if v["digest"] == snippet.digest}
    withheld = [
        f"{name}: not shown, the source has changed since {old['date'][:10]}"
        for name, old in published.items()
        if name not in current
    ]
    rows = comparison_rows(fresh, current)
    for line in (*findings, *withheld, *record_comparison.find_disagreements([snippet])):
        sys.stderr.write(f"{line}\n")
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    console = Console(highlight=False, emoji=False)
    names = (HERE, *current)
    table = Table("case", "function", "quantity", *names, title=snippet.id)
    for row in rows:
        figures = (row["values"].get(name, "") for name in names)
        table.add_row(*map(escape, (row["case"], row["name"], row["quantity"], *figures)))
    console.print(table)
    console.print(f"here: {fresh['machine']['device']}", markup=False, soft_wrap=True)


def comparison_rows(fresh: Record, published: dict[str, Record]) -> list[dict[str, Any]]:
    """One row a case, function and quantity, with `values`: its words here and by machine."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for machine, one in {HERE: fresh, **published}.items():
        said: dict[tuple[str, str, str], str] = {}
        for case in one.get("cases", ()):
            label = json.dumps(case["case"], sort_keys=True)[1:-1].replace('"', "")
            for result in case["results"]:
                about = label, result["name"]
                if "time" in result:
                    said[*about, "median"] = units.format_seconds(result["time"]["median"])
                if "error" in result:
                    said[*about, "error"] = units.format_error(result["error"])
        for fact in one.get("facts", ()):
            key = ("", fact["name"], fact["unit"] or "value")
            said[key] = units.format_number(fact["value"])
        for key, value in said.items():
            found.setdefault(key, {})[machine] = value
    timed = any(key[2] == "median" for key in found)
    return [
        {"case": case, "name": name, "quantity": quantity, "values": values}
        for (case, name, quantity), values in found.items()
        if quantity != "error" or not timed
    ]


def show_two(snippet: Snippet, names: Sequence[str], as_json: bool) -> None:
    """Print two records side by side; a single name is compared with the newest of its kind."""
    if len(names) > TWO:
        raise typer.BadParameter(f"--with: takes at most two records, not {len(names)}")
    pair = [record_comparison.find_record(snippet, name) for name in names]
    if len(pair) < TWO:
        pair.insert(0, record_comparison.find_counterpart(snippet, pair[0]))
    first, second = pair
    rows = record_comparison.compare_records(first.record, second.record)
    other = record_comparison.changed_conditions(first.record, second.record)
    if as_json:
        keys = ("date", "commit", "digest", "machine")
        records = [{"name": one.label} | {key: one.record[key] for key in keys} for one in pair]
        found = {"snippet": snippet.id, "records": records}
        found["conditions"] = [one._asdict() for one in other]
        print(json.dumps({**found, "rows": [row._asdict() for row in rows]}, indent=1))
        return
    out = Output()
    title = f"{snippet.id}: {first.label}, then {second.label}"
    out.print_paragraph(title, style="bold", hanging=2)
    for one in pair:
        out.print_paragraph(f"{one.label}: {one.record['machine']['device']}", 2, hanging=2)
    out.print_title("Conditions that differ" if other else "No other condition differs")
    for contrast in other:
        out.print_paragraph(str(contrast), 2, hanging=2)
    timed = any(row.quantity == "time" for row in rows)
    shown = [row for row in rows if row.quantity != "error" or not timed]
    for case in dict.fromkeys(row.case for row in shown):
        out.print_title(case or "Facts")
        drawn = make_table("function", "first", "second", "the second", left=("function",))
        for row in shown:
            if row.case == case:
                name = row.name + tables.mark_peer(row.role)
                unit = f", {row.quantity}" if row.role == "fact" else ""
                drawn.add_row(f"  {name}{unit}", row.first, row.second, row.standing)
        out.print_table(drawn)
    if not shown:
        out.print_paragraph("neither record has a result", 2)
    if left := len(rows) - len(shown):
        out.print_paragraph(f"{left} errors of untimed cases are not shown", 2)


def show_history(snippet: Snippet, machine: str | None, as_json: bool) -> None:
    """Print the times of every version, oldest first."""
    found = history.read_history(snippet.project, [snippet.id])
    lines = _select_lines(snippet, found, machine)
    remarks = [*found.remarks]
    for (_, key), rows in sorted(found.damaged.items()):
        remarks += [f"{key} at {row}: not shown" for row in rows]
    if as_json:
        data = {"snippet": snippet.id, "machines": [_line_data(one) for one in lines]}
        print(json.dumps({**data, "remarks": remarks}, indent=1))
        return
    out = Output()
    for line in lines:
        _print_machine(out, line)
    if not lines:
        first = f"`shelf run {snippet.id}` on a machine with a GPU makes the first record"
        what = f"{snippet.id}: nothing is timed yet. {first}; a history needs two"
        out.print_paragraph(what)
    for remark in remarks:
        out.print_paragraph(remark, hanging=2, style="dim")


def _select_lines(
    snippet: Snippet, found: history.History, machine: str | None
) -> list[RecordHistory]:
    every = plots.record_histories(found, snippet.id)
    mine = [one for one in every if machine in (None, one.key, store.key_slug(one.key))]
    if machine is not None and not mine:
        known = ", ".join(one.key for one in every) or "none yet"
        raise typer.BadParameter(f"--machine: {machine} has no record of {snippet.id}: {known}")
    return mine


def _print_machine(out: Output, line: RecordHistory) -> None:
    gone = "" if line.present else "; its record has been removed"
    of = "one version" if len(line.versions) == 1 else f"{len(line.versions)} versions"
    out.print_title(f"{line.key}: {line.device}, {of}{gone}")
    drawn = make_table("", "made on", "commit", *COLUMNS, left=("made on", "commit"))
    described = line.describe_versions()
    for number, told in enumerate(described, 1):
        cells = (told.get(name, "") for name in ("made on", "put", *COLUMNS))
        drawn.add_row(str(number), *map(escape, cells))
    out.print_table(drawn)
    said = [f"at {n}: {told['changed']}" for n, told in enumerate(described, 1) if told["changed"]]
    path = line.versions[0].path
    for number, version in enumerate(line.versions, 1):
        if version.slower:
            said.append(f"{number} may be slower: {version.slower}")
        if version.path != path:
            said.append(f"before {number} the file was {path}")
        path = version.path
    for text in said:
        out.print_paragraph(text, 2, hanging=2)
    cases = line.case_histories()
    for case in cases:
        out.print_title(case.label)
        heads = ("function", "", "median", "p20 to p80", "rate", "change")
        drawn = make_table(*heads, left=("function",))
        for name, role, points in case.functions:
            shown = name + tables.mark_peer(role)
            for point in points:
                keys = ("median", "p20", "p80")
                median, low, high = (units.format_seconds(point.time[key]) for key in keys)
                rate = "" if point.rate is None else units.format_rate(point.rate, case.unit)
                figures = (str(point.version + 1), median, f"{low} to {high}", rate)
                drawn.add_row(f"  {escape(shown)}", *figures, point.change_text)
                shown = ""
        out.print_table(drawn)
    if not cases:
        out.print_paragraph("no version has a time", 2)


def _line_data(line: RecordHistory) -> dict[str, Any]:
    versions = []
    for version, told in zip(line.versions, line.describe_versions(), strict=True):
        record, machine = version.record, version.record["machine"]
        own = {"commit": version.commit, "path": version.path, "date": record["date"]}
        own |= {"made_from": record["commit"], "digest": record["digest"]}
        own |= {key: machine[key] for key in ("driver", "cuda", "torch", "triton")}
        own["load"] = record.get("conditions", {}).get("load", {})
        versions.append(own | {"changed": told["changed"], "slower": version.slower or None})
    times = []
    for case in line.case_histories():
        for name, role, points in case.functions:
            rows = [
                {"version": point.version, "rate": point.rate, "factor": point.factor}
                | {key: point.time[key] for key in ("median", "p20", "p80", "n")}
                for point in points
            ]
            own = {"case": case.case, "name": name, "role": role, "unit": case.unit}
            times.append({**own, "points": rows})
    about = {"key": line.key, "device": line.device, "present": line.present}
    return {**about, "versions": versions, "times": times}


def explain_slowdown(snippet: Snippet, because: str, machine: str | None, as_json: bool) -> None:
    """Note beside the snippet why a record is slower than the one before it."""
    words = " ".join(because.split())
    if not words or words != printable_line(words, LONGEST):
        raise typer.BadParameter(f"--because: write 1 to {LONGEST} plain characters")
    found = history.read_history(snippet.project, [snippet.id], history.NEWEST)
    lines = _select_lines(snippet, found, machine)
    slower = [one for one in lines if one.present and one.find_slowdowns()]
    if len(slower) != 1:
        what = f"several records are slower: {', '.join(one.key for one in slower)}"
        mend = "name one with --machine"
        if not slower:
            what = "no record is slower than the one before it"
            mend = f"see `shelf history {snippet.id}`"
        where = snippet.project.relative_path(snippet.results)
        raise ShelfError(Finding(where, None, what, mend))
    date = slower[0].versions[-1].record["date"]
    path = history.add_reason(snippet.project, snippet.id, slower[0].key, date, words)
    shown = snippet.project.relative_path(path)
    print(json.dumps({"written": shown, "slower": words}) if as_json else f"wrote {shown}")
