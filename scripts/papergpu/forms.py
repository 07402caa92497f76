"""The forms of the table: the row that an instruction matches, and what its slots have.

What no row matches is refused, with its form: an instruction half understood is a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from papergpu.table import TABLE

Slot = tuple[str, tuple[str, ...], bool]  # its name, choices, whether it may be absent


@dataclass(frozen=True)
class Form:
    """A row of the table."""

    name: str
    slots: tuple[Slot, ...]  # that of the opcode first
    operands: tuple[str, ...]
    version: tuple[int, int]
    target: int
    chapter: str

    def match(self, words: tuple[str, ...]) -> dict[str, str] | None:
        """What each named slot is in `words`, an opcode with its modifiers; None if they differ."""
        return _match(self.slots, words)


@dataclass(frozen=True)
class Matched:
    """A form, and what an instruction has in its slots."""

    form: Form
    slots: Mapping[str, str]

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types of the operands, the result first.

        `preds` are two predicates, `bool` is a b32 and a predicate, and `imm8` a constant.
        """
        wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
        named = dict(self.slots)
        if "t" in named:
            named["wide"] = wide.get(named["t"], "")
        if "x" in named:
            named["dot"] = "u32" if named["x"] == named["y"] == "u32" else "s32"
        return tuple(named.get(one, one) for one in self.form.operands)


class Unknown(ValueError):
    """An instruction that no row of the table has."""


def _match(slots: tuple[Slot, ...], words: tuple[str, ...]) -> dict[str, str] | None:
    if not slots:
        return None if words else {}
    (name, choices, optional), *rest = slots
    if words and words[0] in choices:
        found = _match(tuple(rest), words[1:])
        if found is not None:
            return {name: words[0], **found}
    return _match(tuple(rest), words) if optional else None


def _rows() -> Iterator[Form]:
    chapter = ""
    for line in filter(None, map(str.strip, TABLE.replace("\\\n", " ").splitlines())):
        if line.startswith("#"):
            chapter = line.removeprefix("#").strip()
            continue
        pattern, operands, version, target = (part.strip() for part in line.split(" : "))
        name, *modifiers = pattern.split()
        slots = []
        for one in modifiers:
            key, _, choices = one.removesuffix("?").rpartition("=")
            slots.append((key or choices, tuple(choices.split("|")), one.endswith("?")))
        major, _, minor = version.partition(".")
        types = tuple(operands.split())
        yield Form(name, tuple(slots), types, (int(major), int(minor)), int(target), chapter)


FORMS = tuple(_rows())


@cache
def find(written: str, count: int | None = None) -> Matched:
    """The row of a form as it is written: `add.rn.f32`.

    Rows that differ by their operands alone are told apart by how many those are, `count`.

    Raises:
        Unknown: there is none.
    """
    words = tuple(written.split("."))
    first: Matched | None = None
    for form in FORMS:
        slots = form.match(words)
        if slots is not None:
            found = Matched(form, slots)
            if count in (None, len(form.operands)) or form.operands == ("-",):
                return found
            first = first or found
    if first is not None:
        return first
    raise Unknown(f"{written} is in no row of the table of forms")
