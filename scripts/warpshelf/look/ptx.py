"""The PTX of one kernel out of a module, and the machine code that an assembler makes of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpshelf.contract import architectures
from warpshelf.look import binary
from warpshelf.look.view import Code, View
from warpshelf.look.work import describe_code

HEAD = re.compile(r"(?:\.\w+\s+)*\.(entry|func)\b(?:\s*\([^)]*\))?\s*([\w$]+)")
NAME = re.compile(r"[%$\w]+")
LABEL = re.compile(r"([%$\w]+):")
REGISTER = re.compile(r"%([a-z]+)(\d+)\b")
DISTANCE = re.compile(r"%([a-z]+)([+-]\d+)")
BOTH_SHARED = re.compile(r".*\bwgmma\.mma_async[^{]*\{[^}]*\}\s*,\s*%")
# The types of registers by what compilers call them; a view leaves their declarations out.
TYPES = {"p": "pred", "rs": "b16", "r": "b32", "f": "f32", "rd": "b64", "fd": "f64",
             "rq": "b128"}  # fmt: skip
SPARE = re.compile(r"\.(?:loc|file|pragma|reg|maxntid|reqntid|minnctapersm|section|b8|b32|b64)\b")


def function_ranges(lines: Sequence[str], kernels: bool = False) -> dict[str, range]:
    """The lines, from 1, of each function of a module with its head; of kernels alone if asked."""
    texts = [strip_comment(line) for line in lines]
    found: dict[str, range] = {}
    kind, name, start, depth, opened = "", "", 0, 0, False
    for number, text in enumerate(texts, 1):
        if not name:
            # The name of a function with results may stand on the next line.
            head = HEAD.match(" ".join(texts[number - 1 : number + 2]))
            if not head:
                continue
            kind, name, start, depth, opened = head[1], head[2], number, 0, False
        depth += text.count("{") - text.count("}")
        opened = opened or "{" in text
        if opened and depth <= 0:
            if kind == "entry" or not kernels:
                found[name] = range(start, number + 1)
            name = ""
        elif not opened and text.endswith(";"):
            name = ""  # declared alone
    return found


def reads_both(line: str) -> bool:
    """Whether a line of PTX is a wgmma that reads A, too, from shared memory."""
    return BOTH_SHARED.match(line) is not None


def enclosing_kernel(lines: Sequence[str], number: int) -> str:
    """The kernel or function that line `number`, from 1, stands in; ValueError if in none."""
    around = [name for name, body in function_ranges(lines).items() if number in body]
    if not around:
        raise ValueError(f"line {number} of the PTX is not in a kernel")
    return around[0]


def kernel_lines(
    lines: Sequence[str], name: str, numbers: Collection[int] = ()
) -> list[tuple[int, str]]:
    """A kernel, and the functions that `numbers` reach into: (line from 1, text) of each line.

    Declarations of registers, marks for debuggers, comments, and labels that nothing names are
    left out. KeyError if there is no such kernel.
    """
    known = function_ranges(lines)
    own = known[name]
    kept = [
        (number, text)
        for body in known.values()
        if body == own or any(number in body for number in numbers)
        for number in body
        if (text := strip_comment(lines[number - 1])) and not SPARE.match(text)
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
    before: Counter[str] = Counter()

    def encode_register(found: re.Match[str]) -> str:
        far = int(found[2]) - before[found[1]]
        before[found[1]] += far
        return f"%{found[1]}{far:+d}"

    return [REGISTER.sub(encode_register, line) for line in lines]


def decode_registers(lines: Iterable[str]) -> list[str]:
    """The lines that `encode_registers` was given."""
    before: Counter[str] = Counter()

    def decode_register(found: re.Match[str]) -> str:
        before[found[1]] += int(found[2])
        return f"%{found[1]}{before[found[1]]}"

    return [DISTANCE.sub(decode_register, line) for line in lines]


def strip_comment(line: str) -> str:
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
    """Its whole PTX, for a file: the first line says which of its kernels is meant."""
    return f"// kernel {one.symbol}: {one.name}\n{one.ptx}"


def parse_module(name: str, text: str, wanted: str) -> PtxModule:
    """A kernel of PTX: the one that its first line means, else `wanted`, else its only one.

    ValueError if it has no kernel, or several of which none is meant.
    """
    entries = list(function_ranges(text.splitlines(), kernels=True))
    if not entries or not TARGET.search(text):
        raise ValueError("is not PTX with a kernel (.target and .entry)")
    marked = MARK.match(text)
    meant = [one for one in (marked[1] if marked else "", wanted) if one in entries]
    if not meant and len(entries) > 1:
        raise ValueError(f"has no kernel {wanted}; there are {', '.join(entries)}")
    return PtxModule(name, text, (meant or entries)[0])


def assemble_modules(modules: Sequence[PtxModule], arch: str) -> tuple[str, list[Code]]:
    """Who assembled them, all by the same assembler, and the machine code of each.

    Shared memory is what is static alone, and no instruction says its line of PTX. ValueError if no
    assembler takes all of them for this architecture, RuntimeError if no tool reads the binary.
    """
    answers = []
    first = architectures.sm_version(arch) >= BLACKWELL
    for tool in (tool for name in TOOLS[:: -1 if first else 1] for tool in binary.find_tools(name)):
        told = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
        release = re.search(r"release [\d.]+, V([\d.]+)", told.stdout)
        who = f"ptxas {release[1]}" if release else Path(tool).name
        try:
            made = [_run_assembler(tool, one, arch) for one in modules]
        except ValueError as error:
            answers.append(f"{who}: {error}")
            continue
        return who, [
            describe_code(
                binary.disassemble_kernel(cubin, one.symbol),
                binary.function_usage(cubin)[one.symbol],
            )
            for cubin, one in zip(made, modules, strict=True)
        ]
    said = "; ".join(dict.fromkeys(answers)) or NONE
    raise ValueError(f"no assembler takes it for {arch} ({said})")


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


def rebuild_module(view: View) -> str:
    """A module with the kernel of a view: what `kernel_lines` has left out is put back.

    Registers are declared by what compilers call them, lines of the source named, and dynamic
    memory, which stands outside, is declared.
    """
    lines: Sequence[str] = view["ptx"]["text"]
    text = "\n".join(lines)
    most: dict[str, int] = {}
    for kind, number in REGISTER.findall(text):
        most[kind] = max(most.get(kind, 0), int(number))
    declared = [
        f".reg .{TYPES[kind]} %{kind}<{top + 1}>;" for kind, top in most.items() if kind in TYPES
    ]
    # Registers of inline assembly have names of their own; dynamic memory is declared outside.
    for what, kind in (("(?:try_wait|setp)", "pred"), ("mapa", "b32")):
        own = re.findall(rf"{what}[.]\S* ([a-z]\w*),", text)
        declared += [f".reg .{kind} {one};" for one in sorted({*own})]
    named = {*re.findall(r"mov\.\w+ %\w+, ([A-Za-z_][\w$]*);", text)}
    dynamic = [one for one in sorted(named) if not re.search(rf"\.b8 {re.escape(one)}\b", text)]
    where = [line["at"].rpartition(":") for line in view["lines"]]
    names = [*dict.fromkeys(file for file, _, _ in where if file)]
    found = [".version 8.8", f".target {view['arch']}a", ".address_size 64"]
    found += [f".extern .shared .align 128 .b8 {one}[];" for one in dynamic]
    found += [f'.file {names.index(name) + 1} "{name}"' for name in names]
    opened = False
    last = -1
    for line, at in zip(lines, view["ptx"]["line"], strict=True):
        if opened and at not in (-1, last) and where[at][0]:
            found.append(f".loc {names.index(where[at][0]) + 1} {where[at][2]} 0")
            last = at
        found.append(line)
        if line == "{" and not opened:
            opened = True
            found += declared
    return "\n".join(found) + "\n"
