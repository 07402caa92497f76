"""Rates are what NVIDIA publishes: sources, derivations, and what is left out."""

from __future__ import annotations

import math

import pytest

from warpshelf.look import bound


@pytest.mark.parametrize("arch", bound.PEAKS)
def test_peaks_are_a_power_of_two_in_each_cycle(arch: str) -> None:
    for peak in bound.PEAKS[arch]:
        for kind in peak.tera:
            found = bound.matrix_rate(arch, kind)
            assert found is not None
            assert found.amount == pytest.approx(peak.rate(kind), rel=0.01)
            assert math.log2(found.amount).is_integer()
            assert found.source == peak.source


@pytest.mark.parametrize(
    ("arch", "kind", "multiply_adds"),
    [
        ("sm_80", "f16", 1024),  # 4 tensor cores of 256, as the white paper has it
        ("sm_80", "f64", 64),
        ("sm_86", "tf32", 256),
        ("sm_90a", "bf16", 2048),
        ("sm_90a", "f8", 4096),
        ("sm_100a", "f16", 4096),
        ("sm_100a", "f4", 16384),
    ],
)
def test_matrix_rates(arch: str, kind: str, multiply_adds: int) -> None:
    found = bound.matrix_rate(arch, kind)
    assert found is not None
    assert found.amount == multiply_adds


@pytest.mark.parametrize("arch", bound.ARCHS)
def test_what_is_not_published_is_left_out(arch: str) -> None:
    assert bound.matrix_rate(arch, "b1") is None
    assert (bound.matrix_rate(arch, "f8") is None) == (arch in ("sm_80", "sm_86"))
    assert (bound.matrix_rate(arch, "f64") is None) == (arch not in ("sm_80", "sm_90"))


@pytest.mark.parametrize("arch", bound.ARCHS)
def test_every_rate_has_its_source(arch: str) -> None:
    for pipe in bound.PIPES:
        found = bound.lane_rate(arch, pipe)
        assert found.amount > 0
        assert found.source.startswith("https://docs.nvidia.com/")
    for one in (bound.WAVEFRONTS, bound.BYTES, bound.TAGS, bound.ISSUE):
        assert one.source.startswith("https://docs.nvidia.com/")


def test_the_rates_give_the_published_peak_of_fp32() -> None:
    """19.5, 38.7, 82.6 and 66.9 Tflop/s."""
    for arch, at, tera in (("sm_80", 0, 19.5), ("sm_86", 0, 38.7), ("sm_89", 0, 82.6),
                           ("sm_90", 1, 66.9)):  # fmt: skip
        peak = bound.PEAKS[arch][at]
        flops = 2 * bound.lane_rate(arch, "FP32").amount * peak.sms * peak.mhz * 1e6
        assert flops == pytest.approx(tera * 1e12, rel=0.01), arch


def test_an_architecture_without_rates_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rates are known for sm_75; there are those of sm_80"):
        bound.lane_rate("sm_75", "FP32")
