"""The cast to e4m3, with a scale for a tensor, for 128 of a row or for a block.

Shapes  x (M, K) bfloat16, float16 or float32, any strides -> q (M, K) e4m3, contiguous,
        and float32 scales: (), (M, K/128) or (M/128, K/128), rounded up
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

E4M3 = torch.float8_e4m3fn
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SHARES = ("tensor", "row", "block")
FIRST = 89  # SM version; older ones neither convert nor multiply e4m3
LARGEST = tl.constexpr(448.0)  # of e4m3, which has no infinity
# Below this a maximum counts as this: the scale stays normal, and its inverse finite.
LEAST = tl.constexpr(2.0**-100)
DEEP = tl.constexpr(128)  # values along K that share a scale, and a sum's products


# --8<-- [start:older]
@triton.jit
def encoded(x):
    """e4m3 of float32 as bytes, to nearest even and saturated, by integers."""
    size = tl.minimum(tl.abs(x), LARGEST)
    bits = size.to(tl.int32, bitcast=True)
    # 20 of 23 fraction bits are rounded away; then the exponent's bias is 7, not 127.
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2**-6 steps are 2**-9, which are those of float32 from 2**14 on.
    small = (size + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    code = tl.where(size < 0.015625, small, normal) | sign
    return tl.where(x != x, 0x7F, code).to(tl.uint8)


@triton.jit
def operand(x):
    """What is multiplied: e4m3 as it is; bytes of it, on older GPUs, as float16."""
    if x.dtype == tl.uint8:  # fields move to their places, and 2**8 mends the bias
        bits = x.to(tl.uint16)
        moved = (bits & 0x80) << 8 | (bits & 0x7F) << 7
        exact = moved.to(tl.float16, bitcast=True) * 256.0
        x = tl.where((bits & 0x7F) == 0x7F, float("nan"), exact).to(tl.float16)
    return x
# --8<-- [end:older]


# --8<-- [start:quantise]
@triton.jit
def magnitude(x):
    """|x|, but 0 for infinities and NaN, which set no scale."""
    return tl.where(tl.abs(x) < float("inf"), tl.abs(x), 0.0)


@triton.jit
def scale_of(largest, POWER: tl.constexpr):
    """What a step of 1 in e4m3 stands for, and what to multiply by before the cast."""
    scale = tl.math.div_rn(tl.maximum(largest, LEAST), LARGEST)
    if POWER:  # the next power of two, by the bits: any fraction carries
        bits = (scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000
        scale = bits.to(tl.float32, bitcast=True)
    return scale, tl.math.div_rn(1.0, scale)


@triton.jit
def tile_at(x, x_stride, first_row, first_col, m, k, ROWS: tl.constexpr):
    """A tile of 128 columns in float32, and which of it there are."""
    row = first_row + tl.arange(0, ROWS)
    col = first_col + tl.arange(0, DEEP)
    inside = (row < m)[:, None] & (col < k)[None, :]
    at = x + row.to(tl.int64)[:, None] * x_stride[0]
    at += (col.to(tl.int64) * x_stride[1])[None, :]
    return tl.load(at, mask=inside, other=0.0).to(tl.float32), row, col, inside


@triton.jit
def fp8_amax(largest, x, x_stride, m, k, ROWS: tl.constexpr):
    """The maximum of a tensor, as bits: those of floats above 0 are in order."""
    across = tl.cdiv(k, DEEP)
    first_row = tl.program_id(0) // across * ROWS
    first_col = tl.program_id(0) % across * DEEP
    values = tile_at(x, x_stride, first_row, first_col, m, k, ROWS)[0]
    own = tl.max(tl.max(magnitude(values), axis=1), axis=0)
    tl.atomic_max(largest, own.to(tl.int32, bitcast=True), sem="relaxed")


@triton.jit
def fp8_quantise(q, scales, x, largest, x_stride, scale_stride, m, k,
                 SHARE: tl.constexpr, POWER: tl.constexpr, ROWS: tl.constexpr):
    across = tl.cdiv(k, DEEP)
    i, j = tl.program_id(0) // across, tl.program_id(0) % across
    values, row, col, inside = tile_at(x, x_stride, i * ROWS, j * DEEP, m, k, ROWS)
    if SHARE == "row":
        scale, factor = scale_of(tl.max(magnitude(values), axis=1), POWER)
        at = scales + row.to(tl.int64) * scale_stride[0] + j * scale_stride[1]
        tl.store(at, scale, mask=row < m)
        factor = factor[:, None]
    elif SHARE == "block":
        own = tl.max(tl.max(magnitude(values), axis=1), axis=0)
        scale, factor = scale_of(own, POWER)
        tl.store(scales + i * scale_stride[0] + j * scale_stride[1], scale)
    else:
        own = tl.load(largest).to(tl.float32, bitcast=True)
        scale, factor = scale_of(own, POWER)
        tl.store(scales, scale, mask=tl.program_id(0) == 0)
    # The cast saturates, so an infinity would pass for 448: it becomes NaN, and shows.
    scaled = tl.where(tl.abs(values) < float("inf"), values * factor, float("nan"))
    at = q + row.to(tl.int64)[:, None] * k + col[None, :]
    if q.dtype.element_ty == tl.uint8:
        tl.store(at, encoded(scaled), mask=inside)
    else:
        tl.store(at, scaled.to(q.dtype.element_ty), mask=inside)
# --8<-- [end:quantise]


def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch


def known(x: torch.Tensor, arch: int) -> torch.Tensor:
    """e4m3 where the GPU has it; its bytes where not."""
    return x if arch >= FIRST else x.view(torch.uint8)


# --8<-- [start:cast]
def quantised(
    x: torch.Tensor, share: str, power: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """x in e4m3, and its float32 scales, shared by a "tensor", "row" or "block"."""
    checked_values(x, share)
    (m, k), wide = x.shape, triton.cdiv(x.shape[1], DEEP.value)
    q = torch.empty((m, k), dtype=E4M3, device=x.device)
    if share == "row":  # down the rows, as a tile of the product reads them
        scales = torch.empty((wide, m), dtype=torch.float32, device=x.device).mT
    else:
        shape = (triton.cdiv(m, DEEP.value), wide) if share == "block" else ()
        scales = torch.empty(shape, dtype=torch.float32, device=x.device)
    if q.numel() == 0:
        return q, scales.fill_(1.0)
    with torch.cuda.device_of(x):
        rows, warps = (128, 16) if share == "block" else (32, 4)
        grid = (triton.cdiv(m, rows) * wide,)
        largest = None
        if share == "tensor":
            largest = torch.zeros((), dtype=torch.int32, device=x.device)
            tall = (triton.cdiv(m, 128) * wide,)
            fp8_amax[tall](largest, x, x.stride(), m, k, ROWS=128, num_warps=8)
        fp8_quantise[grid](
            known(q, architecture()), scales, x, largest, x.stride(),
            scales.stride() or None, m, k,
            SHARE=share, POWER=power, ROWS=rows, num_warps=warps,
        )  # fmt: skip
    return q, scales
# --8<-- [end:cast]


def together(name: str, x: torch.Tensor, first: torch.Tensor) -> None:
    """See that both are on one device, and on a GPU if there is one."""
    if x.device != first.device:
        raise TypeError(
            f"fp8_gemm: {name} is on {x.device}, but the first operand on "
            f"{first.device}; bring them together"
        )
    if x.is_meta or x.device.type == "cpu" and torch.cuda.is_available():
        raise TypeError(f"fp8_gemm: {name} is on {x.device}; move it to the GPU")


def checked_values(x: torch.Tensor, share: str) -> None:
    """See that x can be quantised.

    Raises:
        TypeError: the dtype is none of ours.
        ValueError: it is no matrix, or the scale's share is unknown.
    """
    if share not in SHARES:
        known = ", ".join(SHARES)
        raise ValueError(f"fp8_gemm: share {share!r} is none of {known}; take one")
    if x.dtype not in DTYPES:
        raise TypeError(
            f"fp8_gemm: x is {x.dtype}, none of bfloat16, float16, float32; convert it"
        )
    if x.ndim != 2:
        raise ValueError(f"fp8_gemm: x has {x.ndim} dimensions; give it 2")
    together("x", x, x)
