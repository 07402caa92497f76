"""What search_methods must show: random search as theory has it, and who beats it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from functools import cache
from typing import Any

from snippets.facts import fact
from snippets.search_methods import search_methods as methods
from snippets.search_methods.search_methods import METHODS, NEAR, Space, Trials

NEEDS = {"modules": ["optuna", "scipy"], "records": ["autotune"], "seconds": 600}
SEEDS = range(16)
MANY = range(4000)  # of random search, which costs nothing
BUDGETS = (4, 8, 16, 32, 64)  # evaluations
WITHIN = 0.15  # of all configurations: what a search may look at
COLOURS = ((0.80, -1), (0.90, 5), (0.95, 1), (NEAR, 0), (math.inf, 2))


def budget(space: Space) -> int:
    """Evaluations that are WITHIN of the space."""
    return math.floor(WITHIN * len(space.costs))


@cache
def searched(place: int, method: str, seed: int) -> tuple[float, tuple[float, ...]]:
    """Evaluations to NEAR of the optimum, and the share reached after each."""
    space = methods.spaces()[place]
    trials: Trials = methods.search(space, method, seed, max(BUDGETS), share=1.0)
    needed = trials.needed()
    if math.isinf(needed) and len(trials.reached) == max(BUDGETS):
        needed = methods.search(space, method, seed).needed()
    return needed, tuple(trials.reached)


def facts() -> list[dict[str, Any]]:
    """Random search by its formulas, and the goal of the others."""
    return [row for place, _ in enumerate(methods.spaces()) for row in of_space(place)]


def of_space(place: int) -> Iterator[dict[str, Any]]:
    """The facts of one space."""
    space = methods.spaces()[place]
    n, k, most = len(space.costs), space.good, budget(space)
    needed = [methods.search(space, "random", seed).needed() for seed in MANY]
    yield fact(
        f"{space.name}: random, mean evaluations to 98 %",
        statistics.fmean(needed),
        methods.expected_at_random(space),
        "(N + 1) / (k + 1)",
        0.05,
    )
    missed = math.comb(n - k, most) / math.comb(n, most)
    yield fact(
        f"{space.name}: random, share of searches within 15 %",
        statistics.fmean(one <= most for one in needed),
        1 - missed,
        "1 - C(N - k, t) / C(N, t)",
        0.05,
    )
    for method in ("basin hopping", "evolutionary", "Bayesian"):
        hits = [searched(place, method, seed)[0] <= most for seed in SEEDS]
        yield fact(
            f"{space.name}: {method}, share of searches within 15 %",
            statistics.fmean(hits),
            1,
            "the goal, 98 % of the optimum within 15 % of the space",
            0.25,
        )


def grids() -> list[dict[str, Any]]:
    """What is reached by how many evaluations, and how many 98 % take."""
    spaces = methods.spaces()
    names, reached, needed = [], [], []
    for place, space in enumerate(spaces):
        for method in METHODS:
            names.append(f"{method}, {space.name.removeprefix('compiled for ')}")
            runs = [searched(place, method, seed) for seed in SEEDS]
            shares = [statistics.median(_after(r, b) for _, r in runs) for b in BUDGETS]
            reached.append([_share(one) for one in shares])
            counts = [count for count, _ in runs]
            within = sum(count <= budget(space) for count in counts)
            needed.append(
                [
                    _count(statistics.median(counts), space),
                    _count(max(counts), space),
                    [f"{within}/{len(SEEDS)}", 2 if within == len(SEEDS) else -1],
                ]
            )
    compiled = any(space.name.startswith("compiled for") for space in spaces)
    what = "compiled figures, no times" if compiled else "measured times"
    what = f"{len(SEEDS)} searches; {what}"
    common = {"down": "search", "rows": names}
    return [
        {
            "name": "reached",
            "caption": f"Percent of the optimum, median of {what}",
            "across": "evaluations",
            "columns": [str(one) for one in BUDGETS],
            "cells": reached,
            "legend": [[5, "80 % and more"], [1, "90"], [0, "95"], [2, "98 and more"]],
            **common,
        },
        {
            "name": "needed",
            "caption": f"Evaluations to 98 % of the optimum, {what}",
            "across": "of the searches",
            "columns": ["median", "worst", "≤ 15 %"],
            "cells": needed,
            "legend": [[2, "within 15 % of the space"]],
            **common,
        },
    ]


def _after(reached: tuple[float, ...], evaluations: int) -> float:
    return reached[min(evaluations, len(reached)) - 1]


def _share(share: float) -> list[Any]:
    colour = next(number for below, number in COLOURS if share < below)
    return [f"{100 * share:.1f}", colour]


def _count(evaluations: float, space: Space) -> list[Any]:
    text = f"{evaluations:g}" if math.isfinite(evaluations) else "never"
    return [text, 2 if evaluations <= budget(space) else -1]
