"""The PTX of one kernel out of a module, and the machine code that an assembler makes of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpshelf.contract import architectures
from warpshelf.look import binary
from warpshelf.look.binary import disassemble_kernel
from warpshelf.look.work import find_loops

HEAD = re.compile(r"(?:\.\w+\s+)*\.(?:entry|func)\b(?:\s*\([^)]*\))?\s*([\w$]+)")
NAME = re.compile(r"[%$\w]+")
LABEL = re.compile(r"([%$\w]+):")
REGISTER = re.compile(r"%([a-z]+)(\d+)\b")
DISTANCE = re.compile(r"%([a-z]+)([+-]\d+)")
SPARE = re.compile(r"\.(?:loc|file|pragma|reg|maxntid|reqntid|minnctapersm|section|b8|b32|b64)\b")


def function_ranges(lines: Sequence[str]) -> dict[str, range]:
    """Where each kernel and function of a module stands, its head included: lines from 1."""
    found: dict[str, range] = {}
    name, start, depth, opened = "", 0, 0, False
    for number, line in enumerate(lines, 1):
        text = _strip_comment(line)
        if not name:
            if text.startswith(".") and (match := HEAD.match(_function_head(lines, number))):
                name, start, depth, opened = match[1], number, 0, False
            else:
                continue
        depth += text.count("{") - text.count("}")
        opened = opened or "{" in text
        if opened and depth <= 0:
            found[name], name = range(start, number + 1), ""
        elif not opened and text.endswith(";"):
            name = ""  # declared alone
    return found


def kernel_names(lines: Sequence[str]) -> list[str]:
    """The names of the kernels of a module, without the functions that they call."""
    return [
        name
        for name, body in function_ranges(lines).items()
        if re.match(r"(?:\.\w+\s+)*\.entry\b", _strip_comment(lines[body[0] - 1]))
    ]


def _function_head(lines: Sequence[str], number: int) -> str:
    """A line with the next, on which the name of a function with results stands."""
    if not re.match(r"(?:\.\w+\s+)*\.(?:entry|func)\b", _strip_comment(lines[number - 1])):
        return ""
    return " ".join(_strip_comment(one) for one in lines[number - 1 : number + 2])


def enclosing_kernel(lines: Sequence[str], number: int) -> str:
    """The name of the kernel or function that line `number`, from 1, stands in.

    Raises:
        ValueError: it stands in none.
    """
    for name, body in function_ranges(lines).items():
        if number in body:
            return name
    raise ValueError(f"line {number} of the PTX stands in no kernel")


def kernel_lines(
    lines: Sequence[str], name: str, numbers: Collection[int] = ()
) -> list[tuple[int, str]]:
    """A kernel, and the functions that `numbers` reach into: (line from 1, text) of each line.

    Declarations of registers, marks for debuggers, comments, and labels that nothing names are
    left out.

    Raises:
        KeyError: there is no such kernel.
    """
    known = function_ranges(lines)
    known[name]
    wanted = [
        body
        for one, body in known.items()
        if one == name or any(number in body for number in numbers)
    ]
    kept = [
        (number, text)
        for body in wanted
        for number in body
        if (text := _strip_comment(lines[number - 1])) and not SPARE.match(text)
    ]
    named = {word for _, text in kept if not LABEL.fullmatch(text) for word in NAME.findall(text)}
    return [
        (number, text)
        for number, text in kept
        if not (match := LABEL.fullmatch(text)) or match[1] in named
    ]


def encode_registers(lines: Iterable[str]) -> list[str]:
    """Lines in which each register is the distance from the one of its type before: `%r+1`.

    So a register more does not give all others behind it another name, and the text is compressed
    to two thirds.
    """
    before: dict[str, int] = {}

    def encode_register(found: re.Match[str]) -> str:
        name, number = found[1], int(found[2])
        far = number - before.get(name, 0)
        before[name] = number
        return f"%{name}{far:+d}"

    return [REGISTER.sub(encode_register, line) for line in lines]


def decode_registers(lines: Iterable[str]) -> list[str]:
    """What `encode_registers` was made of."""
    before: dict[str, int] = {}

    def decode_register(found: re.Match[str]) -> str:
        before[found[1]] = before.get(found[1], 0) + int(found[2])
        return f"%{found[1]}{before[found[1]]}"

    return [DISTANCE.sub(decode_register, line) for line in lines]


def _strip_comment(line: str) -> str:
    """A line without its comment, its spaces one at a time."""
    return " ".join(line.partition("//")[0].split())


# Machine code of PTX that somebody saved, by an assembler of CUDA's that takes it.
#
# It is there to be compared with other PTX that the same assembler took: what NVRTC makes of the
# same source, with an assembler of its own inside, may be other code.

TOOLS = ("ptxas", "ptxas-blackwell")  # as Triton's wheel calls them
BLACKWELL = 100  # from which SM version on Triton takes the second
TARGET = re.compile(r"^\s*\.target\s+(sm_(\d+)[af]?)", re.MULTILINE)
NONE = "none found: install triton, or put the bin folder of a CUDA toolkit on PATH"
SAID = re.compile(r"(?:fatal|error)\s*:\s*(.+)")  # by an assembler that does not take it
MARK = re.compile(r"// kernel ([\w$]+)")  # the first line of what `format_ptx` made


@dataclass(frozen=True)
class PtxModule:
    """PTX, and the name that a kernel has in it; `name` says in words where it is from."""

    name: str
    ptx: str
    symbol: str


def format_ptx(one: PtxModule) -> str:
    """Its PTX whole, for a file: the first line says which of its kernels is meant."""
    return f"// kernel {one.symbol}: {one.name}\n{one.ptx}"


def parse_module(name: str, text: str, wanted: str) -> PtxModule:
    """A kernel of a text of PTX: the one that its first line means, else `wanted`, else its only
    one, whatever that is called.

    Raises:
        ValueError: it has no kernel, or several of which none is meant.
    """
    entries = kernel_names(text.splitlines())
    if not entries or not TARGET.search(text):
        raise ValueError("is no PTX with a kernel (.target and .entry)")
    marked = MARK.match(text)
    for symbol in (marked[1] if marked else "", wanted):
        if symbol in entries:
            return PtxModule(name, text, symbol)
    if len(entries) > 1:
        raise ValueError(f"has no kernel {wanted}; there are {', '.join(entries)}")
    return PtxModule(name, text, entries[0])


def assemble_modules(modules: Sequence[PtxModule], arch: str) -> tuple[str, list[dict[str, Any]]]:
    """Who assembled them, all by the same assembler, and the parts of a view that are code.

    Those are `registers`, `spilled_bytes`, `shared_bytes` (static alone), `sass` and `loops`.

    Raises:
        ValueError: no assembler takes all of them for this architecture, with what each one said.
        RuntimeError: no tool reads the binary.
    """
    answers = []
    for tool in _assembler_paths(arch):
        try:
            made = [_run_assembler(tool, one, arch) for one in modules]
        except ValueError as error:
            answers.append(f"{_assembler_release(tool)}: {error}")
            continue
        return _assembler_release(tool), [
            _describe_code(one, at.symbol) for one, at in zip(made, modules, strict=True)
        ]
    said = "; ".join(dict.fromkeys(answers)) or NONE
    raise ValueError(f"no assembler takes it for {arch} ({said})")


def _assembler_paths(arch: str) -> Iterator[str]:
    first = architectures.sm_version(arch) >= BLACKWELL
    for name in TOOLS[::-1] if first else TOOLS:
        yield from binary.find_tools(name)


def _assembler_release(tool: str) -> str:
    """An assembler by its release: `ptxas 12.8.93`."""
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"release [\d.]+, V([\d.]+)", done.stdout)
    return f"ptxas {found[1]}" if found else Path(tool).name


def _run_assembler(tool: str, one: PtxModule, arch: str) -> bytes:
    """Raises ValueError with what the assembler said against it."""
    found = TARGET.search(one.ptx)
    # What has instructions of one architecture alone, sm_90a, is assembled for nothing else.
    own = found is not None and int(found[2]) == architectures.sm_version(arch)
    target = found[1] if found and own else arch
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(one.ptx, encoding="utf-8")
        words = [tool, f"--gpu-name={target}", str(source), "-o", str(made)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode or not made.is_file():
            said = SAID.findall(done.stderr or done.stdout) or [f"status {done.returncode}"]
            raise ValueError(said[0].strip())
        return made.read_bytes()


def _describe_code(cubin: bytes, symbol: str) -> dict[str, Any]:
    code, used = disassemble_kernel(cubin, symbol), binary.function_usage(cubin)[symbol]
    return {
        "registers": used.registers,
        "spilled_bytes": used.spilled_bytes,
        "shared_bytes": used.shared_bytes,
        "sass": {
            "text": [one.text for one in code.instructions],
            "live": [one.live for one in code.instructions],
            "control": [one.control for one in code.instructions],
            "labels": code.labels,
        },
        "loops": [asdict(one) for one in find_loops(code)],
    }
