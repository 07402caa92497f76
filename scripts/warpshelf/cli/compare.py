"""Records beside others: those of this machine beside the published ones, or any two.

And those of one machine over time (`shelf history`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warpshelf.bench.pool import Job
from warpshelf.bench.run import Options, Run, Verdict
from warpshelf.cli.console import Reporter
from warpshelf.cli.printing import (
    make_console,
    make_table,
    print_paragraph,
    print_table,
    print_title,
)
from warpshelf.contract.snippet import Snippet
from warpshelf.core import units
from warpshelf.core.findings import Finding, ShelfError, printable_line
from warpshelf.core.project import Project
from warpshelf.records import history, record_comparison, store
from warpshelf.records.history import History
from warpshelf.records.record_comparison import ComparisonRow, LabeledRecord
from warpshelf.records.schema import Record
from warpshelf.records.store import key_slug
from warpshelf.render import histories
from warpshelf.render.histories import RecordHistory

# This machine beside the published ones: the figures of one snippet, side by side.

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
        (*map(str, findings), *withheld, *record_comparison.find_disagreements([snippet])),
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


def show_here(project: Project, snippet: Snippet, as_json: bool) -> None:
    """Run `snippet` here, and print what it shows beside its records.

    Raises:
        ShelfError: it failed here, or cannot run here.
    """
    with Reporter(1) as reporter:
        found = compare_here(
            project, snippet, lambda event: reporter(event) if isinstance(event, Job) else None
        )
    for line in found.remarks:
        sys.stderr.write(f"{line}\n")
    if as_json:
        print(json.dumps(found.rows, indent=1))
        return
    console = Console(highlight=False, emoji=False)
    table = Table("case", "function", "quantity", *found.machines, title=snippet.id)
    for row in found.rows:
        figures = (row["values"].get(name, "") for name in found.machines)
        table.add_row(*map(escape, (row["case"], row["name"], row["quantity"], *figures)))
    console.print(table)
    console.print(f"here: {found.device}", markup=False, soft_wrap=True)


TWO = 2


def show_two(snippet: Snippet, names: Sequence[str], as_json: bool) -> None:
    """Print two records side by side; one name is set beside the newest record of its kind.

    Raises:
        ShelfError: a name means no record, or several.
        typer.BadParameter: there are more than two names.
    """
    if len(names) > TWO:
        raise typer.BadParameter(f"--with: {len(names)} records; two are set side by side")
    found = [record_comparison.find_record(snippet, name) for name in names]
    first, second = (
        found
        if len(found) == TWO
        else (record_comparison.find_counterpart(snippet, found[0]), found[0])
    )
    rows = record_comparison.compare_records(first.record, second.record)
    if as_json:
        print(json.dumps(_two_data(snippet, first, second, rows), indent=1))
    else:
        _print_pair(snippet, first, second, rows)


def _two_data(
    snippet: Snippet, first: LabeledRecord, second: LabeledRecord, rows: Sequence[ComparisonRow]
) -> dict[str, Any]:
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
            for one in record_comparison.changed_conditions(first.record, second.record)
        ],
        "rows": [row._asdict() for row in rows],
    }


def _print_pair(
    snippet: Snippet, first: LabeledRecord, second: LabeledRecord, rows: Sequence[ComparisonRow]
) -> None:
    out = make_console()
    print_paragraph(
        out, f"{snippet.id}: {first.label}, then {second.label}", style="bold", hanging=2
    )
    for one in (first, second):
        print_paragraph(out, f"{one.label}: {one.record['machine']['device']}", 2, hanging=2)
    other = record_comparison.changed_conditions(first.record, second.record)
    print_title(out, "What was different" if other else "Nothing else was different")
    for contrast in other:
        print_paragraph(out, str(contrast), 2, hanging=2)
    timed = any(row.quantity == "time" for row in rows)
    shown = [row for row in rows if row.quantity != "error" or not timed]
    cases = dict.fromkeys(row.case for row in shown)
    for case in cases:
        print_title(out, case or "Facts")
        drawn = make_table("function", "first", "second", "the second", left=("function",))
        for row in shown:
            if row.case == case:
                name = f"{row.name} (peer)" if row.role == "peer" else row.name
                unit = f", {row.quantity}" if row.role == "fact" else ""
                drawn.add_row(f"  {name}{unit}", row.first, row.second, row.standing)
        print_table(out, drawn)
    if not shown:
        print_paragraph(out, "neither record has a result", 2)
    if timed and len(shown) < len(rows):
        print_paragraph(
            out, f"{len(rows) - len(shown)} errors of cases that are not timed are left out", 2
        )


COLUMNS = ("driver", "CUDA", "torch", "Triton", "SM clock", "temperature")
LONGEST = 500  # characters of a reason


def show_history(snippet: Snippet, machine: str | None, as_json: bool) -> None:
    """Print the times of every version, oldest first.

    Raises:
        typer.BadParameter: there never was a record of that machine.
    """
    found = history.read_history(snippet.project, [snippet.id])
    lines = _select_lines(snippet, found, machine)
    remarks = _history_remarks(found)
    if as_json:
        data = {"snippet": snippet.id, "machines": [_line_data(one) for one in lines]}
        print(json.dumps({**data, "remarks": remarks}, indent=1))
        return
    out = make_console()
    for line in lines:
        _print_machine(out, line)
    if not lines:
        first = f"On a machine with a GPU, `shelf run {snippet.id}` makes the first record"
        print_paragraph(
            out, f"{snippet.id}: nothing is timed yet. {first}, and a second one makes a history"
        )
    for remark in remarks:
        print_paragraph(out, remark, hanging=2, style="dim")


def _select_lines(snippet: Snippet, found: History, machine: str | None) -> list[RecordHistory]:
    every = histories.record_histories(found, snippet.id)
    mine = [one for one in every if machine in (None, one.key, key_slug(one.key))]
    if machine is not None and not mine:
        known = ", ".join(one.key for one in every) or "none yet"
        raise typer.BadParameter(f"--machine: {machine} has no record of {snippet.id}: {known}")
    return mine


def _history_remarks(found: History) -> list[str]:
    unread = [
        f"{key} as of {row}: left out"
        for (_, key), rows in sorted(found.damaged.items())
        for row in rows
    ]
    return [*found.remarks, *unread]


def _print_machine(out: Console, line: RecordHistory) -> None:
    gone = "" if line.present else "; the record is no longer here"
    of = "one version" if len(line.versions) == 1 else f"{len(line.versions)} versions"
    print_title(out, f"{line.key}: {line.device}, {of}{gone}")
    heads = ("", "made on", "put", *COLUMNS)
    drawn = make_table(
        *(name.replace("put", "commit") for name in heads), left=("made on", "commit")
    )
    for number, told in enumerate(line.describe_versions(), 1):
        drawn.add_row(str(number), *(escape(told.get(name, "")) for name in heads[1:]))
    print_table(out, drawn)
    for number, told in enumerate(line.describe_versions(), 1):
        if told["changed"]:
            print_paragraph(out, f"at {number}: {told['changed']}", 2, hanging=2)
    for number, version in enumerate(line.versions, 1):
        if version.slower:
            print_paragraph(out, f"{number} may be slower: {version.slower}", 2, hanging=2)
        if number > 1 and version.path != line.versions[number - 2].path:
            print_paragraph(
                out, f"before {number} it was {line.versions[number - 2].path}", 2, hanging=2
            )
    for case in line.case_histories():
        print_title(out, case.label)
        drawn = make_table(
            "function", "", "median", "p20 to p80", "rate", "than before", left=("function",)
        )
        for name, role, points in case.functions:
            shown = f"{name} (peer)" if role == "peer" else name
            for point in points:
                time = point.time
                drawn.add_row(
                    f"  {escape(shown)}",
                    str(point.version + 1),
                    units.format_seconds(time["median"]),
                    f"{units.format_seconds(time['p20'])} to {units.format_seconds(time['p80'])}",
                    "" if point.rate is None else units.format_rate(point.rate, case.unit),
                    point.change_text,
                )
                shown = ""
        print_table(out, drawn)
    if not line.case_histories():
        print_paragraph(out, "no version has a time", 2)


def _line_data(line: RecordHistory) -> dict[str, Any]:
    return {
        "key": line.key,
        "device": line.device,
        "present": line.present,
        "versions": [
            {
                "commit": version.commit,
                "path": version.path,
                "date": version.record["date"],
                "made_from": version.record["commit"],
                "digest": version.record["digest"],
                **{key: version.record["machine"][key] for key in ("driver", "cuda", "torch")},
                "triton": version.record["machine"]["triton"],
                "load": version.record.get("conditions", {}).get("load", {}),
                "changed": told["changed"],
                "slower": version.slower or None,
            }
            for version, told in zip(line.versions, line.describe_versions(), strict=True)
        ],
        "times": [
            {
                "case": case.case,
                "name": name,
                "role": role,
                "unit": case.unit,
                "points": [
                    {"version": point.version, "rate": point.rate, "factor": point.factor}
                    | {key: point.time[key] for key in ("median", "p20", "p80", "n")}
                    for point in points
                ],
            }
            for case in line.case_histories()
            for name, role, points in case.functions
        ],
    }


def explain_slowdown(snippet: Snippet, because: str, machine: str | None, as_json: bool) -> None:
    """Write down beside the snippet why a record is slower than the one before it.

    Raises:
        ShelfError: no record is slower than the one before it, or several are.
        typer.BadParameter: the reason is empty or too long, or there is no such machine.
    """
    words = " ".join(because.split())
    if not words or len(words) > LONGEST or words != printable_line(words, LONGEST):
        raise typer.BadParameter(f"--because: write 1 to {LONGEST} plain characters")
    found = history.read_history(snippet.project, [snippet.id], history.NEWEST)
    lines = [one for one in _select_lines(snippet, found, machine) if one.present]
    lame = [one for one in lines if one.find_slowdowns()]
    where = snippet.project.relative_path(snippet.results)
    if not lame:
        what = "no record there is slower than the one before it"
        raise ShelfError(Finding(where, None, what, f"see `shelf history {snippet.id}`"))
    if len(lame) > 1:
        what = f"several records are slower: {', '.join(one.key for one in lame)}"
        raise ShelfError(Finding(where, None, what, "name one by --machine"))
    date = lame[0].versions[-1].record["date"]
    path = history.add_reason(snippet.project, snippet.id, lame[0].key, date, words)
    shown = snippet.project.relative_path(path)
    print(json.dumps({"written": shown, "slower": words}) if as_json else f"wrote {shown}")
