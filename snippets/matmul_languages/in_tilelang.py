"""The same product in TileLang, which makes CUDA C++ of it; NVRTC compiles that."""

from __future__ import annotations

from pathlib import Path

import tilelang
import tilelang.language as T
from papergpu import nvrtc
from tilelang.engine import lower
from tvm.target import Target

# What cuda.h has and NVRTC has not: it is passed, and never looked into.
MAP = "struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };\n"
STAGES = 3
SHARED = STAGES * 2 * 2 * 128 * 32  # bytes: so many pairs of slabs


# --8<-- [start:kernel]
def gemm_tilelang(M, N, K, SIDE, DEPTH, STAGES):
    @T.prim_func
    def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"),
             C: T.Tensor((M, N), "float16")):
        with T.Kernel(M // SIDE, N // SIDE, threads=128) as (row, column):
            a = T.alloc_shared((SIDE, DEPTH), "float16")
            b = T.alloc_shared((DEPTH, SIDE), "float16")
            sums = T.alloc_fragment((SIDE, SIDE), "float32")
            T.clear(sums)
            for k in T.Pipelined(K // DEPTH, num_stages=STAGES):
                T.copy(A[row * SIDE, k * DEPTH], a)
                T.copy(B[k * DEPTH, column * SIDE], b)
                T.gemm(a, b, sums)
            T.copy(sums, C[row * SIDE, column * SIDE])
    return gemm
# --8<-- [end:kernel]


def flags() -> list[str]:
    """Where the headers are that it includes."""
    folder = Path(tilelang.__file__).parent
    return [f"-I{folder / 'src'}", f"-I{folder / '3rdparty' / 'cutlass' / 'include'}"]


def source(arch: str, m: int = 4096, n: int = 4096, k: int = 4096) -> str:
    """The CUDA C++ of it, for these sides."""
    full = next(one for one in nvrtc.TARGETS if one.rstrip("a") == arch)
    target = Target({"kind": "cuda", "arch": full})
    with target:
        made = lower(gemm_tilelang(m, n, k, 128, 32, STAGES), target=target)
    return made.kernel_source


def binary(arch: str) -> tuple[bytes, str, int]:
    """The cubin, its symbol and the bytes of dynamic shared memory."""
    full = next(one for one in nvrtc.TARGETS if one.rstrip("a") == arch)
    text = MAP + source(arch)
    made = nvrtc.compiled(nvrtc.unit(text, Path(__file__), flags(), full), ["gemm_kernel"])
    return nvrtc.binary(made.ptx, lines=False), made.symbols["gemm_kernel"], SHARED
