"""What is wrong between readings that are each well formed, and the schema that editors use."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import TypeAdapter

from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project
from warpshelf.readings import titles
from warpshelf.readings.entries import KeyPath, place_name, suggest_match
from warpshelf.readings.identity import url_problems, work_identity
from warpshelf.readings.model import OTHER_SCRIPT, Reading, Shelf

VERSIONS = ("preprint", "published")  # the same work as the entry's own url
PARTS = ("code", "slides", "recording")  # what belongs to it and may be an entry of its own
# Kinds whose titles have subtitles, and how many words must be left without one.
HEADED = {"paper": 1, "book": 1, "post": 3, "talk": 3}
MOST_STARTS = 2  # readings that a topic's page names at its top
YEARS_APART = 2  # a preprint and its publication are seldom further apart than a year
LONGEST_CIRCLE = 8  # names that are shown of a circle


def check_shelf(shelf: Shelf, snippet_ids: Collection[str] | None = None) -> list[Finding]:
    """What is wrong across the shelf, in order of place; `load_shelf` has found the rest.

    `snippet_ids` names the snippets that exist; None leaves those references unchecked.
    """
    found = {*_check_identities(shelf), *_check_titles(shelf), *_check_topics(shelf)}
    found.update(_check_references(shelf, snippet_ids), _check_circles(shelf))
    for reading in shelf.entries:
        found.update(_check_fields(reading))
    for path, lines in shelf.untidy.items():
        more = f", as do {len(lines) - 1} more" if len(lines) > 1 else ""
        found.add(Finding(path, lines[0], f"the line ends in spaces{more}", "remove them"))
    return sorted(found)


def _check_fields(reading: Reading) -> Iterator[Finding]:
    """What is wrong with one entry's year, addresses and spaces."""
    told = titles.expected_years(reading.url, reading.venue)
    if told and reading.year and reading.year not in told[0]:
        what = f"{reading.id}: year is {reading.year}, but {told[1]}"
        yield reading.make_finding(what, f"write {told[0][-1]}, or correct the venue", "year")
    for place, role, url in reading.addresses:
        for what, mend in url_problems(url, role == "url" or role in VERSIONS):
            yield reading.make_finding(what, mend, *place)
    for place, text in reading.raw_texts():
        # A block, such as `why: >`, ends in a line break of its own.
        if text.strip("\n") != text.strip():
            what = f"{place_name(place)} starts or ends in a space"
            yield reading.make_finding(what, "remove it", *place)


def _check_identities(shelf: Shelf) -> Iterator[Finding]:
    """Ids and works that appear twice."""
    seen: dict[str, Reading] = {}
    for reading in shelf.entries:
        if (first := shelf.readings[reading.id]) is not reading:
            mend = f"rename one (first at {first.path}:{first.line})"
            yield reading.make_finding(f"id {reading.id!r} is used twice", mend, "id")
        own = work_identity(reading.url)
        here = {own}
        for place, role, url in reading.addresses:
            name = work_identity(url)
            if role in PARTS and name == own:
                yield reading.make_finding(f"{name} is the entry's own url", "remove it", *place)
            if role != "url" and role not in VERSIONS:
                continue  # a copy or a translation has the identity of what it copies
            first = seen.setdefault(name, reading)
            if first is not reading:
                what = f"{name} is on the shelf already, as {first.title!r}"
                mend = f"keep one (first at {first.path}:{first.line})"
                yield reading.make_finding(what, mend, *place)
            elif role != "url" and name in here:
                its = "the entry's own url" if name == own else "under also twice"
                yield reading.make_finding(f"{name} is {its}", "remove it", *place)
            here.add(name)


def _check_titles(shelf: Shelf) -> Iterator[Finding]:
    """Entries with like titles and nothing to tell them apart, each once."""
    entries = shelf.entries
    named = [titles.parse_title(one.title, HEADED.get(one.kind, 0)) for one in entries]
    told: set[int] = set()
    for first, second, how in titles.similar_pairs(named):
        one, other = entries[first], entries[second]
        of_two_kinds = how == titles.PART and one.kind != other.kind
        if second in told or of_two_kinds or _distinct_works(one, other):
            continue
        told.add(second)
        mend = "correct one title or url, or name the second address under also; "
        if how == titles.SAME:
            what = f"the title {other.title!r} also stands at {one.path}:{one.line}"
            mend += "two works are told apart by authors, years or needs"
        else:
            what = f"the title {other.title!r} is nearly {one.title!r} at {one.path}:{one.line}"
            mend += "if they are two works, give both their authors, or let one need the other"
        yield other.make_finding(f"{what}, for {work_identity(one.url)}", mend, "title")


def _distinct_works(one: Reading, other: Reading) -> bool:
    """Whether two entries of like titles show that they are two works.

    They do where one needs the other, is superseded by it or has its address under `also`; where
    the authors of both are given and nobody is among both; or, with no authors to compare, where
    the years of both are given and lie YEARS_APART.
    """
    names = work_identity(one.url), work_identity(other.url)
    if names[0] == names[1] or one.id == other.id:
        return True  # found as such
    for a, b, name in ((one, other, names[1]), (other, one, names[0])):
        others = {work_identity(version.url) for version in a.also}
        if b.id in a.needs or b.id == a.superseded_by or name in others:
            return True
    ours, theirs = _author_keys(one), _author_keys(other)
    if ours and theirs:
        return not ours & theirs
    return bool(one.year and other.year and abs(one.year - other.year) >= YEARS_APART)


def _author_keys(reading: Reading) -> set[tuple[str, str]]:
    """The authors by family name and first letter: `T. Dao` is `Tri Dao`."""
    found = set()
    for name in reading.authors:
        plain = unicodedata.normalize("NFKD", name).casefold()
        words = "".join(c for c in plain if not unicodedata.combining(c)).split()
        if words != ["and", "others"]:
            found.add((words[-1], words[0][0]))
    return found


def _check_references(shelf: Shelf, snippet_ids: Collection[str] | None) -> Iterator[Finding]:
    """Ids of readings and of snippets that do not exist."""
    ids = shelf.readings.keys() | shelf.refused
    for reading in shelf.entries:
        places: list[tuple[KeyPath, str]] = [(("needs", n), i) for n, i in enumerate(reading.needs)]
        if reading.superseded_by is not None:
            places.append((("superseded_by",), reading.superseded_by))
        for place, name in places:
            if name == reading.id:
                yield reading.make_finding(
                    f"{place[0]} names the entry itself", "remove it", *place
                )
            elif name not in ids:
                what = f"{place[0]} names {name!r}, which is not the id of a reading"
                yield reading.make_finding(what, suggest_match(name, shelf.readings), *place)
        for number, name in enumerate(reading.snippets):
            if snippet_ids is not None and name not in snippet_ids:
                what = f"snippets names {name!r}, which is not a folder under snippets/"
                mend = suggest_match(name, snippet_ids)
                yield reading.make_finding(what, mend, "snippets", number)


def _check_circles(shelf: Shelf) -> Iterator[Finding]:
    """Each circle of `needs` and each of `superseded_by` that one walk meets, at its last entry."""
    for key in ("needs", "superseded_by"):
        done: set[str] = set()
        for start in shelf.readings:
            trail: dict[str, Iterator[str]] = {}  # from the start on, with what is left of each
            step: str | None = start
            while step is not None or trail:
                if step is None:
                    done.add(trail.popitem()[0])
                elif step in trail:
                    names = list(trail)
                    around = [*names[names.index(step) :], step]
                    shown = around if len(around) <= LONGEST_CIRCLE else [*around[:6], "…", step]
                    what = f"{key} goes in a circle: {' -> '.join(shown)}"
                    last = shelf.readings[names[-1]]
                    yield last.make_finding(what, f"remove {step!r} here", key)
                elif step in shelf.readings and step not in done:
                    reading = shelf.readings[step]
                    after = reading.needs if key == "needs" else [reading.superseded_by or step]
                    trail[step] = iter([name for name in after if name != step])
                step = next(trail[next(reversed(trail))], None) if trail else None


def _check_topics(shelf: Shelf) -> Iterator[Finding]:
    """Lists that no page shows, and topics with too many readings to start with."""
    for where, topic in shelf.topics.items():
        if topic.listed and not topic.page:
            mend = f"write docs/{where}.md, or move the entries to another topic"
            yield Finding(f"docs/{where}.yml", None, "has no page beside it", mend)
        elif topic.listed and not topic.shown:
            what, mend = "does not show its reading list", f'add --8<-- "readings/{where}.md"'
            yield Finding(f"docs/{topic.list_page}", None, what, mend)
        starts = [reading for reading in topic.readings if reading.start]
        for reading in starts[MOST_STARTS:]:
            what = f"more than {MOST_STARTS} readings of {where} have start"
            yield reading.make_finding(what, "remove it from the others", "start")
        for reading in starts:
            if reading.unread:
                what = f"{reading.id}: has both start and unread, but nobody here could open it"
                mend = "remove start, or read it and remove unread"
                yield reading.make_finding(what, mend, "start")


# The JSON Schema of a reading list, by which an editor checks and completes what is typed. It is
# made from the model, and refuses nothing that `shelf check` accepts. What it cannot express (one
# identity, known ids) is left to `shelf check`.

PLACE = "docs/assets/readings.schema.json"
ADDRESS = "https://warpshelf.github.io/warpshelf/assets/readings.schema.json"
DIALECT = "http://json-schema.org/draft-07/schema#"  # the newest that editors know throughout
SETTINGS = ".vscode/settings.json"
KINDS = {
    "paper": "A paper, preprint, thesis or report.",
    "post": "An article on a blog or a forum.",
    "talk": "A recording or the slides of a talk.",
    "code": "A repository, or a file of one.",
    "docs": "Documentation of a product.",
    "course": "A course or a set of lectures.",
    "book": "A book, or a chapter of one.",
    "tool": "A program to be used.",
    "site": "A collection of other things.",
}


def build_schema() -> dict[str, Any]:
    """The schema: a list of readings, each key with its description, pattern or choices."""
    made: Any = TypeAdapter(list[Reading]).json_schema(ref_template="#/definitions/{model}")
    parts = {name: _tidy_schema(part) for name, part in made["$defs"].items()}
    kind = parts["Reading"]["properties"]["kind"]
    kind["enumDescriptions"] = [KINDS[name] for name in kind["enum"]]
    # A title in another language has its English beside it, and only such a title.
    other = {"properties": {"title": {"pattern": OTHER_SCRIPT.pattern}}, "required": ["title"]}
    foreign = {"properties": {"lang": {"not": {"const": "en"}}}, "required": ["lang"]}
    parts["Reading"]["allOf"] = [
        {"if": other, "then": foreign | {"required": ["lang", "title_en"]}},
        {"if": {"required": ["title_en"]}, "then": foreign},
    ]
    return {
        "$schema": DIALECT,
        "$id": ADDRESS,
        "title": "A reading list of Warpshelf",
        "description": "docs/<part>/<topic>.yml: the readings that the page of the topic shows.",
        "type": "array",
        "items": made["items"],
        "definitions": parts,
    }


def schema_text() -> str:
    """The schema as it is committed."""
    return json.dumps(build_schema(), separators=(",", ":")) + "\n"


def write_schema(project: Project) -> bool:
    """Put the schema in place; True where it was not current."""
    return write_atomically(project.root / PLACE, schema_text())


def check_schema(project: Project) -> list[Finding]:
    """What is wrong with the committed schema; a project may have none."""
    settings, what = project.root / SETTINGS, ""
    try:
        if (project.root / PLACE).read_bytes() != schema_text().encode():
            what = "is not the present schema of the readings"
    except FileNotFoundError:
        if settings.is_file() and PLACE in settings.read_text("utf-8", errors="replace"):
            what = f"is missing, but {SETTINGS} names it"
    mend = "run `shelf schema --write` and commit the file"
    return [Finding(PLACE, None, what, mend)] if what else []


def _tidy_schema(part: Any) -> Any:
    """Without generated titles and defaults, and without null, which no key may be."""
    if isinstance(part, list):
        return [_tidy_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    choices = [one for one in part.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        part = {**part, **choices[0]}
        del part["anyOf"]
    found = {}
    for name, value in part.items():
        if name == "properties":
            found[name] = {key: _tidy_schema(inner) for key, inner in value.items()}
        elif name != "title" and not (name == "default" and value in (None, [])):
            found[name] = _tidy_schema(value)
    return found
