"""What the rules of `decode` write a program with: operands become registers, then steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from papergpu.errors import Unsupported
from papergpu.forms import Matched
from papergpu.ir import (
    AddressFields,
    Label,
    Register,
    Scope,
    Step,
    Symbol,
    literal_bits,
    register_bytes,
)
from papergpu.program import (
    BIT,
    GENERIC,
    GLOBAL,
    LOCAL,
    LONG,
    NARROW,
    NONE,
    PLAIN,
    SHARED,
    SPECIALS,
    WIDE,
    WORD,
)
from papergpu.syntax_tree import Address, Instruction, Name, Negated, Operand, Place, Vector

SPECIAL = {name: number for number, name in enumerate(SPECIALS)}
ALIASES = {"%aggr_smem_size": "%total_smem_size"}
# Those whose value is no matter of the launch.
FIXED = {"WARP_SZ": 32, "%gridid": 1, "%nwarpid": 64, "%reserved_smem_offset_0": 0}
CLOCKS = {"%clock": 32, "%clock64": 64, "%globaltimer": 64, "%globaltimer_lo": 32}


class Writer:
    """Writes a program, instruction by instruction.

    Rules ask it for the registers of operands (`source`, `target`, `predicate`, `address`) and tell
    it what the engine shall do (`emit`).
    """

    def __init__(self, symbols: dict[str, Symbol]) -> None:
        self.scopes = [Scope(symbols=symbols)]  # that are open, the innermost last
        self.steps: list[Step] = []
        self.constants: dict[tuple[int, int, bool], Register] = {}
        self.specials: dict[int, Register] = {}
        self.places: dict[tuple[Place | None, int], int] = {}
        self.sinks: dict[int, Register] = {}
        self.named: list[tuple[str, Register]] = []  # the registers that PTX names
        self.local = 0
        self.granules = [4, 4]
        self.tensor = False
        self.ends: list[Label] = []
        self.in_flight: dict[Register, bool] = {}  # of products of a warpgroup, whether written
        self.current: Instruction | None = None
        self.written: Instruction | None = None  # the last one that something was emitted for
        self.owner, self.place, self.form = 0, -1, ""  # of what is emitted for it
        self.guard: Register | None = None
        self.negate = False

    # Registers.

    def find_register(self, name: str) -> Register | None:
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
                    return self.name_register(scope, name, known[0])
        return None

    def name_register(self, scope: Scope, name: str, kind: str) -> Register:
        """A register of a type that has a name from here on."""
        made = scope.registers[name] = Register(register_bytes(kind), kind)
        self.named.append((name, made))
        return made

    def find_symbol(self, name: str) -> Symbol | None:
        """The variable that a name means here."""
        for scope in reversed(self.scopes):
            if name in scope.symbols:
                return scope.symbols[name]
        return None

    def refuse(self, why: str) -> Unsupported:
        """What to raise for an operand that is not supported."""
        one = self.current
        assert one is not None
        place = f", {one.place.file}:{one.place.line}" if one.place else ""
        return Unsupported(f"{one.form} at PTX line {one.line}{place}: {why}")

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

    def special(self, name: str, width: int) -> Register | None:
        """A special register, a clock included."""
        name = ALIASES.get(name, name)
        if name in SPECIAL:
            number = SPECIAL[name]
            if number not in self.specials:
                self.specials[number] = Register(WORD, "u32", special=number)
            found = self.specials[number]
            return self.widen_register(found) if width >= LONG else found
        if name in FIXED:
            return self.constant(FIXED[name], width)
        if name in ("%envreg1", "%envreg2"):  # where a cooperative grid synchronises: high, low
            made = self.temporary(LONG if width >= LONG else WORD)
            self.emit(f"envreg.u{made.width // 4}", d=made, imm=32 if name == "%envreg1" else 0)
            return made
        if name in ("%clock_hi", "%globaltimer_hi"):
            whole, low, high = self.temporary(LONG), self.temporary(WORD), self.temporary(WORD)
            self.emit("clock64", d=whole)
            self.emit("unpack.2x32", a=whole, writes=[low, high])
            return high
        if name in CLOCKS:
            size = CLOCKS[name]
            made = self.temporary(LONG if size == 64 else WORD)
            self.emit(f"clock{size}", d=made)
            return made
        return None

    def widen_register(self, narrow: Register) -> Register:
        """A register of 64 bits with the 32 of another."""
        made = self.temporary(LONG)
        self.emit("mov.wide", d=made, a=narrow)
        return made

    def constant_value(self, operand: Operand) -> int:
        """An operand that must be an integer constant."""
        found = literal_bits(operand, "b32")
        if found is None:
            raise self.refuse("an operand that must be a constant is not")
        return found

    def source(self, operand: Operand, kind: str) -> Register:
        """The register of an operand that is read as a type: a constant's own, or an address's."""
        if kind == "pred":
            predicate, negated = self.predicate(operand)
            if negated:
                raise self.refuse("a negated predicate is not allowed here")
            return predicate
        if isinstance(operand, Name):
            found = self.find_register(operand.text) if not operand.offset else None
            if found is not None:
                return found
            width = register_bytes(kind)
            special = self.special(operand.text, width)
            if special is not None:
                return special
            symbol = self.find_symbol(operand.text)
            if symbol is not None:
                return self.symbol_address(symbol, operand.offset, width)
        else:
            number = literal_bits(operand, kind)
            if number is not None:
                return self.constant(number, register_bytes(kind))
        raise self.refuse(f"the operand {operand} is not understood")

    def symbol_address(self, symbol: Symbol, offset: int, width: int) -> Register:
        """A register with the address of a variable in its own space."""
        at = self.constant(symbol.at + offset, width, shared=symbol.space == SHARED)
        if symbol.space == GLOBAL:
            made = self.temporary(LONG)
            self.emit("cvta.symbol", d=made, a=self.constant(symbol.at + offset, LONG))
            return made
        return at

    def narrow_source(self, operand: Operand, kind: str) -> Register:
        """Like `source`, from a register that may be wider than the type: its low bits."""
        found = self.source(operand, kind)
        if found.width == LONG and register_bytes(kind) == WORD:
            made = self.temporary(WORD)
            self.emit("mov.narrow", d=made, a=found)
            return made
        return found

    def target(self, operand: Operand, kind: str = "b32") -> Register:
        """The register of an operand that is written; of `_` one that nobody reads."""
        if isinstance(operand, Name):
            if operand.text == "_":
                width = register_bytes(kind)
                return self.sinks.setdefault(width, Register(width, keep=True))
            found = self.find_register(operand.text)
            if found is not None:
                return found
        raise self.refuse(f"{operand} is not a writable register")

    def predicate(self, operand: Operand) -> tuple[Register, bool]:
        """A predicate, and whether it is negated."""
        if isinstance(operand, Negated) and operand.sign == "!":
            found, negated = self.predicate(operand.operand)
            return found, not negated
        if isinstance(operand, Name):
            register = self.find_register(operand.text)
            if register is not None:
                if register.width != BIT:
                    raise self.refuse(f"{operand.text} is not a predicate")
                return register, False
            if operand.text == "%is_explicit_cluster":  # the one special register that is one
                made, word = self.temporary(BIT), self.special(operand.text, WORD)
                self.emit("setp.ne.u32", d=made, a=word, b=self.constant(0, WORD), flags=0)
                return made, False
        number = literal_bits(operand, "b32")
        if number is not None:
            return self.constant(0xFFFFFFFF if number else 0, BIT), False
        raise self.refuse(f"{operand} is not a predicate")

    def plain_predicate(self, operand: Operand) -> Register:
        """A predicate in a register of its own if it is negated."""
        found, negated = self.predicate(operand)
        if not negated:
            return found
        made = self.temporary(BIT)
        self.emit("not.pred", d=made, a=found)
        return made

    def vector_items(self, operand: Operand) -> tuple[Operand, ...]:
        """The operands in braces, or one alone."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    # Addresses.

    def address(self, operand: Operand, space: int) -> AddressFields:
        """The fields `a`, `imm`, `base` and `space` of `[base + offset]`."""
        if not isinstance(operand, Address):
            raise self.refuse(f"{operand} is not an address")
        base = operand.base
        if isinstance(base, Name):
            register = self.find_register(base.text)
            if register is not None:
                wide = register.width == LONG
                return {"a": register, "imm": base.offset, "base": WIDE if wide else NARROW,
                        "space": space}  # fmt: skip
            symbol = self.find_symbol(base.text)
            if symbol is not None:
                if symbol.space == GLOBAL:
                    return {"a": self.symbol_address(symbol, 0, LONG), "imm": base.offset,
                            "base": WIDE, "space": GLOBAL}  # fmt: skip
                if space not in (symbol.space, GENERIC) and symbol.space != LOCAL:
                    raise self.refuse(f"{base.text} is not in the space that this accesses")
                return {"imm": symbol.at + base.offset, "base": NONE, "space": symbol.space}
        number = literal_bits(base, "b64")
        if number is not None:
            return {"imm": number, "base": NONE, "space": space}
        raise self.refuse(f"the address {operand} is not understood")

    def pointer(self, operand: Operand, space: int) -> Register:
        """The address `[base + offset]` in a register: of 32 bits in shared memory, else of 64."""
        found = self.address(operand, space)
        width = WORD if space == SHARED else LONG
        base = found.get("a")
        if base is None:
            return self.constant(found["imm"], width, shared=found["space"] == SHARED)
        if base.width == LONG and width == WORD:
            narrow = self.temporary(WORD)
            self.emit("mov.narrow", d=narrow, a=base)
            base = narrow
        elif base.width == WORD and width == LONG:
            base = self.widen_register(base)
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
        imm: Label | int = 0,
        flags: int = 0,
        space: int = 0,
        base: int = 0,
        list: Register | int | None = None,
        count: Register | int | None = None,
    ) -> Step:
        """Emit one instruction of handler `name`.

        `d` is written, `a`, `b`, `c` and `e` are read. `writes` and then `reads` become its list,
        with their number in `count` unless that is given; `items` takes the place of both there.
        Further fields are `imm`, `flags`, `space`, `base`, `list` and `count`.
        """
        written, read = [*writes], [*reads]
        given = (*written, *read) if items is None else (*items,)
        if d is not None:
            written.append(d)
        read += [one for one in (a, b, c, e) if one is not None]
        if isinstance(list, Register):
            written.append(list)
        if count is None:
            count = len(given)
        elif isinstance(count, Register):
            read.append(count)
        guard = self.guard if guarded else None
        if guard is not None:
            read.append(guard)
            read += written  # where the guard is false, what they held stays
        if self.current is not self.written or self.place < 0:
            self.begin_instruction(self.current)
        step = Step(name, kind, tuple(written), tuple(read), guard, self.negate, self.place,
                    self.form, self.owner, given, d, a, b, c, e, imm, flags, space, base, list,
                    count)  # fmt: skip
        self.steps.append(step)
        return step

    def begin_instruction(self, one: Instruction | None) -> None:
        """What is emitted from here on is of this instruction."""
        if one is not self.written:
            self.written = one
            self.owner += 1
        key = (one.place, one.line) if one else (None, 0)
        self.place = self.places.setdefault(key, len(self.places))
        self.form = one.form if one else ""

    def note_access(self, space: int, size: int) -> None:
        """Checks look at memory in pieces of the smallest access."""
        if space in (SHARED, GENERIC):
            self.granules[0] = min(self.granules[0], size)
        if space in (GLOBAL, GENERIC):
            self.granules[1] = min(self.granules[1], size)

    def find_label(self, name: str) -> Label:
        """The label that a name means here."""
        for scope in reversed(self.scopes):
            if name in scope.labels:
                return scope.labels[name]
        raise self.refuse(f"there is no label {name}")

    def place_label(self, label: Label) -> None:
        """Put a label here."""
        label.at = len(self.steps)


# ---- where the rules of decoding are noted, by opcode

Rule = Callable[[Writer, Instruction, Matched], None]
RULES: dict[str, Rule] = {}


def register_rule(*opcodes: str) -> Callable[[Rule], Rule]:
    """The function below decodes the instructions of these opcodes.

    It gets the writer, the instruction, and the row of the table of forms that it has matched.
    """

    def add_rule(function: Rule) -> Rule:
        for opcode in opcodes:
            if opcode in RULES:
                raise ValueError(f"two rules decode {opcode}")
            RULES[opcode] = function
        return function

    return add_rule
