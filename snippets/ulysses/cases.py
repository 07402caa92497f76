"""What ulysses must show: attention of one process, and fewer bytes with more ranks."""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets import ranks
from snippets.facts import fact
from snippets.ulysses.ulysses import B, D, H, S, Want, each, own, sequence

NEEDS = {"seconds": 120}
LIMIT = 1e-12  # relative: thousands of float64 roundings
PAPER, BOTH = "deepspeed-ulysses", "usp-unified-sequence-parallelism"
WORD = torch.float64.itemsize


def facts() -> list[dict[str, Any]]:
    """Errors, bytes and messages of 2, 4 and 8 ranks, and of rings of groups."""
    rows = []
    for size in (2, 4, 8):
        rows += of_ranks(size)
    return rows


def wants(size: int) -> list[Want]:
    """All that is run on so many ranks."""
    plain = [Want(grouped, causal) for grouped in (H, 2) for causal in (True, False)]
    return plain + [Want(rings=rings) for rings in (2, 4) if rings < size]


def of_ranks(size: int) -> list[dict[str, Any]]:
    """Everything on so many ranks."""
    rows = []
    # Bytes are counted, not seconds: they are the same on a CPU.
    found = ranks.run(each, size, wants(size), backend="gloo")
    for at, want in enumerate(wants(size)):
        told = [one["told"][at] for one in found]
        name = f"{size} ranks, {want.grouped} heads of k, "
        name += "causal" if want.causal else "full"
        name += f", a ring of {want.rings}" if want.rings > 1 else ""
        rows += errors(name, told, want) + traffic(name, told, want)
    n = B * H * S // size * D * WORD
    for way, due, words in (
        (0, 2 * (size - 1) * n, "2 (P - 1) n, of S / P tokens: it hardly falls"),
        (1, 2 * (size - 1) * n + 2 * size * n, "2 (P - 1) n + 2 P n"),
    ):
        name = f"{size} ranks, a ring alone, {'backward' if way else 'forward'}"
        sent = alike([one["ring"][way] for one in found])
        source = f"{words}, after ring-attention"
        rows.append(fact(f"{name}: sent by a rank", sent, due, source, unit="B"))
    return rows


def errors(name: str, told: list[dict[str, Any]], want: Want) -> list[dict[str, Any]]:
    """The relative errors of o and of the gradients, rank by rank."""
    rows = []
    named = zip(("o", "dq", "dk", "dv"), truth(want), strict=True)
    for at, (key, due) in enumerate(named):
        parts = [own(due, rank, len(told), want.rings) for rank in range(len(told))]
        ours = torch.cat([one["results"][at] for one in told], 2)
        error = float((ours - torch.cat(parts, 2)).norm() / due.norm())
        source = "float64 attention on one process"
        rows.append(fact(f"{name}: error of {key}", error, 0, source, LIMIT))
    return rows


def truth(want: Want) -> list[torch.Tensor]:
    """o, dq, dk and dv, heads of k repeated, by autograd."""
    *qkv, d_out = sequence(want.grouped)
    q, k, v = (x.requires_grad_() for x in qkv)
    many = H // want.grouped
    pairs = q @ k.repeat_interleave(many, 1).mT / math.sqrt(D)
    if want.causal:
        later = torch.ones(S, S, dtype=torch.bool).triu(1)
        pairs = pairs.masked_fill(later, -math.inf)
    o = pairs.softmax(-1) @ v.repeat_interleave(many, 1)
    return [o.detach(), *torch.autograd.grad(o, [q, k, v], d_out)]


def traffic(name: str, told: list[dict[str, Any]], want: Want) -> list[dict[str, Any]]:
    """Bytes and messages of a rank, forward and backward."""
    size = len(told)
    p, rings = size // want.rings, want.rings
    n = B * H * S // size * D * WORD  # of a rank's q
    m = n * max(want.grouped, p) // H
    swap = (2 * n + 2 * m) * (p - 1) // p
    words = "(2 n + 2 m) (P - 1) / P"
    source = PAPER
    due = [[swap, 4 * (p - 1)], [swap, 4 * (p - 1)]]
    if rings > 1:  # and what a ring sends of blocks of n bytes
        source, words = BOTH, f"{words}, and 2 (R - 1) n; 2 R n more backward"
        for way, hops in ((0, rings - 1), (1, 2 * rings - 1)):
            due[way][0] += 2 * hops * n
            due[way][1] += 2 * hops
    rows = []
    for way, (sent, messages) in enumerate(due):
        before = [one["sent"][way - 1] if way else (0, 0) for one in told]
        pairs = list(zip((one["sent"][way] for one in told), before, strict=True))
        found = [alike([now[k] - then[k] for now, then in pairs]) for k in (0, 1)]
        what = f"{name}, {'backward' if way else 'forward'}"
        rows += [
            fact(f"{what}: sent by a rank", found[0], sent, f"{words}, after {source}",
                 unit="B"),
            fact(f"{what}: messages", found[1], messages,
                 "4 (P - 1), and two for each hop of a ring"),
        ]  # fmt: skip
    return rows


def alike(values: list[Any]) -> float:
    """What all ranks have; NaN unless they have the same."""
    return values[0] if len(set(values)) == 1 else math.nan
