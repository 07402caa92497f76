"""One reading in full, as the lists and single entries show it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

from warpshelf.catalogue.bibliography import OTHERS, bibtex
from warpshelf.core import units
from warpshelf.core.places import Place, out
from warpshelf.links.health import Health
from warpshelf.readings.model import Reading, Shelf

MOST_AUTHORS = 3
MOST_NEXT = 3
SEPARATOR = " · "
CITED = ("paper", "book")
TAG = re.compile(r"[a-z0-9-]+")
LANGUAGES = {
    "ar": "Arabic", "cs": "Czech", "de": "German", "es": "Spanish", "fr": "French", "he": "Hebrew",
    "hi": "Hindi", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch",
    "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
LOST = {"gone": "Not there any more", "unreachable": "Not reached"}  # by the state of its link
VERSIONS = {
    "published": "published version", "annotated": "annotated copy", "archive": "archived copy",
}  # fmt: skip


@dataclass(frozen=True)
class Surroundings:
    """What there is around a reading: the shelf, the pages of snippets, the health of links.

    `snippet_pages` gives the docs-absolute link of each snippet that is shown somewhere
    (`/kernels/softmax.md#snippet-softmax`). `health` is by the address of the reading. `everything`
    is the page that lists all readings and can be asked for a tag, such as `/everything.md`.
    """

    shelf: Shelf
    snippet_pages: Mapping[str, str] = field(default_factory=dict)
    health: Mapping[str, Health] = field(default_factory=dict)
    everything: str | None = None

    @cached_property
    def followers(self) -> dict[str, list[Reading]]:
        """The readings that name each one among their needs, in the order of the shelf."""
        found: dict[str, list[Reading]] = {}
        for reading in self.shelf.readings.values():
            for name in reading.needs:
                found.setdefault(name, []).append(reading)
        return found

    def runs(self, reading: Reading) -> bool:
        """Whether a snippet that a page shows belongs to it."""
        return any(name in self.snippet_pages for name in reading.snippets)

    def target(self, reading: Reading) -> str | None:
        """The docs-absolute link to its entry, if its topic has a page."""
        topic = self.shelf.topics.get(reading.where)
        return reading.target if topic is None or topic.page else None


def item(reading: Reading, around: Surroundings, place: Place) -> str:
    """The entry of `reading`, as an element of a list; it stands on lines of its own."""
    tag, anchor = place.heading, place.text(reading.anchor)
    links = (_runs(reading, around, place), _also(reading, around, place))
    blocks = [
        f'<{tag} id="{anchor}" class="ws-reading-title">{title(reading, place)}</{tag}>',
        _paragraph("source", _source(reading, place)),
        _paragraph("why", place.text(reading.why)),
        _paragraph("superseded", _superseded(reading, around, place), place.markdown),
        _paragraph("needs", _needs(reading, around, place), place.markdown),
        _paragraph("next", _next(reading, around, place), place.markdown),
        _paragraph("links", SEPARATOR.join(filter(None, links)), place.markdown),
        _paragraph("health", _health(reading, around, place)),
        _foot(reading, around, place),
    ]
    body = "\n".join(block for block in blocks if block)
    return f'<li class="ws-reading"{data(reading, around, place)}{place.inner}>\n{body}\n</li>'


def data(reading: Reading, around: Surroundings, place: Place) -> str:
    """What the finder filters and sorts by, as attributes."""
    values = {
        "kind": reading.kind,
        "year": str(reading.year or ""),
        "level": reading.level or "",
        "lang": reading.lang,
        "rating": str(reading.rating or ""),
        "tags": " ".join(reading.tags),
        "added": reading.added or "",
        "runs": "yes" if around.runs(reading) else "",
    }
    return "".join(f' data-{key}="{place.text(value)}"' for key, value in values.items() if value)


def title(reading: Reading, place: Place) -> str:
    """The linked title, and the English one behind it where there is another language."""
    lang = place.text(reading.lang)
    foreign = reading.lang != "en"
    # A page in another language may have an English title; title_en tells which this is.
    marked = f' lang="{lang}"' if foreign and reading.title_en else ""
    read_in = f' hreflang="{lang}"' if foreign else ""
    link = out(place, reading.title, reading.url, marked + read_in)
    if not reading.title_en:
        return link
    return f'{link} <span class="ws-title-en">{place.text(reading.title_en)}</span>'


def rating(reading: Reading) -> str:
    """Its stars, with the same in words for who does not see them; empty where unrated."""
    if reading.rating is None:
        return ""
    stars = "★" * reading.rating + "☆" * (4 - reading.rating)
    label = f"rated {reading.rating} of 4"
    return f'<span class="ws-rating" role="img" aria-label="{label}" title="{label}">{stars}</span>'


def people(reading: Reading, most: int) -> str:
    """The first `most` authors, and "et al." for the others."""
    names = [name for name in reading.authors if name != OTHERS]
    more = len(names) > most or len(names) < len(reading.authors)
    return ", ".join(names[:most]) + (" et al." if more and names else "")


def _paragraph(name: str, inner: str, markdown: str = "") -> str:
    return f'<p class="ws-reading-{name}"{markdown}>{inner}</p>' if inner else ""


def _labelled(label: str, shown: list[str]) -> str:
    return f'<span class="ws-label">{label}:</span> {", ".join(shown)}' if shown else ""


def _source(reading: Reading, place: Place) -> str:
    language = LANGUAGES.get(reading.lang, reading.lang)
    facts = [
        people(reading, MOST_AUTHORS),
        str(reading.year or ""),
        reading.venue or "",
        reading.kind,
        reading.level or "",
        f"in {language}" if reading.lang != "en" else "",
    ]
    return SEPARATOR.join(filter(None, (rating(reading), *map(place.text, facts))))


def _to(names: list[str], around: Surroundings, place: Place) -> list[str]:
    """Links to other readings; one that is not on the shelf is named without a link."""
    shown = []
    for name in names:
        other = around.shelf.readings.get(name)
        text = (other.title_en or other.title) if other else name
        target = around.target(other) if other else None
        shown.append(place.link(text, target) if target else place.text(text))
    return shown


def _superseded(reading: Reading, around: Surroundings, place: Place) -> str:
    by = [reading.superseded_by] if reading.superseded_by else []
    return _labelled("Superseded by", _to(by, around, place))


def _needs(reading: Reading, around: Surroundings, place: Place) -> str:
    return _labelled("Read first", _to(reading.needs, around, place))


def _next(reading: Reading, around: Surroundings, place: Place) -> str:
    after = [
        one
        for one in around.followers.get(reading.id, ())
        if not one.superseded_by and not one.unread
    ]
    # What continues on the same page comes first; then what is rated highest.
    after.sort(key=lambda one: (one.where != reading.where, -(one.rating or 0)))
    return _labelled("Read next", _to([one.id for one in after[:MOST_NEXT]], around, place))


def _runs(reading: Reading, around: Surroundings, place: Place) -> str:
    pages = around.snippet_pages
    shown = [
        place.link(name, pages[name]) if name in pages else place.text(name)
        for name in reading.snippets
    ]
    return _labelled("Runs here", shown)


def _also(reading: Reading, around: Surroundings, place: Place) -> str:
    versions = [(VERSIONS.get(one.what, one.what), one.url) for one in reading.also]
    known = around.health.get(reading.url)
    if known and known.archived and not any(one.what == "archive" for one in reading.also):
        versions.append((VERSIONS["archive"], known.archived))
    return _labelled("Also", [out(place, what, url) for what, url in versions])


def _health(reading: Reading, around: Surroundings, place: Place) -> str:
    """What a reader should know of the link before following it; mostly nothing."""
    known = around.health.get(reading.url)
    if known is None:
        return ""
    if known.state == "moved" and known.moved_to:
        host = urlsplit(known.moved_to).hostname or known.moved_to
        return f"The link now leads on to {out(place, host, known.moved_to)}."
    if known.state in LOST:
        day = units.day(f"{known.since}T00:00:00Z")
        return f"{LOST[known.state]} since {day}."
    return ""


def _foot(reading: Reading, around: Surroundings, place: Place) -> str:
    """One quiet line: the tags, and what opens on demand."""
    parts = [_tags(reading, around, place), _cite(reading, place), _mended(reading, place)]
    shown = "\n".join(filter(None, parts))
    return f'<div class="ws-reading-foot"{place.inner}>\n{shown}\n</div>' if shown else ""


def _tags(reading: Reading, around: Surroundings, place: Place) -> str:
    shown = [
        place.link(tag, f"{around.everything}?tag={tag}", "ws-tag")
        if around.everything and TAG.fullmatch(tag)
        else f'<span class="ws-tag">{place.text(tag)}</span>'
        for tag in reading.tags
    ]
    label = '<span class="ws-visually-hidden">Tags:</span> '
    return _paragraph("tags", label + " ".join(shown), place.markdown) if shown else ""


def _cite(reading: Reading, place: Place) -> str:
    if reading.kind not in CITED and not (reading.authors and reading.year):
        return ""
    # One line of HTML: text() strips the indent, and &#10; keeps the breaks out of the block.
    rows = bibtex(reading).strip().split("\n")
    lines = "&#10;".join(" " * (len(row) - len(row.lstrip())) + place.text(row) for row in rows)
    return (
        '<details class="ws-cite" data-search-exclude="yes"><summary>Cite</summary>'
        f"<pre><code>{lines}</code></pre></details>"
    )


def _mended(reading: Reading, place: Place) -> str:
    if not reading.mended:
        return ""
    return (
        '<details class="ws-mended" data-search-exclude="yes"><summary>Mended</summary>'
        f"<p>{place.text(reading.mended)}</p></details>"
    )
