"""Cross checks: what is wrong between readings that are each well formed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from warpshelf.findings import Finding
from warpshelf.identity import clean, identity, tracking
from warpshelf.messages import nearest

if TYPE_CHECKING:
    from warpshelf.readings import Reading, Shelf

SHORTENERS = {
    "amzn.to", "b23.tv", "bit.ly", "buff.ly", "cutt.ly", "dlvr.it", "dwz.cn", "fb.me", "goo.gl",
    "is.gd", "j.mp", "lnkd.in", "ow.ly", "rb.gy", "shorturl.at", "t.cn", "t.co", "t.ly", "tiny.cc",
    "tinyurl.com", "url.cn", "v.gd",
}  # fmt: skip
SEARCHES = (  # host, path, the parameter that holds the question ("" for any)
    (r"(?:.+\.)?google\.[a-z.]+", r"/(?:search|scholar|url|imgres)", ""),
    (r"(?:.+\.)?(?:bing|yahoo|yandex|sogou|ecosia)\.[a-z.]+", r"/(?:search|web)/?.*", ""),
    (r"(?:.+\.)?duckduckgo\.com", r"/(?:html/?)?", "q"),
    (r"(?:.+\.)?baidu\.com", r"/(?:s|link)", ""),
    (r"github\.com", r"/search/?.*|/[^/]+/[^/]+/search", ""),
    (r"youtube\.com", r"/results", ""),
    (r"arxiv\.org", r"/search/?.*", ""),
    (r"semanticscholar\.org", r"/search", ""),
    (r"(?:.+\.)?(?:zhihu|csdn)\.(?:com|net)", r"/search", ""),
)  # fmt: skip


def check(shelf: Shelf, snippet_ids: Collection[str] | None = None) -> list[Finding]:
    """What is wrong across the shelf, in order of place; `load` has found the rest.

    `snippet_ids` names the snippets that exist; None leaves those references unchecked.
    """
    found: list[Finding] = []
    for group in (_ids, _identities, _titles, _references, _cycles, _urls, _order, _pages):
        found += group(shelf)
    if snippet_ids is not None:
        found += _snippets(shelf, snippet_ids)
    return sorted(set(found))


def _at(reading: Reading, place: tuple[str | int, ...], what: str, mend: str) -> Finding:
    return Finding(reading.path, reading.line_of(*place), what, mend)


def _ids(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        first = shelf.readings[reading.id]
        if first is not reading:
            mend = f"rename one (first at {first.path}:{first.line})"
            yield _at(reading, ("id",), f"id {reading.id!r} is used twice", mend)


def _identities(shelf: Shelf) -> Iterator[Finding]:
    seen: dict[str, Reading] = {}
    for reading in shelf.entries:
        places: list[tuple[tuple[str | int, ...], str]] = [(("url",), reading.url)]
        places += [
            (("also", number, "url"), version.url)
            for number, version in enumerate(reading.also)
            if version.what in ("preprint", "published")
        ]
        for place, url in places:
            name = identity(url)
            first = seen.setdefault(name, reading)
            if first is not reading:
                what = f"{name} is on the shelf already, as {first.title!r}"
                yield _at(reading, place, what, f"keep one (first at {first.path}:{first.line})")
            elif place != ("url",) and name == identity(reading.url):
                yield _at(reading, place, f"{name} is the entry's own url", "remove it")


def _titles(shelf: Shelf) -> Iterator[Finding]:
    seen: dict[str, Reading] = {}
    for reading in shelf.entries:
        folded = unicodedata.normalize("NFKC", reading.title).casefold()
        name = re.sub(r"[\W_]+", " ", folded).strip() or folded
        first = seen.setdefault(name, reading)
        if first is not reading and identity(first.url) != identity(reading.url):
            what = f"the title {reading.title!r} also stands at {first.path}:{first.line}"
            what += f", for {identity(first.url)}"
            mend = "correct one title or url, or name the second address under also"
            yield _at(reading, ("title",), what, mend)


def _references(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        places: list[tuple[tuple[str | int, ...], str]] = [
            (("needs", number), name) for number, name in enumerate(reading.needs)
        ]
        if reading.superseded_by is not None:
            places.append((("superseded_by",), reading.superseded_by))
        for place, name in places:
            if name == reading.id:
                yield _at(reading, place, f"{place[0]} names the entry itself", "remove it")
            elif name not in shelf.readings and name not in shelf.unread:
                what = f"{place[0]} names {name!r}, which no reading has as its id"
                yield _at(reading, place, what, _near(name, shelf.readings))


def _snippets(shelf: Shelf, known: Collection[str]) -> Iterator[Finding]:
    for reading in shelf.entries:
        for number, name in enumerate(reading.snippets):
            if name not in known:
                what = f"snippets names {name!r}, which is no folder under snippets/"
                yield _at(reading, ("snippets", number), what, _near(name, known))


def _near(name: str, known: Collection[str]) -> str:
    near = nearest(name, known, alike=70)
    return f"write {near}" if near else "correct it, or remove it"


def _cycles(shelf: Shelf) -> Iterator[Finding]:
    """Each circle of `needs` and each of `superseded_by`, once, at its first entry."""
    for key in ("needs", "superseded_by"):
        after = {
            name: [n for n in _names(reading, key) if n in shelf.readings and n != name]
            for name, reading in shelf.readings.items()
        }
        done: set[str] = set()
        for start in after:
            trail: dict[str, Iterator[str]] = {}
            step: str | None = None if start in done else start
            while step is not None or trail:
                if step is None:
                    done.add(trail.popitem()[0])
                elif step in trail:
                    names = list(trail)
                    around = [*names[names.index(step) :], step]
                    circle = " -> ".join(around if len(around) < 9 else [*around[:6], "…", step])
                    what = f"{key} goes in a circle: {circle}"
                    yield _at(shelf.readings[names[-1]], (key,), what, f"remove {step!r} here")
                elif step not in done:
                    trail[step] = iter(after[step])
                step = next(trail[next(reversed(trail))], None) if trail else None


def _names(reading: Reading, key: str) -> list[str]:
    value = getattr(reading, key)
    return value if isinstance(value, list) else [value] if value else []


def _urls(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        places: list[tuple[tuple[str | int, ...], str]] = [(("url",), reading.url)]
        places += [(("also", n, "url"), version.url) for n, version in enumerate(reading.also)]
        for place, url in places:
            for what, mend in problems(url):
                yield _at(reading, place, what, mend)


def problems(url: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a URL that can be read, and the mend of each."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.")
    if parts.scheme.lower() == "http":
        mend = f"write https:{url[5:]}; a site without https is linked through an archived copy"
        yield f"the url {url} is http", mend
    if names := tracking(url):
        yield f"the url carries {', '.join(names)}, which follow the reader", f"write {clean(url)}"
    if host in SHORTENERS:
        yield f"{host} hides where the url leads", "open it and write the address it ends at"
    asked = parse_qs(parts.query)
    for hosts, paths, name in SEARCHES:
        if (
            re.fullmatch(hosts, host)
            and re.fullmatch(paths, parts.path)
            and (not name or name in asked)
        ):
            yield f"the url is a search on {host}", "write the address of what was meant"


def _order(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        order = [key for key in type(reading).model_fields if key in reading.written]
        for written, wanted in zip(reading.written, order, strict=True):
            if written != wanted:
                what = f"the key {written} of {reading.id!r} is out of order"
                yield _at(reading, (written,), what, f"write the keys as {', '.join(order)}")
                break


def _pages(shelf: Shelf) -> Iterator[Finding]:
    for where, topic in shelf.topics.items():
        if topic.listed and not topic.page:
            mend = f"write docs/{where}.md, or move the entries to another topic"
            yield Finding(f"docs/{where}.yml", None, "has no page beside it", mend)
        elif topic.listed and not topic.shown:
            what = "does not show its reading list"
            yield Finding(f"docs/{where}.md", None, what, f'add --8<-- "readings/{where}.md"')
