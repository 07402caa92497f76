"""Barriers that not all reach, masks of other lanes than are there, and what never ends."""

from __future__ import annotations

import numpy as np
from ptx_launch import Fault, Launch, Sound, draw_whole_numbers

RACE = "with no barrier between"

SUM = """
__global__ void sum(const float* x, float* y, int n) {
  __shared__ float s[128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();  // filled
  for (int k = 64; k; k >>= 1) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();  // of the loop
  }
  if (t == 0) y[blockIdx.x] = s[0];
}
"""


def check_sum(launch: Launch) -> None:
    x, y = draw_whole_numbers(300), draw_whole_numbers(3)
    launch("sum", 3, 128, x, y, np.int32(300))
    assert y.sum() == x.sum()


NAMED = """
__device__ void sync(int id, int n) { asm volatile("bar.sync %0, %1;"
    :: "r"(id), "r"(n) : "memory"); }
__device__ void arrive(int id, int n) { asm volatile("bar.arrive %0, %1;"
    :: "r"(id), "r"(n) : "memory"); }
__global__ void named(const int* x, int* y, int steps) {
  __shared__ int s[2][64];
  int t = threadIdx.x;
  if (t < 64) {                       // two warps fill
    for (int k = 0; k < steps; ++k) {
      if (k > 1) sync(3 + k % 2, 128);         // empty
      s[k % 2][t] = x[k * 64 + t];
      arrive(1 + k % 2, 128);                  // full
    }
  } else {                            // two empty
    for (int k = 0; k < steps; ++k) {
      sync(1 + k % 2, 128);
      y[k * 64 + t - 64] = s[k % 2][127 - t];
      if (k + 2 < steps) arrive(3 + k % 2, 128);
    }
  }
}
"""


def check_named_barriers(launch: Launch) -> None:
    x, y = np.arange(320, dtype=np.int32), np.zeros(320, np.int32)
    launch("named", 1, 128, x, y, np.int32(5))
    assert (y.reshape(5, 64) == x.reshape(5, 64)[:, ::-1]).all()


HALVES = """
__global__ void halves(const int* x, int* y) {
  __shared__ int s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  if (t < 64) { asm volatile("bar.sync 1, 64;" ::: "memory"); y[t] = s[63 - t]; }
  else { asm volatile("bar.sync 2, 64;" ::: "memory"); y[t] = s[191 - t]; }
}
"""


def check_half_barriers(launch: Launch) -> None:
    x, y = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    launch("halves", 1, 128, x, y)
    assert (y.reshape(2, 64) == x.reshape(2, 64)[:, ::-1]).all()


SHUFFLE = """
__global__ void shuffle(const int* x, int* y, int n) {
  int t = threadIdx.x;
  int v = t < n ? x[t] : 0;
  for (int k = 16; k; k >>= 1) v += __shfl_down_sync(0xffffffff, v, k);
  if (t == 0) *y = v;
}
"""


def check_shuffle(launch: Launch) -> None:
    x, y = np.arange(20, dtype=np.int32), np.zeros(1, np.int32)
    launch("shuffle", 1, 32, x, y, np.int32(20))
    assert y[0] == x.sum()


QUARTER = """
__global__ void quarter(const int* x, int* y) {
  int t = threadIdx.x;
  if (t < 8) {
    int v = x[t];
    v += __shfl_xor_sync(0xff, v, 4);
    v += __shfl_xor_sync(0xff, v, 2);
    v += __shfl_xor_sync(0xff, v, 1);
    if (__all_sync(0xff, v > -1)) y[t] = v;
  }
}
"""


def check_quarter(launch: Launch) -> None:
    x, y = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    launch("quarter", 1, 32, x, y)
    assert (y == 28).all()


COUNTED = """
__global__ void counted(const int* x, int* y) {
  int t = threadIdx.x, n = __syncthreads_count(x[t] > 3);
  if (t == 0) y[0] = n;
  int any = __syncthreads_or(x[t] == 100);
  if (t == 0) y[1] = any != 0;
}
"""


def check_counted(launch: Launch) -> None:
    x, y = np.arange(96, dtype=np.int32) % 8, np.zeros(2, np.int32)
    launch("counted", 1, 96, x, y)
    assert y.tolist() == [48, 0]


WAITING = """
__global__ void waiting(const int* x, int* y) {
  __shared__ volatile int ready;
  __shared__ int s[32];
  int t = threadIdx.x;
  if (t == 0) ready = 0;
  __syncthreads();
  if (t < 32) {
    s[t] = x[t];
    __threadfence_block();
    __syncwarp();
    if (t == 0) ready = 1;
  } else {
    while (ready == 0);
    __threadfence_block();
    __syncwarp();
    y[t - 32] = s[63 - t];
  }
}
"""


def check_waiting(launch: Launch) -> None:
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    launch("waiting", 1, 64, x, y)
    assert (y == x[::-1]).all()


SOUND = (
    Sound(
        "barriers",
        SUM,
        check_sum,
        {
            "returned before": Fault(
                "i = blockIdx.x * 128 + t;",
                "i = blockIdx.x * 128 + t; if (i >= n) return;",
                "have ended|ends here",
            ),
            "in a branch of a warp": Fault(
                "s[t + k];\n    __syncthreads();",
                "s[t + k];\n    if (t < 16) __syncthreads();",
                "can go on|in two places|ended|ends",
            ),
            "in a branch of warps": Fault(
                "s[t + k];\n    __syncthreads();",
                "s[t + k];\n    if (t < 64) __syncthreads();",
                "can go on|in two places|ended|ends",
            ),
            "in both branches": Fault(
                "  __syncthreads();  // filled",
                "  if (t < 64) { s[t] += 0; __syncthreads(); } "
                "else { __syncthreads(); s[t] += 1; s[t] -= 1; }",
                "in two places",
            ),
            "a loop of other length": Fault(
                "for (int k = 64;", "for (int k = t < 32 ? 64 : 32;", "ended|ends|in two places"
            ),
        },
    ),
    Sound(
        "named",
        NAMED,
        check_named_barriers,
        {
            "other counts": Fault(
                "      sync(1 + k % 2, 128);",
                "      sync(1 + k % 2, 64);",
                "waits for 64 threads here, and for 128",
            ),
            "not whole warps": Fault(
                "arrive(1 + k % 2, 128);  ", "arrive(1 + k % 2, 100);  ", "not whole warps"
            ),
            "more than there are": Fault(
                "arrive(1 + k % 2, 128);  ", "arrive(1 + k % 2, 160);  ", "never opens|waits for"
            ),
            "no such barrier": Fault(
                "arrive(1 + k % 2, 128);  ",
                "arrive(16, 128);  ",
                "there is no barrier 16 of a block",
            ),
            "not waiting for empty": Fault(
                "if (k > 1) sync(3 + k % 2, 128);", "if (k > 1) arrive(3 + k % 2, 128);", RACE
            ),
            "not waiting for full": Fault(
                "      sync(1 + k % 2, 128);",
                "      arrive(1 + k % 2, 128);",
                f"{RACE}|nobody in this block",
            ),
            "nobody says empty": Fault(
                "if (k + 2 < steps) arrive(3 + k % 2, 128);", "", "can go on"
            ),
        },
    ),
    Sound(
        "halves",
        HALVES,
        check_half_barriers,
        {
            "the other half": Fault("s[63 - t]", "s[127 - t]", f"{RACE}|nobody in this block"),
            "one of a warp": Fault(
                "bar.sync 1, 64;", "bar.sync 1, 32;", f"{RACE}|nobody in this block"
            ),
        },
    ),
    Sound(
        "shuffle",
        SHUFFLE,
        check_shuffle,
        {
            "ended lanes": Fault(
                "int v = t < n ? x[t] : 0;",
                "if (t >= n) return;\n  int v = x[t];",
                "names lane 20, which has ended",
            ),
            "lanes elsewhere": Fault(
                "  for (int k", "  if (t < n) for (int k", "can go on|names lane|ended"
            ),
            "itself not named": Fault("0xffffffff", "0xffff", "does not name lane 16"),
        },
    ),
    Sound(
        "quarter",
        QUARTER,
        check_quarter,
        {
            "beyond the mask": Fault(
                "__shfl_xor_sync(0xff, v, 4)", "__shfl_xor_sync(0xff, v, 8)", "does not take part"
            ),
            "full mask": Fault(
                "__shfl_xor_sync(0xff, v, 1)", "__shfl_xor_sync(~0u, v, 1)", "ended|can go on"
            ),
            "vote of all": Fault("__all_sync(0xff,", "__all_sync(0xffff,", "ended|can go on"),
        },
    ),
    Sound(
        "counted",
        COUNTED,
        check_counted,
        {
            "one warp does not count": Fault(
                "int any = __syncthreads_or(x[t] == 100);",
                "int any = 0; if (t < 64) any = __syncthreads_or(x[t] == 100);",
                "ended|ends",
            ),
        },
    ),
    Sound(
        "waiting",
        WAITING,
        check_waiting,
        {
            "nobody is ready": Fault("if (t == 0) ready = 1;", "if (t == 32) ready = 1;", "hangs"),
            "no fence before": Fault(
                "s[t] = x[t];\n    __threadfence_block();", "s[t] = x[t];", RACE
            ),
            "no fence behind": Fault(
                "while (ready == 0);\n    __threadfence_block();", "while (ready == 0);", RACE
            ),
        },
    ),
)
