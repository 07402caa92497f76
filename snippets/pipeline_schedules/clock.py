"""A schedule on the clock: what its passes and messages take, and what stays idle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from snippets.pipeline_schedules.schedule import Kind, Pass, Schedule

FIRST, NOBODY = -1, -2  # before a rank's first pass; whom a pass waits for that has all


# --8<-- [start:times]
@dataclass(frozen=True)
class Times:
    """What the passes of one slice of the model take, in a unit of the reader's."""

    forward: float
    input: float
    weight: float

    def __post_init__(self) -> None:
        for name, time in vars(self).items():
            if not 0 <= time < math.inf:
                raise ValueError(
                    f"pipeline_schedules: {name} = {time} is no time; give 0 or more"
                )

    def of(self, kind: Kind) -> float:
        """The time of a pass of `kind`; a whole backward pass is both its halves."""
        if kind is Kind.BACKWARD:
            return self.input + self.weight
        if kind is Kind.FORWARD:
            return self.forward
        return self.input if kind is Kind.INPUT else self.weight

    def times(self, factor: float) -> Times:
        """The same passes, `factor` times as long."""
        return Times(self.forward * factor, self.input * factor, self.weight * factor)

    def plus(self, other: Times) -> Times:
        """These passes and the other's, one after the other."""
        return Times(
            self.forward + other.forward,
            self.input + other.input,
            self.weight + other.weight,
        )


def uneven(layers: Times, slices: int, first: Times, last: Times) -> list[Times]:
    """`slices` alike, but that the first also embeds and the last has the head."""
    found = [layers] * slices
    found[0] = found[0].plus(first)
    found[-1] = found[-1].plus(last)
    return found


# --8<-- [end:times]


# --8<-- [start:longest]
def longest(
    before: Sequence[int],
    needs: Sequence[int],
    waits: Sequence[float],
    lengths: Sequence[float],
) -> list[float]:
    """When operations end: they start once rank and message are there."""
    end = [0.0] * len(lengths) + [-math.inf, 0.0]  # at NOBODY and at FIRST
    rows = zip(before, needs, waits, lengths, strict=True)
    for i, (last, need, wait, length) in enumerate(rows):
        free, here = end[last], end[need] + wait
        end[i] = (free if free > here else here) + length
    return end[:-2]


# --8<-- [end:longest]


# --8<-- [start:table]
class Table:
    """A schedule's operations, each after those that it waits for.

    An operation is a pass, or a pair that overlaps. It starts when the one `before` it
    on its rank is done and what it `needs` from another rank, if anything, has come.
    """

    def __init__(self, made: Schedule) -> None:
        ways: list[list[tuple[int, int]]] = [[] for _ in range(made.micro_batches)]
        for one in made.passes:  # by start: through the slices in turn
            if one.kind is Kind.FORWARD:
                ways[one.micro_batch].append((one.rank, one.chunk))
        at = [{place: i for i, place in enumerate(way)} for way in ways]
        self.made, self.slices = made, len(ways[0])
        self.operations: list[tuple[Pass, ...]] = []
        self.where: list[tuple[int, ...]] = []  # the slice of each of its passes
        self.rank: list[int] = []
        self.before: list[int] = []
        self.needs: list[int] = []
        self.crosses: list[int] = []  # which boundary, between slices i and i + 1
        self.second: list[tuple[int, int, int]] = []  # of a pair: operation, need, cut
        latest = [FIRST] * made.ranks
        maker: dict[tuple[bool, int, int], int] = {}  # forward, micro-batch, slice
        for _, group in groupby(made.passes, key=lambda one: (one.start, one.rank)):
            passes, index = tuple(group), len(self.operations)
            where = [at[one.micro_batch][one.rank, one.chunk] for one in passes]
            needs = []
            for one, slice_ in zip(passes, where, strict=True):
                forward = one.kind is Kind.FORWARD
                source = slice_ - 1 if forward else slice_ + 1
                if one.kind is Kind.WEIGHT or not 0 <= source < self.slices:
                    continue
                if ways[one.micro_batch][source][0] != one.rank:  # else no message
                    cut = min(source, slice_)
                    needs.append((maker[forward, one.micro_batch, source], cut))
            for one, slice_ in zip(passes, where, strict=True):
                if one.kind is not Kind.WEIGHT:
                    maker[one.kind is Kind.FORWARD, one.micro_batch, slice_] = index
            rank = passes[0].rank
            self.operations.append(passes)
            self.where.append(tuple(where))
            self.rank.append(rank)
            self.before.append(latest[rank])
            self.needs.append(needs[0][0] if needs else NOBODY)
            self.crosses.append(needs[0][1] if needs else 0)
            self.second += [(index, *need) for need in needs[1:]]
            latest[rank] = index

    def lengths(self, times: Sequence[Times], pair: float = 1.0) -> list[float]:
        """What each operation computes for; a pair takes `pair` times its passes' sum.

        `times` has one entry for all slices, or one for each.
        """
        if len(times) not in (1, self.slices):
            raise ValueError(
                f"pipeline_schedules: times of {len(times)} slices for a model of "
                f"{self.slices}; give one for all, or one for each"
            )
        each = list(times) * (self.slices if len(times) == 1 else 1)
        known = {
            (s, kind): each[s].of(kind) for s in range(self.slices) for kind in Kind
        }
        found = [
            known[where[0], passes[0].kind]
            for passes, where in zip(self.operations, self.where, strict=True)
        ]
        for i, passes in enumerate(self.operations):
            if len(passes) > 1:
                found[i] = (found[i] + known[self.where[i][1], passes[1].kind]) * pair
        return found

    def ends(
        self, lengths: Sequence[float], waits: Sequence[float], blocks: bool
    ) -> list[float]:
        """When each operation is done: the longest path through the table.

        `waits` is what a message across each boundary takes. It runs beside what its
        ranks compute or, if it `blocks`, once the receiver has nothing else to do.
        """
        crossing = [waits[cut] if waits else 0.0 for cut in self.crosses]
        if self.second:
            return self._pairs(lengths, crossing, waits, blocks)
        if blocks:  # the same as a longer pass, and no way for the message
            lengths = [
                length if need == NOBODY else length + wait
                for length, wait, need in zip(
                    lengths, crossing, self.needs, strict=True
                )
            ]
            crossing = [0.0] * len(lengths)
        return longest(self.before, self.needs, crossing, lengths)

    def _pairs(
        self,
        lengths: Sequence[float],
        crossing: Sequence[float],
        waits: Sequence[float],
        blocks: bool,
    ) -> list[float]:
        """The same where an operation may need two messages, which cross at once."""
        second = {i: (need, waits[cut]) for i, need, cut in self.second}
        end = [0.0] * len(lengths) + [-math.inf, 0.0]  # at NOBODY and at FIRST
        rows = zip(self.before, self.needs, crossing, lengths, strict=True)
        for i, (before, need, wait, length) in enumerate(rows):
            free = start = end[before]
            needs = [(need, wait), second[i]] if i in second else [(need, wait)]
            for source, takes in needs:
                if source != NOBODY:
                    since = max(free, end[source]) if blocks else end[source]
                    start = max(start, since + takes)
            end[i] = start + length
        return end[:-2]


# --8<-- [end:table]


# --8<-- [start:run]
@dataclass(frozen=True)
class Run:
    """A step as it went: what was computed, when it ended, and what was held."""

    table: Table
    lengths: Sequence[float]
    ends: Sequence[float]
    kept: float  # the share of a slice's activations that waits for its weight pass

    @property
    def makespan(self) -> float:
        """The time until the last rank is done."""
        return max(self.ends)

    @property
    def span(self) -> float:
        """The most between the first start of a rank and its last end.

        Steps that wait for nobody follow each other at this distance.
        """
        starts = [math.inf] * self.table.made.ranks
        ends = [0.0] * self.table.made.ranks
        for rank, end, length in zip(
            self.table.rank, self.ends, self.lengths, strict=True
        ):
            starts[rank] = min(starts[rank], end - length)
            ends[rank] = max(ends[rank], end)
        return max(end - start for start, end in zip(starts, ends, strict=True))

    def step(self, update: float = 0.0, *, validated_later: bool = False) -> float:
        """The time from one step to the next, with the optimizer's `update`.

        A norm or a test for infinities over all ranks waits for the last of them. If it
        is `validated_later`, each rank updates once it is done, and starts again.
        """
        return (self.span if validated_later else self.makespan) + update

    def bubble(self, step: float | None = None) -> float:
        """The share of all ranks' time, in a step, in which they compute nothing."""
        work = math.fsum(self.lengths) / self.table.made.ranks
        step = self.makespan if step is None else step
        return 1 - work / step if step else 0.0

    def held(self, sizes: Sequence[float] | None = None) -> list[float]:
        """The most activations that each rank holds, of `sizes` of the slices.

        By default in micro-batches of a stage. Most of a slice's goes with its backward
        or input pass; the share `kept` stays until its weight pass.
        """
        made = self.table.made
        sizes = sizes or [1 / made.chunks] * self.table.slices
        # What ends makes room for what starts then; their sums differ in last digits.
        early = 1e-9 * self.makespan
        changes: list[list[tuple[float, float]]] = [[] for _ in range(made.ranks)]
        for passes, where, end, length in zip(
            self.table.operations,
            self.table.where,
            self.ends,
            self.lengths,
            strict=True,
        ):
            for one, slice_ in zip(passes, where, strict=True):
                if one.kind is Kind.FORWARD:
                    changes[one.rank].append((end - length, sizes[slice_]))
                    continue
                left = {Kind.BACKWARD: 1.0, Kind.INPUT: 1 - self.kept}
                share = left.get(one.kind, self.kept)
                changes[one.rank].append((end - early, -share * sizes[slice_]))
        return [max(accumulate(c for _, c in sorted(each))) for each in changes]


def run(
    made: Schedule | Table,
    times: Times | Sequence[Times],
    transfer: float | Sequence[float] = 0.0,
    *,
    blocks: bool = False,
    pair: float = 1.0,
    kept: float = 1.0,
) -> Run:
    """Execute a schedule whose slices take `times` and whose messages take `transfer`.

    `times` and `transfer` hold for all slices and boundaries, or list each. `blocks`
    tells whether a message keeps its receiver from computing.
    """
    table = made if isinstance(made, Table) else Table(made)
    each = [times] if isinstance(times, Times) else list(times)
    cuts = table.slices - 1
    waits = [transfer] * cuts if isinstance(transfer, int | float) else list(transfer)
    if len(waits) != cuts:
        raise ValueError(
            f"pipeline_schedules: transfers over {len(waits)} boundaries for "
            f"{table.slices} slices; give one for all, or {cuts}"
        )
    if any(not 0 <= wait < math.inf for wait in waits):
        raise ValueError(
            f"pipeline_schedules: transfer = {min(waits)} is no time; give 0 or more"
        )
    if not 0 <= kept <= 1:
        raise ValueError(f"pipeline_schedules: kept = {kept} is no share; give 0 to 1")
    lengths = table.lengths(each, pair)
    return Run(table, lengths, table.ends(lengths, waits, blocks), kept)


# --8<-- [end:run]
