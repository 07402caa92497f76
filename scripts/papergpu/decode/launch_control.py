"""Clusters that have not begun, taken back by those that run."""

from __future__ import annotations

from papergpu.decode.rules import rule
from papergpu.forms import Matched
from papergpu.program import GENERIC, SHARED
from papergpu.tree import Instruction, Name
from papergpu.writer import Writer

DIMENSIONS = "xyz"


@rule("clusterlaunchcontrol")
def clusterlaunchcontrol(writer: Writer, one: Instruction, found: Matched) -> None:
    if one.modifiers[0] == "try_cancel":
        space = SHARED if "s" in found.slots else GENERIC
        flags = (0 if space == SHARED else 1) | (2 if "m" in found.slots else 0)
        writer.emit("clc.try", a=writer.pointer(one.operands[0], space),
                    b=writer.pointer(one.operands[1], space), flags=flags)  # fmt: skip
        return
    answer = writer.source(one.operands[1], "b128")
    what = one.modifiers[1]
    if what == "is_canceled":
        writer.emit("clc.canceled", d=writer.target(one.operands[0], "pred"), a=answer)
        return
    parts = writer.vector(one.operands[0])
    numbers = range(len(parts)) if len(parts) > 1 else [DIMENSIONS.index(what[-1])]
    for number, part in zip(numbers, parts, strict=True):
        if number < len(DIMENSIONS) and not (isinstance(part, Name) and part.text == "_"):
            writer.emit("clc.ctaid", d=writer.target(part), a=answer, imm=number)
