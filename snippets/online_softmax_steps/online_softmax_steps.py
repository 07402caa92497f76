"""Online softmax, step by step: a running maximum and a sum that is corrected for it.

FLOPs   exponentials of n elements: 2 n if every element may move the maximum, n + n / b
        in blocks of b, n if the row is kept and its maximum is known before
Error   exact in exact arithmetic; here within 1e-12 of the sum over the whole row
Raises  ValueError for an empty row, and for blocks of no elements
Source  online-softmax
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf


# --8<-- [start:model]
# --8<-- [start:part]
@dataclass(frozen=True)
class Part:
    """The maximum m of some elements, and the sum d of exp(x - m) over them."""

    m: float = -inf
    d: float = 0.0

    def scaled(self, m: float) -> float:
        """The sum with another maximum. Minus infinity twice is no difference."""
        return self.d * exp(self.m - m) if self.d else 0.0

    def __add__(self, other: Part) -> Part:
        """The part of both: associative, commutative, with Part() as zero."""
        m = max(self.m, other.m)
        return Part(m, self.scaled(m) + other.scaled(m))


# --8<-- [end:part]


@dataclass(frozen=True)
class Step:
    """A block: its maximum, what was before, the factor, and what is after."""

    m: float
    before: Part
    factor: float  # by which the sum so far is rescaled
    after: Part


def direct(x: Sequence[float]) -> Part:
    """The maximum first, then the sum: two passes, or a row on chip."""
    if not x:
        raise ValueError("online_softmax_steps: an empty row; give an element or more")
    m = max(x)
    return Part(m, sum(exp(value - m) for value in x) if m > -inf else 0.0)


# --8<-- [start:online]
def online(x: Sequence[float], block: int) -> tuple[list[Step], int]:
    """The steps of one pass in blocks, and how many exponentials they took."""
    if block < 1:
        raise ValueError(f"online_softmax_steps: blocks of {block}; give at least 1")
    now, steps, exponentials = Part(), [], 0
    for start in range(0, len(x), block):
        values = x[start : start + block]
        m = max(values)
        after = max(now.m, m)
        factor = exp(now.m - after) if now.d else 0.0
        # The block's terms are taken with the new maximum at once.
        terms = [exp(v - after) for v in values] if after > -inf else []
        exponentials += len(values) + 1
        step = Step(m, now, factor, Part(after, now.d * factor + sum(terms)))
        steps.append(step)
        now = step.after
    return steps, exponentials


# --8<-- [end:online]
# --8<-- [end:model]

ROW = (1.0, 2.0, 0.0, 1.0, 3.0, 2.0, 2.0, 3.0, 1.0, 0.0, 2.0, 1.0, 4.0, 1.0, 0.0, 2.0)


def demo() -> None:
    """A row of sixteen in blocks of four."""
    steps, exponentials = online(ROW, 4)
    print("block   its max   max so far   rescaled by   sum so far")
    for i, step in enumerate(steps):
        line = f"{i:5}{step.m:10.0f}{step.after.m:13.0f}"
        print(f"{line}{step.factor:14.4f}{step.after.d:13.4f}")
    whole = direct(ROW)
    print(f"whole row: max {whole.m:.0f}, sum {whole.d:.4f}")
    print(f"exponentials: {exponentials} in blocks, {online(ROW, 1)[1]} one by one")


if __name__ == "__main__":
    demo()
