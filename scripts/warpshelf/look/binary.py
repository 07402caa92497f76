"""What a compiled GPU binary says of itself: what a kernel takes, its machine code, what is live.

cuobjdump tells registers, stack and static shared memory of each function. The bytes spilled are
those that its code stores to local memory (`STL`), each instruction counted once: for register
spills the figure that `ptxas -v` calls "bytes spill stores". A local array that did not fit
registers counts too.

nvdisasm reads machine code: instructions, where they came from, what is live at them. Binaries of
ptxas before CUDA 13 have another ABI in their header. nvdisasm 13 reads them, but analyses their
flow only if the header says what its own release would write; the code is the same.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpshelf.look.elf import INFO, REGISTERS, Elf, line_table, sized_attributes
from warpshelf.look.figures import access_width, opcode_name

OS_ABI, ABI_VERSION, FLAGS = 7, 8, 48  # bytes of the header
OLD, NEW = 51, (65, 8)  # OS ABI before CUDA 13; OS ABI and ABI version of it
RELEASE, WIDE = 0x6 << 24, 0x4  # of the flags: the ABI's own, and addresses of 64 bits
COUNTED = 254  # registers at most of a kernel whose live ones nvdisasm counts; there are 255


def patch_header(cubin: bytes) -> bytes:
    """The same binary with a header that nvdisasm 13 analyses."""
    if cubin[OS_ABI] != OLD:
        return cubin
    header = bytearray(cubin)
    (flags,) = struct.unpack_from("<I", header, FLAGS)
    header[OS_ABI], header[ABI_VERSION] = NEW
    struct.pack_into("<I", header, FLAGS, RELEASE | (flags & 0xFF) << 8 | WIDE)
    return bytes(header)


def _readable_binary(cubin: bytes) -> bytes:
    """The same code as nvdisasm 13 analyses it, with no kernel of more registers than it counts."""
    elf, made = Elf(cubin), bytearray(patch_header(cubin))
    found = elf.find_section(INFO)
    for at, attribute, size in sized_attributes(elf.section_bytes(found)):
        if found and (attribute, size) == (REGISTERS, 8):
            count = found.offset + at + 4
            (registers,) = struct.unpack_from("<I", cubin, count)
            struct.pack_into("<I", made, count, min(registers, COUNTED))
    return bytes(made)


RESERVED_SHARED = 1024  # bytes that the system takes of each block from sm_90 on
MATRIX_SASS = re.compile(r"\b(?:H|I|D|Q|HG|QG|IG|BG|UTC\w*|O)MMA\b")
MATRIX_PTX = re.compile(r"\b(?:w?mma|wgmma|tcgen05)\.(?:sp(?:::\w+)?\.)?(?:mma|sync|mma_async)\b")
USAGE = re.compile(r"^ Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.M)
FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$", re.M)
STORE = re.compile(r"\bSTL((?:\.\w+)*)\s")


@dataclass(frozen=True)
class ResourceUsage:
    """What one function of a binary takes: registers a thread, bytes, matrix instructions."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    matrix_instructions: bool

    def with_dynamic(self, shared: int) -> ResourceUsage:
        """The same with the shared memory that a launch asks for, in bytes."""
        return replace(self, shared_bytes=self.shared_bytes + shared)


def find_tools(name: str) -> list[str]:
    """Paths of a CUDA binary tool: Triton's own copy, PATH, the toolkit's folder, in this order."""
    spec = importlib.util.find_spec("triton")
    folders = spec.submodule_search_locations or [] if spec else []
    found = [Path(folder, "backends/nvidia/bin", name) for folder in folders]
    found += [Path(path) for path in (shutil.which(name),) if path]
    found.append(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", name))
    return list(dict.fromkeys(str(path) for path in found if path.is_file()))


def run_tool(name: str, options: Sequence[str], cubin: bytes, sign: str) -> str:
    """What `NAME OPTIONS` prints of a binary, by the first copy whose answer holds `sign`.

    RuntimeError, with what each one answered, if there is none.
    """
    answers = []
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        for tool in find_tools(name):
            words = [tool, *options, file.name]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode == 0 and sign in done.stdout:
                return done.stdout
            answers.append(f"{tool}: status {done.returncode}, {done.stderr.strip() or 'no code'}")
    raise RuntimeError(
        f"{name} {' '.join(options)} read nothing ({'; '.join(answers) or 'none found'}); "
        "install triton, or a CUDA toolkit and put its bin folder on PATH"
    )


def run_cuobjdump(option: str, cubin: bytes) -> str:
    """What `cuobjdump OPTION` prints of a binary; RuntimeError if no copy of it can read it."""
    return run_tool("cuobjdump", [option], cubin, "Function")


def split_functions(sass: str) -> dict[str, str]:
    """Disassembly by function name."""
    parts = FUNCTION.split(sass)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def compiler_release(cubin: bytes) -> str:
    """Release of the compiler that wrote a cubin, such as "13.0"; "" if it does not say."""
    found = re.search(rb"Cuda compilation tools, release (\d+\.\d+)", cubin)
    return found.group(1).decode() if found else ""


def count_spill_bytes(sass: str) -> int:
    """Bytes that a function's disassembly stores to local memory, each instruction once."""
    return sum(access_width("STL", found[1].split(".")) for found in STORE.finditer(sass))


def function_usage(cubin: bytes, ptx: str | None = None) -> dict[str, ResourceUsage]:
    """Usage of each function in a cubin, by its mangled name.

    With the PTX that it came from, matrix instructions are looked for there, and the slow
    disassembly is left out where no function has a stack: without one nothing can be spilled.
    RuntimeError if no tool can read the binary.
    """
    listed = USAGE.findall(run_cuobjdump("-res-usage", cubin))
    stacked = any(int(stack) or int(local) for _, _, stack, _, local in listed)
    code = split_functions(run_cuobjdump("-sass", cubin)) if stacked or ptx is None else {}
    reserved = RESERVED_SHARED if b".nv.reservedSmem" in cubin else 0
    found = {}
    for name, registers, _, shared, _ in listed:
        body = code.get(name, "")
        matrix = MATRIX_SASS.search(body) if ptx is None else MATRIX_PTX.search(ptx)
        static = max(0, int(shared) - reserved)
        found[name] = ResourceUsage(int(registers), count_spill_bytes(body), static, bool(matrix))
    return found


# Control codes are what the assembler tells the scheduler about each machine instruction, in bits
# 105 to 125 of its 128 (arXiv 1903.07486, section 2.1). CuAssembler writes `B0-----:R-:W2:Y:S04`.

SHIFT, MASK = 41, (1 << 21) - 1  # of the upper 64 bits
NONE = 7  # stands for no scoreboard
BARRIERS = 6


@dataclass(frozen=True)
class ControlCode:
    """A control code, read. Scoreboards are numbered from 0 to 5."""

    stall: int  # cycles of the warp after it
    yields: bool  # whether it is better to go on with another warp
    writes: int | None  # the scoreboard that is set until the result is there
    reads: int | None  # the one that is set until the operands were read
    waits: tuple[int, ...]  # those that must be clear before it starts
    reuses: int  # a bit for each operand that is kept for the next instruction

    def __str__(self) -> str:
        waits = "".join(str(one) if one in self.waits else "-" for one in range(BARRIERS))
        read, write = ("-" if one is None else one for one in (self.reads, self.writes))
        return f"B{waits}:R{read}:W{write}:{'Y' if self.yields else '-'}:S{self.stall:02}"


def control_bits(upper: int) -> int:
    """The control code, a number of 21 bits, of an instruction's upper 64 bits."""
    return upper >> SHIFT & MASK


def decode_control(code: int) -> ControlCode:
    """A control code, read: from the low bits stall, yield, write, read, waits, reuse."""
    write, read, waits = code >> 5 & 7, code >> 8 & 7, code >> 11 & 63
    return ControlCode(
        stall=code & 15,
        yields=not code >> 4 & 1,  # the bit is set to stay with this warp
        writes=None if write == NONE else write,
        reads=None if read == NONE else read,
        waits=tuple(one for one in range(BARRIERS) if waits >> one & 1),
        reuses=code >> 17 & 15,
    )


ADDRESS = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*(?:/\*|//|$)")
UPPER = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/\s*(?://\s*\|\s*(\d*).*)?$")
LABEL = re.compile(r"^([.$\w]+):\s*(?://.*)?$")
TARGET = re.compile(r"`\(([^)]+)\)")
BYTES = 16  # of an instruction
FIRST = "/*0000*/"  # stands before the first one


@dataclass(frozen=True)
class Instruction:
    """One machine instruction."""

    text: str  # as it is read, such as `@!P0 LDG.E R2, [R4.64]`
    ptx: int  # the line of PTX, from 1, that the assembler made it from; 0 where it does not say
    live: int  # registers of a thread that hold a value at it
    control: int

    @property
    def opcode(self) -> str:
        """Its name with all modifiers: `LDG.E.128`."""
        return opcode_name(self.text)

    @property
    def is_guarded(self) -> bool:
        """Whether a predicate decides if it is done; one that is always true does not."""
        return self.text.startswith("@") and not self.text.startswith("@!UPT")

    @property
    def target(self) -> str | None:
        """The label that it names, if any."""
        found = TARGET.search(self.text)
        return found[1] if found else None


@dataclass(frozen=True)
class MachineCode:
    """The machine code of one kernel; `labels` name the instruction that they stand in front of."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]


def disassemble_kernel(
    cubin: bytes,
    symbol: str,
    keep: Callable[[object, Callable[[], bytes]], bytes] = lambda decides, make: make(),
) -> MachineCode:
    """The machine code of the kernel `symbol`, without the padding behind it.

    `keep` gets what decides the text of nvdisasm, but for the tool, and what asks for it, which
    takes half a second; it may have the text kept.
    RuntimeError if no nvdisasm reads it, ValueError if the binary has no such kernel.
    """
    options = ("-c", "-fun", str(Elf(cubin).symbol_index(symbol)), "-hex", "-lrm", "count")
    readable = _readable_binary(cubin)
    decides = (options, hashlib.sha256(readable).hexdigest())
    text = keep(decides, lambda: run_tool("nvdisasm", options, readable, FIRST).encode())
    # It is asked once: with live registers it does not say where lines come from.
    return parse_sass(text.decode(), line_table(cubin, symbol))


def parse_sass(text: str, lines: Sequence[tuple[int, int]] = ()) -> MachineCode:
    """Code from what nvdisasm prints with `-hex -lrm count`; ValueError if that lacks something.

    `lines` are addresses, and the line of PTX from there on.
    """
    found: list[tuple[str, int]] = []  # text, line of PTX
    uppers: list[tuple[int, str | None]] = []  # the upper 64 bits, and what is live
    labels: dict[str, int] = {}
    origin, coming = 0, deque(sorted(lines, key=lambda one: one[0]))
    for line in text.splitlines():
        if match := ADDRESS.match(line):
            if int(match[1], 16) != BYTES * len(found):
                break  # the code of another section
            while coming and coming[0][0] <= BYTES * len(found):
                origin = coming.popleft()[1]
            found.append((" ".join(match[2].rstrip(" ;").split()), origin))
        elif match := UPPER.match(line):
            uppers.append((int(match[1], 16), match[2]))
        elif match := LABEL.match(line):
            labels.setdefault(match[1], len(found))
    if len(uppers) < len(found):
        raise ValueError(f"nvdisasm printed {len(found)} instructions, {len(uppers)} encodings")
    made = [
        Instruction(text, ptx, int(live or 0), control_bits(upper))
        for (text, ptx), (upper, live) in zip(found, uppers, strict=False)
    ]
    while made and made[-1].opcode == "NOP":  # the padding, and a branch to itself in front of it
        made.pop()
    if made and made[-1].opcode == "BRA" and labels.get(made[-1].target or "") == len(made) - 1:
        made.pop()
    for at, (_, live) in enumerate(uppers[: len(made)]):
        if live is None:
            raise ValueError(f"nvdisasm does not say what is live at {BYTES * at:#x}")
    named = {one.target for one in made}
    kept = {name: at for name, at in labels.items() if at < len(made) and name in named}
    return MachineCode(tuple(made), kept)
