"""Whole CUDA programs: compiled by nvcc as they are, and linked to a CUDA runtime without a GPU.

The program runs in a process of its own. What it does with its device goes over a socket to a
`Server`, which reads its PTX and executes its launches; device memory is memory of both, at the
same addresses. See runtime/runtime.hpp for the other side.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from papergpu import blas, compiler, cuda, kernel_cache, session, toolkit
from papergpu.counters import Collected, format_page, format_table
from papergpu.debugger import debug_launches
from papergpu.device import PROCESSORS, SHARED, count_threads, parse_target
from papergpu.errors import HOST, OPERAND, PAGE, Finding, Unavailable, Unreadable, Unsupported
from papergpu.launch import Kernel, Memory, Settings, fill_memory
from papergpu.pack import write_packs
from papergpu.program import Three
from papergpu.tensormap import FILLS, HOST_ELEMENTS, INTERLEAVES, SWIZZLES, Im2col, TensorMap
from papergpu.variables import variable_bytes

# As in runtime/runtime.hpp.
BASE, SIZE = 0x2000_0000_0000, 1 << 40
_, MODULE, FUNCTION, SYMBOL, LAUNCH, ALLOC, FREE, WRONG, MULTIPLY, TENSOR_MAP = range(10)
DEVICE = 0  # the home of memory that the host does not write itself
HEAD = struct.Struct("<QQ")
MEMORY = 1 << 34  # bytes that the device has
# Of cudaError_t.
SUCCESS, INVALID, CONFIGURATION, SYMBOL_UNKNOWN, FAILURE, UNSUPPORTED = 0, 1, 9, 13, 719, 801


def view_memory(at: int, size: int) -> npt.NDArray[np.uint8]:
    """Bytes at an address, as they are."""

    class Interface:
        __array_interface__ = {"data": (at, False), "shape": (size,), "typestr": "|u1",
                               "version": 3}  # fmt: skip

    return np.asarray(Interface())


def map_shared(file: int, at: int) -> None:
    """Map what a program and its server share, at the address that it has in both."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    read_write, shared, no_reserve, fixed = 3, 1, 0x4000, 0x100000
    got = libc.mmap(at, SIZE, read_write, shared | no_reserve | fixed, file, 0)
    if got != at:
        raise Unavailable("the addresses of device memory are taken in this process")


@dataclass(frozen=True)
class Said:
    """A finding of a program: what is wrong, where, and which thread of which kernel did it.

    `kind` is one of `KINDS` in errors, or `HOST` of the host's own code.
    """

    what: str
    file: str = ""
    line: int = 0
    kernel: str = ""
    block: Three | None = None
    thread: Three | None = None
    kind: str = HOST

    def __str__(self) -> str:
        """As compilers print errors."""
        at = f"{self.file.removeprefix(f'{os.getcwd()}/')}:{self.line}: " if self.line else ""
        who = f" [{self.kernel}, block {self.block}, thread {self.thread}]" if self.kernel else ""
        return f"{at}error: {self.what}{who} [{self.kind}]"


@dataclass
class Report:
    """What was found in a program, and what it did. With `only`, other kinds are left out."""

    findings: list[Said] = field(default_factory=list)
    launches: int = 0
    instructions: int = 0
    only: Sequence[str] = ()

    def add(self, one: Said) -> None:
        """Tell of one, at once and once."""
        if one not in self.findings and (not self.only or one.kind in self.only):
            self.findings.append(one)
            print(one, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        launches = f"{self.launches} launch{'es' * (self.launches != 1)}"
        found = f"{len(self.findings)} finding{'s' * (len(self.findings) != 1)}"
        return f"papergpu: {launches}, {self.instructions / 1e6:.2f} M warp-instructions, {found}"

    def add_launch(self, launched: session.Launched) -> None:
        """Count one that has ended."""
        self.launches += 1
        self.instructions += launched.result.steps

    def write(self, path: str, counted: Collected) -> None:
        """Write it as JSON, or as SARIF 2.1.0 or HTML where the file's name ends so."""
        if path.endswith(".html"):
            findings = [(one.file, one.line, str(one)) for one in self.findings]
            text = format_page(counted.profile(), findings)
        else:
            value = self._as_sarif() if path.endswith(".sarif") else {
                "findings": [asdict(one) for one in self.findings],
                "launches": self.launches, "instructions": self.instructions,
            }  # fmt: skip
            text = json.dumps(value, indent=1) + "\n"
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"{path}: no report ({error.strerror}); name another file", file=sys.stderr)

    def _as_sarif(self) -> dict[str, Any]:
        results = []
        for one in self.findings:
            result: dict[str, Any] = {"ruleId": one.kind, "level": "error",
                                      "message": {"text": str(one)}}  # fmt: skip
            if one.line:
                file = Path(one.file).resolve()
                near = file.is_relative_to(Path.cwd())
                uri = file.relative_to(Path.cwd()).as_posix() if near else file.as_uri()
                place = {"artifactLocation": {"uri": uri}, "region": {"startLine": one.line}}
                result["locations"] = [{"physicalLocation": place}]
            results.append(result)
        kinds = sorted({one.kind for one in self.findings})
        rules = [{"id": kind, "helpUri": f"{PAGE}#{kind}"} for kind in kinds]
        tool = {"driver": {"name": "papergpu", "rules": rules}}
        return {"version": "2.1.0", "runs": [{"tool": tool, "results": results}],
                "$schema": "https://json.schemastore.org/sarif-2.1.0.json"}  # fmt: skip


class Fields:
    """The fields of a message, in order."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def numbers(self, count: int) -> tuple[int, ...]:
        return tuple(self.number() for _ in range(count))

    def dimensions(self) -> Three:
        return self.number(), self.number(), self.number()

    def text(self) -> str:
        return self.take(self.number()).decode(errors="replace")

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def rest(self) -> tuple[int, ...]:
        """All numbers that are left, with their signs."""
        left = self.data[self.at :]
        return struct.unpack(f"<{len(left) // 8}q", left)


class Server:
    """The device of one program, until it closes its socket."""

    def __init__(self, channel: socket.socket, sm: int, report: Report) -> None:
        self.channel, self.sm, self.report = channel, sm, report
        self.modules: list[kernel_cache.Module] = []
        self.variables: list[npt.NDArray[np.uint8]] = []  # of each module
        self.next = BASE + 4096
        self.kernels: dict[tuple[int, str], Kernel] = {}
        self.blocks: dict[int, Memory] = {}
        self.freed: dict[int, Memory] = {}  # no two at one place: addresses are not used again

    def serve(self) -> None:
        """Greet the program, and answer until there is no more."""
        _, files, _, _ = socket.recv_fds(self.channel, HEAD.size, 2)
        for file, at in zip(files, (BASE, BASE + SIZE), strict=True):
            map_shared(file, at)
            os.close(file)
        self._answer(SUCCESS, self.sm // 10, self.sm % 10, PROCESSORS, SHARED[self.sm], MEMORY,
                     count_threads(self.sm))  # fmt: skip
        answers = {MODULE: self.load_module, FUNCTION: self.describe, SYMBOL: self.find_variable,
                   LAUNCH: self.launch, MULTIPLY: self.multiply,
                   TENSOR_MAP: self.encode_tensor_map}  # fmt: skip
        notes = {ALLOC: self.allocate, FREE: self.free, WRONG: self.report_call}
        while head := self._receive(HEAD.size):
            kind, size = HEAD.unpack(head)
            fields = Fields(self._receive(size))
            if kind in notes:
                notes[kind](fields)
            else:
                self._answer(*answers[kind](fields))

    def _answer(self, status: int, *numbers: int) -> None:
        self.channel.sendall(struct.pack(f"<QQ{len(numbers)}Q", status, len(numbers), *numbers))

    def _receive(self, size: int) -> bytes:
        """So many bytes, or none where the program has ended."""
        found = b""
        while len(found) < size:
            more = self.channel.recv(size - len(found))
            if not more:
                return b""
            found += more
        return found

    def load_module(self, fields: Fields) -> tuple[int, ...]:
        """Read PTX, and put its variables where both processes see them."""
        try:
            module = kernel_cache.Module(fields.data.decode(errors="replace"))
            memory = module.outline.memory
        except (Unreadable, Unsupported) as error:
            self.report.add(Said(f"not supported: {error}", kind=OPERAND))
            return (UNSUPPORTED,)
        variables = view_memory(self.next, max(64, len(memory.bytes)))
        self.next += -(-len(variables) // 4096) * 4096 + 4096
        fill_memory(variables, memory)
        view_memory(variables.ctypes.data + SIZE, len(variables))[:] = 1
        self.modules.append(module)
        self.variables.append(variables)
        return SUCCESS, len(self.modules)

    def _load_kernel(self, number: int, name: str) -> Kernel:
        key = number, name
        if key not in self.kernels:
            module = self.modules[number - 1]
            program = module.load_program(name)
            program.name = compiler.demangle(name)
            self.kernels[key] = Kernel(program, self.variables[number - 1], module.ptx)
        return self.kernels[key]

    def describe(self, fields: Fields) -> tuple[int, ...]:
        """What a kernel needs: shared and local memory, threads at most, whether it may talk with
        the host while it runs, and the bytes of each parameter.
        """
        number, name = fields.number(), fields.text()
        if not re.search(rf"\.entry\s+{re.escape(name)}\b", self.modules[number - 1].ptx):
            return (SYMBOL_UNKNOWN,)
        try:
            program = self._load_kernel(number, name).program
        except Unsupported as error:
            self.report.add(Said(f"not supported: {error}", kind=OPERAND))
            return (UNSUPPORTED,)
        threads = int(np.prod(program.directives.get("maxntid", (1024,))))
        sizes = [size for _, _, size in program.parameters]
        talks = any(".sys" in form or ".volatile" in form for form in program.forms)
        return SUCCESS, program.shared, program.local, threads, int(talks), *sizes

    def find_variable(self, fields: Fields) -> tuple[int, ...]:
        """Where a variable is, and how many bytes it has."""
        number, name = fields.number(), fields.text()
        outline = self.modules[number - 1].outline
        found = outline.memory.symbols.get(name)
        if found is None:
            return (SYMBOL_UNKNOWN,)
        [one] = [one for one in outline.variables if one.name == name]
        at = self.variables[number - 1].ctypes.data + found.at
        return SUCCESS, at, variable_bytes(one)

    def allocate(self, fields: Fields) -> None:
        """Note memory; that of the device alone is unwritten until somebody writes it."""
        at, size, number, home = fields.numbers(4)
        written = view_memory(at + SIZE, size) if home == DEVICE else None
        self.blocks[at] = Memory(at, size, f"allocation #{number} ({size} bytes)", written=written)

    def free(self, fields: Fields) -> None:
        """Nobody may touch it any more; its addresses are not used again."""
        at = fields.number()
        self.freed[at] = self.blocks.pop(at)

    def _name_freed(self, said: re.Match[str]) -> str:
        """An address outside all memory, in words: it may have been freed."""
        at = int(said[1], 16)
        for one in self.freed.values():
            if one.at <= at < one.at + one.size:
                return f"in {one.name}, which was freed: free it later"
        return f"at {said[1]}, where nothing is allocated: mend the address"

    def report_call(self, fields: Fields) -> None:
        """Tell of a fault of the host's code."""
        self.report.add(Said(fields.text()))

    def launch(self, fields: Fields) -> tuple[int, ...]:
        """Execute a kernel."""
        number, name = fields.number(), fields.text()
        kernel = self._load_kernel(number, name)
        grid, block, cluster = (fields.dimensions() for _ in range(3))
        dynamic, cooperative = fields.numbers(2)
        sizes = [size for _, _, size in kernel.program.parameters]
        values = [fields.take(size) for size in sizes]
        fixed = cuda.parse_dim3(kernel.program.directives.get("reqnctapercluster", 1))
        self.report.launches += 1
        try:
            result = session.launch(
                kernel, grid, block, values, list(self.blocks.values()), dynamic=dynamic,
                cooperative=bool(cooperative), cluster=cluster if cluster[0] else fixed,
            )  # fmt: skip
        except Finding as finding:
            finding.what = _NOWHERE.sub(self._name_freed, finding.what)
            self.report.add(locate_finding(finding))
            if finding.result is None:
                return (FAILURE,)
            result = finding.result
        except ValueError as error:
            self.report.add(Said(str(error)))
            return (CONFIGURATION,)
        self.report.instructions += result.steps
        return (SUCCESS,)

    def multiply(self, fields: Fields) -> tuple[int, ...]:
        """Make a product of cuBLAS."""
        variables = {one.ctypes.data: Memory(one.ctypes.data, len(one), "a module's variables")
                     for one in self.variables}  # fmt: skip
        operands = blas.Operands(fields.text(), self.blocks | variables, view_memory)
        m, n, k, batch = fields.numbers(4)
        alpha, beta = struct.unpack("<dd", fields.take(16))
        a, b, c, d = (blas.Matrix(*fields.numbers(5)) for _ in range(4))
        kind, bias = fields.numbers(2)
        try:
            blas.multiply(operands, (m, n, k, batch), (alpha, beta), (a, b, c, d), (kind, bias))
        except ValueError as error:
            self.report.add(Said(str(error)))
            return (INVALID,)
        return (SUCCESS,)

    def encode_tensor_map(self, fields: Fields) -> tuple[int, ...]:
        """The 128 bytes of a tensor map, as 16 numbers."""
        images, rank, element, base, interleave, swizzle, fill = fields.numbers(7)
        sizes, strides, steps = (fields.numbers(one) for one in (rank, rank - 1, rank))
        box = fields.numbers(2 if images else rank)
        corners = fields.rest()
        try:
            said = (base, HOST_ELEMENTS[element], sizes, strides, box, steps,
                    INTERLEAVES[interleave], tuple(SWIZZLES)[swizzle], FILLS[fill])  # fmt: skip
            half = rank - 2
            made = Im2col(*said, corners[:half], corners[half:]) if images else TensorMap(*said)
            return SUCCESS, *struct.unpack("<16Q", made.encode())
        except (ValueError, IndexError, Unsupported) as error:
            self.report.add(Said(str(error), kind=OPERAND))
            return (INVALID,)


# What the engine says of an address that is in no memory.
_NOWHERE = re.compile(r"at (0x[0-9a-f]+), which is in no tensor that this launch may touch")
# Files of CUDA's own, into which a program's lines were inlined.
_LIBRARY = re.compile(r"/(?:nvidia/cu\d+|cuda(?:-[\d.]+)?)/")


def locate_finding(finding: Finding) -> Said:
    """A finding at the line of the program's own files."""
    place = finding.place
    while place and place.caller and _LIBRARY.search(place.file):
        place = place.caller
    file, line = (place.file, place.line) if place else ("", 0)
    who = finding.kernel, finding.block, finding.thread
    return Said(finding.what, file, line, *who, finding.kind)


OPTIONS = "PAPERGPU_OPTIONS"  # how a program's server executes its kernels, as JSON


def serve(file: int) -> int:
    """Be the device of the program at the other end of a socket; 1 if something was found."""
    options = json.loads(os.environ.get(OPTIONS, "{}"))
    session.replace_settings(Settings(**options.get("settings", {})))
    report, counted = Report(only=options.get("only", ())), Collected()
    folder = options.get("pack")
    with (
        write_packs(Path(folder)) if folder else nullcontext(),
        debug_launches(options["settings"]["kernel"]) if options.get("debug") else nullcontext(),
        session.on_launch(counted),
        socket.socket(fileno=file) as channel,
    ):
        with suppress(ConnectionError):  # the program may have been killed
            Server(channel, parse_target(options.get("target", "sm_90")), report).serve()
        if options.get("table"):
            print(format_table(counted.profile()), file=sys.stderr)
        if report.findings or options.get("summary"):
            print(report, file=sys.stderr, flush=True)
        if path := options.get("report"):
            report.write(path, counted)
        with suppress(OSError):
            channel.sendall(struct.pack("<Q", bool(report.findings)))
    return int(bool(report.findings))


def run_program(
    path: Path, arguments: Sequence[str], settings: Settings, options: dict[str, Any]
) -> NoReturn:
    """Become the program, compiled first if it is a source.

    Of `options`, `target` is the GPU; `report` a file that is written when it ends; with `table`
    what each line did is printed then; `only` has the kinds of findings that are told, or none;
    `pack` is a folder that launches are written to; with `debug` a terminal steps through them.

    Raises:
        CompileError, Unavailable: it cannot be compiled.
    """
    if path.suffix in toolkit.LANGUAGES:
        path = toolkit.compile_program(path, options["target"])
    library = toolkit.build_runtime() / toolkit.RUNTIME
    given = {**options, "settings": asdict(settings), "summary": True}
    # A program that was linked to NVIDIA's runtime finds ours in its place.
    environment = {**os.environ, "LD_PRELOAD": str(library), OPTIONS: json.dumps(given)}
    sys.stdout.flush()
    os.execve(path, [str(path), *arguments], environment)
