"""cp.async and cp.async.bulk: what they bring, when it is there, and how misuse is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from papergpu.errors import Finding
from papergpu.launch import Settings, aligned_zeros
from ptx_launch import MBARRIERS, compile_cuda, launch_kernel, load_kernel_once

COMMON = (
    MBARRIERS
    + r"""
__device__ void load(void* to, const void* from, int n, void* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
      "%2, [%3];" :: "r"(SHARED(to)), "l"(from), "r"(n), "r"(SHARED(bar)) : "memory");
}
__device__ void store(void* to, const void* from, int n) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
      :: "l"(to), "r"(SHARED(from)), "r"(n) : "memory");
}
#define COMMIT asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define FENCE asm volatile("fence.proxy.async;" ::: "memory")
"""
)


def launch_copies(
    text: str, *arguments: Any, architecture: str = "compute_90a", **options: Any
) -> None:
    launch_kernel(
        load_kernel_once(compile_cuda(COMMON + text, architecture)), *arguments, block=64, **options
    )


def find_copy_misuse(text: str, *arguments: Any, **options: Any) -> str:
    with pytest.raises(Finding) as raised:
        launch_copies(text, *arguments, **options)
    return str(raised.value)


def draw_aligned(count: int, dtype: Any = np.float32) -> Any:
    out = aligned_zeros(count * np.dtype(dtype).itemsize).view(dtype)
    out[:] = np.random.default_rng(count).integers(1, 99, count)
    return out


# A ring of two stages: copies of 16, 8 and 4 bytes, and what is ignored or cut is zero.
RING = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ alignas(16) float s[2][4 * 64];
  auto begin = [&](int i) {
    u32 to = SHARED(&s[i % 2][4 * threadIdx.x]);
    const float* from = x + i * 256 + 4 * threadIdx.x;
    int left = n - (i * 256 + 4 * threadIdx.x); left = left < 0 ? 0 : left > 4 ? 4 : left;
    if (i % 2) asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
        :: "r"(to), "l"(from), "r"(4 * left) : "memory");
    else for (int e = 0; e < 4; ++e) {
      int skip = e >= left;
      asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; cp.async.ca.shared.global [%0], "
          "[%1], 4, p; }" :: "r"(to + 4 * e), "l"(from + e), "r"(skip) : "memory");
    }
    asm volatile("COMMIT_GROUP" ::: "memory");
  };
  begin(0);
  for (int i = 0; i < 4; ++i) {
    if (i < 3) begin(i + 1); else asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group LEFT;" ::: "memory");
    BARRIER;
    y[i * 256 + 4 * threadIdx.x] = s[i % 2][4 * (63 - threadIdx.x)];
    __syncthreads();
  }
}
"""


def write_ring(
    commit: str = "cp.async.commit_group;", left: int = 1, barrier: str = "__syncthreads()"
) -> str:
    return (RING.replace("COMMIT_GROUP", commit).replace("LEFT", str(left))
            .replace("BARRIER", barrier))  # fmt: skip


@pytest.mark.parametrize("schedule", ["robin", "far", "random"])
def test_a_ring_of_cp_async(schedule: str) -> None:
    x, y = draw_aligned(1024), np.zeros(1024, np.float32)
    launch_copies(
        write_ring(), x, y, np.int32(901), settings=Settings(threads=1, schedule=schedule, seed=7)
    )
    want = np.where(np.arange(1024) < 901, x, 0).reshape(4, 64, 4)[:, ::-1, 0]
    assert np.array_equal(y[::4].reshape(4, 64), want)


def test_faults_of_cp_async_are_found() -> None:
    x, y, n = draw_aligned(1024), np.zeros(1024, np.float32), np.int32(1024)
    assert "has not yet delivered: wait for it" in find_copy_misuse(write_ring(left=2), x, y, n)
    assert "has not yet delivered: wait for it" in find_copy_misuse(write_ring(commit=""), x, y, n)


def test_a_source_is_not_read_where_it_is_cut() -> None:
    text = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ alignas(16) float s[256];
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      :: "r"(SHARED(&s[4 * threadIdx.x])), "l"(x + 4 * threadIdx.x), "r"((int)threadIdx.x < n
      ? 16 : threadIdx.x == n ? 4 : 0) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  for (int e = 0; e < 4; ++e) y[4 * threadIdx.x + e] = s[4 * threadIdx.x + e];
}"""
    x, y = draw_aligned(4 * 40 + 4)[: 4 * 40 + 1], np.full(256, 5, np.float32)
    launch_copies(text, x, y, np.int32(40))
    assert np.array_equal(y[: x.size], x) and not y[x.size :].any()
    assert "mask it, or mend the offset" in find_copy_misuse(text, x, y, np.int32(41))


def test_an_mbarrier_counts_the_copies_of_threads() -> None:
    text = r"""
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float s[64]; __shared__ alignas(8) u64 bar;
  if (threadIdx.x == 0) init(&bar, 32);
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 0; i < 2; ++i) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
        :: "r"(SHARED(&s[32 * i + threadIdx.x])), "l"(x + 32 * i + threadIdx.x) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(SHARED(&bar)) : "memory");
  } else { wait(&bar, 0); y[threadIdx.x - 32] = s[threadIdx.x - 32];
      y[threadIdx.x] = s[threadIdx.x]; }
}"""
    x, y = draw_aligned(64), np.zeros(64, np.float32)
    launch_copies(text, x, y)
    assert np.array_equal(x, y)
    assert "which lacks 32 of 32 arrivals" in find_copy_misuse(text.replace(".noinc", ""), x, y)


def test_cp_async_arrives_without_changing_the_count() -> None:
    text = r"""
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float s[64]; __shared__ alignas(8) u64 bar;
  if (threadIdx.x == 0) init(&bar, 64);
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
      :: "r"(SHARED(&s[threadIdx.x])), "l"(x + threadIdx.x) : "memory");
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(SHARED(&bar)) : "memory");
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" :: "r"(SHARED(&bar))
      : "memory");
  wait(&bar, 0);
  y[threadIdx.x] = s[63 - threadIdx.x];
}"""
    x, y = draw_aligned(64), np.zeros(64, np.float32)
    launch_copies(text, x, y)
    assert np.array_equal(x[::-1], y)


BULK = r"""
extern "C" __global__ void k(const float* x, float* y, int wrong) {
  __shared__ alignas(128) float s[2][256]; __shared__ alignas(8) u64 bar[2];
  if (threadIdx.x == 0) { init(&bar[0], 1); init(&bar[1], 1); }
  __syncthreads();
  if (threadIdx.x == 0) for (int i = 0; i < 2; ++i) { expect(&bar[i], 1024 + wrong);
      load(s[i], x + 256 * i, 1024, &bar[i]); }
  for (int i = 0; i < 4; ++i) {
    wait(&bar[i % 2], i / 2);
    for (int e = threadIdx.x; e < 256; e += 64) s[i % 2][e] *= 2;
    PROXY;
    __syncthreads();
    if (threadIdx.x == 0) {
      store(y + 256 * i, s[i % 2], 1024); COMMIT;
      if (i < 2) {
        asm volatile("READ" ::: "memory");
        expect(&bar[i % 2], 1024); load(s[i % 2], x + 256 * (i + 2), 1024, &bar[i % 2]);
      }
    }
  }
}
"""
READ = "cp.async.bulk.wait_group.read 0;"


def write_bulk(proxy: str = "FENCE", read: str = READ) -> str:
    return BULK.replace("PROXY", proxy).replace("READ", read)


@pytest.mark.parametrize("seed", range(4))
def test_bulk_copies_there_and_back(seed: int) -> None:
    x, y = draw_aligned(1024), np.zeros(1024, np.float32)
    settings = Settings(threads=1, seed=seed, schedule="random" if seed else "robin")
    launch_copies(write_bulk(), x, y, np.int32(0), settings=settings)
    assert np.array_equal(y, 2 * x)


def test_faults_of_bulk_copies_are_found() -> None:
    x, y, right = draw_aligned(1024), np.zeros(1024, np.float32), np.int32(0)
    assert "add fence.proxy.async before it" in find_copy_misuse(write_bulk(proxy=""), x, y, right)
    assert "may still read: wait for it first" in find_copy_misuse(write_bulk(read=""), x, y, right)
    text = find_copy_misuse(write_bulk(), x, y, np.int32(16))
    assert "no thread can go on" in text and "the mbarrier at byte" in text and "16 bytes" in text
    assert "not a multiple of 16: align it" in find_copy_misuse(write_bulk(), x[1:], y, right)


# A tile that is read, and then used again: what happened on an H200 where nothing stood for PROXY.
REUSE = r"""
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(128) float s[256]; __shared__ alignas(8) u64 bar;
  if (threadIdx.x == 0) init(&bar, 1);
  __syncthreads();
  FIRST
  for (int i = 0; i < 4; ++i) {
    if (threadIdx.x == 0) { expect(&bar, 1024); load(s, x + 256 * i, 1024, &bar); }
    wait(&bar, i % 2);
    for (int e = threadIdx.x; e < 256; e += 64) y[256 * i + e] = s[e];
    PROXY;
    __syncthreads();
  }
}
"""


@pytest.mark.parametrize("first", ["", "s[threadIdx.x] = 0; __syncthreads();"])
def test_a_copy_over_what_was_read_needs_a_fence(first: str) -> None:
    x, y = draw_aligned(1024), np.zeros(1024, np.float32)
    text = REUSE.replace("FIRST", first)
    launch_copies(text.replace("PROXY", "FENCE"), x, y)
    assert np.array_equal(y, x)
    found = find_copy_misuse(text.replace("PROXY", ""), x, y)
    assert "overwrites byte 0 of shared memory" in found
    assert "add fence.proxy.async behind those" in found


def test_copies_in_flight_when_the_block_ends_are_found() -> None:
    text = r"""
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float s[64]; __shared__ alignas(8) u64 bar;
  if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, 256); load(s, x, 256, &bar); }
  y[threadIdx.x] = 1;
}"""
    assert "has not landed: wait for it first" in find_copy_misuse(
        text, draw_aligned(64), np.zeros(64, np.float32)
    )


@pytest.mark.parametrize(
    ("operation", "kind", "dtype"),
    [("add", "f32", np.float32), ("add.noftz", "f16", np.float16), ("min", "s64", np.int64),
     ("max", "f16", np.float16), ("and", "b32", np.uint32), ("or", "b64", np.uint64),
     ("dec", "u32", np.uint32), ("add", "u64", np.uint64)],
)  # fmt: skip
def test_reductions_in_bulk(operation: str, kind: str, dtype: Any) -> None:
    text = r"""
extern "C" __global__ void k(const unsigned char* x, unsigned char* y) {
  __shared__ alignas(16) unsigned char s[512];
  for (int e = threadIdx.x; e < 512; e += 64) s[e] = x[e];
  FENCE; __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.NAME [%0], [%1], 512;"
        :: "l"(y), "r"(SHARED(s)) : "memory");
    COMMIT;
  }
}""".replace("NAME", f"{operation}.{kind}")
    count = 512 // np.dtype(dtype).itemsize
    x, y = draw_aligned(count, dtype), draw_aligned(count + 8, dtype)[8:].copy()
    z = draw_aligned(count, dtype)
    z[:] = y
    name = operation.partition(".")[0]
    want = {"add": lambda: z + x, "min": lambda: np.minimum(z, x), "max": lambda: np.maximum(z, x),
            "and": lambda: z & x, "or": lambda: z | x,
            "dec": lambda: np.where((z == 0) | (z > x), x, z - 1)}[name]()  # fmt: skip
    launch_copies(text, x, z)
    assert np.array_equal(z, want.astype(dtype))


def test_bytes_that_a_mask_leaves_out() -> None:
    text = r"""
extern "C" __global__ void k(unsigned char* y) {
  __shared__ alignas(16) unsigned char s[64];
  s[threadIdx.x] = threadIdx.x; FENCE; __syncthreads();
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group.cp_mask "
      "[%0], [%1], 64, %2;" :: "l"(y), "r"(SHARED(s)), "h"((short)0x8003) : "memory");
}"""
    y = draw_aligned(64, np.uint8)
    y[:] = 200
    launch_copies(text, y, architecture="compute_100a")
    kept = np.isin(np.arange(64) % 16, (0, 1, 15))
    assert np.array_equal(y, np.where(kept, np.arange(64), 200))


def test_zeros_in_bulk_and_prefetches() -> None:
    text = r"""
extern "C" __global__ void k(float* y) {
  __shared__ alignas(16) float s[64];
  s[threadIdx.x] = 3; __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("st.bulk.weak.shared::cta [%0], %1, 0;" :: "r"(SHARED(s)), "l"(128ull) : "memory");
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], 256;" :: "l"(y) : "memory");
  }
  __syncthreads(); y[threadIdx.x] = s[threadIdx.x];
}"""
    y = draw_aligned(64)
    launch_copies(text, y, architecture="compute_100a")
    assert not y[:32].any() and (y[32:] == 3).all()
