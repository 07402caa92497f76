"""Timing: interleaved samples, their medians and spread, ties, and the limit no time may beat.

Nothing here needs a GPU. What measures one call is handed in as a clock, so that the rules are
tested with an invented one; `CudaClock` in gpu.py is the real one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

WARM_UP = 0.05  # seconds of warm-up a function, so that clocks and caches settle
SAMPLING = 0.2  # seconds of device time a function in one case
FEWEST, MOST = 15, 300  # samples a function in one case

Call = Callable[[], object]


class Clock(Protocol):
    """Measures one call of a function on a cold cache."""

    def measure(self, call: Call) -> float:
        """Seconds that the device took for `call`."""
        ...


class Impossible(Exception):
    """A time that the hardware cannot reach: the measurement or the cost is wrong."""


@dataclass(frozen=True)
class Summary:
    """Seconds of one function in one case: median, 20th and 80th percentile, sample count."""

    median: float
    p20: float
    p80: float
    n: int

    def as_dict(self) -> dict:
        """As the record has it, at four significant digits."""
        rounded = {name: float(f"{getattr(self, name):.4g}") for name in ("median", "p20", "p80")}
        return {**rounded, "n": self.n}


def percentile(ordered: list[float], share: float) -> float:
    """The value below which `share` of an ordered list lies, interpolated linearly."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def summarize(samples: list[float]) -> Summary:
    """Median and spread of samples in seconds.

    Raises:
        ValueError: there is none, or one is not above zero, not finite or NaN.
    """
    if not samples or not all(0 < sample < math.inf for sample in samples):
        raise ValueError(f"{len(samples)} samples, the smallest {min(samples, default=0)} s")
    ordered = sorted(samples)
    p20, median, p80 = (percentile(ordered, share) for share in (0.2, 0.5, 0.8))
    return Summary(median, p20, p80, len(ordered))


def tie(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Whether two times cannot be told apart: their 20th to 80th percentiles overlap."""
    return first["p20"] <= second["p80"] and second["p20"] <= first["p80"]


def interleave(
    calls: Mapping[str, Call],
    clock: Clock,
    *,
    warm_up: float = WARM_UP,
    sampling: float = SAMPLING,
    now: Callable[[], float] = time.monotonic,
    deadline: float | None = None,
) -> dict[str, Summary]:
    """Time functions against each other, one sample of each in turn.

    Taking turns spreads whatever drifts (clocks, temperature, a neighbour) over all alike. Each
    is warmed up for `warm_up` seconds of its own time, then sampled until the samples of the
    slowest add up to `sampling` seconds, within FEWEST and MOST rounds. Past `deadline` (by
    `now`) no further round starts.

    Raises:
        TimeoutError: the deadline came before FEWEST rounds.
    """
    for call in calls.values():
        spent, rounds = 0.0, 0
        while spent < warm_up and rounds < MOST:
            spent += clock.measure(call)
            rounds += 1
    samples: dict[str, list[float]] = {name: [] for name in calls}
    rounds = 0
    while calls and rounds < MOST:
        if deadline is not None and now() > deadline:
            if rounds < FEWEST:
                raise TimeoutError(f"{rounds} of {FEWEST} rounds of samples before the time limit")
            break
        for name, call in calls.items():
            samples[name].append(clock.measure(call))
        rounds += 1
        if rounds >= FEWEST and max(sum(taken) for taken in samples.values()) >= sampling:
            break
    return {name: summarize(taken) for name, taken in samples.items()}


def least_seconds(cost: Mapping[str, object], peaks: Mapping[str, object]) -> float:
    """The time below which the hardware cannot do it: bytes and FLOPs over their peak rates.

    `peaks` has `peak_bytes_per_second` and `peak_flops_per_second` by unit, each where known.
    """
    least = 0.0
    if rate := peaks.get("peak_bytes_per_second"):
        least = cost["bytes"] / rate  # type: ignore[operator]
    units = peaks.get("peak_flops_per_second") or {}
    if rate := units.get(cost["unit"]):  # type: ignore[attr-defined]
        least = max(least, cost["flops"] / rate)  # type: ignore[operator]
    return least


def refuse_impossible(name: str, summary: Summary, least: float) -> None:
    """See that a time is at most 100 % of the limit.

    Raises:
        Impossible: it is more; a wrong cost(), work left out, or a cache that was not cold.
    """
    if summary.median < least:
        share = 100 * least / summary.median
        raise Impossible(
            f"{name!r} took {summary.median:.3g} s, {share:.0f} % of what the hardware allows "
            f"({least:.3g} s at best)"
        )
