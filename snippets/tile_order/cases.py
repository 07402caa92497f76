"""What tile_order must show: panels counted against formulas, and Triton's figures."""

from __future__ import annotations

from math import ceil
from typing import Any

from snippets.facts import fact
from snippets.tile_order import tile_order as tiles

TUTORIAL = "triton-matmul, L2 Cache Optimizations"


def facts() -> list[dict[str, Any]]:
    """Blocks read for the first nine tiles, and panels of whole products."""
    rows = []
    for name, order, expected in (
        ("row-major", tiles.row_major(9, 9), 90),
        ("groups of 3", tiles.grouped(9, 9, 3), 54),
    ):
        a, b = tiles.panels(tiles.waves(order, 9)[0])
        what = f"9 x 9 tiles, K of 9 blocks, {name}: blocks for the first 9 tiles"
        rows.append(fact(what, 9 * (a + b), expected, TUTORIAL))
    # a group of g rows fills a wave of P with g x P / g tiles: g + P / g panels
    for m, n, resident, group in ((16, 16, 32, 4), (32, 64, 128, 8), (64, 64, 256, 16)):
        counted = tiles.traffic(tiles.grouped(m, n, group), resident)
        formula = m * n // resident * (group + resident // group)
        what = f"{m} x {n} tiles, {resident} at a time, groups of {group}: panels"
        rows.append(fact(what, counted, formula, "(M N / P) (g + P / g)"))
    # row-major, where a wave is a part of a row or whole rows
    for m, n, resident in ((16, 64, 32), (16, 16, 32)):
        counted = tiles.traffic(tiles.row_major(m, n), resident)
        formula = m * n // resident * (ceil(resident / n) + min(resident, n))
        what = f"{m} x {n} tiles, {resident} at a time, row-major: panels"
        rows.append(
            fact(what, counted, formula, "(M N / P) (P / N rounded up + min(P, N))")
        )
    what = "64 x 64 tiles, 64 at a time: the group that reads least"
    rows.append(fact(what, tiles.best_group(64, 64, 64), 8, "square root of P"))
    return rows


def grids() -> tuple[dict[str, Any], ...]:
    """Sixteen by sixteen tiles, 32 at a time, in either order."""
    return (
        picture("row-major", tiles.row_major(16, 16)),
        picture("grouped", tiles.grouped(16, 16, 4)),
    )


def picture(name: str, order: list[tiles.Place], resident: int = 32) -> dict[str, Any]:
    """The tiles of C with their numbers, coloured by wave."""
    cells = [[("", -1)] * 16 for _ in range(16)]
    for number, (row, column) in enumerate(order):
        cells[row][column] = (str(number), number // resident % 8)
    a, b = tiles.panels(tiles.waves(order, resident)[0])
    return {
        "name": name,
        "caption": f"Tiles of C in {name} order, coloured by wave of {resident}: the "
        f"first reads {a} panels of A and {b} of B.",
        "across": "column of tiles, a panel of B",
        "down": "row of tiles, a panel of A",
        "columns": [str(column) for column in range(16)],
        "rows": [str(row) for row in range(16)],
        "cells": cells,
    }
