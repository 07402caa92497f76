"""How work is cut into tiles: what a tile reads, in which order tiles come, and who has them."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts
from torch.nn import functional

from snippets.attention_tiles import attention_tiles as attention
from snippets.attention_tiles import cases as attention_tiles_cases
from snippets.attention_tiles.attention_tiles import Tile
from snippets.fused_traffic import cases as fused_traffic_cases
from snippets.fused_traffic import fused_traffic as fused
from snippets.fused_traffic.fused_traffic import Operation
from snippets.implicit_gemm import cases as implicit_gemm_cases
from snippets.implicit_gemm import implicit_gemm as conv
from snippets.implicit_gemm.implicit_gemm import Shape
from snippets.stream_k import cases as stream_k_cases
from snippets.stream_k import stream_k as streams
from snippets.stream_k.stream_k import Schedule, Share
from snippets.tile_order import cases as tile_order_cases
from snippets.tile_order import tile_order as tile_order_tiles
from snippets.time_tiles import cases as time_tiles_cases
from snippets.time_tiles import time_tiles as time_tiles_tiles
from warpshelf.contract import syntax
from warpshelf.contract.pictures import grids_problem
from warpshelf.contract.values import fact_problem

# tile_order: every tile once, and panels as a brute force counts them.


SIDE, RESIDENT = st.integers(1, 12), st.integers(1, 40)
quick = settings(max_examples=60)


def test_tile_order_facts_hold() -> None:
    rows = tile_order_cases.facts()
    assert (
        broken_facts(tile_order_cases.facts()) == []
        and len({row["name"] for row in rows}) == len(rows) >= 8
    )
    assert all(fact_problem(row) is None for row in rows)


@quick
@given(SIDE, SIDE, SIDE)
def test_an_order_visits_each_tile_once_and_keeps_to_its_group(m: int, n: int, group: int) -> None:
    order = tile_order_tiles.grouped(m, n, group)
    assert sorted(order) == [(row, column) for row in range(m) for column in range(n)]
    assert [row // group for row, _ in order] == sorted(row // group for row, _ in order)
    for (row, column), (below, after) in zip(order, order[1:], strict=False):
        same = row // group == below // group
        assert not same or (after, below) == (column, row + 1) or after == column + 1


@quick
@given(SIDE, SIDE)
def test_groups_of_one_row_are_row_major(m: int, n: int) -> None:
    assert tile_order_tiles.row_major(m, n) == sorted(tile_order_tiles.row_major(m, n))


@quick
@given(SIDE, SIDE, SIDE, RESIDENT)
def test_traffic_counts_the_panels_of_each_wave(m: int, n: int, group: int, p: int) -> None:
    order = tile_order_tiles.grouped(m, n, group)
    read = {("A", at // p, row) for at, (row, _) in enumerate(order)}
    read |= {("B", at // p, column) for at, (_, column) in enumerate(order)}
    assert tile_order_tiles.traffic(order, p) == len(read) <= 2 * m * n
    assert tile_order_tiles.traffic(order, m * n) == m + n


@quick
@given(SIDE, SIDE, RESIDENT)
def test_no_group_reads_less_than_the_best(m: int, n: int, p: int) -> None:
    best = tile_order_tiles.traffic(
        tile_order_tiles.grouped(m, n, tile_order_tiles.best_group(m, n, p)), p
    )
    assert best == min(
        tile_order_tiles.traffic(tile_order_tiles.grouped(m, n, g), p) for g in range(1, m + 1)
    )


def test_tile_order_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="group = 0"):
        tile_order_tiles.grouped(2, 2, 0)
    with pytest.raises(ValueError, match="resident = 0"):
        tile_order_tiles.waves([(0, 0)], 0)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("grouped", lambda m, n, group: tile_order_tiles.row_major(m, n), "groups of 3"),
        ("panels", lambda wave: (len(wave), len(wave)), "row-major"),
        ("best_group", lambda m, n, p: 1, "reads least"),
    ],
)
def test_tile_order_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tile_order_tiles.grouped
    monkeypatch.setattr(tile_order_tiles, "row_major", lambda m, n: real(m, n, 1))
    monkeypatch.setattr(tile_order_tiles, name, value)
    assert any(fact in one for one in broken_facts(tile_order_cases.facts()))


def test_tile_order_pictures_are_of_the_model() -> None:
    rows = tile_order_cases.grids()
    assert grids_problem(rows) is None
    for picture, order in zip(
        rows, (tile_order_tiles.row_major(16, 16), tile_order_tiles.grouped(16, 16, 4)), strict=True
    ):
        for number, (row, column) in enumerate(order):
            assert picture["cells"][row][column] == (str(number), number // 32)
    assert "2 panels of A and 16 of B" in rows[0]["caption"]
    assert "4 panels of A and 8 of B" in rows[1]["caption"]


def test_tile_order_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(
        syntax.parse_python(Path(tile_order_tiles.__file__)).imports
    )


# stream_k: every iteration once, and times by formula.


SIZE = st.integers(1, 24)
BUILDERS = (streams.data_parallel, streams.stream_k, streams.hybrid)


def list_covered_steps(made: Schedule) -> list[tuple[int, int]]:
    return sorted((s.tile, i) for mine in made.sms for s in mine for i in range(s.begin, s.end))


def test_stream_k_facts_hold() -> None:
    rows = stream_k_cases.facts()
    assert (
        broken_facts(stream_k_cases.facts()) == []
        and len({row["name"] for row in rows}) == len(rows) >= 14
    )
    assert all(fact_problem(row) is None for row in rows)


@quick
@given(SIZE, SIZE, SIZE, st.data())
def test_each_iteration_is_done_once(tiles: int, iterations: int, sms: int, data) -> None:
    parts = data.draw(st.integers(1, iterations))
    every = [(tile, i) for tile in range(tiles) for i in range(iterations)]
    made = [build(tiles, iterations, sms) for build in BUILDERS]
    for one in (*made, streams.split_k(tiles, iterations, sms, parts)):
        assert list_covered_steps(one) == every
        assert one.efficiency == len(every) / (sms * one.makespan)
        assert one.makespan >= ceil(len(every) / sms)


@quick
@given(SIZE, SIZE, SIZE)
def test_times_are_those_of_the_formulas(tiles: int, iterations: int, sms: int) -> None:
    whole, streamed, both = (build(tiles, iterations, sms) for build in BUILDERS)
    assert whole.makespan == ceil(tiles / sms) * iterations
    assert streamed.makespan == both.makespan == ceil(tiles * iterations / sms)
    assert whole.exchanges == whole.shared == 0
    for made in (streamed, both):
        assert made.shared < sms and made.exchanges < sms
    if tiles % sms == 0:
        assert both.exchanges == 0


def test_an_exchange_is_a_share_beyond_the_first() -> None:
    made = Schedule(
        "by hand", [[Share(0, 0, 2)], [Share(0, 2, 3), Share(1, 0, 1)], [Share(0, 3, 5)]]
    )
    assert (made.shared, made.exchanges, made.makespan) == (1, 2, 2)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [((0, 4, 4), "tiles = 0"), ((4, 0, 4), "iterations = 0"), ((4, 4, 0), "sms = 0")],
)
def test_stream_k_bad_input_is_refused(sizes: tuple[int, int, int], said: str) -> None:
    for build in BUILDERS:
        with pytest.raises(ValueError, match=said):
            build(*sizes)
    with pytest.raises(ValueError, match="parts = 5 exceeds the 4"):
        streams.split_k(4, 4, 4, 5)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("stream_k", streams.data_parallel, "stream-K: busy"),
        ("split_k", lambda t, i, p, parts: streams.stream_k(t, i, p), "split in 2"),
        ("data_parallel", streams.stream_k, "128 x 128: busy"),
        ("hybrid", streams.data_parallel, "data-parallel: iterations"),
    ],
)
def test_stream_k_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, name, value)
    assert any(fact in one for one in broken_facts(stream_k_cases.facts()))


def test_stream_k_pictures_are_of_the_model() -> None:
    rows = stream_k_cases.grids()
    assert grids_problem(rows) is None
    by_name = {row["name"]: row["cells"] for row in rows}
    for cells in by_name.values():
        busy = [cell for line in cells for cell in line if cell[0]]
        assert len(busy) == 9 * 32 // 4
    assert [line.count(("", -1)) for line in by_name["data-parallel"]] == [0, 8, 8, 8]
    assert [line.count(("", -1)) for line in by_name["stream-k"]] == [6, 6, 6, 6]


def test_stream_k_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(syntax.parse_python(Path(streams.__file__)).imports)


# attention_tiles: tiles say what their scores say, and decoding reads each key once.


SIDES, TILES = st.integers(1, 30), st.integers(1, 9)


@given(SIDES, SIDES, TILES, TILES, st.booleans())
def test_a_tile_is_what_its_scores_are(
    queries: int, keys: int, rows: int, columns: int, causal: bool
) -> None:
    grid = attention.tiles(queries, keys, rows, columns, causal)
    for i, line in enumerate(grid):
        for j, tile in enumerate(line):
            scores = [
                key < keys and (not causal or key <= query + keys - queries)
                for query in range(i * rows, min((i + 1) * rows, queries))
                for key in range(j * columns, (j + 1) * columns)
            ]
            wanted = Tile.WHOLE if all(scores) else Tile.EDGE if any(scores) else Tile.NONE
            assert tile is wanted, (i, j)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 20), st.integers(1, 16))
def test_every_chunk_is_read_once(sequences: int, parts: int, chunks: int, sms: int) -> None:
    lines = attention.decode(sequences, parts, chunks, sms)
    cells = [cell for line in lines for cell in line]
    for one in range(sequences):
        assert cells.count(chr(ord("A") + one)) == chunks
    reading = len(lines) - (parts > 1)
    assert reading >= ceil(sequences * chunks / sms)
    assert 0 < attention.busy(lines) <= 1


def test_facts_hold_and_a_mask_off_by_one_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(attention_tiles_cases.facts()) == []
    true = attention.tiles
    monkeypatch.setattr(attention, "tiles", lambda n, m, *more: true(n, m + 1, *more))
    assert "512 tokens: tiles with a mask" in broken_facts(attention_tiles_cases.facts())


def test_pictures_agree_with_the_text_beside_them() -> None:
    grids = {one["name"]: one["cells"] for one in attention_tiles_cases.grids()}
    assert all([cell for cell, _ in line].count("mask") == 2 for line in grids["causal"])
    idle = [cell == "" for line in grids["whole"] for cell, _ in line]
    assert sum(idle) / len(idle) == 3 / 4
    assert len(grids["cut"]) - 1 == len(grids["whole"]) / 4


def test_attention_tiles_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="keys = 0 must be 1 or more"):
        attention.tiles(4, 0)
    with pytest.raises(ValueError, match="parts = 0 must be 1 or more"):
        attention.decode(4, 0, 8, 16)


# implicit_gemm: the product is torch's convolution, Winograd's outputs are exact.


SMALL = st.integers(1, 3)
SIZES = st.tuples(
    SMALL, SMALL, st.integers(1, 6), st.integers(1, 6), SMALL, SMALL, SMALL,
    st.integers(1, 2), st.integers(0, 2),
)  # fmt: skip


@settings(max_examples=60)
@given(SIZES)
def test_the_product_is_the_convolution(sizes: tuple[int, ...]) -> None:
    _, _, h, w, _, r, s, _, pad = sizes
    assume(h + 2 * pad >= r and w + 2 * pad >= s)
    shape = Shape(*sizes)
    image, filters = implicit_gemm_cases.numbers(shape)
    x = torch.tensor(image).view(shape.n, shape.h, shape.w, shape.c).permute(0, 3, 1, 2)
    w = torch.tensor(filters).view(shape.k, shape.r, shape.s, shape.c).permute(0, 3, 1, 2)
    y = functional.conv2d(x.double(), w.double(), stride=shape.stride, padding=shape.pad)
    wanted = y.permute(0, 2, 3, 1).reshape(-1, shape.k).long().tolist()
    assert conv.implicit_gemm(shape, image, filters) == wanted
    assert implicit_gemm_cases.direct(shape, image, filters) == wanted


@given(st.lists(st.integers(-50, 50), min_size=7, max_size=7))
def test_winograd_is_the_sum_of_three_taps(numbers: list[int]) -> None:
    x, g = numbers[:4], numbers[4:]
    out, multiplications = conv.winograd(x, g)
    assert out == [sum(a * b for a, b in zip(x[i:], g, strict=False)) for i in range(2)]
    assert multiplications == 4


def test_facts_hold_and_a_wrong_place_breaks_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(implicit_gemm_cases.facts()) == []
    true = conv.source
    monkeypatch.setattr(conv, "source", lambda s, row, k: true(s, row, k) or 0)  # no padding
    assert broken_facts(implicit_gemm_cases.facts()) == ["implicit GEMM: wrong outputs"]


def test_a_window_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="5 x 3 taps do not fit into 4 x 4 with padding 0"):
        Shape(1, 1, 4, 4, 1, 5, 3)


# fused_traffic: what crosses a kernel's border is counted once, and nothing else.


@given(st.integers(1, 8), st.data())
def test_a_chain_costs_two_tensors_a_kernel(length: int, data: st.DataObject) -> None:
    chain = [Operation(f"t{i + 1}", (f"t{i}",)) for i in range(length)]
    cuts = data.draw(st.sets(st.integers(1, length), max_size=length))
    ends = [0, *sorted(cuts - {length}), length]
    kernels = [tuple(chain[a:b]) for a, b in zip(ends, ends[1:], strict=False)]
    moved = fused.traffic(kernels, ["t0"], [f"t{length}"])
    assert [one.moved for one in moved] == [2] * len(kernels)


def test_a_value_with_two_readers_is_written_once_and_read_by_each() -> None:
    a, b = Operation("a", ("x",)), Operation("b", ("a",))
    c = Operation("c", ("a", "b"))
    apart = fused.traffic([(a,), (b,), (c,)], ["x"], ["c"])
    assert [one.moved for one in apart] == [2, 2, 3]
    assert [one.moved for one in fused.traffic([(a, b), (c,)], ["x"], ["c"])] == [3, 3]
    # Wanted for the backward pass, a tensor is written though nobody reads it here.
    assert [one.moved for one in fused.traffic([(a, b, c)], ["x"], ["a", "c"])] == [3]


def test_facts_hold_and_a_forgotten_write_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(fused_traffic_cases.facts()) == []
    monkeypatch.setattr(fused.Traffic, "moved", property(lambda self: len(self.reads)))
    assert len(broken_facts(fused_traffic_cases.facts())) == 5


def test_an_input_that_nobody_made_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody has made 'gelu' yet"):
        fused.traffic([(fused.ADD,)], ["skip"], ["sum"])
    hidden = ((fused.PRODUCT, fused.BIAS), (Operation("z", ("y",)),))
    with pytest.raises(ValueError, match="nobody has made 'y' yet"):
        fused.traffic(hidden, [], ["z"])


# time_tiles: tiles alone reach what single steps reach, at the counted cost.


@given(
    st.lists(st.integers(0, 96), min_size=1, max_size=40),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_a_sweep_is_so_many_steps(cells: list[int], n: int, r: int, depth: int) -> None:
    out, count = time_tiles_tiles.sweep(cells, n, r, depth)
    assert out == time_tiles_cases.plain(cells, r, depth)
    assert count.written == len(cells)
    assert count.read == len(cells) + 2 * r * depth * -(-len(cells) // n)


def test_facts_hold_and_a_halo_too_small_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(time_tiles_cases.facts()) == []
    true = time_tiles_tiles.step
    monkeypatch.setattr(
        time_tiles_tiles, "step", lambda cells, r, rule: true([0, *cells[1:]], r, rule)
    )
    assert "tiles of 64, r 1, T 4: wrong cells" in broken_facts(time_tiles_cases.facts())


def test_the_picture_counts_what_the_formula_says() -> None:
    (grid,) = time_tiles_cases.grids()
    cells = [text for line in grid["cells"][1:] for text, _ in line if text]
    assert len(cells) / cells.count("own") == time_tiles_tiles.repeated(8, 1, 4)
    loaded = [text for text, _ in grid["cells"][0] if text]
    assert (len(loaded) + 8) / (8 * 4) == time_tiles_tiles.words(8, 1, 4)


def test_time_tiles_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="depth = 0 must be 1 or more"):
        time_tiles_tiles.sweep([1], 1, 1, 0)
