"""One check of the shelf's links: lists them, asks the web, and records their state.

Every link is listed with the places that name it. Its new state follows from the recorded one and
from what the web answers; only the file of states and the cache are written. A link can be alive
and lead to the wrong paper, so titles from arXiv, DOIs and GitHub are compared with the shelf.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import yaml

from warpshelf.core.files import dump_json, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import git_line, run_git
from warpshelf.links import health, liveness
from warpshelf.links.health import Health
from warpshelf.links.liveness import TROUBLES, Outcome, WebConfig, next_state
from warpshelf.readings import model
from warpshelf.readings.entries import KeyPath, suggest_match
from warpshelf.readings.identity import work_identity
from warpshelf.readings.model import Reading, Shelf
from warpshelf.readings.titles import names_repository, same_work
from warpshelf.web import fetch, lookup
from warpshelf.web.fetch import Unreachable
from warpshelf.web.services import Endpoints


@dataclass
class Link:
    """An address on the shelf and the places that name it, in the order of the files."""

    url: str
    reading: Reading  # that it is the address of, or else the first that names it
    role: str  # `url`, or what it is to its reading: `preprint`, `code`
    place: KeyPath  # where it stands in the reading
    places: list[tuple[Reading, KeyPath]] = field(default_factory=list)

    @property
    def where(self) -> tuple[str, int]:
        """The file and line that name it."""
        return self.reading.path, self.reading.line_of(*self.place)


def list_links(shelf: Shelf) -> dict[str, Link]:
    """Every address that the shelf's entries name, in the order of the files."""
    links: dict[str, Link] = {}
    for reading in shelf.entries:
        for place, role, url in reading.addresses:
            link = links.setdefault(url, Link(url, reading, role, place))
            link.places.append((reading, place))
            if role == "url" and link.role != "url":
                link.reading, link.role, link.place = reading, role, place
    return links


def urls_since(root: Path, revision: str) -> set[str]:
    """The addresses of the readings here that `revision` does not have.

    Raises ShelfError if `revision` is not a commit of this repository.
    """
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    if not (name := git_line(root, *asked)):
        if shutil.which("git") is None:
            mend = "install it, or drop the option"
            raise ShelfError(Finding("git", None, "cannot be run", mend))
        what = f"{revision!r} is not a commit of this repository, or Git failed"
        raise ShelfError(Finding("--changed-since", None, what, "fetch it, or name another"))
    listed = run_git(root, "ls-tree", "-r", "-z", "--name-only", name, "--", "docs") or b""
    old: set[str] = set()
    for path in filter(lambda path: path.endswith(b".yml"), listed.split(b"\0")):
        # What could not be read then counts as new.
        with suppress(yaml.YAMLError, ValueError, RecursionError):
            text = run_git(root, "show", f"{name}:./{path.decode()}") or b""
            old.update(_collect_urls(yaml.safe_load(text)))
    return list_links(model.load_shelf(root)).keys() - old


def _collect_urls(value: object) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(value.get("url"), str):
        yield value["url"]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from _collect_urls(item)


# Seconds between two questions for a title, by the name that an identity starts with. arXiv asks
# for three seconds between two.
PAUSES = {"arxiv": 3.0, "doi": 1.0, "github": 0.5}
PATIENCE = 3  # failed questions in a row after which a source is asked no more


def needs_title(link: Link, there: str | None) -> bool:
    """Whether to ask for the title of the work behind `link`; `there` is the known one.

    A known title that fits is not asked for again: what an arXiv number or a DOI names is fixed.
    """
    family, _, name = work_identity(link.url).partition(":")
    if family == "github":  # only a repository has a name, and only an entry of its own
        named_so = name.count("/") == 1 and link.role == "url"
    else:
        named_so = family in ("arxiv", "doi") and link.role in ("url", "preprint", "published")
    return named_so and not (there and title_fits(link, there))


def title_fits(link: Link, there: str) -> bool:
    """Whether the title `there` fits the entry of `link`."""
    ours = [title for title in (link.reading.title, link.reading.title_en) if title]
    if work_identity(link.url).startswith("github:"):
        repository, _, says = there.partition(": ")
        return names_repository(ours, repository, says)
    return same_work(ours, there, version=link.role != "url")


def fetch_titles(
    links: Iterable[Link],
    client: httpx.Client,
    endpoints: Endpoints,
    pauses: Mapping[str, float] = PAUSES,
    enough: Callable[[int], bool] = lambda done: False,
) -> dict[str, str]:
    """The titles of the works behind `links`, by address, where a source gave one.

    `enough` is called with the number done, and ends it by returning True.
    """
    titles: dict[str, str] = {}
    failures: Counter[str] = Counter()
    for number, link in enumerate(links):
        source = work_identity(link.url).partition(":")[0]
        if failures[source] >= PATIENCE:
            continue
        if enough(number):
            break
        try:
            found = lookup.lookup_work(link.url, client, endpoints)
            failures[source] = 0
        except Unreachable:
            found = None
            failures[source] += 1
        if found:
            name = found.title
            if work_identity(found.url).startswith("github:"):
                name = "/".join([*found.authors, name])
                name += f": {found.about}" if found.about else ""  # the name alone says little
            if title := health.clean_title(name):
                titles[link.url] = title
        time.sleep(pauses.get(source, 1.0))
    return titles


def authorize_github(request: httpx.Request) -> httpx.Request:
    """Send the token to GitHub's API alone, which allows 60 anonymous requests an hour."""
    token = os.environ.get("GITHUB_TOKEN")
    if token and request.url.scheme == "https" and request.url.host == "api.github.com":
        request.headers["Authorization"] = f"Bearer {token}"
    return request


# If fewer than QUORUM of these answer, the fault is ours, and the check says nothing of links.
CANARIES = ("https://github.com/", "https://arxiv.org/", "https://doi.org/")
QUORUM = 2
CACHE = ".shelf/links.json"
ALIVE_FOR = timedelta(days=5)  # a link seen alive is not asked again sooner
BUDGET = 1800.0  # seconds
RESERVE = 0.25  # of the budget, for archived copies and titles


@dataclass
class CheckServices:
    """What a survey asks through; tests have their own."""

    web: WebConfig = field(default_factory=WebConfig)
    canaries: tuple[str, ...] = CANARIES
    endpoints: Endpoints = field(default_factory=Endpoints)
    pauses: dict[str, float] = field(default_factory=lambda: PAUSES)
    today: date | None = None
    tell: Callable[[str, int, int], None] = lambda what, done, of: None


@dataclass
class CheckResult:
    """What a check found: the links it was about, and the state of each that has one."""

    links: list[Link]
    health: dict[str, Health]
    asked: int  # links that were asked and answered for
    fresh: int  # links that were seen alive of late, and were not asked
    left: int  # links for which there was no time
    unread: int = 0  # faults of the lists, which `shelf check` tells: their links are not here

    @property
    def misnamed_links(self) -> list[Link]:
        """Links to a work that has another title there."""
        known = {url: state.title_there for url, state in self.health.items() if state.title_there}
        here = [link for link in self.links if link.url in known]
        return [link for link in here if not title_fits(link, known[link.url])]


def run_check(
    root: Path,
    means: CheckServices,
    *,
    topic: str | None = None,
    urls: set[str] | None = None,
    force: bool = False,
    budget: float = BUDGET,
) -> CheckResult:
    """Ask the web about `topic` or about `urls`, record what it said, and return what is known now.

    `force` also asks for links seen alive lately and for known titles; `budget` is in seconds.
    Raises ShelfError without a network, lychee or the topic, or if the file of states is damaged;
    nothing is recorded then.
    """
    end = time.monotonic() + budget
    shelf, now = model.load_shelf(root), datetime.now(UTC)
    # `shelf check` refuses other addresses; here they are passed over.
    every = {u: one for u, one in list_links(shelf).items() if health.address_problem(u) is None}
    chosen = _choose_links(every, shelf, topic, urls)
    known, seen = health.load_health(root), _load_cache(root)

    def is_due(url: str) -> bool:
        alive = url in known and known[url].state == "alive"
        fresh = alive and url in seen and now - seen[url] < ALIVE_FOR
        return force or not fresh

    due = sorted(
        filter(is_due, (one.url for one in chosen)), key=lambda u: check_order(known.get(u))
    )
    found = _ask_web(due, budget * (1 - RESERVE), means) if due else {}
    states = {url: state for url, state in known.items() if url in every or shelf.findings}
    for url, answer in found.items():
        states[url] = next_state(known.get(url), answer, means.today or now.date())
        seen.pop(url, None)
        if answer.kind == "alive":
            seen[url] = now
    health.save_health(root, states)
    stamps = {url: when.isoformat() for url, when in seen.items() if url in every}
    write_atomically(root / CACHE, dump_json(stamps))
    _add_details([one for one in chosen if one.url in states], states, force, means, end)
    health.save_health(root, states)
    here = {link.url: states[link.url] for link in chosen if link.url in states}
    fresh, left = len(chosen) - len(due), len(due) - len(found)
    return CheckResult(chosen, here, len(found), fresh, left, len(shelf.findings))


def _choose_links(
    links: dict[str, Link], shelf: Shelf, topic: str | None, urls: set[str] | None
) -> list[Link]:
    if topic is not None and topic not in shelf.topics:
        otherwise = "name a list under docs/"
        mend = suggest_match(topic, shelf.topics, otherwise, 60, "write --topic {}")
        raise ShelfError(Finding("--topic", None, f"there is no topic {topic!r}", mend))
    return [
        link
        for link in links.values()
        if (urls is None or link.url in urls)
        and (topic is None or any(reading.where == topic for reading, _ in link.places))
    ]


def check_order(state: Health | None) -> tuple[int, str]:
    """The order of asking: links in a row of failures first, then new ones, then the rest."""
    if state is None:
        return 1, ""
    return (0, "") if state.state in TROUBLES else (2, state.last_alive or "")


def _ask_web(due: list[str], seconds: float, means: CheckServices) -> dict[str, Outcome]:
    """What the web answers for `due`; the network must work before and after."""
    _require_network(means)
    found = liveness.check_urls(
        due, means.web, seconds, lambda done: means.tell("links", done, len(due))
    )
    if not all(answer.heard for answer in found.values()):
        _require_network(means)
    return found


def _require_network(means: CheckServices) -> None:
    """Refuse to go on where links would be blamed for this machine's network."""
    answered = 0
    with means.web.client() as client:
        for url in means.canaries:
            with suppress(httpx.HTTPError, OSError), client.stream("GET", means.web.there(url)):
                answered += 1
            if answered >= QUORUM:
                return
    what = f"no network: {answered} of {', '.join(means.canaries)} answered; nothing was recorded"
    raise ShelfError(Finding("links", None, what, "check the connection and run it again"))


def _add_details(
    links: list[Link], states: dict[str, Health], force: bool, means: CheckServices, end: float
) -> None:
    """Add archived copies to the links that fail, and the titles of the works behind links."""
    with fetch.create_client() as client:
        client.auth = authorize_github
        for link in links:
            state = states[link.url]
            if state.state not in TROUBLES or state.archived:
                continue
            if time.monotonic() >= end:
                return
            copy = lookup.archived_copy(link.url, client, means.endpoints)
            states[link.url] = replace(state, archived=copy)
            time.sleep(means.web.pause)
        known = {link.url: None if force else states[link.url].title_there for link in links}
        asked = [link for link in links if needs_title(link, known[link.url])]

        def is_over_budget(done: int) -> bool:
            means.tell("titles", done, len(asked))
            return time.monotonic() >= end

        told = fetch_titles(asked, client, means.endpoints, means.pauses, is_over_budget)
        for url, title in told.items():
            states[url] = replace(states[url], title_there=title)


def _load_cache(root: Path) -> dict[str, datetime]:
    """When each link was last seen alive from this checkout; a damaged file counts as empty."""
    try:
        value = json.loads((root / CACHE).read_text(encoding="utf-8"))
        stamps = {str(url): datetime.fromisoformat(when) for url, when in value.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}
    return {url: when for url, when in stamps.items() if when.tzinfo is not None}
