"""The fit of constants: least squares of the logarithms of ratios to what was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log

Residuals = Callable[[Sequence[float]], list[float]]
START = 0.7  # where every share starts
TURNS = 12


def fitted(residuals: Residuals, count: int) -> list[float]:
    """The `count` positive constants of least squared residuals, by Gauss and Newton.

    They move by their logarithms. A constant that no residual depends on keeps its
    start: a small term holds it.
    """
    values = [START] * count
    for _ in range(TURNS):
        now = residuals(values)
        slopes = []
        for i in range(count):
            moved = [v * (1.001 if i == j else 1) for j, v in enumerate(values)]
            pairs = zip(residuals(moved), now, strict=True)
            slopes.append([(b - a) / log(1.001) for b, a in pairs])
        square = [[_dot(a, b) for b in slopes] for a in slopes]
        for i in range(count):
            square[i][i] += 1e-6
        moves = _solved(square, [-_dot(a, now) for a in slopes])
        moves = [min(max(move, -0.3), 0.3) for move in moves]
        values = [v * exp(move) for v, move in zip(values, moves, strict=True)]
    return values


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _solved(square: list[list[float]], right: list[float]) -> list[float]:
    """x of square x = right, by elimination with the largest pivot."""
    rows = [[*row, one] for row, one in zip(square, right, strict=True)]
    for i in range(len(rows)):
        best = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for k, row in enumerate(rows):
            if k != i:
                share = row[i] / rows[i][i]
                rows[k] = [x - share * y for x, y in zip(row, rows[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]
