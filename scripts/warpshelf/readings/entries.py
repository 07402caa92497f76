"""A YAML list of mappings, read with the line of every entry and key.

Only the plain part of YAML that a reading needs is read: a list of mappings of texts, whole
numbers, lists and mappings. What YAML would silently turn into something else (`no`, a date,
`012`, a key written twice, an alias) is a finding instead. Nothing is built recursively from the
file's nesting, so no file can exhaust the stack or the memory. What pydantic found in an entry is
said in the words of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError
from rapidfuzz import fuzz, process

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


# What people write for a key that has another name here.
ALIASES = {
    "author": "authors", "link": "url", "href": "url", "note": "why", "notes": "why",
    "description": "why", "summary": "why", "reason": "why", "type": "kind", "language": "lang",
    "date": "year", "published": "year", "journal": "venue", "conference": "venue", "name": "title",
    "stars": "rating", "tag": "tags", "difficulty": "level", "prerequisites": "needs",
    "replaced_by": "superseded_by", "see_also": "also",
}  # fmt: skip
WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number, as in 12 or 0.5",
    "dict_type": "keys and values such as {m: 4096}",
    "list_type": "a list such as [a, b]",
    "model_type": "keys `what` and `url`",
    "bool_type": "true, or leave the key out",
}
PATTERNS = {
    "snippets": ("no snippet's id", "write the folder's name under snippets/, such as softmax"),
    "seed": ("no seed's number", 'write three digits in quotes, such as "000"'),
}


def nearest(word: str, known: Iterable[str], alike: int = 60) -> str | None:
    """The one of `known` most like `word`, if it is at least `alike` per cent alike."""
    found = process.extractOne(word.lower(), list(known), scorer=fuzz.ratio, score_cutoff=alike)
    return found[0] if found else None


def explain(error: ValidationError, path: str, entry: Entry, keys: Sequence[str]) -> list[Finding]:
    """One finding for each thing that `error` says about `entry`, on the line of the key.

    `keys` are those an entry may have.

    A place that the reader of the file already refused is left out.
    """
    findings = []
    for problem in error.errors(include_url=False):
        place = tuple(part for part in problem["loc"] if part != "nullable")
        if entry.refused & {place[:length] for length in range(1, len(place) + 1)}:
            continue
        line = next(
            (entry.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in entry.lines),
            entry.line,
        )
        if problem["type"] == "extra_forbidden":
            known = keys if len(place) == 1 else ("what", "url")
            what, mend = f"the key {_name(place)!r} is unknown", _nearest(str(place[-1]), known)
        else:
            what, mend = _words(problem, place, entry)
        findings.append(Finding(path, line, what, mend))
    return findings


def name_of(entry: Entry) -> str:
    """How an entry is spoken of."""
    found = (entry.fields.get(key) for key in ("title", "id", "what"))
    return str(next((name for name in found if name), "the entry"))


def _words(problem: Any, place: tuple[str | int, ...], entry: Entry) -> tuple[str, str]:
    name = _name(place)
    kind, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    shown = f"{str(value)[:60]!r}"
    title = name_of(entry)[:60]
    if kind == "missing":
        return f"{title!r} has no {name}", f"add `{place[-1]}: …`"
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        choices = expected.split(", ")
        near = nearest(str(value), choices)
        mend = f"write {near}" if near else f"write one of {', '.join(choices)}"
        return f"{name} is {shown}", mend
    if kind in WANTED:
        if kind == "string_type" and isinstance(value, int):
            return f"{name} is the number {value}, not text", f'write "{value}", in quotes'
        if kind == "int_type" and str(value).isdigit():
            return f"{name} is the text {shown}", f"write {value}, without quotes"
        if kind == "list_type" and isinstance(value, str):
            return f"{name} is the text {shown}, not a list", f"write [{value}]"
        return f"{name} is {shown}", f"write {WANTED[kind]}"
    if kind == "string_pattern_mismatch":
        default = (
            "not of lower-case letters and digits joined by -",
            "write it as in online-softmax",
        )
        what, mend = PATTERNS.get(str(place[0]), default)
        return f"{name} is {shown}, {what}", mend
    if kind == "string_too_long":
        limit = context["max_length"]
        return f"{name} has {len(value)} characters, over the limit of {limit}", "shorten it"
    if kind == "too_long":
        limit = context["max_length"]
        return f"{name} has {len(value)} items, over the limit of {limit}", "drop some"
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"{name} is {shown}, outside 1 to 4", "write 1, 2, 3 or 4, or remove the key"
    text = str(context.get("error", problem["msg"]))
    what, _, mend = text.partition("; ")
    return f"{name} {what}" if name else what, mend or "write it as https://…"


def _name(place: tuple[str | int, ...]) -> str:
    """`("also", 0, "url")` as `also 1 url`."""
    return " ".join(str(part + 1) if isinstance(part, int) else part for part in place)


def _nearest(key: str, known: Sequence[str]) -> str:
    guess = ALIASES.get(key.lower().replace("-", "_"))
    near = nearest(key, known)
    if guess in known:
        return f"write {guess}"
    return f"write {near}" if near else f"remove it; the keys are {', '.join(known)}"
