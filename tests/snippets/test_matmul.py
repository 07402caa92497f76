"""Matmul as an operator: what its cases, which call the kernels, cannot see."""

from __future__ import annotations

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import torch.nn.functional as F  # noqa: E402

from snippets.matmul import cases, layer, matmul  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_matrix(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def draw_operands(dtype=torch.float32, m: int = 20, n: int = 24, k: int = 16) -> list:
    shapes = ((m, k), (k, n), (n,), (m, n))
    return [draw_matrix(*shape, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("activation", [None, "silu"])
def test_operators_keep_the_rules_of_operators(activation: str | None) -> None:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    told = (*draw_operands(), activation, activation is not None)
    torch.library.opcheck(layer.operator, told, test_utils=tests)
    z, dc = draw_matrix(20, 24), draw_matrix(20, 24, seed=1)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(layer.slope, (dc, z, "relu"), test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("activation", matmul.ACTIVATIONS)
def test_gradients_of_all_operands_arrive(activation: str | None) -> None:
    leaves = draw_operands()
    weight = draw_matrix(20, 24, seed=2)
    (layer.linear(*leaves, activation) * weight).sum().backward()
    a, b, bias, residual = exact = [x.detach().double().requires_grad_() for x in leaves]
    c = cases.APPLY[activation](a @ b + bias) + residual
    (c * weight.double()).sum().backward()
    for leaf, due in zip(leaves, exact, strict=True):
        assert is_close(leaf.grad, due.grad)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_a_gradient_of_a_gradient_is_a_product_too() -> None:
    a, b = draw_operands()[:2]
    (da,) = torch.autograd.grad(layer.linear(a, b).sum(), a, create_graph=True)
    (db,) = torch.autograd.grad((da**2).sum(), b)
    truth = b.detach().double().requires_grad_()
    (due,) = torch.autograd.grad((truth.sum(1) ** 2).sum() * a.shape[0], truth)
    assert is_close(db, due)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_only_what_a_gradient_needs_is_kept() -> None:
    a, b, bias, residual = draw_operands()
    kept = layer.operator(a, b, bias, residual, "silu", True)[1]
    assert is_close(kept, (a.double() @ b.double() + bias.double()).detach())
    assert layer.operator(a, b, bias, residual, "silu", False)[1].numel() == 0
    c = layer.operator(a, b, None, None, "silu", False)[0]
    with pytest.raises(RuntimeError, match="matmul: z was not kept"):
        c.sum().backward()


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU of another kind has no copy engine")
def test_what_is_kept_by_descriptors() -> None:
    a, b, bias, residual = (x.detach() for x in draw_operands(torch.float16, 72, 136, 40))
    told = (a, b, bias, residual, "gelu_tanh", True)
    c, z = matmul.product(*told, how="descriptors")
    truth = a.double() @ b.double() + bias.double()
    assert is_close(z, truth, 1e-3)
    assert is_close(c, F.gelu(truth, approximate="tanh") + residual.double(), 1e-3)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("how", ["naive", "grouped", "persistent"])
def test_rows_and_columns_that_lie_beyond_two_to_the_31(how: str) -> None:
    far = 2**30 + 8  # elements from row to row; what lies between is never touched
    store = torch.empty(2 * far + 16, dtype=torch.float16, device=DEVICE)
    a = store.as_strided((3, 16), (far, 1))
    small, b = draw_matrix(3, 16, dtype=torch.float16), draw_matrix(16, 16, dtype=torch.float16)
    a.copy_(small)
    truth = small.double() @ b.double()
    assert is_close(matmul.product(a, b, how=how)[0], truth, 1e-3)
    assert is_close(matmul.product(b.mT, a.mT, how=how)[0], truth.mT, 1e-3)


def test_nan_and_infinity_come_out() -> None:
    a, b = draw_matrix(17, 16), draw_matrix(16, 20)
    a[3, 2], a[5, 1] = float("nan"), float("inf")
    c = layer.linear(a, b, activation="relu")
    assert c[3].isnan().all()
    assert torch.equal(c[5], torch.where(b[1] > 0, float("inf"), 0.0))
    rest = [x for x in range(17) if x not in (3, 5)]
    assert c[rest].isfinite().all()


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (lambda x: x, "as it is"),
        (lambda x: x.mT, "transposed"),
        (lambda x: x[:, :16], "as it is"),
        (lambda x: x[:1, :5], "as it is"),  # the stride of one row says nothing
        (lambda x: x[:, 1:17], None),  # not on 16 bytes
        (lambda x: x[:, ::2], None),
        (lambda x: x[:1].expand(8, -1), None),
        (lambda x: x[:0], None),
        (lambda x: torch.empty(8, 20, dtype=torch.float16, device=DEVICE), None),
    ],
)
def test_descriptors_are_for_what_the_copy_engine_takes(layout, expected: str | None) -> None:
    x = layout(draw_matrix(24, 32, dtype=torch.float16))
    found = matmul.along(x)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found is x) is (expected == "as it is")


def test_the_table_knows_waves() -> None:
    tile = matmul.chosen(2048, 2048, 132, "descriptors")
    assert (tile.m, tile.n) == (128, 256)  # 128 tiles are one wave
    tile = matmul.chosen(2048, 2048, 108, "descriptors")
    assert (tile.m, tile.n) == (128, 128)  # two waves of the large one would be half empty
    assert matmul.chosen(16, 4096, 132, "pointers").m == 64
    for table in matmul.TILES.values():
        areas = [tile.m * tile.n for tile in table]
        assert areas == sorted(areas, reverse=True)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda a, b, c, d: (a.half(), b, c, d), TypeError, "b is torch.float32 on"),
        (lambda a, b, c, d: (a.double(), b, c, d), TypeError, "a is torch.float64, none of"),
        (lambda a, b, c, d: (a, b.to("meta"), c, d), TypeError, "b is torch.float32 on meta"),
        (lambda a, b, c, d: (a[0], b, c, d), ValueError, "a has 1 dimensions; give it 2"),
        (lambda a, b, c, d: (a, b[1:], c, d), ValueError, "a is 20 x 16 and b 15 x 24"),
        (lambda a, b, c, d: (a, b, c[1:], d), ValueError, "bias has 23 numbers; give it 24"),
        (lambda a, b, c, d: (a, b, c, d[1:]), ValueError, r"residual is \(19, 24\)"),
        (lambda a, b, c, d: (a, b, c, d, "gelu"), ValueError, "activation 'gelu' is none of"),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^matmul: .*{said}") as raised:
        layer.linear(*change(*(x.detach() for x in draw_operands())))
    assert "\n" not in str(raised.value)
