"""The order in which to read and run what a goal needs, by `needs`, and how long it takes.

A page under docs/paths/ names its goals, in stages, in its front matter:

    path:
      - stage: Move bytes well
        pages: [kernels/memory-bandwidth]
        goals: [stream-benchmark, vectorized-access]

A stage begins with its pages, which are ours. What those readings need, directly or not, is put
before them, each once, at the stage that asks for it first. After a reading stand the snippets that
run its idea, each once. The minutes of a step are counted for a page of ours and estimated for a
reading, with "about". `data-step` names a step the same way on every path, so that a browser which
remembers what was ticked ticks it everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from warpshelf.core import files
from warpshelf.core.findings import Finding
from warpshelf.core.markup import escape_markdown, quote_attribute, quote_href
from warpshelf.core.pages import FRONT, Page
from warpshelf.readings.entries import suggest_match
from warpshelf.readings.model import Reading, Shelf
from warpshelf.render import listings
from warpshelf.render.snippet_page import SnippetPage

FOLDER = "paths/"
ABSENT = "This path is not shown because its front matter has a fault."
STAGE = {"stage": str, "goals": [str], "pages?": [str]}
MEND = "write path as a list of `- stage: …` with `goals: [reading-id, …]` and, if any, `pages:`"


class Step(NamedTuple):
    """One reading, why it is here (the readings that need it; none for a goal), what to run."""

    reading: Reading
    asked_by: tuple[Reading, ...] = ()
    snippets: tuple[str, ...] = ()


class Stage(NamedTuple):
    """A part of a path, with its own title: pages of ours, then readings."""

    title: str
    pages: Sequence[Page] = ()
    steps: Sequence[Step] = ()


def build_paths(
    pages: Mapping[str, Page], shelf: Shelf
) -> tuple[dict[str, list[Stage]], list[Finding]]:
    """The path of each page that has one, empty where it cannot be built, and what is wrong."""
    built: dict[str, list[Stage]] = {}
    findings: list[Finding] = []
    for where, page in pages.items():
        if "path" in page.meta:
            faults = list(_check_path(page, shelf, pages))
            findings += faults
            # A page whose path is wrong is built all the same, without its steps.
            built[where] = [] if faults else _build_stages(page.meta["path"], shelf, pages)
    return built, findings


def _check_path(page: Page, shelf: Shelf, pages: Mapping[str, Page]) -> Iterator[Finding]:
    top = page.find_line(lambda line: line.startswith("path:"))
    stages = page.meta["path"]
    if not page.where.startswith(FOLDER):
        what = f"has a path, but is not under docs/{FOLDER}"
        yield Finding(page.path, top, what, f"move the page to docs/{FOLDER}")
    if not isinstance(stages, list) or not stages:
        yield Finding(page.path, top, "path is not a list of stages", MEND)
        return
    ids, no_id = shelf.readings.keys() | shelf.refused, "which is not the id of a reading"
    no_page = "which is not a page below docs/"
    named: set[str] = set()
    for number, stage in enumerate(stages, 1):
        place = f"stage {number} of path"
        if flaw := files.shape_problem(stage, STAGE, place):
            yield Finding(page.path, top, flaw, MEND)
            continue
        if not stage["goals"]:
            yield Finding(page.path, top, f"{place} has no goals", MEND)
        names: list[tuple[str, Collection[str], Collection[str], str]]
        names = [(name, ids, shelf.readings, no_id) for name in stage["goals"]]
        names += [(name, pages, pages, no_page) for name in stage.get("pages", ())]
        for name, known, near, why in names:
            word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
            lines = enumerate(page.text.splitlines(), 1)
            line = next((n for n, text in lines if word.search(text)), top)
            if name in named:
                yield Finding(page.path, line, f"names {name!r} twice", "remove one")
            elif name not in known:
                what = f"path names {name!r}, {why}"
                yield Finding(page.path, line, what, suggest_match(name, near))
            named.add(name)


def _build_stages(
    stages: list[dict[str, Any]], shelf: Shelf, pages: Mapping[str, Page]
) -> list[Stage]:
    goals = [goal for stage in stages for goal in stage["goals"]]
    wanted = [shelf.readings[name] for name in sorted(_extend_order(goals, shelf, {}))]
    order: dict[str, None] = {}
    ran: set[str] = set()
    built = []
    for stage in stages:
        steps = []
        for name in _extend_order(stage["goals"], shelf, order):
            reading = shelf.readings[name]
            needing = () if name in goals else (one for one in wanted if name in one.needs)
            snippets = tuple(one for one in reading.snippets if one not in ran)
            ran.update(snippets)
            steps.append(Step(reading, tuple(needing), snippets))
        own = [pages[where] for where in stage.get("pages", ())]
        built.append(Stage(stage["stage"], own, steps))
    return built


def _extend_order(goals: list[str], shelf: Shelf, order: dict[str, None]) -> list[str]:
    """Put the goals and all they need into `order`, needs first, and return the names that are new.

    The order is that of the goals otherwise. A goal that a finding kept off the shelf is left out.
    """
    known = len(order)
    entered: set[str] = set()
    for goal in goals:
        # A stack of our own: a list may need more than Python's recursion allows.
        trail = [goal] if goal in shelf.readings else []
        while trail:
            name = trail[-1]
            entered.add(name)
            needs = (one for one in shelf.readings[name].needs if one in shelf.readings)
            waiting = None if name in order else next((n for n in needs if n not in entered), None)
            if waiting is None:
                order.setdefault(name)
                trail.pop()
            else:
                trail.append(waiting)
    return list(order)[known:]


WORDS = 120  # a minute, of prose that is thought about
LINES = 10  # a minute, of code that is understood
RUN = 3  # to start a snippet and look at what it prints
MINUTES = {
    "paper": 90, "post": 30, "talk": 60, "code": 60, "docs": 30, "course": 600, "book": 900,
    "tool": 20, "site": 60,
}  # fmt: skip
MANY = 20  # minutes from which on only every fifth is told
INCLUDE = re.compile(r'^[ \t]*-+8<-+[ \t]+"(?P<target>[^"\n]+)"[ \t]*$', re.M)
FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<code>.*?)^[ \t]*(?P=fence)", re.M | re.S
)
LIST = re.compile(r"^## Readings\b.*", re.M | re.S)  # what is read elsewhere
TAG = re.compile(r"<[^>]*>")
WORD = re.compile(r"\w[\w’'-]*")


def minutes_of_page(page: Page, shown: Mapping[str, SnippetPage]) -> int:
    """Minutes for one of our pages, by its words and the code that it shows."""
    text = LIST.sub("", FRONT.sub("", page.text, count=1))
    code = sum(_count_lines(found["code"]) for found in FENCE.finditer(text))
    for found in INCLUDE.finditer(text):
        name, _, section = found["target"].partition(":")
        first, _, file = name.partition("/")
        if (snippet := shown.get(first)) is None:
            continue
        texts = [one.text for one in snippet.code if one.name == file]
        if file in ("whole.md", "code.md"):
            code += opening_lines(snippet)
        elif texts and section in listings.section_names(texts[0]):
            code += _count_lines(listings.extract_section(texts[0], section))
    prose = TAG.sub(" ", INCLUDE.sub(" ", FENCE.sub(" ", text)))
    return max(1, round(len(WORD.findall(prose)) / WORDS + code / LINES))


def minutes_of_reading(reading: Reading) -> int:
    """Minutes for a reading: those of its entry, or those of its kind."""
    return reading.minutes or MINUTES[reading.kind]


def opening_lines(snippet: SnippetPage) -> int:
    """Lines of code that a page shows of a snippet before anything is unfolded."""
    total = 0
    for one in (file for file in snippet.code if file.label):
        first = listings.open_section(one.text, snippet.kind)
        total += _count_lines(listings.extract_section(one.text, first) if first else one.text)
    return total


def _count_lines(code: str) -> int:
    included = INCLUDE.sub("", code)  # counted where it is embedded
    return sum(bool(line.strip()) for line in included.split("\n"))


def format_minutes(minutes: int) -> str:
    """In words: `7 min`, `1 h 30 min`, `12 h`."""
    rounded = minutes if minutes < MANY else 5 * round(minutes / 5)
    hours, rest = divmod(rounded, 60)
    if hours >= 10:  # over so long, minutes are no help
        return f"{round(rounded / 60)} h"
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest or not hours))


def minutes_rule() -> str:
    """The fragment `paths/minutes.md`: how the minutes of a step are made."""
    kinds = ", ".join(f"{format_minutes(took)} for a {kind}" for kind, took in MINUTES.items())
    kinds = kinds.replace("a docs", "a manual's section").replace("for a code", "for a repository")
    return (
        f"Minutes of our own pages are counted at {WORDS} words or {LINES} lines of code a minute,"
        " without the list of readings. The minutes of a reading are an estimate, from its entry or"
        f" its kind: {kinds}. Running a snippet takes {RUN} minutes more than reading what its page"
        " shows of it.\n"
    )


def render_paths(
    built: Mapping[str, list[Stage]],
    snippet_pages: Mapping[str, str],
    snippets: Sequence[SnippetPage] = (),
) -> dict[str, str]:
    """The steps of each path, by name below the fragments: `paths/serving-an-llm.md`."""
    shown = {one.id: one for one in snippets}
    texts = {"paths/minutes.md": minutes_rule()}
    for where, stages in built.items():
        texts[f"{where}.md"] = _render_path(stages, snippet_pages, shown)
    return texts


def _render_path(
    stages: list[Stage], snippet_pages: Mapping[str, str], shown: Mapping[str, SnippetPage]
) -> str:
    if not stages:
        return f'<p class="ws-absent">{ABSENT}</p>\n'
    blocks: list[str] = []
    total, number = 0, 1
    for stage in stages:
        rows = [_page_step(page, shown) for page in stage.pages]
        rows += [_reading_step(step, snippet_pages, shown) for step in stage.steps]
        minutes = sum(takes for takes, _ in rows)
        if rows:
            opening = f'<ol class="ws-path" start="{number}" markdown>'
            blocks += [
                f"### {escape_markdown(stage.title)}",
                f'<p class="ws-stage">about {format_minutes(minutes)}</p>',
                "\n".join([opening, *(row for _, row in rows), "</ol>"]),
            ]
        total += minutes
        number += len(rows)
    steps = [step for stage in stages for step in stage.steps]
    counts = (
        (sum(len(stage.pages) for stage in stages), "page here", "pages here"),
        (len(steps), "reading", "readings"),
        (sum(len(step.snippets) for step in steps), "snippet to run", "snippets to run"),
    )
    said = ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)
    head = f'<p class="ws-total" data-walk="{total}">{said}: about {format_minutes(total)}.</p>'
    return "\n\n".join([head, *blocks]) + "\n"


def _page_step(page: Page, shown: Mapping[str, SnippetPage]) -> tuple[int, str]:
    """The minutes of a page of ours, and its element."""
    minutes = minutes_of_page(page, shown)
    title = escape_markdown(str(page.meta.get("title") or page.where))
    lines = [
        f'<p class="ws-reading-title" markdown>[{title}](/{page.where}.md)</p>',
        f'<p class="ws-reading-source">page here · {format_minutes(minutes)}</p>',
    ]
    if page.description:
        lines.append(f'<p class="ws-reading-why">{escape_markdown(page.description)}</p>')
    return minutes, _step_item(f"page:{page.where.removesuffix('/index')}", minutes, lines)


def _reading_step(
    step: Step, snippet_pages: Mapping[str, str], shown: Mapping[str, SnippetPage]
) -> tuple[int, str]:
    """The minutes of a reading with what is run after it, and its element."""
    reading = step.reading
    minutes = minutes_of_reading(reading)
    lang = f" hreflang={quote_attribute(reading.lang)}" if reading.lang != "en" else ""
    named = escape_markdown(reading.title_en or reading.title)
    takes = f"about {format_minutes(minutes)}"
    facts = [reading.kind, str(reading.year or ""), reading.level or "", takes]
    source = " · ".join(escape_markdown(fact) for fact in facts if fact)
    lines = [
        f'<p class="ws-reading-title"><a href={quote_href(reading.url)}{lang}>{named}</a></p>',
        f'<p class="ws-reading-source" markdown>{source} · [its entry]({reading.target})</p>',
        f'<p class="ws-reading-why">{escape_markdown(reading.why)}</p>',
    ]
    if step.asked_by:
        names = (escape_markdown(one.title_en or one.title) for one in step.asked_by[:3])
        lines.append(f'<p class="ws-path-needed">Needed for: {", ".join(names)}</p>')
    for name in step.snippets:
        known, label = shown.get(name), escape_markdown(name)
        link = f"[{label}]({snippet_pages[name]})" if name in snippet_pages else label
        run = RUN + (round(opening_lines(known) / LINES) if known else 0)
        minutes += run
        lines.append(
            f'<p class="ws-path-run" markdown><span class="ws-label">Run {link}</span>'
            f" {escape_markdown(known.title if known else '')}"
            f" <code>{escape_markdown(f'python snippets/{name}/{name}.py')}</code>"
            f" · {format_minutes(run)}</p>"
        )
    return minutes, _step_item(f"reading:{reading.id}", minutes, lines)


def _step_item(name: str, takes: int, lines: Sequence[str]) -> str:
    opening = f'<li class="ws-path-step" data-step="{name}" data-minutes="{takes}"'
    return f'{opening} markdown="block">\n' + "\n".join(lines) + "\n</li>"
