"""Formats of numbers, and what becomes of their sums."""

from __future__ import annotations

import math
import struct
import sys
from math import fsum
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.float_formats import cases as float_formats_cases
from snippets.float_formats import float_formats as floats
from snippets.float_formats.float_formats import FORMATS, Format
from snippets.float_sums import cases as float_sums_cases
from snippets.float_sums import float_sums as sums

# float_formats: torch's own eight-bit floats agree with every value and every cast.


TORCH = {floats.E4M3: torch.float8_e4m3fn, floats.E5M2: torch.float8_e5m2}
FORM = st.sampled_from(FORMATS)
FINITE = st.floats(-1e6, 1e6)


@pytest.mark.parametrize("form", TORCH, ids=lambda form: form.name)
def test_every_pattern_is_torch_s(form: Format) -> None:
    patterns = torch.arange(128, dtype=torch.uint8).view(TORCH[form]).double()
    finite = [value for value in patterns.tolist() if math.isfinite(value)]
    assert form.values == finite == sorted(finite)
    assert form.taken == 128 - len(finite)


@pytest.mark.parametrize("form", TORCH, ids=lambda form: form.name)
@given(x=st.floats(-500, 500, width=32))
def test_casts_round_as_torch_does(form: Format, x: float) -> None:
    if abs(x) > form.largest:
        assert abs(form.cast(x)) == form.largest
        return
    assert form.cast(x) == torch.tensor(x).to(TORCH[form]).double().item()


@given(FORM, FINITE)
def test_a_cast_is_a_value_and_none_is_nearer(form: Format, x: float) -> None:
    got = form.cast(x)
    assert abs(got) in form.values and math.copysign(1, got) == math.copysign(1, x)
    near = min(abs(value - min(abs(x), form.largest)) for value in form.values)
    assert abs(abs(got) - min(abs(x), form.largest)) == near
    assert form.cast(got) == got and form.cast(-x) == -got


@given(FORM, st.data())
def test_halfway_goes_to_the_even_pattern(form: Format, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, len(form.values) - 2))
    middle = (form.values[low] + form.values[low + 1]) / 2
    assert form.values.index(form.cast(middle)) % 2 == 0


@given(FORM, FINITE)
def test_a_normal_value_errs_by_half_of_its_last_place(form: Format, x: float) -> None:
    if form.smallest_normal <= abs(x) <= form.largest:
        assert abs(form.cast(x) - x) <= abs(x) * 2.0 ** -(form.mantissa + 1)
    elif abs(x) < form.smallest_normal:
        assert abs(form.cast(x) - x) <= form.smallest / 2


@given(FORM, st.lists(FINITE, min_size=1, max_size=8).filter(lambda xs: max(map(abs, xs)) > 1e-3))
def test_a_scale_keeps_the_largest(form: Format, values: list[float]) -> None:
    scale, got = floats.scaled(values, form)
    largest = max(map(abs, values))
    assert largest * scale == pytest.approx(form.largest)
    assert max(map(abs, got)) == pytest.approx(largest)


def test_spacing_doubles_with_each_power_of_two() -> None:
    assert [floats.E4M3.spacing(x) for x in (1, 10, 16, 300)] == [0.125, 1, 2, 32]
    assert floats.E5M2.spacing(0) == floats.E5M2.smallest


def test_nan_is_refused_and_infinity_saturates() -> None:
    with pytest.raises(ValueError, match="NaN has no nearest value"):
        floats.E4M3.cast(math.nan)
    assert floats.E4M3.cast(-math.inf) == -448


def test_facts_hold_and_a_wrong_bias_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(float_formats_cases.facts()) == [] and len(
        float_formats_cases.facts()
    ) == 3 * len(FORMATS)
    monkeypatch.setattr(Format, "bias", property(lambda form: 2 ** (form.exponent - 1)))
    assert len(broken_facts(float_formats_cases.facts())) >= len(FORMATS)


def test_pictures_hold_the_values() -> None:
    e4m3, e5m2, outlier = float_formats_cases.grids()
    for picture, form in ((e4m3, floats.E4M3), (e5m2, floats.E5M2)):
        shown = [float(text) for row in picture["cells"] for text, _ in row if text]
        assert shown == [value for value in form.values if value >= 0.25]
    lost = [sum(cell == ("0", 1) for cell in row) for row in outlier["cells"]]
    assert lost == sorted(lost) and lost[0] == 0 and lost[-1] == 15
    assert all((text == "0") == (colour == 1) for row in outlier["cells"] for text, colour in row)


def test_it_imports_the_standard_library_alone() -> None:
    text = Path(floats.__file__).read_text(encoding="utf-8")
    lines = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith("from")]
    assert set(lines) <= sys.stdlib_module_names


# float_sums: rounding is IEEE's, every order keeps its bound, and facts can break.


FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)
U = 2.0**-24


def round_to_single(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def test_facts_hold() -> None:
    assert broken_facts(float_sums_cases.facts()) == []
    assert len(float_sums_cases.facts()) >= 8


@given(st.floats(2.0**-100, 2.0**100) | st.floats(-(2.0**100), -(2.0**-100)) | st.just(0.0))
def test_rounding_is_the_hardware_s(x: float) -> None:
    assert sums.rounded(x, 24) == round_to_single(x)
    half = torch.tensor(x, dtype=torch.float64).to(torch.float32).to(torch.bfloat16)
    assert sums.rounded(round_to_single(x), 8) == half.item()


@given(
    st.lists(FLOATS.map(round_to_single), min_size=1, max_size=80), st.sampled_from([1, 2, 8, 32])
)
def test_errors_stay_below_depth_times_u(x: list[float], n: int) -> None:
    truth, size = fsum(x), fsum(map(abs, x))
    for total, depth in (
        sums.sequential(x, 24),
        sums.pairwise(x, 24),
        sums.lanes(x, 24, n),
    ):
        assert abs(total - truth) <= 1.0001 * depth * U * size
    # 2 u and a term that is of second order: n u squared.
    assert abs(sums.compensated(x, 24) - truth) <= (2.0001 * U + 4 * len(x) * U**2) * size


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=80))
def test_whole_numbers_are_exact_in_every_order(x: list[int]) -> None:
    values = [float(one) for one in x]
    for total in (
        sums.sequential(values, 24)[0],
        sums.pairwise(values, 24)[0],
        sums.lanes(values, 24)[0],
        sums.compensated(values, 24),
    ):
        assert total == sum(x)


def test_a_compensation_that_is_dropped_breaks_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "compensated", lambda x, bits: sums.sequential(x, bits)[0])
    assert broken_facts(float_sums_cases.facts()) == ["1 + 1024 * 2 ** -25, compensated"]


@pytest.mark.parametrize("n", [0, 3])
def test_lanes_are_a_power_of_two(n: int) -> None:
    with pytest.raises(ValueError, match=f"{n} lanes; give a power of two"):
        sums.lanes([1.0], 24, n)


def test_no_numbers_are_refused() -> None:
    for scheme in (sums.sequential, sums.pairwise, sums.lanes, sums.compensated):
        with pytest.raises(ValueError, match="give at least one"):
            scheme([], 24)
