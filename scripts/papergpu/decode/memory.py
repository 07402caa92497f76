"""Loads, stores, atomics, and addresses between spaces."""

from __future__ import annotations

from papergpu.decode import async_copies
from papergpu.forms import Matched, type_bits
from papergpu.ir import parse_space
from papergpu.program import CONST, GENERIC, GLOBAL, LOCAL, LONG, NONE, PARAM, SHARED, WORD
from papergpu.syntax_tree import Instruction
from papergpu.writer import Writer, register_rule

ORDERS = {"relaxed": 0, "acquire": 1, "release": 2, "acq_rel": 3}


def _address_space(found: Matched) -> int:
    return parse_space(found.slots.get("s", ""))


def _scope_flag(one: Instruction) -> int:
    """8 if what is ordered is so among the threads of a block alone."""
    return 8 if "cta" in one.modifiers else 0


@register_rule("ld", "ldu")
def decode_ld(writer: Writer, one: Instruction, found: Matched) -> None:
    kind = found.slots["t"]
    fields = writer.address(one.operands[1], _address_space(found))
    targets = [writer.target(part, kind) for part in writer.vector_items(one.operands[0])]
    size = type_bits(kind)
    order = found.slots.get("o", "")
    flags = (2 if order == "acquire" else 0) | (4 if order and order != "weak" else 0)
    flags |= _scope_flag(one)
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


@register_rule("st")
def decode_st(writer: Writer, one: Instruction, found: Matched) -> None:
    if "async" in one.modifiers or "bulk" in one.modifiers:
        async_copies.decode_async_store(writer, one, found)
        return
    kind = found.slots["t"]
    fields = writer.address(one.operands[0], _address_space(found))
    size = type_bits(kind)
    given = [writer.source(part, kind) for part in writer.vector_items(one.operands[1])]
    order = found.slots.get("o", "")
    flags = (2 if order == "release" else 0) | (4 if order and order != "weak" else 0)
    flags |= _scope_flag(one)
    if size == 128:
        writer.emit("st.b128", reads=given, flags=flags, **fields)
        return
    # A constant takes the width of what stands beside it.
    wide = any(part.width == LONG for part in given)
    if wide:
        given = [part if part.width == LONG else writer.widen_register(part) for part in given]
    space = fields["space"]
    writer.note_access(space, size // 8)
    writer.emit(f"st.u{size}_{64 if wide else 32}", reads=given, flags=flags, **fields)


@register_rule("atom", "red")
def decode_atom(writer: Writer, one: Instruction, found: Matched) -> None:
    if "async" in one.modifiers:
        async_copies.decode_async_store(writer, one, found)
        return
    kind, operation = found.slots["t"], found.slots["a"]
    operands = list(one.operands)
    targets = [] if one.opcode == "red" else [
        writer.target(part, kind) for part in writer.vector_items(operands.pop(0))]  # fmt: skip
    fields = writer.address(operands[0], _address_space(found))
    values = [writer.source(part, kind) for part in writer.vector_items(operands[1])]
    order = found.slots.get("o") or found.slots.get("o2") or "relaxed"
    flags = ORDERS[order]
    if operation in ("cas", "exch") or flags:
        flags |= 4
    flags |= _scope_flag(one)
    space = fields["space"]
    writer.note_access(space, type_bits(kind) // 8)
    shown = kind
    if operation in ("min", "max", "inc", "dec"):
        shown = f"{'s' if kind[0] == 's' else 'u'}{type_bits(kind)}"
    elif kind[0] in "us" or (kind[0] == "b" and not kind.startswith("bf")):
        shown = f"b{type_bits(kind)}"
    offset = fields["imm"]
    for number, value in enumerate(values):
        target = targets[number] if targets else None
        compared = writer.source(operands[2], kind) if operation == "cas" else None
        fields["imm"] = offset + number * type_bits(kind) // 8
        writer.emit(f"atom.{operation}.{shown}", d=target, b=value, c=compared, flags=flags,
                    **fields)  # fmt: skip


@register_rule("cvta")
def decode_cvta(writer: Writer, one: Instruction, found: Matched) -> None:
    space = parse_space(found.slots.get("s", "global"))
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


@register_rule("isspacep")
def decode_isspacep(writer: Writer, one: Instruction, found: Matched) -> None:
    name = found.slots["s"].partition("::")[0]
    items = _constant_ranges(writer) if name in ("const", "global") else ()
    writer.emit(f"isspacep.{name}", d=writer.target(one.operands[0]),
                a=writer.source(one.operands[1], "u64"), items=items)  # fmt: skip


def _constant_ranges(writer: Writer) -> list[int]:
    """Where each constant of the module begins and ends: up to the next variable."""
    variables = [one for one in writer.scopes[0].symbols.values() if one.space in (GLOBAL, CONST)]
    starts = sorted(one.at for one in variables)
    ends = dict(zip(starts, [*starts[1:], (1 << 32) - 1], strict=True))
    return [at for one in variables if one.space == CONST for at in (one.at, ends[one.at])]


@register_rule("mapa")
def decode_mapa(writer: Writer, one: Instruction, found: Matched) -> None:
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


@register_rule("getctarank")
def decode_getctarank(writer: Writer, one: Instruction, found: Matched) -> None:
    target, kind = writer.target(one.operands[0], "u32"), found.slots["t"]
    if "shared::cluster" in found.slots:
        source = writer.narrow_source(one.operands[1], "u32")
        writer.emit("getctarank.shared", d=target, a=source)
    else:
        writer.emit("getctarank.generic", d=target, a=writer.source(one.operands[1], kind))


@register_rule("fence", "membar")
def decode_fence(writer: Writer, one: Instruction, found: Matched) -> None:
    scopes = {"cta": 1, "cluster": 2, "gpu": 3, "gl": 3, "sys": 3}
    scope = next((scopes[word] for word in one.modifiers if word in scopes), 1)
    if "proxy" in one.modifiers:
        async_copies.decode_proxy_fence(writer, one, found, scope)
        return
    writer.emit("fence", imm=scope)
