"""Launches the kernels of a .cu file: on a GPU, or from their PTX on a CPU.

`Source(path).launch("scale<float4>", grid, block, tensor, np.int64(n))` is one call for both.
On a GPU cuda-core compiles it by NVRTC and launches it on torch's current stream. On a CPU NVRTC
compiles it as well, papergpu executes its PTX, and the call returns when the kernel is done;
`PAPERGPU_TARGET` in the environment names the architecture, sm_90 unless it is there, and
`papergpu.settings`, `papergpu.on_launch` and `papergpu.unwritten` hold as for Triton's kernels.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

Dim = int | tuple[int, ...]
Dim3 = tuple[int, int, int]

MAX_GRID = (2**31 - 1, 65_535, 65_535)  # blocks
MAX_BLOCK = (1024, 1024, 64)  # threads, and 1024 in all
MAX_CLUSTER = 8  # blocks of a cluster, on every GPU that has them
MAX_SHARED = 232_448  # bytes of shared memory that a block of sm_90 or sm_100 can have
NUMPY_KINDS = {"f": "f", "i": "i", "u": "i", "b": "i"}  # numpy's kinds of scalars, and ours

observer: Callable[[Source, str, Dim3, Dim3, tuple, int], None] | None = None
"""When set, `Source.launch` hands it (source, name, grid, block, args, shared) and runs nothing."""


class _Shape(NamedTuple):
    """Of a launch: blocks, threads of a block, blocks of a cluster, dynamic shared bytes."""

    grid: Dim3
    block: Dim3
    cluster: Dim3 | None
    shared: int

    def __str__(self) -> str:
        cluster = f", cluster {self.cluster}" if self.cluster else ""
        return f"grid {self.grid}, block {self.block}{cluster}, shared {self.shared}"


class Source:
    """A .cu file and how to compile it.

    path: the file. options: NVRTC's, such as "--use_fast_math" or "-DTILE=32", as far as
    cuda-core's ProgramOptions has them.
    """

    def __init__(self, path: str | Path, options: Iterable[str] = ()) -> None:
        self.path = Path(path).resolve()
        self.options = tuple(options)
        self._plans: dict[tuple, tuple[_Kernel, _Shape]] = {}

    def launch(
        self,
        name: str,
        grid: Dim,
        block: Dim,
        *args: Any,
        shared: int = 0,
        cluster: Dim | None = None,
    ) -> None:
        """Run kernel `name`, or a template instance such as "scale<float4>".

        grid, block: blocks and threads, an int or up to three of them. args: tensors, all on one
        device, passed as pointers; numpy scalars, passed as their C types; on a GPU tensor maps
        of cuda-core. shared: bytes of dynamic shared memory a block gets. cluster: blocks of a
        cluster, of which the grid is a multiple.

        Raises TypeError for a Python number or an argument unlike the kernel's parameter;
        ValueError for a grid, block, shared size, cluster, device or name that cannot be;
        RuntimeError when the file does not compile or the run fails.
        """
        where = f"{self.path.name}: {name}"
        types = [_type(where, arg) for arg in args]
        target = os.environ.get("PAPERGPU_TARGET") or "sm_90"  # of what a CPU executes
        key = (name, grid, block, shared, cluster, target, *types)
        if observer is not None or key not in self._plans:
            device = _device(where, types)
            shape = _shape(where, grid, block, shared, cluster)
            if observer is not None:
                observer(self, name, shape.grid, shape.block, args, shared)
                return
            file = self.path, self.path.read_text(), self.options, name
            on_gpu = device.type == "cuda"
            kernel = _gpu_kernel(*file, device.index) if on_gpu else _cpu_kernel(*file, target)
            kernel.refuse_unlike(where, types)
            self._plans[key] = kernel, shape
        kernel, shape = self._plans[key]
        kernel.run(where, shape, args)

    def cubin(self, names: Iterable[str], arch: str) -> tuple[bytes, dict[str, str]]:
        """Compile kernels for an architecture such as "sm_90"; needs cuda-core and no GPU.

        Returns the binary and each name's symbol in it. Raises as `launch` does.
        """
        text = self.path.read_text()
        code = _compile(self.path, text, self.options, tuple(names), _target(arch))
        return code.code, _symbols(code)


def _type(where: str, arg: object) -> torch.device | str:
    """A tensor's device; a scalar's kind and bytes, as `_Kernel` has them."""
    if isinstance(arg, torch.Tensor):
        return arg.device
    if isinstance(arg, np.generic):
        return f"{NUMPY_KINDS.get(arg.dtype.kind, 'V')}{arg.nbytes}"
    if type(arg).__name__ == "TensorMapDescriptor":  # cuda-core's, which need not be there
        return "V128"
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


def _shape(where: str, grid: Dim, block: Dim, shared: int, cluster: Dim | None) -> _Shape:
    blocks, threads = _dims(where, "grid", grid, MAX_GRID), _dims(where, "block", block, MAX_BLOCK)
    if not 0 <= shared <= MAX_SHARED:
        raise ValueError(f"{where}: shared = {shared} is outside 0..{MAX_SHARED} bytes")
    if cluster is None:
        return _Shape(blocks, threads, None, shared)
    sizes = _dims(where, "cluster", cluster, (MAX_CLUSTER,) * 3)
    if sizes[0] * sizes[1] * sizes[2] > MAX_CLUSTER:
        raise ValueError(f"{where}: cluster {cluster} is over {MAX_CLUSTER} blocks")
    if any(n % size for n, size in zip(blocks, sizes, strict=True)):
        raise ValueError(f"{where}: grid {grid} is no multiple of cluster {cluster}; round it up")
    return _Shape(blocks, threads, sizes, shared)


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
    """A compiled kernel: its parameters, where they are known, and how to run it.

    A parameter is its kind (P a pointer, f floating point, i an integer, V any other, ? unknown)
    and its bytes: "f4".
    """

    parameters: tuple[str, ...] | None
    run: Callable[[str, _Shape, tuple], None]

    def refuse_unlike(self, where: str, types: list[torch.device | str]) -> None:
        """Raise TypeError for arguments that the kernel would read as garbage."""
        if self.parameters is None:
            return
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
    places = ("__nv_name_map",)  # where NVRTC looks kernels up
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


# CPU: papergpu executes what NVRTC writes for a GPU.


@cache
def _paper_source(path: Path, text: str, options: tuple[str, ...], target: str) -> Any:
    """The file as papergpu has it; `text` is what it holds, so that a change is seen."""
    try:
        paper = importlib.import_module("papergpu.cuda")
    except ImportError as error:
        raise RuntimeError(
            f"{path.name}: no GPU is here, and without one papergpu executes the kernels' PTX "
            f"(github.com/warpshelf/warpshelf has it): {error}"
        ) from error
    return paper.Source(path, options, target=target)


@cache
def _cpu_kernel(
    path: Path, text: str, options: tuple[str, ...], name: str, target: str
) -> _Kernel:
    source = _paper_source(path, text, options, _target(target))
    try:
        source.kernel(name)
    except RuntimeError as error:
        pattern = r"^(.+)\((\d+)\): (?:catastrophic )?error:? (?:#\S+ )?(.*)$"
        if type(error).__name__ != "CompileError":
            raise
        raise _failure(path, text, (name,), str(error), pattern) from None

    def run(where: str, shape: _Shape, args: tuple) -> None:
        source.launch(
            name, shape.grid, shape.block, *args, shared=shape.shared, cluster=shape.cluster
        )

    return _Kernel(None, run)


# GPU: cuda-core compiles, loads and launches.


@cache
def _core() -> ModuleType:
    """cuda-core, imported when first needed: it takes longer than this module."""
    for name in ("cuda.core", "cuda.core.experimental"):  # the second until version 0.5
        with suppress(ImportError):
            core = importlib.import_module(name)
            if hasattr(core, "Program"):
                return core
    raise RuntimeError(f"compiling a .cu by NVRTC needs cuda-core: {_install()}")


def _install() -> str:
    major = (torch.version.cuda or "13").partition(".")[0]
    wheels = f"cuda-core 'cuda-bindings=={major}.*' 'nvidia-cuda-nvrtc=={major}.*'"
    return f"pip install {wheels}"


def _target(arch: str) -> str:
    """An architecture with all its features: sm_90 is compiled as sm_90a, sm_100 as sm_100a."""
    return f"{arch}a" if re.fullmatch(r"sm_(9|10)\d", arch) else arch


@cache
def _include_paths() -> tuple[str, ...]:
    """Where CUDA's headers may be: the folders of nvidia's wheels, then a CUDA toolkit."""
    roots = [wheel for site in sys.path for wheel in sorted(Path(site).glob("nvidia/*"))]
    roots.append(Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda"))
    folders = (root / folder for root in roots for folder in ("include", "include/cccl"))
    return tuple(str(folder) for folder in folders if folder.is_dir())


def _settings(path: Path, options: tuple[str, ...]) -> dict[str, Any]:
    """The fields of cuda-core's ProgramOptions for options as NVRTC spells them."""
    macros, undefined, folders = (
        [option[2:] for option in options if option.startswith(kind)] for kind in ("-D", "-U", "-I")
    )
    settings: dict[str, Any] = {
        "name": str(path),
        "std": "c++17",
        "define_macro": macros or None,
        "undefine_macro": undefined or None,
        "include_path": [str(path.parent), *folders, *_include_paths()],
    }
    for option in options:
        if option[:2] not in ("-D", "-U", "-I"):
            name, _, value = option.lstrip("-").partition("=")
            field = {"maxrregcount": "max_register_count"}.get(name, name.replace("-", "_"))
            settings[field] = {"": True, "true": True, "false": False}.get(value, value)
    return settings


@cache
def _compile(
    path: Path, text: str, options: tuple[str, ...], names: tuple[str, ...], target: str
) -> Any:
    """The kernels as an ObjectCode of cuda-core that holds a cubin."""
    core = _core()
    try:
        settings = core.ProgramOptions(arch=target, **_settings(path, options))
    except TypeError as error:
        raise ValueError(f"{path.name}: options {options}: {error}") from error
    try:
        program = core.Program(text, "c++", settings)
        return program.compile("cubin", name_expressions=names)
    except Exception as error:  # cuda-core has no public type for it
        if "NVRTC_ERROR_COMPILATION" not in str(error):
            line = str(error).strip().partition("\n")[0]
            mend = f"; {_install()}" if "not found" in line or "finding" in line else ""
            raise RuntimeError(f"{path.name}: NVRTC: {line}{mend}") from error
        pattern = r"^(.+)\((\d+)\): (?:catastrophic )?error:? (?:#\S+ )?(.*)$"
        raise _failure(path, text, names, str(error), pattern) from None


def _symbols(code: Any) -> dict[str, str]:
    """Each kernel's symbol in an ObjectCode; older versions have no public name for it."""
    found = code.symbol_mapping if hasattr(code, "symbol_mapping") else code._sym_map
    return {name: s.decode() if isinstance(s, bytes) else s for name, s in found.items()}


@cache
def _config(shape: _Shape) -> Any:
    grid, block, cluster, shared = shape
    if cluster is None:
        return _core().LaunchConfig(grid=grid, block=block, shmem_size=shared)
    version = importlib.import_module("cuda.core").__version__
    if tuple(map(int, version.split(".")[:2])) < (0, 4):  # there a grid counts blocks
        raise RuntimeError(f"clusters need cuda-core 0.4 or later, this is {version}; upgrade it")
    grid = tuple(n // size for n, size in zip(grid, cluster, strict=True))  # of clusters
    return _core().LaunchConfig(grid=grid, cluster=cluster, block=block, shmem_size=shared)


@cache
def _stream(handle: int, index: int) -> Any:
    """torch's stream with this handle, on device `index`."""
    return _core().Stream.from_handle(handle)


def _allow_shared(kernel: Any, index: int, shared: int) -> None:
    """Let a block have so much dynamic shared memory: cuda-core only reads the attribute."""
    driver = importlib.import_module("cuda.bindings.driver")
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    handle = kernel.handle if hasattr(kernel, "handle") else kernel._handle
    (code,) = driver.cuKernelSetAttribute(attribute, shared, handle, driver.CUdevice(index))
    if code:
        raise RuntimeError(f"so much shared memory is refused: {code.name}")


@cache
def _gpu_kernel(path: Path, text: str, options: tuple[str, ...], name: str, index: int) -> _Kernel:
    major, minor = torch.cuda.get_device_capability(index)  # initializes CUDA
    code = _compile(path, text, options, (name,), _target(f"sm_{major}{minor}"))
    core, device = _core(), _core().Device(index)  # torch and cuda-core count devices alike
    parameters = None
    with torch.cuda.device(index):  # puts torch's own device back
        device.set_current()  # a thread new to CUDA has none
        kernel = code.get_kernel(name)
        with suppress(NotImplementedError):  # a driver before 12.4 does not tell
            parameters = tuple(f"?{each.size}" for each in kernel.arguments_info)
    allowed = 0

    def run(where: str, shape: _Shape, args: tuple) -> None:
        nonlocal allowed
        values = [arg.data_ptr() if isinstance(arg, torch.Tensor) else arg for arg in args]
        try:
            with torch.cuda.device(index):
                device.set_current()
                if shape.shared > allowed:  # above 48 KB in all, the driver wants to be asked
                    _allow_shared(kernel, index, shape.shared)
                    allowed = shape.shared
                stream = _stream(torch.cuda.current_stream(index).cuda_stream, index)
                core.launch(stream, _config(shape), kernel, *values)
        except TypeError as error:  # a value that cuda-core does not pass, such as a structure
            raise TypeError(f"{where}: {error}") from error
        except Exception as error:  # CUDAError, which is not public
            raise RuntimeError(f"{where}: {shape}: {error}") from error

    return _Kernel(parameters, run)
