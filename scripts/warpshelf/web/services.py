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
from warpshelf.readings.identity import work_identity

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
    if len(said) > NAME or "@" in said or "://" in said or not re.search(r"\w", said):
        return ""
    return said


def given_name_first(value: str) -> str:
    """`Ada Lovelace` for `Lovelace, Ada`; other names as they are."""
    family, comma, given = value.partition(", ")
    turned = comma and given and "," not in given
    return f"{given} {family}" if turned else value


def clean_authors(names: Iterable[object]) -> tuple[str, ...]:
    """The names that can be read, each once; of more than twelve the first, and `and others`."""
    kept = tuple(dict.fromkeys(filter(None, map(clean_name, names))))
    return (*kept[:MANY], OTHERS) if len(kept) > MANY else kept


def parse_year(value: object) -> int | None:
    """The year in a number or a date such as 2023-09-12 or 20230912, if a work can be of it."""
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


def work_url(work: str) -> str | None:
    """The address of an identity `arxiv:…` or `doi:…`, where an entry can hold it."""
    scheme, _, rest = work.partition(":")
    bases = {"arxiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}
    url = bases.get(scheme, "") + rest
    return url if scheme in bases and len(url) <= URL and _is_work(url, work) else None


def _is_work(url: str, work: str) -> bool:
    try:
        return work_identity(url) == work
    except ValueError:
        return False


def doi_url(value: object) -> str | None:
    """The address of a DOI, written in any of the usual ways."""
    if not isinstance(value, str) or len(value) > URL:
        return None
    said = re.search(r"10\.\d{4,9}/[!-~]+", value)
    return work_url(doi_identity(said[0])) if said else None


def doi_identity(name: str) -> str:
    """`arxiv:…` for a DOI of arXiv's own, else `doi:…`."""
    try:
        return work_identity(f"https://doi.org/{name}")
    except ValueError:
        return ""


# arXiv


class _AtomFeed:
    """The entries of an Atom feed as lists of (name, text), read without building a tree."""

    def __init__(self, data: bytes) -> None:
        self.entries: list[list[tuple[str, str]]] = []
        self._path: list[str] = []
        self._text: list[str] = []
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype  # no entities, so no expansion of any
        parser.EntityDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start_element
        parser.EndElementHandler = self._end_element
        parser.CharacterDataHandler = self._text.append
        try:
            parser.Parse(data, True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise Unreadable(f"no Atom feed ({error})") from None

    def _refuse_doctype(self, *_: object) -> None:
        raise Unreadable("an Atom feed with a document type, which none of arXiv's has")

    def _start_element(self, name: str, _: object) -> None:
        self._path.append(name)
        self._text.clear()
        if len(self._path) > DEEPEST:
            raise Unreadable(f"an Atom feed nested over {DEEPEST} deep")
        if self._path[1:] == [f"{ATOM} entry"]:
            self.entries.append([])

    def _end_element(self, _: str) -> None:
        path = self._path[2:] if self._path[1:2] == [f"{ATOM} entry"] else []
        if path:
            short = "/".join(part.rpartition(" ")[2] for part in path)
            known = all(part.partition(" ")[0] in (ATOM, ARXIV) for part in path)
            if known:
                self.entries[-1].append((short, "".join(self._text)))
        self._path.pop()
        self._text.clear()


def parse_arxiv(data: bytes, work: str) -> Metadata | None:
    """What arXiv's API says of `work`, an identity `arxiv:…`. Raises Unreadable.

    The year is that of the first version. The venue is the reference that the authors gave, and
    where they gave none, arXiv.
    """
    for entry in _AtomFeed(data).entries:
        first = dict(reversed(entry))
        named = re.sub(r"^http:", "https:", first.get("id", "").strip())
        title = clean_text(first.get("title"))
        if not title or not _is_work(named, work):
            continue  # another work, or the entry in which the API says what went wrong
        published = doi_url(first.get("doi"))
        other = published if published and not _is_work(published, work) else None
        return Metadata(
            title=title,
            url=work_url(work) or named,
            authors=clean_authors(said for key, said in entry if key == "author/name"),
            year=parse_year(first.get("published", "")),
            venue=clean_name(first.get("journal_ref")) or "arXiv",
            kind="paper",
            lang=detect_language("en", title),
            also=(("published", other),) if other else (),
        )
    return None


# JSON


def _parse_object(data: bytes, whose: str) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Unreadable(f"no JSON object of {whose}")
    return said


def _as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first_item(value: object) -> Any:
    return next(iter(_as_list(value)), None)


def parse_crossref(data: bytes, work: str) -> Metadata | None:
    """What Crossref says of `work`, an identity `doi:…`. Raises Unreadable."""
    said = _as_dict(_parse_object(data, "Crossref").get("message"))
    title = clean_markup(_first_item(said.get("title")))
    if not title:
        return None
    if (subtitle := clean_markup(_first_item(said.get("subtitle")))) and subtitle not in title:
        title = clean_text(f"{title.rstrip(':')}: {subtitle}")
    url = doi_url(said.get("DOI")) or work_url(work)
    if url is None:
        return None
    when = _publication_year(said)
    return Metadata(
        title=title,
        url=url,
        authors=clean_authors(
            _person_name(_as_dict(author)) for author in _as_list(said.get("author"))
        ),
        year=when,
        venue=_publication_venue(said),
        kind=CROSSREF_KINDS.get(str(said.get("type"))),
        lang=detect_language(said.get("language") or "en", title),
        also=_related_urls(_as_dict(said.get("relation")), work),
    )


def _person_name(author: dict[str, Any]) -> str:
    given, family = clean_name(author.get("given")), clean_name(author.get("family"))
    return f"{given} {family}".strip() or clean_name(author.get("name"))


def _publication_year(said: dict[str, Any]) -> int | None:
    for key in ("published-print", "issued", "published", "published-online"):
        parts = _first_item(_as_dict(said.get(key)).get("date-parts"))
        if when := parse_year(_first_item(parts)):
            return when
    return None


def _publication_venue(said: dict[str, Any]) -> str | None:
    """`SOSP 2019` of the event "SOSP '19", else what it is contained in."""
    acronym = clean_name(_as_dict(said.get("event")).get("acronym"))
    if short := re.fullmatch(r"([A-Z][\w&+/ -]*?)[ ]?['’](\d\d)", acronym):
        return f"{short[1]} {parse_year(f'20{short[2]}') or f'19{short[2]}'}"
    institution = _as_dict(_first_item(said.get("institution"))).get("name")
    places = [
        _first_item(said.get("container-title")),
        _first_item(said.get("short-container-title")),
    ]
    return next(filter(None, map(clean_name, [acronym, *places, institution])), None)


def _related_urls(relation: dict[str, Any], work: str) -> tuple[tuple[str, str], ...]:
    also: dict[str, str] = {}
    for key, what in RELATIONS.items():
        for item in _as_list(relation.get(key)):
            kind, name = _as_dict(item).get("id-type"), _as_dict(item).get("id")
            named = f"10.48550/arXiv.{name}" if kind == "arxiv" else name
            url = doi_url(named)
            if url and not _is_work(url, work):
                also.setdefault(url, what)
    return tuple((what, url) for url, what in also.items())[:4]


def parse_github(data: bytes) -> Metadata | None:
    """What GitHub says of a repository. Raises Unreadable.

    The title is the repository's name as its owner writes it, without the owner, who is its author.
    The year is that of its making. A repository that has moved is found under its new name.
    """
    said = _parse_object(data, "GitHub")
    title, url = clean_text(said.get("name")), said.get("html_url")
    if not title or not isinstance(url, str) or not _is_plain_url(url, "github.com"):
        return None
    return Metadata(
        title=title,
        url=url,
        authors=clean_authors([_as_dict(said.get("owner")).get("login")]),
        year=parse_year(said.get("created_at")),
        kind="code",
        about=clean_text(said.get("description")) or None,
    )


def _is_plain_url(url: str, host: str, longest: int = URL) -> bool:
    try:
        work_identity(url)
        return len(url) <= longest and urlsplit(url).netloc == host and url[:8] == "https://"
    except ValueError:
        return False


def parse_youtube(data: bytes, url: str) -> Metadata | None:
    """What YouTube says of the video or list at `url`. Raises Unreadable.

    The channel is the venue: who speaks is not told.
    """
    said = _parse_object(data, "YouTube")
    title = clean_text(said.get("title"))
    if not title:
        return None
    venue = clean_name(said.get("author_name")) or None
    return Metadata(title, url, venue=venue, kind="talk", lang=detect_language(None, title))


def parse_archived(data: bytes) -> str | None:
    """The address of a page's newest copy in the Internet Archive. Raises Unreadable."""
    said = _as_dict(_parse_object(data, "the Internet Archive").get("archived_snapshots"))
    closest = _as_dict(said.get("closest"))
    there = closest.get("url")
    if closest.get("available") is not True or not isinstance(there, str):
        return None
    there = "https://" + there.partition("://")[2]
    return there if _is_plain_url(there, ARCHIVE, LONGEST) else None
