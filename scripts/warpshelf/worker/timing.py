"""Interleaved samples of time, their medians and spread, and the limit no time may beat. The clock
that measures a call is handed in: nothing here needs a GPU.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from warpshelf.records.limits import FEWEST, MOST, MOST_VOID, WAITED

WARM_UP = 0.05  # seconds of warm-up a function, so that clocks and caches settle
WARM_CALLS = 3  # of warm-up at least, after a first one which may compile
SAMPLING = 0.1  # seconds of device time a function in one case

Call = Callable[[], object]


class Sample(NamedTuple):
    """Seconds of one call, whether the GPU surely never waited for the host meanwhile, whether they
    are of an idle GPU, the `host`'s part with it, and whether the GPU still worked after them."""

    seconds: float
    held: bool = True
    host: bool = False
    late: bool = False


class Clock(Protocol):
    """Measures one call of a function on a cold cache."""

    def measure(self, call: Call) -> Sample:
        """How long the device took for `call`."""
        ...


class Summary(NamedTuple):
    """Seconds of one function in one case: median, 20th and 80th percentile, sample count, and the
    coefficient of variation. `void` samples are left out, since the GPU may have waited for the
    host in them; with `host` all such waits are in the samples."""

    median: float
    p20: float
    p80: float
    n: int
    void: int = 0
    cv: float = 0.0
    host: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As the record has it, at four significant digits."""
        rounded = {name: float(f"{getattr(self, name):.4g}") for name in ("median", "p20", "p80")}
        more = {"host": True} if self.host else {}
        return {**rounded, "n": self.n, "void": self.void, "cv": float(f"{self.cv:.2g}"), **more}


class Fault(NamedTuple):
    """Why a function is wrong, as only timing it shows."""

    what: str
    mend: str

    def __str__(self) -> str:
        return self.what


GOES_ON = Fault(
    "works on after its last event, on a stream that the current one does not wait for",
    "have the current stream wait for it",
)
Found = Summary | Fault | str  # of a function: its time, its fault, or why it has neither


def summarize_samples(samples: list[float], void: int = 0) -> Summary:
    """Median and spread of samples in seconds, beside `void` that were left out. ValueError if
    there are fewer than two, or one is not above zero, not finite or NaN."""
    if len(samples) < 2 or not all(0 < sample < math.inf for sample in samples):
        raise ValueError(f"{len(samples)} samples, the smallest {min(samples, default=0)} s")
    p20, _, _, p80 = statistics.quantiles(samples, n=5, method="inclusive")
    cv = statistics.pstdev(samples) / statistics.fmean(samples)
    return Summary(statistics.median(samples), p20, p80, len(samples), void, cv)


def time_interleaved(
    calls: Mapping[str, Call],
    clock: Clock,
    *,
    warm_up: float = WARM_UP,
    sampling: float = SAMPLING,
    now: Callable[[], float] = time.monotonic,
    deadline: float = math.inf,
    seed: int = 0,
) -> dict[str, Found]:
    """Time functions against each other, one sample of each in every round.

    Taking turns spreads whatever drifts (clocks, temperature, a neighbour) over all alike, and the
    order of each round is drawn from `seed`, so that none always follows the same other. Each is
    called once, then warmed up for `warm_up` seconds of its own time and WARM_CALLS calls. It is
    sampled until the samples of the slowest add up to `sampling` seconds and each has FEWEST that
    count, within MOST rounds; past `deadline` (by `now`) no round starts, and before FEWEST that is
    a TimeoutError. A function with fewer that count, or a larger share of others than MOST_VOID,
    has in place of a time why it has none; one that works on after it a fault.
    """
    for call in calls.values():
        call()
        spent, rounds = 0.0, 0
        while rounds < WARM_CALLS or (spent < warm_up and rounds < MOST):
            spent += clock.measure(call).seconds
            rounds += 1
    order, chance = list(calls), random.Random(seed)
    taken: dict[str, list[Sample]] = {name: [] for name in calls}
    totals = dict.fromkeys(calls, 0.0)
    for rounds in range(MOST if calls else 0):
        if now() > deadline:
            if rounds < FEWEST:
                raise TimeoutError(f"only {rounds} of {FEWEST} rounds of samples within the limit")
            break
        chance.shuffle(order)
        for name in order:
            sample = clock.measure(calls[name])
            taken[name].append(sample)
            totals[name] += sample.seconds
        if rounds + 1 < FEWEST or max(totals.values()) < sampling:
            continue
        voids = [len(samples) - len(_counting(samples)) for samples in taken.values()]
        if all(rounds + 1 - void >= FEWEST or void > MOST_VOID * (rounds + 1) for void in voids):
            break
    found: dict[str, Found] = {}
    for name, samples in taken.items():
        counting, total = _counting(samples), len(samples)
        void = total - len(counting)
        if sum(one.late for one in samples) > MOST_VOID * total:
            found[name] = GOES_ON
        elif len(counting) < FEWEST or void > MOST_VOID * total:
            found[name] = WAITED.format(void, total)
        else:
            summary = summarize_samples([one.seconds for one in counting], void)
            found[name] = summary._replace(host=counting[0].host)
    return found


def _counting(samples: list[Sample]) -> list[Sample]:
    """The samples that are held, or those with the host's part, whichever are more."""
    held, host = [one for one in samples if one.held], [one for one in samples if one.host]
    return max(held, host, key=len)


def impossible_reason(name: str, summary: Summary, least: float) -> str | None:
    """Why a time cannot be, where it is less than the hardware takes at `least`; else None. Then
    the cost is wrong, work was left out, or a cache was not cold."""
    if summary.median >= least:
        return None
    return (
        f"{name!r} took {summary.median:.3g} s, {100 * least / summary.median:.0f} % of what the "
        f"hardware allows ({least:.3g} s at best)"
    )
