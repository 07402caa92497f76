"""What a survey of the links found, as lines, as JSON and as Markdown.

Titles and addresses that the web gave are data. On a line they are made visible; in Markdown they
stand in `<code>` with every punctuation character as an entity, where neither markup nor a mention
of a person can come of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpshelf.core.findings import Finding, printable_line
from warpshelf.core.markup import escape_markdown
from warpshelf.links import health
from warpshelf.links.check_links import CheckResult, Link

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
