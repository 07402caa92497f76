"""Kernels of Triton that use the tensor cores of sm_100."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, K, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, num_stages=STEPS):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(x, y, acc, input_precision="tf32")
    tl.store(c + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def persistent(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, APART: tl.constexpr
):
    first = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    second = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), flatten=True,
        warp_specialize=APART,
    ):  # fmt: skip
        m, n = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            acc = tl.dot(first.load([m, k * BK]), second.load([n, k * BK]).T, acc)
        out.store([m, n], acc.to(tl.float16))


@triton.jit
def scaled(
    a, a_scale, b, b_scale, c, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    A_EACH: tl.constexpr, B_EACH: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    rm, rn = tl.arange(0, 128), tl.arange(0, N)
    rs = tl.arange(0, K // VECTOR)
    x = tl.load(a + rm[:, None] * (K // A_EACH) + tl.arange(0, K // A_EACH)[None, :])
    y = tl.load(b + rn[None, :] * (K // B_EACH) + tl.arange(0, K // B_EACH)[:, None])
    xs = tl.load(a_scale + rm[:, None] * (K // VECTOR) + rs[None, :])
    ys = tl.load(b_scale + rn[:, None] * (K // VECTOR) + rs[None, :])
    acc = tl.dot_scaled(x, xs, A, y, ys, B)
    tl.store(c + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def attention(q, k, v, o, S, scale, D: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * 128 + tl.arange(0, 128)
    rd = tl.arange(0, D)
    x = tl.load(q + rm[:, None] * D + rd[None, :])
    most = tl.full((128,), float("-inf"), tl.float32)
    total = tl.zeros((128,), tl.float32)
    acc = tl.zeros((128, D), tl.float32)
    for n in range(0, S, BN):
        rn = n + tl.arange(0, BN)
        y = tl.load(k + rn[None, :] * D + rd[:, None])
        s = tl.dot(x, y) * scale
        now = tl.maximum(most, tl.max(s, 1))
        p = tl.math.exp2(s - now[:, None])
        before = tl.math.exp2(most - now)
        total = total * before + tl.sum(p, 1)
        acc = acc * before[:, None]
        z = tl.load(v + rn[:, None] * D + rd[None, :])
        acc = tl.dot(p.to(tl.float16), z, acc)
        most = now
    tl.store(o + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(tl.float16))
