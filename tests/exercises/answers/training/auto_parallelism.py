"""What a planner weighs."""

from math import ceil

from snippets.parallel_planner.costs import Layout
from snippets.parallel_planner.parallel_planner import Stage, step_time


def points_of_the_first_space() -> tuple[str]:
    powers = [2**i for i in range(10)]
    layers = heads = 96
    found = [
        (512 // t // p, t, p)
        for t in powers
        for p in powers
        if t <= 8 and heads % t == 0 and p <= layers and t * p <= 512
    ]
    return (f"{len(found)} triples",)


def what_uneven_costs() -> tuple[str, str]:
    def step(times: list[float]) -> float:
        return step_time([Stage(0, 1, Layout(), 0, t, 0, 0) for t in times], 16)

    return f"{step([10, 10, 10, 12]):.0f} ms", f"{step([10.5] * 4):.1f} ms"


def recompute_or_split() -> tuple[str, str]:
    wanted, freed = 8 * 10 * 1.0 - 60, 8 * 0.9
    layers = ceil(wanted / freed)
    return f"{layers} layers", f"{100 * layers / 3 / 10:.0f} %"
