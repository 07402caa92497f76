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
from warpshelf.readings.entries import KeyPath, closest_match
from warpshelf.readings.identity import url_problems, work_identity
from warpshelf.readings.model import OTHER_SCRIPT, Also, Reading, Shelf

VERSIONS = ("preprint", "published")  # the same work as the entry's own url
PARTS = ("code", "slides", "recording")  # what belongs to it and may be an entry of its own
# Kinds whose titles have subtitles, and how many words must be left without one.
HEADED = {"paper": 1, "book": 1, "post": 3, "talk": 3}
MOST_STARTS = 2  # readings that a topic's page names at its top
YEARS_APART = 2  # a preprint and its publication are seldom further apart than a year


def check_shelf(shelf: Shelf, snippet_ids: Collection[str] | None = None) -> list[Finding]:
    """What is wrong across the shelf, in order of place; `load` has found the rest.

    `snippet_ids` names the snippets that exist; None leaves those references unchecked.
    """
    found: list[Finding] = []
    for group in (
        _check_ids,
        _check_identities,
        _check_titles,
        _check_references,
        _check_cycles,
        _check_urls,
        _check_spaces,
        _check_pages,
        _check_starts,
        _check_years,
    ):
        found += group(shelf)
    if snippet_ids is not None:
        found += _check_snippets(shelf, snippet_ids)
    return sorted(set(found))


def _finding_at(reading: Reading, place: KeyPath, what: str, mend: str) -> Finding:
    return Finding(reading.path, reading.line_of(*place), what, mend)


def _check_ids(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        first = shelf.readings[reading.id]
        if first is not reading:
            mend = f"rename one (first at {first.path}:{first.line})"
            yield _finding_at(reading, ("id",), f"id {reading.id!r} is used twice", mend)


def _check_identities(shelf: Shelf) -> Iterator[Finding]:
    seen: dict[str, Reading] = {}
    for reading in shelf.entries:
        own = work_identity(reading.url)
        here = {own}
        for place, version in [(("url",), None), *_other_versions(reading)]:
            name = work_identity(version.url) if version else own
            if version and version.what in PARTS:
                if name == own:
                    yield _finding_at(reading, place, f"{name} is the entry's own url", "remove it")
                continue
            first = seen.setdefault(name, reading)
            if first is not reading:
                what = f"{name} is on the shelf already, as {first.title!r}"
                yield _finding_at(
                    reading, place, what, f"keep one (first at {first.path}:{first.line})"
                )
            elif version and name in here:
                its = "the entry's own url" if name == own else "under also twice"
                yield _finding_at(reading, place, f"{name} is {its}", "remove it")
            here.add(name)


def _other_versions(reading: Reading) -> Iterator[tuple[KeyPath, Also]]:
    """What an entry has under `also`, save copies and translations, whose identity may be its own.

    A copy has the identity of what it copies.
    """
    for number, version in enumerate(reading.also):
        if version.what in VERSIONS or version.what in PARTS:
            yield ("also", number, "url"), version


def _check_starts(shelf: Shelf) -> Iterator[Finding]:
    """Who is told to start with everything is told nothing."""
    for topic in shelf.topics.values():
        for reading in [one for one in topic.readings if one.start][MOST_STARTS:]:
            what = f"start stands at more than {MOST_STARTS} readings of {topic.where}"
            yield _finding_at(reading, ("start",), what, "remove it from the others")
        for reading in [one for one in topic.readings if one.start and one.unread]:
            what = f"{reading.id}: start stands beside unread, but nobody here could open it"
            yield _finding_at(
                reading, ("start",), what, "remove start, or read it and remove unread"
            )


def _check_years(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        told = titles.expected_years(reading.url, reading.venue)
        if told and reading.year and reading.year not in told[0]:
            what = f"{reading.id}: year is {reading.year}, but {told[1]}"
            mend = f"write {told[0][-1]}, or correct the venue"
            yield _finding_at(reading, ("year",), what, mend)


def _check_titles(shelf: Shelf) -> Iterator[Finding]:
    named = [
        titles.parse_title(reading.title, HEADED.get(reading.kind, 0)) for reading in shelf.entries
    ]
    told: set[int] = set()
    for first, second, how in titles.similar_pairs(named):
        one, other = shelf.entries[first], shelf.entries[second]
        if (
            second in told
            or _distinct_works(one, other)
            or (how == titles.PART and one.kind != other.kind)
        ):
            continue
        told.add(second)
        mend = "correct one title or url, or name the second address under also"
        if how == titles.SAME:
            what = f"the title {other.title!r} also stands at {one.path}:{one.line}"
            mend += "; two works are told apart by authors, years or needs"
        else:
            what = f"the title {other.title!r} is nearly {one.title!r} at {one.path}:{one.line}"
            mend += "; if they are two works, give both their authors, or let one need the other"
        yield _finding_at(other, ("title",), f"{what}, for {work_identity(one.url)}", mend)


def _distinct_works(one: Reading, other: Reading) -> bool:
    """Whether two entries of like titles say themselves that they are two works.

    They do where one needs the other, is superseded by it or has its address under `also`; where
    the authors of both are given and nobody is among both; or, with no authors to compare, where
    the years of both are given and lie YEARS_APART.
    """
    names = work_identity(one.url), work_identity(other.url)
    if names[0] == names[1] or one.id == other.id:
        return True  # found as such
    for a, b in ((one, other), (other, one)):
        if b.id in a.needs or b.id == a.superseded_by:
            return True
        if work_identity(b.url) in (work_identity(version.url) for version in a.also):
            return True
    ours, theirs = _author_keys(one), _author_keys(other)
    if ours and theirs:
        return not ours & theirs
    dated = one.year, other.year
    return None not in dated and abs((dated[0] or 0) - (dated[1] or 0)) >= YEARS_APART


def _author_keys(reading: Reading) -> set[tuple[str, str]]:
    """The authors by family name and first letter: `T. Dao` is `Tri Dao`."""
    found = set()
    for name in reading.authors:
        plain = unicodedata.normalize("NFKD", name).casefold()
        words = "".join(c for c in plain if not unicodedata.combining(c)).split()
        if words != ["and", "others"]:
            found.add((words[-1], words[0][0]))
    return found


def _check_references(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        places: list[tuple[KeyPath, str]] = [
            (("needs", number), name) for number, name in enumerate(reading.needs)
        ]
        if reading.superseded_by is not None:
            places.append((("superseded_by",), reading.superseded_by))
        for place, name in places:
            if name == reading.id:
                yield _finding_at(reading, place, f"{place[0]} names the entry itself", "remove it")
            elif name not in shelf.readings and name not in shelf.refused:
                what = f"{place[0]} names {name!r}, which no reading has as its id"
                yield _finding_at(reading, place, what, _suggest_name(name, shelf.readings))


def _check_snippets(shelf: Shelf, known: Collection[str]) -> Iterator[Finding]:
    for reading in shelf.entries:
        for number, name in enumerate(reading.snippets):
            if name not in known:
                what = f"snippets names {name!r}, which is no folder under snippets/"
                yield _finding_at(reading, ("snippets", number), what, _suggest_name(name, known))


def _suggest_name(name: str, known: Collection[str]) -> str:
    near = closest_match(name, known, alike=70)
    return f"write {near}" if near else "correct it, or remove it"


def _check_cycles(shelf: Shelf) -> Iterator[Finding]:
    """Each circle of `needs` and each of `superseded_by`, once, at its first entry."""
    for key in ("needs", "superseded_by"):
        after = {
            name: [n for n in _referenced_ids(reading, key) if n in shelf.readings and n != name]
            for name, reading in shelf.readings.items()
        }
        done: set[str] = set()
        for start in after:
            trail: dict[str, Iterator[str]] = {}
            step: str | None = None if start in done else start
            while step is not None or trail:
                if step is None:
                    done.add(trail.popitem()[0])
                elif step in trail:
                    names = list(trail)
                    around = [*names[names.index(step) :], step]
                    circle = " -> ".join(around if len(around) < 9 else [*around[:6], "…", step])
                    what = f"{key} goes in a circle: {circle}"
                    yield _finding_at(
                        shelf.readings[names[-1]], (key,), what, f"remove {step!r} here"
                    )
                elif step not in done:
                    trail[step] = iter(after[step])
                step = next(trail[next(reversed(trail))], None) if trail else None


def _referenced_ids(reading: Reading, key: str) -> list[str]:
    value = getattr(reading, key)
    return value if isinstance(value, list) else [value] if value else []


def _check_urls(shelf: Shelf) -> Iterator[Finding]:
    for reading in shelf.entries:
        places: list[tuple[KeyPath, str, bool]] = [(("url",), reading.url, True)]
        places += [
            (("also", number, "url"), version.url, version.what in VERSIONS)
            for number, version in enumerate(reading.also)
        ]
        for place, url, main in places:
            for what, mend in url_problems(url, main):
                yield _finding_at(reading, place, what, mend)


def _check_spaces(shelf: Shelf) -> Iterator[Finding]:
    for path, lines in shelf.untidy.items():
        more = f", as do {len(lines) - 1} more" if len(lines) > 1 else ""
        yield Finding(path, lines[0], f"the line ends in spaces{more}", "remove them")
    for reading in shelf.entries:
        for place, text in reading.raw_texts():
            # A block, such as `why: >`, ends in a line break of its own.
            if text.strip("\n") != text.strip():
                name = " ".join(str(part + 1) if isinstance(part, int) else part for part in place)
                yield _finding_at(reading, place, f"{name} starts or ends in a space", "remove it")


def _check_pages(shelf: Shelf) -> Iterator[Finding]:
    for where, topic in shelf.topics.items():
        if topic.listed and not topic.page:
            mend = f"write docs/{where}.md, or move the entries to another topic"
            yield Finding(f"docs/{where}.yml", None, "has no page beside it", mend)
        elif topic.listed and not topic.shown:
            what = "does not show its reading list"
            yield Finding(f"docs/{where}.md", None, what, f'add --8<-- "readings/{where}.md"')


# The JSON Schema of a reading list, by which an editor checks and completes what is typed.
#
# It is made from the model in `warpshelf.readings.model`, and refuses nothing that `shelf check`
# accepts. What it cannot express (one identity, known ids) is left to `shelf check`.

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
    reading = parts[Reading.__name__]
    kind = reading["properties"]["kind"]
    kind["enumDescriptions"] = [KINDS[name] for name in kind["enum"]]
    reading["allOf"] = _language_rules()
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
    return json.dumps(build_schema(), indent=2) + "\n"


def write_schema(project: Project) -> bool:
    """Put the schema in place; True where it was not current."""
    return write_atomically(project.root / PLACE, schema_text())


def check_schema(project: Project) -> list[Finding]:
    """What is wrong with the committed schema. A project without one lacks nothing by that."""
    path, settings = project.root / PLACE, project.root / SETTINGS
    mend = "run `shelf schema --write` and commit the file"
    try:
        current = path.read_bytes() == schema_text().encode()
    except FileNotFoundError:
        named = settings.is_file() and PLACE in settings.read_text("utf-8", errors="replace")
        return [Finding(PLACE, None, f"is missing, but {SETTINGS} names it", mend)] if named else []
    what = "is not the schema that the readings have now"
    return [] if current else [Finding(PLACE, None, what, mend)]


def _language_rules() -> list[dict[str, Any]]:
    """A title in another language has its English beside it, and only such a title."""
    other = {"properties": {"title": {"pattern": OTHER_SCRIPT.pattern}}, "required": ["title"]}
    foreign = {"properties": {"lang": {"not": {"const": "en"}}}, "required": ["lang"]}
    return [
        {"if": other, "then": foreign | {"required": ["lang", "title_en"]}},
        {"if": {"required": ["title_en"]}, "then": foreign},
    ]


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
