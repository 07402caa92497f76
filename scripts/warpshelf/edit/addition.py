"""A reading on its way onto the shelf; it arrives whole, or nothing is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.edit.listfile import blank, extended
from warpshelf.readings import crosscheck, years
from warpshelf.readings.entries import Entry
from warpshelf.readings.fields import OTHER_SCRIPT
from warpshelf.readings.identity import identity
from warpshelf.readings.messages import explain, nearest
from warpshelf.readings.model import KEYS, Reading, Shelf, load
from warpshelf.readings.spelling import canonical, problems
from warpshelf.readings.titles import alike
from warpshelf.web.metadata import Metadata

Ask = Callable[["Addition", Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
REQUIRED = ("title", "kind", "why")
KINDS = {"arxiv": "paper", "doi": "paper", "ieee": "paper", "openreview": "paper",
         "youtube": "talk", "github": "code"}  # fmt: skip
OFFERED = ("title", "kind", "authors", "year", "venue", "lang", "also")  # what `Metadata` may tell
NOTHING: tuple[Any, ...] = (None, "", [], ())


@dataclass(frozen=True)
class Added:
    """An entry as it was added: where it stands now, its text, what it reads as."""

    path: str
    line: int
    text: str
    reading: Reading
    notes: list[Finding]  # what else there is to do, such as to include the list in its page


class Addition:
    """A topic's list and the address of a work that is not on the shelf yet.

    `url` is in its usual form and `work` its identity. Making one raises ShelfError for a topic
    without a page, an address that cannot stand on the shelf, and a work that is there already.
    """

    def __init__(
        self, project_root: Path, topic: str, url: str, shelf: Shelf | None = None
    ) -> None:
        self.root = Path(project_root)
        self.shelf = shelf or load(self.root)
        self.where = _where(self.root, topic, self.shelf)
        self.path = f"docs/{self.where}.yml"
        try:
            self.work = identity(url.strip())
            self.url = canonical(url.strip())
        except ValueError as error:
            raise self._wrong(str(error), "write it as https://…") from None
        if wrong := self.refusal():
            raise self._wrong(*wrong.split("; ", 1))
        for what, mend in problems(self.url):
            raise self._wrong(what, mend)
        self._refuse_twice(self.work, "see")

    def _wrong(self, what: str, mend: str = "") -> ShelfError:
        return ShelfError(Finding(self.path, None, what, mend))

    def _refuse_twice(self, work: str, mend: str) -> None:
        for reading in self.shelf.entries:
            versions = [v.url for v in reading.also if v.what in ("preprint", "published")]
            if work in map(identity, [reading.url, *versions]):
                what = f"{work} is on the shelf already, as {reading.title!r} ({reading.id})"
                raise self._wrong(what, f"{mend} {reading.path}:{reading.line}")

    def moved(self, metadata: Metadata) -> bool:
        """Take the address that `metadata` gives, where the work has another name now.

        True where it was taken. Raises ShelfError if that work is on the shelf.
        """
        try:
            work, url = identity(metadata.url), canonical(metadata.url)
        except ValueError:
            return False
        if work == self.work or [*problems(url)] or self.refusal(url=url):
            return False
        self._refuse_twice(work, f"{self.url} leads there; see")
        self.work, self.url = work, url
        return True

    def offered(self, metadata: Metadata | None) -> dict[str, Any]:
        """What `metadata` tells, as the values of an entry, and the kind that the address tells.

        Raises ShelfError if another version of the work is on the shelf.
        """
        values: dict[str, Any] = {"kind": KINDS.get(self.work.partition(":")[0])}
        if metadata:
            for _, url in metadata.also:
                mend = f"name {self.url} under its also, at"
                self._refuse_twice(identity(url), mend)
            values |= {key: getattr(metadata, key) or values.get(key) for key in OFFERED}
            values["authors"] = list(metadata.authors)
            values["lang"] = None if metadata.lang == "en" else metadata.lang
            values["also"] = [{"what": what, "url": url} for what, url in metadata.also]
            if metadata.year and (meant := years.meant(self.url, metadata.venue)):
                values["year"] = metadata.year if metadata.year in meant[0] else meant[0][-1]
        told = {key: value for key, value in values.items() if value not in NOTHING}
        # What an entry cannot hold was not found: nobody here could mend it.
        return {key: value for key, value in told.items() if not self.refusal(**{key: value})}

    def refusal(self, **fields: Any) -> str | None:
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
            said = explain(error, "", Entry(1, whole), KEYS)
            return "; ".join(filter(None, (said[0].what, said[0].mend))) if said else str(error)
        return None

    def mismatch(self, metadata: Metadata, title: str | None) -> str | None:
        """That the work calls itself otherwise than `title`, in a sentence; None if it does not.

        A repository's name and a video's heading are seldom what a reading is called by.
        """
        if not title or self.work.startswith(("github:", "youtube:")):
            return None
        same = alike([title], metadata.title, version=True)
        return None if same else f"the title is given as {title!r}, and there as {metadata.title!r}"

    def add(
        self,
        *,
        fields: Mapping[str, Any],
        ask: Ask | None = None,
        metadata: Metadata | None = None,
        dry: bool = False,
    ) -> Added:
        """Append the entry to its list; all that stands there stays as it is.

        `fields` holds what is known, by key; what `metadata` tells comes behind it, and the kind
        that the address tells behind that. `ask` gets this, the fields and what is offered for the
        rest, and gives back all that the entry shall hold. `dry` writes nothing.

        Raises:
            ShelfError: a field is wrong or missing, or another version of the work is on the shelf
                already. Nothing was written.
        """
        offered = self.offered(metadata)
        known = {key: value for key, value in fields.items() if value not in NOTHING}
        values = {**offered, **known} if ask is None else ask(self, known, offered)
        return self.put(values, dry=dry)

    def put(self, fields: Mapping[str, Any], *, dry: bool = False) -> Added:
        """Write the entry with these values, today's date and an id, behind the topic's others."""
        values = {key: value for key, value in fields.items() if value not in NOTHING}
        if missing := [key for key in REQUIRED if key not in values]:
            flags = ", ".join(f"--{key}" for key in missing)
            raise self._wrong(f"an entry needs {', '.join(missing)}", f"add {flags}")
        taken = {*self.shelf.readings, *self.shelf.refused}
        titles = [values["title"], values.get("title_en", "")]
        values = {"id": _id(titles, taken), "added": today(), **values, "url": self.url}
        ordered = {key: values[key] for key in [*KEYS, *values] if key in values}
        place = self.root / self.path
        old = place.read_bytes() if place.exists() else b""
        broken = [finding for finding in self.shelf.findings if finding.path == self.path]
        if broken and not blank(old):
            raise ShelfError(broken)
        data, text = extended(self.path, old, ordered)
        reading, notes = self._fitting(data)
        if not dry:
            write_atomically(place, data.decode("utf-8"))
        return Added(self.path, reading.line, text, reading, notes)

    def _fitting(self, data: bytes) -> tuple[Reading, list[Finding]]:
        """The last entry of `data` as a reading, and what its page still lacks.

        Raises ShelfError for anything that the entry makes wrong, here or elsewhere on the shelf.
        """
        snippets = {p.stem for p in self.root.glob("snippets/*/*.py") if p.stem == p.parent.name}
        after = load(self.root, instead={self.path: data})
        found = {*after.findings, *crosscheck.check(after, snippets)}
        found -= {*self.shelf.findings, *crosscheck.check(self.shelf, snippets)}
        notes = sorted(finding for finding in found if finding.path == f"docs/{self.where}.md")
        if wrong := sorted(found.difference(notes)):
            raise ShelfError(wrong)
        return after.topics[self.where].readings[-1], notes


def today() -> str:
    """The date that an entry is added under: that of UTC, the same wherever it is added."""
    return datetime.now(UTC).date().isoformat()


def _where(root: Path, topic: str, shelf: Shelf) -> str:
    where = re.sub(r"^docs/|\.(?:md|ya?ml)$", "", topic.strip().strip("/"))
    if where in shelf.topics and shelf.topics[where].page:
        return where
    plain = re.fullmatch(r"[\w-]+(?:/[\w-]+)*", where)
    if plain and (root / "docs" / f"{where}.md").is_file():
        return where
    known = sorted(name for name, known in shelf.topics.items() if known.page)
    near = nearest(where, known)
    meant = f"write --topic {near}; " if near else ""
    what = f"there is no page docs/{where}.md for the topic {topic!r}"
    mend = f"{meant}topics: {', '.join(known) or 'none'}"
    raise ShelfError(Finding(f"docs/{where}.yml", None, what, mend))


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.findall(r"[a-z0-9]+", plain.replace("'", ""))


def _id(titles: Sequence[str], taken: set[str]) -> str:
    """An id of the first words of the first of `titles` in Latin letters, unlike all of `taken`."""
    heads = [part for title in titles for part in (title.partition(":")[0], title)]
    words = next(filter(None, map(_words, heads)), ["reading"])
    base = ""
    for word in words:
        if base and len(base) + len(word) > 40:
            break
        base = f"{base}-{word}" if base else word[:76]
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name
