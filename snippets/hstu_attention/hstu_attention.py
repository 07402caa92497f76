"""Attention of histories without softmax: each score passes SiLU and is summed.

Shapes  q, k (T, H, D); v, out (T, H, E): sequence b is the rows cu[b] ... cu[b + 1] - 1
        of all four; cu (B + 1,) int32 rises from 0 to T <= 2**30. float32, float16 or
        bfloat16, and any strides; 1 <= D, E <= 256.
        out = sum over the keys in sight of SiLU(alpha * q k + bias) v / longest, where
        SiLU(x) = x / (1 + exp(-x)). The last targets[b] rows of a sequence are targets,
        the rows before them its history. Row i of the history sees rows i - window ...
        i, a target the last `window` rows of the history and itself, none its rivals.
        bias (H, S) float32, or None, is added by distance; targets stand where the
        history ends, and whatever is S - 1 or farther takes the last column
FLOPs   forward 2 (D + E) a pair in sight and head; backward 6 D + 4 E as everyone
        counts it, 8 D + 6 E as these two kernels work it out
Bytes   each tensor once, so a history of n rows does about n (D + E) / 4 (D + E) flops
        a byte forward: n / 4 in 16 bits, above 1,200 rows more than an H100 can feed
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are
        float32. float16 holds SiLU to 65504. The same inputs give the same bits
Raises  ValueError, TypeError for shapes, numbers, dtypes and devices other than these.
        On a GPU cu and targets are not looked into, since that would wait for it
Source  hstu, flash-attention-2
"""

from __future__ import annotations

import heapq

import torch
import triton
import triton.language as tl

from snippets.flash_attention import flash_attention as flash
from snippets.flash_attention.tiles import PACKED, load_rows, store_rows
from snippets.flash_varlen.packing import heads_first, packed, strides
from snippets.hstu_attention.backward import (
    NUMBERS,
    hstu_backward_keys,
    hstu_backward_queries,
)
from snippets.hstu_attention.checks import checked
from snippets.hstu_attention.sight import plan, seen_keys, silu, tile_of_program


# --8<-- [start:padded]
def padded(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu: torch.Tensor,
    longest: int,
    alpha: float,
    targets: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """The naive form: sequences padded to the longest, all scores in memory."""
    lengths = cu.diff()
    place = torch.arange(longest, device=q.device)
    real = place < lengths[:, None]  # (B, longest)
    history = lengths if targets is None else lengths - targets
    stand = place.minimum(history[:, None])  # targets stand where the history ends
    apart = stand[:, :, None] - stand[:, None, :]  # (B, rows, keys)
    reach = longest if window is None else window
    seen = (apart > 0) & (apart <= reach) | torch.eye(longest, device=q.device).bool()
    rows = []
    for x in (q, k, v):
        row = x.new_zeros(len(lengths), longest, *x.shape[1:])
        row[real] = x
        rows.append(row.transpose(1, 2))
    wide = torch.promote_types(q.dtype, torch.float32)
    s = alpha * (rows[0] @ rows[1].mT).to(wide)  # (B, H, longest, longest)
    if bias is not None:
        nearby = apart.clamp(0, bias.shape[1] - 1)
        s = s + bias[:, nearby].transpose(0, 1)
    p = torch.nn.functional.silu(s) * seen[:, None] / longest
    return (p.to(v.dtype) @ rows[2]).transpose(1, 2)[real]
# --8<-- [end:padded]


# --8<-- [start:forward]
@triton.jit
def attend(acc, queries, k, v, k_stride, v_stride, b, h, start, row, rows, history,
           window, alpha, bias, span, N: tl.constexpr, D: tl.constexpr,
           E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr, TMA: tl.constexpr,
           BIAS: tl.constexpr, MASK: tl.constexpr):
    """Add a tile of keys. No maximum, no sum, no rescaling: tiles come in any order."""
    keys = load_rows(k, k_stride, b, h, start, rows, N, D, DW, TMA, MASK)
    s = tl.dot(queries, keys.T, input_precision="ieee")
    col = start + tl.arange(0, N)
    p, _ = silu(s, alpha, bias, row[:, None], col[None, :], history, window, span,
                BIAS, MASK)
    values = load_rows(v, v_stride, b, h, start, rows, N, E, EW, TMA, MASK)
    return tl.dot(p.to(values.dtype), values, acc, input_precision="ieee")


@triton.jit(do_not_specialize=NUMBERS)
def hstu_forward(out, q, k, v, cu, targets, order, before, bias, out_stride, q_stride,
                 k_stride, v_stride, heads, count, window, span, alpha, share,
                 D: tl.constexpr, E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr,
                 M: tl.constexpr, N: tl.constexpr, TMA: tl.constexpr,
                 BIAS: tl.constexpr):
    b, rows, history, h, tile, tiles = tile_of_program(
        order, before, cu, targets, heads, count, M)
    first = (tiles - 1 - tile) * M  # the last rows see most
    if tile >= tiles or first >= rows:
        return
    row = first + tl.arange(0, M)
    if BIAS:
        bias += h * span
    begin, left, inner, outer, edge, own, itself = seen_keys(
        first, rows, history, window, M, N)
    queries = load_rows(q, q_stride, b, h, first, rows, M, D, DW, TMA, True)
    acc = tl.zeros([M, EW], tl.float32)
    for start in tl.range(inner, outer, N):
        acc = attend(acc, queries, k, v, k_stride, v_stride, b, h, start, row, rows,
                     history, window, alpha, bias, span, N, D, E, DW, EW, TMA, BIAS,
                     False)
    for index in tl.range(0, left + edge + itself):  # one loop for all that is masked
        start = tl.where(index < left, begin, outer - left * N) + index * N
        start = tl.where(index < left + edge, start, own + (index - left - edge) * N)
        acc = attend(acc, queries, k, v, k_stride, v_stride, b, h, start, row, rows,
                     history, window, alpha, bias, span, N, D, E, DW, EW, TMA, BIAS,
                     True)
    # Divided here and not a score at a time: 1e-2 / 8192 is no normal float16.
    store_rows(out, out_stride, b, h, first, rows, acc * share, M, E, EW)
# --8<-- [end:forward]


# --8<-- [start:launch]
class Call:
    """What the three launches of one call share."""

    def __init__(self, tensors, cu, longest, alpha, targets, bias, window, tma):
        q, _, v, *_ = self.tensors = [heads_first(x) for x in tensors]
        self.cu = cu.contiguous()
        self.targets = None if targets is None else targets.contiguous()
        self.bias = None if bias is None else bias.detach().contiguous()
        self.tma = flash.by_descriptor(tma, *self.tensors)
        span = 1 if bias is None else bias.shape[1]
        window = PACKED.value if window is None else min(window, PACKED.value)
        self.count = len(cu) - 1
        self.heads, self.d, self.e = q.shape[1], q.shape[-1], v.shape[-1]
        self.numbers = (self.heads, self.count, window, span, alpha, 1 / longest)

    def launch(self, kernel, which: str, *results: torch.Tensor) -> None:
        """A kernel over tiles of keys if `which` is "keys", else of queries."""
        widths = [max(16, triton.next_power_of_2(x)) for x in (self.d, self.e)]
        even = widths == [self.d, self.e]
        # Masks of columns cost registers, so padded heads take the tile of wider ones.
        wide = max(widths) if self.tma or even else 2 * max(widths)
        tile = flash.tile_of(which, wide, self.tensors[0].dtype, self.tma)
        if which != "keys" and self.tma and wide <= 128:
            # Scores of 128 keys and their gates spill on sm_100.
            tile = flash.Tile(128, 64, 8, 3 if which == "forward" else 2)
        sources = self.tensors
        if self.tma:
            heights = (tile.m, tile.n, tile.n, tile.m)
            columns = [widths[i] for i in (0, 0, 1, 1)]
            triples = zip(sources, heights, columns, strict=False)
            sources = [packed(*triple) for triple in triples]
        size = tile.n if which == "keys" else tile.m
        total = self.tensors[0].shape[2]
        results = [heads_first(x) for x in results]
        grid = ((total // size + self.count) * self.heads,)  # tiles, or a few more
        with torch.cuda.device_of(self.cu):
            kernel[grid](
                *results, *sources, self.cu, self.targets, *plan(self.cu, size),
                self.bias, *map(strides, (*results, *self.tensors)), *self.numbers,
                D=self.d, E=self.e, DW=widths[0], EW=widths[1], M=tile.m, N=tile.n,
                TMA=self.tma, BIAS=self.bias is not None, num_warps=tile.warps,
                num_stages=tile.stages,
            )  # fmt: skip


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu: torch.Tensor,
    longest: float,
    alpha: float,
    targets: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    window: int | None = None,
    descriptors: bool | None = None,
) -> torch.Tensor:
    """out; `descriptors`: how tiles are read, None for what suits the GPU."""
    checked(q, k, v, cu, longest, alpha, targets, bias, window)
    out = torch.empty_like(v)
    if out.numel():
        told = (longest, alpha, targets, bias, window, descriptors)
        Call((q, k, v), cu, *told).launch(hstu_forward, "forward", out)
    return out


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    cu: torch.Tensor,
    longest: float,
    alpha: float,
    targets: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    window: int | None = None,
    descriptors: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk, dv: all is made anew from the inputs, no result is kept for it."""
    checked(q, k, v, cu, longest, alpha, targets, bias, window)
    if (dout.shape, dout.dtype, dout.device) != (v.shape, v.dtype, v.device):
        raise ValueError(
            f"hstu_attention: dout is {tuple(dout.shape)} of {dout.dtype} on "
            f"{dout.device}; make it as v, {tuple(v.shape)} of {v.dtype} on {v.device}"
        )
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    if q.numel():
        if not flash.describable(heads_first(dout)):  # such as one number, expanded
            dout = dout.contiguous()
        told = (longest, alpha, targets, bias, window, descriptors)
        call = Call((q, k, v, dout), cu, *told)
        call.launch(hstu_backward_keys, "keys", dk, dv)
        call.launch(hstu_backward_queries, "queries", dq)
    return dq, dk, dv
# --8<-- [end:launch]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::hstu_attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu: torch.Tensor,
    targets: torch.Tensor | None,
    bias: torch.Tensor | None,
    longest: float,
    alpha: float,
    window: int | None,
) -> torch.Tensor:
    return forward(q, k, v, cu, longest, alpha, targets, bias, window)


@torch.library.custom_op("warpshelf::hstu_attention_backward", mutates_args=())
def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    cu: torch.Tensor,
    targets: torch.Tensor | None,
    bias: torch.Tensor | None,
    longest: float,
    alpha: float,
    window: int | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return backward(q, k, v, dout, cu, longest, alpha, targets, bias, window)


@attention.register_fake
def _(q, k, v, cu, targets, bias, longest, alpha, window):
    return torch.empty_like(v)


@attention_backward.register_fake
def _(q, k, v, dout, cu, targets, bias, longest, alpha, window):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def remember(ctx, inputs, output) -> None:
    q, k, v, cu, targets, bias, *ctx.told = inputs
    ctx.save_for_backward(q, k, v, cu, targets, bias)


def gradients(ctx, dout):
    q, k, v, *rest = ctx.saved_tensors
    return *attention_backward(q, k, v, dout, *rest, *ctx.told), *[None] * 6


attention.register_autograd(gradients, setup_context=remember)


def hstu_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu: torch.Tensor,
    longest: float,
    alpha: float | None = None,
    targets: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """out, differentiable in q, k and v; alpha is 1 / sqrt(D) unless given."""
    alpha = max(q.shape[-1], 1) ** -0.5 if alpha is None else float(alpha)
    checked(q, k, v, cu, longest, alpha, targets, bias, window)
    return attention(q, k, v, cu, targets, bias, float(longest), alpha, window)
# --8<-- [end:operator]


def busy(lengths: list[int], heads: int, tile: int = 128, units: int = 132) -> float:
    """How much of the time `units` SMs work if programs start in this order."""
    costs = [
        cost for length in lengths for _ in range(heads)
        for cost in range(-(-length // tile), 0, -1)
    ]  # fmt: skip
    free = [0] * units
    for cost in costs:  # the next program starts where one ends first
        heapq.heappush(free, heapq.heappop(free) + cost)
    return sum(costs) / (units * max(free))


def demo(device: str) -> None:
    """Five histories, two with targets, against the naive form; padding and balance."""
    generator = torch.Generator().manual_seed(0)
    lengths, aims = (70, 0, 1, 129, 17), (6, 0, 1, 0, 16)
    cu = torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)
    targets = torch.tensor(aims).to(device, torch.int32)
    q, k, v, dout = (
        torch.randn(sum(lengths), 2, 64, generator=generator).to(device, torch.half)
        for _ in range(4)
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = hstu_attention(*leaves, cu, max(lengths), targets=targets)
    found = (out.detach(), *torch.autograd.grad(out, leaves, dout))
    twins = [x.double().requires_grad_() for x in (q, k, v)]
    exact = padded(*twins, cu, max(lengths), 1 / 8, targets)
    due = (exact.detach(), *torch.autograd.grad(exact, twins, dout.double()))
    for name, x, y in zip(("out", "dq", "dk", "dv"), found, due, strict=True):
        print(f"{name:4s} within 1e-3: {bool((x - y).norm() <= 1e-3 * y.norm())}")
    draw = torch.empty(64).exponential_(1 / 1000, generator=generator)
    many = [min(int(x), 8192) for x in draw]
    pairs = sum(n * (n + 1) // 2 for n in many)
    mean = sum(many) / 64
    print(f"64 histories of {min(many)} to {max(many)} rows, {mean:.0f} on average")
    print(f"padded scores that are in sight: {pairs / (64 * max(many) ** 2):.1%}")
    print(f"132 SMs busy, as they came:   {busy(many, 4):.1%}")
    print(f"132 SMs busy, longest first:  {busy(sorted(many)[::-1], 4):.1%}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
