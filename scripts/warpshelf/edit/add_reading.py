"""Adds a reading to the list of its topic; it is written whole or not at all.

The entries already in the list stay as they are, to the byte. The questions asked at a terminal are
here too; Enter accepts what was found.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import typer
import yaml
from pydantic import ValidationError

from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, ShelfError, printable_line
from warpshelf.readings import crosscheck, titles
from warpshelf.readings.entries import Entry, EntryReader, closest_match, explain_errors
from warpshelf.readings.identity import canonical_url, url_problems, work_identity
from warpshelf.readings.model import KEYS, OTHER_SCRIPT, Kind, Level, Reading, Shelf, load_shelf
from warpshelf.readings.titles import same_work
from warpshelf.web.services import TITLE, Metadata

WIDTH = 88  # columns after which PyYAML ends a line at the next space
SPACED = re.compile(r"\n[ \r]*\n(?: *#.*\n)* *- ")  # a blank line before an entry
EMPTY = re.compile(r"(?m)^\[[ \t]*\][ \t]*(?:\r?\n|\Z)")  # a list that holds nothing yet


def dump_entry(values: Mapping[str, Any], indent: int, newline: str) -> str:
    """An entry as YAML, its dash at column `indent`; it reads back as `values`."""

    def dump_yaml(value: Any, flow: bool = False) -> list[str]:
        more: Any = {"allow_unicode": True, "sort_keys": False, "width": WIDTH}
        text: str = yaml.safe_dump(value, default_flow_style=flow, **more)
        return text.rstrip("\n").split("\n")

    lines: list[str] = []
    for key, value in values.items():
        if key == "added":
            lines.append(f'{key}: "{value}"')
        elif key == "also":
            first, *rest = dump_yaml({key: [dict(version) for version in value]})
            lines += [first, *(f"  {line}" for line in rest)]
        elif isinstance(value, list | tuple):
            first, *rest = dump_yaml(list(value), flow=True)
            lines += [f"{key}: {first}", *rest]
        else:
            lines += dump_yaml({key: value})
    marked = [f"{' ' * indent}{'  ' if n else '- '}{line}" for n, line in enumerate(lines)]
    return newline.join(line.rstrip(" ") for line in marked) + newline


def is_blank(data: bytes) -> bool:
    """Whether a list's file holds nothing but comments and white space."""
    return not re.sub(rb"(?m)^\s*#.*$", b"", data).strip()


def append_entry(path: str, old: bytes, values: Mapping[str, Any]) -> tuple[bytes, str]:
    """The bytes of the list `old` with an entry appended, and that entry's own lines.

    Line ends, the column of the dashes and the habit of a blank line between entries are kept.
    ShelfError if `old` is not a list that can take an entry, at `path`.
    """
    reader = EntryReader(path, old)
    if reader.findings and not is_blank(old):
        raise ShelfError(reader.findings)
    newline = "\r\n" if old.count(b"\r\n") * 2 > old.count(b"\n") else "\n"
    before = old.decode("utf-8")
    if reader.indent is None and reader.entries:
        mend = "write it as lines that start with -"
        raise ShelfError(Finding(path, None, "the list is written as [ … ]", mend))
    if reader.indent is None:
        before = EMPTY.sub("", before, count=1)
    text = dump_entry(values, reader.indent or 0, newline)
    gap = "" if not before or before.endswith("\n") else newline
    if SPACED.search(before) and before.rstrip(" \r\n") + newline * 2 != before:
        gap += newline  # the file keeps a blank line between its entries
    data = (before + gap + text).encode("utf-8")
    after = EntryReader(path, data)
    due = [*(entry.fields for entry in reader.entries), dict(values)]
    if after.findings or [entry.fields for entry in after.entries] != due:
        mend = "make the file a plain list of entries, or add this one by hand"
        said = after.findings or [Finding(path, None, "an entry cannot be appended", mend)]
        raise ShelfError(said)
    return data, text


Ask = Callable[["NewReading", Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
REQUIRED = ("title", "kind", "why")
KINDS = {"arxiv": "paper", "doi": "paper", "ieee": "paper", "openreview": "paper",
         "youtube": "talk", "github": "code"}  # fmt: skip
OFFERED = ("title", "kind", "authors", "year", "venue", "lang", "also")  # what `Metadata` may tell


@dataclass(frozen=True)
class AddedReading:
    """An added entry: its place, its text, and the reading that it parses to."""

    path: str
    line: int
    text: str
    reading: Reading
    notes: list[Finding]  # what else there is to do, such as to include the list in its page


class NewReading:
    """A topic's list and the address of a work that is not on the shelf yet.

    `url` is in its usual form and `work` its identity. Creating one raises ShelfError for a topic
    without a page, an address that the shelf refuses, and a work that is on it already.
    """

    def __init__(
        self, project_root: Path, topic: str, url: str, shelf: Shelf | None = None
    ) -> None:
        self.root = Path(project_root)
        self.shelf = shelf or load_shelf(self.root)
        self.where = _resolve_topic(self.root, topic, self.shelf)
        self.path = f"docs/{self.where}.yml"
        try:
            self.work = work_identity(url.strip())
            self.url = canonical_url(url.strip())
        except ValueError as error:
            raise self._list_error(str(error), "write it as https://…") from None
        if wrong := self.field_error():
            raise self._list_error(*wrong.split("; ", 1))
        for what, mend in url_problems(self.url):
            raise self._list_error(what, mend)
        self._refuse_duplicate(self.work, "see")

    def _list_error(self, what: str, mend: str = "") -> ShelfError:
        return ShelfError(Finding(self.path, None, what, mend))

    def _refuse_duplicate(self, work: str, mend: str) -> None:
        for reading in self.shelf.entries:
            versions = [v.url for v in reading.also if v.what in ("preprint", "published")]
            if work in map(work_identity, [reading.url, *versions]):
                what = f"{work} is on the shelf already, as {reading.title!r} ({reading.id})"
                raise self._list_error(what, f"{mend} {reading.path}:{reading.line}")

    def follow_move(self, metadata: Metadata) -> bool:
        """Take the work's new address from `metadata`, if it has one; True if it has.

        ShelfError if that address is on the shelf already.
        """
        try:
            work, url = work_identity(metadata.url), canonical_url(metadata.url)
        except ValueError:
            return False
        if work == self.work or [*url_problems(url)] or self.field_error(url=url):
            return False
        self._refuse_duplicate(work, f"{self.url} leads there; see")
        self.work, self.url = work, url
        return True

    def offered_values(self, metadata: Metadata | None) -> dict[str, Any]:
        """The values of an entry that `metadata` gives, and the kind that the address implies."""
        values: dict[str, Any] = {"kind": KINDS.get(self.work.partition(":")[0])}
        if metadata:
            for _, url in metadata.also:
                mend = f"name {self.url} under its also, at"
                self._refuse_duplicate(work_identity(url), mend)
            values |= {key: getattr(metadata, key) or values.get(key) for key in OFFERED}
            values["authors"] = list(metadata.authors)
            values["lang"] = None if metadata.lang == "en" else metadata.lang
            values["also"] = [{"what": what, "url": url} for what, url in metadata.also]
            if metadata.year and (meant := titles.expected_years(self.url, metadata.venue)):
                values["year"] = metadata.year if metadata.year in meant[0] else meant[0][-1]
        # Values that an entry cannot hold are dropped: nobody here could mend them.
        told = _without_empty(values).items()
        return {key: value for key, value in told if not self.field_error(**{key: value})}

    def field_error(self, **fields: Any) -> str | None:
        """What is wrong with the values of `fields`, each looked at alone; None if nothing is."""
        whole = {"id": "a", "title": "A", "url": self.url, "kind": "site", "why": "A.", **fields}
        if OTHER_SCRIPT.search(str(whole["title"])):
            whole = {"lang": "zh", **whole}
            whole = whole if whole["lang"] == "en" else {"title_en": "A", **whole}
        elif "title_en" in fields:
            whole = {"lang": "zh", **whole}
        try:
            Reading.model_validate(whole)
        except ValidationError as error:
            said = explain_errors(error, Entry(1, whole), KEYS)
            return "; ".join(filter(None, (said[0].what, said[0].mend))) if said else str(error)
        return None

    def title_mismatch(self, metadata: Metadata, title: str | None) -> str | None:
        """How the work's own title differs from `title`, in a sentence; None if it does not."""
        if not title or self.work.startswith(("github:", "youtube:")):
            return None
        same = same_work([title], metadata.title, version=True)
        return None if same else f"the title is given as {title!r}, found as {metadata.title!r}"

    def add_entry(
        self,
        *,
        fields: Mapping[str, Any],
        ask: Ask | None = None,
        metadata: Metadata | None = None,
        dry: bool = False,
    ) -> AddedReading:
        """Append the entry to its list, with today's date and an id; other entries stay the same.

        `fields` holds the known values by key; `metadata` fills what they lack, and the address
        gives the kind if neither does. `ask` gets this, the fields and the values offered for the
        rest, and returns all that the entry shall hold. `dry` writes nothing. A wrong field or
        entry raises ShelfError, and nothing is written.
        """
        offered = self.offered_values(metadata)
        known = _without_empty(fields)
        values = {**offered, **known} if ask is None else _without_empty(ask(self, known, offered))
        if missing := [key for key in REQUIRED if key not in values]:
            flags = ", ".join(f"--{key}" for key in missing)
            raise self._list_error(f"an entry needs {', '.join(missing)}", f"add {flags}")
        taken = {*self.shelf.readings, *self.shelf.refused}
        titles = [values["title"], values.get("title_en", "")]
        values = {"id": _unique_id(titles, taken), "added": utc_date(), **values, "url": self.url}
        ordered = {key: values[key] for key in [*KEYS, *values] if key in values}
        place = self.root / self.path
        old = place.read_bytes() if place.exists() else b""
        broken = [finding for finding in self.shelf.findings if finding.path == self.path]
        if broken and not is_blank(old):
            raise ShelfError(broken)
        data, text = append_entry(self.path, old, ordered)
        # What the entry breaks, here or elsewhere on the shelf; what its page lacks is a note.
        snippets = {p.stem for p in self.root.glob("snippets/*/*.py") if p.stem == p.parent.name}
        after = load_shelf(self.root, instead={self.path: data})
        found = {*after.findings, *crosscheck.check_shelf(after, snippets)}
        found -= {*self.shelf.findings, *crosscheck.check_shelf(self.shelf, snippets)}
        page = f"docs/{after.topics[self.where].list_page}"
        notes = sorted(finding for finding in found if finding.path == page)
        if wrong := sorted(found.difference(notes)):
            raise ShelfError(wrong)
        reading = after.topics[self.where].readings[-1]
        if not dry:
            write_atomically(place, data)
        return AddedReading(self.path, reading.line, text, reading, notes)


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", [], ())}


def utc_date() -> str:
    """Today's date in UTC, the same wherever an entry is added."""
    return datetime.now(UTC).date().isoformat()


def _resolve_topic(root: Path, topic: str, shelf: Shelf) -> str:
    where = re.sub(r"^docs/|\.(?:md|ya?ml)$", "", topic.strip().strip("/"))
    if where in shelf.topics and shelf.topics[where].page:
        return where
    plain = re.fullmatch(r"[\w-]+(?:/[\w-]+)*", where)
    page = root / "docs" / where
    if plain and (page.with_name(f"{page.name}.md").is_file() or (page / "index.md").is_file()):
        return where
    known = sorted(name for name, known in shelf.topics.items() if known.page)
    near = closest_match(where, known)
    meant = f"write --topic {near}; " if near else ""
    what = f"there is no page docs/{where}.md for the topic {topic!r}"
    mend = f"{meant}topics: {', '.join(known) or 'none'}"
    raise ShelfError(Finding(f"docs/{where}.yml", None, what, mend))


def _unique_id(titles: Sequence[str], taken: set[str]) -> str:
    """An id from the first words of the first title in Latin letters; none of `taken`."""
    words = ["reading"]
    for part in (part for title in titles for part in (title.partition(":")[0], title)):
        plain = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode().lower()
        if found := re.findall(r"[a-z0-9]+", plain.replace("'", "")):
            words = found
            break
    base = words[0][:76]
    for word in words[1:]:
        if len(base) + len(word) > 40:
            break
        base += f"-{word}"
    names = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


LEAVE = "-"  # the answer that leaves out what was found
WHY = "Why: what the reader learns, in your own words, at most"
QUESTIONS = {  # in the order of asking
    "title": "Title, as on the work",
    "lang": "Its language, two letters",
    "title_en": "Its title in English",
    "kind": f"Kind ({', '.join(get_args(Kind))})",
    "authors": "Authors, separated by commas",
    "year": "Year",
    "venue": "Venue: conference, journal, blog or channel",
    "level": f"Level ({', '.join(get_args(Level))})",
    "tags": "Tags, separated by commas",
    "why": f"{WHY} {TITLE} characters",
}
NEEDED = ("title", "kind", "why", "lang", "title_en")
LANGUAGE = ("lang", "title_en")  # what only a title in another language needs


def ask_fields(
    addition: NewReading, known: Mapping[str, Any], offered: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of an entry: `known` as given, the rest asked for, with `offered` as defaults.

    A wrong answer is refused with its reason, and the question asked again. An empty answer takes
    the default, or skips an optional field; `-` always skips it.
    """
    values = {**{key: value for key, value in offered.items() if key not in QUESTIONS}, **known}
    foreign = bool(OTHER_SCRIPT.search(known.get("title", "")))
    typer.echo(f"Enter accepts the value in [ ]; {LEAVE} leaves it out.", err=True)
    for key in QUESTIONS:
        if key in known or key == "title_en" and values.get("lang", "en") == "en":
            continue
        if key == "lang" and not foreign and "lang" not in offered:
            continue
        needed = key in NEEDED and (foreign or key not in LANGUAGE)
        beside = {k: values[k] for k in ("title", "lang") if k in values and key in LANGUAGE}
        value = _ask_field(addition, key, offered.get(key), needed, beside)
        foreign = foreign or key == "title" and bool(OTHER_SCRIPT.search(value))
        if value not in (None, []):
            values[key] = value
    return values


def _ask_field(addition: NewReading, key: str, offered: Any, needed: bool, beside: Any) -> Any:
    shown = printable_line(", ".join(offered) if isinstance(offered, list) else str(offered or ""))
    while True:
        answer = typer.prompt(
            QUESTIONS[key], default=shown, show_default=bool(shown), err=True
        ).strip()
        if answer == shown != LEAVE and offered is not None:
            return offered
        if answer in ("", LEAVE):
            if not needed:
                return None
            said = f"an entry needs {key}"
        else:
            value: Any = answer
            if key in ("authors", "tags"):
                value = [part.strip() for part in re.split("[,;]", answer) if part.strip()]
            elif key == "year" and re.fullmatch("[0-9]{1,6}", answer):
                value = int(answer)
            if not (wrong := addition.field_error(**{**beside, key: value})):
                return value
            said = wrong
        typer.echo(f"  {printable_line(said)}", err=True)
