"""The reading lists, as fragments that pages include."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from warpshelf.catalogue.entry import Surroundings, item, rating, title
from warpshelf.catalogue.exports import FORMATS
from warpshelf.core.markup import escape
from warpshelf.core.places import Anywhere, OnPage, Place, out
from warpshelf.readings.model import Reading, Shelf, Topic

REFUSED = "A reading is not shown here, because its entry has a fault."
EMPTY = "No reading stands here yet."
UNREAD = "Nobody here could open these"
FEWEST = 6  # entries from which on a list is worth filtering


def fragments(
    around: Surroundings, repository: str | None = None, *, exports: bool = False
) -> dict[str, str]:
    """The list of each topic, by its path below the fragments: `readings/kernels/softmax.md`.

    A list's links are relative to its topic's own page, so it stands on no other. `repository` is
    the address of the project, where known: each list then ends with a way to add to it. `exports`
    says that the list is also published for other programs.
    """
    return {
        f"readings/{where}.md": _list(topic, around) + _ways(where, repository, exports)
        for where, topic in sorted(around.shelf.topics.items())
    }


def starts(around: Surroundings) -> dict[str, str]:
    """What to read first, for the top of each topic's page: `start/kernels/softmax.md`.

    Its links are relative to its topic's own page, so it stands on no other.
    """
    return {
        f"start/{where}.md": _start(topic) for where, topic in sorted(around.shelf.topics.items())
    }


def _start(topic: Topic) -> str:
    place = OnPage(f"{topic.where}.md")
    rows = [
        f'<li>{title(one, place)} {rating(one)}<span class="ws-start-why">{place.text(one.why)}'
        f"</span></li>"
        for one in topic.readings
        if one.start
    ]
    count = len(topic.readings)
    more = f'<a href="#readings">All {count} readings</a> stand at the end of this page.'
    line = f'<p class="ws-start-more">{more}</p>\n' if count else ""
    if not rows:
        return line
    inner = "\n".join(rows)
    return (
        f'<nav class="ws-start" aria-label="Start with"><p class="ws-label">Start with</p>\n'
        f"<ul>\n{inner}\n</ul>\n{line}</nav>\n"
    )


def singles(around: Surroundings, ids: Iterable[str]) -> dict[str, str]:
    """Single entries for pages that show a reading of another topic: `reading/gpipe.md`.

    One that was refused with a finding leaves a note, so that the page is built all the same.
    """
    readings = around.shelf.readings
    texts = {
        f"reading/{name}.md": _items([readings[name]], around, Anywhere())
        for name in ids
        if name in readings
    }
    refused = around.shelf.refused.difference(readings).intersection(ids)
    return texts | {
        f"reading/{name}.md": f'<p class="ws-absent">{REFUSED}</p>\n' for name in refused
    }


def reading_targets(shelf: Shelf) -> dict[str, str]:
    """The docs-absolute link of each reading: `/kernels/softmax.md#reading-online-softmax`."""
    return {name: reading.target for name, reading in shelf.readings.items()}


def contents(shelf: Shelf) -> str:
    """The fragment `readings/all.md`: each topic with a page, and how many readings it has."""
    parts: dict[str, list[Topic]] = {}
    for where, topic in sorted(shelf.topics.items()):
        if topic.page:
            parts.setdefault(where.rpartition("/")[0], []).append(topic)
    blocks = [_count(sum(len(topic.readings) for topics in parts.values() for topic in topics))]
    for part, topics in parts.items():
        count = sum(len(topic.readings) for topic in topics)
        rows = [
            f"<li markdown>[{escape(topic.title)}](/{topic.where}.md)"
            f' <span class="ws-count">{len(topic.readings)}</span></li>'
            for topic in topics
        ]
        name = escape(part.replace("/", ", ").capitalize() or "General")
        blocks.append(f'<p class="ws-part">{name} <span class="ws-count">{count}</span></p>')
        blocks.append("\n".join(['<ul class="ws-contents" markdown>', *rows, "</ul>"]))
    return "\n\n".join(blocks) + "\n"


def _count(number: int) -> str:
    words = "1 reading" if number == 1 else f"{number} readings"
    return f'<p class="ws-total">{words} in all.</p>'


def _list(topic: Topic, around: Surroundings) -> str:
    """The readings, and below them those that nobody could open, which the finder leaves alone."""
    if not topic.readings:
        return f'<p class="ws-empty">{EMPTY}</p>\n'
    place = OnPage(f"{topic.where}.md")
    opened = [one for one in topic.readings if not one.unread]
    unread = [one for one in topic.readings if one.unread]
    text = _items(opened, around, place) if opened else ""
    if unread:
        inner = "\n".join(item(one, around, place) for one in unread)
        text += f'<p class="ws-unread">{UNREAD}</p>\n'
        text += f'<ul class="ws-readings"{place.markdown}>\n{inner}\n</ul>\n'
    return text


def _items(readings: list[Reading], around: Surroundings, place: Place) -> str:
    entries = [item(reading, around, place) for reading in readings]
    found = ""
    if isinstance(place, OnPage) and len(readings) >= FEWEST:
        found = f' data-finder="{place.to(around.everything) if around.everything else ""}"'
    opening = f'<ul class="ws-readings"{found}{place.markdown}>'
    return "\n".join([opening, *entries, "</ul>"]) + "\n"


def _ways(where: str, repository: str | None, exports: bool) -> str:
    """One line below a list: how to add to it, and where it is for other programs."""
    place = OnPage(f"{where}.md")
    ways = []
    if repository is not None:
        form = f"{repository}/issues/new?template=link.yml&topic={quote(where, safe='')}"
        file = f"{repository}/edit/main/docs/{where}.yml"
        ways = [out(place, "Add a link", form), out(place, "edit this list", file)]
    if exports:
        ways.append(f"the list as {downloads(where, place)}")
    return f'\n<p class="ws-ways">{" · ".join(ways)}</p>\n' if ways else ""


def downloads(where: str, place: OnPage) -> str:
    """Links to the exports of the list `where`, or of `all`."""
    links = [place.link(name, f"/exports/{where}.{ending}") for ending, name in FORMATS.items()]
    return f"{', '.join(links[:-1])} or {links[-1]}"
