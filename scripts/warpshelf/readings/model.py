"""What each entry of docs/**/*.yml may hold, and the shelf they make together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from warpshelf.core.findings import Finding
from warpshelf.core.pages import Page
from warpshelf.core.pages import load as load_pages
from warpshelf.core.project import Project
from warpshelf.readings.entries import Entry, KeyPath, Reader
from warpshelf.readings.fields import (
    ONCE,
    OTHER_SCRIPT,
    UNLIKE,
    Address,
    Day,
    Id,
    Kind,
    Language,
    Level,
    Minutes,
    Name,
    Rating,
    Seed,
    Sentence,
    Snippet,
    Tag,
    Url,
    What,
    Year,
)
from warpshelf.readings.messages import explain

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class Also(BaseModel):
    """Another address of a reading's work: a version of it, or something that belongs to it."""

    model_config = STRICT

    what: What
    """What the address holds: another version of the work, or something that belongs to it."""
    url: Url
    """Where it is."""


class Reading(BaseModel):
    """One entry of a reading list. Its keys may stand in any order; this is the usual one."""

    model_config = STRICT

    id: Id
    """The name by which pages and other entries refer to it; it stays when the title changes."""
    title: Sentence
    """The title exactly as on the work, in its own language."""
    title_en: Sentence | None = None
    """The title in English, where it is in another language."""
    url: Address
    """Where the work is read: https, the address that the work keeps, nothing that tracks."""
    kind: Kind
    """What it is."""
    authors: Annotated[list[Name], Field(max_length=100), UNLIKE, ONCE] = []
    """Full names, in the order of the work; a long list may end with `and others`."""
    year: Year | None = None
    """The year of the version that `venue` names; of a preprint alone, the year of its number."""
    venue: Name | None = None
    """Where it was published: a conference with its year, a journal, a site."""
    why: Sentence
    """One or two sentences of our own: what one knows after reading it. Plain text."""
    rating: Rating | None = None
    """How highly it is recommended, 4 most."""
    start: bool = False
    """Whether its topic's page names it at the top as one of at most two to start with."""
    level: Level | None = None
    """What it asks of the reader."""
    minutes: Minutes | None = None
    """How long it takes, where that is known better than by its kind."""
    lang: Language = "en"
    """The language of the work, by ISO 639-1."""
    tags: Annotated[list[Tag], Field(max_length=12), UNLIKE, ONCE] = []
    """What it is about, in lower case with hyphens."""
    snippets: Annotated[list[Snippet], Field(max_length=20), UNLIKE, ONCE] = []
    """The snippets that show its idea: names of folders under snippets/."""
    needs: Annotated[list[Id], Field(max_length=20), UNLIKE, ONCE] = []
    """Ids of readings to read first."""
    also: Annotated[list[Also], Field(max_length=12), UNLIKE, ONCE] = []
    """Other addresses of the same work, and what belongs to it."""
    seed: Annotated[list[Seed], Field(max_length=12), UNLIKE, ONCE] = []
    """The documents this shelf was made from that name it."""
    superseded_by: Id | None = None
    """The id of the reading that replaces it."""
    unread: bool = False
    """Nobody here could open it, so `why` says no more than where it was found; listed apart."""
    mended: Sentence | None = None
    """What was wrong with the link or title where it was found, and how it was mended."""
    added: Day | None = None
    """The day it was put on the shelf, in quotes."""

    _path: str = PrivateAttr("")
    _part: str = PrivateAttr("")
    _topic: str = PrivateAttr("")
    _entry: Entry = PrivateAttr(default_factory=lambda: Entry(1))

    @model_validator(mode="after")
    def _original_and_english(self) -> Reading:
        if self.title_en and self.lang == "en":
            raise ValueError("title_en stands beside lang en; set lang to the title's language")
        if OTHER_SCRIPT.search(self.title):
            if self.lang == "en":
                raise ValueError("title is not in English; set lang, and give title_en")
            if not self.title_en:
                raise ValueError("title has no English beside it; give it as title_en")
        return self

    @property
    def path(self) -> str:
        """The file it stands in, relative to the project root."""
        return self._path

    @property
    def line(self) -> int:
        """The line its entry starts on, from 1."""
        return self._entry.line

    @property
    def part(self) -> str:
        """The folder under docs/, such as `kernels`; empty for a topic directly in docs/."""
        return self._part

    @property
    def topic(self) -> str:
        """The name of its file without ending, such as `softmax`."""
        return self._topic

    @property
    def where(self) -> str:
        """Part and topic, such as `kernels/softmax`."""
        return f"{self.part}/{self.topic}".lstrip("/")

    @property
    def anchor(self) -> str:
        """The HTML id of its entry."""
        return f"reading-{self.id}"

    @property
    def target(self) -> str:
        """The docs-absolute link to its entry: `/kernels/softmax.md#reading-online-softmax`."""
        return f"/{self.where}.md#{self.anchor}"

    def texts(self) -> Iterator[tuple[KeyPath, str]]:
        """Its texts as they were written, spaces at the ends included, each with its place."""
        for key, value in self._entry.fields.items():
            if isinstance(value, str):
                yield (key,), value
            elif isinstance(value, list):
                for number, item in enumerate(value):
                    if isinstance(item, str):
                        yield (key, number), item
                    elif isinstance(item, dict):
                        yield from (((key, number, name), str(v)) for name, v in item.items())

    def line_of(self, *place: str | int) -> int:
        """The line of a key, or of a value within it: `line_of("also", 0, "url")`."""
        return self._entry.lines.get(place, self.line)

    def placed(self, path: str, part: str, topic: str, entry: Entry) -> Reading:
        """This reading, with the place it was read from."""
        self._path, self._part, self._topic, self._entry = path, part, topic, entry
        return self


KEYS = tuple(Reading.model_fields)
GLOSSARY = "docs/glossary.yml"  # the one file among the lists that holds no readings


@dataclass
class Topic:
    """One list: its name (`kernels/softmax`), the title of its page, its readings in file order."""

    where: str
    title: str
    page: bool = False  # the page stands beside the list
    shown: bool = False  # and includes it
    listed: bool = False  # the list's file exists
    readings: list[Reading] = field(default_factory=list)


@dataclass
class Shelf:
    """All lists. `readings` has one entry an id; `entries` has every one, ids used twice too."""

    readings: dict[str, Reading] = field(default_factory=dict)
    entries: list[Reading] = field(default_factory=list)
    topics: dict[str, Topic] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)  # ids of entries that a finding kept out
    untidy: dict[str, list[int]] = field(default_factory=dict)  # lines that end in spaces, by file

    def add(self, data: bytes, path: str, where: str) -> Reader:
        """Read one file's bytes into the shelf and note what is wrong with it."""
        topic = self.topics.setdefault(where, Topic(where, where))
        topic.listed = True
        reader = Reader(path, data)
        self.findings += reader.findings
        if reader.untidy:
            self.untidy[path] = reader.untidy
        part, _, name = where.rpartition("/")
        for entry in reader.entries:
            try:
                reading = Reading.model_validate(entry.fields).placed(path, part, name, entry)
            except ValidationError as error:
                self.findings += explain(error, path, entry, KEYS)
                self.refused.add(str(entry.fields.get("id")))
                continue
            topic.readings.append(reading)
            self.entries.append(reading)
            self.readings.setdefault(reading.id, reading)
        return reader


def load(
    project_root: Path | str,
    *,
    instead: Mapping[str, bytes] | None = None,
    pages: Mapping[str, Page] | None = None,
) -> Shelf:
    """Read every docs/**/*.yml but the glossary below `project_root`, in order of their paths.

    `instead` gives the bytes of files, by path relative to the root, to read in place of what is
    on the disk, and `pages` the pages where they have been read already. Nothing is raised for what
    is wrong in a file: `findings` says it, and the entry is left out.
    """
    root, instead = Path(project_root), instead or {}
    docs = root / "docs"
    shelf = Shelf()
    files = {path.relative_to(root).as_posix() for path in _files(docs, ".yml")} | {*instead}
    files.discard(GLOSSARY)
    for where, page in (load_pages(Project(root))[0] if pages is None else pages).items():
        shown = f"readings/{where}.md" in page.text
        if shown or f"docs/{where}.yml" in files:
            title = _heading(page.text) or where
            shelf.topics[where] = Topic(where, title, page=True, shown=shown)
    for path in sorted(files):
        try:
            data = instead[path] if path in instead else (root / path).read_bytes()
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            shelf.findings.append(Finding(path, None, what, "make it a readable file"))
            continue
        shelf.add(data, path, path.removeprefix("docs/").removesuffix(".yml"))
    for found in _files(docs, ".yaml"):
        path = found.relative_to(root).as_posix()
        mend = f"rename it to {found.stem}.yml"
        shelf.findings.append(Finding(path, None, "ends in .yaml, so it is not read", mend))
    return shelf


def _files(docs: Path, suffix: str) -> list[Path]:
    found = (path for path in docs.rglob(f"*{suffix}") if not path.is_dir())
    return sorted(
        path for path in found if not any(n.startswith(".") for n in path.relative_to(docs).parts)
    )


def _heading(text: str) -> str | None:
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    found = re.search(r"^# +(.+?)(?: *#*)?(?: *\{[^}]*\})? *$", text, re.MULTILINE)
    return re.sub(r"[`*]", "", found[1]) if found else None
