"""Pipeline schedules: idle time and memory follow from the order of the ranks' passes.

Bytes   activations of a stage, in micro-batches: held from the start of the forward
        pass to the end of the last gradient. At most: GPipe m, 1F1B p, interleaved
        p + (p - 1) / v, ZB-H1 p, ZB-H2 2 p - 1, ZB-V p, DualPipe p + 1, DualPipeV
        p + 1 / 2
Error   exact: whole numbers of the reader's unit of time. Messages take no time, all
        stages are alike, and an overlapped pair takes as long as its two passes. With
        any times and with messages, in clock.py: the errors of its predictions
Raises  ValueError for sizes that a schedule is not made for, and for an order in which
        ranks wait for each other
Source  gpipe, pipedream, megatron-interleaved-1f1b, reducing-activation-recomputation,
        zero-bubble, deepseek-v3, dualpipe, dualpipe-without-the-dual
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from snippets.pipeline_schedules.schedule import (
    Costs,
    Kind,
    Path,
    Schedule,
    Slot,
    Task,
    timed,
)


@dataclass
class Order:
    """The slots of a rank as they are written down; a chunk's micro-batches in turn."""

    turns: Sequence[Sequence[int]]  # per chunk
    slots: list[Slot] = field(default_factory=list)
    forwards: list[int] = field(init=False)
    backwards: list[int] = field(init=False)
    put_off: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forwards, self.backwards = [0] * len(self.turns), [0] * len(self.turns)

    def _forward(self, chunk: int) -> Task:
        self.forwards[chunk] += 1
        return Task(Kind.FORWARD, self.turns[chunk][self.forwards[chunk] - 1], chunk)

    def _backward(self, chunk: int, split: bool) -> Task:
        self.backwards[chunk] += 1
        micro_batch = self.turns[chunk][self.backwards[chunk] - 1]
        if split:
            self.put_off.append(Task(Kind.WEIGHT, micro_batch, chunk))
        return Task(Kind.INPUT if split else Kind.BACKWARD, micro_batch, chunk)

    def forward(self, chunk: int = 0) -> None:
        self.slots.append((self._forward(chunk),))

    def backward(self, chunk: int = 0, *, split: bool = False) -> None:
        """A whole backward pass, or its first half, with the second put off."""
        self.slots.append((self._backward(chunk, split),))

    def weight(self) -> None:
        """The weight pass that has been put off for longest."""
        self.slots.append((self.put_off.pop(0),))

    def overlap(self, forward: int, backward: int) -> None:
        """A forward pass of one chunk laid over a whole backward pass of the other."""
        self.slots.append((self._forward(forward), self._backward(backward, False)))


# --8<-- [start:gpipe]
def gpipe(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """All forward passes, then all backward passes."""
    _positive(p=p, m=m)
    order = [(Task(Kind.FORWARD, j),) for j in range(m)]
    order += [(Task(Kind.BACKWARD, j),) for j in range(m)]
    return timed("GPipe", [order] * p, _chain(p, m), costs)


# --8<-- [end:gpipe]


def _begun(m: int, ahead: int) -> Order:
    """The order of a rank that starts with `ahead` forward passes."""
    order = Order([range(m)])
    for _ in range(ahead):
        order.forward()
    return order


# --8<-- [start:one_f_one_b]
def one_f_one_b(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """One forward, one backward, after as many forwards as there are ranks to come."""
    _positive(p=p, m=m)
    orders = []
    for rank in range(p):
        ahead = min(p - 1 - rank, m)
        order = _begun(m, ahead)
        for _ in range(m - ahead):
            order.forward()
            order.backward()
        for _ in range(ahead):
            order.backward()
        orders.append(order.slots)
    return timed("1F1B", orders, _chain(p, m), costs)


# --8<-- [end:one_f_one_b]


# --8<-- [start:interleaved]
def interleaved(p: int, m: int, v: int = 2, costs: Costs | None = None) -> Schedule:
    """1F1B with `v` chunks a rank: chunk `c` of rank `r` is slice `c * p + r`.

    `costs` are those of one chunk. Raises ValueError unless `p` divides `m`.
    """
    _positive(p=p, m=m, v=v)
    _need(m % p == 0, f"m = {m} must be a multiple of p = {p}")
    # Groups of p micro-batches go through one chunk after the other.
    turns = [
        (group * p + member, chunk)
        for group in range(m // p)
        for chunk in range(v)
        for member in range(p)
    ]
    forwards = [(Task(Kind.FORWARD, j, chunk),) for j, chunk in turns]
    backwards = [(Task(Kind.BACKWARD, j, v - 1 - chunk),) for j, chunk in turns]
    orders = []
    for rank in range(p):
        ahead = min(2 * (p - 1 - rank) + (v - 1) * p, m * v)
        order = forwards[:ahead]
        for pair in zip(forwards[ahead:], backwards, strict=False):
            order += pair
        orders.append(order + backwards[m * v - ahead :])
    paths = [[(rank, chunk) for chunk in range(v) for rank in range(p)]] * m
    return timed(f"Interleaved 1F1B, {v} chunks", orders, paths, costs, v)


# --8<-- [end:interleaved]


# --8<-- [start:zero_bubble]
def zero_bubble_h1(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """1F1B whose rank `i` puts off its weight passes by `i` micro-batches.

    So every rank holds `p` micro-batches, as rank 0 does in 1F1B.
    """
    return _zero_bubble("Zero bubble, ZB-H1", 1, p, m, costs)


def zero_bubble_h2(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """Twice the head start and twice the delay of ZB-H1: 2 p - 1 micro-batches held.

    A rank ends later than the one before it, by as much as it started later.
    """
    return _zero_bubble("Zero bubble, ZB-H2", 2, p, m, costs)


def _zero_bubble(
    name: str, reach: int, p: int, m: int, costs: Costs | None
) -> Schedule:
    _positive(p=p, m=m)
    orders = []
    for rank in range(p):
        ahead = min(reach * (p - 1 - rank), m)
        order = _begun(m, ahead)
        for j in range(m):
            if j < m - ahead:
                order.forward()
            order.backward(split=True)
            if j >= reach * rank:
                order.weight()
        while order.put_off:
            order.weight()
        orders.append(order.slots)
    return timed(name, orders, _chain(p, m), costs)


def zero_bubble_v(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """Down and up again, as in a V: no bubble, and as many activations as 1F1B.

    Rank `r` holds slices `r` and `2 p - 1 - r` of the model, which `costs` are those
    of. It wants passes that all take the same time. Raises ValueError unless m >= 2 p.
    """
    _positive(p=p, m=m)
    _need(m >= 2 * p, f"m = {m} must be {2 * p} or more")
    path = [(rank, 0) for rank in range(p)] + [(rank, 1) for rank in reversed(range(p))]
    orders = []
    for rank in range(p):
        order = Order([range(m), range(m)])
        for _ in range(2 * (p - rank) - 1):  # until the first is back, on its way up
            order.forward(0)
        for _ in range(rank):
            order.forward(1)
            order.forward(0)
        for turn in range(m - rank):
            if turn >= p - rank:
                if order.forwards[0] < m:
                    order.forward(0)
                order.backward(0, split=True)
                order.weight()
            order.forward(1)
            order.backward(1, split=True)
            order.weight()
        for _ in range(rank):  # others wait for these
            order.backward(0, split=True)
            order.backward(1, split=True)
        while order.backwards[0] < m:
            order.backward(0, split=True)
            order.weight()
        while order.put_off:
            order.weight()
        orders.append(order.slots)
    return timed("Zero bubble, ZB-V", orders, [path] * m, costs, 2)


# --8<-- [end:zero_bubble]


# --8<-- [start:dualpipe]
def dualpipe(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """Even micro-batches enter at rank 0, odd ones at the last rank.

    A rank holds two stages: chunk 0 for the way down, chunk 1 for the way up. Raises
    ValueError unless `p` and `m` are even and m >= 2 p.
    """
    _positive(p=p, m=m)
    _need(p % 2 == 0, f"p = {p} must be even")
    _need(m >= 2 * p and m % 2 == 0, f"m = {m} must be even and {2 * p} or more")
    ways = [(rank, 0) for rank in range(p)], [(rank, 1) for rank in reversed(range(p))]
    orders = _from_both_ends(p, [range(0, m, 2), range(1, m, 2)])
    return timed("DualPipe", orders, [ways[j % 2] for j in range(m)], costs)


def dualpipe_v(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """DualPipe cut in half: each micro-batch goes down and up again.

    Rank `r` holds slices `r` and `2 p - 1 - r` of the model, which `costs` are those
    of: one copy of the parameters. Raises ValueError unless m >= 2 p.
    """
    _positive(p=p, m=m)
    _need(m >= 2 * p, f"m = {m} must be {2 * p} or more")
    path = [(rank, 0) for rank in range(p)] + [(rank, 1) for rank in reversed(range(p))]
    # The other half of twice the ranks would do the same, the two ways exchanged.
    orders = _from_both_ends(2 * p, [range(m), range(m)])[:p]
    return timed("DualPipeV", orders, [path] * m, costs, 2)


def _from_both_ends(p: int, turns: Sequence[Sequence[int]]) -> list[list[Slot]]:
    """The orders of DualPipe; `turns` are the micro-batches of either way."""
    orders = []
    for rank in range(p):
        edge = min(rank, p - 1 - rank)  # 0 at both ends
        inner = p // 2 - 1 - edge  # 0 for the two ranks in the middle
        near, far = (0, 1) if rank < p // 2 else (1, 0)  # by how near its input is
        order = Order(turns)
        for _ in range(2 * inner):
            order.forward(near)
        for _ in range(edge + 1):
            order.forward(near)
            order.forward(far)
        for _ in range(inner):
            order.backward(far, split=True)
            order.weight()
            order.forward(far)
        for turn in range(len(turns[0]) - p + edge + 1):
            if turn == 0 and inner == 0:
                # The two in the middle start them one by one: neighbours wait less.
                order.forward(near)
                order.backward(far)
            else:
                order.overlap(near, far)
            order.overlap(far, near)
        for _ in range(inner):
            order.backward(far)
            order.overlap(far, near)
        for turn in range(2 * (edge + 1)):  # the last edge + 1 without weight pass
            order.backward((far, near)[turn % 2], split=turn > edge)
        for _ in range(inner):
            order.weight()
            order.backward(near, split=True)
        while order.put_off:
            order.weight()
        orders.append(order.slots)
    return orders


# --8<-- [end:dualpipe]


def _need(good: bool, what: str) -> None:
    if not good:
        raise ValueError(f"pipeline_schedules: {what}")


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        _need(number >= 1, f"{name} = {number} must be 1 or more")


def _chain(p: int, m: int) -> list[Path]:
    return [[(rank, 0) for rank in range(p)]] * m


def demo() -> None:
    """Idle time and memory of each schedule, and two of them pass by pass."""
    p, m = 4, 8
    print(f"{p} ranks, {m} micro-batches; F = I = W = 1 through a whole stage")
    print(f"{'':28}{'step':>6}{'bubble':>8}{'held':>6}{'copies':>8}")
    one_copy = (gpipe, one_f_one_b, interleaved, zero_bubble_h1, zero_bubble_h2)
    for build in (*one_copy, zero_bubble_v, dualpipe, dualpipe_v):
        made = build(p, m)
        step, bubble = made.makespan / made.chunks, made.bubble / made.chunks
        print(f"{made.name:28}{step:6g}{bubble:8g}{made.peak:6g}{made.copies:8g}")
    for build in (one_f_one_b, zero_bubble_h2):
        made = build(p, m)
        print(f"\n{made.name}: forward passes 0-7, backward or input a-h, weight '")
        for rank in range(p):
            line = [" "] * made.makespan
            for one in made.of(rank):
                letter = {Kind.FORWARD: "01234567", Kind.WEIGHT: "'" * m}
                cell = letter.get(one.kind, "abcdefgh")[one.micro_batch]
                line[one.start : one.end] = cell * one.length
            print(f"  rank {rank}  {''.join(line).rstrip()}")


if __name__ == "__main__":
    demo()
