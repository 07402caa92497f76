"""What the rules of `decode` write a program with: registers, constants, symbols and labels."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypedDict

from papergpu.errors import Unsupported
from papergpu.kinds import width
from papergpu.program import (
    BIT,
    CONST,
    GENERIC,
    GLOBAL,
    LOCAL,
    LONG,
    NARROW,
    NONE,
    PARAM,
    PLAIN,
    QUAD,
    SHARED,
    SPECIALS,
    WIDE,
    WORD,
)
from papergpu.tree import (
    Address,
    Float,
    Instruction,
    Integer,
    Name,
    Operand,
    Opposite,
    Place,
    Vector,
)

SPECIAL = {name: number for number, name in enumerate(SPECIALS)}
ALIASES = {"%aggr_smem_size": "%total_smem_size"}
# Those whose value is no matter of the launch.
FIXED = {"WARP_SZ": 32, "%gridid": 1, "%nwarpid": 64, "%reserved_smem_offset_0": 0}
CLOCKS = {"%clock": 32, "%clock_hi": 32, "%clock64": 64, "%globaltimer": 64, "%globaltimer_lo": 32,
          "%globaltimer_hi": 32}  # fmt: skip


@cache
def bits(kind: str) -> int:
    """The width of a type in bits: 32 of `f16x2`, 64 of `f32x2`, 1 of `pred`."""
    if kind == "b64x2":
        return 128
    return width(kind)


@cache
def room(kind: str) -> int:
    """Bytes of a register of a type in a warp."""
    width = bits(kind)
    return BIT if width == 1 else WORD if width <= 32 else LONG if width == 64 else QUAD


@dataclass(eq=False, slots=True)
class Register:
    """A register of the program, before it has a place. `constant` is its bits if it is one."""

    width: int
    type: str = ""
    constant: int | None = None
    shared: bool = False  # the constant is an address of shared memory
    special: int | None = None
    keep: bool = False  # it shares its place with no other: something in flight may write it
    at: int = -1


@dataclass(slots=True)
class Symbol:
    """A variable: its space, and its byte there."""

    space: int
    at: int


class Fields(TypedDict, total=False):
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

    `writes` and `reads` are the registers that it writes and reads, `items` its list: registers,
    labels and numbers. `owner` numbers the instructions of PTX that are decoded: those that become
    several have one number.
    """

    name: str
    kind: int
    fields: dict[str, Register | Label | int]
    items: Sequence[Register | Label | int]
    writes: tuple[Register, ...]
    reads: tuple[Register, ...]
    guard: Register | None
    negate: bool
    place: int
    form: str
    owner: int


@dataclass
class Scope:
    """What names mean between two braces."""

    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[str, int]] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Writer:
    """Takes down a program, instruction by instruction.

    Rules ask it for the registers of operands (`source`, `target`, `predicate`, `address`) and tell
    it what the engine shall do (`emit`).
    """

    def __init__(self, symbols: dict[str, Symbol]) -> None:
        self.scopes: list[Scope] = [Scope(symbols=symbols)]
        self.steps: list[Step] = []
        self.constants: dict[tuple[int, int, bool], Register] = {}
        self.specials: dict[int, Register] = {}
        self.places: dict[tuple[Place | None, int], int] = {}
        self.sinks: dict[int, Register] = {}
        self.local = 0
        self.granules = [4, 4]
        self.tensor = False
        self.ends: list[Label] = []
        self.in_flight: dict[Register, bool] = {}  # of products of a warpgroup, whether written
        self.current: Instruction | None = None
        self.written: Instruction | None = None  # the last one that something was emitted for
        self.owner = 0
        self.guard: Register | None = None
        self.negate = False

    # Registers.

    def refuse(self, why: str) -> Unsupported:
        """What to raise where an operand is not executed."""
        one = self.current
        assert one is not None
        place = f", {one.place.file}:{one.place.line}" if one.place else ""
        return Unsupported(f"{one.form} at PTX line {one.line}{place}: {why}")

    def register(self, name: str) -> Register | None:
        """The register that a name means here."""
        for scope in reversed(self.scopes):
            found = scope.registers.get(name)
            if found is not None:
                return found
        stem = name.rstrip("0123456789")
        if stem != name:
            for scope in reversed(self.scopes):
                known = scope.ranges.get(stem)
                if known and int(name[len(stem) :]) < known[1]:
                    made = scope.registers[name] = Register(room(known[0]), known[0])
                    return made
        return None

    def temporary(self, width: int = WORD) -> Register:
        """A register of its own for a rule."""
        return Register(width)

    def constant(self, value: int, width: int, shared: bool = False) -> Register:
        """A register that holds `value` in all lanes."""
        size = 64 if width >= LONG else 32
        key = (value & ((1 << size) - 1), width, shared)
        if key not in self.constants:
            self.constants[key] = Register(width, constant=key[0], shared=shared)
        return self.constants[key]

    def symbol(self, name: str) -> Symbol | None:
        """The variable that a name means here."""
        for scope in reversed(self.scopes):
            if name in scope.symbols:
                return scope.symbols[name]
        return None

    def special(self, name: str, width: int) -> Register | None:
        """A special register, a clock included."""
        name = ALIASES.get(name, name)
        if name in SPECIAL:
            number = SPECIAL[name]
            if number not in self.specials:
                self.specials[number] = Register(WORD, "u32", special=number)
            found = self.specials[number]
            return self.widened(found) if width >= LONG else found
        if name in FIXED:
            return self.constant(FIXED[name], width)
        if name in ("%envreg1", "%envreg2"):  # where a cooperative grid synchronises: high, low
            made = self.temporary(LONG if width >= LONG else WORD)
            self.emit(f"envreg.u{made.width // 4}", d=made, imm=32 if name == "%envreg1" else 0)
            return made
        if name in CLOCKS:
            size = CLOCKS[name]
            made = self.temporary(LONG if size == 64 else WORD)
            self.emit(f"clock{size}", d=made)
            return made
        return None

    def widened(self, narrow: Register) -> Register:
        """A register of 64 bits with the 32 of another."""
        made = self.temporary(LONG)
        self.emit("mov.wide", d=made, a=narrow)
        return made

    def value(self, operand: Operand, kind: str) -> int | None:
        """The bits of a constant operand of a type; None if it is none."""
        if isinstance(operand, Integer):
            return operand.value
        if isinstance(operand, Float):
            return self.float_bits(operand, kind)
        if isinstance(operand, Opposite) and operand.sign == "-":
            inner = operand.operand
            if isinstance(inner, Integer):
                return -inner.value
            if isinstance(inner, Float):
                return self.float_bits(inner, kind) ^ 1 << (bits(kind) - 1)
        return None

    @staticmethod
    def float_bits(operand: Float, kind: str) -> int:
        wide = bits(kind) == 64
        if operand.width == 32 and wide:
            (number,) = struct.unpack("<f", struct.pack("<I", operand.bits))
            return int(struct.unpack("<Q", struct.pack("<d", number))[0])
        if operand.width == 64 and not wide:
            (number,) = struct.unpack("<d", struct.pack("<Q", operand.bits))
            return int(struct.unpack("<I", struct.pack("<f", number))[0])
        return operand.bits

    def number(self, operand: Operand) -> int:
        """An operand that must be an integer constant."""
        found = self.value(operand, "b32")
        if found is None:
            raise self.refuse("an operand that must be a constant is none")
        return found

    def source(self, operand: Operand, kind: str) -> Register:
        """The register of an operand that is read as a type: a constant's own, or an address's."""
        if kind == "pred":
            found, negated = self.predicate(operand)
            if negated:
                raise self.refuse("a negated predicate is no operand here")
            return found
        width = room(kind)
        if isinstance(operand, Name):
            found_register = self.register(operand.text) if not operand.offset else None
            if found_register is not None:
                return found_register
            special = self.special(operand.text, width)
            if special is not None:
                return special
            symbol = self.symbol(operand.text)
            if symbol is not None:
                return self.address_of(symbol, operand.offset, width)
        else:
            number = self.value(operand, kind)
            if number is not None:
                return self.constant(number, width)
        raise self.refuse(f"the operand {operand} is not understood")

    def address_of(self, symbol: Symbol, offset: int, width: int) -> Register:
        """A register with the address of a variable in its own space."""
        at = self.constant(symbol.at + offset, width, shared=symbol.space == SHARED)
        if symbol.space == GLOBAL:
            made = self.temporary(LONG)
            self.emit("cvta.symbol", d=made, a=self.constant(symbol.at + offset, LONG))
            return made
        return at

    def narrowed(self, operand: Operand, kind: str) -> Register:
        """Like `source`, from a register that may be wider than the type: its low bits."""
        found = self.source(operand, kind)
        if found.width == LONG and room(kind) == WORD:
            made = self.temporary(WORD)
            self.emit("mov.narrow", d=made, a=found)
            return made
        return found

    def target(self, operand: Operand, kind: str = "b32") -> Register:
        """The register of an operand that is written; of `_` one that nobody reads."""
        if isinstance(operand, Name):
            if operand.text == "_":
                width = room(kind)
                return self.sinks.setdefault(width, Register(width, keep=True))
            found = self.register(operand.text)
            if found is not None:
                return found
        raise self.refuse(f"{operand} is no register that can be written")

    def predicate(self, operand: Operand) -> tuple[Register, bool]:
        """A predicate, and whether it is negated."""
        if isinstance(operand, Opposite) and operand.sign == "!":
            found, negated = self.predicate(operand.operand)
            return found, not negated
        if isinstance(operand, Name):
            register = self.register(operand.text)
            if register is not None:
                if register.width != BIT:
                    raise self.refuse(f"{operand.text} is no predicate")
                return register, False
        number = self.value(operand, "b32")
        if number is not None:
            return self.constant(0xFFFFFFFF if number else 0, BIT), False
        raise self.refuse(f"{operand} is no predicate")

    def plain_predicate(self, operand: Operand) -> Register:
        """A predicate in a register of its own if it is negated."""
        found, negated = self.predicate(operand)
        if not negated:
            return found
        made = self.temporary(BIT)
        self.emit("not.pred", d=made, a=found)
        return made

    def vector(self, operand: Operand) -> tuple[Operand, ...]:
        """The operands in braces, or one alone."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    # Addresses.

    def address(self, operand: Operand, space: int) -> Fields:
        """The fields `a`, `imm`, `base` and `space` of `[base + offset]`."""
        if not isinstance(operand, Address):
            raise self.refuse(f"{operand} is no address")
        base = operand.base
        if isinstance(base, Name):
            register = self.register(base.text)
            if register is not None:
                wide = register.width == LONG
                return {"a": register, "imm": base.offset, "base": WIDE if wide else NARROW,
                        "space": space}  # fmt: skip
            symbol = self.symbol(base.text)
            if symbol is not None:
                if symbol.space == GLOBAL:
                    return {"a": self.address_of(symbol, 0, LONG), "imm": base.offset,
                            "base": WIDE, "space": GLOBAL}  # fmt: skip
                if space not in (symbol.space, GENERIC) and symbol.space != LOCAL:
                    raise self.refuse(f"{base.text} is not in the space that this accesses")
                return {"imm": symbol.at + base.offset, "base": NONE, "space": symbol.space}
        number = self.value(base, "b64")
        if number is not None:
            return {"imm": number, "base": NONE, "space": space}
        raise self.refuse(f"the address {operand} is not understood")

    def pointer(self, operand: Operand, space: int) -> Register:
        """The address `[base + offset]` in a register: of 32 bits in shared memory, else of 64."""
        found = self.address(operand, space)
        width = WORD if space == SHARED else LONG
        base = found.get("a")
        if not isinstance(base, Register):
            return self.constant(found["imm"], width, shared=found["space"] == SHARED)
        if base.width == LONG and width == WORD:
            narrow = self.temporary(WORD)
            self.emit("mov.narrow", d=narrow, a=base)
            base = narrow
        elif base.width == WORD and width == LONG:
            base = self.widened(base)
        if not found["imm"]:
            return base
        offset = found["imm"]
        made = self.temporary(width)
        self.emit(f"add.u{width // 4}", d=made, a=base, b=self.constant(offset, width))
        return made

    # Instructions.

    def emit(
        self,
        name: str,
        kind: int = PLAIN,
        *,
        d: Register | None = None,
        a: Register | None = None,
        b: Register | None = None,
        c: Register | None = None,
        e: Register | None = None,
        writes: Iterable[Register] = (),
        reads: Iterable[Register] = (),
        items: Sequence[Register | Label | int] | None = None,
        guarded: bool = True,
        imm: Label | int | None = None,
        flags: int | None = None,
        space: int | None = None,
        base: int | None = None,
        list: Register | int | None = None,
        count: Register | int | None = None,
    ) -> Step:
        """Take down one instruction of handler `name`.

        `d` is written, `a`, `b`, `c` and `e` are read. `writes` and then `reads` become its list,
        with their number in `count` unless that is given; `items` takes the place of both there.
        Further fields are `imm`, `flags`, `space`, `base`, `list` and `count`.
        """
        written, read = [*writes], [*reads]
        given: Sequence[Register | Label | int] = [*written, *read] if items is None else [*items]
        fields: dict[str, Register | Label | int | None] = {
            "imm": imm, "flags": flags, "space": space, "base": base, "list": list, "count": count,
        }  # fmt: skip
        values = {name: one for name, one in fields.items() if one is not None}
        if given and "count" not in values:
            values["count"] = len(given)
        for letter, one in (("d", d), ("a", a), ("b", b), ("c", c), ("e", e)):
            if one is not None:
                values[letter] = one
                (written if letter == "d" else read).append(one)
        if isinstance(list, Register):
            written.append(list)
        if isinstance(count, Register):
            read.append(count)
        guard = self.guard if guarded else None
        if guard is not None:
            read.append(guard)
            read += written  # where the guard is false, what they held stays
        one_instruction = self.current
        key = (one_instruction.place, one_instruction.line) if one_instruction else (None, 0)
        place = self.places.setdefault(key, len(self.places))
        form = one_instruction.form if one_instruction else ""
        if one_instruction is not self.written:
            self.written = one_instruction
            self.owner += 1
        step = Step(name, kind, values, given, tuple(written), tuple(read), guard, self.negate,
                    place, form, self.owner)  # fmt: skip
        self.steps.append(step)
        return step

    def note_access(self, space: int, size: int) -> None:
        """Checks look at memory in pieces of the smallest access."""
        if space in (SHARED, GENERIC):
            self.granules[0] = min(self.granules[0], size)
        if space in (GLOBAL, GENERIC):
            self.granules[1] = min(self.granules[1], size)

    def label(self, name: str) -> Label:
        """The label that a name means here."""
        for scope in reversed(self.scopes):
            if name in scope.labels:
                return scope.labels[name]
        raise self.refuse(f"there is no label {name}")

    def put(self, label: Label) -> None:
        """A label stands here."""
        label.at = len(self.steps)


SPACES = {"shared": SHARED, "local": LOCAL, "param": PARAM, "const": CONST, "global": GLOBAL}


def space_of(name: str) -> int:
    """The space that a modifier names: `shared::cta`, `param::entry`, or none, which is generic."""
    return SPACES.get(name.partition("::")[0], GENERIC)
