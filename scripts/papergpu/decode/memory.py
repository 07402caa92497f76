"""Loads, stores, atomics, and addresses between spaces."""

from __future__ import annotations

from papergpu.decode import transfer
from papergpu.decode.rules import rule
from papergpu.forms import Matched
from papergpu.program import CONST, GENERIC, GLOBAL, LOCAL, LONG, NONE, PARAM, SHARED, WORD
from papergpu.steps import bits, space_of
from papergpu.tree import Instruction
from papergpu.writer import Writer

ORDERS = {"relaxed": 0, "acquire": 1, "release": 2, "acq_rel": 3}


def _lanes(found: Matched) -> int:
    return int(found.slots.get("v", "v1")[1:])


def _space(found: Matched) -> int:
    return space_of(found.slots.get("s", ""))


@rule("ld", "ldu")
def ld(writer: Writer, one: Instruction, found: Matched) -> None:
    kind = found.slots["t"]
    fields = writer.address(one.operands[1], _space(found))
    targets = [writer.target(part, kind) for part in writer.vector(one.operands[0])]
    size = bits(kind)
    order = found.slots.get("o", "")
    flags = (2 if order == "acquire" else 0) | (4 if order and order != "weak" else 0)
    if size == 128:
        writer.emit("ld.b128", writes=targets, flags=flags, **fields)
        return
    wide = targets[0].width == LONG
    signed = kind[0] == "s" and size < (64 if wide else 32)
    name = f"{'s' if signed else 'u'}{size}_{64 if wide else 32}"
    space = fields["space"]
    if space == PARAM and fields["base"] == NONE:
        writer.emit(f"ldp.{name}", writes=targets, **fields)
        return
    writer.note_access(space, size // 8)
    writer.emit(f"ld.{name}", writes=targets, flags=flags, **fields)


@rule("st")
def st(writer: Writer, one: Instruction, found: Matched) -> None:
    if "async" in one.modifiers or "bulk" in one.modifiers:
        transfer.st(writer, one, found)
        return
    kind = found.slots["t"]
    fields = writer.address(one.operands[0], _space(found))
    size = bits(kind)
    given = [writer.source(part, kind) for part in writer.vector(one.operands[1])]
    order = found.slots.get("o", "")
    flags = (2 if order == "release" else 0) | (4 if order and order != "weak" else 0)
    if size == 128:
        writer.emit("st.b128", reads=given, flags=flags, **fields)
        return
    # A constant takes the width of what stands beside it.
    wide = any(part.width == LONG for part in given)
    if wide:
        given = [part if part.width == LONG else writer.widened(part) for part in given]
    space = fields["space"]
    writer.note_access(space, size // 8)
    writer.emit(f"st.u{size}_{64 if wide else 32}", reads=given, flags=flags, **fields)


@rule("atom", "red")
def atom(writer: Writer, one: Instruction, found: Matched) -> None:
    if "async" in one.modifiers:
        transfer.st(writer, one, found)
        return
    kind, operation = found.slots["t"], found.slots["a"]
    operands = list(one.operands)
    targets = [] if one.opcode == "red" else [
        writer.target(part, kind) for part in writer.vector(operands.pop(0))]  # fmt: skip
    fields = writer.address(operands[0], _space(found))
    values = [writer.source(part, kind) for part in writer.vector(operands[1])]
    order = found.slots.get("o") or found.slots.get("o2") or "relaxed"
    flags = ORDERS[order]
    if operation in ("cas", "exch") or flags:
        flags |= 4
    space = fields["space"]
    writer.note_access(space, bits(kind) // 8)
    shown = kind
    if operation in ("min", "max", "inc", "dec"):
        shown = f"{'s' if kind[0] == 's' else 'u'}{bits(kind)}"
    elif kind[0] in "us" or (kind[0] == "b" and not kind.startswith("bf")):
        shown = f"b{bits(kind)}"
    offset = fields["imm"]
    for number, value in enumerate(values):
        target = targets[number] if targets else None
        compared = writer.source(operands[2], kind) if operation == "cas" else None
        fields["imm"] = offset + number * bits(kind) // 8
        writer.emit(f"atom.{operation}.{shown}", d=target, b=value, c=compared, flags=flags,
                    **fields)  # fmt: skip


@rule("cvta")
def cvta(writer: Writer, one: Instruction, found: Matched) -> None:
    space = space_of(found.slots.get("s", "global"))
    target = writer.target(one.operands[0], "b64")
    wide = found.slots["t"] == "u64"
    source = writer.source(one.operands[1], found.slots["t"])
    to = "to" in found.slots
    if space in (GLOBAL, GENERIC):
        writer.emit(f"mov.u{64 if wide else 32}", d=target, a=source)
        return
    name = {SHARED: "shared", LOCAL: "local", PARAM: "param"}.get(space, "const")
    if space == SHARED and not to:
        narrow = source
        if source.width == LONG:
            narrow = writer.temporary(WORD)
            writer.emit("mov.narrow", d=narrow, a=source)
        if target.width != LONG:
            raise writer.refuse("a generic address has 64 bits")
        writer.emit("cvta.shared", d=target, a=narrow)
        return
    writer.emit(f"cvta.{'to.' if to else ''}{name}", d=target, a=source)


@rule("isspacep")
def isspacep(writer: Writer, one: Instruction, found: Matched) -> None:
    name = found.slots["s"].partition("::")[0]
    items = _constants(writer) if name in ("const", "global") else ()
    writer.emit(f"isspacep.{name}", d=writer.target(one.operands[0]),
                a=writer.source(one.operands[1], "u64"), items=items)  # fmt: skip


def _constants(writer: Writer) -> list[int]:
    """Where each constant of the module begins and ends: up to the next variable."""
    variables = [one for one in writer.scopes[0].symbols.values() if one.space in (GLOBAL, CONST)]
    starts = sorted(one.at for one in variables)
    ends = dict(zip(starts, [*starts[1:], (1 << 32) - 1], strict=True))
    return [at for one in variables if one.space == CONST for at in (one.at, ends[one.at])]


@rule("mapa")
def mapa(writer: Writer, one: Instruction, found: Matched) -> None:
    shared = "shared::cluster" in found.slots
    kind = found.slots["t"]
    target = writer.target(one.operands[0], kind)
    source, rank = writer.source(one.operands[1], kind), writer.source(one.operands[2], "u32")
    if not shared:
        writer.emit("mapa.generic", d=target, a=source, b=rank)
        return
    if kind == "u32":
        writer.emit("mapa.shared", d=target, a=source, b=rank)
        return
    narrow, made = writer.temporary(), writer.temporary()
    writer.emit("mov.narrow", d=narrow, a=source)
    writer.emit("mapa.shared", d=made, a=narrow, b=rank)
    writer.emit("mov.wide", d=target, a=made)


@rule("getctarank")
def getctarank(writer: Writer, one: Instruction, found: Matched) -> None:
    target, kind = writer.target(one.operands[0], "u32"), found.slots["t"]
    if "shared::cluster" in found.slots:
        source = writer.narrowed(one.operands[1], "u32")
        writer.emit("getctarank.shared", d=target, a=source)
    else:
        writer.emit("getctarank.generic", d=target, a=writer.source(one.operands[1], kind))


@rule("fence", "membar")
def fence(writer: Writer, one: Instruction, found: Matched) -> None:
    scopes = {"cta": 1, "cluster": 2, "gpu": 3, "gl": 3, "sys": 3}
    scope = next((scopes[word] for word in one.modifiers if word in scopes), 1)
    if "proxy" in one.modifiers:
        transfer.fence(writer, one, found, scope)
        return
    writer.emit("fence", imm=scope)
