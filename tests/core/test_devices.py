"""Which names mean one kind of device, as far as they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core import devices


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
