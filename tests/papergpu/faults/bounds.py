"""What lies outside: global, shared and local memory, null pointers, misaligned accesses."""

from __future__ import annotations

import numpy as np
from ptx_launch import Fault, Launch, Sound, draw_whole_numbers

SAXPY = """
__global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def check_saxpy(launch: Launch) -> None:
    x, y = draw_whole_numbers(1000), draw_whole_numbers(1000, seed=1)
    wanted = 3 * x + y
    launch("saxpy", 4, 256, np.float32(3), x, y, np.int32(1000))
    assert (y == wanted).all()


PAIRS = """
__global__ void pairs(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 2) return;
  float2 v = *(const float2*)(x + 2 * i);
  *(float2*)(y + 2 * i) = make_float2(v.y, v.x);
}
"""


def check_pairs(launch: Launch) -> None:
    x, y = draw_whole_numbers(600), draw_whole_numbers(600, seed=1)
    launch("pairs", 2, 256, x, y, np.int32(600))
    assert (y.reshape(-1, 2) == x.reshape(-1, 2)[:, ::-1]).all()


REVERSE = """
extern __shared__ int s[];
__global__ void reverse(const int* x, int* y) {
  int t = threadIdx.x, n = blockDim.x;
  s[t] = x[blockIdx.x * n + t];
  __syncthreads();
  y[blockIdx.x * n + t] = s[n - 1 - t];
}
"""


def check_reverse(launch: Launch) -> None:
    x, y = np.arange(384, dtype=np.int32), np.zeros(384, np.int32)
    launch("reverse", 3, 128, x, y, shared=512)
    assert (y.reshape(3, 128) == x.reshape(3, 128)[:, ::-1]).all()


SORTED = """
__global__ void sorted(const int* x, int* y, int rows) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  int own[8];
  for (int k = 0; k < 8; ++k) own[k] = x[i * 8 + k] & 7;
  int count[8] = {};
  for (int k = 0; k < 8; ++k) count[own[k]]++;
  for (int k = 0, at = 0; k < 8; ++k) for (int j = 0; j < count[k]; ++j) y[i * 8 + at++] = k;
}
"""


def check_sorted(launch: Launch) -> None:
    x = np.random.default_rng(3).integers(0, 8, (50, 8)).astype(np.int32)
    y = np.zeros_like(x)
    launch("sorted", 1, 64, x, y, np.int32(50))
    assert (y == np.sort(x, 1)).all()


SOUND = (
    Sound(
        "saxpy",
        SAXPY,
        check_saxpy,
        {
            "no mask": Fault("if (i < n) ", "", r"at byte 4000 of .*, which has 4000"),
            "mask one too wide": Fault("i < n", "i <= n", r"at byte 4000 of .*, which has 4000"),
            "one before": Fault("a * x[i]", "a * x[i - 1]", "4 bytes before the start of"),
            "null": Fault(
                "a * x[i]", "a * ((const float*)(long long)(n - 1000))[i & 7]", "a null pointer"
            ),
            "bytes for elements": Fault("a * x[i]", "a * x[i * 4]", "which has 4000"),
            "far away": Fault("a * x[i]", "a * x[i + (1ll << 40)]", "in no tensor"),
        },
    ),
    Sound(
        "pairs",
        PAIRS,
        check_pairs,
        {
            "odd address": Fault("x + 2 * i)", "x + 2 * i + 1)", "not a multiple of 8"),
            "odd stores": Fault("y + 2 * i)", "y + i)", "not a multiple of 8"),
            "not halved": Fault("n / 2", "n", "which has 2400"),
        },
    ),
    Sound(
        "reverse",
        REVERSE,
        check_reverse,
        {
            "beyond shared memory": Fault(
                "s[t] =", "s[t + 1] =", "of shared memory, which has 512"
            ),
            "below shared memory": Fault("s[n - 1 - t]", "s[(int)-1 - t]", "shared memory"),
        },
    ),
    Sound(
        "sorted",
        SORTED,
        check_sorted,
        {
            "beyond local memory": Fault("& 7;", "* 4096;", "local memory"),
        },
    ),
)
