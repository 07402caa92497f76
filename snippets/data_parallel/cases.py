"""What data_parallel must show: one process's results, early buckets, a named rank."""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets import ranks
from snippets.data_parallel import data_parallel as ours
from snippets.data_parallel import peer, planted
from snippets.data_parallel.data_parallel import RATE, Model, Want, batch, each
from snippets.facts import fact

NEEDS = {"seconds": 180}
LIMIT = 1e-12  # relative: thousands of float64 roundings
DDP = "pytorch-ddp"
WANTS = {
    "one bucket": Want(10_000, 10_000),
    "600 bytes": Want(),
    "1200 bytes, first 100": Want(1200, 100),
    "a bucket each": Want(1, 1),
    "2 micro-batches": Want(micro_batches=2),
    "2 micro-batches, summed each time": Want(micro_batches=2, every_time=True),
    "a layer unused on rank 0": Want(skip=True),
}
LIMITS = (600, 1200, 10_000)  # bytes, beside DistributedDataParallel


def facts() -> list[dict[str, Any]]:
    """Errors, bytes and order on 2, 4 and 8 ranks; torch's; ranks that fail."""
    rows = []
    for size in (2, 4, 8):
        rows += of_ranks(size)
    return rows + of_torch(2) + of_failures(4)


def of_ranks(size: int) -> list[dict[str, Any]]:
    """Every way on so many ranks."""
    rows = []
    # Order and bytes are looked at, not seconds: they are the same on a CPU.
    told = ranks.run(each, size, list(WANTS.values()), backend="gloo")
    for (name, want), found in zip(WANTS.items(), zip(*told, strict=True), strict=True):
        what = f"{size} ranks, {name}"
        rows += errors(what, list(found), want) + traffic(what, list(found), want)
        rows += order(what, list(found), want)
    return rows


def one_process(size: int, want: Want) -> tuple[list[float], list[torch.Tensor]]:
    """Losses and parameters by torch's SGD, the whole batch at once."""
    model = Model()
    x, target = batch()
    adder = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    losses = []
    for _ in range(want.steps):
        parts = [
            model(rows, 2 if want.skip and rank == 0 else -1)
            for rank, rows in enumerate(x.chunk(size))
        ]
        loss = (torch.cat(parts) - target).square().mean()
        adder.zero_grad()
        loss.backward()
        adder.step()
        losses.append(float(loss.detach()))
    return losses, [one.detach() for one in model.parameters()]


def errors(what: str, found: list[Any], want: Want) -> list[dict[str, Any]]:
    """The largest relative error of a loss, and of a parameter on any rank."""
    losses, weights = one_process(len(found), want)
    by_step = zip(*(one["losses"] for one in found), strict=True)
    means = [sum(step) / len(found) for step in by_step]
    wrong = [abs(a / b - 1) for a, b in zip(means, losses, strict=True)]
    far = [
        float((one - due).norm() / due.norm())
        for told in found
        for one, due in zip(told["weights"], weights, strict=True)
    ]
    source = "float64 SGD with momentum on one process"
    return [
        fact(f"{what}: largest error of a loss", largest(wrong), 0, source, LIMIT),
        fact(f"{what}: largest error of a parameter", largest(far), 0, source, LIMIT),
    ]


def largest(values: list[float]) -> float:
    """The largest; NaN if one is."""
    return math.nan if any(map(math.isnan, values)) else max(values)


def alike(values: list[Any]) -> float:
    """What all ranks have; NaN unless they have the same."""
    return values[0] if len(set(values)) == 1 else math.nan


def traffic(what: str, found: list[Any], want: Want) -> list[dict[str, Any]]:
    """Bytes and messages of a rank, of all steps."""
    size = len(found)
    parameters = list(Model().parameters())
    made = ours.buckets(parameters, want.limit, want.first)
    sums = want.steps * (want.micro_batches if want.every_time else 1)
    numbers = [sum(parameters[at].numel() for at in bucket) for bucket in made]
    # A bucket is padded so that it splits over the ring; these split as they are.
    due = sums * 2 * (size - 1) * sum(math.ceil(n / size) for n in numbers) * 8
    words = "2 (N - 1) / N of the gradients, whatever the buckets"
    words += ", and each time" * want.every_time
    return [
        fact(f"{what}: sent by a rank", alike([one["sent"] for one in found]), due,
             f"{words}, after {DDP}", unit="B"),
        fact(f"{what}: messages", alike([one["messages"] for one in found]),
             sums * 2 * (size - 1) * len(made), "2 (N - 1) for each bucket"),
    ]  # fmt: skip


def order(what: str, found: list[Any], want: Want) -> list[dict[str, Any]]:
    """Buckets that start before the backward pass is over, and before its last one."""
    count = alike([one["buckets"] for one in found])
    early = [before(one["log"], "backward") for one in found]
    # The last gradient is what the last bucket waits for.
    under = [before(one["log"], "gradient") for one in found]
    if want.skip:  # the bucket of the layer that rank 0 leaves out, and those behind
        early, under = early[1:], under[1:]
    waits = sum(
        [n for kind, n in one["log"] if kind == "wait"] != list(range(one["buckets"]))
        for one in found
        if want.micro_batches == 1
    )
    rows = [
        fact(f"{what}: buckets started within backward", alike(early), count, "all"),
        fact(f"{what}: ranks that wait in another order", waits, 0, "that of buckets"),
    ]
    if want.micro_batches == 1:
        rows.append(
            fact(f"{what}: buckets started under other gradients", alike(under),
                 count - 1, "all but the last")
        )  # fmt: skip
    return rows


def before(log: list[tuple[str, int]], what: str) -> int:
    """Buckets of the last backward pass that start before the last event of a kind."""
    kinds = [kind for kind, _ in log]
    end = len(kinds) - 1 - kinds[::-1].index(what)
    starts = {n for kind, n in log[:end] if kind == "start"}
    return len(starts)


def of_torch(size: int) -> list[dict[str, Any]]:
    """DistributedDataParallel: its results, and whether its buckets are ours."""
    rows = []
    found = zip(*ranks.run(peer.each, size, list(LIMITS), backend="gloo"), strict=True)
    parameters = list(Model().parameters())
    for limit, told in zip(LIMITS, found, strict=True):
        what = f"{size} ranks, torch's with {limit} bytes"
        rows += errors(what, list(told), Want())
        made = ours.buckets(parameters, limit, limit)
        if told[0]["buckets"]:  # it tells them in its own log alone
            other = sum(one["buckets"] != made for one in told)
            rows.append(
                fact(f"{what}: ranks with other buckets than ours", other, 0,
                     "gradients in the order in which they come, up to the limit")
            )  # fmt: skip
    return rows


def of_failures(size: int) -> list[dict[str, Any]]:
    """A rank that fails is named: by the others, and from outside."""
    rows = []
    for way, culprit, when in (("dies", 2, 3), ("hangs", 0, 2), ("raises", 1, 4)):
        told = planted.run(way, size, culprit, when)
        what = f"{size} ranks, of which {culprit} {way} in step {when}"
        if way != "raises":  # which ends all others at once
            right = sum(named == str(culprit) for _, named, _ in told.notes.values())
            rows.append(
                fact(f"{what}: ranks that name it", right, size - 1, "all others")
            )
        outside = -1 if told.outside is None else told.outside
        rows.append(
            fact(f"{what}: rank named from outside", outside, culprit, "as planted")
        )
    told = planted.run("none", size, 0, 1)
    rows.append(
        fact(f"{size} ranks, none of which fails: ranks that miss another",
             len(told.notes), 0, "nobody is missing")
    )  # fmt: skip
    return rows
