"""The bytes that torch has in use at once while it takes a loss and its gradient."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Lived(TorchDispatchMode):
    """Sums the storages that are alive after each operation; `most` is the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in tree_leaves(out):
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                self.known[id(storage)] = weakref.ref(storage)
        alive = {key: ref for key, ref in self.known.items() if ref() is not None}
        self.known = alive
        self.most = max(self.most, sum(ref().nbytes() for ref in alive.values()))
        return out


def of_loss(tokens: int = 256, vocabulary: int = 4096) -> float:
    """Bytes a logit at the peak of a cross entropy in 32 bits, and back."""
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn((tokens, 8), generator=draw, dtype=torch.bfloat16)
    table = torch.randn((vocabulary, 8), generator=draw, dtype=torch.bfloat16)
    label = torch.randint(vocabulary, (tokens,), generator=draw)
    table.requires_grad_()
    with Lived() as lived:
        logits = hidden @ table.T
        loss = F.cross_entropy(logits.float(), label)
        del logits  # as torchtitan does, to have it gone before backward
        loss.backward()
    return lived.most / (tokens * vocabulary)
