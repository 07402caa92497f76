"""float_sums: rounding is IEEE's, every order keeps its bound, and facts can break."""

from __future__ import annotations

import struct
from math import fsum

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.float_sums import cases
from snippets.float_sums import float_sums as sums

FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)
U = 2.0**-24


def round_to_single(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def test_facts_hold() -> None:
    assert broken_facts(cases.facts()) == []
    assert len(cases.facts()) >= 8


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
    assert broken_facts(cases.facts()) == ["1 + 1024 * 2 ** -25, compensated"]


@pytest.mark.parametrize("n", [0, 3])
def test_lanes_are_a_power_of_two(n: int) -> None:
    with pytest.raises(ValueError, match=f"{n} lanes; give a power of two"):
        sums.lanes([1.0], 24, n)


def test_no_numbers_are_refused() -> None:
    for scheme in (sums.sequential, sums.pairwise, sums.lanes, sums.compensated):
        with pytest.raises(ValueError, match="give at least one"):
            scheme([], 24)
