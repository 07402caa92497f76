"""Computations that go step by step: a softmax online, and scans."""

from __future__ import annotations

import operator
from functools import reduce
from itertools import accumulate, groupby
from math import exp, fsum, inf
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.online_softmax_steps import cases as online_softmax_steps_cases
from snippets.online_softmax_steps import online_softmax_steps as softmax
from snippets.online_softmax_steps.online_softmax_steps import Part
from snippets.scan_steps import cases as scan_steps_cases
from snippets.scan_steps import scan_steps as scans

# online_softmax_steps: any blocks and any merge give the whole row's sum.


LOGITS = st.floats(-1e4, 1e4) | st.just(-inf)
ROWS = st.lists(LOGITS, min_size=1, max_size=40)


def sum_row_exactly(row: list[float]) -> Part:
    m = max(row)
    return Part(m, fsum(exp(value - m) for value in row if value > -inf))


@given(ROWS, st.integers(1, 12))
def test_blocks_give_the_whole_row(row: list[float], block: int) -> None:
    steps, exponentials = softmax.online(row, block)
    assert steps[-1].after.m == sum_row_exactly(row).m
    assert steps[-1].after.d == pytest.approx(sum_row_exactly(row).d, rel=1e-12)
    assert softmax.direct(row).d == pytest.approx(sum_row_exactly(row).d, rel=1e-12)
    assert exponentials == len(row) + len(steps)


@given(st.lists(ROWS, min_size=1, max_size=6), st.randoms())
def test_parts_merge_in_any_order(rows: list[list[float]], draw: object) -> None:
    whole = sum_row_exactly([value for row in rows for value in row])
    parts = [Part(), *map(softmax.direct, rows)]
    draw.shuffle(parts)  # type: ignore[attr-defined]
    merged = reduce(add, parts)
    assert merged.m == whole.m
    assert merged.d == pytest.approx(whole.d, rel=1e-12)


def test_facts_hold_and_a_sum_that_is_not_rescaled_breaks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert broken_facts(online_softmax_steps_cases.facts()) == []
    monkeypatch.setattr(Part, "scaled", lambda self, m: self.d)
    assert "merged backwards: sum" in broken_facts(online_softmax_steps_cases.facts())


def test_the_picture_ends_with_the_sum() -> None:
    (grid,) = online_softmax_steps_cases.grids()
    assert grid["cells"][-1][-1] == (f"{softmax.direct(softmax.ROW).d:.3f}", 0)


def test_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="an empty row"):
        softmax.direct([])
    with pytest.raises(ValueError, match="blocks of 0"):
        softmax.online([1.0], 0)


# scan_steps: every scheme gives running sums, counts hold, and a broken scheme is seen.


INTEGERS = st.integers(-100, 100)
POWERS = st.integers(0, 6).flatmap(lambda p: st.lists(INTEGERS, min_size=2**p, max_size=2**p))
ANY = st.lists(INTEGERS, min_size=1, max_size=70)
TILES = st.integers(1, 9)


def test_facts_hold() -> None:
    rows = scan_steps_cases.facts()
    assert broken_facts(rows) == []
    assert len({row["name"] for row in rows}) == len(rows) >= 20
    assert all(row["source"] for row in rows)


@given(POWERS)
def test_trees_sum_and_scan(x: list[int]) -> None:
    sums = list(accumulate(x))
    assert scans.tree_sum(x)[0] == scans.shuffle_sum(x)[0] == sums[-1]
    assert scans.blelloch(x)[0] == [0, *sums[:-1]]


@given(ANY, st.integers(1, 8))
def test_scans_of_a_block_are_running_sums(x: list[int], warp: int) -> None:
    sums = list(accumulate(x))
    assert scans.hillis_steele(x)[0] == scans.warp_scan(x, warp)[0] == sums


@given(ANY)
def test_order_is_kept_for_what_does_not_commute(x: list[int]) -> None:
    words = [str(one) for one in x]
    assert scans.hillis_steele(words)[0] == list(accumulate(words))
    n = 1 << (len(x).bit_length() - 1)
    assert scans.blelloch(words[:n], "")[0] == ["", *accumulate(words[: n - 1])]


@given(st.lists(st.tuples(st.integers(0, 5), INTEGERS), min_size=1, max_size=40))
def test_segments_stop_at_heads(marked: list[tuple[int, int]]) -> None:
    pairs = [(i == 0 or marked[i - 1][0] != key, value) for i, (key, value) in enumerate(marked)]
    wanted = [
        total
        for _, group in groupby(marked, key=operator.itemgetter(0))
        for total in accumulate(value for _, value in group)
    ]
    assert [value for _, value in scans.hillis_steele(pairs, scans.segmented)[0]] == wanted


@given(ANY, TILES)
def test_schemes_of_the_whole_device_agree(x: list[int], tile: int) -> None:
    sums = list(accumulate(x))
    assert scans.scan_then_propagate(x, tile)[0] == sums
    assert scans.reduce_then_scan(x, tile)[0] == sums
    for made in (scans.two_launches, scans.atomic_sum, scans.last_block):
        assert made(x, tile)[0] == sums[-1]


@given(ANY, TILES, st.dictionaries(st.integers(0, 20), st.integers(0, 9)), st.integers(0, 5))
def test_look_back_gives_running_sums_whoever_is_late(
    x: list[int], tile: int, late: dict[int, int], resident: int
) -> None:
    out, count = scans.look_back(x, tile, late, resident)
    tiles = -(-len(x) // tile)
    assert out == list(accumulate(x))
    assert count.words == 2 * len(x)
    assert 3 * (tiles - 1) + 1 <= count.messages <= 2 * tiles + tiles * (tiles - 1) // 2
    assert count.stages[-1] == ["P"] * tiles


def test_look_back_hangs_where_tiles_are_not_numbered_as_they_start() -> None:
    x = list(range(64))
    backwards = range(7, -1, -1)
    assert scans.look_back(x, 8, order=backwards)[0] == list(accumulate(x))  # all fit
    with pytest.raises(ValueError, match="tiles wait for one that cannot start"):
        scans.look_back(x, 8, order=backwards, resident=7)


@given(st.integers(1, 6).flatmap(lambda s: st.lists(INTEGERS, min_size=s * s, max_size=s * s)))
def test_products_scan(x: list[int]) -> None:
    side = int(len(x) ** 0.5)
    assert scans.matrix_scan(x, side) == (list(accumulate(x)), 3)


@pytest.mark.parametrize("n", [0, 3, 12])
def test_a_length_without_a_tree_is_refused(n: int) -> None:
    for scheme in (scans.tree_sum, scans.blelloch):
        with pytest.raises(ValueError, match=f"{n} numbers make no full tree"):
            scheme([1] * n)


@pytest.mark.parametrize(("x", "tile"), [([], 4), ([1], 0)])
def test_no_numbers_and_no_tiles_are_refused(x: list[int], tile: int) -> None:
    with pytest.raises(ValueError, match="give at least 1"):
        scans.look_back(x, tile)


@pytest.mark.parametrize(
    ("scheme", "mistake", "seen"),
    [
        ("tree_sum", {"additions": 1}, "tree, n 8: additions"),
        ("hillis_steele", {"steps": 1}, "Hillis-Steele, n 32: steps"),
        ("blelloch", {"additions": -1}, "Blelloch, n 1024: additions"),
        ("shuffle_sum", {"barriers": 1}, "shuffles, n 1024: barriers"),
        ("look_back", {"words": 4096}, "look-back: words / n"),
        ("reduce_then_scan", {"words": 4096}, "reduce then scan: words / n"),
    ],
)
def test_a_wrong_count_breaks_a_fact(
    monkeypatch: pytest.MonkeyPatch, scheme: str, mistake: dict[str, int], seen: str
) -> None:
    true = getattr(scans, scheme)

    def count_wrongly(*args: Any, **kwargs: Any) -> Any:
        out, count = true(*args, **kwargs)
        for name, more in mistake.items():
            setattr(count, name, getattr(count, name) + more)
        return out, count

    monkeypatch.setattr(scans, scheme, count_wrongly)
    assert seen in broken_facts(scan_steps_cases.facts())


def test_pictures_show_the_whole_sum_last() -> None:
    grids = {one["name"]: one for one in scan_steps_cases.grids()}
    assert set(grids) == {"tree", "hillis-steele", "blelloch", "look-back"}
    for one in grids.values():
        assert len(one["cells"]) == len(one["rows"])
        assert {len(line) for line in one["cells"]} == {len(one["columns"])}
        assert all(len(text) <= 6 for line in one["cells"] for text, _ in line)
    assert grids["tree"]["cells"][-1][0] == ("8", 0)
    assert [text for text, _ in grids["hillis-steele"]["cells"][-1]] == [
        "0", *(f"0-{i}" for i in range(1, 8))
    ]  # fmt: skip
    assert [text for text, _ in grids["blelloch"]["cells"][-1]] == [
        "none", "0", *(f"0-{i}" for i in range(1, 7))
    ]  # fmt: skip
