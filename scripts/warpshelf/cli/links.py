"""The commands that add a reading and check the links, and the report of what was found."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Exit, Option

from warpshelf.core.files import dump_json, write_atomically
from warpshelf.core.findings import Finding, ShelfError, printable_line
from warpshelf.core.markup import escape_markdown
from warpshelf.core.project import find_project
from warpshelf.links import check_links, health
from warpshelf.links.check_links import CheckResult, CheckServices

if TYPE_CHECKING:
    from warpshelf.edit.add_reading import AddedReading, NewReading
    from warpshelf.web.services import Endpoints, Metadata


# What a survey of the links found, as lines, as JSON and as Markdown. Titles and addresses that the
# web gave are data. On a line they are made visible; in Markdown they stand in `<code>` with every
# punctuation character as an entity, where neither markup nor a mention of a person comes of them.

# In the order in which they are shown; the first three need a person to fix them.
GROUPS = {
    "gone": "Gone",
    "moved": "Moved permanently",
    "title": "Different title",
    "failing": "Failing, not yet long enough to be gone",
    "unreachable": "No answer in several checks",
    "blocked": "Blocks programs",
}
MEND = ("gone", "moved", "title")
SAME_WORK = "check that it is the same work, then write the new address"
LARGEST = 60_000  # characters of a report; GitHub's issues take 65,536
Tell = Callable[[str, int, int], None]  # is told what is checked, how many are done, of how many


def collect_findings(survey: CheckResult) -> dict[str, list[Finding]]:
    """The findings by group, in the order of GROUPS."""
    found: dict[str, list[Finding]] = {group: [] for group in GROUPS}
    for link in survey.links:
        state = survey.health.get(link.url)
        if state is None or state.state not in GROUPS:
            continue
        since = f"since {state.since}" + (f", alive {state.last_alive}" if state.last_alive else "")
        copy = f"the archived copy {state.archived}" if state.archived else ""
        what, mend = {
            "gone": (
                f"is gone {since}: it {state.says}",
                "link another" + (copy and f", or {copy}"),
            ),
            "moved": (f"moved permanently to {state.moved_to}", SAME_WORK),
            "blocked": (f"blocks programs: it {state.says}", ""),
        }.get(state.state, (f"fails {since}: it {state.says}", copy and f"there is {copy}"))
        found[state.state].append(Finding(*link.where, f"{link.url} {what}", mend))
    for link in survey.misnamed_links:
        there, ours = survey.health[link.url].title_there, link.reading.title
        what = f"{link.url}: the page is titled {there!r}, the list says {ours!r}"
        found["title"].append(Finding(*link.where, what, "correct the address or the title"))
    return {group: sorted(own) for group, own in found.items() if own}


def report_lines(survey: CheckResult) -> list[str]:
    """The report for a terminal: groups with a line for each link, and a summary."""
    shown: list[str] = []
    for group, findings in collect_findings(survey).items():
        shown += [f"{GROUPS[group]}: {len(findings)}", *map(str, findings)]
    return [*shown, _summary_line(survey)]


def _summary_line(survey: CheckResult) -> str:
    alive = sum(state.state == "alive" for state in survey.health.values())
    count = len(survey.links)
    words = [f"{count} link" if count == 1 else f"{count} links"]
    words += [f"{alive} alive", f"{survey.asked} checked now"]
    if survey.fresh:
        words.append(f"{survey.fresh} seen alive recently and skipped")
    if survey.left:
        words.append(f"{survey.left} left for the next check")
    if survey.unread:
        words.append("lists with errors left out: see `shelf check`")
    return ", ".join(words)


def report_json(survey: CheckResult) -> dict[str, Any]:
    """The report for a program."""
    links = []
    for link in survey.links:
        places = [f"{r.path}:{r.line_of(*place)}" for r, place in link.places]
        state = survey.health.get(link.url)
        known = health.health_entry(state) if state else {}
        links.append({"url": link.url, "places": places, **known})
    findings = [
        {"group": group, **finding.__dict__, "fails": group in MEND}
        for group, own in collect_findings(survey).items()
        for finding in own
    ]
    counts = {"asked": survey.asked, "fresh": survey.fresh, "left": survey.left}
    return {**counts, "links": links, "findings": findings}


def _escape_github(text: str) -> str:
    """`escape_markdown(text)` where an address beginning with `www.` would become a link."""
    return escape_markdown(text).replace(".", "&#46;")


def report_markdown(survey: CheckResult, repository: str | None = None) -> str:
    """The report for an issue or a summary on GitHub, cut if it grows too long.

    `repository` is the project's address: with it, each place is a link to its line.
    """
    found, summary = collect_findings(survey), _summary_line(survey)
    blocks = [f"{summary[:1].upper()}{summary[1:]}."]
    if not found:
        blocks.append("Every link that was checked is alive.")
    for group, findings in found.items():
        rows = []
        for one in findings:
            place = f"{_escape_github(one.path)}&#58;{one.line}"
            if repository:
                address = _escape_github(f"{repository}/blob/main/{one.path}#L{one.line}")
                place = f'<a href="{address}">{place}</a>'
            words = printable_line(f"{one.what}; {one.mend}" if one.mend else one.what)
            rows.append(f"- {place}: <code>{_escape_github(words)}</code>")
        blocks.append(f"## {GROUPS[group]}: {len(findings)}\n\n" + "\n".join(rows))
    text = "\n\n".join(blocks)
    if len(text) > LARGEST:
        head = text[:LARGEST].rpartition("\n")[0]
        text = f"{head}\n\nThe rest is cut, as a longer report would not fit."
    return text + "\n"


links_app = typer.Typer(help="Add readings, and check their links.", no_args_is_help=True)


@links_app.callback()
def _links_group() -> None:
    """Readings: what docs/**/*.yml lists."""


@links_app.command("add")
def add_command(
    url: str = Argument(..., help="The address, https."),
    topic: str = Option(..., help="Where it belongs, such as kernels/softmax."),
    title: str | None = Option(None, help="As in the original."),
    title_en: str | None = Option(None, help="In English, if it is not."),
    kind: str | None = Option(None, help="paper, post, talk, code, docs, …"),
    author: list[str] | None = Option(None, help="One author; repeat it."),
    year: int | None = Option(None, help="When it was published."),
    venue: str | None = Option(None, help="Where it was published."),
    why: str | None = Option(None, help="What a reader knows after reading it."),
    rating: int | None = Option(None, help="1 to 4; 4 is the best."),
    level: str | None = Option(None, help="beginner, intermediate or advanced."),
    lang: str | None = Option(None, help="ISO 639-1; en by default."),
    tag: list[str] | None = Option(None, help="One tag; repeat it."),
    snippet: list[str] | None = Option(None, help="A snippet's id; repeat it."),
    needs: list[str] | None = Option(None, help="An id to read first; repeat it."),
    also: list[str] | None = Option(None, help="what=url, such as code=https://…; repeat it."),
    offline: bool = Option(False, "--offline", help="Do not use the network."),
    dry_run: bool = Option(False, "--dry-run", help="Print the entry; write nothing."),
    json_output: bool = Option(False, "--json", help="Print the entry as JSON."),
) -> None:
    """Add one reading to a topic's list.

    Title, authors, year and venue are looked up; options override what is found. In a terminal you
    are asked for the rest.
    """
    from warpshelf.edit import add_reading

    fields: dict[str, Any] = {
        "title": title, "title_en": title_en, "kind": kind, "authors": author, "year": year,
        "venue": venue, "why": why, "rating": rating, "level": level, "lang": lang, "tags": tag,
        "snippets": snippet, "needs": needs,
    }  # fmt: skip
    fields["also"] = [_parse_version(text) for text in also or []]
    new = add_reading.NewReading(find_project().root, topic, url)
    asks = _is_interactive() and not json_output
    found = None if offline else _fetch_metadata(new)
    if found and new.follow_move(found):
        _print_note(f"the page names another address for itself, used here: {new.url}")
    if found and (said := new.title_mismatch(found, title)):
        _print_note(said)
    if found and asks and found.about and not why:
        _print_note(f"its own summary: {found.about}")
    answers: dict[str, Any] = {}

    def keep_answers(*questions: Any) -> Any:
        answers.update(add_reading.ask_fields(*questions))
        return answers

    ask = keep_answers if asks else None
    try:
        entry = new.add_entry(fields=fields, metadata=found, ask=ask, dry=dry_run)
    except ShelfError:
        if answers:
            text = add_reading.dump_entry(answers, 0, "\n").rstrip()
            typer.echo(f"nothing was written; your answers were:\n{text}", err=True)
        raise
    _print_entry(entry, json_output, dry_run)


def _fetch_metadata(new: NewReading) -> Metadata | None:
    from warpshelf.web import fetch, lookup

    if _is_interactive():
        typer.echo(f"looking up {printable_line(new.url)}", err=True)
    try:
        with fetch.create_client() as client:
            found = lookup.lookup_work(new.url, client, _endpoints())
    except fetch.Unreachable as error:
        _print_note(f"the lookup failed: {error}")
        return None
    if found is None:
        _print_note("the address gave nothing to fill an entry with")
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

    match = re.fullmatch(r"\s*([a-z]+)\s*=(.*)", text, re.DOTALL)
    if match is None:
        mend = "write what=url, such as --also code=https://github.com/a/b"
        raise ShelfError(Finding("--also", None, f"is {text!r}", mend))
    what, url = match[1], match[2].strip()
    try:
        return {"what": what, "url": canonical_url(url, what in ("preprint", "published"))}
    except ValueError as error:
        raise ShelfError(Finding("--also", None, str(error), "write it as https://…")) from None


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
    file: Path = Argument(..., help="An issue's text, or GitHub's event that holds it (.json)."),
    report: Path | None = Option(None, help="Write the answer for GitHub into this file, as JSON."),
    offline: bool = Option(False, "--offline", help="Do not use the network."),
) -> None:
    """Add the reading of a filled-in form. A workflow runs this on an issue that was accepted."""
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
            write_atomically(report, dump_json(said))
        raise
    notes = form.review_notes(new, found)
    if report is not None:
        write_atomically(report, dump_json(forms.pull_request(entry, number, notes)))
    for note in notes:
        _print_note(note)
    _print_entry(entry, False, False)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@links_app.command("check")
def check_command(
    topic: str | None = Option(None, help="Only this list, such as kernels/softmax."),
    changed_since: str | None = Option(None, help="Only addresses added since this revision."),
    force: bool = Option(False, "--force", help="Also check links seen alive in the last days."),
    budget: float = Option(1800, min=1, help="Stop after so many seconds, to go on next time."),
    report: Path | None = Option(None, help="Write the report into this Markdown file as well."),
    as_json: bool = Option(False, "--json", help="Print JSON on standard output."),
) -> None:
    """Check whether the links still work, and record it in docs/links.json.

    Ends with 1 if a link is gone, has moved permanently or leads to another work; a link that fails
    for now is shown, and is no failure yet.
    """
    from warpshelf.site import project_content

    project, urls = find_project(), None
    if changed_since is not None:
        urls = check_links.urls_since(project.root, changed_since)
    if topic:
        topic = topic.strip().strip("/").removeprefix("docs/")
        topic = topic.removesuffix(".yml").removesuffix(".md")
    asked: dict[str, Any] = {"topic": topic, "urls": urls, "force": force, "budget": budget}
    with _show_progress() as tell:
        found = check_links.run_check(project.root, check_services(tell), **asked)
    if report is not None:
        repository = project_content.read_settings(project)[0].repository
        write_atomically(report, report_markdown(found, repository))
    if as_json:
        print(json.dumps(report_json(found), indent=1, ensure_ascii=False))
    else:
        print("\n".join(report_lines(found)))
    if set(MEND) & collect_findings(found).keys():
        raise Exit(1)


def check_services(tell: Tell) -> CheckServices:
    """What the web is asked through; tests put their own here."""
    return CheckServices(tell=tell)


@contextmanager
def _show_progress() -> Iterator[Tell]:
    """A line on a terminal that says how far the check is; nothing in a log."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, emoji=False)
    if not console.is_terminal:
        yield lambda what, done, of: None
        return
    with console.status("checking the links") as status:
        yield lambda what, done, of: status.update(f"checking the {what}: {done} of {of}")
