"""One executor for every pipeline schedule: a rank follows its row of the table.

Shapes  inputs and targets (m, b, h) -> loss (); a rank has the slices of its chunks.
        Between ranks travel (b, h), forward and back
Bytes   sent by a rank: b h numbers for each boundary to another rank that a
        micro-batch crosses, forward and back. Held: as many micro-batches as the table
        says, counted from what is kept
Error   loss and gradients within 1e-12 of the float64 model on one process
Raises  ValueError for a schedule that is not in SCHEDULES
Source  gpipe, pipedream, megatron-interleaved-1f1b, zero-bubble, deepseek-v3,
        dualpipe-without-the-dual, bpipe
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import torch

from snippets import ranks
from snippets.pipeline.parking import Move
from snippets.pipeline.plan import SCHEDULES, Message, Place, Plan
from snippets.pipeline.stage import WIDTH, Parameters, Slice, Stashed, whole
from snippets.pipeline_schedules.schedule import Kind, Pass

B, H = 3, 8  # rows of a micro-batch, columns


# --8<-- [start:mail]
class Mail:
    """Messages of ranks that do not wait for each other, read in any order.

    The table says in which order a rank sends, so what comes needs no label.
    """

    def __init__(self, rank: int, plan: Plan) -> None:
        self.rank, self.wire = rank, ranks.Wire()
        self.here: dict[Message, torch.Tensor] = {}
        self.works: list[Any] = []
        self.expected: dict[int, deque[Message]] = defaultdict(deque)
        for source, row in enumerate(plan.rows):
            for step in row:
                to, message = plan.destination(step)
                if to == rank != source:
                    self.expected[source].append(message)

    def send(self, x: torch.Tensor, to: int, message: Message) -> None:
        """Put it into the post, or keep it where it is for this rank."""
        if to == self.rank:
            self.here[message] = x
        else:
            x = x.contiguous()
            self.works.append((self.wire.send(x, to), x))  # held until it has left

    def receive(self, message: Message, source: int) -> torch.Tensor:
        """This message; what comes before it is laid aside."""
        while message not in self.here:
            first = self.expected[source].popleft()
            columns = H + (WIDTH if first.what in ("park", "return") else 0)
            into = torch.empty(B, columns, dtype=torch.float64, device=ranks.device())
            self.here[first] = self.wire.receive(into, source)
        return self.here.pop(message)
# --8<-- [end:mail]


# --8<-- [start:run]
class Rank:
    """What one rank does: the steps of its row, in order."""

    def __init__(self, rank: int, plan: Plan) -> None:
        w, self.x, self.target = whole(plan.slices, len(plan.ways), B, H)
        self.x, self.target = (x.to(ranks.device()) for x in (self.x, self.target))
        self.rank, self.plan, self.mail = rank, plan, Mail(rank, plan)
        kind = Stashed if plan.name == "PipeDream" else Slice
        self.at = plan.at(rank)
        self.own = {
            chunk: kind({k: one.to(ranks.device()) for k, one in w[index].items()})
            for chunk, index in self.at.items()
        }
        self.lent: dict[int, torch.Tensor] = {}
        self.loss, self.most = 0.0, 0

    def run(self) -> None:
        """Do them all."""
        for step in self.plan.rows[self.rank]:
            made = self.move(step) if isinstance(step, Move) else self.compute(step)
            to, message = self.plan.destination(step)
            if to >= 0 and made is not None:
                self.mail.send(made, to, message)
        for work, _ in self.mail.works:
            work.wait()

    def compute(self, one: Pass) -> torch.Tensor | None:
        """A pass: what the next or the previous slice waits for, if it does."""
        j, part, index = one.micro_batch, self.own[one.chunk], self.at[one.chunk]
        way, made = self.plan.ways[j], None
        if one.kind is Kind.FORWARD:
            made = self.x[j]
            if index:
                before = Message("forward", j, index - 1)
                made = self.mail.receive(before, way[index - 1][0])
            made = part.forward(j, made)
            if index == len(way) - 1:
                error = made - self.target[j]
                self.loss += float(error.square().sum()) / self.x.numel()
                after = Message("backward", j, index + 1)  # as if from a next slice
                self.mail.here[after] = 2 * error / self.x.numel()
        elif one.kind is not Kind.WEIGHT:
            after = Message("backward", j, index + 1)
            source = way[index + 1][0] if index + 1 < len(way) else self.rank
            made = part.input(j, self.mail.receive(after, source))
        self.count()
        if one.kind in (Kind.BACKWARD, Kind.WEIGHT):
            part.weight(j)
            part.done(j)
        return made

    def move(self, step: Move) -> torch.Tensor | None:
        """Lend activations, take those of another, or give them back."""
        j = step.micro_batch
        if step.what == "park":
            return self.own[0].take(j)
        if step.what == "return":
            return self.lent.pop(j)
        if step.what == "keep":
            self.lent[j] = self.mail.receive(Message("park", j), step.partner)
        else:
            self.own[0].put(j, self.mail.receive(Message("return", j), step.partner))
        self.count()
        return None

    def count(self) -> None:
        """Note how many micro-batches something is kept of."""
        held = sum(part.held for part in self.own.values()) + len(self.lent)
        self.most = max(self.most, held)
# --8<-- [end:run]


# --8<-- [start:copies]
def summed(rank: int, plan: Plan, state: Rank) -> int:
    """Add up gradients of slices that two ranks hold; the bytes sent for it."""
    places: dict[int, set[Place]] = defaultdict(set)
    for way in plan.ways:
        for index, place in enumerate(way):
            places[index].add(place)
    wire = ranks.Wire()
    for index in sorted(places):
        others = [place for place in places[index] if place[0] != rank]
        mine = [chunk for place, chunk in places[index] if place == rank]
        if mine and others:
            grads = state.own[mine[0]].grads
            flat = torch.cat([grads[k].flatten() for k in sorted(grads)])
            (came,) = wire.exchange([flat], others[0][0], others[0][0])()
            parts = came.split([grads[k].numel() for k in sorted(grads)])
            for k, part in zip(sorted(grads), parts, strict=True):
                grads[k] += part.view(grads[k].shape)
    return wire.sent
# --8<-- [end:copies]


def on_rank(rank: int, plan: Plan) -> dict[str, Any]:
    """A step of training on one rank: results, what was held, what was sent."""
    state = Rank(rank, plan)
    state.run()
    mail = state.mail.wire
    told = {"loss": state.loss, "held": state.most, "sent": mail.sent,
            "messages": mail.messages, "copies": summed(rank, plan, state)}  # fmt: skip
    own = [(state.at[chunk], part) for chunk, part in state.own.items()]
    told["grads"] = [(at, on_cpu(one.grads)) for at, one in own]
    stashed = [(at, one) for at, one in own if isinstance(one, Stashed)]
    told["versions"] = [one.versions for _, one in stashed]
    told["w"] = [(at, on_cpu(one.now)) for at, one in stashed]
    return told


def on_cpu(named: Parameters) -> Parameters:
    """The same, where it can be handed back."""
    return {name: one.cpu() for name, one in named.items()}


def each(rank: int, p: int, wanted: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """`on_rank` for each (schedule, micro-batches) that is wanted."""
    return [on_rank(rank, Plan(name, p, m)) for name, m in wanted]


def demo(device: str) -> None:
    """What four ranks hold and send, by schedule, and the loss of each."""
    p, m = 4, 8
    # NCCL would do the messages of two ranks in turn, whichever is waited for.
    told = ranks.run(each, p, [(name, m) for name in SCHEDULES], backend="gloo")
    found = zip(*told, strict=True)
    print(f"{p} ranks, {m} micro-batches; by rank, counted as it runs")
    print(f"{'':12}{'micro-batches held':20}{'messages sent':16}loss")
    for name, told in zip(SCHEDULES, found, strict=True):
        chunks = Plan(name, p, m).made.chunks
        held = " ".join(f"{one['held'] / chunks:g}" for one in told)
        sent = " ".join(str(one["messages"]) for one in told)
        print(f"{name:12}{held:20}{sent:16}{sum(one['loss'] for one in told):.12f}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
