"""Whether two runs of a demo() printed the same, on one machine or two, and where they differ."""

from __future__ import annotations

import math
import re

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
RELATIVE = 1e-3  # by which a number may differ from machine to machine


def agree(first: str, second: str) -> bool:
    """Whether two texts are the same but for numbers that are close.

    Blanks beside a number do not count: a column has one more where 10.001 becomes 9.999.
    """
    old, new = ([part.strip(" \t") for part in NUMBER.split(text)] for text in (first, second))
    if old != new:
        return False
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(a == b or math.isclose(float(a), float(b), rel_tol=RELATIVE) for a, b in pairs)


def difference(first: str, second: str) -> str:
    """The first line in which two texts differ, from both."""
    old, new = first.splitlines(), second.splitlines()
    for index in range(max(len(old), len(new))):
        a = old[index] if index < len(old) else "nothing"
        b = new[index] if index < len(new) else "nothing"
        if a != b:
            return f"line {index + 1} is {b!r:.80} where {a!r:.80} stood"
    return "the line ends differ"
