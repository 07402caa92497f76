"""In what order to read and run what a goal needs, computed from `needs`, and how long it takes.

A page under docs/paths/ names its goals, in stages, in its front matter:

    path:
      - stage: Move bytes well
        pages: [kernels/memory-bandwidth]
        goals: [stream-benchmark, vectorized-access]

A stage begins with its pages, which are ours. What those readings need, directly or not, is put
before them, each once, at the stage that asks for it first. After a reading stand the snippets that
run its idea, each once.

The minutes of a step are counted for a page of ours and estimated for a reading: a number that its
entry gives, or else what its kind usually takes. An estimate is shown with "about", and the
fragment `paths/minutes.md` says by what rule it came.

A path is a list on its page. `data-step` names a step the same way on every path, so that a browser
which remembers what was ticked ticks it everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from warpshelf.core import files
from warpshelf.core.findings import Finding
from warpshelf.core.markup import escape_markdown, quote_attribute, quote_href
from warpshelf.core.pages import FRONT, Page
from warpshelf.readings.model import Reading, Shelf
from warpshelf.render import listings
from warpshelf.render.snippet_page import SnippetPage

FOLDER = "paths/"
ABSENT = "This path is not shown, because what its page says of it has a fault."
STAGE = {"stage": str, "goals": [str], "pages?": [str]}
MEND = "write path as a list of `- stage: …` with `goals: [reading-id, …]` and, if any, `pages:`"


@dataclass(frozen=True)
class Step:
    """One reading, why it is here (the readings that need it; none for a goal), what to run."""

    reading: Reading
    asked_by: tuple[Reading, ...] = ()
    snippets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A part of a path, with its own title: pages of ours, then readings."""

    title: str
    pages: list[Page] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def build_paths(
    pages: Mapping[str, Page], shelf: Shelf
) -> tuple[dict[str, list[Stage]], list[Finding]]:
    """The path of each page that has one, empty where it cannot be built, and what is wrong."""
    built: dict[str, list[Stage]] = {}
    findings: list[Finding] = []
    for where, page in pages.items():
        if "path" not in page.meta:
            continue
        faults = list(_check_path(page, shelf, pages))
        findings += faults
        # A page whose path is wrong is built all the same, without its steps.
        built[where] = [] if faults else _build_stages(page.meta["path"], shelf, pages)
    return built, findings


def _check_path(page: Page, shelf: Shelf, pages: Mapping[str, Page]) -> Iterator[Finding]:
    top = page.find_line(lambda line: line.startswith("path:"))
    stages = page.meta["path"]
    if not page.where.startswith(FOLDER):
        mend = f"move the page to docs/{FOLDER}"
        yield Finding(page.path, top, f"has a path, but is not under docs/{FOLDER}", mend)
    if not isinstance(stages, list) or not stages:
        yield Finding(page.path, top, "path is no list of stages", MEND)
        return
    named: set[str] = set()
    for number, stage in enumerate(stages, 1):
        if flaw := files.shape_problem(stage, STAGE, f"stage {number} of path"):
            yield Finding(page.path, top, flaw, MEND)
            continue
        if not stage["goals"]:
            yield Finding(page.path, top, f"stage {number} of path has no goals", MEND)
        for goal in stage["goals"]:
            line = page.find_line(partial(_line_names, goal)) or top
            if goal in named:
                yield Finding(page.path, line, f"names {goal!r} twice", "remove one")
            elif goal not in shelf.readings and goal not in shelf.refused:
                what = f"path names {goal!r}, which no reading has as its id"
                yield Finding(page.path, line, what, _suggest_name(goal, shelf.readings))
            named.add(goal)
        for own in stage.get("pages", ()):
            line = page.find_line(partial(_line_names, own)) or top
            if own in named:
                yield Finding(page.path, line, f"names {own!r} twice", "remove one")
            elif own not in pages:
                what = f"path names {own!r}, which is no page below docs/"
                yield Finding(page.path, line, what, _suggest_name(own, pages))
            named.add(own)


def _suggest_name(name: str, known: Iterable[str]) -> str:
    from warpshelf.readings.entries import closest_match

    near = closest_match(name, known, alike=70)
    return f"write {near}" if near else "correct it, or remove it"


def _line_names(name: str, line: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", line) is not None


def _build_stages(
    stages: list[dict[str, Any]], shelf: Shelf, pages: Mapping[str, Page]
) -> list[Stage]:
    goals = [goal for stage in stages for goal in stage["goals"]]
    wanted = set(_needs_closure([goal for goal in goals if goal in shelf.readings], shelf))
    ran: set[str] = set()
    done: set[str] = set()
    built = []
    for stage in stages:
        steps = []
        for name in _needs_closure(
            [goal for goal in stage["goals"] if goal in shelf.readings], shelf
        ):
            if name in done:
                continue
            done.add(name)
            reading = shelf.readings[name]
            snippets = tuple(one for one in reading.snippets if one not in ran)
            ran.update(snippets)
            asked_by = tuple(
                other
                for other in map(shelf.readings.__getitem__, sorted(wanted))
                if name in other.needs and name not in goals
            )
            steps.append(Step(reading, asked_by, snippets))
        own = [pages[where] for where in stage.get("pages", ())]
        built.append(Stage(stage["stage"], own, steps))
    return built


def _needs_closure(goals: list[str], shelf: Shelf) -> list[str]:
    """The goals and all they need, what is needed first; the order of the goals otherwise."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    for goal in goals:
        trail = [goal]  # a stack of our own: a list may need more than Python's recursion allows
        while trail:
            name = trail[-1]
            waiting = [
                other
                for other in shelf.readings[name].needs
                if other in shelf.readings and other not in entered
            ]
            entered.add(name)
            if name in order or not waiting:
                order.setdefault(name)
                trail.pop()
            else:
                trail.append(waiting[0])
    return list(order)


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
    text = FRONT.sub("", page.text, count=1)
    text = LIST.sub("", text)
    code = sum(_count_lines(found["code"]) for found in FENCE.finditer(text))
    code += sum(_embedded_lines(found["target"], shown) for found in INCLUDE.finditer(text))
    prose = TAG.sub(" ", INCLUDE.sub(" ", FENCE.sub(" ", text)))
    return max(1, round(len(WORD.findall(prose)) / WORDS + code / LINES))


def minutes_of_reading(reading: Reading) -> int:
    """Minutes for a reading: those of its entry, or those of its kind."""
    return reading.minutes or MINUTES[reading.kind]


def minutes_of_run(exhibit: SnippetPage | None) -> int:
    """Minutes to run a snippet, and to read the part of it that opens first."""
    return RUN + round(opening_lines(exhibit) / LINES) if exhibit else RUN


def opening_lines(exhibit: SnippetPage) -> int:
    """Lines of code that a page shows of a snippet before anything is unfolded."""
    total = 0
    for one in exhibit.code:
        first = listings.open_section(one.text, exhibit.kind)
        total += _count_lines(listings.extract_section(one.text, first) if first else one.text)
    return total


def format_minutes(minutes: int) -> str:
    """In words: `7 min`, `1 h 30 min`, `12 h`."""
    rounded = minutes if minutes < MANY else 5 * round(minutes / 5)
    hours, rest = divmod(rounded, 60)
    if hours >= 10:  # over so long, minutes are no help
        return f"{round(rounded / 60)} h"
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest or not hours))


def minutes_rule() -> str:
    """The fragment `paths/minutes.md`: how the minutes of a step are made."""
    kinds = ", ".join(
        f"{format_minutes(minutes)} for a {kind}" for kind, minutes in MINUTES.items()
    )
    kinds = kinds.replace("a docs", "a manual's section").replace("for a code", "for a repository")
    return (
        f"Minutes of our own pages are counted: {WORDS} words a minute, {LINES} lines of code a"
        " minute, without the list of readings. Those of a reading are an estimate, which its entry"
        f" gives or its kind: {kinds}. To run a snippet takes {RUN} minutes more than to read what"
        " its page shows of it.\n"
    )


def _embedded_lines(target: str, shown: Mapping[str, SnippetPage]) -> int:
    """Lines of code behind `<id>/whole.md`, `<id>/code.md` or `<id>/<file>:<section>`."""
    name, _, section = target.partition(":")
    first, _, file = name.partition("/")
    exhibit = shown.get(first)
    if exhibit is None:
        return 0
    if file in ("whole.md", "code.md"):
        return opening_lines(exhibit)
    texts = [one.text for one in exhibit.code if one.name == file]
    if not texts or section not in listings.section_names(texts[0]):
        return 0
    return _count_lines(listings.extract_section(texts[0], section))


def _count_lines(code: str) -> int:
    included = INCLUDE.sub("", code)  # counted where it is embedded
    return sum(bool(line.strip()) for line in included.split("\n"))


def render_paths(
    built: Mapping[str, list[Stage]],
    snippet_pages: Mapping[str, str],
    exhibits: Sequence[SnippetPage] = (),
) -> dict[str, str]:
    """The steps of each path, by name below the fragments: `paths/serving-an-llm.md`.

    `snippet_pages` gives the docs-absolute link of each snippet.
    """
    shown = {one.id: one for one in exhibits}
    texts = {
        f"{where}.md": _PathRenderer(snippet_pages, shown).render_path(it)
        for where, it in built.items()
    }
    return texts | {"paths/minutes.md": minutes_rule()}


class _PathRenderer:
    """What is known around a path, and the path written with it."""

    def __init__(self, snippet_pages: Mapping[str, str], shown: Mapping[str, SnippetPage]) -> None:
        self.snippet_pages = snippet_pages
        self.shown = shown

    def render_path(self, stages: list[Stage]) -> str:
        if not stages:
            return f'<p class="ws-absent">{ABSENT}</p>\n'
        pages = sum(len(stage.pages) for stage in stages)
        readings = sum(len(stage.steps) for stage in stages)
        runs = sum(len(step.snippets) for stage in stages for step in stage.steps)
        counts = [(pages, "page here", "pages here"), (readings, "reading", "readings"),
                  (runs, "snippet to run", "snippets to run")]  # fmt: skip
        said = [
            f"{number} {one if number == 1 else many}" for number, one, many in counts if number
        ]
        total = sum(map(self._stage_minutes, stages))
        blocks = [
            f'<p class="ws-total" data-walk="{total}">{", ".join(said)}: '
            f"about {format_minutes(total)}.</p>"
        ]
        number = 1
        for stage in stages:
            rows = list(self._stage_rows(stage))
            if not rows:
                continue
            takes = format_minutes(self._stage_minutes(stage))
            blocks.append(f"### {escape_markdown(stage.title)}")
            blocks.append(f'<p class="ws-stage">about {takes}</p>')
            opening = f'<ol class="ws-path" start="{number}" markdown>'
            blocks.append("\n".join([opening, *rows, "</ol>"]))
            number += len(rows)
        return "\n\n".join(blocks) + "\n"

    def _stage_rows(self, stage: Stage) -> Iterator[str]:
        for page in stage.pages:
            yield self._page_step(page)
        for step in stage.steps:
            yield self._reading_step(step)

    def _stage_minutes(self, stage: Stage) -> int:
        pages = sum(minutes_of_page(page, self.shown) for page in stage.pages)
        return pages + sum(map(self._step_minutes, stage.steps))

    def _step_minutes(self, step: Step) -> int:
        runs = sum(minutes_of_run(self.shown.get(name)) for name in step.snippets)
        return minutes_of_reading(step.reading) + runs

    def _page_step(self, page: Page) -> str:
        takes = minutes_of_page(page, self.shown)
        title = escape_markdown(str(page.meta.get("title") or page.where))
        lines = [
            f'<p class="ws-reading-title" markdown>[{title}](/{page.where}.md)</p>',
            f'<p class="ws-reading-source">{" · ".join(["page here", format_minutes(takes)])}</p>',
        ]
        if page.description:
            lines.append(f'<p class="ws-reading-why">{escape_markdown(page.description)}</p>')
        return _step_item(f"page:{page.where}", takes, lines)

    def _reading_step(self, step: Step) -> str:
        reading = step.reading
        lang = f" hreflang={quote_attribute(reading.lang)}" if reading.lang != "en" else ""
        named = escape_markdown(reading.title_en or reading.title)
        title = f"<a href={quote_href(reading.url)}{lang}>{named}</a>"
        takes = f"about {format_minutes(minutes_of_reading(reading))}"
        facts = [reading.kind, str(reading.year or ""), reading.level or "", takes]
        source = " · ".join(escape_markdown(fact) for fact in facts if fact)
        lines = [
            f'<p class="ws-reading-title">{title}</p>',
            f'<p class="ws-reading-source" markdown>{source} · [its entry]({reading.target})</p>',
            f'<p class="ws-reading-why">{escape_markdown(reading.why)}</p>',
        ]
        if step.asked_by:
            names = ", ".join(
                escape_markdown(other.title_en or other.title) for other in step.asked_by[:3]
            )
            lines.append(f'<p class="ws-path-needed">Needed for: {names}</p>')
        lines += map(self._run_line, step.snippets)
        return _step_item(f"reading:{reading.id}", self._step_minutes(step), lines)

    def _run_line(self, name: str) -> str:
        shown = escape_markdown(name)
        pages = self.snippet_pages
        link = f"[{shown}]({pages[name]})" if name in pages else shown
        known = self.shown.get(name)
        command = escape_markdown(f"python snippets/{name}/{name}.py")
        return (
            f'<p class="ws-path-run" markdown><span class="ws-label">Run {link}</span>'
            f" {escape_markdown(known.title if known else '')} <code>{command}</code>"
            f" · {format_minutes(minutes_of_run(known))}</p>"
        )


def _step_item(name: str, takes: int, lines: Sequence[str]) -> str:
    opening = f'<li class="ws-path-step" data-step="{name}" data-minutes="{takes}"'
    return f'{opening} markdown="block">\n' + "\n".join(lines) + "\n</li>"
