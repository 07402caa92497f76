"""Shelves: the reading lists, as Markdown fragments that pages include."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from warpshelf.markup import attribute, escape, href
from warpshelf.readings import Reading, Shelf, Topic

EMPTY = "No reading stands here yet."
MOST_AUTHORS = 3
LANGUAGES = {
    "ar": "Arabic", "cs": "Czech", "de": "German", "es": "Spanish", "fr": "French", "he": "Hebrew",
    "hi": "Hindi", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch",
    "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
VERSIONS = {
    "published": "published version", "annotated": "annotated copy", "archive": "archived copy",
}  # fmt: skip


def fragments(
    shelf: Shelf, snippet_pages: Mapping[str, str], repository: str | None = None
) -> dict[str, str]:
    """The list of each topic, by its path below the fragments: `readings/kernels/softmax.md`.

    `snippet_pages` gives the docs-absolute link of each snippet that is shown somewhere
    (`/kernels/softmax.md#snippet-softmax`). `repository` is the address of the project, where
    known: each list then ends with a way to add to it.
    """
    return {
        f"readings/{where}.md": _list(topic, shelf, snippet_pages) + _ways_in(where, repository)
        for where, topic in sorted(shelf.topics.items())
    }


def singles(shelf: Shelf, snippet_pages: Mapping[str, str], ids: Iterable[str]) -> dict[str, str]:
    """Single entries for pages that show a reading of another topic: `reading/gpipe.md`."""
    return {
        f"reading/{name}.md": _items([shelf.readings[name]], shelf, snippet_pages)
        for name in ids
        if name in shelf.readings
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


def _list(topic: Topic, shelf: Shelf, snippet_pages: Mapping[str, str]) -> str:
    if not topic.readings:
        return f'<p class="ws-empty">{EMPTY}</p>\n'
    return _items(topic.readings, shelf, snippet_pages)


def _items(readings: Iterable[Reading], shelf: Shelf, snippet_pages: Mapping[str, str]) -> str:
    entries = [_entry(reading, shelf, snippet_pages) for reading in readings]
    return "\n".join(['<ul class="ws-readings" markdown>', *entries, "</ul>"]) + "\n"


def _ways_in(where: str, repository: str | None) -> str:
    """How a reader adds to a list: the form with its topic filled in, or the list's own file."""
    if repository is None:
        return ""
    form = f"{repository}/issues/new?template=link.yml&topic={quote(where, safe='')}"
    file = f"{repository}/edit/main/docs/{where}.yml"
    links = f"<a href={href(form)}>Add a link</a> · <a href={href(file)}>edit this list</a>"
    return f'\n<p class="ws-add">{links}</p>\n'


def _entry(reading: Reading, shelf: Shelf, snippet_pages: Mapping[str, str]) -> str:
    data = {"kind": reading.kind, "level": reading.level, "lang": reading.lang}
    data["tags"] = " ".join(reading.tags)
    attributes = "".join(f" data-{key}={attribute(value)}" for key, value in data.items() if value)
    blocks = [
        _paragraph("title", _title(reading)),
        _paragraph("source", _source(reading)),
        _paragraph("why", escape(reading.why)),
        _paragraph("superseded", _superseded(reading, shelf)),
        _paragraph("needs", _links("Read first", reading.needs, shelf)),
        _paragraph("runs", _runs(reading, snippet_pages)),
        _paragraph("also", _also(reading)),
        _paragraph("tags", _tags(reading)),
        _mended(reading),
    ]
    body = "\n".join(block for block in blocks if block)
    opening = f'<li id="{escape(reading.anchor)}" class="ws-reading"{attributes} markdown="block">'
    return f"{opening}\n{body}\n</li>"


def _paragraph(name: str, inner: str) -> str:
    return f'<p class="ws-reading-{name}" markdown>{inner}</p>' if inner else ""


def _title(reading: Reading) -> str:
    lang = f" lang={attribute(reading.lang)}"
    foreign = reading.lang != "en"
    # A page in another language may have an English title; title_en tells which this is.
    marked = lang if foreign and reading.title_en else ""
    read_in = f" hreflang={attribute(reading.lang)}" if foreign else ""
    link = f"<a href={href(reading.url)}{marked}{read_in}>{escape(reading.title)}</a>"
    english = f' <span class="ws-title-en">{escape(reading.title_en or "")}</span>'
    return link + (english if reading.title_en else "") + _rating(reading)


def _rating(reading: Reading) -> str:
    if reading.rating is None:
        return ""
    stars = "★" * reading.rating + "☆" * (4 - reading.rating)
    label = f"rated {reading.rating} of 4"
    return (
        f' <span class="ws-rating" title="{label}"><span aria-hidden="true">{stars}</span>'
        f' <span class="ws-rating-text">{label}</span></span>'
    )


def _source(reading: Reading) -> str:
    names = [escape(name) for name in reading.authors[:MOST_AUTHORS]]
    authors = ", ".join(names) + (" et al." if len(reading.authors) > MOST_AUTHORS else "")
    parts = [("authors", authors), ("year", str(reading.year or "")), ("venue", reading.venue)]
    parts += [("kind", reading.kind), ("level", reading.level)]
    if reading.lang != "en":
        parts.append(("lang", f"in {LANGUAGES.get(reading.lang, reading.lang)}"))
    return " · ".join(
        f'<span class="ws-{name}">{text if name == "authors" else escape(text)}</span>'
        for name, text in parts
        if text
    )


def _superseded(reading: Reading, shelf: Shelf) -> str:
    by = [reading.superseded_by] if reading.superseded_by else []
    return _links("Superseded by", by, shelf)


def _links(label: str, names: list[str], shelf: Shelf) -> str:
    """Links to other readings; one that is not on the shelf is named without a link."""
    shown = []
    for name in names:
        other = shelf.readings.get(name)
        text = escape((other.title_en or other.title) if other else name)
        shown.append(f"[{text}]({other.target})" if other else text)
    return f'<span class="ws-label">{label}:</span> {", ".join(shown)}' if shown else ""


def _runs(reading: Reading, snippet_pages: Mapping[str, str]) -> str:
    shown = [
        f"[{escape(name)}]({snippet_pages[name]})" if name in snippet_pages else escape(name)
        for name in reading.snippets
    ]
    return f'<span class="ws-label">Runs here:</span> {", ".join(shown)}' if shown else ""


def _also(reading: Reading) -> str:
    shown = [
        f"<a href={href(version.url)}>{escape(VERSIONS.get(version.what, version.what))}</a>"
        for version in reading.also
    ]
    return f'<span class="ws-label">Also:</span> {", ".join(shown)}' if shown else ""


def _tags(reading: Reading) -> str:
    tags = " ".join(f'<span class="ws-tag">{escape(tag)}</span>' for tag in reading.tags)
    return f'<span class="ws-label">Tags:</span> {tags}' if tags else ""


def _mended(reading: Reading) -> str:
    if not reading.mended:
        return ""
    return (
        '<details class="ws-mended" markdown="block"><summary>Link or title mended</summary>\n'
        f"<p markdown>{escape(reading.mended)}</p>\n</details>"
    )
