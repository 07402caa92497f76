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


class EntryReader:
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
        text = self._decode_text(data)
        if text is not None:
            lines = enumerate(text.split("\n"), 1)
            self.untidy = [n for n, line in lines if line.removesuffix("\r").endswith((" ", "\t"))]
            try:
                self._parse_file(yaml.parse(text, Loader=_LOADER))
            except _UnreadableFile:
                self.entries = []
            except yaml.YAMLError as error:
                self.entries = []
                self._explain_syntax(error, text)

    def add_finding(self, line: int | None, what: str, mend: str) -> None:
        """Note what is wrong on `line`."""
        self.findings.append(Finding(self.path, line, what, mend))

    def _refuse_file(self, line: int | None, what: str, mend: str) -> _UnreadableFile:
        self.add_finding(line, what, mend)
        return _UnreadableFile()

    def _decode_text(self, data: bytes) -> str | None:
        if len(data) > LARGEST:
            self.add_finding(
                None, f"holds {len(data)} bytes, over the limit of {LARGEST}", "split the topic"
            )
            return None
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.add_finding(1, "is UTF-16", "save the file as UTF-8")
            return None
        if data.startswith(b"\xef\xbb\xbf"):
            self.add_finding(
                1, "starts with a byte order mark", "save the file as UTF-8 without BOM"
            )
            data = data[3:]
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            byte = data[error.start]
            self.add_finding(line, f"the byte 0x{byte:02x} is not UTF-8", "save the file as UTF-8")
            return None

    def _explain_syntax(self, error: yaml.YAMLError, text: str) -> None:
        if not isinstance(error, yaml.MarkedYAMLError):
            # The reader's own error has no line, only the place of the character.
            match = UNREADABLE.search(text)
            line = text.count("\n", 0, match.start()) + 1 if match else None
            shown = f"the character U+{ord(match[0]):04X}" if match else "a character"
            self.add_finding(line, f"{shown} may not stand in YAML", "remove it")
            return
        mark = error.problem_mark or error.context_mark
        if "quoted" in (error.context or "") or "flow" in (error.context or ""):
            mark = error.context_mark or mark  # where it was opened, not where the file ended
        line = mark.line + 1 if mark else None
        problem = " ".join(part for part in (error.context, error.problem) if part)
        written = text.split("\n")[mark.line : mark.line + 1] if mark else []
        if written and re.match(r"[ -]*\t", written[0]):
            self.add_finding(line, "a tab indents the line, which YAML forbids", "use spaces")
        elif "mapping values are not allowed" in problem:
            self.add_finding(
                line, "an unquoted text holds a colon and a space", "put it in double quotes"
            )
        elif "alias" in problem:
            self.add_finding(line, "an unquoted text starts with *", "put it in double quotes")
        elif "cannot start any token" in problem:
            self.add_finding(
                line, "an unquoted text starts with @, ` or %", "put it in double quotes"
            )
        else:
            self.add_finding(
                line, f"YAML cannot be read here ({problem})", self._suggest_fix(problem)
            )

    @staticmethod
    def _suggest_fix(problem: str) -> str:
        if "quoted scalar" in problem:
            return 'close the quotes; a quote inside double quotes is written \\"'
        if "expected ':'" in problem:
            return "write `key: value`, with a space after the colon"
        return "indent every key of an entry by two spaces, and quote texts with : # [ { & * ! | >"

    def _parse_file(self, events: Iterator[Event]) -> None:
        """The events of a whole file. Raises _Refused after a finding that ends the reading."""
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    line = _line_number(event)
                    raise self._refuse_file(line, "a second YAML document starts", "remove the ---")
            elif isinstance(event, yaml.SequenceStartEvent):
                self._reject_anchors(event)
                self.indent = _dash_column(event)
                self._parse_entries(events)
            elif isinstance(event, yaml.NodeEvent):
                blank = isinstance(event, yaml.ScalarEvent) and not event.value
                if not blank:
                    line = _line_number(event)
                    mend = f"start each entry with `- {self.first}: …`"
                    raise self._refuse_file(line, "is not a list", mend)
                documents = 0
        if not documents:
            raise self._refuse_file(None, "is empty", "add an entry, or delete the file")

    def _parse_entries(self, events: Iterator[Event]) -> None:
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            entry = Entry(_line_number(event))
            self.entries.append(entry)
            value = self._parse_value(event, events, entry, (), 1)
            if isinstance(value, dict):
                entry.fields = value
            else:
                self.entries.pop()
                mend = f"write it as `- {self.first}: …` with its keys below"
                self.add_finding(entry.line, f"the entry {str(value)[:60]!r} has no keys", mend)

    def _parse_value(
        self, event: Event, events: Iterator[Event], entry: Entry, at: KeyPath, depth: int
    ) -> Any:
        line = _line_number(event)
        entry.lines.setdefault(at, line)
        self._reject_anchors(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._parse_scalar(event, entry, at)
        if depth >= DEEPEST:
            raise self._refuse_file(line, f"is nested over {DEEPEST} deep", "see the list of keys")
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._parse_value(item, events, entry, (*at, len(items)), depth + 1))
            return items
        return self._parse_mapping(events, entry, at, depth)

    def _parse_mapping(
        self, events: Iterator[Event], entry: Entry, at: KeyPath, depth: int
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            line = _line_number(key)
            self._reject_anchors(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise self._refuse_file(line, "a key is itself a list", "write `key: value`")
            place = (*at, key.value)
            twice = key.value in fields
            if twice:
                first = entry.lines[place]
                what = f"the key {key.value!r} is written twice (first on line {first})"
                self.add_finding(line, what, "remove one")
            else:
                entry.lines[place] = line
            value = self._parse_value(next(events), events, entry, place, depth + 1)
            if not twice:
                fields[key.value] = value
        return fields

    def _reject_anchors(self, event: Event) -> None:
        if event.anchor is None and event.tag is None:
            return
        line = _line_number(event)
        if isinstance(event, yaml.AliasEvent):
            raise self._refuse_file(
                line, f"the alias *{event.anchor} is used", "write the value out"
            )
        if event.anchor is not None:
            what = f"the anchor &{event.anchor} is set"
            raise self._refuse_file(
                line, what, "remove it, or put a text that starts with & in quotes"
            )
        what = f"the tag {event.tag} is set"
        raise self._refuse_file(line, what, "remove it, or put a text that starts with ! in quotes")

    def _parse_scalar(
        self, event: Event, entry: Entry, at: KeyPath
    ) -> str | int | float | bool | None:
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
        line = _line_number(event)
        entry.refused.add(at)
        name = " ".join(str(part) for part in at if isinstance(part, str)) or "the entry"
        if tag == "null":
            self.add_finding(line, f"{name} has no value", "remove the key, or write its value")
            return None
        what = f"{name}: YAML reads {event.value} as {READ_AS.get(tag, tag)}"
        mend = f'write "{event.value}", in quotes'
        if self.measures and tag in ("float", "int"):
            mend = "write it out, as in 12 or 0.5"
        elif at in FLAGS:
            mend = "write true, or leave the key out"
        self.add_finding(line, what, mend)
        return str(event.value)


def _line_number(event: Event) -> int:
    return int(event.start_mark.line) + 1


def _dash_column(event: Event) -> int | None:
    return None if event.flow_style else int(event.start_mark.column)


class _UnreadableFile(Exception):
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


def closest_match(word: str, known: Iterable[str], alike: int = 60) -> str | None:
    """The one of `known` most like `word`, if it is at least `alike` per cent alike."""
    found = process.extractOne(word.lower(), list(known), scorer=fuzz.ratio, score_cutoff=alike)
    return found[0] if found else None


def explain_errors(
    error: ValidationError, path: str, entry: Entry, keys: Sequence[str]
) -> list[Finding]:
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
            what, mend = (
                f"the key {_place_name(place)!r} is unknown",
                _suggest_key(str(place[-1]), known),
            )
        else:
            what, mend = _describe_problem(problem, place, entry)
        findings.append(Finding(path, line, what, mend))
    return findings


def entry_name(entry: Entry) -> str:
    """How an entry is spoken of."""
    found = (entry.fields.get(key) for key in ("title", "id", "what"))
    return str(next((name for name in found if name), "the entry"))


def _describe_problem(problem: Any, place: tuple[str | int, ...], entry: Entry) -> tuple[str, str]:
    name = _place_name(place)
    kind, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    shown = f"{str(value)[:60]!r}"
    title = entry_name(entry)[:60]
    if kind == "missing":
        return f"{title!r} has no {name}", f"add `{place[-1]}: …`"
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        choices = expected.split(", ")
        near = closest_match(str(value), choices)
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


def _place_name(place: tuple[str | int, ...]) -> str:
    """`("also", 0, "url")` as `also 1 url`."""
    return " ".join(str(part + 1) if isinstance(part, int) else part for part in place)


def _suggest_key(key: str, known: Sequence[str]) -> str:
    guess = ALIASES.get(key.lower().replace("-", "_"))
    near = closest_match(key, known)
    if guess in known:
        return f"write {guess}"
    return f"write {near}" if near else f"remove it; the keys are {', '.join(known)}"
