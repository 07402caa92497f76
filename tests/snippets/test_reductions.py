"""Sums of rows and of segments."""

from __future__ import annotations

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.row_reduce import cases, row_reduce  # noqa: E402
from snippets.segment_reduce import segment_reduce  # noqa: E402

# row_reduce: what is not finite, ties across parts, and what is refused.

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
def test_row_reduce_refuses_in_one_clear_line(
    op: str, x: torch.Tensor, error: type, said: str
) -> None:
    for call in (row_reduce.rows, row_reduce.rows_alone):
        with pytest.raises(error, match=f"^row_reduce: .*{said}") as raised:
            call(op, x)
        assert "\n" not in str(raised.value)


# segment_reduce: what their cases, which call the kernels, cannot see.

N = 9000  # several tiles, the last of them ragged


def make_offsets(*cuts: int, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(cuts, dtype=dtype, device=DEVICE)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators() -> None:
    x, cuts = draw_numbers(40).requires_grad_(), make_offsets(0, 7, 7, 40)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    for operator, told in (
        (segment_reduce.segment_sum, (x, cuts)),
        (segment_reduce.segment_spread, (draw_numbers(3).requires_grad_(), cuts, 40)),
    ):
        torch.library.opcheck(operator, told, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_the_gradient_of_a_segment_sum_is_spread_over_it() -> None:
    x, cuts = draw_numbers(N).requires_grad_(), make_offsets(3, 5, 5, 4096, 8000)
    dy = draw_numbers(4, seed=1).requires_grad_()
    (dx,) = torch.autograd.grad(segment_reduce.segment_sum(x, cuts), x, dy, create_graph=True)
    lengths = torch.tensor([3, 2, 0, 4091, 3904, 1000], device=DEVICE)
    padded = torch.cat([dy.new_zeros(1), dy.detach(), dy.new_zeros(1)])
    assert torch.equal(dx, padded.repeat_interleave(lengths))
    ddx = draw_numbers(N, seed=2)
    (ddy,) = torch.autograd.grad(dx, dy, ddx)  # and that of spreading is a sum
    parts = ddx.double().split(lengths.tolist())[1:-1]
    assert is_close(ddy, torch.stack([part.sum() for part in parts]))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_an_infinity_stays_in_its_segment() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 100, 5000, N)
    x[50], x[2000] = float("inf"), float("nan")
    sums = segment_reduce.segment_sum(x, cuts)
    assert sums[0] == float("inf") and sums[1].isnan() and sums[2].isfinite()


@pytest.mark.parametrize("n, cut", [(0, (0,)), (0, (0, 0)), (1, (0, 0, 1, 1)), (1, (1, 1))])
def test_of_nothing_and_of_one(n: int, cut: tuple) -> None:
    x, cuts = draw_numbers(n), make_offsets(*cut)
    due = [float(x[a:b].sum()) for a, b in zip(cut, cut[1:], strict=False)]
    for sums in (segment_reduce.segment_sum, segment_reduce.sums_alone):
        assert sums(x, cuts).tolist() == due


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 6000, N)
    first, again = (segment_reduce.segment_sum(x, cuts) for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_a_segment_past_two_to_the_31_alone() -> None:
    start = 2**31 + 8
    x = torch.empty(start + 40, dtype=torch.bfloat16, device=DEVICE)
    x[start:] = draw_numbers(40)
    y = segment_reduce.sums_alone(x, make_offsets(start, start + 40, dtype=torch.int64))
    assert torch.equal(y, segment_reduce.sums_alone(x[start:], make_offsets(0, 40)))


@pytest.mark.parametrize(
    ("call", "told", "error", "said"),
    [
        ("segment_sum", (draw_numbers(2, 3), make_offsets(0, 1)), ValueError, r"x is \(2, 3\)"),
        ("segment_sum", (draw_numbers(3), make_offsets(0, 4)), ValueError, "0 to 4 do not rise"),
        ("segment_sum", (draw_numbers(3), make_offsets(0, 2, 1)), ValueError, "do not rise"),
        ("sums_alone", (draw_numbers(3), make_offsets(0, 2, 1)), ValueError, "do not rise"),
        ("segment_sum", (draw_numbers(3), draw_numbers(2)), TypeError, "offsets: torch.float32"),
        ("segment_sum", (draw_numbers(3).long(), make_offsets(0, 3)), TypeError, "x: torch.int64"),
        ("segment_sum", (draw_numbers(3), make_offsets()), ValueError, r"offsets are \(0,\)"),
        ("spread_over", (draw_numbers(3), make_offsets(0, 3), 3), ValueError, r"be \(1,\)"),
        ("spread_over", (draw_numbers(1, 1), make_offsets(0, 3), 3), ValueError, r"dy is \(1, 1"),
    ],
)
def test_segment_reduce_refuses_in_one_clear_line(
    call: str, told: tuple, error: type, said: str
) -> None:
    if DEVICE == "cuda" and "rise" in said:
        pytest.skip("offsets on a GPU are not looked into")
    with pytest.raises(error, match=f"^segment_reduce: .*{said}") as raised:
        getattr(segment_reduce, call)(*told)
    assert "\n" not in str(raised.value)
