"""The same model by torch's own parts: DTensor lays out parameters and finds who meets.

A plan says for each linear layer along what it is cut; `parallelize_module` does the
rest, and CommDebugMode counts the collectives it calls.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from snippets import ranks
from snippets.tensor_parallel.tensor_parallel import Sizes, whole

PARTS = {  # ours: torch's
    "norm1": "norm1.weight", "shift1": "norm1.bias", "norm2": "norm2.weight",
    "shift2": "norm2.bias", "qkv": "qkv.weight", "qkv_bias": "qkv.bias",
    "out": "out.weight", "out_bias": "out.bias", "up": "up.weight",
    "up_bias": "up.bias", "down": "down.weight", "down_bias": "down.bias",
}  # fmt: skip


class Layer(nn.Module):
    """Attention and a feed-forward, written for one process."""

    def __init__(self, h: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm1(x))
        s, b = qkv.shape[:2]
        q, k, v = qkv.view(s, b, -1, 3 * self.width).permute(1, 2, 0, 3).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.permute(2, 0, 1, 3).reshape(s, b, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """Words, layers, words again."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.h)
        width = sizes.h // sizes.a
        self.layers = nn.ModuleList(Layer(sizes.h, width) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.h)
        self.head = nn.Linear(sizes.h, sizes.words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for one in self.layers:
            x = one(x)
        return self.head(self.norm(x))


# --8<-- [start:plan]
def plan(sizes: Sizes, sequence: bool) -> dict[str, Any]:
    """Along what torch is to cut each part; `sequence`: rows too, between products."""
    rows = Shard(0) if sequence else Replicate()
    wanted: dict[str, Any] = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows),
        "head": ColwiseParallel(
            input_layouts=rows, output_layouts=Shard(-1), use_local_output=False
        ),
    }
    columns = ColwiseParallel(input_layouts=rows)
    gathered = RowwiseParallel(output_layouts=rows)
    for at in range(sizes.layers):
        wanted |= {f"layers.{at}.{name}": columns for name in ("qkv", "up")}
        wanted |= {f"layers.{at}.{name}": gathered for name in ("out", "down")}
    if sequence:
        every = range(sizes.layers)
        norms = ["norm", *(f"layers.{at}.norm{n}" for at in every for n in (1, 2))]
        own = SequenceParallel(sequence_dim=0, use_local_output=True)
        wanted |= dict.fromkeys(norms, own)
    return wanted
# --8<-- [end:plan]


def by_torch(rank: int, t: int, sizes: Sizes, sequence: bool) -> dict[str, Any]:
    """Loss, whole gradients by our names, and collectives called, forward and back."""
    ids, targets, w = whole(sizes)
    device = ranks.device()
    model = Model(sizes).double()
    names = {"words": "words.weight", "norm": "norm.weight", "shift": "norm.bias"}
    for at in range(sizes.layers):
        names |= {f"{at}.{k}": f"layers.{at}.{torchs}" for k, torchs in PARTS.items()}
    state = {torchs: w[ours] for ours, torchs in names.items()}
    model.load_state_dict(state | {"head.weight": w["words"]})
    mesh = init_device_mesh(device.type, (t,))
    model = parallelize_module(model.to(device), mesh, plan(sizes, sequence))
    # The mode hooks modules, one of which is given integers: that warns, of nothing.
    warnings.filterwarnings("ignore", "Full backward hook is firing")
    with CommDebugMode() as forward:
        logits = model(ids.to(device))
    with CommDebugMode() as ends, loss_parallel():
        loss = F.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
    with CommDebugMode() as backward, loss_parallel():
        loss.backward()
    grads = {}
    found = dict(model.named_parameters())
    for ours, torchs in names.items():
        grad = found[torchs].grad
        grads[ours] = (grad.full_tensor() if isinstance(grad, DTensor) else grad).cpu()
    grads["words"] += found["head.weight"].grad.full_tensor().cpu()  # ours are tied
    loss = loss.detach()
    total = loss.full_tensor() if isinstance(loss, DTensor) else loss
    told = [
        {str(name).split(".")[-1]: n for name, n in one.get_comm_counts().items()}
        for one in (forward, ends, backward)
    ]
    return {"loss": float(total), "grads": grads, "calls": told}
