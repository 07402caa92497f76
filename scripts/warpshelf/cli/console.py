"""What a run shows: first its plan, then its progress, at its end a summary.

On a terminal progress is a live line, in a log plain lines. A plan says what runs where, why, about
how long it takes, and what a budget leaves out; the end what was left out and how to go on.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpshelf.bench.plan import BASES, Turn
from warpshelf.bench.pool import Job
from warpshelf.bench.run import Eta, Plan, Verdict
from warpshelf.core import units
from warpshelf.records.ledger import CPU
from warpshelf.worker.context import Task

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PHASES = {
    Task.VERIFY: "verifying", Task.VIEW: "viewing", Task.COMPILE: "compiling", Task.TIME: "timing",
    Task.JUDGE: "judging", Task.DESCRIBE: "describing the machine", Task.DUE: "reading",
    Task.DEMO: "running", Task.REACH: "compiling",
}  # fmt: skip
# A notebook's shell claims to be a terminal, but it keeps every line that is drawn.
NOTEBOOKS = ("JPY_PARENT_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
EVERY = 30.0  # seconds after which a log is told what is left
NAMED = 5  # snippets that a line names before it counts the rest
# What to do with the file of `--out`; the recipes use the same words.
HAND_IN = (
    "to hand {them} in, drop the file into the form at "
    "https://github.com/warpshelf/warpshelf/issues/new?template=records.yml, or, in a checkout of "
    "the same commit, run `shelf import {file}`, commit snippets/*/results and open a pull "
    "request; see docs/about/measure.md"
)
MARKS = {
    "passed": "[green]passed [/]",
    "trusted": "[green]trusted[/]",
    "failed": "[red]failed [/]",
    "skipped": "[yellow]skipped[/]",
    "current": "[dim]current[/]",
}


class Reporter:
    """Hears the events of a run. A context manager.

    Nothing is imported or drawn before there is something to show: most runs find all current.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.active: dict[str, str] = {}
        self.outlook: Eta | None = None
        self._began = time.monotonic()
        self._over = threading.Event()
        self._ticking: threading.Thread | None = None
        self._told: set[tuple[str, str]] = set()

    @cached_property
    def console(self) -> Console:
        """Where it is shown."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, emoji=False)

    @cached_property
    def live(self) -> bool:
        """Whether a line may be drawn over and over."""
        # Some variables make rich assume a terminal; ask it only where there may be one.
        told = {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys()
        may_be = (sys.stderr.isatty() or told) and not set(NOTEBOOKS) & os.environ.keys()
        return bool(may_be and self.console.is_terminal)

    @cached_property
    def bar(self) -> Progress:
        """The line, with one task of `total` snippets."""
        from rich import progress
        from rich.table import Column
        from rich.text import Text

        reporter = self

        class LeftColumn(progress.ProgressColumn):
            """About how long is left."""

            max_refresh = 1.0

            def render(self, task: object) -> Text:
                return Text(reporter.time_left())

        bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.BarColumn(bar_width=16),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            LeftColumn(table_column=Column(no_wrap=True)),
            progress.TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            console=self.console,
            transient=True,
        )
        bar.add_task("", total=self.total)
        return bar

    def time_left(self) -> str:
        """About how long is left, in words; nothing before there is a plan, and at the end."""
        seconds = self.outlook.seconds_left() if self.outlook else 0.0
        return f"about {units.format_duration(seconds)} left" if seconds else ""

    def __enter__(self) -> Reporter:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._ticking is not None:
            self._ticking.join()
        if self.live:
            self.bar.stop()

    def _log_progress(self) -> None:
        while not self._over.wait(EVERY):
            minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
            done = f"  {self.done} of {self.total} done after {minutes}:{seconds:02}"
            self._print_line(", ".join(filter(None, (done, self.time_left()))))

    def _print_line(self, line: object) -> None:
        self.console.print(str(line), markup=False, soft_wrap=True)

    def _set_total(self, total: int) -> None:
        self.total = total
        if self.live:
            self.bar.update(self.bar.task_ids[0], total=total)

    def __call__(self, event: object) -> None:
        """Show one event of a run; a fleet also sends lines, or the number of verdicts to come."""
        if isinstance(event, Job):
            self._show_start(event)
        elif isinstance(event, Eta):
            self.outlook = event
            if not self.live and self._ticking is None:
                self._ticking = threading.Thread(target=self._log_progress, daemon=True)
                self._ticking.start()
        elif isinstance(event, Plan):
            self._set_total(event.verdicts)
            for line in plan_lines(event):
                self._print_line(line)
        elif isinstance(event, int):
            self._set_total(event)
        elif isinstance(event, str):
            self._print_line(event)
        elif isinstance(event, Verdict):
            self.active.pop(event.snippet, None)
            if event.state in ("passed", "trusted", "failed"):
                self.done += 1
                if self.live:
                    self.bar.advance(self.bar.task_ids[0])
            if event.state != "left" and (event.state != "current" or event.told):
                self._show_verdict(event)
        if self.live:
            from rich.markup import escape

            names = [f"{phase} {key}" for key, phase in self.active.items()]
            self.bar.update(self.bar.task_ids[0], description=escape(", ".join(names[:3])))

    def _show_start(self, job: Job) -> None:
        phase = PHASES.get(job.do, job.do)
        self.active[job.key] = phase
        if self.live or job.do in (Task.DESCRIBE, Task.DEMO) or (phase, job.key) in self._told:
            return  # a demo is soon over; once a phase is enough, however many targets it has
        self._told.add((phase, job.key))
        self._print_line(f"  {phase:<9} {job.key}")

    def _show_verdict(self, verdict: Verdict) -> None:
        from rich.markup import escape

        took = f" {verdict.seconds:.1f} s" if verdict.seconds else ""
        note = f" [dim]{escape(verdict.note)}[/]" if verdict.note else ""
        where = "" if verdict.machine == CPU else f" on {verdict.machine}"
        line = f"{MARKS[verdict.state]} {escape(verdict.snippet)}{where}{took}{note}"
        self.console.print(line, soft_wrap=True)
        for told in (*(f"  {line}" for line in verdict.told), *verdict.findings):
            self._print_line(told)


def plan_lines(plan: Plan) -> list[str]:
    """What is printed before a run: a line or more for each machine, and the total time."""
    told = [turn for turn in plan.turns if turn.parts or turn.skipped] or plan.turns
    found = [line for turn in told for line in _turn_lines(plan, turn)]
    if sum(bool(turn.parts) for turn in plan.turns) > 1:
        found.append(f"about {units.format_duration(plan.seconds)} in total")
    if left := plan.left:
        names = list(dict.fromkeys(name for name, _ in left))
        shown = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
        budget = units.format_duration(plan.budget or 0.0)
        share = f"{len(left)} of {plan.verdicts}"
        found.append(f"a budget of {budget} is likely to leave out {share}: {shown}")
    return found


def _turn_lines(plan: Plan, turn: Turn) -> Iterator[str]:
    where, trusted = turn.where, sum(part.work.trusted for part in turn.parts)
    machine = "CPU"
    if where["gpus"]:
        memory = units.format_bytes(where["memory_bytes"])
        more = f", {where['gpus']} of them" if where["gpus"] > 1 else ""
        machine = f"{where['device']}, SM {where['sm']}, {memory}{more}"
    reasons = Counter(part.why for part in turn.parts if not part.work.trusted)
    said = [f"{_pluralize_count(trusted, 'demo')} of trusted records to run"] if trusted else []
    if reasons or not trusted:
        told = [f"{count} {what}" for what, count in reasons.items()]
        if reasons.total() == 1:
            told = list(reasons)  # a single reason for a single thing needs no number
        said.append(f"{reasons.total()} to verify" + (f" ({', '.join(told)})" if told else ""))
    if turn.current:
        said.append(f"{len(turn.current)} current")
    line = f"{machine}: {', '.join(said)}"
    if turn.parts:
        seconds = units.format_duration(turn_seconds(plan, turn))
        line += f"; about {seconds} with {_pluralize_count(turn.workers, 'worker')}; estimate from "
        bases = Counter(part.basis for part in turn.parts)
        known = sorted(bases, key=BASES.index)
        line += ", ".join(f"{one} ({bases[one]})" for one in known) if known[1:] else known[0]
    yield line
    for reason, count in Counter(why for _, why in turn.skipped).most_common():
        yield f"  {count} skipped: {reason}"
    for only, count in Counter(part.work.only_compiled() for part in turn.parts).most_common():
        if only:
            yield f"  {count} only compiled: {only}"


def turn_seconds(plan: Plan, turn: Turn) -> float:
    """How long one turn of a plan takes, in seconds."""
    at = plan.turns.index(turn)
    before, end = (
        max((plan.end_times[part.id, one.slug] for one in turns for part in one.parts), default=0.0)
        for turns in (plan.turns[:at], plan.turns[: at + 1])
    )
    return end - before


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """Each snippet on each machine, as `--plan --json` prints it, those that run first."""
    left, found = set(plan.left), []
    for turn in plan.turns:
        rows: list[tuple[str, str, dict[str, Any]]] = []
        for part in turn.parts:
            seconds = round(sum(one.seconds for one in part.jobs), 1)
            told = {"why": part.why, "only_compiled": part.work.only_compiled(), "seconds": seconds}
            late = (part.id, turn.slug) in left
            rows.append((part.id, "run", {**told, "judged_by": part.basis, "left_out": late}))
        rows += [(one.id, "skipped", {"why": why}) for one, why in turn.skipped]
        rows += [(one.id, "current", {}) for one in turn.current]
        for name, state, told in rows:
            found.append({"snippet": name, "machine": turn.slug, "state": state, **told})
    return found


def plan_json(plan: Plan) -> str:
    """The plan for a program."""
    machines = []
    for turn in plan.turns:
        row = {"machine": turn.where, "workers": turn.workers, "to_run": len(turn.parts)}
        row["demos"] = sum(part.work.trusted for part in turn.parts)
        row |= {"skipped": len(turn.skipped), "current": len(turn.current)}
        machines.append({**row, "seconds": round(turn_seconds(plan, turn), 1)})
    found = {"machines": machines, "seconds": round(plan.seconds, 1), "budget": plan.budget}
    return json.dumps({**found, "snippets": plan_rows(plan)}, indent=1)


def show_plan(plan: Plan) -> None:
    """Print the plan, and a line for each snippet that runs or is skipped."""
    from rich.markup import escape

    from warpshelf.cli import printing

    out = printing.Output()
    for line in plan_lines(plan):
        out.print_paragraph(line, hanging=2)
    left = ("snippet", "machine", "why")
    table = printing.make_table("snippet", "machine", "about", "why", left=left)
    for row in plan_rows(plan):
        if row["state"] == "skipped":
            why, about = f"skipped: {row['why']}", ""
        elif row["state"] == "run":
            only = f"; only compiled: {row['only_compiled']}" if row["only_compiled"] else ""
            late = "; left out by the budget" if row["left_out"] else ""
            why = f"{row['why']}; {row['judged_by']}{only}{late}"
            about = units.format_duration(row["seconds"])
        else:
            continue
        table.add_row(row["snippet"], row["machine"], about, escape(why))
    if table.row_count:
        out.print()
        out.print_table(table)


def left_lines(verdicts: Iterable[Verdict], words: Sequence[str]) -> list[str]:
    """A line for each machine with snippets that did not run, and the command that continues.

    `words` is the command line; the same again, as it was typed, goes on.
    """
    by_machine: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.state == "left":
            by_machine.setdefault((verdict.machine, verdict.note), []).append(verdict.snippet)
    if not by_machine:
        return []
    script = Path(sys.argv[0]).name
    scripted = script.endswith(".py") and script != "__main__.py"
    program = [sys.orig_argv[0], sys.argv[0]] if scripted else ["shelf"]
    left = [f"not run on {on} ({why}): {', '.join(own)}" for (on, why), own in by_machine.items()]
    return [*left, f"what has passed is kept; continue with `{shlex.join([*program, *words])}`"]


def hand_in_lines(file: Path, count: int, idle: bool = False) -> list[str]:
    """What to do with a file of so many records, or after an `idle` forced run."""
    if not count:
        return []
    if idle:
        return [f"{file} has every record of this code already; name another file to start over"]
    how = HAND_IN.format(them="it" if count == 1 else "them", file=file.name)
    return [f"{file} holds {_pluralize_count(count, 'record')}; {how}"]


def summary_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """What a run ends with: a line of counts, and a line for each reason to skip.

    Demos are those that ran now. Records are trusted, and snippets verified here, whether by this
    run or by an earlier one of this checkout.
    """
    if not verdicts:
        return ["no snippets"]
    counts = Counter(one.state for one in verdicts)
    records = [one.trusted for one in verdicts if one.trusted]
    trusted = sorted(records, key=lambda one: (one[0], one[1] or ""))
    verified = sum(one.verified for one in verdicts)
    said = []
    if trusted or verified:
        # From when records are: their days, and the commits, from the oldest to the newest.
        ends = [f"{date} at commit {commit}" if commit else date for date, commit in trusted]
        span = " to ".join(dict.fromkeys([*ends[:1], *ends[-1:]]))
        said.append(f"{_pluralize_count(counts['trusted'], 'demo')} run")
        records_trusted = f"{_pluralize_count(len(trusted), 'record')} trusted"
        said.append(records_trusted + (f" (of {span})" if span else ""))
        said.append(f"{verified} verified here")
    rest = Counter(one.state for one in verdicts if not (one.trusted or one.verified))
    shown = {state: rest[state] for state in ("passed", "current")}
    shown |= {state: counts[state] for state in ("failed", "skipped", "left")}
    said += [f"{count} {state}" for state, count in shown.items() if count]
    skipped = Counter(one.note for one in verdicts if one.state == "skipped")
    return [", ".join(said), *(f"  {n} skipped: {why}" for why, n in skipped.most_common())]


def _pluralize_count(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def verdicts_json(verdicts: Iterable[Verdict]) -> str:
    """The verdicts for a program."""
    rows = [
        {
            **{key: getattr(verdict, key) for key in ("snippet", "machine", "state", "note")},
            "seconds": round(verdict.seconds, 3),
            "findings": [str(finding) for finding in verdict.findings],
            "errors": list(verdict.told),
            "trusted": verdict.trusted,
            "verified_here": verdict.verified,
        }
        for verdict in verdicts
    ]
    return json.dumps(rows, indent=1)
