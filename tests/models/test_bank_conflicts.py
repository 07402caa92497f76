"""bank_conflicts: its rules against brute force, and a mistake that breaks a published count."""

from __future__ import annotations

from math import gcd
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistaken_module import load_mistaken_module
from snippet_facts import broken_facts

from snippets.bank_conflicts import bank_conflicts as banks
from snippets.bank_conflicts import cases
from warpshelf.contract import syntax
from warpshelf.contract.pictures import grids_problem
from warpshelf.contract.values import fact_problem

LANE = range(32)
words = st.lists(st.integers(0, 4095), min_size=1, max_size=32)
quick = settings(max_examples=60)


def test_facts_hold() -> None:
    rows = cases.facts()
    assert broken_facts(rows) == []
    assert len({row["name"] for row in rows}) == len(rows) >= 25
    assert all(fact_problem(row) is None and row["source"] for row in rows)
    exact = [row for row in rows if row["source"].startswith("cuda-gemm") and not row["tolerance"]]
    assert len(exact) >= 7, "a profile's counts are met to the last wavefront"


@quick
@given(words)
def test_4_bytes_a_lane_are_served_as_a_brute_force_of_cycles_does(chosen: list[int]) -> None:
    # In each cycle every bank gives one word, to all lanes that wait for that word.
    waiting, cycles = list(chosen), 0
    while waiting:
        cycles += 1
        open_now: dict[int, int] = {}
        for word in waiting:
            open_now.setdefault(word % 32, word)
        waiting = [word for word in waiting if open_now[word % 32] != word]
    assert banks.wavefronts([4 * word for word in chosen]) == cycles


@quick
@given(st.integers(1, 4096), st.sampled_from((4, 8, 16)), st.integers(0, 255))
def test_a_stride_costs_its_greatest_common_divisor(s: int, width: int, start: int) -> None:
    addresses = [width * (start + s * lane) for lane in LANE]
    formula = width // 4 * gcd(s, 128 // width)
    assert banks.wavefronts(addresses, width) == formula
    assert banks.conflicts(addresses, width) == formula - width // 4


@quick
@given(st.sampled_from((4, 8, 16)), st.integers(0, 100))
def test_one_address_for_all_is_a_broadcast(width: int, at: int) -> None:
    alike = [width * at] * 32
    assert banks.conflicts(alike, width) == 0
    assert banks.wavefronts(alike, width) == {4: 1, 8: 1, 16: 2}[width]


@quick
@given(words, st.data())
def test_which_lane_asks_for_which_word_does_not_matter(chosen: list[int], data) -> None:
    other = data.draw(st.permutations(chosen))
    addresses, moved = ([4 * word for word in some] for some in (chosen, other))
    assert banks.wavefronts(addresses) == banks.wavefronts(moved)
    assert 1 <= banks.wavefronts(addresses) <= len(set(chosen))


@quick
@given(words)
def test_lanes_that_are_not_active_cost_nothing(chosen: list[int]) -> None:
    addresses = [4 * word for word in chosen]
    idle = [None] * (32 - len(chosen))
    assert banks.wavefronts([*addresses, *idle]) == banks.wavefronts(addresses)
    assert banks.wavefronts([None] * 32, 16) == 0


@pytest.mark.parametrize("step", [1, 2])
def test_neighbours_that_load_alike_halve_the_pieces(step: int) -> None:
    pairs = [16 * (lane & ~step) for lane in LANE]
    assert len(banks.pieces(pairs, 16)) == 2
    assert len(banks.pieces([8 * (lane & ~step) for lane in LANE], 8)) == 1
    one_differs = [*pairs[:31], 16 * 99]
    assert len(banks.pieces(one_differs, 16)) == 4
    assert len(banks.pieces([16 * (lane & ~4) for lane in LANE], 16)) == 4


@quick
@given(st.integers(0, 3), st.integers(0, 63))
def test_a_swizzle_permutes_each_line_by_whole_chunks(bits: int, line: int) -> None:
    start = 128 * line
    moved = [banks.swizzle(start + byte, bits) for byte in range(128)]
    assert sorted(moved) == list(range(start, start + 128))
    assert all(address % 16 == byte % 16 for byte, address in enumerate(moved))
    assert [banks.swizzle(address, bits) for address in moved] == list(range(start, start + 128))
    assert banks.swizzle(start + 2**bits * 128, bits) == banks.swizzle(start, bits) + 2**bits * 128


@pytest.mark.parametrize("tile", [banks.naive, banks.padded, banks.swizzled])
def test_no_two_elements_of_a_tile_share_an_address(tile: banks.Tile) -> None:
    places = [tile(row, column) for row in LANE for column in LANE]
    assert len(set(places)) == 32 * 32
    assert all(banks.wavefronts(banks.row_of(tile, i)) == 1 for i in LANE)
    worst = 32 if tile is banks.naive else 1
    assert {banks.wavefronts(banks.column_of(tile, i)) for i in LANE} == {worst}


@pytest.mark.parametrize(("size", "bits"), [(16, 0), (32, 1), (64, 2), (128, 3)])
def test_a_column_of_chunks_is_free_in_its_own_mode_alone(size: int, bits: int) -> None:
    for part in range(size // 16):
        for used in range(bits + 1):
            rows = [banks.chunk(row, part, size, used) for row in range(8)]
            assert banks.ldmatrix(rows) == size // 16 >> used


@quick
@given(st.integers(1, 64))
def test_ldmatrix_wants_rows_an_odd_number_of_chunks_apart(chunks: int) -> None:
    rows = [banks.chunk(row, 0, 16 * chunks) for row in range(8)]
    assert banks.ldmatrix(rows) == gcd(chunks, 8)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: banks.wavefronts([0], 12), "width = 12 must be 4, 8 or 16"),
        (lambda: banks.wavefronts([4], 8), "address 4 is no multiple of 8"),
        (lambda: banks.wavefronts([0] * 33), "33 lanes; a warp has 32"),
        (lambda: banks.ldmatrix([0] * 7), "takes 8 rows, not 7"),
    ],
)
def test_bad_input_is_refused(call, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    ("find", "replace", "fact"),
    [
        ("return max(map(len, words.values()), default=0)", "return len(words)", "strides"),
        ("share *= 2", "pass", "tiling: shared wavefronts"),
        ("share = LANES * WORD // width  #", "share = LANES  #", "tiling: excessive"),
        ("for step in (1, 2):", "for step in ():", "vectorized: shared wavefronts"),
        ("WORD * (33 * row + column)", "WORD * (34 * row + column)", "padded tile"),
        ("(column ^ row))", "(column ^ row // 2))", "swizzled tile"),
        ("(line % 2**bits) * 16", "(line % 2**bits) * 8", "ldmatrix"),
        ("line = address // 128", "line = address // 256", "ldmatrix"),
    ],
)
def test_a_mistake_breaks_a_fact(
    find: str, replace: str, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "banks", load_mistaken_module(banks, find, replace))
    assert any(fact in name for name in broken_facts(cases.facts()))


def test_pictures_are_of_the_model() -> None:
    rows = cases.grids()
    assert grids_problem(rows) is None
    by_name = {row["name"]: row for row in rows}
    naive, padded = by_name["naive"]["cells"], by_name["padded"]["cells"]
    assert [line[5] for line in naive] == [("5", 1)] * 8
    assert [padded[row][row + 5] for row in range(8)] == [("5", 1)] * 8
    swizzled = by_name["swizzled"]["cells"]
    assert [swizzled[row][row ^ 5] for row in range(8)] == [("5", 1)] * 8
    for size in (32, 64, 128):
        cells = by_name[f"swizzle-{size}"]["cells"]
        for part in range(size // 16):
            met = [column for line in cells for column, cell in enumerate(line) if cell[1] == part]
            assert sorted(met) == list(range(8)), "a column of chunks meets every group of banks"
    assert [text for text, _ in by_name["swizzle-128"]["cells"][3][:4]] == [
        "3.3", "3.2", "3.1", "3.0"
    ]  # fmt: skip


def test_it_needs_the_standard_library_alone() -> None:
    parsed = syntax.parse_python(Path(banks.__file__))
    assert syntax.standard_library_only(parsed.imports)
