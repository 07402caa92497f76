"""What tensor_parallel must show: one process's results, and the bytes of formulas."""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets import ranks
from snippets.collectives import Library
from snippets.facts import fact
from snippets.tensor_parallel.dtensor import by_torch
from snippets.tensor_parallel.tensor_parallel import (
    LAYOUTS,
    SIZES,
    cut,
    each,
    on_rank,
    whole,
)

NEEDS = {"seconds": 240}
LIMIT = 1e-12  # relative: thousands of float64 roundings
MEGATRON = "megatron-lm"
ROWS = "reducing-activation-recomputation"
RING = "sequence-parallelism-system-perspective"
PHASES = ("forward", "backward", "gradients")


def facts() -> list[dict[str, Any]]:
    """Results, bytes and messages of 2, 4 and 8 ranks; torch's own parts on 2 and 4."""
    truth = on_rank(Library(), "tensor", SIZES)
    rows = []
    for t in (2, 4, 8):
        rows += of_ranks(t, truth)
    for t in (2, 4):
        rows += of_torch(t, truth)
    return rows


def of_ranks(t: int, truth: dict[str, Any]) -> list[dict[str, Any]]:
    """Every layout on t ranks."""
    wanted = [(layout, SIZES) for layout in LAYOUTS]
    rows = []
    # Bytes and messages are counted, not seconds: they are the same on a CPU.
    found = zip(*ranks.run(each, t, wanted, backend="gloo"), strict=True)
    for layout, told in zip(LAYOUTS, found, strict=True):
        name = f"{t} ranks, {layout}"
        rows += errors(name, told, truth, layout) + traffic(name, told, t, layout)
    return rows


def errors(name: str, told: Any, truth: Any, layout: str) -> list[dict[str, Any]]:
    """The relative error of the loss, and the largest of a gradient."""
    worst = []
    for key, due in truth["grads"].items():
        dim = None if layout.startswith("ring") else cut(key)
        for one in told if dim is None else told[:1]:
            found = one["grads"][key]
            if dim is not None:
                found = torch.cat([other["grads"][key] for other in told], dim)
            worst.append(float((found - due).norm() / due.norm()))
    source = "the float64 model on one process"
    losses = [abs(one["loss"] / truth["loss"] - 1) for one in told]
    return [
        fact(f"{name}: error of the loss", largest(losses), 0, source, LIMIT),
        fact(f"{name}: largest error of a gradient", largest(worst), 0, source, LIMIT),
    ]


def largest(values: list[float]) -> float:
    """The largest; NaN if one is."""
    return math.nan if any(math.isnan(x) for x in values) else max(values)


def traffic(name: str, told: Any, t: int, layout: str) -> list[dict[str, Any]]:
    """Bytes and messages of a rank by phase, against the formulas of the layout."""
    s, b, h, _, _, layers = SIZES
    word = torch.float64.itemsize
    size = s * b * h * word * (t - 1) // t
    loss = 6 * s * b * word * (t - 1) // t  # three numbers a token, all-reduced
    psi = sum(one.numel() for one in whole(SIZES)[2].values())
    rowed = 6 * h * layers + 2 * h  # of parameters that all ranks hold whole
    gradients = {"tensor": 0, "sequence": rowed}.get(layout, psi)
    padded = 2 * (t - 1) * math.ceil(gradients / t) * word
    calls, kinds = layers, layout.split(",")[0]
    passes, messages, words = {
        "tensor": (
            (4 * calls + 2, 4 * calls + 2), (4 * calls + 6, 4 * calls + 2),
            ("(4 L + 2) S (t - 1) / t + 6 s b (t - 1) / t", "(4 L + 2) S (t - 1) / t"),
        ),
        "sequence": (
            (4 * calls + 2, 6 * calls + 3), (4 * calls + 6, 6 * calls + 3),
            ("(4 L + 2) S (t - 1) / t + 6 s b (t - 1) / t", "(6 L + 3) S (t - 1) / t"),
        ),
        "ring": (
            (2 * calls, 6 * calls), (2 * calls, 6 * calls),
            ("2 L S (t - 1) / t", "6 L S (t - 1) / t"),
        ),
        "ring, scattered": (
            (2 * calls, 4 * calls), (2 * calls, 4 * calls),
            ("2 L S (t - 1) / t", "4 L S (t - 1) / t, as each rank wants its own sums"),
        ),
    }[layout]  # fmt: skip
    due = [
        (passes[0] * size + (loss if kinds != "ring" else 0), messages[0] * (t - 1)),
        (passes[1] * size, messages[1] * (t - 1)),
        (padded, 2 * (t - 1) if gradients else 0),
    ]
    sources = {"tensor": MEGATRON, "sequence": ROWS, "ring": RING}
    words = (*words, "all-reduce of what ranks hold whole: 2 (t - 1) / t of its bytes")
    rows = []
    for at, (phase, (sent, count)) in enumerate(zip(PHASES, due, strict=True), 1):
        source = f"{words[at - 1]}, S = s b h, after {sources[kinds]}"
        rows += [
            fact(f"{name}, {phase}: sent by a rank", alike(told, "sent", at), sent,
                 source, unit="B"),
            fact(f"{name}, {phase}: messages", alike(told, "messages", at), count,
                 "t - 1 for a gathering or scattering, twice that for both"),
        ]  # fmt: skip
    return rows


def alike(told: Any, key: str, at: int) -> float:
    """What each rank has of a count in a phase; NaN unless all have as many."""
    found = {one[key][at] - one[key][at - 1] for one in told}
    return found.pop() if len(found) == 1 else math.nan


def of_torch(t: int, truth: dict[str, Any]) -> list[dict[str, Any]]:
    """The same model by DTensor: results, and collectives that CommDebugMode counts."""
    rows = []
    layers = SIZES.layers
    for layout, sequence in (("tensor", False), ("sequence", True)):
        name = f"{t} ranks, torch's {layout}"
        told = ranks.run(by_torch, t, SIZES, sequence, backend="gloo")
        rows += errors(name, told, truth, "ring")
        forward, ends, backward = told[0]["calls"]
        names = (
            ("reduce_scatter_tensor", "all_gather_into_tensor")
            if sequence
            else ("all_reduce",)
        )
        for way, counts in (("forward", forward), ("backward", backward)):
            rows += [
                fact(f"{name}, {way}: {one}", counts.get(one, 0), 2 * layers + 1,
                     "2 L + 1: two a layer, one at an end")
                for one in names
            ]  # fmt: skip
            rows.append(
                fact(f"{name}, {way}: collectives of other kinds",
                     sum(n for one, n in counts.items() if one not in names), 0, "none")
            )  # fmt: skip
        rows.append(
            fact(f"{name}, loss: all_reduce", ends.get("all_reduce", 0), 3,
                 "largest, sum and target, each for itself")
        )  # fmt: skip
    return rows
