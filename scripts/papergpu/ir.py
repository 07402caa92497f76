"""What a program is made of before its registers have places: steps, registers, labels, symbols.

What names mean where they stand, between two braces and those around them, is their `Scope`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypedDict

from papergpu.forms import type_bits
from papergpu.program import BIT, CONST, GENERIC, GLOBAL, LOCAL, LONG, PARAM, QUAD, SHARED, WORD
from papergpu.syntax_tree import Float, Integer, Negated, Operand

SPACES = {"shared": SHARED, "local": LOCAL, "param": PARAM, "const": CONST, "global": GLOBAL}


@cache
def register_bytes(kind: str) -> int:
    """Bytes of a register of a type in a warp."""
    width = type_bits(kind)
    return BIT if width == 1 else WORD if width <= 32 else LONG if width == 64 else QUAD


@dataclass(eq=False, slots=True)
class Register:
    """A register of the program, before it has a place. `constant` is its bits if it is one.

    `first` and `last` are the steps between which it holds something wanted, once registers
    are allocated; `bit` numbers it there if that takes more than a look at one block.
    """

    width: int
    type: str = ""
    constant: int | None = None
    shared: bool = False  # the constant is an address of shared memory
    special: int | None = None
    keep: bool = False  # it shares its place with no other: something in flight may write it
    at: int = -1
    first: int = -1
    last: int = -1
    bit: int = -1


@dataclass(slots=True)
class Symbol:
    """A variable: its space, and its byte there."""

    space: int
    at: int


class AddressFields(TypedDict, total=False):
    """Where an instruction accesses memory: register `a` plus `imm`, in a space."""

    a: Register
    imm: int
    base: int
    space: int


class Label:
    """A place in the program; `at` is its instruction once it is known."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1


@dataclass(slots=True)
class Step:
    """One instruction, its registers still without a place.

    `d` is written, `a`, `b`, `c` and `e` are read, `items` is its list: registers, labels and
    numbers; a register in place of `list` or `count` is the number there. `writes` and `reads` are
    all registers that it writes and reads. `owner` numbers the instructions of PTX that are
    decoded: those that become several have one number.
    """

    name: str
    kind: int
    writes: tuple[Register, ...]
    reads: tuple[Register, ...]
    guard: Register | None
    negate: bool
    place: int
    form: str
    owner: int
    items: Sequence[Register | Label | int] = ()
    d: Register | None = None
    a: Register | None = None
    b: Register | None = None
    c: Register | None = None
    e: Register | None = None
    imm: Label | int = 0
    flags: int = 0
    space: int = 0
    base: int = 0
    list: Register | int | None = None
    count: Register | int = 0


def parse_space(name: str) -> int:
    """The space that a modifier names: `shared::cta`, `param::entry`, or none, which is generic."""
    return SPACES.get(name.partition("::")[0], GENERIC)


def literal_bits(operand: Operand, kind: str) -> int | None:
    """The bits of an operand that is a constant of a type; None if it is none."""
    if isinstance(operand, Integer):
        return operand.value
    if isinstance(operand, Float):
        return float_bits(operand, kind)
    if isinstance(operand, Negated) and operand.sign == "-":
        inner = operand.operand
        if isinstance(inner, Integer):
            return -inner.value
        if isinstance(inner, Float):
            return float_bits(inner, kind) ^ 1 << (type_bits(kind) - 1)
    return None


def float_bits(operand: Float, kind: str) -> int:
    """The bits of a floating constant of either width as one of a type."""
    wide = type_bits(kind) == 64
    if operand.width == 32 and wide:
        (number,) = struct.unpack("<f", struct.pack("<I", operand.bits))
        return int(struct.unpack("<Q", struct.pack("<d", number))[0])
    if operand.width == 64 and not wide:
        (number,) = struct.unpack("<d", struct.pack("<Q", operand.bits))
        return int(struct.unpack("<I", struct.pack("<f", number))[0])
    return operand.bits


# ---- what names mean where they stand


@dataclass
class Scope:
    """What names mean between two braces."""

    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[str, int]] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
