"""Control codes: what the assembler tells the scheduler about each machine instruction.

Since Volta an instruction has 128 bits, of which bits 105 to 125 say how it is issued: how many
cycles the warp stalls after it, whether it is better to go on with another warp, which of six
scoreboards its result (write) or its operands (read) hold until they are done with, on which it
waits before it starts, and which operands are kept for the next instruction.
Source: arXiv 1903.07486, section 2.1; the notation is CuAssembler's, `B0-----:R-:W2:Y:S04`.
"""

from __future__ import annotations

from dataclasses import dataclass

SHIFT, MASK = 41, (1 << 21) - 1  # of the upper 64 bits
NONE = 7  # stands for no scoreboard
BARRIERS = 6


@dataclass(frozen=True)
class Control:
    """A control code, read. `stall` is in cycles; scoreboards are numbered from 0 to 5.

    `writes` is set until the result is there, `reads` until the operands were read; None is none.
    `reuses` has a bit for each operand that is kept.
    """

    stall: int
    yields: bool
    writes: int | None
    reads: int | None
    waits: tuple[int, ...]
    reuses: int

    def __str__(self) -> str:
        waits = "".join(str(one) if one in self.waits else "-" for one in range(BARRIERS))
        read = "-" if self.reads is None else str(self.reads)
        write = "-" if self.writes is None else str(self.writes)
        turn = "Y" if self.yields else "-"
        return f"B{waits}:R{read}:W{write}:{turn}:S{self.stall:02}"


def code_of(upper: int) -> int:
    """The control code, a number of 21 bits, of an instruction's upper 64 bits."""
    return upper >> SHIFT & MASK


def control(code: int) -> Control:
    """A control code, read: from the low bits stall, yield, write, read, waits, reuse."""
    write, read, waits = code >> 5 & 7, code >> 8 & 7, code >> 11 & 63
    return Control(
        stall=code & 15,
        yields=not code >> 4 & 1,  # the bit is set to stay with this warp
        writes=None if write == NONE else write,
        reads=None if read == NONE else read,
        waits=tuple(one for one in range(BARRIERS) if waits >> one & 1),
        reuses=code >> 17 & 15,
    )
