"""What each entry of docs/**/*.yml may hold, and the shelf they make together.

A type's validators say what is wrong in our words. What of it JSON Schema can express stands beside
them, so that an editor refuses the same values while they are typed
(`warpshelf.readings.crosscheck`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, StringConstraints, model_validator

from warpshelf.core import markup
from warpshelf.core.findings import Finding
from warpshelf.core.pages import FRONT, Page, load_pages
from warpshelf.core.project import LIST, Project
from warpshelf.readings.entries import EntryModel, EntryReader, KeyPath
from warpshelf.readings.identity import SHORTENERS, TRACKING, work_identity

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
FIRST_YEAR = 1950
KEBAB = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"
OTHER_SCRIPT = re.compile(  # Cyrillic, Hebrew, Arabic, Indic, Thai, kana, Chinese, Hangul
    "[\u0400-\u052f\u0590-\u06ff\u0900-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


def latest_year() -> int:
    """The last year that a work may be of: those of the next are announced already."""
    return datetime.now(UTC).year + 1


def meant_language(code: str) -> str | None:
    """The language that a code of another kind surely means: `cn`, `zh-CN` and `ZH` mean `zh`."""
    first = re.sub(r"[-_](?:[a-z]{2}|[a-z]{4})$", "", code.strip().lower())
    meant = MISTAKEN.get(first, first)
    return meant if meant in LANGUAGES else None


def _check_line(text: str, longest: int = 300) -> str:
    shown = " ".join(text.split())
    if unseen := markup.UNSEEN.search(shown):
        raise ValueError(f"holds the unseen character U+{ord(unseen[0]):04X}; remove it")
    if not shown:
        raise ValueError("is empty; write it, or remove the key")
    if len(shown) > longest:
        raise ValueError(f"has {len(shown)} characters, over the limit of {longest}; shorten it")
    return shown


def _check_url(url: str) -> str:
    try:
        work_identity(url)
    except ValueError as error:
        raise ValueError(f"{error}; write it as https://…") from None
    host = re.sub(r"^[a-z]+://([^/?#:]*).*", r"\1", url, flags=re.IGNORECASE | re.DOTALL)
    if "." not in host.strip(".") or re.fullmatch(r"[\d.]+", host):
        raise ValueError(f"the host {host!r} is not public; link a page on the web")
    return url


def _check_year(year: int) -> int:
    if not FIRST_YEAR <= year <= latest_year():
        limits = f"{FIRST_YEAR} to {latest_year()}"
        raise ValueError(f"is {year}, outside {limits}; write the year it was published")
    return year


def _check_day(text: str) -> str:
    day = None
    with suppress(ValueError):
        day = date.fromisoformat(text)
    if day is None or day.isoformat() != text:
        raise ValueError(f'is {text!r}, not a date; write it as "2026-11-20", in quotes')
    if not date(2020, 1, 1) <= day <= datetime.now(UTC).date() + timedelta(days=1):
        raise ValueError(f"is {text}, outside 2020 to today; write the day it was put on the shelf")
    return text


def _check_language(lang: str) -> str:
    if lang not in LANGUAGES:
        mend = meant_language(lang) or "two letters of ISO 639-1, such as en or zh"
        raise ValueError(f"is {lang!r}, not a language code; write {mend}")
    return lang


def _check_unique(items: list[Any]) -> list[Any]:
    for place, item in enumerate(items):
        if item in items[:place]:
            raise ValueError(f"names {str(item)!r} twice; remove one")
    return items


def _schema_hint(**more: Any) -> Any:
    return Field(json_schema_extra=more)


def _text_hint(longest: int) -> Any:
    """Text of 1 to `longest` visible characters, a run of white space counting as one."""
    unseen = markup.UNSEEN.pattern[1:-1].replace("\ud800-\udfff", "")  # no text holds surrogates
    escaped = (c if c.isascii() and c.isprintable() else f"\\u{ord(c):04x}" for c in unseen)
    seen = rf"[^\s{''.join(escaped)}]"
    said = f"Write 1 to {longest} characters, none of them unseen."
    pattern = rf"^\s*(?:{seen}|\s+(?={seen})){{1,{longest}}}\s*$"
    return _schema_hint(pattern=pattern, patternErrorMessage=said)


ADDRESS_RULES = {  # what a pattern can tell of an address
    r"^https://(?![\d.]+(?:[:/?#]|$))[^\s/?#@\\]+\.[^\s/?#@\\]+(?:[/?#][^\s\\]*)?$":
        "Write the whole address, https:// and a public host, without spaces.",
    rf"^(?!https://(?!web\.archive\.org/)[^#]*[?&](?:utm_[^=&#]*|{'|'.join(sorted(TRACKING))})=)":
        "Leave out the parameters that follow the reader, such as utm_source or si.",
    rf"^(?!https?://(?:www\.)?(?:{'|'.join(map(re.escape, sorted(SHORTENERS)))})(?:[/?#]|$))":
        "Write the address that the short link leads to.",
    r"^(?!https?://(?:(?:dx|www)\.doi\.org|www\.arxiv\.org|www\.github\.com|youtu\.be)/)":
        "Write https://doi.org/..., https://arxiv.org/abs/..., https://github.com/... or "
        "https://www.youtube.com/watch?v=...",
    r"^(?!https?://github\.com/[^/?#]+/[^/?#]+(?:\.git|/tree/(?:main|master|HEAD))/?$)":
        "Write the root of the repository, https://github.com/owner/name.",
}  # fmt: skip
OWN_RULES = {  # and of that of the work itself
    r"^(?!https?://(?:www\.|export\.)?arxiv\.org/(?:(?:pdf|html)/|abs/[^/?#]+v\d+(?:[?#]|$)))":
        "Write https://arxiv.org/abs/ and the identifier without its version.",
}  # fmt: skip


def _address_hint(rules: Mapping[str, str]) -> Any:
    parts = [{"pattern": rule, "patternErrorMessage": said} for rule, said in rules.items()]
    return _schema_hint(allOf=parts)


DAY = r"^20[2-9]\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])$"
UNLIKE, ONCE = AfterValidator(_check_unique), _schema_hint(uniqueItems=True)
CHECKED = AfterValidator(_check_url)
Sentence = Annotated[str, AfterValidator(_check_line), _text_hint(300)]
Name = Annotated[str, AfterValidator(partial(_check_line, longest=120)), _text_hint(120)]
Id = Annotated[str, StringConstraints(pattern=KEBAB, max_length=80)]
Tag = Annotated[str, StringConstraints(pattern=KEBAB, max_length=40)]
Snippet = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=80)]
Seed = Annotated[str, StringConstraints(pattern=r"^\d{3}$")]
Url = Annotated[str, Field(max_length=500), CHECKED, _address_hint(ADDRESS_RULES)]
Address = Annotated[str, Field(max_length=500), CHECKED, _address_hint(ADDRESS_RULES | OWN_RULES)]
Year = Annotated[int, AfterValidator(_check_year), _schema_hint(minimum=FIRST_YEAR)]
Minutes = Annotated[int, Field(ge=1, le=6000)]
Rating = Annotated[int, Field(ge=1, le=4)]
Day = Annotated[str, AfterValidator(_check_day), _schema_hint(pattern=DAY, format="date")]
Language = Annotated[str, AfterValidator(_check_language), _schema_hint(enum=sorted(LANGUAGES))]
Kind = Literal["paper", "post", "talk", "code", "docs", "course", "book", "tool", "site"]
Level = Literal["beginner", "intermediate", "advanced"]
What = Literal[
    "preprint", "published", "code", "slides", "recording", "annotated", "archive", "translation"
]


class Also(EntryModel):
    """Another address of a reading's work: a version of it, or something that belongs to it."""

    what: What
    """What the address holds: another version of the work, or something that belongs to it."""
    url: Url
    """Where it is."""


class Reading(EntryModel):
    """One entry of a reading list. Its keys may stand in any order; this is the usual one."""

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

    @model_validator(mode="after")
    def _check_title_language(self) -> Reading:
        if self.title_en and self.lang == "en":
            raise ValueError("title_en is given, but lang is en; set lang to the title's language")
        if OTHER_SCRIPT.search(self.title):
            if self.lang == "en":
                raise ValueError("title is not in English; set lang, and give title_en")
            if not self.title_en:
                raise ValueError("title has no English beside it; give it as title_en")
        return self

    _page: str = PrivateAttr(default="")

    @property
    def where(self) -> str:
        """The name of its topic, such as `kernels/softmax`."""
        return _topic_name(self.path)

    @property
    def page(self) -> str:
        """The page that has its list, below docs/: `kernels/softmax/readings.md`."""
        return self._page or f"{self.where}.md"

    @property
    def anchor(self) -> str:
        """The HTML id of its entry."""
        return f"reading-{self.id}"

    @property
    def target(self) -> str:
        """The docs-absolute link to its entry: `/kernels/amd.md#reading-cdna3-isa`."""
        return f"/{self.page}#{self.anchor}"

    @property
    def addresses(self) -> list[tuple[KeyPath, str, str]]:
        """Its own address (role `url`) and those under `also`: the place, the role, the address."""
        others = enumerate(self.also)
        return [
            (("url",), "url", self.url),
            *((("also", n, "url"), other.what, other.url) for n, other in others),
        ]

    def raw_texts(self) -> Iterator[tuple[KeyPath, str]]:
        """Its texts as they were written, spaces at the ends included, each with its place."""
        pending: list[tuple[KeyPath, Any]] = [((), self._entry.fields)]
        while pending:
            place, value = pending.pop()
            if isinstance(value, str):
                yield place, value
            elif isinstance(value, dict | list):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                pending += [((*place, key), inner) for key, inner in items]


def _topic_name(path: str) -> str:
    return path.removeprefix("docs/").removesuffix(".yml")


KEYS = tuple(Reading.model_fields)
GLOSSARY = "docs/glossary.yml"  # the one file among the lists that holds no readings


@dataclass
class Topic:
    """One list: its name (`kernels/softmax`), the title of its page, its readings in file order.

    Its page is `kernels/softmax.md`, or `index.md` of a folder whose `readings.md` has the list.
    """

    where: str
    title: str
    page: bool = False  # the page stands beside the list
    folder: bool = False  # it is that of a folder
    shown: bool = False  # the list is included where it belongs
    listed: bool = False  # the list's file exists
    readings: list[Reading] = field(default_factory=list)

    @property
    def overview(self) -> str:
        """Its page, below docs/."""
        return f"{self.where}/index.md" if self.folder else f"{self.where}.md"

    @property
    def list_page(self) -> str:
        """The page that has its list, below docs/."""
        return f"{self.where}/{LIST}.md" if self.folder else f"{self.where}.md"


@dataclass
class Shelf:
    """All lists. `readings` has one entry an id; `entries` has every one, ids used twice too."""

    readings: dict[str, Reading] = field(default_factory=dict)
    entries: list[Reading] = field(default_factory=list)
    topics: dict[str, Topic] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)  # ids of entries that a finding kept out
    untidy: dict[str, list[int]] = field(default_factory=dict)  # lines that end in spaces, by file

    def add_file(self, data: bytes, path: str) -> None:
        """Read one file's bytes into the shelf and note what is wrong with it."""
        where = _topic_name(path)
        topic = self.topics.setdefault(where, Topic(where, where))
        topic.listed = True
        reader = EntryReader(path, data)
        found = list(reader.parse_as(Reading))
        for reading in found:
            reading._page = topic.list_page
            self.readings.setdefault(reading.id, reading)
        topic.readings += found
        self.entries += found
        self.findings += reader.findings
        names = {str(entry.fields.get("id")) for entry in reader.entries}
        self.refused |= names - {reading.id for reading in found}
        if reader.untidy:
            self.untidy[path] = reader.untidy


def load_shelf(
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
    root, instead, shelf = Path(project_root), instead or {}, Shelf()
    files = {*_list_files(root, ".yml"), *instead} - {GLOSSARY}
    written = load_pages(Project(root))[0] if pages is None else pages
    for name, page in written.items():
        where, listing = name, page
        if (apart := f"{name.removesuffix('index')}{LIST}") in written and name.endswith("/index"):
            where, listing = name.removesuffix("/index"), written[apart]
        shown = f"readings/{where}.md" in listing.text
        if shown or f"docs/{where}.yml" in files:
            heading = re.search(
                r"^# +(.+?)(?: *#*)?(?: *\{[^}]*\})? *$", FRONT.sub("", page.text), re.MULTILINE
            )
            title = re.sub(r"[`*]", "", heading[1]) if heading else where
            known = Topic(where, title or where, page=True, folder=where != name, shown=shown)
            shelf.topics[where] = known
    for path in sorted(files):
        try:
            data = instead[path] if path in instead else (root / path).read_bytes()
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            shelf.findings.append(Finding(path, None, what, "make it a readable file"))
            continue
        shelf.add_file(data, path)
    for path in _list_files(root, ".yaml"):
        mend = f"rename it to {Path(path).stem}.yml"
        shelf.findings.append(Finding(path, None, "ends in .yaml, so it is not read", mend))
    return shelf


def _list_files(root: Path, suffix: str) -> list[str]:
    """The files below docs/ with this ending, but hidden ones."""
    found = (
        path.relative_to(root) for path in (root / "docs").rglob(f"*{suffix}") if not path.is_dir()
    )
    return sorted(p.as_posix() for p in found if not any(n.startswith(".") for n in p.parts))
