"""The command `shelf links check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpshelf.core.project import find

if TYPE_CHECKING:
    from warpshelf.links.survey import Means


def check_command(
    topic: Annotated[
        str | None, typer.Option(help="Only this list, such as kernels/softmax.")
    ] = None,
    changed_since: Annotated[
        str | None, typer.Option(help="Only addresses that this Git revision does not have.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Ask also what was seen alive in the last days.")
    ] = False,
    budget: Annotated[
        float, typer.Option(min=1, help="Stop after so many seconds; the rest comes next time.")
    ] = 1800,
    report: Annotated[
        Path | None, typer.Option(help="Write the report into this Markdown file as well.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Answer in JSON on standard output.")
    ] = False,
) -> None:
    """Ask the web whether the links still live, and record it in docs/links.json.

    Ends with 1 if a link is gone, has moved for good or leads to another work; a link that fails
    for now is shown, and is no failure yet.
    """
    from warpshelf.core.files import write_atomically
    from warpshelf.links import report as reports
    from warpshelf.links import survey
    from warpshelf.site import holdings

    project = find()
    urls = survey.since(project.root, changed_since) if changed_since is not None else None
    options = survey.Options(topic and _plain(topic), urls, force, budget)
    with Progress() as progress:
        found = survey.take(project.root, options, means(progress))
    if report is not None:
        write_atomically(
            report, reports.markdown(found, holdings.read_settings(project)[0].repository)
        )
    if as_json:
        print(json.dumps(reports.document(found), indent=1, ensure_ascii=False))
    else:
        print("\n".join(reports.lines(found)))
    if any(remark.group in reports.MEND for remark in reports.remarks(found)):
        raise typer.Exit(1)


def means(tell: Progress) -> Means:
    """What the web is asked through; tests put their own here."""
    from warpshelf.links import survey

    return survey.Means(tell=tell)


def _plain(topic: str) -> str:
    return topic.strip().strip("/").removeprefix("docs/").removesuffix(".yml").removesuffix(".md")


class Progress:
    """A line on a terminal that says how far the check is; nothing in a log."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, emoji=False)
        self.status: Any = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.status = self.console.status("asking for the links")
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def __call__(self, what: str, done: int, of: int) -> None:
        """Show that `done` of `of` are done."""
        if self.status is not None:
            self.status.update(f"asking for the {what}: {done} of {of}")
