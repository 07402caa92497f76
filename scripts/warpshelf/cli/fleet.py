"""`shelf run --on ADDRESS`: a run spread over the machines of a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import typer

from warpshelf.bench.run import Verdict
from warpshelf.cli.console import Reporter
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project
from warpshelf.fleet.cluster import FORM, LOCAL
from warpshelf.fleet.drive import Fleet, Options, Said

OUT = Path("records.json")  # where all goes unless told; version control leaves it alone


def address_of(text: str) -> str:
    """An address in a form that Ray takes; another one is wrong usage."""
    host, colon, port = text.removeprefix("ray://").rpartition(":")
    if text not in (LOCAL, "auto") and not (host and colon and port.isdigit()):
        raise typer.BadParameter(f"{text!r} is no address of a cluster; write {FORM}")
    return text


def kinds_of(text: str | None) -> tuple[str, ...] | None:
    """The kinds of a list such as `H100,A100`; None for all that there are."""
    if text is None:
        return None
    kinds = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    if not kinds:
        raise typer.BadParameter("--kinds names none; write accelerators as Ray does: H100,A100")
    return kinds


def run(
    project: Project, picked: list[Snippet], address: str, options: Options
) -> tuple[list[Verdict], bool]:
    """Run on a fleet, and show it; the verdicts, and whether anything was wrong with the fleet."""
    with Reporter(len(picked)) as reporter:

        def hear(event: object) -> None:
            if isinstance(event, Said):
                reporter.console.print(event.line, markup=False, soft_wrap=True)
            else:
                reporter(event)

        fleet = Fleet(project, options, hear)
        verdicts = fleet.over(picked, address)
        if any(verdict.state == "passed" for verdict in verdicts):
            line = (
                f"all records are in {options.out}; put them in place: shelf import {options.out}"
            )
            hear(Said(line, wrong=False))
    return verdicts, bool(fleet.findings)
