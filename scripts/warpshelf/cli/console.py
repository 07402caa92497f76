"""What a run shows while it goes: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING

from warpshelf.bench.outlook import Outlook
from warpshelf.bench.pool import Job
from warpshelf.bench.run import Plan, Verdict
from warpshelf.cli import planned
from warpshelf.core import units
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
# A notebook's shell is a terminal by its own word, but it keeps each line that is drawn.
NOTEBOOKS = ("JPY_PARENT_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
EVERY = 30.0  # seconds after which a log is told what is left
MARKS = {
    "passed": "[green]passed [/]",
    "failed": "[red]failed [/]",
    "skipped": "[yellow]skipped[/]",
    "current": "[dim]current[/]",
}


class Reporter:
    """Hears the events of a run. A context manager; quiet where `shown` is False.

    Nothing is imported or drawn before there is something to show: most runs find all current.
    """

    def __init__(self, total: int, shown: bool = True, every: float = EVERY) -> None:
        self.total = total
        self.shown = shown
        self.every = every
        self.done = 0
        self.active: dict[str, str] = {}
        self.outlook: Outlook | None = None
        self._began = time.monotonic()
        self._over = threading.Event()
        self._ticking: threading.Thread | None = None
        self._told: set[tuple[str, str]] = set()

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
        may_be = may_be and not any(name in os.environ for name in NOTEBOOKS)
        return self.shown and may_be and self.console.is_terminal

    @cached_property
    def bar(self) -> Progress:
        """The line, with one task of `total` snippets."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.table import Column
        from rich.text import Text

        reporter = self

        class LeftColumn(ProgressColumn):
            """About how long is left."""

            max_refresh = 1.0

            def render(self, task: object) -> Text:
                return Text(reporter.left())

        bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            LeftColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            console=self.console,
            transient=True,
        )
        bar.add_task("", total=self.total)
        return bar

    def left(self) -> str:
        """About how long is left, in words; nothing before there is a plan, and at the end."""
        seconds = self.outlook.left() if self.outlook else 0.0
        return f"about {units.duration(seconds)} left" if seconds else ""

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

    def watch(self, outlook: Outlook) -> None:
        """Tell from now on what is left by `outlook`: in a log by a line every so often."""
        self.outlook = outlook
        if self.shown and not self.live and self._ticking is None:
            self._ticking = threading.Thread(target=self._tick, daemon=True)
            self._ticking.start()

    def _tick(self) -> None:
        while not self._over.wait(self.every):
            minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
            done = f"{self.done} of {self.total} done after {minutes}:{seconds:02}"
            words = ", ".join(filter(None, (done, self.left())))
            self.console.print(f"  {words}", markup=False, soft_wrap=True)

    def __call__(self, event: object) -> None:
        """Show one event."""
        if isinstance(event, Job):
            self._started(event)
        elif isinstance(event, Outlook):
            self.watch(event)
        elif isinstance(event, Plan):
            self.total = event.verdicts
            for line in planned.lines(event):
                self.console.print(line, markup=False, soft_wrap=True)
            if self.live:
                self.bar.update(self.bar.task_ids[0], total=self.total)
        elif isinstance(event, Verdict):
            self.active.pop(event.snippet, None)
            if event.state in ("passed", "failed"):
                self.done += 1
                if self.live:
                    self.bar.advance(self.bar.task_ids[0])
            if event.state != "left" and (event.state != "current" or event.told):
                self._verdict(event)
        if self.live:
            from rich.markup import escape

            names = [f"{phase} {key}" for key, phase in self.active.items()]
            self.bar.update(self.bar.task_ids[0], description=escape(", ".join(names[:3])))

    def _started(self, job: Job) -> None:
        phase = PHASES.get(job.do, job.do)
        self.active[job.key] = phase
        if self.live or job.do is Task.DESCRIBE or (phase, job.key) in self._told:
            return  # once a phase is enough, however many targets it has
        self._told.add((phase, job.key))
        self.console.print(f"  {phase:<9} {job.key}", markup=False, soft_wrap=True)

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
