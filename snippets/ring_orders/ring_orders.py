"""Ring attention's steps under a causal mask: who computes what while blocks go round.

FLOPs   4 * D for each score pair. With c = S / P tokens a rank, the busiest ranks of
        all steps together compute P c^2 pairs without a mask,
        (P - 1) c^2 + c (c + 1) / 2 in plain order, P c (c + 1) / 2 striped and
        (P c^2 + c) / 2 in zigzag, which is the mean: all ranks do the same in a step
Error   exact: every pair of a query and a key is counted, and counted once
Raises  ValueError for an order that is unknown and tokens that do not divide
Source  ring-attention, striped-attention, zhuzilin-ring-flash-attention
"""

from __future__ import annotations

ORDERS = ("plain", "striped", "zigzag")


# --8<-- [start:model]
def tokens_of(order: str, rank: int, ranks: int, tokens: int) -> list[int]:
    """The places in the sequence of the tokens that `rank` holds."""
    _check(order, ranks, tokens)
    if order == "striped":
        return list(range(rank, tokens, ranks))
    if order == "plain":
        each = tokens // ranks
        return list(range(rank * each, (rank + 1) * each))
    half = tokens // (2 * ranks)
    late = 2 * ranks - 1 - rank
    return [chunk * half + place for chunk in (rank, late) for place in range(half)]


def owner(rank: int, step: int, ranks: int) -> int:
    """Whose keys are at `rank` in a step: they come from the rank before it."""
    return (rank - step) % ranks


def pairs(
    order: str, rank: int, step: int, ranks: int, tokens: int, causal: bool = True
) -> list[tuple[int, int]]:
    """The (query, key) pairs that `rank` computes in a step: none that is masked."""
    queries = tokens_of(order, rank, ranks, tokens)
    keys = tokens_of(order, owner(rank, step, ranks), ranks, tokens)
    return [(q, k) for q in queries for k in keys if not causal or k <= q]


def work(order: str, ranks: int, tokens: int, causal: bool = True) -> list[list[int]]:
    """How many pairs each rank computes in each step."""
    steps = range(ranks)
    return [
        [len(pairs(order, rank, step, ranks, tokens, causal)) for step in steps]
        for rank in range(ranks)
    ]


def time(order: str, ranks: int, tokens: int, causal: bool = True) -> int:
    """Pairs of the busiest rank of each step, added: a step waits for that rank."""
    by_step = zip(*work(order, ranks, tokens, causal), strict=True)
    return sum(max(row) for row in by_step)


def busy(order: str, ranks: int, tokens: int, causal: bool = True) -> float:
    """The share of the ranks' time in which they compute."""
    done = sum(map(sum, work(order, ranks, tokens, causal)))
    return done / (ranks * time(order, ranks, tokens, causal))


# --8<-- [end:model]


def _check(order: str, ranks: int, tokens: int) -> None:
    if order not in ORDERS:
        what = f"order {order!r} is unknown; use one of {', '.join(ORDERS)}"
        raise ValueError(f"ring_orders: {what}")
    parts = 2 * ranks if order == "zigzag" else ranks
    if parts < 1 or tokens < 1 or tokens % parts:
        what = f"{tokens} tokens do not divide into {parts} equal parts"
        raise ValueError(f"ring_orders: {what}; pad the sequence")


def demo() -> None:
    """Pairs by rank and step in each order, and what waiting for the busiest costs."""
    ranks, tokens = 4, 1024
    block = (tokens // ranks) ** 2
    print(f"{tokens} tokens on {ranks} ranks, causal; in blocks of (S / P)^2 pairs")
    for order in ORDERS:
        took, share = time(order, ranks, tokens) / block, busy(order, ranks, tokens)
        print(f"\n{order}: {took:.2f} blocks of time, ranks busy {100 * share:.0f} %")
        for rank, row in enumerate(work(order, ranks, tokens)):
            print(f"  rank {rank}" + "".join(f"{n / block:7.3f}" for n in row))


if __name__ == "__main__":
    demo()
