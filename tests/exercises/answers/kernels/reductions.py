"""Reductions and scans."""

from math import log2

from snippets.float_sums import float_sums as sums
from snippets.scan_steps import scan_steps as scans

MEMORY = 3.35e12  # bytes a second
SMS, CLOCK = 132, 1.755e9


def words_of_a_scan() -> tuple[str, ...]:
    x = list(range(64))  # any: words for one number are what counts
    schemes = (scans.scan_then_propagate, scans.reduce_then_scan, scans.look_back)
    words = [scheme(x, 8)[1].words / len(x) for scheme in schemes]
    return tuple(f"{1e3 * one * 4 * 2**30 / MEMORY:.2f} ms" for one in words)


def warps_and_work() -> tuple[str, ...]:
    counts = [scheme(range(32))[1] for scheme in (scans.hillis_steele, scans.blelloch)]
    return tuple(f"{one.additions} additions in {one.steps} steps" for one in counts)


def short_rows() -> tuple[str, ...]:
    rows = SMS * CLOCK / log2(32)
    return tuple(f"{MEMORY / (size * rows):.0f} numbers" for size in (4, 2))


def depth() -> tuple[str, ...]:
    n, lanes, u = 2**20, 1024, 2.0**-24
    depths = (n - 1, n / lanes - 1 + log2(lanes), log2(n))
    return tuple(f"{one * u:.1e}" for one in depths)


def a_stuck_accumulator() -> tuple[str, ...]:
    ones, bits = [1.0] * 4096, sums.BITS["bf16"]
    return f"{sums.sequential(ones, bits)[0]:.0f}", f"{sums.lanes(ones, bits)[0]:.0f}"
