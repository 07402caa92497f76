"""ZeRO by hand: each rank keeps a part of what all ranks would keep alike.

Shapes  Psi parameters in layers, each one flat tensor, padded so that it splits; a
        batch (N b, h) of which a rank has (b, h)
Bytes   held by a rank of N in mixed precision, with Adam: plain 16 Psi, stage 1
        4 Psi + 12 Psi / N, stage 2 2 Psi + 14 Psi / N, stage 3 16 Psi / N. Sent in a
        step, in numbers: 2 Psi (N - 1) / N, in stage 3 half as many again
Error   losses and weights within 1e-12 of float64 Adam on one process
Raises  ValueError for a stage that is not 0 to 3, or a batch that does not split
Source  zero, pytorch-fsdp, fully-shard
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from snippets import ranks
from snippets.collectives import Library, Ring
from snippets.zero.live import forget, held
from snippets.zero.unit import SIZES, STAGES, Sizes, Unit, psi

PHASES = ("forward", "backward", "update")
STEPS = 3

# --8<-- [start:train]
class Training:
    """A model on one rank, and what was held and sent by the end of each phase."""

    def __init__(
        self, stage: int, group: Library, sizes: Sizes,
        dtype: torch.dtype, exact: torch.dtype,
    ) -> None:  # fmt: skip
        if stage not in STAGES:
            raise ValueError(f"zero: no stage {stage}; there are 0 (plain), 1, 2 and 3")
        self.group, self.sizes, self.stage = group, sizes, stage
        self.units = [
            Unit(flat.to(ranks.device()), stage, group, dtype, exact)
            for flat in whole(sizes)[0]
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The rank's rows through all layers."""
        for unit in self.units:
            x = unit.run(x, self.sizes)
        return x

    def reduce(self) -> None:
        """After the last micro-batch of a step; stage 2 has done it each time."""
        for unit in self.units:
            if self.stage != 2:
                unit.reduce()

    def update(self) -> None:
        """A step of Adam."""
        for unit in self.units:
            unit.update()
# --8<-- [end:train]


def whole(sizes: Sizes) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Seeded parameters by layer, inputs and targets (rows, h), float64."""
    draw = torch.Generator().manual_seed(0)
    flats = [
        torch.randn(psi(sizes), generator=draw, dtype=torch.float64)
        / math.sqrt(2 * sizes.h)
        for _ in range(sizes.layers)
    ]
    shape = (2, sizes.rows, sizes.h)
    x, target = torch.randn(shape, generator=draw, dtype=torch.float64)
    return flats, x, target


class Want(NamedTuple):
    """What is run: a stage, in which types, in how many steps and micro-batches."""

    stage: int
    dtype: torch.dtype = torch.float64
    exact: torch.dtype = torch.float64
    steps: int = STEPS
    micro_batches: int = 1
    sizes: Sizes = SIZES


def on_rank(group: Library, want: Want) -> dict[str, Any]:
    """Train: losses, weights, bytes held before the update, and sent by phase."""
    stage, dtype, exact, steps, k, sizes = want
    if sizes.rows % (group.size * k):
        raise ValueError(
            f"zero: {sizes.rows} rows do not split over {group.size} ranks and {k} "
            "micro-batches; pad the batch"
        )
    _, x, target = whole(sizes)
    batches = [
        tuple(part.to(ranks.device(), dtype) for part in both)
        for both in zip(
            x.chunk(group.size)[group.rank].chunk(k),
            target.chunk(group.size)[group.rank].chunk(k),
            strict=True,
        )
    ]
    wire = group.wire if isinstance(group, Ring) else ranks.Wire()
    told: dict[str, Any] = {"losses": [], "sent": dict.fromkeys(PHASES, 0)}
    told["messages"] = dict.fromkeys(PHASES, 0)
    before = (wire.sent, wire.messages)

    def phase(name: str) -> None:
        nonlocal before
        now = (wire.sent, wire.messages)
        told["sent"][name] += now[0] - before[0]
        told["messages"][name] += now[1] - before[1]
        before = now

    counted = dtype != torch.float64  # the formulas are of 16 bits
    if counted:
        forget()
    model = Training(stage, group, sizes, dtype, exact)
    most = 0
    for step in range(steps):
        loss = 0.0
        for rows, due in batches:
            y = model.forward(rows)
            part = (y - due).square().sum() / x.numel()  # of the mean over the batch
            phase("forward")
            most = max(most, sum(len(unit.gathered) for unit in model.units))
            part.backward()
            loss += float(part.detach())
            del y, part
            phase("backward")
        model.reduce()
        phase("backward")
        if step == 0 and counted:
            told["held"] = held()
        model.update()
        phase("update")
        told["losses"].append(loss)
    told["gathered"] = most
    told["calls"] = dict(group.calls)
    told["weights"] = [
        unit.gather() if stage == 3 else unit.weights.detach() for unit in model.units
    ]
    told["weights"] = [one[: psi(sizes)].cpu() for one in told["weights"]]
    return told


def each(rank: int, size: int, wanted: list[Want]) -> list[dict[str, Any]]:
    """`on_rank` for each that is wanted, in messages that are counted."""
    return [on_rank(Ring(), want) for want in wanted]


def demo(device: str) -> None:
    """What a rank of four holds and sends in bytes a parameter, and its losses."""
    backend = "gloo" if device == "cpu" else None
    wanted = [Want(stage, torch.bfloat16, torch.float32, 1) for stage in STAGES]
    wanted += [Want(stage) for stage in STAGES]
    told = ranks.run(each, 4, wanted, backend=backend)[0]
    count = SIZES.layers * psi(SIZES)
    print(f"{count} parameters, 4 ranks, bfloat16 with Adam in float32, by rank 0")
    for stage, one in zip(STAGES, told, strict=False):
        sent = ", ".join(f"{name} {n / count:g}" for name, n in one["sent"].items())
        held = one["held"] / count
        print(f"stage {stage}: {held:4g} bytes a parameter; sent: {sent}")
    print("in float64, loss of rank 0 by step:")
    for stage, one in zip(STAGES, told[4:], strict=True):
        print(f"stage {stage}:", " ".join(f"{loss:.9f}" for loss in one["losses"]))


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
