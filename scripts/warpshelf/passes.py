"""Passes: what the ranks of a pipeline compute, and the times that follow from an order of it.

Each rank takes the next pass of its order as soon as the rank is free and the pass has its inputs.
Messages take no time and all stages are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a pass computes. A whole backward pass is an input and a weight pass in one."""

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
        return {
            Kind.FORWARD: self.forward,
            Kind.BACKWARD: self.backward,
            Kind.INPUT: self.input,
            Kind.WEIGHT: self.weight,
        }[kind]


@dataclass(frozen=True)
class Job:
    """A pass that has no time yet. `chunk` tells apart the slices of the model on one rank."""

    kind: Kind
    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True)
class Pass:
    """A pass with its rank and time; `paired` if it shares both with a pass that it overlaps."""

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
    """All passes of one step, by start. A chunk is one of `chunks` equal slices of a stage."""

    name: str
    ranks: int
    micro_batches: int
    costs: Costs
    passes: tuple[Pass, ...]
    chunks: int = 1

    @property
    def makespan(self) -> int:
        """The time of the step."""
        return max(one.end for one in self.passes)

    def idle(self, rank: int) -> int:
        """The time in which `rank` has nothing to do."""
        busy = {(one.start, one.end) for one in self.passes if one.rank == rank}
        return self.makespan - sum(end - start for start, end in busy)

    def held(self, rank: int) -> int:
        """The most activations of a chunk that `rank` holds at once.

        One is held from the start of its forward pass to the end of its last gradient.
        """
        changes = []
        for one in self.passes:
            if one.rank == rank and one.kind is Kind.FORWARD:
                changes.append((one.start, 1))
            elif one.rank == rank and one.kind in (Kind.BACKWARD, Kind.WEIGHT):
                changes.append((one.end, -1))
        now = most = 0
        for _, change in sorted(changes):  # what ends makes room for what starts then
            now += change
            most = max(most, now)
        return most


def timed(
    name: str,
    orders: Sequence[Sequence[tuple[Job, ...]]],
    paths: Sequence[Sequence[tuple[int, int]]],
    costs: Costs | None,
    chunks: int = 1,
) -> Schedule:
    """Give every pass its time, and say in ValueError where ranks wait for each other.

    `orders` holds for each rank its jobs, those of a slot at once; `paths` for each micro-batch
    the ranks and chunks that it goes through.
    """
    costs = costs or Costs()
    done: dict[tuple[bool, int, int], int] = {}  # forward or not, micro-batch, step of its path
    free, taken = [0] * len(orders), [0] * len(orders)
    passes: list[Pass] = []
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while taken[rank] < len(order):
                slot = order[taken[rank]]
                steps = [paths[job.micro_batch].index((rank, job.chunk)) for job in slot]
                waits = [
                    key
                    for job, step in zip(slot, steps, strict=True)
                    for key in _inputs(job, step, len(paths[job.micro_batch]))
                ]
                if any(key not in done for key in waits):
                    break
                start = max([free[rank], *(done[key] for key in waits)])
                length = sum(costs.of(job.kind) for job in slot)
                for job, step in zip(slot, steps, strict=True):
                    if job.kind is not Kind.WEIGHT:
                        done[job.kind is Kind.FORWARD, job.micro_batch, step] = start + length
                    where = (job.kind, job.micro_batch, job.chunk, len(slot) > 1)
                    passes.append(Pass(rank, start, length, *where))
                free[rank] = start + length
                taken[rank] += 1
                moved = True
    stuck = [rank for rank, order in enumerate(orders) if taken[rank] < len(order)]
    if stuck:
        raise ValueError(f"{name}: ranks {stuck} wait for each other")
    passes.sort(key=lambda one: (one.start, one.rank, one.chunk))
    return Schedule(name, len(orders), len(paths), costs, tuple(passes), chunks)


def _inputs(job: Job, step: int, steps: int) -> Iterable[tuple[bool, int, int]]:
    """What must be done before `job`, which is the `step`-th of `steps` of its micro-batch."""
    if job.kind is Kind.FORWARD:
        return [(True, job.micro_batch, step - 1)] if step else []
    if job.kind is Kind.WEIGHT:
        return [(False, job.micro_batch, step)]
    after = [(False, job.micro_batch, step + 1)] if step + 1 < steps else []
    return [(True, job.micro_batch, step), *after]
