"""Tiles of attention: how they are read and written, which a band of keys meets, and
how large they are.

A tensor is (B, H, S, D). Query i sees the keys i + low ... i + high: BELOW and ABOVE
tell whether there is such a bound.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

MAX_D = 256  # 128 rows of float32 sums are then 128 registers for each of 256 threads
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
# One code for all lengths and windows, also for 1, which else is a constant to Triton.
LENGTHS = ("s_q", "s_kv", "left", "right")
PACKED = tl.constexpr(2**30)  # rows of packed sequences, as flash_varlen describes them


# --8<-- [start:load]
@triton.jit
def addresses(base, stride, b, h, row, col):
    """Of a tile's elements, in 64 bits: a row's offset may pass 2**31."""
    head = base + tl.cast(b, tl.int64) * stride[0] + tl.cast(h, tl.int64) * stride[1]
    rows = row.to(tl.int64)[:, None] * stride[2]
    return head + rows + (col.to(tl.int64) * stride[3])[None, :]


@triton.jit
def load_rows(source, stride, b, h, first, rows, ROWS: tl.constexpr, D: tl.constexpr,
              WIDTH: tl.constexpr, TMA: tl.constexpr, MASK: tl.constexpr):
    """Rows first ... first + ROWS - 1 of a head; zeros past `rows` and past D."""
    if TMA:
        # The copy engine makes addresses and bounds, and a barrier in shared memory
        # tells that a tile is there: no registers of pointers, no meeting of warps.
        if len(source.shape) == 5:  # packed: this sequence begins at row b
            at = [PACKED, b + rows, h, PACKED - rows + first, 0]
        else:
            at = [b, h, first, 0]
        tile = source.load(at).reshape(ROWS, WIDTH)
    else:
        row = first + tl.arange(0, ROWS)
        col = tl.arange(0, WIDTH)
        at = addresses(source, stride, b, h, row, col)
        if MASK:
            inside = (row < rows)[:, None] & (col < D)[None, :]
            tile = tl.load(at, mask=inside, other=0.0)
        elif D < WIDTH:
            tile = tl.load(at, mask=(col < D)[None, :], other=0.0)
        else:
            tile = tl.load(at)
    return tile


@triton.jit
def store_rows(target, stride, b, h, first, rows, tile, ROWS: tl.constexpr,
               D: tl.constexpr, WIDTH: tl.constexpr):
    row = first + tl.arange(0, ROWS)
    col = tl.arange(0, WIDTH)
    at = addresses(target, stride, b, h, row, col)
    inside = (row < rows)[:, None] & (col < D)[None, :]
    tl.store(at, tile.to(target.dtype.element_ty), mask=inside)
# --8<-- [end:load]


# --8<-- [start:band]
@triton.jit
def near(row, col, low, high, BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """Whether query `row` sees key `col`: its band is row + low ... row + high."""
    if BELOW and ABOVE:
        inside = (col >= row + low) & (col <= row + high)
    elif ABOVE:
        inside = col <= row + high
    else:
        inside = col >= row + low
    return inside


@triton.jit
def seen_keys(first, s_kv, low, high, M: tl.constexpr, N: tl.constexpr,
              BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """Of M queries from `first` on, some see the keys begin ... end - 1, and all see
    inner ... outer - 1, which are whole tiles."""
    begin, inner, outer, end = 0, 0, s_kv, s_kv
    if ABOVE:
        outer = tl.minimum(tl.maximum(first + high + 1, 0), s_kv)
        end = tl.minimum(tl.maximum(first + M + high, 0), s_kv)
    outer = outer // N * N
    if BELOW:
        begin = tl.minimum(tl.maximum(first + low, 0), s_kv) // N * N
        inner = tl.cdiv(tl.maximum(first + M - 1 + low, 0), N) * N
        outer = tl.maximum(outer, begin)
        inner = tl.minimum(inner, outer)  # no tile is inside a narrow window
    return begin, inner, outer, end
# --8<-- [end:band]


# --8<-- [start:columns]
@triton.jit
def seeing_queries(first, s_q, low, high, M: tl.constexpr, N: tl.constexpr,
                   BELOW: tl.constexpr, ABOVE: tl.constexpr):
    """Of N keys from `first` on, some are seen by the queries begin ... end - 1, all by
    inner ... outer - 1: whole tiles, if need be with what lies past the last query."""
    begin, inner, outer, end = 0, 0, s_q, s_q
    if ABOVE:
        begin = tl.maximum(first - high, 0) // M * M
        inner = tl.cdiv(tl.maximum(first + N - 1 - high, 0), M) * M
        inner = tl.minimum(inner, tl.cdiv(s_q, M) * M)
    if BELOW:
        end = tl.minimum(tl.maximum(first + N - low, 0), s_q)
        if first - low + 1 < s_q:
            outer = tl.maximum(first - low + 1, 0) // M * M
        outer = tl.maximum(outer, begin)
        inner = tl.minimum(inner, outer)
    return begin, inner, outer, end
# --8<-- [end:columns]


# --8<-- [start:tiles]
class Tile(NamedTuple):
    """M queries and N keys a tile, warps, and tiles in flight."""

    m: int
    n: int
    warps: int
    stages: int


# By kernel and by the widest head that a tile is for. Of the 255 registers a thread has
# at most, 128 rows of D = 128 sums take 64 in 8 warps, scores of 128 keys 64 more.
TILES = {
    # sm_90, sm_100: 227 KiB of shared memory, from which matrix instructions read
    "descriptors": {
        "forward": {64: (128, 128, 8, 3), 128: (128, 128, 8, 2), 256: (128, 64, 8, 2)},
        "keys": {64: (64, 128, 8, 3), 128: (64, 128, 8, 2), 256: (32, 64, 8, 2)},
        "queries": {64: (128, 128, 8, 2), 128: (128, 64, 8, 2), 256: (64, 64, 8, 2)},
    },
    # sm_80: 163 KiB, and operands pass through registers
    "pointers": {
        "forward": {64: (128, 64, 4, 3), 128: (128, 64, 8, 3), 256: (64, 64, 8, 2),
                    512: (32, 32, 8, 2)},
        "keys": {64: (32, 128, 8, 3), 128: (64, 64, 8, 2), 256: (32, 64, 8, 2),
                 512: (16, 32, 8, 2)},
        "queries": {32: (64, 64, 4, 2), 64: (128, 64, 8, 2), 128: (128, 32, 8, 2),
                    256: (64, 32, 8, 2), 512: (32, 32, 8, 2)},
    },
    # sm_86, sm_89, sm_120: 99 KiB
    "small": {
        "forward": {64: (128, 32, 4, 3), 128: (128, 32, 8, 2), 512: (64, 32, 8, 2)},
        "keys": {64: (32, 128, 8, 2), 128: (64, 64, 8, 2), 512: (32, 32, 8, 2)},
        "queries": {32: (64, 64, 4, 2), 64: (128, 64, 8, 2), 128: (128, 32, 8, 2),
                    512: (32, 32, 8, 2)},
    },
    # float32, which no matrix instruction multiplies exactly: all is in registers
    "exact": {
        "forward": {64: (32, 32, 8, 1), 128: (32, 16, 8, 1), 256: (32, 16, 16, 1)},
        "keys": {64: (32, 32, 8, 1), 128: (32, 16, 8, 1), 256: (16, 16, 16, 1)},
        "queries": {64: (32, 32, 8, 1), 128: (16, 16, 8, 1), 256: (16, 16, 8, 1)},
    },
}  # fmt: skip


def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch


def tile_of(kernel: str, width: int, dtype: torch.dtype, tma: bool) -> Tile:
    """The tile of "forward", "keys" or "queries" for heads of `width` columns."""
    table = "descriptors" if tma else "pointers"
    if dtype is torch.float32:
        table = "exact"
    elif not tma and architecture() in (86, 89, 120, 121):
        table = "small"
    widest = TILES[table][kernel]
    return Tile(*widest[min((most for most in widest if width <= most), default=MAX_D)])
# --8<-- [end:tiles]


# --8<-- [start:descriptors]
def steps(tensor: torch.Tensor) -> list[int]:
    """Strides in elements, with 16 for a dimension of one element, which has none."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride if size > 1 else 16 for size, stride in pairs]


def describable(tensor: torch.Tensor) -> bool:
    """Whether the copy engine takes it: columns adjacent, all else 16 bytes apart."""
    *outer, inner = steps(tensor)
    size = tensor.element_size()
    return (
        (inner == 1 or tensor.shape[-1] == 1)
        and all(0 < step < 2**38 and step * size % 16 == 0 for step in outer)
        and tensor.data_ptr() % 16 == 0
    )


def described(tensor: torch.Tensor, rows: int, width: int) -> TensorDescriptor:
    """A tensor as the copy engine sees it: in tiles of `rows` rows of one head."""
    strides = [*steps(tensor)[:-1], 1]
    return TensorDescriptor(tensor, list(tensor.shape), strides, [1, 1, rows, width])


def by_descriptor(wanted: bool | None, *tensors: torch.Tensor) -> bool:
    """Whether to read so: if it can be, and unless told otherwise if it pays."""
    if wanted is None:
        wanted = architecture() in (90, 100, 103)
    half = tensors[0].dtype is not torch.float32
    return wanted and half and all(map(describable, tensors))
# --8<-- [end:descriptors]
