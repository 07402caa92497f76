"""What the grouped kernels share: addresses, the store, tiles, checks of operands."""

from __future__ import annotations

from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

DTYPES = (torch.float16, torch.bfloat16)
MAX_E = 1024  # groups whose ends a program holds in registers
STRIP = tl.constexpr(64)  # columns of sums that are turned round and stored at a time


# --8<-- [start:place]
@triton.jit
def place(base, row, row_stride, col, col_stride):
    """Addresses of a tile, in 64 bits: a row's offset may pass 2**31."""
    rows = row.to(tl.int64)[:, None] * row_stride
    return base + rows + (col.to(tl.int64) * col_stride)[None, :]


@triton.jit
def store(y, acc, first_row, first_col, end, n):
    """Write sums to rows up to `end`, a strip of columns at a time."""
    ROWS: tl.constexpr = acc.shape[0]
    COLS: tl.constexpr = acc.shape[1]
    if COLS > STRIP:  # what is turned round for a strip needs few registers
        HALF: tl.constexpr = COLS // 2
        left, right = acc.reshape(ROWS, 2, HALF).permute(0, 2, 1).split()
        store(y, left, first_row, first_col, end, n)
        store(y, right, first_row, first_col + HALF, end, n)
    else:
        row = first_row + tl.arange(0, ROWS)
        col = first_col + tl.arange(0, COLS)
        inside = (row < end)[:, None] & (col < n)[None, :]
        tl.store(place(y, row, n, col, 1), acc.to(y.dtype.element_ty), mask=inside)
# --8<-- [end:place]


# --8<-- [start:order]
@triton.jit
def tile_of(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile by its number: down GROUP rows, then the next column."""
    first = index // (GROUP * tiles_n) * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)  # the last band may have fewer
    rest = index % (GROUP * tiles_n)
    return first + rest % rows, rest // rows
# --8<-- [end:order]


# --8<-- [start:tiles]
class Tile(NamedTuple):
    """A program's tile of sums, the depth of a slab, and how it is launched."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    blocks: int  # programs an SM has room for


# Full groups are bound by arithmetic: 128 x 128 sums in 64 registers a thread. Read by
# descriptors, they leave room for a second program on an SM: one multiplies while the
# other begins or ends a tile. Addresses would take these registers (POINTED). Groups of
# few rows are bound by reading w, where a tile of 64 rows wastes less, and two programs
# keep more of w in flight.
LARGE, SMALL = Tile(128, 128, 64, 8, 3, 2), Tile(64, 128, 64, 8, 3, 2)
POINTED = LARGE._replace(blocks=1)
NARROW = Tile(64, 128, 32, 8, 3, 2)  # where every element has its own address
NAIVE = Tile(64, 64, 32, 4, 1, 1)
GROUP = 8  # rows of tiles that share the columns of w while they are in the L2
FEW = 64  # rows of a mean group up to which tiles are small


def multiprocessors(device: torch.device) -> int:
    """How many a GPU has; 2 on a CPU, so that programs of small cases walk on."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch


def wide(*tensors: torch.Tensor) -> bool:
    """Whether all can be moved 16 bytes at a time, as the compiler sees it.

    It looks whether 16 divides. Elsewhere each element has an address of its own, and
    those of a large tile would not fit into registers.
    """
    for tensor in tensors:
        steps = [step for step in tensor.stride() if step != 1]
        if len(steps) == tensor.ndim or any(step % 16 for step in steps):
            return False
        if tensor.data_ptr() % 16 or any(side % 16 for side in tensor.shape[-1:]):
            return False
    return True

# --8<-- [end:tiles]


def checked(
    x: torch.Tensor,
    ends: torch.Tensor,
    w: torch.Tensor | None = None,
    dy: torch.Tensor | None = None,
) -> None:
    """See that the operands fit. That ends ascend to M at most only the GPU knows.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, or there are too many groups.
    """
    others = {"w": (w, 3), "dy": (dy, 2)}
    named = {"x": (x, 2), **{k: v for k, v in others.items() if v[0] is not None}}
    for name, (tensor, dimensions) in named.items():
        if tensor.dtype not in DTYPES:
            raise TypeError(
                f"grouped_gemm: {name} is {tensor.dtype}, none of float16, bfloat16; "
                "convert it first"
            )
        if (tensor.dtype, tensor.device) != (x.dtype, x.device):
            raise TypeError(
                f"grouped_gemm: {name} is {tensor.dtype} on {tensor.device}, but x "
                f"{x.dtype} on {x.device}; bring them together"
            )
        if tensor.ndim != dimensions:
            raise ValueError(
                f"grouped_gemm: {name} has {tensor.ndim} dimensions; give it "
                f"{dimensions}"
            )
    if ends.dtype != torch.int32 or ends.device != x.device:
        raise TypeError(
            f"grouped_gemm: ends is {ends.dtype} on {ends.device}; give int32 on "
            f"{x.device}"
        )
    if ends.ndim != 1:
        raise ValueError(f"grouped_gemm: ends has {ends.ndim} dimensions; give it 1")
    if x.device.type == "cpu" and torch.cuda.is_available():
        raise TypeError("grouped_gemm: x is on the CPU, which has a GPU; move it there")
    (m, k), experts = x.shape, ends.shape[0]
    if experts > MAX_E - 1:
        raise ValueError(
            f"grouped_gemm: {experts} groups exceed {MAX_E - 1}; split the call"
        )
    if m > 2**31 - 2**16:
        raise ValueError(f"grouped_gemm: x has {m} rows, over 2**31 - 2**16; split it")
    if w is not None and w.shape[:2] != (experts, k):
        raise ValueError(
            f"grouped_gemm: w is {tuple(w.shape)}; give it {experts} matrices of {k} "
            "rows, as ends and x say"
        )
    if dy is not None and dy.shape[0] != m:
        raise ValueError(
            f"grouped_gemm: dy has {dy.shape[0]} rows, but x {m}; make them alike"
        )
