"""The forms of the table: the row that an instruction matches, and what its slots have.

What no row matches is refused, with its form: an instruction half understood is a wrong number.
Beside them stand the types of operands, and the functions that compute an opcode's results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

from papergpu.form_table import TABLE

# ---- the types of operands: their width, and the integers that patterns are

PACKED = {"e4m3x2": 16, "e5m2x2": 16, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "e2m1x2": 8,
          "e4m3x4": 32, "e5m2x4": 32, "e2m3x4": 32, "e3m2x4": 32, "e2m1x4": 16}  # fmt: skip


@cache
def type_bits(kind: str) -> int:
    """Bits of a type: 32 of `f32` and of `u16x2`, 1 of `pred`, 2 of the two predicates `preds`."""
    if kind in ("pred", "preds"):
        return 1 if kind == "pred" else 2
    if kind in PACKED:
        return PACKED[kind]
    number, _, pair = kind.lstrip("abfstu").partition("x")
    return int(number) * int(pair or 1)


def decode_integer(bits: int, kind: str) -> int:
    """The integer that a pattern is, by its type."""
    size = type_bits(kind)
    bits &= (1 << size) - 1
    return bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits


def clamp_integer(value: int, kind: str) -> int:
    """The integer of that type next to `value`."""
    size = type_bits(kind)
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if kind[0] == "s" else (0, 2**size - 1)
    return min(max(value, low), high)


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


class UnknownForm(ValueError):
    """An instruction that is not in the table."""


def _match_slots(slots: tuple[Slot, ...], words: tuple[str, ...]) -> dict[str, str] | None:
    """What each named slot is in `words`, an opcode with its modifiers; None if they differ."""
    if not slots:
        return None if words else {}
    (name, choices, optional), *rest = slots
    if words and words[0] in choices:
        found = _match_slots(tuple(rest), words[1:])
        if found is not None:
            return {name: words[0], **found}
    return _match_slots(tuple(rest), words) if optional else None


def _parse_table() -> Iterator[Form]:
    chapter = ""
    for line in filter(None, map(str.strip, TABLE.replace("\\\n", " ").splitlines())):
        if line.startswith("#"):
            chapter = line.removeprefix("#").strip()
            continue
        pattern, *types, version, target = (part.strip() for part in line.split(" : "))
        name, *modifiers = pattern.split()
        slots = []
        for one in modifiers:
            key, _, choices = one.removesuffix("?").rpartition("=")
            slots.append((key or choices, tuple(choices.split("|")), one.endswith("?")))
        major, _, minor = version.partition(".")
        operands = tuple(" ".join(types).split()) or ("-",)
        yield Form(name, tuple(slots), operands, (int(major), int(minor)), int(target), chapter)


FORMS = tuple(_parse_table())


@cache
def find_form(written: str, count: int | None = None) -> Matched:
    """The row of a form as it is written: `add.rn.f32`.

    Rows that differ by their operands alone are told apart by how many those are, `count`.

    Raises:
        UnknownForm: there is none.
    """
    words = tuple(written.split("."))
    if words[0] == "vote" and words[2:3] == ("sync",):  # as CUB writes it and ptxas reads it
        words = ("vote", "sync", words[1], *words[3:])
    first: Matched | None = None
    for form in FORMS:
        slots = _match_slots(form.slots, words)
        if slots is not None:
            found = Matched(form, slots)
            if count in (None, len(form.operands)) or form.operands == ("-",):
                return found
            first = first or found
    if first is not None:
        return first
    raise UnknownForm(f"{written} is not in the table of forms")


# ---- where the functions are noted that compute an opcode's results, in exact arithmetic

Handler = Callable[..., int | tuple[int, ...]]
H = TypeVar("H", bound=Handler)
HANDLERS: dict[str, Handler] = {}


def register_handler(*opcodes: str) -> Callable[[H], H]:
    """The function below computes what the forms of these opcodes do.

    It gets the row that a form has matched, and the bits of each operand.

    Raises:
        ValueError: another one does so already.
    """

    def add_handler(handler: H) -> H:
        for opcode in opcodes:
            if opcode in HANDLERS:
                raise ValueError(f"two handlers compute {opcode}")
            HANDLERS[opcode] = handler
        return handler

    return add_handler
