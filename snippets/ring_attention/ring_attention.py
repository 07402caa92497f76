"""Ring attention: a rank keeps its queries while blocks of K and V travel round a ring.

Shapes  q, k, v, o and their gradients, on each of P ranks: (B, H, S / P, D); logsumexp
        (B, H, S / P). Plain order gives rank r block r of P; zigzag order gives it
        chunks r and 2 P - 1 - r of 2 P, so that causal work is equal over the ranks.
Bytes   sent per rank, with n = B * H * (S / P) * D * element size: forward
        2 (P - 1) n (K, V); backward 2 (P - 1) n (K, V) + 2 P n (dK, dV, whose last hop
        brings them home)
FLOPs   forward 4 * D per score pair: causal plain order makes rank r compute r + 1
        blocks of (S / P)**2 pairs, zigzag (2 P + 1) / 4 of such a block on every rank
Error   out, dQ, dK, dV within 1e-12 of float64 attention on one process, relative to
        its norm
Raises  ValueError if the order is unknown or S does not split into 2 P chunks
Source  ring-attention, blockwise-parallel-transformer, striped-attention,
        zhuzilin-ring-flash-attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from snippets import ranks
from snippets.blockwise_attention.merge import merge

B, H, S, D = 2, 3, 104, 20  # S = 8 * 13: two chunks of odd length for each of 4 ranks
ORDERS = ("plain", "zigzag")
LIMIT = 1e-12  # relative: thousands of float64 roundings, far below a block left out

Tensors = list[torch.Tensor]


# --8<-- [start:program]
def chunks_of(rank: int, world_size: int, order: str) -> list[int]:
    """Which chunks of the sequence `rank` holds: 1 of P, or 2 of 2 P in zigzag."""
    return [rank] if order == "plain" else [rank, 2 * world_size - 1 - rank]


def scores(q: torch.Tensor, k: torch.Tensor, diagonal: bool) -> torch.Tensor:
    """Scaled q k^T; a diagonal chunk hides each query's later keys."""
    pairs = q @ k.mT / math.sqrt(q.shape[-1])
    if diagonal:
        later = torch.ones_like(pairs[0, 0], dtype=torch.bool).triu(1)
        pairs.masked_fill_(later, -math.inf)
    return pairs


class Ring:
    """One rank's place in the ring: where blocks come from and go, what is visible."""

    def __init__(self, rank: int, world_size: int, order: str, causal: bool) -> None:
        self.rank, self.world_size = rank, world_size
        self.order, self.causal = order, causal
        self.mine = chunks_of(rank, world_size, order)
        self.wire = ranks.Wire()
        self.work: list[int] = []  # score pairs computed at each step

    def pass_on(self, tensors: Tensors) -> Callable[[], Tensors]:
        """Send to the next rank; what comes from the previous is had by a call."""
        after = (self.rank + 1) % self.world_size
        before = (self.rank - 1) % self.world_size
        return self.wire.exchange(tensors, after, before)

    def visible(self, step: int) -> list[tuple[int, int, bool]]:
        """(my chunk, visiting chunk, diagonal): none that the mask hides whole."""
        owner = (self.rank - step) % self.world_size
        visiting = chunks_of(owner, self.world_size, self.order)
        pairs = product(enumerate(self.mine), enumerate(visiting))
        return [
            (i, j, self.causal and a == b)
            for (i, a), (j, b) in pairs
            if not self.causal or b <= a
        ]

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        """Attention of this rank's queries over all keys: [out, logsumexp]."""
        queries = q.chunk(len(self.mine), dim=2)
        out = [torch.zeros_like(query) for query in queries]
        lse = [torch.full_like(query[..., 0], -math.inf) for query in queries]
        for step in range(self.world_size):
            if step + 1 < self.world_size:
                arrive = self.pass_on([k, v])  # travels while this block is computed
            keys, values = (x.chunk(len(self.mine), dim=2) for x in (k, v))
            self.work.append(0)
            for i, j, diagonal in self.visible(step):
                pairs = scores(queries[i], keys[j], diagonal)
                self.work[-1] += pairs[0, 0].numel()
                block_lse = pairs.logsumexp(-1)
                block_out = (pairs - block_lse[..., None]).exp() @ values[j]
                out[i], lse[i] = merge(out[i], lse[i], block_out, block_lse)
            if step + 1 < self.world_size:
                k, v = arrive()
        return [torch.cat(out, 2), torch.cat(lse, 2)]
        # --8<-- [end:program]

    # --8<-- [start:backward]
    def backward(
        self, tensors: Tensors, out: torch.Tensor, lse: torch.Tensor
    ) -> Tensors:
        """[dq, dk, dv] from [q, k, v, d_out]; dk and dv travel with their k and v."""
        q, k, v, d_out = tensors
        parts = len(self.mine)
        delta = (d_out * out).sum(-1, keepdim=True)
        dq = torch.zeros_like(q)
        queries, d_outs, deltas, lses, dqs = (
            x.chunk(parts, dim=2) for x in (q, d_out, delta, lse[..., None], dq)
        )

        def home() -> Tensors:  # before the first hop nothing has been found
            return [torch.zeros_like(k), torch.zeros_like(v)]

        for step in range(self.world_size):
            if step + 1 < self.world_size:
                arrive = self.pass_on([k, v])
            dk, dv = torch.zeros_like(k), torch.zeros_like(v)
            keys, values, dks, dvs = (x.chunk(parts, dim=2) for x in (k, v, dk, dv))
            for i, j, diagonal in self.visible(step):
                p = (scores(queries[i], keys[j], diagonal) - lses[i]).exp()
                ds = p * (d_outs[i] @ values[j].mT - deltas[i]) / math.sqrt(q.shape[-1])
                dqs[i].add_(ds @ keys[j])
                dks[j].add_(ds.mT @ queries[i])
                dvs[j].add_(p.mT @ d_outs[i])
            before_dk, before_dv = home()  # what earlier ranks found for this block
            dk, dv = dk + before_dk, dv + before_dv
            home = self.pass_on([dk, dv])  # travels while the next block is computed
            if step + 1 < self.world_size:
                k, v = arrive()
        return [dq, *home()]
        # --8<-- [end:backward]


def sequence() -> Tensors:
    """Seeded q, k, v, d_out, (B, H, S, D) float64; large queries make rows peaked."""
    generator = torch.Generator().manual_seed(0)
    size = 4, B, H, S, D
    q, k, v, d_out = torch.randn(size, dtype=torch.float64, generator=generator)
    return [4 * q, k, v, d_out]


def shard(x: torch.Tensor, rank: int, world_size: int, order: str) -> torch.Tensor:
    """The part of the sequence (dim 2) that `rank` holds."""
    if order not in ORDERS:
        what = f"order {order!r} is unknown; use one of {ORDERS}"
        raise ValueError(f"ring_attention: {what}")
    if x.shape[2] % (2 * world_size):
        what = f"S = {x.shape[2]} does not split into {2 * world_size} chunks"
        mend = "pad the sequence to a multiple of that"
        raise ValueError(f"ring_attention: {what}; {mend}")
    count = world_size if order == "plain" else 2 * world_size
    parts = x.chunk(count, dim=2)
    return torch.cat([parts[chunk] for chunk in chunks_of(rank, world_size, order)], 2)


def on_rank(rank: int, world_size: int) -> dict[tuple[bool, str], dict[str, Any]]:
    """Every (causal, order) on one rank: results, work by step, bytes each way."""
    report = {}
    for causal, order in product((False, True), ORDERS):
        whole = [x.to(ranks.device()) for x in sequence()]
        mine = [shard(x, rank, world_size, order) for x in whole]
        ring = Ring(rank, world_size, order, causal)
        out, lse = ring.forward(*mine[:3])
        forward_bytes = ring.wire.sent
        gradients = ring.backward(mine, out, lse)
        report[causal, order] = {
            "results": [x.cpu() for x in (out, *gradients)],
            "work": ring.work,
            "forward_bytes": forward_bytes,
            "backward_bytes": ring.wire.sent - forward_bytes,
        }
    return report


def errors(reports: list[dict[str, Any]], truth: Tensors, order: str) -> list[float]:
    """Relative error of o, dq, dk, dv over the ranks together, compared by shards."""
    p = len(reports)
    found = []
    for index, expected in enumerate(truth):
        ours = torch.cat([report["results"][index] for report in reports], 2)
        right = torch.cat([shard(expected, rank, p, order) for rank in range(p)], 2)
        found.append(float((ours - right).norm() / expected.norm()))
    return found


def time_in_steps(reports: list[dict[str, Any]]) -> int:
    """Score pairs of each step's slowest rank, summed: a step waits for it."""
    return sum(map(max, zip(*(report["work"] for report in reports), strict=True)))


def demo(device: str) -> None:
    """Causal attention on 4 ranks: who computes how much when, and is it right?

    The ranks meet through NCCL where `device` is "cuda" and there are 4 GPUs.
    """
    world_size = 4
    backend = "gloo" if device == "cpu" else None
    every_rank = ranks.run(on_rank, world_size, backend=backend)
    q, k, v, d_out = sequence()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = scaled_dot_product_attention(*leaves, is_causal=True)
    truth = [out.detach(), *torch.autograd.grad(out, leaves, d_out)]
    print(f"causal attention, B {B}, H {H}, S {S}, D {D}, float64, {world_size} ranks")
    for order in ORDERS:
        reports = [report[True, order] for report in every_rank]
        what = f"score pairs computed at each step, for each of {B * H} heads"
        print(f"\n{order} order: {what}")
        for rank, report in enumerate(reports):
            held = "+".join(map(str, chunks_of(rank, world_size, order)))
            steps = " ".join(f"{pairs:5d}" for pairs in report["work"])
            total = sum(report["work"])
            print(f"  rank {rank}, chunk {held:>3}: {steps}  sum {total:5d}")
        print(f"  slowest rank, step by step: {time_in_steps(reports)} pairs")
        print(f"  sent by each rank, forward: {reports[0]['forward_bytes']} bytes")
        right = all(error < LIMIT for error in errors(reports, truth, order))
        print(f"  out, dQ, dK, dV within {LIMIT:g}: {'yes' if right else 'no'}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
