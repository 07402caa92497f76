"""Floating sums: what their order costs in digits, each addition rounded as on a GPU.

FLOPs   n - 1 additions of n numbers in any order; compensated 4 (n - 1)
Error   of a sum at most u * depth * sum |x|, to first order: u is 2 ** -bits, and depth
        the most additions that one element goes through. One after the other: n - 1; in
        lanes: n / lanes - 1 + log2 lanes; pairwise: log2 n; compensated: about 2 u, for
        any n
Raises  ValueError for no numbers, and for lanes that are no power of two
Source  summation-accuracy
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, fsum, ldexp
from random import Random

BITS = {"fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8}  # of the significand


# --8<-- [start:sums]
def rounded(x: float, bits: int) -> float:
    """The nearest number with `bits` bits, ties to even; exponents have no end."""
    mantissa, exponent = frexp(x)
    return ldexp(round(ldexp(mantissa, bits)), exponent - bits)


# --8<-- [start:orders]
def sequential(x: Sequence[float], bits: int) -> tuple[float, int]:
    """One accumulator: the sum, and its depth."""
    total = _some(x)[0]
    for value in x[1:]:
        total = rounded(total + value, bits)
    return total, len(x) - 1


def pairwise(x: Sequence[float], bits: int) -> tuple[float, int]:
    """A tree: neighbours are added until one is left."""
    level, depth = list(_some(x)), 0
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        odd = level[-1:] if len(level) % 2 else []
        level = [rounded(a + b, bits) for a, b in pairs] + odd
        depth += 1
    return level[0], depth


def lanes(x: Sequence[float], bits: int, n: int = 32) -> tuple[float, int]:
    """A GPU's sum: every lane adds its share one after the other, then a tree."""
    if n < 1 or n & (n - 1):
        raise ValueError(f"float_sums: {n} lanes; give a power of two")
    shares = [sequential(x[i::n], bits) for i in range(min(n, len(_some(x))))]
    total, depth = pairwise([one for one, _ in shares], bits)
    return total, depth + shares[0][1]


# --8<-- [end:orders]


# --8<-- [start:compensated]
def compensated(x: Sequence[float], bits: int) -> float:
    """Kahan's sum: what an addition lost is given to the next."""
    total, lost = _some(x)[0], 0.0
    for value in x[1:]:
        corrected = rounded(value - lost, bits)
        new = rounded(total + corrected, bits)
        lost = rounded(rounded(new - total, bits) - corrected, bits)
        total = new
    return total


# --8<-- [end:compensated]


# --8<-- [end:sums]


def stops_at(bits: int) -> int:
    """Where a sum of ones stops to grow."""
    total = 0.0
    while (new := rounded(total + 1.0, bits)) != total:
        total = new
    return int(total)


def _some(x: Sequence[float]) -> Sequence[float]:
    if not x:
        raise ValueError("float_sums: no numbers; give at least one")
    return x


def demo() -> None:
    """Errors of one sum in each order, in units of u, for two accumulators."""
    draw = Random(0)
    n = 1 << 14
    for name in ("fp32", "bf16"):
        bits = BITS[name]
        x = [rounded(draw.random(), bits) for _ in range(n)]
        truth = fsum(x)
        print(f"{n:,} numbers from 0 to 1, {name} accumulator; error / (u * sum)")
        for label, total, depth in (
            ("one after the other", *sequential(x, bits)),
            ("32 lanes, then a tree", *lanes(x, bits)),
            ("pairwise", *pairwise(x, bits)),
            ("compensated", compensated(x, bits), 2),
        ):
            error = abs(total - truth) / truth * 2**bits
            print(f"  {label:24}{error:10.2f}   at most about {depth:,}")
    for name in ("fp16", "bf16"):
        print(f"a sum of ones in {name} stops at {stops_at(BITS[name]):,}")


if __name__ == "__main__":
    demo()
