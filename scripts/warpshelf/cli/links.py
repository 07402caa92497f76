"""The commands that add a reading, from flags and the web, from answers, or from a form;
and the one that checks the links of all.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpshelf.core.findings import Finding, ShelfError, printable_line
from warpshelf.core.project import find_project

# What adds a reading needs the extra `pages`; other commands start without it, and sooner.
if TYPE_CHECKING:
    from warpshelf.edit.add_reading import AddedReading, Ask, NewReading
    from warpshelf.links.check_links import CheckServices
    from warpshelf.web.services import Endpoints, Metadata

links_app = typer.Typer(help="Add readings, and check their links.", no_args_is_help=True)


@links_app.callback()
def _links_group() -> None:
    """Readings: what docs/**/*.yml lists."""


@links_app.command("add")
def add_command(
    url: Annotated[str, typer.Argument(help="The address, https.")],
    topic: Annotated[str, typer.Option(help="Where it belongs, such as kernels/softmax.")],
    title: Annotated[str | None, typer.Option(help="As in the original.")] = None,
    title_en: Annotated[str | None, typer.Option(help="In English, if it is not.")] = None,
    kind: Annotated[str | None, typer.Option(help="paper, post, talk, code, docs, …")] = None,
    author: Annotated[list[str] | None, typer.Option(help="One author; repeat it.")] = None,
    year: Annotated[int | None, typer.Option(help="When it was published.")] = None,
    venue: Annotated[str | None, typer.Option(help="Where it was published.")] = None,
    why: Annotated[str | None, typer.Option(help="What one knows after reading it.")] = None,
    rating: Annotated[int | None, typer.Option(help="1 to 4, 4 most recommended.")] = None,
    level: Annotated[str | None, typer.Option(help="beginner, intermediate or advanced.")] = None,
    lang: Annotated[str | None, typer.Option(help="ISO 639-1; en unless given.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="One tag; repeat it.")] = None,
    snippet: Annotated[list[str] | None, typer.Option(help="A snippet's id; repeat it.")] = None,
    needs: Annotated[list[str] | None, typer.Option(help="An id to read first; repeat it.")] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="what=url, such as code=https://…; repeat it.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask the web for nothing.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the entry; write nothing.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the entry as JSON.")] = False,
) -> None:
    """Add one reading to a topic's list.

    Title, authors, year and venue are looked up; options go before what is found. In a terminal the
    rest is asked for.
    """
    from warpshelf.edit import add_reading
    from warpshelf.edit.add_reading import NewReading

    fields: dict[str, Any] = {
        "title": title, "title_en": title_en, "kind": kind, "authors": author, "year": year,
        "venue": venue, "why": why, "rating": rating, "level": level, "lang": lang, "tags": tag,
        "snippets": snippet, "needs": needs,
    }  # fmt: skip
    fields["also"] = [_parse_version(text) for text in also or []]
    ask = add_reading.ask_fields if _is_interactive() and not json_output else None
    entry = _add_entry(NewReading(find_project().root, topic, url), fields, ask, offline, dry_run)
    _print_entry(entry, json_output, dry_run)


def _add_entry(
    new: NewReading, fields: dict[str, Any], ask: Ask | None, offline: bool, dry: bool
) -> AddedReading:
    from warpshelf.edit.add_reading import dump_entry

    found = None if offline else _fetch_metadata(new)
    if found and new.follow_move(found):
        _print_note(f"its own address is another, and that is taken: {new.url}")
    if found and (said := new.title_mismatch(found, fields.get("title"))):
        _print_note(said)
    if found and ask and found.about and not fields.get("why"):
        _print_note(f"it says of itself: {found.about}")
    answers: dict[str, Any] = {}

    def keep_answers(*questions: Any) -> Any:
        answers.update(ask(*questions) if ask else {})
        return answers

    try:
        return new.add_entry(fields=fields, metadata=found, ask=ask and keep_answers, dry=dry)
    except ShelfError:
        if answers:
            text = dump_entry(answers, 0, "\n").rstrip()
            typer.echo(f"nothing was written; these were the answers:\n{text}", err=True)
        raise


def _fetch_metadata(new: NewReading) -> Metadata | None:
    from warpshelf.web import fetch, lookup

    if _is_interactive():
        typer.echo(f"looking up {printable_line(new.url)}", err=True)
    try:
        with fetch.create_client() as client:
            found = lookup.lookup_work(new.url, client, _endpoints())
    except fetch.Unreachable as error:
        _print_note(f"nothing was looked up: {error}")
        return None
    if found is None:
        _print_note("nothing was found at the address that an entry could hold")
    return found


def _endpoints() -> Endpoints:
    """Where to look things up; tests put their own here."""
    from warpshelf.web import lookup

    return lookup.WEB


def _print_note(text: str) -> None:
    typer.echo(f"note: {printable_line(text)}", err=True)


def _parse_version(text: str) -> dict[str, str]:
    """`code=https://…` as an entry's `also` holds it."""
    from warpshelf.readings.identity import canonical_url

    what, equals, url = text.partition("=")
    if not equals or not re.fullmatch(r"\s*[a-z]+\s*", what):
        mend = "write what=url, such as --also code=https://github.com/a/b"
        raise ShelfError(Finding("--also", None, f"is {text!r}", mend))
    try:
        url = canonical_url(url.strip(), what.strip() in ("preprint", "published"))
    except ValueError as error:
        raise ShelfError(Finding("--also", None, str(error), "write it as https://…")) from None
    return {"what": what.strip(), "url": url}


def _print_entry(entry: AddedReading, as_json: bool, dry: bool) -> None:
    if as_json:
        said = entry.reading.model_dump(exclude_defaults=True)
        said |= {"path": entry.path, "line": entry.line}
        typer.echo(json.dumps(said, ensure_ascii=False))
    else:
        if not dry:
            typer.echo(f"{entry.path}:{entry.line}: added {entry.reading.id!r}")
        typer.echo("\n".join(printable_line(line) for line in entry.text.splitlines()))
    for note in entry.notes:
        typer.echo(str(note), err=True)


@links_app.command("from-form")
def from_form_command(
    file: Annotated[
        Path, typer.Argument(help="An issue's text, or the event of GitHub that holds it (.json).")
    ],
    report: Annotated[
        Path | None, typer.Option(help="Write what to tell GitHub into this file, as JSON.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask the web for nothing.")] = False,
) -> None:
    """Add the reading of a filled-in form. A workflow runs this on an issue that was accepted."""
    from warpshelf.core import files
    from warpshelf.edit import forms

    number, text = forms.read_issue(file)
    new = None
    try:
        form = forms.parse_form(text)
        new = form.new_reading(find_project().root)
        found = None if offline else _fetch_metadata(new)
        entry = new.add_entry(fields=form.fields, metadata=found)
    except ShelfError as error:
        if report is not None:
            said = forms.refusal_comment(error.findings, new.path if new else None)
            files.write_atomically(report, files.dump_json(said))
        raise
    notes = form.review_notes(new, found)
    if report is not None:
        files.write_atomically(report, files.dump_json(forms.pull_request(entry, number, notes)))
    for note in notes:
        _print_note(note)
    _print_entry(entry, False, False)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@links_app.command("check")
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
    from warpshelf.links import check_links
    from warpshelf.links import report as reports
    from warpshelf.site import project_content

    project = find_project()
    urls = (
        check_links.urls_since(project.root, changed_since) if changed_since is not None else None
    )
    options = check_links.CheckOptions(topic and _topic_name(topic), urls, force, budget)
    with Progress() as progress:
        found = check_links.run_check(project.root, options, check_services(progress))
    if report is not None:
        write_atomically(
            report,
            reports.report_markdown(found, project_content.read_settings(project)[0].repository),
        )
    if as_json:
        print(json.dumps(reports.report_json(found), indent=1, ensure_ascii=False))
    else:
        print("\n".join(reports.report_lines(found)))
    if any(remark.group in reports.MEND for remark in reports.collect_remarks(found)):
        raise typer.Exit(1)


def check_services(tell: Progress) -> CheckServices:
    """What the web is asked through; tests put their own here."""
    from warpshelf.links import check_links

    return check_links.CheckServices(tell=tell)


def _topic_name(topic: str) -> str:
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
