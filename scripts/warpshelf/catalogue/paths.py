"""In what order to read and run what a goal needs, computed from `needs`.

A page under docs/paths/ names its goals, in stages, in its front matter:

    path:
      - stage: Move bytes well
        pages: [kernels/memory-bandwidth]
        goals: [stream-benchmark, vectorized-access]

A stage begins with its pages, which are ours. What those readings need, directly or not, is put
before them, each once, at the stage that asks for it first. After a reading stand the snippets that
run its idea, each once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from warpshelf.core import shapes
from warpshelf.core.findings import Finding
from warpshelf.core.pages import Page
from warpshelf.readings.model import Reading, Shelf

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


def paths(pages: Mapping[str, Page], shelf: Shelf) -> tuple[dict[str, list[Stage]], list[Finding]]:
    """The path of each page that has one, empty where it cannot be built, and what is wrong."""
    built: dict[str, list[Stage]] = {}
    findings: list[Finding] = []
    for where, page in pages.items():
        if "path" not in page.meta:
            continue
        faults = list(_faults(page, shelf, pages))
        findings += faults
        # A page whose path is wrong is built all the same, without its steps.
        built[where] = [] if faults else _stages(page.meta["path"], shelf, pages)
    return built, findings


def _faults(page: Page, shelf: Shelf, pages: Mapping[str, Page]) -> Iterator[Finding]:
    top = page.line_of(lambda line: line.startswith("path:"))
    stages = page.meta["path"]
    if not page.where.startswith(FOLDER):
        mend = f"move the page to docs/{FOLDER}"
        yield Finding(page.path, top, f"has a path, but is not under docs/{FOLDER}", mend)
    if not isinstance(stages, list) or not stages:
        yield Finding(page.path, top, "path is no list of stages", MEND)
        return
    named: set[str] = set()
    for number, stage in enumerate(stages, 1):
        if flaw := shapes.problem(stage, STAGE, f"stage {number} of path"):
            yield Finding(page.path, top, flaw, MEND)
            continue
        if not stage["goals"]:
            yield Finding(page.path, top, f"stage {number} of path has no goals", MEND)
        for goal in stage["goals"]:
            line = page.line_of(partial(_names, goal)) or top
            if goal in named:
                yield Finding(page.path, line, f"names {goal!r} twice", "remove one")
            elif goal not in shelf.readings and goal not in shelf.refused:
                what = f"path names {goal!r}, which no reading has as its id"
                yield Finding(page.path, line, what, _near(goal, shelf.readings))
            named.add(goal)
        for own in stage.get("pages", ()):
            line = page.line_of(partial(_names, own)) or top
            if own in named:
                yield Finding(page.path, line, f"names {own!r} twice", "remove one")
            elif own not in pages:
                what = f"path names {own!r}, which is no page below docs/"
                yield Finding(page.path, line, what, _near(own, pages))
            named.add(own)


def _near(name: str, known: Iterable[str]) -> str:
    from warpshelf.readings.messages import nearest

    near = nearest(name, known, alike=70)
    return f"write {near}" if near else "correct it, or remove it"


def _names(name: str, line: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", line) is not None


def _stages(stages: list[dict[str, Any]], shelf: Shelf, pages: Mapping[str, Page]) -> list[Stage]:
    goals = [goal for stage in stages for goal in stage["goals"]]
    wanted = set(_closure([goal for goal in goals if goal in shelf.readings], shelf))
    ran: set[str] = set()
    done: set[str] = set()
    built = []
    for stage in stages:
        steps = []
        for name in _closure([goal for goal in stage["goals"] if goal in shelf.readings], shelf):
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


def _closure(goals: list[str], shelf: Shelf) -> list[str]:
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
