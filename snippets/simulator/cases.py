"""What the simulator must show: two ways that agree, formulas, published figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from snippets.facts import fact
from snippets.pipeline_schedules import measured
from snippets.pipeline_schedules.clock import Times
from snippets.simulator import checkpoints, events
from snippets.simulator.simulator import SCHEDULES, Plan, simulate

NEEDS = {"modules": ["simpy"]}

ROUNDING = 1e-12
PEER = "event by event, with simpy"
# 16 ranks, no two times alike.
SMALL = Plan(
    "1F1B",
    pipeline=4,
    micro_batches=8,
    compute=Times(2.0, 2.3, 1.1),
    data=2,
    tensor=2,
    collectives=Times(0.3, 0.2, 0.0),
    transfer=(0.4, 1.7, 0.4),  # the second boundary lies between two nodes
    reduction=3.0,
    norm=0.5,
    update=1.0,
)
# Two in one replica, on unlike tensor ranks, and one in the other.
SLOW = {(0, 0, 0): 1.5, (0, 2, 1): 1.3, (1, 1, 1): 1.2}
# Daly's figures 3 to 5: a failure each, and the interval that his model predicts.
DALY = ((24 * 60.0, 117.0, 0.5), (6 * 60.0, 57.0, 0.5), (15.0, 9.1, 0.05))  # minutes
SAVE, RESTART = 5.0, 10.0  # minutes, of the same figures
DAYS = 1000 * 24 * 60.0  # of work in a simulated job: some thousand failures


def facts() -> list[dict[str, Any]]:
    """Longest paths against events, formulas and published figures."""
    return [*equal(), *closed(), *published(), *failing()]


def small(schedule: str) -> Plan:
    """The small plan; schedules with more slices have more boundaries."""
    plan = replace(SMALL, schedule=schedule, transfer=0.0)
    cuts = plan.table.slices - 1
    return replace(
        plan, transfer=tuple(0.4 + 1.3 * (cut % 4 == 1) for cut in range(cuts))
    )


def equal() -> Iterator[dict[str, Any]]:
    """Every schedule both ways, with stragglers, and where receives block."""
    for schedule in SCHEDULES:
        for blocks in (False, True):
            plan = replace(small(schedule), blocks=blocks)
            name = f"{schedule}, 16 ranks, 3 of them slow, receives block: {blocks}"
            value, peer = simulate(plan, SLOW).step, events.step(plan, SLOW)
            yield fact(f"Simulated step: {name}", value, peer, PEER, ROUNDING, "s")
    plan = replace(SMALL, data=3, pipeline=2, transfer=1.0, blocks=True)
    alone = [replace(plan, data=1)] * 3
    slow = {(1, 1, 0): 1.3}
    each = [
        simulate(one, {(0, s, t): f for (d, s, t), f in slow.items() if d == i}).ready
        for i, one in enumerate(alone)
    ]
    last = max(max(stages) for stages in zip(*each, strict=True))
    yield fact(
        "Simulated step: replicas that are alike stand for each other",
        simulate(plan, slow).step,
        last + plan.reduction + plan.norm + plan.update,
        "each replica simulated by itself",
        ROUNDING,
        "s",
    )


def closed() -> Iterator[dict[str, Any]]:
    """Where a formula is exact: no messages, and stages alike but for the last."""
    plan = replace(
        SMALL, transfer=0.0, data=768, tensor=8, pipeline=16, micro_batches=32
    )
    stage = (2.0 + 2.3 + 1.1) + (0.3 + 0.2)
    rest = plan.reduction + plan.norm + plan.update
    where = "(m + p - 1) (F + B), and what follows"
    for schedule in ("GPipe", "1F1B"):
        value = simulate(replace(plan, schedule=schedule)).step
        expected = (32 + 15) * stage + rest
        name = f"Simulated step: {schedule} on {plan.ranks} ranks"
        yield fact(name, value, expected, where, ROUNDING, "s")
    slow = simulate(plan, {(700, 15, 7): 1.5}).step
    yield fact(
        f"Simulated step: 1 of {plan.ranks} ranks 1.5 times as slow, last stage",
        slow,
        (32 + 15) * stage + 32 * 0.5 * (2.0 + 2.3 + 1.1) + rest,
        "m times what its pass takes more, for all ranks",
        ROUNDING,
        "s",
    )


def published() -> Iterator[dict[str, Any]]:
    """Steps behind published idle shares, m (F + I + W) / (1 - share)."""
    rows = {
        (row["model"], int(row["micro_batches"]), row["schedule"]): float(row["value"])
        for row in measured.rows("published.tsv")
        if row["set"] == "idle share"
    }
    for s in measured.settings()[:2]:
        for schedule in ("1F1B", "ZB-H1"):
            plan = Plan(
                schedule,
                s.ranks,
                s.micro_batches,
                s.profiled,
                transfer=s.transfer_ms,
            )
            share = rows[s.model, s.micro_batches, schedule]
            work = s.micro_batches * (s.forward_ms + s.input_ms + s.weight_ms)
            yield fact(
                f"Simulated step: {schedule}, {s.model}, m {s.micro_batches}",
                events.step(plan),
                work / (1 - share),
                "zero-bubble",
                0.5e-4 / (1 - share),  # half of the share's last digit
                "ms",
            )


def failing() -> Iterator[dict[str, Any]]:
    """Published intervals, and simulated goodput against the formula."""
    for mean, expected, half in DALY:
        name = f"Interval between checkpoints, a failure each {mean:g} min"
        value = checkpoints.daly(SAVE, mean)
        at = "daly-checkpoint-interval"
        yield fact(name, value, expected, at, half / expected, "min")
        found = checkpoints.best(SAVE, RESTART, mean)
        yield fact(f"{name}, by search", found, value, at, 0.01, "min")
    mean = 6 * 60.0
    young = checkpoints.young(SAVE, mean)
    found = {}
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        interval = factor * young
        job = events.Job(5.0, 1024, mean * 1024, round(interval / 5), SAVE, RESTART)
        found[interval] = events.run(job, round(DAYS / 5), seed=1).goodput
        exact = checkpoints.goodput(interval, SAVE, RESTART, mean)
        yield fact(
            f"Simulated goodput, {interval:g} min between checkpoints of {SAVE:g}",
            found[interval],
            exact,
            "daly-checkpoint-interval",
            0.01,
        )
    best = max(found, key=found.__getitem__)
    name = "Interval of the highest simulated goodput, of five"
    yield fact(name, best, young, "young-checkpoint-interval", 0, "min")
