"""What the web says of an address, made fit for an entry."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from warpshelf.core import markup

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
