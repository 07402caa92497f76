"""The same steps by torch's DistributedDataParallel, and the buckets it makes."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from snippets import ranks
from snippets.data_parallel.data_parallel import RATE, Model, batch


def by_torch(rank: int, size: int, limit: int, steps: int = 3) -> dict[str, Any]:
    """Losses, parameters, and which parameters are in each of its buckets."""
    model = Model().to(ranks.device())
    wrapped = DistributedDataParallel(model, bucket_cap_mb=limit / 2**20)
    adder = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    rows, due = (x.chunk(size)[rank].to(ranks.device()) for x in batch())
    losses = []
    for _ in range(steps):
        loss = (wrapped(rows) - due).square().mean()
        adder.zero_grad()
        loss.backward()
        adder.step()
        losses.append(float(loss.detach()))
    told = wrapped._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
    buckets = [[int(at) for at in one.split()] for one in told.split(",") if told]
    weights = [one.detach().cpu() for one in model.parameters()]
    return {"losses": losses, "weights": weights, "buckets": buckets}


def each(rank: int, size: int, limits: list[int]) -> list[dict[str, Any]]:
    """`by_torch` for each limit."""
    return [by_torch(rank, size, limit) for limit in limits]
