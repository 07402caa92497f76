"""How fast papergpu is: whole kernels, and all that is done around them.

Run it by `python tests/papergpu/benchmark.py [part ...]`; the parts are kernels, matmul, overhead,
decoding, building and snippet. `--record` keeps most of what they print for the page about
papergpu. Times are the least of several runs, in processor seconds of this thread where one core is
meant.
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
from ptx_launch import compile_cuda, load_kernel, write_kernel

QUICK = Settings(checks=False, threads=1)
Array = npt.NDArray[np.generic]
Figures = dict[str, Any]


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
    from blackwell_cases import matmul as triton_matmul

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
    one = load_kernel(write_kernel("ret;"), "k")
    data = make_numbers(64)
    given = [data.ctypes.data.to_bytes(8, "little")]
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
    "kernels": time_kernels,
    "matmul": time_matmul,
    "overhead": time_launches,
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
