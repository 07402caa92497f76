from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_gpu import Fake, posix, smi

from warpshelf.core import files
from warpshelf.records import ledger, schema

__all__ = ["smi"]


@pytest.mark.parametrize(
    ("device", "slug"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("  Tesla  V100-SXM2 ", "tesla-v100-sxm2"),
        ("GeForce RTX™ 4090 (Laptop)", "geforce-rtx-4090-laptop"),
        ("../../x", "x"),
        ("///", "gpu"),
        ("", "gpu"),
        ("x" * 500, "x" * ledger.LONGEST_SLUG),
        ("x" * (ledger.LONGEST_SLUG - 1) + " y", "x" * (ledger.LONGEST_SLUG - 1)),
    ],
)
def test_a_slug_is_a_file_name(device: str, slug: str) -> None:
    assert ledger.device_slug(device) == slug


@given(st.text(max_size=200))
def test_every_slug_is_one_that_a_record_may_have(device: str) -> None:
    assert schema.MACHINE.fullmatch(ledger.device_slug(device))


def test_this_machine_is_described_as_a_record_has_it() -> None:
    from warpshelf.worker import gpu

    found = gpu.machine_description()
    assert files.shape_problem(found, schema.MACHINE_SHAPE, "machine") is None
    assert (found["gpus"] == 0) == (found["slug"] == "cpu")
    cpu = ledger.without_gpu(found)
    assert files.shape_problem(cpu, schema.MACHINE_SHAPE, "machine") is None
    assert (cpu["slug"], cpu["device"], cpu["gpus"], cpu["sm"]) == ("cpu", "CPU", 0, None)
    assert cpu["torch"] == found["torch"]


@posix
def test_nvidia_smi_alone_is_reason_enough_to_ask_torch(smi: Fake) -> None:
    smi.set_output("")
    assert ledger.may_have_gpu()
