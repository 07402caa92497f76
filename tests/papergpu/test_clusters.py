"""Blocks of a cluster: each other's shared memory, mbarriers and copies between them.

Clusters that have not begun, taken back and done by those that run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blackwell import execute_body
from marks import exhaustive
from papergpu.errors import Finding
from papergpu.launch import Settings, aligned_zeros
from papergpu.tensormap import TensorMap
from ptx_launch import compile_cuda, launch_kernel, load_kernel_once

COMMON = r"""
#include <cooperative_groups.h>
typedef unsigned u32; typedef unsigned long long u64;
namespace cg = cooperative_groups;
struct alignas(64) Map { u64 words[16]; };
#define SHARED(p) (u32)__cvta_generic_to_shared(p)
__device__ u32 mapa(u32 at, u32 rank) { u32 to; asm("mapa.shared::cluster.u32 %0, %1, "
    "%2;" : "=r"(to) : "r"(at), "r"(rank)); return to; }
__device__ void init(void* bar, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
    :: "r"(SHARED(bar)), "r"(n) : "memory"); asm volatile("fence.mbarrier_init.release.cluster;"
    ::: "memory"); }
__device__ void expect(void* bar, int n) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
    :: "r"(SHARED(bar)), "r"(n) : "memory"); }
__device__ void wait(void* bar, int parity) {
  asm volatile("{ .reg .pred p; again: "
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; "
    "@p bra done; bra again; done: }" :: "r"(SHARED(bar)), "r"(parity) : "memory");
}
"""


def launch_clusters(
    text: str, *arguments: Any, blocks: Any, cluster: Any, block: int = 32, **more: Any
) -> Any:
    return launch_kernel(
        load_kernel_once(compile_cuda(COMMON + text)),
        *arguments,
        grid=blocks,
        block=block,
        cluster=(*cluster, 1, 1)[:3],
        **more,
    )


CLUSTERS = [((2,), (2,)), ((8,), (4,)), ((8,), (8,)), ((4, 4), (2, 2)), ((2, 2, 4), (2, 1, 2))]


@pytest.mark.parametrize(("blocks", "cluster"), exhaustive(CLUSTERS, "other shapes", light=2))
@pytest.mark.parametrize("schedule", ["robin", "random"])
def test_shared_memory_of_other_blocks(blocks: Any, cluster: Any, schedule: str) -> None:
    text = r"""
extern "C" __global__ void k(int* y) {
  __shared__ int s[32]; __shared__ int sum;
  auto c = cg::this_cluster(); int r = c.block_rank(), n = c.num_blocks();
  s[threadIdx.x] = 100 * r + threadIdx.x; if (threadIdx.x == 0) sum = 0;
  c.sync();
  int* other = c.map_shared_rank(s, (r + 1) % n);
  int got = other[31 - threadIdx.x];
  int direct; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(direct)
      : "r"(mapa(SHARED(&s[threadIdx.x]), (r + n - 1) % n)) : "memory");
  atomicAdd(c.map_shared_rank(&sum, 0), 1);
  c.sync();
  other[threadIdx.x] = r;
  c.sync();
  int linear = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int* to = y + linear * 32 * 4 + threadIdx.x;
  to[0] = got; to[32] = direct; to[64] = s[threadIdx.x]; to[96] = r == 0 ? sum : -c.dim_blocks().x;
}"""
    count = int(np.prod(blocks))
    y = np.zeros((count, 4, 32), np.int32)
    launch_clusters(text, y, blocks=blocks, cluster=cluster,
                    settings=Settings(threads=1, schedule=schedule, seed=3))  # fmt: skip
    sides, inner = (*blocks, 1, 1)[:3], (*cluster, 1, 1)[:3]
    n, lanes = int(np.prod(cluster)), np.arange(32)
    for linear in range(count):
        at = (linear % sides[0], linear // sides[0] % sides[1], linear // (sides[0] * sides[1]))
        x, v, z = (at[d] % inner[d] for d in range(3))
        rank = (z * inner[1] + v) * inner[0] + x
        assert np.array_equal(y[linear, 0], 100 * ((rank + 1) % n) + 31 - lanes)
        assert np.array_equal(y[linear, 1], 100 * ((rank - 1) % n) + lanes)
        assert (y[linear, 2] == (rank - 1) % n).all()
        assert (y[linear, 3] == (32 * n if rank == 0 else -inner[0])).all()


REMOTE = r"""
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ alignas(16) int s[8][32]; __shared__ alignas(8) u64 bar;
  auto c = cg::this_cluster(); u32 r = c.block_rank(), n = c.num_blocks();
  if (threadIdx.x == 0) init(&bar, ARRIVALS);
  c.sync();
  int v = x[32 * r + threadIdx.x];
  for (u32 to = 0; to < n; ++to) { SEND }
  AFTER
  wait(&bar, 0);
  for (u32 from = 0; from < n; ++from) y[(r * n + from) * 32 + threadIdx.x] = s[from][threadIdx.x];
  c.sync();
}"""
STORES = r"""asm volatile("st.shared::cluster.u32 [%0], %1;"
    :: "r"(mapa(SHARED(&s[r][threadIdx.x]), to)), "r"(v) : "memory");
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
    :: "r"(mapa(SHARED(&bar), to)) : "memory");"""
ASYNC = r"""asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 "
    "[%0], %1, [%2];" :: "r"(mapa(SHARED(&s[r][threadIdx.x]), to)), "r"(v),
    "r"(mapa(SHARED(&bar), to)) : "memory");"""
BULK = r"""__shared__ alignas(16) int mine[32]; mine[threadIdx.x] = v;
  asm volatile("fence.proxy.async;" ::: "memory"); __syncwarp();
  if (threadIdx.x == 0) asm volatile(
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
    "[%0], [%1], 128, [%2];" :: "r"(mapa(SHARED(s[r]), to)), "r"(SHARED(mine)),
    "r"(mapa(SHARED(&bar), to)) : "memory");"""


@pytest.mark.parametrize("seed", exhaustive([0, 1, 2], "other schedules"))
@pytest.mark.parametrize(
    ("arrivals", "send", "after"),
    [
        ("32 * n", STORES, ""),
        ("1", ASYNC, "if (threadIdx.x == 0) expect(&bar, 128 * n);"),
        ("1", BULK.replace("__syncwarp();", "__syncwarp();", 1),
         "if (threadIdx.x == 0) expect(&bar, 128 * n);"),
    ],
    ids=["stores", "asynchronous stores", "bulk"],
)  # fmt: skip
def test_blocks_send_to_each_other(arrivals: str, send: str, after: str, seed: int) -> None:
    text = REMOTE.replace("ARRIVALS", arrivals).replace("SEND", send).replace("AFTER", after)
    if send == BULK:  # its source is filled once
        head, _, tail = send.partition("if (threadIdx")
        text = REMOTE.replace("ARRIVALS", arrivals).replace("for (u32 to", head + "for (u32 to", 1)
        text = text.replace("SEND", "if (threadIdx" + tail).replace("AFTER", after)
    x = np.arange(128, dtype=np.int32) * 7
    y = np.zeros((4, 4, 32), np.int32)
    settings = Settings(threads=1, seed=seed, schedule="random" if seed else "robin")
    launch_clusters(text, x, y, blocks=(4,), cluster=(4,), settings=settings)
    assert np.array_equal(y, np.broadcast_to(x.reshape(4, 32), (4, 4, 32)))


def test_reductions_into_another_block() -> None:
    text = r"""
extern "C" __global__ void k(int* y) {
  __shared__ alignas(16) int s[32]; __shared__ alignas(16) int mine[32]; __shared__ alignas(8)
      u64 bar;
  auto c = cg::this_cluster(); u32 r = c.block_rank(), n = c.num_blocks();
  s[threadIdx.x] = 1000; mine[threadIdx.x] = (r + 1) * threadIdx.x;
  if (threadIdx.x == 0) { init(&bar, 1); if (r == 0) expect(&bar, 2 * 128 * n); }
  asm volatile("fence.proxy.async;" ::: "memory");
  c.sync();
  u32 to = mapa(SHARED(s), 0), b = mapa(SHARED(&bar), 0);
  if (threadIdx.x == 0) asm volatile(
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.s32 "
    "[%0], [%1], 128, [%2];" :: "r"(to), "r"(SHARED(mine)), "r"(b) : "memory");
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
      "[%0], %1, [%2];" :: "r"(to + 4 * threadIdx.x), "r"(1), "r"(b) : "memory");
  if (r == 0) { wait(&bar, 0); y[threadIdx.x] = s[threadIdx.x]; }
  c.sync();
}"""
    y = np.zeros(32, np.int32)
    launch_clusters(text, y, blocks=(4,), cluster=(4,))
    assert np.array_equal(y, 1000 + 10 * np.arange(32) + 4)


MULTICAST = r"""
extern "C" __global__ void k(const __grid_constant__ Map map, const float* x, float* y) {
  __shared__ alignas(128) float s[2][4][32]; __shared__ alignas(8) u64 bar;
  auto c = cg::this_cluster(); u32 r = c.block_rank(), n = c.num_blocks();
  if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, 1024); }
  c.sync();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
      :: "r"(SHARED(s[0][r])), "l"(&map), "r"(0), "r"(r), "r"(SHARED(&bar)), "h"((short)MASK)
          : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1], 128, [%2], %3;"
      :: "r"(SHARED(s[1][r])), "l"(x + 32 * r), "r"(SHARED(&bar)), "h"((short)MASK) : "memory");
  }
  wait(&bar, 0);
  for (int e = 0; e < 8; ++e) y[(r * 8 + e) * 32 + threadIdx.x] = s[e / 4][e % 4][threadIdx.x];
  END
}"""


@pytest.mark.parametrize("seed", [0, 4])
def test_multicast_loads(seed: int) -> None:
    x = aligned_zeros(4 * 128).view(np.float32).reshape(4, 32)
    x[...] = np.arange(128).reshape(4, 32)
    y = np.zeros((4, 2, 4, 32), np.float32)
    mapped = TensorMap(x.ctypes.data, "f32", (32, 4), (128,), (32, 1)).encode()
    text = MULTICAST.replace("MASK", "0xf").replace("END", "c.sync();")
    launch_clusters(
        text, mapped, x, y, blocks=(4,), cluster=(4,), settings=Settings(threads=1, seed=seed)
    )
    assert (y == x).all()
    with pytest.raises(Finding, match="mask 0x1f of a cluster of 4"):
        launch_clusters(
            MULTICAST.replace("MASK", "0x1f").replace("END", ""),
            mapped,
            x,
            y,
            blocks=(4,),
            cluster=(4,),
        )
    with pytest.raises(Finding, match="which lacks 1024 bytes"):
        launch_clusters(
            MULTICAST.replace("MASK", "0x7").replace("END", ""),
            mapped,
            x,
            y,
            blocks=(4,),
            cluster=(4,),
        )


def test_an_mbarrier_of_another_block_is_named() -> None:
    text = r"""
extern "C" __global__ void k(const float* x) {
  __shared__ alignas(16) float s[32]; __shared__ alignas(8) u64 bar;
  auto c = cg::this_cluster();
  if (threadIdx.x == 0) init(&bar, 1);
  c.sync();
  if (threadIdx.x == 0) asm volatile(
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
    :: "r"(SHARED(s)), "l"(x), "r"(mapa(SHARED(&bar), c.block_rank() ^ 1)) : "memory");
}"""
    x = aligned_zeros(256).view(np.float32)
    with pytest.raises(Finding, match="both must be of one block"):
        launch_clusters(text, x, blocks=(2,), cluster=(2,))


def test_a_rank_beyond_the_cluster_is_found() -> None:
    text = r"""
extern "C" __global__ void k(int* y) {
  __shared__ int s[32]; s[threadIdx.x] = 1; cg::this_cluster().sync();
  int v; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(mapa(SHARED(s), 2))
      : "memory");
  y[threadIdx.x] = v;
}"""
    with pytest.raises(Finding, match="no block's shared memory"):
        launch_clusters(text, np.zeros(32, np.int32), blocks=(2,), cluster=(2,))


# Clusters taken back before they begin.

# Every block counts its own number and that of each block it takes back, until there is none.
BODY = """
    .reg .b128 %b;
    @%p1 mbarrier.init.shared::cta.b64 [barrier], 1;
    bar.sync 0;
    @!%p1 ret;
    mov.u32 %x0, %ctaid.x;
    mov.u32 %x1, 0;
more:
    mul.wide.u32 %l1, %x0, 4;
    add.u64 %l1, %l0, %l1;
    atom.global.add.u32 %x2, [%l1], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128
        [data], [barrier];
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [barrier], %x1;
    @!%p2 bra again;
    xor.b32 %x1, %x1, 1;
    ld.shared.v2.b64 {%l2, %l3}, [data];
    mov.b128 %b, {%l2, %l3};
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %b;
    @!%p3 ret;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%x0, %x3, %x4, _}, %b;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %x5, %b;
    setp.ne.u32 %p4, %x0, %x5;
    @%p4 trap;
    fence.proxy.async.shared::cta;
    bra more;
"""


@pytest.mark.parametrize("seed", [0, 3])
def test_each_block_is_done_once_by_somebody(seed: int) -> None:
    done = np.zeros(37, np.uint32)
    execute_body(
        BODY, {"done": done}, threads=32, blocks=37, settings=Settings(threads=1, seed=seed)
    )
    np.testing.assert_array_equal(done, 1)


def test_asking_which_cluster_was_taken_back_if_none_was_is_found() -> None:
    done = np.zeros(8, np.uint32)
    with pytest.raises(Finding, match="none was"):
        execute_body(BODY.replace("@!%p3 ret;", ""), {"done": done}, threads=32, blocks=1)
