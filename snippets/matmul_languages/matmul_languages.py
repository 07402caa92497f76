"""One product in several languages: what has to be said, and what it is compiled to.

Shapes  a (M, K), b (K, N) float16, elements of a row side by side, rows a multiple of
        8 apart -> c (M, N) float16, dense; M and N multiples of 128, K of 32
FLOPs   2 * M * N * K
Error   within 1e-3 of a float64 reference: sums are float32, and c is rounded once
Raises  TypeError for another dtype; ValueError for other shapes, for sides that are no
        whole tiles, rows that do not begin on 16 bytes, or a language not in LANGUAGES
Source  gluon, triton, simple-tensor-core-gemm, cutile, tilelang, helion
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
SIDE, DEPTH, STAGES, WARPS = 128, 32, 4, 4  # of what a block computes
SHARED = STAGES * 2 * 2 * SIDE * DEPTH  # bytes: so many pairs of slabs
# Triton 3.9 renamed it.
async_load = getattr(async_copy, "async_load", async_copy.async_copy_global_to_shared)


# --8<-- [start:triton]
@triton.jit(do_not_specialize=["chunks_a", "chunks_b"])
def gemm_triton(c, a, b, N, K, chunks_a, chunks_b, SIDE: tl.constexpr,
                DEPTH: tl.constexpr, STAGES: tl.constexpr):
    # Rows of a and b lie whole chunks of 8 apart: it sees that each begins on 16 bytes.
    row = (tl.program_id(0) * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    k = tl.arange(0, DEPTH)
    a += row[:, None] * chunks_a * 8 + k[None, :]
    b += k.to(tl.int64)[:, None] * chunks_b * 8 + column[None, :]
    sums = tl.zeros([SIDE, SIDE], tl.float32)
    for _ in tl.range(0, K, DEPTH, num_stages=STAGES):
        sums = tl.dot(tl.load(a), tl.load(b), sums)
        a += DEPTH
        b += tl.cast(DEPTH * 8, tl.int64) * chunks_b
    tl.store(c + row[:, None] * N + column[None, :], sums.to(tl.float16))
# --8<-- [end:triton]


# --8<-- [start:gluon]
@gluon.jit(do_not_specialize=["chunks_a", "chunks_b"])
def gemm_gluon(c, a, b, N, K, chunks_a, chunks_b, SIDE: gl.constexpr,
               DEPTH: gl.constexpr, STAGES: gl.constexpr):
    # Which thread moves what, 16 bytes at a time, and where a slab keeps it: eight
    # chunks that are read together, of as many rows of a or depths of b, in different
    # banks.
    MOVE_A: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    MOVE_B: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    SLAB_A: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, [1, 0])
    SLAB_B: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
    row = gl.program_id(0) * SIDE + gl.arange(0, SIDE, gl.SliceLayout(1, MOVE_A))
    column = gl.program_id(1) * SIDE + gl.arange(0, SIDE, gl.SliceLayout(0, MOVE_B))
    k_a = gl.arange(0, DEPTH, gl.SliceLayout(0, MOVE_A))
    k_b = gl.arange(0, DEPTH, gl.SliceLayout(1, MOVE_B))
    a += row.to(gl.int64)[:, None] * chunks_a * 8 + k_a[None, :]
    b += k_b.to(gl.int64)[:, None] * chunks_b * 8 + column[None, :]
    step_b = gl.to_tensor(DEPTH * 8).to(gl.int64) * chunks_b
    slabs_a = gl.allocate_shared_memory(gl.float16, [STAGES, SIDE, DEPTH], SLAB_A)
    slabs_b = gl.allocate_shared_memory(gl.float16, [STAGES, DEPTH, SIDE], SLAB_B)
    slabs = K // DEPTH
    for slab in gl.static_range(STAGES - 1):
        ask(slabs_a, slabs_b, a, b, slab, slabs, STAGES)
        a += DEPTH
        b += step_b
    sums = gl.zeros([SIDE, SIDE], gl.float32, SUMS)
    for slab in range(slabs):
        async_copy.wait_group(STAGES - 2)  # for all threads: the compiler sees to that
        x = slabs_a.index(slab % STAGES).load(gl.DotOperandLayout(0, SUMS, 2))
        y = slabs_b.index(slab % STAGES).load(gl.DotOperandLayout(1, SUMS, 2))
        ask(slabs_a, slabs_b, a, b, slab + STAGES - 1, slabs, STAGES)
        a += DEPTH
        b += step_b
        sums = mma_v2(x, y, sums)
    async_copy.wait_group(0)  # what was asked for beyond the last lands as zeros
    row = gl.program_id(0) * SIDE + gl.arange(0, SIDE, gl.SliceLayout(1, MOVE_B))
    c += row.to(gl.int64)[:, None] * N + column[None, :]
    gl.store(c, gl.convert_layout(sums.to(gl.float16), MOVE_B))


@gluon.jit
def ask(slabs_a, slabs_b, a, b, slab, slabs, STAGES: gl.constexpr):
    place = slab % STAGES
    async_load(slabs_a.index(place), a, mask=slab < slabs)
    async_load(slabs_b.index(place), b, mask=slab < slabs)
    async_copy.commit_group()
# --8<-- [end:gluon]


# --8<-- [start:product]
def in_cuda(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, grid: tuple) -> None:
    """By NVRTC from the .cu beside this file."""
    sizes = np.int32(b.shape[1]), np.int32(b.shape[0])
    rows = np.int64(a.stride(0)), np.int64(b.stride(0))
    threads = 32 * WARPS
    KERNELS.launch("gemm_cuda", grid, threads, c, a, b, *sizes, *rows, shared=SHARED)


def by(kernel: triton.JITFunction) -> object:
    """By Triton, whose compiler Gluon shares."""

    def launch(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, grid: tuple) -> None:
        sizes = b.shape[1], b.shape[0], a.stride(0) // 8, b.stride(0) // 8
        with torch.cuda.device_of(a):
            kernel[grid](c, a, b, *sizes, SIDE, DEPTH, STAGES, num_warps=WARPS)

    return launch


LANGUAGES = {"CUDA C++": in_cuda, "Triton": by(gemm_triton), "Gluon": by(gemm_gluon)}


def product(
    a: torch.Tensor, b: torch.Tensor, language: str = "CUDA C++"
) -> torch.Tensor:
    """a b by a language of LANGUAGES."""
    if language not in LANGUAGES:
        raise ValueError(
            f"matmul_languages: no language {language!r}; there are "
            f"{', '.join(LANGUAGES)}"
        )
    for name, x in (("a", a), ("b", b)):
        if x.dtype != torch.float16:
            raise TypeError(
                f"matmul_languages: {name} is {x.dtype}, not torch.float16; convert it"
            )
        if x.ndim != 2:
            raise ValueError(
                f"matmul_languages: {name} has {x.ndim} dimensions, not 2; reshape it"
            )
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise ValueError(
            f"matmul_languages: a is {m} x {k} and b is {b.shape[0]} x {n}; a's "
            "columns must be as many as b's rows"
        )
    if m % SIDE or n % SIDE or k % DEPTH:
        raise ValueError(
            f"matmul_languages: {m} x {k} by {k} x {n} is no whole number of tiles: M "
            f"and N are to be multiples of {SIDE}, K of {DEPTH}; pad with zeros, or "
            "take snippets/matmul"
        )
    if max(m // SIDE * SIDE, k) > 2**31 - SIDE or n // SIDE > cuda.MAX_GRID[1]:
        raise ValueError(
            f"matmul_languages: {m} x {k} by {k} x {n} has a side over what a grid and "
            "an int can count; split the product"
        )
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if not k:
        return c.zero_()
    for name, x in (("a", a), ("b", b)):
        if x.stride(1) != 1 or x.stride(0) % 8 or x.data_ptr() % 16:
            raise ValueError(
                f"matmul_languages: rows of {name} must begin on 16 bytes, their "
                f"elements side by side; its strides are {tuple(x.stride())}, and it "
                f"begins at {x.data_ptr():#x}; pass {name}.clone()"
            )
    LANGUAGES[language](c, a, b, (m // SIDE, n // SIDE))
    return c
# --8<-- [end:product]


def demo(device: str) -> None:
    """Every language on one product."""
    draw = torch.Generator(device).manual_seed(0)
    a, b = (
        torch.randint(-4, 5, shape, generator=draw, device=device).half()
        for shape in ((256, 160), (160, 128))
    )
    exact = (a.double() @ b.double()).half()
    for language in LANGUAGES:
        right = torch.equal(product(a, b, language), exact)
        print(f"{language:9}{'right' if right else 'wrong'}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
