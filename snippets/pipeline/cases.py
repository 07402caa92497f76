"""What pipeline must show: one process's results, and the table's memory and bytes."""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets import ranks
from snippets.facts import fact
from snippets.pipeline import pipeline, torchs
from snippets.pipeline.parking import Move, limit
from snippets.pipeline.pipeline import B, H
from snippets.pipeline.plan import SCHEDULES, Plan
from snippets.pipeline.stage import (
    WIDTH,
    Parameters,
    Stashed,
    late_updates,
    on_one_process,
    whole,
)
from snippets.pipeline_schedules.schedule import Kind

NEEDS = {"seconds": 240}
LIMIT = 1e-12  # relative: thousands of float64 roundings
SIZES = ((2, 4), (4, 8), (8, 16))  # ranks, micro-batches
WORD = torch.float64.itemsize
SOURCES = {
    "GPipe": "gpipe", "1F1B": "pipedream", "BPipe": "bpipe", "PipeDream": "pipedream",
    "interleaved": "megatron-interleaved-1f1b", "ZB-H1": "zero-bubble",
    "ZB-H2": "zero-bubble", "ZB-V": "zero-bubble", "DualPipe": "deepseek-v3",
    "DualPipeV": "dualpipe-without-the-dual",
}  # fmt: skip


def facts() -> list[dict[str, Any]]:
    """Every schedule on 2, 4 and 8 ranks; torch's own on 2 and 4."""
    rows = []
    for p, m in SIZES:
        rows += of_ranks(p, m)
    for p, m in SIZES[:2]:
        rows += of_torch(p, m)
    return rows


def of_ranks(p: int, m: int) -> list[dict[str, Any]]:
    """Every schedule on p ranks."""
    rows = []
    wanted = [(name, m) for name in SCHEDULES]
    # Messages are counted, not seconds: they are the same on a CPU.
    found = zip(*ranks.run(pipeline.each, p, wanted, backend="gloo"), strict=True)
    for name, told in zip(SCHEDULES, found, strict=True):
        plan = Plan(name, p, m)
        what = f"{p} ranks, {m} micro-batches, {name}"
        rows += (late if name == "PipeDream" else errors)(what, told, plan.slices, m)
        rows += held(what, told, plan) + traffic(what, told, plan)
    return rows


def errors(what: str, told: Any, slices: int, m: int) -> list[dict[str, Any]]:
    """The relative error of the loss, and the largest of a slice's gradients."""
    loss, due = on_one_process(*whole(slices, m, B, H))
    found = abs(sum(one["loss"] for one in told) / loss - 1)
    grads = [own for one in told for own in one["grads"]]
    source = "the float64 model on one process, the whole batch at once"
    return [
        fact(f"{what}: error of the loss", found, 0, source, LIMIT),
        fact(f"{what}: largest error of a gradient", furthest(grads, due), 0, source,
             LIMIT),
    ]  # fmt: skip


def furthest(
    found: list[tuple[int, Parameters]], due: list[Parameters]
) -> float:
    """The largest relative error; NaN if one is, or a slice is missing."""
    if {at for at, _ in found} != set(range(len(due))):
        return math.nan
    values = [
        float((one - due[at][k]).norm() / due[at][k].norm())
        for at, own in found
        for k, one in own.items()
    ]
    return math.nan if any(map(math.isnan, values)) else max(values)


def late(what: str, told: Any, slices: int, m: int) -> list[dict[str, Any]]:
    """PipeDream's weights after all micro-batches, and versions that were needed."""
    w, x, target = whole(slices, m, B, H)
    due = late_updates(w, x, target, Stashed.RATE)
    found = [own for one in told for own in one["w"]]
    rows = [
        fact(f"{what}: largest error of a weight", furthest(found, due), 0,
             "the rule of late updates on one process, after pipedream", LIMIT)
    ]  # fmt: skip
    for rank in (0, slices - 1):
        (versions,) = told[rank]["versions"]
        rows.append(
            fact(f"{what}: versions of the weights on rank {rank}", versions,
                 slices - rank, "p - r, after pipedream")
        )  # fmt: skip
    return rows


def held(what: str, told: Any, plan: Plan) -> list[dict[str, Any]]:
    """Micro-batches of a slice that are kept, against formula and table."""
    p, m, made = plan.made.ranks, plan.made.micro_batches, plan.made
    most, words = {
        "GPipe": (m, "m"), "1F1B": (p, "p"), "PipeDream": (p, "p"),
        "BPipe": (limit(p), "(p + 2) / 2, rounded up"),
        "interleaved": (2 * p + p - 1, "2 p + p - 1 halves of a stage"),
        "ZB-H1": (p, "p"), "ZB-H2": (2 * p - 1, "2 p - 1"),
        "ZB-V": (2 * p, "2 p halves of a stage"), "DualPipe": (p + 1, "p + 1"),
        "DualPipeV": (2 * p + 1, "2 p + 1 halves of a stage"),
    }[plan.name]  # fmt: skip
    counts = [one["held"] for one in told]
    rows = [
        fact(f"{what}: held at most", max(counts), most,
             f"{words}, after {SOURCES[plan.name]}", unit="micro-batches")
    ]  # fmt: skip
    if plan.name != "BPipe":
        other = sum(n != made.held(rank) for rank, n in enumerate(counts))
        rows.append(
            fact(f"{what}: ranks that hold other than their row says", other, 0,
                 "pipeline_schedules")
        )  # fmt: skip
    return rows


def traffic(what: str, told: Any, plan: Plan) -> list[dict[str, Any]]:
    """What all ranks send together: for boundaries, parking, and second copies."""
    p, m = plan.made.ranks, plan.made.micro_batches
    boundaries, words = p - 1, "p - 1 boundaries"
    if plan.name == "interleaved":
        boundaries, words = 2 * p - 1, "2 p - 1 boundaries"
    elif plan.name in ("ZB-V", "DualPipeV"):
        boundaries, words = 2 * p - 2, "2 p - 2 boundaries: it turns within a rank"
    moves = [step for row in plan.rows for step in row if isinstance(step, Move)]
    parked = sum(move.what == "park" for move in moves)
    words += f", both ways for {m} micro-batches"
    words += ", and what is parked, there and back" * bool(parked)
    sent = 2 * m * boundaries * B * H + 2 * parked * B * (H + WIDTH)
    copies = 0
    if plan.name == "DualPipe":  # each rank has two slices, and each slice two ranks
        copies = p * 2 * 2 * WIDTH * H
    return [
        fact(f"{what}: sent by all", sum(one["sent"] for one in told), sent * WORD,
             words, unit="B"),
        fact(f"{what}: messages of all", sum(one["messages"] for one in told),
             2 * m * boundaries + 2 * parked, words),
        fact(f"{what}: sent for second copies", sum(one["copies"] for one in told),
             copies * WORD, "two gradients of each slice, where two ranks have it",
             unit="B"),
    ]  # fmt: skip


def of_torch(p: int, m: int) -> list[dict[str, Any]]:
    """torch's own schedules: results, and whether its tables are ours."""
    rows = []
    wanted = [(name, m) for name in torchs.NAMES]
    found = zip(*ranks.run(torchs.each, p, wanted, backend="gloo"), strict=True)
    for name, told in zip(torchs.NAMES, found, strict=True):
        what = f"{p} ranks, {m} micro-batches, torch's {name}"
        plan = Plan(name, p, m)
        rows += errors(what, told, plan.slices, m)
        # Its table of 1F1B is not what it runs: the last rank's starts with F1.
        table = [one["row"] for one in told]
        if name != "1F1B" and None not in table:
            rows.append(
                fact(f"{what}: passes in other places than in our table",
                     differing(plan, table), 0,
                     "pipeline_schedules, weight passes aside")
            )  # fmt: skip
    return rows


def differing(plan: Plan, table: list[Any]) -> int:
    """Places where two tables differ; in a pair the order does not matter."""
    count = 0
    for rank, row in enumerate(table):
        pairs: dict[int, set[tuple[Kind, int, int]]] = {}
        for one in plan.made.of(rank):
            what = (one.kind, one.micro_batch, one.chunk)
            pairs.setdefault(one.start, set()).add(what)
        ours = [one for one in pairs.values() if without_weights(one)]
        theirs = [{(t.kind, t.micro_batch, t.chunk) for t in slot} for slot in row]
        theirs = [one for one in theirs if without_weights(one)]
        count += abs(len(ours) - len(theirs))
        count += sum(a != b for a, b in zip(ours, theirs, strict=False))
    return count


def without_weights(slot: set[tuple[Kind, int, int]]) -> bool:
    """Whether a slot has a pass that others wait for."""
    return any(kind is not Kind.WEIGHT for kind, *_ in slot)
