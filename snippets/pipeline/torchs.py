"""The same stages under torch.distributed.pipelining, and the tables it makes."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

from snippets import ranks
from snippets.pipeline.pipeline import B, H
from snippets.pipeline.stage import Parameters, whole
from snippets.pipeline_schedules.schedule import Kind, Slot, Task

NAMES = {  # ours: torch's
    "GPipe": "ScheduleGPipe",
    "1F1B": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "ZB-V": "ScheduleZBVZeroBubble",
    "DualPipeV": "ScheduleDualPipeV",
}
KINDS = {
    "FORWARD": Kind.FORWARD,
    "FULL_BACKWARD": Kind.BACKWARD,
    "BACKWARD_INPUT": Kind.INPUT,
    "BACKWARD_WEIGHT": Kind.WEIGHT,
}


class Stage(nn.Module):
    """A slice whose backward pass is autograd's."""

    def __init__(self, w: Parameters) -> None:
        super().__init__()
        self.up, self.down = (nn.Parameter(w[k].clone()) for k in ("up", "down"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.gelu(x @ self.up.T) @ self.down.T


def by_torch(rank: int, p: int, m: int, name: str) -> dict[str, Any]:
    """Loss and gradients of a rank, and its row of torch's table; None without one."""
    # A loss that still has its graph is turned into a number by torch itself.
    warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")
    count = 1 if name in ("GPipe", "1F1B") else 2
    second = 2 * p - 1 - rank if name in ("ZB-V", "DualPipeV") else rank + p
    mine = [rank, second][:count]
    w, x, target = whole(count * p, m, B, H)
    device = ranks.device()
    stages = [
        PipelineStage(Stage(w[at]).to(device), at, count * p, device) for at in mine
    ]

    def loss(y: torch.Tensor, due: torch.Tensor) -> torch.Tensor:
        return (y - due).square().sum() / x.numel()

    made = getattr(schedules, NAMES[name])(
        stages if count > 1 else stages[0], m, loss_fn=loss, scale_grads=False
    )
    losses: list[torch.Tensor] = []
    given = (x.flatten(0, 1).to(device),) if 0 in mine else ()
    last = {}
    if count * p - 1 in mine:
        last = {"target": target.flatten(0, 1).to(device), "losses": losses}
    made.step(*given, **last)
    table = getattr(made, "pipeline_order", None) or {}
    return {
        "loss": float(sum(one.detach() for one in losses)),
        "grads": [
            (at, {k: one.grad.cpu() for k, one in stage.submod.named_parameters()})
            for at, stage in zip(mine, stages, strict=True)
        ],
        "row": slots(table[rank], p) if rank in table else None,
    }


def slots(row: list[Any], p: int) -> list[Slot]:
    """A row of torch's table in our words, without its gaps."""
    found = []
    for action in row:
        parts = getattr(action, "sub_actions", None) or [action]
        tasks = [
            Task(KINDS[one.computation_type.name], one.microbatch_index,
                 int(one.stage_index >= p))
            for one in parts
            if one is not None and one.computation_type.name in KINDS
        ]  # fmt: skip
        if tasks:
            found.append(tuple(tasks))
    return found


def each(rank: int, p: int, wanted: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """`by_torch` for each (schedule, micro-batches) that is wanted."""
    return [by_torch(rank, p, m, name) for name, m in wanted]
