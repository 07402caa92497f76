"""Tests that can fail."""

from math import ceil, isqrt, log, log2

UNIT = 2**-24  # unit roundoff of fp32


def a_tolerance_that_hides() -> tuple[str, str, str]:
    n = 4096
    cells = (n * UNIT, log2(n) * UNIT, 1 / n)
    return tuple(f"{cell:.1e}" for cell in cells)


def runs_until_a_race_shows() -> str:
    return f"{ceil(log(0.05) / log(1 - 1 / 20_000)):,} runs"


def integers_that_stay_exact() -> tuple[str, str]:
    terms = 1024
    return f"{isqrt(2**24 // terms)}", f"{isqrt(2**11 // terms)}"


def where_an_index_overflows() -> str:
    side = isqrt(2**31)
    while side * side - 1 < 2**31:  # the last element's index must pass 2**31 - 1
        side += 1
    return f"{side:,}"
