"""What snippets/cuda_softmax refuses, which way rows take, and the rules of an operator."""

from __future__ import annotations

import papergpu
import pytest
import torch
from conftest import read_demo

from snippets import cuda
from snippets.cuda_softmax import cuda_softmax as ours

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor")
X = torch.randn(3, 40, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.run("magic", X), ValueError, "no way 'magic'; there are naive, tree"),
        (lambda: ours.softmax(X.int()), TypeError, "dtype torch.int32 is none of float32"),
        (lambda: ours.softmax(X[0, 0]), ValueError, "a tensor of 0 dimensions has no row"),
        (lambda: ours.run(None, X, X[:2]), ValueError, r"y is .*\(3, 40\) and dy .*\(2, 40\);"),
        (lambda: ours.run(None, X, X.half()), ValueError, "dy torch.float16 .* must be alike"),
        (lambda: ours.run("warps", torch.ones(1, 1028)), ValueError, "'warps' holds 1024 elements"),
        (lambda: ours.run("blocks", torch.ones(1, 4097)), ValueError, "'blocks' holds 4096 elem"),
        (
            lambda: ours.run("blocks", *[torch.ones(1, 8200)] * 2),
            ValueError,
            "'blocks' holds 8192 elements",
        ),
    ],
)
def test_what_has_no_softmax_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^cuda_softmax: .*{message}"):
        call()


def test_more_rows_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    assert ours.softmax(torch.zeros(8, 4))[7].tolist() == [0.25] * 4
    with pytest.raises(ValueError, match="^cuda_softmax: 9 rows are over 1 blocks"):
        ours.softmax(torch.zeros(9, 4))


@pytest.mark.parametrize("way", ours.WAYS)
def test_rows_of_nothing_and_of_minus_infinity_are_as_torch_has_them(way):
    for shape in ((0, 5), (5, 0), (2, 0, 3)):
        assert ours.run(way, torch.ones(shape)).shape == shape
    x = torch.full((3, 9), -torch.inf)
    x[1, 4] = 2.0
    y = ours.run(way, x)
    assert y[::2].isnan().all() and y[1].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("n", "dtype", "kernel"),
    [
        (40, torch.float32, "softmax_held<0, float, 4, 1, 1>"),
        (1024, torch.float32, "softmax_held<0, float, 4, 8, 1>"),
        (1028, torch.float32, "softmax_held<0, float, 4, 1, 0>"),
        (41, torch.float16, "softmax_held<0, __half, 1, 2, 1>"),  # rows begin anywhere
        (16_388, torch.float32, "softmax_streamed<0, float, 4>"),
    ],
)
def test_a_row_has_as_few_threads_as_can_hold_it(n, dtype, kernel):
    found: list[papergpu.Launched] = []
    with papergpu.on_launch(found.append):
        y = ours.softmax(torch.zeros(2, n, dtype=dtype))
    assert [one.name for one in found] == [kernel]
    assert ((y - 1 / n).abs() < 1e-3 / n).all()


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_operators_keep_the_rules_of_operators(dtype):
    x = X.to(dtype).requires_grad_()
    torch.library.opcheck(ours.operator, (x,), test_utils=TESTS)
    y = ours.softmax(x).detach()
    torch.library.opcheck(ours.gradient, (y, y.clone()), test_utils=TESTS)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 2, 40)])
def test_gradients_are_those_of_finite_differences(shape):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    assert torch.autograd.gradcheck(ours.softmax, x.requires_grad_())
    assert torch.autograd.gradcheck(ours.softmax, x.mT.detach().requires_grad_())


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_rows_of_y_and_of_its_gradient_may_lie_differently():
    y = torch.softmax(X, -1)
    dy = torch.randn(3, 56, generator=torch.Generator().manual_seed(7))[:, :40]
    expected = y * (dy - (y * dy).sum(-1, keepdim=True))
    for way in ours.WAYS:
        assert torch.allclose(ours.run(way, y, dy), expected, atol=1e-6)
        assert torch.allclose(ours.run(way, y, dy[:1].expand(3, 40))[0], expected[0], atol=1e-6)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_a_row_past_2_to_the_31_is_reached():
    """Two rows farther apart than 2**31 elements, in memory of which only they are touched."""
    far = 2**31 + 64
    x = torch.empty(far + 64, dtype=torch.float16).as_strided((2, 64), (far, 1))
    x[0], x[1] = 0, torch.arange(64)
    for way in ours.WAYS:
        y = ours.run(way, x)
        assert (y.double() - torch.softmax(x.double(), -1)).abs().max() < 1e-3


def test_demo_finds_every_way_right():
    lines = read_demo(ours).splitlines()
    assert len(lines) == 12 and sum(line.endswith("right") for line in lines) == 10
    assert lines[-1].endswith("yes")
