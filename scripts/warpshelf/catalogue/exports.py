"""The lists for other programs: BibTeX, CSL-JSON, plain JSON, Atom (RFC 4287) and plain text.

Each topic has its own set, and `all` is everything: `kernels/softmax.bib`, `all.json`. New
measurements have a feed of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from warpshelf.core.markup import plain_text
from warpshelf.core.places import whole_address
from warpshelf.readings.identity import work_identity
from warpshelf.readings.model import OTHER_SCRIPT, Reading, Shelf, Topic
from warpshelf.render.snippet_page import SnippetPage

OTHERS = "and others"  # ends a list of authors too long to give
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
SPECIAL = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}",
    "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip
IN_URL = str.maketrans({"\\": "%5C", "{": "%7B", "}": "%7D"})  # all else stands there as it is
CSL_TYPES = {
    "code": "software", "tool": "software", "talk": "speech", "site": "webpage",
    "post": "post-weblog", "docs": "webpage", "course": "webpage",
}  # fmt: skip


def format_bibtex(reading: Reading) -> str:
    """The reading as one BibTeX entry, whose key is its id; UTF-8, as biber and bibtex8 read it.

    A paper without a venue is an `@misc` that names its archive. Titles are in double braces, so
    that no style changes their case.
    """
    form, where, _ = _entry_types(reading)
    names, venue = _find_identifiers(reading), reading.venue or ""
    if THESIS.search(venue):
        venue = venue.partition(", ")[2] or venue  # the words before the school are the type's
    fields = {
        "title": f"{{{reading.title.translate(SPECIAL)}}}",
        "author": " and ".join(map(_bibtex_name, reading.authors)),
        "year": str(reading.year or ""),
        where: venue.translate(SPECIAL) if where else "",
        "doi": names.get("doi", "").translate(SPECIAL),
        "eprint": names.get("arxiv", ""),
        "archiveprefix": "arXiv" if "arxiv" in names else "",
        "url": reading.url.translate(IN_URL),
        "language": reading.lang if reading.lang != "en" else "",
        "note": (reading.title_en or "").translate(SPECIAL),
        "keywords": ", ".join(reading.tags),
    }
    width = max(len(name) for name, value in fields.items() if value)
    lines = [f"  {name:<{width}} = {{{value}}}" for name, value in fields.items() if value]
    return f"@{form}{{{reading.id},\n" + ",\n".join(lines) + "\n}\n"


def csl_item(reading: Reading) -> dict[str, Any]:
    """The reading as an item of CSL-JSON 1.0, as citation managers and Pandoc read it."""
    names = _find_identifiers(reading)
    item: dict[str, Any] = {
        "id": reading.id,
        "type": _entry_types(reading)[2],
        "title": reading.title,
        "author": [_csl_name(name) for name in reading.authors],
        "issued": {"date-parts": [[reading.year]]} if reading.year else None,
        "container-title": reading.venue,
        "DOI": names.get("doi"),
        "URL": reading.url,
        "language": reading.lang,
        "note": reading.title_en,
        "keyword": ", ".join(reading.tags),
        "archive": "arXiv" if "arxiv" in names else None,
        "number": names.get("arxiv"),
    }
    return {key: value for key, value in item.items() if value}


def _entry_types(reading: Reading) -> tuple[str, str, str]:
    """The type in BibTeX, the field there that its venue goes into, and the type in CSL."""
    venue = reading.venue or ""
    if reading.kind == "book":
        return "book", "publisher", "book"
    if reading.kind != "paper":  # only what every style knows: @software is biblatex's alone
        return "misc", "howpublished", CSL_TYPES[reading.kind]
    if found := THESIS.search(venue):
        is_master = found[1].lower().startswith("m")
        return "mastersthesis" if is_master else "phdthesis", "school", "thesis"
    if REPORT.search(venue):
        return "techreport", "institution", "report"
    if not venue or venue.lower() == "arxiv":
        has_number = "arxiv" in _find_identifiers(reading)
        return "misc", "howpublished" if venue and not has_number else "", "article"
    if JOURNAL.search(venue):
        return "article", "journal", "article-journal"
    return "inproceedings", "booktitle", "paper-conference"


def _find_identifiers(reading: Reading) -> dict[str, str]:
    """Its names by scheme, `doi` or `arxiv`: of its own address, else of a version of it."""
    own = (url for _, role, url in reading.addresses if role in ("url", "published", "preprint"))
    pairs = [work_identity(url).partition(":")[::2] for url in own]
    return dict(reversed(pairs))


def _is_person(name: str) -> bool:
    return not GROUP.search(name) and not OTHER_SCRIPT.search(name)


def _bibtex_name(name: str) -> str:
    if name in (OTHERS, "others"):
        return "others"
    plain = _is_person(name) and " and " not in f" {name} ".lower() and "," not in name
    return name.translate(SPECIAL) if plain else f"{{{name.translate(SPECIAL)}}}"


def _csl_name(name: str) -> dict[str, str]:
    if name in (OTHERS, "others") or not _is_person(name):
        return {"literal": "others" if name == OTHERS else name}
    words = name.split()
    first = len(words) - 1
    while first > 1 and PARTICLE.match(words[first - 1]):
        first -= 1
    return {"family": " ".join(words[first:]), "given": " ".join(words[:first])}


MOST = 50  # entries in a feed, the newest
BEFORE = "2000-01-01T00:00:00Z"  # the date of a feed in which nothing stands yet
STATES = {"measured": "measured", "verified": "checked"}


class FeedEntry(NamedTuple):
    """A piece of news. `name` is unique and permanent: it stays when a page moves."""

    name: str
    updated: str  # an instant in UTC, or a date
    title: str
    link: str
    summary: str
    related: str = ""
    authors: Sequence[str] = ()
    tags: Sequence[str] = ()


def readings_feed(listed: Iterable[Reading], site: str, title: str, page: str, address: str) -> str:
    """The readings put on the shelf last; one without a date is left out."""
    news = [
        FeedEntry(
            f"reading/{one.id}", one.added, one.title_en or one.title, _entry_address(one, site),
            one.why, one.url, one.authors, one.tags,
        )
        for one in listed
        if one.added
    ]  # fmt: skip
    news.sort(key=lambda one: one.updated, reverse=True)
    return _write_feed(news, title, page, address, site)


def _entry_address(reading: Reading, site: str) -> str:
    return f"{whole_address(reading.page[:-3], site)}#{reading.anchor}"


def measurements_feed(snippets: Sequence[SnippetPage], site: str, title: str) -> str:
    """What was measured or checked last: one entry a snippet and machine."""
    root, news = site.rstrip("/"), []
    for snippet in snippets:
        for state in snippet.select_states(*STATES):
            # A snippet that is measured again on a machine is news again, so its name has the date.
            name, date = f"{snippet.id}/{state.machine}", state.date
            where = "a CPU" if state.machine == "cpu" else state.name
            said = f"{snippet.id} {STATES[state.state]} on {where}"
            link = f"{root}/records/{name}.json"
            news.append(FeedEntry(f"record/{name}/{date}", date, said, link, snippet.title))
    news.sort(key=lambda one: (one.updated, one.name), reverse=True)
    own = f"{root}/exports/measurements.xml"
    return _write_feed(news, f"Measurements · {title}", f"{root}/", own, site)


def _write_feed(news: Sequence[FeedEntry], title: str, page: str, address: str, site: str) -> str:
    host = urlsplit(site).hostname
    feed = Element("feed", xmlns="http://www.w3.org/2005/Atom")
    updated = _utc_instant(news[0].updated if news else BEFORE)
    _add_texts(feed, id=address, title=title, updated=updated)
    SubElement(feed, "link", href=page)
    SubElement(feed, "link", rel="self", type="application/atom+xml", href=address)
    _add_texts(SubElement(feed, "author"), name=host or "unknown")
    for one in news[:MOST]:
        entry = SubElement(feed, "entry")
        tag = f"tag:{host or 'localhost'},2026:{one.name}"  # RFC 4151
        _add_texts(entry, id=tag, updated=_utc_instant(one.updated), title=one.title)
        SubElement(entry, "link", href=one.link)
        if one.related:
            SubElement(entry, "link", rel="related", href=one.related)
        for name in one.authors:
            _add_texts(SubElement(entry, "author"), name=name)
        for tag in one.tags:
            SubElement(entry, "category", term=tag)
        _add_texts(entry, summary=one.summary)
    indent(feed, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(feed, "unicode") + "\n"


def _utc_instant(date: str) -> str:
    return date if "T" in date else f"{date}T00:00:00Z"


def _add_texts(parent: Element, **texts: str) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = plain_text(text)


VERSION = 1  # of the plain JSON; a key that goes or changes its meaning raises it
FORMATS = {
    "bib": "BibTeX", "csl.json": "CSL-JSON", "json": "JSON", "xml": "Atom", "txt": "plain text",
}  # fmt: skip


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the plain JSON files."""
    found = Reading.model_json_schema()
    work = "The work, whichever of its addresses was written: arxiv:…, doi:…"
    places = {
        "topic": {"type": "string", "description": "Part and topic, such as kernels/softmax."},
        "identity": {"type": "string", "description": work},
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
    snippets: Sequence[SnippetPage],
    site: str,
    name: str,
    descriptions: Mapping[str, str],
) -> dict[str, str]:
    """Every export, by its path below `exports/`."""
    every = [reading for topic in shelf.topics.values() for reading in topic.readings]
    root = f"{site.rstrip('/')}/exports"
    texts = {
        "schema.json": _dump_json(json_schema()) + "\n",
        "measurements.xml": measurements_feed(snippets, site, name),
    }
    topics = (topic for _, topic in sorted(shelf.topics.items()) if topic.page)
    for topic in (Topic("all", name, readings=every), *topics):
        where, title, readings = topic.where, topic.title, topic.readings
        page = whole_address("index" if where == "all" else topic.overview[:-3], site)
        texts[f"{where}.bib"] = "\n".join(map(format_bibtex, readings))
        texts[f"{where}.csl.json"] = _join_json(map(csl_item, readings)) + "\n"
        schema = {"$schema": f"{root}/schema.json", "version": VERSION}
        head = {**schema, "title": title, "page": page}
        plain = _join_json(_export_reading(reading, site) for reading in readings)
        texts[f"{where}.json"] = _dump_json(head)[:-2] + f',\n"readings": {plain}\n}}\n'
        full = name if where == "all" else f"{title} · {name}"
        texts[f"{where}.xml"] = readings_feed(readings, site, full, page, f"{root}/{where}.xml")
        about = descriptions.get(topic.overview[:-3])
        text = f"# {title}\n\n" + (f"> {about}\n\n" if about else "") + f"Page: {page}\n\n"
        texts[f"{where}.txt"] = text + "".join(map(_plain_line, readings))
    return texts


def _export_reading(reading: Reading, site: str) -> dict[str, Any]:
    """The reading as its list has it, with where it stands and the identity of its work."""
    fields = reading.model_dump(exclude_defaults=True)
    fields["lang"] = reading.lang
    about = {"topic": reading.where, "identity": work_identity(reading.url)}
    return {**fields, **about, "page": _entry_address(reading, site)}


def _plain_line(reading: Reading) -> str:
    unread = "nobody here could open it" if reading.unread else ""
    facts = filter(None, (reading.kind, str(reading.year or ""), reading.level, unread))
    link = f"[{_escape_label(reading.title_en or reading.title)}]({reading.url})"
    return f"- {link}: {reading.why} ({', '.join(facts)})\n"


def llms_overview(shelf: Shelf, site: str, name: str, descriptions: Mapping[str, str]) -> str:
    """`llms.txt`: what the site is, and where each topic and each export stands."""
    root = f"{site.rstrip('/')}/exports"
    head = (
        f"# {name}\n\n> {descriptions.get('index', '')}\n\n"
        "Every list is also there for programs: the links below lead to plain text, and the same"
        f" address with .json, .csl.json, .bib or .xml to the other formats. {root}/all.txt has all"
        " readings. The pages show what was checked of each snippet, and measured if there was a"
        " GPU, with the record as JSON.\n\n"
    )
    parts: dict[str, str] = {}
    for where, topic in sorted(shelf.topics.items()):
        if topic.page:
            row = f"- [{_escape_label(topic.title)}]({root}/{quote(where)}.txt)"
            row = f"{row}: {descriptions.get(topic.overview[:-3], '')}".rstrip(": ")
            part = where.partition("/")[0]
            parts[part] = parts.get(part, f"## {part.capitalize()}\n\n") + f"{row}\n"
    optional = (
        f"## Optional\n\n- [All readings]({root}/all.txt)\n"
        f"- [All readings, as JSON]({root}/all.json): its schema is beside it\n"
        f"- [New readings, as a feed]({root}/all.xml)\n"
        f"- [New measurements, as a feed]({root}/measurements.xml)\n"
    )
    return head + "\n".join([*parts.values(), optional])


def _escape_label(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


def _join_json(items: Iterable[Any]) -> str:
    rows = ",\n".join(map(_dump_json, items))
    return f"[\n{rows}\n]" if rows else "[]"


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
