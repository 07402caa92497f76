"""The corrections that `shelf check --fix` makes in the lists: only those that are safe.

A mend replaces the characters of one value, or takes spaces from the end of a line. All other bytes
stay as they are: comments, blank lines, quotes, folds, CRLF. What was mended is read again before
it reaches the disk, and must say what it said before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding, printable_line
from warpshelf.readings import titles
from warpshelf.readings.entries import FLAGS, Entry, EntryReader, KeyPath
from warpshelf.readings.identity import canonical_url
from warpshelf.readings.model import GLOSSARY, KEYS, LANGUAGES, meant_language

NUMBERS = {"year", "rating"}  # the keys whose values are numbers; all others are texts
VERSIONS = ("preprint", "published")
INDICATORS = re.compile(r"[\[\]{},]|: |:$| #|^[-?:](?: |$)|^[&*!|>'\"%@`#]")
_RESOLVER: Any = yaml.SafeLoader("")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, order=True)
class Fix:
    """One correction, on the line where it was made."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return printable_line(f"{self.path}:{self.line}: mended {self.what}")


@dataclass(frozen=True)
class TextEdit:
    """Replaces characters `start` to `end` by `text`, which YAML then reads as `value`."""

    start: int
    end: int
    text: str
    mend: Fix
    place: tuple[int, KeyPath] | None = None  # the entry, by number, and the place within it
    value: Any = None


def flatten_fields(value: Any, place: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """All values of an entry with their places: lists and mappings, and what is in them."""
    yield place, value
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        yield from flatten_fields(one, (*place, key))


def _walk_scalars(node: Any, place: KeyPath = ()) -> Iterator[tuple[KeyPath, yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield place, node
        return
    pairs = list(enumerate(node.value))
    if isinstance(node, yaml.MappingNode):  # of a key written twice, the first is what was read
        pairs = list({key.value: value for key, value in reversed(node.value)}.items())
    for key, value in pairs:
        yield from _walk_scalars(value, (*place, key))


def value_edits(path: str, text: str, reader: EntryReader) -> Iterator[TextEdit]:
    """Values with one sure correction: addresses, languages, years, quotes, spaces at the ends."""
    wanted = [dict(_wanted_values(entry)) for entry in reader.entries]
    if not any(wanted):
        return
    root: Any = yaml.compose(text, Loader=_LOADER)
    nodes = [one for one in root.value if isinstance(one, yaml.MappingNode)]
    for number, (node, meant) in enumerate(zip(nodes, wanted, strict=True)):
        for place, scalar in _walk_scalars(node) if meant else ():
            style = scalar.style or ""
            if place not in meant or style in ("|", ">"):
                continue
            new, said = meant[place]
            name = " ".join(str(p + 1) if isinstance(p, int) else p for p in place)
            done = Fix(path, scalar.start_mark.line + 1, f"{name}: {said}")
            start, end = scalar.start_mark.index, scalar.end_mark.index
            shown = str(new) if isinstance(new, int) else _quote_value(new, style)
            value = new if isinstance(new, int) else " ".join(new.split())
            yield TextEdit(start, end, shown, done, (number, place), value)


def _wanted_values(entry: Entry) -> Iterator[tuple[KeyPath, tuple[str | int, str]]]:
    """The place of each value to correct, with its correction and a description of the change."""
    fields = entry.fields
    for place, value in flatten_fields(fields):
        if not place or place[0] not in KEYS or not isinstance(value, str | int):
            continue
        if place[0] in NUMBERS:
            quoted = isinstance(value, str) and re.fullmatch(r"\s*[1-9]\d{0,3}\s*", value)
            number = int(value) if quoted or isinstance(value, int) else None
            if number and place == ("year",) and (told := _meant_year(fields, number)):
                yield place, (told[0], f"{told[0]}, as {told[1]}; it was {number}")
            elif number and quoted:
                yield place, (number, f"{number}, without quotes")
            continue
        form = str(value).strip()
        if not form or "\n" in form or place in FLAGS:
            continue
        changed = form
        if place == ("lang",) and form not in LANGUAGES:
            changed = meant_language(form) or form
        elif place[-1] == "url" and (len(place) == 1 or (place[0] == "also" and len(place) == 3)):
            main = len(place) == 1 or fields["also"][place[1]].get("what") in VERSIONS
            with suppress(ValueError):
                changed = canonical_url(form, main)
        if changed != form:
            yield place, (changed, f"{changed}, which was {form}")
        elif isinstance(value, int) or place in entry.refused:
            yield place, (form, f"{form}, in quotes")
        elif form != value.strip("\n"):
            yield place, (form, "without the spaces at its ends")


def _meant_year(fields: dict[str, Any], number: int) -> tuple[int, str] | None:
    """The one year that `number` must be, and why; None if `number` may be right."""
    url, venue = fields.get("url"), fields.get("venue")
    if isinstance(url, str) and isinstance(venue, str):
        with suppress(ValueError):
            told = titles.expected_years(url, venue)
            if told and len(told[0]) == 1 and number not in told[0]:
                return told[0][0], told[1]
    return None


def _quote_value(text: str, style: str) -> str:
    """`text` as YAML, in quotes where it had them or needs them."""
    if style == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]
    if style or tag != "str" or INDICATORS.search(text) or not text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    return text


def space_edits(path: str, text: str, reader: EntryReader) -> Iterator[TextEdit]:
    """Spaces at the ends of lines."""
    start = 0
    untidy = set(reader.untidy)
    for number, line in enumerate(text.split("\n"), 1):
        if number in untidy:
            kept = line.removesuffix("\r")
            bare = kept.rstrip(" \t")
            mend = Fix(path, number, "spaces at the end of the line")
            yield TextEdit(start + len(bare), start + len(kept), "", mend)
        start += len(line) + 1


BOM = "\ufeff"


def fix_lists(root: Path) -> tuple[list[Fix], list[Finding]]:
    """Mend every list below `root`/docs that can be mended, and say what was left alone and why."""
    mended: list[Fix] = []
    left: list[Finding] = []
    for file in sorted((root / "docs").rglob("*.yml")):
        names = file.relative_to(root / "docs").parts
        if file.is_symlink() or not file.is_file() or any(name.startswith(".") for name in names):
            continue
        path = file.relative_to(root).as_posix()
        if path == GLOSSARY:
            continue
        data = file.read_bytes()
        after, done, finding = fix_list(path, data)
        if finding:
            left.append(finding)
        elif done:
            write_atomically(file, after.decode("utf-8"))
            mended += done
    return mended, left


def fix_list(path: str, data: bytes) -> tuple[bytes, list[Fix], Finding | None]:
    """`data` mended, what was done, and a finding if it had to be left as it is."""
    reader = EntryReader(path, data)
    if not reader.entries:  # nothing there, or what `shelf check` says of the file comes first
        return data, [], None
    text = data.decode("utf-8")
    mark = BOM if text.startswith(BOM) else ""
    text = text.removeprefix(BOM)
    done: list[Fix] = []
    for group in (value_edits, space_edits):
        edits = list(group(path, text, reader))
        if not edits:
            continue
        parts, end = [], 0
        for edit in sorted(edits, key=lambda edit: edit.start):
            parts += [text[end : edit.start], edit.text]
            end = edit.end
        text = "".join([*parts, text[end:]])
        after = EntryReader(path, text.encode())
        if not _reads_same(reader, after, edits):
            what = "would read differently once corrected, so it was left alone"
            return data, [], Finding(path, edits[0].mend.line, what, "fix it by hand")
        done += [edit.mend for edit in edits]
        reader = after
    return (mark + text).encode(), sorted(done), None


def _reads_same(before: EntryReader, after: EntryReader, edits: Iterable[TextEdit]) -> bool:
    """Whether both readings are the same, except for what the edits change."""
    wanted = [_leaf_values(entry.fields) for entry in before.entries]
    for edit in edits:
        if edit.place:
            wanted[edit.place[0]][edit.place[1]] = edit.value
    was = [finding.what for finding in before.findings]
    return [_leaf_values(entry.fields) for entry in after.entries] == wanted and all(
        finding.what in was for finding in after.findings
    )


def _leaf_values(fields: dict[str, Any]) -> dict[KeyPath, Any]:
    """Each value by its place: of a list its length, of a mapping its keys, of a text its words."""
    seen: dict[type, Any] = {str: lambda text: " ".join(text.split()), dict: frozenset, list: len}
    return {
        place: seen.get(type(value), lambda same: same)(value)
        for place, value in flatten_fields(fields)
    }
