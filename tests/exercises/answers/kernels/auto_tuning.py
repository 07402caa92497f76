"""Auto-tuning: counting, and the least of many normal errors."""

from itertools import product
from math import comb, erf, sqrt


def trials_for_the_best_hundredth() -> tuple[str, str]:
    def least(missed: float) -> int:
        return next(t for t in range(1, 10_000) if 0.99**t <= missed)

    return f"{least(0.05)} trials", f"{least(0.01)} trials"


def twenty_of_thirty_six() -> tuple[str, str]:
    threads = [
        width * height
        for width, height in product([2**i for i in range(5, 11)], [2**i for i in range(6)])
    ]

    def kept(least: int, most: int) -> str:
        return f"{sum(least <= count <= most for count in threads)} pairs"

    return kept(64, 1024), kept(128, 512)


def the_luckiest() -> str:
    # E[max of n] is the integral of 1 - F(x)^n above zero, less that of F(x)^n below.
    step, expected = 0.001, 0.0
    for i in range(-8000, 8000):
        x = (i + 0.5) * step
        below = (0.5 * (1 + erf(x / sqrt(2)))) ** 1000
        expected += step * ((1 - below) if x > 0 else -below)
    return f"{expected:.1f} %"


def seven_good_ones() -> tuple[str, str]:
    missed = comb(400 - 7, 60) / comb(400, 60)
    return f"{(400 + 1) / (7 + 1):.1f} evaluations", f"{100 * (1 - missed):.0f} %"
