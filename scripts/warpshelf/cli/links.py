"""The commands that add a reading and check the links, and the report of what was found."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpshelf.core.findings import Finding, ShelfError, printable_line
from warpshelf.core.markup import escape_markdown
from warpshelf.core.project import find_project
from warpshelf.links import health
from warpshelf.links.check_links import CheckResult, Link

if TYPE_CHECKING:
    from warpshelf.edit.add_reading import AddedReading, Ask, NewReading
    from warpshelf.links.check_links import CheckServices
    from warpshelf.web.services import Endpoints, Metadata


# What a survey of the links found, as lines, as JSON and as Markdown.
#
# Titles and addresses that the web gave are data. On a line they are made visible; in Markdown
# they stand in `<code>` with every punctuation character as an entity, where neither markup nor a
# mention of a person can come of them.

# In the order in which they are shown; the first three are for somebody to mend.
GROUPS = {
    "gone": "Gone",
    "moved": "Moved for good",
    "title": "Another title there",
    "failing": "Failing, too short to call gone",
    "unreachable": "No answer, check after check",
    "blocked": "Turned away as a program",
}
MEND = ("gone", "moved", "title")
LARGEST = 60_000  # characters of a report; GitHub's issues take 65,536


@dataclass(frozen=True)
class Remark:
    """One thing to say of one link."""

    group: str
    link: Link
    what: str
    mend: str

    @property
    def finding(self) -> Finding:
        """It as a finding, at the place that names the link."""
        path, line = self.link.where
        return Finding(path, line, self.what, self.mend)


def collect_remarks(survey: CheckResult) -> list[Remark]:
    """What there is to say, group by group."""
    found = [
        _state_remark(link, survey.health[link.url])
        for link in survey.links
        if link.url in survey.health
    ]
    found += [_title_remark(link, survey.health[link.url]) for link in survey.mistitled]
    order = list(GROUPS)
    return sorted(
        filter(None, found), key=lambda remark: (order.index(remark.group), remark.finding)
    )


def _state_remark(link: Link, state: health.Health) -> Remark | None:
    url = link.url
    days = f"since {state.since}" + (f", alive {state.last_alive}" if state.last_alive else "")
    copy = f"the archived copy {state.archived}" if state.archived else ""
    if state.state == "gone":
        what = f"{url} is gone {days}: it {state.says}"
        return Remark("gone", link, what, f"link another, or {copy}" if copy else "link another")
    if state.state == "moved":
        what = f"{url} moved for good to {state.moved_to}"
        return Remark(
            "moved", link, what, "see that it is the same work, and write the new address"
        )
    if state.state in ("failing", "unreachable"):
        what = f"{url} fails {days}: it {state.says}"
        return Remark(state.state, link, what, f"there is {copy}" if copy else "")
    if state.state == "blocked":
        return Remark("blocked", link, f"{url} turns programs away: it {state.says}", "")
    return None


def _title_remark(link: Link, state: health.Health) -> Remark:
    what = f"{link.url}: the title there is {state.title_there!r}, ours {link.reading.title!r}"
    return Remark("title", link, what, "correct the address, or the title")


def report_lines(survey: CheckResult) -> list[str]:
    """The report for a terminal: groups with a line for each link, and what was done."""
    shown: list[str] = []
    group = None
    found = collect_remarks(survey)
    for remark in found:
        if remark.group != group:
            group = remark.group
            count = sum(other.group == group for other in found)
            shown.append(f"{GROUPS[group]}: {count}")
        shown.append(str(remark.finding))
    return [*shown, summary_line(survey)]


def summary_line(survey: CheckResult) -> str:
    """What was done, in a line."""
    alive = sum(state.state == "alive" for state in survey.health.values())
    count = len(survey.links)
    words = [
        f"{count} link" if count == 1 else f"{count} links",
        f"{alive} alive",
        f"{survey.asked} asked now",
    ]
    if survey.fresh:
        words.append(f"{survey.fresh} seen alive lately and not asked")
    if survey.left:
        words.append(f"{survey.left} left for the next check")
    if survey.unread:
        words.append("and lists with faults, whose links are not here: see `shelf check`")
    return ", ".join(words)


def report_json(survey: CheckResult) -> dict[str, Any]:
    """The report for a program."""
    links = []
    for link in survey.links:
        places = [f"{r.path}:{r.line_of(*place)}" for r, place in link.places]
        state = survey.health.get(link.url)
        links.append(
            {"url": link.url, "places": places, **(health.health_entry(state) if state else {})}
        )
    findings = [
        {"group": remark.group, **remark.finding.__dict__, "fails": remark.group in MEND}
        for remark in collect_remarks(survey)
    ]
    counts = {"asked": survey.asked, "fresh": survey.fresh, "left": survey.left}
    return {**counts, "links": links, "findings": findings}


def report_markdown(survey: CheckResult, repository: str | None = None) -> str:
    """The report for an issue or a summary on GitHub, cut where it would grow too long.

    `repository` is the project's address: with it, each place is a link to its line.
    """
    found = collect_remarks(survey)
    blocks = [f"{summary_line(survey)[:1].upper()}{summary_line(survey)[1:]}."]
    if not found:
        blocks.append("Every link that was looked at is alive.")
    for group, heading in GROUPS.items():
        mine = [remark for remark in found if remark.group == group]
        if mine:
            rows = [_remark_row(remark, repository) for remark in mine]
            blocks.append(f"## {heading}: {len(mine)}\n\n" + "\n".join(rows))
    text = "\n\n".join(blocks)
    if len(text) > LARGEST:
        head = text[:LARGEST].rpartition("\n")[0]
        text = f"{head}\n\nThe rest is left out, since a longer report would not fit."
    return text + "\n"


def _remark_row(remark: Remark, repository: str | None) -> str:
    path, line = remark.link.where
    place = f"{escape_markdown(path)}&#58;{line}"
    if repository:
        place = f'<a href="{escape_markdown(f"{repository}/blob/main/{path}#L{line}")}">{place}</a>'
    words = f"{remark.what}; {remark.mend}" if remark.mend else remark.what
    return f"- {place}: <code>{escape_markdown(printable_line(words))}</code>"


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
    from warpshelf.site import project_content

    project = find_project()
    urls = (
        check_links.urls_since(project.root, changed_since) if changed_since is not None else None
    )
    topic = topic and _topic_name(topic)
    with Progress() as progress:
        found = check_links.run_check(
            project.root, check_services(progress),
            topic=topic, urls=urls, force=force, budget=budget,
        )  # fmt: skip
    if report is not None:
        write_atomically(
            report,
            report_markdown(found, project_content.read_settings(project)[0].repository),
        )
    if as_json:
        print(json.dumps(report_json(found), indent=1, ensure_ascii=False))
    else:
        print("\n".join(report_lines(found)))
    if any(remark.group in MEND for remark in collect_remarks(found)):
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
