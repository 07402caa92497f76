"""The lists as BibTeX, CSL-JSON, plain JSON, Atom and plain text, for other programs.

Each topic has its own set, and `all` is everything: `kernels/softmax.bib`, `all.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from warpshelf.catalogue import bibliography, feeds
from warpshelf.core.places import whole_address
from warpshelf.readings.identity import identity
from warpshelf.readings.model import Reading, Shelf, Topic
from warpshelf.render.exhibit import Exhibit

VERSION = 1  # of the plain JSON; a key that goes or changes its meaning raises it
FORMATS = {
    "bib": "BibTeX", "csl.json": "CSL-JSON", "json": "JSON", "xml": "Atom", "txt": "plain text",
}  # fmt: skip


def plain(reading: Reading, site: str) -> dict[str, Any]:
    """The reading as its list has it, with where it stands and the identity of its work."""
    fields = reading.model_dump(exclude_defaults=True)
    fields["lang"] = reading.lang
    page = f"{whole_address(reading.where, site)}#{reading.anchor}"
    return {**fields, "topic": reading.where, "identity": identity(reading.url), "page": page}


def schema() -> dict[str, Any]:
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


def files(
    shelf: Shelf,
    exhibits: Sequence[Exhibit],
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
        "schema.json": _dump(schema()),
        "measurements.xml": feeds.measurements(exhibits, site, name),
    }
    rows = [(Topic("all", name), every, site.rstrip("/") + "/")]
    rows += [
        (topic, topic.readings, whole_address(where, site))
        for where, topic in sorted(shelf.topics.items())
        if topic.page
    ]
    single = {reading.id: _Single(reading, site) for reading in every}
    for topic, readings, page in rows:
        parts = [single[reading.id] for reading in readings]
        texts[f"{topic.where}.bib"] = "\n".join(part.bibtex for part in parts)
        texts[f"{topic.where}.csl.json"] = _list(part.csl for part in parts)
        head = {
            "$schema": f"{root}/schema.json",
            "version": VERSION,
            "title": topic.title,
            "page": page,
        }
        texts[f"{topic.where}.json"] = (
            _dump(head).removesuffix("\n}\n")
            + ',\n"readings": '
            + _list(part.plain for part in parts).removesuffix("\n")
            + "\n}\n"
        )
        title = name if topic.where == "all" else f"{topic.title} · {name}"
        own = f"{root}/{topic.where}.xml"
        texts[f"{topic.where}.xml"] = feeds.readings(readings, site, title, page, own)
        about = descriptions.get(topic.where, "")
        texts[f"{topic.where}.txt"] = _text(topic.title, about, page, parts)
    return texts


class _Single:
    """One reading in each format; made once, used in its topic's files and in those of all."""

    def __init__(self, reading: Reading, site: str) -> None:
        self.bibtex = bibliography.bibtex(reading)
        self.csl = _dump(bibliography.csl(reading))
        self.plain = _dump(plain(reading, site))
        title = _label(reading.title_en or reading.title)
        unread = "nobody here could open it" if reading.unread else ""
        said = (reading.kind, str(reading.year or ""), reading.level, unread)
        facts = ", ".join(filter(None, said))
        self.line = f"- [{title}]({reading.url}): {reading.why} ({facts})\n"


def overview(shelf: Shelf, site: str, name: str, descriptions: Mapping[str, str]) -> str:
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
            row = f"- [{_label(topic.title)}]({root}/exports/{quote(where)}.txt)"
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


def _text(title: str, about: str, page: str, parts: Sequence[_Single]) -> str:
    head = f"# {title}\n\n" + (f"> {about}\n\n" if about else "") + f"Page: {page}\n\n"
    return head + "".join(part.line for part in parts)


def _label(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


def _list(items: Any) -> str:
    rows = ",\n".join(item.removesuffix("\n") for item in items)
    return f"[\n{rows}\n]\n" if rows else "[]\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
