from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf import timing
from warpshelf.timing import FEWEST, MOST, Impossible, Summary

SECONDS = st.floats(1e-9, 1e3)
COST = {"bytes": 1000, "flops": 6000, "unit": "bf16"}
PEAKS = {"peak_bytes_per_second": 10.0, "peak_flops_per_second": {"bf16": 50.0, "fp32": 5.0}}


class Invented:
    """A clock whose functions take what they return, times a slowness that may drift."""

    def __init__(self, slowness: Callable[[float], float] = lambda now: 1.0) -> None:
        self.time = 0.0
        self.slowness = slowness
        self.order: list[str] = []

    def measure(self, call: Callable[[], tuple[str, float]]) -> float:
        name, seconds = call()
        taken = seconds * self.slowness(self.time)
        self.time += taken
        self.order.append(name)
        return taken

    def now(self) -> float:
        return self.time


def calls(**seconds: float) -> dict[str, Callable[[], tuple[str, float]]]:
    return {name: (lambda pair=(name, value): pair) for name, value in seconds.items()}


@given(st.lists(SECONDS, min_size=1, max_size=40), st.floats(0, 1))
def test_percentiles_are_numpy_s(samples: list[float], share: float) -> None:
    ordered = sorted(samples)
    expected = numpy.percentile(ordered, 100 * share, method="linear")
    assert timing.percentile(ordered, share) == pytest.approx(expected, rel=1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_a_summary_is_of_the_samples_in_any_order(samples: list[float]) -> None:
    summary = timing.summarize(samples)
    p20, median, p80 = numpy.percentile(samples, [20, 50, 80])
    assert (summary.p20, summary.median, summary.p80) == pytest.approx((p20, median, p80))
    assert summary.n == len(samples)
    written = summary.as_dict()
    assert 0 < written["p20"] <= written["median"] <= written["p80"]


def test_a_summary_is_written_to_four_digits() -> None:
    written = Summary(1.23456e-5, 1.0e-5, 9.99999e-5, 20).as_dict()
    assert written == {"median": 1.235e-5, "p20": 1e-5, "p80": 1e-4, "n": 20}


@pytest.mark.parametrize(
    "samples", [[], [0.0], [1e-3, 0.0], [1e-3, -1e-9], [math.nan], [1e-3, math.nan],
                [math.nan, 1e-3], [1e-3, math.inf]],
)  # fmt: skip
def test_samples_that_no_clock_gives_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError):
        timing.summarize(samples)


def test_functions_take_turns() -> None:
    clock = Invented()
    found = timing.interleave(calls(a=1.0, b=2.0, c=3.0), clock, warm_up=0, sampling=0)
    assert clock.order == ["a", "b", "c"] * FEWEST
    assert {name: (s.median, s.n) for name, s in found.items()} == {
        "a": (1.0, FEWEST), "b": (2.0, FEWEST), "c": (3.0, FEWEST)
    }  # fmt: skip


def test_each_is_warmed_up_by_its_own_time_before_any_is_sampled() -> None:
    clock = Invented()
    timing.interleave(calls(fast=0.01, slow=0.06), clock, warm_up=0.1, sampling=0)
    warm = clock.order[: -2 * FEWEST]
    assert warm == ["fast"] * warm.count("fast") + ["slow"] * warm.count("slow")
    assert 10 <= warm.count("fast") <= 11  # ten hundredths do not add up to a tenth exactly
    assert warm.count("slow") == 2
    assert clock.order[-2 * FEWEST :] == ["fast", "slow"] * FEWEST


def test_warm_up_leaves_no_sample() -> None:
    times = iter([9.0] * 3 + [1.0] * 1000)
    clock = Invented()
    found = timing.interleave({"a": lambda: ("a", next(times))}, clock, warm_up=20, sampling=0)
    assert found["a"] == Summary(1.0, 1.0, 1.0, FEWEST)


def test_a_clock_that_stands_still_ends_the_warm_up_and_is_refused() -> None:
    clock = Invented()
    with pytest.raises(ValueError):
        timing.interleave(calls(a=0.0), clock)
    assert len(clock.order) == 2 * MOST


def test_the_slowest_decides_how_many_samples_there_are() -> None:
    found = timing.interleave(calls(a=0.001, b=0.01), Invented(), warm_up=0, sampling=0.5)
    assert found["a"].n == found["b"].n
    assert 50 <= found["b"].n <= 51


def test_there_are_never_more_than_the_most() -> None:
    assert timing.interleave(calls(a=1e-6), Invented(), warm_up=0)["a"].n == MOST


def test_a_slow_function_still_gets_the_fewest() -> None:
    assert timing.interleave(calls(a=10.0), Invented(), warm_up=0)["a"].n == FEWEST


def test_a_deadline_before_the_fewest_rounds_is_an_error() -> None:
    clock = Invented()
    with pytest.raises(TimeoutError, match=f"of {FEWEST} rounds"):
        timing.interleave(
            calls(a=1.0), clock, warm_up=0, sampling=99, now=clock.now, deadline=FEWEST - 1.5
        )
    assert len(clock.order) == FEWEST - 1


def test_a_deadline_after_them_ends_the_sampling() -> None:
    clock = Invented()
    found = timing.interleave(
        calls(a=1.0), clock, warm_up=0, sampling=99, now=clock.now, deadline=FEWEST + 4.5
    )
    assert found["a"].n == FEWEST + 5


def test_nothing_to_time_is_nothing() -> None:
    assert timing.interleave({}, Invented(), deadline=0, now=lambda: 1) == {}


def slowing(now: float) -> float:
    """A GPU that gets warmer: three times slower after 40 seconds."""
    return 1 + now / 20


def test_drift_hits_all_alike() -> None:
    both = calls(a=0.1, b=0.1)
    found = timing.interleave(both, Invented(slowing), warm_up=0.2, sampling=20)
    assert found["a"].median == pytest.approx(found["b"].median, rel=0.02)
    # The same one after the other on one clock: the second looks far slower.
    clock = Invented(slowing)
    a, b = (
        timing.interleave({name: both[name]}, clock, warm_up=0.2, sampling=20)[name]
        for name in both
    )
    assert b.median > 1.5 * a.median


@pytest.mark.parametrize(
    ("first", "second", "tied"),
    [
        ((1.0, 1.2), (1.1, 1.3), True),
        ((1.0, 1.2), (1.2, 1.3), True),
        ((1.0, 1.2), (1.21, 1.3), False),
        ((1.0, 2.0), (1.4, 1.5), True),
        ((1.0, 1.0), (1.0, 1.0), True),
    ],
)
def test_times_tie_where_their_spreads_overlap(first: tuple, second: tuple, tied: bool) -> None:
    a, b = ({"p20": p20, "p80": p80} for p20, p80 in (first, second))
    assert timing.tie(a, b) is tied
    assert timing.tie(b, a) is tied


@pytest.mark.parametrize(
    ("cost", "peaks", "least"),
    [
        (COST, PEAKS, 120.0),  # FLOPs decide
        (COST | {"flops": 100}, PEAKS, 100.0),  # bytes decide
        (COST | {"unit": "fp32"}, PEAKS, 1200.0),
        (COST | {"unit": "fp8"}, PEAKS, 100.0),
        (COST, {"peak_bytes_per_second": 10.0}, 100.0),
        (COST, {"peak_flops_per_second": {"bf16": 50.0}}, 120.0),
        (COST, {}, 0.0),
    ],
)
def test_the_least_time_is_that_of_the_slower_of_bytes_and_flops(
    cost: dict, peaks: dict, least: float
) -> None:
    assert timing.least_seconds(cost, peaks) == least


def test_more_than_what_the_hardware_allows_is_refused() -> None:
    with pytest.raises(Impossible, match=r"'fast' took 5e-06 s, 200 % .* \(1e-05 s at best\)"):
        timing.refuse_impossible("fast", Summary(5e-6, 4e-6, 2e-5, 20), 1e-5)


def test_the_limit_itself_is_possible() -> None:
    timing.refuse_impossible("a", Summary(1e-5, 9e-6, 2e-5, 20), 1e-5)
    timing.refuse_impossible("a", Summary(1e-9, 1e-9, 1e-9, 20), 0.0)
