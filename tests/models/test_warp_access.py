"""What the lanes of a warp ask of memory: banks, sectors, and each other's registers."""

from __future__ import annotations

from math import gcd
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts, load_mistaken_module

from snippets.bank_conflicts import bank_conflicts as banks
from snippets.bank_conflicts import cases as bank_conflicts_cases
from snippets.sectors import cases as sectors_cases
from snippets.sectors import sectors
from snippets.warp_shuffles import cases as warp_shuffles_cases
from snippets.warp_shuffles import warp_shuffles as shuffles
from warpshelf.contract import syntax
from warpshelf.contract.pictures import grids_problem
from warpshelf.contract.values import fact_problem

# bank_conflicts: its rules against brute force, and a mistake that breaks a published count.


LANE = range(32)
words = st.lists(st.integers(0, 4095), min_size=1, max_size=32)
quick = settings(max_examples=60)


def test_bank_conflicts_facts_hold() -> None:
    rows = bank_conflicts_cases.facts()
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
def test_bank_conflicts_bad_input_is_refused(call, said: str) -> None:
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
def test_bank_conflicts_a_mistake_breaks_a_fact(
    find: str, replace: str, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank_conflicts_cases, "banks", load_mistaken_module(banks, find, replace))
    assert any(fact in name for name in broken_facts(bank_conflicts_cases.facts()))


def test_pictures_are_of_the_model() -> None:
    rows = bank_conflicts_cases.grids()
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


def test_bank_conflicts_it_needs_the_standard_library_alone() -> None:
    parsed = syntax.parse_python(Path(banks.__file__))
    assert syntax.standard_library_only(parsed.imports)


# sectors: brute force by bytes, and mistakes that break a published count.


WIDTHS = st.sampled_from((4, 8, 16))


def test_sectors_facts_hold() -> None:
    rows = sectors_cases.facts()
    assert (
        broken_facts(sectors_cases.facts()) == []
        and len({row["name"] for row in rows}) == len(rows) >= 16
    )
    assert all(fact_problem(row) is None and row["source"] for row in rows)


@quick
@given(st.lists(st.integers(0, 2048), min_size=1, max_size=32), WIDTHS)
def test_sectors_are_those_of_the_bytes(chosen: list[int], width: int) -> None:
    addresses = [width * place for place in chosen]
    asked = {address + byte for address in addresses for byte in range(width)}
    moved = {byte // 32 for byte in asked}
    assert sectors.sectors(addresses, width) == len(moved)
    assert sectors.lines(addresses, width) == len({byte // 128 for byte in asked})
    assert sectors.efficiency(addresses, width) == len(asked) / (32 * len(moved))
    assert sum(sectors.touched(addresses, width).values()) == len(chosen)


@quick
@given(st.integers(1, 64), WIDTHS)
def test_a_stride_touches_a_sector_an_element_at_most(stride: int, width: int) -> None:
    counted = sectors.sectors(sectors.strided(stride, width), width)
    assert counted == min(32, stride * width)  # bytes from one lane to the next


@quick
@given(st.integers(0, 31))
def test_side_by_side_is_the_least(shift: int) -> None:
    addresses = sectors.strided(1, start=4 * shift)
    assert sectors.least(addresses) == 4
    assert sectors.sectors(addresses) == (4 if shift % 8 == 0 else 5)
    assert sectors.sectors([*addresses[:8], *[None] * 24]) <= 2


@pytest.mark.parametrize(
    ("addresses", "width", "said"),
    [([2], 4, "no multiple of 4"), ([0], 5, "width = 5"), ([0] * 33, 4, "33 lanes")],
)
def test_sectors_bad_input_is_refused(addresses: list[int], width: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sectors.sectors(addresses, width)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("SECTOR", 64, "sectors of a load request"),
        ("least", lambda addresses, width=4: 0, "excessive"),
        ("efficiency", lambda addresses, width: 1.0, "used of what is"),
    ],
)
def test_sectors_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sectors, name, value)
    assert any(fact in one for one in broken_facts(sectors_cases.facts()))


def test_the_picture_counts_each_lane_once() -> None:
    [picture] = rows = sectors_cases.grids()
    assert grids_problem(rows) is None
    for line in picture["cells"]:
        assert sum(int(text or 0) for text, _ in line) == 32
    shifted = picture["cells"][picture["rows"].index("1+4B")]
    assert shifted[:6] == [("7", 1), ("8", 0), ("8", 0), ("8", 0), ("1", 1), ("", -1)]


def test_sectors_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(syntax.parse_python(Path(sectors.__file__)).imports)


# warp_shuffles: both sums are sums, and only a butterfly leaves them everywhere.


VALUES = st.integers(0, 5).flatmap(
    lambda steps: st.lists(st.integers(-99, 99), min_size=2**steps, max_size=2**steps)
)


def test_warp_shuffles_facts_hold() -> None:
    assert broken_facts(warp_shuffles_cases.facts()) == [] and len(warp_shuffles_cases.facts()) == 5
    assert all(fact_problem(row) is None for row in warp_shuffles_cases.facts())


@quick
@given(VALUES)
def test_a_butterfly_leaves_the_sum_in_every_lane_and_a_tree_in_the_first(values) -> None:
    across, down = shuffles.butterfly(values), shuffles.tree(values)
    assert across[-1] == [sum(values)] * len(values)
    assert down[-1][0] == sum(values)
    assert len(across) == len(down) == len(values).bit_length()


@quick
@given(VALUES)
def test_the_lanes_that_are_needed_alone_give_the_sum(values) -> None:
    held = list(values)
    for offset, need in zip(shuffles.offsets(len(held)), shuffles.needed(len(held)), strict=True):
        held = [value + held[lane + offset] for lane, value in enumerate(held[:need])]
    assert held == [sum(values)]


@pytest.mark.parametrize("lanes", [0, 3, 24, 33])
def test_lanes_that_are_no_power_of_two_are_refused(lanes: int) -> None:
    with pytest.raises(ValueError, match=f"{lanes} lanes are no power of two"):
        shuffles.butterfly([1] * lanes)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("xor_step", shuffles.down_step, "butterfly: lanes"),
        ("down_step", lambda values, offset: list(values), "tree: sum"),
        ("needed", lambda: [32] * 5, "tree: additions"),
    ],
)
def test_warp_shuffles_a_mistake_breaks_a_fact(
    name: str, value: object, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffles, name, value)
    assert any(fact in one for one in broken_facts(warp_shuffles_cases.facts()))


def test_pictures_show_who_takes_from_whom() -> None:
    rows = warp_shuffles_cases.grids()
    assert grids_problem(rows) is None
    across, down = rows
    values = list(range(32))
    for row, offset in enumerate(shuffles.offsets()):
        taken = [int(text) for text, _ in across["cells"][row]]
        moved = [value + values[source] for value, source in zip(values, taken, strict=True)]
        assert moved == shuffles.xor_step(values, offset)
        if offset <= 8:  # one colour, one value
            held = shuffles.butterfly(range(32))[row + 1]
            colours = [colour for _, colour in across["cells"][row]]
            assert len(set(zip(colours, held, strict=True))) == offset
        assert sum(bool(text) for text, _ in down["cells"][row]) == offset


def test_warp_shuffles_it_needs_the_standard_library_alone() -> None:
    assert syntax.standard_library_only(syntax.parse_python(Path(shuffles.__file__)).imports)
