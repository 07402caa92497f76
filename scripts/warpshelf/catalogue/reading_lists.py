"""The reading lists, as fragments that pages include, and one reading in full, as they show it.

Beside the list of each topic there is one compact list of all readings, which the finder narrows
down.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote, urlsplit

from warpshelf.catalogue.exports import FORMATS, OTHERS, format_bibtex
from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, plain_text
from warpshelf.core.places import Anywhere, OnPage, Place, external_link
from warpshelf.links.health import Health
from warpshelf.readings.model import Reading, Shelf, Topic

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
class ReadingContext:
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
        found = defaultdict[str, list[Reading]](list)
        for reading in self.shelf.readings.values():
            for name in reading.needs:
                found[name].append(reading)
        return found

    def runs_here(self, reading: Reading) -> bool:
        """Whether a snippet that a page shows belongs to it."""
        return any(name in self.snippet_pages for name in reading.snippets)

    def entry_link(self, reading: Reading) -> str | None:
        """The docs-absolute link to its entry, if its topic has a page."""
        topic = self.shelf.topics.get(reading.where)
        return reading.target if topic is None or topic.page else None


def render_entry(reading: Reading, around: ReadingContext, place: Place) -> str:
    """The entry of `reading`, as an element of a list; it stands on lines of its own."""
    tag, anchor, markdown = place.heading, place.escape_text(reading.anchor), place.markdown
    # What continues on the same page comes first; then what is rated highest.
    after = sorted(
        (one for one in around.followers[reading.id] if not one.superseded_by and not one.unread),
        key=lambda one: (one.where != reading.where, -(one.rating or 0)),
    )
    later = [one.id for one in after[:MOST_NEXT]]
    successor = [reading.superseded_by] if reading.superseded_by else []
    pages = around.snippet_pages
    runs = [
        place.link(name, pages[name]) if name in pages else place.escape_text(name)
        for name in reading.snippets
    ]
    versions = [(VERSIONS.get(one.what, one.what), one.url) for one in reading.also]
    known = around.health.get(reading.url)
    if known and known.archived and all(one.what != "archive" for one in reading.also):
        versions.append((VERSIONS["archive"], known.archived))
    also = [external_link(place, what, url) for what, url in versions]
    links = (_labelled_list("Runs here", runs), _labelled_list("Also", also))
    blocks = {
        "source": ("", _source_line(reading, place)),
        "why": ("", place.escape_text(reading.why)),
        "superseded": (markdown, _other_readings("Superseded by", successor, around, place)),
        "needs": (markdown, _other_readings("Read first", reading.needs, around, place)),
        "next": (markdown, _other_readings("Read next", later, around, place)),
        "links": (markdown, SEPARATOR.join(filter(None, links))),
        "health": ("", _health_note(known, place) if known else ""),
    }
    lines = [
        f'<{tag} id="{anchor}" class="ws-reading-title">{title_link(reading, place)}</{tag}>',
        *(f'<p class="ws-reading-{name}"{read}>{inner}</p>'
          for name, (read, inner) in blocks.items() if inner),
        *_entry_footer(reading, around, place),
    ]  # fmt: skip
    body, attributes = "\n".join(lines), data_attributes(reading, around, place)
    return f'<li class="ws-reading"{attributes}{place.inner}>\n{body}\n</li>'


def data_attributes(reading: Reading, around: ReadingContext, place: Place) -> str:
    """What the finder filters and sorts by, as attributes."""
    values = {key: getattr(reading, key) for key in ("kind", "year", "level", "lang", "rating")}
    values |= {"tags": " ".join(reading.tags), "added": reading.added}
    values["runs"] = "yes" if around.runs_here(reading) else ""
    shown = {key: place.escape_text(str(value)) for key, value in values.items() if value}
    return "".join(f' data-{key}="{value}"' for key, value in shown.items())


def title_link(reading: Reading, place: Place) -> str:
    """The linked title, and the English one behind it where there is another language."""
    lang = place.escape_text(reading.lang)
    foreign = reading.lang != "en"
    # A page in another language may have an English title; title_en tells which this is.
    marked = f' lang="{lang}"' if foreign and reading.title_en else ""
    read_in = f' hreflang="{lang}"' if foreign else ""
    link = external_link(place, reading.title, reading.url, marked + read_in)
    if not reading.title_en:
        return link
    return f'{link} <span class="ws-title-en">{place.escape_text(reading.title_en)}</span>'


def render_rating(reading: Reading) -> str:
    """Its stars, with the same in words for screen readers; empty if unrated."""
    if reading.rating is None:
        return ""
    stars = "★" * reading.rating + "☆" * (4 - reading.rating)
    label = f"rated {reading.rating} of 4"
    return f'<span class="ws-rating" role="img" aria-label="{label}" title="{label}">{stars}</span>'


def author_names(reading: Reading, most: int) -> str:
    """The first `most` authors, and "et al." for the others."""
    names = [name for name in reading.authors if name != OTHERS]
    more = len(names) > most or len(names) < len(reading.authors)
    return ", ".join(names[:most]) + (" et al." if more and names else "")


def _labelled_list(label: str, shown: list[str]) -> str:
    return f'<span class="ws-label">{label}:</span> {", ".join(shown)}' if shown else ""


def _source_line(reading: Reading, place: Place) -> str:
    language = f"in {LANGUAGES.get(reading.lang, reading.lang)}" if reading.lang != "en" else ""
    known = (reading.year, reading.venue, reading.kind, reading.level, language)
    facts = (place.escape_text(str(one)) for one in (author_names(reading, 3), *known) if one)
    return SEPARATOR.join(filter(None, (render_rating(reading), *facts)))


def _other_readings(label: str, names: list[str], around: ReadingContext, place: Place) -> str:
    """Links to other readings; one that is not on the shelf is named without a link."""
    shown = []
    for name in names:
        other = around.shelf.readings.get(name)
        text = (other.title_en or other.title) if other else name
        target = around.entry_link(other) if other else None
        shown.append(place.link(text, target) if target else place.escape_text(text))
    return _labelled_list(label, shown)


def _health_note(known: Health, place: Place) -> str:
    """What a reader should know before following the link; usually nothing."""
    if known.state == "moved" and known.moved_to:
        host = urlsplit(known.moved_to).hostname or known.moved_to
        return f"The link now leads to {external_link(place, host, known.moved_to)}."
    if known.state in LOST:
        return f"{LOST[known.state]} since {units.format_date(f'{known.since}T00:00:00Z')}."
    return ""


def _entry_footer(reading: Reading, around: ReadingContext, place: Place) -> Iterator[str]:
    """One quiet line: the tags, and what opens on demand."""
    fold = '<details class="ws-{}" data-search-exclude="yes"><summary>{}</summary>{}</details>'
    parts = []
    if reading.tags:
        shown = [
            place.link(tag, f"{around.everything}?tag={tag}", "ws-tag")
            if around.everything and TAG.fullmatch(tag)
            else f'<span class="ws-tag">{place.escape_text(tag)}</span>'
            for tag in reading.tags
        ]
        label = '<span class="ws-visually-hidden">Tags:</span> '
        parts.append(f'<p class="ws-reading-tags"{place.markdown}>{label}{" ".join(shown)}</p>')
    if reading.kind in CITED or (reading.authors and reading.year):
        # One line of HTML: escape_text strips the indent, and &#10; keeps breaks out of the block.
        rows = format_bibtex(reading).strip().split("\n")
        indents = (" " * (len(row) - len(row.lstrip())) for row in rows)
        lines = (space + place.escape_text(row) for space, row in zip(indents, rows, strict=True))
        parts.append(fold.format("cite", "Cite", f"<pre><code>{'&#10;'.join(lines)}</code></pre>"))
    if reading.mended:
        parts.append(fold.format("mended", "Mended", f"<p>{place.escape_text(reading.mended)}</p>"))
    if parts:
        yield f'<div class="ws-reading-foot"{place.inner}>\n' + "\n".join(parts) + "\n</div>"


REFUSED = "A reading is not shown here because its entry has a fault."
EMPTY = "There are no readings here yet."
UNREAD = "Nobody here could open these"
FEWEST = 6  # entries from which on a list is worth filtering


def render_lists(
    around: ReadingContext, repository: str | None = None, *, exports: bool = False
) -> dict[str, str]:
    """The list of each topic, by its path below the fragments: `readings/kernels/softmax.md`.

    And what to read first, for the top of the topic's page: `start/kernels/softmax.md`. Their links
    are relative to the page that each belongs to, so they stand on no other. `repository` is the
    address of the project, where known: each list then ends with a way to add to it. `exports` says
    that the list is also published for other programs.
    """
    texts = {}
    for where, topic in sorted(around.shelf.topics.items()):
        place = OnPage(topic.list_page)
        opened = [one for one in topic.readings if not one.unread]
        unread = [one for one in topic.readings if one.unread]
        text = "" if topic.readings else f'<p class="ws-empty">{EMPTY}</p>\n'
        if opened:
            page = place.relative_link(around.everything) if around.everything else ""
            found = f' data-finder="{page}"' if len(opened) >= FEWEST else ""
            text += _entry_list(opened, around, place, found)
        if unread:  # apart, and the finder leaves them alone
            text += f'<p class="ws-unread">{UNREAD}</p>\n{_entry_list(unread, around, place)}'
        ways = []
        if repository is not None:  # how to add to it, and where it is for other programs
            form = f"{repository}/issues/new?template=link.yml&topic={quote(where, safe='')}"
            file = f"{repository}/edit/main/docs/{where}.yml"
            ways.append(external_link(place, "Add a link", form))
            ways.append(external_link(place, "edit this list", file))
        if exports:
            ways.append(f"the list as {download_links(where, place)}")
        footer = f'\n<p class="ws-ways">{SEPARATOR.join(ways)}</p>\n' if ways else ""
        texts[f"readings/{where}.md"] = text + footer
        texts[f"start/{where}.md"] = _start_block(topic, exports)
    return texts


def _entry_list(
    readings: list[Reading], around: ReadingContext, place: Place, found: str = ""
) -> str:
    entries = "\n".join(render_entry(reading, around, place) for reading in readings)
    return f'<ul class="ws-readings"{found}{place.markdown}>\n{entries}\n</ul>\n'


def _start_block(topic: Topic, exports: bool) -> str:
    place = OnPage(topic.overview)
    rows = "\n".join(
        f"<li>{title_link(one, place)} {render_rating(one)}"
        f'<span class="ws-start-why">{place.escape_text(one.why)}</span></li>'
        for one in topic.readings
        if one.start
    )
    line = place.link(f"All {len(topic.readings)} readings", f"/{topic.list_page}#readings")
    line += f" are {'on a page of their own' if topic.folder else 'at the end of this page'}."
    feed = f' data-feed="exports/{topic.where}.xml"' if exports else ""  # the theme announces it
    line = f'<p class="ws-start-more"{feed}>{line}</p>\n' if topic.readings else ""
    if not rows:
        return line
    opening = '<nav class="ws-start" aria-label="Start with"><p class="ws-label">Start with'
    return f"{opening}</p>\n<ul>\n{rows}\n</ul>\n{line}</nav>\n"


def single_entries(around: ReadingContext, ids: Iterable[str]) -> dict[str, str]:
    """Single entries for pages that show a reading of another topic: `reading/gpipe.md`."""
    texts = {}
    for name in ids:
        if reading := around.shelf.readings.get(name):
            texts[f"reading/{name}.md"] = _entry_list([reading], around, Anywhere())
        elif name in around.shelf.refused:
            texts[f"reading/{name}.md"] = f'<p class="ws-absent">{REFUSED}</p>\n'
    return texts


def render_contents(shelf: Shelf) -> str:
    """The fragment `readings/all.md`: each topic with a page, and how many readings it has."""
    parts: dict[str, list[Topic]] = {}
    for where, topic in sorted(shelf.topics.items()):
        if topic.page:
            parts.setdefault(where.rpartition("/")[0], []).append(topic)
    total, blocks = 0, []
    for part, topics in parts.items():
        count = sum(len(topic.readings) for topic in topics)
        total += count
        rows = [
            f"<li markdown>[{escape_markdown(topic.title)}](/{topic.overview})"
            f' <span class="ws-count">{len(topic.readings)}</span></li>'
            for topic in topics
        ]
        name = escape_markdown(part.replace("/", ", ").capitalize() or "General")
        blocks.append(f'<p class="ws-part">{name} <span class="ws-count">{count}</span></p>')
        blocks.append("\n".join(['<ul class="ws-contents" markdown>', *rows, "</ul>"]))
    words = "1 reading" if total == 1 else f"{total} readings"
    return "\n\n".join([f'<p class="ws-total">{words} in all.</p>', *blocks]) + "\n"


def download_links(where: str, place: OnPage) -> str:
    """Links to the exports of the list `where`, or of `all`."""
    links = [place.link(name, f"/exports/{where}.{ending}") for ending, name in FORMATS.items()]
    return f"{', '.join(links[:-1])} or {links[-1]}"


EVERY_PAGE = "everything.md"
EVERY_FRAGMENT = "readings/every.md"
WORDS = "words.txt"
# Words that would find everything: they are not kept for the search.
COMMON = {
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "how", "in",
    "into", "is", "it", "its", "of", "on", "or", "that", "the", "their", "then", "this", "to",
    "what", "when", "where", "which", "while", "with", "without",
}  # fmt: skip
RUNS = '<span class="ws-runs">runs here</span>'
UNOPENED = "nobody here could open it"
ENDS = ".,;:!?()[]{}\"'“”‘’…"


def all_readings_list(around: ReadingContext, *, exports: bool = False) -> str:
    """The fragment that the page of all readings includes: a row each, in the order of topics."""
    place, listed = OnPage(EVERY_PAGE), _list_readings(around.shelf)
    if not listed:
        return f'<p class="ws-empty">{EMPTY}</p>\n'
    items = (_reading_row(name, reading, around, place) for name, reading in listed)
    words = f' data-words="{place.relative_link(f"/exports/{WORDS}")}"' if exports else ""
    head = f'<ul class="ws-rows" data-finder{words} data-search-exclude="yes">'
    text = "\n".join([head, *items, "</ul>"]) + "\n"
    if not exports:
        return text
    return f'{text}\n<p class="ws-ways">The whole list as {download_links("all", place)}</p>\n'


def _list_readings(shelf: Shelf) -> list[tuple[str, Reading]]:
    """All readings in the order of that page, each with the title of its topic."""
    topics = (topic for _, topic in sorted(shelf.topics.items()))
    return [(topic.title, reading) for topic in topics for reading in topic.readings]


def search_words(shelf: Shelf) -> str:
    """The file WORDS: for each row of the page of all readings a line, of what else finds it."""
    text = ""
    for _, reading in _list_readings(shelf):
        shown = f"{reading.title} {reading.title_en or ''} {author_names(reading, 1)}"
        texts = (shown, *reading.authors, reading.venue or "", reading.why)
        split = [[w.strip(ENDS) for w in plain_text(t).lower().split()] for t in texts]
        known = COMMON | {"", *split[0]}
        words = (word for row in split[1:] for word in row if word not in known)
        text += f"{' '.join(dict.fromkeys(words))}\n"
    return text


def _reading_row(topic: str, reading: Reading, around: ReadingContext, place: OnPage) -> str:
    who, target = author_names(reading, 1), around.entry_link(reading)

    def make_span(name: str, text: str) -> str:
        return f'<span class="ws-{name}">{place.escape_text(text)}</span>' if text else ""

    facts = [
        make_span("who", who),
        make_span("year", str(reading.year or "")),
        make_span("kind", reading.kind),
        place.link(topic, target, "ws-topic") if target else make_span("topic", topic),
        render_rating(reading),
        make_span("unopened", UNOPENED if reading.unread else ""),
    ]
    runs = f" {RUNS}" if around.runs_here(reading) else ""
    return (
        f'<li data-topic="{place.escape_text(reading.where)}"'
        f"{data_attributes(reading, around, place)}>"
        f"<p>{title_link(reading, place)}{runs}</p><p>{' '.join(filter(None, facts))}</p></li>"
    )
