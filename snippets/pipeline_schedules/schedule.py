"""A schedule is a table of passes; times, idle time and memory follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


# --8<-- [start:model]
class Kind(StrEnum):
    """What a pass computes. A backward pass is an input and a weight pass in one."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"  # the gradient of the input, which the stage before waits for
    WEIGHT = "W"  # the gradient of the weights, which nobody waits for


@dataclass(frozen=True)
class Costs:
    """The time of each pass on one chunk, in units of the reader's choice."""

    forward: int = 1
    input: int = 1
    weight: int = 1

    @property
    def backward(self) -> int:
        """The time of a whole backward pass."""
        return self.input + self.weight

    def of(self, kind: Kind) -> int:
        """The time of a pass of `kind`."""
        if kind is Kind.FORWARD:
            return self.forward
        if kind is Kind.BACKWARD:
            return self.backward
        return self.input if kind is Kind.INPUT else self.weight


@dataclass(frozen=True)
class Task:
    """A pass without a time. `chunk` tells apart the slices of the model on a rank."""

    kind: Kind
    micro_batch: int
    chunk: int = 0


Slot = tuple[Task, ...]  # what a rank takes at once: one task, or a pair that overlaps
Path = list[tuple[int, int]]  # the ranks and chunks that a micro-batch goes through


@dataclass(frozen=True)
class Pass:
    """A task with its rank and time; `paired` if it shares both with another."""

    rank: int
    start: int
    length: int
    kind: Kind
    micro_batch: int
    chunk: int
    paired: bool = False

    @property
    def end(self) -> int:
        """When its result is there."""
        return self.start + self.length


@dataclass(frozen=True)
class Schedule:
    """All passes of a step, by start. A chunk is one of `chunks` slices of a stage."""

    name: str
    ranks: int
    micro_batches: int
    costs: Costs
    passes: tuple[Pass, ...]
    chunks: int = 1

    def of(self, rank: int) -> list[Pass]:
        """The row of `rank`: its passes, in order."""
        return [one for one in self.passes if one.rank == rank]

    @property
    def makespan(self) -> int:
        """The time of the step, until the last rank is done."""
        return max(one.end for one in self.passes)

    def idle(self, rank: int) -> int:
        """The time in which `rank` has nothing to do, until the last rank is done."""
        spans = {(one.start, one.end) for one in self.of(rank)}
        return self.makespan - sum(end - start for start, end in spans)

    @property
    def bubble(self) -> int:
        """The most that a rank idles between its own first pass and its own last.

        A rank need not wait for the others: ZB-H2 updates first and validates later.
        Where one rank works both first and last, its `idle` is the bubble all the same.
        """
        found = []
        for rank in range(self.ranks):
            row = self.of(rank)
            start, end = min(one.start for one in row), max(one.end for one in row)
            found.append(self.idle(rank) - start - (self.makespan - end))
        return max(found)

    def held(self, rank: int) -> int:
        """The most activations of a chunk that `rank` holds at once."""
        changes = []
        for one in self.of(rank):
            if one.kind is Kind.FORWARD:
                changes.append((one.start, 1))
            elif one.kind in (Kind.BACKWARD, Kind.WEIGHT):
                changes.append((one.end, -1))
        now = most = 0
        for _, change in sorted(changes):  # what ends makes room for what starts then
            now += change
            most = max(most, now)
        return most

    @property
    def peak(self) -> float:
        """The most activations of a stage that any rank holds, in micro-batches."""
        return max(map(self.held, range(self.ranks))) / self.chunks

    @property
    def copies(self) -> float:
        """How often the ranks together hold the model's parameters."""
        slices = {(one.rank, one.chunk) for one in self.passes}
        return len(slices) / (self.ranks * self.chunks)


def timed(
    name: str,
    orders: Sequence[Sequence[Slot]],
    paths: Sequence[Path],
    costs: Costs | None,
    chunks: int = 1,
) -> Schedule:
    """Give every pass its time: a rank takes its next slot once it is free and can.

    `orders` holds the slots of each rank, `paths` the way of each micro-batch. Raises
    ValueError where ranks wait for each other.
    """
    costs = costs or Costs()
    done: dict[tuple[bool, int, int], int] = {}  # forward or not, micro-batch, step
    at = [{place: step for step, place in enumerate(path)} for path in paths]
    free, taken = [0] * len(orders), [0] * len(orders)
    passes: list[Pass] = []
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while taken[rank] < len(order):
                slot = order[taken[rank]]
                steps = [at[t.micro_batch][rank, t.chunk] for t in slot]
                waits = [
                    key
                    for task, step in zip(slot, steps, strict=True)
                    for key in _inputs(task, step, len(paths[task.micro_batch]))
                ]
                if any(key not in done for key in waits):
                    break
                start = max([free[rank], *(done[key] for key in waits)])
                length = sum(costs.of(task.kind) for task in slot)
                for task, step in zip(slot, steps, strict=True):
                    if task.kind is not Kind.WEIGHT:
                        forward = task.kind is Kind.FORWARD
                        done[forward, task.micro_batch, step] = start + length
                    what = (task.kind, task.micro_batch, task.chunk, len(slot) > 1)
                    passes.append(Pass(rank, start, length, *what))
                free[rank] = start + length
                taken[rank] += 1
                moved = True
    stuck = [rank for rank, order in enumerate(orders) if taken[rank] < len(order)]
    if stuck:
        what = f"ranks {stuck} wait for each other; mend their orders"
        raise ValueError(f"pipeline_schedules: {name}: {what}")
    passes.sort(key=lambda one: (one.start, one.rank, one.chunk))
    return Schedule(name, len(orders), len(paths), costs, tuple(passes), chunks)


def _inputs(task: Task, step: int, steps: int) -> Iterable[tuple[bool, int, int]]:
    """What must be done before `task`, the `step`-th of `steps` of its micro-batch."""
    if task.kind is Kind.FORWARD:
        return [(True, task.micro_batch, step - 1)] if step else []
    if task.kind is Kind.WEIGHT:
        return [(False, task.micro_batch, step)]
    after = [(False, task.micro_batch, step + 1)] if step + 1 < steps else []
    return [(True, task.micro_batch, step), *after]


# --8<-- [end:model]
