"""How fast papergpu is: single instructions, whole kernels, and all that is done around them.

Run it by `python tests/papergpu/benchmark.py [part ...]`; the parts are instructions, kernels,
matmul, overhead, threads, decoding, building and snippet. `--record` keeps most of what they print
for the page about papergpu. Times are the least of several
runs, in processor seconds of this thread where one core is meant. Forms that are not executed yet
are said to be missing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import measured_figures
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from papergpu import file_cache, kernel_cache
from papergpu.build import compile_engine, load_library
from papergpu.decode import decode
from papergpu.errors import Unsupported
from papergpu.launch import Memory, Result, Settings, aligned_zeros
from papergpu.lexer import parse_operand
from papergpu.parse import parse
from papergpu.syntax_tree import Module
from ptx_launch import compile_cuda, load_kernel

QUICK = Settings(checks=False, threads=1)
Array = npt.NDArray[np.generic]
Figures = dict[str, Any]

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry bench(.param .u64 p, .param .u32 n) {
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<24>;
.reg .f32 %f<40>; .reg .f64 %d<8>;
.shared .align 16 .b8 tile[32768];
ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x; mov.u32 %r0, %laneid; mov.u32 %r8, tile;
mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;
mul.wide.u32 %rd4, %r0, 16; add.s64 %rd5, %rd1, %rd4;
mul.wide.u32 %rd6, %r0, 132; add.s64 %rd7, %rd1, %rd6;
mul.wide.u32 %rd8, %r0, 8; add.s64 %rd9, %rd1, %rd8;
shl.b32 %r3, %r0, 2; add.s32 %r4, %r8, %r3;
shl.b32 %r5, %r0, 4; add.s32 %r5, %r8, %r5;
shl.b32 %r6, %r0, 7; add.s32 %r6, %r8, %r6;
mul.lo.u32 %r7, %r0, 132; add.s32 %r7, %r8, %r7;
xor.b32 %r9, %r0, 5; shl.b32 %r9, %r9, 4; add.s32 %r9, %r8, %r9;
mov.u32 %r11, 3; mov.u32 %r12, 5; mov.u32 %r13, 7; mov.u32 %r14, 9; mov.u32 %r15, 11;
mov.u64 %rd10, 3; mov.u64 %rd11, 5; mov.b16 %h1, 3; mov.b16 %h2, 5;
mov.b32 %f1, 0f3F800001; mov.b32 %f2, 0f3F7FFFFF; mov.b32 %f3, 0f3F000000; mov.b32 %f4, 0f3E000000;
mov.b64 %d1, 0d3FF0000000000001; mov.b64 %d2, 0d3FF0000000000003; mov.b64 %d3, 0d3FE0000000000001;
setp.lt.u32 %p1, %r0, 32; setp.lt.u32 %p2, %r0, 13;
mov.u32 %r16, 0; mov.u32 %r17, %r5;
INIT: st.shared.v4.b32 [%r17], {%r11, %r11, %r11, %r11};
add.s32 %r17, %r17, 512; add.s32 %r16, %r16, 1; setp.lt.u32 %p4, %r16, 64; @%p4 bra INIT;
bar.sync 0;
"""
TAIL = "ret;\n}\n"
# Forms that are timed, one after the other 64 times in a loop.
INSTRUCTIONS = {
    "fma.rn.f32": "fma.rn.f32 %f5, %f1, %f2, %f3;",
    "fma.rn.f32 masked": "@%p2 fma.rn.f32 %f5, %f1, %f2, %f3;",
    "add.f32": "add.f32 %f5, %f1, %f2;",
    "mul.rn.f32": "mul.rn.f32 %f5, %f1, %f2;",
    "max.f32": "max.f32 %f5, %f1, %f2;",
    "fma.rn.f64": "fma.rn.f64 %d4, %d1, %d2, %d3;",
    "fma.rn.f16x2": "fma.rn.f16x2 %r20, %r11, %r12, %r13;",
    "fma.rn.bf16x2": "fma.rn.bf16x2 %r20, %r11, %r12, %r13;",
    "add.f16": "add.f16 %h3, %h1, %h2;",
    "div.full.f32": "div.full.f32 %f5, %f1, %f2;",
    "div.rn.f32": "div.rn.f32 %f5, %f1, %f2;",
    "ex2.approx.f32": "ex2.approx.f32 %f5, %f1;",
    "ex2.approx.ftz.f32": "ex2.approx.ftz.f32 %f5, %f1;",
    "lg2.approx.f32": "lg2.approx.f32 %f5, %f1;",
    "rsqrt.approx.f32": "rsqrt.approx.f32 %f5, %f1;",
    "sin.approx.f32": "sin.approx.f32 %f5, %f1;",
    "tanh.approx.f32": "tanh.approx.f32 %f5, %f1;",
    "cvt.rn.f32.s32": "cvt.rn.f32.s32 %f5, %r11;",
    "cvt.rzi.s32.f32": "cvt.rzi.s32.f32 %r20, %f1;",
    "cvt.f32.f16": "cvt.f32.f16 %f5, %h1;",
    "cvt.rn.f16.f32": "cvt.rn.f16.f32 %h3, %f1;",
    "cvt.rn.bf16x2.f32": "cvt.rn.bf16x2.f32 %r20, %f1, %f2;",
    "cvt.f32.bf16": "cvt.f32.bf16 %f5, %h1;",
    "cvt.u64.u32": "cvt.u64.u32 %rd15, %r11;",
    "setp.gt.f32": "setp.gt.f32 %p4, %f1, %f2;",
    "selp.f32": "selp.f32 %f5, %f1, %f2, %p1;",
    "add.s32": "add.s32 %r20, %r11, %r12;",
    "add.s32 masked": "@%p2 add.s32 %r20, %r11, %r12;",
    "mad.lo.s32": "mad.lo.s32 %r20, %r11, %r12, %r13;",
    "mul.wide.s32": "mul.wide.s32 %rd15, %r11, %r12;",
    "mul.hi.u32": "mul.hi.u32 %r20, %r11, %r12;",
    "div.s32": "div.s32 %r20, %r11, %r12;",
    "rem.u32": "rem.u32 %r20, %r11, %r12;",
    "shl.b32": "shl.b32 %r20, %r11, %r12;",
    "and.b32": "and.b32 %r20, %r11, %r12;",
    "add.s64": "add.s64 %rd15, %rd10, %rd11;",
    "mov.b32": "mov.b32 %r20, %r11;",
    "mov.b32 {h,h}": "mov.b32 %r20, {%h1, %h2};",
    "lop3.b32": "lop3.b32 %r20, %r11, %r12, %r13, 0x96;",
    "prmt.b32": "prmt.b32 %r20, %r11, %r12, 0x5410;",
    "bfe.u32": "bfe.u32 %r20, %r11, %r12, %r13;",
    "popc.b32": "popc.b32 %r20, %r11;",
    "clz.b32": "clz.b32 %r20, %r11;",
    "shf.l.wrap.b32": "shf.l.wrap.b32 %r20, %r11, %r12, %r13;",
    "setp.lt.s32": "setp.lt.s32 %p4, %r11, %r12;",
    "and.pred": "and.pred %p4, %p1, %p2;",
    "ld.shared": "ld.shared.b32 %r20, [%r4];",
    "ld.shared masked": "@%p2 ld.shared.b32 %r20, [%r4];",
    "ld.shared broadcast": "ld.shared.b32 %r20, [%r8];",
    "ld.shared 32-way": "ld.shared.b32 %r20, [%r6];",
    "ld.shared padded": "ld.shared.b32 %r20, [%r7];",
    "ld.shared.v4": "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r5];",
    "ld.shared.v4 broadcast": "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r8];",
    "ld.shared.v4 swizzled": "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r9];",
    "ld.shared.b16": "ld.shared.b16 %h3, [%r4];",
    "st.shared": "st.shared.b32 [%r4], %r20;",
    "st.shared masked": "@%p2 st.shared.b32 [%r4], %r20;",
    "st.shared padded": "st.shared.b32 [%r7], %r20;",
    "st.shared.v4": "st.shared.v4.b32 [%r5], {%r20, %r21, %r22, %r23};",
    "ld.global": "ld.global.b32 %r20, [%rd3];",
    "ld.global masked": "@%p2 ld.global.b32 %r20, [%rd3];",
    "ld.global uniform": "ld.global.b32 %r20, [%rd1];",
    "ld.global strided": "ld.global.b32 %r20, [%rd7];",
    "ld.global.b64": "ld.global.b64 %rd15, [%rd9];",
    "ld.global.v4": "ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%rd5];",
    "ld.global.b16": "ld.global.b16 %h3, [%rd3];",
    "st.global": "st.global.b32 [%rd3], %r20;",
    "st.global masked": "@%p2 st.global.b32 [%rd3], %r20;",
    "st.global strided": "st.global.b32 [%rd7], %r20;",
    "st.global.v4": "st.global.v4.b32 [%rd5], {%r20, %r21, %r22, %r23};",
    "red.global.add": "red.global.add.u32 [%rd3], %r11;",
    "atom.shared.add": "atom.shared.add.u32 %r20, [%r4], %r11;",
    "shfl.bfly": "shfl.sync.bfly.b32 %r20, %r11, 4, 0x1f, 0xffffffff;",
    "shfl.down": "shfl.sync.down.b32 %r20, %r11, 4, 0x1f, 0xffffffff;",
    "shfl.idx": "shfl.sync.idx.b32 %r20, %r11, %r0, 0x1f, 0xffffffff;",
    "vote.ballot": "vote.sync.ballot.b32 %r20, %p1, 0xffffffff;",
    "redux.sync.add": "redux.sync.add.u32 %r20, %r11, 0xffffffff;",
    "setp+bra": "setp.lt.s32 %p4, %r11, %r12; @!%p4 bra OUT;",
    "bar.sync": "bar.sync 0;",
}


def measure_least(run: Callable[[], object], repeats: int = 5, seconds: float = 0.4) -> float:
    """The least processor seconds of this thread that a call takes."""
    found: list[float] = []
    started = time.perf_counter()
    while len(found) < repeats or time.perf_counter() - started < seconds:
        before = time.thread_time()
        run()
        found.append(time.thread_time() - before)
        if time.perf_counter() - started > 3:
            break
    return min(found)


def make_numbers(count: int, dtype: str = "f4") -> Array:
    """Numbers on a boundary of 128 bytes."""
    found = aligned_zeros(count * np.dtype(dtype).itemsize).view(dtype)
    found[:] = (np.arange(count) % 17).astype(dtype)
    return found


def to_memory(array: Array) -> Memory:
    return Memory(array.ctypes.data, array.nbytes)


def time_body(body: str, *, settings: Settings = QUICK, loops: int = 400) -> float:
    """Nanoseconds a warp-instruction of `body`, repeated."""
    count = body.count(";")
    text = HEAD + "mov.u32 %r10, 0;\nLOOP:\n" + f"{body}\n" * 64
    text += "add.s32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, %r1; @%p3 bra LOOP;\nOUT:\n" + TAIL
    one = load_kernel(text, "bench")
    data = make_numbers(1 << 16)
    given = (data.ctypes.data.to_bytes(8, "little"), loops.to_bytes(4, "little"))
    touched = [to_memory(data)]
    one.launch((1, 1, 1), (32, 1, 1), given, touched, settings=settings)
    seconds = measure_least(
        lambda: one.launch((1, 1, 1), (32, 1, 1), given, touched, settings=settings), 3, 0.02
    )
    return seconds / (loops * 64 * count) * 1e9


def time_instructions(wanted: Sequence[str] = ()) -> None:
    """Nanoseconds of each form, without and with counters, and with checks."""
    print(f"{'ns a warp-instruction':28}{'plain':>9}{'counted':>9}{'checked':>9}")
    for name, body in INSTRUCTIONS.items():
        if wanted and not any(one in name for one in wanted):
            continue
        try:
            plain = time_body(body)
        except Unsupported as error:
            print(f"{name:28}{'missing':>9}  {error}")
            continue
        counted = time_body(body, settings=Settings(checks=False, profile=True, threads=1))
        checked = time_body(body, settings=Settings(checks=True, threads=1))
        print(f"{name:28}{plain:9.2f}{counted:9.2f}{checked:9.2f}", flush=True)


CUDA = r"""
extern "C" __global__ void sgemm_tiles(const float* a, const float* b, float* c, int n) {
  __shared__ float x[16][16], y[16][16];
  int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    x[threadIdx.y][threadIdx.x] = a[i * n + k + threadIdx.x];
    y[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + j];
    __syncthreads();
    for (int t = 0; t < 16; ++t) sum += x[threadIdx.y][t] * y[t][threadIdx.x];
    __syncthreads();
  }
  c[i * n + j] = sum;
}
// 64 x 64 outputs a block of 256 threads, 4 x 4 a thread
extern "C" __global__ void sgemm_vectors(const float* a, const float* b, float* c, int n) {
  __shared__ __align__(16) float x[16][64], y[16][64];
  int t = threadIdx.x, tx = t % 16, ty = t / 16;
  float sum[4][4] = {};
  for (int k = 0; k < n; k += 16) {
    float4 u = *(const float4*)&a[(blockIdx.y * 64 + t / 4) * n + k + t % 4 * 4];
    x[t % 4 * 4][t / 4] = u.x; x[t % 4 * 4 + 1][t / 4] = u.y;
    x[t % 4 * 4 + 2][t / 4] = u.z; x[t % 4 * 4 + 3][t / 4] = u.w;
    *(float4*)&y[t / 16][t % 16 * 4] =
        *(const float4*)&b[(k + t / 16) * n + blockIdx.x * 64 + t % 16 * 4];
    __syncthreads();
    for (int s = 0; s < 16; ++s) {
      float4 p = *(float4*)&x[s][ty * 4], q = *(float4*)&y[s][tx * 4];
      float l[4] = {p.x, p.y, p.z, p.w}, r[4] = {q.x, q.y, q.z, q.w};
      for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) sum[i][j] += l[i] * r[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    *(float4*)&c[(blockIdx.y * 64 + ty * 4 + i) * n + blockIdx.x * 64 + tx * 4] =
        make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}
// a block of 256 threads a row
extern "C" __global__ void softmax(const float* a, const float*, float* c, int n) {
  __shared__ float part[8];
  const float* row = a + blockIdx.x * n; float most = -1e30f, sum = 0;
  for (int k = threadIdx.x; k < n; k += 256) most = fmaxf(most, row[k]);
  for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
  __syncthreads();
  for (int k = 0; k < 8; ++k) most = fmaxf(most, part[k]);
  __syncthreads();
  for (int k = threadIdx.x; k < n; k += 256) sum += __expf(row[k] - most);
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int k = 0; k < 8; ++k) sum += part[k];
  for (int k = threadIdx.x; k < n; k += 256) c[blockIdx.x * n + k] = __expf(row[k] - most) / sum;
}
extern "C" __global__ void transpose(const float* a, const float*, float* c, int n) {
  __shared__ float x[32][33];
  int i = blockIdx.y * 32, j = blockIdx.x * 32;
  for (int k = threadIdx.y; k < 32; k += 8) x[k][threadIdx.x] = a[(i + k) * n + j + threadIdx.x];
  __syncthreads();
  for (int k = threadIdx.y; k < 32; k += 8) c[(j + k) * n + i + threadIdx.x] = x[threadIdx.x][k];
}
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n * n) c[i] = a[i] + b[i];
}
"""
# Each kernel's grid and block for a side n.
SHAPES: dict[str, Callable[[int], tuple[tuple[int, int, int], tuple[int, int, int]]]] = {
    "sgemm_tiles": lambda n: ((n // 16, n // 16, 1), (16, 16, 1)),
    "sgemm_vectors": lambda n: ((n // 64, n // 64, 1), (256, 1, 1)),
    "softmax": lambda n: ((n, 1, 1), (256, 1, 1)),
    "transpose": lambda n: ((n // 32, n // 32, 1), (32, 8, 1)),
    "add": lambda n: ((n * n // 256, 1, 1), (256, 1, 1)),
}


class Whole:
    """A kernel with its data, ready to be launched."""

    def __init__(self, ptx: str, name: str, side: int) -> None:
        self.kernel = load_kernel(ptx, name)
        self.arrays = [make_numbers(side * side) for _ in range(3)]
        self.parameters = [one.ctypes.data.to_bytes(8, "little") for one in self.arrays]
        self.parameters.append(side.to_bytes(4, "little"))
        self.grid, self.block = SHAPES[name](side)

    def launch_whole(self, settings: Settings) -> Result:
        return self.kernel.launch(
            self.grid, self.block, self.parameters, [to_memory(one) for one in self.arrays],
            settings=settings,
        )  # fmt: skip


def time_kernels(wanted: Sequence[str] = ()) -> Figures:
    """Whole kernels: seconds, and millions of warp-instructions a second of one core."""
    found: Figures = {}
    ptx = compile_cuda(CUDA, "compute_90")
    modes = {
        "plain": QUICK,
        "counted": Settings(checks=False, profile=True, threads=1),
        "checked": Settings(checks=True, threads=1),
    }
    print(f"{'kernel, side 512':16}{'M instr':>9}" + "".join(f"{one:>10} s  M/s" for one in modes))
    for name in SHAPES:
        if wanted and name not in wanted:
            continue
        one = Whole(ptx, name, 512)
        count, cells = one.launch_whole(QUICK).steps, ""
        found[name] = {"instructions": count}
        # In turn, so that what else the machine does meets all of them alike.
        for _ in range(max(5, int(1e8 / count))):
            for mode, settings in modes.items():
                before = time.thread_time()
                one.launch_whole(settings)
                seconds = time.thread_time() - before
                found[name][mode] = min(found[name].get(mode, seconds), seconds)
        for mode in modes:
            seconds = found[name][mode]
            cells += f"{seconds:12.4f}{count / 1e6 / seconds:5.0f}"
        print(f"{name:16}{count / 1e6:9.2f}{cells}", flush=True)
    times = [{mode: one[mode] / one["plain"] for mode in modes} for one in found.values()]
    for mode in ("counted", "checked"):
        all_of = [one[mode] for one in times]
        print(f"{mode}: {min(all_of):.2f} to {max(all_of):.2f} times, "
              f"{sum(all_of) / len(all_of):.2f} on average")  # fmt: skip
    return {"of": found}


def time_product(target: str, settings: Settings) -> tuple[float, str]:
    """Seconds of the clock of a product of two matrices of 512 x 512 in fp16, and its PTX."""
    import papergpu
    import torch
    from blackwell_kernels import matmul as triton_matmul

    side = 512
    a, b = torch.randn(side, side).half(), torch.randn(side, side).half()
    c = torch.empty(side, side)
    papergpu.activate(target, settings)
    try:
        times: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            one = triton_matmul[(4, 4)](a, b, c, side, N=side, BM=128, BN=128, BK=64, STEPS=3)
            times.append(time.perf_counter() - began)
    finally:
        papergpu.deactivate()
    error = float((c.double() - a.double() @ b.double()).abs().max())
    if not error < 0.01:
        raise AssertionError(f"the product is wrong by {error}")
    return min(times), one.asm["ptx"]


def time_matmul(wanted: Sequence[str] = ()) -> Figures:
    """A product of two matrices of 512 x 512 in fp16, by Triton, on all cores."""
    rows = []
    for target, unit in (("sm_80", "mma"), ("sm_90", "wgmma"), ("sm_100", "tcgen05")):
        for said, settings in (("without checks", Settings(checks=False)),
                               ("with checks", Settings())):  # fmt: skip
            what = f"512-cubed fp16 matmul by Triton for {target} (`{unit}`), {said}, all cores"
            rows.append([what, f"{time_product(target, settings)[0]:.3f} s"])
            print(": ".join(rows[-1]), flush=True)
    return {"rows": rows}


def time_launches(wanted: Sequence[str] = ()) -> Figures:
    """What a launch costs that does nothing, by blocks of a warp."""
    rows = []
    one = load_kernel(HEAD.partition(".reg")[0] + "ret;\n}\n", "bench")
    data = make_numbers(64)
    given = [data.ctypes.data.to_bytes(8, "little"), (1).to_bytes(4, "little")]
    for blocks, threads in ((1, 1), (1, 0), (100, 1), (10000, 1)):
        settings = Settings(checks=False, threads=threads)

        def launch_many() -> None:
            for _ in range(100):
                one.launch((blocks, 1, 1), (32, 1, 1), given, [to_memory(data)], settings=settings)  # noqa: B023

        each = measure_least(launch_many, 3, 0.1) * 1e4
        cores = "one core" if threads else "all cores"
        rows.append([f"a launch of {blocks:,} empty blocks, {cores}", f"{each:.0f} us"])
        print(": ".join(rows[-1]))
    return {"rows": rows}


def time_threads(wanted: Sequence[str] = ()) -> None:
    """Seconds of the clock by threads of this machine."""
    ptx = compile_cuda(CUDA, "compute_90")
    for name in ("sgemm_vectors", "softmax"):
        one = Whole(ptx, name, 512)
        for count in (1, 2):
            found = []
            for _ in range(5):
                before = time.perf_counter()
                one.launch_whole(Settings(checks=False, threads=count))
                found.append(time.perf_counter() - before)
            print(f"{name:16}{count:3} threads {min(found):9.4f} s")


def parse_anew(text: str) -> Module:
    """A module of a text of which nothing was read before."""
    parse_operand.cache_clear()
    return parse(text)


def time_decoding(wanted: Sequence[str] = ()) -> Figures:
    """From text to a program, and back from the disk: of files of PTX, or of Triton's and ours."""
    files = [Path(one) for one in wanted if one.endswith(".ptx")]
    texts = {one.name: one.read_text() for one in files}
    if not texts:
        texts = {f"Triton's matmul for {target}": time_product(target, QUICK)[1]
                 for target in ("sm_80", "sm_90", "sm_100")}  # fmt: skip
        texts["CUDA C++"] = compile_cuda(CUDA, "compute_90")
    load_library()  # compiled here: below, what is kept is looked for in an empty folder
    rows = []
    for name, text in texts.items():
        module = parse(text)
        names = [one.name for one in module.functions if one.kernel and one.body]
        count = sum(1 for _ in module.iterate_instructions())
        reading = measure_least(lambda: parse_anew(text), 5, 0.3)  # noqa: B023
        try:
            decodings = measure_least(lambda: [decode(module, one) for one in names], 5, 0.3)  # noqa: B023
        except Unsupported as error:
            print(f"{name}: {error}")
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(file_cache, "cache_dir", lambda: Path(folder)),
        ):
            for one in names:
                kernel_cache.load_kernel(text, one)  # decoded and written down
            again = measure_least(
                lambda: [kernel_cache.load_kernel(text, one) for one in names],  # noqa: B023
                5,
                0.1,
            )
        what = f"{name}, {len(names)} kernel{'s' * (len(names) > 1)}, {count:,} instructions"
        cold, warm = (reading + decodings) * 1e3, again / len(names) * 1e3
        rows.append([f"{what}: read and decoded", f"{cold:.0f} ms"])
        rows.append([f"{what}: a kernel back from the disk", f"{warm:.2f} ms"])
        print(f"{what}: parse {reading * 1e3:.1f} ms, decode {decodings * 1e3:.1f} ms, "
              f"back from the disk {warm:.2f} ms a kernel", flush=True)  # fmt: skip
    return {"rows": rows}


def time_building(wanted: Sequence[str] = ()) -> Figures:
    """How long the engine takes to compile, which it does once."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"PAPERGPU_CACHE": folder}),
    ):
        began = time.perf_counter()
        compile_engine()
        rows = [["compiling the engine, once", f"{time.perf_counter() - began:.0f} s"]]
    print(": ".join(rows[0]))
    return {"rows": rows}


def time_snippet(wanted: Sequence[str] = ()) -> Figures:
    """A snippet of this site, all its cases and views, by a child that imports little by itself."""
    from warpshelf.bench import assemble
    from warpshelf.bench.pool import AHEAD, Job, Pool
    from warpshelf.contract.snippet import read_snippet
    from warpshelf.core.project import Project
    from warpshelf.records import ledger
    from warpshelf.worker.context import Task

    project = Project(measured_figures.ROOT)
    softmax = read_snippet(project, measured_figures.ROOT / "snippets" / "softmax")
    details = assemble.job_details(softmax, ledger.describe_host(), "sm_90")
    seconds = []
    with Pool(1, preload=AHEAD) as pool:
        for _ in range(5):
            (done,) = pool.run([Job(Task.VERIFY, softmax.id, 300, details)])
            if not done.answer or done.answer["failures"]:
                raise AssertionError(f"it is not verified: {done.cause or done.answer}")
            seconds.append(done.seconds)
    cases = sum(len(row["results"]) for row in done.answer["cases"])
    what = f"`softmax`, verified for sm_90: {cases} results of all cases, and their views"
    rows = [[f"{what}; compiled kernels kept, one process", f"{min(seconds):.1f} s"]]
    print(": ".join(rows[0]))
    return {"rows": rows}


PARTS: dict[str, Callable[[Sequence[str]], Figures | None]] = {
    "instructions": time_instructions,
    "kernels": time_kernels,
    "matmul": time_matmul,
    "overhead": time_launches,
    "threads": time_threads,
    "decoding": time_decoding,
    "building": time_building,
    "snippet": time_snippet,
}


def main(words: Sequence[str]) -> None:
    asked = [one for one in words if one in PARTS] or list(PARTS)
    rest = [one for one in words if one not in PARTS and one != "--record"]
    for part in asked:
        found = PARTS[part](rest)
        if found and "--record" in words and not rest:
            command = f"python tests/papergpu/benchmark.py {part} --record"
            flags = os.environ.get("PAPERGPU_CXXFLAGS")
            if part == "kernels":
                measured_figures.record_figures("kernels", flags or "native", found, command)
            elif not flags:
                measured_figures.record_figures("speed", part, found, command)


if __name__ == "__main__":
    main(sys.argv[1:])
