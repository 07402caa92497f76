"""Branches, calls of what has no body, barriers, and the end."""

from __future__ import annotations

from papergpu.decode.rules import rule
from papergpu.forms import Matched
from papergpu.program import BARRIER, BRANCH, CLUSTER, EXIT, LONG, SYNC, TABLE
from papergpu.steps import Register
from papergpu.tree import Instruction, Name, Operand
from papergpu.writer import Writer


@rule("bra")
def bra(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("", BRANCH, imm=writer.label(_name(writer, one.operands[0])))


@rule("brx")
def brx(writer: Writer, one: Instruction, found: Matched) -> None:
    table = _name(writer, one.operands[1])
    for scope in reversed(writer.scopes):
        if table in scope.tables:
            labels = [writer.label(name) for name in scope.tables[table]]
            writer.emit("", TABLE, a=writer.source(one.operands[0], "u32"), items=labels)
            return
    raise writer.refuse(f"there is no table {table}")


@rule("ret")
def ret(writer: Writer, one: Instruction, found: Matched) -> None:
    if writer.ends:
        writer.emit("", BRANCH, imm=writer.ends[-1])
    else:
        writer.emit("", EXIT)


@rule("exit")
def exit_(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("", EXIT)


@rule("trap", "brkpt")
def trap(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("trap")


@rule("nanosleep", "pmevent")
def nanosleep(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("yield")


@rule("setmaxnreg", "discard", "applypriority", "prefetch", "prefetchu")
def nothing(writer: Writer, one: Instruction, found: Matched) -> None:
    """It changes how quickly something goes, not what comes out."""
    writer.emit("nop")


@rule("createpolicy")
def createpolicy(writer: Writer, one: Instruction, found: Matched) -> None:
    """What a cache shall keep: caches have no say in results, so any policy is 0."""
    target = writer.target(one.operands[0], "b64")
    writer.emit("mov.u64", d=target, a=writer.constant(0, LONG))


@rule("griddepcontrol")
def griddepcontrol(writer: Writer, one: Instruction, found: Matched) -> None:
    """Launches run one after the other: what this one waits for has ended."""
    writer.emit("nop")


@rule("bar", "barrier")
def bar(writer: Writer, one: Instruction, found: Matched) -> None:
    words = set(one.modifiers)
    if "cluster" in words:
        flags = (1 if "arrive" in words else 0) | (2 if "wait" in words else 0)
        flags |= 4 if "aligned" in words else 0
        writer.emit("", CLUSTER, flags=flags)
        return
    if "warp" in words:
        writer.emit("bar.warp", SYNC, e=writer.source(one.operands[0], "b32"))
        return
    aligned = one.opcode == "bar" or "aligned" in words
    flags = (1 if aligned else 0) | (2 if "arrive" in words else 0)
    operands = list(one.operands)
    target: Register | None = None
    predicate: Register | None = None
    if "red" in words:
        kind = next(i for i, name in enumerate(("popc", "and", "or"), 1) if name in words)
        flags |= kind << 2
        target = writer.target(operands.pop(0))
        predicate, negated = writer.predicate(operands.pop())
        flags |= 32 if negated else 0
    number = writer.source(operands[0], "u32")
    count = writer.source(operands[1], "u32") if len(operands) > 1 else None
    flags |= 16 if count is not None else 0
    step = writer.emit("", BARRIER, d=target, a=number, b=count, c=predicate, flags=flags)
    if target is not None:
        step.reads += (target,)


def _name(writer: Writer, operand: Operand) -> str:
    if not isinstance(operand, Name):
        raise writer.refuse(f"{operand} is no label")
    return operand.text
