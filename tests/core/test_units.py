"""Units, and which names mean one kind of device."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core import devices, units
from warpshelf.core.files import LARGEST_INTEGER, NUMBER, Shape, shape_problem
from warpshelf.core.findings import printable_line

ANY = st.one_of(
    st.floats(), st.integers(), st.none(), st.booleans(), st.just(10**400), st.just(-0.0)
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 s"),
        (12.0, "12.0 s"),
        (1.2e-3, "1.20 ms"),
        (999.96e-6, "1.00 ms"),
        (12.345e-6, "12.3 µs"),
        (4.2e-9, "4.20 ns"),
        (3e-11, "0.0300 ns"),
        (None, "unknown"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_seconds_pick_the_unit_after_rounding(value: object, shown: str) -> None:
    assert units.format_seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (512, "512 B"), (49152, "48 KiB"), (232448, "227 KiB"), (1536, "1.50 KiB"),
     (80 * 2**30, "80 GiB"), (2**60, "1.05e6 TiB"), (1000, "1000 B"), (None, "unknown")],
)  # fmt: skip
def test_sizes_are_binary_and_exact_where_they_can_be(value: object, shown: str) -> None:
    assert units.format_bytes(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(2.81e12, "B/s", "2.81 TB/s"), (7.9e14, "FLOP/s", "790 TFLOP/s"), (0, "B/s", "0 B/s"),
     (1.07e15, "FLOP/s", "1.07 PFLOP/s"), (950.4, "B/s", "950 B/s"), (math.nan, "B/s", "unknown")],
)  # fmt: skip
def test_rates_are_decimal(value: object, unit: str, shown: str) -> None:
    assert units.format_rate(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (-0.0, "0"), (1, "1.00"), (1234, "1230"), (0.012345, "0.0123"), (9.999, "10.0"),
     (3.1e-8, "3.10e-8"), (1.5e300, "1.50e300"), (-2.5, "-2.50")],
)  # fmt: skip
def test_three_significant_digits(value: float, shown: str) -> None:
    assert units.format_significant(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(6738415616, f"6{units.THIN}738{units.THIN}415{units.THIN}616"), (4096, "4096"),
     (True, "unknown"), (2.0, "2"), (0.1, "0.1"), (0.30000000000000004, "0.3"), (1e21, "1e21"),
     (123456.7, "123457"), (-12345, f"-12{units.THIN}345")],
)  # fmt: skip
def test_numbers_are_shown_whole_or_to_six_digits(value: object, shown: str) -> None:
    assert units.format_number(value) == shown


def test_shares_ratios_and_errors() -> None:
    assert units.format_percent(0.8431) == "84.3 %"
    assert units.format_percent(1e307) == "unknown"
    assert units.format_ratio(1.234) == "1.23×"
    assert units.format_error(3.14159e-8) == "3.14e-8"
    assert units.format_error(0.0) == "0"
    assert units.format_error(None) == "unknown"


def test_days_are_read_from_a_record_and_nothing_else() -> None:
    assert units.format_date("2026-11-21T01:02:03Z") == "21 Nov 2026"
    assert units.format_datetime("2026-01-02T03:04:05Z") == "2 Jan 2026, 03:04 UTC"
    assert units.format_date("<b>") == units.format_datetime(None) == "an unknown date"


@given(ANY)
def test_no_formatter_shows_nan_infinity_or_minus_zero(value: object) -> None:
    shown = [
        units.format_significant(value),
        units.format_seconds(value),
        units.format_bytes(value),
        units.format_percent(value),
        units.format_error(value),
        units.format_ratio(value),
        units.format_number(value),
        units.format_rate(value, "B/s"),
    ]
    for text in shown:
        assert not re.search(r"nan|inf|-0(?![.\d])|e-?0\d", text, re.IGNORECASE), text


@given(st.floats(min_value=1e-290, max_value=1e290))
def test_significant_digits_are_within_half_a_unit(value: float) -> None:
    assert float(units.format_significant(value)) == pytest.approx(value, rel=0.0051)


@given(st.floats(min_value=1e-12, max_value=1e6))
def test_seconds_read_back(value: float) -> None:
    digits, unit = units.format_seconds(value).split(" ")
    assert float(digits) * 10.0 ** dict(units.TIMES)[unit] == pytest.approx(value, rel=0.0051)


@given(ANY, ANY)
def test_division_gives_a_finite_number_or_none(above: object, below: object) -> None:
    found = units.safe_divide(above, below)
    assert found is None or math.isfinite(found)


def test_labels_leave_out_what_all_cases_share() -> None:
    cases = [
        {"m": 37, "n": 781, "scale": 1.0, "dtype": "float32"},
        {"m": 37, "n": 16, "scale": 1.0, "dtype": "bfloat16"},
    ]
    assert units.case_labels(cases) == ["37 × 781 float32", "37 × 16 bfloat16"]
    assert units.dimension_names(cases) == "m × n"


def test_labels_of_one_side_name_it_and_flags_read_as_words() -> None:
    cases = [{"n": 1, "strided": True}, {"n": 12, "strided": False}, {"n": 12, "pad": "left"}]
    assert units.case_labels(cases) == ["n = 1 strided", "n = 12 no strided", "n = 12 pad left"]
    assert units.dimension_names(cases) == ""


def test_the_only_case_is_labelled_in_full() -> None:
    assert units.case_labels([{"m": 2, "n": 3, "dtype": "float32"}]) == ["2 × 3 float32"]
    assert units.case_labels([{}]) == ["no parameters"]
    assert units.case_labels([]) == []


def test_cases_with_other_sides_name_every_side() -> None:
    assert units.case_labels([{"m": 2, "n": 3}, {"n": 3}]) == ["m = 2", "n = 3"]


VALUES = st.one_of(
    st.integers(), st.floats(), st.text(), st.booleans(), st.none(), st.lists(st.integers())
)


@given(st.lists(st.dictionaries(st.sampled_from(["m", "n", "dtype", "x y", ""]), VALUES)))
def test_labels_never_raise_and_keep_the_order(cases: list[dict]) -> None:
    assert len(units.case_labels(cases)) == len(cases)


def test_the_variants_of_a_case_are_not_in_its_label() -> None:
    cases = [{"m": 2, "n": 3}, {"m": 2, "n": 5, "variants": ["online"]}]
    assert units.case_labels(cases) == ["2 \u00d7 3", "2 \u00d7 5"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "5 s"), (12.4, "10 s"), (13, "15 s"), (57, "55 s"), (58, "1 min"), (840, "14 min"),
     (5369, "89 min"), (5400, "1 h 30 min"), (7300, "2 h"), (7799, "2 h 10 min"), (90000, "25 h")],
)  # fmt: skip
def test_a_time_to_wait_for_is_coarse(seconds: float, words: str) -> None:
    assert units.format_duration(seconds) == words


# Which names mean one kind of device, as far as they say.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("H100 80GB SXM5", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100", "NVIDIA H100 PCIe"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA A6000", "NVIDIA RTX A6000"),
        ("A100 80GB SXM4", "NVIDIA A100-SXM4-80GB"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("1 × H100", "NVIDIA H100 NVL"),
        ("Imaginary G9", "Imaginary G9 80GB"),
    ],
)
def test_names_that_may_mean_one_device(one: str, other: str) -> None:
    assert devices.same_device(one, other) and devices.same_device(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("H100 80GB SXM5", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 NVL", "NVIDIA H100 PCIe"),
        ("A100 40GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA H100", "NVIDIA H200"),
        ("NVIDIA H100", "NVIDIA H800"),
        ("8 × H800", "NVIDIA H800"),
        ("96 × H100", "NVIDIA H100"),
        ("a Hopper GPU that is not named", "NVIDIA H100"),
        ("CPU", "CPU"),
        ("", ""),
    ],
)
def test_names_that_do_not(one: str, other: str) -> None:
    assert not devices.same_device(one, other) and not devices.same_device(other, one)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_names_are_compared(one: str, other: str) -> None:
    assert devices.same_device(one, other) == devices.same_device(other, one)
    assert devices.same_device(one, one) == (devices.parse_device(one) is not None)


def check_odd(value: object) -> str | None:
    return None if type(value) is int and value % 2 else "is not odd"


SHAPES: dict[str, tuple[Shape, list[Any], list[tuple[Any, str]]]] = {
    "a type": (int, [0, -3], [
        ("1", "it is '1'"), (1.0, "it is 1.0"), (True, "it is True"), (None, "it is None"),
        (LARGEST_INTEGER, "it is out of range"), ("x" * 99, "it is 'xxxxxxxxx"),
    ]),
    "types": (NUMBER, [1, 0.5], [
        (float("nan"), "it is nan"), (float("inf"), "it is inf"), (False, "it is False"),
    ]),
    "a truth": (bool, [True, False], [(1, "it is 1"), ("true", "it is 'true'")]),
    "anything": (object, [True, None, [], "x"], [(float("-inf"), "it is -inf")]),
    "one of": (("up", "down"), ["up"], [
        ("left", "it is 'left', not one of up, down"), (["up"], "it is ['up'], not one of"),
    ]),
    "a pattern": (re.compile("[a-z]+"), ["abc"], [
        ("ab\n", "it is 'ab\\n'"), ("ab1", "it is 'ab1'"), (1, "it is 1"), ("", "it is ''"),
    ]),
    "a function": (check_odd, [3], [(4, "it is not odd"), ("3", "it is not odd")]),
    "a list": ([int], [[], [1, 2]], [
        ((1,), "it is not a list"), ({}, "it is not a list"), ([1, "2"], "it[1] is '2'"),
    ]),
    "an object": ({"n": int, "of?": [str]}, [{"n": 1}, {"n": 1, "of": ["a"]}], [
        ([], "it is not an object"), ({}, "it lacks 'n'"),
        ({"n": 1, "m": 2}, "it has the unknown key"),
        ({"n": 1, "of": None}, "it.of is not a list"), ({"n": 1, "of": [2]}, "it.of[0] is 2"),
        ({"n": 1, 2: 3}, "it has the unknown key 2"), ({"n": 1, "of?": []}, "unknown key 'of?'"),
    ]),
    "any keys": ({"*": {"n": int}}, [{}, {"a": {"n": 1}, "b": {"n": 2}}], [
        ({"a": {"n": 1}, "b": {}}, "it.b lacks 'n'"), ([], "it is not an object"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape(name: str) -> None:
    shape, good, bad = SHAPES[name]
    assert [shape_problem(value, shape, "it") for value in good] == [None] * len(good)
    for value, said in bad:
        assert said in (shape_problem(value, shape, "it") or ""), value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON, st.sampled_from(sorted(SHAPES)))
def test_of_any_value_one_thing_is_said(value: object, name: str) -> None:
    said = shape_problem(value, SHAPES[name][0], "it")
    assert said is None or (said.startswith("it") and "\n" not in printable_line(said))


@pytest.mark.parametrize(
    ("value", "shape", "said"),
    [
        ([1, -2, 3], [int], None),
        ([], [int], None),
        ([1, True], [int], "it[1] is True"),
        ([1, 2.0], [int], "it[1] is 2.0"),
        ([1, LARGEST_INTEGER], [int], "it[1] is out of range"),
        ([1, -LARGEST_INTEGER], [int], "it[1] is out of range"),
        (["a", ""], [str], None),
        (["a", 1], [str], "it[1] is 1"),
    ],
)
def test_long_lists_of_one_type_are_told_as_others_are(
    value: list[object], shape: object, said: str | None
) -> None:
    assert shape_problem(value, shape, "it") == said
