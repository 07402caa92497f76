"""Reductions and scans as operators: what their cases, which call the kernels, cannot see."""

from __future__ import annotations

import pytest
from close_tensors import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.reduce_scan import cases, reduce_scan  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N = 9000  # several tiles, the last of them ragged


def draw_numbers(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def make_offsets(*cuts: int, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(cuts, dtype=dtype, device=DEVICE)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators() -> None:
    x, gates = draw_numbers(40).requires_grad_(), draw_numbers(40, seed=1).requires_grad_()
    cuts = make_offsets(0, 7, 7, 40)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    for operator, told in (
        (reduce_scan.segment_sum, (x, cuts)),
        (reduce_scan.segment_spread, (draw_numbers(3).requires_grad_(), cuts, 40)),
        (reduce_scan.gated_scan, (x, gates, cuts, False)),
        (reduce_scan.gated_scan, (x, None, None, True)),
    ):
        torch.library.opcheck(operator, told, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_the_gradient_of_a_segment_sum_is_spread_over_it() -> None:
    x, cuts = draw_numbers(N).requires_grad_(), make_offsets(3, 5, 5, 4096, 8000)
    dy = draw_numbers(4, seed=1).requires_grad_()
    (dx,) = torch.autograd.grad(reduce_scan.segment_sum(x, cuts), x, dy, create_graph=True)
    lengths = torch.tensor([3, 2, 0, 4091, 3904, 1000], device=DEVICE)
    padded = torch.cat([dy.new_zeros(1), dy.detach(), dy.new_zeros(1)])
    assert torch.equal(dx, padded.repeat_interleave(lengths))
    ddx = draw_numbers(N, seed=2)
    (ddy,) = torch.autograd.grad(dx, dy, ddx)  # and that of spreading is a sum
    parts = ddx.double().split(lengths.tolist())[1:-1]
    assert is_close(ddy, torch.stack([part.sum() for part in parts]))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("cut", [None, (0, 11, 11, 2048, 4095, N), (5, 7000)])
def test_gradients_of_a_scan_are_those_of_a_float64_twin(gated: bool, cut) -> None:
    x, dh = draw_numbers(N), draw_numbers(N, seed=1)
    gates = draw_numbers(N, seed=2).abs().clamp(max=1) if gated else None
    cuts = None if cut is None else make_offsets(*cut, dtype=torch.int64)
    mine = [each.clone().requires_grad_() for each in (x, gates) if each is not None]
    h = reduce_scan.scan(mine[0], mine[1] if gated else None, cuts)
    found = torch.autograd.grad(h, mine, dh)
    twins = [each.detach().double().requires_grad_() for each in mine]
    starts = {0, *(cut or ())}
    row, rows = None, []
    each_gate = twins[1].unbind() if gated else [1.0] * N
    for i, (value, gate) in enumerate(zip(twins[0].unbind(), each_gate, strict=True)):
        row = value if i in starts else gate * row + value
        rows.append(row)
    truth = torch.stack(rows)
    wanted = torch.autograd.grad(truth, twins, dh.double())
    assert is_close(h.detach(), truth.detach())
    assert all(is_close(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_a_scan_of_rows_begins_anew_in_each() -> None:
    x, gates = draw_numbers(3, 2, 50).requires_grad_(), draw_numbers(3, 2, 50, seed=1).sigmoid()
    gates.requires_grad_()
    h = reduce_scan.scan(x, gates)
    found = torch.autograd.grad(h, (x, gates), draw_numbers(3, 2, 50, seed=2))
    for i in range(3):
        a, b = (each.detach()[i, 1].clone().requires_grad_() for each in (x, gates))
        alone = reduce_scan.scan(a, b)
        assert is_close(alone.detach(), h[i, 1].detach().double())
        wanted = torch.autograd.grad(alone, (a, b), draw_numbers(3, 2, 50, seed=2)[i, 1])
        assert all(is_close(b, a[i, 1].double()) for a, b in zip(found, wanted, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_an_infinity_stays_in_its_segment() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 100, 5000, N)
    x[50], x[2000] = float("inf"), float("nan")
    sums = reduce_scan.segment_sum(x, cuts)
    assert sums[0] == float("inf") and sums[1].isnan() and sums[2].isfinite()
    for gates in (None, torch.full_like(x, 0.5)):
        h = reduce_scan.scan(x, gates, cuts)
        assert h[99] == float("inf") and h[100:2000].isfinite().all()
        assert h[2000:5000].isnan().all() and h[5000:].isfinite().all()


@pytest.mark.parametrize("variant", cases.VARIANTS)
def test_maxima_and_sums_of_exponentials_of_what_is_not_finite(variant: str) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[-inf, -inf, -inf], [-inf, inf, inf], [1, nan, nan], [0.0, -0.0, -1]]
    x = torch.tensor(rows, device=DEVICE)
    y, index = cases.VARIANTS[variant]("rows", "max", x)
    assert index.tolist() == [0, 1, 1, 0] and y[2].isnan() and y[1] == inf
    y = cases.VARIANTS[variant]("rows", "logsumexp", x)
    assert torch.allclose(y, torch.logsumexp(x, -1), equal_nan=True)


def test_the_first_of_equals_wins_across_parts() -> None:
    x = torch.zeros(2, 70_000, device=DEVICE)
    x[0, 69_999], x[1, 30_001], x[1, 65_000] = 5, 5, 5
    y, index = reduce_scan.rows("max", x)
    assert y.tolist() == [5, 5] and index.tolist() == [69_999, 30_001]


@pytest.mark.parametrize("n, cut", [(0, (0,)), (0, (0, 0)), (1, (0, 0, 1, 1)), (1, (1, 1))])
def test_of_nothing_and_of_one(n: int, cut: tuple) -> None:
    x, cuts = draw_numbers(n), make_offsets(*cut)
    sums = reduce_scan.segment_sum(x, cuts)
    assert sums.tolist() == [float(x[a:b].sum()) for a, b in zip(cut, cut[1:], strict=False)]
    assert torch.equal(reduce_scan.scan(x, None, cuts), x)


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 6000, N)
    for run in (reduce_scan.segment_sum, lambda x, cuts: reduce_scan.scan(x, x, cuts)):
        assert torch.equal(run(x, cuts), run(x, cuts))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("variant", cases.VARIANTS)
def test_offsets_pass_two_to_the_31(variant: str) -> None:
    far = 2**31 + 64  # elements; the memory between two rows is never touched
    x = torch.empty(far + 32, dtype=torch.bfloat16, device=DEVICE)
    x = x.as_strided((2, 32), (far, 1)).copy_(draw_numbers(2, 32))
    for op in ("sum", "max", "logsumexp"):
        y = cases.VARIANTS[variant]("rows", op, x)
        near = cases.VARIANTS[variant]("rows", op, x.contiguous())
        assert all(torch.equal(a, b) for a, b in zip(y, near, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_a_segment_past_two_to_the_31_alone() -> None:
    start = 2**31 + 8
    x = torch.empty(start + 40, dtype=torch.bfloat16, device=DEVICE)
    x[start:] = draw_numbers(40)
    cuts = make_offsets(start, start + 40, dtype=torch.int64)
    y = reduce_scan.rows_alone("sum", x, cuts)
    assert torch.equal(y[0], reduce_scan.rows("sum", x[start:]))


@pytest.mark.parametrize(
    ("call", "told", "error", "said"),
    [
        ("segment_sum", (draw_numbers(2, 3), make_offsets(0, 1)), ValueError, r"x is \(2, 3\)"),
        (
            "segment_sum",
            (draw_numbers(3), make_offsets(0, 4)),
            ValueError,
            "from 0 to 4 do not rise",
        ),
        ("segment_sum", (draw_numbers(3), make_offsets(0, 2, 1)), ValueError, "do not rise"),
        (
            "segment_sum",
            (draw_numbers(3), draw_numbers(2)),
            TypeError,
            "offsets: torch.float32 is none",
        ),
        ("segment_sum", (draw_numbers(3).long(), make_offsets(0, 3)), TypeError, "x: torch.int64"),
        ("segment_sum", (draw_numbers(3), make_offsets()), ValueError, r"offsets are \(0,\)"),
        ("spread_over", (draw_numbers(3), make_offsets(0, 3), 3), ValueError, r"it must be \(1,\)"),
        ("scan", (draw_numbers(3), draw_numbers(4)), ValueError, r"gates are \(4,\)"),
        (
            "scan",
            (draw_numbers(3), draw_numbers(3).to("meta")),
            TypeError,
            "gates is on meta; bring all",
        ),
        ("scan", (draw_numbers(),), ValueError, "0 dimensions"),
        ("rows", ("max", draw_numbers(2, 0)), ValueError, "N = 0 has no max"),
        ("rows", ("min", draw_numbers(2, 3)), ValueError, "op 'min' is none of sum, max"),
    ],
)
def test_refuses_in_one_clear_line(call: str, told: tuple, error: type, said: str) -> None:
    if DEVICE == "cuda" and "rise" in said:
        pytest.skip("offsets on a GPU are not looked into")
    with pytest.raises(error, match=f"^reduce_scan: .*{said}") as raised:
        getattr(reduce_scan, call)(*told)
    assert "\n" not in str(raised.value)
