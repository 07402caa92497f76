"""What a compiled GPU binary says of itself: registers, spills, shared memory, matrix units.

`cuobjdump -res-usage` gives registers, stack and static shared memory of each function. The
bytes spilled are those that the disassembly stores to local memory (`STL`), each instruction
counted once: for register spills the figure that `ptxas -v` calls "bytes spill stores". A local
array that did not fit registers counts too. Both are the same for Triton and CUDA C++.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

RESERVED_SHARED = 1024  # bytes that the system takes of each block from sm_90 on
MATRIX_SASS = re.compile(r"\b(?:H|I|D|Q|HG|QG|IG|BG|UTC\w*|O)MMA\b")
MATRIX_PTX = re.compile(r"\b(?:w?mma|wgmma|tcgen05)\.(?:sp(?:::\w+)?\.)?(?:mma|sync|mma_async)\b")
USAGE = re.compile(r"^ Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.M)
FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$", re.M)
STORE = re.compile(r"\bSTL((?:\.\w+)*)\s")
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}  # bytes; 4 without a suffix


@dataclass(frozen=True)
class Usage:
    """What one function of a binary takes: registers a thread, bytes, matrix instructions."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    matrix_instructions: bool

    def with_dynamic(self, shared: int) -> Usage:
        """The same with the shared memory that a launch asks for, in bytes."""
        return replace(self, shared_bytes=self.shared_bytes + shared)


def tools(name: str) -> list[str]:
    """Paths of a CUDA binary tool: Triton's own copy, PATH, the toolkit's folder, in this order."""
    found = []
    spec = importlib.util.find_spec("triton")
    for folder in spec.submodule_search_locations or [] if spec else []:
        found.append(Path(folder, "backends/nvidia/bin", name))
    if path := shutil.which(name):
        found.append(Path(path))
    found.append(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", name))
    return list(dict.fromkeys(str(path) for path in found if path.is_file()))


def said(name: str, options: Sequence[str], path: str, sign: str) -> str:
    """What `NAME OPTIONS PATH` prints, by the first copy of that tool whose answer holds `sign`.

    RuntimeError if there is none; its text names what each one answered.
    """
    answers = []
    for tool in tools(name):
        done = subprocess.run([tool, *options, path], capture_output=True, text=True, check=False)
        if done.returncode == 0 and sign in done.stdout:
            return done.stdout
        answers.append(f"{tool}: status {done.returncode}, {done.stderr.strip() or 'no code'}")
    raise RuntimeError(
        f"{name} {' '.join(options)} read nothing ({'; '.join(answers) or 'none found'}); "
        "install triton, or a CUDA toolkit and put its bin folder on PATH"
    )


def dump(option: str, path: str) -> str:
    """What `cuobjdump OPTION PATH` prints.

    RuntimeError if no copy of it can read PATH.
    """
    return said("cuobjdump", [option], path, "Function")


def functions(sass: str) -> dict[str, str]:
    """Disassembly by function name."""
    parts = FUNCTION.split(sass)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def release(cubin: bytes) -> str:
    """Release of the compiler that wrote a cubin, such as "13.0"; "" if it does not say."""
    found = re.search(rb"Cuda compilation tools, release (\d+\.\d+)", cubin)
    return found.group(1).decode() if found else ""


def spilled(sass: str) -> int:
    """Bytes that a function's disassembly stores to local memory, each instruction once."""
    total = 0
    for match in STORE.finditer(sass):
        suffixes = match.group(1).split(".")
        total += next((WIDTHS[suffix] for suffix in suffixes if suffix in WIDTHS), 4)
    return total


def usage(cubin: bytes, ptx: str | None = None) -> dict[str, Usage]:
    """Usage of each function in a cubin, by its mangled name.

    With the PTX that it came from, matrix instructions are looked for there, and the slow
    disassembly is left out where no function has a stack: without one nothing can be spilled.
    RuntimeError if no tool can read the binary.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listed = USAGE.findall(dump("-res-usage", file.name))
        stacked = any(int(stack) or int(local) for _, _, stack, _, local in listed)
        code = functions(dump("-sass", file.name)) if stacked or ptx is None else {}
    reserved = RESERVED_SHARED if b".nv.reservedSmem" in cubin else 0
    found = {}
    for name, registers, _, shared, _ in listed:
        body = code.get(name, "")
        matrix = MATRIX_SASS.search(body) if ptx is None else MATRIX_PTX.search(ptx)
        static = max(0, int(shared) - reserved)
        found[name] = Usage(int(registers), spilled(body), static, matrix is not None)
    return found
