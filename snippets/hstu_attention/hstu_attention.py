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
import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from snippets.flash_attention import flash_attention as flash
from snippets.flash_attention.flash_attention import (
    LOG2E,
    PACKED,
    load_rows,
    store_rows,
)
from snippets.flash_varlen.flash_varlen import heads_first, packed, strides

NUMBERS = ("heads", "count", "window", "span")  # one code for all, also for 1


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


# --8<-- [start:plan]
def plan(cu: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences by falling length, and the tiles of `size` rows before each of them.

    The longest start first, so that at the end only short ones are left to even out
    the load. Worked out where cu is: nothing waits for the GPU."""
    lengths, order = cu.diff().sort(descending=True, stable=True)
    tiles = torch.div(lengths + size - 1, size, rounding_mode="floor")
    before = torch.cat([cu[:1], tiles.cumsum(0, dtype=torch.int32)])
    return order.to(torch.int32), before


@triton.jit
def tile_of_program(order, before, cu, targets, heads, count, SIZE: tl.constexpr):
    """Of a program: its sequence's first row, rows and history, head and tile.

    All heads of a sequence, then the next: tiles that share keys are neighbours, so
    that L2 serves them. A program without a tile has first >= rows.
    """
    program = tl.program_id(0)
    at, beyond = 0, count
    while beyond - at > 1:  # the last sequence whose programs begin here or before
        middle = (at + beyond) // 2
        if tl.load(before + middle) * heads <= program:
            at = middle
        else:
            beyond = middle
    b = tl.load(order + at)
    start = tl.load(cu + b)
    rows = tl.load(cu + b + 1) - start
    begin = tl.load(before + at)
    tiles = tl.maximum(tl.load(before + at + 1) - begin, 1)
    head = (program - begin * heads) // tiles
    tile = (program - begin * heads) % tiles
    history = rows
    if targets is not None:
        history = tl.minimum(tl.maximum(rows - tl.load(targets + b), 0), rows)
    if head >= heads:
        tile = tiles
    return start, rows, history, head, tile, tiles
# --8<-- [end:plan]


# --8<-- [start:seen_keys]
@triton.jit
def seen_keys(first, rows, history, window, M: tl.constexpr, N: tl.constexpr):
    """Of M queries from `first` on: all see the keys inner ... outer - 1, whole tiles.

    Some see some of the tiles in three more stretches: `left` tiles from begin on, at
    the window's edge; `edge` tiles from outer on, at the diagonal or the history's end;
    `self` tiles from own on, where targets see themselves.
    """
    nearest = tl.minimum(first, history)
    begin = tl.maximum(nearest - window, 0) // N * N
    outer = nearest // N * N
    farthest = tl.minimum(first + M - 1, history)
    inner = tl.minimum(tl.cdiv(tl.maximum(farthest - window, 0), N) * N, outer)
    past = tl.cdiv(tl.minimum(first + M, history), N) * N
    own = tl.maximum(past, first // N * N)
    left, edge = (inner - begin) // N, (past - outer) // N
    itself = tl.cdiv(tl.maximum(tl.minimum(first + M, rows) - own, 0), N)
    return begin, left, inner, outer, edge, own, itself
# --8<-- [end:seen_keys]


# --8<-- [start:band]
@triton.jit
def seeing_queries(first, rows, history, window, M: tl.constexpr, N: tl.constexpr):
    """Of N keys from `first` on: the queries inner ... outer - 1 see them all; some see
    some in the `left` tiles from begin on, and in those from outer to end - 1."""
    begin = first // M * M
    end = rows
    if first + N - 1 < history - window:  # too far back for targets
        end = tl.minimum(first + N + window, rows)
    if first >= history:  # targets see no target but themselves
        end = tl.minimum(first + N, rows)
    inner = tl.cdiv(first + N, M) * M
    outer = tl.cdiv(rows, M) * M  # what is past the last query adds zeros
    if history - first > window:
        outer = (first + window + 1) // M * M
    if first + N > history:
        outer = inner
    inner = tl.minimum(inner, tl.cdiv(end, M) * M)
    outer = tl.maximum(outer, inner)
    return begin, (inner - begin) // M, inner, outer, end


@triton.jit
def sight(row, col, history, window):
    """Whether query `row` sees key `col`."""
    apart = tl.minimum(row, history) - col
    return (apart > 0) & (apart <= window) | (row == col)
# --8<-- [end:band]


# --8<-- [start:silu]
@triton.jit
def silu(s, alpha, bias, row, col, history, window, span, BIAS: tl.constexpr,
         MASK: tl.constexpr):
    """SiLU(alpha * s + bias) = x * gate, and the gate 1 / (1 + exp(-x)); 0 if unseen.

    Two visits to the special function unit a score: an exp2 and a reciprocal. Where
    exp2 overflows, the reciprocal of infinity is the right 0.
    """
    x = s * alpha
    if BIAS:
        apart = tl.minimum(row, history) - tl.minimum(col, history)
        x += tl.load(bias + tl.minimum(tl.maximum(apart, 0), span - 1))
    gate = libdevice.fast_dividef(1.0, 1.0 + tl.exp2(x * -LOG2E))
    if MASK:
        gate = tl.where(sight(row, col, history, window), gate, 0.0)
    return x * gate, gate
# --8<-- [end:silu]


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


# --8<-- [start:gather_keys]
@triton.jit
def gather_keys(dk, dv, keys, values, q, dout, q_stride, dout_stride, b, h, start, col,
                rows, history, window, alpha, bias, span, M: tl.constexpr,
                D: tl.constexpr, E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr,
                TMA: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr):
    """Add what a tile of queries gives to keys. Nothing of the forward is kept."""
    row = start + tl.arange(0, M)
    queries = load_rows(q, q_stride, b, h, start, rows, M, D, DW, TMA, True)
    # Transposed, p is the left operand of its product, which registers can hold.
    s = tl.dot(keys, queries.T, input_precision="ieee")
    p, gate = silu(s, alpha, bias, row[None, :], col[:, None], history, window, span,
                   BIAS, MASK)
    do = load_rows(dout, dout_stride, b, h, start, rows, M, E, EW, TMA, True)
    dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
    dp = tl.dot(values, do.T, input_precision="ieee")
    ds = dp * (gate + p * (1.0 - gate))  # SiLU' = gate + x gate (1 - gate)
    dk = tl.dot(ds.to(queries.dtype), queries, dk, input_precision="ieee")
    return dk, dv
# --8<-- [end:gather_keys]


# --8<-- [start:keys]
@triton.jit(do_not_specialize=NUMBERS)
def hstu_backward_keys(dk, dv, q, k, v, dout, cu, targets, order, before, bias,
                       dk_stride, dv_stride, q_stride, k_stride, v_stride, dout_stride,
                       heads, count, window, span, alpha, share, D: tl.constexpr,
                       E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr,
                       M: tl.constexpr, N: tl.constexpr, TMA: tl.constexpr,
                       BIAS: tl.constexpr):
    b, rows, history, h, tile, tiles = tile_of_program(
        order, before, cu, targets, heads, count, N)
    first = tile * N  # the first keys are seen most
    if tile >= tiles or first >= rows:
        return
    col = first + tl.arange(0, N)
    if BIAS:
        bias += h * span
    begin, left, inner, outer, end = seeing_queries(first, rows, history, window, M, N)
    keys = load_rows(k, k_stride, b, h, first, rows, N, D, DW, TMA, True)
    values = load_rows(v, v_stride, b, h, first, rows, N, E, EW, TMA, True)
    dk_sum = tl.zeros([N, DW], tl.float32)
    dv_sum = tl.zeros([N, EW], tl.float32)
    for start in tl.range(inner, outer, M):
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, q_stride, dout_stride, b, h, start,
            col, rows, history, window, alpha, bias, span, M, D, E, DW, EW, TMA, BIAS,
            False)
    right = tl.cdiv(tl.maximum(end - outer, 0), M)
    for index in tl.range(0, left + right):
        start = tl.where(index < left, begin, outer - left * M) + index * M
        dk_sum, dv_sum = gather_keys(
            dk_sum, dv_sum, keys, values, q, dout, q_stride, dout_stride, b, h, start,
            col, rows, history, window, alpha, bias, span, M, D, E, DW, EW, TMA, BIAS,
            True)
    dk_sum *= alpha * share
    store_rows(dk, dk_stride, b, h, first, rows, dk_sum, N, D, DW)
    store_rows(dv, dv_stride, b, h, first, rows, dv_sum * share, N, E, EW)
# --8<-- [end:keys]


# --8<-- [start:queries]
@triton.jit
def gather_queries(dq, queries, do, k, v, k_stride, v_stride, b, h, start, row, rows,
                   history, window, alpha, bias, span, N: tl.constexpr,
                   D: tl.constexpr, E: tl.constexpr, DW: tl.constexpr,
                   EW: tl.constexpr, TMA: tl.constexpr, BIAS: tl.constexpr,
                   MASK: tl.constexpr):
    """Add what a tile of keys gives to queries."""
    keys = load_rows(k, k_stride, b, h, start, rows, N, D, DW, TMA, MASK)
    s = tl.dot(queries, keys.T, input_precision="ieee")
    col = start + tl.arange(0, N)
    p, gate = silu(s, alpha, bias, row[:, None], col[None, :], history, window, span,
                   BIAS, MASK)
    values = load_rows(v, v_stride, b, h, start, rows, N, E, EW, TMA, MASK)
    dp = tl.dot(do, values.T, input_precision="ieee")
    ds = dp * (gate + p * (1.0 - gate))
    return tl.dot(ds.to(keys.dtype), keys, dq, input_precision="ieee")


@triton.jit(do_not_specialize=NUMBERS)
def hstu_backward_queries(dq, q, k, v, dout, cu, targets, order, before, bias,
                          dq_stride, q_stride, k_stride, v_stride, dout_stride, heads,
                          count, window, span, alpha, share, D: tl.constexpr,
                          E: tl.constexpr, DW: tl.constexpr, EW: tl.constexpr,
                          M: tl.constexpr, N: tl.constexpr, TMA: tl.constexpr,
                          BIAS: tl.constexpr):
    b, rows, history, h, tile, tiles = tile_of_program(
        order, before, cu, targets, heads, count, M)
    first = (tiles - 1 - tile) * M
    if tile >= tiles or first >= rows:
        return
    row = first + tl.arange(0, M)
    if BIAS:
        bias += h * span
    begin, left, inner, outer, edge, own, itself = seen_keys(
        first, rows, history, window, M, N)
    queries = load_rows(q, q_stride, b, h, first, rows, M, D, DW, TMA, True)
    do = load_rows(dout, dout_stride, b, h, first, rows, M, E, EW, TMA, True)
    acc = tl.zeros([M, DW], tl.float32)
    for start in tl.range(inner, outer, N):
        acc = gather_queries(acc, queries, do, k, v, k_stride, v_stride, b, h, start,
                             row, rows, history, window, alpha, bias, span, N, D, E,
                             DW, EW, TMA, BIAS, False)
    for index in tl.range(0, left + edge + itself):
        start = tl.where(index < left, begin, outer - left * N) + index * N
        start = tl.where(index < left + edge, start, own + (index - left - edge) * N)
        acc = gather_queries(acc, queries, do, k, v, k_stride, v_stride, b, h, start,
                             row, rows, history, window, alpha, bias, span, N, D, E,
                             DW, EW, TMA, BIAS, True)
    store_rows(dq, dq_stride, b, h, first, rows, acc * (alpha * share), M, D, DW)
# --8<-- [end:queries]


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


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu: torch.Tensor,
    longest: float,
    alpha: float,
    targets: torch.Tensor | None,
    bias: torch.Tensor | None,
    window: int | None,
) -> None:
    """Raises:
    TypeError: a dtype is unknown, or dtypes or devices differ.
    ValueError: shapes do not fit, or a number is out of its range.
    """
    who = "hstu_attention"
    for name, x in {"q": q, "k": k, "v": v}.items():
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"{who}: {name} is {x.dtype}, none of float32, float16, bfloat16; "
                "convert it first"
            )
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(
                f"{who}: {name} is {x.dtype} on {x.device}, but q {q.dtype} on "
                f"{q.device}; bring them together"
            )
        if x.ndim != 3 or x.shape[:2] != q.shape[:2]:
            raise ValueError(
                f"{who}: {name} is {tuple(x.shape)} and q {tuple(q.shape)}; give all "
                "as (position, head, column), with the same positions and heads"
            )
        if not 1 <= x.shape[2] <= flash.MAX_D:
            raise ValueError(
                f"{who}: {name} has {x.shape[2]} columns, not 1 to {flash.MAX_D}; give "
                "the heads another width"
            )
        if len(x) > PACKED.value:
            raise ValueError(f"{who}: {name} has {len(x)} rows, over 2**30; split it")
    if q.shape != k.shape:
        raise ValueError(
            f"{who}: q is {tuple(q.shape)} and k {tuple(k.shape)}; make them alike"
        )
    lists = {"cu": (cu, len(cu) if cu.ndim else 0)}
    if targets is not None:
        lists["targets"] = (targets, len(cu) - 1 if cu.ndim else 0)
    for name, (x, size) in lists.items():
        if (x.dtype, x.device) != (torch.int32, q.device):
            raise TypeError(
                f"{who}: {name} is {x.dtype} on {x.device}; it must be torch.int32 on "
                f"{q.device}"
            )
        if tuple(x.shape) != (size,) or len(cu) == 0:
            raise ValueError(
                f"{who}: {name} is {tuple(x.shape)}; give cu one element more than "
                "there are sequences, and targets one for each"
            )
    if cu.is_cpu:
        starts = cu.tolist()
        if starts[0] != 0 or starts[-1] != len(q) or starts != sorted(starts):
            raise ValueError(
                f"{who}: cu does not rise from 0 to {len(q)}, the rows there are; give "
                "it where each sequence begins, and the end"
            )
        if targets is not None and bool(((targets < 0) | (targets > cu.diff())).any()):
            raise ValueError(
                f"{who}: targets are not from 0 to the length of their sequence; give "
                "how many of its last rows are targets"
            )
    if bias is not None:
        if (bias.dtype, bias.device) != (torch.float32, q.device):
            raise TypeError(
                f"{who}: bias is {bias.dtype} on {bias.device}; it must be "
                f"torch.float32 on {q.device}"
            )
        if bias.ndim != 2 or len(bias) != q.shape[1] or not 1 <= bias.shape[1] < 2**24:
            raise ValueError(
                f"{who}: bias is {tuple(bias.shape)}; give {q.shape[1]} rows, one a "
                "head, and a column a distance, under 2**24"
            )
        if bias.requires_grad:
            raise ValueError(
                f"{who}: bias requires a gradient, and these kernels have none of it; "
                "detach it"
            )
    if not (0 < longest <= PACKED.value and math.isfinite(alpha)):
        raise ValueError(
            f"{who}: longest = {longest} and alpha = {alpha}; give a positive number "
            "up to 2**30 and a finite one"
        )
    if window is not None and window < 0:
        raise ValueError(
            f"{who}: window = {window} is negative; give the rows to see, None for all"
        )


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
