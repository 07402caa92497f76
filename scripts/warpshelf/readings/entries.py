"""A YAML list of mappings, read with the line of every entry and key.

Only the plain part of YAML that a reading needs is read: a list of mappings of texts, whole
numbers, lists and mappings. What YAML would silently turn into something else (`no`, a date,
`012`, a key written twice, an alias) is a finding instead. Nothing is built recursively from the
file's nesting, so no file can exhaust the stack or the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from warpshelf.core.findings import Finding

LARGEST = 1024 * 1024  # bytes in one file: some 2,000 readings
DEEPEST = 4  # an entry of the list, `also`, an entry of that
UNREADABLE = re.compile(r"[^\t\n\r -~\x85\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FLAGS = {("start",), ("unread",)}  # the keys that are true or false
DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{1,9}")
KeyPath = tuple[str | int, ...]  # ("also", 0, "url"): where a value is within its entry
READ_AS = {"bool": "true or false", "timestamp": "a date", "float": "a fraction", "int": "a number"}
Event = Any  # PyYAML's event classes, whose types its stubs leave open
_RESOLVER: Any = yaml.SafeLoader("")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one where PyYAML has it


@dataclass
class Entry:
    """One mapping of the list. `lines` holds the line of each of its values, from 1."""

    line: int
    fields: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    refused: set[KeyPath] = field(default_factory=set)  # places with a finding of their own


class Reader:
    """Reads one file; `entries` and `findings` hold what came of it.

    `indent` is the column of the list's dashes, None where it is written as `[…]`; `untidy` the
    lines that end in spaces or tabs. `first` is the key that entries open with. With `measures`,
    decimal fractions, true and false are values as well.
    """

    def __init__(
        self, path: str, data: bytes, *, first: str = "id", measures: bool = False
    ) -> None:
        self.path = path
        self.first, self.measures = first, measures
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.indent: int | None = 0
        self.untidy: list[int] = []
        text = self._text(data)
        if text is not None:
            lines = enumerate(text.split("\n"), 1)
            self.untidy = [n for n, line in lines if line.removesuffix("\r").endswith((" ", "\t"))]
            try:
                self._list(yaml.parse(text, Loader=_LOADER))
            except _Refused:
                self.entries = []
            except yaml.YAMLError as error:
                self.entries = []
                self._syntax(error, text)

    def find(self, line: int | None, what: str, mend: str) -> None:
        """Note what is wrong on `line`."""
        self.findings.append(Finding(self.path, line, what, mend))

    def _refuse(self, line: int | None, what: str, mend: str) -> _Refused:
        self.find(line, what, mend)
        return _Refused()

    def _text(self, data: bytes) -> str | None:
        if len(data) > LARGEST:
            self.find(
                None, f"holds {len(data)} bytes, over the limit of {LARGEST}", "split the topic"
            )
            return None
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.find(1, "is UTF-16", "save the file as UTF-8")
            return None
        if data.startswith(b"\xef\xbb\xbf"):
            self.find(1, "starts with a byte order mark", "save the file as UTF-8 without BOM")
            data = data[3:]
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            byte = data[error.start]
            self.find(line, f"the byte 0x{byte:02x} is not UTF-8", "save the file as UTF-8")
            return None

    def _syntax(self, error: yaml.YAMLError, text: str) -> None:
        if not isinstance(error, yaml.MarkedYAMLError):
            # The reader's own error has no line, only the place of the character.
            match = UNREADABLE.search(text)
            line = text.count("\n", 0, match.start()) + 1 if match else None
            shown = f"the character U+{ord(match[0]):04X}" if match else "a character"
            self.find(line, f"{shown} may not stand in YAML", "remove it")
            return
        mark = error.problem_mark or error.context_mark
        if "quoted" in (error.context or "") or "flow" in (error.context or ""):
            mark = error.context_mark or mark  # where it was opened, not where the file ended
        line = mark.line + 1 if mark else None
        problem = " ".join(part for part in (error.context, error.problem) if part)
        written = text.split("\n")[mark.line : mark.line + 1] if mark else []
        if written and re.match(r"[ -]*\t", written[0]):
            self.find(line, "a tab indents the line, which YAML forbids", "use spaces")
        elif "mapping values are not allowed" in problem:
            self.find(line, "an unquoted text holds a colon and a space", "put it in double quotes")
        elif "alias" in problem:
            self.find(line, "an unquoted text starts with *", "put it in double quotes")
        elif "cannot start any token" in problem:
            self.find(line, "an unquoted text starts with @, ` or %", "put it in double quotes")
        else:
            self.find(line, f"YAML cannot be read here ({problem})", self._guess(problem))

    @staticmethod
    def _guess(problem: str) -> str:
        if "quoted scalar" in problem:
            return 'close the quotes; a quote inside double quotes is written \\"'
        if "expected ':'" in problem:
            return "write `key: value`, with a space after the colon"
        return "indent every key of an entry by two spaces, and quote texts with : # [ { & * ! | >"

    def _list(self, events: Iterator[Event]) -> None:
        """The events of a whole file. Raises _Refused after a finding that ends the reading."""
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    line = _line(event)
                    raise self._refuse(line, "a second YAML document starts", "remove the ---")
            elif isinstance(event, yaml.SequenceStartEvent):
                self._plain(event)
                self.indent = _indent(event)
                self._entries(events)
            elif isinstance(event, yaml.NodeEvent):
                blank = isinstance(event, yaml.ScalarEvent) and not event.value
                if not blank:
                    line = _line(event)
                    mend = f"start each entry with `- {self.first}: …`"
                    raise self._refuse(line, "is not a list", mend)
                documents = 0
        if not documents:
            raise self._refuse(None, "is empty", "add an entry, or delete the file")

    def _entries(self, events: Iterator[Event]) -> None:
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            entry = Entry(_line(event))
            self.entries.append(entry)
            value = self._value(event, events, entry, (), 1)
            if isinstance(value, dict):
                entry.fields = value
            else:
                self.entries.pop()
                mend = f"write it as `- {self.first}: …` with its keys below"
                self.find(entry.line, f"the entry {str(value)[:60]!r} has no keys", mend)

    def _value(
        self, event: Event, events: Iterator[Event], entry: Entry, at: KeyPath, depth: int
    ) -> Any:
        line = _line(event)
        entry.lines.setdefault(at, line)
        self._plain(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, entry, at)
        if depth >= DEEPEST:
            raise self._refuse(line, f"is nested over {DEEPEST} deep", "see the list of keys")
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._value(item, events, entry, (*at, len(items)), depth + 1))
            return items
        return self._mapping(events, entry, at, depth)

    def _mapping(
        self, events: Iterator[Event], entry: Entry, at: KeyPath, depth: int
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            line = _line(key)
            self._plain(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise self._refuse(line, "a key is itself a list", "write `key: value`")
            place = (*at, key.value)
            twice = key.value in fields
            if twice:
                first = entry.lines[place]
                what = f"the key {key.value!r} is written twice (first on line {first})"
                self.find(line, what, "remove one")
            else:
                entry.lines[place] = line
            value = self._value(next(events), events, entry, place, depth + 1)
            if not twice:
                fields[key.value] = value
        return fields

    def _plain(self, event: Event) -> None:
        if event.anchor is None and event.tag is None:
            return
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            raise self._refuse(line, f"the alias *{event.anchor} is used", "write the value out")
        if event.anchor is not None:
            what = f"the anchor &{event.anchor} is set"
            raise self._refuse(line, what, "remove it, or put a text that starts with & in quotes")
        what = f"the tag {event.tag} is set"
        raise self._refuse(line, what, "remove it, or put a text that starts with ! in quotes")

    def _scalar(self, event: Event, entry: Entry, at: KeyPath) -> str | int | float | bool | None:
        if not event.implicit[0]:
            return str(event.value)
        if (at in FLAGS or self.measures) and event.value in ("true", "false"):
            return bool(event.value == "true")
        tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False)).rpartition(":")[2]
        if tag == "str":
            return str(event.value)
        if tag == "int" and re.fullmatch(r"-?(?:0|[1-9][0-9]{0,8})", event.value):
            return int(event.value)
        if self.measures and tag == "float" and DECIMAL.fullmatch(event.value):
            return float(event.value)
        line = _line(event)
        entry.refused.add(at)
        name = " ".join(str(part) for part in at if isinstance(part, str)) or "the entry"
        if tag == "null":
            self.find(line, f"{name} has no value", "remove the key, or write its value")
            return None
        what = f"{name}: YAML reads {event.value} as {READ_AS.get(tag, tag)}"
        mend = f'write "{event.value}", in quotes'
        if self.measures and tag in ("float", "int"):
            mend = "write it out, as in 12 or 0.5"
        elif at in FLAGS:
            mend = "write true, or leave the key out"
        self.find(line, what, mend)
        return str(event.value)


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


def _indent(event: Event) -> int | None:
    return None if event.flow_style else int(event.start_mark.column)


class _Refused(Exception):
    """The file cannot be read further; the finding is noted."""
