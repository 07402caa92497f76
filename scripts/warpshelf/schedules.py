"""Schedules: in which order the ranks of a pipeline take their passes.

`p` ranks, `m` micro-batches; the published schedules from GPipe to DualPipe. `passes` gives them
their times, and `timelines` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warpshelf.passes import Costs, Job, Kind, Schedule, timed

Slot = tuple[Job, ...]
Path = list[tuple[int, int]]  # ranks and chunks


@dataclass
class _Order:
    """The passes of one rank, written down in order; a chunk takes its micro-batches in turn."""

    turns: Sequence[Sequence[int]]  # per chunk
    slots: list[Slot] = field(default_factory=list)
    forwards: list[int] = field(init=False)
    backwards: list[int] = field(init=False)
    put_off: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forwards, self.backwards = [0] * len(self.turns), [0] * len(self.turns)

    def _forward(self, chunk: int) -> Job:
        self.forwards[chunk] += 1
        return Job(Kind.FORWARD, self.turns[chunk][self.forwards[chunk] - 1], chunk)

    def _backward(self, chunk: int, split: bool) -> Job:
        self.backwards[chunk] += 1
        micro_batch = self.turns[chunk][self.backwards[chunk] - 1]
        if split:
            self.put_off.append(Job(Kind.WEIGHT, micro_batch, chunk))
        return Job(Kind.INPUT if split else Kind.BACKWARD, micro_batch, chunk)

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


def gpipe(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """All forward passes, then all backward passes.

    Raises ValueError for fewer than one rank or micro-batch, as all schedules here do.
    """
    _positive(p=p, m=m)
    order = [(Job(Kind.FORWARD, j),) for j in range(m)]
    order += [(Job(Kind.BACKWARD, j),) for j in range(m)]
    return timed("GPipe", [order] * p, _chain(p, m), costs)


def one_f_one_b(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """One forward, one backward, after as many forward passes as there are ranks to come."""
    _positive(p=p, m=m)
    orders = []
    for rank in range(p):
        order = _Order([range(m)])
        ahead = min(p - 1 - rank, m)
        for _ in range(ahead):
            order.forward()
        for _ in range(m - ahead):
            order.forward()
            order.backward()
        for _ in range(ahead):
            order.backward()
        orders.append(order.slots)
    return timed("1F1B", orders, _chain(p, m), costs)


def interleaved(p: int, m: int, v: int = 2, costs: Costs | None = None) -> Schedule:
    """1F1B with `v` chunks a rank: chunk `c` of rank `r` is slice `c * p + r` of the model.

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
    forwards = [(Job(Kind.FORWARD, j, chunk),) for j, chunk in turns]
    backwards = [(Job(Kind.BACKWARD, j, v - 1 - chunk),) for j, chunk in turns]
    orders = []
    for rank in range(p):
        ahead = min(2 * (p - 1 - rank) + (v - 1) * p, m * v)
        order = forwards[:ahead]
        for pair in zip(forwards[ahead:], backwards, strict=False):
            order += pair
        orders.append(order + backwards[m * v - ahead :])
    paths = [[(rank, chunk) for chunk in range(v) for rank in range(p)]] * m
    return timed(f"Interleaved 1F1B, {v} chunks", orders, paths, costs, v)


def zero_bubble(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """ZB-H1: 1F1B whose weight passes are put off by as many micro-batches as the rank's number.

    So every rank holds `p` micro-batches, as the first one does in 1F1B, and none holds more.
    """
    _positive(p=p, m=m)
    orders = []
    for rank in range(p):
        order = _Order([range(m)])
        ahead = min(p - 1 - rank, m)
        for _ in range(ahead):
            order.forward()
        for j in range(m):
            if j < m - ahead:
                order.forward()
            order.backward(split=True)
            if j >= rank:
                order.weight()
        while order.put_off:
            order.weight()
        orders.append(order.slots)
    return timed("Zero bubble, ZB-H1", orders, _chain(p, m), costs)


def dualpipe(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """DualPipe: even micro-batches enter at rank 0, odd ones at the last rank.

    A rank holds two stages: chunk 0 for the way down, chunk 1 for the way up. An overlapped pair
    takes as long as its two passes. Raises ValueError unless `p` and `m` are even and m >= 2 p.
    """
    _positive(p=p, m=m)
    _need(p % 2 == 0, f"p = {p} must be even")
    _need(m >= 2 * p and m % 2 == 0, f"m = {m} must be even and {2 * p} or more")
    ways = [(rank, 0) for rank in range(p)], [(rank, 1) for rank in reversed(range(p))]
    orders = _from_both_ends(p, [range(0, m, 2), range(1, m, 2)])
    return timed("DualPipe", orders, [ways[j % 2] for j in range(m)], costs)


def dualpipe_v(p: int, m: int, costs: Costs | None = None) -> Schedule:
    """DualPipe cut in half: one copy of the parameters, each micro-batch goes down and up again.

    Rank `r` holds slices `r` and `2 p - 1 - r` of the model, which `costs` are those of. Raises
    ValueError unless m >= 2 p.
    """
    _positive(p=p, m=m)
    _need(m >= 2 * p, f"m = {m} must be {2 * p} or more")
    path = [(rank, 0) for rank in range(p)] + [(rank, 1) for rank in reversed(range(p))]
    # The other half of twice the ranks would do the same, mirrored, with the two ways exchanged.
    orders = _from_both_ends(2 * p, [range(m), range(m)])[:p]
    return timed("DualPipeV", orders, [path] * m, costs, 2)


def _from_both_ends(p: int, turns: Sequence[Sequence[int]]) -> list[list[Slot]]:
    """The orders of DualPipe; `turns` are the micro-batches of the way down and of the way up."""
    orders = []
    for rank in range(p):
        edge = min(rank, p - 1 - rank)  # 0 at both ends
        inner = p // 2 - 1 - edge  # 0 for the two ranks in the middle
        near, far = (0, 1) if rank < p // 2 else (1, 0)  # the chunk whose input is nearer, other
        order = _Order(turns)
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
                # The two in the middle start them one by one, so that their neighbours wait less.
                order.forward(near)
                order.backward(far)
            else:
                order.overlap(near, far)
            order.overlap(far, near)
        for _ in range(inner):
            order.backward(far)
            order.overlap(far, near)
        for turn in range(2 * (edge + 1)):  # the last edge + 1 of them without their weight pass
            order.backward((far, near)[turn % 2], split=turn > edge)
        for _ in range(inner):
            order.weight()
            order.backward(near, split=True)
        while order.put_off:
            order.weight()
        orders.append(order.slots)
    return orders


def _need(good: bool, what: str) -> None:
    if not good:
        raise ValueError(what)


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        _need(number >= 1, f"{name} = {number} must be 1 or more")


def _chain(p: int, m: int) -> list[Path]:
    return [[(rank, 0) for rank in range(p)]] * m
