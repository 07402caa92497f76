"""What stream_k must show: the figures of the paper that names it, and its formulas."""

from __future__ import annotations

from math import ceil
from typing import Any

from snippets.facts import fact
from snippets.stream_k import stream_k as streams
from snippets.stream_k.stream_k import Schedule

# A product of 384 x 384 x 128 on 4 SMs: 9 tiles of 128 x 128, 4 numbers an iteration.
TILES, ITERATIONS, SMS = 9, 32, 4


def facts() -> list[dict[str, Any]]:
    """The four schedules that the paper draws, then sizes of our own by formula."""
    whole = streams.data_parallel(TILES, ITERATIONS, SMS)
    halves = streams.data_parallel(2 * TILES, ITERATIONS, SMS)
    split = streams.split_k(TILES, ITERATIONS, SMS, 2)
    streamed = streams.stream_k(TILES, ITERATIONS, SMS)
    what = "384 x 384 x 128 on 4 SMs"
    rows = [
        fact(f"{what}, tiles of 128 x 128: busy", whole.efficiency, 0.75,
             "stream-k, figure 1a"),
        fact(f"{what}, tiles of 128 x 64: busy", halves.efficiency, 0.9,
             "stream-k, figure 1b"),
        fact(f"{what}, split in 2: busy", split.efficiency, 0.9, "stream-k, figure 2a"),
        fact(f"{what}, stream-K: busy", streamed.efficiency, 1, "stream-k, figure 2b"),
        # 288 of K, 4 an iteration
        fact(f"{what}, stream-K: iterations of a block", streamed.makespan, 288 / 4,
             "stream-k, figure 2b"),
    ]  # fmt: skip
    for tiles, iterations, sms in ((128, 128, 132), (162, 128, 132), (512, 128, 132)):
        what = f"{tiles} tiles of {iterations} iterations on {sms} SMs"
        waves = ceil(tiles / sms) * iterations
        even = ceil(tiles * iterations / sms)
        for build, expected, source in (
            (streams.data_parallel, waves, "T / P rounded up, times I"),
            (streams.stream_k, even, "T I / P rounded up"),
            (streams.hybrid, even, "T I / P rounded up"),
        ):
            made = build(tiles, iterations, sms)
            name = f"{what}, {made.name}: iterations"
            rows.append(fact(name, made.makespan, expected, source))
    return rows


def grids() -> tuple[dict[str, Any], ...]:
    """The paper's three schedules on one scale, four iterations a column."""
    return (
        picture(
            streams.data_parallel(TILES, ITERATIONS, SMS),
            "data-parallel",
            "Nine tiles on four SMs: the third wave has one tile, and three SMs wait",
        ),
        picture(
            streams.split_k(TILES, ITERATIONS, SMS, 2),
            "split",
            "Each tile in two halves along K: two SMs wait in the last wave of halves",
        ),
        picture(
            streams.stream_k(TILES, ITERATIONS, SMS),
            "stream-k",
            "Stream-K: equal shares of all iterations; three tiles have two owners",
        ),
    )


def picture(made: Schedule, name: str, said: str, step: int = 4) -> dict[str, Any]:
    """What each SM works on in time; an empty cell is an SM that waits."""
    columns = 24
    cells = []
    for mine in made.sms:
        row = [
            (str(share.tile), share.tile % 8)
            for share in mine
            for _ in range((share.end - share.begin) // step)
        ]
        cells.append(row + [("", -1)] * (columns - len(row)))
    return {
        "name": name,
        "caption": f"{said}. Numbers and colours: the tile.",
        "across": f"time, {step} iterations a column",
        "down": "SM",
        "columns": [str(column) for column in range(columns)],
        "rows": [str(sm) for sm in range(len(made.sms))],
        "cells": cells,
    }
