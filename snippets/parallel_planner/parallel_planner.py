"""A plan in two levels: each stage by itself, then the cuts between stages, exactly.

Shapes  units (an embedding, layers, an output matrix) in a row are cut into stages; a
        stage has GPUs, a layout of them, and some layers that are recomputed
FLOPs   a dynamic program over the first unit of a stage, the stages from there to the
        end and their GPUs. It keeps each state that no other beats in the sum of times,
        the slowest stage and the last exchange of gradients
Error   none against enumeration. The time is that of the cost model: m micro-batches
        through stages of t take sum t + (m - 1) max t, and gradients follow
Raises  ValueError where nothing fits, and for numbers below 1
Source  alpa, piper, dapple, megatron-interleaved-1f1b
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from math import ceil, fsum, inf
from typing import NamedTuple

from snippets.model_flops.model_flops import MODELS, flops_per_token
from snippets.parallel_planner.costs import (
    Cluster,
    Cost,
    Costs,
    Layout,
    Transformer,
    divisors,
)

SLACK = 1e-9  # of the memory, for the rounding of sums


# --8<-- [start:stage]
class Stage(NamedTuple):
    """Units first to last - 1 on some GPUs, by the intra-operator choice."""

    first: int
    last: int
    layout: Layout
    recomputed: int  # layers
    time: float  # s of a micro-batch, forward and backward
    sync: float
    bytes: float


def placed(
    cost: Cost, first: int, last: int, layout: Layout, flight: int, room: float
) -> Stage | None:
    """The stage with as few recomputed layers as fit, `flight` micro-batches at once.

    Each costs time and nothing else, so fewer are never worse. None where all of them
    do not suffice.
    """
    need = cost.state + cost.extra + flight * cost.kept - room
    layers, slack = 0, SLACK * room
    if need > slack:
        freed = flight * cost.saved
        layers = ceil((need - slack) / freed) if freed > 0 else cost.layers + 1
    if layers > cost.layers:
        return None
    return Stage(
        first, last, layout, layers, cost.time + layers * cost.again, cost.sync,
        need + room - layers * flight * cost.saved,
    )  # fmt: skip


def undominated(stages: Iterable[Stage]) -> list[Stage]:
    """Of stages on as many GPUs, those that no other beats in time and exchange."""
    best: list[Stage] = []
    for one in sorted(stages, key=lambda one: (one.time, one.sync)):
        if not best or one.sync < best[-1].sync:
            best.append(one)
    return best
# --8<-- [end:stage]


@dataclass(frozen=True)
class Plan:
    """Stages in order, and how a step is cut into micro-batches."""

    stages: tuple[Stage, ...]
    micro_batches: int
    sequences: int  # of a micro-batch
    time: float  # s of a step

    @property
    def gpus(self) -> int:
        """GPUs that work."""
        return sum(one.layout.gpus for one in self.stages)

    @property
    def bubble(self) -> float:
        """Share of the step in which the slowest stage waits."""
        slowest = max(one.time for one in self.stages)
        return 1 - self.micro_batches * slowest / self.time


def step_time(stages: Iterable[Stage], micro_batches: int) -> float:
    """Seconds of a step: one micro-batch passes, the slowest stage has the rest."""
    stages = list(stages)
    slowest = max(one.time for one in stages)
    passing = fsum(one.time for one in stages)
    return passing + (micro_batches - 1) * slowest + max(one.sync for one in stages)


# --8<-- [start:cut]
class Label(NamedTuple):
    """A state of the dynamic program: the stages from some unit to the end."""

    total: float
    slowest: float
    sync: float
    stage: Stage
    rest: Label | None


Choices = Callable[[int, int, int], list[tuple[int, Stage]]]


def cut(
    units: int,
    slots: int,
    micro_batches: int,
    choices: Choices,
    left: Callable[[int], float],
    best: float = inf,
    exact: int = 0,
) -> Label | None:
    """The stages of least time that fill `slots`, if it is below `best`.

    choices(first, last, behind) are a stage's, each with the slots that it takes, where
    `behind` stages work from it to the end. left(unit) is a bound below the time of all
    units before. `exact` asks for that many stages, of a slot each.
    """
    again, found = micro_batches - 1, None

    def ending(end: int, behind: int) -> Iterator[tuple[int, int, Stage]]:
        """Stages up to `end`, ever longer, as long as one can be in a better plan."""
        for first in range(end - 1, -1, -1):
            some = choices(first, end, behind)
            yield from ((first, taken, stage) for taken, stage in some)
            fastest = min((stage.time for _, stage in some), default=inf)
            if fastest * micro_batches >= best:
                return

    states: dict[tuple[int, int], list[Label]] = {(units, 0): []}
    for behind in range(1, (exact or min(units, slots)) + 1):
        grown: dict[tuple[int, int], list[Label]] = {}
        for (end, used), labels in states.items():
            for first, taken, stage in ending(end, behind):
                room = slots - used - taken  # for the stages before
                if room < 0 or (first == 0) != (room == 0):
                    continue
                rest = left(first) if first else 0.0
                for label in labels or (None,):
                    new = joined(stage, label)
                    slowest = max(new.slowest, rest / room if room else 0.0)
                    time = new.total + rest + again * slowest + new.sync
                    if time >= best:
                        continue
                    if first:
                        insert(grown.setdefault((first, used + taken), []), new)
                    else:
                        best, found = time, new
        states = grown
    return found


def joined(stage: Stage, rest: Label | None) -> Label:
    """A stage before the others."""
    if rest is None:
        return Label(stage.time, stage.time, stage.sync, stage, None)
    return Label(
        stage.time + rest.total, max(stage.time, rest.slowest),
        max(stage.sync, rest.sync), stage, rest,
    )  # fmt: skip


def insert(labels: list[Label], new: Label) -> None:
    """Keep `new` unless another is as good in all three, and drop what it beats."""
    for one in labels:
        if all(a <= b for a, b in zip(one[:3], new[:3], strict=True)):
            return
    labels[:] = [
        one
        for one in labels
        if not all(a <= b for a, b in zip(new[:3], one[:3], strict=True))
    ]
    labels.append(new)


def unrolled(label: Label | None) -> Iterator[Stage]:
    """The stages of a label, in order."""
    while label is not None:
        yield label.stage
        label = label.rest
# --8<-- [end:cut]


# --8<-- [start:plans]
def mixed(costs: Costs, cluster: Cluster, batch: int) -> Plan:
    """The best plan in which every stage has GPUs and a layout of its own.

    All GPUs work. For small clusters: the states grow with the square of their number.
    """
    check(cluster, batch)
    room, best, found = cluster.memory * cluster.usable, inf, None
    for m in divisors(batch):
        b = batch // m
        every = list(costs.layouts(cluster.gpus, b))
        layouts: dict[int, list[Layout]] = {}
        for one in every:
            layouts.setdefault(one.gpus, []).append(one)
        costed: dict[tuple[int, int, Layout], Cost] = {}

        def cost(first: int, last: int, layout: Layout, b: int = b,
                 costed: dict = costed) -> Cost:  # fmt: skip
            key = (first, last, layout)
            if key not in costed:
                costed[key] = costs.stage(first, last, layout, b)
            return costed[key]

        units = [
            min((cost(i, i + 1, one).time for one in every), default=inf)
            for i in range(costs.units)
        ]
        chosen: dict[tuple[int, int, int], list[tuple[int, Stage]]] = {}

        def choices(first: int, last: int, behind: int, m: int = m,
                    layouts: dict = layouts, chosen: dict = chosen,
                    cost: Callable = cost) -> list[tuple[int, Stage]]:  # fmt: skip
            key = (first, last, min(behind, m))
            if key not in chosen:
                flight, chosen[key] = key[2], []
                for n, some in layouts.items():
                    made = (
                        placed(cost(first, last, one), first, last, one, flight, room)
                        for one in some
                    )
                    best = undominated(one for one in made if one is not None)
                    chosen[key] += [(n, one) for one in best]
            return chosen[key]

        def left(unit: int, units: list[float] = units) -> float:
            return fsum(units[:unit])

        label = cut(costs.units, cluster.gpus, m, choices, left, best)
        if label is not None:
            stages = tuple(unrolled(label))
            best = step_time(stages, m)
            found = Plan(stages, m, b, best)
    return fitting(found, cluster)


def even(costs: Costs, cluster: Cluster, batch: int, most: int = 8) -> Plan:
    """The best plan whose stages share a layout, as Megatron runs them.

    Cuts and recomputation are free; GPUs may idle. A rank has at most `most` sequences
    in a micro-batch. Layouts are tried in the order of a bound below their time.
    """
    check(cluster, batch)
    room, best, found = cluster.memory * cluster.usable, inf, None
    waiting = list(spreads(costs, cluster, batch, most, room))
    heapify(waiting)
    while waiting and waiting[0].bound < best:
        one = waiting[0]
        if one.stages > one.fewest:  # fewer stages have a higher bound
            heapreplace(waiting, one.fewer())
        else:
            heappop(waiting)
        b, layout = one.sequences, one.layout
        m, costed = batch // b, {}

        def cost(first: int, last: int, b: int = b, layout: Layout = layout,
                 costed: dict = costed) -> Cost:  # fmt: skip
            if (first, last) not in costed:
                costed[first, last] = costs.stage(first, last, layout, b)
            return costed[first, last]

        def choices(first: int, last: int, behind: int, m: int = m,
                    layout: Layout = layout,
                    cost: Callable = cost) -> list[tuple[int, Stage]]:  # fmt: skip
            made = placed(cost(first, last), first, last, layout, min(behind, m), room)
            return [] if made is None else [(1, made)]

        def left(unit: int, cost: Callable = cost) -> float:
            return cost(0, unit).time

        label = cut(costs.units, one.stages, m, choices, left, best, one.stages)
        if label is not None:
            made = tuple(unrolled(label))
            best = step_time(made, m)
            found = Plan(made, m, b, best)
    return fitting(found, cluster)


class Spread(NamedTuple):
    """A layout of every stage, and how many there are, by a bound below its time."""

    bound: float
    order: tuple[int, ...]  # of what is alike: no context, small tensor groups first
    stages: int
    fewest: int
    sequences: int
    layout: Layout
    time: float  # s of all units on one stage
    again: int  # micro-batches but the first

    def fewer(self) -> Spread:
        """The same with a stage less."""
        bound = self.time * (1 + self.again / (self.stages - 1))
        return self._replace(bound=bound, stages=self.stages - 1)


def spreads(
    costs: Costs, cluster: Cluster, batch: int, most: int, room: float
) -> Iterator[Spread]:
    """Each micro-batch and layout with as many stages as there can be."""
    for b in divisors(batch):
        for layout in costs.layouts(cluster.gpus, b):
            if b // layout.data > most:
                continue
            whole, again = costs.stage(0, costs.units, layout, b), batch // b - 1
            top = min(costs.units, cluster.gpus // layout.gpus)
            fewest = max(ceil(whole.state / room), 1)
            if fewest <= top:
                bound = whole.time * (1 + again / top)
                order = (layout.context, layout.tensor, layout.expert)
                yield Spread(bound, order, top, fewest, b, layout, whole.time, again)
# --8<-- [end:plans]


def check(cluster: Cluster, batch: int) -> None:
    """Refuse numbers below 1."""
    for name, value in (("batch", batch), ("gpus", cluster.gpus)):
        if value < 1:
            raise ValueError(
                f"parallel_planner: {name} = {value} is below 1; give at least one"
            )


def fitting(found: Plan | None, cluster: Cluster) -> Plan:
    """The plan, or an error where there is none."""
    if found is None:
        raise ValueError(
            f"parallel_planner: nothing fits {cluster.gpus} GPUs of "
            f"{cluster.memory / 1e9:g} GB; give more of them, or shorter sequences"
        )
    return found


def summed(stages: Iterable[Stage]) -> list[str]:
    """Stages in words, neighbours that are alike together."""
    found: list[tuple[tuple[int, Layout, int], int]] = []
    for one in stages:
        kind = one.last - one.first, one.layout, one.recomputed
        if found and found[-1][0] == kind:
            found[-1] = kind, found[-1][1] + 1
        else:
            found.append((kind, 1))
    told = []
    for (units, layout, recomputed), count in found:
        again = f", {recomputed} recomputed" if recomputed else ""
        told.append(f"{count} x {units} units on {layout.words}{again}")
    return told


def demo(device: str = "cpu") -> None:
    """Plans by size of the cluster, and one whose stages are unlike."""
    model, batch, length = MODELS["Llama 3.1 405B"], 2048, 8192
    print(f"Llama 3.1 405B, batch {batch} of {length} tokens, one layout for all")
    head = (" GPUs", " used", "step s", "TF/GPU", "data", "tensor", "context", "stages",
            "micro-batches", "waits")  # fmt: skip
    print("  ".join(head))
    work = batch * length * 3 * flops_per_token(model, length, causal=True)
    for gpus in (512, 1024, 4096, 10_000, 16_384):
        cluster = Cluster(gpus)
        plan = even(Transformer(model, cluster, length), cluster, batch)
        d, t, c, _ = plan.stages[0].layout
        rate = work / plan.time / gpus / 1e12
        cells = (gpus, plan.gpus, f"{plan.time:.2f}", f"{rate:.0f}", d, t, c,
                 len(plan.stages), plan.micro_batches,
                 f"{plan.bubble:.1%}")  # fmt: skip
        print("  ".join(f"{one:>{len(h)}}" for one, h in zip(cells, head, strict=True)))
    small = replace(MODELS["Llama 3.1 8B"], layers=6)
    cluster = Cluster(6, memory=12e9, link=15e9)
    costs = Transformer(small, cluster, 4096)
    print("\n6 layers of Llama 3.1 8B on 6 GPUs of 12 GB with links of 15 GB/s")
    for name, plan in (
        ("one layout", even(costs, cluster, 16)),
        ("each its own", mixed(costs, cluster, 16)),
    ):
        print(f"{name}: {1e3 * plan.time:.0f} ms, {plan.micro_batches} micro-batches")
        for line in summed(plan.stages):
            print(f"  {line}")


if __name__ == "__main__":
    demo()
