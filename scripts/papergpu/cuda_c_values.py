"""Values of the small CUDA C, and the PTX that computes them: constants, registers, memory.

A constant stands as it is until an instruction needs it, and whole numbers are computed at once. A
number of less than 32 bits has a register of 32, in which it is extended. A pointer has the space
that it points into, so that loads and stores say it.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from papergpu.errors import Unsupported


def _divide(x: int, y: int) -> int:
    """As C does: towards zero."""
    whole = abs(x) // abs(y)
    return whole if (x < 0) == (y < 0) else -whole


SIZES = {"f32": 4, "f64": 8, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8,
         "u64": 8, "bool": 1}  # fmt: skip
MOST = 100_000  # lines of PTX
COMPARED = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
COMPUTED = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or",
            "^": "xor", "<<": "shl", ">>": "shr"}  # fmt: skip
FOLDED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide,
    "%": lambda x, y: x - y * _divide(x, y), "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
# Of one float: what PTX does, and what its argument or its result is multiplied by.
FLOATS = {
    "sqrt": "sqrt.rn.f32", "rsqrt": "rsqrt.approx.f32", "fabs": "abs.f32",
    "floor": "cvt.rmi.f32.f32",
    "ceil": "cvt.rpi.f32.f32", "trunc": "cvt.rzi.f32.f32", "rint": "cvt.rni.f32.f32",
    "sin": "sin.approx.f32", "cos": "cos.approx.f32", "tanh": "tanh.approx.f32",
    "exp2": "ex2.approx.f32", "log2": "lg2.approx.f32",
}  # fmt: skip
ATOMICS = {"Add": "add", "Min": "min", "Max": "max", "And": "and", "Or": "or", "Xor": "xor",
           "Exch": "exch", "CAS": "cas", "Sub": "add"}  # fmt: skip
SHUFFLES = {"": ("idx", 31), "_up": ("up", 0), "_down": ("down", 31), "_xor": ("bfly", 31)}


class Pointer(NamedTuple):
    to: Any
    space: str


class Array(NamedTuple):
    of: Any
    size: int


class Value(NamedTuple):
    """A number or an address: its type, and the register or the constant that has it."""

    type: Any
    at: str


class Place(NamedTuple):
    """Memory: what is there, the register with its address, and the space."""

    type: Any
    at: str
    space: str


@dataclass
class Variable:
    """One in a register. `type` may be a pointer whose space its first value says."""

    type: Any
    at: str


def line_of(node: Any) -> int:
    return int(node.coord.line) if getattr(node, "coord", None) else 0


def refuse(node: Any, what: str) -> NoReturn:
    raise Unsupported(f"line {line_of(node)}: {what}")


def size_of(type_: Any) -> int:
    if isinstance(type_, Array):
        return size_of(type_.of) * type_.size
    return 8 if isinstance(type_, Pointer) else SIZES[type_]


def stored(type_: str) -> str:
    return "u8" if type_ == "bool" else type_


def say(type_: Any) -> str:
    if isinstance(type_, Pointer):
        return f"a pointer to {say(type_.to)}"
    return f"an array of {say(type_.of)}" if isinstance(type_, Array) else str(type_)


class Writer:
    """Writes instructions, and makes values of values. `node` is where in the source one stands."""

    def __init__(self) -> None:
        self.line = 0  # of the source, of what is being written
        self.begin_kernel()

    def begin_kernel(self) -> None:
        """Nothing is written yet."""
        self.lines: list[str] = []
        self.registers: dict[str, int] = {}
        self.labels = 0

    def emit(self, text: str) -> None:
        self.lines.append(text if text.endswith(":") or text[0] == "." else f"{text};")
        if len(self.lines) > MOST:
            raise Unsupported(f"line {self.line}: it becomes more than {MOST:,} lines of PTX")

    def register(self, type_: Any) -> str:
        kind = "rd" if isinstance(type_, Pointer) or type_ in ("s64", "u64") else {
            "f32": "f", "f64": "fd", "pred": "p"}.get(type_, "r")  # fmt: skip
        self.registers[kind] = self.registers.get(kind, 0) + 1
        return f"%{kind}{self.registers[kind]}"

    def make(self, type_: Any, form: str, *given: str) -> Value:
        """The result of an instruction, in a register of its own."""
        at = self.register(type_)
        self.emit(f"{form} {', '.join((at, *given))}")
        return Value(type_, at)

    def label(self) -> str:
        self.labels += 1
        return f"$L{self.labels}"

    def set(self, at: str, value: Value) -> None:
        self.emit(f"mov.{self.bits(value.type)} {at}, {value.at}")

    @staticmethod
    def bits(type_: Any) -> str:
        if type_ in ("f32", "f64", "pred"):
            return str(type_)
        return "b64" if isinstance(type_, Pointer) or type_ in ("s64", "u64") else "b32"

    # ---- constants, which stand in place of a register

    @staticmethod
    def constant(type_: str, number: int | float) -> Value:
        """A number as it is in a type: whole ones wrap, and what is no whole number is cut off."""
        if type_ in ("f32", "f64"):
            code, mark = (">f", "0f") if type_ == "f32" else (">d", "0d")
            try:
                packed = struct.pack(code, number)
            except OverflowError:
                packed = struct.pack(code, math.copysign(math.inf, number))
            return Value(type_, f"{mark}{packed.hex()}")
        if type_ == "bool":
            return Value(type_, str(int(number != 0)))
        signed, bits = type_[0] == "s", 8 * SIZES[type_]
        if isinstance(number, float):  # as cvt has it
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            number = 0 if math.isnan(number) else low if number < low else min(number, high)
        kept = int(number) & (1 << bits) - 1
        return Value(type_, str(kept - (1 << bits) if signed and kept >> bits - 1 else kept))

    @staticmethod
    def known(value: Value) -> int | float | None:
        """The number of a constant; None of what is in a register."""
        if value.at.startswith("%"):
            return None
        if value.type in ("f32", "f64"):
            code = ">f" if value.type == "f32" else ">d"
            (number,) = struct.unpack(code, bytes.fromhex(value.at[2:]))
            return float(number)
        return int(value.at)

    def fold(self, kind: str, op: str, a: Value, b: Value) -> Value | None:
        """What two whole constants of a type come to; None if that is not known now."""
        x, y = self.known(a), self.known(b)
        if not isinstance(x, int) or not isinstance(y, int) or op not in FOLDED:
            return None
        if (op in "/%" and not y) or (op in ("<<", ">>") and y >= 8 * SIZES[kind]):
            return None
        return self.constant(kind, FOLDED[op](x, y))

    # ---- conversions, arithmetic and memory

    def test(self, node: Any, value: Value) -> str:
        if value.type == "pred":
            return value.at
        if isinstance(value.type, Array):
            refuse(node, "an array as a condition")
        kind = "u64" if isinstance(value.type, Pointer) else self.promoted(value.type)
        compared = "neu" if kind[0] == "f" else "ne"
        zero = self.constant(kind, 0).at
        value = value if kind == "u64" else self.convert(node, value, kind)
        return self.make("pred", f"setp.{compared}.{kind}", value.at, zero).at

    @staticmethod
    def promoted(type_: str) -> str:
        return "s32" if type_ in ("pred", "bool", "s8", "u8", "s16", "u16") else type_

    def common(self, node: Any, a: Value, b: Value) -> str:
        """The type in which two numbers are computed."""
        for one in (a, b):
            if isinstance(one.type, (Pointer, Array)):
                refuse(node, f"{say(one.type)} in arithmetic")
        pair = {self.promoted(a.type), self.promoted(b.type)}
        return next(one for one in ("f64", "f32", "u64", "s64", "u32", "s32") if one in pair)

    def convert(self, node: Any, value: Value, to: Any) -> Value:
        """A value as it is in another type."""
        of, at = value.type, value.at
        if of == to:
            return value
        if isinstance(to, Pointer) or isinstance(of, Pointer):
            if isinstance(to, Pointer) and isinstance(of, Pointer):
                if to.space in ("", of.space):
                    return Value(Pointer(to.to, of.space), at)
                refuse(node, f"a pointer to {of.space} memory where one to {to.space} stood")
            if isinstance(to, Pointer) and at == "0":
                return Value(to, at)
            refuse(node, f"{say(of)} as {say(to)}")
        if isinstance(to, Array) or isinstance(of, Array):
            refuse(node, f"{say(of)} as {say(to)}")
        if (known := self.known(value)) is not None:
            if to != "f32" or isinstance(known, float) or abs(known) < 1 << 53:
                return self.constant(to, known)
            at = self.make(of, f"mov.{self.bits(of)}", at).at  # so that it is rounded once
        if to == "bool":
            return Value(to, self.make("s32", "selp.b32", "1", "0", self.test(node, value)).at)
        if of == "pred":
            number = self.make("s32", "selp.b32", "1", "0", at)
            return number if to == "s32" else self.convert(node, number, to)
        source = self.promoted(of)
        if to[0] == "f":
            rounded = "" if (source, to) == ("f32", "f64") else ".rn"
            return self.make(to, f"cvt{rounded}.{to}.{source}", at)
        if source[0] == "f":
            wide = to if SIZES[to] >= 4 else "s32"
            found = self.make(wide, f"cvt.rzi.{wide}.{source}", at)
            return found if wide == to else self.convert(node, found, to)
        if SIZES[to] == 8:
            if SIZES[source] == 8:
                return Value(to, at)
            return self.make(to, f"cvt.{'s64.s32' if source == 's32' else 'u64.u32'}", at)
        if SIZES[source] == 8:
            at = self.make("u32", "cvt.u32.u64", at).at
        if SIZES[to] == 4:
            return Value(to, at)
        if SIZES[to] >= SIZES[of] and of[0] in "ub":
            return Value(to, at)
        if to[0] == "u":
            return self.make(to, "and.b32", at, str((1 << 8 * SIZES[to]) - 1))
        left = str(32 - 8 * SIZES[to])
        return self.make(to, "shr.s32", self.make("s32", "shl.b32", at, left).at, left)

    def load(self, node: Any, found: Any) -> Value:
        if isinstance(found, Variable):
            # Its value now: the variable may change before this is used.
            return self.make(found.type, f"mov.{self.bits(found.type)}", found.at)
        if isinstance(found, Place):
            if isinstance(found.type, Array):
                return Value(Pointer(found.type.of, found.space), found.at)
            if isinstance(found.type, Pointer):
                refuse(node, "a pointer that lies in memory")
            return self.make(found.type, f"ld.{found.space}.{stored(found.type)}", f"[{found.at}]")
        return found  # type: ignore[no-any-return]

    def store(self, place: Place, value: Value) -> None:
        at = value.at
        if not at.startswith("%"):
            at = self.make(value.type, f"mov.{self.bits(value.type)}", at).at
        self.emit(f"st.{place.space}.{stored(place.type)} [{place.at}], {at}")

    def move(self, node: Any, base: Value, index: Value, back: bool = False) -> Value:
        """An address so many elements further."""
        type_ = base.type
        if not type_.space:
            refuse(node, "a pointer that points nowhere")
        if isinstance(index.type, (Pointer, Array)) or index.type[0] == "f":
            refuse(node, f"{say(index.type)} as an index")
        index = self.convert(node, index, self.promoted(index.type))
        size = size_of(type_.to)
        if not index.at.startswith("%"):
            far = int(index.at) * (-size if back else size)
            return self.make(type_, "add.s64", base.at, str(far)) if far else base
        if SIZES[index.type] == 4:
            far_at = self.make("s64", f"mul.wide.{index.type}", index.at, str(size)).at
        else:
            far_at = self.make("s64", "mul.lo.s64", index.at, str(size)).at
        return self.make(type_, "sub.s64" if back else "add.s64", base.at, far_at)

    def compute(self, node: Any, op: str, a: Value, b: Value) -> Value:
        if isinstance(a.type, Pointer) or isinstance(b.type, Pointer):
            return self.compute_address(node, op, a, b)
        if op in ("<<", ">>"):
            kind = self.promoted(a.type)
            if kind[0] == "f" or self.promoted(b.type)[0] == "f":
                refuse(node, f"{op} of a float")
            a, b = self.convert(node, a, kind), self.convert(node, b, "u32")
            if folded := self.fold(kind, op, a, b):
                return folded
            form = f"shl.{self.bits(kind)}" if op == "<<" else f"shr.{kind}"
            return self.make(kind, form, a.at, b.at)
        kind = self.common(node, a, b)
        a, b = self.convert(node, a, kind), self.convert(node, b, kind)
        if op in COMPARED:
            how = "neu" if op == "!=" and kind[0] == "f" else COMPARED[op]
            return self.make("pred", f"setp.{how}.{kind}", a.at, b.at)
        if folded := self.fold(kind, op, a, b):
            return folded
        form = COMPUTED[op]
        if op in "&|^":
            if kind[0] == "f":
                refuse(node, f"{op} of a float")
            return self.make(kind, f"{form}.{self.bits(kind)}", a.at, b.at)
        if kind[0] == "f":
            if op == "%":
                refuse(node, "% of a float")
            return self.make(kind, f"{form}.rn.{kind}", a.at, b.at)
        return self.make(kind, f"{form}{'.lo' if op == '*' else ''}.{kind}", a.at, b.at)

    def compute_address(self, node: Any, op: str, a: Value, b: Value) -> Value:
        if isinstance(a.type, Pointer) and isinstance(b.type, Pointer):
            if op in COMPARED:
                return self.make("pred", f"setp.{COMPARED[op]}.u64", a.at, b.at)
            if op == "-" and a.type == b.type:
                far = self.make("s64", "sub.s64", a.at, b.at)
                return self.make("s64", "div.s64", far.at, str(size_of(a.type.to)))
        elif isinstance(a.type, Pointer) and op in "+-":
            return self.move(node, a, b, back=op == "-")
        elif isinstance(b.type, Pointer) and op == "+":
            return self.move(node, b, a)
        elif op in COMPARED and "0" in (a.at, b.at):
            return self.make("pred", f"setp.{COMPARED[op]}.u64", a.at, b.at)
        refuse(node, f"{say(a.type)} {op} {say(b.type)}")

    # ---- functions

    def intrinsic(self, node: Any, name: str, values: list[Value]) -> Any:
        """A function of CUDA's; NotImplemented if it is none that is known."""

        def want(*types: str) -> list[str]:
            if len(values) != len(types):
                refuse(node, f"{name} takes {len(types)} arguments and gets {len(values)}")
            pairs = zip(values, types, strict=True)
            return [self.convert(node, value, type_).at for value, type_ in pairs]

        if name == "__syncthreads":
            want()
            self.emit("bar.sync 0")
            return None
        if name == "__syncwarp":
            mask = want("u32")[0] if values else "-1"
            self.emit(f"bar.warp.sync {mask}")
            return None
        if name in ("__threadfence", "__threadfence_block"):
            self.emit(f"membar.{'gl' if name == '__threadfence' else 'cta'}")
            return None
        if found := re.fullmatch(r"__shfl(|_up|_down|_xor)_sync", name):
            return self.shuffle(node, found[1], values)
        if name == "__ballot_sync":
            mask, _ = want("u32", "s32")
            return self.make("u32", "vote.sync.ballot.b32", self.test(node, values[1]), mask)
        if name in ("__any_sync", "__all_sync"):
            mask, _ = want("u32", "s32")
            at = self.test(node, values[1])
            return self.make("pred", f"vote.sync.{name[2:5]}.pred", at, mask)
        if name == "__activemask":
            return self.make("u32", "activemask.b32", *want())
        if name in ("__popc", "__clz", "__brev"):
            form = {"__popc": "popc", "__clz": "clz", "__brev": "brev"}[name]
            return self.make("u32" if form == "brev" else "s32", f"{form}.b32", *want("u32"))
        if found := re.fullmatch(r"atomic(\w+)", name):
            return self.atomic(node, ATOMICS.get(found[1], ""), found[1] == "Sub", values)
        if name == "__ldg" and len(values) == 1 and isinstance(values[0].type, Pointer):
            return Place(values[0].type.to, values[0].at, values[0].type.space)
        if name in ("min", "max", "fminf", "fmaxf", "fmin", "fmax") and len(values) == 2:
            kind = "f32" if name.endswith("f") else self.common(node, *values)
            return self.make(kind, f"{name.strip('f')}.{kind}", *want(kind, kind))
        if name in ("abs", "fabs") and len(values) == 1 and self.promoted(values[0].type) != "f32":
            kind = self.common(node, values[0], Value("s32", "0"))
            return self.make(kind, f"abs.{kind}", *want(kind))
        if name in ("fmaf", "fma"):
            kind = "f32" if name == "fmaf" else self.common(node, *values[:2])
            return self.make(kind, f"fma.rn.{kind}", *want(kind, kind, kind))
        if name == "sqrt" and len(values) == 1 and values[0].type == "f64":
            return self.make("f64", "sqrt.rn.f64", *want("f64"))
        if name in ("__fdividef", "fdividef"):
            return self.make("f32", "div.approx.f32", *want("f32", "f32"))
        if name == "__float_as_int":
            return Value("s32", self.make("s32", "mov.b32", *want("f32")).at)
        if name == "__int_as_float":
            return self.make("f32", "mov.b32", *want("s32"))
        plain = name.removeprefix("__")
        plain = plain if plain in (*FLOATS, "exp", "log") else plain.removesuffix("f")
        if plain in FLOATS or plain in ("exp", "log"):
            if len(values) == 1 and not name.endswith("f") and values[0].type == "f64":
                refuse(node, f"{name} of a double; write {name}f")
            (at,) = want("f32")
            if plain == "exp":
                at = self.make("f32", "mul.rn.f32", at, "0f3FB8AA3B").at  # log2(e)
                return self.make("f32", "ex2.approx.f32", at)
            if plain == "log":
                at = self.make("f32", "lg2.approx.f32", at).at
                return self.make("f32", "mul.rn.f32", at, "0f3F317218")  # ln(2)
            return self.make("f32", FLOATS[plain], at)
        return NotImplemented

    def shuffle(self, node: Any, way: str, values: list[Value]) -> Value:
        if len(values) not in (3, 4):
            refuse(node, f"a shuffle takes 3 or 4 arguments and gets {len(values)}")
        width = 32 if len(values) == 3 else self.known(values[3])
        if not isinstance(width, int) or width not in (1, 2, 4, 8, 16, 32):
            refuse(node, "the width of a shuffle is a constant power of 2, at most 32")
        kind = values[1].type
        kind = kind if isinstance(kind, (Pointer, Array)) else self.promoted(kind)
        if kind not in ("s32", "u32", "f32"):
            refuse(node, f"a shuffle of {say(kind)}")
        mode, last = SHUFFLES[way]
        mask, lane = (self.convert(node, values[k], "u32").at for k in (0, 2))
        given = self.convert(node, values[1], kind).at
        word = self.make("u32", "mov.b32", given).at if kind == "f32" else given
        bounds = str(32 - width << 8 | last)
        found = self.make("u32", f"shfl.sync.{mode}.b32", word, lane, bounds, mask)
        return self.make("f32", "mov.b32", found.at) if kind == "f32" else Value(kind, found.at)

    def atomic(self, node: Any, op: str, minus: bool, values: list[Value]) -> Value:
        if not op or len(values) != (3 if op == "cas" else 2):
            refuse(node, "an atomic that is not taken here")
        if not isinstance(values[0].type, Pointer):
            refuse(node, f"{say(values[0].type)} in place of a pointer")
        kind, space = values[0].type.to, values[0].type.space
        bits = op in ("and", "or", "xor", "exch", "cas")
        taken = {"add": ("s32", "u32", "u64", "f32", "f64"), "min": ("s32", "u32", "s64", "u64")}
        if (
            kind not in ("s32", "u32", "u64", "f32")
            or space not in ("global", "shared")
            or (kind not in taken.get(op if op != "max" else "min", (kind,)))
        ):
            refuse(node, f"an atomic {op} of {say(kind)}")
        given = [self.convert(node, one, kind) for one in values[1:]]
        if minus:
            zero = self.constant(kind, 0)
            given = [self.compute(node, "-", zero, given[0])]
        form = self.bits(kind).replace("f32", "b32") if bits else kind if kind != "s32" or (
            op in ("min", "max")) else "u32"  # fmt: skip
        words = [self.make("u32", "mov.b32", one.at).at if bits and kind == "f32" else one.at
                 for one in given]  # fmt: skip
        found = self.make("u32" if bits and kind == "f32" else kind,
                          f"atom.{space}.{op}.{form}", f"[{values[0].at}]", *words)  # fmt: skip
        return self.make("f32", "mov.b32", found.at) if bits and kind == "f32" else found
