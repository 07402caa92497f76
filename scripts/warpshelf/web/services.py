"""The services asked, and their answers: arXiv, Crossref, GitHub, YouTube, the Internet Archive.

Each function takes the bytes of an answer and gives None where they tell of no work. None raises
anything but `Unreadable`, whatever the bytes. `Metadata` is what any of them says of a work, made
fit for an entry.
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
from xml.parsers import expat

from warpshelf.core import markup
from warpshelf.readings.identity import identity

TITLE = 300  # characters; what an entry's title and `why` may hold
NAME = 120  # characters; what a name or a venue may hold
URL = 500  # characters
MANY = 12  # authors that are named; the rest are "and others"
OTHERS = "and others"
SCRIPTS = (("ja", "[\u3040-\u30ff]"), ("ko", "[\uac00-\ud7af]"), ("zh", "[\u3400-\u9fff]"))
JOINERS = "\u200c\u200d"  # they shape Persian and Indic words, so they stay


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


def text(value: object, longest: int = TITLE) -> str:
    """`value` on one line, as an entry may hold it; empty where there is nothing to show.

    Escape sequences and characters that are not seen are left out, runs of white space become one
    space, and what is longer than `longest` characters ends in an ellipsis, at a word if possible.
    """
    if not isinstance(value, str):
        return ""
    plain = markup.plain(value[: 50 * longest])
    seen = (c for c in plain if c in JOINERS or c.isspace() or unicodedata.category(c)[0] != "C")
    line = " ".join("".join(seen).split())
    if len(line) <= longest:
        return line
    head, _, tail = line[:longest].rpartition(" ")
    kept = head if head and len(tail) < longest // 3 else line[: longest - 1]
    return kept.rstrip(" ,;:-") + "…"


def marked(value: object, longest: int = TITLE) -> str:
    """`text` of a value with HTML or MathML in it, such as Crossref hands out."""
    if not isinstance(value, str):
        return ""
    bare = re.sub(r"</?[A-Za-z][^<>]{0,200}>", "", value[: 50 * longest])
    return text(html.unescape(bare), longest)


def name(value: object) -> str:
    """A person's or a venue's name; empty where it is too long or an address to be one."""
    said = marked(value, NAME + 1)
    if len(said) > NAME or "@" in said or "://" in said or not re.search(r"\w", said):
        return ""
    return said


def forward(value: str) -> str:
    """`Ada Lovelace` for `Lovelace, Ada`; other names as they are."""
    family, comma, given = value.partition(", ")
    turned = comma and given and "," not in given
    return f"{given} {family}" if turned else value


def authors(names: Iterable[object]) -> tuple[str, ...]:
    """The names that can be read, each once; of more than twelve the first, and `and others`."""
    kept = tuple(dict.fromkeys(filter(None, map(name, names))))
    return (*kept[:MANY], OTHERS) if len(kept) > MANY else kept


def year(value: object) -> int | None:
    """The year in a number or a date such as 2023-09-12 or 20230912, if a work can be of it."""
    said = str(value)[:100] if isinstance(value, str | int) else ""
    found = re.search(r"(?<!\d)(?:19|20)\d\d(?=\D|$|[01]\d[0-3]\d(?:\D|$))", said)
    number = int(found[0]) if found else 0
    return number if 1950 <= number <= datetime.now(UTC).year + 1 else None


def language(code: object, title: str) -> str | None:
    """ISO 639-1 of a language tag; the script of `title` overrules a template's English."""
    said = re.match(r"([A-Za-z]{2})(?:[-_].*)?$", code.strip()[:40]) if type(code) is str else None
    lang = said[1].lower() if said else None
    if lang in (None, "en"):
        lang = next((known for known, seen in SCRIPTS if re.search(seen, title)), lang)
    return lang


ATOM = "http://www.w3.org/2005/Atom"
ARXIV = "http://arxiv.org/schemas/atom"
DEEPEST = 20  # levels of elements in each other
CROSSREF_KINDS = {
    "book": "book", "book-chapter": "paper", "book-section": "paper", "dissertation": "paper",
    "edited-book": "book", "journal-article": "paper", "monograph": "book",
    "posted-content": "paper", "proceedings-article": "paper", "reference-book": "book",
    "report": "paper",
}  # fmt: skip
ARCHIVE = "web.archive.org"
LONGEST = 2000  # characters of the address of an archived copy
RELATIONS = {"has-preprint": "preprint", "is-preprint-of": "published"}


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


def address(work: str) -> str | None:
    """The address of an identity `arxiv:…` or `doi:…`, where an entry can hold it."""
    scheme, _, rest = work.partition(":")
    bases = {"arxiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}
    url = bases.get(scheme, "") + rest
    return url if scheme in bases and len(url) <= URL and _same(url, work) else None


def _same(url: str, work: str) -> bool:
    try:
        return identity(url) == work
    except ValueError:
        return False


def doi(value: object) -> str | None:
    """The address of a DOI, written in any of the usual ways."""
    if not isinstance(value, str) or len(value) > URL:
        return None
    said = re.search(r"10\.\d{4,9}/[!-~]+", value)
    return address(identity_of_doi(said[0])) if said else None


def identity_of_doi(name: str) -> str:
    """`arxiv:…` for a DOI of arXiv's own, else `doi:…`."""
    try:
        return identity(f"https://doi.org/{name}")
    except ValueError:
        return ""


# arXiv


class _Feed:
    """The entries of an Atom feed as lists of (name, text), read without building a tree."""

    def __init__(self, data: bytes) -> None:
        self.entries: list[list[tuple[str, str]]] = []
        self._path: list[str] = []
        self._text: list[str] = []
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse  # no entities, so no expansion of any
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        try:
            parser.Parse(data, True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise Unreadable(f"no Atom feed ({error})") from None

    def _refuse(self, *_: object) -> None:
        raise Unreadable("an Atom feed with a document type, which none of arXiv's has")

    def _start(self, name: str, _: object) -> None:
        self._path.append(name)
        self._text.clear()
        if len(self._path) > DEEPEST:
            raise Unreadable(f"an Atom feed nested over {DEEPEST} deep")
        if self._path[1:] == [f"{ATOM} entry"]:
            self.entries.append([])

    def _end(self, _: str) -> None:
        path = self._path[2:] if self._path[1:2] == [f"{ATOM} entry"] else []
        if path:
            short = "/".join(part.rpartition(" ")[2] for part in path)
            known = all(part.partition(" ")[0] in (ATOM, ARXIV) for part in path)
            if known:
                self.entries[-1].append((short, "".join(self._text)))
        self._path.pop()
        self._text.clear()


def arxiv(data: bytes, work: str) -> Metadata | None:
    """What arXiv's API says of `work`, an identity `arxiv:…`. Raises Unreadable.

    The year is that of the first version. The venue is the reference that the authors gave, and
    where they gave none, arXiv.
    """
    for entry in _Feed(data).entries:
        first = dict(reversed(entry))
        named = re.sub(r"^http:", "https:", first.get("id", "").strip())
        title = text(first.get("title"))
        if not title or not _same(named, work):
            continue  # another work, or the entry in which the API says what went wrong
        published = doi(first.get("doi"))
        other = published if published and not _same(published, work) else None
        return Metadata(
            title=title,
            url=address(work) or named,
            authors=authors(said for key, said in entry if key == "author/name"),
            year=year(first.get("published", "")),
            venue=name(first.get("journal_ref")) or "arXiv",
            kind="paper",
            lang=language("en", title),
            also=(("published", other),) if other else (),
        )
    return None


# JSON


def _object(data: bytes, whose: str) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unreadable(f"no JSON object of {whose}")
    return said


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: object) -> Any:
    return next(iter(_list(value)), None)


def crossref(data: bytes, work: str) -> Metadata | None:
    """What Crossref says of `work`, an identity `doi:…`. Raises Unreadable."""
    said = _dict(_object(data, "Crossref").get("message"))
    title = marked(_first(said.get("title")))
    if not title:
        return None
    if (subtitle := marked(_first(said.get("subtitle")))) and subtitle not in title:
        title = text(f"{title.rstrip(':')}: {subtitle}")
    url = doi(said.get("DOI")) or address(work)
    if url is None:
        return None
    when = _year(said)
    return Metadata(
        title=title,
        url=url,
        authors=authors(_person(_dict(author)) for author in _list(said.get("author"))),
        year=when,
        venue=_venue(said),
        kind=CROSSREF_KINDS.get(str(said.get("type"))),
        lang=language(said.get("language") or "en", title),
        also=_related(_dict(said.get("relation")), work),
    )


def _person(author: dict[str, Any]) -> str:
    given, family = name(author.get("given")), name(author.get("family"))
    return f"{given} {family}".strip() or name(author.get("name"))


def _year(said: dict[str, Any]) -> int | None:
    for key in ("published-print", "issued", "published", "published-online"):
        parts = _first(_dict(said.get(key)).get("date-parts"))
        if when := year(_first(parts)):
            return when
    return None


def _venue(said: dict[str, Any]) -> str | None:
    """`SOSP 2019` of the event "SOSP '19", else what it is contained in."""
    acronym = name(_dict(said.get("event")).get("acronym"))
    if short := re.fullmatch(r"([A-Z][\w&+/ -]*?)[ ]?['’](\d\d)", acronym):
        return f"{short[1]} {year(f'20{short[2]}') or f'19{short[2]}'}"
    institution = _dict(_first(said.get("institution"))).get("name")
    places = [_first(said.get("container-title")), _first(said.get("short-container-title"))]
    return next(filter(None, map(name, [acronym, *places, institution])), None)


def _related(relation: dict[str, Any], work: str) -> tuple[tuple[str, str], ...]:
    also: dict[str, str] = {}
    for key, what in RELATIONS.items():
        for item in _list(relation.get(key)):
            kind, name = _dict(item).get("id-type"), _dict(item).get("id")
            named = f"10.48550/arXiv.{name}" if kind == "arxiv" else name
            url = doi(named)
            if url and not _same(url, work):
                also.setdefault(url, what)
    return tuple((what, url) for url, what in also.items())[:4]


def github(data: bytes) -> Metadata | None:
    """What GitHub says of a repository. Raises Unreadable.

    The title is the repository's name as its owner writes it, without the owner, who is its author.
    The year is that of its making. A repository that has moved is found under its new name.
    """
    said = _object(data, "GitHub")
    title, url = text(said.get("name")), said.get("html_url")
    if not title or not isinstance(url, str) or not _plain(url, "github.com"):
        return None
    return Metadata(
        title=title,
        url=url,
        authors=authors([_dict(said.get("owner")).get("login")]),
        year=year(said.get("created_at")),
        kind="code",
        about=text(said.get("description")) or None,
    )


def _plain(url: str, host: str, longest: int = URL) -> bool:
    try:
        identity(url)
        return len(url) <= longest and urlsplit(url).netloc == host and url[:8] == "https://"
    except ValueError:
        return False


def youtube(data: bytes, url: str) -> Metadata | None:
    """What YouTube says of the video or list at `url`. Raises Unreadable.

    The channel is the venue: who speaks is not told.
    """
    said = _object(data, "YouTube")
    title = text(said.get("title"))
    if not title:
        return None
    venue = name(said.get("author_name")) or None
    return Metadata(title, url, venue=venue, kind="talk", lang=language(None, title))


def archived(data: bytes) -> str | None:
    """The address of a page's newest copy in the Internet Archive. Raises Unreadable."""
    said = _dict(_object(data, "the Internet Archive").get("archived_snapshots"))
    closest = _dict(said.get("closest"))
    there = closest.get("url")
    if closest.get("available") is not True or not isinstance(there, str):
        return None
    there = "https://" + there.partition("://")[2]
    return there if _plain(there, ARCHIVE, LONGEST) else None
