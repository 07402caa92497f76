"""Copies of what `tcgen05.ld` brings, put where its values are there.

The wait is an instruction of its own, and LLVM does not know that it is what delivers the
registers: it may move a plain copy of them before it. ptxas puts that right by tracking the
registers; here the copies are moved behind the wait. Whatever else reads them too early still reads
nonsense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from papergpu.tree import Address, Instruction, Name, Operand, Opposite, Variable, Vector

T = TypeVar("T")
LOAD = "tcgen05.ld"
CONTROL = ("bra", "brx", "ret", "exit", "call", "bar", "barrier")


def _names(operands: Iterable[Operand]) -> Iterator[str]:
    """The registers and symbols that operands name."""
    for one in operands:
        if isinstance(one, Name):
            yield one.text
        elif isinstance(one, Vector):
            yield from _names(one.items)
        elif isinstance(one, Opposite):
            yield from _names((one.operand,))
        elif isinstance(one, Address):
            yield from _names((one.base, *one.more))


def awaited(items: Sequence[T]) -> list[T]:
    """The items of a block, with copies of loaded registers behind the wait for them."""
    if not any(isinstance(one, Instruction) and one.form.startswith(LOAD) for one in items):
        return [*items]
    found: list[T] = []
    held: list[T] = []
    loaded: set[str] = set()  # registers that are on their way, and copies of them
    kept: set[str] = set()  # what the copies that are held back name

    def let_go() -> None:
        found.extend(held)
        held.clear()
        loaded.clear()
        kept.clear()

    for item in items:
        if not isinstance(item, Instruction):
            if loaded and not isinstance(item, Variable):
                let_go()
            found.append(item)
            continue
        named = set(_names(item.operands))
        kind = item.modifiers[0] if item.opcode == "tcgen05" and item.modifiers else ""
        if kind == "wait::ld":
            found.append(item)
            let_go()
        elif kind == "ld":
            if kept & named:
                let_go()
            found.append(item)
            loaded |= set(_names(item.operands[:1]))
        elif loaded and item.opcode == "mov" and not item.guard and loaded & named:
            held.append(item)
            loaded |= set(_names(item.operands[:1]))
            kept |= named
        else:
            if kept & named or (loaded and item.opcode in CONTROL):
                let_go()
            found.append(item)
    let_go()
    return found
