"""What Triton's kernels compute on sm_100; run as a script it prints what is wrong, by case.

Each is compiled by Triton, executed and held against float64.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import ptx_launch
import triton
import triton.language as tl
from papergpu.formats import FORMATS
from papergpu.launch import Settings, aligned_zeros
from ptx_launch import catch_error, list_cases, load_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

Array = npt.NDArray[Any]
random = np.random.default_rng(3)
TYPES = {"f": "fp32", "i": "i32"}


# Kernels that use the tensor cores of sm_100.


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


def launch_triton(
    function: Any, kinds: str, grid: tuple[int, int, int], given: list[Any],
    constants: dict[str, Any], **options: Any,
) -> str:  # fmt: skip
    """Compile and execute; `kinds` are the types of the arguments. Returns the PTX."""
    names = function.arg_names
    signature = dict(zip(names, [*kinds.split(), *["constexpr"] * len(constants)], strict=True))
    source = ASTSource(
        fn=function, signature=signature,
        constexprs={(names.index(key),): value for key, value in constants.items()},
    )  # fmt: skip
    made = triton.compile(source, target=GPUTarget("cuda", 100, 32), options=options)
    text = made.asm["ptx"]
    one = load_kernel(text, made.metadata.name)
    scratch = aligned_zeros(made.metadata.global_scratch_size * grid[0] * grid[1] + 128)
    values = [np.float32(value) if isinstance(value, float) else value for value in given]
    more = [scratch, bytes(8)][: len(one.program.parameters) - len(values)]
    ptx_launch.launch_kernel(
        one, *values, *more, names=[*names[: len(values)], "scratch"], grid=grid,
        block=32 * made.metadata.num_warps, dynamic=made.metadata.shared,
        settings=Settings(threads=1, seed=1),
    )  # fmt: skip
    return str(text)


def decode_patterns(name: str) -> Array:
    """The value of each pattern of a narrow format."""
    known = FORMATS[name]
    found = [known.decode(bits) for bits in range(1 << known.width)]
    return np.array([
        float(one.magnitude) * (-1 if one.negative else 1) if one.kind == "finite" else np.nan
        for one in found
    ])  # fmt: skip


def draw_elements(kind: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Random ones as Triton's type `kind` keeps them, and their values: products are exact."""
    values = random.integers(-8, 9, shape) / 8
    if kind == "fp16":
        return values.astype(np.float16), values
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), values
    if kind == "fp32":
        return values.astype(np.float32), values
    known = decode_patterns({"fp8e4nv": "e4m3", "fp8e5": "e5m2"}.get(kind, kind))
    codes = random.choice(np.flatnonzero((known * 8 % 1 == 0) & (np.abs(known) <= 4)), shape)
    return codes.astype(np.uint8), known[codes]


def check_matmul(
    kind: str, m: int, n: int, k: int, steps: int = 2, seen: str = "", **options: Any
) -> None:
    a, b = draw_elements(kind, (2 * m, 2 * k)), draw_elements(kind, (2 * k, n))
    c = np.zeros((2 * m, n), np.float32)
    text = launch_triton(
        matmul, f"*{kind} *{kind} *fp32 i32", (2, 1, 1), [a[0], b[0], c, 2 * k],
        {"N": n, "BM": m, "BN": n, "BK": k, "STEPS": steps}, **options,
    )  # fmt: skip
    assert seen in text, f"no {seen}"
    np.testing.assert_array_equal(c, a[1] @ b[1])


def case_matmul_f16() -> None:
    check_matmul("fp16", 128, 128, 64, seen="tcgen05.mma.cta_group::1.kind::f16")


def case_matmul_f16_in_one_step() -> None:
    check_matmul("fp16", 128, 64, 32, steps=1)


def case_matmul_of_64_rows() -> None:
    check_matmul("fp16", 64, 64, 64, seen="16x32bx2")


def case_matmul_bf16() -> None:
    check_matmul("bf16", 128, 64, 64)


def case_matmul_tf32() -> None:
    check_matmul("fp32", 128, 64, 32, seen="kind::tf32")


def case_matmul_e4m3() -> None:
    check_matmul("fp8e4nv", 128, 128, 128, seen="kind::f8f6f4")


def case_matmul_e5m2_of_8_warps() -> None:
    check_matmul("fp8e5", 128, 256, 64, num_warps=8)


def check_persistent(apart: bool) -> None:
    m, n, k = 256, 256, 192
    a, b = draw_elements("fp16", (m, k)), draw_elements("fp16", (n, k))
    c = np.zeros((m, n), np.float16)
    launch_triton(
        persistent, "*fp16 *fp16 *fp16 i32 i32 i32", (3, 1, 1), [a[0], b[0], c, m, n, k],
        {"BM": 128, "BN": 128, "BK": 64, "APART": apart},
    )  # fmt: skip
    np.testing.assert_array_equal(c, (a[1] @ b[1].T).astype(np.float16))


def case_persistent_with_tensor_maps() -> None:
    check_persistent(False)


def case_persistent_with_warps_of_their_own() -> None:
    check_persistent(True)


def check_scaled(a_kind: str, b_kind: str, vector: int, k: int, seen: str) -> None:
    n, scales = 128, "*u8" if vector == 32 else "*fp8e4nv"
    given, values, kinds, each = [], [], [], []
    for rows, kind in ((128, a_kind), (n, b_kind)):
        codes, value = draw_elements(kind, (rows, k))
        four = kind == "e2m1"
        given.append(np.ascontiguousarray(codes[:, 0::2] | codes[:, 1::2] << 4) if four else codes)
        kinds.append("*u8" if four else f"*{'fp8e4nv' if kind == 'e4m3' else 'fp8e5'}")
        each.append(2 if four else 1)
        low, high = (125, 130) if vector == 32 else (0x30, 0x40)
        scale = random.integers(low, high, (rows, k // vector)).astype(np.uint8)
        given.append(scale)
        kinds.append(scales)
        by = (
            np.ldexp(1.0, scale.astype(int) - 127)
            if vector == 32
            else decode_patterns("e4m3")[scale]
        )
        values.append(value * by.repeat(vector, 1))
    c = np.zeros((128, n), np.float32)
    text = launch_triton(
        scaled, f"{' '.join(kinds)} *fp32", (1, 1, 1), [*given, c],
        {"N": n, "K": k, "A": a_kind, "B": b_kind, "A_EACH": each[0], "B_EACH": each[1],
         "VECTOR": vector},
    )  # fmt: skip
    assert seen in text, f"no {seen}"
    np.testing.assert_allclose(c, values[0] @ values[1].T, rtol=1e-6, atol=1e-5)


def case_scaled_mxf4() -> None:
    check_scaled("e2m1", "e2m1", 32, 256, "kind::mxf4.block_scale.scale_vec::2X")


def case_scaled_nvf4() -> None:
    check_scaled("e2m1", "e2m1", 16, 128, "kind::mxf4nvf4.block_scale.scale_vec::4X")


def case_scaled_mxf8() -> None:
    check_scaled("e4m3", "e5m2", 32, 256, "kind::mxf8f6f4.block_scale.scale_vec::1X")


def case_scaled_mixed() -> None:
    check_scaled("e4m3", "e2m1", 32, 128, "kind::mxf8f6f4")
    check_scaled("e2m1", "e5m2", 32, 128, "kind::mxf8f6f4")


def case_attention() -> None:
    rows, d = 256, 64
    q, k, v = (random.standard_normal((rows, d)).astype(np.float16) for _ in range(3))
    o = np.zeros((rows, d), np.float16)
    scale = float(np.float32(0.18))
    text = launch_triton(
        attention, "*fp16 *fp16 *fp16 *fp16 i32 fp32", (2, 1, 1), [q, k, v, o, rows, scale],
        {"D": d, "BN": 64},
    )  # fmt: skip
    assert "tcgen05.mma" in text
    s = q.astype(np.float64) @ k.astype(np.float64).T * scale
    p = np.exp2(s - s.max(1, keepdims=True))
    wanted = p @ v.astype(np.float64) / p.sum(1, keepdims=True)
    np.testing.assert_allclose(o, wanted, rtol=2e-3, atol=1e-3)


if __name__ == "__main__":
    print(json.dumps({name: catch_error(globals()[name]) for name in list_cases(__file__)}))
