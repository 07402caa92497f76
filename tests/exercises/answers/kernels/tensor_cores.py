"""Tensor cores."""

from fractions import Fraction
from math import ceil

SIDE, BYTES = 16, 2  # of a tile of WMMA; of an element
SHARED_BYTES = 128  # that a multiprocessor reads or writes a cycle


def fragments_from_global_memory() -> str:
    rows = columns = 2
    asked = (rows + columns) * SIDE * SIDE * BYTES
    share = Fraction(asked, rows * columns * SIDE**3)
    return {Fraction(1, 8): "an eighth of a byte"}[share]


def a_wider_block() -> str:
    def busy(rows: int, columns: int, own: int = 64) -> float:
        warps = rows * columns // own**2
        moved = BYTES * (rows + columns + warps * 2 * own)
        return (rows * columns / 2048) / ceil(moved / SHARED_BYTES)

    assert round(100 * busy(128, 128)) == 67
    return f"{100 * busy(128, 256):.0f} %"


def stages() -> tuple[str, str]:
    slab = (128 + 256) * 64 * BYTES
    fit = 227 * 1024 // slab
    words = {3: "three", 4: "four"}
    return words[fit], words[fit - 1]


def who_frees_a_stage() -> str:
    blocks, warpgroups = 2, 2
    return f"{blocks * warpgroups * 4}"
