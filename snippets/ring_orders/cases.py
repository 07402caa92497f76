"""What ring_orders must show: time and shares by formula, and who computes when."""

from __future__ import annotations

from typing import Any

from snippets.facts import fact
from snippets.ring_orders import ring_orders as orders

SIZES = ((2, 24), (4, 64), (8, 96))  # ranks and tokens
PLAIN, STRIPED = "ring-attention", "striped-attention"
ZIGZAG = "zhuzilin-ring-flash-attention"


def facts() -> list[dict[str, Any]]:
    """Pairs of the busiest ranks against the formulas, and that none is lost."""
    rows = []
    for p, s in SIZES:
        c = s // p
        half = c * (c + 1) // 2  # of a block, with its diagonal
        times = {
            "plain": ((p - 1) * c * c + half, PLAIN),
            "striped": (p * half, STRIPED),
            "zigzag": ((p * c * c + c) // 2, ZIGZAG),
        }
        title = f"P {p}, S {s}"
        rows.append(
            fact(f"no mask, {title}: pairs in time", orders.time("plain", p, s, False),
                 p * c * c, PLAIN)
        )  # fmt: skip
        for order, (expected, source) in times.items():
            done = [sum(each) for each in orders.work(order, p, s)]
            name, pairs = f"{order}, {title}", s * (s + 1) // 2
            took = orders.time(order, p, s)
            rows += [
                fact(f"{name}: pairs of all ranks", sum(done), pairs, source),
                fact(f"{name}: pairs in time", took, expected, source),
            ]
            if order == "zigzag":
                rows.append(fact(f"{name}: pairs a rank", max(done), pairs / p, source))
    return rows


RANKS, TOKENS = 4, 16
WORDS = {
    "plain": "Tokens in order, {}: four in a row to a rank, and the last has the most.",
    "striped": "Striped, {}: token t is at rank t mod 4, and each step is a triangle.",
    "zigzag": "Zigzag, {}: a rank has two early tokens and two late ones.",
}

WAITED = "the pairs of each rank and step, coloured where the step waits for them"


def grids() -> list[dict[str, Any]]:
    """Of 16 tokens on four ranks: the step of each pair, and each rank's pairs."""
    rows = []
    for order, words in WORDS.items():
        rows += [
            mask(order, words.format("the step in which each pair is computed")),
            load(order, words.format(WAITED)),
        ]
    return rows


def mask(order: str, caption: str) -> dict[str, Any]:
    """A row a query, a column a key: the step of a pair, in the colour of its rank."""
    cells = [[("", -1)] * TOKENS for _ in range(TOKENS)]
    for rank in range(RANKS):
        for step in range(RANKS):
            for query, key in orders.pairs(order, rank, step, RANKS, TOKENS):
                cells[query][key] = (str(step), rank)
    places = [str(token) for token in range(TOKENS)]
    return {
        "name": f"{order}-mask",
        "caption": caption,
        "across": "key",
        "down": "query",
        "columns": places,
        "rows": places,
        "cells": cells,
        "legend": [(rank, f"rank {rank}") for rank in range(RANKS)],
    }


def load(order: str, caption: str) -> dict[str, Any]:
    """A row a rank, a column a step; what the step waits for has its rank's colour."""
    work = orders.work(order, RANKS, TOKENS)
    cells: list[list[tuple[str, int]]] = [[] for _ in work]
    for column in zip(*work, strict=True):
        for rank, done in enumerate(column):
            cells[rank].append((str(done), rank if done == max(column) else -1))
    return {
        "name": f"{order}-load",
        "caption": caption,
        "across": "step",
        "down": "rank",
        "columns": [str(step) for step in range(RANKS)],
        "rows": [str(rank) for rank in range(RANKS)],
        "cells": cells,
    }
