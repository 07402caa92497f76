"""What the lanes of a warp do together."""

from __future__ import annotations

from papergpu.decode.rules import rule
from papergpu.forms import Matched
from papergpu.program import SYNC
from papergpu.steps import Register, bits
from papergpu.tree import Instruction, Name, Operand, Vector
from papergpu.writer import Writer


def _pair(writer: Writer, operand: Operand) -> tuple[Register | None, Register | None]:
    """`d|p`, each of them there unless it is `_`."""
    parts = operand.items if isinstance(operand, Vector) else (operand,)
    found = [
        None if isinstance(part, Name) and part.text == "_" else writer.target(part)
        for part in parts
    ]
    return found[0], found[1] if len(found) > 1 else None


@rule("shfl")
def shfl(writer: Writer, one: Instruction, found: Matched) -> None:
    target, inside = _pair(writer, one.operands[0])
    a, b, c, mask = (writer.source(part, "b32") for part in one.operands[1:5])
    writer.emit(f"shfl.{found.slots['m']}", SYNC, d=target, a=a, b=b, c=c, e=mask, list=inside,
                count=int(inside is not None))  # fmt: skip


@rule("vote")
def vote(writer: Writer, one: Instruction, found: Matched) -> None:
    predicate, negated = writer.predicate(one.operands[1])
    writer.emit(f"vote.{found.slots['m']}", SYNC, d=writer.target(one.operands[0]), a=predicate,
                e=writer.source(one.operands[2], "b32"), imm=int(negated))  # fmt: skip


@rule("activemask")
def activemask(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("activemask", d=writer.target(one.operands[0]))


@rule("elect")
def elect(writer: Writer, one: Instruction, found: Matched) -> None:
    target, chosen = _pair(writer, one.operands[0])
    if chosen is None:
        raise writer.refuse("it has no predicate")
    writer.emit("elect", SYNC, d=target, e=writer.source(one.operands[1], "b32"), list=chosen,
                count=1)  # fmt: skip


@rule("redux")
def redux(writer: Writer, one: Instruction, found: Matched) -> None:
    kind, what = found.slots["t"], found.slots["m"]
    shown = "u32" if what in ("add", "and", "or", "xor") else kind
    flags = (1 if "NaN" in found.slots else 0) | (2 if "abs" in found.slots else 0)
    writer.emit(f"redux.{what}.{shown}", SYNC, d=writer.target(one.operands[0]),
                a=writer.source(one.operands[1], kind), flags=flags,
                e=writer.source(one.operands[2], "b32"))  # fmt: skip


@rule("match")
def match(writer: Writer, one: Instruction, found: Matched) -> None:
    target, same = _pair(writer, one.operands[0])
    if target is None:
        raise writer.refuse("it has no result")
    writer.emit(f"match.{found.slots['m']}.b{bits(found.slots['t'])}", SYNC, d=target,
                a=writer.source(one.operands[1], found.slots["t"]),
                e=writer.source(one.operands[2], "b32"), list=same,
                count=int(same is not None))  # fmt: skip
