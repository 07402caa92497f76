"""Ring attention: each rank keeps its queries while blocks of K and V travel round a ring.

Shapes  q, k, v, o and their gradients, on each of P ranks: (B, H, S / P, D); logsumexp
        (B, H, S / P, 1). Plain order gives rank r block r of P; zigzag order gives it chunks r
        and 2 P - 1 - r of 2 P, so that causal work is equal over the ranks.
Bytes   sent per rank, with n = B * H * (S / P) * D * element size: forward 2 (P - 1) n (K, V);
        backward 2 (P - 1) n (K, V) + 2 P n (dK, dV, whose last hop brings them home)
FLOPs   forward 4 * D per score pair: causal plain order makes rank r compute r + 1 blocks of
        (S / P)**2 pairs, zigzag (2 P + 1) / 4 of such a block on every rank
Error   out, dQ, dK, dV within 1e-12 of float64 attention on one process, relative to its norm
Raises  ValueError if the order is unknown or S does not split into 2 P chunks
Source  ring-attention, blockwise-parallel-transformer, striped-attention,
        zhuzilin-ring-flash-attention
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from snippets import ranks

B, H, S, D = 2, 3, 104, 20  # S = 8 * 13: two chunks of an odd length for each of 4 ranks
ORDERS = ("plain", "zigzag")
LIMIT = 1e-12  # relative: thousands of float64 roundings, yet far below any block left out

Tensors = list[torch.Tensor]


# --8<-- [start:program]
def chunks_of(rank: int, world_size: int, order: str) -> list[int]:
    """Which chunks of the sequence `rank` holds: 1 of P in plain order, 2 of 2 P in zigzag."""
    return [rank] if order == "plain" else [rank, 2 * world_size - 1 - rank]


def scores(q: torch.Tensor, k: torch.Tensor, diagonal: bool) -> torch.Tensor:
    """Scaled q k^T; a diagonal chunk hides each query's later keys."""
    pairs = q @ k.mT / math.sqrt(q.shape[-1])
    if diagonal:
        later = torch.ones_like(pairs[0, 0], dtype=torch.bool).triu(1)
        pairs.masked_fill_(later, -math.inf)
    return pairs


def merge(
    out: torch.Tensor, lse: torch.Tensor, block_out: torch.Tensor, block_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two softmax averages over disjoint keys as one: each weighs exp of its log-sum-exp."""
    total = torch.logaddexp(lse, block_lse)
    return out * (lse - total).exp() + block_out * (block_lse - total).exp(), total


class Ring:
    """One rank's place in the ring: where blocks come from and go to, and what is visible."""

    def __init__(self, rank: int, world_size: int, order: str, causal: bool) -> None:
        self.rank, self.world_size, self.order, self.causal = rank, world_size, order, causal
        self.mine = chunks_of(rank, world_size, order)
        self.wire = ranks.Wire()
        self.work: list[int] = []  # score pairs computed at each step

    def pass_on(self, tensors: Tensors) -> Callable[[], Tensors]:
        """Send `tensors` to the next rank, receive the previous rank's: call it for the result."""
        after, before = self.rank + 1, self.rank - 1
        return self.wire.exchange(tensors, after % self.world_size, before % self.world_size)

    def visible(self, step: int) -> list[tuple[int, int, bool]]:
        """(my chunk, visiting chunk, diagonal) to compute: none that the mask hides whole."""
        owner = (self.rank - step) % self.world_size
        visiting = chunks_of(owner, self.world_size, self.order)
        pairs = product(enumerate(self.mine), enumerate(visiting))
        causal = self.causal
        return [(i, j, causal and a == b) for (i, a), (j, b) in pairs if not causal or b <= a]

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        """Attention of this rank's queries over the whole sequence: [out, logsumexp]."""
        queries = q.chunk(len(self.mine), dim=2)
        out = [torch.zeros_like(query) for query in queries]
        lse = [torch.full_like(query[..., :1], -math.inf) for query in queries]
        for step in range(self.world_size):
            if step + 1 < self.world_size:
                arrive = self.pass_on([k, v])  # travels while this block is computed
            keys, values = (x.chunk(len(self.mine), dim=2) for x in (k, v))
            self.work.append(0)
            for i, j, diagonal in self.visible(step):
                pairs = scores(queries[i], keys[j], diagonal)
                self.work[-1] += pairs[0, 0].numel()
                block_lse = pairs.logsumexp(-1, keepdim=True)
                block_out = (pairs - block_lse).exp() @ values[j]
                out[i], lse[i] = merge(out[i], lse[i], block_out, block_lse)
            if step + 1 < self.world_size:
                k, v = arrive()
        return [torch.cat(out, 2), torch.cat(lse, 2)]
        # --8<-- [end:program]

    # --8<-- [start:backward]
    def backward(self, tensors: Tensors, out: torch.Tensor, lse: torch.Tensor) -> Tensors:
        """Gradients [dq, dk, dv] from [q, k, v, d_out]: dk and dv travel with their k and v."""
        q, k, v, d_out = tensors
        parts = len(self.mine)
        delta = (d_out * out).sum(-1, keepdim=True)
        dq = torch.zeros_like(q)
        queries, d_outs, deltas, lses, dqs = (
            x.chunk(parts, dim=2) for x in (q, d_out, delta, lse, dq)
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
            before_dk, before_dv = home()  # what earlier ranks found for the visiting block
            dk, dv = dk + before_dk, dv + before_dv
            home = self.pass_on([dk, dv])  # travels while the next block is computed
            if step + 1 < self.world_size:
                k, v = arrive()
        return [dq, *home()]
        # --8<-- [end:backward]


def sequence() -> Tensors:
    """Seeded q, k, v and d_out, (B, H, S, D) float64; queries large enough for peaked rows."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, d_out = torch.randn(4, B, H, S, D, dtype=torch.float64, generator=generator)
    return [4 * q, k, v, d_out]


def shard(x: torch.Tensor, rank: int, world_size: int, order: str) -> torch.Tensor:
    """The part of the sequence (dim 2) that `rank` holds."""
    if order not in ORDERS:
        raise ValueError(f"ring_attention: order {order!r} is unknown; use one of {ORDERS}")
    if x.shape[2] % (2 * world_size):
        raise ValueError(
            f"ring_attention: S = {x.shape[2]} does not split into {2 * world_size} chunks; "
            "pad the sequence to a multiple of that"
        )
    count = world_size if order == "plain" else 2 * world_size
    parts = x.chunk(count, dim=2)
    return torch.cat([parts[chunk] for chunk in chunks_of(rank, world_size, order)], 2)


def one_process(causal: bool) -> Tensors:
    """Attention over the whole sequence on one process, and autograd's gradients: o, dq, dk, dv."""
    q, k, v, d_out = sequence()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    pairs = q @ k.mT / math.sqrt(D)
    if causal:
        position = torch.arange(S)
        pairs = pairs.masked_fill(position > position[:, None], -math.inf)
    out = pairs.softmax(-1) @ v
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def on_rank(rank: int, world_size: int) -> dict[tuple[bool, str], dict[str, Any]]:
    """Every (causal, order) on one rank: results, work by step, bytes sent forward and in all."""
    report = {}
    for causal, order in product((False, True), ORDERS):
        mine = [shard(x, rank, world_size, order).to(ranks.device()) for x in sequence()]
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
    """Relative error of o, dq, dk, dv over the ranks together, each compared shard by shard."""
    world_size = len(reports)
    found = []
    for index, expected in enumerate(truth):
        ours = torch.cat([report["results"][index] for report in reports], 2)
        shards = [shard(expected, rank, world_size, order) for rank in range(world_size)]
        found.append(float((ours - torch.cat(shards, 2)).norm() / expected.norm()))
    return found


def bytes_sent(reports: list[dict[str, Any]], direction: str) -> float:
    """Bytes that each rank sent; NaN, which no expectation equals, unless all sent the same."""
    sent = {report[f"{direction}_bytes"] for report in reports}
    return sent.pop() if len(sent) == 1 else math.nan


def time_in_steps(reports: list[dict[str, Any]]) -> int:
    """Score pairs on the slowest rank of each step, summed: a step waits for its slowest rank."""
    return sum(map(max, zip(*(report["work"] for report in reports), strict=True)))


def facts() -> list[dict[str, Any]]:
    """Error, bytes and causal work on 2 and 4 ranks; where 0 is expected, tolerance is absolute."""
    rows = []
    truths = {causal: one_process(causal) for causal in (False, True)}
    for world_size in (2, 4):
        every_rank = ranks.run(on_rank, world_size)
        for causal, order in every_rank[0]:
            reports = [report[causal, order] for report in every_rank]
            what = f"{world_size} ranks, {'causal' if causal else 'full'}, {order}"
            checks = error_checks(reports, truths[causal], order) + byte_checks(reports)
            if causal:
                checks += work_checks(reports, order)
            for name, value, expected, unit, source in checks:
                rows.append(
                    {
                        "name": f"{what}: {name}",
                        "value": value,
                        "expected": expected,
                        "tolerance": LIMIT if expected == 0 else 0,
                        "unit": unit,
                        "source": source,
                    }
                )
    return rows


Check = tuple[str, float, float, str, str]  # name, value, expected, unit, source


def error_checks(reports: list[dict[str, Any]], truth: Tensors, order: str) -> list[Check]:
    """Relative errors, against attention on one process."""
    found = zip(("out", "dQ", "dK", "dV"), errors(reports, truth, order), strict=True)
    return [(f"error of {x}", error, 0, "", "float64 softmax attention") for x, error in found]


def byte_checks(reports: list[dict[str, Any]]) -> list[Check]:
    """Bytes sent by a rank, against P and n, the bytes of the block of K that it holds."""
    p = len(reports)
    n = B * H * (S // p) * D * torch.float64.itemsize
    formulas = (
        ("forward", 2 * (p - 1) * n, "2 (P - 1) n"),
        ("backward", 2 * (p - 1) * n + 2 * p * n, "2 (P - 1) n + 2 P n"),
    )
    return [
        (f"sent by a rank, {way}", bytes_sent(reports, way), expected, "B", formula)
        for way, expected, formula in formulas
    ]


def work_checks(reports: list[dict[str, Any]], order: str) -> list[Check]:
    """Causal work: how unequal over the ranks, and how long if each step waits for its slowest."""
    p, block = len(reports), (S // len(reports)) ** 2
    totals = [sum(report["work"]) for report in reports]
    ratio, steps = max(totals) / min(totals), time_in_steps(reports)
    if order == "plain":
        shape = p, "P: rank r has r + 1 blocks"
        limit = p * block, "P (S/P)^2: the mask saves no time"
    else:
        shape = 1, "2 P + 1 chunk pairs on every rank"
        limit = (2 * p + 1) * block // 4, "(2 P + 1) (S/P)^2 / 4"
    return [
        ("most over least work of a rank", ratio, shape[0], "", shape[1]),
        ("work of each step's slowest rank", steps, limit[0], "pairs", limit[1]),
    ]


def demo() -> None:
    """Causal attention on 4 ranks: who computes how much at each step, and whether it is right."""
    world_size = 4
    every_rank = ranks.run(on_rank, world_size)
    truth = one_process(causal=True)
    print(f"causal attention, B {B}, H {H}, S {S}, D {D}, float64, {world_size} ranks")
    for order in ORDERS:
        reports = [report[True, order] for report in every_rank]
        print(f"\n{order} order: score pairs computed at each step, for each of {B * H} heads")
        for rank, report in enumerate(reports):
            held = "+".join(map(str, chunks_of(rank, world_size, order)))
            steps = " ".join(f"{pairs:5d}" for pairs in report["work"])
            print(f"  rank {rank}, chunk {held:>3}: {steps}  sum {sum(report['work']):5d}")
        print(f"  slowest rank, step by step: {time_in_steps(reports)} pairs")
        print(f"  sent by each rank, forward: {reports[0]['forward_bytes']} bytes")
        right = all(error < LIMIT for error in errors(reports, truth, order))
        print(f"  out, dQ, dK, dV within {LIMIT:g}: {'yes' if right else 'no'}")


if __name__ == "__main__":
    demo()
