"""Gradients in buckets: a bucket is summed over ranks while autograd makes the next.

Shapes  a batch (N b, h) of which each of N ranks has (b, h); all hold all parameters
Bytes   sent by a rank in a step: 2 (N - 1) / N of the gradients' bytes, whatever the
        buckets; 2 (N - 1) messages for each bucket
Error   losses and parameters within 1e-12 of float64 SGD on one process
Raises  ValueError for rows that do not split or a limit below 1; MissingRank where a
        rank is gone, with its number
Source  pytorch-ddp
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from snippets import ranks
from snippets.collectives import Library, Ring

LAYERS, H, ROWS, RATE = 6, 8, 48, 0.2


# --8<-- [start:buckets]
def buckets(parameters: list[nn.Parameter], limit: int, first: int) -> list[list[int]]:
    """Numbers of parameters, in the order in which autograd is done with them.

    A bucket is full once it has `limit` bytes; the first at `first`, so that it leaves
    early. Raises ValueError for a limit below 1.
    """
    if limit < 1 or first < 1:
        raise ValueError(
            f"data_parallel: a limit of {min(limit, first)} bytes; take 1 or more"
        )
    found: list[list[int]] = [[]]
    size = 0
    for at in reversed(range(len(parameters))):
        found[-1].append(at)
        size += parameters[at].numel() * parameters[at].element_size()
        if size >= (first if len(found) == 1 else limit):
            found.append([])
            size = 0
    return [one for one in found if one]
# --8<-- [end:buckets]


# --8<-- [start:reducer]
class Reducer:
    """Sums gradients over a group as they come, and writes down what happened when.

    `log` has ("gradient", parameter), ("start", bucket), ("backward", 0) at its end,
    and ("wait", bucket).
    """

    def __init__(
        self, parameters: list[nn.Parameter], group: Library, limit: int, first: int
    ) -> None:
        self.parameters, self.group = parameters, group
        self.buckets = buckets(parameters, limit, first)
        self.of = {at: n for n, bucket in enumerate(self.buckets) for at in bucket}
        self.log: list[tuple[str, int]] = []
        self.sync = True
        self.work: queue.Queue[int] = queue.Queue()
        self.summed: dict[int, torch.Tensor] = {}
        self.done = threading.Condition()
        self.reset()
        for at, one in enumerate(parameters):
            one.register_post_accumulate_grad_hook(lambda _, at=at: self.ready(at))
        threading.Thread(target=self.send, daemon=True).start()

    def reset(self) -> None:
        """Before a step."""
        self.missing = [set(bucket) for bucket in self.buckets]
        self.next = 0
        self.summed.clear()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Backward passes in which gradients are added up here, and nothing is sent."""
        self.sync = False
        try:
            yield
        finally:
            self.sync = True

    def ready(self, at: int) -> None:
        """A gradient is there. All ranks must start buckets in one order: their own."""
        self.log.append(("gradient", at))
        if self.sync:
            self.missing[self.of[at]].discard(at)
            self.start()

    def start(self) -> None:
        """Hand what is full to the thread that sends."""
        while self.next < len(self.buckets) and not self.missing[self.next]:
            self.log.append(("start", self.next))
            self.work.put(self.next)
            self.next += 1

    def send(self) -> None:
        """What the thread does: a bucket after the other, as one tensor."""
        while True:
            n = self.work.get()
            grads = [self.parameters[at].grad for at in self.buckets[n]]
            total = self.group.all_reduce(torch.cat([g.flatten() for g in grads]))
            with self.done:
                self.summed[n] = total / self.group.size
                self.done.notify()

    def finish(self) -> None:
        """After backward: wait, and put means in the place of gradients.

        A parameter that took no part has a gradient of 0, or its bucket would be
        missed by the ranks where it did.
        """
        self.log.append(("backward", 0))
        for one in self.parameters:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        self.missing = [set() for _ in self.buckets]
        self.start()
        for n, bucket in enumerate(self.buckets):
            self.log.append(("wait", n))
            with self.done:
                self.done.wait_for(lambda n=n: n in self.summed)
            sizes = [self.parameters[at].numel() for at in bucket]
            for at, mean in zip(bucket, self.summed[n].split(sizes), strict=True):
                grad = self.parameters[at].grad
                assert grad is not None
                grad.copy_(mean.view_as(grad))
        self.reset()
# --8<-- [end:reducer]


class Model(nn.Module):
    """Layers with a residual; `skip`: one that takes no part."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(H, H).double() for _ in range(LAYERS))
        with torch.no_grad():
            for one in self.parameters():
                random = torch.randn(one.shape, generator=draw, dtype=one.dtype)
                one.copy_(random / math.sqrt(H))

    def forward(self, x: torch.Tensor, skip: int = -1) -> torch.Tensor:
        for at, one in enumerate(self.layers):
            x = x if at == skip else x + F.gelu(one(x))
        return x


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Seeded inputs and targets (ROWS, H), float64."""
    draw = torch.Generator().manual_seed(1)
    x, target = torch.randn((2, ROWS, H), generator=draw, dtype=torch.float64)
    return x, target


class Want(NamedTuple):
    """What is run: bytes of a bucket and of the first, micro-batches, and how."""

    limit: int = 600
    first: int = 600
    micro_batches: int = 1
    every_time: bool = False  # sum after each micro-batch
    skip: bool = False  # rank 0 leaves layer 2 out
    steps: int = 3


def on_rank(group: Library, want: Want) -> dict[str, Any]:
    """Losses, parameters, bytes and messages, and the events of the first step."""
    if ROWS % (group.size * want.micro_batches):
        raise ValueError(
            f"data_parallel: {ROWS} rows do not split over {group.size} ranks and "
            f"{want.micro_batches} micro-batches; pad the batch"
        )
    model = Model().to(ranks.device())
    parameters = list(model.parameters())
    reducer = Reducer(parameters, group, want.limit, want.first)
    adder = torch.optim.SGD(parameters, RATE, momentum=0.9)
    rows, due = (x.chunk(group.size)[group.rank].to(ranks.device()) for x in batch())
    k, losses, log = want.micro_batches, [], []
    for step in range(want.steps):
        losses.append(0.0)
        for at, (x, y) in enumerate(zip(rows.chunk(k), due.chunk(k), strict=True)):
            skip = 2 if want.skip and group.rank == 0 else -1
            loss = (model(x, skip) - y).square().mean() / k
            losses[-1] += float(loss.detach())
            if at + 1 < k and not want.every_time:
                with reducer.alone():
                    loss.backward()
            else:
                loss.backward()
                reducer.finish()
        if step == 0:
            log = list(reducer.log)
        adder.step()
        adder.zero_grad()
    wire = group.wire if isinstance(group, Ring) else ranks.Wire()
    return {"losses": losses, "log": log, "sent": wire.sent, "messages": wire.messages,
            "buckets": len(reducer.buckets),
            "weights": [one.detach().cpu() for one in parameters]}  # fmt: skip


def each(rank: int, size: int, wanted: list[Want]) -> list[dict[str, Any]]:
    """`on_rank` for each that is wanted, in messages that are counted."""
    return [on_rank(Ring(), want) for want in wanted]


def demo(device: str) -> None:
    """What happens in a backward pass on rank 0 of four, by size of a bucket."""
    wants = [Want(10_000, 10_000), Want(1200, 600), Want(1, 1)]
    told = ranks.run(each, 4, wants, backend="gloo")[0]
    print("G: a gradient is there, S: a bucket starts, |: backward is over, W: waited")
    letters = {"gradient": "G", "start": "S", "backward": "|", "wait": "W"}
    for want, one in zip(wants, told, strict=True):
        line = "".join(
            letters[what] + (str(n) if what in ("start", "wait") else "")
            for what, n in one["log"]
        )
        print(f"{want.limit} bytes: {one['buckets']} buckets, {line}")
        sent = f"{one['messages']} messages, {one['sent']} bytes"
        print(f"  {sent} in {want.steps} steps")
        print(f"  losses {' '.join(f'{loss:.9f}' for loss in one['losses'])}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
