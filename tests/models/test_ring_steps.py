"""ring_steps: sums come out whole, counts are the formulas', and a lost message is seen."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snippets.ring_steps import cases
from snippets.ring_steps import ring_steps as steps
from snippets.ring_steps.ring_steps import Collective

RANKS = st.integers(1, 12)
POWERS = st.sampled_from((1, 2, 4, 8, 16))


@st.composite
def any_all_reduce(draw) -> Collective:
    """Any of the five ways, of any size."""
    build = draw(st.sampled_from((steps.ring, steps.doubling, steps.halving, "trees")))
    if build in (steps.doubling, steps.halving):
        return build(draw(POWERS))
    if build is steps.ring:
        return steps.ring(draw(RANKS))
    trees = draw(st.sampled_from((steps.tree, steps.two_trees)))
    return trees(draw(RANKS), draw(st.integers(1, 5)))


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
    assert cases.whole(made) == made.ranks > cases.whole(broken)


@given(any_all_reduce())
def test_a_rank_sends_one_message_and_gets_one_in_a_step(made: Collective) -> None:
    for step in made.steps:
        assert step
        for ends in ([one.source for one in step], [one.target for one in step]):
            assert len(set(ends)) == len(ends)
        assert all(one.source != one.target for one in step)


@given(RANKS, st.integers(0, 10_000))
def test_a_ring_sends_the_least_there_is(p: int, n: int) -> None:
    sent = steps.ring(p).sent(n)
    assert sum(sent) == 2 * (p - 1) * n  # as each part must be added and each sum told
    assert max(sent) - min(sent) <= 2  # chunks differ by an element
    assert steps.ring(p).hops == len(steps.ring(p).steps) == 2 * (p - 1)


@given(RANKS, st.integers(1, 500), st.floats(0, 1e-4), st.floats(1e6, 1e12))
def test_the_time_of_a_ring_is_its_formula(p: int, each: int, latency: float, rate: float) -> None:
    n = p * each
    formula = 2 * (p - 1) * latency + 2 * (p - 1) / p * n / rate
    assert steps.ring(p).time(n, latency, rate) == pytest.approx(formula)


@given(RANKS)
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
    rows = cases.facts()
    assert [row["name"] for row in rows if row["value"] != row["expected"]] == []
    assert len({row["name"] for row in rows}) == len(rows) >= 40
    monkeypatch.setattr(steps, "parents", lambda p: [max(0, rank - 1) for rank in range(p)])
    broken = [row["name"] for row in cases.facts() if row["value"] != row["expected"]]
    assert any("hops" in name for name in broken) and any("one tree" in name for name in broken)


def test_pictures_hold_what_is_true_at_the_end() -> None:
    ring, halving, trees = cases.grids()
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


def test_it_imports_the_standard_library_alone() -> None:
    text = Path(steps.__file__).read_text(encoding="utf-8")
    lines = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith("from")]
    assert set(lines) <= sys.stdlib_module_names
