"""CUDA C++ on a CPU: a .cu file is compiled to PTX by NVRTC, and executed on tensors and arrays.

`Source("softmax.cu").launch("softmax<256>", grid, block, tensor, 1024)` returns when it has ended.
A file that NVRTC does not take, as it has a host's part, is compiled by nvcc.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from papergpu import kernel_cache, session
from papergpu.compiler import Compiled, Unit, compiled, unit
from papergpu.cuda_arguments import collect_memory, pack_parameter
from papergpu.errors import CompileError, Finding, Unavailable, Unsupported
from papergpu.forms import type_bits
from papergpu.launch import (
    Kernel,
    Memory,
    Result,
    Settings,
    aligned_zeros,
    bind_memory,
    fill_memory,
)
from papergpu.program import Three
from papergpu.syntax_tree import Variable
from papergpu.variables import HEAP, variable_bytes

__all__ = ["CompileError", "Finding", "Memory", "Settings", "Source", "Unavailable", "Unsupported"]

# ---- the names of C++ in the symbols of PTX, as far as they find a kernel or a variable


def parse_symbol(symbol: str) -> tuple[str, ...]:
    """The parts of a symbol's name, `("ns", "scale")` of `_ZN2ns5scaleEPf`; templates keep no list.

    Unnamed namespaces are left out. A symbol that is not mangled is its own name.
    """
    if not symbol.startswith("_Z"):
        return (symbol,)
    at = 2
    nested = symbol.startswith("N", at)
    at += nested
    parts: list[str] = []
    while at < len(symbol):
        if symbol.startswith("L", at):
            at += 1
        length = re.match(r"\d+", symbol[at:])
        if length is None:
            break
        at += len(length[0])
        part = symbol[at : at + int(length[0])]
        at += len(part)
        if not re.match(r"_GLOBAL__N_|_INTERNAL_|\d*_GLOBAL__N|_NV_ANON", part):
            parts.append(part)
        if symbol.startswith("I", at) or not nested:
            break
    return tuple(parts) or (symbol,)


def match_symbols(symbols: list[str], name: str) -> list[str]:
    """The symbols that a name without template arguments may mean."""
    if name in symbols:
        return [name]
    wanted = tuple(part for part in name.replace(" ", "").split("::") if part)
    found = [one for one in symbols if parse_symbol(one) == wanted]
    return found or [one for one in symbols if parse_symbol(one)[-len(wanted) :] == wanted]


Dim = int | Sequence[int]
ROOM = 1 << 28  # bytes that a source's variables may take; pages that nobody writes cost nothing


class _CompiledModule:
    """What NVRTC wrote, and those of its kernels that have been decoded."""

    def __init__(self, made: Compiled, before: kernel_cache.Module | None) -> None:
        self.made = made
        self.module = kernel_cache.Module(made.ptx, before)
        self.outline = self.module.outline
        self.kernels: dict[str, Kernel] = {}

    def shares_memory(self) -> bool:
        """Whether its kernels use variables, or a heap, that others may use too."""
        symbols = self.outline.memory.symbols
        words = Counter(re.findall(r"[\w$]+", self.made.ptx))  # a variable's own line is one
        return HEAP in symbols or any(words[name] > 1 for name in symbols)


class Source:
    """A .cu file, or its text, and how it is compiled; or PTX, which is executed as it is.

    `options` are NVRTC's, such as `--use_fast_math`, `-DTILE=32` or `-Iinclude`; `target` is sm_80,
    sm_90a or sm_100a; `name` is what a text is called in messages. Variables of the file keep what
    they hold from launch to launch.
    """

    def __init__(
        self,
        path_or_text: str | Path,
        options: Iterable[str] = (),
        *,
        target: str = "sm_90a",
        name: str | None = None,
    ) -> None:
        is_text = isinstance(path_or_text, str) and ("\n" in path_or_text or "{" in path_or_text)
        self.path = None if is_text else Path(path_or_text).resolve()
        self.text = str(path_or_text) if self.path is None else self.path.read_text(
            encoding="utf-8-sig", errors="replace")  # fmt: skip
        self.name = name or (self.path.name if self.path else "source.cu")
        self.options, self.target = tuple(options), target
        self._unit: Unit | None = None
        if not re.match(r"(?:\s|//.*\n)*\.version\s", self.text):
            where = self.path or (Path(name) if name else None)
            self._unit = unit(self.text, where, self.options, target)
        self._names: list[str] = []
        # Those instances of templates and all that is none; and others, an instance each.
        self._loaded: _CompiledModule | None = None
        self._apart: dict[str, _CompiledModule] = {}
        self._memory: npt.NDArray[np.uint8] | None = None

    def launch(
        self,
        kernel: str,
        grid: Dim,
        block: Dim,
        *args: Any,
        shared: int = 0,
        cluster: Dim | None = None,
        cooperative: bool = False,
        settings: Settings | None = None,
        touching: Sequence[Any] = (),
    ) -> Result:
        """Execute `kernel`, a name or an instance of a template such as `scale<float4>`.

        `args` are tensors of torch on the CPU and numpy arrays, passed as pointers; scalars and
        structures of ctypes and numpy, of the parameter's size; and Python numbers, which take it.
        `shared` is bytes of dynamic shared memory, `cluster` blocks of a cluster, `touching` memory
        that is reached through pointers in structures. `cooperative` lets the grid synchronise.

        Raises:
            CompileError: the file does not compile; NVRTC's words, with file and line.
            Finding: the kernel did something that it may not.
            Unsupported: it has an instruction that is not executed.
            TypeError, ValueError: the launch is not possible, or an argument does not fit.
        """
        found = self.kernel(kernel)
        module, symbol = self._find_kernel(kernel)
        wanted = module.outline.kernels[symbol]
        if len(args) != len(wanted):
            raise TypeError(
                f"{self.name}: {kernel} got {len(args)} arguments, expected {len(wanted)}"
            )
        values = [
            pack_parameter(value, one, f"{self.name}: {kernel}: argument {at}")
            for at, (value, one) in enumerate(zip(args, wanted, strict=True))
        ]
        fixed = found.program.directives.get("reqnctapercluster")
        blocks = parse_dim3(cluster if cluster is not None else fixed or 1)
        return session.launch(
            found, parse_dim3(grid), parse_dim3(block), values, collect_memory(args, touching),
            dynamic=shared, cluster=blocks, cooperative=cooperative, settings=settings,
        )  # fmt: skip

    def kernel(self, name: str) -> Kernel:
        """The decoded kernel that `name` names."""
        found, symbol = self._find_kernel(name)
        if symbol not in found.kernels:
            program = found.module.load_program(symbol)
            program.name = name
            memory, ptx = found.outline.memory, found.made.ptx
            if found is self._loaded:
                assert self._memory is not None
                one = Kernel(program, self._memory[: len(memory.bytes)], ptx)
            else:
                one = bind_memory(program, memory, ptx)
            found.kernels[symbol] = one
        return found.kernels[symbol]

    def globals(self, name: str, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
        """A `__device__` or `__constant__` variable, to be read and written in place.

        Without `dtype` a variable that is no structure has its own type, and others are bytes.
        """
        outline = self._compile_names().outline
        assert self._memory is not None
        variables = {one.name: one for one in outline.variables}
        found = match_symbols(list(variables), name)
        if len(found) != 1:
            known = ", ".join("::".join(parse_symbol(one)) for one in variables) or "none"
            what = "no variable" if not found else "more than one variable"
            raise ValueError(f"{self.name}: {what} {name!r} that a kernel uses; it has {known}")
        one = variables[found[0]]
        at = outline.memory.symbols[one.name].at
        size = variable_bytes(one)
        kind = np.dtype(dtype if dtype is not None else _numpy_dtype(one))
        return self._memory[at : at + size].view(kind)

    @property
    def ptx(self) -> str:
        """What NVRTC wrote."""
        return self._compile_names().made.ptx

    def _compile_names(self, *names: str) -> _CompiledModule:
        """Compile for these names too. Variables stay where they are, with what they hold."""
        if self._loaded is not None and all(name in self._names for name in names):
            return self._loaded
        wanted = [*self._names, *(name for name in names if name not in self._names)]
        before = self._loaded
        made = compiled(self._unit, wanted) if self._unit else Compiled(self.text, {})
        fresh = _CompiledModule(made, before.module if before else None)
        memory = fresh.outline.memory
        start, size = len(before.outline.memory.bytes) if before else 0, len(memory.bytes)
        if size > ROOM:
            raise ValueError(f"{self.name}: its variables take {size} bytes; the limit is {ROOM}")
        if self._memory is None:
            self._memory = aligned_zeros(ROOM)
        fill_memory(self._memory, memory, start)
        self._names, self._loaded = wanted, fresh
        return fresh

    def _find_kernel(self, name: str) -> tuple[_CompiledModule, str]:
        """The module that has the kernel which `name` means, and its symbol there."""
        if "<" not in name:
            loaded = self._compile_names()
            found = match_symbols(list(loaded.outline.kernels), name)
            if len(found) > 1:
                listed = ", ".join(found)
                raise ValueError(
                    f"{self.name}: {name!r} means several kernels: choose one of {listed}"
                )
            if found:
                return loaded, found[0]
        module = self._find_instance(name)  # also a template whose arguments all have defaults
        return module, module.made.symbols[name]

    def _find_instance(self, name: str) -> _CompiledModule:
        """The module of an instance of a template: its own, unless it shares variables.

        Compiled together, the time would grow with the square of their number.
        """
        if self._unit is None:
            known = ", ".join(self._compile_names().outline.kernels)
            raise ValueError(f"{self.name}: no kernel {name!r}; it has {known}")
        if name in self._apart:
            return self._apart[name]
        if name not in self._names:
            alone = _CompiledModule(self._compile_instance(name), None)
            if not alone.shares_memory():
                self._apart[name] = alone
                return alone
        return self._compile_names(name)

    def _compile_instance(self, name: str) -> Compiled:
        assert self._unit is not None
        try:
            return compiled(self._unit, [name])
        except CompileError as error:
            said = str(error)
            self._compile_names()  # an error of the file itself is shown as it is
            plain = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", self._unit.text)
            kernels = re.findall(r"__global__\s+(?:static\s+|inline\s+)*void\s+(\w+)", plain)
            stem = re.split(r"[<(]", name)[0].rpartition("::")[2].strip()
            if stem not in kernels:
                raise ValueError(
                    f"{self.name}: no kernel {name!r}; it has {', '.join(dict.fromkeys(kernels))}"
                ) from None
            raise ValueError(
                f"{self.name}: no kernel {name!r} here: its template arguments are wrong, or a "
                f"guard such as __CUDA_ARCH__ leaves it out ({said.splitlines()[0]})"
            ) from None


def parse_dim3(value: Dim) -> Three:
    """One to three numbers as CUDA's dim3."""
    sizes = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"{value} is not a grid or block size: give one to three numbers")
    x, y, z = (*(int(size) for size in sizes), 1, 1)[:3]
    return (x, y, z)


def _numpy_dtype(one: Variable) -> str:
    kind, width = one.type[0], type_bits(one.type) // 8
    if kind == "b" or width == 0 or (kind == "f" and width < 2):
        return "u1"
    return f"{ {'u': 'u', 's': 'i', 'f': 'f'}[kind] }{width}"
