"""All readings of the shelf as one compact list that the finder narrows down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from warpshelf.catalogue.entry import Surroundings, data, people, rating, title
from warpshelf.catalogue.lists import EMPTY, downloads
from warpshelf.core.markup import plain
from warpshelf.core.pages import Page
from warpshelf.core.places import OnPage
from warpshelf.readings.model import Reading

PAGE = "everything.md"
FRAGMENT = "readings/every.md"
# Words that would find everything: they are not kept for the search.
COMMON = {
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "how", "in",
    "into", "is", "it", "its", "of", "on", "or", "that", "the", "their", "then", "this", "to",
    "what", "when", "where", "which", "while", "with", "without",
}  # fmt: skip
RUNS = '<span class="ws-runs" title="Code that belongs to it runs here">runs here</span>'
UNOPENED = "nobody here could open it"
ENDS = ".,;:!?()[]{}\"'“”‘’…"


def page(written: Mapping[str, Page]) -> str | None:
    """The docs-absolute link to the page of all readings, where there is one."""
    return f"/{PAGE}" if PAGE.removesuffix(".md") in written else None


def rows(around: Surroundings, *, exports: bool = False) -> str:
    """The fragment that the page of all readings includes: a row each, in the order of topics."""
    place = OnPage(PAGE)
    listed = [
        (topic.title, reading)
        for _, topic in sorted(around.shelf.topics.items())
        for reading in topic.readings
    ]
    if not listed:
        return f'<p class="ws-empty">{EMPTY}</p>\n'
    items = (_row(name, reading, around, place) for name, reading in listed)
    text = "\n".join(['<ul class="ws-rows" data-finder>', *items, "</ul>"]) + "\n"
    if not exports:
        return text
    return f'{text}\n<p class="ws-ways">The whole list as {downloads("all", place)}</p>\n'


def words(reading: Reading, shown: str) -> str:
    """What the search knows of a reading beyond the text `shown`: each word once, in lower case."""
    seen = set(_words(shown)) | COMMON
    texts = [*reading.authors, reading.venue or "", reading.why]
    found = dict.fromkeys(word for text in texts for word in _words(text))
    return " ".join(word for word in found if word not in seen)


def _words(text: str) -> Iterator[str]:
    for word in plain(text).lower().split():
        if bare := word.strip(ENDS):
            yield bare


def _row(topic: str, reading: Reading, around: Surroundings, place: OnPage) -> str:
    who = people(reading, 1)
    target = around.target(reading)
    facts = [
        _fact("who", place.text(who)),
        _fact("year", str(reading.year or "")),
        _fact("kind", reading.kind),
        place.link(topic, target, "ws-topic") if target else _fact("topic", place.text(topic)),
        rating(reading),
        _fact("unopened", UNOPENED if reading.unread else ""),
    ]
    more = words(reading, f"{reading.title} {reading.title_en or ''} {who}")
    runs = f" {RUNS}" if around.runs(reading) else ""
    return (
        f'<li data-topic="{place.text(reading.where)}"{data(reading, around, place)}'
        f' data-words="{place.text(more)}">'
        f"<p>{title(reading, place)}{runs}</p><p>{' '.join(filter(None, facts))}</p></li>"
    )


def _fact(name: str, shown: str) -> str:
    return f'<span class="ws-{name}">{shown}</span>' if shown else ""
