"""Machine code as nvdisasm reads it: instructions, where they came from, what is live at them."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass

from warpshelf.look import binary, elf
from warpshelf.look.control import code_of

ADDRESS = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*(?:/\*|//|$)")
UPPER = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/\s*$")
ORIGIN = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
LABEL = re.compile(r"^([.$\w]+):\s*(?://.*)?$")
LIVE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/.*//\s*\|\s*(\d*)", re.MULTILINE)
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
    cubin = elf.readable(cubin)
    chosen = ("-c", "-fun", str(elf.number(cubin, symbol)))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = binary.said("nvdisasm", (*chosen, "-gp", "-hex"), file.name, FIRST)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(elf.countable(cubin))
        file.flush()
        lives = binary.said("nvdisasm", (*chosen, "-lrm", "count"), file.name, FIRST)
    return read(text, lives)


def read(text: str, lives: str) -> Code:
    """Code from what nvdisasm prints with `-gp -hex`, and with `-lrm count`.

    Raises:
        ValueError: the two are not of one kernel, or an instruction lacks its encoding.
    """
    live = {int(at, 16): int(n or 0) for at, n in LIVE.findall(lives)}
    found: list[tuple[str, int]] = []  # text, line of PTX
    uppers: list[int] = []
    labels: dict[str, int] = {}
    origin = 0
    for line in text.splitlines():
        if match := ORIGIN.match(line):
            origin = int(match[1])
        elif match := ADDRESS.match(line):
            if int(match[1], 16) != BYTES * len(found):
                break  # the code of another section
            found.append((match[2].rstrip(" ;"), origin))
        elif match := UPPER.match(line):
            uppers.append(int(match[1], 16))
        elif match := LABEL.match(line):
            labels.setdefault(match[1], len(found))
    if len(uppers) < len(found):
        raise ValueError(f"nvdisasm printed {len(found)} instructions, {len(uppers)} encodings")
    made = [
        Instruction(re.sub(r"\s+", " ", one), ptx, live.get(BYTES * at, 0), code_of(uppers[at]))
        for at, (one, ptx) in enumerate(found)
    ]
    end = _padded(made, labels)
    if missing := next((at for at in range(end) if BYTES * at not in live), None):
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
