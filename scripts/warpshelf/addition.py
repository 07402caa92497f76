"""Addition: a reading on its way onto the shelf; it arrives whole, or nothing is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpshelf.files import write_atomically
from warpshelf.findings import Finding, ShelfError
from warpshelf.identity import identity
from warpshelf.listfile import blank, extended
from warpshelf.spelling import canonical, problems

if TYPE_CHECKING:
    from warpshelf.found import Found
    from warpshelf.readings import Reading, Shelf

Ask = Callable[["Addition", Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
REQUIRED = ("title", "kind", "why")
KINDS = {"arxiv": "paper", "doi": "paper", "ieee": "paper", "openreview": "paper",
         "youtube": "talk", "github": "code"}  # fmt: skip
OFFERED = ("title", "kind", "authors", "year", "venue", "lang", "also")  # what `Found` may tell
NOTHING = (None, "", [], ())


@dataclass(frozen=True)
class Entry:
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
        from warpshelf.readings import load

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

    def moved(self, found: Found) -> bool:
        """Take the address that `found` gives, where the work has another name now.

        True where it was taken. Raises ShelfError if that work is on the shelf.
        """
        try:
            work, url = identity(found.url), canonical(found.url)
        except ValueError:
            return False
        if work == self.work or [*problems(url)] or self.refusal(url=url):
            return False
        self._refuse_twice(work, f"{self.url} leads there; see")
        self.work, self.url = work, url
        return True

    def offered(self, found: Found | None) -> dict[str, Any]:
        """What `found` tells, as the values of an entry, and the kind that the address tells.

        Raises ShelfError if another version of the work is on the shelf.
        """
        values: dict[str, Any] = {"kind": KINDS.get(self.work.partition(":")[0])}
        if found:
            for _, url in found.also:
                mend = f"name {self.url} under its also, at"
                self._refuse_twice(identity(url), mend)
            values |= {key: getattr(found, key) or values.get(key) for key in OFFERED}
            values["authors"] = list(found.authors)
            values["lang"] = None if found.lang == "en" else found.lang
            values["also"] = [{"what": what, "url": url} for what, url in found.also]
        told = {key: value for key, value in values.items() if value not in NOTHING}
        # What an entry cannot hold was not found: nobody here could mend it.
        return {key: value for key, value in told.items() if not self.refusal(**{key: value})}

    def refusal(self, **fields: Any) -> str | None:
        """What is wrong with the values of `fields`, each looked at alone; None if nothing is."""
        from pydantic import ValidationError

        from warpshelf.entries import Entry as Written
        from warpshelf.messages import explain
        from warpshelf.readings import KEYS, OTHER_SCRIPT, Reading

        whole = {"id": "a", "title": "A", "url": self.url, "kind": "site", "why": "A.", **fields}
        if OTHER_SCRIPT.search(str(whole["title"])):
            whole = {"lang": "zh", **whole}
            whole = whole if whole["lang"] == "en" else {"title_en": "A", **whole}
        elif "title_en" in fields:
            whole = {"lang": "zh", **whole}
        try:
            Reading.model_validate(whole)
        except ValidationError as error:
            said = explain(error, "", Written(1, whole), KEYS)
            return "; ".join(filter(None, (said[0].what, said[0].mend))) if said else str(error)
        return None

    def mismatch(self, found: Found, title: str | None) -> str | None:
        """That the work calls itself otherwise than `title`, in a sentence; None if it does not.

        A repository's name and a video's heading are seldom what a reading is called by.
        """
        if not title or self.work.startswith(("github:", "youtube:")):
            return None
        from warpshelf.titles import alike

        same = alike([title], found.title, version=True)
        return None if same else f"the title is given as {title!r}, and there as {found.title!r}"

    def add(
        self,
        *,
        fields: Mapping[str, Any],
        ask: Ask | None = None,
        found: Found | None = None,
        dry: bool = False,
    ) -> Entry:
        """Append the entry to its list; all that stands there stays as it is.

        `fields` holds what is known, by key; what `found` tells comes behind it, and the kind that
        the address tells behind that. `ask` gets this, the fields and what is offered for the rest,
        and gives back all that the entry shall hold. `dry` writes nothing.

        Raises:
            ShelfError: a field is wrong or missing, or another version of the work is on the shelf
                already. Nothing was written.
        """
        offered = self.offered(found)
        known = {key: value for key, value in fields.items() if value not in NOTHING}
        values = {**offered, **known} if ask is None else ask(self, known, offered)
        return self.put(values, dry=dry)

    def put(self, fields: Mapping[str, Any], *, dry: bool = False) -> Entry:
        """Write the entry with these values, today's date and an id, behind the topic's others."""
        from warpshelf.readings import KEYS

        values = {key: value for key, value in fields.items() if value not in NOTHING}
        if missing := [key for key in REQUIRED if key not in values]:
            flags = ", ".join(f"--{key}" for key in missing)
            raise self._wrong(f"an entry needs {', '.join(missing)}", f"add {flags}")
        today = datetime.now(UTC).date().isoformat()
        taken = {*self.shelf.readings, *self.shelf.unread}
        titles = [values["title"], values.get("title_en", "")]
        values = {"id": _id(titles, taken), "added": today, **values, "url": self.url}
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
        return Entry(self.path, reading.line, text, reading, notes)

    def _fitting(self, data: bytes) -> tuple[Reading, list[Finding]]:
        """The last entry of `data` as a reading, and what its page still lacks.

        Raises ShelfError for anything that the entry makes wrong, here or elsewhere on the shelf.
        """
        from warpshelf.readings import check, load

        snippets = {p.stem for p in self.root.glob("snippets/*/*.py") if p.stem == p.parent.name}
        after = load(self.root, instead={self.path: data})
        found = {*after.findings, *check(after, snippets)}
        found -= {*self.shelf.findings, *check(self.shelf, snippets)}
        notes = sorted(finding for finding in found if finding.path == f"docs/{self.where}.md")
        if wrong := sorted(found.difference(notes)):
            raise ShelfError(wrong)
        return after.topics[self.where].readings[-1], notes


def _where(root: Path, topic: str, shelf: Shelf) -> str:
    where = re.sub(r"^docs/|\.(?:md|ya?ml)$", "", topic.strip().strip("/"))
    if where in shelf.topics and shelf.topics[where].page:
        return where
    from warpshelf.messages import nearest

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
