"""The small CUDA C: what its kernels leave is what NVRTC's leave, bit for bit; the rest is refused.

Both are executed here. NVRTC rounds products and sums apart, as this does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papergpu import pack_text
from papergpu.cuda_c import compile_cuda as compile_small
from papergpu.errors import Finding, Unsupported
from ptx_launch import compile_cuda, launch_kernel, load_kernel

NUMBERS = np.random.default_rng(1)


def run_both(source: str, *given: Any, **how: Any) -> list[list[np.ndarray]]:
    """What arrays hold behind the kernel `k`, as each compiler has it."""
    left = []
    named = source.replace("__global__", 'extern "C" __global__')
    for ptx in (compile_small(source), compile_cuda(named, "compute_90a", "-fmad=false")):
        held = [one.copy() if isinstance(one, np.ndarray) else one for one in given]
        launch_kernel(load_kernel(ptx), *held, **how)
        left.append([one for one in held if isinstance(one, np.ndarray)])
    return left


def floats(*shape: int) -> np.ndarray:
    return NUMBERS.standard_normal(shape).astype(np.float32)


def ints(*shape: int) -> np.ndarray:
    return NUMBERS.integers(-1000, 1000, shape).astype(np.int32)


# A kernel, what it is given, its grid and its block.
KERNELS: dict[str, tuple[str, list[Any], Any, Any]] = {
    "sums of rows": ("""__global__ void k(const float* x, float* out, int n) {
    __shared__ float tile[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    for (int far = 16; far > 0; far /= 2) sum += __shfl_down_sync(0xffffffff, sum, far);
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) tile[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
        for (int w = 0; w < blockDim.x / 32; w++) all += tile[w];
        out[blockIdx.x] = all > 0 && n > 0 ? sqrtf(all) : -all;
    }
}""", [floats(5, 200), floats(5), 200], 5, 96),
    "a product in tiles": ("""#define T 16
__global__ void k(const float* __restrict__ a, const float* __restrict__ b, float* c, int n) {
    __shared__ float x[T][T], y[T][T + 1];
    int row = blockIdx.y * T + threadIdx.y, column = blockIdx.x * T + threadIdx.x;
    float sum = 0;
    #pragma unroll
    for (int at = 0; at < n; at += T) {
        int right = at + threadIdx.x, down = at + threadIdx.y;
        x[threadIdx.y][threadIdx.x] = row < n && right < n ? a[row * n + right] : 0.f;
        y[threadIdx.y][threadIdx.x] = column < n && down < n ? b[down * n + column] : 0.f;
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += x[threadIdx.y][k] * y[k][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}""", [floats(40, 40), floats(40, 40), floats(40, 40), 40], (3, 3), (16, 16)),
    "memory that the launch gives": ("""extern __shared__ float more[];
__global__ void k(float* x) {
    __shared__ float own[64];
    own[threadIdx.x] = x[threadIdx.x];
    more[63 - threadIdx.x] = own[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = more[threadIdx.x] + own[63 - threadIdx.x];
}""", [floats(64)], 1, 64),
    "a histogram": ("""__global__ void k(const unsigned char* x, unsigned* bins, int n) {
    __shared__ unsigned own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&own[x[i] >> 4], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(bins + threadIdx.x, own[threadIdx.x]);
}""", [NUMBERS.integers(0, 256, 500).astype(np.uint8), np.zeros(16, np.uint32), 500], 2, 64),
    "a scan by shuffles, and votes": ("""__device__ int scan(int v, int lane) {
    for (int d = 1; d < 32; d *= 2) {
        int left = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += left;
    }
    return v;
}
__global__ void k(int* x, int* kept, unsigned* ballots) {
    int lane = threadIdx.x & 31, v = x[threadIdx.x];
    unsigned odd = __ballot_sync(0xffffffffu, v & 1);
    int before = __popc(odd & ((1u << lane) - 1));
    if (v & 1) kept[threadIdx.x - lane + before] = v;
    x[threadIdx.x] = scan(v, lane) + __shfl_xor_sync(~0u, v, 5) * __any_sync(~0u, v > 990);
    odd += (__all_sync(~0u, v < 1000) ? 1 : 0) + __clz(odd) + __brev(odd);
    if (!lane) ballots[threadIdx.x / 32] = odd;
}""", [ints(64), ints(64), np.zeros(2, np.uint32)], 1, 64),
    "loops that are left": ("""__global__ void k(int* x, int n) {
    int i = threadIdx.x, steps = 0;
    unsigned long long v = i + 1;
    while (1) {
        if (v == 1) break;
        steps++;
        if (v % 2) { v = 3 * v + 1; continue; }
        v >>= 1;
    }
    int back = n;
    do { back -= 3; if (back == 17) continue; x[i] += back; } while (back > 0);
    x[i] = x[i] * 1000 + steps;
    if (i == 5) return;
    x[i] = -x[i];
}""", [ints(64), 31], 1, 64),
    "pointers that walk, and arrays of a thread": ("""__device__ void swap(float* a, float* b) {
    float c = *a; *a = *b; *b = c;
}
__global__ void k(float* x, double* y, const long long* z) {
    float own[8] = {1.0f, 2, .5f};
    float* p = x + threadIdx.x * 8;
    for (int i = 0; i < 8; i++) own[i] += *p++;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j + 1 < 8 - i; j++)
            if (own[j] > own[j + 1]) swap(own + j, &own[j + 1]);
    p -= 8;
    for (int i = 0; p + i < x + threadIdx.x * 8 + 8; ++i) p[i] = own[7 - i];
    y[threadIdx.x] = y[threadIdx.x] / 3.0 + (double)(p - x) + (float)z[threadIdx.x];
}""", [floats(256), floats(32).astype(np.float64), ints(32).astype(np.int64) << 20], 1, 32),
    "functions of floats": ("""__global__ void k(const float* x, float* out) {
    int i = threadIdx.x;
    float v = x[i], w = fabsf(v) + 0.5f;
    out[i * 10] = floorf(v) + ceilf(w) * truncf(3 * v);
    out[i * 10 + 1] = fminf(v, w) - fmaxf(v, -w);
    out[i * 10 + 2] = fmaf(v, w, v) / w;
    out[i * 10 + 3] = min(i, 7) + max(v, 0.25f) + abs(i - 9);
    out[i * 10 + 4] = (float)(int)(v * 100) + (unsigned char)(i * 77) + (short)(i * 5000);
    out[i * 10 + 5] = v != v || v == 1e38f * 10 ? 1 : !(v < w);
    out[i * 10 + 6] = sqrtf(w) + __int_as_float(__float_as_int(w) + 3);
    bool kept[2] = {v > 0, 256 * i};
    out[i * 10 + 7] = (v > 0) + (v > 1) * 2 + kept[0] * 10 + kept[1] * 20 + (bool)v;
    out[i * 10 + 8] = 1e10f * v * sizeof(float) + 'a';
    out[i * 10 + 9] = (i % 3 - 1) / 2 + (-7 / 2) % 5 + (i << 3 ^ 5 | 2 & ~i) + (unsigned)-1 / 3u;
}""", [floats(32), floats(320)], 1, 32),
    "atomics": ("""__global__ void k(int* x, float* y, unsigned* z) {
    int i = threadIdx.x;
    atomicMax(&x[0], i * 7 % 32); atomicMin(x + 1, i); atomicOr((unsigned*)z, 1u << i);
    atomicXor(z + 1, (unsigned)i * 3); atomicAnd(&z[2], ~(1u << (i & 7))); atomicSub(&x[2], i);
    if (i == 3) { x[3] = atomicExch(&x[4], 9); x[5] = atomicCAS(&x[6], x[7], 4); }
    if (i == 3) y[0] = atomicExch(y + 1, 2.f);
    atomicAdd(y + 2, 1.0f);
}""", [ints(8), floats(3), np.full(3, 255, np.uint32)], 1, 32),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_it_leaves_what_nvrtc_leaves(name: str) -> None:
    source, given, grid, block = KERNELS[name]
    ours, theirs = run_both(source, *given, grid=grid, block=block, dynamic=256)
    assert [one.tobytes() for one in ours] == [one.tobytes() for one in theirs]
    before = [one for one in given if isinstance(one, np.ndarray)]
    assert [one.tobytes() for one in ours] != [one.tobytes() for one in before]


ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```cuda\n(.*?)\n *```$", re.MULTILINE | re.DOTALL)
HEAD = re.compile(r"^// (\w+) = (.*)\n", re.MULTILINE)


def read_examples(page: str) -> list[str]:
    text = (ROOT / "docs" / "tools" / page).read_text(encoding="utf-8")
    return [one[2].replace(f"\n{one[1]}", "\n").strip() for one in BLOCK.finditer(text)]


def run_example(text: str) -> tuple[list[bytes], list[bytes]]:
    """What an example leaves, by this compiler and by NVRTC; its first lines say what it gets."""
    head, source = dict(HEAD.findall(text)), HEAD.sub("", text)
    grid, block = ([int(side) for side in head.pop(name).split("x")] for name in ("grid", "block"))
    given: list[Any] = []
    for name, said in head.items():
        if found := pack_text.TENSOR.fullmatch(said):
            one = pack_text._read_tensor(name, found)
            given.append(np.frombuffer(one.data or bytes(one.size), one.format).copy())
        else:
            given.append(int(said))
    name = re.findall(r"__global__ void (\w+)", source)[0]
    renamed = re.sub(rf"\b{name}\b", "k", source)
    ours, theirs = run_both(renamed, *given, grid=grid, block=block)
    return [one.tobytes() for one in ours], [one.tobytes() for one in theirs]


PUZZLES = read_examples("puzzles.md")


@pytest.mark.parametrize("number", range(20))
def test_a_puzzle_is_wrong_until_it_is_solved(number: int) -> None:
    puzzle, solution = PUZZLES[2 * number : 2 * number + 2]
    lines = iter(solution.split("\n"))
    solved = re.sub(r"\S[^\n]*// \?", lambda _: next(lines), puzzle)
    assert next(lines, None) is None and solved != puzzle
    ours, theirs = run_example(solved)
    if "expf" not in solved:  # which is the fast one here
        assert ours == theirs
    try:
        before, _ = run_example(puzzle)
    except Finding:
        return
    assert before != ours


@pytest.mark.parametrize("text", read_examples("playground.md"))
def test_examples_of_the_playground_are_right(text: str) -> None:
    ours, theirs = run_example(text)
    assert ours == theirs or "expf" in text


LEAVES = [
    "i",
    "u",
    "f",
    "d",
    "l",
    "c",
    "s",
    "b",
    "3",
    "7u",
    "2.5f",
    "0.25",
    "(i > 3)",
    "40000000000ll",
]
WHOLE = ["i", "u", "l", "c", "s", "b", "5", "9u", "(f < d)"]


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs, whole = st.tuples(inner, inner), st.sampled_from(WHOLE)
    binary, integer = (
        st.sampled_from(one.split()) for one in ("+ - * < >= == != && ||", "& | ^ % /")
    )
    unary = st.sampled_from(
        [
            "-",
            "!",
            "+",
            "(float)",
            "(unsigned)",
            "(long long)",
            "(double)",
            "(unsigned short)",
            "(char)",
        ]
    )
    return st.one_of(
        st.tuples(binary, pairs).map(lambda one: f"({one[1][0]} {one[0]} {one[1][1]})"),
        pairs.map(lambda one: f"({one[0]} / ({one[1]} + 0.6))"),
        st.tuples(inner, inner, inner).map(lambda one: f"({one[0]} ? {one[1]} : {one[2]})"),
        st.tuples(unary, whole).map("".join),
        st.tuples(integer, whole, whole).map(
            lambda one: f"({one[1]} {one[0]} (({one[2]} & 63) | 1))"),
        st.tuples(st.sampled_from(["<<", ">>"]), st.sampled_from(WHOLE[:3])).map(
            lambda one: f"({one[1]} {one[0]} (u & 7))"),
    )  # fmt: skip


EXPRESSIONS = st.recursive(st.sampled_from(LEAVES), grow, max_leaves=5)


@settings(max_examples=12)
@given(st.lists(EXPRESSIONS, min_size=20, max_size=20))
def test_expressions_are_computed_as_nvrtc_does(expressions: list[str]) -> None:
    lines = [f"out[t * {len(expressions)} + {k}] = {one};" for k, one in enumerate(expressions)]
    source = (
        """__global__ void k(const int* x, double* out) {
    int t = threadIdx.x, i = x[t];
    unsigned u = x[t + 32] + 100; float f = x[t] * 0.37f; double d = x[t + 32] * 1.1;
    long long l = (long long)x[t] * 1000; signed char c = x[t]; short s = x[t + 32];
    bool b = x[t] & 2;
    """
        + "\n".join(lines)
        + "\n}"
    )
    given = NUMBERS.integers(-50, 50, 64).astype(np.int32)
    (_, ours), (_, theirs) = run_both(source, given, np.zeros(32 * len(expressions)), block=32)
    for k, one in enumerate(expressions):
        mine, other = (found[k :: len(expressions)] for found in (ours, theirs))
        assert mine.tobytes() == other.tobytes(), (one, mine[:4], other[:4])


def test_a_fault_is_found_on_its_line() -> None:
    source = """__global__ void k(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];
}"""
    with pytest.raises(
        Finding, match=r"kernel\.cu:[34], .*with no barrier between|kernel\.cu:4, .*nobody"
    ):
        launch_kernel(load_kernel(compile_small(source)), np.zeros(64, np.float32), block=64)


REFUSED = [
    ("void k() {}", "line 1: there is no kernel"),
    ("__global__ void k(float4* x) {}", "line 1: "),
    ("int n;\n__global__ void k(int* x) {}", "line 1: n stands outside"),
    ("template<int N> __global__ void k(int* x) {}", "line 1: "),
    ("#define F(a) a\n__global__ void k(int* x) {}", "line 1: a macro with arguments"),
    ("#if 1\n__global__ void k(int* x) {}", "line 1: #if is not taken here"),
    ("__global__ void k(int* x) {\n  x[0] = y;\n}", "line 2: y is not declared"),
    ("__global__ void k(int* x) {\n\n  foo(x);\n}", "line 3: foo is no function that is"),
    ("__device__ int f(int a) { return f(a); }\n__global__ void k(int* x) { f(1); }",
     "line 1: f calls itself"),
]  # fmt: skip
WITHIN = {  # a kernel of `int* x` and `double* d`
    'printf("a");': "a text", "struct a b;": "", "if (x[0] }": "",
    "switch (x[0]) { case 1: ; }": "Switch is not taken here",
    "goto a; a: ;": "Goto is not taken here", "break;": "outside of a loop",
    "__shared__ int y[2] = {1, 2};": "y cannot begin with values",
    "int y[x[0]];": "a constant is wanted here", "int y[-1];": "-1 elements",
    "int y[1e400];": "inf elements", "x[0] = 09;": "Invalid octal constant",
    "__shared__ double y[40000];": "y has 320000 bytes, and shared memory 232448",
    "x[1.5f] = 0;": "f32 as an index",
    "x % 2;": "a pointer to s32 % s32", "3 = x[0];": "this cannot be assigned to",
    "__shared__ int y[2]; int* p = y; p = x;": "a pointer to global memory where one to shared",
    "d[0] = exp(d[0]);": "exp of a double; write expf", "return 1;": "a kernel returns nothing",
    "x[0] = __shfl_sync(~0u, 1, 2, x[1]);": "the width of a shuffle",
    "atomicAdd(d, 1.0);": "an atomic add of f64",
    "int* p; p[0] = 1;": "a pointer that points nowhere",
}  # fmt: skip
REFUSED += [
    (f"__global__ void k(int* x, double* d) {{ {body} }}", f"line 1: {says}")
    for body, says in WITHIN.items()
]


@pytest.mark.parametrize(("source", "says"), REFUSED)
def test_what_is_not_taken_is_refused_by_its_line(source: str, says: str) -> None:
    with pytest.raises(Unsupported) as raised:
        compile_small(source)
    assert str(raised.value).startswith(says) and "\n" not in str(raised.value)


WORDS = re.findall(r"\w+|[^\w\s]|\n", KERNELS["sums of rows"][0] + KERNELS["atomics"][0])


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, len(WORDS) - 1),
    st.lists(
        st.sampled_from([*WORDS, "1e400", "09", "-1", "1 << 40"]) | st.text(max_size=3), max_size=4
    ),
    st.integers(0, 5),
)
def test_any_text_becomes_ptx_or_a_line(at: int, words: list[str], left_out: int) -> None:
    try:
        ptx = compile_small(" ".join([*WORDS[:at], *words, *WORDS[at + left_out :]]))
    except Unsupported as error:
        assert re.match(r"line \d+: ", str(error)) and "\n" not in str(error)
    else:
        load_kernel(ptx)
