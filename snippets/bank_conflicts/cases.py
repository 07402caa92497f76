"""What bank_conflicts must show: closed forms, and counts from published profiles."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

from snippets.bank_conflicts import bank_conflicts as banks
from snippets.bank_conflicts.bank_conflicts import LANES, WORD, Addresses
from snippets.facts import fact

STRIDES = range(1, 65)  # in elements
GUIDE = "cuda-best-practices"
SWIZZLING = "leimao-shared-memory-swizzling"
GEMM = "cuda-gemm-t4, README of {}, Source Counters"
COUNTERS = "cuda-gemm-t4, README of {}, Memory Workload Analysis Tables"
TRANSPOSE = "transpose-profiles, exercises/hw8/{}"


def facts() -> list[dict[str, Any]]:
    """Strides, tiles and swizzle modes by formula; four kernels by their profiles."""
    return [*strides(), *tiles(), *modes(), *gemm(), *transpose()]


def strides() -> Iterable[dict[str, Any]]:
    """Of a stride s in elements of w bytes: w / 4 pieces of gcd(s, 128 / w) each."""
    for width in (4, 8, 16):
        counted = formula = 0
        for s in STRIDES:
            counted += banks.wavefronts([s * width * i for i in range(LANES)], width)
            formula += width // WORD * gcd(s, LANES * WORD // width)
        source = f"sum of w / 4 * gcd(s, 128 / w), {GUIDE}"
        what = f"wavefronts of strides 1 to {STRIDES[-1]}, {width} bytes a lane"
        yield fact(what, counted, formula, source)


def tiles() -> Iterable[dict[str, Any]]:
    """The worst row and the worst column of each 32 x 32 tile of fp32."""
    for tile, worst, source in (
        (banks.naive, 32, "efficient-matrix-transpose"),
        (banks.padded, 1, "efficient-matrix-transpose"),
        (banks.swizzled, 1, SWIZZLING),
    ):
        name = tile.__name__
        row = max(banks.wavefronts(banks.row_of(tile, i)) for i in range(32))
        column = max(banks.wavefronts(banks.column_of(tile, i)) for i in range(32))
        yield fact(f"{name} tile: wavefronts of a row", row, 1, source)
        yield fact(f"{name} tile: wavefronts of a column", column, worst, source)


def modes() -> Iterable[dict[str, Any]]:
    """ldmatrix on rows as wide as a swizzle mode, without it and with it."""
    for size, bits in ((32, 1), (64, 2), (128, 3)):
        for used, expected in ((0, size // 16), (bits, 1)):
            worst = max(
                banks.ldmatrix([banks.chunk(r, part, size, used) for r in range(8)])
                for part in range(size // 16)
            )
            how = f"{size}-byte swizzle" if used else "no swizzle"
            what = f"ldmatrix, rows of {size} bytes, {how}: wavefronts"
            yield fact(what, worst, expected, "veitner-cute-swizzling")


def lanes(row: Any, width: int = WORD) -> Addresses:
    """Addresses of a warp of 16 x 16 threads: `row(y, x)` is a thread's word."""
    return [WORD * row(lane // 16, lane % 16) for lane in range(LANES)]


def gemm() -> Iterable[dict[str, Any]]:
    """Two kernels whose profile is published: a 2048-cubed product on a T4."""
    n, warp_rows = 2048, 8  # warps of a block
    folder = "02_register_tiling"
    tile, depth = 64, 64
    blocks, slabs = (n // tile) ** 2, n // depth
    warps = blocks * warp_rows
    # each thread stores 16 words of either operand, a word at a time; a warp is 2 rows
    store = lanes(lambda y, x: tile * y + x)
    stores = warps * slabs * 2 * 16
    # for 4 steps of k: 4 quads of A, alike for each half of a warp; 4 quads of B
    load_a = lanes(lambda y, x: 4 * y * depth)
    load_b = lanes(lambda y, x: 4 * x)
    a, b = banks.wavefronts(load_a, 16), banks.wavefronts(load_b, 16)
    total = stores * banks.wavefronts(store) + warps * n * (a + b)
    excess = stores * banks.conflicts(store)
    excess += warps * n * (banks.conflicts(load_a, 16) + banks.conflicts(load_b, 16))
    source = GEMM.format(folder)
    yield fact("register tiling: shared wavefronts", total, 117_440_512, source)
    yield fact("register tiling: excessive wavefronts", excess, 8_388_608, source)
    source = COUNTERS.format(folder)
    yield fact(
        "register tiling: store wavefronts counted less conflicts counted",
        stores * len(banks.pieces(store)), 17_577_749 - 9_189_141, source,
    )  # fmt: skip

    folder = "03_vectorized_dram"
    tile, depth = 128, 32
    warps, slabs = (n // tile) ** 2 * warp_rows, n // depth
    # quads side by side on the way in: 4 a thread for either operand
    store = [16 * lane for lane in range(LANES)]
    stores = warps * slabs * 2 * 4
    # for each k: 8 quads of A for 4 steps, 8 rows apart in the halves; 2 quads of B,
    # 8 words apart
    load_a = lanes(lambda y, x: 8 * y * depth)
    load_b = lanes(lambda y, x: 8 * x)
    loads = warps * n * 2  # of either operand
    a, b = banks.wavefronts(load_a, 16), banks.wavefronts(load_b, 16)
    total = stores * banks.wavefronts(store, 16) + loads * (a + b)
    excess = loads * (banks.conflicts(load_a, 16) + banks.conflicts(load_b, 16))
    source = GEMM.format(folder)
    yield fact("vectorized: shared wavefronts", total, 88_080_384, source)
    yield fact("vectorized: excessive wavefronts", excess, 33_554_432, source)
    source = COUNTERS.format(folder)
    yield fact("vectorized: shared load requests", 2 * loads, 16_777_216, source)
    yield fact(
        "vectorized: load wavefronts that the hardware counted",
        loads * (a + b), 83_915_648, source, 0.0005,
    )  # fmt: skip
    least = loads * (len(banks.pieces(load_a, 16)) + len(banks.pieces(load_b, 16)))
    yield fact(
        "vectorized: load wavefronts counted less conflicts counted",
        least, 83_915_648 - 33_584_000, source,
    )  # fmt: skip


def transpose() -> Iterable[dict[str, Any]]:
    """A transpose of 4096 x 4096 doubles by tiles of 32 x 32, profiled three times."""
    warps = 4096 * 4096 // LANES
    side = {"task2": 32, "task3": 33}  # doubles in a row of the tile
    column = {k: [8 * s * lane for lane in range(LANES)] for k, s in side.items()}
    row = [8 * lane for lane in range(LANES)]
    free = warps * banks.wavefronts(row, 8)
    clash = warps * banks.wavefronts(column["task2"], 8)
    source = TRANSPOSE.format("task2/task2.profile")
    yield fact("transpose: load wavefronts", free, 1_048_664, source, 0.0001)
    yield fact("transpose: store wavefronts", clash, 17_061_038, source, 0.02)
    yield fact(
        "transpose: bytes used of a wavefront's, of loads and stores",
        2 * free / (free + clash), 0.1176, source, 0.0005,
    )  # fmt: skip
    source = TRANSPOSE.format("task2/task2b.profile")
    yield fact(
        "transpose, roles exchanged: load wavefronts", clash, 16_878_697, source, 0.01
    )
    source = TRANSPOSE.format("task3/task3.profile")
    mended = warps * banks.wavefronts(column["task3"], 8)
    yield fact("padded transpose: load wavefronts", mended, 1_048_576, source)


def grids() -> tuple[dict[str, Any], ...]:
    """Which lane meets which bank, and where the swizzle modes put each chunk."""
    return (
        meeting(),
        quarters(),
        layout(banks.naive, "In the naive tile a column lies in one bank"),
        layout(banks.padded, "A padded row starts a bank further than the one before"),
        layout(banks.swizzled, "Swizzled: row r keeps column c at place c XOR r"),
        *(mode(size, bits) for size, bits in ((32, 1), (64, 2), (128, 3))),
    )


def meeting() -> dict[str, Any]:
    """How many lanes of a warp each bank serves, by tile and direction."""
    rows, cells = [], []
    for name, addresses in (
        ("row", banks.row_of(banks.naive, 0)),
        ("col", banks.column_of(banks.naive, 0)),
        ("pad", banks.column_of(banks.padded, 0)),
        ("xor", banks.column_of(banks.swizzled, 0)),
    ):
        met = [[banks.bank(a) for a in addresses].count(bank) for bank in range(32)]
        rows.append(name)
        cells.append([(str(n), 1 if n > 1 else 0) if n else ("", -1) for n in met])
    return {
        "name": "meeting",
        "caption": "Lanes of a warp that meet in each bank of a 32 x 32 tile of fp32: "
        "along a row, down a column, and down one of the padded and swizzled tiles.",
        "across": "bank",
        "down": "access",
        "columns": [str(bank) for bank in range(32)],
        "rows": rows,
        "cells": cells,
        "legend": [(0, "one lane"), (1, "lanes in turn: as many wavefronts as lanes")],
    }


def quarters() -> dict[str, Any]:
    """Which lane each bank serves in each wavefront of a load of 16 bytes a lane."""
    cells = []
    for piece in banks.pieces([16 * lane for lane in range(LANES)], 16):
        lanes = [a // 16 for a in piece if a is not None]
        served = {banks.bank(16 * lane + 4 * w): lane for lane in lanes
                  for w in range(4)}  # fmt: skip
        cells.append([(str(served[bank]), served[bank] % 2) for bank in range(32)])
    return {
        "name": "quarters",
        "caption": "A float4 a lane, side by side: the lane that each bank serves. A "
        "quarter-warp takes four banks a lane, so one wavefront serves eight lanes.",
        "across": "bank",
        "down": "wavefront",
        "columns": [str(bank) for bank in range(32)],
        "rows": [str(1 + i) for i in range(len(cells))],
        "cells": cells,
    }


def layout(tile: banks.Tile, said: str, rows: int = 8) -> dict[str, Any]:
    """The columns that the banks hold, row by row; column 5 is marked."""
    cells: list[list[tuple[str, int]]] = []
    for row in range(rows):
        held = [("", -1)] * 32
        for column in range(32):
            cell = (str(column), 1 if column == 5 else -1)
            held[banks.bank(tile(row, column))] = cell
        cells.append(held)
    return {
        "name": tile.__name__,
        "caption": f"{said}. A number is the column that is kept there.",
        "across": "bank",
        "down": "row of the tile",
        "columns": [str(bank) for bank in range(32)],
        "rows": [str(row) for row in range(rows)],
        "cells": cells,
        "legend": [(1, "column 5, which a warp reads: lane 0 in row 0, and so on")],
    }


def mode(size: int, bits: int) -> dict[str, Any]:
    """Where eight rows of `size` bytes lie under a swizzle mode, in 16-byte chunks."""
    lines = 8 * size // 128
    cells = [[("", -1)] * 8 for _ in range(lines)]
    for row in range(8):
        for part in range(size // 16):
            at = banks.chunk(row, part, size, bits)
            cells[at // 128][at % 128 // 16] = (f"{row}.{part}", part)
    return {
        "name": f"swizzle-{size}",
        "caption": f"The {size}-byte mode on eight rows of {size} bytes: 3.1 is chunk "
        "1 of row 3; the chunks of a column have one colour, and meet all banks.",
        "across": "banks",
        "down": "line of 128 bytes",
        "columns": [f"{4 * i}-{4 * i + 3}" for i in range(8)],
        "rows": [str(line) for line in range(lines)],
        "cells": cells,
    }
