"""What ring_attention must show: no error, the bytes it predicts, and equal work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from snippets import ranks
from snippets.ring_attention.ring_attention import (
    LIMIT,
    B,
    D,
    H,
    Ring,
    S,
    Tensors,
    errors,
    on_rank,
    sequence,
    shard,
    time_in_steps,
)

Reports = list[dict[str, Any]]  # of ranks
Check = tuple[str, float, float, str, str]  # name, value, expected, unit, source


def facts() -> list[dict[str, Any]]:
    """Error, bytes and causal work on 2 and 4 ranks.

    Where 0 is expected, the tolerance is absolute.
    """
    rows = []
    truths = {causal: one_process(causal) for causal in (False, True)}
    for world_size in (2, 4):
        rows += overlaps(world_size)
        every_rank = ranks.run(on_rank, world_size)
        for causal, order in every_rank[0]:
            reports = [report[causal, order] for report in every_rank]
            what = f"{world_size} ranks, {'causal' if causal else 'full'}, {order}"
            checks = error_checks(reports, truths[causal], order) + byte_checks(reports)
            if causal:
                checks += work_checks(reports, order)
            for name, value, expected, unit, source in checks:
                rows.append(
                    {
                        "name": f"{what}: {name}",
                        "value": value,
                        "expected": expected,
                        "tolerance": LIMIT if expected == 0 else 0,
                        "unit": unit,
                        "source": source,
                    }
                )
    return rows


def error_checks(reports: Reports, truth: Tensors, order: str) -> list[Check]:
    """Relative errors, against attention on one process."""
    source = "float64 softmax attention"
    found = zip(("out", "dQ", "dK", "dV"), errors(reports, truth, order), strict=True)
    return [(f"error of {x}", error, 0, "", source) for x, error in found]


def byte_checks(reports: Reports) -> list[Check]:
    """Bytes sent by a rank, against P and n, the bytes of its block of K."""
    p = len(reports)
    n = B * H * (S // p) * D * torch.float64.itemsize
    formulas = (
        ("forward", 2 * (p - 1) * n, "2 (P - 1) n"),
        ("backward", 2 * (p - 1) * n + 2 * p * n, "2 (P - 1) n + 2 P n"),
    )
    return [
        (f"sent by a rank, {way}", bytes_sent(reports, way), expected, "B", formula)
        for way, expected, formula in formulas
    ]


def work_checks(reports: Reports, order: str) -> list[Check]:
    """Causal work: how unequal over ranks, how long if steps wait for the slowest."""
    p, block = len(reports), (S // len(reports)) ** 2
    totals = [sum(report["work"]) for report in reports]
    ratio, steps = max(totals) / min(totals), time_in_steps(reports)
    if order == "plain":
        shape = p, "P: rank r has r + 1 blocks"
        limit = p * block, "P (S/P)^2: the mask saves no time"
    else:
        shape = 1, "2 P + 1 chunk pairs on every rank"
        limit = (2 * p + 1) * block // 4, "(2 P + 1) (S/P)^2 / 4"
    return [
        ("most over least work of a rank", ratio, shape[0], "", shape[1]),
        ("work of each step's slowest rank", steps, limit[0], "pairs", limit[1]),
    ]


def one_process(causal: bool) -> Tensors:
    """Attention on one process, and autograd's gradients: [o, dq, dk, dv]."""
    q, k, v, d_out = sequence()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    pairs = q @ k.mT / math.sqrt(D)
    if causal:
        position = torch.arange(S)
        pairs = pairs.masked_fill(position > position[:, None], -math.inf)
    out = pairs.softmax(-1) @ v
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def bytes_sent(reports: Reports, direction: str) -> float:
    """Bytes that each rank sent; NaN, which equals nothing, unless all sent alike."""
    sent = {report[f"{direction}_bytes"] for report in reports}
    return sent.pop() if len(sent) == 1 else math.nan


class Logged(Ring):
    """A ring that writes down, in order, when hops start and end and blocks are met."""

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size, "zigzag", True)
        self.log: list[str] = []

    def pass_on(self, tensors: Tensors) -> Callable[[], Tensors]:
        """As a ring does."""
        hop = sum(event.startswith("start") for event in self.log)
        self.log.append(f"start {hop}")
        arrive = super().pass_on(tensors)

        def logged() -> Tensors:
            came = arrive()
            self.log.append(f"end {hop}")
            return came

        return logged

    def visible(self, step: int) -> list[tuple[int, int, bool]]:
        """As a ring does, which then computes these."""
        self.log.append("block")
        return super().visible(step)


def order_on_rank(rank: int, world_size: int) -> list[list[str]]:
    """What a rank does in which order, forward and backward."""
    whole = [x.to(ranks.device()) for x in sequence()]
    mine = [shard(x, rank, world_size, "zigzag") for x in whole]
    ring = Logged(rank, world_size)
    out, lse = ring.forward(*mine[:3])
    forward, ring.log = ring.log, []
    ring.backward(mine, out, lse)
    return [forward, ring.log]


def overlaps(world_size: int) -> list[dict[str, Any]]:
    """Hops under which a block is computed: all, but the last that brings gradients."""
    logs = ranks.run(order_on_rank, world_size)
    rows = []
    for at, (way, due, source) in enumerate(
        (
            ("forward", world_size - 1, "P - 1: the next block travels meanwhile"),
            ("backward", 2 * world_size - 2, "all 2 P - 1 but the last of dK and dV"),
        )
    ):
        found = {hidden(log[at]) for log in logs}
        rows.append(
            {
                "name": f"{world_size} ranks, {way}: hops under the work on a block",
                "value": found.pop() if len(found) == 1 else math.nan,
                "expected": due,
                "tolerance": 0,
                "unit": "",
                "source": source,
            }
        )
    return rows


def hidden(log: list[str]) -> int:
    """Hops between whose start and end a block is computed."""
    hops = [event.split()[1] for event in log if event.startswith("start")]
    spans = (log[log.index(f"start {hop}") : log.index(f"end {hop}")] for hop in hops)
    return sum("block" in span for span in spans)
