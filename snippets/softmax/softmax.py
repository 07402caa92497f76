"""Row softmax touches memory twice: rows that fit stay on chip, others return from L2.

Shapes  forward: x (..., N) -> y (..., N); backward: y, dy (..., N) -> dx (..., N),
        where dx = y * (dy - sum(y * dy)) by rows; float32, float16 or bfloat16,
        1 <= N; any strides
Bytes   forward: x read once, y written once; backward: y and dy read once, dx
        written once
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are float32
Raises  ValueError if "one pass" is given more than MAX_N columns (backward, which
        holds two rows, MAX_N / 2); TypeError for other dtypes
Source  online-softmax
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

MAX_N = 32_768  # elements a program holds: 32 for each of 1024 threads of 64 registers
LOADS = 4  # 16-byte loads that a thread of the online variant has in flight


# --8<-- [start:kernel]
# --8<-- [start:one-pass]
# exp(t) = exp2(t * LOG2E), and exp2 is one instruction.
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_one_pass(y_ptr, x_ptr, m, n, x_stride,
                     ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # int64: M * N may pass 2**31. Rows past the end repeat the last, and are dropped.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    source = tl.minimum(row, m - 1)
    col = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + source[:, None] * x_stride + col,
                mask=col < n, other=float("-inf"), eviction_policy="evict_first")
    # --8<-- [start:digits]
    top = tl.max(x, axis=1).to(tl.float32)
    total = tl.sum(tl.exp2((x.to(tl.float32) - top[:, None]) * LOG2E), axis=1)
    # total is positive, but the compiler cannot know: so it keeps x, which may be
    # 16 bits wide, and takes exp2 again; else it would keep a float32 an element.
    top = tl.where(total > 0, top, 0)
    scale = tl.div_rn(1.0, total)  # `/` would be off by two units in the last place
    y = tl.exp2((x.to(tl.float32) - top[:, None]) * LOG2E) * scale[:, None]
    # --8<-- [end:digits]
    tl.store(y_ptr + row[:, None] * n + col, y.to(y_ptr.dtype.element_ty),
             mask=(row < m)[:, None] & (col < n), eviction_policy="evict_first")
# --8<-- [end:one-pass]


# --8<-- [start:online]
@triton.jit
def softmax_online(y_ptr, x_ptr, m, n, x_stride,
                   LOADS: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr):
    # A lane is a thread, WIDTH elements its 16-byte load, LOADS how many are in flight.
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    load = tl.arange(0, LOADS)[:, None, None]
    lane = tl.arange(0, LANES)[None, :, None]
    col = (load * LANES + lane) * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    last = (n - 1) // CHUNK * CHUNK
    for index in tl.range(tl.program_id(0), m, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)  # M * N may pass 2**31
        # Each lane has a maximum and a sum of its own: none waits before the row ends.
        top = tl.full([LANES], float("-inf"), tl.float32)
        total = tl.zeros([LANES], tl.float32)
        for start in tl.range(0, n, CHUNK):
            here = start + col
            x = tl.load(x_ptr + row * x_stride + here,
                        mask=here < n, other=float("-inf"),
                        eviction_policy="evict_last").to(tl.float32)
            higher = tl.maximum(top, tl.max(tl.max(x, axis=2), axis=0))
            # A lane that has met only -inf subtracts 0: -inf - -inf would be NaN.
            shift = tl.where(higher == float("-inf"), 0, higher)
            weight = tl.exp2((x - shift[None, :, None]) * LOG2E)
            total = total * tl.exp2((top - shift) * LOG2E)
            total += tl.sum(tl.sum(weight, axis=2), axis=0)
            top = higher
        row_top = tl.max(top, axis=0)
        scale = tl.div_rn(1.0, tl.sum(total * tl.exp2((top - row_top) * LOG2E), axis=0))
        # Backwards: what was read last is the likeliest to be in L2 still.
        for done in tl.range(0, n, CHUNK):
            here = last - done + col
            x = tl.load(x_ptr + row * x_stride + here,
                        mask=here < n, other=float("-inf"),
                        eviction_policy="evict_first").to(tl.float32)
            y = tl.exp2((x - row_top) * LOG2E) * scale
            tl.store(y_ptr + row * n + here, y.to(y_ptr.dtype.element_ty),
                     mask=here < n, eviction_policy="evict_first")
# --8<-- [end:online]
# --8<-- [end:kernel]


# --8<-- [start:backward]
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
# --8<-- [end:backward]


# --8<-- [start:backward-online]
@triton.jit
def softmax_backward_online(dx_ptr, y_ptr, dy_ptr, m, n, y_stride, dy_stride,
                            LOADS: tl.constexpr, LANES: tl.constexpr,
                            WIDTH: tl.constexpr):
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    load = tl.arange(0, LOADS)[:, None, None]
    lane = tl.arange(0, LANES)[None, :, None]
    col = (load * LANES + lane) * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    last = (n - 1) // CHUNK * CHUNK
    for index in tl.range(tl.program_id(0), m, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        y_row = y_ptr + row * y_stride
        dy_row = dy_ptr + row * dy_stride
        partial = tl.zeros([LANES], tl.float32)
        for start in tl.range(0, n, CHUNK):
            here = start + col
            y = tl.load(y_row + here, mask=here < n, other=0,
                        eviction_policy="evict_last")
            dy = tl.load(dy_row + here, mask=here < n, other=0,
                         eviction_policy="evict_last")
            product = y.to(tl.float32) * dy.to(tl.float32)
            partial += tl.sum(tl.sum(product, axis=2), axis=0)
        dot = tl.sum(partial, axis=0)
        for done in tl.range(0, n, CHUNK):
            here = last - done + col
            y = tl.load(y_row + here, mask=here < n, other=0,
                        eviction_policy="evict_first")
            dy = tl.load(dy_row + here, mask=here < n, other=0,
                         eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
            tl.store(dx_ptr + row * n + here, dx.to(dx_ptr.dtype.element_ty),
                     mask=here < n, eviction_policy="evict_first")
# --8<-- [end:backward-online]


def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """View (..., N) as (M, N) with adjacent columns; a copy where there is none."""
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"softmax: dtype {tensor.dtype} is none of float32, float16, bfloat16; "
            "convert first"
        )
    if tensor.ndim == 0:
        raise ValueError("softmax: a tensor of 0 dimensions has no row; give it one")
    n = tensor.shape[-1]
    rows = tensor.reshape(tensor.numel() // n if n else 0, n)
    # A column stride would turn each 16-byte load into eight scattered ones.
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


def one_pass(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Softmax ("forward", x) or its gradient ("backward", y, dy) of rows held whole."""
    sources = [rows_of(tensor) for tensor in tensors]
    m, n = sources[0].shape
    if n * len(sources) > MAX_N:
        limit = "MAX_N" if which == "forward" else "MAX_N / 2"
        raise ValueError(
            f"softmax: N = {n} exceeds {limit} = {MAX_N // len(sources)} ({which}); "
            "use online"
        )
    out = torch.empty((m, n), dtype=sources[0].dtype, device=sources[0].device)
    if out.numel():
        block = triton.next_power_of_2(n)
        held = block * sum(each.element_size() for each in sources)  # bytes of a row
        rows = max(1, min(8192 // held, 128))
        # 64 bytes a thread, or more at 32 warps.
        warps = max(4, min(rows * held // 2048, 32))
        kernel = softmax_one_pass if which == "forward" else softmax_backward_one_pass
        strides = [source.stride(0) for source in sources]
        # Fused, a lane would add its product unrounded to a neighbour's rounded
        # one, and lanes that hold the same sum would differ in its last bit.
        with torch.cuda.device_of(out):
            kernel[(triton.cdiv(m, rows),)](
                out, *sources, m, n, *strides, ROWS=rows, BLOCK=block, num_warps=warps,
                enable_fp_fusion=False,
            )  # fmt: skip
    return out.view(tensors[0].shape)


def sms_and_cache(device: torch.device) -> tuple[int, int]:
    """Streaming multiprocessors and bytes of L2 of a device."""
    if device.type != "cuda":
        return 2, 50 * 2**20  # so few that programs of small cases take several rows
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.L2_cache_size


def online(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Softmax ("forward", x) or its gradient ("backward", y, dy) of any rows."""
    sources = [rows_of(tensor) for tensor in tensors]
    m, n = sources[0].shape
    out = torch.empty((m, n), dtype=sources[0].dtype, device=sources[0].device)
    if out.numel():
        width = 16 // out.element_size()
        row_bytes = n * sum(source.element_size() for source in sources)
        block = triton.next_power_of_2(n)
        most = LOADS // len(sources)
        widest = 16 if row_bytes <= 131_072 else 32
        warps = max(1, min(block // (width * 32 * most), widest))
        loads = max(1, min(block // (width * 32 * warps), most))
        # As many rows in flight as L2 holds for the second reading; one an SM at least.
        sms, cache = sms_and_cache(out.device)
        programs = sms * max(1, min(64 // warps, cache // (sms * row_bytes)))
        kernel = softmax_online if which == "forward" else softmax_backward_online
        strides = [source.stride(0) for source in sources]
        # Fused, a lane would add its product unrounded to a neighbour's rounded
        # one, and lanes that hold the same sum would differ in its last bit.
        with torch.cuda.device_of(out):
            kernel[(min(m, programs),)](
                out, *sources, m, n, *strides,
                LOADS=loads, LANES=32 * warps, WIDTH=width, num_warps=warps,
                enable_fp_fusion=False,
            )  # fmt: skip
    return out.view(tensors[0].shape)


def demo(device: str) -> None:
    """Softmax of small rows and of logits at which exp alone overflows."""
    kernels = {"one pass": one_pass, "online": online}
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1e4, 1e4 - 1, 0.0, float("-inf")]])
    x = x.to(device)
    for name, softmax in kernels.items():
        print(name)
        for row in softmax("forward", x).tolist():
            values = " ".join(f"{value:.4f}" for value in row)
            print(f"  {values}  sum {sum(row):.4f}")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4097, generator=generator).to(device) * 10
    truth = torch.softmax(x.double(), -1)
    for name, softmax in kernels.items():
        y = softmax("forward", x).double()
        close = bool((y - truth).norm() <= 5e-6 * truth.norm())
        print(f"{name}: 64 rows of 4097 within 5e-6 of float64: {close}")
    try:
        one_pass("forward", torch.empty(1, 70_000, device=device))
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
