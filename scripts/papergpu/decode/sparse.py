"""Products of a warp whose matrix a is sparse: `mma.sp`, beside all other `mma`."""

from __future__ import annotations

from papergpu.decode import matrix
from papergpu.decode.matrix import Product, fragment, registers_of, sums
from papergpu.decode.rules import rule
from papergpu.forms import Matched
from papergpu.program import SYNC
from papergpu.tree import Instruction
from papergpu.writer import Writer


@rule("mma")
def mma(writer: Writer, one: Instruction, found: Matched) -> None:
    if "v" not in found.slots:
        matrix.mma(writer, one, found)
        return
    slots = found.slots
    m, n, k = shape = matrix.shape_of(found)
    d, a, b, c = (slots[name] for name in "dabc")
    what = Product(shape, d, a, b, c, matrix.options(slots))
    matrix.alike(writer, a, b)
    if d != c:
        raise writer.refuse(f"its sums are {c}, and its result is {d}: both are of one type")
    what.flags |= matrix.selector(writer, one.operands[5], a, k)
    what.flags |= matrix.ORDERED if slots["v"] == "sp::ordered_metadata" else 0
    targets = sums(writer, one.operands[0], d, registers_of(d, m, n))
    given = [
        *fragment(writer, one.operands[1], a, registers_of(a, m, k // 2), "a"),
        *fragment(writer, one.operands[2], b, registers_of(b, k, n), "b"),
        *fragment(writer, one.operands[3], c, registers_of(c, m, n), "c"),
        writer.source(one.operands[4], "b32"),
    ]
    kind = matrix.handler_of(a).removeprefix("mma.")
    writer.emit(f"mma.sparse.{kind}", SYNC, writes=targets, reads=given, e=matrix.whole(writer),
                imm=what.imm, flags=what.said)  # fmt: skip
