"""What sending costs, and the steps and orders of rings."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.comm_model import cases as comm_model_cases
from snippets.comm_model import comm_model as model
from snippets.comm_model.comm_model import MACHINES, Group, Machine, Routing
from snippets.ring_orders import cases as ring_orders_cases
from snippets.ring_orders import ring_orders as orders
from snippets.ring_steps import cases as ring_steps_cases
from snippets.ring_steps import ring_steps as steps
from snippets.ring_steps.ring_steps import Collective

# comm_model: formulas are executed counts, rates are near published ones, mistakes show.


NAMES = st.sampled_from(sorted(MACHINES))
SIZES = st.floats(0, 1e11)


@st.composite
def rank_groups(draw) -> Group:
    machine = MACHINES[draw(NAMES)]
    inside = draw(st.integers(1, machine.gpus))
    return Group(machine, inside * draw(st.integers(1, 64)), inside)


def prediction_errors(of: str = "") -> list[float]:
    rows = [row for row in comm_model_cases.predictions() if of in row["set"] and not row["fitted"]]
    return sorted(abs(row["predicted"] / row["published"] - 1) for row in rows)


def test_every_fact_holds_and_has_a_name_of_its_own() -> None:
    names = [row["name"] for row in comm_model_cases.facts()]
    assert len(names) == len(set(names)) >= 35
    assert broken_facts(comm_model_cases.facts()) == []


@pytest.mark.parametrize(
    ("name", "wrong", "seen"),
    [
        # The array instead of what a ring sends of it; one half instead of two.
        ("ring_bytes", lambda collective, size, ranks: size, "bytes that a rank sends"),
        ("ring_bytes", lambda collective, size, ranks: (ranks - 1) * size / ranks, "all-reduce"),
        # Every ring leaves by all ports of the node.
        ("Machine.network", property(lambda self: self.ports * self.port), "through a port"),
        # As if no two experts of a token shared a place.
        ("Routing.reached", lambda self, places, group: self.chosen, "that a token reaches"),
        ("SWITCH", (0.0, 0.0), ""),
    ],
)
def test_a_usual_mistake_is_seen(
    name: str, wrong: object, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(MACHINES["H100"], 512, 8)
    before = model.best("all_reduce", 1e6, group).algorithm
    monkeypatch.setattr(f"{model.__name__}.{name}", wrong)
    if seen:
        assert any(seen in one for one in broken_facts(comm_model_cases.facts()))
    else:  # without its latency the switch would win where trees do
        assert (before, model.best("all_reduce", 1e6, group).algorithm) == ("trees", "switch")


def test_predictions_reach_their_goals() -> None:
    for goal in comm_model_cases.GOALS:
        found = sorted(error for one in goal["sets"] for error in prediction_errors(one))
        assert len(found) >= 6
        middle = found[(len(found) - 1) // 2]
        assert middle <= goal.get("median", 1) and found[-1] <= goal.get("worst", 1)
        within = sum(error <= goal.get("within", 1) for error in found)
        assert within >= goal.get("share", 0) * len(found)


def test_a_constant_that_is_off_misses_the_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    right = prediction_errors("DeepEP")[-1]
    monkeypatch.setattr(model, "RING", 1.0)  # the whole rate of a link
    assert prediction_errors("DeepEP")[-1] > 0.1 >= right


def test_what_was_fitted_is_a_hundred_with_its_own_rows() -> None:
    fitted = [row for row in comm_model_cases.predictions() if row["fitted"]]
    assert {row["name"].split(",")[0] for row in fitted} == {"A100"}
    mean = sum(row["predicted"] / row["published"] - 1 for row in fitted) / len(fitted)
    assert abs(mean) < 0.005


@given(rank_groups(), SIZES, SIZES, st.sampled_from(model.COLLECTIVES))
def test_more_bytes_take_no_less_time(group: Group, one: float, two: float, what: str) -> None:
    small, large = sorted((one, two))
    assert model.best(what, small, group).total <= model.best(what, large, group).total
    assert model.all_to_all(small, group).total <= model.all_to_all(large, group).total


@given(rank_groups(), SIZES)
def test_an_all_reduce_takes_its_two_halves_or_less(group: Group, size: float) -> None:
    halves = [model.best(what, size, group).total for what in ("reduce_scatter", "all_gather")]
    assert model.best("all_reduce", size, group).total <= sum(halves) * (1 + 1e-12)


@given(rank_groups(), st.floats(1e6, 1e11))
def test_no_ring_beats_its_links(group: Group, size: float) -> None:
    if group.ranks == 1:
        return
    way = model.best("all_gather", size, group)
    rate = model.bus_rate("all_gather", size, way.total, group.ranks)
    links = group.machine.nvlink if group.nodes == 1 else group.inside * group.machine.network
    assert 0 < rate < links


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4))
def test_a_token_reaches_at_most_as_many_places_as_experts(
    chosen: int, most: int, nodes: int
) -> None:
    group = Group(MACHINES["H800"], 8 * nodes, 8)
    routing = Routing(64 * nodes, chosen, most)
    on = min(most, nodes)
    few, many = routing.reached(on, group), routing.reached(8 * on, group)
    assert 1 - 1e-9 <= few <= many + 1e-9 <= chosen + 2e-9


def test_more_ranks_in_a_node_bring_more_ports() -> None:
    times = [
        model.best("reduce_scatter", 1e9, Group(MACHINES["H100"], 64, inside)).transfer
        for inside in (1, 2, 4)
    ]
    assert times == pytest.approx([times[0], times[0] / 2, times[0] / 4])


def test_small_arrays_wait_and_large_ones_move() -> None:
    group = Group(MACHINES["H100"], 512, 8)
    small, large = (model.best("all_reduce", size, group) for size in (1e3, 1e10))
    assert (small.algorithm, small.protocol) == ("trees", "LL") and small.latency > small.transfer
    assert large.protocol == "Simple" and large.transfer > 10 * large.latency
    flat = replace(group, machine=replace(group.machine, adds=0.0))
    assert model.best("all_reduce", 1e10, flat).total > large.total


def test_one_rank_needs_no_time() -> None:
    alone = Group(MACHINES["A100"], 1, 1)
    assert model.best("all_reduce", 1e9, alone).total == 0


def test_messages_between_nodes_take_the_network() -> None:
    machine = MACHINES["A100"]
    near, far = (model.send(1e9, machine, same).transfer for same in (True, False))
    assert far / near == pytest.approx(machine.nvlink / machine.port)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group(MACHINES["A100"], 16, 16), "16 of 16 ranks in a node of 8; give 1 to 8"),
        (lambda: Group(MACHINES["A100"], 12, 8), "12 ranks, 8 in each node: use a divisor"),
        (lambda: Group(MACHINES["A100"], 0, 1), "1 of 0 ranks"),
        (lambda: model.best("gather", 1, Group(MACHINES["A100"], 8, 8)), "no collective 'gather'"),
        (lambda: model.best("all_reduce", -1, Group(MACHINES["A100"], 8, 8)), "below 0"),
        (
            lambda: model.dispatch(1, Routing(8, 9, 1), Group(MACHINES["A100"], 8, 8)),
            "9 of 8 experts over 8 ranks: give each rank as many",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=f"^comm_model: .*{message}"):
        make()


def test_comm_model_it_imports_the_standard_library_alone() -> None:
    text = Path(model.__file__).read_text(encoding="utf-8")
    found = {
        line.split()[1].split(".")[0]
        for line in text.splitlines()
        if line.startswith(("from ", "import "))
    }
    assert found <= sys.stdlib_module_names
    assert isinstance(MACHINES["A100"], Machine)


# ring_steps: sums come out whole, counts are the formulas', and a lost message is seen.


RING_STEPS_RANKS = st.integers(1, 12)
POWERS = st.sampled_from((1, 2, 4, 8, 16))


@st.composite
def any_all_reduce(draw) -> Collective:
    """Any of the five ways, of any size."""
    build = draw(st.sampled_from((steps.ring, steps.doubling, steps.halving, "trees")))
    if build in (steps.doubling, steps.halving):
        return build(draw(POWERS))
    if build is steps.ring:
        return steps.ring(draw(RING_STEPS_RANKS))
    trees = draw(st.sampled_from((steps.tree, steps.two_trees)))
    return trees(draw(RING_STEPS_RANKS), draw(st.integers(1, 5)))


@given(any_all_reduce())
def test_every_rank_ends_with_every_part_once(made: Collective) -> None:
    ends = made.run(steps.letters(made.ranks, made.chunks))
    parts = Counter(str(rank) for rank in range(made.ranks))
    digits = Counter("".join(parts))
    assert all(Counter(chunk) == digits for rank in ends[-1] for chunk in rank)
    assert len(ends) == len(made.steps) + 1


@given(any_all_reduce(), st.data())
def test_a_message_lost_is_a_part_lost(made: Collective, data: st.DataObject) -> None:
    places = [(i, j) for i, step in enumerate(made.steps) for j in range(len(step))]
    if not places:
        return
    i, j = data.draw(st.sampled_from(places))
    step = tuple(one for k, one in enumerate(made.steps[i]) if k != j)
    broken = replace(made, steps=(*made.steps[:i], step, *made.steps[i + 1 :]))
    assert ring_steps_cases.whole(made) == made.ranks > ring_steps_cases.whole(broken)


@given(any_all_reduce())
def test_a_rank_sends_one_message_and_gets_one_in_a_step(made: Collective) -> None:
    for step in made.steps:
        assert step
        for ends in ([one.source for one in step], [one.target for one in step]):
            assert len(set(ends)) == len(ends)
        assert all(one.source != one.target for one in step)


@given(RING_STEPS_RANKS, st.integers(0, 10_000))
def test_a_ring_sends_the_least_there_is(p: int, n: int) -> None:
    sent = steps.ring(p).sent(n)
    assert sum(sent) == 2 * (p - 1) * n  # as each part must be added and each sum told
    assert max(sent) - min(sent) <= 2  # chunks differ by an element
    assert steps.ring(p).hops == len(steps.ring(p).steps) == 2 * (p - 1)


@given(RING_STEPS_RANKS, st.integers(1, 500), st.floats(0, 1e-4), st.floats(1e6, 1e12))
def test_the_time_of_a_ring_is_its_formula(p: int, each: int, latency: float, rate: float) -> None:
    n = p * each
    formula = 2 * (p - 1) * latency + 2 * (p - 1) / p * n / rate
    assert steps.ring(p).time(n, latency, rate) == pytest.approx(formula)


@given(RING_STEPS_RANKS)
def test_halves_of_an_all_reduce_stand_alone(p: int) -> None:
    scattered = steps.reduce_scatter(p).run(steps.letters(p, p))[-1]
    every = Counter("".join(map(str, range(p))))
    for rank in range(p):
        assert Counter(scattered[rank][(rank + 1) % p]) == every
    gathered = steps.all_gather(p).run(scattered)[-1]
    assert all(Counter(chunk) == every for rank in gathered for chunk in rank)


@given(st.integers(1, 200))
def test_parents_make_one_shallow_binary_tree(p: int) -> None:
    found = steps.parents(p)
    children = Counter(above for rank, above in enumerate(found) if rank != above)
    assert max(children.values(), default=0) <= 2 and found[0] == 0
    assert all(children[rank] == 0 for rank in range(1, p, 2))
    for rank in range(p):
        depth = 0
        while rank:
            rank, depth = found[rank], depth + 1
        assert depth <= (p - 1).bit_length()


@given(st.integers(2, 16), st.integers(1, 4))
def test_two_trees_ask_no_rank_for_more_than_twice_the_array(p: int, pieces: int) -> None:
    n = 2 * pieces * 30
    one, two = steps.tree(p, pieces), steps.two_trees(p, pieces)
    assert max(two.sent(n)) <= 2 * n and max(one.sent(n)) <= 3 * n
    assert sum(one.sent(n)) == sum(two.sent(n)) == 2 * (p - 1) * n
    assert two.hops <= 2 * p.bit_length()


def test_pieces_hide_the_depth_of_a_tree() -> None:
    n = 64_000
    times = [steps.two_trees(16, pieces).time(n, 0, 1) for pieces in (1, 4, 16)]
    assert times == sorted(times, reverse=True) and times[-1] < 3.2 * n < times[0]


def test_chunks_of_uneven_length_are_all_counted() -> None:
    made = steps.reduce_scatter(4)
    assert sorted(made.sent(6)) == [4, 4, 5, 5] and sum(made.sent(6)) == 3 * 6


@pytest.mark.parametrize(
    ("build", "sizes", "said"),
    [
        (steps.ring, (0,), "ranks = 0"),
        (steps.all_gather, (-1,), "ranks = -1"),
        (steps.doubling, (6,), "ranks = 6 must be a power of two"),
        (steps.halving, (0,), "ranks = 0"),
        (steps.tree, (0, 1), "ranks = 0"),
        (steps.two_trees, (4, 0), "pieces = 0"),
    ],
)
def test_impossible_sizes_are_refused(build, sizes: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build(*sizes)


@pytest.mark.parametrize("parts", [[], [["x"]] * 3, [["x", "y"]] * 2])
def test_parts_of_another_shape_are_refused(parts: list[list[str]]) -> None:
    with pytest.raises(ValueError, match="3 lists of 3 chunks"):
        steps.ring(3).run(parts)


def test_facts_hold_and_a_wrong_count_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ring_steps_cases.facts()
    assert [row["name"] for row in rows if row["value"] != row["expected"]] == []
    assert len({row["name"] for row in rows}) == len(rows) >= 40
    monkeypatch.setattr(steps, "parents", lambda p: [max(0, rank - 1) for rank in range(p)])
    broken = [row["name"] for row in ring_steps_cases.facts() if row["value"] != row["expected"]]
    assert any("hops" in name for name in broken) and any("one tree" in name for name in broken)


def test_pictures_hold_what_is_true_at_the_end() -> None:
    ring, halving, trees = ring_steps_cases.grids()
    for picture in (ring, halving):
        assert {text for text, _ in picture["cells"][0]} == {"0", "1", "2", "3"}
        assert set(picture["cells"][-1]) == {("0123", 2)}
        whole = [sum(cell[0] == "0123" for cell in row) for row in picture["cells"]]
        assert whole == sorted(whole)
    shown = [text for row in trees["cells"] for text, _ in row if text]
    messages = [one for step in steps.two_trees(8, 2).steps for one in step]
    assert len(shown) == len(messages)
    assert {text for row in trees["cells"] for text, colour in row if colour == 0} == {
        text for text in shown if text[0] in "acAC"
    }


def test_ring_steps_it_imports_the_standard_library_alone() -> None:
    text = Path(steps.__file__).read_text(encoding="utf-8")
    lines = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith("from")]
    assert set(lines) <= sys.stdlib_module_names


# ring_orders: no pair is lost or computed twice, and balance is what the formulas say.


RING_ORDERS_RANKS = st.integers(1, 6)
HALVES = st.integers(1, 4)  # tokens in a chunk of zigzag
ORDER = st.sampled_from(orders.ORDERS)


@given(ORDER, RING_ORDERS_RANKS, HALVES)
def test_each_token_has_one_rank(order: str, ranks: int, half: int) -> None:
    tokens = 2 * ranks * half
    held = [orders.tokens_of(order, rank, ranks, tokens) for rank in range(ranks)]
    assert sorted(token for each in held for token in each) == list(range(tokens))
    assert {len(each) for each in held} == {2 * half}


@given(ORDER, RING_ORDERS_RANKS, HALVES, st.booleans())
def test_each_pair_is_computed_once(order: str, ranks: int, half: int, causal: bool) -> None:
    tokens = 2 * ranks * half
    found = Counter(
        pair
        for rank in range(ranks)
        for step in range(ranks)
        for pair in orders.pairs(order, rank, step, ranks, tokens, causal)
    )
    every = {(q, k) for q in range(tokens) for k in range(tokens) if not causal or k <= q}
    assert set(found) == every and set(found.values()) == {1}


@given(RING_ORDERS_RANKS)
def test_each_block_visits_each_rank_and_comes_from_the_rank_before(ranks: int) -> None:
    for rank in range(ranks):
        owners = [orders.owner(rank, step, ranks) for step in range(ranks)]
        assert sorted(owners) == list(range(ranks)) and owners[0] == rank
        before = (rank - 1) % ranks
        assert owners[1:] == [orders.owner(before, step, ranks) for step in range(ranks - 1)]


@given(RING_ORDERS_RANKS, HALVES)
def test_zigzag_is_even_at_every_step_and_no_order_is_faster(ranks: int, half: int) -> None:
    tokens = 2 * ranks * half
    for column in zip(*orders.work("zigzag", ranks, tokens), strict=True):
        assert len(set(column)) == 1
    assert orders.busy("zigzag", ranks, tokens) == 1
    times = [orders.time(order, ranks, tokens) for order in ("zigzag", "striped", "plain")]
    assert times == sorted(times)
    for order in orders.ORDERS:
        assert orders.busy(order, ranks, tokens, causal=False) == 1


def test_the_last_rank_of_the_plain_order_works_and_the_first_waits() -> None:
    first, *_, last = orders.work("plain", 4, 64)
    assert first == [136, 0, 0, 0] and last == [136, 256, 256, 256]
    assert 0.5 < orders.busy("plain", 8, 96) < 0.6


@pytest.mark.parametrize(
    ("order", "ranks", "tokens", "said"),
    [
        ("zigzagged", 2, 8, "order 'zigzagged' is unknown; use one of plain, striped, zigzag"),
        ("plain", 3, 8, "8 tokens do not divide into 3"),
        ("zigzag", 4, 12, "12 tokens do not divide into 8"),
        ("striped", 0, 8, "into 0"),
        ("plain", 2, 0, "0 tokens"),
    ],
)
def test_what_cannot_be_dealt_is_refused(order: str, ranks: int, tokens: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        orders.tokens_of(order, 0, ranks, tokens)


def test_facts_hold_and_a_block_left_out_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ring_orders_cases.facts()
    assert [row["name"] for row in rows if row["value"] != row["expected"]] == []
    assert len({row["name"] for row in rows}) == len(rows) >= 20
    monkeypatch.setattr(orders, "owner", lambda rank, step, ranks: (rank - max(step, 1)) % ranks)
    broken = [row["name"] for row in ring_orders_cases.facts() if row["value"] != row["expected"]]
    assert broken


def test_pictures_show_each_visible_pair_and_each_rank_s_work() -> None:
    pictures = {one["name"]: one for one in ring_orders_cases.grids()}
    assert set(pictures) == {f"{o}-{what}" for o in orders.ORDERS for what in ("mask", "load")}
    for order in orders.ORDERS:
        cells = pictures[f"{order}-mask"]["cells"]
        for query, row in enumerate(cells):
            assert [text != "" for text, _ in row] == [key <= query for key in range(16)]
        work = orders.work(order, 4, 16)
        load = pictures[f"{order}-load"]["cells"]
        assert [[int(text) for text, _ in row] for row in load] == work
        for rank, row in enumerate(work):
            colours = Counter(cell for line in cells for cell in line if cell[1] == rank)
            assert [colours[str(step), rank] for step in range(4)] == row
    assert {colour for row in pictures["zigzag-load"]["cells"] for _, colour in row} == {0, 1, 2, 3}


def test_ring_orders_it_imports_the_standard_library_alone() -> None:
    text = Path(orders.__file__).read_text(encoding="utf-8")
    lines = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith("from")]
    assert set(lines) <= sys.stdlib_module_names
