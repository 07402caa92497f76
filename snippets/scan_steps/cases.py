"""What scan_steps must show: the papers' counts, and the page's pictures."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

from snippets.facts import fact
from snippets.scan_steps import scan_steps as scans

SIZES = (8, 32, 1024)
N, TILE = 4096, 128
Range = tuple[int, ...]  # first and last element of a sum; () is the empty one


def facts() -> list[dict[str, Any]]:
    """Counts against closed forms, and results against running sums."""
    return [*block_facts(), *device_facts(), *matrix_facts()]


def block_facts() -> list[dict[str, Any]]:
    """Schemes within a block."""
    rows = []
    for n in SIZES:
        levels = log2(n)
        for name, made, additions, steps, source in (
            ("tree", scans.tree_sum, n - 1, levels, "harris-reduction"),
            (
                "Hillis-Steele",
                scans.hillis_steele,
                n * levels - (n - 1),
                levels,
                "gpu-gems-scan",
            ),
            ("Blelloch", scans.blelloch, 2 * (n - 1), 2 * levels, "gpu-gems-scan"),
        ):
            count = made(range(n))[1]
            named = f"{name}, n {n}"
            rows += [
                fact(f"{named}: additions", count.additions, additions, source),
                fact(f"{named}: steps", count.steps, steps, source),
            ]
    count = scans.shuffle_sum(range(1024))[1]
    source = "kepler-reductions"
    return [
        *rows,
        fact("shuffles, n 1024: steps", count.steps, 5 + 5, source),
        fact("shuffles, n 1024: barriers", count.barriers, 1, source),
    ]


def device_facts() -> list[dict[str, Any]]:
    """Words of device memory per number, without what tiles tell each other."""
    rows = []
    x = [(5 * i) % 11 for i in range(N)]
    source = "decoupled-look-back"
    for name, made, words in (
        ("scan then propagate", scans.scan_then_propagate, 4),
        ("reduce then scan", scans.reduce_then_scan, 3),
        ("look-back", scans.look_back, 2),
    ):
        out, count = made(x, TILE)
        rows.append(fact(f"{name}: words / n", count.words / N, words, source))
        rows.append(fact(f"{name}: last prefix", out[-1], sum(x), source))
    # The fewest: all publish twice and ask once, but the first publishes once.
    alone = scans.look_back(x, TILE, resident=1)[1].messages
    fewest = 3 * (N // TILE - 1) + 1
    rows.append(fact("look-back, a tile at a time: messages", alone, fewest, source))
    return rows


def matrix_facts() -> list[dict[str, Any]]:
    """A scan by products."""
    source = "tensor-core-reduction-scan"
    out, products = scans.matrix_scan(range(256))
    return [
        fact("matrix, n 256: products", products, 3, source),
        fact("matrix, n 256: last prefix", out[-1], 255 * 256 // 2, source),
    ]


# Pictures: what each cell has summed, elements 0 to 7 or 15.


def join(left: Range, right: Range) -> Range:
    """The sum of two neighbouring ranges."""
    if not left or not right:
        return left or right
    assert left[1] + 1 == right[0]
    return left[0], right[1]


def spelled(one: Range) -> str:
    """A range as a cell shows it."""
    if not one:
        return "none"
    return f"{one[0]}" if one[0] == one[1] else f"{one[0]}-{one[1]}"


def drawn(
    name: str, caption: str, rows: Sequence[str], stages: Sequence[Sequence[Range]]
) -> dict[str, Any]:
    """A grid of stages; what a step changed is coloured."""
    cells = [[(spelled(one), -1) for one in stages[0]]]
    for before, after in zip(stages, stages[1:], strict=False):
        pairs = zip(before, after, strict=True)
        cells.append([(spelled(new), 0 if new != old else -1) for old, new in pairs])
    return {
        "name": name,
        "caption": caption,
        "across": "element",
        "down": "after the step",
        "columns": [str(i) for i in range(len(stages[0]))],
        "rows": list(rows),
        "cells": cells,
    }


STATES = {"-": -1, "X": 3, "A": 1, "P": 0}


def grids() -> tuple[dict[str, Any], ...]:
    """A tree, both scans of a block, and the states of a look-back."""
    ranges: list[Range] = [(i, i) for i in range(8)]
    hillis = scans.hillis_steele(ranges, join)[1].stages
    blelloch = scans.blelloch(ranges, (), join)[1].stages
    late = scans.look_back(range(8 * 4), 4, late={2: 3})[1].stages
    return (
        tree(8),
        drawn(
            "hillis-steele",
            "Hillis and Steele: the elements that each cell has summed. Coloured are "
            "those that a step changed.",
            ["input", "1", "2", "4"],
            [ranges, *hillis],
        ),
        drawn(
            "blelloch",
            "Blelloch: sums up the tree, prefixes down it. Each cell ends with the sum "
            "of those before it.",
            ["input", "up 1", "up 2", "up 4", "down 4", "down 2", "down 1"],
            [ranges, *blelloch],
        ),
        {
            "name": "look-back",
            "caption": "Decoupled look-back: what each tile has published. Tile 2 is "
            "three rounds late, and those after it wait with their sums.",
            "across": "tile",
            "down": "after the round",
            "columns": [str(i) for i in range(8)],
            "rows": [str(i + 1) for i in range(len(late))],
            "cells": [[(one, STATES[one]) for one in stage] for stage in late],
            "legend": [
                (STATES["X"], "X: nothing yet"),
                (STATES["A"], "A: the sum of the tile"),
                (STATES["P"], "P: the prefix up to its end"),
            ],
        },
    )


def tree(n: int) -> dict[str, Any]:
    """How many elements each thread of a tree has summed; only who adds is coloured."""
    stages = scans.tree_sum([1] * n)[1].stages
    cells = [[("1", -1)] * n]
    alive = n
    for stage in stages:
        alive //= 2
        rest = [("", -1)] * (n - alive)
        cells.append([(str(one), 0) for one in stage[:alive]] + rest)
    return {
        "name": "tree",
        "caption": "A tree in shared memory: how many elements each thread has summed. "
        "Half of those that add stop at every step.",
        "across": "thread",
        "down": "after the step",
        "columns": [str(i) for i in range(n)],
        "rows": ["input", *(f"+{n >> i}" for i in range(1, len(stages) + 1))],
        "cells": cells,
    }
