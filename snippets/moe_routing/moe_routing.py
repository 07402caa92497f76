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

from snippets.moe_routing.checks import MAX_E, check_place
from snippets.moe_routing.choice import (
    Gate,
    check_gate,
    choose,
    choose_backward,
    deepseek_v3,
    switch,
)
from snippets.moe_routing.move import gathered, summed, weighed

BLOCK = 128  # copies that are ranked among each other
LAST = 2**31 - 1


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


# --8<-- [start:arrange]
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
    limit = LAST if capacity is None else min(capacity, LAST)

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

# --8<-- [end:arrange]


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
