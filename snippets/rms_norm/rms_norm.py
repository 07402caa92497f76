"""RMSNorm reads a row once if a block can hold it, and twice if not.

Shapes  forward: x (..., N), weight (N,) or None, residual as x or None -> y as x, of
        its dtype, rstd (M,) float32 and, with a residual, total = x + residual, of the
        residual's dtype, which is what is normalised:
        rstd = 1 / sqrt(mean(x * x) + eps) and y = x * rstd * weight by rows.
        backward: dy as y -> dx as x and dweight (N,) of the weight's dtype:
        dx = rstd * (g - x * rstd**2 * mean(g * x)) with g = dy * weight, and
        dweight = sum(dy * x * rstd) over rows. Each tensor is float32, float16 or
        bfloat16, and has any strides; M rows in all
Bytes   forward: x (and the residual) read once, y (and total) written once; backward:
        x and dy read once, dx written once. A weight is small beside them
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are
        float32. The same inputs give the same bits on the same GPU
Raises  ValueError if "one pass" is given rows of more bytes than MAX_BYTES, or shapes
        that do not fit; TypeError for other dtypes, or tensors on several devices
Source  rms-norm, liger-kernel, quack-membound
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.language.extra import libdevice

# Bytes of a row of x that a program holds: 64 for each of 1024 threads of 64 registers.
# Backwards half of that, since dy and the sums of dweight are there too.
MAX_BYTES = {"forward": 65_536, "backward": 32_768}
LOADS = 4  # 16-byte loads that a thread of "two reads" has in flight


# --8<-- [start:forward]
@triton.jit
def rms_norm_one_pass(y_ptr, rstd_ptr, x_ptr, w_ptr, m, n, x_stride, eps,
                      ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # int64: M * N may pass 2**31. Rows past the end repeat the last, and are dropped.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    source = tl.minimum(row, m - 1)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    here = (row < m)[:, None] & (col < n)
    x = tl.load(x_ptr + source * x_stride + col, mask=col < n, other=0.0,
                eviction_policy="evict_first")
    if w_ptr is not None:  # asked for now, so that it comes while the row is summed
        w = tl.load(w_ptr + col, mask=col < n, other=0.0, eviction_policy="evict_last")
    x = x.to(tl.float32)
    # As x * x it would be fused with the addition of a neighbour lane, a * a + b * b,
    # one product rounded and the other not: lanes would differ in the sum of a row.
    rstd = tl.rsqrt(tl.sum(libdevice.mul_rn(x, x), axis=1) / n + eps)
    tl.store(rstd_ptr + row, rstd, mask=row < m)
    y = x * rstd[:, None]
    if w_ptr is not None:
        y = y * w.to(tl.float32)
    tl.store(y_ptr + row[:, None] * n + col, y.to(y_ptr.dtype.element_ty), mask=here,
             eviction_policy="evict_first")
# --8<-- [end:forward]


# --8<-- [start:residual]
@triton.jit
def add_rms_norm_one_pass(y_ptr, total_ptr, rstd_ptr, x_ptr, r_ptr, w_ptr, m, n,
                          x_stride, r_stride, eps,
                          ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # int64: M * N may pass 2**31. Rows past the end repeat the last, and are dropped.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    source = tl.minimum(row, m - 1)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    here = (row < m)[:, None] & (col < n)
    x = tl.load(x_ptr + source * x_stride + col, mask=col < n, other=0.0,
                eviction_policy="evict_first")
    if w_ptr is not None:  # asked for now, so that it comes while the row is summed
        w = tl.load(w_ptr + col, mask=col < n, other=0.0, eviction_policy="evict_last")
    r = tl.load(r_ptr + source * r_stride + col, mask=col < n, other=0.0,
                eviction_policy="evict_first")
    # Rounded before it is squared: backward has nothing but the rounded sum.
    x = (x.to(tl.float32) + r.to(tl.float32)).to(total_ptr.dtype.element_ty)
    tl.store(total_ptr + row[:, None] * n + col, x, mask=here,
             eviction_policy="evict_first")
    x = x.to(tl.float32)
    # As x * x it would be fused with the addition of a neighbour lane, a * a + b * b,
    # one product rounded and the other not: lanes would differ in the sum of a row.
    rstd = tl.rsqrt(tl.sum(libdevice.mul_rn(x, x), axis=1) / n + eps)
    tl.store(rstd_ptr + row, rstd, mask=row < m)
    y = x * rstd[:, None]
    if w_ptr is not None:
        y = y * w.to(tl.float32)
    tl.store(y_ptr + row[:, None] * n + col, y.to(y_ptr.dtype.element_ty), mask=here,
             eviction_policy="evict_first")
# --8<-- [end:residual]


@triton.jit
def chunk(LOADS: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr):
    """Columns of a chunk: a lane is a thread, WIDTH elements its 16-byte load."""
    load = tl.arange(0, LOADS)[:, None, None]
    lane = tl.arange(0, LANES)[None, :, None]
    return (load * LANES + lane) * WIDTH + tl.arange(0, WIDTH)[None, None, :]


# --8<-- [start:long]
@triton.jit
def rms_norm_two_reads(y_ptr, total_ptr, rstd_ptr, x_ptr, r_ptr, w_ptr, m, n,
                       x_stride, r_stride, eps, LOADS: tl.constexpr,
                       LANES: tl.constexpr, WIDTH: tl.constexpr):
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    col = chunk(LOADS, LANES, WIDTH)
    last = (n - 1) // CHUNK * CHUNK
    for index in tl.range(tl.program_id(0), m, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        squares = tl.zeros([LANES], tl.float32)  # of each lane: no chunk waits for it
        for start in tl.range(0, n, CHUNK):
            here = start + col
            x = tl.load(x_ptr + row * x_stride + here, mask=here < n, other=0.0,
                        eviction_policy="evict_last")
            if r_ptr is not None:
                r = tl.load(r_ptr + row * r_stride + here, mask=here < n, other=0.0,
                            eviction_policy="evict_first")
                x = (x.to(tl.float32) + r.to(tl.float32)).to(
                    total_ptr.dtype.element_ty)
                tl.store(total_ptr + row * n + here, x, mask=here < n)
            x = x.to(tl.float32)
            squares += tl.sum(tl.sum(x * x, axis=2), axis=0)
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n + eps)
        tl.store(rstd_ptr + row, rstd)
        # Backwards: what was read last is the likeliest to be in L2 still.
        again_ptr = x_ptr + row * x_stride
        if r_ptr is not None:
            again_ptr = total_ptr + row * n
            tl.debug_barrier()  # what the block's other threads wrote is there
        for done in tl.range(0, n, CHUNK):
            here = last - done + col
            x = tl.load(again_ptr + here, mask=here < n, other=0.0,
                        eviction_policy="evict_first")
            y = x.to(tl.float32) * rstd
            if w_ptr is not None:
                w = tl.load(w_ptr + here, mask=here < n, other=0.0,
                            eviction_policy="evict_last")
                y = y * w.to(tl.float32)
            tl.store(y_ptr + row * n + here, y.to(y_ptr.dtype.element_ty),
                     mask=here < n, eviction_policy="evict_first")
# --8<-- [end:long]


def rows_of(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """View (..., N) as (M, N) with adjacent columns; a copy where there is none."""
    if tensor is None:
        return None
    n = tensor.shape[-1]
    rows = tensor.reshape(tensor.numel() // n if n else tensor.shape[:-1].numel(), n)
    # A column stride would turn each 16-byte load into eight scattered ones.
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


def row_stride(rows: torch.Tensor | None) -> int:
    return 0 if rows is None else rows.stride(0)


def sms_and_cache(device: torch.device) -> tuple[int, int]:
    """Streaming multiprocessors and bytes of L2 of a device."""
    if device.type != "cuda":
        return 2, 50 * 2**20  # so few that programs of small cases take several rows
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.L2_cache_size


# --8<-- [start:launch]
def tile(n: int, size: int, thread_bytes: int) -> tuple[int, int, int]:
    """Columns, rows and warps of a block that holds rows of n elements of x."""
    block = triton.next_power_of_2(n)
    held = block * size
    rows = max(1, min(8192 // held, 128))
    return block, rows, max(4, min(rows * held // (32 * thread_bytes), 32))


def lanes(n: int, size: int, most: int, widest: int) -> tuple[int, int, int]:
    """LOADS, LANES and WIDTH of a block that passes over a row in chunks."""
    width = 16 // size
    block = triton.next_power_of_2(n)
    warps = max(1, min(block // (width * 32 * most), widest))
    return max(1, min(block // (width * 32 * warps), most)), 32 * warps, width


def chosen(which: str, variant: str | None, x: torch.Tensor) -> str:
    """The variant to use, one pass unless told otherwise or rows are too long."""
    held, most = x.shape[-1] * x.element_size(), MAX_BYTES[which]
    if variant is None:
        return "one pass" if held <= most else "two reads"
    if variant == "one pass" and held > most:
        raise ValueError(
            f"rms_norm: rows of {held} bytes exceed MAX_BYTES = {most} ({which}); use "
            "two reads"
        )
    return variant


def forward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    residual: torch.Tensor | None = None,
    variant: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """y, total (None without a residual) and rstd."""
    check(x, weight, eps, {"residual": residual})
    variant = chosen("forward", variant, x)
    rows, added = rows_of(x), rows_of(residual)
    m, n = rows.shape
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    total = None if added is None else torch.empty_like(y, dtype=added.dtype)
    rstd = torch.empty(m, dtype=torch.float32, device=x.device)
    weight = None if weight is None else weight.contiguous()
    tensors = (y, total, rstd, rows, added, weight)
    strides = (row_stride(rows), row_stride(added))
    if n == 0:
        rstd.fill_(eps**-0.5 if eps else float("inf"))  # nothing sums to 0
    elif m and variant == "one pass":
        block, many, warps = tile(n, x.element_size(), 64)
        grid, told = (triton.cdiv(m, many),), {"ROWS": many, "BLOCK": block}
        with torch.cuda.device_of(x):
            if added is None:
                rms_norm_one_pass[grid](
                    y, rstd, rows, weight, m, n, strides[0], eps,
                    **told, num_warps=warps,
                )  # fmt: skip
            else:
                add_rms_norm_one_pass[grid](
                    *tensors, m, n, *strides, eps, **told, num_warps=warps
                )
    elif m:
        row_bytes = n * x.element_size()
        loads, threads, width = lanes(
            n, x.element_size(), LOADS, 16 if row_bytes <= 131_072 else 32
        )
        # As many rows in flight as L2 holds for the second reading; one an SM at least.
        sms, cache = sms_and_cache(x.device)
        most = max(1, min(2048 // threads, cache // (sms * row_bytes)))
        with torch.cuda.device_of(x):
            # Fused, a lane would add its product unrounded to a neighbour's rounded
            # one, and lanes that hold the same sum would differ in its last bit.
            rms_norm_two_reads[(min(m, sms * most),)](
                *tensors, m, n, *strides, eps,
                LOADS=loads, LANES=threads, WIDTH=width, num_warps=threads // 32,
                enable_fp_fusion=False,
            )  # fmt: skip
    return y.view(x.shape), None if total is None else total.view(x.shape), rstd
# --8<-- [end:launch]


def check(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    alike: dict[str, torch.Tensor | None],
) -> None:
    """See that x can be normalised, and that what is `alike` has its shape.

    Raises:
        TypeError: a dtype is none of the three, or a tensor is on another device.
        ValueError: a shape does not fit, or eps is negative.
    """
    if x.ndim == 0:
        raise ValueError("rms_norm: x has 0 dimensions and so no row; give it one")
    due = {"x": x.shape, "weight": x.shape[-1:], **dict.fromkeys(alike, x.shape)}
    for name, tensor in {"x": x, "weight": weight, **alike}.items():
        if tensor is None:
            continue
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"rms_norm: {name} is {tensor.dtype}, none of float32, float16, "
                "bfloat16; convert it first"
            )
        if tensor.device != x.device or x.device.type == "meta":
            raise TypeError(
                f"rms_norm: {name} is on {tensor.device}; bring all to one GPU"
            )
        if tensor.shape != due[name]:
            raise ValueError(
                f"rms_norm: {name} is {tuple(tensor.shape)}; with x "
                f"{tuple(x.shape)} it must be {tuple(due[name])}"
            )
    if not 0 <= eps < float("inf"):
        raise ValueError(f"rms_norm: eps = {eps} is not from 0 up; give it 1e-6")


def demo(device: str) -> None:
    """A row by hand, the gradient against float64, and a residual in one launch."""
    from snippets.rms_norm import gradients  # which imports this file

    x = torch.tensor([[3.0, 4.0], [3e4, 4e4], [0.0, 0.0]], device=device)
    for variant in ("one pass", "two reads"):
        y, _, rstd = forward(x, None, 1e-6, variant=variant)
        print(variant)
        for row, scale in zip(y.tolist(), rstd.tolist(), strict=True):
            print(f"  {row[0]:.4f} {row[1]:.4f}  rstd {scale:.4g}")
    generator = torch.Generator().manual_seed(0)
    x, r, dy = (torch.randn(64, 1000, generator=generator) for _ in range(3))
    w = torch.randn(1000, generator=generator)
    given = [each.to(device).requires_grad_() for each in (x, r, w)]
    y, total = gradients.add_rms_norm(*given)
    found = torch.autograd.grad(y, given, dy.to(device))
    exact = [each.double().requires_grad_() for each in (x, r, w)]
    s = exact[0] + exact[1]
    truth = s * torch.rsqrt(s.square().mean(-1, keepdim=True) + 1e-6) * exact[2]
    due = torch.autograd.grad(truth, exact, dy.double())
    names = ("y", "dx", "dresidual", "dweight")
    for name, got, want in zip(names, (y, *found), (truth, *due), strict=True):
        close = bool((got.cpu().double() - want).norm() <= 5e-6 * want.norm())
        print(f"{name}: within 5e-6 of float64: {close}")
    try:
        forward(torch.empty(1, 20_000, device=device), None, 1e-6, variant="one pass")
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
