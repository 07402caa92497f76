"""Kernels for papergpu's tests: CUDA C++ by NVRTC, PTX as it stands, launched on numpy arrays."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from papergpu.decode import decode, memory_of
from papergpu.launch import Kernel, Memory, Result, Settings, loaded
from papergpu.parse import parse


def headers() -> list[str]:
    """The folders of CUDA's own headers."""
    import nvidia

    for root in nvidia.__path__:
        found = Path(root) / "cu13" / "include"
        if found.is_dir():
            return [str(found), str(found / "cccl")]
    raise RuntimeError("the headers of CUDA are not installed: pip install nvidia-cuda-cccl")


@cache
def compiled(source: str, architecture: str = "compute_90a") -> str:
    """The PTX of CUDA C++."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device",
               "-lineinfo", *(f"-I{one}" for one in headers())]  # fmt: skip
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
def kernel(ptx: str, name: str) -> Kernel:
    """A kernel of a module, ready to be launched."""
    module = parse(ptx)
    return loaded(decode(module, name), memory_of(module))


def launched(
    one: Kernel, grid: Any, block: Any, *arguments: Any, touched: Any = (), **options: Any
) -> Result:
    """Launch it on arrays, numpy scalars and bytes; what arrays there are may be touched."""
    settings = options.pop("settings", None) or Settings(threads=1)
    values, memory = [], []
    for number, value in enumerate(arguments):
        if isinstance(value, np.ndarray):
            values.append(value.ctypes.data.to_bytes(8, "little"))
            memory.append(Memory(value.ctypes.data, value.nbytes, f"array {number}"))
        else:
            values.append(value if isinstance(value, bytes) else value.tobytes())
    for value in touched:
        memory.append(Memory(value.ctypes.data, value.nbytes, "what a tensor map is of"))
    grid = (*grid, 1, 1)[:3] if isinstance(grid, tuple) else (grid, 1, 1)
    block = (*block, 1, 1)[:3] if isinstance(block, tuple) else (block, 1, 1)
    return one.launch(grid, block, values, memory, settings=settings, **options)
