"""Attention of packed sequences, forwards and backwards, with nothing padded.

Shapes  q (T_q, H_q, D); k, v (T_kv, H_kv, D), as flash_attention has them. Sequence b
        is the rows cu_q[b] ... cu_q[b + 1] - 1 of q and cu_kv[b] ... cu_kv[b + 1] - 1
        of k and v; cu_q, cu_kv (B + 1,) int32 rise from 0 to T_q, T_kv <= 2**30, by 0
        where a sequence is empty. out and dout as q; lse (H_q, T_q) float32.
        Causal and window: of each sequence as flash_attention has them
FLOPs   the sum of what flash_attention takes for each sequence
Error   as flash_attention's
Raises  ValueError, TypeError for shapes, scales, dtypes and devices other than these.
        On a GPU cu_q and cu_kv are not looked into, since that would wait for it
Source  flash-attention-2, triton-fused-attention
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from snippets.flash_attention import flash_attention as flash
from snippets.flash_attention.backward import gather_keys, gather_queries
from snippets.flash_attention.checks import ALL
from snippets.flash_attention.flash_attention import LN2, attend
from snippets.flash_attention.tiles import (
    PACKED,
    load_rows,
    seeing_queries,
    seen_keys,
    store_rows,
)
from snippets.flash_varlen.packing import heads_first, packed, strides, tile_of_slot

# One code for all lengths, as flash_attention has it.
LENGTHS = ("t_q", "t_kv", "count", "left", "right")


# --8<-- [start:forward]
@triton.jit(do_not_specialize=LENGTHS)
def varlen_forward(out, lse, q, k, v, cu_q, cu_kv, out_stride, q_stride, k_stride,
                   v_stride, t_q, count, left, right, scale2, GROUP: tl.constexpr,
                   D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr,
                   N: tl.constexpr, TMA: tl.constexpr, BELOW: tl.constexpr,
                   ABOVE: tl.constexpr):
    slots = t_q // M + count
    h, slot = tl.program_id(0) // slots, tl.program_id(0) % slots
    b, s_q, tile, b_kv, s_kv = tile_of_slot(cu_q, cu_kv, slot, count, M)
    tiles = tl.cdiv(s_q, M)
    if tile >= tiles:
        return
    if ABOVE:
        tile = tiles - 1 - tile
    kv = h // GROUP
    first = tile * M
    row = first + tl.arange(0, M)
    low, high = s_kv - s_q - left, s_kv - s_q + right
    begin, inner, outer, end = seen_keys(first, s_kv, low, high, M, N, BELOW, ABOVE)
    queries = load_rows(q, q_stride, b, h, first, s_q, M, D, WIDTH, TMA, True)
    acc = tl.zeros([M, WIDTH], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    if BELOW:
        acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride,
                                 b_kv, kv, row, low, high, s_kv, scale2, begin, inner,
                                 N, D, WIDTH, TMA, BELOW, ABOVE, True)
    acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b_kv,
                             kv, row, low, high, s_kv, scale2, inner, outer, N, D,
                             WIDTH, TMA, BELOW, ABOVE, False)
    acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b_kv,
                             kv, row, low, high, s_kv, scale2, outer, end, N, D, WIDTH,
                             TMA, BELOW, ABOVE, True)
    total = tl.where(total > 0, total, 1.0)
    out_tile = acc / total[:, None]
    store_rows(out, out_stride, b, h, first, s_q, out_tile, M, D, WIDTH)
    logarithm = (top + tl.log2(total)) * LN2
    lse += tl.cast(h, tl.int64) * t_q + b
    tl.store(lse + row, logarithm, mask=row < s_q)
# --8<-- [end:forward]


# --8<-- [start:keys]
@triton.jit(do_not_specialize=LENGTHS)
def varlen_backward_keys(dk, dv, q, k, v, dout, lse, delta, cu_q, cu_kv, dk_stride,
                         dv_stride, q_stride, k_stride, v_stride, dout_stride, t_q,
                         t_kv, count, left, right, scale, GROUP: tl.constexpr,
                         D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr,
                         N: tl.constexpr, TMA: tl.constexpr, BELOW: tl.constexpr,
                         ABOVE: tl.constexpr):
    slots = t_kv // N + count
    h, slot = tl.program_id(0) // slots, tl.program_id(0) % slots
    b_kv, s_kv, tile, b, s_q = tile_of_slot(cu_kv, cu_q, slot, count, N)
    first = tile * N
    if first >= s_kv:
        return
    col = first + tl.arange(0, N)
    low, high = s_kv - s_q - left, s_kv - s_q + right
    begin, inner, outer, end = seeing_queries(first, s_q, low, high, M, N, BELOW, ABOVE)
    apart = tl.cast(t_q, tl.int64)
    lse += h * GROUP * apart + b
    delta += h * GROUP * apart + b
    keys = load_rows(k, k_stride, b_kv, h, first, s_kv, N, D, WIDTH, TMA, True)
    values = load_rows(v, v_stride, b_kv, h, first, s_kv, N, D, WIDTH, TMA, True)
    dk_sum = tl.zeros([N, WIDTH], tl.float32)
    dv_sum = tl.zeros([N, WIDTH], tl.float32)
    if ABOVE:
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, lse, delta, apart, q_stride,
            dout_stride, b, h, col, low, high, s_q, scale, begin, inner, GROUP, M, D,
            WIDTH, TMA, BELOW, ABOVE, True)
    dk_sum, dv_sum = gather_keys(
        dk_sum, dv_sum, keys, values, q, dout, lse, delta, apart, q_stride, dout_stride,
        b, h, col, low, high, s_q, scale, inner, outer, GROUP, M, D, WIDTH, TMA, BELOW,
        ABOVE, False)
    if BELOW:
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, lse, delta, apart, q_stride,
            dout_stride, b, h, col, low, high, s_q, scale, outer, end, GROUP, M, D,
            WIDTH, TMA, BELOW, ABOVE, True)
    store_rows(dk, dk_stride, b_kv, h, first, s_kv, dk_sum * scale, N, D, WIDTH)
    store_rows(dv, dv_stride, b_kv, h, first, s_kv, dv_sum, N, D, WIDTH)
# --8<-- [end:keys]


# --8<-- [start:queries]
@triton.jit(do_not_specialize=LENGTHS)
def varlen_backward_queries(dq, q, k, v, dout, lse, delta, cu_q, cu_kv, dq_stride,
                            q_stride, k_stride, v_stride, dout_stride, t_q, count, left,
                            right, scale, GROUP: tl.constexpr, D: tl.constexpr,
                            WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                            TMA: tl.constexpr, BELOW: tl.constexpr,
                            ABOVE: tl.constexpr):
    slots = t_q // M + count
    h, slot = tl.program_id(0) // slots, tl.program_id(0) % slots
    b, s_q, tile, b_kv, s_kv = tile_of_slot(cu_q, cu_kv, slot, count, M)
    tiles = tl.cdiv(s_q, M)
    if tile >= tiles:
        return
    if ABOVE:
        tile = tiles - 1 - tile
    kv = h // GROUP
    first = tile * M
    row = first + tl.arange(0, M)
    low, high = s_kv - s_q - left, s_kv - s_q + right
    begin, inner, outer, end = seen_keys(first, s_kv, low, high, M, N, BELOW, ABOVE)
    queries = load_rows(q, q_stride, b, h, first, s_q, M, D, WIDTH, TMA, True)
    do = load_rows(dout, dout_stride, b, h, first, s_q, M, D, WIDTH, TMA, True)
    at = tl.cast(h, tl.int64) * t_q + b + row
    row_lse = tl.load(lse + at, mask=row < s_q, other=0.0)
    row_delta = tl.load(delta + at, mask=row < s_q, other=0.0)
    acc = tl.zeros([M, WIDTH], tl.float32)
    if BELOW:
        acc = gather_queries(acc, queries, do, row_lse, row_delta, k, v, k_stride,
                             v_stride, b_kv, kv, row, low, high, s_kv, scale, begin,
                             inner, N, D, WIDTH, TMA, BELOW, ABOVE, True)
    acc = gather_queries(acc, queries, do, row_lse, row_delta, k, v, k_stride, v_stride,
                         b_kv, kv, row, low, high, s_kv, scale, inner, outer, N, D,
                         WIDTH, TMA, BELOW, ABOVE, False)
    acc = gather_queries(acc, queries, do, row_lse, row_delta, k, v, k_stride, v_stride,
                         b_kv, kv, row, low, high, s_kv, scale, outer, end, N, D, WIDTH,
                         TMA, BELOW, ABOVE, True)
    store_rows(dq, dq_stride, b, h, first, s_q, acc * scale, M, D, WIDTH)
# --8<-- [end:queries]


# --8<-- [start:launch]
def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_kv: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    descriptors: bool | None = None,
    window: tuple[int, int] = ALL,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out, float32 if `exact`, and lse. `descriptors`: None for what suits the GPU."""
    scale = checked(q, k, v, cu_q, cu_kv, scale, window)
    cu_q, cu_kv = cu_q.contiguous(), cu_kv.contiguous()
    out = torch.empty_like(q, dtype=torch.float32 if exact else None)
    (t_q, heads, _), t_kv, count = q.shape, k.shape[0], len(cu_q) - 1
    lse = torch.empty((heads, t_q), dtype=torch.float32, device=q.device)
    if q.numel() == 0 or k.numel() == 0:
        return out.zero_(), lse.fill_(-math.inf)
    tensors = [heads_first(x) for x in (q, k, v)]
    tma = flash.by_descriptor(descriptors, *tensors)
    left, right = flash.sides(causal, window, t_q, t_kv)
    tile, sources, constants = flash.arguments(
        "forward", tma, left, right, *tensors, describe=packed
    )
    with torch.cuda.device_of(q):
        varlen_forward[((t_q // tile.m + count) * heads,)](
            out, lse, *sources, cu_q, cu_kv, strides(heads_first(out)),
            *map(strides, tensors), t_q, count, left or 0, right or 0,
            scale * flash.LOG2E.value, **constants,
        )  # fmt: skip
    return out, lse


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_kv: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    dlse: torch.Tensor | None = None,
    descriptors: bool | None = None,
    window: tuple[int, int] = ALL,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk, dv, from what `forward` returned and the gradients of that."""
    scale = checked(q, k, v, cu_q, cu_kv, scale, window)
    told = {"out": out, "lse": lse, "dout": dout, "dlse": dlse}
    flash.check_results(q, (q.shape[1], len(q)), "flash_varlen", **told)
    cu_q, cu_kv = cu_q.contiguous(), cu_kv.contiguous()
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    (t_q, heads, d), (t_kv, heads_kv, _) = q.shape, k.shape
    count = len(cu_q) - 1
    tma = flash.by_descriptor(descriptors, *map(heads_first, (q, k, v)))
    if tma and not flash.describable(heads_first(dout)):  # such as one number, expanded
        dout = dout.clone(memory_format=torch.contiguous_format)
        tma = flash.describable(heads_first(dout))
    tensors = [heads_first(x) for x in (q, k, v, dout)]
    lse = lse.contiguous()
    dlse = None if dlse is None else dlse.contiguous()
    delta = torch.empty_like(lse)
    left, right = flash.sides(causal, window, t_q, t_kv)
    seen = (left or 0, right or 0)
    width = triton.next_power_of_2(d)
    rows = max(8, 2048 // width)
    with torch.cuda.device_of(q):
        flash.flash_delta[(triton.cdiv(t_q, rows) * heads,)](
            delta, out, dout, lse, dlse, strides(heads_first(out)),
            strides(tensors[3]), heads, t_q, D=d, WIDTH=width, M=rows,
            enable_fp_fusion=False,
        )  # fmt: skip
        tile, sources, constants = flash.arguments(
            "keys", tma, left, right, *tensors, describe=packed
        )
        varlen_backward_keys[((t_kv // tile.n + count) * heads_kv,)](
            dk, dv, *sources, lse, delta, cu_q, cu_kv, strides(heads_first(dk)),
            strides(heads_first(dv)), *map(strides, tensors), t_q, t_kv, count, *seen,
            scale, **constants,
        )  # fmt: skip
        tile, sources, constants = flash.arguments(
            "queries", tma, left, right, *tensors, describe=packed
        )
        varlen_backward_queries[((t_q // tile.m + count) * heads,)](
            dq, *sources, lse, delta, cu_q, cu_kv, strides(heads_first(dq)),
            *map(strides, tensors), t_q, count, *seen, scale, **constants,
        )  # fmt: skip
    return dq, dk, dv
# --8<-- [end:launch]


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_kv: torch.Tensor,
    scale: float | None,
    window: tuple[int, int],
) -> float:
    """The scale to use, after a look at what it is for.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, or a scale or window is none.
    """
    for name, x in {"q": q, "k": k, "v": v}.items():
        if x.ndim != 3:
            raise ValueError(
                f"flash_varlen: {name} has {x.ndim} dimensions; give it 3: position, "
                "head, column"
            )
        if len(x) > PACKED.value:
            raise ValueError(
                f"flash_varlen: {name} has {len(x)} rows, more than 2**30; split it"
            )
    tensors = [heads_first(x) for x in (q, k, v)]
    scale = flash.checked(*tensors, scale, window, "flash_varlen")
    for name, cu, rows in (("cu_q", cu_q, len(q)), ("cu_kv", cu_kv, len(k))):
        if (cu.dtype, cu.device) != (torch.int32, q.device):
            raise TypeError(
                f"flash_varlen: {name} is {cu.dtype} on {cu.device}; it must be "
                f"torch.int32 on {q.device}"
            )
        if cu.ndim != 1 or len(cu) == 0 or cu.shape != cu_q.shape:
            raise ValueError(
                f"flash_varlen: {name} is {tuple(cu.shape)}; give cu_q and cu_kv one "
                "element more than there are sequences"
            )
        if cu.is_cpu and not rises(cu.tolist(), rows):
            raise ValueError(
                f"flash_varlen: {name} does not rise from 0 to {rows}, the rows there "
                "are; give it where each sequence begins, and the end"
            )
    return scale


def rises(cu: list[int], rows: int) -> bool:
    """Whether it goes from 0 to `rows` and never falls."""
    return cu[0] == 0 and cu[-1] == rows and cu == sorted(cu)


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::flash_varlen", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_kv: torch.Tensor,
    causal: bool,
    scale: float,
    left: int,
    right: int,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    told = {"window": (left, right), "exact": exact}
    return forward(q, k, v, cu_q, cu_kv, causal, scale, **told)


@torch.library.custom_op("warpshelf::flash_varlen_backward", mutates_args=())
def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_kv: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    causal: bool,
    scale: float,
    left: int,
    right: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    given = (q, k, v, cu_q, cu_kv, out, lse, dout, causal, scale, dlse)
    return backward(*given, window=(left, right))


@attention.register_fake
def _(q, k, v, cu_q, cu_kv, causal, scale, left, right, exact=False):
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    return torch.empty_like(q, dtype=torch.float32 if exact else None), lse


@attention_backward.register_fake
def _(q, k, v, cu_q, cu_kv, out, lse, dout, dlse, causal, scale, left, right):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def remember(ctx, inputs, output) -> None:
    *tensors, ctx.causal, ctx.scale, ctx.left, ctx.right, _ = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def gradients(ctx, dout, dlse):
    *tensors, out, lse = ctx.saved_tensors
    dout = torch.zeros_like(tensors[0]) if dout is None else dout.to(tensors[0].dtype)
    told = (ctx.causal, ctx.scale, ctx.left, ctx.right)
    given = attention_backward(*tensors, out, lse, dout, dlse, *told)
    return *given, None, None, None, None, None, None, None


attention.register_autograd(gradients, setup_context=remember)


def flash_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_kv: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = ALL,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse, both differentiable, as flash_attention's of each sequence."""
    scale = checked(q, k, v, cu_q, cu_kv, scale, window)
    out, lse = attention(q, k, v, cu_q, cu_kv, causal, scale, *window, exact)
    return out.to(q.dtype), lse
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Five sequences in a window, each against float64; and what padding would cost."""
    generator = torch.Generator().manual_seed(0)
    lengths = (70, 0, 1, 129, 17)
    cu = torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)
    q, k, v, dout = (
        torch.randn(sum(lengths), heads, 64, generator=generator).to(device, torch.half)
        for heads in (2, 1, 1, 2)
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, _ = flash_varlen(*leaves, cu, cu, causal=True, window=(31, 0))
    found = (out.detach(), *torch.autograd.grad(out, leaves, dout))
    print("sequence  rows   within 1e-3 of attention to it alone: out, dq, dk, dv")
    for b, (start, end) in enumerate(zip(cu.tolist(), cu.tolist()[1:], strict=False)):
        query, key, value, wanted = (
            x[start:end].transpose(0, 1).cpu().double().requires_grad_()
            for x in (q, k, v, dout)
        )
        hidden = torch.ones(end - start, end - start).tril().triu(-31) == 0
        s = (query @ key.mT / 8).masked_fill(hidden, -math.inf)
        truth = torch.softmax(s, -1) @ value
        due = (truth, *torch.autograd.grad(truth, (query, key, value), wanted))
        verdicts = []
        for x, y in zip(found, due, strict=True):
            error = (x[start:end].transpose(0, 1).cpu() - y).norm()
            # dq and dk of a sequence of one are 0.
            verdicts.append(str(bool(error <= 1e-3 * max(y.norm(), wanted.norm()))))
        print(f"{b:8d} {end - start:5d}   {', '.join(verdicts)}")
    tile = 128
    rows = {
        "padded to the longest": len(lengths) * -(-max(lengths) // tile),
        "a slot for each tile": sum(lengths) // tile + len(lengths),
        "tiles with a row": sum(-(-length // tile) for length in lengths),
    }
    for name, blocks in rows.items():
        print(f"blocks a head, {name}: {blocks}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
