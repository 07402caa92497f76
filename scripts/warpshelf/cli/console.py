"""What a run shows while it goes: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from warpshelf.bench.pool import Job
from warpshelf.bench.run import Plan, Verdict
from warpshelf.records.machine import CPU
from warpshelf.worker.task import Task

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PHASES = {
    Task.VERIFY: "verifying",
    Task.VIEW: "viewing",
    Task.COMPILE: "compiling",
    Task.TIME: "timing",
    Task.JUDGE: "judging",
    Task.DESCRIBE: "looking at the machine",
    Task.DUE: "reading",
    Task.REACH: "compiling",
}
MARKS = {
    "passed": "[green]passed [/]",
    "failed": "[red]failed [/]",
    "skipped": "[yellow]skipped[/]",
    "left": "[yellow]left   [/]",
    "current": "[dim]current[/]",
}


class Reporter:
    """Hears the events of a run. A context manager; quiet where `shown` is False.

    Nothing is imported or drawn before there is something to show: most runs find all current.
    """

    def __init__(self, total: int, shown: bool = True) -> None:
        self.total = total
        self.shown = shown
        self.active: dict[str, str] = {}

    @cached_property
    def console(self) -> Console:
        """Where it is shown."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, emoji=False, quiet=not self.shown)

    @cached_property
    def live(self) -> bool:
        """Whether a line may be drawn over and over."""
        # rich takes some variables as a terminal's word; it is asked only where one may be.
        may_be = (
            sys.stderr.isatty() or "FORCE_COLOR" in os.environ or "TTY_COMPATIBLE" in os.environ
        )
        return self.shown and may_be and self.console.is_terminal

    @cached_property
    def bar(self) -> Progress:
        """The line, with one task of `total` snippets."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
        from rich.table import Column

        bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            console=self.console,
            transient=True,
        )
        bar.add_task("", total=self.total)
        return bar

    def __enter__(self) -> Reporter:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.bar.stop()

    def __call__(self, event: object) -> None:
        """Show one event."""
        if isinstance(event, Job):
            phase = PHASES.get(event.do, event.do)
            self.active[event.key] = phase
            if not self.live and event.do is not Task.DESCRIBE:
                self.console.print(f"  {phase:<9} {event.key}", markup=False, soft_wrap=True)
        elif isinstance(event, Plan):
            self.total = event.verdicts
            if self.live:
                self.bar.update(self.bar.task_ids[0], total=self.total)
        elif isinstance(event, Verdict):
            self.active.pop(event.snippet, None)
            if self.live:
                self.bar.advance(self.bar.task_ids[0])
            if event.state != "current" or event.told:
                self._verdict(event)
        if self.live:
            from rich.markup import escape

            names = [f"{phase} {key}" for key, phase in self.active.items()]
            self.bar.update(self.bar.task_ids[0], description=escape(", ".join(names[:3])))

    def _verdict(self, verdict: Verdict) -> None:
        from rich.markup import escape

        took = f" {verdict.seconds:.1f} s" if verdict.seconds else ""
        note = f" [dim]{escape(verdict.note)}[/]" if verdict.note else ""
        where = "" if verdict.machine == CPU else f" on {verdict.machine}"
        line = f"{MARKS[verdict.state]} {escape(verdict.snippet)}{where}{took}{note}"
        self.console.print(line, soft_wrap=True)
        for told in verdict.told:
            self.console.print(f"  {told}", markup=False, soft_wrap=True)
        for finding in verdict.findings:
            self.console.print(str(finding), markup=False, soft_wrap=True)
