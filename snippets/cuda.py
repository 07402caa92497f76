"""Launches the kernels of a .cu file: compiled by NVRTC on a GPU, run by the host on a CPU.

`Source(path).launch("scale<float4>", grid, block, tensor, np.int64(n))` is one call for both.
On a GPU it needs what a CUDA build of torch brings along: NVRTC and the driver, called through
their C interfaces; the kernel runs on torch's current stream. On a CPU the file is compiled by
$CXX, g++ or clang++ against cuda.hpp, which says what has no host execution, and the call returns
when the kernel is done.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

Dim = int | tuple[int, ...]
Dim3 = tuple[int, int, int]

MAX_GRID = (2**31 - 1, 65_535, 65_535)  # blocks
MAX_BLOCK = (1024, 1024, 64)  # threads, and 1024 in all
MAX_SHARED = 232_448  # bytes of shared memory that a block of sm_90 or sm_100 can have
NUMPY_KINDS = {"f": "f", "i": "i", "u": "i", "b": "i"}  # numpy's kinds of scalars, and ours
HEADER = Path(__file__).with_name("cuda.hpp")

observer: Callable[[Source, str, Dim3, Dim3, tuple, int], None] | None = None
"""When set, `Source.launch` hands it (source, name, grid, block, args, shared) and runs nothing."""


class Source:
    """A .cu file and how to compile it.

    path: the file. options: NVRTC options such as "--use_fast_math" or "-DTILE=32"; host
    execution takes those that begin with -D, -U or -I.
    """

    def __init__(self, path: str | Path, options: Iterable[str] = ()) -> None:
        self.path = Path(path).resolve()
        self.options = tuple(options)
        self._plans: dict[tuple, tuple[_Kernel, Dim3, Dim3]] = {}

    def launch(self, name: str, grid: Dim, block: Dim, *args: Any, shared: int = 0) -> None:
        """Run kernel `name`, or a template instance such as "scale<float4>".

        grid, block: blocks and threads, an int or up to three of them. args: tensors, all on one
        device, passed as pointers; numpy scalars, passed as their C types. shared: bytes of
        dynamic shared memory a block gets.

        Raises TypeError for a Python number or an argument unlike the kernel's parameter;
        ValueError for a grid, block, shared size, device or name that cannot be; RuntimeError
        when the file does not compile or the run fails.
        """
        where = f"{self.path.name}: {name}"
        types = [_type(where, arg) for arg in args]
        key = (name, grid, block, shared, *types)
        if observer is not None or key not in self._plans:
            device = _device(where, types)
            dims = _dims(where, "grid", grid, MAX_GRID), _dims(where, "block", block, MAX_BLOCK)
            if not 0 <= shared <= MAX_SHARED:
                raise ValueError(f"{where}: shared = {shared} is outside 0..{MAX_SHARED} bytes")
            if observer is not None:
                observer(self, name, *dims, args, shared)
                return
            build = _gpu_kernel if device.type == "cuda" else _host_kernel
            kernel = build(self.path, self.path.read_text(), self.options, name, device.index)
            kernel.refuse_unlike(where, types)
            self._plans[key] = kernel, *dims
        kernel, *dims = self._plans[key]
        values = [
            ctypes.c_void_p(arg.data_ptr())
            if isinstance(arg, torch.Tensor)
            else ctypes.create_string_buffer(arg.tobytes(), arg.nbytes)
            for arg in args
        ]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        kernel.run(where, *dims, shared, pointers)

    def cubin(self, names: Iterable[str], arch: str) -> tuple[bytes, dict[str, str]]:
        """Compile kernels for an architecture such as "sm_90"; needs NVRTC and no GPU.

        Returns the binary and each name's symbol in it. Raises as `launch` does.
        """
        text = self.path.read_text()
        return _nvrtc_compile(self.path, text, self.options, tuple(names), _target(arch))


def _type(where: str, arg: object) -> torch.device | str:
    """A tensor's device; a scalar's kind and bytes, as `_Kernel` has them."""
    if isinstance(arg, torch.Tensor):
        return arg.device
    if isinstance(arg, np.generic):
        return f"{NUMPY_KINDS.get(arg.dtype.kind, 'V')}{arg.nbytes}"
    raise TypeError(
        f"{where}: argument {arg!r} is a {type(arg).__name__}, which has no C type; pass a tensor "
        "or a numpy scalar such as np.int32(n) or np.float32(a)"
    )


def _device(where: str, types: list[torch.device | str]) -> torch.device:
    devices = list(dict.fromkeys(t for t in types if not isinstance(t, str)))
    if len(devices) != 1 or devices[0].type not in ("cpu", "cuda"):
        raise ValueError(
            f"{where}: its tensors are on {', '.join(map(str, devices)) or 'no device'}; it takes "
            "one or more tensors, all on the CPU or all on one GPU"
        )
    return devices[0]


def _dims(where: str, what: str, value: Dim, limits: Dim3) -> Dim3:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    padded = (*sizes, 1, 1)[: max(3, len(sizes))]
    if len(padded) > 3 or any(not 1 <= n <= top for n, top in zip(padded, limits, strict=True)):
        raise ValueError(
            f"{where}: {what} {value} is outside 1..{limits}; launch nothing when there is no work"
        )
    if limits is MAX_BLOCK and padded[0] * padded[1] * padded[2] > MAX_BLOCK[0]:
        raise ValueError(f"{where}: block {value} is over {MAX_BLOCK[0]} threads; use more blocks")
    return padded


class _Kernel(NamedTuple):
    """A compiled kernel: its parameters and how to run it.

    A parameter is its kind (P a pointer, f floating point, i an integer, V any other, ? unknown)
    and its bytes: "f4".
    """

    parameters: tuple[str, ...]
    run: Callable[[str, Dim3, Dim3, int, ctypes.Array], None]

    def refuse_unlike(self, where: str, types: list[torch.device | str]) -> None:
        """Raise TypeError for arguments that the kernel would read as garbage."""
        given = tuple(t if isinstance(t, str) else "P8" for t in types)
        pairs = zip(given, self.parameters, strict=False)
        wanted = tuple(g[0] + p[1:] if p[0] in "V?" else p for g, p in pairs)
        if given != wanted or len(given) != len(self.parameters):
            raise TypeError(
                f"{where}: arguments {given} for parameters {self.parameters} (P pointer, f float, "
                "i integer, and bytes); pass np.int32, np.int64, np.float32 and so on to match"
            )


def _failure(path: Path, text: str, names: Sequence[str], log: str, pattern: str) -> Exception:
    """The exception for a compiler's log; pattern finds an error's file, line and message."""
    file, line, message = next(iter(re.findall(pattern, log, re.MULTILINE)), ("", "", log.strip()))
    places = ("launcher", str(HEADER), "__nv_name_map")  # where the compilers look kernels up
    if file not in places or "static assertion" in message:
        return RuntimeError(f"{file}:{line}: {message}" if file else f"{path.name}: {message}")
    plain = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", text)
    kernels = re.findall(r"__global__\s+(?:static\s+)?void\s+(\w+)", plain)
    for name in names:
        if name.partition("<")[0].strip() not in kernels:
            return ValueError(f"{path.name}: no kernel {name!r}; it has {', '.join(kernels)}")
    return ValueError(
        f"{path.name}: no kernel {' or '.join(names)} here: its template arguments are wrong, or "
        f"a guard such as __CUDA_ARCH__ leaves it out ({message})"
    )


# CPU: one shared library for each kernel instance, kept in the user's cache.

FLAGS = (
    *("-O2", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-w"),
    "-fno-strict-aliasing",  # kernels read float arrays as float4
    "-ffp-contract=off",  # the same numbers on every host
    "-fno-math-errno",
    *("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=0"),  # its longjmp refuses to change stacks
)
_host_lock = threading.Lock()  # the shim keeps a block's state in globals


def _translation_unit(path: Path, text: str, name: str) -> str:
    """The C++ that runs kernel `name`: the .cu with its shared arrays made plain, a launcher."""
    align = r"(?:(?:__align__|alignas)\s*\([^)]*\)\s*)?"
    text = re.sub(  # dynamic shared memory has no size, so it cannot be an array here
        rf"\bextern\s+{align}__shared__\s+{align}([^;\[\]]+?)\s*\b(\w+)\s*\[\s*\]\s*;",
        r"\1* const \2 = reinterpret_cast<\1*>(warpshelf::dynamic_shared);",
        text,
    )
    headers = r"^[ \t]*#[ \t]*include[ \t]*<(?:cuda_fp16\.h|cuda_bf16\.h|cuda_runtime\.h)>"
    text = re.sub(headers, "", text, flags=re.MULTILINE)
    declared = poisoned = ""
    if platform.system() == "Linux":  # a section each is how the shim finds the static arrays
        pieces = re.split(r"\b__shared__\b", text)
        text = pieces[0]
        for i, piece in enumerate(pieces[1:]):
            text += f'static __attribute__((section("ws_shared_{i}"))){piece}'
            start, stop = f"__start_ws_shared_{i}", f"__stop_ws_shared_{i}"
            declared += f"WARPSHELF_BOUND char {start}[], {stop}[];\n"
            poisoned += f"    if ({start}) memset({start}, 0xff, {stop} - {start});\n"
    return (
        f'#include "{HEADER}"\n#line 1 "{path}"\n{text}\n#line 1 "launcher"\n{declared}'
        f"void warpshelf::poison_static_shared() {{\n{poisoned}}}\nWARPSHELF_LAUNCHER({name})\n"
    )


@cache
def _compiler(choice: str | None) -> tuple[tuple[str, ...], str]:
    """The C++ compiler's command, and what it says of its version."""
    for candidate in filter(None, (choice, "g++", "clang++")):
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            version = subprocess.run([*command, "--version"], capture_output=True, text=True)
            return tuple(command), version.stdout
    raise RuntimeError("host execution needs a C++ compiler: install g++ or clang++, or set CXX")


def _library(path: Path, text: str, options: tuple[str, ...], name: str) -> Path:
    """The shared library of one kernel instance, compiled unless the cache has it."""
    command, version = _compiler(os.environ.get("CXX"))
    unit = _translation_unit(path, text, name)
    flags = (*FLAGS, f"-I{path.parent}", *(o for o in options if o[:2] in ("-D", "-U", "-I")))
    headers = sorted(h for h in path.parent.iterdir() if h.suffix in (".h", ".hpp", ".cuh"))
    parts = [unit, version, platform.machine(), *command, *flags]
    parts += [header.read_text() for header in (HEADER, *headers)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warpshelf" / "host"
    library = folder / f"{path.stem}-{key}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = Path(work) / library.name
        run = subprocess.run(
            [*command, *flags, "-x", "c++", "-", "-o", str(made)],
            input=unit, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        if run.returncode:
            pattern = r"^([^:\n]+):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$"
            raise _failure(path, text, (name,), run.stderr, pattern)
        made.replace(library)
    return library


@cache
def _host_kernel(path: Path, text: str, options: tuple[str, ...], name: str, _: None) -> _Kernel:
    library = ctypes.CDLL(str(_library(path, text, options, name)))
    library.warpshelf_launch.restype = library.warpshelf_signature.restype = ctypes.c_char_p
    library.warpshelf_launch.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def run(where: str, grid: Dim3, block: Dim3, shared: int, args: ctypes.Array) -> None:
        with _host_lock:
            dims = (ctypes.c_uint * 6)(*grid, *block)
            if error := library.warpshelf_launch(dims, shared, args):
                raise RuntimeError(f"{where}: {error.decode()}")

    return _Kernel(tuple(library.warpshelf_signature().decode().split()), run)


# GPU: NVRTC makes a cubin, the driver loads and launches it.


def _target(arch: str) -> str:
    """An architecture with all its features: sm_90 is compiled as sm_90a, sm_100 as sm_100a."""
    return f"{arch}a" if re.fullmatch(r"sm_(9|10)\d", arch) else arch


@cache
def _toolkits() -> tuple[Path, ...]:
    """Where include/ and lib/ may be: the folders of nvidia's wheels, then a CUDA toolkit."""
    wheels = (wheel for site in sys.path for wheel in sorted(Path(site).glob("nvidia/*")))
    return (*wheels, Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda"))


@cache
def _nvrtc() -> ctypes.CDLL:
    major = (torch.version.cuda or "13").partition(".")[0]
    for folder in (t / lib for t in _toolkits() for lib in ("lib", "lib64")):
        for library in folder.glob(f"libnvrtc.so.{major}"):
            # NVRTC looks for its builtins by name, and not every wheel tells it where.
            for builtins in folder.glob(f"libnvrtc-builtins.so.{major}.*"):
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(library))
    with suppress(OSError):
        return ctypes.CDLL(f"libnvrtc.so.{major}")
    raise RuntimeError(f"NVRTC {major} was not found: pip install 'nvidia-cuda-nvrtc=={major}.*'")


@cache
def _nvrtc_compile(
    path: Path, text: str, options: tuple[str, ...], names: tuple[str, ...], target: str
) -> tuple[bytes, dict[str, str]]:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(code: int) -> None:
        if code:
            raise RuntimeError(f"{path.name}: NVRTC: {nvrtc.nvrtcGetErrorString(code).decode()}")

    def fetch(kind: str) -> bytes:
        size = ctypes.c_size_t()
        check(nvrtc[f"nvrtcGet{kind}Size"](program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        check(nvrtc[f"nvrtcGet{kind}"](program, data))
        return data.raw

    folders = [path.parent, *(t / d for t in _toolkits() for d in ("include", "include/cccl"))]
    flags = [f"--gpu-architecture={target}", "--std=c++17"]
    flags += [*(f"-I{folder}" for folder in folders if folder.is_dir()), *options]
    file = str(path).encode()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), file, 0, None, None))
    try:
        for name in names:
            check(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        if nvrtc.nvrtcCompileProgram(program, len(flags), array):
            log = fetch("ProgramLog").rstrip(b"\0").decode(errors="replace")
            pattern = r"^(.+)\((\d+)\): (?:catastrophic )?error:? (?:#\S+ )?(.*)$"
            raise _failure(path, text, names, log, pattern)
        symbols, symbol = {}, ctypes.c_char_p()
        for name in names:
            check(nvrtc.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(symbol)))
            symbols[name] = (symbol.value or b"").decode()
        return fetch("CUBIN"), symbols
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(where: str, code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{where}: CUDA error {code}: {(text.value or b'').decode()}")


@contextmanager
def _current(context: ctypes.c_void_p) -> Iterator[None]:
    """Makes torch's context of a device current: a thread new to CUDA has none."""
    _check("context", _driver().cuCtxPushCurrent_v2(context))
    try:
        yield
    finally:
        _driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


@cache
def _gpu_kernel(path: Path, text: str, options: tuple[str, ...], name: str, index: int) -> _Kernel:
    major, minor = torch.cuda.get_device_capability(index)  # initializes CUDA
    code, symbols = _nvrtc_compile(path, text, options, (name,), _target(f"sm_{major}{minor}"))
    driver, device = _driver(), ctypes.c_int()
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _check(path.name, driver.cuDeviceGet(ctypes.byref(device), index))
    _check(path.name, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    parameters: list[str] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    with _current(context):
        _check(path.name, driver.cuModuleLoadData(ctypes.byref(module), code))
        symbol = symbols[name].encode()
        _check(path.name, driver.cuModuleGetFunction(ctypes.byref(function), module, symbol))
        while not driver.cuFuncGetParamInfo(
            function, ctypes.c_size_t(len(parameters)), ctypes.byref(offset), ctypes.byref(size)
        ):
            parameters.append(f"?{size.value}")
    allowed = 0

    def run(where: str, grid: Dim3, block: Dim3, shared: int, args: ctypes.Array) -> None:
        nonlocal allowed
        stream = ctypes.c_void_p(torch.cuda.current_stream(index).cuda_stream)
        with _current(context):
            if shared > allowed:  # above 48 KB in all, the driver wants to be asked
                attribute = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                what = f"{where}: {shared} bytes of shared memory"
                _check(what, driver.cuFuncSetAttribute(function, attribute, shared))
                allowed = shared
            if code := driver.cuLaunchKernel(
                function, *grid, *block, shared, stream, args, None
            ):
                _check(f"{where}: grid {grid}, block {block}, shared {shared}", code)

    return _Kernel(tuple(parameters), run)
