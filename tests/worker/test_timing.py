from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.worker import timing
from warpshelf.worker.timing import (
    FEWEST,
    MOST,
    WARM_CALLS,
    Sample,
    Summary,
)

SECONDS = st.floats(1e-9, 1e3)


class Invented:
    """A clock whose functions take what they return, times a slowness that may drift."""

    def __init__(self, slowness: Callable[[float], float] = lambda now: 1.0) -> None:
        self.time = 0.0
        self.slowness = slowness
        self.order: list[str] = []
        self.held: Callable[[str], bool] = lambda name: True
        self.host: Callable[[str], bool] = lambda name: False

    def measure(self, call: Callable[[], tuple[str, float]]) -> Sample:
        name, seconds = call()
        taken = seconds * self.slowness(self.time)
        self.time += taken
        self.order.append(name)
        return Sample(taken, self.held(name), self.host(name))

    def now(self) -> float:
        return self.time


def make_calls(**seconds: float) -> dict[str, Callable[[], tuple[str, float]]]:
    return {name: (lambda pair=(name, value): pair) for name, value in seconds.items()}


@given(st.lists(SECONDS, min_size=2, max_size=40))
def test_a_summary_is_of_the_samples_in_any_order(samples: list[float]) -> None:
    summary = timing.summarize_samples(samples)
    p20, median, p80 = numpy.percentile(samples, [20, 50, 80])
    assert (summary.p20, summary.median, summary.p80) == pytest.approx((p20, median, p80))
    assert summary.n == len(samples)
    written = summary.as_dict()
    assert 0 < written["p20"] <= written["median"] <= written["p80"]


def test_a_summary_is_written_to_four_digits() -> None:
    written = Summary(1.23456e-5, 1.0e-5, 9.99999e-5, 20, cv=0.01234).as_dict()
    assert written == {
        "median": 1.235e-5, "p20": 1e-5, "p80": 1e-4, "n": 20, "void": 0, "cv": 0.012
    }  # fmt: skip


def test_the_spread_of_all_samples_is_kept_beside_the_percentiles() -> None:
    assert timing.summarize_samples([1.0, 1.0, 1.0, 5.0]).cv == pytest.approx(3**0.5 / 2)


@pytest.mark.parametrize(
    "samples", [[], [1e-3], [1e-3, 0.0], [1e-3, -1e-9], [math.nan], [1e-3, math.nan],
                [math.nan, 1e-3], [1e-3, math.inf]],
)  # fmt: skip
def test_samples_that_no_clock_gives_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError):
        timing.summarize_samples(samples)


WARM = WARM_CALLS  # measured before the first sample, where no time of warm-up is asked for


def split_rounds(clock: Invented, functions: int) -> list[list[str]]:
    """The order of each round, after a warm-up by calls alone."""
    order = clock.order[WARM * functions :]
    return [order[i : i + functions] for i in range(0, len(order), functions)]


def test_functions_take_turns() -> None:
    clock = Invented()
    found = timing.time_interleaved(make_calls(a=1.0, b=2.0, c=3.0), clock, warm_up=0, sampling=0)
    rounds = split_rounds(clock, 3)
    assert [sorted(one) for one in rounds] == [["a", "b", "c"]] * FEWEST
    assert found == {
        name: Summary(t, t, t, FEWEST) for name, t in zip("abc", (1.0, 2.0, 3.0), strict=True)
    }


def test_the_order_of_a_round_is_drawn_anew_and_the_same_at_every_run() -> None:
    clocks = [Invented(), Invented(), Invented()]
    for clock, seed in zip(clocks, (0, 0, 1), strict=True):
        timing.time_interleaved(
            make_calls(a=1.0, b=1.0, c=1.0), clock, warm_up=0, sampling=60, seed=seed
        )
    rounds = split_rounds(clocks[0], 3)
    assert len(rounds) == 60
    assert len({tuple(one) for one in rounds}) == 6  # every order comes up
    assert clocks[0].order == clocks[1].order != clocks[2].order


def test_each_is_warmed_up_by_its_own_time_before_any_is_sampled() -> None:
    clock = Invented()
    timing.time_interleaved(make_calls(fast=0.01, slow=0.06), clock, warm_up=0.1, sampling=0)
    warm = clock.order[: -2 * FEWEST]
    assert warm == ["fast"] * warm.count("fast") + ["slow"] * warm.count("slow")
    assert 10 <= warm.count("fast") <= 11  # ten hundredths do not add up to a tenth exactly
    assert warm.count("slow") == WARM


def test_a_slow_first_call_is_not_the_warm_up() -> None:
    times = iter([5.0] + [0.01] * 1000)  # it compiles
    clock = Invented()
    timing.time_interleaved({"a": lambda: ("a", next(times))}, clock, warm_up=0.1, sampling=0)
    assert 10 <= len(clock.order) - FEWEST <= 11


def test_warm_up_leaves_no_sample() -> None:
    times = iter([9.0] * 3 + [1.0] * 1000)
    clock = Invented()
    found = timing.time_interleaved(
        {"a": lambda: ("a", next(times))}, clock, warm_up=20, sampling=0
    )
    assert found["a"] == Summary(1.0, 1.0, 1.0, FEWEST)


def test_a_clock_that_stands_still_ends_the_warm_up_and_is_refused() -> None:
    clock = Invented()
    with pytest.raises(ValueError):
        timing.time_interleaved(make_calls(a=0.0), clock)
    assert len(clock.order) == 2 * MOST


def test_void_samples_are_left_out_and_counted() -> None:
    clock = Invented()
    turns = iter(range(10_000))
    clock.held = lambda name: name == "b" or next(turns) % 4 != 0
    found = timing.time_interleaved(make_calls(a=1.0, b=1.0), clock, warm_up=0, sampling=0)
    a, b = found["a"], found["b"]
    assert isinstance(a, Summary) and isinstance(b, Summary)
    assert a.n == FEWEST and 4 <= a.void <= 6  # it went on until there were enough
    assert (b.n, b.void) == (a.n + a.void, 0)
    assert a.as_dict()["void"] == a.void


def test_what_waits_for_the_host_is_timed_with_it() -> None:
    """As soon as the clock knows; what it measured before that is void."""
    clock = Invented()
    clock.host = lambda name: name == "waits" and clock.order.count(name) > 8
    clock.held = lambda name: name != "waits"
    found = timing.time_interleaved(make_calls(good=1.0, waits=3.0), clock, warm_up=0, sampling=0)
    void = 8 - WARM
    assert found["waits"] == Summary(3.0, 3.0, 3.0, FEWEST, void, host=True)
    assert found["good"] == Summary(1.0, 1.0, 1.0, FEWEST + void)
    assert found["waits"].as_dict()["host"] is True and "host" not in found["good"].as_dict()


def test_what_was_never_held_is_untimed_with_its_reason() -> None:
    clock = Invented()
    clock.held = lambda name: name != "waits"
    found = timing.time_interleaved(make_calls(good=1.0, waits=1.0), clock, warm_up=0, sampling=0)
    assert found["good"] == Summary(1.0, 1.0, 1.0, FEWEST)
    assert f"waited for the host in {FEWEST} of {FEWEST} samples" in found["waits"]


def test_too_large_a_share_of_void_samples_is_untimed() -> None:
    clock = Invented()
    turns = iter(range(10_000))
    clock.held = lambda name: next(turns) % 5 < 2
    found = timing.time_interleaved(make_calls(a=0.1), clock, warm_up=0, sampling=20)
    assert isinstance(found["a"], str)  # although more than FEWEST were held


def test_the_slowest_decides_how_many_samples_there_are() -> None:
    found = timing.time_interleaved(
        make_calls(a=0.001, b=0.01), Invented(), warm_up=0, sampling=0.5
    )
    assert found["a"].n == found["b"].n
    assert 50 <= found["b"].n <= 51


def test_there_are_never_more_than_the_most() -> None:
    assert timing.time_interleaved(make_calls(a=1e-6), Invented(), warm_up=0)["a"].n == MOST


def test_a_slow_function_still_gets_the_fewest() -> None:
    assert timing.time_interleaved(make_calls(a=10.0), Invented(), warm_up=0)["a"].n == FEWEST


def test_a_deadline_before_the_fewest_rounds_is_an_error() -> None:
    clock = Invented()
    with pytest.raises(TimeoutError, match=f"of {FEWEST} rounds"):
        timing.time_interleaved(
            make_calls(a=1.0),
            clock,
            warm_up=0,
            sampling=99,
            now=clock.now,
            deadline=WARM + FEWEST - 1.5,
        )
    assert len(clock.order) == WARM + FEWEST - 1


def test_a_deadline_after_them_ends_the_sampling() -> None:
    clock = Invented()
    found = timing.time_interleaved(
        make_calls(a=1.0),
        clock,
        warm_up=0,
        sampling=99,
        now=clock.now,
        deadline=WARM + FEWEST + 4.5,
    )
    assert found["a"].n == FEWEST + 5


def test_nothing_to_time_is_nothing() -> None:
    assert timing.time_interleaved({}, Invented(), deadline=0, now=lambda: 1) == {}


def slow_down(now: float) -> float:
    """A GPU that gets warmer: three times slower after 40 seconds."""
    return 1 + now / 20


def test_drift_hits_all_alike() -> None:
    both = make_calls(a=0.1, b=0.1)
    found = timing.time_interleaved(both, Invented(slow_down), warm_up=0.2, sampling=20)
    assert found["a"].median == pytest.approx(found["b"].median, rel=0.02)
    # The same one after the other on one clock: the second looks far slower.
    clock = Invented(slow_down)
    a, b = (
        timing.time_interleaved({name: both[name]}, clock, warm_up=0.2, sampling=20)[name]
        for name in both
    )
    assert b.median > 1.5 * a.median


def test_more_than_what_the_hardware_allows_is_refused() -> None:
    why = timing.impossible_reason("fast", Summary(5e-6, 4e-6, 2e-5, 20), 1e-5)
    assert why == "'fast' took 5e-06 s, 200 % of what the hardware allows (1e-05 s at best)"


def test_the_limit_itself_is_possible() -> None:
    assert timing.impossible_reason("a", Summary(1e-5, 9e-6, 2e-5, 20), 1e-5) is None
    assert timing.impossible_reason("a", Summary(1e-9, 1e-9, 1e-9, 20), 0.0) is None
