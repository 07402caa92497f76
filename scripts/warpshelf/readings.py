"""Readings: what each entry of docs/**/*.yml may hold, and the shelf they make together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from warpshelf import markup
from warpshelf.crosscheck import check
from warpshelf.entries import Entry, Reader
from warpshelf.findings import Finding
from warpshelf.identity import identity
from warpshelf.messages import explain

__all__ = ["KEYS", "Also", "Reading", "Shelf", "Topic", "check", "load"]

ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da "
    "de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy "
    "hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg "
    "li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or "
    "os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta "
    "te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
LANGUAGES = frozenset(ISO_639_1.split())
MISTAKEN = {"cn": "zh", "jp": "ja", "gr": "el", "cz": "cs", "dk": "da", "ua": "uk", "eng": "en"}
KEBAB = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"
SNIPPET = r"^[a-z][a-z0-9_]*$"
OTHER_SCRIPT = re.compile(  # Cyrillic, Hebrew, Arabic, Indic, Thai, kana, Chinese, Hangul
    "[\u0400-\u052f\u0590-\u06ff\u0900-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


def _line(text: str) -> str:
    shown = " ".join(text.split())
    if unseen := markup.UNSEEN.search(shown):
        raise ValueError(f"holds the unseen character U+{ord(unseen[0]):04X}; remove it")
    if not shown:
        raise ValueError("is empty; write it, or remove the key")
    return shown


def _web(url: str) -> str:
    identity(url)
    host = re.sub(r"^[a-z]+://([^/?#:]*).*", r"\1", url, flags=re.IGNORECASE | re.DOTALL)
    if "." not in host.strip(".") or re.fullmatch(r"[\d.]+", host):
        raise ValueError(f"the host {host!r} is no public name; link a page on the web")
    return url


def _year(year: int) -> int:
    last = datetime.now(UTC).year + 1
    if not 1950 <= year <= last:
        raise ValueError(f"is {year}, outside 1950 to {last}; write the year it was published")
    return year


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise ValueError(f'is {text!r}, no date; write it as "2026-11-20", in quotes')
    if not date(2020, 1, 1) <= day <= datetime.now(UTC).date() + timedelta(days=1):
        raise ValueError(f"is {text}, which cannot be; write the day it was put on the shelf")
    return text


def _language(lang: str) -> str:
    if lang not in LANGUAGES:
        mend = MISTAKEN.get(lang.lower(), "two letters of ISO 639-1, such as en or zh")
        raise ValueError(f"is {lang!r}, no language code; write {mend}")
    return lang


def _unlike(items: list[Any]) -> list[Any]:
    for place, item in enumerate(items):
        if item in items[:place]:
            raise ValueError(f"names {str(item)!r} twice; remove one")
    return items


def _within(longest: int) -> AfterValidator:
    def shorter(text: str) -> str:
        if len(text) > longest:
            raise ValueError(f"has {len(text)} characters, over the limit of {longest}; shorten it")
        return text

    return AfterValidator(shorter)


UNLIKE = AfterValidator(_unlike)
Sentence = Annotated[str, AfterValidator(_line), _within(300)]
Name = Annotated[str, AfterValidator(_line), _within(120)]
Id = Annotated[str, StringConstraints(pattern=KEBAB, max_length=80)]
Tag = Annotated[str, StringConstraints(pattern=KEBAB, max_length=40)]
Snippet = Annotated[str, StringConstraints(pattern=SNIPPET, max_length=80)]
Seed = Annotated[str, StringConstraints(pattern=r"^\d{3}$")]
Url = Annotated[str, Field(max_length=500), AfterValidator(_web)]
Year = Annotated[int, AfterValidator(_year)]
Rating = Annotated[int, Field(ge=1, le=4)]
Day = Annotated[str, AfterValidator(_day)]
Language = Annotated[str, AfterValidator(_language)]
Kind = Literal["paper", "post", "talk", "code", "docs", "course", "book", "tool", "site"]
Level = Literal["beginner", "intermediate", "advanced"]
What = Literal[
    "preprint", "published", "code", "slides", "recording", "annotated", "archive", "translation"
]


class Also(BaseModel):
    """Another address of a reading's work: a version of it, or something that belongs to it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    what: What
    url: Url


class Reading(BaseModel):
    """One entry of a reading list; its keys stand in this order."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    id: Id
    title: Sentence
    title_en: Sentence | None = None
    url: Url
    kind: Kind
    authors: Annotated[list[Name], Field(max_length=100), UNLIKE] = []
    year: Year | None = None
    venue: Name | None = None
    why: Sentence
    rating: Rating | None = None
    level: Level | None = None
    lang: Language = "en"
    tags: Annotated[list[Tag], Field(max_length=12), UNLIKE] = []
    snippets: Annotated[list[Snippet], Field(max_length=20), UNLIKE] = []
    needs: Annotated[list[Id], Field(max_length=20), UNLIKE] = []
    also: Annotated[list[Also], Field(max_length=12), UNLIKE] = []
    seed: Annotated[list[Seed], Field(max_length=12), UNLIKE] = []
    superseded_by: Id | None = None
    mended: Sentence | None = None
    added: Day | None = None

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

    @property
    def written(self) -> list[str]:
        """Its keys in the order of the file."""
        return list(self._entry.fields)

    def line_of(self, *place: str | int) -> int:
        """The line of a key, or of a value within it: `line_of("also", 0, "url")`."""
        return self._entry.lines.get(place, self.line)

    def placed(self, path: str, part: str, topic: str, entry: Entry) -> Reading:
        """This reading, with the place it was read from."""
        self._path, self._part, self._topic, self._entry = path, part, topic, entry
        return self


KEYS = tuple(Reading.model_fields)


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
    unread: set[str] = field(default_factory=set)  # ids of entries refused with a finding

    def add(self, data: bytes, path: str, where: str) -> Reader:
        """Read one file's bytes into the shelf and note what is wrong with it."""
        topic = self.topics.setdefault(where, Topic(where, where))
        topic.listed = True
        reader = Reader(path, data)
        self.findings += reader.findings
        part, _, name = where.rpartition("/")
        for entry in reader.entries:
            try:
                reading = Reading.model_validate(entry.fields).placed(path, part, name, entry)
            except ValidationError as error:
                self.findings += explain(error, path, entry, KEYS)
                self.unread.add(str(entry.fields.get("id")))
                continue
            topic.readings.append(reading)
            self.entries.append(reading)
            self.readings.setdefault(reading.id, reading)
        return reader


def load(project_root: Path | str, *, instead: Mapping[str, bytes] | None = None) -> Shelf:
    """Read every docs/**/*.yml below `project_root`, in order of their paths.

    `instead` gives the bytes of files, by path relative to the root, to read in place of what is
    on the disk. Nothing is raised for what is wrong in a file: `findings` says it, and the entry
    is left out.
    """
    root, instead = Path(project_root), instead or {}
    docs = root / "docs"
    shelf = Shelf()
    files = {path.relative_to(root).as_posix() for path in _files(docs, ".yml")} | {*instead}
    for page in _files(docs, ".md"):
        where = page.relative_to(docs).with_suffix("").as_posix()
        text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
        shown = f"readings/{where}.md" in text
        if shown or f"docs/{where}.yml" in files:
            shelf.topics[where] = Topic(where, _heading(text) or where, page=True, shown=shown)
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
