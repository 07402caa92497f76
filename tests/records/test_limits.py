from __future__ import annotations

import pytest

from warpshelf.records import limits

COST = {"bytes": 1000, "flops": 6000, "unit": "bf16"}
WRITTEN = COST | {"written": 250}
MEMORY = {"peak_bytes_per_second": 10.0}
PEAKS = {"peak_bytes_per_second": 10.0, "peak_flops_per_second": {"bf16": 50.0, "fp32": 5.0}}
H100 = {"sm": 90, "sms": 132}
BUS_BITS = 5120


def test_the_peaks_of_an_h100() -> None:
    found = limits.peak_rates(H100, BUS_BITS, 1980, 2619)
    assert found["peak_bytes_per_second"] == pytest.approx(3.352e12, rel=1e-3)
    rates = found["peak_flops_per_second"]
    assert rates["bf16"] == rates["fp16"] == pytest.approx(1.0705e15, rel=1e-3)
    # The data sheet's dense figures, at the boost clock of the sheet, lie just below these.
    assert rates["fp32"] == pytest.approx(66.9e12, rel=1e-2)
    assert rates["fp8"] == 2 * rates["fp16"] == 4 * rates["tf32"]


@pytest.mark.parametrize(
    ("sm", "sms", "mhz", "unit", "stated"),
    [
        (75, 40, 1590, "fp16", 65e12),  # T4's data sheet
        (75, 40, 1590, "fp32", 8.1e12),
        (75, 40, 1590, "int8", 130e12),
        (120, 170, 2407, "fp32", 104.8e12),  # RTX 5090, RTX Blackwell's whitepaper
        (120, 170, 2407, "fp16", 419e12),  # summed in fp16; in fp32 half of that
        (120, 170, 2407, "int8", 838e12),
    ],
)
def test_the_peaks_are_those_that_are_stated(
    sm: int, sms: int, mhz: float, unit: str, stated: float
) -> None:
    rates = limits.peak_rates({"sm": sm, "sms": sms}, None, mhz, None)["peak_flops_per_second"]
    assert rates[unit] == pytest.approx(stated, rel=1e-2)


def test_turing_has_no_unit_of_tf32_or_bf16() -> None:
    assert {"tf32", "bf16", "fp8"}.isdisjoint(limits.FLOPS_PER_CLOCK[75])


@pytest.mark.parametrize(
    ("sm_mhz", "memory_mhz", "gpu", "bus_bits", "known"),
    [
        (1980, 2619, H100, None, {"peak_flops_per_second"}),
        (1980, 2619, H100 | {"sm": 42}, BUS_BITS, {"peak_bytes_per_second"}),
        (None, 2619, H100, BUS_BITS, {"peak_bytes_per_second"}),
        (1980, None, H100, BUS_BITS, {"peak_flops_per_second"}),
        (0, 0, H100, BUS_BITS, set()),
        (-1980, -2619, H100, BUS_BITS, set()),
        (None, None, H100, BUS_BITS, set()),
    ],
)
def test_a_rate_that_is_not_known_is_absent(
    sm_mhz: float | None,
    memory_mhz: float | None,
    gpu: dict,
    bus_bits: int | None,
    known: set[str],
) -> None:
    assert limits.peak_rates(gpu, bus_bits, sm_mhz, memory_mhz).keys() == known


@pytest.mark.parametrize(
    ("first", "second", "tied"),
    [
        ((1.0, 1.2), (1.1, 1.3), True),
        ((1.0, 1.2), (1.2, 1.3), True),
        ((1.0, 1.2), (1.21, 1.3), False),
        ((1.0, 2.0), (1.4, 1.5), True),
        ((1.0, 1.0), (1.0, 1.0), True),
    ],
)
def test_times_tie_where_their_spreads_overlap(first: tuple, second: tuple, tied: bool) -> None:
    a, b = ({"p20": p20, "p80": p80} for p20, p80 in (first, second))
    assert limits.times_tie(a, b) is tied
    assert limits.times_tie(b, a) is tied


@pytest.mark.parametrize(
    ("cost", "peaks", "least"),
    [
        (COST, PEAKS, 120.0),  # FLOPs decide
        (COST | {"flops": 100}, PEAKS, 100.0),  # bytes decide
        (COST | {"unit": "fp32"}, PEAKS, 1200.0),
        (COST | {"unit": "fp8"}, PEAKS, 100.0),
        (COST, {"peak_bytes_per_second": 10.0}, 100.0),
        (COST, {"peak_flops_per_second": {"bf16": 50.0}}, 120.0),
        (COST, {}, 0.0),
        # Up to a whole L2 of what is written, all of the bytes where that is not known.
        (WRITTEN, MEMORY | {"l2_bytes": 100}, 90.0),
        (WRITTEN, MEMORY | {"l2_bytes": 900}, 75.0),
        (COST, MEMORY | {"l2_bytes": 900}, 10.0),
        (COST | {"bytes": 2**30}, {"peak_bytes_per_second": 1.0, "l2_bytes": 2**30},
         2**30 - limits.MOST_L2),
    ],
)  # fmt: skip
def test_the_least_time_is_that_of_the_slower_of_bytes_and_flops(
    cost: dict, peaks: dict, least: float
) -> None:
    assert limits.least_seconds(cost, peaks) == least
