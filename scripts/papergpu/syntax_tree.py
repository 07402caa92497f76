"""What a PTX module is made of, as `parse` reads it: nothing is resolved, nothing is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the source a compiler found an instruction: `file`, `line` and `column` from 1.

    `function` and `caller` are there where it was inlined: the function it stands in, and where
    that one was called.
    """

    file: str
    line: int
    column: int
    function: str = ""
    caller: Place | None = None


class Name(NamedTuple):
    """A register, a special register, a label, a symbol, or `_`; `offset` bytes behind it."""

    text: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant; `unsigned` if it was written with a U."""

    value: int
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Float:
    """A floating constant by its bits, of `width` 32 or 64."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Negated:
    """`-a` of a constant that follows, or `!p` of a predicate, by `sign`."""

    sign: str
    operand: Operand


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b}`, or `(a, b)` of a call, or the two of `p|q`, by `opening`."""

    items: tuple[Operand, ...]
    opening: str = "{"


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, or `[tensor map, {coordinates}]`, whose further items are `more`."""

    base: Operand
    more: tuple[Operand, ...] = ()


Operand = Name | Integer | Float | Negated | Vector | Address


@dataclass(slots=True)
class Instruction:
    """One instruction; `form` is its opcode and its modifiers as they are written: `add.rn.f32`.

    `guard` is the predicate under which it runs, if any.
    """

    form: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    guard: str = ""
    unless: bool = False
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """A place to branch to; its scope is the block that it stands in."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Targets:
    """`name: .branchtargets a, b;`, the table of a `brx.idx`."""

    name: str
    labels: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Prototype:
    """`name: .callprototype (result) _ (parameters);`, what a call through a register is of."""

    name: str
    results: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, a parameter or registers: `.shared .align 16 .b8 tile[64];`.

    `space` is reg, param, shared, global, const or local; `type` is without its dot, `lanes` 2 or 4
    of a vector. `count` is the number of elements, 0 of an open array, and 1 of no array. `range`
    says that `name` stands for that many registers, `name0` and on. `values` are its elements where
    they are given, in order. `pointer` is the space that a parameter is said to point into, if any.
    """

    space: str
    type: str
    name: str
    line: int
    lanes: int = 1
    align: int | None = None
    count: int = 1
    range: int | None = None
    values: tuple[Operand, ...] | None = None
    linkage: tuple[str, ...] = ()
    pointer: str | None = None


@dataclass
class Block:
    """What stands between braces, in order; a block inside has a scope of its own."""

    line: int
    items: list[Instruction | Label | Targets | Prototype | Variable | Block] = field(
        default_factory=list
    )
    pragmas: list[str] = field(default_factory=list)

    def iterate_instructions(self) -> Iterator[Instruction]:
        """All instructions in it, those of inner blocks included."""
        for item in self.items:
            if isinstance(item, Instruction):
                yield item
            elif isinstance(item, Block):
                yield from item.iterate_instructions()


@dataclass
class Function:
    """A kernel (`kernel` is true) or a function; without `body` it is declared alone.

    `directives` are those between its head and its body: `{"reqntid": (128,)}`.
    """

    name: str
    kernel: bool
    line: int
    parameters: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    linkage: tuple[str, ...] = ()
    body: Block | None = None


@dataclass
class Module:
    """A file of PTX. `version` is (8, 7), `target` such as `sm_90a`, `files` by their number.

    `text` is what it was read from.
    """

    version: tuple[int, int]
    target: str
    address_size: int = 64
    files: dict[int, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    text: str = field(default="", repr=False)

    def iterate_instructions(self) -> Iterator[Instruction]:
        """All instructions of all functions."""
        for one in self.functions:
            if one.body:
                yield from one.body.iterate_instructions()
