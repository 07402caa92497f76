"""New readings and new measurements, in Atom (RFC 4287)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from warpshelf.core.markup import plain
from warpshelf.core.places import whole_address
from warpshelf.readings.model import Reading
from warpshelf.render.exhibit import Exhibit

NAMESPACE = "http://www.w3.org/2005/Atom"
MOST = 50  # entries in a feed, the newest
BEFORE = "2000-01-01T00:00:00Z"  # the date of a feed in which nothing stands yet
STATES = {"measured": "measured", "verified": "checked"}


def readings(listed: Iterable[Reading], site: str, title: str, page: str, address: str) -> str:
    """The readings put on the shelf last; one that does not say when is left out."""
    dated = [reading for reading in listed if reading.added]
    newest = sorted(dated, key=lambda reading: reading.added or "", reverse=True)
    feed = _feed(title, page, address, site, f"{newest[0].added}T00:00:00Z" if newest else BEFORE)
    for reading in newest[:MOST]:
        link = f"{whole_address(reading.where, site)}#{reading.anchor}"
        entry = _entry(feed, site, f"reading/{reading.id}", f"{reading.added}T00:00:00Z")
        _text(entry, "title", reading.title_en or reading.title)
        SubElement(entry, "link", href=link)
        SubElement(entry, "link", rel="related", href=reading.url)
        for name in reading.authors:
            _text(SubElement(entry, "author"), "name", name)
        for tag in reading.tags:
            SubElement(entry, "category", term=tag)
        _text(entry, "summary", reading.why)
    return _write(feed)


def measurements(exhibits: Sequence[Exhibit], site: str, title: str) -> str:
    """What was measured or checked last: one entry a snippet and machine."""
    root = site.rstrip("/")
    rows = [
        (state.record["date"], exhibit, state)
        for exhibit in exhibits
        for state in exhibit.states
        if state.state in STATES and state.record is not None
    ]
    rows.sort(key=lambda row: (row[0], row[1].id, row[2].machine), reverse=True)
    feed = _feed(
        f"Measurements · {title}",
        f"{root}/",
        f"{root}/exports/measurements.xml",
        site,
        _instant(rows[0][0]) if rows else BEFORE,
    )
    for date, exhibit, state in rows[:MOST]:
        # A snippet that is measured again on a machine is news again, so its id has the date.
        name = f"record/{exhibit.id}/{state.machine}/{date}"
        entry = _entry(feed, site, name, _instant(date))
        where = "a CPU" if state.machine == "cpu" else state.name
        _text(entry, "title", f"{exhibit.id} {STATES[state.state]} on {where}")
        SubElement(entry, "link", href=f"{root}/records/{exhibit.id}/{state.machine}.json")
        _text(entry, "summary", exhibit.title)
    return _write(feed)


def _feed(title: str, page: str, address: str, site: str, updated: str) -> Element:
    feed = Element("feed", xmlns=NAMESPACE)
    _text(feed, "id", address)
    _text(feed, "title", title)
    _text(feed, "updated", updated)
    SubElement(feed, "link", href=page)
    SubElement(feed, "link", rel="self", type="application/atom+xml", href=address)
    _text(SubElement(feed, "author"), "name", urlsplit(site).hostname or "unknown")
    return feed


def _entry(feed: Element, site: str, name: str, updated: str) -> Element:
    entry = SubElement(feed, "entry")
    # A tag URI (RFC 4151) stays the same when a page moves.
    _text(entry, "id", f"tag:{urlsplit(site).hostname or 'localhost'},2026:{name}")
    _text(entry, "updated", updated)
    return entry


def _instant(date: str) -> str:
    """A record's date as an instant in UTC, to the second."""
    return date if "T" in date else f"{date}T00:00:00Z"


def _text(parent: Element, name: str, words: str) -> None:
    SubElement(parent, name).text = plain(words)


def _write(feed: Element) -> str:
    indent(feed, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(feed, "unicode") + "\n"
