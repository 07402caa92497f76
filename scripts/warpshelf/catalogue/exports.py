"""The lists for other programs: BibTeX, CSL-JSON, plain JSON, Atom (RFC 4287) and plain text.

Each topic has its own set, and `all` is everything: `kernels/softmax.bib`, `all.json`. New
measurements have a feed of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from warpshelf.core.markup import plain_text
from warpshelf.core.places import whole_address
from warpshelf.readings.identity import work_identity
from warpshelf.readings.model import OTHER_SCRIPT, Reading, Shelf, Topic
from warpshelf.render.snippet_page import SnippetPage

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


def format_bibtex(reading: Reading) -> str:
    """The reading as one BibTeX entry, whose key is its id; UTF-8, as biber and bibtex8 read it.

    A paper without a venue is an `@misc` that names its archive. Titles are in double braces, so
    that no style changes their case.
    """
    form, where = _bibtex_form(reading)
    fields = {
        "title": f"{{{_escape_tex(reading.title)}}}",
        "author": " and ".join(map(_bibtex_name, reading.authors)),
        "year": str(reading.year or ""),
        where: _escape_tex(_venue_name(reading.venue or "")) if where else "",
        **_bibtex_identifiers(reading),
        "url": "".join(IN_URL.get(character, character) for character in reading.url),
        "language": reading.lang if reading.lang != "en" else "",
        "note": _escape_tex(reading.title_en or ""),
        "keywords": ", ".join(reading.tags),
    }
    width = max(len(name) for name, value in fields.items() if value)
    lines = [f"  {name:<{width}} = {{{value}}}" for name, value in fields.items() if value]
    return f"@{form}{{{reading.id},\n" + ",\n".join(lines) + "\n}\n"


def csl_item(reading: Reading) -> dict[str, Any]:
    """The reading as an item of CSL-JSON 1.0, as citation managers and Pandoc read it."""
    item: dict[str, Any] = {
        "id": reading.id,
        "type": _csl_type(reading),
        "title": reading.title,
        "author": [_csl_name(name) for name in reading.authors],
        "issued": {"date-parts": [[reading.year]]} if reading.year else None,
        "container-title": reading.venue,
        "DOI": _find_identifier(reading, "doi"),
        "URL": reading.url,
        "language": reading.lang,
        "note": reading.title_en,
        "keyword": ", ".join(reading.tags),
    }
    if arxiv := _find_identifier(reading, "arxiv"):
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
        return "misc", "howpublished" if venue and not _find_identifier(reading, "arxiv") else ""
    return ("article", "journal") if JOURNAL.search(venue) else ("inproceedings", "booktitle")


def _venue_name(venue: str) -> str:
    """A thesis is from a school; the words before it are the type's."""
    return venue.partition(", ")[2] or venue if THESIS.search(venue) else venue


def _bibtex_identifiers(reading: Reading) -> dict[str, str]:
    found = {"doi": _escape_tex(_find_identifier(reading, "doi") or "")}
    if arxiv := _find_identifier(reading, "arxiv"):
        found |= {"eprint": arxiv, "archiveprefix": "arXiv"}
    return found


def _find_identifier(reading: Reading, scheme: str) -> str | None:
    """The reading's name under `scheme`: of its own address, else of another version of it."""
    versions = [v.url for v in reading.also if v.what in ("published", "preprint")]
    for url in [reading.url, *versions]:
        found, _, name = work_identity(url).partition(":")
        if found == scheme:
            return name
    return None


def _escape_tex(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)


def _is_person(name: str) -> bool:
    return not GROUP.search(name) and not OTHER_SCRIPT.search(name)


def _bibtex_name(name: str) -> str:
    if name in (OTHERS, "others"):
        return "others"
    if not _is_person(name) or " and " in f" {name} ".lower() or "," in name:
        return f"{{{_escape_tex(name)}}}"
    return _escape_tex(name)


def _csl_name(name: str) -> dict[str, str]:
    if name in (OTHERS, "others"):
        return {"literal": "others"}
    words = name.split()
    if not _is_person(name):
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


NAMESPACE = "http://www.w3.org/2005/Atom"
MOST = 50  # entries in a feed, the newest
BEFORE = "2000-01-01T00:00:00Z"  # the date of a feed in which nothing stands yet
STATES = {"measured": "measured", "verified": "checked"}


def readings_feed(listed: Iterable[Reading], site: str, title: str, page: str, address: str) -> str:
    """The readings put on the shelf last; one that does not say when is left out."""
    dated = [reading for reading in listed if reading.added]
    newest = sorted(dated, key=lambda reading: reading.added or "", reverse=True)
    feed = _new_feed(
        title, page, address, site, f"{newest[0].added}T00:00:00Z" if newest else BEFORE
    )
    for reading in newest[:MOST]:
        link = f"{whole_address(reading.where, site)}#{reading.anchor}"
        entry = _add_entry(feed, site, f"reading/{reading.id}", f"{reading.added}T00:00:00Z")
        _add_element(entry, "title", reading.title_en or reading.title)
        SubElement(entry, "link", href=link)
        SubElement(entry, "link", rel="related", href=reading.url)
        for name in reading.authors:
            _add_element(SubElement(entry, "author"), "name", name)
        for tag in reading.tags:
            SubElement(entry, "category", term=tag)
        _add_element(entry, "summary", reading.why)
    return _serialize_feed(feed)


def measurements_feed(exhibits: Sequence[SnippetPage], site: str, title: str) -> str:
    """What was measured or checked last: one entry a snippet and machine."""
    root = site.rstrip("/")
    rows = [
        (state.record["date"], exhibit, state)
        for exhibit in exhibits
        for state in exhibit.states
        if state.state in STATES and state.record is not None
    ]
    rows.sort(key=lambda row: (row[0], row[1].id, row[2].machine), reverse=True)
    feed = _new_feed(
        f"Measurements · {title}",
        f"{root}/",
        f"{root}/exports/measurements.xml",
        site,
        _utc_instant(rows[0][0]) if rows else BEFORE,
    )
    for date, exhibit, state in rows[:MOST]:
        # A snippet that is measured again on a machine is news again, so its id has the date.
        name = f"record/{exhibit.id}/{state.machine}/{date}"
        entry = _add_entry(feed, site, name, _utc_instant(date))
        where = "a CPU" if state.machine == "cpu" else state.name
        _add_element(entry, "title", f"{exhibit.id} {STATES[state.state]} on {where}")
        SubElement(entry, "link", href=f"{root}/records/{exhibit.id}/{state.machine}.json")
        _add_element(entry, "summary", exhibit.title)
    return _serialize_feed(feed)


def _new_feed(title: str, page: str, address: str, site: str, updated: str) -> Element:
    feed = Element("feed", xmlns=NAMESPACE)
    _add_element(feed, "id", address)
    _add_element(feed, "title", title)
    _add_element(feed, "updated", updated)
    SubElement(feed, "link", href=page)
    SubElement(feed, "link", rel="self", type="application/atom+xml", href=address)
    _add_element(SubElement(feed, "author"), "name", urlsplit(site).hostname or "unknown")
    return feed


def _add_entry(feed: Element, site: str, name: str, updated: str) -> Element:
    entry = SubElement(feed, "entry")
    # A tag URI (RFC 4151) stays the same when a page moves.
    _add_element(entry, "id", f"tag:{urlsplit(site).hostname or 'localhost'},2026:{name}")
    _add_element(entry, "updated", updated)
    return entry


def _utc_instant(date: str) -> str:
    """A record's date as an instant in UTC, to the second."""
    return date if "T" in date else f"{date}T00:00:00Z"


def _add_element(parent: Element, name: str, words: str) -> None:
    SubElement(parent, name).text = plain_text(words)


def _serialize_feed(feed: Element) -> str:
    indent(feed, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(feed, "unicode") + "\n"


VERSION = 1  # of the plain JSON; a key that goes or changes its meaning raises it
FORMATS = {
    "bib": "BibTeX", "csl.json": "CSL-JSON", "json": "JSON", "xml": "Atom", "txt": "plain text",
}  # fmt: skip


def export_reading(reading: Reading, site: str) -> dict[str, Any]:
    """The reading as its list has it, with where it stands and the identity of its work."""
    fields = reading.model_dump(exclude_defaults=True)
    fields["lang"] = reading.lang
    page = f"{whole_address(reading.where, site)}#{reading.anchor}"
    return {**fields, "topic": reading.where, "identity": work_identity(reading.url), "page": page}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the plain JSON files."""
    found = Reading.model_json_schema()
    places = {
        "topic": {"type": "string", "description": "Part and topic, such as kernels/softmax."},
        "identity": {
            "type": "string",
            "description": "The work, whichever of its addresses was written: arxiv:…, doi:…",
        },
        "page": {"type": "string", "format": "uri", "description": "Its entry on the site."},
    }
    reading = {
        "type": "object",
        "additionalProperties": False,
        "properties": {**found["properties"], **places},
        "required": [*found["required"], "lang", *places],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Readings of Warpshelf",
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "title", "page", "readings"],
        "properties": {
            "$schema": {"type": "string"},
            "version": {"const": VERSION},
            "title": {"type": "string"},
            "page": {"type": "string", "format": "uri"},
            "readings": {"type": "array", "items": {"$ref": "#/$defs/Reading"}},
        },
        "$defs": {**found.get("$defs", {}), "Reading": reading},
    }


def export_files(
    shelf: Shelf,
    exhibits: Sequence[SnippetPage],
    site: str,
    name: str,
    descriptions: Mapping[str, str],
) -> dict[str, str]:
    """Every export, by its path below `exports/`.

    `site` is the site's address, `name` its title, and `descriptions` what each page (`where`) says
    of itself.
    """
    every = [reading for topic in shelf.topics.values() for reading in topic.readings]
    root = f"{site.rstrip('/')}/exports"
    texts = {
        "schema.json": _dump_json(json_schema()),
        "measurements.xml": measurements_feed(exhibits, site, name),
    }
    rows = [(Topic("all", name), every, site.rstrip("/") + "/")]
    rows += [
        (topic, topic.readings, whole_address(where, site))
        for where, topic in sorted(shelf.topics.items())
        if topic.page
    ]
    single = {reading.id: _ExportedReading(reading, site) for reading in every}
    for topic, readings, page in rows:
        parts = [single[reading.id] for reading in readings]
        texts[f"{topic.where}.bib"] = "\n".join(part.bibtex for part in parts)
        texts[f"{topic.where}.csl.json"] = _join_json(part.csl for part in parts)
        head = {
            "$schema": f"{root}/schema.json",
            "version": VERSION,
            "title": topic.title,
            "page": page,
        }
        texts[f"{topic.where}.json"] = (
            _dump_json(head).removesuffix("\n}\n")
            + ',\n"readings": '
            + _join_json(part.plain for part in parts).removesuffix("\n")
            + "\n}\n"
        )
        title = name if topic.where == "all" else f"{topic.title} · {name}"
        own = f"{root}/{topic.where}.xml"
        texts[f"{topic.where}.xml"] = readings_feed(readings, site, title, page, own)
        about = descriptions.get(topic.where, "")
        texts[f"{topic.where}.txt"] = _plain_list(topic.title, about, page, parts)
    return texts


class _ExportedReading:
    """One reading in each format; made once, used in its topic's files and in those of all."""

    def __init__(self, reading: Reading, site: str) -> None:
        self.bibtex = format_bibtex(reading)
        self.csl = _dump_json(csl_item(reading))
        self.plain = _dump_json(export_reading(reading, site))
        title = _escape_label(reading.title_en or reading.title)
        unread = "nobody here could open it" if reading.unread else ""
        said = (reading.kind, str(reading.year or ""), reading.level, unread)
        facts = ", ".join(filter(None, said))
        self.line = f"- [{title}]({reading.url}): {reading.why} ({facts})\n"


def llms_overview(shelf: Shelf, site: str, name: str, descriptions: Mapping[str, str]) -> str:
    """`llms.txt`: what the site is, and where each topic and each export stands."""
    root = site.rstrip("/")
    lines = [f"# {name}", "", f"> {descriptions.get('index', '')}", ""]
    lines += [
        "Every list is also there for programs: the links below lead to plain text, and the same"
        f" address with .json, .csl.json, .bib or .xml to the other formats. {root}/exports/all.txt"
        " has all readings; what was checked of the snippets, and measured where there was a GPU,"
        " is on the pages, each with its record as JSON.",
        "",
    ]
    parts: dict[str, list[str]] = {}
    for where, topic in sorted(shelf.topics.items()):
        if topic.page:
            about = descriptions.get(where, "")
            row = f"- [{_escape_label(topic.title)}]({root}/exports/{quote(where)}.txt)"
            parts.setdefault(where.partition("/")[0], []).append(f"{row}: {about}".rstrip(": "))
    for part, rows in parts.items():
        lines += [f"## {part.capitalize()}", "", *rows, ""]
    lines += [
        "## Optional",
        "",
        f"- [All readings]({root}/exports/all.txt)",
        f"- [All readings, as JSON]({root}/exports/all.json): its schema is beside it",
        f"- [New readings, as a feed]({root}/exports/all.xml)",
        f"- [New measurements, as a feed]({root}/exports/measurements.xml)",
    ]
    return "\n".join(lines) + "\n"


def _plain_list(title: str, about: str, page: str, parts: Sequence[_ExportedReading]) -> str:
    head = f"# {title}\n\n" + (f"> {about}\n\n" if about else "") + f"Page: {page}\n\n"
    return head + "".join(part.line for part in parts)


def _escape_label(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


def _join_json(items: Any) -> str:
    rows = ",\n".join(item.removesuffix("\n") for item in items)
    return f"[\n{rows}\n]\n" if rows else "[]\n"


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
