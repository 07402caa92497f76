"""What is left of a run, as it goes."""

from __future__ import annotations

import pytest

from warpshelf.bench.estimate import HERE, METHOD, Expected
from warpshelf.bench.outlook import PRIOR, Outlook, Ratio
from warpshelf.bench.plan import Part, Plan, Turn
from warpshelf.bench.pool import Job, Outcome
from warpshelf.records import machine
from warpshelf.worker.task import Task

WHERE = machine.plain()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Named(Part):
    """A part of a turn that has its jobs and a name alone."""

    id = ""


def job(name: str, do: Task = Task.VERIFY, limit: float = 600) -> Job:
    return Job(do, name, limit, {"machine": WHERE}, alone=do is Task.TIME)


def part(name: str, seconds: float, timing: float | None = None) -> Part:
    made = Named(None, "never run")  # type: ignore[arg-type]
    made.id = name  # type: ignore[misc]
    made.before = [Expected(job(name), seconds, HERE)]
    made.timing = None if timing is None else Expected(job(name, Task.TIME), timing, METHOD)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def outlook(clock: Clock, *parts: Part, workers: int = 1) -> Outlook:
    return Outlook(Plan([Turn(WHERE, workers, list(parts))]), clock)


def ended(one: Job, seconds: float, failed: bool = False) -> Outcome:
    answer = {"failures": [{}] if failed else []}
    return Outcome(one, answer, None, "", b"", "", seconds)


def test_before_it_starts_all_is_left(clock: Clock) -> None:
    parts = [part(name, 10, 5) for name in ("a", "b")]
    assert outlook(clock, *parts).left() == 30
    assert outlook(clock, *parts, workers=2).left() == 20  # timings go one at a time
    assert outlook(clock).left() == 0


def test_what_runs_needs_what_it_has_not_run_yet(clock: Clock) -> None:
    view = outlook(clock, part("a", 10), part("b", 20))
    view.began(job("a"))
    clock.now += 4
    assert view.left() == 26
    clock.now += 16  # twice what was expected: it may take some more
    assert view.left() == pytest.approx(0.1 * 20 + 20)
    view.ended(ended(job("a"), 20))
    overall = (PRIOR + 20) / (PRIOR + 10)
    assert view.left() == pytest.approx(20 * (PRIOR * overall + 20) / (PRIOR + 10))


def test_nothing_is_expected_beyond_its_limit(clock: Clock) -> None:
    view = outlook(clock, part("a", 10))
    view.began(job("a", limit=600))
    clock.now += 599
    assert view.left() == pytest.approx(1.0)
    clock.now += 50
    assert view.left() == 0


@pytest.mark.parametrize("slower", [0.5, 1.0, 2.0, 3.0])
def test_a_slower_machine_shows_it_after_a_few(clock: Clock, slower: float) -> None:
    names = [f"s{number}" for number in range(20)]
    view = outlook(clock, *(part(name, 60) for name in names))
    for name in names[:5]:
        view.began(job(name))
        clock.now += 60 * slower
        view.ended(ended(job(name), 60 * slower))
    assert view.left() == pytest.approx(15 * 60 * slower, rel=0.12)


def test_one_kind_of_job_says_little_of_another(clock: Clock) -> None:
    parts = [part(f"s{number}", 60, 100) for number in range(10)]
    view = outlook(clock, *parts)
    for one in parts:
        view.ended(ended(one.before[0].job, 60))
    view.ended(ended(parts[0].timing.job, 300))  # type: ignore[union-attr]
    # What the method promised was wrong, not the pace of the machine.
    assert view.seconds(parts[1].timing) > 200  # type: ignore[arg-type]
    assert view.seconds(Expected(job("new"), 60, HERE)) == pytest.approx(60, rel=0.05)


def test_the_ratio_is_drawn_to_what_was_known_before() -> None:
    assert Ratio().over(1.0) == 1.0
    assert Ratio(2 * PRIOR, PRIOR).over(1.0) == pytest.approx(1.5)
    assert Ratio(2e6, 1e6).over(1.0) == pytest.approx(2.0, rel=1e-3)


def test_a_failure_teaches_nothing_and_drops_the_rest(clock: Clock) -> None:
    view = outlook(clock, part("a", 10, 100), part("b", 20, 5))
    view.began(job("a"))
    view.ended(ended(job("a"), 0.1, failed=True))
    view.settled("a", "cpu")
    assert (view.left(), view.all.expected) == (25, 0)
    view.ended(ended(job("unheard"), 3))
    view.settled("unheard", "cpu")
    assert view.left() == 25
