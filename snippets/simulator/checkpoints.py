"""How often to save where anything may fail: two rules, and what they cost."""

from __future__ import annotations

import math

# Minutes for one GPU: 16,384 of them, 54 days, 419 interruptions that nobody planned.
LLAMA3_RANK = 54 * 24 * 60 * 16_384 / 419


# --8<-- [start:checkpoints]
def goodput(interval: float, save: float, restart: float, mean: float) -> float:
    """The share of time that moves a job on, if failures are independent of its past.

    A job works for `interval`, then saves for `save`; failures come every `mean` on
    average. What was done since the last save is lost, and a restart takes `restart`,
    in which it may fail again. Daly's complete cost function, exact for a long job.
    """
    _check(interval=interval, mean=mean)
    if not (save >= 0 and restart >= 0):
        raise ValueError(
            f"simulator: save = {save}, restart = {restart}; give 0 or more of both"
        )
    spent = mean * math.exp(restart / mean) * math.expm1((interval + save) / mean)
    return interval / spent


def young(save: float, mean: float) -> float:
    """The interval at which saving costs what failures lose, for rare failures."""
    _check(save=save, mean=mean)
    return math.sqrt(2 * save * mean)


def daly(save: float, mean: float) -> float:
    """The same to a higher order; it holds while a save is short of half of `mean`."""
    share = math.sqrt(save / (2 * mean))
    if save >= 2 * mean:
        return mean
    return young(save, mean) * (1 + share / 3 + share * share / 9) - save


def best(save: float, restart: float, mean: float) -> float:
    """The interval of the highest goodput, by search: between none and `mean`, twice.

    The goodput rises to one maximum and falls from there.
    """
    _check(save=save, mean=mean)
    low, high = 0.0, 2 * mean
    for _ in range(200):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        if goodput(left, save, restart, mean) < goodput(right, save, restart, mean):
            low = left
        else:
            high = right
    return (low + high) / 2


def _check(**times: float) -> None:
    for name, time in times.items():
        if not 0 < time < math.inf:
            raise ValueError(f"simulator: {name} = {time}; give a time above 0")


# --8<-- [end:checkpoints]
