"""Kernels of CUDA C++ for papergpu's tests, by NVRTC."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import ptx_launch
from papergpu.file_cache import scratch_dir
from papergpu.launch import Kernel

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
def compile_cuda(source: str, architecture: str = "compute_90a") -> str:
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device",
               "-lineinfo", *(f"-I{one}" for one in find_headers())]  # fmt: skip
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
    return ptx_launch.load_kernel(ptx, name)
