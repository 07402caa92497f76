"""Routing of a mixture of experts: choose, sort the tokens by expert, and come back.

Shapes  route: logits (T, E), bias (E,) or None -> experts (T, K) int32, weights (T, K)
        and mean (E,) of the scores, float32. arrange: experts (T, K) -> slots (T, K),
        sources (S,), counts (E,), ends (E,), int32. permute: x (T, H) -> (S, H), by
        expert. combine: y (S, H), weights (T, K) -> (T, H). Logits, x and y are
        float32, float16 or bfloat16; any strides; T, H may be 0
Bytes   logits once; x and y once for each copy and once for each token; the indices
        several times, 4 bytes a copy
Error   indices exact: of equal scores the lowest expert, NaN above all, copies of one
        expert in the order of tokens; the rest as 5e-6 float32, 1e-3 float16, 5e-3
        bfloat16, from sums in float32. The same inputs, the same bits
Raises  ValueError, TypeError for shapes, dtypes, devices and gates but these
Source  switch-transformers, deepseek-v3, gating-dropout, megablocks
"""

from __future__ import annotations

import random
from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_E = 1024  # experts that a program holds, a row at a time
BLOCK = 128  # copies that are ranked among each other
TILE = 4096  # numbers of a row that a program moves: 32 a thread
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
NEVER = tl.constexpr(-(2**63))  # below every key
LAST = tl.constexpr(2**31 - 1)
TINY = tl.constexpr(1e-20)  # weights whose sum is smaller are not blown up


# --8<-- [start:keys]
@triton.jit
def key_of(value, col):
    """One integer that orders by value, then by the lower column: ties are decided."""
    bits = (value + 0.0).to(tl.int32, bitcast=True)  # -0.0 + 0.0 is 0.0
    order = tl.where(bits < 0, bits ^ LAST, bits)  # a negative number's bits run down
    order = tl.where(value != value, LAST, order)
    return (order.to(tl.int64) << 32) | (LAST - col).to(tl.int64)


@triton.jit
def take(keys):
    """Of each row the column with the largest key, and the keys without it."""
    best = tl.max(keys, 1)
    col = LAST - (best & LAST).to(tl.int32)
    return col, tl.where(keys == best[:, None], NEVER, keys)


@triton.jit
def columns(E: tl.constexpr, GROUPS: tl.constexpr, G: tl.constexpr, P: tl.constexpr):
    """Experts as G groups of P, both powers of two, and which of them there are."""
    each: tl.constexpr = E // GROUPS
    at = tl.arange(0, G * P)
    return at // P * each + at % P, (at // P < GROUPS) & (at % P < each)


@triton.jit
def scores_of(logits, here, SIGMOID: tl.constexpr):
    if SIGMOID:
        scores = 1 / (1 + tl.exp2(-LOG2E * logits))
    else:
        top = tl.max(tl.where(here, logits, float("-inf")), 1)
        top = tl.where(top == float("-inf"), 0.0, top)  # -inf - -inf would be NaN
        scores = tl.where(here, tl.exp2(LOG2E * (logits - top[:, None])), 0.0)
        total = tl.sum(scores, 1)
        scores /= tl.where(total == 0, 1.0, total)[:, None]
    return tl.where(here, scores, 0.0)
# --8<-- [end:keys]


# --8<-- [start:route]
@triton.jit
def moe_route(experts, weights, sums, logits, bias, logits_stride, bias_stride, t,
              first, past, scale, E: tl.constexpr, K: tl.constexpr, K2: tl.constexpr,
              GROUPS: tl.constexpr, TOP: tl.constexpr, G: tl.constexpr,
              P: tl.constexpr, ROWS: tl.constexpr, SIGMOID: tl.constexpr,
              NORMALISE: tl.constexpr):
    col, exists = columns(E, GROUPS, G, P)
    place = tl.arange(0, K2)[None, :]
    seen = tl.zeros([G * P], tl.float32)
    for block in tl.range(tl.program_id(0), tl.cdiv(t, ROWS), tl.num_programs(0)):
        row = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        here = (row < t)[:, None] & exists[None, :]
        at = row[:, None] * logits_stride[0] + col[None, :] * logits_stride[1]
        given = tl.load(logits + at, mask=here, other=0.0).to(tl.float32)
        scores = scores_of(given, here, SIGMOID)
        seen += tl.sum(scores, 0)
        # A softmax keeps the order of the logits, and does not round two to a tie.
        rated = scores if SIGMOID else given
        if bias is not None:  # moves the choice, not the weight
            rated += tl.load(bias + col * bias_stride, mask=exists, other=0.0)[None, :]
        keys = tl.where((exists & (col >= first) & (col < past))[None, :],
                        key_of(rated, tl.broadcast_to(col[None, :], rated.shape)),
                        NEVER)
        if TOP < GROUPS:  # first the groups, each by the sum of its best two
            cube = tl.where(exists[None, :], rated, float("-inf")).reshape(ROWS, G, P)
            inner = tl.broadcast_to(tl.arange(0, P)[None, None, :], cube.shape)
            ranked = key_of(cube, inner)
            one = ranked == tl.max(ranked, 2)[:, :, None]
            rest = tl.where(one, NEVER, ranked)
            two = rest == tl.max(rest, 2)[:, :, None]
            both = tl.sum(tl.where(one | (two & (rest != NEVER)), cube, 0.0), 2)
            group = tl.broadcast_to(tl.arange(0, G)[None, :], both.shape)
            open_keys = tl.where(group < GROUPS, key_of(both, group), NEVER)
            kept = tl.zeros([ROWS, G], tl.int32)
            for _ in tl.static_range(TOP):
                best, open_keys = take(open_keys)
                kept = tl.where(group == best[:, None], 1, kept)
            kept = tl.broadcast_to(kept[:, :, None], cube.shape).reshape(ROWS, G * P)
            keys = tl.where(kept == 1, keys, NEVER)
        chosen = tl.zeros([ROWS, K2], tl.int32)
        weight = tl.zeros([ROWS, K2], tl.float32)
        for j in tl.static_range(K):
            best, keys = take(keys)
            own = tl.sum(tl.where(col[None, :] == best[:, None], scores, 0.0), 1)
            chosen = tl.where(place == j, best[:, None], chosen)
            weight = tl.where(place == j, own[:, None], weight)
        if NORMALISE:
            weight /= tl.maximum(tl.sum(weight, 1), TINY)[:, None]
        at = row[:, None] * K + place
        live = (row < t)[:, None] & (place < K)
        tl.store(experts + at, chosen, mask=live)
        tl.store(weights + at, weight * scale, mask=live)
    tl.store(sums + tl.program_id(0) * E + col, seen, mask=exists)
# --8<-- [end:route]


# --8<-- [start:routeback]
@triton.jit
def moe_route_backward(dlogits, logits, experts, dweights, dmean, logits_stride, t,
                       scale, E: tl.constexpr, E2: tl.constexpr, K: tl.constexpr,
                       ROWS: tl.constexpr, SIGMOID: tl.constexpr,
                       NORMALISE: tl.constexpr):
    """Scores are computed again; each gets what its weight and the mean ask of it."""
    col = tl.arange(0, E2)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = (row < t)[:, None] & (col < E)[None, :]
    at = row[:, None] * logits_stride[0] + col[None, :] * logits_stride[1]
    given = tl.load(logits + at, mask=here, other=0.0).to(tl.float32)
    scores = scores_of(given, here, SIGMOID)
    slope = tl.zeros([ROWS, E2], tl.float32)
    chosen = tl.zeros([ROWS, E2], tl.int32)
    for j in tl.static_range(K):
        best = tl.load(experts + row * K + j, mask=row < t, other=-1)
        dw = tl.load(dweights + row * K + j, mask=row < t, other=0.0) * scale
        own = col[None, :] == best[:, None]
        slope = tl.where(own, dw[:, None], slope)
        chosen = tl.where(own, 1, chosen)
    if NORMALISE:  # w = s / total: all that were chosen share in the total
        total = tl.sum(tl.where(chosen == 1, scores, 0.0), 1)
        floor = tl.maximum(total, TINY)
        shared = tl.where(total > TINY, tl.sum(slope * scores, 1) / floor, 0.0)
        slope = tl.where(chosen == 1, slope - shared[:, None], 0.0) / floor[:, None]
    slope += (tl.load(dmean + col, mask=col < E, other=0.0) / t)[None, :]
    if SIGMOID:
        slope *= scores * (1 - scores)
    else:
        slope = scores * (slope - tl.sum(slope * scores, 1)[:, None])
    tl.store(dlogits + row[:, None] * E + col[None, :],
             slope.to(dlogits.dtype.element_ty), mask=here)
# --8<-- [end:routeback]


# --8<-- [start:naive]
@triton.jit
def moe_walk(slots, sources, experts, starts, copies, capacity, BLOCK: tl.constexpr):
    """A program for each expert, which walks past all copies: E times the reading."""
    own = tl.program_id(0)
    start = tl.load(starts + own)
    found = 0
    for at in tl.range(0, copies, BLOCK):
        i = at + tl.arange(0, BLOCK)
        mine = tl.load(experts + i, mask=i < copies, other=-1) == own
        rank = found + tl.cumsum(mine.to(tl.int32), 0) - 1
        kept = mine & (rank < capacity)
        tl.store(slots + i, start + rank, mask=kept)
        tl.store(sources + start + rank, i, mask=kept)
        found += tl.sum(mine.to(tl.int32), 0)
# --8<-- [end:naive]


# --8<-- [start:sort]
@triton.jit
def moe_rank(slots, table, experts, copies, e, BLOCK: tl.constexpr):
    """How many copies of the block stand before each with the same expert."""
    at = tl.arange(0, BLOCK)
    i = tl.program_id(0) * BLOCK + at
    own = tl.load(experts + i, mask=i < copies, other=-1)
    same = own[:, None] == own[None, :]
    # Summed down the columns: a lane has one of its own, and asks no other.
    rank = tl.sum((same & (at[:, None] < at[None, :])).to(tl.int32), 0)
    total = tl.sum(same.to(tl.int32), 0)
    tl.store(slots + i, rank, mask=i < copies)
    # The first of each expert says how many the block has: no atomic addition.
    told = (rank == 0) & (own >= 0) & (own < e)
    tl.store(table + tl.program_id(0).to(tl.int64) * e + own, total, mask=told)


@triton.jit
def moe_scan(counts, table, blocks, e, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Of each expert the copies before each block, in place, and all of them."""
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    before = tl.zeros([COLS], tl.int32)
    for first in tl.range(0, blocks, ROWS):
        row = first + tl.arange(0, ROWS)
        at = table + row.to(tl.int64)[:, None] * e + col[None, :]
        here = (row < blocks)[:, None] & (col < e)[None, :]
        found = tl.load(at, mask=here, other=0)
        tl.store(at, tl.cumsum(found, 0) - found + before[None, :], mask=here)
        before += tl.sum(found, 0)
    tl.store(counts + col, before, mask=col < e)


@triton.jit
def moe_place(slots, sources, ends, experts, table, counts, copies, e, capacity, align,
              E2: tl.constexpr, BLOCK: tl.constexpr):
    """Give each copy its slot: its expert's start, the blocks before, its own rank."""
    expert = tl.arange(0, E2)
    kept = tl.load(counts + expert, mask=expert < e, other=0)
    kept = tl.cdiv(tl.minimum(kept, capacity), align) * align
    end = tl.cumsum(kept, 0)
    if tl.program_id(0) == 0:
        tl.store(ends + expert, end, mask=expert < e)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.load(experts + i, mask=i < copies, other=-1)
    exists = (own >= 0) & (own < e)
    start = tl.gather(end - kept, tl.where(exists, own, 0), 0)
    rank = tl.load(slots + i, mask=exists, other=0)
    rank += tl.load(table + tl.program_id(0).to(tl.int64) * e + own, mask=exists,
                    other=0)
    fits = exists & (rank < capacity)
    tl.store(slots + i, tl.where(fits, start + rank, -1), mask=i < copies)
    tl.store(sources + start + rank, i, mask=fits)
# --8<-- [end:sort]


# --8<-- [start:move]
@triton.jit
def moe_permute(y, x, sources, weights, x_stride, s, h, k, ROWS: tl.constexpr,
                COLS: tl.constexpr):
    """Rows of x in the order of slots, weighted if there are weights, 0 in padding."""
    across = tl.cdiv(h, COLS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(0) % across * COLS + tl.arange(0, COLS)[None, :]
    copy = tl.load(sources + row, mask=row < s, other=-1)
    at = (copy // k).to(tl.int64)[:, None] * x_stride[0]
    at += col.to(tl.int64) * x_stride[1]
    value = tl.load(x + at, mask=(copy >= 0)[:, None] & (col < h), other=0.0)
    if weights is not None:
        weight = tl.load(weights + copy, mask=copy >= 0, other=0.0)
        value = (value.to(tl.float32) * weight[:, None]).to(y.dtype.element_ty)
    tl.store(y + row[:, None] * h + col, value, mask=(row < s)[:, None] & (col < h))


@triton.jit
def moe_combine(x, y, slots, weights, y_stride, t, h, K: tl.constexpr,
                ROWS: tl.constexpr, COLS: tl.constexpr):
    """The sum of a token's copies, each by its weight; what was dropped is left out."""
    across = tl.cdiv(h, COLS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(0) % across * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros([ROWS, COLS], tl.float32)
    for j in tl.static_range(K):
        slot = tl.load(slots + row * K + j, mask=row < t, other=-1)
        at = slot.to(tl.int64)[:, None] * y_stride[0] + col.to(tl.int64) * y_stride[1]
        own = tl.load(y + at, mask=(slot >= 0)[:, None] & (col < h), other=0.0)
        own = own.to(tl.float32)
        if weights is not None:
            own *= tl.load(weights + row * K + j, mask=row < t, other=0.0)[:, None]
        total += tl.where((slot >= 0)[:, None], own, 0.0)  # a weight may be infinite
    tl.store(x + row[:, None] * h + col, total.to(x.dtype.element_ty),
             mask=(row < t)[:, None] & (col < h))


@triton.jit
def moe_weigh(dweights, dx, y, slots, dx_stride, y_stride, copies, h, k,
              ROWS: tl.constexpr, COLS: tl.constexpr):
    """Gradient of a weight: what its copy gave, times what the token asks for."""
    copy = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    slot = tl.load(slots + copy, mask=copy < copies, other=-1)
    wanted = dx + (copy // k).to(tl.int64)[:, None] * dx_stride[0]
    given = y + slot.to(tl.int64)[:, None] * y_stride[0]
    total = tl.zeros([ROWS, COLS], tl.float32)
    for first in tl.range(0, h, COLS):
        col = (first + tl.arange(0, COLS)).to(tl.int64)[None, :]
        here = (slot >= 0)[:, None] & (col < h)
        one = tl.load(wanted + col * dx_stride[1], mask=here, other=0.0)
        two = tl.load(given + col * y_stride[1], mask=here, other=0.0)
        total += one.to(tl.float32) * two.to(tl.float32)
    tl.store(dweights + copy, tl.sum(total, 1), mask=copy < copies)
# --8<-- [end:move]


# --8<-- [start:launch]
class Gate(NamedTuple):
    """How logits become a choice and its weights."""

    k: int = 1  # experts for each token
    score: str = "softmax"  # or "sigmoid"
    normalise: bool = False  # weights of a token add up to 1, before the scale
    scale: float = 1.0
    groups: int = 1  # into which the experts are cut
    top_groups: int = 1  # of which a token's experts come
    first: int = 0  # the only experts that may be chosen: from this one
    past: int = MAX_E  # up to before this one


def switch() -> Gate:
    """Of Switch Transformers: the best expert, weighed by its probability."""
    return Gate()


def deepseek_v3(
    k: int = 8, groups: int = 8, top_groups: int = 4, scale: float = 2.5
) -> Gate:
    """Of DeepSeek-V3; its bias is for `route` and decides the choice alone."""
    return Gate(k, "sigmoid", True, scale, groups, top_groups)


def programs_at_most(device: torch.device) -> int:
    """Programs that a GPU runs at a time, each of which adds up its own scores."""
    if device.type != "cuda":
        return 3
    return 8 * torch.cuda.get_device_properties(device).multi_processor_count


def choose(
    logits: torch.Tensor, bias: torch.Tensor | None, gate: Gate
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """experts, weights and the mean of the scores."""
    check_gate(logits, bias, gate)
    (t, e), k = logits.shape, gate.k
    experts = torch.empty((t, k), dtype=torch.int32, device=logits.device)
    weights = torch.empty((t, k), dtype=torch.float32, device=logits.device)
    if t == 0:
        return experts, weights, torch.zeros(e, device=logits.device)
    g = triton.next_power_of_2(gate.groups)
    p = triton.next_power_of_2(e // gate.groups)
    rows = min(max(1024 // (g * p), 1), triton.next_power_of_2(t))
    programs = min(triton.cdiv(t, rows), programs_at_most(logits.device))
    sums = torch.empty((programs, e), dtype=torch.float32, device=logits.device)
    with torch.cuda.device_of(logits):
        moe_route[(programs,)](
            experts, weights, sums, logits, bias, logits.stride(),
            None if bias is None else bias.stride(0), t, gate.first,
            min(gate.past, e), float(gate.scale), E=e, K=k,
            K2=triton.next_power_of_2(k), GROUPS=gate.groups, TOP=gate.top_groups,
            G=g, P=p, ROWS=rows, SIGMOID=gate.score == "sigmoid",
            NORMALISE=gate.normalise, num_warps=4,
        )  # fmt: skip
    return experts, weights, sums.sum(0) / t


def choose_backward(
    logits: torch.Tensor,
    experts: torch.Tensor,
    dweights: torch.Tensor,
    dmean: torch.Tensor,
    gate: Gate,
) -> torch.Tensor:
    """dlogits, contiguous."""
    check_rows("logits", logits)
    t, e = logits.shape
    due = {"experts": (t, gate.k), "dweights": (t, gate.k), "dmean": (e,)}
    check_beside(logits, due, experts, dweights, dmean)
    dlogits = torch.empty((t, e), dtype=logits.dtype, device=logits.device)
    if t:
        e2 = triton.next_power_of_2(e)
        rows = min(max(1024 // e2, 1), triton.next_power_of_2(t))
        with torch.cuda.device_of(logits):
            moe_route_backward[(triton.cdiv(t, rows),)](
                dlogits, logits, experts.contiguous(), dweights.float().contiguous(),
                dmean.float().contiguous(), logits.stride(), t, float(gate.scale),
                E=e, E2=e2, K=gate.k, ROWS=rows, SIGMOID=gate.score == "sigmoid",
                NORMALISE=gate.normalise, num_warps=4,
            )  # fmt: skip
    return dlogits


class Arranged(NamedTuple):
    """Where copies went: copy t K + j is the choice j of token t."""

    slots: torch.Tensor  # (T, K): the row of each copy; -1 if it was dropped
    sources: torch.Tensor  # (S,): the copy of each row; -1 in padding
    counts: torch.Tensor  # (E,): copies that chose an expert, the dropped too
    ends: torch.Tensor  # (E,): the row after each expert's last, as a product wants


def room(copies: int, e: int, capacity: int | None, align: int) -> int:
    """Rows that suffice however the tokens choose: no word from the GPU is awaited."""
    most = copies if capacity is None else min(copies, e * capacity)
    return most + e * (align - 1)


def sorted_by(
    experts: torch.Tensor,
    e: int,
    capacity: int | None = None,
    align: int = 1,
    how: str = "blocks",
) -> Arranged:
    """Copies by expert, in the order of tokens; `how` is "blocks" or "naive".

    An expert takes its first `capacity` copies; its rows are filled up to a multiple
    of `align`. A choice that is no expert, such as -1, is dropped.
    """
    check_sort(experts, e, capacity, align)
    experts = experts.contiguous()
    copies, device = experts.numel(), experts.device
    limit = LAST.value if capacity is None else min(capacity, LAST.value)

    def new(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int32, device=device)

    sources = new(room(copies, e, capacity, align)).fill_(-1)
    if copies == 0:
        return Arranged(new(*experts.shape), sources, new(e).zero_(), new(e).zero_())
    slots, blocks = new(*experts.shape), triton.cdiv(copies, BLOCK)
    with torch.cuda.device_of(experts):
        if how == "naive":
            valid = experts[(experts >= 0) & (experts < e)]
            counts = torch.bincount(valid, minlength=e).int()
            filled = (counts.clamp(max=limit) + align - 1) // align * align
            ends = filled.cumsum(0).int()
            moe_walk[(e,)](
                slots.fill_(-1), sources, experts, ends - filled, copies, limit,
                BLOCK=1024,
            )  # fmt: skip
            return Arranged(slots, sources, counts, ends)
        table, counts, ends = new(blocks, e).zero_(), new(e), new(e)
        moe_rank[(blocks,)](slots, table, experts, copies, e, BLOCK=BLOCK)
        moe_scan[(triton.cdiv(e, 32),)](counts, table, blocks, e, ROWS=64, COLS=32)
        moe_place[(blocks,)](
            slots, sources, ends, experts, table, counts, copies, e, limit, align,
            E2=triton.next_power_of_2(e), BLOCK=BLOCK,
        )  # fmt: skip
    return Arranged(slots, sources, counts, ends)


def tiles(rows: int, h: int) -> tuple[int, int]:
    """Rows and columns of a program's tile of TILE numbers."""
    cols = min(TILE // 4, triton.next_power_of_2(h))
    return min(TILE // cols, triton.next_power_of_2(rows)), cols


def gathered(
    x: torch.Tensor, sources: torch.Tensor, k: int, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """x (T, H) -> (S, H) by slot, each by the weight of its copy."""
    check_rows("x", x)
    s, (t, h) = sources.numel(), x.shape
    check_beside(x, {"sources": (s,), "weights": (t, k)}, sources, weights)
    if k < 1:
        raise ValueError(f"moe_routing: k = {k} copies of a token; give 1 or more")
    y = torch.empty((s, h), dtype=x.dtype, device=x.device)
    if y.numel():
        rows, cols = tiles(s, h)
        weights = None if weights is None else weights.float().contiguous()
        with torch.cuda.device_of(x):
            moe_permute[(triton.cdiv(s, rows) * triton.cdiv(h, cols),)](
                y, x, sources.contiguous(), weights, x.stride(), s, h, k, ROWS=rows,
                COLS=cols,
            )  # fmt: skip
    return y


def summed(
    y: torch.Tensor, slots: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """y (S, H) -> (T, H), the weighted sum of each token's copies."""
    check_rows("y", y)
    (t, k), h = (1, *slots.shape)[-2:], y.shape[1]
    check_beside(y, {"slots": (t, k), "weights": (t, k)}, slots, weights)
    x = torch.empty((t, h), dtype=y.dtype, device=y.device)
    if x.numel():
        rows, cols = tiles(t, h)
        weights = None if weights is None else weights.float().contiguous()
        with torch.cuda.device_of(y):
            moe_combine[(triton.cdiv(t, rows) * triton.cdiv(h, cols),)](
                x, y, slots.contiguous(), weights, y.stride(), t, h, K=k, ROWS=rows,
                COLS=cols,
            )  # fmt: skip
    return x


def weighed(dx: torch.Tensor, y: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Gradient of the weights (T, K), float32."""
    check_rows("y", y)
    (t, k), h = (1, *slots.shape)[-2:], y.shape[1]
    check_beside(y, {"dx": (t, h), "slots": (t, k)}, dx, slots)
    dweights = torch.empty((t, k), dtype=torch.float32, device=y.device)
    if t * k:
        rows, cols = tiles(t * k, h) if h else (1, 1)
        with torch.cuda.device_of(y):
            moe_weigh[(triton.cdiv(t * k, rows),)](
                dweights, dx, y, slots.contiguous(), dx.stride(), y.stride(), t * k, h,
                k, ROWS=rows, COLS=cols,
            )  # fmt: skip
    return dweights
# --8<-- [end:launch]


def check_place(name: str, x: torch.Tensor) -> None:
    """See that a kernel can read x."""
    if x.is_meta or x.device.type == "cpu" and torch.cuda.is_available():
        raise TypeError(f"moe_routing: {name} is on {x.device}; move it to the GPU")


def check_beside(x: torch.Tensor, due: dict[str, tuple], *given) -> None:
    """See that what is given beside x has its due shape, on one device, or is None."""
    for (name, shape), one in zip(due.items(), given, strict=True):
        if one is None:
            continue
        whole = name in ("experts", "slots", "sources")
        told = one.shape, one.device, one.is_floating_point()
        if told != (shape, x.device, not whole):
            raise ValueError(
                f"moe_routing: {name} is {tuple(one.shape)} of {one.dtype} on "
                f"{one.device}; give {shape} of {'int32' if whole else 'float32'} on "
                f"{x.device}"
            )


def check_rows(name: str, x: torch.Tensor) -> None:
    """See that rows to move are a matrix of a known dtype."""
    if x.dtype not in DTYPES:
        raise TypeError(
            f"moe_routing: {name} is {x.dtype}, none of float32, float16, bfloat16; "
            "convert it first"
        )
    if x.ndim != 2:
        raise ValueError(f"moe_routing: {name} has {x.ndim} dimensions; give it 2")
    check_place(name, x)


def check_gate(logits: torch.Tensor, bias: torch.Tensor | None, gate: Gate) -> None:
    """See that a gate can choose among the experts.

    Raises:
        TypeError: a dtype or device is another than it takes.
        ValueError: shapes do not fit, or too few experts may be chosen.
    """
    check_rows("logits", logits)
    e = logits.shape[1]
    if not 0 < e <= MAX_E:
        raise ValueError(f"moe_routing: {e} experts; give it 1 to {MAX_E}")
    if gate.score not in ("softmax", "sigmoid"):
        raise ValueError(
            f"moe_routing: score {gate.score!r}; give 'softmax' or 'sigmoid'"
        )
    if gate.groups < 1 or e % gate.groups or not 0 < gate.top_groups <= gate.groups:
        raise ValueError(
            f"moe_routing: {gate.top_groups} of {gate.groups} groups of {e} experts; "
            "cut them into equal groups and take some"
        )
    local = gate.first > 0 or gate.past < e
    if local and gate.top_groups < gate.groups:
        raise ValueError(
            f"moe_routing: experts {gate.first} to {gate.past} of {gate.groups} groups;"
            " take all groups where tokens stay local"
        )
    some = min(gate.past, e) - max(gate.first, 0)
    some = min(some, gate.top_groups * (e // gate.groups))
    if not 0 < gate.k <= some:
        raise ValueError(
            f"moe_routing: k = {gate.k} of {some} experts that may be chosen; "
            f"give 1 to {some}"
        )
    if bias is not None and bias.dtype != torch.float32:
        raise TypeError(f"moe_routing: bias is {bias.dtype}; give float32")
    check_beside(logits, {"bias": (e,)}, bias)


def check_sort(experts: torch.Tensor, e: int, capacity: int | None, align: int) -> None:
    """See that choices can be sorted."""
    if experts.dtype != torch.int32:
        raise TypeError(f"moe_routing: experts is {experts.dtype}; give int32")
    check_place("experts", experts)
    if experts.ndim != 2:
        raise ValueError(
            f"moe_routing: experts has {experts.ndim} dimensions; give it 2"
        )
    if not 0 < e <= MAX_E:
        raise ValueError(f"moe_routing: {e} experts; give it 1 to {MAX_E}")
    if capacity is not None and capacity < 0 or align < 1:
        raise ValueError(
            f"moe_routing: capacity {capacity}, align {align}; give 0 or more, and 1 "
            "or more"
        )
    if room(experts.numel(), e, capacity, align) >= 2**31 - BLOCK:
        raise ValueError(
            f"moe_routing: {experts.numel()} copies of tokens, with align {align}, "
            "pass 2**31 slots; split the batch"
        )


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::moe_route", mutates_args=())
def route_operator(
    logits: torch.Tensor, bias: torch.Tensor | None, k: int, score: str,
    normalise: bool, scale: float, groups: int, top_groups: int, first: int, past: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gate = Gate(k, score, normalise, scale, groups, top_groups, first, past)
    return choose(logits, bias, gate)


@torch.library.custom_op("warpshelf::moe_route_backward", mutates_args=())
def route_gradient(
    logits: torch.Tensor, experts: torch.Tensor, dweights: torch.Tensor,
    dmean: torch.Tensor, k: int, score: str, normalise: bool, scale: float,
) -> torch.Tensor:
    gate = Gate(k, score, normalise, scale)
    return choose_backward(logits, experts, dweights, dmean, gate)


@torch.library.custom_op("warpshelf::moe_arrange", mutates_args=())
def arrange_operator(
    experts: torch.Tensor, e: int, capacity: int | None, align: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(sorted_by(experts, e, capacity, align))


@torch.library.custom_op("warpshelf::moe_permute", mutates_args=())
def permute_operator(
    x: torch.Tensor, weights: torch.Tensor | None, slots: torch.Tensor,
    sources: torch.Tensor,
) -> torch.Tensor:
    return gathered(x, sources, slots.shape[1], weights)


@torch.library.custom_op("warpshelf::moe_combine", mutates_args=())
def combine_operator(
    y: torch.Tensor, weights: torch.Tensor | None, slots: torch.Tensor,
    sources: torch.Tensor,
) -> torch.Tensor:
    return summed(y, slots, weights)


@torch.library.custom_op("warpshelf::moe_weigh", mutates_args=())
def weigh_operator(
    dx: torch.Tensor, y: torch.Tensor, slots: torch.Tensor
) -> torch.Tensor:
    return weighed(dx, y, slots)


@route_operator.register_fake
def _(logits, bias, k, *rest):
    chosen = logits.new_empty((logits.shape[0], k), dtype=torch.int32)
    weights = chosen.new_empty(chosen.shape, dtype=torch.float32)
    return chosen, weights, weights.new_empty(logits.shape[1])


@route_gradient.register_fake
def _(logits, *rest):
    return logits.new_empty(logits.shape)


@arrange_operator.register_fake
def _(experts, e, capacity, align):
    rows = room(experts.numel(), e, capacity, align)
    new = experts.new_empty
    return new(experts.shape), new(rows), new(e), new(e)


@permute_operator.register_fake
def _(x, weights, slots, sources):
    return x.new_empty((sources.shape[0], x.shape[1]))


@combine_operator.register_fake
def _(y, weights, slots, sources):
    return y.new_empty((slots.shape[0], y.shape[1]))


@weigh_operator.register_fake
def _(dx, y, slots):
    return y.new_empty(slots.shape, dtype=torch.float32)


def remember_route(ctx, inputs, output) -> None:
    ctx.gate = inputs[2:6]
    ctx.mark_non_differentiable(output[0])
    ctx.save_for_backward(inputs[0], output[0])


def route_backward(ctx, _, dweights, dmean):
    dlogits = route_gradient(*ctx.saved_tensors, dweights, dmean, *ctx.gate)
    return dlogits, *(None,) * 9


def remember(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def permute_backward(ctx, dy):
    x, weights, slots, sources = ctx.saved_tensors
    dx = combine_operator(dy, weights, slots, sources)
    dweights = None
    if ctx.needs_input_grad[1]:
        dweights = weigh_operator(x, dy, slots)
    return dx, dweights, None, None


def combine_backward(ctx, dx):
    y, weights, slots, sources = ctx.saved_tensors
    dy = permute_operator(dx, weights, slots, sources)
    dweights = None
    if ctx.needs_input_grad[1]:
        dweights = weigh_operator(dx, y, slots)
    return dy, dweights, None, None


route_operator.register_autograd(route_backward, setup_context=remember_route)
permute_operator.register_autograd(permute_backward, setup_context=remember)
combine_operator.register_autograd(combine_backward, setup_context=remember)


def route(
    logits: torch.Tensor, gate: Gate, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """experts (T, K), weights (T, K), mean (E,) of all scores; the last two with
    gradients of the logits."""
    check_gate(logits, bias, gate)
    return route_operator(logits, bias, *gate)


def arrange(
    experts: torch.Tensor, e: int, capacity: int | None = None, align: int = 1
) -> Arranged:
    """Copies sorted by expert; `align` is that of the product that follows."""
    check_sort(experts, e, capacity, align)
    return Arranged(*arrange_operator(experts, e, capacity, align))


def permute(x: torch.Tensor, to: Arranged) -> torch.Tensor:
    """Tokens (T, H) -> rows (S, H) by expert, with a gradient."""
    return permute_operator(x, None, to.slots, to.sources)


def combine(y: torch.Tensor, weights: torch.Tensor, to: Arranged) -> torch.Tensor:
    """Rows (S, H) -> tokens (T, H), the weighted sum, with gradients of both."""
    return combine_operator(y, weights, to.slots, to.sources)
# --8<-- [end:operator]


# --8<-- [start:balance]
def balance_loss(counts: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Of Switch: E times the sum of share times mean probability; 1 if all are even."""
    return mean.shape[0] * (counts / counts.sum().clamp(min=1) * mean).sum()


def rebalanced(
    bias: torch.Tensor, counts: torch.Tensor, rate: float = 0.001
) -> torch.Tensor:
    """Of DeepSeek-V3: a step up for experts below the mean load, down for those above.

    Compared as integers: an expert at the mean stays where it is.
    """
    return bias + rate * torch.sign(counts.sum() - counts.long() * counts.shape[0])


def stays_local(step: int, probability: float, seed: int = 0) -> bool:
    """Of Gating Dropout: whether tokens stay on their own rank's experts in this step.

    Drawn from step and seed alone, so all ranks agree and none waits in an exchange.
    """
    return random.Random(f"{seed}:{step}").random() < probability


def local(gate: Gate, rank: int, ranks: int, e: int) -> Gate:
    """The gate with this rank's experts alone: what it chooses needs no exchange."""
    if ranks < 1 or e % ranks or not 0 <= rank < ranks:
        raise ValueError(
            f"moe_routing: rank {rank} of {ranks} with {e} experts; give each as many"
        )
    own = e // ranks
    few = {"first": rank * own, "past": rank * own + own, "k": min(gate.k, own)}
    return gate._replace(groups=1, top_groups=1, **few)
# --8<-- [end:balance]


def demo(device: str) -> None:
    """Ties, capacity, a round trip, a bias that balances, and a local step."""
    logits = torch.tensor([[1.0, 2, 2, 0], [0, 2, 2, 2], [0, 0, 0, 0], [0, 3, 1, 2]])
    logits = logits.to(device)
    experts, _, mean = route(logits, Gate(k=2))
    print("two of four experts:", experts.tolist())
    to = arrange(experts, 4, capacity=3, align=2)
    print("slots, the dropped -1:", to.slots.tolist())
    print("counts:", to.counts.tolist(), "ends:", to.ends.tolist())
    print(f"auxiliary loss: {balance_loss(to.counts, mean).item():.4f}")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 72, generator=generator).to(device)
    logits = torch.randn(100, 32, generator=generator).to(device)
    gate = deepseek_v3(k=4, groups=4, top_groups=2)
    bias = torch.zeros(32, device=device)
    spread = []
    for step in range(101):
        experts, weights, _ = route(logits, gate, bias)
        to = arrange(experts, 32)
        if step % 50 == 0:
            spread.append(int(to.counts.max()))
        bias = rebalanced(bias, to.counts, rate=0.002)
    back = combine(permute(x, to), weights / gate.scale, to)
    print("round trip:", bool((back - x).abs().max() < 1e-5))
    print("busiest of 32 experts after 0, 50 and 100 steps of the bias:", spread)
    steps = [step for step in range(20) if stays_local(step, 0.3)]
    experts, _, _ = route(logits, local(switch(), 1, 4, 32))
    print("local steps of 20:", steps)
    print("experts of rank 1 then:", sorted(set(experts.flatten().tolist())))


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
