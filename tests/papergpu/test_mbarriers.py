"""mbarriers: phases, counts, waits of every form, and what is found of their misuse.

What CUDA's own headers make of them and of copies: cuda/barrier, cuda/pipeline, groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from marks import exhaustive
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Settings
from ptx_launch import MBARRIERS, compile_cuda, launch_kernel, load_kernel_once

COMMON = (
    MBARRIERS
    + r"""
#define BAR "r"(SHARED(&bar))
extern "C" __global__ void k(u64* y) {
  __shared__ alignas(8) u64 bar; __shared__ volatile u32 s[64]; u64 t = 0; u32 p = 0; (void)t;
      (void)p;
"""
)


def launch_mbarriers(body: str, block: int = 64, count: int = 64, **more: Any) -> Any:
    y = np.zeros(count, np.uint64)
    launch_kernel(load_kernel_once(compile_cuda(COMMON + body + "\n}")), y, block=block, **more)
    return y


def find_mbarrier_misuse(body: str, **more: Any) -> str:
    with pytest.raises(Finding) as raised:
        launch_mbarriers(body, **more)
    return str(raised.value)


INIT = """if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: BAR, "r"(N) : "memory");
  __syncthreads();"""  # fmt: skip


def begin_mbarrier(count: object) -> str:
    return INIT.replace("N", str(count))


@pytest.mark.parametrize("schedule", ["robin", "far", "random"])
@pytest.mark.parametrize("how", ["try", "test"])
def test_phases_follow_each_other(schedule: str, how: str) -> None:
    body = begin_mbarrier(64) + r"""
  for (u32 i = 0; i < 9; ++i) {
    s[threadIdx.x] = 100 * i + threadIdx.x;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : BAR : "memory");
    do asm volatile("{ .reg .pred q; mbarrier.HOW_wait.shared::cta.b64 q, [%1], %2; selp.u32 "
        "%0, 1, 0, q; }" : "=r"(p) : BAR, "l"(t) : "memory"); while (!p);
    y[threadIdx.x] += s[63 - threadIdx.x];
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], 1;" : "=l"(t)
        : BAR : "memory");
    do asm volatile("{ .reg .pred q; mbarrier.HOW_wait.parity.acquire.cta.shared::cta.b64 q, "
        "[%1], 1; selp.u32 %0, 1, 0, q; }" : "=r"(p) : BAR : "memory"); while (!p);
  }""".replace("HOW", how)  # fmt: skip
    y = launch_mbarriers(body, settings=Settings(threads=1, schedule=schedule, seed=5))
    assert np.array_equal(y, 3600 + 9 * (63 - np.arange(64)))


def test_counts_drops_and_pending() -> None:
    body = begin_mbarrier(10) + r"""
  if (threadIdx.x) return;
  auto pending = [&](u64 t) { u32 n; asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n)
      : "l"(t)); return n; };
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1], 3;" : "=l"(t) : BAR : "memory");
      y[0] = pending(t);
  asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;" : "=l"(t) : BAR : "memory");
      y[1] = pending(t);
  asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1], 4;" : "=l"(t) : BAR : "memory");
      y[2] = pending(t);
  asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(t) : BAR : "memory");
      y[3] = pending(t);
  wait(&bar, 0);
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(t) : BAR : "memory");
      y[4] = pending(t);
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 48;" :: BAR : "memory");
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1], 4;" : "=l"(t) : BAR : "memory");
      y[5] = pending(t);
  asm volatile("{ .reg .pred q; mbarrier.test_wait.parity.shared.b64 q, [%1], 1; selp.u32 %0, "
      "1, 0, q; }" : "=r"(p) : BAR : "memory"); y[6] = p;
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 48;" :: BAR : "memory");
  asm volatile("{ .reg .pred q; mbarrier.test_wait.parity.shared.b64 q, [%1], 1; selp.u32 %0, "
      "1, 0, q; }" : "=r"(p) : BAR : "memory"); y[7] = p;
  asm volatile("mbarrier.inval.shared.b64 [%0];" :: BAR : "memory");
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: BAR : "memory");"""  # fmt: skip
    assert list(launch_mbarriers(body)[:8]) == [10, 7, 5, 1, 5, 4, 0, 1]


def test_a_look_ahead_does_not_hang() -> None:
    """A try_wait whose phase only its own thread will end comes back with false."""
    body = begin_mbarrier(1) + r"""
  if (threadIdx.x) return;
  for (u32 i = 0; i < 600; ++i) {
    asm volatile("{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2, 1000; "
        "selp.u32 %0, 1, 0, q; }" : "=r"(p) : BAR, "r"(i % 2) : "memory");
    y[0] += p;
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: BAR : "memory");
    wait(&bar, i % 2); y[1] += 1;
  }"""  # fmt: skip
    assert list(launch_mbarriers(body)[:2]) == [0, 600]


def test_waits_of_warps_on_each_other() -> None:
    """A producer and a consumer with a ring of two slots, full and empty barriers."""
    body = r"""
  __shared__ alignas(8) u64 full[2], empty[2];
  if (threadIdx.x == 0) for (int i = 0; i < 2; ++i) {
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(SHARED(&full[i])) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(SHARED(&empty[i])) : "memory");
  }
  __syncthreads();
  u32 lane = threadIdx.x % 32;
  for (u32 i = 0; i < 20; ++i) {
    u32 slot = i % 2, round = i / 2;
    if (threadIdx.x < 32) {
      wait(&empty[slot], round % 2 ^ 1);
      s[32 * slot + lane] = i * lane;
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(SHARED(&full[slot])) : "memory");
    } else {
      wait(&full[slot], round % 2);
      y[lane] += s[32 * slot + 31 - lane];
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(SHARED(&empty[slot])) : "memory");
    }
  }"""  # fmt: skip
    for seed in range(3):
        settings = Settings(threads=1, seed=seed, schedule="random" if seed else "robin")
        assert np.array_equal(
            launch_mbarriers(body, settings=settings)[:32], 190 * (31 - np.arange(32))
        )


ARRIVE = r'asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: BAR : "memory");'


def test_misuse_is_found() -> None:
    assert "where no mbarrier is" in find_mbarrier_misuse(ARRIVE)
    assert "where no mbarrier is" in find_mbarrier_misuse("wait(&bar, 0);")
    assert "a store has overwritten it" in find_mbarrier_misuse(
        begin_mbarrier(64) + "if (threadIdx.x == 0) bar = 7; __syncthreads();" + ARRIVE
    )
    assert "invalidates" in find_mbarrier_misuse(
        r'if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" :: BAR : "memory");'
    )
    twice = begin_mbarrier(64) + ARRIVE + begin_mbarrier(64)
    assert "mbarrier.inval it first" in find_mbarrier_misuse(twice)
    assert "from 1 to 1048575" in find_mbarrier_misuse(begin_mbarrier(0))
    more = (
        begin_mbarrier(3)
        + r"""
  if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0], 4;" :: BAR : "memory");"""
    )
    assert "arrives 4 times" in find_mbarrier_misuse(
        more
    ) and "waits for 3 of 3 arrivals" in find_mbarrier_misuse(more)
    completes = more.replace("arrive.", "arrive.noComplete.").replace("_, [%0], 4", "t, [%0], 3")
    completes = completes.replace('"mbarrier', '"{ .reg .b64 t; mbarrier').replace(
        ';" ::', '; }" ::'
    )
    assert "leave out .noComplete" in find_mbarrier_misuse(completes)
    bytes_ = (
        begin_mbarrier(1)
        + r"""
  if (threadIdx.x == 0) for (int i = 0; i < 3; ++i)
    asm volatile("mbarrier.OP.relaxed.cta.shared::cta.b64 [%0], 700000;" :: BAR : "memory");"""
    )
    assert "would expect 1400000 bytes" in find_mbarrier_misuse(bytes_.replace("OP", "expect_tx"))
    assert "more than it expects, by 1400000" in find_mbarrier_misuse(
        bytes_.replace("OP", "complete_tx")
    )
    assert "not a multiple of 8: align it" in find_mbarrier_misuse(
        begin_mbarrier(1).replace("BAR", '"r"(SHARED(&bar) + 4)')
    )


def test_a_wait_that_never_ends_names_its_mbarrier() -> None:
    text = find_mbarrier_misuse(
        begin_mbarrier(64) + "if (threadIdx.x) " + ARRIVE + " wait(&bar, 0);"
    )
    assert "no thread can go on" in text and "initialised at kernel.cu" in text
    assert "lacks 1 of 64 arrivals, for its phase of parity 0" in text


def test_what_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(Unsupported, match="multimem"):
        launch_mbarriers(
            'asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], 1;" :: "l"(y) : "memory");'
        )


# What CUDA's own headers make of copies and barriers: cuda/barrier, cuda/pipeline, groups.

HEAD = r"""
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
extern "C" __global__ void k(const float* x, float* y) {
"""

BARRIER = r"""
  __shared__ Barrier bar; __shared__ alignas(16) float s[64];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  for (int i = 0; i < 4; ++i) {
    cuda::memcpy_async(s + threadIdx.x, x + 64 * i + threadIdx.x, 4, bar);
    bar.wait(bar.arrive());
    y[64 * i + threadIdx.x] = s[63 - threadIdx.x];
    bar.arrive_and_wait();
  }
"""
BULK = r"""
  __shared__ Barrier bar; __shared__ alignas(16) float s[256];
  if (threadIdx.x == 0) { init(&bar, blockDim.x);
      cuda::ptx::fence_proxy_async(cuda::ptx::space_shared); }
  __syncthreads();
  if (threadIdx.x == 0) cuda::memcpy_async(s, x, cuda::aligned_size_t<16>(1024), bar);
  bar.wait(bar.arrive());
  for (int e = threadIdx.x; e < 256; e += 64) s[e] += 1;
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, y, s, 1024);
    cuda::ptx::cp_async_bulk_commit_group();
    cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
  }
"""
PIPELINE = r"""
  __shared__ alignas(16) float s[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  auto begin = [&](int i) {
    pipe.producer_acquire();
    cuda::memcpy_async(block, s[i % 2], x + 64 * i, cuda::aligned_size_t<16>(256), pipe);
    pipe.producer_commit();
  };
  begin(0);
  for (int i = 0; i < 4; ++i) {
    if (i < 3) begin(i + 1);
    pipe.consumer_wait();
    y[64 * i + threadIdx.x] = s[i % 2][63 - threadIdx.x];
    pipe.consumer_release();
  }
"""
ROLES = r"""
  __shared__ alignas(16) float s[2][32];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  for (int i = 0; i < 8; ++i)
    if (role == cuda::pipeline_role::producer) {
      pipe.producer_acquire();
      cuda::memcpy_async(s[i % 2] + threadIdx.x, x + 32 * i + threadIdx.x, 4, pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      y[32 * i + threadIdx.x - 32] = s[i % 2][63 - threadIdx.x];
      pipe.consumer_release();
    }
"""
THREAD = r"""
  __shared__ alignas(16) float s[2][64];
  auto pipe = cuda::make_pipeline();
  auto begin = [&](int i) {
    pipe.producer_acquire();
    cuda::memcpy_async(&s[i % 2][threadIdx.x], x + 64 * i + threadIdx.x, 4, pipe);
    pipe.producer_commit();
  };
  begin(0);
  for (int i = 0; i < 4; ++i) {
    if (i < 3) { begin(i + 1); cuda::pipeline_consumer_wait_prior<1>(pipe); }
        else pipe.consumer_wait();
    y[64 * i + threadIdx.x] = s[i % 2][threadIdx.x];
    pipe.consumer_release();
  }
"""
GROUP = r"""
  __shared__ alignas(16) float s[2][64];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s[0], x, 256);
  for (int i = 0; i < 4; ++i) {
    if (i < 3) { cg::memcpy_async(block, s[(i + 1) % 2], x + 64 * (i + 1), 256);
        cg::wait_prior<1>(block); }
    else cg::wait(block);
    y[64 * i + threadIdx.x] = s[i % 2][63 - threadIdx.x];
    block.sync();
  }
"""


def turn_rows(rows: int) -> Callable[[Any], Any]:
    return lambda x: x.reshape(rows, -1)[:, ::-1].ravel()


CASES = {
    "barrier": (BARRIER, turn_rows(4)), "bulk": (BULK, lambda x: x + 1),
    "pipeline": (PIPELINE, turn_rows(4)),
    "roles": (ROLES, turn_rows(8)), "thread": (THREAD, lambda x: x), "group": (GROUP, turn_rows(4)),
}  # fmt: skip


def make_arrays() -> tuple[Any, Any]:
    whole = np.zeros(600, np.float32)
    start = (-whole.ctypes.data % 128) // 4
    x, y = whole[start : start + 256], whole[start + 256 : start + 512]
    x[:] = np.random.default_rng(0).integers(0, 100, 256)
    return x, y


@pytest.mark.parametrize(
    "name", exhaustive(CASES, "a compilation with CUDA's own headers each", light=2)
)
@pytest.mark.parametrize(
    "architecture", exhaustive(["compute_90", "compute_80"], "all architectures")
)
def test_real_headers_copy_rightly(name: str, architecture: str) -> None:
    if name == "bulk" and architecture == "compute_80":
        architecture = "compute_100"
    body, expected = CASES[name]
    one = load_kernel_once(compile_cuda(HEAD + body + "}", architecture))
    for seed, schedule in enumerate(("robin", "random", "far")):
        x, y = make_arrays()
        settings = Settings(threads=1, seed=seed, schedule=schedule)
        launch_kernel(one, x, y, block=64, settings=settings)
        assert np.array_equal(y, expected(x))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    exhaustive([
     ("barrier", ("bar.wait(bar.arrive());", "(void)bar.arrive();"), "not yet delivered|nobody in"),
     ("bulk", ("cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);\n  __s", "__s"),
      "add fence.proxy.async"),
     ("group", ("cg::wait_prior<1>", "cg::wait_prior<2>"), "not yet delivered"),
     ("thread", ("wait_prior<1>", "wait_prior<2>"), "not yet delivered"),
     ("roles", ("pipe.producer_commit();", ""), "not yet delivered"),
    ], "a compilation with CUDA's own headers each"),
)  # fmt: skip
def test_ptx_launch_are_found(name: str, change: tuple[str, str], said: str) -> None:
    body = CASES[name][0]
    assert change[0] in body
    one = load_kernel_once(compile_cuda(HEAD + body.replace(*change) + "}", "compute_90"))
    with pytest.raises(Finding, match=said):
        launch_kernel(one, *make_arrays(), block=64)
