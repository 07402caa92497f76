"""The services asked, and their answers: arXiv, Crossref, GitHub, YouTube, the Internet Archive.

Each `parse_…` takes the bytes of an answer and gives None where they tell of no work. None raises
anything but `Unreadable`, whatever the bytes.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from warpshelf.core import markup
from warpshelf.readings.identity import work_identity

TITLE = 300  # characters; what an entry's title and `why` may hold
NAME = 120  # characters; what a name or a venue may hold
URL = 500  # characters
LONGEST = 2000  # characters of the address of an archived copy
MANY = 12  # authors that are named; the rest are "and others"
SCRIPTS = (("ja", "[\u3040-\u30ff]"), ("ko", "[\uac00-\ud7af]"), ("zh", "[\u3400-\u9fff]"))
JOINERS = "\u200c\u200d"  # they shape Persian and Indic words, so they stay
ATOM = "{http://www.w3.org/2005/Atom}"
ARXIV = "{http://arxiv.org/schemas/atom}"
DEEPEST = 20  # levels of elements in each other
BOOKS = ("book", "edited-book", "monograph", "reference-book")  # as Crossref has kinds
PAPERS = (
    "book-chapter", "book-section", "dissertation", "journal-article", "posted-content",
    "proceedings-article", "report",
)  # fmt: skip
ARCHIVE = "web.archive.org"
RELATIONS = {"has-preprint": "preprint", "is-preprint-of": "published"}


@dataclass(frozen=True)
class Metadata:
    """What an address says of its work; each text is clean and within the limits of an entry.

    `url` is the address that the target itself gives as its own, as an entry writes it; `also`
    holds pairs of what and url (preprint, published); `about` is what the target says of itself,
    for who writes the `why`, and never part of an entry.
    """

    title: str
    url: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    venue: str | None = None
    kind: str | None = None
    lang: str | None = None
    also: tuple[tuple[str, str], ...] = ()
    about: str | None = None


@dataclass(frozen=True)
class Endpoints:
    """Where the answers come from. Tests put a server of their own in place of each.

    `pages`, where it is set, is asked for `<pages>/<host>/<path>` in place of a page itself.
    `private` lets addresses through that are not on the public internet. `mailto` is whom
    Crossref may write to if our requests trouble it.
    """

    arxiv: str = "https://export.arxiv.org/api/query"
    crossref: str = "https://api.crossref.org/works"
    github: str = "https://api.github.com/repos"
    youtube: str = "https://www.youtube.com/oembed"
    archive: str = "https://archive.org/wayback/available"
    pages: str = ""
    private: bool = False
    mailto: str = "warpshelf@users.noreply.github.com"


class Unreadable(Exception):
    """The answer is not what its service documents; `str()` says what it is instead."""


def clean_text(value: object, longest: int = TITLE) -> str:
    """`value` on one line, as an entry may hold it; empty where there is nothing to show.

    Escape sequences and characters that are not seen are left out, runs of white space become one
    space, and what is longer than `longest` characters ends in an ellipsis, at a word if possible.
    """
    if not isinstance(value, str):
        return ""
    plain = markup.plain_text(value[: 50 * longest])
    seen = (c for c in plain if c in JOINERS or c.isspace() or unicodedata.category(c)[0] != "C")
    line = " ".join("".join(seen).split())
    if len(line) <= longest:
        return line
    head, _, tail = line[:longest].rpartition(" ")
    kept = head if head and len(tail) < longest // 3 else line[: longest - 1]
    return kept.rstrip(" ,;:-") + "…"


def clean_markup(value: object, longest: int = TITLE) -> str:
    """`text` of a value with HTML or MathML in it, such as Crossref hands out."""
    if not isinstance(value, str):
        return ""
    bare = re.sub(r"</?[A-Za-z][^<>]{0,200}>", "", value[: 50 * longest])
    return clean_text(html.unescape(bare), longest)


def clean_name(value: object) -> str:
    """A person's or a venue's name; empty where it is too long or an address to be one."""
    said = clean_markup(value, NAME + 1)
    wrong = len(said) > NAME or "@" in said or "://" in said or not re.search(r"\w", said)
    return "" if wrong else said


def given_name_first(value: str) -> str:
    """`Ada Lovelace` for `Lovelace, Ada`; other names as they are."""
    family, _, given = value.partition(", ")
    return f"{given} {family}" if given and "," not in given else value


def clean_authors(names: Iterable[object]) -> tuple[str, ...]:
    """The names that can be read, each once; of more than twelve the first, and `and others`."""
    kept = tuple(dict.fromkeys(filter(None, map(clean_name, names))))
    return (*kept[:MANY], "and others") if len(kept) > MANY else kept


def parse_year(value: object) -> int | None:
    """The year in a number or a date such as 2023-09-12 or 20230912, if it is plausible."""
    said = str(value)[:100] if isinstance(value, str | int) else ""
    found = re.search(r"(?<!\d)(?:19|20)\d\d(?=\D|$|[01]\d[0-3]\d(?:\D|$))", said)
    number = int(found[0]) if found else 0
    return number if 1950 <= number <= datetime.now(UTC).year + 1 else None


def detect_language(code: object, title: str) -> str | None:
    """ISO 639-1 of a language tag; the script of `title` overrules a template's English."""
    said = re.match(r"([A-Za-z]{2})(?:[-_].*)?$", code.strip()[:40]) if type(code) is str else None
    lang = said[1].lower() if said else None
    if lang in (None, "en"):
        lang = next((known for known, seen in SCRIPTS if re.search(seen, title)), lang)
    return lang


def _find_identity(url: str) -> str:
    """The work behind an address, "" if there is none."""
    try:
        return work_identity(url)
    except ValueError:
        return ""


def work_url(work: str) -> str | None:
    """The address of an identity `arxiv:…` or `doi:…`, where an entry can hold it."""
    scheme, _, rest = work.partition(":")
    base = {"arxiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}.get(scheme)
    url = f"{base}{rest}"
    return url if base and len(url) <= URL and _find_identity(url) == work else None


def doi_url(value: object) -> str | None:
    """The address of a DOI, written in any of the usual ways."""
    said = value if isinstance(value, str) and len(value) <= URL else ""
    found = re.search(r"10\.\d{4,9}/[!-~]+", said)
    return work_url(_find_identity(f"https://doi.org/{found[0]}")) if found else None


def _is_plain_url(url: object, host: str, longest: int = URL) -> bool:
    if not isinstance(url, str) or len(url) > longest or not _find_identity(url):
        return False
    return url.startswith("https://") and urlsplit(url).netloc == host


class _FeedTree(ElementTree.TreeBuilder):
    """A tree of limited depth, without a document type, so that no entity expands."""

    depth = 0

    def doctype(self, *_: object) -> None:
        raise Unreadable("an Atom feed with a document type, which none of arXiv's has")

    def start(self, tag: Any, attrs: Any) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(f"an Atom feed nested over {DEEPEST} deep")
        return super().start(tag, attrs)

    def end(self, tag: Any) -> Any:
        self.depth -= 1
        return super().end(tag)


def parse_arxiv(data: bytes, work: str) -> Metadata | None:
    """What arXiv's API says of `work`, an identity `arxiv:…`; the year is of the first version."""
    try:
        feed = ElementTree.fromstring(data, ElementTree.XMLParser(target=_FeedTree()))
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise Unreadable(f"not an Atom feed ({error})") from None
    for entry in feed.iterfind(f"{ATOM}entry"):
        named = re.sub(r"^http:", "https:", entry.findtext(f"{ATOM}id", "").strip())
        title = clean_text(entry.findtext(f"{ATOM}title"))
        if not title or _find_identity(named) != work:
            continue  # another work, or the entry in which the API says what went wrong
        published = doi_url(entry.findtext(f"{ARXIV}doi"))
        other = published if published and _find_identity(published) != work else None
        return Metadata(
            title=title,
            url=work_url(work) or named,
            authors=clean_authors(one.text for one in entry.iterfind(f"{ATOM}author/{ATOM}name")),
            year=parse_year(entry.findtext(f"{ATOM}published")),
            venue=clean_name(entry.findtext(f"{ARXIV}journal_ref")) or "arXiv",
            kind="paper",
            lang=detect_language("en", title),
            also=(("published", other),) if other else (),
        )
    return None


def _parse_object(data: bytes, whose: str) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unreadable(f"not a JSON object from {whose}")
    return said


def _value_at(value: Any, *way: str | int) -> Any:
    """The value at a path of keys and indexes; None if there is none."""
    for step in way:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = next(iter(value[step:]), None) if isinstance(value, list) else None
    return value


def _list_at(value: Any, *way: str | int) -> list[Any]:
    found = _value_at(value, *way)
    return found if isinstance(found, list) else []


def parse_crossref(data: bytes, work: str) -> Metadata | None:
    """What Crossref says of `work`, an identity `doi:…`."""
    said = _value_at(_parse_object(data, "Crossref"), "message")
    title = clean_markup(_value_at(said, "title", 0))
    url = doi_url(_value_at(said, "DOI")) or work_url(work)
    if not title or url is None:
        return None
    if (subtitle := clean_markup(_value_at(said, "subtitle", 0))) and subtitle not in title:
        title = clean_text(f"{title.rstrip(':')}: {subtitle}")
    authors = []
    for one in _list_at(said, "author"):
        given, family, name = (
            clean_name(_value_at(one, key)) for key in ("given", "family", "name")
        )
        authors.append(f"{given} {family}".strip() or name)
    dates = ("published-print", "issued", "published", "published-online")
    years = (parse_year(_value_at(said, key, "date-parts", 0, 0)) for key in dates)
    also: dict[str, str] = {}
    for key, what in RELATIONS.items():
        for item in _list_at(said, "relation", key):
            kind, name = _value_at(item, "id-type"), _value_at(item, "id")
            other = doi_url(f"10.48550/arXiv.{name}" if kind == "arxiv" else name)
            if other and _find_identity(other) != work:
                also.setdefault(other, what)
    kind = _value_at(said, "type")
    return Metadata(
        title=title,
        url=url,
        authors=clean_authors(authors),
        year=next(filter(None, years), None),
        venue=_publication_venue(said),
        kind="book" if kind in BOOKS else "paper" if kind in PAPERS else None,
        lang=detect_language(_value_at(said, "language") or "en", title),
        also=tuple((what, other) for other, what in also.items())[:4],
    )


def _publication_venue(said: Any) -> str | None:
    """`SOSP 2019` of the event "SOSP '19", else what it is contained in."""
    acronym = clean_name(_value_at(said, "event", "acronym"))
    if short := re.fullmatch(r"([A-Z][\w&+/ -]*?)[ ]?['’](\d\d)", acronym):
        return f"{short[1]} {parse_year(f'20{short[2]}') or f'19{short[2]}'}"
    places = [
        _value_at(said, "container-title", 0),
        _value_at(said, "short-container-title", 0),
        _value_at(said, "institution", 0, "name"),
    ]
    return next(filter(None, map(clean_name, [acronym, *places])), None)


def parse_github(data: bytes) -> Metadata | None:
    """What GitHub says of a repository: its name as a title, its owner as the author."""
    said = _parse_object(data, "GitHub")
    title, url = clean_text(said.get("name")), said.get("html_url")
    if not title or not isinstance(url, str) or not _is_plain_url(url, "github.com"):
        return None
    authors = clean_authors([_value_at(said, "owner", "login")])
    about = clean_text(said.get("description")) or None
    return Metadata(
        title, url, authors, parse_year(said.get("created_at")), None, "code", about=about
    )


def parse_youtube(data: bytes, url: str) -> Metadata | None:
    """What YouTube says of the video or list at `url`: the channel as venue, not who speaks."""
    said = _parse_object(data, "YouTube")
    if not (title := clean_text(said.get("title"))):
        return None
    venue = clean_name(said.get("author_name")) or None
    return Metadata(title, url, venue=venue, kind="talk", lang=detect_language(None, title))


def parse_archived(data: bytes) -> str | None:
    """The address of a page's newest copy in the Internet Archive."""
    said = _parse_object(data, "the Internet Archive")
    closest = _value_at(said, "archived_snapshots", "closest")
    there = _value_at(closest, "url")
    if _value_at(closest, "available") is not True or not isinstance(there, str):
        return None
    there = "https://" + there.partition("://")[2]
    return there if _is_plain_url(there, ARCHIVE, LONGEST) else None
