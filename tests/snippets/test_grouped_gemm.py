"""Grouped GEMM as an operator: what its cases, which call the kernels, cannot see."""

from __future__ import annotations

import pytest
from close_tensors import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.grouped_gemm import cases  # noqa: E402
from snippets.grouped_gemm import grouped_gemm as grouped  # noqa: E402
from snippets.grouped_gemm.tiles import SMALL  # noqa: E402
from snippets.grouped_gemm.weights import weight_gradient  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [0, 20, 1, 9]


def draw_matrix(*shape: int, dtype=torch.float16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def find_group_ends(sizes: list[int]) -> torch.Tensor:
    return torch.tensor(sizes).cumsum(0).to(DEVICE, torch.int32)


def draw_groups() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """30 of 33 rows in four groups."""
    return draw_matrix(33, 16), draw_matrix(4, 16, 24), find_group_ends(SIZES)


def multiply_by_loop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    parts = x.split([*SIZES, 3])
    done = [part @ own for part, own in zip(parts[:4], w, strict=True)]
    return torch.cat((*done, x.new_zeros(3, w.shape[2])))


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators() -> None:
    x, w, ends = draw_groups()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    told = x.requires_grad_(), w.requires_grad_(), ends
    torch.library.opcheck(grouped.operator, told, test_utils=tests)
    told = x, draw_matrix(33, 24).requires_grad_(), ends
    torch.library.opcheck(grouped.weights, told, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_against_float64() -> None:
    x, w, ends = draw_groups()
    leaves = [x.requires_grad_(), w.requires_grad_()]
    dy = draw_matrix(33, 24, seed=1)
    found = torch.autograd.grad(grouped.grouped_gemm(x, w, ends), leaves, dy)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    due = torch.autograd.grad(multiply_by_loop(*exact), exact, dy.double())
    for one, other in zip(found, due, strict=True):
        assert is_close(one, other, 1e-3)
    assert not found[0][30:].any()
    assert not found[1][0].any()


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_a_gradient_of_a_gradient() -> None:
    x, w, ends = draw_groups()
    leaves = [x.requires_grad_(), w.requires_grad_()]
    dy = draw_matrix(33, 24, seed=1).requires_grad_()
    pair = torch.autograd.grad(grouped.grouped_gemm(x, w, ends), leaves, dy, create_graph=True)
    found = torch.autograd.grad(sum((each.float() ** 2).sum() for each in pair), dy)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    twin = dy.detach().double().requires_grad_()
    pair = torch.autograd.grad(multiply_by_loop(*exact), exact, twin, create_graph=True)
    due = torch.autograd.grad(sum((each**2).sum() for each in pair), twin)
    assert is_close(found[0], due[0], 2e-3)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("how", ["naive", "persistent"])
def test_rows_and_matrices_that_lie_beyond_two_to_the_31(how: str) -> None:
    far = 2**30 + 8  # elements from row to row; what lies between is never touched
    store = torch.empty(2 * far + 32 * 16, dtype=torch.float16, device=DEVICE)
    x, w = draw_matrix(3, 16), draw_matrix(3, 16, 16)
    ends = find_group_ends([1, 0, 2])
    due = grouped.product(x, w, ends, how)
    distant = store.as_strided((3, 16), (far, 1))
    distant.copy_(x)
    assert torch.equal(grouped.product(distant, w, ends, how), due)
    assert torch.equal(weight_gradient(distant, due, ends), weight_gradient(x, due, ends))
    distant = store.as_strided((3, 16, 16), (far, 16, 1))
    distant.copy_(w)
    assert torch.equal(grouped.product(x, distant, ends, how), due)


def test_rows_of_other_groups_do_not_reach_over() -> None:
    x, w, ends = draw_groups()
    x[20], x[5] = float("inf"), float("nan")  # the second group has row 20 no more
    y = grouped.grouped_gemm(x, w, ends)
    assert y[5].isnan().all() and not y[20].isfinite().any()
    others = [row for row in range(33) if row not in (5, 20)]
    assert y[others].isfinite().all()
    dw = weight_gradient(x, y.nan_to_num(0, 0, 0), ends)
    assert dw[[0, 3]].isfinite().all()


@pytest.mark.parametrize(
    ("layout", "described"),
    [
        (lambda x, w: (x, w), True),
        (lambda x, w: (x, w.mT.contiguous().mT), True),
        (lambda x, w: (x[:, ::2], w[:, ::2]), False),
        (lambda x, w: (x[:, 1:9], w[:, 1:9]), False),  # not on 16 bytes
        (lambda x, w: (x[:1].expand(33, -1), w), False),
        (lambda x, w: (x[:, :9], w[:, :9]), True),  # a row of 9, and 7 beside it
    ],
)
def test_descriptors_are_for_what_the_copy_engine_takes(layout, described: bool) -> None:
    x, w = layout(*draw_groups()[:2])
    assert (grouped.described(x, w, SMALL) is not None) is described


def test_few_rows_take_small_tiles_and_every_group_is_met() -> None:
    sizes = [1] * 40
    x, w, ends = draw_matrix(40, 32), draw_matrix(40, 32, 8), find_group_ends(sizes)
    truth = torch.bmm(x.double()[:, None], w.double())[:, 0]
    assert is_close(grouped.grouped_gemm(x, w, ends), truth, 1e-3)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda x, w, e: (x.double(), w, e), TypeError, "x is torch.float64, none of"),
        (lambda x, w, e: (x, w.bfloat16(), e), TypeError, "w is torch.bfloat16 on"),
        (lambda x, w, e: (x, w.to("meta"), e), TypeError, "w is torch.float16 on meta"),
        (lambda x, w, e: (x, w, e.long()), TypeError, "ends is torch.int64 on"),
        (lambda x, w, e: (x[0], w, e), ValueError, "x has 1 dimensions; give it 2"),
        (lambda x, w, e: (x, w[0], e), ValueError, "w has 2 dimensions; give it 3"),
        (lambda x, w, e: (x, w[:3], e), ValueError, r"w is \(3, 16, 24\); give it 4"),
        (lambda x, w, e: (x, w, e[None]), ValueError, "ends has 2 dimensions"),
        (lambda x, w, e: (x, w, e.new_zeros(1024)), ValueError, "1024 groups exceed 1023"),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^grouped_gemm: .*{said}") as raised:
        grouped.grouped_gemm(*change(*draw_groups()))
    assert "\n" not in str(raised.value)


def test_cases_have_groups_of_every_kind() -> None:
    sizes = [cases.sizes_of(case) for case in cases.CASES if case["skewed"]]
    assert any(0 in each for each in sizes)
    assert any(1 in each for each in sizes)
    assert all(sum(each) < case["m"] for each, case in zip(sizes, cases.CASES, strict=True))
