"""What one thread computes in its registers."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

from papergpu.forms import Matched, find_form, type_bits
from papergpu.ir import Register
from papergpu.program import BIT, LONG, WORD
from papergpu.syntax_tree import Instruction, Vector
from papergpu.writer import Writer, register_rule

# The sign matters to none of these: their handlers are called by the width alone.
UNSIGNED = ("add", "sub", "and", "or", "xor", "not", "neg", "shl", "popc", "clz", "brev", "bfi",
            "selp", "mov")  # fmt: skip
ROUNDS = {"rn": 0, "rz": 1, "rm": 2, "rp": 3, "rna": 4, "rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}
FLAGS = {"ftz": 1, "sat": 2, "relu": 4, "satfinite": 8, "NaN": 16, "abs": 32, "xorsign": 64}
# Whether a comparison holds of what is less, equal, greater and unordered, as bits 0 to 3.
HOLDS = {"eq": 2, "ne": 5, "lt": 1, "le": 3, "gt": 4, "ge": 6, "num": 7, "nan": 8, "equ": 10,
         "neu": 13, "ltu": 9, "leu": 11, "gtu": 12, "geu": 14}  # fmt: skip
# What `set` writes where the comparison holds.
TRUE = {"u16": 0xFFFF, "s16": 0xFFFF, "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000,
        "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}  # fmt: skip
COMBINE = {"and": 1, "or": 2, "xor": 3}


def is_integer(kind: str) -> bool:
    """Whether a type is of integers or bits."""
    return kind[0] in "us" or (kind[0] == "b" and not kind.startswith("bf"))


def handler_type(opcode: str, kind: str) -> str:
    """The last part of a handler's name: `u32` of b32, and of s32 where the sign is no matter."""
    if opcode == "add" and kind == "s16x2":
        return "u16x2"
    if not is_integer(kind) or "x2" in kind:
        return kind
    if opcode in UNSIGNED or kind[0] == "b":
        return f"u{type_bits(kind)}"
    return kind


def read_operands(writer: Writer, one: Instruction, found: Matched) -> list[Register]:
    """The operands that are read, as their types say."""
    types = found.types
    if len(types) != len(one.operands):
        raise writer.refuse(f"it has {len(one.operands)} operands but takes {len(types)}")
    return [
        writer.plain_predicate(operand) if kind == "pred" else writer.narrow_source(operand, kind)
        for operand, kind in zip(one.operands[1:], types[1:], strict=True)
    ]


@cache
def modifier_flags(modifiers: tuple[str, ...]) -> int:
    """What modifiers do to operands and results, as core/numbers.hpp numbers it."""
    return sum(FLAGS.get(word, 0) for word in modifiers)


def emit_operation(
    writer: Writer, name: str, one: Instruction, found: Matched, imm: int = 0, flags: int = 0
) -> None:
    """An instruction of one result and up to four operands."""
    a, b, c, e = (*read_operands(writer, one, found), None, None, None, None)[:4]
    d = writer.target(one.operands[0], found.types[0])
    writer.emit(name, d=d, a=a, b=b, c=c, e=e, imm=imm, flags=flags)


def decode_plain(writer: Writer, one: Instruction, found: Matched) -> None:
    """An instruction whose handler its opcode and its types name."""
    name, imm, flags = choose_handler(one.form, len(one.operands))
    emit_operation(writer, name, one, found, imm, flags)


@cache
def choose_handler(form: str, count: int) -> tuple[str, int, int]:
    """The handler of a form with so many operands, its `imm` and its flags."""
    found = find_form(form, count)
    opcode, *modifiers = form.split(".")
    slots = found.slots
    kind = slots.get("t", found.types[0])
    if not is_integer(kind) and kind != "pred":
        return choose_float_handler(opcode, modifier_flags(tuple(modifiers)), found)
    words = [word for word in ("h", "m", "x", "y") if word in slots]
    parts = [slots[word] for word in words]
    parts += [word for word in ("wide", "relu", "sat") if word in slots]
    if not {"x", "wide"} & set(slots) or "wide" in slots:
        parts.append(f"u{type_bits(kind)}" if slots.get("h") == "lo" and opcode in ("mul", "mad")
                     else handler_type(opcode, kind))  # fmt: skip
    if "sat" in slots:
        parts = ["sat", kind]
    return ".".join((opcode, *parts)), 0, 0


def choose_float_handler(opcode: str, flags: int, found: Matched) -> tuple[str, int, int]:
    """Floats: the handler of the plain form, of `.ftz` or `.NaN` alone, or the one for all else."""
    slots, kind = found.slots, found.types[0]
    mode = ROUNDS[slots.get("r", "rn")]
    if "d" in slots:
        return f"{opcode}.mixed.{slots['t']}", mode, flags
    if "k" in slots:
        flush = ".ftz" if "ftz" in slots and kind[:3] in ("f32", "f64") else ""
        return f"{opcode}.{slots['k']}{flush}.{kind}", 0, flags
    opcode = "fma" if opcode == "mad" else opcode
    three = opcode in ("min", "max") and len(found.types) == 4
    alone = {0: "", FLAGS["ftz"]: ".ftz", FLAGS["NaN"]: ".NaN"}.get(flags, ".any")
    if mode or three or (alone and kind != "f32") or (alone == ".ftz" and opcode in ("min", "max")):
        alone = ".any"
    if opcode == "copysign" or (opcode in ("abs", "neg") and kind == "f64"):
        alone = ""
    return f"{opcode}{alone}.{kind}", mode, flags


# What stands behind the opcode in the names of handlers, by the slots of a form; `size` is in bits.
NAMED = {
    "testp": "{o}.{t}", "bfind": "{t}", "fns": "", "bmsk": "", "szext": "{t}",
    "slct": "u{size}.{t}", "selp": "u{size}", "prmt": "{m}", "shf": "{s}.{m}",
    "vabsdiff2": "{add}", "vabsdiff4": "{add}",
}  # fmt: skip


@register_rule(*NAMED)
def decode_named(writer: Writer, one: Instruction, found: Matched) -> None:
    slots = defaultdict(str, found.slots)
    slots["size"] = str(type_bits(slots["d"] or slots["t"] or "b32"))
    name = f"{one.opcode}.{NAMED[one.opcode].format_map(slots)}".rstrip(".")
    wraps = slots["m"] == "wrap" and one.opcode != "shf"  # whose name says so
    flags = int(wraps or not slots.keys().isdisjoint(("shiftamt", "ftz")))
    emit_operation(writer, name, one, found, 0, flags)


@register_rule("cvt")
def decode_cvt(writer: Writer, one: Instruction, found: Matched) -> None:
    """From one type to another; a register wider than the result gets its sign or zeros above."""
    slots, to, source = found.slots, found.types[0], found.types[1]
    if slots.get("r") == "rs":
        decode_cvt_rs(writer, one, found)
        return
    # Between f16 and bf16 a rounding may be left out: ptxas takes the nearest then.
    mode = ROUNDS[slots.get("r") or slots.get("i") or "rn"]
    name = f"cvt.{to}.{source}"
    if "pack" in slots:
        name = f"cvt.pack.{slots['d']}"
    elif "i" in slots and to == source:
        name = f"cvt.whole.{to}"
    target = writer.target(one.operands[0], to)
    a, b, c = (*read_operands(writer, one, found), None, None)[:3]
    small = target.width == LONG and type_bits(to) < 64
    d = writer.temporary(WORD) if small else target
    writer.emit(name, d=d, a=a, b=b, c=c, imm=mode, flags=modifier_flags(one.modifiers))
    if small:
        writer.emit("cvt.s64.s32" if to[0] == "s" else "cvt.u64.u32", d=target, a=d)


def decode_cvt_rs(writer: Writer, one: Instruction, found: Matched) -> None:
    """From two floats or four to fewer bits, by random bits."""
    first = one.operands[1]
    given = [*(first.items if isinstance(first, Vector) else (first,)), *one.operands[2:]]
    kinds = found.types[1:]
    if len(given) != len(kinds) or isinstance(first, Vector) != (len(kinds) == 5):
        raise writer.refuse(f"it takes {len(kinds) - 1} floats, four in braces, and random bits")
    read = [writer.narrow_source(part, kind) for part, kind in zip(given, kinds, strict=True)]
    d, flags = writer.target(one.operands[0], found.types[0]), modifier_flags(one.modifiers)
    if d.width == LONG:
        raise writer.refuse("its result needs a register of 16 or 32 bits")
    name = f"cvt.rs.{found.types[0]}"
    if len(read) == 3:
        writer.emit(name, d=d, a=read[0], b=read[1], c=read[2], flags=flags)
    else:
        writer.emit(name, d=d, reads=read, flags=flags)


@register_rule("add", "sub", "mad", "addc", "subc", "madc")
def decode_carry(writer: Writer, one: Instruction, found: Matched) -> None:
    """An addition with the carry that comes in, that goes out, or both."""
    if one.opcode in ("add", "sub", "mad") and "cc" not in found.slots:
        decode_plain(writer, one, found)
        return
    opcode = one.opcode if one.opcode.endswith("c") else f"{one.opcode}c"
    flags = int(one.opcode.endswith("c")) | (2 if "cc" in found.slots else 0)
    kind = found.slots["t"]
    given = read_operands(writer, one, found)
    d = writer.target(one.operands[0], kind)
    part = f".{found.slots['h']}" if "h" in found.slots else ""
    shown = kind if part == ".hi" else f"u{type_bits(kind)}"
    name = f"{opcode}{part}.{shown}"
    if opcode == "subc":
        writer.emit(name, d=d, a=given[0], b=given[1], flags=flags)
    else:
        b = given[1] if opcode == "madc" else None
        writer.emit(name, d=d, a=given[0], b=b, e=given[-1], flags=flags)


@register_rule("lop3")
def decode_lop3(writer: Writer, one: Instruction, found: Matched) -> None:
    """Any function of three bits, by its table; with `.and` or `.or` also whether it is not 0."""
    a, b, c = (writer.narrow_source(operand, "b32") for operand in one.operands[1:4])
    table = writer.constant_value(one.operands[4]) & 255
    target = one.operands[0]
    pair = target.items if isinstance(target, Vector) else (target,)
    d = writer.target(pair[0], "b32")
    writer.emit("lop3", d=d, a=a, b=b, c=c, imm=table)
    if "o" in found.slots:
        combined = writer.plain_predicate(one.operands[5])
        writer.emit("lop3.bool", d=writer.target(pair[1], "pred"), a=d, c=combined,
                    flags=int(found.slots["o"] == "or"))  # fmt: skip


def emit_comparison(
    writer: Writer, one: Instruction, found: Matched, d: Register, other: Register | None
) -> None:
    """A comparison into `d`, its opposite (or that of the upper halves) into `other`."""
    kind, what = found.slots["t"], found.slots["c"]
    if what in ("lo", "ls", "hi", "hs"):
        what, kind = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[what], f"u{type_bits(kind)}"
    a, b = (writer.narrow_source(operand, kind) for operand in one.operands[1:3])
    flags = COMBINE[found.slots["o"]] if "o" in found.slots else 0
    c = None
    if flags:
        c, negated = writer.predicate(one.operands[3])
        flags |= 4 if negated else 0
    flags |= 8 if other is not None else 0
    half = kind.removesuffix("x2") in ("f16", "bf16")
    shown = f"{what}.{handler_type('setp', kind)}"
    if "ftz" in found.slots:
        flags |= 16
        shown = f"{what}.ftz.{kind}"
    name = f"setp.{kind}" if half else f"setp.{shown}"
    step = writer.emit(name, d=d, a=a, b=b, c=c, flags=flags, imm=HOLDS[what] if half else 0)
    if other is not None:
        step.e = other
        step.writes += (other,)
        if step.guard is not None:
            step.reads += (other,)


@register_rule("setp")
def decode_setp(writer: Writer, one: Instruction, found: Matched) -> None:
    """A comparison, and its opposite where `p|q` is asked, each combined with a predicate."""
    target = one.operands[0]
    pair = target.items if isinstance(target, Vector) else (target,)
    if len(pair) == 1 and found.types[0] == "preds":
        raise writer.refuse("it needs two results, p|q")
    other = writer.target(pair[1], "pred") if len(pair) > 1 else None
    emit_comparison(writer, one, found, writer.target(pair[0], "pred"), other)


@register_rule("set")
def decode_set(writer: Writer, one: Instruction, found: Matched) -> None:
    """A comparison whose result is a number."""
    to = found.slots["d"]
    true = TRUE[to]
    pair = found.slots["t"].endswith("x2")
    p = writer.temporary(BIT)
    q = writer.temporary(BIT) if pair else None
    emit_comparison(writer, one, found, p, q)
    d = writer.target(one.operands[0], to)
    if q is not None:
        writer.emit("set.pair", d=d, a=p, b=q, imm=true if to.endswith("x2") else 0xFFFF)
    else:
        size = 16 if type_bits(to) == 16 else 32
        yes, no = writer.constant(true, WORD), writer.constant(0, WORD)
        writer.emit(f"selp.u{size}", d=d, a=yes, b=no, c=p)


@register_rule("mov")
def decode_mov(writer: Writer, one: Instruction, found: Matched) -> None:
    """A copy; with braces on one side, registers packed into one or one into several."""
    target, source = one.operands
    kind = found.slots["t"]
    if isinstance(target, Vector):
        size = type_bits(kind) // len(target.items)
        parts = [writer.target(part, f"b{size}") for part in target.items]
        whole = writer.source(source, kind)
        writer.emit(f"unpack.{len(parts)}x{size}", a=whole, writes=parts)
    elif isinstance(source, Vector):
        size = type_bits(kind) // len(source.items)
        given = [writer.narrow_source(part, f"b{size}") for part in source.items]
        writer.emit(f"pack.{len(given)}x{size}", d=writer.target(target, kind), reads=given)
    elif kind == "pred":
        writer.emit("mov.pred", d=writer.target(target, kind), a=writer.plain_predicate(source))
    else:
        # A register's value into another, cut or with zeros above if their widths differ.
        d, a = writer.target(target, kind), writer.source(source, kind)
        if BIT in (d.width, a.width) and d.width != a.width:
            raise writer.refuse("a predicate can only be copied from or to a predicate")
        same = f"mov.u{d.width // 4}"
        name = same if d.width == a.width else "mov.wide" if d.width > a.width else "mov.narrow"
        writer.emit(name, d=d, a=a)
