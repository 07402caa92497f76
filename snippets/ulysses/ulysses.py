"""Ulysses: an all-to-all makes of a part of the tokens a part of the heads, and back.

Shapes  q (B, H, S / P, D), k and v (B, G, S / P, D) on each of P ranks -> o as q. H is
        a multiple of G and of P; where G is below P, P is a multiple of it. With a
        ring of R such groups each rank has S / (P R) tokens
Bytes   sent by a rank, with n those of its q and m of its k, each repeated P / G times
        where G is below P: (P - 1) / P (2 n + 2 m) forward, and backward as many; by a
        ring besides what ring_attention says of H / P heads
Error   o, dq, dk, dv within 1e-12 of float64 attention on one process
Raises  ValueError for heads or tokens that do not split
Source  deepspeed-ulysses, usp-unified-sequence-parallelism, ring-attention
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from snippets import collectives, ranks
from snippets.ring_attention import ring_attention
from snippets.ring_attention.ring_attention import shard

B, H, S, D = 2, 8, 48, 6
Counted = collectives.Ring  # whose messages are counted


# --8<-- [start:exchange]
class Exchange(torch.autograd.Function):
    """(B, H, S / P, D) -> (B, H / P, S, D), or back; gradients go the other way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Counted, back: bool) -> torch.Tensor:
        ctx.group, ctx.back = group, back
        cut, joined = (2, 1) if back else (1, 2)  # heads are dimension 1, tokens 2
        came = group.all_to_all(x.chunk(group.size, cut))
        return torch.cat(came, joined)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return Exchange.apply(dy, ctx.group, not ctx.back), None, None


def spread(k: torch.Tensor, group: Counted) -> torch.Tensor:
    """Tokens to heads, each head as often as it takes for every rank to have one."""
    if k.shape[1] < group.size:
        k = k.repeat_interleave(group.size // k.shape[1], 1)
    return Exchange.apply(k, group, False)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Counted, causal: bool
) -> torch.Tensor:
    """Of a rank's tokens over all; between the exchanges it is any attention."""
    check(q, k, group)
    q, k, v = Exchange.apply(q, group, False), spread(k, group), spread(v, group)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return Exchange.apply(o, group, True)
# --8<-- [end:exchange]


def check(q: torch.Tensor, k: torch.Tensor, group: Counted) -> None:
    """Raise ValueError unless every rank gets whole heads, and those it needs."""
    heads, grouped, size = q.shape[1], k.shape[1], group.size
    if heads % size or heads % grouped:
        raise ValueError(
            f"ulysses: {heads} heads of q do not split over {size} ranks and {grouped} "
            "heads of k; take fewer ranks, or a ring of groups"
        )
    if grouped % size and size % grouped:
        raise ValueError(
            f"ulysses: {grouped} heads of k neither split over {size} ranks nor repeat "
            "to as many; take a number of ranks that divides them, or is a multiple"
        )


# --8<-- [start:usp]
class GroupRing(ring_attention.Ring):
    """A ring of groups: this rank's place among those with the same heads."""

    def __init__(self, group: Counted, order: str, causal: bool) -> None:
        super().__init__(group.rank, group.size, order, causal)
        self.group = group
        self.wire = group.wire

    def pass_on(self, tensors: list[torch.Tensor]) -> Any:
        """To the next group; what comes from the one before is had by a call."""
        return self.group.pass_on(tensors)


class RingAttention(torch.autograd.Function):
    """Attention of a ring's blocks, whose backward pass is a ring as well."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ring: GroupRing
    ) -> torch.Tensor:
        o, lse = ring.forward(q, k, v)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.ring = ring
        return o

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        return (*ctx.ring.backward([q, k, v, dy], o, lse), None)


def unified(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: Counted, ring: GroupRing
) -> torch.Tensor:
    """Heads split within a group, and blocks of tokens go round between groups."""
    check(q, k, heads)
    q, k, v = Exchange.apply(q, heads, False), spread(k, heads), spread(v, heads)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return Exchange.apply(RingAttention.apply(q, k, v, ring), heads, True)
# --8<-- [end:usp]


def sequence(grouped: int = H) -> list[torch.Tensor]:
    """Seeded q, k, v, d_out, float64, k and v with fewer heads; peaked rows."""
    draw = torch.Generator().manual_seed(0)

    def normal(heads: int) -> torch.Tensor:
        return torch.randn(B, heads, S, D, generator=draw, dtype=torch.float64)

    return [4 * normal(H), normal(grouped), normal(grouped), normal(H)]


class Want(NamedTuple):
    """What is run: heads of k and v, the mask, and ranks of a ring of groups."""

    grouped: int = H
    causal: bool = True
    rings: int = 1  # groups that blocks of tokens go round


def own(x: torch.Tensor, rank: int, size: int, rings: int) -> torch.Tensor:
    """The tokens of a rank: a part of its group's, which are dealt in zigzag."""
    within = size // rings
    if rings > 1:
        x = shard(x, rank // within, rings, "zigzag")
    if x.shape[2] % within:
        raise ValueError(
            f"ulysses: {x.shape[2]} tokens do not split over {within} ranks; pad them"
        )
    return x.chunk(within, 2)[rank % within]


def on_rank(rank: int, size: int, want: Want) -> dict[str, Any]:
    """o and gradients of a rank, and what it had sent after each pass."""
    whole = [x.to(ranks.device()) for x in sequence(want.grouped)]
    *qkv, d_out = (own(x, rank, size, want.rings) for x in whole)
    qkv = [x.contiguous().requires_grad_() for x in qkv]
    heads, wires = Counted(), []
    if want.rings > 1:
        within = size // want.rings
        rows = [list(range(at * within, (at + 1) * within)) for at in range(want.rings)]
        groups = [dist.new_group(row) for row in (*rows, *zip(*rows, strict=True))]
        heads = Counted(groups[rank // within])
        ring = Counted(groups[want.rings + rank % within])
        wires.append(ring.wire)
        o = unified(*qkv, heads, GroupRing(ring, "zigzag", want.causal))
    else:
        o = attention(*qkv, heads, want.causal)
    wires.append(heads.wire)
    sent = [(sum(w.sent for w in wires), sum(w.messages for w in wires))]
    o.backward(d_out)
    sent.append((sum(w.sent for w in wires), sum(w.messages for w in wires)))
    results = [o.detach(), *(x.grad for x in qkv)]
    return {"results": [x.cpu() for x in results], "sent": sent}


def ring_alone(rank: int, size: int) -> list[int]:
    """What ring attention sends for the same, forward and backward."""
    whole = [x.to(ranks.device()) for x in sequence()]
    q, k, v, d_out = (shard(x, rank, size, "zigzag") for x in whole)
    ring = ring_attention.Ring(rank, size, "zigzag", True)
    o, lse = ring.forward(q, k, v)
    forward = ring.wire.sent
    ring.backward([q, k, v, d_out], o, lse)
    return [forward, ring.wire.sent - forward]


def each(rank: int, size: int, wanted: list[Want]) -> dict[str, Any]:
    """`on_rank` for each that is wanted, and a ring beside."""
    told = [on_rank(rank, size, want) for want in wanted]
    return {"told": told, "ring": ring_alone(rank, size)}


def demo(device: str) -> None:
    """Bytes that a rank sends forward and backward, by ranks."""
    backend = "gloo" if device == "cpu" else None
    print(f"causal, B {B}, H {H}, S {S}, D {D}, float64; bytes sent by a rank")
    for size in (2, 4, 8):
        wanted = [Want(), Want(grouped=2)] + [Want(rings=2)] * (size > 2)
        found = ranks.run(each, size, wanted, backend=backend)[0]
        names = ("Ulysses", "Ulysses, 2 heads of k", "groups in a ring of 2")
        for name, told in zip(names, found["told"], strict=False):
            forward, both = (sent for sent, _ in told["sent"])
            line(size, name, forward, both - forward)
        line(size, "ring alone", *found["ring"])


def line(size: int, name: str, forward: int, backward: int) -> None:
    """Print what a rank of so many has sent."""
    print(f"{size} ranks, {name:24} forward {forward}, backward {backward}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
