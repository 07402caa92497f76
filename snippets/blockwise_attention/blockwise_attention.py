"""Attention over keys that come in chunks: each one's softmax is merged into the last.

Shapes  merge: out1, out2 (..., D) and lse1, lse2 (...) float32 -> out, lse; out1 and
        out2 float32, float16 or bfloat16, each its own; 1 <= D <= MAX_D, any strides
        that leave the rows in at most three runs. lse = -inf: no key was seen, and
        what out holds there is not looked at. Attention: as flash_attention has it,
        with chunk_q queries and chunk_kv keys at a time, which need not divide
Bytes   merge: both sides read, one written, each once; its gradient reads both sides
        and dout, and writes two. In n > 1 chunks of keys, 16-bit attention moves
        14 n - 10 bytes more for each element of q than in one pass
FLOPs   4 B H_q S_q S_kv D forward, whatever the chunks; causal, chunks that no query
        sees are skipped, and only blocks that the diagonal meets have a mask
Error   as flash_attention's. Between chunks out is kept in float32; a chunk's own is
        rounded to the dtype of q unless `exact`, its gradients are not
Raises  ValueError, TypeError for shapes, dtypes, devices and chunks other than these
Source  blockwise-parallel-transformer, ring-attention, online-softmax,
        zhuzilin-ring-flash-attention, vllm-tiled-merge
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

# Without a GPU it also has papergpu execute kernels on the CPU, those below too.
from snippets.flash_attention import flash_attention as flash

MAX_D = 2048  # a row is held by one block
MAX_ROWS = 2**31 - 4096  # a row's number has 32 bits, and the last block may go past
THREADS = 128  # of a block
SHARE = 16  # columns that a lane has of a row: of each tensor 2 or 4 loads on the way
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
LN2 = tl.constexpr(0.6931471805599453)


# --8<-- [start:kernel]
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


# --8<-- [start:blocks]
class Block(NamedTuple):
    """Queries and keys that meet; first, last: among the blocks of these queries."""

    rows: slice
    cols: slice
    causal: bool  # the last of the queries sees the last of the keys; else all see all
    first: bool
    last: bool


def blocks(
    rows: range, s_q: int, s_kv: int, chunk_kv: int, causal: bool
) -> Iterator[Block]:
    """The blocks of a chunk of queries: two for a chunk of keys that the diagonal
    meets, none for one that it hides whole."""
    past = s_kv - s_q if causal else s_kv  # query i sees the keys up to i + past
    for start in range(0, s_kv, chunk_kv):
        end = min(start + chunk_kv, s_kv, rows.stop + past)
        if end <= start:
            break
        sees_some = max(rows.start, start - past)
        sees_all = max(rows.start, min(end - past, rows.stop))
        cols, first = slice(start, end), start == 0
        if sees_some < sees_all:
            yield Block(slice(sees_some, sees_all), cols, True, first, True)
        if sees_all < rows.stop:
            yield Block(slice(sees_all, rows.stop), cols, False, first, end == s_kv)
# --8<-- [end:blocks]


# --8<-- [start:walk]
def at(tensors: Sequence[torch.Tensor], where: slice, shift: int = 0) -> list:
    """Those positions of tensors (B, H, S, ...), which begin at position `shift`."""
    moved = slice(where.start - shift, where.stop - shift)
    return [tensor[:, :, moved] for tensor in tensors]


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    chunk_q: int,
    chunk_kv: int,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out, float32 if `exact`, and lse: chunks of queries meet the chunks of keys."""
    scale = checked(q, k, v, scale, chunk_q, chunk_kv)
    one = chunk_q >= q.shape[2] and chunk_kv >= k.shape[2]
    if one or q.numel() == 0 or k.numel() == 0:
        return flash.forward(q, k, v, causal, scale, exact=exact)
    s_q, s_kv = q.shape[2], k.shape[2]
    out = torch.empty_like(q, dtype=torch.float32 if exact else None)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    blind = max(0, s_q - s_kv) if causal else 0  # queries that no chunk has keys for
    out[:, :, :blind], lse[:, :, :blind] = 0, -math.inf
    for start in range(0, s_q, chunk_q):
        rows = range(start, min(start + chunk_q, s_q))
        sums = out[:, :, start : rows.stop]
        if out.dtype is not torch.float32:  # 16 bits would round at every merge
            sums = torch.empty_like(sums, dtype=torch.float32)
        for block in blocks(rows, s_q, s_kv, chunk_kv, causal):
            given = at([q], block.rows) + at([k, v], block.cols)
            part = flash.forward(*given, block.causal, scale, exact=exact)
            so_far = at([sums], block.rows, start) + at([lse], block.rows)
            target = at([out, lse], block.rows) if block.last else so_far
            if block.first:
                for whole, piece in zip(target, part, strict=True):
                    whole.copy_(piece)
            else:
                merge_into(*target, *so_far, *part)
    return out, lse


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
    scale: float | None,
    chunk_q: int,
    chunk_kv: int,
    dlse: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk, dv. No merge: with the lse of all keys a block's weights are final."""
    scale = checked(q, k, v, scale, chunk_q, chunk_kv)
    told = {"out": out, "lse": lse, "dout": dout, "dlse": dlse}
    flash.check_results(q, q.shape[:3], "blockwise_attention", **told)
    s_q, s_kv = q.shape[2], k.shape[2]
    dq = torch.empty_like(q)
    dk, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))
    for start in range(0, s_q, chunk_q):
        rows = range(start, min(start + chunk_q, s_q))
        mine = dq[:, :, start : rows.stop]
        sums = torch.zeros_like(mine, dtype=torch.float32)
        for block in blocks(rows, s_q, s_kv, chunk_kv, causal):
            parts = flash.backward(
                *at([q], block.rows), *at([k, v], block.cols),
                *at([out, lse, dout], block.rows), block.causal, scale,
                None if dlse is None else at([dlse], block.rows)[0],
                dtype=torch.float32,
            )  # fmt: skip
            targets = at([sums], block.rows, start) + at([dk, dv], block.cols)
            for whole, part in zip(targets, parts, strict=True):
                whole += part
        mine.copy_(sums)
    return dq, dk.to(k.dtype), dv.to(v.dtype)
# --8<-- [end:walk]


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    chunk_q: int,
    chunk_kv: int,
) -> float:
    """The scale to use.

    Raises:
        TypeError, ValueError: what flash_attention refuses, or a chunk without a row.
    """
    for name, chunk in (("chunk_q", chunk_q), ("chunk_kv", chunk_kv)):
        if chunk < 1:
            raise ValueError(
                f"blockwise_attention: {name} = {chunk} has no row; give it 1 or more"
            )
    return flash.checked(q, k, v, scale, who="blockwise_attention")


# --8<-- [start:attention]
@torch.library.custom_op("warpshelf::blockwise_attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float,
    chunk_q: int,
    chunk_kv: int,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return forward(q, k, v, causal, scale, chunk_q, chunk_kv, exact)


@torch.library.custom_op("warpshelf::blockwise_attention_backward", mutates_args=())
def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    causal: bool,
    scale: float,
    chunk_q: int,
    chunk_kv: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return backward(q, k, v, out, lse, dout, causal, scale, chunk_q, chunk_kv, dlse)


@attention.register_fake
def _(q, k, v, causal, scale, chunk_q, chunk_kv, exact=False):
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return torch.empty_like(q, dtype=torch.float32 if exact else None), lse


@attention_backward.register_fake
def _(q, k, v, out, lse, dout, dlse, causal, scale, chunk_q, chunk_kv):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def remember(ctx, inputs, output) -> None:
    q, k, v, *ctx.told, _ = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def gradients(ctx, dout, dlse):
    q, k, v, out, lse = ctx.saved_tensors
    dout = torch.zeros_like(q) if dout is None else dout.to(q.dtype)
    found = attention_backward(q, k, v, out, lse, dout, dlse, *ctx.told)
    return *found, None, None, None, None, None


attention.register_autograd(gradients, setup_context=remember)


def blockwise_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    chunk_q: int = 8192,
    chunk_kv: int = 8192,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse, both differentiable, as flash_attention has them."""
    scale = checked(q, k, v, scale, chunk_q, chunk_kv)
    out, lse = attention(q, k, v, causal, scale, chunk_q, chunk_kv, exact)
    return out.to(q.dtype), lse


# --8<-- [end:attention]


def demo(device: str) -> None:
    """Merges of small sides; chunks of several sizes against one pass and float64."""
    out = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [math.nan, math.nan]])
    lse = torch.tensor([0.0, 3.0, 1e4, -math.inf])
    other = torch.tensor([[5.0, 6.0]]).expand(4, 2)
    other_lse = torch.tensor([0.0, 0.0, -1e4, 7.0])
    merged, total = merge(*(x.to(device) for x in (out, lse, other, other_lse)))
    print("   lse1     lse2 ->       lse   out of (1, 2) and (5, 6)")
    for row in zip(lse, other_lse, total, *merged.T, strict=True):
        first, second, both, *values = (float(x) for x in row)
        shown = " ".join(f"{value:.4f}" for value in values)
        print(f"{first:7.0f} {second:8.0f} -> {both:9.3f}   {shown}")
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 2, 200, 32), (1, 2, 300, 32), (1, 2, 300, 32))
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    s = q.double() @ k.double().mT / 32**0.5
    s = s.masked_fill(torch.ones(200, 300).triu(101) > 0, -math.inf)
    truth = torch.softmax(s, -1) @ v.double()
    print("causal, 200 queries, 300 keys; within 5e-6 of float64?")
    for chunks in ((200, 300), (200, 128), (64, 77), (77, 64)):
        told = (x.to(device) for x in (q, k, v))
        found, _ = forward(*told, True, None, *chunks)
        starts = range(0, 200, chunks[0])
        rows = [range(start, min(start + chunks[0], 200)) for start in starts]
        met = sum(len(list(blocks(each, 200, 300, chunks[1], True))) for each in rows)
        close = bool((found.cpu().double() - truth).norm() <= 5e-6 * truth.norm())
        print(f"chunks of {chunks[0]:3d} x {chunks[1]:3d}: {met:2d} blocks, {close}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
