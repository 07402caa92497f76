"""Global memory: what blocks, and warps, do to each other with nothing that orders them."""

from __future__ import annotations

import numpy as np
from ptx_launch import Fault, Launch, Sound, draw_whole_numbers

RACE = "nothing orders the two"
SCOPE = f"{RACE}: one says .cta, so it is atomic for its block alone"

LAST = """
__device__ unsigned int tickets;
extern "C" __global__ void last(const float* x, float* parts, float* y, int n) {
  __shared__ float s[4];
  __shared__ bool mine;
  int t = threadIdx.x;
  float v = 0;
  for (int i = blockIdx.x * 128 + t; i < n; i += 128 * gridDim.x) v += x[i];
  for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(~0u, v, k);
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t == 0) {
    parts[blockIdx.x] = s[0] + s[1] + s[2] + s[3];
    __threadfence();
    mine = atomicAdd(&tickets, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (mine) {
    v = t < gridDim.x ? parts[t] : 0;
    for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(~0u, v, k);
    if (t % 32 == 0) s[t / 32] = v;
    __syncthreads();
    if (t == 0) { *y = s[0] + s[1] + s[2] + s[3]; tickets = 0; }
  }
}
"""


def check_last_block(launch: Launch) -> None:
    x, parts, y = draw_whole_numbers(3000), np.zeros(10, np.float32), np.zeros(1, np.float32)
    for _ in range(2):
        launch("last", 10, 128, x, parts, y, np.int32(3000))
        assert y[0] == x.sum()


ALL = """
__device__ unsigned int tickets;
__global__ void all(const float* x, float* parts, float* y, int n) {
  __shared__ bool mine;
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  parts[i] = x[i] * 2;
  __threadfence();
  __syncthreads();
  if (t == 0) mine = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (mine) for (int k = t; k < n; k += 64) y[k] = parts[n - 1 - k];
}
"""


def check_all_blocks(launch: Launch) -> None:
    x, parts, y = draw_whole_numbers(512), draw_whole_numbers(512), draw_whole_numbers(512)
    launch("all", 8, 64, x, parts, y, np.int32(512))
    assert (y == 2 * x[::-1]).all()


LOCK = """
__device__ int lock;
__global__ void locked(const float* x, float* y, int n) {
  int t = threadIdx.x;
  float v[4];
  for (int k = 0; k < 4; ++k) v[k] = x[blockIdx.x * n + t + 64 * k];
  if (t == 0) { while (atomicCAS(&lock, 0, 1) != 0); __threadfence(); }
  __syncthreads();  // taken
  for (int k = 0; k < 4; ++k) y[t + 64 * k] += v[k];
  __syncthreads();  // done
  if (t == 0) { __threadfence(); atomicExch(&lock, 0); }
}
"""


def check_locked(launch: Launch) -> None:
    x, y = draw_whole_numbers(6, 256), np.zeros(256, np.float32)
    launch("locked", 6, 64, x, y, np.int32(256))
    assert (y == x.sum(0)).all()


CHAIN = """
__global__ void chain(const int* x, int* y, int* sums, int* flags) {
  __shared__ int s[64], before;
  int t = threadIdx.x, b = blockIdx.x;
  s[t] = x[b * 64 + t];
  __syncthreads();
  if (t == 0) {
    int v = 0;
    for (int k = 0; k < 64; ++k) { v += s[k]; s[k] = v; }
    before = 0;
    if (b) {
      int ready;
      do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];"
          : "=r"(ready) : "l"(flags + b - 1) : "memory"); while (!ready);
      before = sums[b - 1];
    }
    sums[b] = before + v;
    asm volatile("st.release.gpu.global.b32 [%0], %1;" :: "l"(flags + b), "r"(1) : "memory");
  }
  __syncthreads();
  y[b * 64 + t] = s[t] + before;
}
"""


def check_chain(launch: Launch) -> None:
    x = np.random.default_rng(5).integers(-9, 9, 640).astype(np.int32)
    y, sums, flags = np.zeros_like(x), np.zeros(10, np.int32), np.zeros(10, np.int32)
    launch("chain", 10, 64, x, y, sums, flags)
    assert (y == np.cumsum(x)).all()


WITHIN = """
__global__ void within(const int* x, int* y, int* flags) {
  int t = threadIdx.x, *flag = flags + blockIdx.x, ready;
  y += blockIdx.x * 64;
  if (t < 32) {
    y[t] = x[t];
    __syncwarp();
    if (t == 0) asm volatile("st.release.cta.global.b32 [%0], %1;" :: "l"(flag), "r"(1) : "memory");
  } else {
    if (t == 32)
      do asm volatile("ld.acquire.cta.global.b32 %0, [%1];" : "=r"(ready) : "l"(flag) : "memory");
      while (!ready);
    __syncwarp();
    y[t] = y[t - 32] + 1;
  }
}
"""


def check_within(launch: Launch) -> None:
    x, y, flags = np.arange(32, dtype=np.int32), np.zeros(192, np.int32), np.zeros(3, np.int32)
    launch("within", 3, 64, x, y, flags)
    assert (y.reshape(3, 2, 32) == [x, x + 1]).all()


VOLATILE = """
__global__ void handed(const int* x, int* y, int* sums, volatile int* flags) {
  int t = threadIdx.x, b = blockIdx.x;
  sums[b * 32 + t] = x[b * 32 + t];
  __threadfence();
  __syncwarp();
  if (t == 0) flags[b] = 1;
  int other = (b + 1) % gridDim.x;
  if (t == 0) { while (flags[other] == 0); }
  __threadfence();
  __syncwarp();
  y[b * 32 + t] = sums[other * 32 + t];
}
"""


def check_handed(launch: Launch) -> None:
    x = np.arange(160, dtype=np.int32)
    y, sums, flags = np.zeros_like(x), np.zeros_like(x), np.zeros(5, np.int32)
    launch("handed", 5, 32, x, y, sums, flags)
    assert (y == np.roll(x, -32)).all()


HISTOGRAM = """
__global__ void histogram(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&y[x[i]], 1);
}
"""


def check_histogram(launch: Launch) -> None:
    x = np.random.default_rng(1).integers(0, 64, 1000).astype(np.int32)
    y = np.zeros(64, np.int32)
    launch("histogram", 4, 256, x, y, np.int32(1000))
    assert (y == np.bincount(x, minlength=64)).all()


STENCIL = """
__global__ void stencil(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (i ? x[i - 1] : 0) + x[i] + (i + 1 < n ? x[i + 1] : 0);
}
"""


def check_stencil(launch: Launch) -> None:
    x, y = draw_whole_numbers(300), np.zeros(300, np.float32)
    launch("stencil", 5, 64, x, y, np.int32(300))
    z = np.pad(x, 1)
    assert (y == z[:-2] + z[1:-1] + z[2:]).all()


GRID = """
#include <cooperative_groups.h>
__global__ void relax(float* x, float* y, int steps) {
  auto grid = cooperative_groups::this_grid();
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  for (int k = 0; k < steps; ++k) {
    y[i] = x[(i + 1) % n] - x[i];
    grid.sync();  // written
    x[i] = y[(i + n - 1) % n];
    grid.sync();  // read
  }
}
"""

BY_HAND = """
__device__ unsigned int arrived;
__device__ volatile unsigned int phase;
__device__ void all() {
  __syncthreads();  // before
  if (threadIdx.x == 0) {
    unsigned int now = phase;
    __threadfence();
    if (atomicAdd(&arrived, 1) == gridDim.x - 1) { arrived = 0; __threadfence(); phase = now + 1; }
    else while (phase == now);
    __threadfence();
  }
  __syncthreads();  // after
}
__global__ void relax(float* x, float* y, int steps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  for (int k = 0; k < steps; ++k) {
    y[i] = x[(i + 1) % n] - x[i];
    all();  // written
    x[i] = y[(i + n - 1) % n];
    all();  // read
  }
}
"""


def check_relax(launch: Launch) -> None:
    x, y = draw_whole_numbers(256), np.zeros(256, np.float32)
    wanted = x.copy()
    for _ in range(3):
        wanted = np.roll(np.roll(wanted, -1) - wanted, 1)
    launch("relax", 4, 64, x, y, np.int32(3), cooperative=True)
    assert (x == wanted).all()


PARTS = """
__global__ void product(const float* a, const float* b, float* c, int n) {
  int i = threadIdx.x / 16, j = threadIdx.x % 16, first = blockIdx.x * (n / gridDim.x);
  float v = 0;
  for (int k = first; k < first + n / gridDim.x; ++k) v += a[i * n + k] * b[k * 16 + j];
  atomicAdd(c + i * 16 + j, v);
}
"""


def check_partial_product(launch: Launch) -> None:
    a, b, c = (
        draw_whole_numbers(16, 64),
        draw_whole_numbers(64, 16, seed=3),
        np.zeros((16, 16), np.float32),
    )
    launch("product", 4, 256, a, b, c, np.int32(64))
    assert (c == a @ b).all()


MARKS = """
__global__ void marks(const int* x, int* any, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] < 0) *any = 1;   // all write the same
}
"""


def check_marks(launch: Launch) -> None:
    x, y = np.arange(-90, 910, dtype=np.int32)[::-1].copy(), np.zeros(1, np.int32)
    x[::100] = -1
    launch("marks", 4, 256, x, y, np.int32(1000))
    assert y[0] == 1


WARPS = """
__global__ void turned(const float* x, float* y, float* z) {
  int i = blockIdx.x * 128 + threadIdx.x, j = blockIdx.x * 128 + 127 - threadIdx.x;
  y[i] = x[i] + 1;
  __syncthreads();
  z[i] = y[j];
}
"""


def check_turned(launch: Launch) -> None:
    x, y, z = draw_whole_numbers(384), draw_whole_numbers(384), draw_whole_numbers(384)
    launch("turned", 3, 128, x, y, z)
    assert (z.reshape(3, 128) == x.reshape(3, 128)[:, ::-1] + 1).all()


SOUND = (
    Sound(
        "last",
        LAST,
        check_last_block,
        {
            "no fence": Fault("    __threadfence();\n", "", RACE),
            "fence of a block": Fault("__threadfence();", "__threadfence_block();", RACE),
            "ticket of a block": Fault("atomicAdd(&tickets", "atomicAdd_block(&tickets", RACE),
            "a counter that is no atomic": Fault("atomicAdd(&tickets, 1)", "tickets++", RACE),
            "a block too early": Fault("== gridDim.x - 1;", "== gridDim.x - 2;", RACE),
        },
    ),
    Sound(
        "all",
        ALL,
        check_all_blocks,
        {
            "no fence": Fault("  __threadfence();\n", "", RACE),
            "counted before all wrote": Fault(
                "  __syncthreads();\n  if (t == 0) mine", "  if (t == 0) mine", RACE
            ),
        },
    ),
    Sound(
        "locked",
        LOCK,
        check_locked,
        {
            "no lock": Fault("while (atomicCAS(&lock, 0, 1) != 0);", "", RACE),
            "no fence behind": Fault("__threadfence(); atomicExch", "atomicExch", RACE),
            "not waiting for the lock": Fault("  __syncthreads();  // taken\n", "", RACE),
            "not waiting for the work": Fault("  __syncthreads();  // done\n", "", RACE),
            "unlocked by half": Fault(
                "atomicExch(&lock, 0);", "atomicExch(&lock, 2);", "hangs|can go on"
            ),
        },
    ),
    Sound(
        "chain",
        CHAIN,
        check_chain,
        {
            "no acquire": Fault("ld.acquire.gpu.global.b32", "ld.relaxed.gpu.global.b32", RACE),
            "no release": Fault("st.release.gpu.global.b32", "st.relaxed.gpu.global.b32", RACE),
            "acquired for a block": Fault(
                "ld.acquire.gpu.global.b32", "ld.acquire.cta.global.b32", RACE
            ),
            "released to a block": Fault(
                "st.release.gpu.global.b32", "st.release.cta.global.b32", RACE
            ),
            "no flag": Fault("while (!ready)", "while (0)", RACE),
            "flag before the sum": Fault(
                '"l"(flags + b), "r"(1) : "memory");',
                '"l"(flags + b), "r"(1) : "memory"); sums[b] = before + v;',
                RACE,
            ),
        },
    ),
    Sound(
        "within",
        WITHIN,
        check_within,
        {
            "no acquire": Fault("ld.acquire.cta.global.b32", "ld.relaxed.cta.global.b32", RACE),
            "no release": Fault("st.release.cta.global.b32", "st.relaxed.cta.global.b32", RACE),
        },
    ),
    Sound(
        "handed",
        VOLATILE,
        check_handed,
        {
            "no fence before": Fault("t];\n  __threadfence();", "t];", RACE),
            "no fence behind": Fault("== 0); }\n  __threadfence();", "== 0); }", RACE),
            "fence of a block behind": Fault(
                "== 0); }\n  __threadfence();", "== 0); }\n  __threadfence_block();", RACE
            ),
            "another's flag": Fault("flags[other] == 0", "flags[b] == 0", RACE),
        },
    ),
    Sound(
        "histogram_of_all",
        HISTOGRAM,
        check_histogram,
        {
            "no atomic": Fault(
                "atomicAdd(&y[x[i]], 1)", "y[x[i]] += 1", f"{RACE}|another value than lane"
            ),
            "atomic for a block": Fault("atomicAdd(", "atomicAdd_block(", SCOPE),
        },
    ),
    Sound(
        "stencil",
        STENCIL,
        check_stencil,
        {
            "in place": Fault("y[i] = (", "const_cast<float*>(x)[i] = (", RACE),
            "blocks overlap": Fault("y[i] = (", "y[i & ~64] = (", RACE),
        },
    ),
    Sound(
        "relax",
        GRID,
        check_relax,
        {
            "of a block only": Fault("grid.sync();  // written", "__syncthreads();", RACE),
            "none": Fault("    grid.sync();  // read\n", "", RACE),
        },
    ),
    Sound(
        "by_hand",
        BY_HAND,
        check_relax,
        {
            "before it": Fault("  __syncthreads();  // before\n", "", RACE),
            "after it": Fault("  __syncthreads();  // after\n", "", RACE),
            "none": Fault("    all();  // read\n", "", RACE),
        },
    ),
    Sound(
        "parts",
        PARTS,
        check_partial_product,
        {
            "no atomic": Fault("atomicAdd(c + i * 16 + j, v)", "c[i * 16 + j] += v", RACE),
            "atomic for a block": Fault("atomicAdd(", "atomicAdd_block(", SCOPE),
        },
    ),
    Sound(
        "marks",
        MARKS,
        check_marks,
        {
            "different values": Fault("*any = 1;", "*any = blockIdx.x + 1;", RACE),
        },
    ),
    Sound(
        "turned",
        WARPS,
        check_turned,
        {
            "no barrier": Fault("  __syncthreads();\n", "", RACE),
        },
    ),
)
