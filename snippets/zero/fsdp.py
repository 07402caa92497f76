"""The same training by torch's FSDP2, a layer at a time."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from snippets import ranks
from snippets.zero.unit import BETAS, EPS, RATE, SIZES
from snippets.zero.zero import STEPS, whole

KINDS = {"allgather": "all_gather", "reduce_scatter": "reduce_scatter"}


class Layer(nn.Module):
    """The layer with a parameter for each of its matrices."""

    def __init__(self, flat: torch.Tensor) -> None:
        super().__init__()
        h, inner = SIZES.h, SIZES.inner
        up, bias, down = flat.split([inner * h, inner, h * inner])
        self.up = nn.Parameter(up.view(inner, h).clone())
        self.bias = nn.Parameter(bias.clone())
        self.down = nn.Parameter(down.view(h, inner).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.linear(F.gelu(F.linear(x, self.up, self.bias)), self.down)


# --8<-- [start:fsdp]
def by_fsdp(rank: int, size: int, reshard: bool, steps: int = STEPS) -> dict[str, Any]:
    """Losses, weights, and collectives a step; `reshard`: after the forward pass."""
    # CommDebugMode hooks modules, whose inputs want no gradient here; and what FSDP2
    # returns is a view, of which nothing is changed in place. Both warn.
    warnings.filterwarnings("ignore", "Full backward hook is firing|FSDP2-wrapped")
    flats, x, target = whole(SIZES)
    device = ranks.device()
    mesh = init_device_mesh(device.type, (size,))
    model = nn.Sequential(*[Layer(flat.to(device)) for flat in flats])
    for one in model:
        fully_shard(one, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    adam = torch.optim.Adam(model.parameters(), RATE, BETAS, EPS)
    rows, due = (one.chunk(size)[rank].to(device) for one in (x, target))
    losses, calls = [], {}
    for _ in range(steps):
        with CommDebugMode() as mode:
            # Gradients are averaged over ranks: of a sum over the batch, times ranks.
            loss = (model(rows) - due).square().sum() / x.numel() * size
            loss.backward()
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()) / size)
        for name, count in mode.get_comm_counts().items():
            kinds = [kind for key, kind in KINDS.items() if key in str(name)]
            calls[kinds[0] if kinds else str(name)] = count
    weights = [
        torch.cat([one.full_tensor().detach().flatten() for one in part.parameters()])
        for part in model
    ]
    return {"losses": losses, "weights": [one.cpu() for one in weights], "calls": calls}
# --8<-- [end:fsdp]


def each(rank: int, size: int, wanted: list[bool]) -> list[dict[str, Any]]:
    """`by_fsdp` with and without resharding."""
    return [by_fsdp(rank, size, reshard) for reshard in wanted]
