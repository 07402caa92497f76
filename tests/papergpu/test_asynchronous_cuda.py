"""What CUDA's own headers make of copies and barriers: cuda/barrier, cuda/pipeline, groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import exhaustive
from papergpu.errors import Finding
from papergpu.launch import Settings
from ptx_launch import compile_cuda, launch_kernel, load_kernel_once

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
