"""Titles: whether the work behind a link is the one that its entry names.

A link can be alive and lead to the wrong paper. arXiv, DOIs and GitHub say what is there; titles
are compared as people would, over case, punctuation, markup and a subtitle left away.
"""

from __future__ import annotations

import html
import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping

import httpx
from rapidfuzz import fuzz

from warpshelf import health, metadata
from warpshelf.identity import identity
from warpshelf.roster import Link

ALIKE = 86  # per cent of two titles of one work; below, they name two
AKIN = 62  # per cent of the words of a preprint's and of its publication's title
NAMED = 75  # per cent of a repository's or its owner's name
SAID = 60  # per cent of the words of what a repository says of itself
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
    endpoints: metadata.Endpoints,
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
            found = metadata.lookup(link.url, client, endpoints)
            failures[source] = 0
        except metadata.Unreachable:
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


def _called(found: metadata.Found) -> str | None:
    """The title to keep. A repository's is its name, which says little: what it is follows."""
    name = found.title
    if identity(found.url).startswith("github:"):
        name = "/".join([*found.authors, name]) + (f": {found.about}" if found.about else "")
    return health.title(name)


def alike(ours: Iterable[str], there: str, *, version: bool = False) -> bool:
    """Whether one of `ours` names the work that is called `there`.

    `version` forgives another wording, as between a preprint and its publication.
    """
    return any(_alike(_plain(title), _plain(there), version) for title in ours)


def named(ours: Iterable[str], repository: str, says: str = "") -> bool:
    """Whether one of `ours` can be the title of `repository` (`owner/name`), which says `says`."""
    owner, _, name = _fold(repository).partition("/")
    for title in ours:
        words = _words(_fold(title))
        close = words.replace(" ", "")
        for word in (_words(name).replace(" ", ""), _words(owner).replace(" ", "")):
            if word and close and (word in close or close in word or fuzz.ratio(word, close) >= 75):
                return True
        if says and fuzz.token_set_ratio(words, _words(_fold(says))) >= SAID:
            return True
    return False


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", html.unescape(text)).casefold()


def _plain(text: str) -> tuple[str, str]:
    """A title for comparison, and the part of it before a colon or a dash."""
    text = re.sub(r"</?[a-zA-Z][^<>]*>", " ", _fold(text))  # Crossref's titles hold MathML
    text = re.sub(r"\\[a-z]+|[${}\\^]", " ", text)  # and arXiv's hold TeX
    head = re.split(r":| [-\u2013\u2014] ", text, maxsplit=1)[0]
    return _words(text), _words(head)


def _words(text: str) -> str:
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if not unicodedata.combining(c))
    return re.sub(r"[\W_]+", " ", text).strip()


def _alike(ours: tuple[str, str], there: tuple[str, str], version: bool) -> bool:
    if not ours[0] or not there[0]:
        return not there[0]  # what has no words there says nothing against ours
    if _numbers(ours[0]) != _numbers(there[0]) and not version:
        # "V2" is not "V3"; but a subtitle with a number may have been left away.
        return ours[0] == there[1] or ours[1] == there[0]
    if ours[0] == there[1] or ours[1] == there[0]:
        return True
    if fuzz.ratio(ours[0].replace(" ", ""), there[0].replace(" ", "")) >= ALIKE:
        return True
    if version:
        same = ours[1] == there[1] and ours[1] not in ("", ours[0])
        return same or fuzz.token_set_ratio(ours[0], there[0]) >= AKIN
    return False


def _numbers(words: str) -> list[str]:
    return sorted(re.findall(r"\d+", words))
