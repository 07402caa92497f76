"""Row softmax touches memory twice: a row that fits stays on chip, a longer one returns from L2.

Shapes  forward: x (..., N) -> y (..., N); backward: y, dy (..., N) -> dx (..., N), where
        dx = y * (dy - sum(y * dy)) by rows; float32, float16 or bfloat16, 1 <= N; any strides
Bytes   forward: x read once, y written once; backward: y and dy read once, dx written once
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are float32
Raises  ValueError if "one pass" is given more than MAX_N columns (backward, which holds two
        rows, MAX_N / 2); TypeError for other dtypes
Source  online-softmax
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton
import triton.language as tl

MAX_N = 32_768  # elements that a program holds: 32 for each of 1024 threads of 64 registers
LOADS = 4  # 16-byte loads that a thread of the online variant has in flight
LONG = ("online",)  # variants for rows that do not fit
NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; it is timed on a GPU"}
    }
}
LIMITS = {"*": {"spilled_bytes": 0}}


# --8<-- [start:kernel]
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E), and exp2 is one instruction


@triton.jit
def softmax_one_pass(y_ptr, x_ptr, m, n, x_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # int64: M * N may pass 2**31. Rows past the end repeat the last one and are not stored.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    source = tl.minimum(row, m - 1)
    col = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + source[:, None] * x_stride + col, mask=col < n, other=float("-inf"),
                eviction_policy="evict_first")
    top = tl.max(x, axis=1).to(tl.float32)
    total = tl.sum(tl.exp2((x.to(tl.float32) - top[:, None]) * LOG2E), axis=1)
    # total is positive, but the compiler cannot know: so it keeps x, which may be 16 bits wide,
    # and takes exp2 again, where it would have kept a float32 for each element.
    top = tl.where(total > 0, top, 0)
    scale = tl.div_rn(1.0, total)  # `/` would be off by two units in the last place
    y = tl.exp2((x.to(tl.float32) - top[:, None]) * LOG2E) * scale[:, None]
    tl.store(y_ptr + row[:, None] * n + col, y.to(y_ptr.dtype.element_ty),
             mask=(row < m)[:, None] & (col < n), eviction_policy="evict_first")


@triton.jit
def softmax_online(y_ptr, x_ptr, m, n, x_stride,
                   LOADS: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr):
    # A lane is a thread, WIDTH elements its 16-byte load, LOADS how many it has in flight.
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    col = (tl.arange(0, LOADS)[:, None, None] * LANES + tl.arange(0, LANES)[None, :, None]) * WIDTH
    col += tl.arange(0, WIDTH)[None, None, :]
    last = (n - 1) // CHUNK * CHUNK
    for index in tl.range(tl.program_id(0), m, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)  # M * N may pass 2**31
        # Each lane keeps a maximum and a sum of its own: none waits before the row ends.
        top = tl.full([LANES], float("-inf"), tl.float32)
        total = tl.zeros([LANES], tl.float32)
        for start in tl.range(0, n, CHUNK):
            here = start + col
            x = tl.load(x_ptr + row * x_stride + here, mask=here < n, other=float("-inf"),
                        eviction_policy="evict_last").to(tl.float32)
            higher = tl.maximum(top, tl.max(tl.max(x, axis=2), axis=0))
            # A lane that has met nothing but -inf subtracts 0: -inf - -inf would be NaN.
            shift = tl.where(higher == float("-inf"), 0, higher)
            weight = tl.exp2((x - shift[None, :, None]) * LOG2E)
            total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.sum(weight, axis=2), axis=0)
            top = higher
        row_top = tl.max(top, axis=0)
        scale = tl.div_rn(1.0, tl.sum(total * tl.exp2((top - row_top) * LOG2E), axis=0))
        # Backwards: what was read last is the likeliest to be in L2 still.
        for done in tl.range(0, n, CHUNK):
            here = last - done + col
            x = tl.load(x_ptr + row * x_stride + here, mask=here < n, other=float("-inf"),
                        eviction_policy="evict_first").to(tl.float32)
            y = tl.exp2((x - row_top) * LOG2E) * scale
            tl.store(y_ptr + row * n + here, y.to(y_ptr.dtype.element_ty), mask=here < n,
                     eviction_policy="evict_first")
# --8<-- [end:kernel]


@triton.jit
def softmax_backward_one_pass(dx_ptr, y_ptr, dy_ptr, m, n, y_stride, dy_stride,
                              ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    source = tl.minimum(row, m - 1)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    y = tl.load(y_ptr + source * y_stride + col, mask=col < n, other=0,
                eviction_policy="evict_first").to(tl.float32)
    dy = tl.load(dy_ptr + source * dy_stride + col, mask=col < n, other=0,
                 eviction_policy="evict_first").to(tl.float32)
    dot = tl.sum(y * dy, axis=1)
    dx = y * (dy - dot[:, None])
    tl.store(dx_ptr + row[:, None] * n + col, dx.to(dx_ptr.dtype.element_ty),
             mask=(row < m)[:, None] & (col < n), eviction_policy="evict_first")


@triton.jit
def softmax_backward_online(dx_ptr, y_ptr, dy_ptr, m, n, y_stride, dy_stride,
                            LOADS: tl.constexpr, LANES: tl.constexpr,
                            WIDTH: tl.constexpr):
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    col = (tl.arange(0, LOADS)[:, None, None] * LANES + tl.arange(0, LANES)[None, :, None]) * WIDTH
    col += tl.arange(0, WIDTH)[None, None, :]
    last = (n - 1) // CHUNK * CHUNK
    for index in tl.range(tl.program_id(0), m, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        y_row = y_ptr + row * y_stride
        dy_row = dy_ptr + row * dy_stride
        partial = tl.zeros([LANES], tl.float32)
        for start in tl.range(0, n, CHUNK):
            here = start + col
            y = tl.load(y_row + here, mask=here < n, other=0, eviction_policy="evict_last")
            dy = tl.load(dy_row + here, mask=here < n, other=0, eviction_policy="evict_last")
            product = y.to(tl.float32) * dy.to(tl.float32)
            partial += tl.sum(tl.sum(product, axis=2), axis=0)
        dot = tl.sum(partial, axis=0)
        for done in tl.range(0, n, CHUNK):
            here = last - done + col
            y = tl.load(y_row + here, mask=here < n, other=0, eviction_policy="evict_first")
            dy = tl.load(dy_row + here, mask=here < n, other=0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
            tl.store(dx_ptr + row * n + here, dx.to(dx_ptr.dtype.element_ty), mask=here < n,
                     eviction_policy="evict_first")


def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """View (..., N) as (M, N) whose columns are adjacent; copies where no such view exists."""
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"softmax: dtype {tensor.dtype} is none of float32, float16, bfloat16; convert first"
        )
    if tensor.ndim == 0:
        raise ValueError("softmax: a tensor of 0 dimensions has no row; it needs at least 1")
    n = tensor.shape[-1]
    rows = tensor.reshape(tensor.numel() // n if n else 0, n)
    # A column stride would turn each 16-byte load into eight scattered ones.
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


def one_pass(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Softmax ("forward", x) or its gradient ("backward", y, dy); a program holds whole rows."""
    sources = [rows_of(tensor) for tensor in tensors]
    m, n = sources[0].shape
    if n * len(sources) > MAX_N:
        limit = "MAX_N" if which == "forward" else "MAX_N / 2"
        raise ValueError(
            f"softmax: N = {n} exceeds {limit} = {MAX_N // len(sources)} ({which}); use online"
        )
    out = torch.empty((m, n), dtype=sources[0].dtype, device=sources[0].device)
    if out.numel():
        block = triton.next_power_of_2(n)
        held = block * sum(source.element_size() for source in sources)  # bytes of a row
        rows = max(1, min(8192 // held, 128))
        warps = max(4, min(rows * held // 2048, 32))  # 64 bytes a thread, or more at 32 warps
        kernel = softmax_one_pass if which == "forward" else softmax_backward_one_pass
        strides = [source.stride(0) for source in sources]
        kernel[(triton.cdiv(m, rows),)](
            out, *sources, m, n, *strides, ROWS=rows, BLOCK=block, num_warps=warps
        )
    return out.view(tensors[0].shape)


def sms_and_cache(device: torch.device) -> tuple[int, int]:
    """Streaming multiprocessors and bytes of L2 of a device."""
    if device.type != "cuda":
        return 2, 50 * 2**20  # so few that also small cases have programs with several rows
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.L2_cache_size


def online(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Softmax ("forward", x) or its gradient ("backward", y, dy) of rows of any length."""
    sources = [rows_of(tensor) for tensor in tensors]
    m, n = sources[0].shape
    out = torch.empty((m, n), dtype=sources[0].dtype, device=sources[0].device)
    if out.numel():
        width = 16 // out.element_size()
        row_bytes = n * sum(source.element_size() for source in sources)
        block = triton.next_power_of_2(n)
        most = LOADS // len(sources)
        warps = max(1, min(block // (width * 32 * most), 16 if row_bytes <= 131_072 else 32))
        loads = max(1, min(block // (width * 32 * warps), most))
        # As many rows in flight as L2 holds for the second reading, and one an SM at least.
        sms, cache = sms_and_cache(out.device)
        programs = sms * max(1, min(64 // warps, cache // (sms * row_bytes)))
        kernel = softmax_online if which == "forward" else softmax_backward_online
        strides = [source.stride(0) for source in sources]
        kernel[(min(m, programs),)](
            out, *sources, m, n, *strides,
            LOADS=loads, LANES=32 * warps, WIDTH=width, num_warps=warps,
        )
    return out.view(tensors[0].shape)


VARIANTS = {"one pass": one_pass, "online": online}


def library(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's own kernels."""
    if which == "forward":
        return torch.softmax(tensors[0], -1)
    y, dy = tensors
    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


@functools.cache
def compiler() -> Callable[..., torch.Tensor]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False, fullgraph=True)


def compiled(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """The same by the kernels that torch.compile writes."""
    return compiler()(which, *tensors)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """The truth, in float64."""
    if which == "forward":
        return torch.softmax(tensors[0].double(), -1)
    y, dy = (tensor.double() for tensor in tensors)
    return y * (dy - (y * dy).sum(-1, keepdim=True))


def case(m: int, n: int, dtype: str = "float32", **more: object) -> dict:
    """One row of CASES or TIMED; `variants` names ours that apply, where not all do."""
    row = {"pass": "forward", "m": m, "n": n, "dtype": dtype, **more}
    held = n if row["pass"] == "forward" else 2 * n
    return row if held <= MAX_N else {**row, "variants": list(LONG)}


BACK = {"pass": "backward"}
CASES = (
    case(1, 1),
    case(0, 5),
    case(3, 0),
    case(67, 17),  # neither rows nor columns fill a program's tile
    case(5, 127, "float16"),
    case(37, 781),  # no side a power of two
    case(3, 1023, "bfloat16"),
    case(3, 1025, scale=1e4),  # exp overflows without the maximum
    case(5, 781, shift=-200),  # far below 0: a masked column must not count as a logit near 0
    case(2, 20001, "float16", layout="masked"),  # chunks of nothing but -inf before a logit
    case(2, 20000, layout="rising"),  # the maximum grows in every chunk
    case(7, 1024, layout="strided"),  # the row stride is more than n
    case(5, 640, layout="transposed"),
    case(4, 512, "float16", layout="offset"),  # the base is one element off 16 bytes
    case(5, 65537),  # more rows than programs, each of several chunks, one past a power of two
    case(1, 262144, "float16", scale=6),
    case(2, 262144, "bfloat16"),
    case(1, 2, **BACK),
    case(0, 5, **BACK),
    case(67, 17, **BACK),
    case(37, 781, "float16", **BACK),
    case(3, 1025, "bfloat16", **BACK),
    case(2, 127, "float16", shift=300, **BACK),  # dy - sum(y * dy) cancels
    case(7, 1024, layout="strided", **BACK),
    case(5, 640, layout="transposed", **BACK),
    case(3, 4097, layout="offset", **BACK),
    case(5, 65537, **BACK),
)
TIMED = (
    *(case(2**27 // n, n, "bfloat16") for n in (256, 1024, 4096, 16384, 32768, 65536)),
    *(case(2**27 // n, n, "bfloat16") for n in (131072, 262144)),
    *(case(2**26 // n, n) for n in (4096, 32768, 131072)),
    case(2**15, 4096, "float16"),
    *(case(2**26 // n, n, "bfloat16", **BACK) for n in (4096, 32768)),
)


def logits(case: dict, device: str, generator: torch.Generator) -> torch.Tensor:
    """Random (m, n) of the case's dtype, scale and layout."""
    m, n, layout = case["m"], case["n"], case.get("layout", "rows")
    dtype = getattr(torch, case["dtype"])
    shape = {"strided": (m, n + 112), "transposed": (n, m), "offset": (m * n + 1,)}
    x = torch.randn(shape.get(layout, (m, n)), generator=generator, device=device, dtype=dtype)
    x = x * case.get("scale", 1) + case.get("shift", 0)
    if layout == "strided":
        return x[:, 48 : 48 + n]
    if layout == "transposed":
        return x.t()
    if layout == "offset":
        return x[1:].view(m, n)
    if layout == "masked":
        x[:, : n - 3] = float("-inf")
    elif layout == "rising":
        x += torch.arange(n, device=device) / 100
    return x


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", x), or ("backward", y, dy) with y a softmax and dy of the same layout."""
    x = logits(case, device, generator)
    if case["pass"] == "forward":
        return "forward", x
    dy = logits(case, device, generator)
    y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
    if case.get("layout") == "offset":
        y = torch.empty(x.numel() + 1, dtype=x.dtype, device=device)[1:].view(x.shape)
    return "backward", y.copy_(torch.softmax(x.float(), -1)), dy


def cost(case: dict) -> dict:
    """Bytes of each tensor once. FLOPs by element: 5 forward (maximum, subtract, exp, sum,
    scale) and 4 backward (multiply, sum, subtract, multiply)."""
    elements = case["m"] * case["n"]
    tensors, flops = (2, 5) if case["pass"] == "forward" else (3, 4)
    size = getattr(torch, case["dtype"]).itemsize
    return {"bytes": tensors * size * elements, "flops": flops * elements, "unit": "fp32"}


def demo() -> None:
    """Softmax of small rows and of logits at which exp alone overflows."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1e4, 1e4 - 1, 0.0, float("-inf")]], device=device)
    for name, softmax in VARIANTS.items():
        print(name)
        for row in softmax("forward", x).tolist():
            print("  " + " ".join(f"{value:.4f}" for value in row) + f"  sum {sum(row):.4f}")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4097, generator=generator).to(device) * 10
    truth = torch.softmax(x.double(), -1)
    for name, softmax in VARIANTS.items():
        y = softmax("forward", x).double()
        close = bool((y - truth).norm() <= 5e-6 * truth.norm())
        print(f"{name}: 64 rows of 4097 within 5e-6 of float64: {close}")
    try:
        one_pass("forward", torch.empty(1, 70_000, device=device))
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    demo()
