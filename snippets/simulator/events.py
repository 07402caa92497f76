"""The same steps event by event, every rank for itself; and a job whose ranks fail."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import simpy

from snippets.pipeline_schedules.clock import NOBODY
from snippets.simulator.simulator import Plan, Rank

Steps = Generator[simpy.Event, Any, None]


# --8<-- [start:barrier]
class Barrier:
    """Ranks that go on once all `members` have come, and have met for `takes`."""

    def __init__(self, world: simpy.Environment, members: int, takes: float) -> None:
        self.world, self.members, self.takes = world, members, takes
        self.come, self.open = 0, world.event()

    def meet(self) -> Steps:
        """Wait for the others."""
        self.come += 1
        if self.come == self.members:
            self.open.succeed()
        yield self.open
        yield self.world.timeout(self.takes)


# --8<-- [end:barrier]


# --8<-- [start:step]
class World:
    """Every rank of a plan as a process of its own, with its messages and meetings."""

    def __init__(self, plan: Plan, slow: Mapping[Rank, float]) -> None:
        self.plan, self.slow, self.env = plan, slow, simpy.Environment()
        table = plan.table
        self.computes = table.lengths([plan.slice_of(plan.compute)])
        self.meets = table.lengths([plan.slice_of(plan.collectives)])
        self.needs: list[list[tuple[int, int]]] = [[] for _ in table.operations]
        for i, (need, cut) in enumerate(zip(table.needs, table.crosses, strict=True)):
            if need != NOBODY:
                self.needs[i].append((need, cut))
        for i, need, cut in table.second:
            self.needs[i].append((need, cut))
        everyone = [
            (replica, stage, tensor)
            for replica in range(plan.data)
            for stage in range(plan.pipeline)
            for tensor in range(plan.tensor)
        ]
        self.done = {
            (rank[0], rank[2], i): self.env.event()
            for rank in everyone
            for i, stage in enumerate(table.rank)
            if stage == rank[1]
        }
        self.tensor = {
            (replica, i): Barrier(self.env, plan.tensor, self.meets[i])
            for replica in range(plan.data)
            for i in range(len(table.operations))
        }
        self.replicas = {
            (stage, tensor): Barrier(self.env, plan.data, plan.reduction)
            for stage in range(plan.pipeline)
            for tensor in range(plan.tensor)
        }
        self.all = Barrier(self.env, plan.ranks, plan.norm)
        self.last = [self.env.process(self.rank(rank)) for rank in everyone]

    def rank(self, rank: Rank) -> Steps:
        """A rank follows its row: receives, computes, meets its tensor ranks, sends."""
        replica, stage, tensor = rank
        for i, at in enumerate(self.plan.table.rank):
            if at != stage:
                continue
            yield from self.receive(replica, tensor, i)
            yield self.env.timeout(self.computes[i] * self.slow.get(rank, 1.0))
            yield from self.tensor[replica, i].meet()
            self.done[replica, tensor, i].succeed(self.env.now)
        yield from self.replicas[stage, tensor].meet()
        yield from self.all.meet()
        yield self.env.timeout(self.plan.update)

    def receive(self, replica: int, tensor: int, i: int) -> Steps:
        """Wait for what an operation needs, on its way since sent or from now."""
        free, start = self.env.now, self.env.now
        for need, cut in self.needs[i]:
            sent = yield self.done[replica, tensor, need]
            since = max(free, sent) if self.plan.blocks else sent
            start = max(start, since + self.plan.waits[cut])
        if start > self.env.now:
            yield self.env.timeout(start - self.env.now)


def step(plan: Plan, slow: Mapping[Rank, float] | None = None) -> float:
    """The time of a step of `plan`, event by event."""
    world = World(plan, slow or {})
    world.env.run(world.env.all_of(world.last))
    return float(world.env.now)


# --8<-- [end:step]


# --8<-- [start:job]
@dataclass(frozen=True)
class Job:
    """A long run on ranks that fail, each every `rank_mean` on average."""

    step: float
    ranks: int
    rank_mean: float
    every: int  # steps between checkpoints
    save: float
    restart: float


@dataclass(frozen=True)
class Ran:
    """How a job went."""

    goodput: float
    failures: int
    lost: float  # time in steps that had to be done again


def run(job: Job, steps: int, seed: int) -> Ran:
    """Simulate `steps` of a job, failures drawn at random.

    A failure stops every rank: the job goes back to its last checkpoint and restarts,
    during which it may fail again.
    """
    env, draw = simpy.Environment(), random.Random(seed)
    told = {"failures": 0, "lost": 0.0}

    def failures(victim: simpy.Process) -> Steps:
        while victim.is_alive:
            yield env.timeout(draw.expovariate(job.ranks / job.rank_mean))
            if victim.is_alive:
                victim.interrupt()

    def work() -> Steps:
        done = 0
        restarting = False
        while done < steps:
            count = min(job.every, steps - done)
            start = env.now
            try:
                if restarting:
                    yield env.timeout(job.restart)
                    restarting = False
                    start = env.now
                for _ in range(count):
                    yield env.timeout(job.step)
                yield env.timeout(job.save)
                done += count
            except simpy.Interrupt:
                told["failures"] += 1
                told["lost"] += 0.0 if restarting else env.now - start
                restarting = True

    worker = env.process(work())
    env.process(failures(worker))
    env.run(worker)
    return Ran(steps * job.step / env.now, int(told["failures"]), told["lost"])


# --8<-- [end:job]
