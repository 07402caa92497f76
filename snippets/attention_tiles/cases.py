"""What attention_tiles must show: counts against formulas, and the page's pictures."""

from __future__ import annotations

from typing import Any

from snippets.attention_tiles import attention_tiles as attention
from snippets.attention_tiles.attention_tiles import Tile
from snippets.facts import fact


def facts() -> list[dict[str, Any]]:
    """Tiles of causal squares, and steps of a decoding that is cut."""
    rows = []
    for n in (512, 8192):
        grid, t = attention.tiles(n, n), n // 128
        share = (attention.count(grid, Tile.WHOLE) + t) / t**2
        rows += [
            (f"{n} tokens: tiles with a mask", attention.count(grid, Tile.EDGE), t),
            (
                f"{n} tokens: tiles never formed",
                attention.count(grid, Tile.NONE),
                t * (t - 1) // 2,
            ),
            (f"{n} tokens: share formed", share, 1 / 2 + 1 / (2 * t)),
        ]
    facts = [(*row, "flash-attention-2") for row in rows]
    for parts in (1, 2, 4):
        steps = len(attention.decode(4, parts, 8, 16))
        expected = 8 // parts + (parts > 1)
        facts.append(
            (f"decoding in {parts} parts: steps", steps, expected, "flash-decoding")
        )
    return [fact(*row) for row in facts]


LOOK = {Tile.WHOLE: ("all", 0), Tile.EDGE: ("mask", 1), Tile.NONE: ("", -1)}
LEGEND = [(0, "formed without a mask"), (1, "formed, mask applied")]


def grids() -> tuple[dict[str, Any], ...]:
    """Tiles under a mask, and decoding whole and cut."""
    square = attention.tiles(1024, 1024, 128, 64)
    longer = attention.tiles(256, 1024, 128, 64)
    return (
        causal("causal", square, "1,024 queries and keys in tiles of 128 by 64. The "
               "empty ones are never formed, and two of a row need the mask."),
        causal("prefill", longer, "256 queries that join 768 keys of a cache: the mask "
               "hangs from the last query, and little is left to skip."),
        decoding("whole", 1, "Four sequences, a block each, on 16 SMs: three quarters "
                 "of the machine have nothing to read."),
        decoding("cut", 4, "The same keys in four parts each: a quarter of the steps, "
                 "and one to merge."),
    )  # fmt: skip


def causal(name: str, grid: list[list[Tile]], caption: str) -> dict[str, Any]:
    """A grid of tiles."""
    return {
        "name": name,
        "caption": caption,
        "across": "tile of keys",
        "down": "tile of queries",
        "columns": [str(i) for i in range(len(grid[0]))],
        "rows": [str(i) for i in range(len(grid))],
        "cells": [[LOOK[one] for one in line] for line in grid],
        "legend": LEGEND,
    }


def decoding(name: str, parts: int, caption: str) -> dict[str, Any]:
    """A grid of SMs and steps."""
    lines = attention.decode(4, parts, 8, 16)
    colours = {"": -1, "m": 7, "A": 0, "B": 1, "C": 2, "D": 3}
    return {
        "name": name,
        "caption": caption,
        "across": "SM",
        "down": "step",
        "columns": [str(i) for i in range(16)],
        "rows": [str(i + 1) for i in range(len(lines))],
        "cells": [[(cell[:1], colours[cell[:1]]) for cell in line] for line in lines],
        "legend": [
            *((colours[one], f"sequence {one}") for one in "ABCD"),
            *([(7, "merge of its parts")] if parts > 1 else []),
        ],
    }
