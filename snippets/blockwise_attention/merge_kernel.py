"""The merge of two sides as a kernel: a copy with two sources, and its gradient.

Shapes  out1, out2 (..., D) and lse1, lse2 (...) float32 -> out, lse; any strides that
        leave the rows in at most three runs; 1 <= D <= MAX_D
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

MAX_D = 2048  # a row is held by one block
MAX_ROWS = 2**31 - 4096  # a row's number has 32 bits, and the last block may go past
THREADS = 128  # of a block
SHARE = 16  # columns that a lane has of a row: of each tensor 2 or 4 loads on the way
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
LN2 = tl.constexpr(0.6931471805599453)


# --8<-- [start:shares]
@triton.jit
def shares(lse1, lse2):
    """What part of the sum each side is, and the logarithm of the sum."""
    top = tl.maximum(lse1, lse2)
    shift = tl.where(top == float("-inf"), 0.0, top)  # -inf - -inf would be NaN
    exp1 = tl.exp2((lse1 - shift) * LOG2E)
    exp2 = tl.exp2((lse2 - shift) * LOG2E)
    total = exp1 + exp2  # from 1 to 2, or 0 where neither side saw a key
    scale = 1.0 / tl.where(total > 0, total, 1.0)
    return exp1 * scale, exp2 * scale, shift + tl.log2(total) * LN2

# --8<-- [end:shares]


# --8<-- [start:kernel]
@triton.jit
def places(stride, row, n1, n2):
    """Offsets of rows, in 64 bits. Sizes of 1 are known to the compiler, which then
    divides by nothing: so it is where the rows lie in one run."""
    outer = row // n2
    at = (outer // n1).to(tl.int64) * stride[0] + (outer % n1).to(tl.int64) * stride[1]
    return at + (row % n2).to(tl.int64) * stride[2]


@triton.jit
def tile_of(row, rows, D: tl.constexpr, PIECES: tl.constexpr, LANES: tl.constexpr,
            VECTOR: tl.constexpr):
    """Columns of a tile [piece, row, column in it], and which elements there are.

    LANES lanes share a row, and each has VECTOR columns of every piece of it: loads of
    16 bytes side by side, and the arithmetic of a row done by few lanes."""
    piece = tl.arange(0, PIECES)[:, None, None] * (LANES * VECTOR)
    # No more than VECTOR at a time: 16 bytes of a narrower tensor's columns would be
    # two loads of the wider one, each with every other 16 bytes.
    col = piece + tl.max_contiguous(tl.arange(0, LANES * VECTOR), VECTOR)[None, None, :]
    return col.to(tl.int64), (row < rows)[None, :, None] & (col < D)


@triton.jit
def load_side(out, stride, row, n1, n2, lse, col, inside):
    at = places(stride, row, n1, n2)[None, :, None] + col * stride[3]
    tile = tl.load(out + at, mask=inside, other=0.0).to(tl.float32)
    # Some kernels leave NaN in a row without keys, and 0 * NaN is NaN.
    return tl.where((lse == float("-inf"))[None, :, None], 0.0, tile)


@triton.jit
def store_side(out, stride, row, n1, n2, tile, col, inside):
    at = places(stride, row, n1, n2)[None, :, None] + col * stride[3]
    tl.store(out + at, tile.to(out.dtype.element_ty), mask=inside)


@triton.jit
def merge_forward(out, lse, out1, lse1, out2, lse2, out_stride, lse_stride, out1_stride,
                  lse1_stride, out2_stride, lse2_stride, rows, n1, n2, D: tl.constexpr,
                  ROWS: tl.constexpr, PIECES: tl.constexpr, LANES: tl.constexpr,
                  VECTOR: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    first = tl.load(lse1 + places(lse1_stride, row, n1, n2), mask=here, other=0.0)
    second = tl.load(lse2 + places(lse2_stride, row, n1, n2), mask=here, other=0.0)
    col, inside = tile_of(row, rows, D, PIECES, LANES, VECTOR)
    tile1 = load_side(out1, out1_stride, row, n1, n2, first, col, inside)
    tile2 = load_side(out2, out2_stride, row, n1, n2, second, col, inside)
    share1, share2, total = shares(first, second)
    tl.debug_barrier()  # in place, no warp writes an lse that another has yet to read
    merged = tile1 * share1[None, :, None] + tile2 * share2[None, :, None]
    store_side(out, out_stride, row, n1, n2, merged, col, inside)
    tl.store(lse + places(lse_stride, row, n1, n2), total, mask=here)
# --8<-- [end:kernel]


# --8<-- [start:gradient]
@triton.jit
def merge_backward(dout1, dlse1, dout2, dlse2, dout, dlse, out1, lse1, out2, lse2,
                   dout1_stride, dlse1_stride, dout2_stride, dlse2_stride, dout_stride,
                   dlse_stride, out1_stride, lse1_stride, out2_stride, lse2_stride,
                   rows, n1, n2, D: tl.constexpr, ROWS: tl.constexpr,
                   PIECES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr):
    """Each side gets its share of dout and dlse. What one side's lse gains in share the
    other loses: by share1 * share2, for out1 - out2."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    first = tl.load(lse1 + places(lse1_stride, row, n1, n2), mask=here, other=0.0)
    second = tl.load(lse2 + places(lse2_stride, row, n1, n2), mask=here, other=0.0)
    col, inside = tile_of(row, rows, D, PIECES, LANES, VECTOR)
    tile1 = load_side(out1, out1_stride, row, n1, n2, first, col, inside)
    tile2 = load_side(out2, out2_stride, row, n1, n2, second, col, inside)
    share1, share2, total = shares(first, second)
    given = load_side(dout, dout_stride, row, n1, n2, total, col, inside)
    dot = tl.sum(tl.sum(given * (tile1 - tile2), axis=0), axis=1)
    moved = share1 * share2 * dot
    mine, theirs = given * share1[None, :, None], given * share2[None, :, None]
    store_side(dout1, dout1_stride, row, n1, n2, mine, col, inside)
    store_side(dout2, dout2_stride, row, n1, n2, theirs, col, inside)
    level = tl.zeros([ROWS], tl.float32)
    if dlse is not None:
        level = tl.load(dlse + places(dlse_stride, row, n1, n2), mask=here, other=0.0)
        level = tl.where(total == float("-inf"), 0.0, level)
    mine, theirs = share1 * level + moved, share2 * level - moved
    tl.store(dlse1 + places(dlse1_stride, row, n1, n2), mine, mask=here)
    tl.store(dlse2 + places(dlse2_stride, row, n1, n2), theirs, mask=here)
# --8<-- [end:gradient]


# --8<-- [start:launch]
def runs(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    """Dimensions of tensors alike, as few as serve all of them: [sizes, *strides].

    Neighbours become one where in each tensor the outer steps over the inner whole.
    """
    joined: list[list[int]] = []  # of each dimension, from inside: its size, its steps
    for size, *steps in reversed(list(zip(sizes, *strides, strict=True))):
        if size == 1:
            continue
        if joined and steps == [joined[-1][0] * step for step in joined[-1][1:]]:
            joined[-1][0] *= size
        else:
            joined.append([size, *steps])
    if len(joined) > 3:
        raise ValueError(
            f"blockwise_attention: the rows lie in {len(joined)} runs, more than 3; "
            "make the tensors contiguous"
        )
    filled = [*reversed(joined), *[[1] + [0] * len(strides)] * (3 - len(joined))]
    return [list(each) for each in zip(*filled, strict=True)]


def launch(kernel, *tensors: torch.Tensor | None) -> None:
    """Run a kernel on the rows of tensors (..., D), the first of them, and (...)."""
    *leading, d = tensors[0].shape
    given = [tensor for tensor in tensors if tensor is not None]
    (_, n1, n2), *steps = runs(leading, [x.stride()[: len(leading)] for x in given])
    found = iter(steps)
    # (0, 0, 0) for what is not given, a fourth stride for what has columns
    told = [
        (0, 0, 0) if x is None else (*next(found), *x.stride()[len(leading) :])
        for x in tensors
    ]
    rows = math.prod(leading)
    widest = max(x.element_size() for x in given if x.ndim > len(leading))
    vector = 16 // widest
    width = max(triton.next_power_of_2(d), 2 * vector)
    lanes = max(2, width // SHARE)  # 2 fill a sector
    with torch.cuda.device_of(tensors[0]):
        kernel[(triton.cdiv(rows, THREADS // lanes),)](
            *tensors, *told, rows, n1, n2, D=d, ROWS=THREADS // lanes,
            PIECES=width // (lanes * vector), LANES=lanes, VECTOR=vector,
            num_warps=THREADS // 32,
            # Products rounded before they are added: whichever side comes first gives
            # the same bits, and so does whichever lane sums up a row.
            enable_fp_fusion=False,
        )  # fmt: skip


def merge_into(
    out: torch.Tensor,
    lse: torch.Tensor,
    out1: torch.Tensor,
    lse1: torch.Tensor,
    out2: torch.Tensor,
    lse2: torch.Tensor,
) -> None:
    """Write the merge of two sides to out and lse, which may be those of a side."""
    check(out1=out1, lse1=lse1, out2=out2, lse2=lse2, out=out, lse=lse)
    if out.numel():
        launch(merge_forward, out, lse, out1, lse1, out2, lse2)


def merge(
    out1: torch.Tensor, lse1: torch.Tensor, out2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The merge of two sides, in the wider of their dtypes."""
    wide = torch.promote_types(out1.dtype, out2.dtype)
    out = torch.empty_like(out1, dtype=wide)
    lse = torch.empty_like(lse1, memory_format=torch.contiguous_format)
    merge_into(out, lse, out1, lse1, out2, lse2)
    return out, lse


def merge_gradients(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    out1: torch.Tensor,
    lse1: torch.Tensor,
    out2: torch.Tensor,
    lse2: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """dout1, dlse1, dout2, dlse2."""
    numbers = {} if dlse is None else {"dlse": dlse}
    check(out1=out1, lse1=lse1, out2=out2, lse2=lse2, dout=dout, **numbers)
    dout1, dout2 = torch.empty_like(out1), torch.empty_like(out2)
    dlse1, dlse2 = (
        torch.empty_like(lse, memory_format=torch.contiguous_format)
        for lse in (lse1, lse2)
    )
    if out1.numel():
        launch(
            merge_backward, dout1, dlse1, dout2, dlse2, dout, dlse, out1, lse1, out2,
            lse2,
        )  # fmt: skip
    return dout1, dlse1, dout2, dlse2


# --8<-- [end:launch]


def check(**tensors: torch.Tensor) -> None:
    """See that those called out... are (..., D), those called lse... one float32 a row.

    Raises:
        TypeError: a dtype or a device is another.
        ValueError: shapes do not fit, or are too large.
    """
    like = tensors["out1"]
    for name, tensor in tensors.items():
        row = name.startswith(("lse", "dlse"))
        dtypes = (torch.float32,) if row else DTYPES
        if tensor.dtype not in dtypes:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise TypeError(
                f"blockwise_attention: {name} is {tensor.dtype}, not of {names}; "
                "convert it first"
            )
        if tensor.device != like.device:
            raise TypeError(
                f"blockwise_attention: {name} is on {tensor.device}, but out1 on "
                f"{like.device}; bring them together"
            )
        shape = like.shape[:-1] if row else like.shape
        if tensor.shape != shape or like.ndim == 0:
            raise ValueError(
                f"blockwise_attention: {name} is {tuple(tensor.shape)}; with out1 "
                f"{tuple(like.shape)} it must be (..., D), or (...) for an lse"
            )
    if torch.cuda.is_available() and not like.is_cuda:
        raise TypeError(
            f"blockwise_attention: out1 is on {like.device}, where no kernel runs; "
            "move all to a GPU, or use merge.merge"
        )
    if not 1 <= like.shape[-1] <= MAX_D:
        raise ValueError(
            f"blockwise_attention: D = {like.shape[-1]} is not from 1 to MAX_D = "
            f"{MAX_D}; give the rows another width"
        )
    if math.prod(like.shape[:-1]) > MAX_ROWS:
        raise ValueError(
            f"blockwise_attention: {math.prod(like.shape[:-1])} rows are more than "
            f"MAX_ROWS = {MAX_ROWS}; merge a part at a time"
        )


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::merge_attention", mutates_args=())
def merge_attention(
    out1: torch.Tensor, lse1: torch.Tensor, out2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The merge of two sides, differentiable."""
    return merge(out1, lse1, out2, lse2)


@torch.library.custom_op("warpshelf::merge_attention_", mutates_args=("out", "lse"))
def merge_attention_(
    out: torch.Tensor, lse: torch.Tensor, out2: torch.Tensor, lse2: torch.Tensor
) -> None:
    """Take a further side into out and lse, in place."""
    merge_into(out, lse, out, lse, out2, lse2)


@torch.library.custom_op("warpshelf::merge_attention_backward", mutates_args=())
def merge_attention_backward(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    out1: torch.Tensor,
    lse1: torch.Tensor,
    out2: torch.Tensor,
    lse2: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return merge_gradients(dout, dlse, out1, lse1, out2, lse2)


@merge_attention.register_fake
def _(out1, lse1, out2, lse2):
    wide = torch.promote_types(out1.dtype, out2.dtype)
    return torch.empty_like(out1, dtype=wide), lse1.new_empty(lse1.shape)


@merge_attention_.register_fake
def _(out, lse, out2, lse2):
    return None


@merge_attention_backward.register_fake
def _(dout, dlse, out1, lse1, out2, lse2):
    numbers = [lse.new_empty(lse.shape) for lse in (lse1, lse2)]
    return torch.empty_like(out1), numbers[0], torch.empty_like(out2), numbers[1]


def remember_sides(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)
    ctx.set_materialize_grads(False)


def side_gradients(ctx, dout, dlse):
    out1, _, out2, _ = ctx.saved_tensors
    if dout is None:
        wide = torch.promote_types(out1.dtype, out2.dtype)
        dout = torch.zeros_like(out1, dtype=wide)
    return merge_attention_backward(dout, dlse, *ctx.saved_tensors)


merge_attention.register_autograd(side_gradients, setup_context=remember_sides)
# --8<-- [end:operator]
