"""What time_tiles must show: sweeps against single steps, counts, a picture."""

from __future__ import annotations

from typing import Any

from snippets.facts import fact
from snippets.time_tiles import time_tiles as tiles

BLOCKING, GHOSTS = "nguyen-35d-blocking", "meng-skadron-ghost-zones"


def plain(cells: list[int], r: int, depth: int) -> list[int]:
    """The ring, one step after the other."""
    n = len(cells)
    for _ in range(depth):
        cells = [
            tiles.total([cells[(i + k) % n] for k in range(-r, r + 1)])
            for i in range(n)
        ]
    return cells


def facts() -> list[dict[str, Any]]:
    """Executed counts against the formulas."""
    cells = [(13 * i) % 31 for i in range(256)]
    rows = []
    for n, r, depth in ((64, 1, 1), (64, 1, 4), (32, 2, 3)):
        out, count = tiles.sweep(cells, n, r, depth)
        wrong = sum(a != b for a, b in zip(out, plain(cells, r, depth), strict=True))
        named = f"tiles of {n}, r {r}, T {depth}"
        needed = len(cells) * depth
        moved = (count.read + count.written) / needed
        more = count.updates / needed
        rows += [
            (f"{named}: wrong cells", wrong, 0, BLOCKING),
            (f"{named}: words", moved, tiles.words(n, r, depth), BLOCKING),
            (f"{named}: updates for one", more, tiles.repeated(n, r, depth), GHOSTS),
        ]
    return [fact(*row, tolerance=1e-12) for row in rows]


def grids() -> tuple[dict[str, Any], ...]:
    """One tile of eight cells in space and time, its neighbours beside it."""
    n, r, depth = 8, 1, 4
    reach = r * depth
    places = range(-reach, n + reach)
    cells = []
    for t in range(depth + 1):
        left = reach - r * t  # how far the tile still reaches over its edges
        line = []
        for place in places:
            if 0 <= place < n:
                line.append(("own", 0))
            elif -left <= place < n + left:
                line.append(("load" if t == 0 else "again", 1))
            else:
                line.append(("", -1))
        cells.append(line)
    return (
        {
            "name": "trapezoid",
            "caption": "A tile of eight cells, radius 1, four steps without its "
            "neighbours: four cells a side are loaded too, and their updates are done "
            "again by the tile that owns them.",
            "across": "cell",
            "down": "step",
            "columns": [str(place) for place in places],
            "rows": [str(t) for t in range(depth + 1)],
            "cells": cells,
            "legend": [(0, "the tile's own"), (1, "halo")],
        },
    )
