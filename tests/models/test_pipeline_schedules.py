"""pipeline_schedules: the rules of pipelines, the published formulas, and mistakes they see."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts, load_mistaken_module

from snippets.pipeline_schedules import cases, schedule
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.schedule import (
    Costs,
    Kind,
    Pass,
    Schedule,
    Task,
    timed,
)
from warpshelf.contract import syntax, values
from warpshelf.contract.pictures import timelines_problem

RANKS = st.integers(1, 6)
BATCHES = st.integers(1, 14)
COSTS = st.builds(Costs, *[st.integers(1, 6)] * 3)
GRADIENTS = (Kind.BACKWARD, Kind.INPUT)


@st.composite
def mild_costs(draw) -> Costs:
    """Costs under which a weight pass that is put off stands in nobody's way."""
    forward, inputs = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return Costs(forward, inputs, draw(st.integers(1, min(forward, inputs))))


@st.composite
def any_schedule(draw) -> tuple[Schedule, list[list[tuple[int, int]]]]:
    """A schedule, and the ranks and chunks that each micro-batch must go through in order."""
    p, m, costs = draw(RANKS), draw(BATCHES), draw(COSTS)
    chain = [[(rank, 0) for rank in range(p)]] * m
    build = draw(st.sampled_from([*BUILDERS]))
    if build is schedules.interleaved:
        v, groups = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        path = [(rank, chunk) for chunk in range(v) for rank in range(p)]
        return build(p, p * groups, v, costs), [path] * (p * groups)
    if build is schedules.dualpipe:
        p = 2 * draw(st.integers(1, 4))
        m = 2 * p + 2 * draw(st.integers(0, 5))
        ways = [(rank, 0) for rank in range(p)], [(p - 1 - rank, 1) for rank in range(p)]
        return build(p, m, costs), [ways[j % 2] for j in range(m)]
    if build in (schedules.dualpipe_v, schedules.zero_bubble_v):
        m = 2 * p + draw(st.integers(0, 5))
        path = [*chain[0], *((rank, 1) for rank in reversed(range(p)))]
        return build(p, m, costs), [path] * m
    return build(p, m, costs), chain


BUILDERS: tuple[Callable[..., Schedule], ...] = (
    schedules.gpipe,
    schedules.one_f_one_b,
    schedules.interleaved,
    schedules.zero_bubble_h1,
    schedules.zero_bubble_h2,
    schedules.zero_bubble_v,
    schedules.dualpipe,
    schedules.dualpipe_v,
)


def index_passes(schedule: Schedule) -> dict[tuple[Kind, int, int, int], Pass]:
    """Passes by kind, micro-batch, rank and chunk; each may stand there once."""
    table: dict[tuple[Kind, int, int, int], Pass] = {}
    for one in schedule.passes:
        key = (one.kind, one.micro_batch, one.rank, one.chunk)
        assert key not in table
        table[key] = one
    return table


@given(any_schedule())
def test_every_micro_batch_passes_every_stage_once_each_way(made) -> None:
    schedule, paths = made
    kinds = defaultdict(list)
    for kind, j, rank, chunk in index_passes(schedule):
        kinds[j, rank, chunk].append(kind)
    assert set(kinds) == {(j, *place) for j, path in enumerate(paths) for place in path}
    whole, split = [Kind.BACKWARD, Kind.FORWARD], [Kind.FORWARD, Kind.INPUT, Kind.WEIGHT]
    assert all(sorted(each) in (whole, split) for each in kinds.values())


@given(any_schedule())
def test_no_pass_starts_before_what_it_needs_is_done(made) -> None:
    schedule, paths = made
    table = index_passes(schedule)

    def find_gradient_pass(j: int, place: tuple[int, int]) -> Pass:
        (one,) = [table[kind, j, *place] for kind in GRADIENTS if (kind, j, *place) in table]
        return one

    for j, path in enumerate(paths):
        for place in path:
            assert find_gradient_pass(j, place).start >= table[Kind.FORWARD, j, *place].end
            if (Kind.WEIGHT, j, *place) in table:
                assert table[Kind.WEIGHT, j, *place].start >= find_gradient_pass(j, place).end
        for here, there in zip(path, path[1:], strict=False):
            assert table[Kind.FORWARD, j, *there].start >= table[Kind.FORWARD, j, *here].end
            assert find_gradient_pass(j, here).start >= find_gradient_pass(j, there).end


@given(any_schedule())
def test_a_rank_does_one_thing_at_a_time_or_a_pair_of_opposites(made) -> None:
    schedule, _ = made
    for rank in range(schedule.ranks):
        alone = {one for one in schedule.of(rank) if not one.paired}
        for a, b in combinations(schedule.of(rank), 2):
            if a.end <= b.start or b.end <= a.start:
                continue
            assert (a.start, a.end) == (b.start, b.end) and not alone & {a, b}
            assert {a.kind, b.kind} == {Kind.FORWARD, Kind.BACKWARD} and a.chunk != b.chunk


@given(any_schedule())
def test_passes_take_what_they_cost_and_idle_time_is_the_rest(made) -> None:
    schedule, paths = made
    costs = schedule.costs
    for one in schedule.passes:
        pair = costs.forward + costs.backward
        assert one.length == (pair if one.paired else costs.of(one.kind))
    for rank in range(schedule.ranks):
        visits = sum(rank == place for path in paths for place, _ in path)
        work = visits * (costs.forward + costs.input + costs.weight)
        assert schedule.idle(rank) == schedule.makespan - work >= 0
    assert min(one.start for one in schedule.passes) == 0


@given(RANKS, BATCHES, COSTS)
def test_gpipe_holds_every_micro_batch_and_idles_p_minus_1(p: int, m: int, costs: Costs) -> None:
    made = schedules.gpipe(p, m, costs)
    assert made.makespan == (m + p - 1) * (costs.forward + costs.backward)
    assert made.bubble == made.idle(0) and made.peak == m
    assert [made.held(rank) for rank in range(p)] == [m] * p


@given(RANKS, BATCHES, COSTS)
def test_1f1b_takes_as_long_and_holds_p_minus_i(p: int, m: int, costs: Costs) -> None:
    made = schedules.one_f_one_b(p, m, costs)
    assert made.makespan == (m + p - 1) * (costs.forward + costs.backward)
    assert made.bubble == made.idle(0)
    assert [made.held(rank) for rank in range(p)] == [min(p - rank, m) for rank in range(p)]


@given(RANKS, st.integers(1, 4), st.integers(1, 4), COSTS)
def test_interleaving_divides_the_bubble_by_v(p: int, groups: int, v: int, costs: Costs) -> None:
    m = p * groups
    made = schedules.interleaved(p, m, v, costs)
    # In the time of a whole stage, v chunks, this is (m + (p - 1) / v) * (F + B).
    assert made.makespan == (m * v + p - 1) * (costs.forward + costs.backward)
    most = [min(m * v, 2 * (p - 1 - rank) + (v - 1) * p + 1) for rank in range(p)]
    assert [made.held(rank) for rank in range(p)] == most
    assert most[0] <= v * p + p - 1


@given(RANKS, st.integers(1, 4))
def test_one_chunk_is_as_long_as_1f1b(p: int, groups: int) -> None:
    plain = schedules.one_f_one_b(p, p * groups)
    assert schedules.interleaved(p, p * groups, 1).makespan == plain.makespan


@given(RANKS, st.integers(0, 10), mild_costs())
def test_zb_h1_idles_less_and_holds_no_more_than_p(p: int, more: int, costs: Costs) -> None:
    m = p + more
    made = schedules.zero_bubble_h1(p, m, costs)
    bubble = (p - 1) * (costs.forward + costs.backward - 2 * costs.weight)
    assert {made.idle(rank) for rank in range(p)} == {bubble}
    assert made.bubble == bubble and made.peak == p


@given(RANKS, st.integers(0, 10), mild_costs())
def test_zb_h2_idles_least_and_holds_the_most(p: int, more: int, costs: Costs) -> None:
    made = schedules.zero_bubble_h2(p, 2 * p - 1 + more, costs)
    assert made.bubble == (p - 1) * (costs.forward + costs.input - 2 * costs.weight)
    assert {made.held(rank) for rank in range(p)} == {2 * p - 1}


@given(RANKS, st.integers(0, 10), st.integers(1, 6))
def test_zb_v_has_no_bubble_where_all_passes_take_as_long(p: int, more: int, time: int) -> None:
    m = 2 * p + more
    made = schedules.zero_bubble_v(p, m, Costs(time, time, time))
    assert made.bubble == 0 and made.copies == 1
    assert {made.held(rank) for rank in range(p)} == {2 * p}  # halves of a stage
    assert made.makespan == (6 * m + p - 1) * time  # no sooner: the last rank starts so late


@given(any_schedule())
def test_the_bubble_leaves_out_the_time_before_a_rank_starts_and_after_it_ends(made) -> None:
    schedule, _ = made
    spans = [schedule.of(rank) for rank in range(schedule.ranks)]
    outside = [
        min(one.start for one in row) + schedule.makespan - max(one.end for one in row)
        for row in spans
    ]
    inside = [schedule.idle(rank) - outside[rank] for rank in range(schedule.ranks)]
    assert min(inside) >= 0 and schedule.bubble == max(inside)


@given(st.integers(1, 5), st.integers(0, 6), st.integers(1, 6), st.data())
def test_dualpipe_idles_and_holds_what_its_authors_say(
    half: int, more: int, forward: int, data: st.DataObject
) -> None:
    p, m = 2 * half, 4 * half + 2 * more
    costs = Costs(forward, forward, data.draw(st.integers(1, forward)))
    made = schedules.dualpipe(p, m, costs)
    pair = costs.forward + costs.backward
    bubble = (p // 2 - 1) * (pair + costs.backward - 3 * costs.weight)
    assert {made.idle(rank) for rank in range(p)} == {bubble}
    assert made.bubble == bubble and made.peak == p + 1 and made.copies == 2


@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 6), st.data())
def test_dualpipe_v_idles_and_holds_as_dualpipe_on_twice_the_ranks(
    p: int, more: int, forward: int, data: st.DataObject
) -> None:
    m = 2 * p + more
    costs = Costs(forward, forward, data.draw(st.integers(1, forward)))
    made, twice = schedules.dualpipe_v(p, m, costs), schedules.dualpipe(2 * p, 2 * m, costs)
    assert made.makespan == twice.makespan
    assert [made.idle(r) for r in range(p)] == [twice.idle(r) for r in range(p)]
    assert max(made.held(rank) for rank in range(p)) == 2 * p + 1


def test_dualpipe_overlaps_most_of_its_passes() -> None:
    made = schedules.dualpipe(8, 20)
    paired = [one for one in made.of(0) if one.paired]
    assert len(paired) == 2 * (2 * (10 - 8 + 1) + 3)


@given(RANKS, st.integers(0, 10), COSTS)
def test_a_long_weight_pass_costs_zb_h1_its_excess_on_every_hop(
    p: int, more: int, costs: Costs
) -> None:
    m = p + more
    promised = m * (costs.forward + costs.backward) + (p - 1) * (costs.forward + costs.input)
    promised -= (p - 1) * costs.weight
    excess = max(0, costs.weight - min(costs.forward, costs.input))
    assert schedules.zero_bubble_h1(p, m, costs).makespan == promised + (p - 1) * excess


def test_too_few_micro_batches_leave_zb_h1_more_idle_time() -> None:
    assert schedules.zero_bubble_h1(4, 2).makespan > 2 * 3 + 3


@pytest.mark.parametrize(
    ("build", "sizes", "said"),
    [
        (schedules.gpipe, (0, 4), "p = 0"),
        (schedules.one_f_one_b, (4, 0), "m = 0"),
        (schedules.zero_bubble_h1, (4, -1), "m = -1"),
        (schedules.interleaved, (4, 6), "m = 6 must be a multiple of p = 4"),
        (schedules.interleaved, (4, 8, 0), "v = 0"),
        (schedules.dualpipe, (3, 8), "p = 3 must be even"),
        (schedules.dualpipe, (0, 8), "p = 0"),
        (schedules.dualpipe, (4, 9), "m = 9 must be even"),
        (schedules.dualpipe, (4, 6), "8 or more"),
        (schedules.zero_bubble_v, (0, 6), "p = 0"),
        (schedules.zero_bubble_v, (4, 7), "m = 7 must be 8 or more"),
        (schedules.dualpipe_v, (0, 6), "p = 0"),
        (schedules.dualpipe_v, (4, 7), "m = 7 must be 8 or more"),
    ],
)
def test_impossible_sizes_are_refused(build, sizes: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build(*sizes)


def build_chain_schedules() -> Iterator[Schedule]:
    yield schedules.gpipe(4, 8)
    yield schedules.one_f_one_b(4, 8)
    yield schedules.zero_bubble_h1(4, 8)
    yield schedules.dualpipe(4, 8)


def test_the_schedules_shorten_the_same_work_in_turn() -> None:
    assert [made.makespan for made in build_chain_schedules()] == [33, 33, 27, 26]
    assert [made.idle(0) for made in build_chain_schedules()] == [9, 9, 3, 2]
    halves = schedules.interleaved(4, 8, 2)
    assert halves.makespan == 57  # in halves of a stage
    assert schedules.dualpipe_v(4, 8).makespan == 54


ONE = [[(0, 0)]]  # the way of one micro-batch over one rank


def forward_tasks(j: int, chunk: int = 0) -> tuple[Task, ...]:
    return (Task(Kind.FORWARD, j, chunk),)


def backward_tasks(j: int, chunk: int = 0) -> tuple[Task, ...]:
    return (Task(Kind.BACKWARD, j, chunk),)


def list_pass_spans(made: Schedule) -> list[tuple[int, str, int, int]]:
    return [
        (one.rank, f"{one.kind.value}{one.micro_batch}", one.start, one.end) for one in made.passes
    ]


def test_a_rank_waits_for_its_input_and_for_itself() -> None:
    chain = [[(0, 0), (1, 0)]] * 2
    orders = [[forward_tasks(0), forward_tasks(1), backward_tasks(0), backward_tasks(1)]] * 2
    made = timed("two", orders, chain, Costs(2, 1, 1))
    assert list_pass_spans(made) == [
        (0, "F0", 0, 2),
        (0, "F1", 2, 4),
        (1, "F0", 2, 4),
        (1, "F1", 4, 6),
        (1, "B0", 6, 8),
        (0, "B0", 8, 10),
        (1, "B1", 8, 10),
        (0, "B1", 10, 12),
    ]
    assert made.makespan == 12 and [made.idle(0), made.idle(1)] == [4, 4]


def test_halves_of_a_backward_pass_take_its_time_and_hold_until_the_second_is_done() -> None:
    order = [
        forward_tasks(0),
        (Task(Kind.INPUT, 0),),
        forward_tasks(1),
        backward_tasks(1),
        (Task(Kind.WEIGHT, 0),),
    ]
    made = timed("split", [order], ONE * 2, Costs(1, 2, 3))
    assert [one.length for one in made.passes] == [1, 2, 1, 5, 3]
    assert made.held(0) == 2
    whole = timed(
        "whole",
        [[forward_tasks(0), backward_tasks(0), forward_tasks(1), backward_tasks(1)]],
        ONE * 2,
        None,
    )
    assert whole.held(0) == 1


def test_a_pair_takes_the_time_of_both_and_counts_once() -> None:
    first = [forward_tasks(0), (*forward_tasks(1, 1), *backward_tasks(0)), backward_tasks(1, 1)]
    made = timed("pair", [first], [[(0, 0)], [(0, 1)]], Costs(1, 1, 1))
    pair = [one for one in made.passes if one.paired]
    assert [(one.start, one.length) for one in pair] == [(1, 3), (1, 3)]
    assert made.makespan == 6 and made.idle(0) == 0


def test_an_order_that_can_never_go_on_is_refused() -> None:
    with pytest.raises(ValueError, match=r"knot: ranks \[0\] wait for each other"):
        timed("knot", [[backward_tasks(0), forward_tasks(0)]], ONE, None)


def test_facts_hold() -> None:
    rows = cases.table_facts()
    assert broken_facts(rows) == []
    assert len({row["name"] for row in rows}) == len(rows)
    assert all(values.fact_problem(row) is None and row["tolerance"] == 0 for row in rows)


def test_facts_cover_every_schedule_at_every_size() -> None:
    for p, m in cases.SIZES:
        names = {made.name for made, _ in cases.figures(p, m)}
        assert len(names) == len(BUILDERS) + len(cases.CHUNKS) - 1


def fail_facts(made_anew: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str] | None:
    """The facts that break with one of the two modules made anew; None if ranks get stuck."""
    if hasattr(made_anew, "gpipe"):
        monkeypatch.setattr(cases, "schedules", made_anew)
    else:
        for name in ("Costs", "Kind", "Schedule", "Task", "timed"):
            monkeypatch.setattr(schedules, name, getattr(made_anew, name))
        for name in ("UNEVEN", "PAIRED"):
            costs = made_anew.Costs(**vars(getattr(cases, name)))
            monkeypatch.setattr(cases, name, costs)
    try:
        return broken_facts(cases.table_facts())
    except (ValueError, IndexError):  # its ranks wait for each other, or for what never comes
        return None


@pytest.mark.parametrize("module", [schedule, schedules])
def test_without_a_mistake_none_breaks(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "from __future__ import annotations"
    assert fail_facts(load_mistaken_module(module, line, line), monkeypatch) == []


@pytest.mark.parametrize(
    ("find", "replace", "fact"),
    [
        # who waits for whom
        ("if step + 1 < steps else []", "if step + 2 < steps else []", "bubble"),
        ("length = sum(costs.of(task.kind) for task in slot)", "length = 1", "bubble"),
        # what is held, and how long
        ("in (Kind.BACKWARD, Kind.WEIGHT)", "in (Kind.BACKWARD, Kind.INPUT)", "last rank"),
        ("sorted(changes):", "sorted(changes, key=lambda c: (c[0], -c[1])):", "peak"),
        ("range(self.ranks))) / self.chunks", "range(self.ranks)))", "Interleaved"),
        # the orders
        ("ahead = min(p - 1 - rank, m)", "ahead = min(p - rank, m)", "1F1B"),
        ("ahead = min(2 * (p - 1 - rank)", "ahead = min(p - 1 - rank", "Interleaved"),
        ("for chunk in range(v)\n        for m", "for chunk in [0] * v\n        for m", "bubble"),
        ("if j >= reach * rank:", "if j >= rank:", "ZB-H2"),
        ("if j >= reach * rank:", "if True:", "ZB-H1"),
        ('"Zero bubble, ZB-H2", 2,', '"Zero bubble, ZB-H2", 1,', "ZB-H2"),
        ("if turn >= p - rank:", "if turn > p - rank:", "ZB-V"),
        ("range(2 * (p - rank) - 1)", "range(2 * (p - rank))", "ZB-V"),
        ("split=turn > edge", "split=False", "DualPipe"),
        ('eV", orders, [path] * m, costs, 2)', 'eV", orders, [path] * m, costs)', "copies"),
    ],
)  # fmt: skip
def test_a_mistake_breaks_a_fact(
    find: str, replace: str, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = schedules if find in inspect.getsource(schedules) else schedule
    failing = fail_facts(load_mistaken_module(module, find, replace), monkeypatch)
    assert failing is None or any(fact in name for name in failing), failing


def test_timelines_are_those_of_the_schedules() -> None:
    rows = cases.timelines()
    assert timelines_problem(rows) is None
    made = schedules.interleaved(4, 8, 2)
    [row] = [row for row in rows if row["name"] == "interleaved"]
    spans = [(one["rank"], one["start"], one["end"]) for one in row["passes"]]
    assert spans == [(one.rank, one.start, one.end) for one in made.passes]
    assert row["held"] == [made.held(rank) / 2 for rank in range(4)]
    assert row["unit"] == 2 and row["other"] == "second chunk"


def test_it_needs_the_standard_library_alone() -> None:
    folder = Path(schedules.__file__).parent
    for name in ("pipeline_schedules.py", "schedule.py"):
        imports = syntax.parse_python(folder / name).imports
        own = {one for one in imports if one.startswith("snippets.")}
        assert syntax.standard_library_only(imports.keys() - own)


def test_demo_shows_every_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    schedules.demo()
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 30
    assert all(made.name in shown for made, _ in cases.figures(4, 8) if "chunks" not in made.name)
