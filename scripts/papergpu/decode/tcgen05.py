"""Tensor memory and the tensor cores of sm_100."""

from __future__ import annotations

from papergpu.forms import Matched
from papergpu.ir import Register
from papergpu.program import GENERIC, LONG, NARROW, RETRY, SHARED, SYNC, WIDE, WORD
from papergpu.syntax_tree import Address, Instruction, Integer, Name, Operand
from papergpu.writer import Writer, register_rule

SHAPES = {"32x32b": 0, "16x64b": 1, "16x128b": 2, "16x256b": 3, "16x32bx2": 4}
EACH = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}  # registers of x1
COPIES = {"128x256b": 0, "4x256b": 1, "128x128b": 2, "warpx2::02_13": 3, "warpx2::01_23": 4,
          "warpx4": 5}  # fmt: skip
KINDS = {"kind::f16": 0, "kind::tf32": 1, "kind::f8f6f4": 2, "kind::i8": 3, "kind::mxf8f6f4": 4,
         "kind::mxf4": 5, "kind::mxf4nvf4": 6}  # fmt: skip
# How many scale factors a row has within one instruction, of those that are allowed, by kind.
SCALES = {
    "kind::mxf8f6f4": {"": 1, "scale_vec::1X": 1, "block32": 1},
    "kind::mxf4": {"": 2, "scale_vec::2X": 2, "block32": 2},
    "kind::mxf4nvf4": {"scale_vec::2X": 2, "scale_vec::4X": 4, "block32": 2, "block16": 4},
}


@register_rule("tcgen05")
def decode_tcgen05(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.tensor = True
    name = one.modifiers[0].partition("::")[0]
    if name == "mma":
        _decode_mma(writer, one, found)
    elif name in ("ld", "st"):
        _decode_move(writer, one, found, name)
    elif name == "wait":
        _sync_warp(writer)
        writer.emit(f"tcgen05.wait.{one.modifiers[0].partition('::')[2]}")
    elif name == "alloc":
        _decode_alloc(writer, one, found)
    elif name == "dealloc":
        _sync_warp(writer)
        writer.emit("tcgen05.dealloc", a=writer.source(one.operands[0], "b32"),
                    b=writer.source(one.operands[1], "u32"), flags=_cta_group(found))  # fmt: skip
    elif name == "relinquish_alloc_permit":
        _sync_warp(writer)
        writer.emit("tcgen05.relinquish", flags=_cta_group(found))
    elif name == "cp":
        shape = found.slots.get("w", found.slots["shape"])
        writer.emit("tcgen05.cp", a=_tensor_address(writer, one.operands[0]),
                    b=writer.source(one.operands[1], "b64"),
                    flags=_cta_group(found) | COPIES[shape] << 4)  # fmt: skip
    elif name == "commit":
        _decode_commit(writer, one, found)
    else:
        # Threads of one block see each other's tensor memory in the order of their barriers here.
        writer.emit("nop")


def _cta_group(found: Matched) -> int:
    return int(found.slots["g"][-1])


def _sync_warp(writer: Writer) -> None:
    """All lanes of the warp do what follows together."""
    writer.emit("bar.warp", SYNC, e=writer.constant(0xFFFFFFFF, WORD))


def _tensor_address(writer: Writer, operand: Operand) -> Register:
    """The address `[base + offset]` of tensor memory: lane << 16 | column."""
    base = operand.base if isinstance(operand, Address) else operand
    if isinstance(base, Integer):
        return writer.constant(base.value, WORD)
    if isinstance(base, Name):
        register = writer.find_register(base.text)
        if register is not None and register.width == WORD:
            if not base.offset:
                return register
            made = writer.temporary()
            writer.emit("add.u32", d=made, a=register, b=writer.constant(base.offset, WORD))
            return made
    raise writer.refuse(f"{operand} is not a tensor memory address")


def _decode_alloc(writer: Writer, one: Instruction, found: Matched) -> None:
    space = SHARED if "s" in found.slots else GENERIC
    to = writer.pointer(one.operands[0], space)
    _sync_warp(writer)
    writer.emit("tcgen05.alloc", RETRY, a=to, b=writer.source(one.operands[1], "u32"),
                base=WIDE if to.width == LONG else NARROW, flags=_cta_group(found))  # fmt: skip


def _shape_flags(writer: Writer, found: Matched, count: int) -> int:
    shape = found.slots["shape"]
    wanted = int(found.slots["n"][1:]) * EACH[shape]
    if count != wanted or wanted > 128:
        raise writer.refuse(f"it has {count} registers, but its shape needs {wanted}, at most 128")
    return SHAPES[shape] | (16 if "pack" in found.slots else 0)


def _decode_move(writer: Writer, one: Instruction, found: Matched, name: str) -> None:
    """`ld` or `st`: registers and an address, or an address and registers, half behind it."""
    loads = name == "ld"
    moved, operands = (one.operands[0], one.operands[1:]) if loads else (
        one.operands[-1], one.operands[:-1])  # fmt: skip
    parts = writer.vector_items(moved)
    registers = [writer.target(part) if loads else writer.source(part, "b32") for part in parts]
    flags = _shape_flags(writer, found, len(registers))
    half = writer.constant_value(operands[1]) if flags & 15 == SHAPES["16x32bx2"] else 0
    for register in registers if loads else ():
        register.keep = True
    writer.emit(f"tcgen05.{name}", SYNC, a=_tensor_address(writer, operands[0]),
                writes=registers if loads else (), reads=() if loads else registers, imm=half,
                flags=flags, e=writer.constant(0xFFFFFFFF, WORD))  # fmt: skip


def _decode_commit(writer: Writer, one: Instruction, found: Matched) -> None:
    at = writer.pointer(one.operands[0], SHARED if "s" in found.slots else GENERIC)
    mask = writer.source(one.operands[1], "u16") if "m" in found.slots else None
    if (mask is None) != (len(one.operands) == 1):
        raise writer.refuse("it has a mask of blocks without .multicast::cluster")
    writer.emit("tcgen05.commit", a=at, b=mask, base=WIDE if at.width == LONG else NARROW,
                flags=_cta_group(found) | (4 if mask is not None else 0))  # fmt: skip


def _decode_mma(writer: Writer, one: Instruction, found: Matched) -> None:
    kind = found.slots["kind"]
    group = _cta_group(found)
    operands = list(one.operands)
    target, first, second, descriptor = operands[:4]
    del operands[:4]
    in_tensor = isinstance(first, Address)
    a = _tensor_address(writer, first) if in_tensor else writer.source(first, "b64")
    reads = [_tensor_address(writer, target)]
    weights = "ws" in found.slots
    scales = 0
    if "block_scale" in found.slots:
        size = found.slots.get("v", "")
        if size not in SCALES[kind]:
            raise writer.refuse(f"{kind} is not supported with {size or 'no size of its scales'}")
        scales = SCALES[kind][size]
        reads += [
            _tensor_address(writer, operands.pop(0)),
            _tensor_address(writer, operands.pop(0)),
        ]
    mask = operands.pop(0) if operands and not isinstance(operands[0], Name | Integer) else None
    enabled = writer.plain_predicate(operands.pop(0))
    scale = 0
    if weights:
        if operands:
            reads.append(writer.source(operands.pop(0), "b64"))
    elif operands:
        scale = writer.constant_value(operands.pop(0))
        if kind not in ("kind::f16", "kind::tf32") or not 0 <= scale <= 15:
            raise writer.refuse(f"{kind} is not supported with scale-input-d {scale}")
    if operands:
        raise writer.refuse("it has more operands than are supported")
    if mask is not None:
        lanes = [writer.source(part, "b32") for part in writer.vector_items(mask)]
        if weights or scales or len(lanes) != 4 * group:
            raise writer.refuse(f"a mask of {len(lanes)} registers is not supported here")
        reads += lanes
    flags = (group | int(in_tensor) << 2 | int(weights) << 3 | KINDS[kind] << 4 | scales << 8
             | int(mask is not None) << 12 | scale << 16)  # fmt: skip
    b, c = writer.source(second, "b64"), writer.source(descriptor, "b32")
    writer.emit("tcgen05.mma", a=a, b=b, c=c, e=enabled, reads=reads, flags=flags)
