"""Shared memory: races between and within warps, and what nobody wrote."""

from __future__ import annotations

import numpy as np
from ptx_launch import Fault, Launch, Sound, draw_whole_numbers

RACE = "with no barrier between: put a barrier"
WARP = "with no barrier between: put a barrier of the warp"
UNWRITTEN = "nobody in this block has written"

SUM = """
__global__ void sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x;
  float v = 0;
  for (int i = blockIdx.x * 256 + t; i < n; i += 256 * gridDim.x) v += x[i];
  s[t] = v;
  __syncthreads();
  for (int k = 128; k; k >>= 1) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();  // of the loop
  }
  if (t == 0) y[blockIdx.x] = s[0];
}
"""


def check_sum(launch: Launch) -> None:
    x, y = draw_whole_numbers(2000), draw_whole_numbers(3)
    launch("sum", 3, 256, x, y, np.int32(2000))
    assert y.sum() == x.sum()


WARPS = """
__global__ void sums(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x, lane = t % 32;
  s[t] = x[blockIdx.x * 128 + t];
  __syncwarp();
  for (int k = 16; k; k >>= 1) {
    float v = s[t ^ k];
    __syncwarp();  // after reads
    s[t] += v;
    __syncwarp();  // after writes
  }
  if (lane == 0) y[blockIdx.x * 4 + t / 32] = s[t];
}
"""


def check_warp_sums(launch: Launch) -> None:
    x, y = draw_whole_numbers(512), draw_whole_numbers(16)
    launch("sums", 4, 128, x, y)
    assert (y == x.reshape(16, 32).sum(1)).all()


LEGACY = """
__global__ void legacy(const float* x, float* y) {
  __shared__ volatile float s[64];
  int t = threadIdx.x;
  s[t] = x[t]; s[t + 32] = x[t + 32];
  __syncwarp();
  float v = s[t] + s[t + 32];
  __syncwarp();
  s[t] = v;
  __syncwarp();  // 16
  v += s[t + 16]; __syncwarp(); s[t] = v; __syncwarp();
  v += s[t + 8]; __syncwarp(); s[t] = v; __syncwarp();
  v += s[t + 4]; __syncwarp(); s[t] = v; __syncwarp();
  v += s[t + 2]; __syncwarp(); s[t] = v; __syncwarp();
  v += s[t + 1];
  if (t == 0) *y = v;
}
"""


def check_legacy_sum(launch: Launch) -> None:
    x, y = draw_whole_numbers(64), draw_whole_numbers(1)
    launch("legacy", 1, 32, x, y)
    assert y[0] == x.sum()


TRANSPOSE = """
__global__ void transpose(const float* x, float* y, int n) {
  __shared__ float s[32][33];
  int c = threadIdx.x, r = threadIdx.y, a = blockIdx.x * 32, b = blockIdx.y * 32;
  for (int k = r; k < 32; k += 8) s[k][c] = x[(b + k) * n + a + c];
  __syncthreads();
  for (int k = r; k < 32; k += 8) y[(a + k) * n + b + c] = s[c][k];
}
"""


def check_transpose(launch: Launch) -> None:
    x, y = draw_whole_numbers(64, 64), draw_whole_numbers(64, 64, seed=2)
    launch("transpose", (2, 2), (32, 8), x, y, np.int32(64))
    assert (y == x.T).all()


PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int n) {
  __shared__ float s[16][16], t[16][16];
  int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 16 + y, j = blockIdx.x * 16 + x;
  float v = 0;
  for (int k = 0; k < n; k += 16) {
    s[y][x] = a[i * n + k + x];
    t[y][x] = b[(k + y) * n + j];
    __syncthreads();  // full
#pragma unroll 1
    for (int q = 0; q < 16; ++q) v += s[y][q] * t[q][x];
    __syncthreads();  // empty
  }
  c[i * n + j] = v;
}
"""


def check_product(launch: Launch) -> None:
    a, b, c = (
        draw_whole_numbers(48, 48),
        draw_whole_numbers(48, 48, seed=2),
        draw_whole_numbers(48, 48),
    )
    launch("product", (3, 3), (16, 16), a, b, c, np.int32(48))
    assert (c == a @ b).all()


TWO = """
__global__ void smooth(const float* x, float* y, int steps) {
  __shared__ float s[2][128];
  int t = threadIdx.x, l = max(t - 1, 0), r = min(t + 1, 127);
  s[0][t] = x[t];
  __syncthreads();
  for (int k = 0; k < steps; ++k) {
    s[(k + 1) & 1][t] = s[k & 1][l] + s[k & 1][r];
    __syncthreads();  // of the loop
  }
  y[t] = s[steps & 1][t];
}
"""


def check_smooth(launch: Launch) -> None:
    x, y = draw_whole_numbers(128), draw_whole_numbers(128)
    launch("smooth", 1, 128, x, y, np.int32(5))
    for _ in range(5):
        x = np.concatenate([x[:1], x[:-1]]) + np.concatenate([x[1:], x[-1:]])
    assert (y == x).all()


SCAN = """
__global__ void scan(const int* x, int* y) {
  __shared__ int s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int k = 1; k < 128; k *= 2) {
    int v = t >= k ? s[t - k] : 0;
    __syncthreads();  // read
    s[t] += v;
    __syncthreads();  // written
  }
  y[t] = s[t];
}
"""


def check_scan(launch: Launch) -> None:
    x, y = np.arange(128, dtype=np.int32) % 7, np.zeros(128, np.int32)
    launch("scan", 1, 128, x, y)
    assert (y == np.cumsum(x)).all()


BYTES = """
__global__ void bytes(const unsigned char* x, unsigned char* y) {
  __shared__ unsigned char s[256];
  int t = threadIdx.x;
  s[t] = x[t] + 1;      // neighbours in one word, of different threads
  s[t] = s[t] * 2;
  __syncthreads();
  y[t] = s[255 - t];
}
"""


def check_bytes(launch: Launch) -> None:
    x = np.arange(256).astype(np.uint8)
    y = np.zeros(256, np.uint8)
    launch("bytes", 1, 256, x, y)
    assert (y == ((x + 1) * 2)[::-1]).all()


HISTOGRAM = """
__global__ void histogram(const int* x, int* y, int n) {
  __shared__ int s[32];
  int t = threadIdx.x;
  if (t < 32) s[t] = 0;
  __syncthreads();  // zeroed
  for (int i = t; i < n; i += blockDim.x) atomicAdd(&s[x[i]], 1);
  __syncthreads();  // counted
  if (t < 32) y[t] = s[t];
}
"""


def check_histogram(launch: Launch) -> None:
    x = np.random.default_rng(1).integers(0, 32, 1000).astype(np.int32)
    y = np.zeros(32, np.int32)
    launch("histogram", 1, 128, x, y, np.int32(1000))
    assert (y == np.bincount(x, minlength=32)).all()


FOUND = """
__global__ void found(const int* x, int* y, int n) {
  __shared__ int any, where;
  int t = threadIdx.x;
  if (t == 0) { any = 0; where = n; }
  __syncthreads();  // begun
  for (int i = t; i < n; i += blockDim.x) if (x[i] == 5) { any = 1; atomicMin(&where, i); }
  __syncthreads();  // looked
  if (t == 40) { y[0] = any; y[1] = where; }
}
"""


def check_first_found(launch: Launch) -> None:
    x = np.arange(300, dtype=np.int32) % 6
    y = np.zeros(2, np.int32)
    launch("found", 1, 96, x, y, np.int32(300))
    assert y.tolist() == [1, 5]


TURNED = """
#include <mma.h>
using namespace nvcuda;
__global__ void turned(const float* x, float* y) {
  __shared__ __align__(32) float s[2][256];
  int t = threadIdx.x, lane = t % 32, w = t / 32;
  for (int tile = w; tile < 4; tile += 2) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;
    wmma::load_matrix_sync(f, x + 256 * tile, 16, wmma::mem_row_major);
    wmma::store_matrix_sync(s[w], f, 16, wmma::mem_row_major);
    __syncwarp();  // stored
    for (int k = lane; k < 256; k += 32) y[256 * tile + k] = s[w][k % 16 * 16 + k / 16];
    __syncwarp();  // read
  }
}
"""


def check_turned(launch: Launch) -> None:
    x, y = draw_whole_numbers(4, 16, 16), draw_whole_numbers(4, 16, 16)
    launch("turned", 1, 64, x, y)
    assert (y == x.transpose(0, 2, 1)).all()


SOUND = (
    Sound(
        "sum",
        SUM,
        check_sum,
        {
            "no barrier after filling": Fault(
                "s[t] = v;\n  __syncthreads();", "s[t] = v;", f"{RACE}|{UNWRITTEN}"
            ),
            "no barrier in the loop": Fault("    __syncthreads();  // of the loop\n", "", RACE),
            "barrier of a warp only": Fault(
                "__syncthreads();  // of the loop", "__syncwarp();", RACE
            ),
            "one element too many": Fault(
                "s[t + k]", "s[t + k + (k == 128)]", f"{RACE}|{UNWRITTEN}|which has"
            ),
            "one thread too many": Fault("if (t < k) s", "if (t <= k) s", f"{RACE}|which has"),
            "half filled": Fault("s[t] = v;", "if (t < 200) s[t] = v;", UNWRITTEN),
        },
    ),
    Sound(
        "turned",
        TURNED,
        check_turned,
        {
            "not stored yet": Fault("    __syncwarp();  // stored\n", "", WARP),
            "stored again": Fault("    __syncwarp();  // read\n", "", WARP),
        },
    ),
    Sound(
        "warps",
        WARPS,
        check_warp_sums,
        {
            "no barrier before": Fault("+ t];\n  __syncwarp();", "+ t];", WARP),
            "none after reads": Fault("    __syncwarp();  // after reads\n", "", WARP),
            "none after writes": Fault("    __syncwarp();  // after writes\n", "", WARP),
            "a vote after writes": Fault(
                "__syncwarp();  // after writes", "if (__any_sync(~0u, v > 1e9)) return;", WARP
            ),
            "across warps": Fault("s[t ^ k]", "s[t ^ k ^ 32]", f"{RACE}|{UNWRITTEN}"),
        },
    ),
    Sound(
        "legacy",
        LEGACY.replace("t + 16]", "(t + 16) & 63]"),
        check_legacy_sum,
        {
            "volatile is no barrier": Fault("  __syncwarp();  // 16\n", "", WARP),
        },
    ),
    Sound(
        "transpose",
        TRANSPOSE,
        check_transpose,
        {
            "no barrier": Fault("  __syncthreads();\n", "", f"{RACE}|{UNWRITTEN}"),
            "rows not written": Fault(
                "k = r; k < 32; k += 8) s", "k = r; k < 24; k += 8) s", UNWRITTEN
            ),
        },
    ),
    Sound(
        "product",
        PRODUCT,
        check_product,
        {
            "not full": Fault("    __syncthreads();  // full\n", "", f"{RACE}|{UNWRITTEN}"),
            "not empty": Fault("    __syncthreads();  // empty\n", "", RACE),
            "same place": Fault("s[y][x] =", "s[y & 7][x] =", f"{RACE}|{UNWRITTEN}"),
        },
    ),
    Sound(
        "two",
        TWO,
        check_smooth,
        {
            "no barrier in the loop": Fault(
                "    __syncthreads();  // of the loop\n", "", f"{RACE}|{UNWRITTEN}"
            ),
            "one buffer": Fault("s[(k + 1) & 1][t] =", "s[k & 1][t] =", f"{RACE}|{UNWRITTEN}"),
        },
    ),
    Sound(
        "scan",
        SCAN,
        check_scan,
        {
            "none after reading": Fault("    __syncthreads();  // read\n", "", RACE),
            "none after writing": Fault("    __syncthreads();  // written\n", "", RACE),
        },
    ),
    Sound(
        "bytes",
        BYTES,
        check_bytes,
        {
            "no barrier": Fault("  __syncthreads();\n", "", f"{RACE}|{UNWRITTEN}"),
            "the neighbour's byte": Fault("s[t] * 2", "s[t ^ 1] * 2", WARP),
        },
    ),
    Sound(
        "histogram",
        HISTOGRAM,
        check_histogram,
        {
            "not zeroed yet": Fault("  __syncthreads();  // zeroed\n", "", f"{RACE}|{UNWRITTEN}"),
            "never zeroed": Fault("s[t] = 0", "s[t & 15] = 0", f"changes byte .*{UNWRITTEN}"),
            "not counted yet": Fault("  __syncthreads();  // counted\n", "", RACE),
            "no atomic": Fault(
                "atomicAdd(&s[x[i]], 1)", "s[x[i]] += 1", f"{RACE}|another value than lane"
            ),
        },
    ),
    Sound(
        "found",
        FOUND,
        check_first_found,
        {
            "not begun": Fault("  __syncthreads();  // begun\n", "", f"{RACE}|{UNWRITTEN}"),
            "read too early": Fault("  __syncthreads();  // looked\n", "", RACE),
            "different values": Fault("any = 1;", "any = i;", f"another value than lane|{RACE}"),
        },
    ),
)
