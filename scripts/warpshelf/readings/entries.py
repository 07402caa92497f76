"""A YAML list of mappings, read with the line of every entry and key.

Only the plain part of YAML that a reading needs is read: a list of mappings of texts, whole
numbers, lists and mappings. What YAML would silently turn into something else (`no`, a date,
`012`, a key written twice, an alias) is a finding instead. No nesting of a file can exhaust the
stack or the memory. What pydantic finds in an entry is said in the words of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from rapidfuzz import fuzz, process

from warpshelf.core.findings import Finding

LARGEST = 1024 * 1024  # bytes in one file: some 2,000 readings
DEEPEST = 4  # the list, an entry of it, `also`, an entry of that
UNREADABLE = re.compile(r"[^\t\n\r -~\x85\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FLAGS = {("start",), ("unread",)}  # the keys that are true or false
INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,8})")
DECIMAL = re.compile(r"-?[0-9]{1,9}\.[0-9]{1,9}")
KeyPath = tuple[str | int, ...]  # ("also", 0, "url"): where a value is within its entry
READ_AS = {"bool": "true or false", "timestamp": "a date", "float": "a fraction", "int": "a number"}
QUOTE = "put it in double quotes"
SYNTAX = (  # what PyYAML's message holds, what that means, and the mend
    ("mapping values are not allowed", "an unquoted text holds a colon and a space", QUOTE),
    ("alias", "an unquoted text starts with *", QUOTE),
    ("cannot start any token", "an unquoted text starts with @, ` or %", QUOTE),
    ("quoted scalar", "", 'close the quotes; a quote inside double quotes is written \\"'),
    ("expected ':'", "", "write `key: value`, with a space after the colon"),
    ("", "", "indent every key of an entry by two spaces, and quote texts with : # [ { & * ! | >"),
)
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
    path: str = ""  # of its file, relative to the project root

    def line_of(self, *place: str | int) -> int:
        """The line of a value, or of the innermost around it that has one."""
        lengths = range(len(place), 0, -1)
        return next((self.lines[place[:n]] for n in lengths if place[:n] in self.lines), self.line)


class EntryModel(BaseModel):
    """What an entry of some kind of list holds, with the place that it was read from."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )
    _entry: Entry = PrivateAttr(default_factory=lambda: Entry(1))

    @property
    def path(self) -> str:
        """The file it stands in, relative to the project root."""
        return self._entry.path

    @property
    def line(self) -> int:
        """The line its entry starts on, from 1."""
        return self._entry.line

    @property
    def is_refused(self) -> bool:
        """Whether the reader of the file refused a value of it, and a finding says so."""
        return bool(self._entry.refused)

    def line_of(self, *place: str | int) -> int:
        """The line of a key, or of a value within it: `line_of("also", 0, "url")`."""
        return self._entry.line_of(*place)

    def make_finding(self, what: str, mend: str, *place: str | int) -> Finding:
        """The finding that something is wrong with it, or with the value at `place`."""
        return Finding(self.path, self.line_of(*place), what, mend)


Model = TypeVar("Model", bound=EntryModel)


class EntryReader:
    """Reads one file; `entries` and `findings` hold what came of it.

    `indent` is the column of the list's dashes, None where it is written as `[…]`; `untidy` the
    lines that end in spaces or tabs. `first` is the key that entries open with. With `measures`,
    decimal fractions, true and false are values as well.
    """

    def __init__(
        self, path: str, data: bytes, *, first: str = "id", measures: bool = False
    ) -> None:
        self.path, self.first, self.measures = path, first, measures
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.indent: int | None = 0
        self.untidy: list[int] = []
        try:
            text = self._decode_text(data)
            lines = enumerate(text.split("\n"), 1)
            self.untidy = [n for n, line in lines if line.removesuffix("\r").endswith((" ", "\t"))]
            try:
                self._parse_list(_plain_events(text))
            except yaml.YAMLError as error:
                raise _explain_syntax(error, text) from None
        except _UnreadableFile as error:
            self.entries = []
            self._add_finding(*error.args)

    def parse_as(self, model: type[Model]) -> Iterator[Model]:
        """The entries as `model`. What is wrong with one is a finding, and that one is left out."""
        for entry in self.entries:
            try:
                found = model.model_validate(entry.fields)
            except ValidationError as error:
                keys = tuple(model.model_fields)
                self.findings += explain_errors(error, entry, keys)
                continue
            found._entry = entry
            yield found

    def _add_finding(self, line: int | None, what: str, mend: str) -> None:
        self.findings.append(Finding(self.path, line, what, mend))

    def _decode_text(self, data: bytes) -> str:
        if len(data) > LARGEST:
            what = f"holds {len(data)} bytes, over the limit of {LARGEST}"
            raise _UnreadableFile(None, what, "split the topic")
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise _UnreadableFile(1, "is UTF-16", "save the file as UTF-8")
        if data.startswith(b"\xef\xbb\xbf"):
            mend = "save the file as UTF-8 without BOM"
            self._add_finding(1, "starts with a byte order mark", mend)
            data = data[3:]
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
            what = f"the byte 0x{byte:02x} is not UTF-8"
            raise _UnreadableFile(line, what, "save the file as UTF-8") from None

    def _parse_list(self, events: Iterator[Event]) -> None:
        found: Event = next((one for one in events if isinstance(one, yaml.NodeEvent)), None)
        if getattr(found, "value", found) in ("", None):  # nothing, or a comment alone
            for _ in events:  # what stands behind it may be wrong
                pass
            raise _UnreadableFile(None, "is empty", "add an entry, or delete the file")
        if not isinstance(found, yaml.SequenceStartEvent):
            mend = f"start each entry with `- {self.first}: …`"
            raise _UnreadableFile(_line_number(found), "is not a list", mend)
        mark: Any = found.start_mark
        self.indent = None if found.flow_style else mark.column
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            entry = Entry(_line_number(event), path=self.path)
            entry.fields = value = self._parse_value(event, events, entry, ())
            if isinstance(value, dict):
                self.entries.append(entry)
            else:
                mend = f"write it as `- {self.first}: …` with its keys below"
                what = f"the entry {str(value)[:60]!r} has no keys"
                self._add_finding(entry.line, what, mend)
        for _ in events:  # to the end of the file, where something may be wrong as well
            pass

    def _parse_value(self, event: Event, events: Iterator[Event], entry: Entry, at: KeyPath) -> Any:
        entry.lines.setdefault(at, _line_number(event))
        if isinstance(event, yaml.ScalarEvent):
            return self._parse_scalar(event, entry, at)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._parse_value(item, events, entry, (*at, len(items))))
            return items
        fields: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            line = _line_number(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise _UnreadableFile(line, "a key is itself a list", "write `key: value`")
            place = (*at, key.value)
            if key.value in fields:
                first = f"(first on line {entry.lines[place]})"
                what = f"the key {key.value!r} is written twice {first}"
                self._add_finding(line, what, "remove one")
            entry.lines.setdefault(place, line)
            fields.setdefault(key.value, self._parse_value(next(events), events, entry, place))
        return fields

    def _parse_scalar(
        self, event: Event, entry: Entry, at: KeyPath
    ) -> str | int | float | bool | None:
        text = str(event.value)
        if not event.implicit[0]:
            return text
        if (at in FLAGS or self.measures) and text in ("true", "false"):
            return text == "true"
        tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]
        if tag == "str":
            return text
        if tag == "int" and INTEGER.fullmatch(text):
            return int(text)
        if self.measures and tag == "float" and DECIMAL.fullmatch(text):
            return float(text)
        entry.refused.add(at)
        name = " ".join(str(part) for part in at if isinstance(part, str)) or "the entry"
        what, mend = f"{name}: YAML reads {text} as {READ_AS.get(tag, tag)}", ""
        if tag == "null":
            what, mend = f"{name} has no value", "remove the key, or write its value"
        elif self.measures and tag in ("float", "int"):
            mend = "write it out, as in 12 or 0.5"
        elif at in FLAGS:
            mend = "write true, or leave the key out"
        self._add_finding(_line_number(event), what, mend or f'write "{text}", in quotes')
        return None if tag == "null" else text


def read_optional(path: Path, shown: str) -> tuple[bytes | None, list[Finding]]:
    """The bytes of a file, None if there is none; a finding if it cannot be read."""
    try:
        return path.read_bytes(), []
    except FileNotFoundError:
        return None, []
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        return None, [Finding(shown, None, what, "make it a readable file")]


class _UnreadableFile(Exception):
    """The file cannot be read further: the line, what is wrong, and the mend."""


def _line_number(event: Event) -> int:
    return int(event.start_mark.line) + 1


def _plain_events(text: str) -> Iterator[Event]:
    """What PyYAML reads, up to an alias, an anchor, a tag, a second document or too much depth."""
    documents = depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        what, mend = "", ""
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if anchor is tag is None and isinstance(event, yaml.ScalarEvent):  # four of five events
            yield event
            continue
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if documents > 1:
            what, mend = "a second YAML document starts", "remove the ---"
        elif depth > DEEPEST:
            what, mend = f"is nested over {DEEPEST} deep", "see the list of keys"
        elif isinstance(event, yaml.AliasEvent):
            what, mend = f"the alias *{anchor} is used", "write the value out"
        elif anchor is not None:
            what = f"the anchor &{anchor} is set"
            mend = "remove it, or put a text that starts with & in quotes"
        elif tag is not None:
            what = f"the tag {tag} is set"
            mend = "remove it, or put a text that starts with ! in quotes"
        if what:
            raise _UnreadableFile(_line_number(event), what, mend)
        yield event


def _explain_syntax(error: yaml.YAMLError, text: str) -> _UnreadableFile:
    if not isinstance(error, yaml.MarkedYAMLError):
        # The reader's own error has no line, only the place of the character.
        match = UNREADABLE.search(text)
        shown = f"the character U+{ord(match[0]):04X}" if match else "a character"
        place = text.count("\n", 0, match.start()) + 1 if match else None
        return _UnreadableFile(place, f"{shown} is not allowed in YAML", "remove it")
    mark = error.problem_mark or error.context_mark
    if "quoted" in (error.context or "") or "flow" in (error.context or ""):
        mark = error.context_mark or mark  # where it was opened, not where the file ended
    line = mark.line + 1 if mark else None
    written = text.split("\n")[mark.line :] if mark else []
    if written and re.match(r"[ -]*\t", written[0]):
        return _UnreadableFile(line, "a tab indents the line, which YAML forbids", "use spaces")
    problem = " ".join(part for part in (error.context, error.problem) if part)
    what, mend = next(row[1:] for row in SYNTAX if row[0] in problem)
    return _UnreadableFile(line, what or f"YAML cannot be read here ({problem})", mend)


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
    "snippets": ("not a snippet id", "write the folder's name under snippets/, such as softmax"),
    "seed": ("not a seed number", 'write three digits in quotes, such as "000"'),
}
KEBAB_FAULT = (
    "not of lower-case letters and digits joined by -", "write it as in online-softmax"
)  # fmt: skip


def closest_match(word: str, known: Iterable[str], alike: int = 60) -> str | None:
    """The one of `known` most like `word`, if it is at least `alike` per cent alike."""
    found = process.extractOne(word.lower(), sorted(known), scorer=fuzz.ratio, score_cutoff=alike)
    return found[0] if found else None


def suggest_match(
    word: str,
    known: Iterable[str],
    otherwise: str = "correct it, or remove it",
    alike: int = 70,
    form: str = "write {}",
) -> str:
    """The mend of a name that is not among `known`: the closest of them, else `otherwise`."""
    near = closest_match(word, known, alike)
    return form.format(near) if near else otherwise


def explain_errors(error: ValidationError, entry: Entry, keys: Sequence[str]) -> list[Finding]:
    """One finding for each thing that `error` says about `entry`, on the line of the key.

    `keys` are those an entry may have. A place that the reader already refused is left out.
    """
    findings = []
    for problem in error.errors(include_url=False):
        place = tuple(part for part in problem["loc"] if part != "nullable")
        if not entry.refused & {place[:length] for length in range(1, len(place) + 1)}:
            told = _describe_problem(problem, place, entry, keys)
            findings.append(Finding(entry.path, entry.line_of(*place), *told))
    return findings


def entry_name(entry: Entry) -> str:
    """What messages call an entry."""
    found = (entry.fields.get(key) for key in ("title", "id", "term", "what"))
    return str(next((name for name in found if name), "the entry"))


def place_name(place: KeyPath) -> str:
    """`("also", 0, "url")` as `also 1 url`."""
    return " ".join(str(part + 1) if isinstance(part, int) else part for part in place)


def _describe_problem(
    problem: Any, place: KeyPath, entry: Entry, keys: Sequence[str]
) -> tuple[str, str]:
    """What is wrong, and its mend."""
    name, kind, value = place_name(place), problem["type"], problem["input"]
    context, shown = problem.get("ctx", {}), f"{str(problem['input'])[:60]!r}"
    match kind, value:
        case "extra_forbidden", _:
            key, known = str(place[-1]), keys if len(place) == 1 else ("what", "url")
            guess = ALIASES.get(key.lower().replace("-", "_"))
            none = f"remove it; the keys are {', '.join(known)}"
            mend = f"write {guess}" if guess in known else suggest_match(key, known, none, 60)
            return f"the key {name!r} is unknown", mend
        case "missing", _:
            return f"{entry_name(entry)[:60]!r} has no {name}", f"add `{place[-1]}: …`"
        case "literal_error", _:
            expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
            choices = f"write one of {expected}"
            return f"{name} is {shown}", suggest_match(
                str(value), expected.split(", "), choices, 60
            )
        case "string_type", int():
            return f"{name} is the number {value}, not text", f'write "{value}", in quotes'
        case "int_type", _ if str(value).isdigit():
            return f"{name} is the text {shown}", f"write {value}, without quotes"
        case "list_type", str():
            return f"{name} is the text {shown}, not a list", f"write [{value}]"
        case _ if kind in WANTED:
            return f"{name} is {shown}", f"write {WANTED[kind]}"
        case "string_pattern_mismatch", _:
            what, mend = PATTERNS.get(str(place[0]), KEBAB_FAULT)
            return f"{name} is {shown}, {what}", mend
        case (("string_too_long" | "too_long"), _):
            unit, mend = (
                ("items", "drop some") if kind == "too_long" else ("characters", "shorten it")
            )
            limit = context["max_length"]
            return f"{name} has {len(value)} {unit}, over the limit of {limit}", mend
        case (("greater_than_equal" | "less_than_equal"), _):
            return f"{name} is {shown}, outside 1 to 4", "write 1, 2, 3 or 4, or remove the key"
    told = str(context.get("error", problem["msg"])).rsplit("; ", 1)  # a value may hold one as well
    what, mend = told if len(told) > 1 else (told[0], "fix it")
    return f"{name} {what}" if name else what, mend
