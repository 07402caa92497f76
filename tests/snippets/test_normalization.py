"""LayerNorm and RMSNorm as operators."""

from __future__ import annotations

import pytest
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import torch.nn.functional as F  # noqa: E402

from snippets.layer_norm import cases as layer_norm_cases  # noqa: E402
from snippets.layer_norm import gradients as layer_norm_gradients  # noqa: E402
from snippets.layer_norm import layer_norm  # noqa: E402
from snippets.rms_norm import cases as rms_norm_cases  # noqa: E402
from snippets.rms_norm import gradients as rms_norm_gradients  # noqa: E402
from snippets.rms_norm import rms_norm  # noqa: E402

# layer_norm: what its cases, which call the kernels, cannot see.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_rows(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("with_columns", [True, False])
def test_layer_norm_operators_keep_the_rules_of_operators(with_columns: bool) -> None:
    x = draw_rows(2, 3, 20).requires_grad_()
    weight, bias = (
        draw_rows(20, seed=seed).requires_grad_() if with_columns else None for seed in (1, 2)
    )
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(layer_norm_gradients.normed, (x, weight, bias, 1e-5), test_utils=tests)
    x, weight, bias = (None if each is None else each.detach() for each in (x, weight, bias))
    y, mean, rstd = layer_norm_gradients.normed(x, weight, bias, 1e-5)
    given = (y, x, weight, bias, mean, rstd)
    torch.library.opcheck(layer_norm_gradients.normed_backward, given, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("variant", layer_norm_cases.VARIANTS)
@pytest.mark.parametrize("kept", [(True, True), (True, False), (False, True), (False, False)])
def test_layer_norm_gradients_are_those_of_a_float64_twin(kept: tuple, variant: str) -> None:
    x, dy = draw_rows(2, 5, 33), draw_rows(2, 5, 33, seed=1)
    columns = [draw_rows(33, seed=2 + i) if there else None for i, there in enumerate(kept)]
    sources = [each for each in (x, *columns) if each is not None]
    twins = [None if each is None else each.double().requires_grad_() for each in (x, *columns)]
    truth = F.layer_norm(twins[0], (33,), *twins[1:])
    wanted = torch.autograd.grad(truth, [t for t in twins if t is not None], dy.double())
    mine = [None if each is None else each.clone().requires_grad_() for each in (x, *columns)]
    y = layer_norm_gradients.layer_norm(*mine)
    assert is_close(y.detach(), truth.detach())
    found = torch.autograd.grad(y, [each for each in mine if each is not None], dy)
    assert len(found) == len(sources)
    assert all(is_close(each, due) for each, due in zip(found, wanted, strict=True))
    _, mean, rstd = layer_norm.forward(x, *columns, 1e-5, variant)
    told = layer_norm_gradients.backward(dy, x, *columns, mean, rstd, variant)
    told = [each for each in told if each is not None]
    assert all(is_close(each, due) for each, due in zip(told, wanted, strict=True))


@pytest.mark.parametrize("variant", layer_norm_cases.VARIANTS)
def test_a_mean_far_above_the_deviation_costs_no_more_than_its_rounding(variant: str) -> None:
    x = draw_rows(3, 1000) + 1000  # of the variance, mean(x * x) - mean(x)**2 keeps nothing
    y, mean, rstd = layer_norm.forward(x, None, None, 1e-5, variant)
    exact = x.double()
    assert is_close(mean, exact.mean(-1), 2e-7)
    assert is_close(rstd, (exact.var(-1, correction=0) + 1e-5).rsqrt(), 5e-6)
    assert is_close(y, F.layer_norm(exact, (1000,)), 1e-4)


def test_equal_elements_have_no_variance() -> None:
    for variant in layer_norm_cases.VARIANTS:
        x = torch.full((2, 777), 3.0, device=DEVICE)
        y, mean, rstd = layer_norm.forward(x, None, None, 1e-5, variant)
        assert not y.any() and (mean == 3).all()
        assert is_close(rstd, torch.full((2,), 1e-5, dtype=torch.float64, device=DEVICE).rsqrt())


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_layer_norm_the_same_inputs_give_the_same_bits() -> None:
    x, weight, dy = draw_rows(70, 96), draw_rows(96, seed=1), draw_rows(70, 96, seed=2)
    for variant in layer_norm_cases.VARIANTS:
        _, mean, rstd = layer_norm.forward(x, weight, weight, 1e-5, variant)
        told = (dy, x, weight, weight, mean, rstd, variant)
        pairs = zip(
            layer_norm_gradients.backward(*told), layer_norm_gradients.backward(*told), strict=True
        )
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("variant", layer_norm_cases.VARIANTS)
def test_layer_norm_offsets_pass_two_to_the_31(variant: str) -> None:
    far = 2**31 + 64  # elements; the memory between two rows is never touched
    x, dy = (torch.empty(far + 32, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    x, dy = (each.as_strided((2, 32), (far, 1)) for each in (x, dy))
    x.copy_(draw_rows(2, 32)), dy.copy_(draw_rows(2, 32, seed=1))
    weight, bias = draw_rows(32, seed=2), draw_rows(32, seed=3)
    y, mean, rstd = layer_norm.forward(x, weight, bias, 1e-5, variant)
    assert is_close(y, F.layer_norm(x.double(), (32,), weight.double(), bias.double()), 5e-3)
    told = (weight, bias, mean, rstd, variant)
    found = layer_norm_gradients.backward(dy, x, *told)
    near = layer_norm_gradients.backward(dy.contiguous(), x.contiguous(), *told)
    assert all(torch.equal(a, b) for a, b in zip(found, near, strict=True))


@pytest.mark.exhaustive("shapes beyond its cases")
def test_layer_norm_rows_too_long_for_one_pass() -> None:
    x = torch.zeros(1, 32_769, dtype=torch.float16, device=DEVICE)
    with pytest.raises(ValueError, match=r"rows of 65538 bytes .* = 32768 \(forward\)"):
        layer_norm.forward(x, None, None, 1e-5, "one pass")
    one = torch.ones(1, device=DEVICE)
    with pytest.raises(ValueError, match=r"rows of 65538 bytes .* = 16384 \(backward\)"):
        layer_norm_gradients.backward(x, x, None, None, one, one, "one pass")


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        ((draw_rows(2, 3).long(),), TypeError, "x is torch.int64, none of float32"),
        ((draw_rows(),), ValueError, "0 dimensions"),
        ((draw_rows(2, 3), draw_rows(4)), ValueError, r"weight is \(4,\); with x \(2, 3\) it"),
        ((draw_rows(2, 3), None, draw_rows(3, 1)), ValueError, r"bias is \(3, 1\)"),
        ((draw_rows(2, 3), draw_rows(3).to("meta")), TypeError, "weight is on meta; bring all"),
        ((draw_rows(2, 3), None, None, -1.0), ValueError, "eps = -1.0 is not from 0 up"),
    ],
)
def test_layer_norm_refuses_in_one_clear_line(told: tuple, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^layer_norm: .*{said}") as raised:
        layer_norm_gradients.layer_norm(*told)
    assert "\n" not in str(raised.value)


def test_backward_refuses_statistics_that_do_not_fit() -> None:
    x, one = draw_rows(2, 3), torch.ones(2, device=DEVICE)
    with pytest.raises(ValueError, match=r"layer_norm: rstd is \(3,\) of torch.float32"):
        layer_norm_gradients.backward(x, x, None, None, one, draw_rows(3))
    with pytest.raises(ValueError, match="layer_norm: mean is .* of torch.float64"):
        layer_norm_gradients.backward(x, x, None, None, one.double(), one)


def test_layer_norm_timed_rows_of_every_length_have_a_variant() -> None:
    for case in (*layer_norm_cases.CASES, *layer_norm_cases.TIMED):
        held = case["n"] * layer_norm_cases.WIDTHS[case["dtype"]]
        if held > layer_norm.MAX_BYTES[case["pass"]]:
            assert case["variants"] == ["two reads"]


# rms_norm: what its cases, which call the kernels, cannot see.


def norm_exactly(x: torch.Tensor, weight: torch.Tensor | None, eps: float = 1e-6) -> torch.Tensor:
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm_operators_keep_the_rules_of_operators(weighted: bool) -> None:
    x, r = (draw_rows(2, 3, 20, seed=seed).requires_grad_() for seed in range(2))
    weight = draw_rows(20).requires_grad_() if weighted else None
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(rms_norm_gradients.normed, (x, weight, 1e-6), test_utils=tests)
    torch.library.opcheck(
        rms_norm_gradients.added_and_normed, (x, r, weight, 1e-6), test_utils=tests
    )
    x, weight = x.detach(), None if weight is None else weight.detach()
    y, _, rstd = rms_norm.forward(x, weight, 1e-6)
    given = (y, x, weight, rstd, None)
    torch.library.opcheck(rms_norm_gradients.normed_backward, given, test_utils=tests)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("variant", rms_norm_cases.VARIANTS)
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm_gradients_are_those_of_a_float64_twin(weighted: bool, variant: str) -> None:
    sources = [draw_rows(2, 5, 33), *([draw_rows(33, seed=1)] if weighted else [])]
    dy = draw_rows(2, 5, 33, seed=2)
    twins = [x.double().requires_grad_() for x in sources]
    truth = norm_exactly(*twins, *([] if weighted else [None]))
    wanted = torch.autograd.grad(truth, twins, dy.double())
    mine = [x.clone().requires_grad_() for x in sources]
    y = rms_norm_gradients.rms_norm(*mine)
    assert is_close(y.detach(), truth.detach())
    found = torch.autograd.grad(y, mine, dy)
    assert all(is_close(x, due) for x, due in zip(found, wanted, strict=True))
    told = (sources[0], sources[1] if weighted else None)
    rstd = rms_norm.forward(*told, 1e-6)[2]
    told = rms_norm_gradients.backward(dy, *told, rstd, variant=variant)
    assert all(is_close(x, due) for x, due in zip(told, wanted, strict=False))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_both_results_of_the_sum_have_gradients() -> None:
    sources = [draw_rows(4, 40, seed=seed) for seed in range(2)] + [draw_rows(40, seed=2)]
    dy, dtotal = draw_rows(4, 40, seed=3), draw_rows(4, 40, seed=4)
    twins = [x.double().requires_grad_() for x in sources]
    total = twins[0] + twins[1]
    truth = (norm_exactly(total, twins[2]), total)
    wanted = torch.autograd.grad(truth, twins, (dy.double(), dtotal.double()))
    mine = [x.requires_grad_() for x in sources]
    y, total = rms_norm_gradients.add_rms_norm(*mine)
    assert is_close(y.detach(), truth[0].detach()) and is_close(total.detach(), truth[1].detach())
    found = torch.autograd.grad((y, total), mine, (dy, dtotal))
    assert all(is_close(x, due) for x, due in zip(found, wanted, strict=True))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradients_have_the_dtype_of_what_they_are_of() -> None:
    x = draw_rows(3, 24, dtype=torch.bfloat16).requires_grad_()
    residual, weight = (draw_rows(*shape).requires_grad_() for shape in ((3, 24), (24,)))
    y, total = rms_norm_gradients.add_rms_norm(x, residual, weight)
    assert (y.dtype, total.dtype) == (torch.bfloat16, torch.float32)
    y.float().sum().backward()
    assert [each.grad.dtype for each in (x, residual, weight)] == [
        torch.bfloat16, torch.float32, torch.float32
    ]  # fmt: skip


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_rms_norm_the_same_inputs_give_the_same_bits() -> None:
    x, weight, dy = draw_rows(70, 96), draw_rows(96, seed=1), draw_rows(70, 96, seed=2)
    for variant in rms_norm_cases.VARIANTS:
        y, _, rstd = rms_norm.forward(x, weight, 1e-6, variant=variant)
        first = rms_norm_gradients.backward(dy, x, weight, rstd, variant=variant)
        second = rms_norm_gradients.backward(dy, x, weight, rstd, variant=variant)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert torch.equal(y, rms_norm.forward(x, weight, 1e-6, variant=variant)[0])


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("variant", rms_norm_cases.VARIANTS)
def test_rms_norm_offsets_pass_two_to_the_31(variant: str) -> None:
    far = 2**31 + 64  # elements; the memory between two rows is never touched
    x, dy = (torch.empty(far + 32, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    x, dy = (each.as_strided((2, 32), (far, 1)) for each in (x, dy))
    x.copy_(draw_rows(2, 32)), dy.copy_(draw_rows(2, 32, seed=1))
    weight = draw_rows(32, seed=2)
    y, _, rstd = rms_norm.forward(x, weight, 1e-6, variant=variant)
    assert is_close(y, norm_exactly(x.double(), weight.double()), 5e-3)
    dx, dweight = rms_norm_gradients.backward(dy, x, weight, rstd, variant=variant)
    near = rms_norm_gradients.backward(
        dy.contiguous(), x.contiguous(), weight, rstd, variant=variant
    )
    assert torch.equal(dx, near[0]) and torch.equal(dweight, near[1])


@pytest.mark.exhaustive("shapes beyond its cases")
def test_rms_norm_rows_too_long_for_one_pass() -> None:
    x = torch.zeros(1, 32_769, dtype=torch.float16, device=DEVICE)
    with pytest.raises(ValueError, match=r"rows of 65538 bytes .* = 65536 \(forward\)"):
        rms_norm.forward(x, None, 1e-6, variant="one pass")
    rstd = torch.ones(1, device=DEVICE)
    with pytest.raises(ValueError, match=r"rows of 65538 bytes .* = 32768 \(backward\)"):
        rms_norm_gradients.backward(x, x, None, rstd, variant="one pass")
    assert rms_norm_gradients.rms_norm(x).shape == x.shape


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        ((draw_rows(2, 3).long(), None), TypeError, "x is torch.int64, none of float32"),
        ((draw_rows(), None), ValueError, "0 dimensions"),
        ((draw_rows(2, 3), draw_rows(4)), ValueError, r"weight is \(4,\); with x \(2, 3\) it"),
        ((draw_rows(2, 3), draw_rows(3).to("meta")), TypeError, "weight is on meta; bring all"),
        ((draw_rows(2, 3), None, -1.0), ValueError, "eps = -1.0 is not from 0 up"),
        ((draw_rows(2, 3), None, float("nan")), ValueError, "eps = nan"),
    ],
)
def test_rms_norm_refuses_in_one_clear_line(told: tuple, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^rms_norm: .*{said}") as raised:
        rms_norm_gradients.rms_norm(*told)
    assert "\n" not in str(raised.value)


def test_refuses_what_does_not_fit_x() -> None:
    x = draw_rows(2, 3)
    with pytest.raises(ValueError, match=r"residual is \(3,\); with x \(2, 3\)"):
        rms_norm_gradients.add_rms_norm(x, draw_rows(3))
    with pytest.raises(ValueError, match=r"rstd is \(3,\) of torch.float32 on .* \(2,\)"):
        rms_norm_gradients.backward(x, x, None, draw_rows(3))


def test_rms_norm_timed_rows_of_every_length_have_a_variant() -> None:
    for case in (*rms_norm_cases.CASES, *rms_norm_cases.TIMED):
        held = case["n"] * rms_norm_cases.WIDTHS[case["dtype"]]
        if held > rms_norm.MAX_BYTES[case["pass"]]:
            assert case["variants"] == ["two reads"]
