"""Five ways to search a recorded space, by how many configurations they must look at.

Error   none: the space is on record, a search over it looks values up
Raises  FileNotFoundError if autotune has no record that holds its space
Source  benchmarking-auto-tuning, kernel-tuner, optuna
"""

from __future__ import annotations

import json
import lzma
import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

RESULTS = Path(__file__).resolve().parents[1] / "autotune" / "results"
NEAR = 0.98  # of the optimum: what a search is to reach
CALLS = 20_000  # after so many a search has given up, if it asks for nothing new
Point = tuple[int, ...]  # of each parameter, the place of its value in the list


# --8<-- [start:space]
class Space(NamedTuple):
    """All configurations worth running, and what each costs: less is better."""

    name: str
    sizes: tuple[int, ...]  # of each parameter, how many values it takes
    costs: dict[Point, float]

    @property
    def best(self) -> float:
        """The least cost."""
        return min(self.costs.values())

    @property
    def good(self) -> int:
        """How many configurations reach NEAR of the optimum."""
        return sum(self.best >= NEAR * cost for cost in self.costs.values())


def spaces() -> list[Space]:
    """Those of autotune's records: measured, or else compiled for each GPU."""
    found: dict[bool, list[Space]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "space" in record.get("packed", ()):  # it lies beside the record of a CPU
            with lzma.open(path.with_suffix(".xz")) as file:
                record |= json.load(file)["record"]
        if "space" in record:
            measured = record["machine"]["gpus"] > 0
            found.setdefault(measured, []).extend(_read(record, measured))
    if not found:
        what = f"search_methods: {RESULTS} has no space; run autotune first"
        raise FileNotFoundError(what)
    return found.get(True) or found[False]


def _read(record: dict, measured: bool) -> Iterator[Space]:
    space, names = record["space"], record["space"]["figures"]
    values = [[str(one) for one in each["values"]] for each in space["parameters"]]
    rows = space["rows"].items()
    for target, lines in sorted(rows, key=lambda one: int(one[0].removeprefix("sm_"))):
        costs = {}
        for line in lines:
            chosen, _, written = line.partition(": ")
            figures = dict(zip(names, map(float, written.split()), strict=True))
            if figures.get("spilled_bytes"):
                continue  # the compiler has said so, before anything is run
            pairs = zip(values, chosen.split(), strict=True)
            point = tuple(known.index(value) for known, value in pairs)
            costs[point] = figures["median" if measured else "cycles"]
        name = record["machine"]["device"] if measured else f"compiled for {target}"
        yield Space(name, tuple(map(len, values)), costs)
# --8<-- [end:space]


# --8<-- [start:program]
class Enough(Exception):
    """The search may stop: it has what it was after, or has spent what it may."""


class Trials:
    """What a search asks, counted as a tuner does: each configuration is paid once.

    `most`: evaluations that it may spend. `share` of the optimum at which it is done.
    """

    def __init__(self, space: Space, most: int, share: float = 1.0) -> None:
        self.space, self.most, self.share = space, most, share
        self.reached: list[float] = []  # the share of the optimum, by evaluations
        self.seen = set[Point]()
        self._best, self._calls = space.best, 0

    def __call__(self, point: Point) -> float | None:
        """The cost of a configuration; None of a forbidden one, which is free."""
        self._calls += 1
        cost = self.space.costs.get(point)
        if cost is not None and point not in self.seen:
            self.seen.add(point)
            before = self.reached[-1] if self.reached else 0.0
            self.reached.append(max(before, self._best / cost))
            if self.reached[-1] >= self.share or len(self.reached) >= self.most:
                raise Enough
        if self._calls >= CALLS:
            raise Enough
        return cost

    def needed(self, share: float = NEAR) -> float:
        """Evaluations to the first that reached `share` of the optimum, or inf."""
        hits = (n for n, one in enumerate(self.reached, 1) if one >= share)
        return next(hits, math.inf)
# --8<-- [end:program]


Search = Callable[[Trials, int], None]  # until Enough is raised; the seed


# --8<-- [start:methods]
def exhaustive(trials: Trials, seed: int) -> None:
    """One after the other, in the order in which they are written down."""
    for point in trials.space.costs:
        trials(point)


def at_random(trials: Trials, seed: int) -> None:
    """In random order, none of them twice."""
    points = list(trials.space.costs)
    random.Random(seed).shuffle(points)
    for point in points:
        trials(point)


def basin_hopping(trials: Trials, seed: int) -> None:
    """Down to where no neighbour is better, then a leap: SciPy's, on our neighbours.

    A neighbour has the next larger or smaller value of one parameter.
    """
    from scipy.optimize import OptimizeResult, basinhopping

    space, chance = trials.space, np.random.default_rng(seed)
    starts, worst = list(space.costs), 10 * space.best

    def cost(point: Point) -> float:
        found = trials(point)
        return worst if found is None else found

    def descend(_: object, start: np.ndarray, **options: object) -> OptimizeResult:
        point = tuple(map(int, start))
        least, better = cost(point), True
        while better:
            better = False
            for turn in chance.permutation(2 * len(point)):
                axis, up = divmod(int(turn), 2)
                place = point[axis] + (1 if up else -1)
                if not 0 <= place < space.sizes[axis]:
                    continue
                near = (*point[:axis], place, *point[axis + 1 :])
                if (other := cost(near)) < least:
                    point, least, better = near, other, True
                    break
        return OptimizeResult(x=np.array(point), fun=least, success=True)

    def leap(point: np.ndarray) -> np.ndarray:
        there = np.array(point)
        for axis in chance.choice(len(there), 2, replace=False):
            there[axis] = chance.integers(space.sizes[axis])
        return there

    while True:
        start = np.array(starts[chance.integers(len(starts))])
        basinhopping(
            lambda x: cost(tuple(map(int, x))),
            start,
            niter=50,
            T=0.05 * space.best,  # a twentieth worse is still taken one time in three
            take_step=leap,
            rng=chance,
            minimizer_kwargs={"method": descend},
        )


def evolutionary(trials: Trials, seed: int) -> None:
    """Differential evolution, SciPy's: the difference of two moves a third."""
    from scipy.optimize import differential_evolution

    worst, chance = 10 * trials.space.best, np.random.default_rng(seed)

    def cost(place: np.ndarray) -> float:
        found = trials(tuple(int(one) for one in np.round(place)))
        return worst if found is None else found

    while True:  # a population that agrees learns nothing any more
        differential_evolution(
            cost,
            [(0, size - 1) for size in trials.space.sizes],
            integrality=[True] * len(trials.space.sizes),
            popsize=4,  # of each parameter
            init="random",
            polish=False,
            rng=chance,
        )


def bayesian(trials: Trials, seed: int) -> None:
    """Optuna's TPE: ten at random, then where good ones are denser than others.

    It asks again for what it knows to be good; then another, at random, has its turn.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(sampler=sampler)
    others, worst = list(trials.space.costs), 10 * trials.space.best
    random.Random(seed).shuffle(others)
    axes = {str(a): (0, size - 1) for a, size in enumerate(trials.space.sizes)}
    while True:
        trial = study.ask()
        point = tuple(trial.suggest_int(name, *ends) for name, ends in axes.items())
        known = point in trials.seen
        found = trials(point)
        study.tell(trial, worst if found is None else found)
        if known:
            point = next(one for one in others if one not in trials.seen)
            study.enqueue_trial(dict(zip(axes, point, strict=True)))
# --8<-- [end:methods]


METHODS: dict[str, Search] = {
    "exhaustive": exhaustive,
    "random": at_random,
    "basin hopping": basin_hopping,
    "evolutionary": evolutionary,
    "Bayesian": bayesian,
}


# --8<-- [start:search]
def search(
    space: Space, method: str, seed: int, most: int | None = None, share: float = NEAR
) -> Trials:
    """What one search found: until `share` of the optimum, or `most` evaluations."""
    trials = Trials(space, most or len(space.costs), share)
    with suppress(Enough):
        METHODS[method](trials, seed)
    return trials
# --8<-- [end:search]


def expected_at_random(space: Space) -> float:
    """Evaluations to the first good one: of N in random order, k of them good."""
    return (len(space.costs) + 1) / (space.good + 1)


def demo(device: str) -> None:
    """Evaluations to 98 % of the optimum, over 20 seeds, of what takes no model."""
    print(f"{'evaluations':28} {'median':>7} {'worst':>6}  within 15 %")
    for space in spaces():
        size = len(space.costs)
        print(f"{space.name}: {size} configurations, {space.good} of them good")
        for method in ("exhaustive", "random", "basin hopping", "evolutionary"):
            needed = [search(space, method, seed).needed() for seed in range(20)]
            within = sum(one <= 0.15 * size for one in needed)
            middle = statistics.median(needed)
            print(f"  {method:26} {middle:7.1f} {max(needed):6.0f}  {within:2} of 20")


if __name__ == "__main__":
    demo("cpu")
