"""What a run shows while it goes: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column

from warpshelf.pool import Job
from warpshelf.run import Verdict

PHASES = {
    "verify_snippet": "verifying",
    "compile_snippet": "compiling",
    "time_snippet": "timing",
    "describe_machine": "looking at the machine",
}
MARKS = {
    "passed": "[green]passed [/]",
    "failed": "[red]failed [/]",
    "skipped": "[yellow]skipped[/]",
    "left": "[yellow]left   [/]",
    "current": "[dim]current[/]",
}


class Reporter:
    """Hears the events of a run. A context manager; quiet where `shown` is False."""

    def __init__(self, total: int, shown: bool = True) -> None:
        self.console = Console(stderr=True, highlight=False, emoji=False, quiet=not shown)
        self.live = self.console.is_terminal and shown
        self.bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            console=self.console,
            transient=True,
            disable=not self.live,
        )
        self.task = self.bar.add_task("", total=total)
        self.active: dict[str, str] = {}

    def __enter__(self) -> Reporter:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, event: object) -> None:
        """Show one event."""
        if isinstance(event, Job):
            phase = PHASES.get(event.do, event.do)
            self.active[event.key] = phase
            if not self.live and event.do != "describe_machine":
                self.console.print(f"  {phase:<9} {event.key}", markup=False, soft_wrap=True)
        elif isinstance(event, Verdict):
            self.active.pop(event.snippet, None)
            self.bar.advance(self.task)
            self._verdict(event)
        names = [f"{phase} {key}" for key, phase in self.active.items()]
        self.bar.update(self.task, description=escape(", ".join(names[:3])))

    def _verdict(self, verdict: Verdict) -> None:
        if verdict.state == "current":
            return
        took = f" {verdict.seconds:.1f} s" if verdict.seconds else ""
        note = f" [dim]{escape(verdict.note)}[/]" if verdict.note else ""
        line = f"{MARKS[verdict.state]} {escape(verdict.snippet)}{took}{note}"
        self.console.print(line, soft_wrap=True)
        for finding in verdict.findings:
            self.console.print(str(finding), markup=False, soft_wrap=True)
