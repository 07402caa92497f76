"""What async_tensor_parallel must show: one process's results, and what overlaps."""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets import ranks
from snippets.async_tensor_parallel.async_tensor_parallel import (
    WAYS,
    K,
    Log,
    N,
    S,
    clock,
    each,
    whole,
)
from snippets.facts import fact

NEEDS = {"seconds": 120}
LIMIT = 1e-12  # relative: thousands of float64 roundings
SOURCE = "overlap-by-decomposition"
LINKS = (0.5, 1.75, 4)  # of a product's time: hidden, hidden by two, never


def facts() -> list[dict[str, Any]]:
    """Results, bytes, order and times by ranks, way and product."""
    rows = []
    for t in (3, 4, 8):
        rows += of_ranks(t)
    return rows


def of_ranks(t: int) -> list[dict[str, Any]]:
    """Every way on t ranks."""
    rows = []
    # Order and bytes are looked at, not seconds: they are the same on a CPU.
    told = ranks.run(each, t, backend="gloo")
    for way in WAYS:
        for name in ("gather", "scatter"):
            found = [one[way][name] for one in told]
            what = f"{t} ranks, {name}, {way}"
            rows += errors(what, name, found) + traffic(what, name, found)
            rows += overlap(what, way, found)
    return rows


def errors(what: str, name: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Relative errors of the result and of both gradients."""
    all_of = whole(len(found))
    which = 1 if name == "gather" else 2
    x, w, dy = (all_of[f"{k}{which}"] for k in ("x", "w", "dy"))
    due = {"y": x @ w.T, "dx": dy @ w, "dw": dy.T @ x}
    cut = {"y": 1, "dx": 0, "dw": 0} if name == "gather" else {"y": 0, "dx": 1, "dw": 1}
    rows = []
    for key, truth in due.items():
        ours = torch.cat([one[key] for one in found], cut[key])
        error = float((ours - truth).norm() / truth.norm())
        source = "the float64 product on one process"
        rows.append(fact(f"{what}: error of {key}", error, 0, source, LIMIT))
    return rows


def traffic(what: str, name: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes and messages of a rank, forward and backward."""
    t = len(found)
    shard = S // t * (K if name == "gather" else N) * torch.float64.itemsize
    passes = {"forward": 1, "backward": 2 if name == "gather" else 1}
    words = {
        "forward": "(t - 1) / t of what is gathered or summed",
        "backward": "twice that: dx scattered, x gathered again"
        if name == "gather"
        else "dy gathered once, for both gradients",
    }
    rows = []
    for at, (way, count) in enumerate(passes.items(), 1):
        sent, messages = (
            alike([one["counts"][at][k] - one["counts"][at - 1][k] for one in found])
            for k in (0, 1)
        )
        rows += [
            fact(f"{what}, {way}: sent by a rank", sent, count * (t - 1) * shard,
                 f"{words[way]}, after {SOURCE}", unit="B"),
            fact(f"{what}, {way}: messages", messages, count * (t - 1), "t - 1 each"),
        ]  # fmt: skip
    return rows


def alike(values: list[Any]) -> float:
    """What all ranks have; NaN unless they have the same."""
    return values[0] if len(set(values)) == 1 else math.nan


def overlap(what: str, way: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Transfers under which a product runs, and when a rank would be done."""
    t = len(found)
    due = 0 if way == "collective" else t - 1
    logs = [one["forward"] for one in found]
    rows = [
        fact(f"{what}: products", alike([tally(log) for log in logs]), t,
             "one a shard"),
        fact(f"{what}: transfers under a product", alike([hidden(log) for log in logs]),
             due, "none of a collective, else all t - 1"),
    ]  # fmt: skip
    for link in LINKS:
        time = alike([clock(log, 1, link) for log in logs])
        expected, words = done(way, t, link)
        rows.append(
            fact(f"{what}: done, a shard taking {link:g} products to send", time,
                 expected, words, 1e-12, "products")
        )  # fmt: skip
    return rows


def tally(log: Log) -> int:
    """How many products there are, each of a shard of its own."""
    return len({one.shard for one in log if one.what == "product"})


def hidden(log: Log) -> int:
    """Transfers between whose start and end a product runs."""
    sent: list[int] = []
    count = products = 0
    for one in log:
        if one.what == "send":
            sent.append(products)
        elif one.what == "product":
            products += 1
        else:
            count += products > sent.pop(0)
    return count


def done(way: str, t: int, link: float) -> tuple[float, str]:
    """When a rank has made t products of time 1, and its formula."""
    if way == "collective":
        return t + (t - 1) * link, "t + (t - 1) link"
    if way == "ring":
        return 1 + (t - 1) * max(1, link), "1 + (t - 1) max(1, link)"
    pairs = t // 2 - 1
    last = 1 if t % 2 == 0 else 2
    words = "max(1, link) + (t // 2 - 1) max(2, link) + 1, or 2 where t is odd"
    return max(1, link) + pairs * max(2, link) + last, words
