"""Which loads and stores of PTX the assembler may have made into one, from the machine code.

An access that stands in machine code once for each copy of its block is not merged, and as wide as
it is there. Any other may be part of the widest access of its kind. How many copies there are (the
assembler unrolls loops) is seen at instructions that run as often and become one each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from warpshelf.look.work import MERGED, Row, space_of, width_of

# Machine instructions for the spaces of PTX; a generic address may have been found to be in either.
LOADS = {"shared": ("LDS", "LD"), "global": ("LDG", "LD"), "": ("LD", "LDS", "LDG")}
STORES = {"shared": ("STS", "ST"), "global": ("STG", "ST"), "": ("ST", "STS", "STG")}
ACCESSES = frozenset(("LD", "LDS", "LDG", "ST", "STS", "STG"))
# What one instruction of PTX becomes one of, in each copy.
SINGLE = ACCESSES | {"FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "SHFL", "HMMA"}
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


def with_widths(rows: Iterable[Row], code: Iterable[tuple[int, str]]) -> list[Row]:
    """Rows with their `width`, by machine code made from the same PTX.

    `rows` have their lines of PTX, and `executed` in their tallies. `code` are machine
    instructions, each the line of PTX that the assembler says it made it from, and its opcode with
    modifiers (`LDS.128`).
    """
    copies: dict[int, int] = defaultdict(int)
    own: dict[int, int] = defaultdict(int)  # the widest access made from a line
    widest: dict[str, int] = defaultdict(int)  # of any line, by its name
    for line, opcode in code:
        name = opcode.partition(".")[0]
        copies[line] += name in SINGLE
        if name in ACCESSES:
            width = machine_width(opcode)
            own[line] = max(own[line], width)
            widest[name] = max(widest[name], width)
    known = list(rows)
    most: dict[int, int] = defaultdict(int)
    for row in known:
        run = row.tally.get("executed", 0)
        most[run] = max(most[run], copies[row.line])
    found = []
    for row in known:
        opcode, *modifiers = row.form.split(".")
        if opcode in MERGED:
            width = own[row.line]
            if not width or copies[row.line] < most[row.tally.get("executed", 0)]:
                names = (STORES if opcode == "st" else LOADS).get(space_of(modifiers), ())
                width = max((widest[name] for name in names), default=0)
                # With none wider to be part of, what lacks a copy was not merged but taken out.
                width = width if width > width_of(modifiers) else -1
            row = replace(row, width=width)
        found.append(row)
    return found


def machine_width(opcode: str) -> int:
    """Bytes of a lane that a load or store of machine code moves: 16 of `LDG.E.128`."""
    return next((WIDTHS[one] for one in opcode.split(".") if one in WIDTHS), 4)
