"""Kernels of Triton with tensor descriptors, by the maps and copies that it makes of them."""

from __future__ import annotations

import pytest
from apart import cases, outcomes
from conftest import exhaustive

SCRIPT = "descriptor_cases.py"


@pytest.mark.parametrize("target", exhaustive(["sm_90", "sm_100"], "all architectures"))
@pytest.mark.parametrize("case", cases(SCRIPT))
def test_kernel(case: str, target: str) -> None:
    wrong = outcomes(SCRIPT, target)[case]
    assert not wrong, wrong
