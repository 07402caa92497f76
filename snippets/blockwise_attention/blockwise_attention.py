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

# Without a GPU it also has papergpu execute kernels on the CPU, that below too.
from snippets.blockwise_attention.merge_kernel import check, merge, merge_into, shares
from snippets.flash_attention import flash_attention as flash


# --8<-- [start:row]
@triton.jit
def merge_row(out, lse, out1, lse1, out2, lse2, D: tl.constexpr, WIDTH: tl.constexpr):
    """A program for each row of contiguous tensors, whose lanes have few elements."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, WIDTH)
    at = row * D + col
    first, second = tl.load(lse1 + row), tl.load(lse2 + row)
    tile1 = tl.load(out1 + at, mask=col < D, other=0.0).to(tl.float32)
    tile2 = tl.load(out2 + at, mask=col < D, other=0.0).to(tl.float32)
    # Some kernels leave NaN in a row without keys, and 0 * NaN is NaN.
    tile1 = tl.where(first == float("-inf"), 0.0, tile1)
    tile2 = tl.where(second == float("-inf"), 0.0, tile2)
    share1, share2, total = shares(first, second)
    merged = tile1 * share1 + tile2 * share2
    tl.store(out + at, merged.to(out.dtype.element_ty), mask=col < D)
    tl.store(lse + row, total)
# --8<-- [end:row]


def merge_by_row(
    out1: torch.Tensor, lse1: torch.Tensor, out2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by a program for each row; what is not contiguous is copied before."""
    check(out1=out1, lse1=lse1, out2=out2, lse2=lse2)
    wide = torch.promote_types(out1.dtype, out2.dtype)
    out = torch.empty(out1.shape, dtype=wide, device=out1.device)
    lse = torch.empty(lse1.shape, dtype=lse1.dtype, device=out1.device)
    sides = [x.contiguous() for x in (out1, lse1, out2, lse2)]
    d = out1.shape[-1]
    if out.numel():
        with torch.cuda.device_of(out1):
            merge_row[(lse.numel(),)](
                out, lse, *sides, D=d, WIDTH=triton.next_power_of_2(d), num_warps=4
            )
    return out, lse


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
