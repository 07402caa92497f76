"""comm_model: formulas are executed counts, rates are near published ones, mistakes show."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.comm_model import cases
from snippets.comm_model import comm_model as model
from snippets.comm_model.comm_model import MACHINES, Group, Machine, Routing

NAMES = st.sampled_from(sorted(MACHINES))
SIZES = st.floats(0, 1e11)


@st.composite
def rank_groups(draw) -> Group:
    machine = MACHINES[draw(NAMES)]
    inside = draw(st.integers(1, machine.gpus))
    return Group(machine, inside * draw(st.integers(1, 64)), inside)


def prediction_errors(of: str = "") -> list[float]:
    rows = [row for row in cases.predictions() if of in row["set"] and not row["fitted"]]
    return sorted(abs(row["predicted"] / row["published"] - 1) for row in rows)


def test_every_fact_holds_and_has_a_name_of_its_own() -> None:
    names = [row["name"] for row in cases.facts()]
    assert len(names) == len(set(names)) >= 35
    assert broken_facts(cases.facts()) == []


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
        assert any(seen in one for one in broken_facts(cases.facts()))
    else:  # without its latency the switch would win where trees do
        assert (before, model.best("all_reduce", 1e6, group).algorithm) == ("trees", "switch")


def test_predictions_reach_their_goals() -> None:
    for goal in cases.GOALS:
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
    fitted = [row for row in cases.predictions() if row["fitted"]]
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


def test_it_imports_the_standard_library_alone() -> None:
    text = Path(model.__file__).read_text(encoding="utf-8")
    found = {
        line.split()[1].split(".")[0]
        for line in text.splitlines()
        if line.startswith(("from ", "import "))
    }
    assert found <= sys.stdlib_module_names
    assert isinstance(MACHINES["A100"], Machine)
