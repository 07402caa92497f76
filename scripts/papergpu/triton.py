"""Triton's kernels executed on a CPU: `activate`, then `kernel[grid](cpu_tensor, ...)` as ever.

Triton compiles as it does for the GPU that is named; its PTX takes the place of the binary, and a
launch is executed by the engine. Nothing of the kernel changes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from triton._C.libtriton import llvm
from triton.backends import Backend, backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import _allocation
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import FileCacheManager
from triton.runtime.driver import driver as drivers

from papergpu import (
    cuda_tensors,
    file_cache,
    kernel_cache,
    session,
    tensormap,
    tensors,
    triton_arguments,
)
from papergpu.device import (
    PROCESSORS,
    SHARED,
    Benchmarker,
    Clock,
    TorchInterface,
    compiler_patches,
    device_properties,
    parse_target,
    tuner_patches,
)
from papergpu.errors import Unreadable, Unsupported
from papergpu.launch import Kernel, Settings
from papergpu.session import Undo


class Utils:
    """What Triton's C module does for the real driver."""

    def __init__(self, sm: int) -> None:
        self.sm = sm

    def get_device_properties(self, device: Any = None) -> dict[str, int]:
        return {
            "max_shared_mem": SHARED[self.sm],
            "max_num_regs": 65_536,
            "multiprocessor_count": PROCESSORS,
            "warpSize": 32,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 1024,
        }

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[object, Kernel, int, int, int]:
        """Module, function, registers, spills and threads of a kernel."""
        try:
            kernel = kernel_cache.load_kernel(bytes(binary).decode(), name)
        except Unsupported as error:
            raise Unsupported(f"{name}: {error}") from None
        except Unreadable as error:
            raise Unsupported(f"{name}: PTX line {error}") from None
        limit = kernel.program.directives.get("maxntid") or (1024,)
        threads = 1
        for one in limit:
            threads *= one
        # What Triton has to unload it asks the driver of that moment to, which may be another.
        unloads = hasattr(triton.compiler.CompiledKernel, "__del__")
        return None if unloads else kernel, kernel, 0, 0, threads

    def unload_module(self, module: object) -> None:
        """There is nothing to release."""

    def set_printf_fifo_size(self, size: int) -> None:
        """There is no queue to lengthen."""

    def cuOccupancyMaxActiveClusters(self, function: Any, shared: int, size: int) -> int:
        return max(1, PROCESSORS // size)

    def is_stream_capturing(self, stream: int) -> bool:
        return False

    def fill_tma_descriptor_tiled(self, *given: Any) -> bytes:
        """The map of a tensor of the host, by what Triton passes to CUDA for it."""
        return bytes(tensormap.tiled(*given))

    fill_tma_descriptor = fill_tma_descriptor_tiled

    def fill_tma_descriptor_im2col(self, *given: Any) -> bytes:
        """The same of a tensor of images."""
        return bytes(tensormap.im2col(*given))


class Launcher:
    """Launches one compiled kernel."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.metadata = metadata
        self.types = list(src.signature.values())
        names = getattr(getattr(src, "fn", None), "arg_names", None)
        self.names = list(names) if names and len(names) == len(self.types) else [
            f"argument {at}" for at in range(len(self.types))]  # fmt: skip
        self.descriptors = list(getattr(metadata, "tensordesc_meta", None) or ())

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Kernel, packed: Any,
        launch_metadata: Any, enter: Any, leave: Any, *given: Any,
    ) -> None:  # fmt: skip
        if enter is not None:
            enter(launch_metadata)
        if x * y * z > 0:
            self.launch((int(x), int(y), int(z)), stream, function, given)
        if leave is not None:
            leave(launch_metadata)

    def launch(
        self, grid: tuple[int, int, int], stream: int, kernel: Kernel, values: Sequence[Any]
    ) -> None:
        meta = self.metadata
        clusters = getattr(meta, "num_ctas", 1)
        name = kernel.program.name
        if len(values) != len(self.types):
            raise TypeError(f"{name} takes {len(self.types)} arguments with its constants, and got "
                            f"{len(values)}: pass all, as this version of Triton asks")  # fmt: skip
        try:
            touched = tensors.find_tensor_memory(triton_arguments.find_tensors(self.names, values))
            given = triton_arguments.flatten_arguments(
                self.names, self.types, values, self.descriptors
            )
            found = list(given)
            parameters = [triton_arguments.pack_argument(one) for one in found]
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
        programs = grid[0] * grid[1] * grid[2] * clusters
        scratch = [self.allocate_scratch(kind, programs, stream) for kind in ("global", "profile")]
        for kind, room in zip(("global", "profile"), scratch, strict=True):
            address = 0 if room is None else room.data_ptr()
            parameters.append(address.to_bytes(8, "little"))
            if room is not None:
                touched += tensors.find_tensor_memory([(f"the {kind} scratch memory", room)])
        sizes = [size for _, _, size in kernel.program.parameters]
        wrong = [one.name for one, size, data in zip(found, sizes, parameters, strict=False)
                 if len(data) > size and one.type not in ("i1", "u1")]  # fmt: skip
        if len(sizes) != len(parameters) or wrong:
            raise Unsupported(
                f"{name} takes {len(sizes)} parameters of {sizes} bytes, but its arguments make "
                f"{[len(one) for one in parameters]}: this Triton version passes them differently"
            )
        session.launch(
            kernel,
            (grid[0] * clusters, grid[1], grid[2]),
            (32 * meta.num_warps, 1, 1),
            parameters,
            touched,
            dynamic=meta.shared,
            cluster=(clusters, 1, 1),
            cooperative=bool(getattr(meta, "launch_cooperative_grid", False)),
        )

    def allocate_scratch(self, kind: str, programs: int, stream: int) -> Any:
        """Scratch memory that the compiler asks for, from Triton's allocator."""
        size = getattr(self.metadata, f"{kind}_scratch_size", 0) or 0
        if not size:
            return None
        align = getattr(self.metadata, f"{kind}_scratch_align", 1)
        held = _allocation._allocator if kind == "global" else _allocation._profile_allocator
        allocate = held.get()
        if kind == "profile" and isinstance(allocate, _allocation.NullAllocator):
            return torch.zeros(programs * size, dtype=torch.uint8)
        return allocate(programs * size, align, stream)


UNSPECIALIZED = 1000  # added to the number of a device for which nothing is specialized


def _drop_specialization(kind: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """What Triton takes an argument to be, less that it is 1, divides by 16 or is aligned."""
    if isinstance(kind, tuple):
        each = list(map(_drop_specialization, kind, key, value))
        return tuple(one for one, _ in each), tuple(one for _, one in each)
    if kind == "constexpr" and type(value) is int:
        kind, key = "i32", ""
    return kind, "" if key == "D" else key


def _wrap_binder(bind: Callable[..., Any]) -> Callable[..., Any]:
    """Triton's `bind`, which makes of a kernel's parameters what tells its arguments apart."""

    def make_binder(signature: Any, parameters: Sequence[Any], backend: Any) -> Any:
        bound = bind(signature, parameters, backend)
        if session.current_settings().specialize:
            return bound

        def bind_unspecialized(*given: Any, **named: Any) -> Any:
            values, told, options = bound(*given, **named)
            several = zip(parameters, told, values.values(), strict=True)
            told = [(kind, key) if one.is_constexpr else _drop_specialization(kind, key, value)
                    for one, (kind, key), value in several]  # fmt: skip
            return values, told, options

        return bind_unspecialized

    return make_binder


class Driver:
    """Takes the place of Triton's CUDA driver."""

    def __init__(self, sm: int) -> None:
        self.sm = sm
        self.clock = Clock()
        self.utils = Utils(sm)
        self.launcher_cls = Launcher
        self.interface = TorchInterface(self.clock)

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", self.sm, 32)

    def get_current_device(self) -> int:
        # Triton keeps what it compiled, and how it tells arguments apart, by this number.
        return self.sm + (0 if session.current_settings().specialize else UNSPECIALIZED)

    def set_current_device(self, device: int) -> None:
        """There is but one."""

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return divmod(self.sm, 10)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> TorchInterface:
        return self.interface

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Benchmarker:
        return Benchmarker(self.clock)

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is none to clear."""

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> Any:
        return torch.zeros(size, dtype=torch.uint8)

    def assemble_tensormap_to_arg(self, tensormaps: Any, given: Any) -> Any:
        return given


DriverBase.register(Driver)


class Cache(FileCacheManager):  # type: ignore[misc]
    """Triton's cache in one folder, of each kernel its PTX and what Triton noted of it.

    Triton's own makes and removes a folder for each file, and keeps all that lies between source
    and PTX. What was not read for longest goes: see `LIMIT`. `TRITON_CACHE_DIR` moves it.
    """

    # Bytes of each of the 32 folders that kernels are spread over by their keys, the PTX twice.
    LIMIT = 32 << 20

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.plain = not (override or dump)
        if not self.plain:
            super().__init__(key, override, dump)
            return
        given = os.environ.get("TRITON_CACHE_DIR")
        root = Path(given) / "papergpu" if given else file_cache.cache_dir() / "triton"
        self.key, self.cache_dir = key, str(root / key[:1])

    def _make_path(self, filename: str) -> str:
        name = f"{self.key[1:]}.{filename}" if self.plain else filename
        return os.path.join(self.cache_dir, name)

    def get_group(self, filename: str) -> dict[str, str] | None:
        if not self.plain:
            return super().get_group(filename)  # type: ignore[no-any-return]
        stem = filename.removesuffix(".json")
        found = {name: self._make_path(name) for name in (filename, f"{stem}.ptx", f"{stem}.cubin")}
        try:
            for path in found.values():
                os.utime(path)
        except OSError:
            return None
        return found

    def put_group(self, filename: str, group: dict[str, str]) -> Any:
        return None if self.plain else super().put_group(filename, group)

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        if not self.plain:
            return super().put(data, filename, binary)  # type: ignore[no-any-return]
        ending = filename.rpartition(".")[2]
        if ending not in ("json", "ptx", "cubin"):
            return os.devnull
        path = Path(self._make_path(filename))
        text = data if isinstance(data, bytes) else str(data).encode()
        if ending == "cubin":  # which is the PTX again
            with suppress(OSError):
                path.unlink(missing_ok=True)
                os.link(path.with_suffix(".ptx"), path)
                return str(path)
        file_cache.write_cached(path, text, self.LIMIT)
        if not path.exists():  # a folder that cannot be written is done without
            path = file_cache.scratch_dir() / path.name
            path.write_bytes(text)
        return str(path)


def _make_compiler(real: Any) -> Any:
    """Triton's compiler for CUDA, whose binary is PTX and whose cache is apart from the real one's.

    Triton keeps its compiled kernels, and how long they took, by what the compiler calls its hash.
    """

    def make_cubin(self: Any, src: str, metadata: Any, *_: Any) -> bytes:
        return src.encode()

    def compiler_hash(self: Any) -> str:
        return f"{real.hash(self)}-papergpu"

    return type(
        real.__name__, (real,), {"make_cubin": make_cubin, "hash": compiler_hash, "papergpu": True}
    )


LIBRARIES = 1 << 20  # bytes that are kept of what kernels ask of libraries
_ENTRY = re.compile(
    r"^(?:define [^\n]*?(@[\w.$]+)\(.*?^\}|declare [^\n]*?(@[\w.$]+)\([^\n]*|"
    r"([@%][\w.$]+|!\d+) = [^\n]*|attributes (#\d+)[^\n]*)$",
    re.MULTILINE | re.DOTALL,
)


def _wrap_linker(
    link: Callable[[Any, Sequence[str]], None],
) -> Callable[[Any, Sequence[str]], None]:
    """`link` for kernels, which reads all of a library once for all that ask the same of it.

    To read libdevice takes longer than to optimise a kernel. What is linked is the same.
    """

    def link_cached(module: Any, paths: Sequence[str]) -> None:
        lacking = sorted(one.name for one in module.get_functions() if one.is_declaration())
        asked = [name for name in lacking if not name.startswith("llvm.")]
        files = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths]
        told = repr((triton.__version__, files, asked)).encode()
        name = hashlib.blake2b(told, digest_size=20).hexdigest()
        kept_one = file_cache.cache_dir() / "libraries" / f"{name}.ll"
        if kept_one.exists():
            link(module, [str(kept_one)])
            return
        link(module, paths)
        file_cache.write_cached(kept_one, extract_functions(str(module), asked).encode(), LIBRARIES)

    return link_cached


def extract_functions(module: str, names: Iterable[str]) -> str:
    """A module of LLVM that has those functions of another, and what they refer to, for linking."""
    entries = {next(filter(None, one.groups())): one[0] for one in _ENTRY.finditer(module)}
    waiting, found = [f"@{name}" for name in names], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name in entries and name not in found:
            found[name] = entries[name].replace("define internal ", "define ", 1)
            waiting += re.findall(r"[@%][\w.$]+|[#!]\d+", entries[name])
    return "\n".join(found[name] for name in entries if name in found) + "\n"


def compile_to_ptx(sm: int) -> Undo:
    """From here on Triton compiles for CUDA to PTX alone, and keeps that in a `Cache`.

    The binary of a kernel is then its PTX. Whoever chose a cache of their own keeps it.

    Raises:
        ValueError: this Triton does not compile for that SM version.
    """
    wanted = GPUTarget("cuda", sm, 32)
    names = [key for key, one in backends.items() if one.compiler.supports_target(wanted)]
    if not names:
        raise ValueError("this Triton cannot compile for CUDA: install one that can")
    name, before = names[0], backends[names[0]]
    knobs = triton.knobs.cache
    manager, link = knobs.manager_class, llvm.link_extern_libs
    # Of what compiles so already, the compiler that it has put there stays.
    if not hasattr(before.compiler, "papergpu"):
        backends[name] = Backend(compiler=_make_compiler(before.compiler), driver=before.driver)
        llvm.link_extern_libs = _wrap_linker(link)
    if manager is None and not getattr(triton.knobs.compilation, "use_ir_loc", None):
        knobs.manager_class = Cache

    def undo() -> None:
        backends[name], knobs.manager_class = before, manager
        llvm.link_extern_libs = link

    return Undo(undo)


_active: list[ExitStack] = []  # by each `activate` what takes it back


def activate(
    target: str | int | None = None, settings: Settings | None = None, cuda: bool = False
) -> None:
    """Execute Triton's kernels on tensors of the CPU, as on a GPU of that target.

    Where none is given, that is the one that `PAPERGPU_TARGET` names in the environment, or sm_90.
    With `cuda`, tensors that are asked for on CUDA are made on the CPU and say that they are there.

    Raises:
        ValueError: the target is not supported, or Triton was told to interpret.
    """
    sm = parse_target(target or os.environ.get("PAPERGPU_TARGET") or "sm_90")
    if triton.knobs.runtime.interpret:
        raise ValueError("TRITON_INTERPRET is set, so nothing is compiled: unset it and restart")
    driver = Driver(sm)
    undo = ExitStack()
    if settings is not None:
        undo.enter_context(session.replace_settings(settings))
    undo.enter_context(compile_to_ptx(sm))
    patches = [*_host_patches(driver)]
    if cuda:
        patches += cuda_tensors.host_patches(driver.interface)
        undo.enter_context(cuda_tensors.CudaTensors())
    _patch(undo, patches)
    _patch(undo, compiler_patches(driver.get_current_target(), partial(_patch, undo)))
    undo.enter_context(session.on_launch(driver.clock.advance))
    undo.callback(drivers.set_active, drivers._active)
    drivers.set_active(driver)
    _active.append(undo)


def _patch(undo: ExitStack, patches: Iterable[tuple[Any, str, Any]]) -> None:
    for owner, attribute, value in patches:
        undo.callback(setattr, owner, attribute, getattr(owner, attribute))
        setattr(owner, attribute, value)


def deactivate() -> None:
    """Take back the last `activate`; without one, nothing happens."""
    if _active:
        _active.pop().close()


@contextmanager
def active(
    target: str | int = "sm_90", settings: Settings | None = None, cuda: bool = False
) -> Iterator[None]:
    """`activate` until the end of a `with` block."""
    activate(target, settings, cuda)
    try:
        yield
    finally:
        deactivate()


def _host_patches(driver: Driver) -> Iterator[tuple[Any, str, Any]]:
    """What host code asks torch and Triton for directly."""
    yield torch.cuda, "get_device_capability", driver.get_device_capability
    yield torch.cuda, "get_device_properties", lambda device=None: device_properties(driver.sm)
    yield torch.cuda, "get_device_name", lambda device=None: device_properties(driver.sm).name
    yield torch.cuda, "current_device", lambda: 0
    yield torch.cuda, "synchronize", lambda device=None: None
    yield triton.testing, "do_bench_cudagraph", driver.get_benchmarker()
    yield from tuner_patches(Autotuner)
    bind = triton.runtime.jit.create_function_from_signature
    yield triton.runtime.jit, "create_function_from_signature", _wrap_binder(bind)
