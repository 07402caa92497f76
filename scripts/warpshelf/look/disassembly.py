"""Machine code as nvdisasm reads it: instructions, where they came from, what is live at them."""

from __future__ import annotations

import re
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from warpshelf.look import binary, elf
from warpshelf.look.control import code_of

ADDRESS = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*(?:/\*|//|$)")
UPPER = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/\s*(?://\s*\|\s*(\d*).*)?$")
LABEL = re.compile(r"^([.$\w]+):\s*(?://.*)?$")
TARGET = re.compile(r"`\(([^)]+)\)")
BYTES = 16  # of an instruction
FIRST = "/*0000*/"  # stands before the first one


@dataclass(frozen=True)
class Instruction:
    """One machine instruction: `text` as it is read, such as `@!P0 LDG.E R2, [R4.64]`.

    `ptx` is the line of PTX, from 1, that the assembler made it from, 0 where it does not say;
    `live` the registers of a thread that hold a value at it; `control` its control code.
    """

    text: str
    ptx: int
    live: int
    control: int

    @property
    def opcode(self) -> str:
        """Its name with all modifiers: `LDG.E.128`."""
        words = self.text.split(None, 2)
        return words[1] if words[0].startswith("@") else words[0]

    @property
    def guarded(self) -> bool:
        """Whether a predicate decides if it is done; one that is always true does not."""
        return self.text.startswith("@") and not self.text.startswith("@!UPT")

    @property
    def target(self) -> str | None:
        """The label that it names, if any."""
        found = TARGET.search(self.text)
        return found[1] if found else None


@dataclass(frozen=True)
class Code:
    """The machine code of one kernel; `labels` name the instruction that they stand in front of."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]


def disassembled(cubin: bytes, symbol: str) -> Code:
    """The machine code of the kernel `symbol`, without the padding behind it.

    Raises:
        RuntimeError: no nvdisasm reads it, with what each one said.
        ValueError: the binary has no such kernel.
    """
    cubin = elf.countable(elf.readable(cubin))
    # Its start takes half a second, so it is asked once, and where lines come from is read here.
    options = ("-c", "-fun", str(elf.number(cubin, symbol)), "-hex", "-lrm", "count")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = binary.said("nvdisasm", options, file.name, FIRST)
    return read(text, elf.lines(cubin, symbol))


def read(text: str, lines: Sequence[tuple[int, int]] = ()) -> Code:
    """Code from what nvdisasm prints with `-hex -lrm count`.

    `lines` are addresses, and the line of PTX from there on.

    Raises:
        ValueError: an instruction lacks its encoding, or what is live at it.
    """
    live: list[int | None] = []
    found: list[tuple[str, int]] = []  # text, line of PTX
    uppers: list[int] = []
    labels: dict[str, int] = {}
    origin, coming = 0, deque(sorted(lines, key=lambda one: one[0]))
    for line in text.splitlines():
        if match := ADDRESS.match(line):
            if int(match[1], 16) != BYTES * len(found):
                break  # the code of another section
            while coming and coming[0][0] <= BYTES * len(found):
                origin = coming.popleft()[1]
            found.append((match[2].rstrip(" ;"), origin))
        elif match := UPPER.match(line):
            uppers.append(int(match[1], 16))
            live.append(int(match[2] or 0) if match[2] is not None else None)
        elif match := LABEL.match(line):
            labels.setdefault(match[1], len(found))
    if len(uppers) < len(found):
        raise ValueError(f"nvdisasm printed {len(found)} instructions, {len(uppers)} encodings")
    made = [
        Instruction(re.sub(r"\s+", " ", one), ptx, live[at] or 0, code_of(uppers[at]))
        for at, (one, ptx) in enumerate(found)
    ]
    end = _padded(made, labels)
    if missing := next((at for at in range(end) if live[at] is None), None):
        raise ValueError(f"nvdisasm does not say what is live at {BYTES * missing:#x}")
    kept = {name: at for name, at in labels.items() if at < end}
    named = {one.target for one in made[:end]}
    return Code(tuple(made[:end]), {name: at for name, at in kept.items() if name in named})


def _padded(made: list[Instruction], labels: dict[str, int]) -> int:
    """Where the padding begins: NOPs, and a branch to itself in front of them."""
    end = len(made)
    while end and made[end - 1].opcode == "NOP":
        end -= 1
    last = made[end - 1] if end else None
    if last and last.opcode == "BRA" and labels.get(last.target or "") == end - 1:
        end -= 1
    return end
