"""SwiGLU: what it refuses, in place, offsets past 2**31, and its operators."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.swiglu import cases, swiglu  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw_gates(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=dtype)


def test_refuses_what_does_not_fit() -> None:
    with pytest.raises(TypeError, match="gate is torch.int64, none of float32"):
        swiglu.swiglu(torch.zeros(2, 4, dtype=torch.int64, device=DEVICE))
    with pytest.raises(ValueError, match=r"\(2, 7\), whose rows have no halves"):
        swiglu.swiglu(draw_gates(2, 7))
    with pytest.raises(ValueError, match="0 dimensions"):
        swiglu.swiglu(draw_gates(), draw_gates())
    with pytest.raises(TypeError, match="up is torch.float16 on"):
        swiglu.swiglu(draw_gates(2, 4), draw_gates(2, 4, dtype=torch.float16))
    with pytest.raises(TypeError, match="up is torch.float32 on meta"):
        swiglu.swiglu(draw_gates(2, 4), torch.zeros(2, 4, device="meta"))
    with pytest.raises(ValueError, match=r"up is \(2, 3\), but gate \(2, 4\)"):
        swiglu.swiglu(draw_gates(2, 4), draw_gates(2, 3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("variant", cases.VARIANTS)
def test_large_gates_are_finite(variant: str, dtype: str) -> None:
    gate = torch.tensor([-1e4, -6e4, 6e4, 1e4, -89.0, -104.0, 89.0], device=DEVICE)
    gate = gate.to(getattr(torch, dtype))
    one = torch.ones_like(gate)
    y = swiglu.forward(gate, one, variant)
    dgate, dup = swiglu.backward(one, gate, one, variant)
    positive = (gate > 0).to(gate.dtype)
    assert torch.equal(y + 0.0, gate * positive + 0.0)
    assert torch.equal(dup + 0.0, gate * positive + 0.0)
    assert torch.equal(dgate + 0.0, positive)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("shape", [(3, 70), (2, 2500)])
def test_gradients_may_take_the_place_of_gate_and_up(shape: tuple[int, int]) -> None:
    gate, up, dy = draw_gates(*shape), draw_gates(*shape), draw_gates(*shape)
    wanted = swiglu.backward(dy, gate, up)
    x = torch.cat((gate, up), -1)
    found = swiglu.backward(dy, gate, up, into=(gate, up))
    assert found[0] is gate and found[1] is up
    assert torch.equal(gate, wanted[0]) and torch.equal(up, wanted[1])
    swiglu.backward(dy, *swiglu.halves(x), into=swiglu.halves(x))
    assert torch.equal(x, torch.cat(wanted, -1))


def test_refuses_to_write_where_elements_share_memory() -> None:
    gate, dy = draw_gates(1, 8).expand(3, 8), draw_gates(3, 8)
    with pytest.raises(ValueError, match="dgate has strides"):
        swiglu.backward(dy, gate, draw_gates(3, 8), into=(gate, draw_gates(3, 8)))
    wide = draw_gates(3, 16)[:, ::2]
    with pytest.raises(ValueError, match="dup has strides"):
        swiglu.backward(dy, draw_gates(3, 8), wide, into=(draw_gates(3, 8), wide))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_rows_far_apart() -> None:
    """Rows of one allocation whose offsets do not fit into 32 bits."""
    step = 2**30 + 8
    store = torch.empty(2 * step + 64, dtype=torch.bfloat16, device=DEVICE)
    gate = store.as_strided((3, 16), (step, 1))
    gate.copy_(draw_gates(3, 16))
    up = draw_gates(3, 16, dtype=torch.bfloat16)
    for variant in cases.VARIANTS:
        assert torch.equal(
            swiglu.forward(gate, up, variant), swiglu.forward(gate.clone(), up, variant)
        )


@pytest.mark.exhaustive("shapes beyond its cases")
def test_more_dimensions() -> None:
    x = draw_gates(2, 3, 34).transpose(0, 1)
    y = swiglu.swiglu(x)
    assert y.shape == (3, 2, 17)
    truth = torch.nn.functional.silu(x[..., :17]) * x[..., 17:]
    assert torch.allclose(y, truth, atol=1e-5)


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_operators() -> None:
    gate, up = draw_gates(3, 20).requires_grad_(), draw_gates(3, 20).requires_grad_()
    torch.library.opcheck(swiglu.gated, (gate, up))
    torch.library.opcheck(swiglu.packed, (draw_gates(3, 2, 20).requires_grad_(),))
    torch.library.opcheck(swiglu.packed, (draw_gates(3, 40)[:, ::2].requires_grad_(),))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("packed", [False, True])
def test_gradients_against_float64(packed: bool) -> None:
    x, dy = draw_gates(5, 2 * 33), draw_gates(5, 33)
    given = [x] if packed else [x[:, :33], x[:, 33:]]
    leaves = [each.detach().requires_grad_() for each in given]
    found = torch.autograd.grad(swiglu.swiglu(*leaves), leaves, dy)
    exact = x.double().requires_grad_()
    truth = torch.nn.functional.silu(exact[:, :33]) * exact[:, 33:]
    (due,) = torch.autograd.grad(truth, exact, dy.double())
    error = (torch.cat(found, -1).double() - due).norm() / due.norm()
    assert error < 5e-7


@pytest.mark.exhaustive("shapes beyond its cases")
def test_every_variant_meets_both_passes_and_every_dtype() -> None:
    met = {(case["pass"], case["packed"], case["dtype"]) for case in cases.CASES}
    assert {which for which, _, _ in met} == {"forward", "backward"}
    for dtype in ("float32", "float16", "bfloat16"):
        assert {packed for _, packed, each in met if each == dtype} == {True, False} or (
            dtype != "float32"
        )
        assert {which for which, _, each in met if each == dtype} == {"forward", "backward"}
