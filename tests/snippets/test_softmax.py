"""Softmax: what it refuses, and shapes beyond those of its cases, which test_snippets.py runs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.softmax import cases, softmax  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.exhaustive("shapes beyond its cases")
def test_rows_too_long_for_one_pass() -> None:
    x = torch.zeros(1, softmax.MAX_N + 1, device=DEVICE)
    with pytest.raises(ValueError, match=r"N = 32769 exceeds MAX_N = 32768 \(forward\)"):
        softmax.one_pass("forward", x)
    y = torch.zeros(1, 20_000, device=DEVICE)
    with pytest.raises(ValueError, match=r"N = 20000 exceeds MAX_N / 2 = 16384 \(backward\)"):
        softmax.one_pass("backward", y, y)


@pytest.mark.parametrize("name", cases.VARIANTS)
def test_refuses_what_has_no_rows_or_another_dtype(name: str) -> None:
    with pytest.raises(TypeError, match="int64 is none of float32"):
        cases.VARIANTS[name]("forward", torch.zeros(2, 3, dtype=torch.int64, device=DEVICE))
    with pytest.raises(ValueError, match="0 dimensions"):
        cases.VARIANTS[name]("forward", torch.zeros((), device=DEVICE))


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("name", cases.VARIANTS)
def test_more_dimensions_are_rows(name: str) -> None:
    x = torch.randn(2, 3, 33, device=DEVICE).transpose(0, 1)
    y = cases.VARIANTS[name]("forward", x)
    assert y.shape == (3, 2, 33)
    assert torch.allclose(y, torch.softmax(x, -1), atol=1e-6)


@pytest.mark.exhaustive("shapes beyond its cases")
def test_every_variant_meets_both_passes_and_every_dtype_it_can() -> None:
    met = {
        (name, case["pass"], case["dtype"])
        for case in cases.CASES
        for name in case.get("variants", cases.VARIANTS)
    }
    for name in cases.VARIANTS:
        for which in ("forward", "backward"):
            for dtype in ("float32", "float16", "bfloat16"):
                assert (name, which, dtype) in met


def test_timed_sizes_leave_a_variant_each() -> None:
    for case in cases.TIMED:
        short = case["n"] * (1 if case["pass"] == "forward" else 2) <= softmax.MAX_N
        assert case.get("variants") == (None if short else ["online"])
