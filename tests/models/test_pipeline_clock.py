"""pipeline_schedules on the clock: messages, memory, uneven stages, searched orders, the form."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import load_mistaken_module

from snippets.pipeline_schedules import automatic as search
from snippets.pipeline_schedules import calculator, cases, clock, measured
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.automatic import automatic
from snippets.pipeline_schedules.clock import NOBODY, Run, Table, Times
from snippets.pipeline_schedules.schedule import Costs, Kind, Schedule
from warpshelf.contract import pictures as predicted
from warpshelf.contract import syntax, values

UNIT = Times(1, 1, 1)
BUILDERS: dict[str, Callable[[int, int, Costs | None], Schedule]] = {
    "GPipe": schedules.gpipe,
    "1F1B": schedules.one_f_one_b,
    "interleaved": lambda p, m, costs: schedules.interleaved(p, m, 3, costs),
    "ZB-H1": schedules.zero_bubble_h1,
    "ZB-H2": schedules.zero_bubble_h2,
    "ZB-V": schedules.zero_bubble_v,
    "DualPipe": schedules.dualpipe,
    "DualPipeV": schedules.dualpipe_v,
}
PLAIN = [name for name in BUILDERS if not name.startswith("Dual")]  # no pairs
COSTS = st.builds(Costs, *[st.integers(1, 6)] * 3)
NAMES = st.sampled_from(sorted(BUILDERS))
SIZES = st.sampled_from([(2, 4), (2, 6), (4, 8), (4, 12), (6, 12)])
TIMES = st.builds(Times, *[st.integers(1, 20).map(float)] * 3)
TRANSFER = st.sampled_from([0.0, 0.5, 3.0])


def to_times(costs: Costs) -> Times:
    return Times(costs.forward, costs.input, costs.weight)


@given(NAMES, SIZES, COSTS)
def test_without_messages_the_clock_agrees_with_the_table(
    name: str, sizes: tuple[int, int], costs: Costs
) -> None:
    """The executor that makes the table takes whole numbers and no messages."""
    peer = BUILDERS[name](*sizes, costs)
    found = clock.run(BUILDERS[name](*sizes, None), to_times(costs))
    assert found.makespan == peer.makespan
    assert found.held() == pytest.approx([peer.held(r) / peer.chunks for r in range(peer.ranks)])
    whole = peer.chunks * peer.copies * sizes[1] * math.fsum(vars(to_times(costs)).values())
    assert found.bubble() == pytest.approx(1 - whole / peer.copies / peer.makespan)


def find_spans(made: Run, kind: Kind) -> dict[tuple[int, int, int], tuple[float, float]]:
    """When each pass of a kind starts and ends, by micro-batch and place."""
    return {
        (one.micro_batch, one.rank, one.chunk): (end - length, end)
        for passes, end, length in zip(made.table.operations, made.ends, made.lengths, strict=True)
        for one in passes
        if one.kind is kind
    }


@given(NAMES, SIZES, TIMES, TRANSFER, st.booleans())
def test_no_pass_starts_before_its_message_has_come(
    name: str, sizes: tuple[int, int], times: Times, transfer: float, blocks: bool
) -> None:
    made = clock.run(BUILDERS[name](*sizes, None), times, transfer, blocks=blocks)
    forwards = find_spans(made, Kind.FORWARD)
    backwards = {**find_spans(made, Kind.BACKWARD), **find_spans(made, Kind.INPUT)}
    slack = 1e-9 * made.makespan
    for j in range(sizes[1]):
        way = sorted((when, place) for place, when in forwards.items() if place[0] == j)
        for (earlier, here), (later, there) in zip(way, way[1:], strict=False):
            wait = transfer if here[1] != there[1] else 0.0
            assert later[0] >= earlier[1] + wait - slack
            assert backwards[here][0] >= backwards[there][1] + wait - slack
    for rank in range(sizes[0]):  # and a rank does one thing at a time
        row = [i for i, of_rank in enumerate(made.table.rank) if of_rank == rank]
        for before, after in zip(row, row[1:], strict=False):
            assert made.ends[after] - made.lengths[after] >= made.ends[before] - slack


@given(NAMES, SIZES, TIMES, st.floats(0.1, 5))
def test_messages_cost_and_those_that_block_cost_no_less(
    name: str, sizes: tuple[int, int], times: Times, transfer: float
) -> None:
    table = Table(BUILDERS[name](*sizes, None))
    free, beside, blocked = (
        clock.run(table, times, wait, blocks=blocks).makespan
        for wait, blocks in ((0.0, False), (transfer, False), (transfer, True))
    )
    assert free < beside <= blocked + 1e-9 * blocked


@given(NAMES, SIZES, TIMES, TRANSFER, st.integers(0, 40))
def test_a_longer_pass_never_shortens_a_step(
    name: str, sizes: tuple[int, int], times: Times, transfer: float, which: int
) -> None:
    table = Table(BUILDERS[name](*sizes, None))
    lengths = table.lengths([times])
    waits = [transfer] * (table.slices - 1)
    before = max(table.ends(lengths, waits, False))
    lengths[which % len(lengths)] += 1.0
    assert before <= max(table.ends(lengths, waits, False)) <= before + 1.0 + 1e-9


@pytest.mark.parametrize("name", PLAIN)
def test_every_message_of_a_boundary_waits_for_its_own_time(name: str) -> None:
    """One micro-batch goes through alone, so each boundary counts twice."""
    table = Table(schedules.one_f_one_b(4, 1))
    made = clock.run(table, UNIT, [1.0, 10.0, 100.0])
    assert made.makespan == 4 * 3 + 2 * 111


def test_the_first_and_last_slice_may_take_longer() -> None:
    each = clock.uneven(UNIT, 4, Times(0.5, 0.25, 0), Times(1, 2, 3))
    assert each == [Times(1.5, 1.25, 1), UNIT, UNIT, Times(2, 3, 4)]
    # An even pipeline's last stage makes the step longer by its own excess, m times.
    even = clock.run(schedules.one_f_one_b(4, 8), UNIT).makespan
    last = clock.uneven(UNIT, 4, Times(0, 0, 0), Times(1, 1, 1))
    assert clock.run(schedules.one_f_one_b(4, 8), last).makespan == even + 8 * 3


def test_a_step_validated_later_is_that_of_the_longest_span() -> None:
    made = clock.run(schedules.zero_bubble_h2(4, 8), UNIT)
    assert (made.makespan, made.span) == (27, 24)
    assert made.step(2) == 29 and made.step(2, validated_later=True) == 26
    assert made.bubble(made.step(validated_later=True)) == 0


def test_steps_that_wait_for_nobody_follow_each_other_at_the_span() -> None:
    """Two steps in one table, ranks going from one to the next, end a span apart."""
    p, m, transfer = 4, 6, 0.25
    one = Table(schedules.zero_bubble_h2(p, m))
    lengths = one.lengths([Times(3, 2, 1)])
    waits = [transfer] * (p - 1)
    ends = one.ends(lengths, waits, False)
    span = Run(one, lengths, ends, 1.0).span
    free, last = [0.0] * p, max(ends)
    for step in range(6):
        done: dict[int, float] = {}
        for i, length in enumerate(lengths):
            need = one.needs[i]
            here = done[need] + transfer if need != NOBODY else 0.0
            done[i] = max(free[one.rank[i]], here) + length
            free[one.rank[i]] = done[i]
        if step:
            assert max(done.values()) - last <= span + 1e-9
        last = max(done.values())
    assert last == pytest.approx(max(ends) + 5 * span)


@given(
    st.integers(1, 6), st.integers(1, 16), TIMES, TRANSFER,
    st.sampled_from([1.0, 1.5, 2.0, 4.0]), st.sampled_from([0.0, 0.37, 1.0]), st.booleans(),
)  # fmt: skip
def test_searched_orders_are_whole_and_keep_to_their_memory(
    p: int, m: int, times: Times, transfer: float, most: float, kept: float, later: bool
) -> None:
    made = automatic(p, m, times, transfer, most * p, kept, validated_later=later)
    passes = {(one.kind, one.micro_batch, one.rank) for one in made.table.made.passes}
    assert len(made.ends) == len(passes) == 3 * p * m
    assert max(made.held()) <= most * p + 1e-6


@given(st.integers(2, 4), st.integers(0, 6), TRANSFER)
def test_the_search_finds_what_is_written_by_hand(p: int, more: int, transfer: float) -> None:
    """Times as profiled: a weight pass is the shortest."""
    m, times = 2 * p + more, Times(18, 18, 9)
    by_hand = clock.run(schedules.zero_bubble_h1(p, m), times, transfer)
    assert automatic(p, m, times, transfer, p).span <= by_hand.span + 1e-9
    by_hand = clock.run(schedules.zero_bubble_h2(p, m), times, transfer)
    assert automatic(p, m, times, transfer, 3 * p).span <= by_hand.span + 1e-9


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Times(-1, 1, 1), "forward = -1 is no time; give 0 or more"),
        (lambda: Times(1, math.nan, 1), "input = nan is no time"),
        (lambda: clock.run(schedules.gpipe(2, 2), [UNIT] * 3), "3 slices for a model of 2"),
        (lambda: clock.run(schedules.gpipe(2, 2), UNIT, [1, 1]), "2 boundaries for 2 slices"),
        (lambda: clock.run(schedules.gpipe(2, 2), UNIT, -1.0), "transfer = -1.0 is no time"),
        (lambda: clock.run(schedules.gpipe(2, 2), UNIT, kept=2), "kept = 2 is no share"),
        (lambda: automatic(4, 8, UNIT, limit=3), "limit = 3; give 1 or more of each"),
        (lambda: automatic(0, 8, UNIT), "p = 0, m = 8"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match="^pipeline_schedules: ") as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_predictions_keep_to_their_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the short runs; `shelf run` judges them all."""
    every = measured.rows

    def read_short_runs(name: str) -> list[dict[str, str]]:
        return [row for row in every(name) if int(row["micro_batches"]) <= 64]

    monkeypatch.setattr(measured, "rows", read_short_runs)
    rows = cases.predictions()
    assert predicted.predictions_problem(rows) is None
    assert predicted.goals_problem(cases.GOALS, rows) is None
    assert [predicted.judge_goal(goal, rows)[0] for goal in cases.GOALS] == [True] * 3
    fitted = [row["name"] for row in rows if row["fitted"] and row["set"] == measured.RATE]
    assert len(fitted) == 3  # one constant a model
    closed = next(one for one in predicted.errors_by_set(rows) if one.name == measured.CLOSED)
    assert closed.measures["worst"] > 0.4  # what executing the table is for


def test_the_published_interleaved_figure_leaves_out_waits() -> None:
    """In the authors' script the first rank waits for the first of each p micro-batches alone."""
    [setting] = [s for s in measured.settings() if (s.model, s.micro_batches) == ("1.5B", 24)]
    table = Table(schedules.interleaved(8, 24, 3))
    for i, (one, *_) in enumerate(table.operations):
        into = 0 if one.kind is Kind.FORWARD else 7
        if one.rank == into and one.micro_batch % 8:
            table.needs[i] = NOBODY
    made = clock.run(table, setting.profiled.times(1 / 3), setting.transfer_ms)
    assert made.bubble() == pytest.approx(0.1055, abs=5e-5)
    assert measured.idle(setting, "1F1B-I") > 0.108


@pytest.mark.parametrize(
    ("find", "replace"),
    [
        ("free, here = end[last], end[need] + wait", "free, here = end[last], end[need]"),
        ("free if free > here else here", "here if free > here else free"),
        ("length if need == NOBODY else length + wait", "length"),
        ("source = slice_ - 1 if forward else slice_ + 1", "source = slice_ - 1"),
        ("(self.span if validated_later else self.makespan)", "self.makespan"),
        ("self.input + other.input", "self.input"),
    ],
)
def test_a_mistake_breaks_a_fact(find: str, replace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = load_mistaken_module(clock, find, replace)
    monkeypatch.setattr(cases, "clock", wrong)
    monkeypatch.setattr(cases, "Times", wrong.Times)
    monkeypatch.setattr(search, "clock", wrong)
    monkeypatch.setattr(cases.measured, "searched", lambda: iter(()))
    try:
        rows = cases.clock_facts()
    except KeyError:
        return  # it waits for what was never made
    assert not all(values.fact_holds(row) for row in rows)


def test_without_the_look_ahead_the_search_is_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(18.5, 18.1, 9.3)
    good = automatic(8, 32, times, 0.6, kept=0.37).span
    for find, replace in (
        ("(p - 1 - rank) * trip / forward) - fewer", "0.0) - fewer"),
        ("late or back - over", "back == begun or back - over"),
    ):
        wrong = load_mistaken_module(search, find, replace)
        assert wrong.automatic(8, 32, times, 0.6, kept=0.37).span > 1.01 * good


def test_the_models_need_the_standard_library_alone() -> None:
    for module in (clock, search, calculator):
        parsed = syntax.parse_python(Path(inspect.getfile(module)))
        local = [name for name in parsed.imports if name.startswith("snippets")]
        assert syntax.standard_library_only(set(parsed.imports) - set(local))


class TestCalculator:
    def test_defaults_are_valid_and_every_input_is_described(self) -> None:
        names = inspect.signature(calculator.calculate).parameters
        assert list(names) == ["inputs"]
        found = calculator.calculate()
        assert found == calculator.calculate(
            **{one["name"]: one["default"] for one in calculator.INPUTS}
        )
        for one in calculator.INPUTS:
            assert one["help"].endswith(".") and one["label"] and one["group"]

    @pytest.mark.parametrize("name", [*calculator.BUILDERS, calculator.SEARCHED])
    def test_each_schedule_gives_the_step_of_the_clock(self, name: str) -> None:
        found = calculator.calculate(schedule=name, transfer=0.0)
        step, idle, *_ = (row["value"] for row in found["rows"])
        assert step == pytest.approx(240 / (1 - idle / 100))
        bars = dict(found["plots"][1]["series"][0]["points"])
        assert bars[name] == step and len(bars) == 9
        drawn = [point for one in found["plots"][0]["series"] for point in one["points"]]
        assert max(end for _, _, end, _ in drawn) == step

    def test_rows_name_facts_that_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cases.measured, "searched", lambda: iter(()))
        facts = {row["name"] for row in cases.facts()}
        for row in calculator.calculate()["rows"]:
            assert row["test"] in facts, row["test"]

    def test_its_band_is_of_a_set_that_is_held_to_it(self) -> None:
        band = calculator.calculate()["band"]
        [goal] = [goal for goal in cases.GOALS if band["set"] in goal["sets"]]
        assert goal["within"] == band["within"]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"schedule": "PipeDream"}, "no schedule 'PipeDream'; there are GPipe"),
            ({"stages": 0}, "stages = 0; give 1 to 128"),
            ({"forward": -1.0}, "forward = -1.0; give 0"),
            ({"forward": math.nan}, "forward = nan; give 0"),
            ({"forward": 0.0, "input": 0.0, "weight": 0.0}, "all passes take 0 ms"),
            ({"stages": 128, "micro_batches": 4096}, "operations exceed 20000"),
            ({"schedule": "ZB-V", "micro_batches": 7}, "m = 7 must be 8 or more"),
            ({"schedule": "searched", "limit": 2.0}, "limit = 2.0"),
            ({"rate": 1.0}, "no input 'rate'"),
        ],
    )
    def test_what_cannot_be_is_said_in_a_line(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match="^pipeline") as caught:
            calculator.calculate(**given)
        assert said in str(caught.value) and "\n" not in str(caught.value)

    def test_a_large_step_is_told_without_a_timeline(self) -> None:
        found = calculator.calculate(stages=16, micro_batches=256)
        assert [one["kind"] for one in found["plots"]] == ["bars"]
