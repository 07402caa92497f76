"""One check of the shelf's links, from what is listed to what is recorded.

What stood in the file before, what the web answers now, and what the readings say are put together
here; the file and the cache are the only things written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx

from warpshelf.core.files import dump, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.links import health, liveness, works
from warpshelf.links.health import Health
from warpshelf.links.liveness import Outcome
from warpshelf.links.lychee import Web
from warpshelf.links.roster import Link, listed
from warpshelf.links.streaks import TROUBLES, follow
from warpshelf.readings import model
from warpshelf.readings.messages import nearest
from warpshelf.readings.model import Shelf
from warpshelf.web import fetch, lookup
from warpshelf.web.services import Endpoints

# A day of theirs on which two of these do not answer is a day on which we know nothing.
CANARIES = ("https://github.com/", "https://arxiv.org/", "https://doi.org/")
QUORUM = 2
CACHE = ".shelf/links.json"
ALIVE_FOR = timedelta(days=5)  # a link seen alive is not asked again sooner
BUDGET = 1800.0  # seconds
RESERVE = 0.25  # of the budget, for archived copies and titles


@dataclass
class Options:
    """What to look at and for how long."""

    topic: str | None = None  # `kernels/softmax`
    urls: set[str] | None = None  # of them, only these
    force: bool = False  # ask again what was seen alive of late, and for titles that are known
    budget: float = BUDGET


@dataclass
class Means:
    """What a survey asks through; tests have their own."""

    web: Web = field(default_factory=Web)
    canaries: tuple[str, ...] = CANARIES
    endpoints: Endpoints = field(default_factory=Endpoints)
    pauses: dict[str, float] = field(default_factory=lambda: works.PAUSES)
    today: date | None = None
    tell: Callable[[str, int, int], None] = lambda what, done, of: None


@dataclass
class Survey:
    """What a check found: the links it was about, and the state of each that has one."""

    links: list[Link]
    health: dict[str, Health]
    asked: int  # links that were asked and answered for
    fresh: int  # links that were seen alive of late, and were not asked
    left: int  # links for which there was no time
    unread: int = 0  # faults of the lists, which `shelf check` tells: their links are not here

    @property
    def mistitled(self) -> list[Link]:
        """Links to a work that is called otherwise there."""
        return [link for link in self.links if link.url in self.health and self._other(link)]

    def _other(self, link: Link) -> bool:
        there = self.health[link.url].title_there
        return there is not None and not works.fits(link, there)


def take(root: Path, options: Options, means: Means | None = None) -> Survey:
    """Ask the web, record what it said, and return what is known now.

    Raises:
        ShelfError: there is no network, lychee or topic, or the file of states is damaged. Nothing
            was recorded.
    """
    means = means or Means()
    end = time.monotonic() + options.budget
    shelf = model.load(root)
    # `shelf check` refuses other addresses; here they are passed over.
    links = {url: link for url, link in listed(shelf).items() if health.address(url) is None}
    chosen = _chosen(links, shelf, options)
    known, seen = health.load(root), _cache(root)
    now = datetime.now(UTC)
    due = [link.url for link in chosen if options.force or not _fresh(link.url, known, seen, now)]
    found = _outcomes(due, known, options, means)
    states = {url: state for url, state in known.items() if url in links or shelf.findings}
    today = means.today or now.date()
    for url, answer in found.items():
        states[url] = follow(known.get(url), answer, today)
        seen.pop(url, None)
        if answer.kind == "alive":
            seen[url] = now
    health.save(root, states)
    stamps = {url: when.isoformat() for url, when in seen.items() if url in links}
    write_atomically(root / CACHE, dump(stamps))
    _complete(chosen, states, options, means, end)
    health.save(root, states)
    here = {link.url: states[link.url] for link in chosen if link.url in states}
    left = len(due) - len(found)
    return Survey(chosen, here, len(found), len(chosen) - len(due), left, len(shelf.findings))


def _fresh(url: str, known: dict[str, Health], seen: dict[str, datetime], now: datetime) -> bool:
    """Whether a link was alive when it was last looked at, and that a short while ago."""
    alive = url in known and known[url].state == "alive"
    return alive and url in seen and now - seen[url] < ALIVE_FOR


def _outcomes(
    due: list[str], known: dict[str, Health], options: Options, means: Means
) -> dict[str, Outcome]:
    """What the web answers for `due`, with a network before and after."""
    if not due:
        return {}
    _need_network(means)
    due = sorted(due, key=lambda url: _turn(known.get(url)))
    seconds = options.budget * (1 - RESERVE)
    found = liveness.outcomes(
        due, means.web, seconds, lambda done: means.tell("links", done, len(due))
    )
    if not all(answer.heard for answer in found.values()):
        _need_network(means)
    return found


def _complete(
    chosen: list[Link], states: dict[str, Health], options: Options, means: Means, end: float
) -> None:
    """Add archived copies to the links that fail, and the titles of the works behind links."""
    with fetch.client() as client:
        client.auth = works.known_to_github
        for link in chosen:
            state = states.get(link.url)
            if state is None or state.state not in TROUBLES or state.archived:
                continue
            if time.monotonic() >= end:
                return
            copy = lookup.archived(link.url, client, means.endpoints)
            states[link.url] = replace(state, archived=copy)
            time.sleep(means.web.pause)
        asked = [
            link
            for link in chosen
            if link.url in states
            and works.due(link, None if options.force else states[link.url].title_there)
        ]

        def enough(done: int) -> bool:
            means.tell("titles", done, len(asked))
            return time.monotonic() >= end

        told = works.ask(asked, client, means.endpoints, means.pauses, enough)
        for url, title in told.items():
            states[url] = replace(states[url], title_there=title)


def _chosen(links: dict[str, Link], shelf: Shelf, options: Options) -> list[Link]:
    if options.topic is not None and options.topic not in shelf.topics:
        near = nearest(options.topic, shelf.topics)
        mend = f"write --topic {near}" if near else "name one that is a list under docs/"
        raise ShelfError(Finding("--topic", None, f"there is no topic {options.topic!r}", mend))
    return [
        link
        for link in links.values()
        if (options.urls is None or link.url in options.urls)
        and (options.topic is None or any(r.where == options.topic for r, _ in link.places))
    ]


def _turn(state: Health | None) -> tuple[int, str]:
    """Whose turn it is first: a row of failures must not be broken off, and new ones come next."""
    if state is None:
        return 1, ""
    return (0, "") if state.state in TROUBLES else (2, state.last_alive or "")


def _need_network(means: Means) -> None:
    """Refuse to go on where links would be blamed for this machine's network."""
    answered = 0
    with means.web.client() as client:
        for url in means.canaries:
            try:
                with client.stream("GET", means.web.there(url)):
                    answered += 1
            except (httpx.HTTPError, OSError):
                pass
            if answered >= QUORUM:
                return
    what = f"no network: {answered} of {', '.join(means.canaries)} answered; nothing was recorded"
    raise ShelfError(Finding("links", None, what, "check the connection and run it again"))


def _cache(root: Path) -> dict[str, datetime]:
    """When each link was last seen alive from this checkout; a damaged file is an empty one."""
    try:
        value = json.loads((root / CACHE).read_text(encoding="utf-8"))
        stamps = {str(url): datetime.fromisoformat(when) for url, when in value.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}
    return {url: when for url, when in stamps.items() if when.tzinfo is not None}
