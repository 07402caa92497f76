"""Sums, maxima and logsumexp of rows at a copy's speed: a block has rows side by side.

Shapes  x (..., N) -> sum or logsumexp (...,) of x's dtype, or max, whose index (...,)
        int64 is that of the first of equals; float32, float16 or bfloat16; any strides
Bytes   x read once
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are
        float32. The same inputs give the same bits on the same GPU
Raises  ValueError, TypeError for shapes, dtypes and operators other than these
Source  harris-reduction, cub
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

ROW_BYTES = 8192  # of rows that a block has in flight: 64 for each of 128 threads
BLOCKS = 4  # for each multiprocessor: 16 warps, of at most 128 registers a thread
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E)
LN2 = tl.constexpr(0.6931471805599453)


# --8<-- [start:combine]
@triton.jit
def add(x, y):
    return x + y


@triton.jit
def first_max(x, i, y, j):
    """The larger, NaN above all; of equals the one further left, whoever asks first."""
    x_wins = (x > y) | ((x != x) & (y == y))
    tie = (x == y) | ((x != x) & (y != y))
    left = x_wins | (tie & (i < j))
    return tl.where(left, x, y), tl.where(left, i, j)


@triton.jit
def finite(top):
    """What to subtract: an infinite maximum less itself would be NaN."""
    return tl.where(tl.abs(top) == float("inf"), 0.0, top)


@triton.jit
def log_add(top, total, other_top, other_total):
    """Sums of exp(x - top), brought to the larger of two maxima."""
    higher = tl.maximum(top, other_top)
    shift = finite(higher)
    total = total * tl.exp2((finite(top) - shift) * LOG2E)
    other_total = other_total * tl.exp2((finite(other_top) - shift) * LOG2E)
    return higher, total + other_total
# --8<-- [end:combine]


# --8<-- [start:each]
@triton.jit
def reduce_each(y_ptr, index_ptr, x_ptr, n, x_stride, OP: tl.constexpr,
                BLOCK: tl.constexpr):
    """A program for each row, and a tree in each round."""
    row = tl.program_id(0).to(tl.int64)
    top, index, total = float("-inf"), tl.cast(0, tl.int64), 0.0
    for start in range(0, tl.cast(n, tl.int64), BLOCK):
        here = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + here, mask=here < n,
                    other=0.0 if OP == "sum" else float("-inf")).to(tl.float32)
        if OP == "sum":
            total += tl.reduce(x, 0, add)
        elif OP == "max":
            best, place = tl.reduce((x, here), 0, first_max)
            top, index = first_max(top, index, best, place)
        else:
            weight = tl.where(x == float("-inf"), 0.0, 1.0)
            best, weight = tl.reduce((x, weight), 0, log_add)
            top, total = log_add(top, total, best, weight)
    if OP == "logsumexp":
        total = top + tl.log2(total) * LN2
    if OP == "max":
        tl.store(index_ptr + row, index)
        total = top
    tl.store(y_ptr + row, total.to(y_ptr.dtype.element_ty))
# --8<-- [end:each]


# --8<-- [start:rows]
@triton.jit(do_not_specialize=("m", "tiles"))
def reduce_rows(y_ptr, second_ptr, x_ptr, weight_ptr, m, n, x_stride, tiles,
                OP: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
                WIDTH: tl.constexpr):
    """Some rows, or a part of each; or what the parts left, beside their second_ptr."""
    # int64: M * N may pass 2**31. Rows past the end repeat the last, and are dropped.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    COLS: tl.constexpr = LANES * WIDTH
    begin = tl.program_id(1).to(tl.int64) * tiles * COLS
    size = tl.minimum(n - begin, tiles * COLS).to(tl.int32)
    source = tl.minimum(row, m - 1)[:, None, None] * x_stride + begin
    lane = tl.arange(0, LANES)[None, :, None]
    col = lane * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    top = tl.full([ROWS, LANES], float("-inf"), tl.float32)
    index = tl.full([ROWS, LANES], 2**31 - 1, tl.int32)
    total = tl.zeros([ROWS, LANES], tl.float32)
    for start in tl.range(0, size, COLS):
        here = start + col
        x = tl.load(x_ptr + source + here, mask=here < size,
                    other=0.0 if OP == "sum" else float("-inf"),
                    eviction_policy="evict_first").to(tl.float32)
        # First the 16 bytes of a lane, axis 2, within a thread: the tree comes later.
        if OP == "sum":
            total += tl.reduce(x, 2, add)
        elif OP == "max":
            here = here + tl.zeros([ROWS, LANES, WIDTH], tl.int32)
            best, place = tl.reduce((x, here), 2, first_max)
            top, index = first_max(top, index, best, place)
        else:
            higher = tl.maximum(top, tl.max(x, axis=2))
            shift = finite(higher)
            part = tl.exp2((x - shift[:, :, None]) * LOG2E)
            if weight_ptr is not None:  # x is a part's maximum, and this its sum
                part = part * tl.load(weight_ptr + source + here, mask=here < size,
                                      other=0.0)
            total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(part, axis=2)
            top = higher
    out = row * tl.num_programs(1) + tl.program_id(1)
    if OP == "sum":
        y = tl.reduce(total, 1, add)
    elif OP == "max":
        y, index = tl.reduce((top, index), 1, first_max)
        if weight_ptr is None:
            place = begin + index
        else:  # index is a part's number, and this its index
            place = tl.load(weight_ptr + tl.minimum(row, m - 1) * x_stride + index)
        tl.store(second_ptr + out, place, mask=row < m)
    else:
        y, total = tl.reduce((top, total), 1, log_add)
        if second_ptr is None:
            y += tl.log2(total) * LN2
        else:
            tl.store(second_ptr + out, total, mask=row < m)
    tl.store(y_ptr + out, y.to(y_ptr.dtype.element_ty), mask=row < m)
# --8<-- [end:rows]


def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # so few that shares of small cases have several tiles
    return torch.cuda.get_device_properties(device).multi_processor_count


def check(op: str, x: torch.Tensor) -> None:
    """See that x has rows of a dtype that the kernels take, and that op is known."""
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    if x.dtype not in dtypes:
        known = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
        raise TypeError(f"row_reduce: x: {x.dtype} is none of {known}; convert it")
    if x.is_meta:
        raise TypeError("row_reduce: x is on meta; bring it to a GPU")
    if op not in ("sum", "max", "logsumexp"):
        known = "sum, max, logsumexp; choose one"
        raise ValueError(f"row_reduce: op {op!r} is none of {known}")
    if x.ndim == 0:
        raise ValueError("row_reduce: x has 0 dimensions and so no row; give it one")
    if op == "max" and x.shape[-1] == 0 and x.shape[:-1].numel():
        raise ValueError("row_reduce: N = 0 has no max; give each row an element")


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """View (..., N) as (M, N) with adjacent columns; a copy where there is none."""
    n = x.shape[-1]
    rows = x.reshape(x.numel() // n if n else x.shape[:-1].numel(), n)
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


def results(op: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Where a number for each row goes, and for a maximum its index."""
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    return y, torch.empty_like(y, dtype=torch.int64) if op == "max" else None


def rows_alone(
    op: str, x: torch.Tensor
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Each row by a program of its own."""
    check(op, x)
    source = rows_of(x)
    y, index = results(op, x)
    if len(source):
        with torch.cuda.device_of(x):
            reduce_each[(len(source),)](
                y, index, source, source.shape[1], source.stride(0), OP=op, BLOCK=1024,
                enable_fp_fusion=False,  # or lanes round one sum in two ways
            )  # fmt: skip
    return y if index is None else (y, index)


# --8<-- [start:launch]
def rows(op: str, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """sum, max (and its index) or logsumexp of the last dimension."""
    check(op, x)
    source = rows_of(x)
    m, n = source.shape
    y, index = results(op, x)
    if m:
        size = x.element_size()
        width = 16 // size
        cols = min(max(triton.next_power_of_2(n), width), ROW_BYTES // size)
        many = min(ROW_BYTES // (cols * size), 128)
        tiles = max(1, triton.cdiv(n, cols))
        # Rows too few for all multiprocessors are cut into parts of four tiles or more,
        # and of less than 2**31 elements: positions in a part are 32 bits wide.
        parts = 2 * BLOCKS * multiprocessors(x.device) // triton.cdiv(m, many)
        parts = max(1, min(parts, tiles // 4), triton.cdiv(tiles * cols, 2**30))
        tiles = triton.cdiv(tiles, parts)
        parts = max(1, triton.cdiv(n, tiles * cols))
        shape = {"ROWS": many, "LANES": cols // width, "WIDTH": width, "num_warps": 4}
        with torch.cuda.device_of(x):
            outs, ins = (y, index), (source, None)
            if parts > 1:
                first = torch.empty(m, parts, dtype=torch.float32, device=x.device)
                second = None if op == "sum" else torch.empty_like(
                    first, dtype=torch.int64 if op == "max" else torch.float32
                )  # fmt: skip
                reduce_rows[(triton.cdiv(m, many), parts)](
                    first, second, *ins, m, n, source.stride(0), tiles, OP=op, **shape,
                    enable_fp_fusion=False,  # or lanes round one sum in two ways
                )  # fmt: skip
                ins, n, tiles = (first, second), parts, triton.cdiv(parts, 1024)
                shape = {"ROWS": 1, "LANES": 256, "WIDTH": 4, "num_warps": 4}
            reduce_rows[(triton.cdiv(m, shape["ROWS"]), 1)](
                *outs, *ins, m, n, ins[0].stride(0), tiles, OP=op, **shape,
                enable_fp_fusion=False,
            )  # fmt: skip
    return y if index is None else (y, index)
# --8<-- [end:launch]


def demo(device: str) -> None:
    """Ties, a NaN, and exponentials beyond float32."""
    nan = float("nan")
    x = torch.tensor([[1.0, 7, 7, 0], [nan, 7, 7, nan]], device=device)
    print("max of rows:", *(each.tolist() for each in rows("max", x)))
    print("logsumexp of 1e4, 1e4:", rows("logsumexp", x.new_full((2,), 1e4)).item())
    x = torch.ones(3, 100_000, device=device)
    print("sums of 100,000 ones:", rows("sum", x).tolist())


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
