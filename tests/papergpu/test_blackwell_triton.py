"""Kernels of Triton for sm_100: its tensor cores, tensor maps, scales, and warps of their own."""

from __future__ import annotations

import pytest
from apart import cases, outcomes

pytestmark = pytest.mark.exhaustive("all architectures: Triton's kernels for sm_100")
SCRIPT = "blackwell_cases.py"


@pytest.mark.parametrize("case", cases(SCRIPT))
def test_kernel(case: str) -> None:
    wrong = outcomes(SCRIPT)[case]
    assert not wrong, wrong
