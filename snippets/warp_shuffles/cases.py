"""What warp_shuffles must show: steps, additions, and who ends with the sum."""

from __future__ import annotations

from math import log2
from typing import Any

from snippets.facts import fact
from snippets.warp_shuffles import warp_shuffles as shuffles
from snippets.warp_shuffles.warp_shuffles import LANES

SOURCE = "cuda-warp-primitives"


def facts() -> list[dict[str, Any]]:
    """Both sums of powers of two, whose bits tell which lanes went in."""
    values = [1 << lane for lane in range(LANES)]
    total = (1 << LANES) - 1
    across, down = shuffles.butterfly(values), shuffles.tree(values)
    return [
        fact("butterfly: steps", len(across) - 1, log2(LANES), "log2 of the lanes"),
        fact("butterfly: lanes with the sum", across[-1].count(total), LANES, SOURCE),
        fact("tree: steps", len(down) - 1, log2(LANES), "log2 of the lanes"),
        fact("tree: sum in lane 0", down[-1][0], total, SOURCE),
        fact("tree: additions that lane 0 needs", sum(shuffles.needed()), LANES - 1,
             "one fewer than the lanes"),
    ]  # fmt: skip


def grids() -> tuple[dict[str, Any], ...]:
    """Which lane each lane takes from, step by step."""
    lanes, offsets = range(LANES), shuffles.offsets()
    frame = {
        "across": "lane",
        "down": "offset",
        "columns": [str(lane) for lane in lanes],
        "rows": [str(offset) for offset in offsets],
    }
    return (
        {
            "name": "butterfly",
            "caption": "Butterfly: the lane that each lane takes from. Below offset "
            "16, lanes of one colour hold one value; after the last step, all do.",
            **frame,
            "cells": [
                [
                    (str(lane ^ offset), lane % offset if offset <= 8 else -1)
                    for lane in lanes
                ]
                for offset in offsets
            ],
        },
        {
            "name": "tree",
            "caption": "Tree: the lane that each lane takes from, where lane 0 needs "
            "its sum; the other lanes add too, to no purpose.",
            **frame,
            "cells": [
                [(str(lane + need), 0) if lane < need else ("", -1) for lane in lanes]
                for need in shuffles.needed()
            ],
        },
    )
