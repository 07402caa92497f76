"""`shelf run --on ADDRESS`: a run spread over the machines of a Ray cluster.

Enters: what was typed. Leaves: progress and what was wrong on standard error, an exit status.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from warpshelf.bench import stopping
from warpshelf.bench.plan import Options
from warpshelf.cli import console
from warpshelf.cli.console import Reporter
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project
from warpshelf.fleet.cluster import FORM, LOCAL
from warpshelf.fleet.run_cluster import Due, Fleet, Said

OUT = Path("records.json")  # where all goes unless told; version control leaves it alone


def validate_address(text: str) -> str:
    """An address in a form that Ray takes; another one is wrong usage."""
    host, colon, port = text.removeprefix("ray://").rpartition(":")
    if text not in (LOCAL, "auto") and not (host and colon and port.isdigit()):
        raise typer.BadParameter(f"{text!r} is no address; write {FORM}", param_hint="--on")
    return text


def parse_kinds(text: str | None) -> tuple[str, ...] | None:
    """The kinds of a list such as `H100,A100`; None for all that there are."""
    if text is None:
        return None
    kinds = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    if not kinds:
        what = "names none; write accelerators as Ray does: H100,A100"
        raise typer.BadParameter(what, param_hint="--kinds")
    return kinds


def run_on_cluster(
    project: Project,
    picked: list[Snippet],
    where: tuple[str, str | None],
    options: Options,
    plan: bool,
    as_json: bool,
    words: Sequence[str],
) -> int:
    """Run on the cluster and the kinds of `where`, or only say what would; the exit status.

    `words` is the command line, for who goes on with it.
    """
    address, kinds = validate_address(where[0]), parse_kinds(where[1])
    options.out = out = options.out or OUT
    status = 0
    with Reporter(len(picked)) as reporter:

        def show_event(event: object) -> None:
            if isinstance(event, Said):
                reporter.console.print(event.line, markup=False, soft_wrap=True)
            elif isinstance(event, Due):
                reporter.total = event.items
                if reporter.live:
                    reporter.bar.update(reporter.bar.task_ids[0], total=event.items)
            else:
                reporter(event)

        fleet = Fleet(project, options, kinds, show_event)
        try:
            with stopping.raise_on_signal():
                fleet.run_stale(picked, address, plan)
        except stopping.Stopped as stop:
            fleet.mark_left(f"it was stopped by {stop.name}")
            status = stop.status
    if as_json:
        print(console.verdicts_json(fleet.verdicts))
    said = console.left_lines(fleet.verdicts, words)
    said += console.hand_in_lines(out, fleet.kept)
    said += ["nothing was run"] if plan else console.summary_lines(fleet.verdicts)
    for line in said:
        sys.stderr.write(f"{line}\n")
    failed = any(verdict.state == "failed" for verdict in fleet.verdicts)
    return status or int(failed or bool(fleet.findings))
