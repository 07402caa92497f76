"""Kernels of PTX and of CUDA C++ for tests, the one way in which tests launch them, and processes
apart, in which Triton compiles: whether it does it decides when it is imported.

A script of cases has functions named `case_...`; started, it prints what is wrong with each, as
JSON: nothing, if it is right.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from papergpu.cuda import Source
from papergpu.decode import decode, layout_globals
from papergpu.file_cache import scratch_dir
from papergpu.launch import Kernel, Memory, Result, Settings, bind_memory
from papergpu.parse import parse

# PTX executed on numpy arrays: kernels of texts, and the one way in which tests launch them.

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def write_kernel(body: str, parameters: int = 1, module: str = "") -> str:
    """A module with a kernel `k` of pointers p0, p1 and so on, in registers %rd0, %rd1 ...

    `body` has %r, %rd, %f, %fd, %h and %p of its own accord, 64 each.
    """
    given = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "\n".join(f"  ld.param.u64 %rd{i}, [p{i}];" for i in range(parameters))
    registers = " ".join(
        f".reg .{kind} %{name}<64>;"
        for kind, name in (("b32", "r"), ("b64", "rd"), ("f32", "f"), ("f64", "fd"),
                           ("b16", "h"), ("pred", "p"))
    )  # fmt: skip
    return f"{HEAD}{module}\n.visible .entry k({given}) {{\n{registers}\n{loads}\n{body}\n}}\n"


def load_kernel(ptx: str, name: str = "k") -> Kernel:
    """A kernel of a module, ready to be launched; its module's memory is its own."""
    module = parse(ptx)
    return bind_memory(decode(module, name), layout_globals(module))


def launch_kernel(
    one: Kernel,
    *arguments: Any,
    grid: Any = 1,
    block: Any = 32,
    names: Sequence[str] = (),
    touched: Sequence[Memory] = (),
    settings: Settings | None = None,
    **more: Any,
) -> Result:
    """Launch on arrays as pointers, int as 32 bits, numpy scalars and bytes as they are.

    Arrays may be touched, and are p0, p1 and so on in findings, or have `names`; `touched` is what
    else may be.
    """
    values, memory = [], []
    for number, value in enumerate(arguments):
        if isinstance(value, np.ndarray):
            name = names[number] if names else f"p{number}"
            values.append(value.ctypes.data.to_bytes(8, "little"))
            memory.append(Memory(value.ctypes.data, value.nbytes, name))
        elif isinstance(value, int):
            values.append(value.to_bytes(4, "little"))
        else:
            values.append(value if isinstance(value, bytes) else value.tobytes())
    return one.launch(
        pad_dimensions(grid), pad_dimensions(block), values, [*memory, *touched],
        settings=settings or Settings(threads=1), **more,
    )  # fmt: skip


def execute_ptx(ptx: str, *arguments: Any, **more: Any) -> Result:
    """Launch the kernel `k` of a text."""
    return launch_kernel(load_kernel(ptx), *arguments, **more)


def pad_dimensions(given: Any) -> tuple[int, int, int]:
    """A number of blocks or threads in each of three dimensions."""
    sizes = (given,) if isinstance(given, int) else tuple(given)
    return (*sizes, 1, 1)[:3]


# Kernels of CUDA C++ for papergpu's tests, by NVRTC.

# Addresses in shared memory, and an mbarrier from its beginning to a wait.
MBARRIERS = r"""
typedef unsigned u32; typedef unsigned long long u64;
#define SHARED(p) (u32)__cvta_generic_to_shared(p)
__device__ void init(void* bar, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
    :: "r"(SHARED(bar)), "r"(n) : "memory"); }
__device__ void expect(void* bar, int n) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
    :: "r"(SHARED(bar)), "r"(n) : "memory"); }
__device__ void wait(void* bar, int parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
      "@p bra done; bra again; done: }" :: "r"(SHARED(bar)), "r"(parity) : "memory");
}
"""


def find_headers() -> list[str]:
    """The folders of CUDA's own headers."""
    import nvidia

    for root in nvidia.__path__:
        found = Path(root) / "cu13" / "include"
        if found.is_dir():
            return [str(found), str(found / "cccl")]
    raise RuntimeError("the headers of CUDA are not installed: pip install nvidia-cuda-cccl")


@cache
def compile_cuda(source: str, architecture: str = "compute_90a", *more: str) -> str:
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device",
               "-lineinfo", *(f"-I{one}" for one in find_headers()), *more]  # fmt: skip
    if source.lstrip().startswith("#include"):  # headers that come first are read once
        options += ["--pch", f"--pch-dir={scratch_dir()}"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [one.encode() for one in options])
    if int(status):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * max(2, size)  # written in place: never the one space that all share
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * max(2, size)
    nvrtc.nvrtcGetPTX(program, text)
    return text.decode().rstrip("\0 ")


@cache
def load_kernel_once(ptx: str, name: str = "k") -> Kernel:
    """A kernel of a module, decoded once for all that launch it."""
    return load_kernel(ptx, name)


HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "scripts"


def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What Python said in a process of its own."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": f"{SCRIPTS}:{HERE}"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True,
        env={**environment, **variables}, timeout=1200,
    )  # fmt: skip


@cache
def read_outcomes(script: str, *arguments: str) -> dict[str, Any]:
    """What a script beside this file printed last, with nothing of Triton's kept before or after.

    Raises:
        AssertionError: it failed, and with what.
    """
    with TemporaryDirectory() as folder:
        done = run_python(str(HERE / script), *arguments, TRITON_CACHE_DIR=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def list_cases(script: str) -> list[str]:
    """The names of a script's cases; it is not imported, since it may need Triton."""
    tree = ast.parse((HERE / script).read_text(encoding="utf-8"))
    functions = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
    return [name for name in functions if name.startswith("case_")]


def catch_error(case: Callable[..., object], *arguments: str) -> str:
    """What a case raised, if it did."""
    try:
        case(*arguments)
    except Exception:
        return traceback.format_exc()
    return ""


# ---- small sound kernels of CUDA C++, and the faults that can be planted in each

Launch = Callable[..., Any]
RUNS = (("robin", 0), ("random", 1), ("far", 2))


@dataclass(frozen=True)
class Fault:
    """A text replaced by another, and what the finding must say (a regular expression)."""

    old: str
    new: str
    says: str


@dataclass(frozen=True)
class Sound:
    """A kernel with nothing wrong; `run` launches it and asserts that its result is right."""

    name: str
    source: str
    run: Callable[[Launch], None]
    faults: Mapping[str, Fault]
    target: str = "sm_80"
    options: tuple[str, ...] = field(default=())

    def plant_fault(self, fault: Fault) -> str:
        assert self.source.count(fault.old) == 1, f"{self.name}: {fault.old!r} is not there once"
        return self.source.replace(fault.old, fault.new)


def make_launcher(
    sound: Sound, text: str, schedule: str, seed: int, limit: int = 3_000_000
) -> Launch:
    """A function that launches kernels of `text` under one schedule."""
    source = Source(text, sound.options, target=sound.target, name=f"{sound.name}.cu")
    settings = Settings(schedule=schedule, seed=seed, limit=limit)

    def launch_scheduled(kernel: str, grid: Any, block: Any, *args: Any, **more: Any) -> Any:
        return source.launch(kernel, grid, block, *args, settings=settings, **more)

    return launch_scheduled


def draw_whole_numbers(*shape: int, seed: int = 7) -> np.ndarray:
    """Whole numbers as floats: their sums are the same in any order."""
    drawn = np.random.default_rng(seed).integers(-8, 9, shape)
    return drawn.astype(np.float32)
