"""A step on many ranks, simulated: one longest path for each pipeline that differs.

Shapes  a plan of data x pipeline x tensor ranks -> the simulated time of its step, and
        when each stage is ready and has summed its gradients
FLOPs   operations timed: those of one pipeline for each that is unlike the others, not
        for each rank
Error   equal to a discrete-event simulation of every rank, but for rounding. How near
        that is to a machine is up to the times that a plan is given
Raises  ValueError for a plan that cannot be, and for a rank that is not in it
Source  zero-bubble, megatron-interleaved-1f1b, simpy, daly-checkpoint-interval,
        young-checkpoint-interval, llama3-herd
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from snippets.pipeline_schedules import pipeline_schedules as tables
from snippets.pipeline_schedules.clock import Table, Times
from snippets.pipeline_schedules.schedule import Schedule
from snippets.simulator import checkpoints

SCHEDULES: dict[str, Callable[[int, int, int], Schedule]] = {
    "GPipe": lambda p, m, v: tables.gpipe(p, m),
    "1F1B": lambda p, m, v: tables.one_f_one_b(p, m),
    "interleaved": lambda p, m, v: tables.interleaved(p, m, v),
    "ZB-H1": lambda p, m, v: tables.zero_bubble_h1(p, m),
    "ZB-H2": lambda p, m, v: tables.zero_bubble_h2(p, m),
    "ZB-V": lambda p, m, v: tables.zero_bubble_v(p, m),
    "DualPipeV": lambda p, m, v: tables.dualpipe_v(p, m),
}
Rank = tuple[int, int, int]  # which data replica, stage and tensor rank
NONE = Times(0.0, 0.0, 0.0)


# --8<-- [start:plan]
@dataclass(frozen=True)
class Plan:
    """Who does what, and what each piece takes: seconds, or any one unit of time."""

    schedule: str
    pipeline: int  # ranks in a row
    micro_batches: int  # of each replica
    compute: Times  # of a stage, on one tensor rank
    data: int = 1  # replicas
    tensor: int = 1
    chunks: int = 2  # of a rank, where the schedule is interleaved
    collectives: Times = NONE  # of tensor ranks in a stage's pass, not hidden
    transfer: float | Sequence[float] = 0.0  # over one boundary, or each
    blocks: bool = False  # whether who receives computes nothing meanwhile
    reduction: float = 0.0  # of a stage's gradients over replicas, not hidden
    norm: float = 0.0  # of all gradients, which every rank waits for
    update: float = 0.0  # by the optimizer

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise ValueError(
                f"simulator: no schedule {self.schedule!r}; there are {known}"
            )
        for name in ("pipeline", "micro_batches", "data", "tensor", "chunks"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"simulator: {name} = {getattr(self, name)}; give 1 or more"
                )
        for name in ("reduction", "norm", "update"):
            if not 0 <= getattr(self, name) < math.inf:
                time = getattr(self, name)
                raise ValueError(
                    f"simulator: {name} = {time} is no time; give 0 or more"
                )

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.data * self.pipeline * self.tensor

    @cached_property
    def table(self) -> Table:
        """The operations of one pipeline."""
        made = SCHEDULES[self.schedule](self.pipeline, self.micro_batches, self.chunks)
        return Table(made)

    @property
    def waits(self) -> list[float]:
        """What a message takes over each boundary between slices."""
        cuts = self.table.slices - 1
        if isinstance(self.transfer, int | float):
            return [float(self.transfer)] * cuts
        if len(self.transfer) != cuts:
            raise ValueError(
                f"simulator: transfers over {len(self.transfer)} boundaries for "
                f"{cuts + 1} slices; give one for all, or {cuts}"
            )
        return list(self.transfer)

    def slice_of(self, times: Times) -> Times:
        """A stage's times for one of its chunks."""
        return times.times(1 / self.table.made.chunks)


# --8<-- [end:plan]


# --8<-- [start:simulate]
@dataclass(frozen=True)
class Simulated:
    """A step as it was simulated."""

    step: float
    ready: Sequence[float]  # when the last replica of each stage has its gradients
    reduced: Sequence[float]  # and when they are summed
    idle: float  # share of the step in which a rank computes nothing, over all ranks
    timed: int  # operations on the longest paths
    stands_for: int  # operations of all ranks


def simulate(plan: Plan, slow: Mapping[Rank, float] | None = None) -> Simulated:
    """A step of `plan`, in which the ranks of `slow` compute so many times as long.

    Tensor ranks meet in every pass, so a stage of a replica goes at the pace of its
    slowest. Replicas meet once a step, when gradients are summed: those with the same
    paces do the same, and one stands for all. Both are exact.
    """
    paces = _paces(plan, slow or {})
    table, waits = plan.table, plan.waits
    computes = table.lengths([plan.slice_of(plan.compute)])
    meets = table.lengths([plan.slice_of(plan.collectives)])
    ready, works = [0.0] * plan.pipeline, []
    for pace, replicas in paces.items():
        lengths = [
            compute * pace[stage] + meet
            for compute, meet, stage in zip(computes, meets, table.rank, strict=True)
        ]
        ends = table.ends(lengths, waits, plan.blocks)
        last = dict(zip(table.rank, ends, strict=True))  # of a stage the last stands
        ready = [max(ready[stage], last[stage]) for stage in range(plan.pipeline)]
        works.append(replicas * math.fsum(lengths))
    reduced = [one + plan.reduction for one in ready]
    step = max(reduced) + plan.norm + plan.update
    busy = math.fsum(works) / (plan.data * plan.pipeline)
    timed = len(paces) * len(computes)
    every = plan.data * plan.tensor * len(computes)
    return Simulated(step, ready, reduced, 1 - busy / step, timed, every)


# --8<-- [end:simulate]


def _paces(plan: Plan, slow: Mapping[Rank, float]) -> dict[tuple[float, ...], int]:
    """How many replicas have each row of paces, a pace a stage."""
    changed: dict[int, list[float]] = {}
    for (replica, stage, tensor), factor in slow.items():
        sizes = (plan.data, plan.pipeline, plan.tensor)
        place = (replica, stage, tensor)
        if not all(0 <= at < size for at, size in zip(place, sizes, strict=True)):
            raise ValueError(f"simulator: no rank {place} in a plan of {sizes}")
        if not 1 <= factor < math.inf:
            raise ValueError(
                f"simulator: rank {place} takes {factor} times as long; give 1 or more"
            )
        row = changed.setdefault(replica, [1.0] * plan.pipeline)
        row[stage] = max(row[stage], factor)
    alike = plan.data - len(changed)
    found: dict[tuple[float, ...], int] = {}
    if alike:
        found[(1.0,) * plan.pipeline] = alike
    for each in changed.values():
        found[tuple(each)] = found.get(tuple(each), 0) + 1
    return found


def ring(size: float, ranks: int, bandwidth: float, latency: float) -> float:
    """The time of a ring all-reduce: each rank sends 2 (n - 1) parts of size / n."""
    return 2 * (ranks - 1) * (size / ranks / bandwidth + latency)


def uneven(plan: Plan, most: float) -> dict[Rank, float]:
    """A pace for each stage of each replica, up to `most` slower; always the same."""
    found, state = {}, 1
    for replica in range(plan.data):
        for stage in range(plan.pipeline):
            state = state * 48_271 % 2_147_483_647  # a minimal standard generator
            found[replica, stage, 0] = 1 + most * state / 2_147_483_647
    return found


# A stage of 8 tensor ranks, in ms, and messages of 1 ms.
SHOWN = Plan(
    "1F1B",
    pipeline=16,
    micro_batches=32,
    compute=Times(20.0, 20.0, 20.0),
    collectives=Times(3.0, 3.0, 0.0),
    data=768,
    tensor=8,
    transfer=1.0,
    norm=2.0,
    update=10.0,
)
GRADIENTS = 1e9  # bytes that a rank sums over replicas, at 50 GB/s and 20 us a message


def shown(data: int, pipeline: int = 16) -> Plan:
    """The plan of the demo on so many replicas."""
    time = ring(GRADIENTS, data, 50e6, 0.02)  # bytes a ms, and ms
    return replace(SHOWN, data=data, pipeline=pipeline, reduction=time)


def demo() -> None:
    """Simulated: a plan on more and more ranks, one straggler, blocking, failures."""
    print("All of this is simulated, from times that are assumed; in ms.")
    print(
        f"\n{'ranks':>8}{'step':>9}{'idle':>8}{'if up to 10 % slower':>23}  operations"
    )
    for data, pipeline in ((1, 2), (8, 16), (64, 16), (768, 16)):
        plan = shown(data, pipeline)
        even, odd = simulate(plan), simulate(plan, uneven(plan, 0.1))
        line = f"{plan.ranks:8}{even.step:9.1f}{even.idle:8.1%}{odd.step:15.1f}"
        print(f"{line}{odd.idle:8.1%}{odd.stands_for:12}")
    plan = shown(768)
    print(f"\n{plan.ranks} ranks, one of them 20 % slower, or receives that block:")
    print(f"{'':12}{'plain':>9}{'slow first':>12}{'slow last':>11}{'blocking':>10}")
    for name in ("1F1B", "interleaved", "ZB-H1"):
        plan = replace(plan, schedule=name)
        steps = [simulate(plan).step]
        for stage in (0, plan.pipeline - 1):
            steps.append(simulate(plan, {(5, stage, 3): 1.2}).step)
        steps.append(simulate(replace(plan, blocks=True)).step)
        print(
            f"{name:12}{steps[0]:9.1f}{steps[1]:12.1f}{steps[2]:11.1f}{steps[3]:10.1f}"
        )
    print(
        "\nFailures as often as Llama 3's, restarts of 10 minutes, saves of 1 or 0.1:"
    )
    print(f"{'ranks':>8}{'one each':>12}{'save each':>12}{'goodput':>9}", end="")
    print(f"{'save each':>12}{'goodput':>9}")
    for ranks in (1024, 16_384, 98_304):
        mean = checkpoints.LLAMA3_RANK / ranks
        print(f"{ranks:8}{mean:8.0f} min", end="")
        for save in (1.0, 0.1):
            best = checkpoints.best(save, 10.0, mean)
            share = checkpoints.goodput(best, save, 10.0, mean)
            print(f"{best:8.1f} min{share:9.1%}", end="")
        print()


if __name__ == "__main__":
    demo()
