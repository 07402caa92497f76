"""What ring_steps must show: the published counts, and pictures of who holds what."""

from __future__ import annotations

from itertools import product
from typing import Any

from snippets.facts import fact
from snippets.ring_steps import ring_steps as steps
from snippets.ring_steps.ring_steps import Collective

RANKS = (4, 8, 64)  # powers of two, which halving asks for
ODD = (3, 7)
N = 3 * 7 * 2**14  # elements; every number of chunks here divides it
RING, OPTIMAL = "ring-all-reduce", "bandwidth-optimal-all-reduce"
MPICH, TREES = "mpich-collectives", "nccl-double-binary-trees"
PIECES = 4


def facts() -> list[dict[str, Any]]:
    """Steps, hops and elements sent against the formulas; and that all is added."""
    rows = []
    for p in (*RANKS, *ODD):
        rows += ring_facts(p)
    for p in RANKS:
        rows += doubling_facts(p) + tree_facts(p)
    return rows


def whole(made: Collective) -> int:
    """How many ranks end with every rank's part of every chunk, each added once."""
    parts = [[4**rank] * made.chunks for rank in range(made.ranks)]
    total = sum(4**rank for rank in range(made.ranks))
    return sum(rank == [total] * made.chunks for rank in made.run(parts)[-1])


def ring_facts(p: int) -> list[dict[str, Any]]:
    """A ring of `p`: every rank sends the same, and no all-reduce can send less."""
    made, half = steps.ring(p), steps.reduce_scatter(p)
    title = f"{made.name}, P {p}"
    halves = f"{half.name}, P {p}: elements that each rank sends of n"
    (each,), (each_half,) = set(made.sent(N)), set(half.sent(N))
    return [
        fact(f"{title}: ranks that hold the sum", whole(made), p, RING),
        fact(f"{title}: steps", len(made.steps), 2 * (p - 1), RING),
        fact(
            f"{title}: elements that each rank sends of n",
            each, 2 * (p - 1) * N / p, OPTIMAL,
        ),
        fact(halves, each_half, (p - 1) * N / p, OPTIMAL),
    ]  # fmt: skip


def doubling_facts(p: int) -> list[dict[str, Any]]:
    """Both ways that exchange with ranks 1, 2, 4 ... away."""
    bits = p.bit_length() - 1
    rows = []
    for made, turns, most in (
        (steps.doubling(p), bits, N * bits),
        (steps.halving(p), 2 * bits, 2 * (p - 1) * N / p),
    ):
        title = f"{made.name}, P {p}"
        what = f"{title}: elements that each rank sends of n"
        (each,) = set(made.sent(N))
        rows += [
            fact(f"{title}: ranks that hold the sum", whole(made), p, MPICH),
            fact(f"{title}: steps", len(made.steps), turns, MPICH),
            fact(what, each, most, MPICH),
        ]
    return rows


def tree_facts(p: int) -> list[dict[str, Any]]:
    """Two trees: nobody is inside both, so nobody sends more than twice the array."""
    made = steps.two_trees(p, PIECES)
    title = f"{made.name}, P {p}"
    first = set(steps.parents(p))
    inside = [(rank in first) + (p - 1 - rank in first) for rank in range(p)]
    return [
        fact(f"{title}: ranks that hold the sum", whole(made), p, TREES),
        fact(f"{title}: ranks inside one tree only", inside.count(1), p, TREES),
        fact(
            f"{title}: hops up and down", made.hops, 2 * (p.bit_length() - 1), TREES
        ),
        fact(
            f"{title}: elements that the busiest rank sends of n",
            max(made.sent(N)), 2 * N, TREES,
        ),
    ]  # fmt: skip


Cell = tuple[str, int]
LETTERS = "abcdefgh"


def grids() -> list[dict[str, Any]]:
    """What each of four ranks holds after each step, and who sends along two trees."""
    ring = "After a step, whose parts a chunk holds"
    return [
        holdings(
            "ring", steps.ring(4),
            f"{ring}, on a ring of four: three steps add, three more copy the sums.",
        ),
        holdings(
            "halving", steps.halving(4),
            f"{ring}, by halving and doubling: the same bytes, in four steps.",
        ),
        sends(
            "two-trees", steps.two_trees(8, 2),
            "To whom each of eight ranks sends in each step, four chunks a to d: a and "
            "c along one tree, b and d along the other, capital letters on the way up.",
        ),
    ]  # fmt: skip


def holdings(name: str, made: Collective, caption: str) -> dict[str, Any]:
    """A row a step, a column for each chunk of each rank; coloured by parts added."""
    cells = []
    for state in made.run(steps.letters(made.ranks, made.chunks)):
        held = ["".join(sorted(chunk)) for rank in state for chunk in rank]
        cells.append([(parts, len(parts) - 2) for parts in held])
    pairs = product(range(made.ranks), LETTERS[: made.chunks])
    columns = [f"{rank}{chunk}" for rank, chunk in pairs]
    rows = ["start", *(str(step + 1) for step in range(len(made.steps)))]
    axes = {"across": "rank and chunk", "down": "after step"}
    picture = {"name": name, "caption": caption, **axes}
    found = sorted({len(parts) for row in cells for parts, _ in row} - {1})
    legend = [(n - 2, f"{n} parts added") for n in found]
    table = {"columns": columns, "rows": rows, "cells": cells, "legend": legend}
    return {**picture, **table}


def sends(name: str, made: Collective, caption: str) -> dict[str, Any]:
    """A row a rank, a column a step: the chunk and the rank it goes to, by tree."""
    cells: list[list[Cell]] = [[("", -1)] * len(made.steps) for _ in range(made.ranks)]
    for step, messages in enumerate(made.steps):
        for one in messages:
            (chunk,) = one.chunks
            letter = LETTERS[chunk].upper() if one.adds else LETTERS[chunk]
            cells[one.source][step] = (f"{letter}{one.target}", chunk % 2)
    return {
        "name": name,
        "caption": caption,
        "across": "step",
        "down": "rank",
        "columns": [str(step + 1) for step in range(len(made.steps))],
        "rows": [str(rank) for rank in range(made.ranks)],
        "cells": cells,
        "legend": [(0, "one tree"), (1, "the other")],
    }
