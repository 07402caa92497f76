"""Experts on other ranks: tokens go out by an all-to-all, and their answers come back.

Shapes  x (T / R, h) on each of R ranks, a router (E, h) that all have, E / R experts of
        (f, h) and (h, f) on each -> y (T / R, h); the best K of E experts for a token
Bytes   sent by a rank for each copy of a token whose expert is elsewhere: h numbers
        for its dispatch, h for its answer, and as many backward; and E counts before.
        With capacity E C h instead, forward and back, whatever the routing
Error   outputs and gradients within 1e-12 of the float64 layer on one process
Raises  ValueError for experts or tokens that do not split over ranks
Source  gshard, switch-transformers, gating-dropout
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from snippets import ranks
from snippets.collectives import Library, Ring
from snippets.moe_all_to_all.routing import Route, route

T, H, INNER, E, K = 64, 6, 10, 8, 2  # tokens of all ranks, sizes, experts, best K
Parameters = dict[str, torch.Tensor]


# --8<-- [start:exchange]
class Exchange(torch.autograd.Function):
    """Rows for each rank in turn, to them; the gradient of a dispatch is a combine."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, out: list[int], into: list[int], group: Library
    ) -> torch.Tensor:
        ctx.counts, ctx.group = (out, into), group
        room = [x.new_empty(count, *x.shape[1:]) for count in into]
        return torch.cat(group.all_to_all(x.split(out), room))

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        out, into = ctx.counts
        return Exchange.apply(dy, into, out, ctx.group), None, None, None
# --8<-- [end:exchange]


# --8<-- [start:layer]
class Layer:
    """What one rank has of the layer, and how tokens get to their experts."""

    def __init__(self, w: Parameters, group: Library) -> None:
        if E % group.size:
            raise ValueError(
                f"moe_all_to_all: {E} experts do not split over {group.size} ranks"
            )
        self.w, self.group = w, group
        self.each = E // group.size  # experts of a rank
        self.received = 0  # copies that came last

    def experts(self, x: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Rows by expert, so many for each of the rank's."""
        parts = zip(x.split(counts), self.w["up"], self.w["down"], strict=True)
        return torch.cat([F.gelu(rows @ up.T) @ down.T for rows, up, down in parts])

    def __call__(self, x: torch.Tensor, chosen: Route) -> torch.Tensor:
        """Every copy to its expert and back, as many as there are."""
        order = chosen.expert.flatten().argsort(stable=True)  # by expert, so by rank
        out = chosen.counts(E)
        came = self.group.all_to_all(out.chunk(self.group.size))  # how many will come
        into = torch.stack(came)  # (ranks, experts of this one)
        sizes = [part.sum(-1).tolist() for part in (out.view(-1, self.each), into)]
        rows = Exchange.apply(x[order // K], *sizes, self.group)
        self.received = len(rows)
        # What came lies by rank, then by expert; an expert wants its rows together.
        at = torch.arange(self.each).repeat(self.group.size)
        together = at.repeat_interleave(into.flatten()).argsort(stable=True)
        answers = self.experts(rows[together], into.sum(0).tolist())
        back = torch.empty_like(together).scatter_(0, together, torch.arange(len(rows)))
        answers = Exchange.apply(answers[back], *sizes[::-1], self.group)
        home = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        return chosen.weighted(answers[home].view(*chosen.expert.shape, H))

    def padded(self, x: torch.Tensor, chosen: Route, capacity: int) -> torch.Tensor:
        """With so many places for each expert and rank: copies beyond are dropped."""
        expert, place = chosen.expert.flatten(), chosen.places(E).flatten()
        stays = (place < capacity).nonzero()[:, 0]
        slot = expert[stays] * capacity + place[stays]
        room = x.new_zeros(E * capacity, H).index_put((slot,), x[stays // K])
        size = [self.each * capacity] * self.group.size
        rows = Exchange.apply(room, size, size, self.group)
        by_expert = rows.view(self.group.size, self.each, capacity, H).transpose(0, 1)
        counts = [self.group.size * capacity] * self.each
        answers = self.experts(by_expert.reshape(-1, H), counts)
        by_rank = answers.view(self.each, self.group.size, capacity, H).transpose(0, 1)
        room = Exchange.apply(by_rank.reshape(-1, H), size, size, self.group)
        found = x.new_zeros(len(expert), H).index_put((stays,), room[slot])
        return chosen.weighted(found.view(*chosen.expert.shape, H))

    def local(self, x: torch.Tensor, chosen: Route) -> torch.Tensor:
        """Every token to experts of its own rank: nobody is asked, nothing is sent."""
        order = chosen.expert.flatten().argsort(stable=True)
        first = self.group.rank * self.each
        counts = chosen.counts(E)[first : first + self.each].tolist()
        answers = self.experts(x[order // chosen.expert.shape[1]], counts)
        home = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        return chosen.weighted(answers[home].view(*chosen.expert.shape, H))
# --8<-- [end:layer]


def whole(skew: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Parameters]:
    """Seeded x, dy (T, H), what is added to the logits (T, E), and all parameters.

    skew: "learned" adds nothing; "uniform" gives every expert as many tokens, also of
    each rank; "skewed" sends all to experts 0 and 1.
    """
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    x, dy, bias = normal(T, H), normal(T, H), torch.zeros(T, E, dtype=torch.float64)
    token = torch.arange(T)
    for k in range(K):
        at = (token + k) % E if skew == "uniform" else torch.full((T,), k)
        bias[token, at] = 0 if skew == "learned" else 30.0 - k
    w = {
        "router": normal(E, H),
        "up": normal(E, INNER, H) / math.sqrt(H),
        "down": normal(E, H, INNER) / math.sqrt(INNER),
    }
    return x, dy, bias, w


class Want(NamedTuple):
    """What is run: how the tokens are routed, places for an expert, and local steps."""

    skew: str = "learned"
    capacity: int | None = None  # places of an expert for each rank
    local: bool = False


def on_rank(group: Library, want: Want) -> dict[str, Any]:
    """y and gradients of a rank, what it had sent, and how many copies it received."""
    if T % group.size:
        raise ValueError(f"moe_all_to_all: {T} tokens do not split over {group.size}")
    x, dy, bias, w = whole(want.skew)
    x, dy, bias = (one.chunk(group.size)[group.rank].clone() for one in (x, dy, bias))
    w = {k: w[k].chunk(group.size)[group.rank].clone() for k in ("up", "down")} | {
        "router": w["router"].clone()
    }
    for one in (x, *w.values()):
        one.requires_grad_()
    layer = Layer(w, group)
    logits = x @ w["router"].T + bias
    wire = group.wire if isinstance(group, Ring) else ranks.Wire()
    if want.local:
        first = group.rank * layer.each
        chosen = route(logits, K, range(first, first + layer.each))
        y = layer.local(x, chosen)
    elif want.capacity:
        y = layer.padded(x, route(logits, K), want.capacity)
    else:
        y = layer(x, route(logits, K))
    sent = [(wire.sent, wire.messages)]
    y.backward(dy)
    sent.append((wire.sent, wire.messages))
    grads = {"x": x.grad, **{name: one.grad for name, one in w.items()}}
    grads["router"] = group.all_reduce(grads["router"])
    return {"y": y.detach(), "grads": grads, "sent": sent, "received": layer.received}


# --8<-- [start:dropout]
def stays_local(step: int, p: float) -> bool:
    """Whether a step leaves the gate out: each rank draws, and draws the same."""
    draw = torch.Generator().manual_seed(step)
    return bool(torch.rand((), generator=draw) < p)


def train(group: Library, steps: int, p: float) -> tuple[int, int]:
    """Bytes that a rank sends in so many steps with gating dropout, and local steps."""
    sent = local = 0
    for step in range(steps):
        drop = stays_local(step, p)
        local += drop
        sent += on_rank(group, Want(local=drop))["sent"][1][0]
        if isinstance(group, Ring):
            group.wire.sent = 0
    return sent, local
# --8<-- [end:dropout]


def each(rank: int, size: int, wanted: list[Want]) -> list[dict[str, Any]]:
    """`on_rank` for each that is wanted, in messages that are counted."""
    return [on_rank(Ring(), want) for want in wanted]


def steps_of(rank: int, size: int, steps: int, p: float) -> tuple[int, int]:
    """`train` on a rank."""
    return train(Ring(), steps, p)


def demo(device: str) -> None:
    """What four ranks send and receive, by routing."""
    wants = {"learned": Want(), "uniform": Want("uniform"), "skewed": Want("skewed"),
             "capacity 4": Want(capacity=4), "local": Want(local=True)}  # fmt: skip
    told = ranks.run(each, 4, list(wants.values()), backend="gloo")
    print(f"{T} tokens, best {K} of {E} experts, 4 ranks; bytes sent forward, by rank")
    for at, name in enumerate(wants):
        sent = " ".join(f"{one[at]['sent'][0][0]:5}" for one in told)
        received = " ".join(f"{one[at]['received']:3}" for one in told)
        print(f"{name:11}{sent}, copies received {received}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
