"""Attention, forwards and backwards; its matrix of scores exists a tile at a time.

Shapes  q (B, H_q, S_q, D); k, v (B, H_kv, S_kv, D), H_q a multiple of H_kv; out and
        dout as q; lse (B, H_q, S_q) float32. Else float32, float16 or bfloat16, and any
        strides. 1 <= D <= 256; D is padded on chip to a power of two, to 16 at least.
        out = softmax(scale * q k^T) v by rows, lse = log(sum(exp(scale * q k^T))).
        Query i stands at key i + S_kv - S_q, so the last one at the last key. Causal:
        it sees none to the right of that. A window of (left, right) bounds how many it
        sees to either side of it, -1 for all. A query that sees none has out = 0 and
        lse = -inf
FLOPs   forward 4 B H_q S_q S_kv D, half of it if causal and S_q = S_kv, in a window
        4 B H_q S_q (left + 1 + right) D; backward 2.5 times that as everyone counts it,
        and 3.5 times as these two kernels work it out
Error   relative to float64: 5e-6 float32, which is multiplied as such, 1e-3 float16,
        5e-3 bfloat16, but 8e-3 its gradients where `out` was rounded, as by default;
        sums are float32. The same inputs give the same bits
Raises  ValueError, TypeError for shapes, scales, dtypes and devices other than these
Source  flash-attention, flash-attention-2, triton-fused-attention
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

from snippets.flash_attention.backward import (
    flash_backward_keys,
    flash_backward_queries,
    flash_delta,
)
from snippets.flash_attention.checks import ALL, check_results, checked
from snippets.flash_attention.tiles import (
    LENGTHS,
    LOG2E,
    Tile,
    by_descriptor,
    describable,
    described,
    load_rows,
    near,
    seen_keys,
    store_rows,
    tile_of,
)

LN2 = tl.constexpr(0.6931471805599453)


# --8<-- [start:attend]
@triton.jit
def attend(acc, top, total, q, k, v, k_stride, v_stride, b, h, row, low, high, s_kv,
           scale2, first, last, N: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
           TMA: tl.constexpr, BELOW: tl.constexpr, ABOVE: tl.constexpr,
           MASK: tl.constexpr):
    """Take in the keys first ... last - 1; MASK if some row does not see them all."""
    for start in tl.range(first, last, N):
        keys = load_rows(k, k_stride, b, h, start, s_kv, N, D, WIDTH, TMA, MASK)
        s = tl.dot(q, keys.T, input_precision="ieee")
        if MASK:
            col = start + tl.arange(0, N)
            seen = (col < s_kv)[None, :]
            if BELOW or ABOVE:
                seen &= near(row[:, None], col[None, :], low, high, BELOW, ABOVE)
            s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=1) * scale2)
        shift = higher
        if MASK:  # a row that has seen no key subtracts 0: -inf - -inf would be NaN
            shift = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s * scale2 - shift[:, None])  # a multiply-add and an exp2 a score
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(p, axis=1)
        acc = acc * fade[:, None]
        values = load_rows(v, v_stride, b, h, start, s_kv, N, D, WIDTH, TMA, MASK)
        acc = tl.dot(p.to(values.dtype), values, acc, input_precision="ieee")
        top = higher
    return acc, top, total
# --8<-- [end:attend]


# --8<-- [start:forward]
@triton.jit(do_not_specialize=LENGTHS)
def flash_forward(out, lse, q, k, v, out_stride, q_stride, k_stride, v_stride,
                  h_q, s_q, s_kv, left, right, scale2, GROUP: tl.constexpr,
                  D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr,
                  N: tl.constexpr, TMA: tl.constexpr, BELOW: tl.constexpr,
                  ABOVE: tl.constexpr):
    # Tiles of one head are neighbours, so that L2 serves its keys; under a causal mask
    # those with most keys start first.
    tiles = tl.cdiv(s_q, M)
    head = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    if ABOVE:
        tile = tiles - 1 - tile
    b, h = head // h_q, head % h_q
    kv = h // GROUP
    first = tile * M
    row = first + tl.arange(0, M)
    low, high = s_kv - s_q - left, s_kv - s_q + right
    begin, inner, outer, end = seen_keys(first, s_kv, low, high, M, N, BELOW, ABOVE)
    queries = load_rows(q, q_stride, b, h, first, s_q, M, D, WIDTH, TMA, True)
    acc = tl.zeros([M, WIDTH], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)  # of scale2 * s, logarithms to base 2
    total = tl.zeros([M], tl.float32)
    if BELOW:
        acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b,
                                 kv, row, low, high, s_kv, scale2, begin, inner, N, D,
                                 WIDTH, TMA, BELOW, ABOVE, True)
    acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b, kv,
                             row, low, high, s_kv, scale2, inner, outer, N, D, WIDTH,
                             TMA, BELOW, ABOVE, False)
    acc, top, total = attend(acc, top, total, queries, k, v, k_stride, v_stride, b, kv,
                             row, low, high, s_kv, scale2, outer, end, N, D, WIDTH, TMA,
                             BELOW, ABOVE, True)
    total = tl.where(total > 0, total, 1.0)  # nothing seen: acc is 0 and top is -inf
    out_tile = acc / total[:, None]
    store_rows(out, out_stride, b, h, first, s_q, out_tile, M, D, WIDTH)
    logarithm = (top + tl.log2(total)) * LN2
    tl.store(lse + tl.cast(head, tl.int64) * s_q + row, logarithm, mask=row < s_q)
# --8<-- [end:forward]


# --8<-- [start:launch]
def sides(
    causal: bool, window: tuple[int, int], s_q: int, s_kv: int
) -> tuple[int | None, int | None]:
    """How many keys a query sees to the left and right of its own; None if all."""
    left, right = window
    right = 0 if causal else right
    # The first query stands at key s_kv - s_q, the last at the last.
    left = left if 0 <= left < s_kv - 1 else None
    return left, right if 0 <= right < s_q - 1 else None


def arguments(
    kernel: str,
    tma: bool,
    left: int | None,
    right: int | None,
    *tensors: torch.Tensor,
    describe: Callable = described,
) -> tuple[Tile, list, dict]:
    """Of q, k, v and perhaps dout: tile, sources and constants of a launch."""
    q, k = tensors[:2]
    d = q.shape[-1]
    width = max(16, triton.next_power_of_2(d))  # matrix instructions take 16 and more
    # Masks of columns cost registers, so a padded head takes the tile of a wider one.
    wide = width if tma or d == width else 2 * width
    tile = tile_of(kernel, wide, q.dtype, tma)
    sources = list(tensors)
    if tma:
        rows = (tile.m, tile.n, tile.n, tile.m)
        pairs = zip(tensors, rows, strict=False)
        sources = [describe(tensor, count, width) for tensor, count in pairs]
    constants = {
        "GROUP": q.shape[1] // k.shape[1], "D": d, "WIDTH": width, "M": tile.m,
        "N": tile.n, "TMA": tma, "BELOW": left is not None, "ABOVE": right is not None,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip
    return tile, sources, constants


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    descriptors: bool | None = None,
    window: tuple[int, int] = ALL,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out, float32 if `exact`, and lse. `descriptors`: None for what suits the GPU."""
    scale = checked(q, k, v, scale, window)
    (b, h_q, s_q, _), s_kv = q.shape, k.shape[2]
    # Of a (B, H, S, D) view of (B, S, H, D), another such.
    out = torch.empty_like(q, dtype=torch.float32 if exact else None)
    lse = torch.empty((b, h_q, s_q), dtype=torch.float32, device=q.device)
    if q.numel() == 0 or k.numel() == 0:
        return out.zero_(), lse.fill_(float("-inf"))
    tma = by_descriptor(descriptors, q, k, v)
    left, right = sides(causal, window, s_q, s_kv)
    tile, sources, constants = arguments("forward", tma, left, right, q, k, v)
    with torch.cuda.device_of(q):
        flash_forward[(triton.cdiv(s_q, tile.m) * b * h_q,)](
            out, lse, *sources, out.stride(), q.stride(), k.stride(), v.stride(),
            h_q, s_q, s_kv, left or 0, right or 0, scale * LOG2E.value, **constants,
        )  # fmt: skip
    return out, lse


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    dlse: torch.Tensor | None = None,
    descriptors: bool | None = None,
    window: tuple[int, int] = ALL,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk, dv, in `dtype` if told, of what `forward` returned and its gradients."""
    scale = checked(q, k, v, scale, window)
    told = {"out": out, "lse": lse, "dout": dout, "dlse": dlse}
    check_results(q, q.shape[:3], "flash_attention", **told)
    dq, dk, dv = (torch.empty_like(tensor, dtype=dtype) for tensor in (q, k, v))
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    (b, h_q, s_q, d), (h_kv, s_kv) = q.shape, k.shape[1:3]
    tma = by_descriptor(descriptors, q, k, v)
    if tma and not describable(dout):  # such as the gradient of a sum, one number
        dout = dout.clone(memory_format=torch.contiguous_format)
        tma = describable(dout)
    lse = lse.contiguous()
    dlse = None if dlse is None else dlse.contiguous()
    delta = torch.empty_like(lse)
    left, right = sides(causal, window, s_q, s_kv)
    width = triton.next_power_of_2(d)
    rows = max(8, 2048 // width)
    with torch.cuda.device_of(q):
        # Fused, a lane would add its own product unrounded to its neighbour's rounded
        # one, and lanes that hold the same sum differ in its last bit.
        flash_delta[(triton.cdiv(s_q, rows) * b * h_q,)](
            delta, out, dout, lse, dlse, out.stride(), dout.stride(), h_q, s_q,
            D=d, WIDTH=width, M=rows, enable_fp_fusion=False,
        )  # fmt: skip
        tensors = (q, k, v, dout)
        strides = [tensor.stride() for tensor in tensors]
        seen = (left or 0, right or 0)
        tile, sources, constants = arguments("keys", tma, left, right, *tensors)
        flash_backward_keys[(triton.cdiv(s_kv, tile.n) * b * h_kv,)](
            dk, dv, *sources, lse, delta, dk.stride(), dv.stride(), *strides,
            h_kv, s_q, s_kv, *seen, scale, **constants,
        )  # fmt: skip
        tile, sources, constants = arguments("queries", tma, left, right, *tensors)
        flash_backward_queries[(triton.cdiv(s_q, tile.m) * b * h_q,)](
            dq, *sources, lse, delta, dq.stride(), *strides,
            h_q, s_q, s_kv, *seen, scale, **constants,
        )  # fmt: skip
    return dq, dk, dv
# --8<-- [end:launch]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::flash_attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float,
    left: int = -1,
    right: int = -1,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return forward(q, k, v, causal, scale, window=(left, right), exact=exact)


@torch.library.custom_op("warpshelf::flash_attention_backward", mutates_args=())
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
    left: int = -1,
    right: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return backward(q, k, v, out, lse, dout, causal, scale, dlse, None, (left, right))


@attention.register_fake
def _(q, k, v, causal, scale, left=-1, right=-1, exact=False):
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return torch.empty_like(q, dtype=torch.float32 if exact else None), lse


@attention_backward.register_fake
def _(q, k, v, out, lse, dout, dlse, causal, scale, left=-1, right=-1):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def remember(ctx, inputs, output) -> None:
    q, k, v, *ctx.told, _ = inputs  # causal, scale, left, right
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def gradients(ctx, dout, dlse):
    q, k, v, out, lse = ctx.saved_tensors
    dout = torch.zeros_like(q) if dout is None else dout.to(q.dtype)
    given = attention_backward(q, k, v, out, lse, dout, dlse, *ctx.told)
    return *given, None, None, None, None, None


attention.register_autograd(gradients, setup_context=remember)


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = ALL,
    exact: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse, both differentiable; scale is 1 / sqrt(D) unless given. If `exact`,
    out is kept for backward in float32."""
    scale = checked(q, k, v, scale, window)
    out, lse = attention(q, k, v, causal, scale, *window, exact)
    return out.to(q.dtype), lse
# --8<-- [end:operator]


def relative(x: torch.Tensor, truth: torch.Tensor) -> float:
    """How far x is from the truth, by the norms."""
    return float((x.cpu().double() - truth).norm() / truth.norm())


def demo_test() -> None:
    """What a test with an absolute tolerance of 1e-2 sees at 2048 keys."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (0.5 * torch.randn(2048, 128, generator=generator) for _ in range(3))
    s = (q @ k.T / 128**0.5).masked_fill(torch.ones(2048, 2048).triu(1) > 0, -math.inf)
    truth = torch.softmax(s.double(), -1) @ v.double()
    flat = torch.softmax(s.masked_fill(s > -math.inf, 0), -1) @ v
    late = torch.where(torch.arange(2048)[:, None] < 1024, truth, flat)
    bare = torch.exp(s)
    wrong = {
        "zeros": torch.zeros_like(v),
        "ignores q and k": flat,
        "ignores q and k from row 1024": late,
        "exp without the maximum": bare / bare.sum(-1, keepdim=True) @ v,
    }
    print("attention with a fault         within 1e-2   relative error")
    for name, out in wrong.items():
        inside = float(((out - truth).abs() <= 1e-2).double().mean())
        error = relative(out, truth)
        shown = f"{error:.3f}" if error > 1e-3 else "below 1e-3"
        print(f"{name:30s} {inside:10.1%}   {shown:>13s}")


def demo(device: str) -> None:
    """Causal, four heads of queries on two of keys, against float64; a weak test."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (
        torch.randn(1, h, 160, 64, generator=generator).to(device, torch.float16)
        for h in (4, 2, 2, 4)
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out, lse = flash_attention(*leaves, causal=True)
    out.backward(dout)
    found = {"out": out.detach(), "lse": lse.detach()}
    found |= {f"d{name}": leaf.grad for name, leaf in zip("qkv", leaves, strict=True)}
    query, key, value, wanted = (x.cpu().double() for x in (q, k, v, dout))
    exact = [x.requires_grad_() for x in (query, key, value)]
    pairs = [x.repeat_interleave(2, 1) for x in exact[1:]]
    s = exact[0] @ pairs[0].mT / 8
    s = s.masked_fill(torch.ones(160, 160).triu(1) > 0, -math.inf)
    truth = torch.softmax(s, -1) @ pairs[1]
    truths = [truth.detach(), torch.logsumexp(s, -1).detach()]
    truths += torch.autograd.grad(truth, exact, wanted)
    for (name, x), due in zip(found.items(), truths, strict=True):
        verdict = relative(x, due) <= 1e-3
        print(f"{name:4s} norm {float(due.norm()):9.3f}, within 1e-3: {verdict}")
    first = " ".join(f"{x:.3f}" for x in lse[0, 0, :5].tolist())
    print(f"lse of the first rows: {first}")
    demo_test()


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
