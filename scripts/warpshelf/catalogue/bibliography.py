"""Readings as BibTeX entries and as CSL-JSON items."""

from __future__ import annotations

import re
from typing import Any

from warpshelf.readings.fields import OTHER_SCRIPT
from warpshelf.readings.identity import identity
from warpshelf.readings.model import Reading

# What ends a list of authors too long to give.
OTHERS = "and others"
JOURNAL = re.compile(
    r"\b(?:journal|transactions|letters|magazine|newsletter|communications of|proceedings of the"
    r" (?:ieee|vldb endowment|acm on)|pacmpl|jmlr|tmlr|concurrency and computation|ieee access"
    r"|ieee micro|queue)\b|^(?:computing|future generation computer systems|nature)\b",
    re.IGNORECASE,
)
THESIS = re.compile(r"\b(phd|doctoral|master'?s?)\b.*\b(?:thesis|dissertation)\b", re.IGNORECASE)
REPORT = re.compile(r"\b(?:technical report|tech\. report|white ?paper)\b", re.IGNORECASE)
GROUP = re.compile(  # a name that is not a person's
    r"\b(?:AI|Inc|Corporation|Group|Team|Lab|Labs|Laboratory|Authors|Contributors|Research|Project"
    r"|University|Community|Developers|Foundation|Institute|Technologies)\b|[\d_]|^\S+$",
    re.IGNORECASE,
)
PARTICLE = re.compile(r"[a-z]+'?$")  # the "van der" of a family name
# BibTeX counts braces, escaped ones too, so a text may hold none but ours.
SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}",
    "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip
IN_URL = {"\\": "%5C", "{": "%7B", "}": "%7D"}  # all else stands there as it is
CSL_TYPES = {
    "book": "book", "code": "software", "tool": "software", "talk": "speech", "site": "webpage",
    "post": "post-weblog", "docs": "webpage", "course": "webpage",
}  # fmt: skip


def bibtex(reading: Reading) -> str:
    """The reading as one BibTeX entry, whose key is its id; UTF-8, as biber and bibtex8 read it.

    A paper without a venue is an `@misc` that names its archive. Titles are in double braces, so
    that no style changes their case.
    """
    form, where = _bibtex_form(reading)
    fields = {
        "title": f"{{{_tex(reading.title)}}}",
        "author": " and ".join(map(_bibtex_name, reading.authors)),
        "year": str(reading.year or ""),
        where: _tex(_place(reading.venue or "")) if where else "",
        **_bibtex_identifiers(reading),
        "url": "".join(IN_URL.get(character, character) for character in reading.url),
        "language": reading.lang if reading.lang != "en" else "",
        "note": _tex(reading.title_en or ""),
        "keywords": ", ".join(reading.tags),
    }
    width = max(len(name) for name, value in fields.items() if value)
    lines = [f"  {name:<{width}} = {{{value}}}" for name, value in fields.items() if value]
    return f"@{form}{{{reading.id},\n" + ",\n".join(lines) + "\n}\n"


def csl(reading: Reading) -> dict[str, Any]:
    """The reading as an item of CSL-JSON 1.0, as citation managers and Pandoc read it."""
    item: dict[str, Any] = {
        "id": reading.id,
        "type": _csl_type(reading),
        "title": reading.title,
        "author": [_csl_name(name) for name in reading.authors],
        "issued": {"date-parts": [[reading.year]]} if reading.year else None,
        "container-title": reading.venue,
        "DOI": _named(reading, "doi"),
        "URL": reading.url,
        "language": reading.lang,
        "note": reading.title_en,
        "keyword": ", ".join(reading.tags),
    }
    if arxiv := _named(reading, "arxiv"):
        item |= {"archive": "arXiv", "number": arxiv}
    return {key: value for key, value in item.items() if value}


def _bibtex_form(reading: Reading) -> tuple[str, str]:
    """The entry's type, and the field that its venue goes into."""
    venue = reading.venue or ""
    if reading.kind != "paper":
        # Only what every style knows: @software and @online are biblatex's alone.
        return ("book", "publisher") if reading.kind == "book" else ("misc", "howpublished")
    if found := THESIS.search(venue):
        return ("mastersthesis" if found[1].lower().startswith("m") else "phdthesis"), "school"
    if REPORT.search(venue):
        return "techreport", "institution"
    if not venue or venue.lower() == "arxiv":
        return "misc", "howpublished" if venue and not _named(reading, "arxiv") else ""
    return ("article", "journal") if JOURNAL.search(venue) else ("inproceedings", "booktitle")


def _place(venue: str) -> str:
    """A thesis is from a school; the words before it are the type's."""
    return venue.partition(", ")[2] or venue if THESIS.search(venue) else venue


def _bibtex_identifiers(reading: Reading) -> dict[str, str]:
    found = {"doi": _tex(_named(reading, "doi") or "")}
    if arxiv := _named(reading, "arxiv"):
        found |= {"eprint": arxiv, "archiveprefix": "arXiv"}
    return found


def _named(reading: Reading, scheme: str) -> str | None:
    """The reading's name under `scheme`: of its own address, else of another version of it."""
    versions = [v.url for v in reading.also if v.what in ("published", "preprint")]
    for url in [reading.url, *versions]:
        found, _, name = identity(url).partition(":")
        if found == scheme:
            return name
    return None


def _tex(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)


def _people(name: str) -> bool:
    return not GROUP.search(name) and not OTHER_SCRIPT.search(name)


def _bibtex_name(name: str) -> str:
    if name in (OTHERS, "others"):
        return "others"
    if not _people(name) or " and " in f" {name} ".lower() or "," in name:
        return f"{{{_tex(name)}}}"
    return _tex(name)


def _csl_name(name: str) -> dict[str, str]:
    if name in (OTHERS, "others"):
        return {"literal": "others"}
    words = name.split()
    if not _people(name):
        return {"literal": name}
    first = len(words) - 1
    while first > 1 and PARTICLE.match(words[first - 1]):
        first -= 1
    return {"family": " ".join(words[first:]), "given": " ".join(words[:first])}


def _csl_type(reading: Reading) -> str:
    if reading.kind != "paper":
        return CSL_TYPES[reading.kind]
    venue = reading.venue or ""
    if THESIS.search(venue):
        return "thesis"
    if REPORT.search(venue):
        return "report"
    if not venue or venue.lower() == "arxiv":
        return "article"
    return "article-journal" if JOURNAL.search(venue) else "paper-conference"
