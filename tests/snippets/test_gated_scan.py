"""Scans with gates and segments as operators: what their cases, which call kernels, cannot see."""

from __future__ import annotations

import pytest
from close_tensors import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.gated_scan import gated_scan  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N = 9000  # several tiles, the last of them ragged


def draw_numbers(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def make_offsets(*cuts: int, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(cuts, dtype=dtype, device=DEVICE)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_the_rules_of_operators() -> None:
    x, gates = draw_numbers(40).requires_grad_(), draw_numbers(40, seed=1).requires_grad_()
    cuts = make_offsets(0, 7, 7, 40)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    for told in ((x, gates, cuts, False), (x, None, None, True)):
        torch.library.opcheck(gated_scan.gated_scan, told, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("cut", [None, (0, 11, 11, 2048, 4095, N), (5, 7000)])
def test_gradients_of_a_scan_are_those_of_a_float64_twin(gated: bool, cut) -> None:
    x, dh = draw_numbers(N), draw_numbers(N, seed=1)
    gates = draw_numbers(N, seed=2).abs().clamp(max=1) if gated else None
    cuts = None if cut is None else make_offsets(*cut, dtype=torch.int64)
    mine = [each.clone().requires_grad_() for each in (x, gates) if each is not None]
    h = gated_scan.scan(mine[0], mine[1] if gated else None, cuts)
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
    h = gated_scan.scan(x, gates)
    found = torch.autograd.grad(h, (x, gates), draw_numbers(3, 2, 50, seed=2))
    for i in range(3):
        a, b = (each.detach()[i, 1].clone().requires_grad_() for each in (x, gates))
        alone = gated_scan.scan(a, b)
        assert is_close(alone.detach(), h[i, 1].detach().double())
        wanted = torch.autograd.grad(alone, (a, b), draw_numbers(3, 2, 50, seed=2)[i, 1])
        assert all(is_close(b, a[i, 1].double()) for a, b in zip(found, wanted, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_an_infinity_stays_in_its_segment() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 100, 5000, N)
    x[50], x[2000] = float("inf"), float("nan")
    for gates in (None, torch.full_like(x, 0.5)):
        h = gated_scan.scan(x, gates, cuts)
        assert h[99] == float("inf") and h[100:2000].isfinite().all()
        assert h[2000:5000].isnan().all() and h[5000:].isfinite().all()


@pytest.mark.parametrize("n, cut", [(0, (0,)), (0, (0, 0)), (1, (0, 0, 1, 1)), (1, (1, 1))])
def test_of_nothing_and_of_one(n: int, cut: tuple) -> None:
    x, cuts = draw_numbers(n), make_offsets(*cut)
    for scan in (gated_scan.scan, gated_scan.scan_alone):
        assert torch.equal(scan(x, None, cuts), x)


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_the_same_inputs_give_the_same_bits() -> None:
    x, cuts = draw_numbers(N), make_offsets(0, 6000, N)
    assert torch.equal(gated_scan.scan(x, x, cuts), gated_scan.scan(x, x, cuts))


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        ((draw_numbers(3), draw_numbers(4)), ValueError, r"gates are \(4,\)"),
        ((draw_numbers(3), draw_numbers(3).to("meta")), TypeError, "gates is on meta; bring all"),
        ((draw_numbers(),), ValueError, "0 dimensions"),
        ((draw_numbers(3).long(),), TypeError, "x: torch.int64 is none"),
        ((draw_numbers(2, 3), None, make_offsets(0, 1)), ValueError, r"x is \(2, 3\)"),
        ((draw_numbers(3), None, make_offsets()), ValueError, r"offsets are \(0,\)"),
        ((draw_numbers(3), None, make_offsets(0, 4)), ValueError, "0 to 4 do not rise"),
        ((draw_numbers(3), None, draw_numbers(2)), TypeError, "offsets: torch.float32 is none"),
    ],
)
def test_refuses_in_one_clear_line(told: tuple, error: type, said: str) -> None:
    if DEVICE == "cuda" and "rise" in said:
        pytest.skip("offsets on a GPU are not looked into")
    with pytest.raises(error, match=f"^gated_scan: .*{said}") as raised:
        gated_scan.scan(*told)
    assert "\n" not in str(raised.value)
