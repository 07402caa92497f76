"""Rates are what NVIDIA publishes: derivations, and what is left out."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest

from warpshelf.look import bound
from warpshelf.look.work import ExecutedInstruction


class Peak(NamedTuple):
    """Published peaks of a device: 10**12 operations a second, dense, a multiply-add being two."""

    device: str
    sms: int
    mhz: int
    tera: dict[str, float]
    source: str

    def compute_rate(self, kind: str) -> float:
        """Multiply-adds in a cycle of one SM, a power of two to within 1 %."""
        return self.tera[kind] * 1e12 / 2 / self.sms / (self.mhz * 1e6)


A100 = (
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/"
    "nvidia-ampere-architecture-whitepaper.pdf"
)
GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
ADA = (
    "https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/"
    "nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf"
)
H100 = "https://resources.nvidia.com/en-us-hopper-architecture/nvidia-h100-tensor-c"
CUTLASS = "https://github.com/NVIDIA/cutlass/blob/main/media/docs/cpp/blackwell_functionality.md"
PEAKS = {
    "sm_80": (
        Peak("A100 SXM4", 108, 1410, {
            "f16": 312, "bf16": 312, "tf32": 156, "f64": 19.5, "s8": 624, "s4": 1248,
        }, A100),
    ),
    "sm_86": (Peak("RTX A6000", 84, 1800, {"f16": 154.8, "bf16": 154.8, "s8": 309.7}, GA102),),
    # With sums in FP16: GeForce boards run half as fast with sums in FP32, others do not.
    "sm_89": (Peak("RTX 4090", 128, 2520, {"f16": 330.3, "f8": 660.6, "s8": 660.6}, ADA),),
    "sm_90": (
        Peak("H100 SXM5", 132, 1830, {
            "f16": 989.4, "bf16": 989.4, "tf32": 494.7, "f8": 1978.9, "s8": 1978.9,
        }, H100),
        Peak("H100 SXM5", 132, 1980, {"f64": 66.9}, H100),
    ),
}  # fmt: skip
# Of which kind and how many times its rate, where a peak that no board halves is not at hand: what
# holds between the kinds of sm_80 and of sm_90.
ALIKE = {"bf16": ("f16", 1.0), "tf32": ("f16", 0.5)}
# In units of sm_90's rates, as CUTLASS publishes them.
BLACKWELL = {
    "f16": ("f16", 2), "bf16": ("bf16", 2), "tf32": ("tf32", 2), "s8": ("s8", 2), "f8": ("f8", 2),
    "f4": ("f8", 4),
}  # fmt: skip


@pytest.mark.parametrize("arch", PEAKS)
def test_matrix_rates_follow_from_published_peaks(arch: str) -> None:
    known = bound.MATRIX[arch]
    published = {kind: peak.compute_rate(kind) for peak in PEAKS[arch] for kind in peak.tera}
    for kind, rate in known.items():
        assert math.log2(rate).is_integer()
        of, share = (kind, 1.0) if kind in published else ALIKE[kind]
        assert rate == pytest.approx(published[of] * share, rel=0.01)
    assert published.keys() <= known.keys()


def test_those_of_blackwell_are_multiples_of_hopper() -> None:
    hopper = bound.MATRIX["sm_90"]
    due = {kind: times * hopper[of] for kind, (of, times) in BLACKWELL.items()}
    assert bound.MATRIX["sm_100"] == due


@pytest.mark.parametrize("arch", bound.ARCHS)
def test_what_is_not_published_is_left_out(arch: str) -> None:
    known = bound.MATRIX[arch]
    assert "b1" not in known
    assert ("f8" not in known) == (arch in ("sm_80", "sm_86"))
    assert ("f64" not in known) == (arch not in ("sm_80", "sm_90"))


def test_the_rates_give_the_published_peak_of_fp32() -> None:
    """19.5, 38.7, 82.6 and 66.9 Tflop/s."""
    for arch, at, tera in (("sm_80", 0, 19.5), ("sm_86", 0, 38.7), ("sm_89", 0, 82.6),
                           ("sm_90", 1, 66.9)):  # fmt: skip
        peak = PEAKS[arch][at]
        rate = bound.PIPES["FP32"][bound.ARCHS.index(arch)]
        assert 2 * rate * peak.sms * peak.mhz * 1e6 == pytest.approx(tera * 1e12, rel=0.01), arch


def test_an_architecture_without_rates_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rates are known for sm_75; known are sm_80"):
        bound.cycle_bound([ExecutedInstruction("bar.sync", {})], "sm_75")
