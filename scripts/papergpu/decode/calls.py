"""Calls of the functions that every CUDA program has and that have no body in PTX."""

from __future__ import annotations

from collections.abc import Sequence

from papergpu.program import LOCAL, LONG, NONE, WORD
from papergpu.steps import Register
from papergpu.tree import Name, Operand
from papergpu.variables import HEAP
from papergpu.writer import Writer

WIDTHS = {"vprintf": (8, 8), "__assertfail": (8, 8, 4, 8, 8), "malloc": (8,), "free": (8,)}
LAUNCHES = ("cudaLaunchDevice", "cudaGetParameterBuffer", "cudaDeviceSynchronize", "__cudaCDP",
            "cudaCDP")  # fmt: skip


def built_in(
    writer: Writer, name: str, results: Sequence[Operand], given: Sequence[Operand]
) -> bool:
    """Take down a call of one of them; false if it is none."""
    if name.startswith(LAUNCHES):
        raise writer.refuse(f"{name}: a kernel that launches kernels is not executed")
    if name not in WIDTHS:
        return False
    widths = WIDTHS[name]
    if len(given) != len(widths):
        raise writer.refuse(f"{name} takes {len(widths)} operands, and has {len(given)}")
    values = [_passed(writer, one, width) for one, width in zip(given, widths, strict=True)]
    if name == "vprintf":
        made = writer.temporary()
        writer.emit("printf", d=made, a=values[0], b=values[1])
        _returned(writer, results, made)
    elif name == "__assertfail":
        message, file, line, function, _ = values
        writer.emit("assertfail", a=message, b=file, c=line, e=function)
    elif name == "malloc":
        made = writer.temporary(LONG)
        writer.emit("heap.take", d=made, a=values[0], b=_heap(writer))
        _returned(writer, results, made)
    else:
        writer.emit("heap.give", a=values[0], b=_heap(writer))
    return True


def _heap(writer: Writer) -> Register:
    symbol = writer.symbol(HEAP)
    if symbol is None:
        raise writer.refuse("this module declares no malloc")
    return writer.address_of(symbol, 0, LONG)


def _at(writer: Writer, operand: Operand) -> int:
    """The byte of local memory where a parameter of a call stands."""
    symbol = writer.symbol(operand.text) if isinstance(operand, Name) else None
    if symbol is None or symbol.space != LOCAL:
        raise writer.refuse(f"{operand} is no parameter that can be passed")
    return symbol.at


def _passed(writer: Writer, operand: Operand, width: int) -> Register:
    if isinstance(operand, Name):
        register = writer.register(operand.text)
        if register is not None:
            return register
    made = writer.temporary(LONG if width == 8 else WORD)
    name = "ld.u64_64" if width == 8 else "ld.u32_32"
    writer.emit(name, writes=[made], imm=_at(writer, operand), base=NONE, space=LOCAL)
    return made


def _returned(writer: Writer, results: Sequence[Operand], made: Register) -> None:
    if not results:
        return
    name = "st.u64_64" if made.width == LONG else "st.u32_32"
    writer.emit(name, reads=[made], imm=_at(writer, results[0]), base=NONE, space=LOCAL)
