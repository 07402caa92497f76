"""Matrices between shared memory and registers: `ldmatrix`, `stmatrix`, `movmatrix`."""

from __future__ import annotations

from papergpu.decode.matrix import fragment, sums, whole
from papergpu.decode.rules import rule
from papergpu.forms import Matched
from papergpu.program import GENERIC, SHARED, SYNC
from papergpu.steps import Fields, space_of
from papergpu.tree import Instruction, Operand
from papergpu.writer import Writer

# Flags of the handlers in core/matrix_move.cpp.
TRANSPOSED, BYTES, NARROW_AT = 1, 2, 8
NARROW = {"b6x16_p32": 6, "b4x16_p64": 4}


def flags_of(found: Matched) -> int:
    """How a matrix is moved."""
    flags = TRANSPOSED if "trans" in found.slots else 0
    flags |= BYTES if found.slots["s"] != "m8n8" else 0
    return flags | NARROW.get(found.slots.get("f", ""), 0) << NARROW_AT


def where(writer: Writer, found: Matched, memory: Operand) -> Fields:
    """The fields of where its rows lie, which is shared memory."""
    fields = writer.address(memory, space_of(found.slots.get("ss", "")))
    if fields["space"] not in (SHARED, GENERIC):
        raise writer.refuse("its matrices lie in shared memory only")
    return fields


@rule("ldmatrix")
def ldmatrix(writer: Writer, one: Instruction, found: Matched) -> None:
    """Matrices of rows of 16 bytes, each row where a lane says; of 16 rows two registers."""
    count = int(found.slots["n"][1:]) * (2 if found.slots["s"] == "m16n16" else 1)
    targets = sums(writer, one.operands[0], "b32", count)
    flags, fields = flags_of(found), where(writer, found, one.operands[1])
    name = "ldmatrix.bytes" if flags & BYTES else "ldmatrix"
    writer.emit(name, SYNC, writes=targets, flags=flags, e=whole(writer), **fields)


@rule("stmatrix")
def stmatrix(writer: Writer, one: Instruction, found: Matched) -> None:
    given = fragment(writer, one.operands[1], "b32", int(found.slots["n"][1:]), "its matrix")
    fields = where(writer, found, one.operands[0])
    writer.emit("stmatrix", SYNC, reads=given, flags=flags_of(found), e=whole(writer), **fields)


@rule("movmatrix")
def movmatrix(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("movmatrix", SYNC, d=writer.target(one.operands[0]),
                a=writer.source(one.operands[1], "b32"), e=whole(writer))  # fmt: skip
