"""Triton kernels, each for one thing that the front end has to get right."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + tl.load(y_ptr + at, mask=inside), mask=inside)


@triton.jit
def unmasked(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)  # the finding must name this line
    tl.store(out_ptr + at, x, mask=at < n)


@triton.jit
def reduce_rows(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    tl.store(out_ptr + row * 3, tl.sum(x, 0))
    tl.store(out_ptr + row * 3 + 1, tl.max(x, 0))
    tl.store(out_ptr + row * 3 + 2, tl.argmin(x, 0).to(x.dtype))


@triton.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * n + at, e / tl.sum(e, 0), mask=at < n)


@triton.jit
def dot(a_ptr, b_ptr, c_ptr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a = tl.load(a_ptr + m * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n)
    tl.store(c_ptr + m * N + n, tl.dot(a, b, input_precision=PRECISION))


@triton.jit
def count(x_ptr, bins_ptr, top_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(bins_ptr + x, 1, mask=at < n)
    tl.atomic_max(top_ptr, tl.max(x, 0))


@triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((32, 1), (256, 4))],
    key=["n"],
    restore_value=["x_ptr"],
)
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def guessed(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at + BLOCK, mask=at < n)


@triton.jit
def assembled(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, 0, 0x3c;", "=r,r,r", [x, at], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(out_ptr + at, y)


@triton.jit
def library(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, libdevice.tanh(x))
    tl.store(out_ptr + N + at, libdevice.pow(tl.abs(x), 1.5))
    tl.store(out_ptr + 2 * N + at, libdevice.erf(x))


@triton.jit
def scan(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.cumsum(x, 0))
    tl.store(out_ptr + N + at, tl.cumprod(x % 3 + 1, 0))
    tl.store(out_ptr + 2 * N + at, tl.sort(x))


@triton.jit
def asserting(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.device_assert(x < 5, "x is below five")
    tl.store(x_ptr + tl.arange(0, N), x)


@triton.jit
def tuples(pair, more, SCALE: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    out, missing = more
    y_ptr, step = out
    x = tl.load(pair[0] + at) * SCALE + step
    if missing is None:
        x += pair[1]
    tl.store(y_ptr + at, x)


@triton.jit
def whole_grid(out_ptr, wide, small):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out_ptr + at, (x + 10 * y + 100 * z) * wide + small)


@triton.jit
def doubles(x_ptr, out_ptr, factor: tl.float64, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.sqrt(x) * factor + x / 3.0)


@triton.jit
def bytes_(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x * x - (x >> 1))


@triton.jit
def strided(x_ptr, out_ptr, step, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at * step))


@triton.jit
def scalars(out_ptr, half: tl.float16, brain: tl.bfloat16, single, flag, negative):
    tl.store(out_ptr, half)
    tl.store(out_ptr + 1, brain)
    tl.store(out_ptr + 2, single)
    tl.store(out_ptr + 3, tl.where(flag, 1.0, 2.0))
    tl.store(out_ptr + 4, negative)


@triton.jit
def indirect(addresses_ptr, out_ptr, N: tl.constexpr):
    for k in range(2):
        x_ptr = tl.load(addresses_ptr + k).to(tl.pointer_type(tl.int32))
        at = tl.arange(0, N)
        tl.store(out_ptr + k * N + at, tl.load(x_ptr + at))


@triton.jit
def described(desc, y_ptr, N: tl.constexpr):
    made = tl.make_tensor_descriptor(y_ptr, [N, N], [N, 1], [N // 2, N // 2])
    for part in tl.static_range(2):
        made.store([N // 2 * part, 0], desc.load([0, N // 2 * part]).T)


@triton.jit
def met(arrived_ptr, out_ptr):
    tl.atomic_add(arrived_ptr, 1, sem="release")
    while tl.atomic_add(arrived_ptr, 0, sem="acquire") < tl.num_programs(0):
        pass
    tl.store(out_ptr + tl.program_id(0), tl.load(arrived_ptr))


@triton.jit
def waiting(x_ptr, N: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    at = tl.arange(0, N)
    tl.store(x_ptr + at, at * 2)
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def printing(x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.device_print("x is", tl.load(x_ptr + at))


@triton.jit
def doubled_in_place(x_ptr, sum_ptr, N: tl.constexpr, SUM: tl.constexpr):
    at = tl.arange(0, N)  # fewer than there are threads: each warp loads all
    x = tl.load(x_ptr + at)
    tl.store(x_ptr + at, 2 * x)
    if SUM:
        tl.store(sum_ptr + tl.arange(0, 128) % 128, tl.sum(x) + tl.zeros([128], tl.float32))
