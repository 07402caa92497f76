"""simulator: two ways that must agree on any plan, what failures cost, and mistakes both see."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import load_mistaken_module

from snippets.pipeline_schedules.clock import Times
from snippets.simulator import cases, checkpoints, events
from snippets.simulator import simulator as ours
from snippets.simulator.simulator import SCHEDULES, Plan, Rank, simulate
from warpshelf.contract import syntax, values

TIME = st.integers(0, 12).map(lambda n: n / 4)
TIMES = st.builds(Times, TIME, TIME, st.integers(1, 8).map(float))


@st.composite
def plans_with_slow_ranks(draw: Any) -> tuple[Plan, dict[Rank, float]]:
    """A plan of some ranks, a few of them slow, and messages that take what they like."""
    p, data, tensor = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    plan = Plan(
        draw(st.sampled_from(sorted(SCHEDULES))),
        p,
        p * draw(st.integers(2, 3)),
        draw(TIMES),
        data,
        tensor,
        draw(st.integers(1, 3)),
        draw(TIMES),
        blocks=draw(st.booleans()),
        reduction=draw(TIME),
        norm=draw(TIME),
        update=draw(TIME),
    )
    cuts = plan.table.slices - 1
    waits = draw(st.lists(TIME, min_size=cuts, max_size=cuts))
    rank = st.tuples(*(st.integers(0, size - 1) for size in (data, p, tensor)))
    slow = draw(st.dictionaries(rank, st.sampled_from([1.0, 1.25, 3.0]), max_size=4))
    return replace(plan, transfer=tuple(waits)), slow


@given(plans_with_slow_ranks())
def test_the_longest_path_is_what_happens_event_by_event(
    made: tuple[Plan, dict[Rank, float]],
) -> None:
    plan, slow = made
    assert simulate(plan, slow).step == pytest.approx(events.step(plan, slow), rel=1e-12)


@given(plans_with_slow_ranks())
def test_idle_time_is_what_ranks_do_not_compute(made: tuple[Plan, dict[Rank, float]]) -> None:
    plan, slow = made
    found = simulate(plan, slow)
    passes = plan.compute.plus(plan.collectives)
    least = plan.micro_batches * math.fsum(vars(passes).values())
    assert found.step * (1 - found.idle) >= least * (1 - 1e-9)
    assert -1e-9 <= found.idle < 1
    assert found.stands_for == plan.data * plan.tensor * len(plan.table.operations)
    assert found.timed <= found.stands_for


@given(plans_with_slow_ranks(), st.data())
def test_a_slower_rank_never_shortens_a_step(
    made: tuple[Plan, dict[Rank, float]], data: Any
) -> None:
    plan, slow = made
    sizes = (plan.data, plan.pipeline, plan.tensor)
    rank = data.draw(st.tuples(*(st.integers(0, size - 1) for size in sizes)))
    slower = {**slow, rank: slow.get(rank, 1.0) + 0.5}
    assert simulate(plan, slower).step >= simulate(plan, slow).step * (1 - 1e-12)


def test_one_pipeline_stands_for_all_that_are_alike() -> None:
    plan = replace(cases.SMALL, data=1000)
    assert simulate(plan).timed == simulate(replace(plan, data=1)).timed
    slow = {(d, 1, 0): 1.5 for d in range(10)} | {(20, 1, 1): 1.5, (21, 1, 1): 1.25}
    assert simulate(plan, slow).timed == 3 * simulate(plan).timed  # plain, 1.5 and 1.25


def test_uneven_ranks_are_the_same_on_every_run() -> None:
    plan = replace(cases.SMALL, data=50)
    paces = ours.uneven(plan, 0.1)
    assert paces == ours.uneven(plan, 0.1) and len(set(paces.values())) == 200
    assert min(paces.values()) > 1 and 1.09 < max(paces.values()) <= 1.1


def test_a_ring_sends_nearly_twice_what_it_sums() -> None:
    assert ours.ring(1e9, 1, 1e6, 1.0) == 0
    assert ours.ring(1e9, 8, 1e6, 0.0) == 2 * 7 / 8 * 1000
    assert ours.ring(0.0, 8, 1e6, 0.5) == 7


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: replace(cases.SMALL, schedule="1f1b"), "no schedule '1f1b'; there are GPipe"),
        (lambda: replace(cases.SMALL, data=0), "data = 0; give 1 or more"),
        (lambda: replace(cases.SMALL, norm=math.nan), "norm = nan is no time"),
        (lambda: replace(cases.SMALL, transfer=(1.0,)).waits, "1 boundaries for 4 slices"),
        (lambda: simulate(cases.SMALL, {(2, 0, 0): 2.0}), "no rank (2, 0, 0) in a plan"),
        (lambda: simulate(cases.SMALL, {(0, 0, 0): 0.5}), "takes 0.5 times as long; give 1"),
        (lambda: checkpoints.young(0, 1), "save = 0; give a time above 0"),
        (lambda: checkpoints.goodput(1, -1, 0, 1), "save = -1, restart = 0; give 0 or more"),
        (lambda: checkpoints.best(1, 1, math.inf), "mean = inf; give a time above 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_a_line(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match="^simulator: ") as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_job_that_never_fails_only_saves() -> None:
    job = events.Job(step=2.0, ranks=1, rank_mean=1e15, every=10, save=1.0, restart=5.0)
    assert events.run(job, 1000, seed=0) == events.Ran(20 / 21, 0, 0.0)


def test_a_job_fails_as_often_as_its_ranks_do() -> None:
    job = events.Job(4.0, 100, 100_000.0, 12, 2.0, 10.0)
    ran = events.run(job, 120_000, seed=3)
    minutes = 480_000 / ran.goodput
    assert ran.failures == pytest.approx(minutes / 1000, rel=0.15)
    assert ran == events.run(job, 120_000, seed=3) != events.run(job, 120_000, seed=4)
    # What is lost, saved and restarted is all that is not work.
    beside = ran.lost + 2.0 * 10_000 + 10.0 * ran.failures
    assert minutes == pytest.approx(480_000 + beside, rel=0.001)


@given(st.floats(0.01, 20), st.floats(0, 60), st.floats(60, 1e5))
def test_the_best_interval_is_one(save: float, restart: float, mean: float) -> None:
    best = checkpoints.best(save, restart, mean)
    top = checkpoints.goodput(best, save, restart, mean)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert checkpoints.goodput(best * factor, save, restart, mean) <= top
    # A restart lengthens every failure alike, so it moves no interval.
    assert checkpoints.best(save, 0, mean) == pytest.approx(best, rel=1e-4)
    assert checkpoints.daly(save, mean) == pytest.approx(best, rel=0.02)


def test_rules_agree_where_failures_are_rare() -> None:
    for save in (1.0, 1e-2, 1e-4):
        young, daly = checkpoints.young(save, 1e4), checkpoints.daly(save, 1e4)
        assert abs(daly / young - 1) < math.sqrt(save / 1e4)


@pytest.mark.parametrize(
    ("find", "replacement"),
    [
        ("row[stage] = max(row[stage], factor)", "row[0] = max(row[0], factor)"),
        ("ready = [max(ready[stage], last[stage])", "ready = [last[stage]"),
        ("compute * pace[stage] + meet", "(compute + meet) * pace[stage]"),
        ("compute * pace[stage] + meet", "compute * pace[stage]"),
        ("reduced = [one + plan.reduction for one in ready]", "reduced = ready"),
        ("table.ends(lengths, waits, plan.blocks)", "table.ends(lengths, waits, False)"),
    ],
)
def test_a_mistake_in_the_longest_path_is_seen(
    find: str, replacement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "simulate", load_mistaken_module(ours, find, replacement).simulate)
    rows = [*cases.equal(), *cases.closed()]
    assert not all(values.fact_holds(row) for row in rows)


@pytest.mark.parametrize(
    ("find", "replacement", "facts"),
    [
        ("if self.come == self.members:", "if self.come == 1:", "equal"),
        ("max(free, sent) if self.plan.blocks else sent", "sent", "equal"),
        ("self.computes[i] * self.slow.get(rank, 1.0)", "self.computes[i]", "equal"),
        ("yield self.env.timeout(self.plan.update)", "pass", "equal"),
        ("yield env.timeout(job.restart)", "yield env.timeout(2 * job.restart)", "failing"),
        ("                done += count\n", "                done += count + 1\n", "failing"),
        ("for _ in range(count):", "for _ in range(count // 2):", "failing"),
        ("job.ranks / job.rank_mean", "1 / job.rank_mean", "failing"),
    ],
)
def test_a_mistake_in_the_events_is_seen(
    find: str, replacement: str, facts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "events", load_mistaken_module(events, find, replacement))
    assert not all(values.fact_holds(row) for row in getattr(cases, facts)())


def test_only_the_events_need_more_than_python() -> None:
    for module in (ours, checkpoints):
        parsed = syntax.parse_python(Path(inspect.getfile(module)))
        assert syntax.standard_library_only(
            name for name in parsed.imports if not name.startswith("snippets")
        )


def test_the_demo_says_that_it_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    ours.demo()
    shown = capsys.readouterr().out
    assert shown.startswith("All of this is simulated") and len(shown.splitlines()) <= 30


@pytest.mark.alone
def test_a_hundred_thousand_uneven_ranks_take_about_a_second() -> None:
    plan = ours.shown(768)
    paces = ours.uneven(plan, 0.1)
    assert plan.ranks == 98_304
    simulate(replace(plan, data=1))  # makes the table
    start = time.process_time()
    found = simulate(plan, paces)
    spent = time.process_time() - start
    assert found.timed == 768 * 1024
    assert found.timed / spent > 5e5  # operations a second; several millions on an idle machine
