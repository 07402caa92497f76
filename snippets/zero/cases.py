"""What zero must show: Adam's results on one process, and the bytes of the stages."""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets import ranks
from snippets.facts import fact
from snippets.zero import fsdp, zero
from snippets.zero.unit import BETAS, EPS, RATE, SIZES, STAGES, Sizes, layer, psi
from snippets.zero.zero import PHASES, STEPS, Want, whole

NEEDS = {"seconds": 240}
LIMIT = 1e-12  # relative: thousands of float64 roundings
MICRO = 3  # micro-batches
ODD = Sizes(layers=2, h=7, inner=5, rows=48)  # 75 parameters a layer: padded
HALF = (torch.bfloat16, torch.float32)


def facts() -> list[dict[str, Any]]:
    """Bytes, messages and errors of every stage on 1, 2, 4 and 8 ranks; FSDP2's."""
    rows = []
    for n in (1, 2, 4, 8):
        rows += of_ranks(n)
    for n in (2, 4):
        rows += of_fsdp(n)
    return rows


def of_ranks(n: int) -> list[dict[str, Any]]:
    """Every stage on n ranks: in 16 bits, in float64, in micro-batches, padded."""
    kinds = {
        "": lambda stage: Want(stage, *HALF, steps=1),
        "float64": lambda stage: Want(stage),
        "micro-batches": lambda stage: Want(stage, micro_batches=MICRO),
        "padded": lambda stage: Want(stage, sizes=ODD),
    }
    if n == 8:  # of two cores each message is a wait
        kinds = {kind: kinds[kind] for kind in ("", "float64")}
    wanted = [kind(stage) for stage in STAGES for kind in kinds.values()]
    # Bytes are counted, not seconds: they are the same on a CPU.
    by_rank = ranks.run(zero.each, n, wanted, backend="gloo")
    found = (list(one) for one in zip(*by_rank, strict=True))
    rows = []
    for stage in STAGES:
        name = f"{n} ranks, stage {stage}" if stage else f"{n} ranks, plain"
        for kind in kinds:
            one = next(found)
            if kind:
                sizes = ODD if kind == "padded" else SIZES
                rows += errors(f"{name}, {kind}", one, sizes)
            else:
                rows += held(name, one, stage) + traffic(name, one, stage, 1, 2)
            if kind == "micro-batches":
                rows += traffic(f"{name}, {MICRO} micro-batches", one, stage, MICRO, 8)
    return rows


def held(name: str, told: list[dict[str, Any]], stage: int) -> list[dict[str, Any]]:
    """Bytes of a rank once it has its gradients, and layers gathered at once."""
    n, count = len(told), SIZES.layers * psi(SIZES)
    due, words = {
        0: (16 * count, "16 Psi"),
        1: (4 * count + 12 * count / n, "4 Psi + 12 Psi / N"),
        2: (2 * count + 14 * count / n, "2 Psi + 14 Psi / N"),
        3: (16 * count / n, "16 Psi / N"),
    }[stage]
    return [
        fact(f"{name}: held by a rank", alike([one["held"] for one in told]), due,
             f"{words}, after zero", unit="B"),
        fact(f"{name}: gathered layers after the forward pass",
             max(one["gathered"] for one in told), 0, "none is kept"),
    ]  # fmt: skip


def alike(values: list[Any]) -> float:
    """What all ranks have; NaN unless they have the same."""
    return values[0] if len(set(values)) == 1 else math.nan


def traffic(
    name: str, told: list[dict[str, Any]], stage: int, k: int, word: int
) -> list[dict[str, Any]]:
    """Bytes and messages of a rank by phase, of all steps."""
    n, count = len(told), SIZES.layers * psi(SIZES)
    steps = 1 if word == 2 else STEPS
    forward, backward, update, words = {
        0: (0, 2, 0, "one all-reduce a step"),
        1: (0, 1, 1, "one reduce-scatter a step, then weights are gathered"),
        2: (0, k, 1, "a reduce-scatter each micro-batch, then weights are gathered"),
        3: (k, 2 * k, 0, "two gatherings and a reduce-scatter each micro-batch"),
    }[stage]
    rows = []
    for phase, passes in zip(PHASES, (forward, backward, update), strict=True):
        sent = alike([one["sent"][phase] for one in told])
        messages = alike([one["messages"][phase] for one in told])
        due = steps * passes * (n - 1)
        rows += [
            fact(f"{name}, {phase}: sent by a rank", sent, due * count * word // n,
                 f"{passes} Psi (N - 1) / N: {words}, after zero", unit="B"),
            fact(f"{name}, {phase}: messages", messages, due * SIZES.layers,
                 f"N - 1 for each of L layers and {passes} collectives"),
        ]  # fmt: skip
    return rows


def errors(
    name: str, told: list[dict[str, Any]], sizes: Sizes
) -> list[dict[str, Any]]:
    """The largest relative error of a loss, and of a layer's weights on any rank."""
    losses, weights = on_one_process(sizes)
    found = [sum(values) for values in zip(*(o["losses"] for o in told), strict=True)]
    wrong = [abs(a / b - 1) for a, b in zip(found, losses, strict=True)]
    far = [
        float((ours - due).norm() / due.norm())
        for one in told
        for ours, due in zip(one["weights"], weights, strict=True)
    ]
    source = "torch's float64 Adam on one process"
    return [
        fact(f"{name}: largest error of a loss", largest(wrong), 0, source, LIMIT),
        fact(f"{name}: largest error of a layer", largest(far), 0, source, LIMIT),
    ]


def largest(values: list[float]) -> float:
    """The largest; NaN if one is."""
    return math.nan if any(map(math.isnan, values)) else max(values)


def on_one_process(
    sizes: Sizes, steps: int = STEPS
) -> tuple[list[float], list[torch.Tensor]]:
    """Losses and weights by torch's Adam, the whole batch at once."""
    flats, x, target = whole(sizes)
    flats = [flat.clone().requires_grad_() for flat in flats]
    adam = torch.optim.Adam(flats, RATE, BETAS, EPS)
    losses = []
    for _ in range(steps):
        y = x
        for flat in flats:
            y = layer(y, flat, sizes)
        loss = (y - target).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    return losses, [flat.detach() for flat in flats]


def of_fsdp(n: int) -> list[dict[str, Any]]:
    """FSDP2: results, and collectives that CommDebugMode counts a step."""
    rows = []
    ways = (True, False)
    found = zip(*ranks.run(fsdp.each, n, list(ways), backend="gloo"), strict=True)
    for reshard, told in zip(ways, found, strict=True):
        name = f"{n} ranks, FSDP2{'' if reshard else ' without resharding'}"
        rows += errors(name, list(told), SIZES)
        calls = told[0]["calls"]
        gathers = 2 * SIZES.layers if reshard else SIZES.layers
        due = {"all_gather": gathers, "reduce_scatter": SIZES.layers}
        words = {
            "all_gather": "each layer, forward and again backward"
            if reshard
            else "each layer, once: a third less is sent",
            "reduce_scatter": "each layer",
        }
        rows += [
            fact(f"{name}: {kind} a step", calls.get(kind, 0), count, words[kind])
            for kind, count in due.items()
        ]
        rows.append(
            fact(f"{name}: other collectives a step",
                 sum(count for kind, count in calls.items() if kind not in due), 0,
                 "none")
        )  # fmt: skip
    return rows
