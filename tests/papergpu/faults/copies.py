"""Copies that land later, barriers in memory, and the shared memory of a cluster."""

from __future__ import annotations

import numpy as np
from ptx_launch import Fault, Launch, Sound

LATE = "has not yet delivered|with no barrier between|nobody in this block|has not landed"

STAGES = """
__device__ void copy(int* to, const int* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
      :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__global__ void stages(const int* x, int* y, int n) {
  __shared__ int s[3][128];
  int t = threadIdx.x;
  for (int k = 0; k < 2; ++k) {
    copy(&s[k][t], x + k * 128 + t);
    asm volatile("cp.async.commit_group;" ::: "memory"); }
  for (int k = 0; k < n; ++k) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();  // landed
    if (k + 2 < n) copy(&s[(k + 2) % 3][t], x + (k + 2) * 128 + t);
    asm volatile("cp.async.commit_group;" ::: "memory");
    y[k * 128 + t] = s[k % 3][127 - t];
  }
}
"""


def check_stages(launch: Launch) -> None:
    x, y = np.arange(768, dtype=np.int32), np.zeros(768, np.int32)
    launch("stages", 1, 128, x, y, np.int32(6))
    assert (y.reshape(6, 128) == x.reshape(6, 128)[:, ::-1]).all()


BY_WARP = """
#include <cuda_pipeline.h>
__global__ void by_warp(const int* x, int* y) {
  __shared__ int s[64];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&s[t], &x[t], 4);
  __pipeline_commit();
  __syncwarp();
  __pipeline_wait_prior(0);
  __syncwarp();  // landed
  y[t] = s[t ^ 1];
}
"""


def check_by_warp(launch: Launch) -> None:
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    launch("by_warp", 1, 64, x, y)
    assert (y == x ^ 1).all()


MBARRIER = """
typedef unsigned u32;
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(unsigned long long* b, u32 n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;"
    :: "r"(at(b)), "r"(n) : "memory"); }
__device__ void arrive(unsigned long long* b) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }"
    :: "r"(at(b)) : "memory"); }
__device__ void wait(unsigned long long* b, u32 phase) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;"
    " @!p bra again; }"
      :: "r"(at(b)), "r"(phase) : "memory");
}
"""

PIPE = (
    MBARRIER
    + """
__global__ void pipe(const int* x, int* y, int n) {
  __shared__ int s[2][32];
  __shared__ unsigned long long full[2], empty[2];
  int t = threadIdx.x;
  if (t == 0) for (int k = 0; k < 2; ++k) { init(&full[k], 32); init(&empty[k], 64); }
  __syncthreads();  // begun
  if (t < 32) {
    for (int k = 0; k < n; ++k) {
      if (k > 1) wait(&empty[k % 2], (k / 2 - 1) & 1);
      s[k % 2][t] = x[k * 32 + t];
      arrive(&full[k % 2]);
    }
  } else {
    for (int k = 0; k < n; ++k) {
      wait(&full[k % 2], k / 2 & 1);
      y[k * 64 + t - 32] = s[k % 2][(t + 1) % 32];
      arrive(&empty[k % 2]);
    }
  }
}
"""
)


def check_pipe(launch: Launch) -> None:
    x, y = np.arange(192, dtype=np.int32), np.zeros((6, 2, 32), np.int32)
    launch("pipe", 1, 96, x, y, np.int32(6))
    assert (y == np.roll(x.reshape(6, 1, 32), -1, 2)).all()


BULK = (
    MBARRIER
    + """
__global__ void bulk(const int* x, int* y) {
  __shared__ alignas(128) int s[256];
  __shared__ unsigned long long full;
  int t = threadIdx.x;
  if (t == 0) init(&full, 1);
  __syncthreads();  // begun
  if (t == 0) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [%0], %1; }"
        :: "r"(at(&full)), "r"(1024) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1], %2, [%3];"
      :: "r"(at(s)), "l"(x + blockIdx.x * 256), "r"(1024), "r"(at(&full)) : "memory");
  }
  wait(&full, 0);
  int v = s[255 - t], u = s[127 - t];
  __syncthreads();  // read
  s[t] = v + 1; s[t + 128] = u + 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();  // written
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
        :: "l"(y + blockIdx.x * 256), "r"(at(s)), "r"(1024) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
"""
)


def check_bulk(launch: Launch) -> None:
    x, y = np.arange(512, dtype=np.int32), np.zeros(512 + 32, np.int32)
    x, y = align_array(x), align_array(y[:512])
    launch("bulk", 2, 128, x, y)
    assert (y.reshape(2, 256) == x.reshape(2, 256)[:, ::-1] + 1).all()


def align_array(x: np.ndarray) -> np.ndarray:
    """The same numbers at a multiple of 128 bytes."""
    room = np.zeros(x.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 128
    made = room[start : start + x.nbytes].view(x.dtype)
    made[:] = x
    return made


CLUSTER = """
#include <cooperative_groups.h>
__global__ void __cluster_dims__(2, 1, 1) swapped(const int* x, int* y) {
  __shared__ int s[64];
  auto cluster = cooperative_groups::this_cluster();
  int t = threadIdx.x, b = blockIdx.x;
  s[t] = x[b * 64 + t];
  cluster.sync();  // written
  y[b * 64 + t] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[t];
  cluster.sync();  // read
}
"""


def check_swapped(launch: Launch) -> None:
    x, y = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    launch("swapped", 4, 64, x, y, cluster=2)
    assert (y.reshape(2, 2, 64) == x.reshape(2, 2, 64)[:, ::-1]).all()


SOUND = (
    Sound(
        "stages",
        STAGES,
        check_stages,
        {
            "wait for too few": Fault("wait_group 1", "wait_group 2", LATE),
            "no barrier": Fault("    __syncthreads();  // landed\n", "", LATE),
            "two buffers of three": Fault("copy(&s[(k + 2) % 3][t]", "copy(&s[k % 3][t]", LATE),
            "no wait": Fault(
                '    asm volatile("cp.async.wait_group 1;" ::: "memory");\n', "", LATE
            ),
        },
    ),
    Sound(
        "by_warp",
        BY_WARP,
        check_by_warp,
        {"no barrier of the warp": Fault("  __syncwarp();  // landed\n", "", LATE)},
    ),
    Sound(
        "pipe",
        PIPE,
        check_pipe,
        {
            "begun too early": Fault(
                "  __syncthreads();  // begun\n",
                "",
                "mbarrier|with no barrier between|nobody in this block",
            ),
            "not waiting for full": Fault("      wait(&full[k % 2], k / 2 & 1);\n", "", LATE),
            "not waiting for empty": Fault(
                "      if (k > 1) wait(&empty[k % 2], (k / 2 - 1) & 1);\n", "", f"{LATE}|can go on"
            ),
            "wrong phase": Fault(
                "k / 2 & 1);\n      y", "(k / 2 + 1) & 1);\n      y", f"{LATE}|can go on"
            ),
            "one arrival too many": Fault(
                "init(&full[k], 32)", "init(&full[k], 33)", "can go on|hangs"
            ),
            "some arrivals too few": Fault(
                "init(&full[k], 32)", "init(&full[k], 16)", f"{LATE}|mbarrier|can go on"
            ),
        },
        target="sm_90a",
    ),
    Sound(
        "bulk",
        BULK,
        check_bulk,
        {
            "no wait": Fault("  wait(&full, 0);\n", "", LATE),
            "too few bytes": Fault(
                '"r"(at(&full)), "r"(1024)',
                '"r"(at(&full)), "r"(512)',
                f"{LATE}|mbarrier|bytes|can go on",
            ),
            "too many bytes": Fault(
                '"r"(at(&full)), "r"(1024)', '"r"(at(&full)), "r"(2048)', "can go on|hangs|waits"
            ),
            "no fence of the proxy": Fault(
                '  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n',
                "",
                "fence.proxy.async",
            ),
            "not read yet": Fault("  __syncthreads();  // read\n", "", LATE),
            "not written yet": Fault(
                "  __syncthreads();  // written\n", "", f"{LATE}|fence.proxy.async"
            ),
            "written again too early": Fault(
                '    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");\n',
                "    s[7] = 1;\n",
                "may still read",
            ),
            "odd address": Fault(
                '"l"(x + blockIdx.x * 256)', '"l"(x + blockIdx.x * 256 + 1)', "multiple of 16"
            ),
        },
        target="sm_90a",
    ),
    Sound(
        "swapped",
        CLUSTER,
        check_swapped,
        {
            "not written yet": Fault(
                "  cluster.sync();  // written\n",
                "",
                "with no barrier between|nobody in this block",
            ),
            "of a block only": Fault(
                "cluster.sync();  // written",
                "__syncthreads();",
                "with no barrier between|nobody in this block",
            ),
        },
        target="sm_90a",
    ),
)
