"""Real kernels that multiply matrices: what Triton compiles for two targets, and CUDA C++."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from papergpu.errors import Finding
from papergpu.launch import Settings, aligned_zeros
from ptx_launch import launch_kernel, load_kernel, run_python

if TYPE_CHECKING:
    import torch

COMPILED = """
import json
import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            HOW: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column, depth = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.int32 if HOW == "whole" else tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + row[:, None] * K + k + depth[None, :])
        if HOW == "across":
            right = tl.trans(tl.load(b + column[:, None] * K + (k + depth[None, :])))
        else:
            right = tl.load(b + (k + depth[:, None]) * N + column[None, :])
        if HOW == "registers":
            left = (left.to(tl.float32) * 2).to(left.dtype)
        if HOW == "scaled":
            total = total * 0.5
        total = tl.dot(left, right, total, out_dtype=total.dtype)
    tl.store(c + row[:, None] * N + column[None, :], total)

for name, sm, kind, how, warps in json.loads(sys.argv[2]):
    kinds = {x: f"*{kind}" for x in "ab"} | {"c": "*i32" if how == "whole" else "*fp32"}
    kinds |= {x: "i32" for x in "MNK"} | {x: "constexpr" for x in ("BM", "BN", "BK", "HOW")}
    sizes = {"BM": 64 if warps == 4 else 128, "BN": 64, "BK": 32, "HOW": how}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(6)}
    made = triton.compile(ASTSource(product, kinds, sizes, attrs=aligned),
                          target=GPUTarget("cuda", sm, 32),
                          options={"num_warps": warps, "num_stages": 3})
    open(f"{sys.argv[1]}/{name}.ptx", "w").write(made.asm["ptx"])
    open(f"{sys.argv[1]}/{name}.shared", "w").write(str(made.metadata.shared))
"""
CASES = [
    (f"{kind}_{how}_{sm}_{warps}", sm, kind, how, warps)
    for sm, kind, how, warps in (
        (80, "fp16", "plain", 4), (90, "fp16", "plain", 4), (90, "fp16", "plain", 8),
        (80, "bf16", "across", 4), (90, "bf16", "across", 4), (90, "fp16", "registers", 4),
        (90, "fp16", "scaled", 4), (80, "fp32", "plain", 4), (90, "fp32", "across", 4),
        (90, "fp8e4nv", "across", 4), (80, "i8", "whole", 4), (90, "i8", "whole", 4),
    )
]  # fmt: skip
TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp8e4nv": "float8_e4m3fn",
         "i8": "int8"}  # as torch names them  # fmt: skip


@pytest.fixture(scope="module")
def compiled_products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what Triton makes of all cases."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("products")
    script = folder / "product.py"
    script.write_text(COMPILED)
    done = run_python(str(script), str(folder), json.dumps(CASES))
    assert done.returncode == 0, done.stderr
    return folder


def align_tensor(values: torch.Tensor) -> np.ndarray:
    """A tensor's bytes where their address is a multiple of 128."""
    import torch

    raw = values.contiguous().view(torch.uint8).numpy().reshape(-1)
    room = aligned_zeros(raw.size)
    room[:] = raw
    return room


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_what_triton_compiles(
    compiled_products: Path, case: tuple[str, int, str, str, int]
) -> None:
    import torch

    name, _, kind, how, warps = case
    m, n, k = 128, 64, 96
    torch.manual_seed(len(name))
    of = getattr(torch, TYPES[kind])
    a, b = (torch.randint(-4, 5, shape).to(of) for shape in ((m, k), (k, n)))
    exact, other = a.to(torch.float64).numpy(), b.to(torch.float64).numpy()
    expected = exact @ other
    if how == "registers":
        expected = 2 * expected
    if how == "scaled":
        parts = [exact[:, i : i + 32] @ other[i : i + 32] for i in range(0, k, 32)]
        expected = parts[0] / 4 + parts[1] / 2 + parts[2]
    made = load_kernel((compiled_products / f"{name}.ptx").read_text(), "product")
    dynamic = int((compiled_products / f"{name}.shared").read_text())
    rest = [np.zeros(64, np.uint8)] * (len(made.program.parameters) - 6)
    blocks = (m // (64 if warps == 4 else 128), n // 64, 1)
    for settings in (
        Settings(threads=1),
        Settings(threads=1, schedule="random", seed=5, order="backward"),
    ):
        c = align_tensor(torch.zeros(m, n, dtype=torch.int32 if how == "whole" else torch.float32))
        right = align_tensor(b.T if how == "across" else b)
        launch_kernel(
            made,
            align_tensor(a),
            right,
            c,
            m,
            n,
            k,
            *rest,
            grid=blocks,
            block=32 * warps,
            dynamic=dynamic,
            settings=settings,
        )
        got = c.view(np.int32 if how == "whole" else np.float32).reshape(m, n)
        np.testing.assert_array_equal(got, expected)


BLOCK_SCALED = """
import torch, triton, triton.language as tl

@triton.jit
def scaled(a, b, sa, sb, c, K: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
           WIDE_A: tl.constexpr, WIDE_B: tl.constexpr, VECTOR: tl.constexpr):
    m, n, s = tl.arange(0, 32), tl.arange(0, 64), tl.arange(0, K // VECTOR)
    x = tl.load(a + m[:, None] * WIDE_A + tl.arange(0, WIDE_A)[None, :])
    y = tl.load(b + n[None, :] * WIDE_B + tl.arange(0, WIDE_B)[:, None])
    left = tl.load(sa + m[:, None] * (K // VECTOR) + s[None, :])
    right = tl.load(sb + n[:, None] * (K // VECTOR) + s[None, :])
    tl.store(c + m[:, None] * 64 + n[None, :], tl.dot_scaled(x, left, LEFT, y, right, RIGHT))

half = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
EIGHT = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}

def draw(kind, rows):
    if kind in EIGHT:
        raw = torch.randint(-8, 9, (rows, 128)).to(EIGHT[kind])
        return raw.view(torch.uint8), raw.double()
    raw = torch.randint(0, 256, (rows, 64), dtype=torch.uint8)
    codes = torch.stack([raw & 15, raw >> 4], -1).reshape(rows, 128).long()
    return raw, torch.cat([half, -half])[codes]

for left, right, vector in (("e4m3", "e5m2", 32), ("e2m1", "e2m1", 32), ("e2m1", "e2m1", 16)):
    (a, x), (b, y) = draw(left, 32), draw(right, 64)
    factors = [torch.randint(120, 134, (rows, 128 // vector), dtype=torch.uint8)
               for rows in (32, 64)]
    by = [2.0 ** (one.double() - 127) for one in factors]
    if vector == 16:
        factors = [(one / 64).to(torch.float8_e4m3fn) for one in factors]
        by = [one.double() for one in factors]
    c = torch.zeros(32, 64)
    made = scaled[(1,)](a, b, *factors, c, 128, left, right, a.shape[1], b.shape[1], vector)
    x, y = (one * f.repeat_interleave(vector, 1) for one, f in zip((x, y), by))
    error = (c - x @ y.T).abs().max() / (x.abs() @ y.abs().T).max()
    print("block_scale" in made.asm["ptx"], float(error) < 2**-23)
"""


def test_triton_multiplies_scaled_blocks_on_sm_120(tmp_path: Path) -> None:
    """The layout of factors that Triton chose for the hardware is the one that is executed."""
    pytest.importorskip("triton")
    script = tmp_path / "scaled.py"
    script.write_text(BLOCK_SCALED)
    done = run_python("-m", "papergpu", "run", "--target", "sm_120", str(script))
    assert done.stdout == 3 * "True True\n", done.stdout + done.stderr


CUDA = r"""
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;

// 64 x 64 of C by four warps, each 32 x 32, through shared memory; beta C is added by elements.
__global__ void with_wmma(const half* A, const half* B, float* C, int n, float beta) {
    __shared__ half a[64][16 + 8], b[16][64 + 8];
    const int warp = threadIdx.x / 32, row = blockIdx.y * 64, column = blockIdx.x * 64;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
    for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.f);
    for (int k = 0; k < n; k += 16) {
        for (int t = threadIdx.x; t < 64 * 16; t += blockDim.x) {
            a[t / 16][t % 16] = A[(row + t / 16) * n + k + t % 16];
            b[t / 64][t % 64] = B[(k + t / 64) * n + column + t % 64];
        }
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x[2];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y[2];
        for (int i = 0; i < 2; ++i) {
            wmma::load_matrix_sync(x[i], &a[warp / 2 * 32 + i * 16][0], 24);
            wmma::load_matrix_sync(y[i], &b[0][warp % 2 * 32 + i * 16], 72);
            for (int e = 0; e < x[i].num_elements; ++e) x[i].x[e] = x[i].x[e] * half(2);
        }
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], x[i], y[j], sums[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) {
        float* at = C + (row + warp / 2 * 32 + i * 16) * n + column + warp % 2 * 32 + j * 16;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> old;
        wmma::load_matrix_sync(old, at, n, wmma::mem_row_major);
        for (int e = 0; e < old.num_elements; ++e) sums[i][j].x[e] += beta * old.x[e];
        wmma::store_matrix_sync(at, sums[i][j], n, wmma::mem_row_major);
    }
}

// 16 x 8 of C by one warp, with ldmatrix and mma in words of PTX.
__global__ void with_mma(const half* A, const half* B, float* C, int n) {
    __shared__ __align__(16) half a[16][16], b[16][8];
    const int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
    float c[4] = {};
    for (int k = 0; k < n; k += 16) {
        for (int t = lane; t < 256; t += 32) a[t / 16][t % 16] = A[(row + t / 16) * n + k + t % 16];
        for (int t = lane; t < 128; t += 32) b[t / 8][t % 8] = B[(k + t / 8) * n + column + t % 8];
        __syncwarp();
        unsigned x[4], y[2];
        unsigned at = __cvta_generic_to_shared(&a[lane % 16][lane / 16 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
        at = __cvta_generic_to_shared(&b[lane % 16][0]);
        asm volatile("ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1]) : "r"(at));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3},"
                     " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp();
    }
    for (int e = 0; e < 4; ++e)
        C[(row + lane / 4 + e / 2 * 8) * n + column + lane % 4 * 2 + e % 2] = c[e];
}

#ifdef GROUP
__device__ unsigned long long describe(const void* at, unsigned lead, unsigned stride) {
    return (__cvta_generic_to_shared(at) & 0x3ffff) >> 4 | (unsigned long long)(lead >> 4) << 16
        | (unsigned long long)(stride >> 4) << 32;
}
// 64 x 8 of C by a warpgroup: tiles without a swizzle, two of them, one loaded while
// the other is multiplied.
__global__ void with_wgmma(const half* A, const half* B, float* C, int n) {
    __shared__ __align__(128) half a[2][64 * 16], b[2][8 * 16];
    const int t = threadIdx.x, row = blockIdx.y * 64, column = blockIdx.x * 8;
    float c[4] = {};
    auto load = [&](int k, int into) {
        for (int i = t; i < 64 * 16; i += 128) {   // chunks of 8 halves, rows within blocks of 8
            const int r = i / 16, x = i % 16;
            a[into][r / 8 * 128 + x / 8 * 64 + r % 8 * 8 + x % 8] = A[(row + r) * n + k + x];
        }
        for (int i = t; i < 8 * 16; i += 128)
            b[into][i % 16 / 8 * 64 + i / 16 * 8 + i % 8] = B[(k + i % 16) * n + column + i / 16];
        asm volatile("fence.proxy.async;" ::: "memory");
    };
    load(0, 0);
    for (int k = 0, now = 0; k < n; k += 16, now ^= 1) {
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3},"
                     " %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "l"(describe(a[now], 128, 256)), "l"(describe(b[now], 128, 256)));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (k + 16 < n) load(k + 16, now ^ EARLY);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int e = 0; e < 4; ++e)
        C[(row + t / 32 * 16 + t % 32 / 4 + e / 2 * 8) * n + column + t % 4 * 2 + e % 2] = c[e];
}
#endif
"""


def draw_halves(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    a, b = (generator.integers(-4, 5, (n, n)).astype(np.float16) for _ in range(2))
    return a, b


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_wmma_of_cuda(target: str) -> None:
    cuda = pytest.importorskip("papergpu.cuda")
    n = 128
    a, b = draw_halves(1, n)
    c = np.random.default_rng(2).integers(-9, 10, (n, n)).astype(np.float32)
    expected = 2 * (a.astype(float) @ b) + 3 * c
    source = cuda.Source(CUDA, target=target)
    source.launch("with_wmma", (n // 64, n // 64), 128, a, b, c, n, 3.0)
    np.testing.assert_array_equal(c, expected)


def test_words_of_ptx_in_cuda() -> None:
    cuda = pytest.importorskip("papergpu.cuda")
    n = 48
    a, b = draw_halves(3, n)
    c = np.zeros((n, n), np.float32)
    cuda.Source(CUDA, target="sm_80").launch("with_mma", (n // 8, n // 16), 32, a, b, c, n)
    np.testing.assert_array_equal(c, a.astype(float) @ b)


def test_a_warpgroup_in_cuda() -> None:
    cuda = pytest.importorskip("papergpu.cuda")
    n = 64
    a, b = draw_halves(4, n)
    c = np.zeros((n, n), np.float32)
    source = cuda.Source(CUDA, ["-DGROUP", "-DEARLY=1"])
    source.launch("with_wgmma", (n // 8, n // 64), 128, a, b, c, n)
    np.testing.assert_array_equal(c, a.astype(float) @ b)


def test_a_tile_overwritten_while_it_is_multiplied_is_found() -> None:
    """What is wrong here by one word, 0 for 1, is wrong in numbers, and found."""
    cuda = pytest.importorskip("papergpu.cuda")
    n = 64
    a, b = draw_halves(4, n)
    c = np.zeros((n, n), np.float32)
    options = ["-DGROUP", "-DEARLY=0"]
    unchecked = Settings(checks=False)
    cuda.Source(CUDA, options).launch(
        "with_wgmma", (n // 8, 1), 128, a, b, c, n, settings=unchecked
    )
    assert (c != a.astype(float) @ b).any()
    with pytest.raises(Finding):
        cuda.Source(CUDA, options).launch("with_wgmma", (n // 8, 1), 128, a, b, c, n)
