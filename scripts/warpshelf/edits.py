"""Edits: the changes that are safe to make in the text of a list without asking.

Each replaces the characters of one value, moves the lines of one entry's keys, or takes spaces from
the end of a line. Finding them changes nothing; `warpshelf.mends` makes them and sees to it that
nothing else has changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml

from warpshelf.entries import Entry, Place, Reader
from warpshelf.fields import LANGUAGES, meant_language
from warpshelf.findings import visible
from warpshelf.readings import KEYS
from warpshelf.spelling import canonical

NUMBERS = {"year", "rating"}  # the keys whose values are numbers; all others are texts
VERSIONS = ("preprint", "published")
INDICATORS = re.compile(r"[\[\]{},]|: |:$| #|^[-?:](?: |$)|^[&*!|>'\"%@`#]")
_RESOLVER: Any = yaml.SafeLoader("")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, order=True)
class Mend:
    """One thing that was mended, on the line where it was found."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return visible(f"{self.path}:{self.line}: mended {self.what}")


@dataclass(frozen=True)
class Edit:
    """Characters `start` to `end` of the text give way to `text`; `value` is what is read there."""

    start: int
    end: int
    text: str
    mend: Mend
    place: tuple[int, Place] | None = None  # the entry, by number, and the place within it
    value: Any = None


def flat(fields: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    """All values of an entry with their places: lists and mappings, and what is in them."""
    pending: list[tuple[Place, Any]] = [((), fields)]
    while pending:
        place, value = pending.pop()
        yield place, value
        if isinstance(value, dict):
            pending += [((*place, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            pending += [((*place, number), inner) for number, inner in enumerate(value)]


def _entries(text: str) -> list[yaml.MappingNode]:
    """The mappings of the list, with the places of all that is in them."""
    node: Any = yaml.compose(text, Loader=_LOADER)
    return [one for one in node.value if isinstance(one, yaml.MappingNode)]


def _scalars(node: Any, place: Place = ()) -> Iterator[tuple[Place, yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield place, node
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _scalars(item, (*place, number))
    else:
        seen: set[str] = set()
        for key, value in node.value:
            if key.value not in seen:  # of a key written twice, the first is what was read
                yield from _scalars(value, (*place, key.value))
            seen.add(key.value)


def values(path: str, text: str, reader: Reader) -> Iterator[Edit]:
    """Values that are surely meant otherwise: addresses, languages, quotes, spaces at the ends."""
    wanted = [dict(_wanted(entry)) for entry in reader.entries]
    if not any(wanted):
        return
    for number, (node, meant) in enumerate(zip(_entries(text), wanted, strict=True)):
        for place, scalar in _scalars(node) if meant else ():
            style = scalar.style or ""
            if place not in meant or style in ("|", ">"):
                continue
            new, said = meant[place]
            name = " ".join(str(p + 1) if isinstance(p, int) else p for p in place)
            done = Mend(path, scalar.start_mark.line + 1, f"{name}: {said}")
            start, end = scalar.start_mark.index, scalar.end_mark.index
            shown = str(new) if isinstance(new, int) else _quoted(new, style)
            value = new if isinstance(new, int) else " ".join(new.split())
            yield Edit(start, end, shown, done, (number, place), value)


def _wanted(entry: Entry) -> Iterator[tuple[Place, tuple[str | int, str]]]:
    """The values that are meant, where others are written, and what is said of each change."""
    fields = entry.fields
    for place, value in flat(fields):
        if not place or place[0] not in KEYS or not isinstance(value, str | int):
            continue
        if place[0] in NUMBERS:
            if isinstance(value, str) and re.fullmatch(r"\s*[1-9]\d{0,3}\s*", value):
                yield place, (int(value), f"{int(value)}, without quotes")
            continue
        form = str(value).strip()
        if not form or "\n" in form:
            continue
        changed = form
        if place == ("lang",) and form not in LANGUAGES:
            changed = meant_language(form) or form
        elif place[-1] == "url" and (len(place) == 1 or place[0] == "also"):
            main = len(place) == 1 or _role(fields, place) in VERSIONS
            with suppress(ValueError):
                changed = canonical(form, main)
        if changed != form:
            yield place, (changed, f"{changed}, which was {form}")
        elif isinstance(value, int) or place in entry.refused:
            yield place, (form, f"{form}, in quotes")
        elif form != value.strip("\n"):
            yield place, (form, "without the spaces at its ends")


def _role(fields: dict[str, Any], place: Place) -> Any:
    """What the address at `("also", 0, "url")` is said to be."""
    beside: Any = fields
    for part in place[:-1]:
        beside = beside[part]
    return beside.get("what")


def _quoted(value: str | int, style: str) -> str:
    """`value` as YAML, in quotes where it had them or needs them."""
    text = str(value)
    if style == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]
    if style or tag != "str" or INDICATORS.search(text) or not text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    return text


def spaces(path: str, text: str, reader: Reader) -> Iterator[Edit]:
    """Spaces at the ends of lines."""
    start = 0
    untidy = set(reader.untidy)
    for number, line in enumerate(text.split("\n"), 1):
        if number in untidy:
            kept = line.removesuffix("\r")
            bare = kept.rstrip(" \t")
            mend = Mend(path, number, "spaces at the end of the line")
            yield Edit(start + len(bare), start + len(kept), "", mend)
        start += len(line) + 1


def orders(path: str, text: str, reader: Reader) -> Iterator[Edit]:
    """Entries whose keys stand in another order than the schema's."""
    if all(_ordered(entry) for entry in reader.entries):
        return
    for node, entry in zip(_entries(text), reader.entries, strict=True):
        written = [key.value for key, _ in node.value]
        known = set(written) <= set(KEYS) and len(set(written)) == len(written)
        order = [key for key in KEYS if key in written]
        if node.flow_style or not known or order == written:
            continue
        blocks = _blocks(text, node)
        if blocks is None:
            continue
        first = next(key for key, wanted in zip(written, order, strict=True) if key != wanted)
        line = entry.lines.get((first,), entry.line)
        start = node.value[0][0].start_mark.index
        moved = "".join(blocks[key] for key in order)
        lead = " " * node.value[0][0].start_mark.column
        if not moved.startswith(lead) or not moved[len(lead) : len(lead) + 1].strip():
            continue
        end = start - len(lead) + sum(len(block) for block in blocks.values())
        if end > len(text):  # the file's last line has no end
            moved, end = re.sub(r"\r?\n\Z", "", moved), len(text)
        what = f"the order of the keys of {str(entry.fields.get('id', 'the entry'))!r}"
        yield Edit(start, end, moved[len(lead) :], Mend(path, line, what))


def _ordered(entry: Entry) -> bool:
    return list(entry.fields) == [key for key in KEYS if key in entry.fields]


def _blocks(text: str, node: yaml.MappingNode) -> dict[str, str] | None:
    """The lines of each key, comments above it included, and all of them with their indent.

    None where two keys share a line, or a line ends in a character that only YAML takes for an end.
    """
    starts = []
    for place, (key, _) in enumerate(node.value):
        index = key.start_mark.index
        begin = index - key.start_mark.column
        if place and text[begin:index].strip(" "):
            return None
        least = _end(text, node.value[place - 1])
        starts.append(index if not place else _above(text, begin, least))
    ends = [*starts[1:], _end(text, node.value[-1])]
    newline = "\r\n" if "\r\n" in text else "\n"
    blocks = {}
    for place, ((key, _), start, end) in enumerate(zip(node.value, starts, ends, strict=True)):
        block = text[start:end]
        if not place:
            block = " " * key.start_mark.column + block
        if not block.endswith("\n"):
            if end < len(text):
                return None
            block += newline
        blocks[key.value] = block
    return blocks


def _above(text: str, begin: int, least: int) -> int:
    """Where the comments that stand directly above the line at `begin` start."""
    while begin > least:
        line = text.rfind("\n", 0, begin - 1) + 1
        if line < least or not text[line:begin].lstrip(" ").startswith("#"):
            return begin
        begin = line
    return begin


def _end(text: str, pair: tuple[Any, Any]) -> int:
    """Where the line ends on which the last thing of a key's value stands."""
    last = pair[0].end_mark.index
    pending = [pair[1]]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.ScalarNode) or node.flow_style:
            stop = node.end_mark.index
            block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
            stop = len(text[:stop].rstrip()) if block else stop
            last = max(last, stop)
        else:
            pending += [item for inner in node.value for item in _items(inner)]
    found = text.find("\n", last)
    return len(text) if found < 0 else found + 1


def _items(inner: Any) -> tuple[Any, ...]:
    return inner if isinstance(inner, tuple) else (inner,)
