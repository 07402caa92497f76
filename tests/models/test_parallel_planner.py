"""parallel_planner: no plan is better than its own, whatever the costs, and mistakes are seen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from conftest import exhaustive
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts, read_facts

from snippets.model_flops.model_flops import MODELS, flops_per_token
from snippets.parallel_planner import calculator, cases
from snippets.parallel_planner import parallel_planner as ours
from snippets.parallel_planner.costs import Cluster, Cost, Layout, Transformer, divisors
from snippets.parallel_planner.parallel_planner import Stage
from warpshelf.contract import pictures as told


@pytest.fixture(scope="module")
def facts() -> list[dict[str, Any]]:
    return read_facts(cases)


@pytest.mark.exhaustive("facts and goals, which make verify holds as well")
def test_facts_hold_and_goals_are_met(facts: list[dict[str, Any]]) -> None:
    assert broken_facts(facts) == []
    assert len({row["name"] for row in facts}) == len(facts)
    cluster = Cluster(8, memory=8e9, link=15e9)  # one of them has all six stages
    plan = ours.mixed(Transformer(cases.DENSE, cluster, 2048), cluster, 8)
    assert len(plan.stages) == 6
    assert len({stage.layout for stage in plan.stages}) > 1
    found = cases.predictions()
    assert told.predictions_problem(found) is None
    assert told.goals_problem(cases.GOALS, found) is None
    assert all(told.judge_goal(goal, found)[0] for goal in cases.GOALS)
    assert sum(row["fitted"] for row in found) == 1


@dataclass(frozen=True)
class Table:
    """Costs without a model behind them: each unit's time and bytes, each layout's factor."""

    times: tuple[int, ...]
    sizes: tuple[int, ...]
    factors: tuple[int, ...]  # by layout, in tenths of a share of the GPUs
    again: int
    exchange: int
    width: int  # bytes that a layer keeps of a sequence

    @property
    def units(self) -> int:
        return len(self.times)

    def stage(self, first: int, last: int, layout: Layout, sequences: int) -> Cost:
        factor = self.factors[(layout.data + 3 * layout.tensor) % len(self.factors)] / 10
        share = factor * sequences / layout.gpus
        size = sum(self.sizes[first:last])
        return Cost(
            time=sum(self.times[first:last]) * share,
            again=self.again * share,
            sync=self.exchange * size * (layout.data - 1) / layout.data / layout.tensor,
            state=size / layout.tensor,
            kept=(last - first) * self.width * sequences / layout.gpus,
            saved=self.width * sequences / layout.gpus / 2,
            extra=0.0,
            layers=last - first,
        )

    def layouts(self, most: int, sequences: int) -> Iterator[Layout]:
        for d in divisors(sequences):
            for t in (1, 2, 3):
                if d * t <= most:
                    yield Layout(d, t)


small = st.integers(1, 9)
tables = st.builds(
    Table,
    times=st.lists(small, min_size=2, max_size=5).map(tuple),
    sizes=st.lists(st.integers(1, 4), min_size=5, max_size=5).map(tuple),
    factors=st.lists(st.integers(5, 60), min_size=1, max_size=5).map(tuple),
    again=st.integers(1, 4),
    exchange=st.integers(0, 40),
    width=small,
)


def find_least_time(found: Iterator[Any]) -> float:
    return min((ours.step_time(*one) for one in found), default=float("inf"))


def plan_time(plan: Any, costs: Table, cluster: Cluster, batch: int) -> float:
    try:
        return plan(costs, cluster, batch).time
    except ValueError:
        return float("inf")


@settings(max_examples=150)
@given(costs=tables, gpus=st.integers(1, 4), batch=st.sampled_from([1, 2, 4, 6]),
       memory=st.integers(6, 60))  # fmt: skip
def test_no_plan_is_better_than_its_own(costs: Table, gpus: int, batch: int, memory: int) -> None:
    cluster = Cluster(gpus, memory=memory, usable=1.0)
    due = find_least_time(cases.every(costs, cluster, batch))
    assert plan_time(ours.mixed, costs, cluster, batch) == pytest.approx(due, rel=1e-12)
    due = find_least_time(cases.alike(costs, cluster, batch))
    assert plan_time(ours.even, costs, cluster, batch) == pytest.approx(due, rel=1e-12)


seconds = st.floats(0.1, 9, allow_nan=False)


@settings(max_examples=60)
@given(st.lists(seconds, min_size=1, max_size=5), st.floats(0.1, 0.9), st.integers(1, 10))
def test_a_step_takes_no_longer_than_the_formula_says(
    times: list[float], forward: float, m: int
) -> None:
    formula = sum(times) + (m - 1) * max(times)
    passes = [(forward * t, (1 - forward) * t) for t in times]
    assert cases.executed(passes, m) <= formula * (1 + 1e-12)
    alike = [passes[0]] * len(times)
    due = (len(times) + m - 1) * times[0]
    assert cases.executed(alike, m) == pytest.approx(due)


def test_stages_whose_forward_takes_another_share_can_take_longer() -> None:
    times = [(1.0, 4.0), (4.0, 1.0), (1.0, 1.0)]
    formula = sum(f + b for f, b in times) + max(f + b for f, b in times)
    assert cases.executed(times, 2) == formula + 1


@pytest.mark.parametrize(
    ("where", "wrong"),
    exhaustive(
        [
            # fewest stages first in flight: memory of the last stage for all
            ("placed", lambda *a: PLACED(*a[:4], 1, a[5])),
            # the slowest stage left out of what is compared
            ("insert", lambda labels, new: labels.append(new) if not labels else None),
            # every layer recomputed, or none
            ("placed", lambda cost, *a: PLACED(cost._replace(layers=0), *a)),
            # the exchange of gradients forgotten in the choice
            ("undominated", lambda stages: UNDOMINATED(s._replace(sync=0.0) for s in stages)),
        ],
        "all usual mistakes",
    ),
)
def test_a_usual_mistake_breaks_a_fact(
    where: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, where, wrong)
    try:
        assert broken_facts(cases.enumerated_facts())
    except ValueError as error:  # nothing fits
        assert "nothing fits" in str(error)


PLACED, UNDOMINATED = ours.placed, ours.undominated


def test_as_few_layers_as_fit_are_recomputed() -> None:
    cost = Cost(time=10, again=1, sync=0, state=10, kept=8, saved=3, extra=1, layers=2)
    room = {43: 0, 42: 1, 31: 1, 30: 2, 19: 2, 18: None}
    for memory, due in room.items():
        made = ours.placed(cost, 0, 2, Layout(), 4, memory)
        assert (made and made.recomputed) == due, memory
        if made:
            assert made.time == 10 + made.recomputed
            assert made.bytes <= memory


def test_costs_grow_with_work_and_shrink_with_gpus() -> None:
    model = MODELS["Llama 3.1 8B"]
    costs = Transformer(model, Cluster(64), 8192)
    one = costs.stage(0, costs.units, Layout(), 1)
    flops = 3 * 8192 * flops_per_token(model, 8192, causal=True)
    ideal = flops / (costs.cluster.rate * costs.cluster.share)
    assert ideal < one.time < 1.4 * ideal
    for layout in (Layout(tensor=2), Layout(context=2)):
        half = costs.stage(0, costs.units, layout, 1)
        assert one.time / 2 < half.time < one.time
        assert half.kept == one.kept / 2
    half = costs.stage(0, costs.units, Layout(data=2), 2)
    assert half.time == one.time  # twice the sequences on twice the GPUs
    assert half.state < one.state
    parts = [costs.stage(0, 17, Layout(), 1), costs.stage(17, 34, Layout(), 1)]
    assert sum(part.state for part in parts) == pytest.approx(one.state)
    assert sum(part.kept for part in parts) == pytest.approx(one.kept)
    assert sum(part.time for part in parts) >= one.time


def test_experts_are_divided_over_ranks() -> None:
    costs = Transformer(MODELS["Mixtral 8x7B"], Cluster(64), 4096)
    wide = costs.stage(0, costs.units, Layout(data=8), 8)
    split = costs.stage(0, costs.units, Layout(data=8, expert=8), 8)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert wide.state - split.state == pytest.approx(6 * experts * 7 / 8)  # but for Adam's
    assert split.sync < wide.sync
    ways = list(costs.layouts(8, 8))
    assert Layout(data=8, expert=8) in ways
    assert all(8 % one.expert == 0 and one.gpus <= 8 for one in ways)


@pytest.mark.exhaustive("`shelf run` holds its facts, and a large cluster")
def test_a_large_cluster_is_planned_in_seconds() -> None:
    cluster = Cluster(10_000)
    start = time.process_time()
    plan = ours.even(Transformer(MODELS["Llama 3.1 405B"], cluster, 8192), cluster, 2048)
    assert time.process_time() - start < 10
    assert plan.gpus <= 10_000
    assert plan.micro_batches * plan.sequences == 2048


def test_more_gpus_are_never_slower() -> None:
    times = []
    for gpus in (16, 24, 32, 64):
        cluster = Cluster(gpus)
        costs = Transformer(MODELS["Llama 3.1 8B"], cluster, 8192)
        times.append(ours.even(costs, cluster, 64).time)
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: calculator.calculate(gpus=1), "nothing fits 1 GPUs of 80 GB; give more"),
        (lambda: calculator.calculate(batch=0), "batch = 0 is below 1; give at least one"),
        (lambda: calculator.calculate(layouts=calculator.OWN), "64 GPUs and 82 units are too"),
        (lambda: ours.mixed(Transformer(MODELS["Llama 3.1 8B"], Cluster(0), 8), Cluster(0), 1),
         "gpus = 0 is below 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^parallel_planner: {message}") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_calculator_says_what_the_planner_says(facts: list[dict[str, Any]]) -> None:
    made = calculator.calculate()
    values = {row["name"]: row["value"] for row in made["rows"]}
    cluster = Cluster(64)
    due = ours.even(Transformer(MODELS["Llama 3.1 70B"], cluster, 8192), cluster, 256)
    assert values["time of a step"] == pytest.approx(due.time)
    assert values["fullest GPU"] <= made["plots"][0]["limit"]["value"]
    assert len(made["plots"][0]["series"][0]["points"]) == len(due.stages)
    names = {row["name"] for row in facts}
    names |= {goal["name"] for goal in cases.GOALS}  # a run that misses one fails as well
    assert {row["test"] for row in made["rows"]} <= names
    assert made["band"]["set"] == cases.MEGATRON
    own = calculator.calculate(model="Llama 3.1 8B", gpus=4, batch=8, layouts=calculator.OWN)
    assert own["rows"][0]["value"] > 0
    config = '{"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, '
    config += '"num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000, "ears": 2}'
    made = calculator.calculate(config=config, gpus=2, batch=4)
    assert "ears" in made["notes"][0]


def test_stages_that_are_alike_are_told_together() -> None:
    one = Stage(0, 2, Layout(tensor=2), 1, 1.0, 0.0, 0.0)
    rest = [one._replace(first=2, last=4), one._replace(first=4, last=7, recomputed=0)]
    assert ours.summed([one, *rest]) == [
        "2 x 2 units on tensor 2, 1 recomputed", "1 x 3 units on tensor 2",
    ]  # fmt: skip
    assert replace(ours.Plan((one,), 2, 1, 4.0)).bubble == 0.5


def test_costs_without_messages_prefer_layouts_that_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Transformer, "collective", lambda *_: 0.0)
    rows = cases.timed_facts()
    assert broken_facts(rows)
    assert max(row["value"] / row["expected"] for row in rows) > 1.1
