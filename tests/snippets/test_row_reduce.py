"""Reductions of rows: what is not finite, ties across parts, and what is refused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.row_reduce import cases, row_reduce  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_numbers(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


@pytest.mark.parametrize("variant", cases.VARIANTS)
def test_maxima_and_sums_of_exponentials_of_what_is_not_finite(variant: str) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[-inf, -inf, -inf], [-inf, inf, inf], [1, nan, nan], [0.0, -0.0, -1]]
    x = torch.tensor(rows, device=DEVICE)
    y, index = cases.VARIANTS[variant]("max", x)
    assert index.tolist() == [0, 1, 1, 0] and y[2].isnan() and y[1] == inf
    y = cases.VARIANTS[variant]("logsumexp", x)
    assert torch.allclose(y, torch.logsumexp(x, -1), equal_nan=True)


def test_the_first_of_equals_wins_across_parts() -> None:
    x = torch.zeros(2, 70_000, device=DEVICE)
    x[0, 69_999], x[1, 30_001], x[1, 65_000] = 5, 5, 5
    y, index = row_reduce.rows("max", x)
    assert y.tolist() == [5, 5] and index.tolist() == [69_999, 30_001]


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("variant", cases.VARIANTS)
def test_offsets_pass_two_to_the_31(variant: str) -> None:
    far = 2**31 + 64  # elements; the memory between two rows is never touched
    x = torch.empty(far + 32, dtype=torch.bfloat16, device=DEVICE)
    x = x.as_strided((2, 32), (far, 1)).copy_(draw_numbers(2, 32))
    for op in ("sum", "max", "logsumexp"):
        y = cases.VARIANTS[variant](op, x)
        near = cases.VARIANTS[variant](op, x.contiguous())
        assert all(torch.equal(a, b) for a, b in zip(y, near, strict=True))


@pytest.mark.parametrize(
    ("op", "x", "error", "said"),
    [
        ("sum", draw_numbers(), ValueError, "0 dimensions"),
        ("max", draw_numbers(2, 0), ValueError, "N = 0 has no max"),
        ("min", draw_numbers(2, 3), ValueError, "op 'min' is none of sum, max"),
        ("sum", draw_numbers(3).long(), TypeError, "x: torch.int64 is none"),
        ("sum", draw_numbers(3).to("meta"), TypeError, "x is on meta; bring"),
    ],
)
def test_refuses_in_one_clear_line(op: str, x: torch.Tensor, error: type, said: str) -> None:
    for call in (row_reduce.rows, row_reduce.rows_alone):
        with pytest.raises(error, match=f"^row_reduce: .*{said}") as raised:
            call(op, x)
        assert "\n" not in str(raised.value)
