"""What the works behind the links are called: asked of the web, and compared with the shelf.

A link can be alive and lead to the wrong paper. arXiv, DOIs and GitHub say what is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

import httpx

from warpshelf.links import health
from warpshelf.links.roster import Link
from warpshelf.readings.identity import identity
from warpshelf.readings.titles import alike, named
from warpshelf.web import lookup
from warpshelf.web.fetch import Unreachable
from warpshelf.web.metadata import Metadata
from warpshelf.web.services import Endpoints

# Seconds between two questions for a title, by the name that an identity starts with. arXiv asks
# for three seconds between two.
PAUSES = {"arxiv": 3.0, "doi": 1.0, "github": 0.5}
PATIENCE = 3  # questions in a row that a source fails to answer before it is left in peace


def due(link: Link, there: str | None) -> bool:
    """Whether to ask what the work behind `link` is called, `there` being what is known.

    A known title that fits is not asked for again: what an arXiv number or a DOI names stays.
    """
    name = identity(link.url)
    if name.startswith("github:"):  # only a repository has a name, and only an entry of its own
        named_so = name.count("/") == 1 and link.role == "url"
    else:
        named_so = name.startswith(("arxiv:", "doi:"))
        named_so = named_so and link.role in ("url", "preprint", "published")
    return named_so and not (there and fits(link, there))


def fits(link: Link, there: str) -> bool:
    """Whether the work called `there` can be what `link` is listed as."""
    reading = link.reading
    ours = [title for title in (reading.title, reading.title_en) if title]
    name = identity(link.url)
    if name.startswith("github:"):
        repository, _, says = there.partition(": ")
        return named(ours, repository, says)
    return alike(ours, there, version=link.role != "url")


def ask(
    links: Iterable[Link],
    client: httpx.Client,
    endpoints: Endpoints,
    pauses: Mapping[str, float] = PAUSES,
    enough: Callable[[int], bool] = lambda done: False,
) -> dict[str, str]:
    """What the works behind `links` are called, by address, for those of which it was told.

    `enough` hears how many are done and ends it by True.
    """
    titles: dict[str, str] = {}
    failures: dict[str, int] = {}
    for number, link in enumerate(links):
        source = identity(link.url).partition(":")[0]
        if failures.get(source, 0) >= PATIENCE:
            continue
        if enough(number):
            break
        try:
            found = lookup.lookup(link.url, client, endpoints)
            failures[source] = 0
        except Unreachable:
            found = None
            failures[source] = failures.get(source, 0) + 1
        if found and (title := _called(found)):
            titles[link.url] = title
        time.sleep(pauses.get(source, 1.0))
    return titles


def known_to_github(request: httpx.Request) -> httpx.Request:
    """Say who asks, to GitHub's interface alone: it answers strangers 60 times an hour."""
    token = os.environ.get("GITHUB_TOKEN")
    if token and request.url.scheme == "https" and request.url.host == "api.github.com":
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _called(found: Metadata) -> str | None:
    """The title to keep. A repository's is its name, which says little: what it is follows."""
    name = found.title
    if identity(found.url).startswith("github:"):
        name = "/".join([*found.authors, name]) + (f": {found.about}" if found.about else "")
    return health.kept_title(name)
