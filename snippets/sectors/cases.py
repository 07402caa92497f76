"""What sectors must show: counts that profilers have published of real kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snippets.facts import fact
from snippets.sectors import sectors
from snippets.sectors.sectors import LANES, Addresses, strided

GEMM = "cuda-gemm-t4, README of {}, Source Counters"
TRANSPOSE = "transpose-profiles, exercises/hw8/task1/{}.profile"


def facts() -> list[dict[str, Any]]:
    """A transpose, and two products, each counted here and by Nsight Compute."""
    return [*transpose(), *gemm()]


def transpose() -> Iterable[dict[str, Any]]:
    """4096 x 4096 doubles: one side runs along a row, the other down a column."""
    warps = 4096 * 4096 // LANES
    row, column = strided(1, 8), strided(4096, 8)
    for name, load, store, counted in (
        ("task1", column, row, (32, 8, 16_777_216, 4_194_304, 0.25, 1)),
        ("task1b", row, column, (8, 32, 4_194_304, 16_777_216, 1, 0.25)),
    ):
        ours = (
            sectors.sectors(load, 8),
            sectors.sectors(store, 8),
            warps * sectors.sectors(load, 8),
            warps * sectors.sectors(store, 8),
            sectors.efficiency(load, 8),
            sectors.efficiency(store, 8),
        )
        what = (
            "sectors of a load request",
            "sectors of a store request",
            "sectors loaded",
            "sectors stored",
            "used of what is loaded",
            "used of what is stored",
        )
        for words, value, expected in zip(what, ours, counted, strict=True):
            source = TRANSPOSE.format(name)
            yield fact(f"transpose, {name}: {words}", value, expected, source)


def threads(place: Any) -> Addresses:
    """Addresses of a warp of 16 x 16 threads: `place(y, x)` is a thread's word."""
    return [4 * place(lane // 16, lane % 16) for lane in range(LANES)]


def gemm() -> Iterable[dict[str, Any]]:
    """Products of 2048 x 2048 x 2048, whose C is read, scaled and written."""
    n = 2048
    # 02: tiles of 64 x 64 by 16 x 16 threads of 4 x 4; operands a word at a time
    warps, slabs = (n // 64) ** 2 * 8, n // 64
    operand = threads(lambda y, x: n * y + x)
    result = threads(lambda y, x: 4 * n * y + 4 * x)
    loads, results = warps * slabs * 32, warps * 2 * 16
    total = loads * sectors.sectors(operand) + results * sectors.sectors(result)
    excess = results * (sectors.sectors(result) - sectors.least(result))
    source = GEMM.format("02_register_tiling")
    yield fact("register tiling: sectors", total, 37_748_736, source)
    yield fact("register tiling: excessive sectors", excess, 3_145_728, source)
    # 03: tiles of 128 x 128 by 256 threads of 8 x 8; everything by quads
    warps, slabs = (n // 128) ** 2 * 8, n // 32
    operand = strided(1, 16)
    result = threads(lambda y, x: 8 * n * y + 8 * x)
    loads, results = warps * slabs * 8, warps * 2 * 16
    total = loads * sectors.sectors(operand, 16) + results * sectors.sectors(result, 16)
    excess = results * (sectors.sectors(result, 16) - sectors.least(result, 16))
    source = GEMM.format("03_vectorized_dram")
    yield fact("vectorized: sectors", total, 18_874_368, source)
    yield fact("vectorized: excessive sectors", excess, 1_048_576, source)


def grids() -> tuple[dict[str, Any], ...]:
    """The sectors that seven accesses touch."""
    rows, cells = [], []
    for name, addresses, width in (
        ("1", strided(1), 4),
        ("1+4B", strided(1, start=4), 4),
        ("2", strided(2), 4),
        ("4", strided(4), 4),
        ("8", strided(8), 4),
        ("quad", strided(1, 16), 16),
        ("0", [0] * LANES, 4),
    ):
        met = sectors.touched(addresses, width)
        asked: dict[int, set[int]] = {}
        for address in addresses:
            asked.setdefault(address // sectors.SECTOR, set()).add(address)
        rows.append(name)
        cells.append(
            [
                (str(met[at]), 0 if len(asked[at]) * width == sectors.SECTOR else 1)
                if at in met
                else ("", -1)
                for at in range(32)
            ]
        )
    return (
        {
            "name": "strides",
            "caption": "Sectors of 32 bytes that a warp's load touches, and how many "
            "lanes meet in each. 1+4B begins 4 bytes late; a quad is a float4.",
            "legend": [(0, "all 32 bytes are used"), (1, "a part is used")],
            "across": "sector",
            "down": "stride",
            "columns": [str(at) for at in range(32)],
            "rows": rows,
            "cells": cells,
        },
    )
