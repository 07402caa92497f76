"""What float_sums must show: depths against formulas, and where sums stop to grow."""

from __future__ import annotations

from math import log2
from typing import Any

from snippets.facts import fact
from snippets.float_sums import float_sums as sums

HIGHAM = "summation-accuracy"


def facts() -> list[dict[str, Any]]:
    """Exact figures: depths of n ones, and the largest sum of ones."""
    n, bits = 1024, 24
    ones = [1.0] * n
    rows = [
        ("one after the other: depth", sums.sequential(ones, bits)[1], n - 1),
        ("pairwise: depth", sums.pairwise(ones, bits)[1], log2(n)),
        ("32 lanes: depth", sums.lanes(ones, bits)[1], n / 32 - 1 + log2(32)),
        ("ones in fp16 stop at", sums.stops_at(11), 2**11),
        ("ones in bf16 stop at", sums.stops_at(8), 2**8),
        ("2 ** 24 + 1 in fp32", sums.rounded(2.0**24 + 1, 24), 2**24),
        # 1 and 2 ** 24 times half an ulp of it: only who keeps what is lost sees them.
        ("1 + 1024 * 2 ** -25, compensated", compensated(), 1 + 2.0**-15),
        ("1 + 1024 * 2 ** -25, one after the other", lost(), 1),
    ]
    return [fact(*row, HIGHAM) for row in rows]


def compensated() -> float:
    """A large number and many that vanish beside it, compensated."""
    return sums.compensated([1.0, *[2.0**-25] * 1024], 24)


def lost() -> float:
    """The same, one after the other."""
    return sums.sequential([1.0, *[2.0**-25] * 1024], 24)[0]
