"""quant_matmul: packing and back, what is kept, what is refused, its gradient."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.quant_matmul import packing  # noqa: E402
from snippets.quant_matmul import quant_matmul as ours  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RULES = ("test_schema", "test_faketensor", "test_autograd_registration")


def pack_weight(n: int, k: int, bits: int = 4, group: int = 64) -> ours.Packed:
    weight = torch.randn(n, k, device=DEVICE, dtype=torch.float16)
    return ours.quantise(weight, bits, group, weight.abs() > 2)


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("k", [0, 1, 255, 513])
def test_unpack_undoes_pack(bits: int, k: int) -> None:
    codes = torch.randint(0, 2**bits, (5, k))
    words = packing.pack(codes, bits)
    assert words.dtype == torch.int16
    assert torch.equal(packing.unpack(words, bits, k), codes)


@pytest.mark.parametrize("bits", [3, 4])
def test_whole_slabs_waste_no_bit(bits: int) -> None:
    words = packing.pack(torch.zeros(3, 1024, dtype=torch.int64), bits)
    assert words.numel() * 16 == 3 * 1024 * bits


@pytest.mark.parametrize("bits", [3, 4])
def test_what_is_kept_is_exact_and_the_rest_within_a_step(bits: int) -> None:
    weight = torch.randn(6, 128)
    kept = weight.abs() > 2
    assert kept.any()
    form = ours.quantise(weight, bits, 64, kept)
    back = ours.dequantise(form, 128, torch.float32)
    assert torch.equal(back[kept], weight[kept])
    scale, zero = form.steps.repeat_interleave(64, 0).unbind(2)
    # Half a step for the code, half for the zero point, where the range is cut.
    assert ((back - weight).abs() <= 1.01 * scale.mT)[~kept].all()
    codes = packing.unpack(form.codes, bits, 128).float()
    assert torch.equal(codes[kept], zero.mT[kept])


@pytest.mark.parametrize(("bits", "dtype"), [(3, torch.float16), (4, torch.bfloat16)])
def test_weights_written_out_are_rounded_once(bits: int, dtype: torch.dtype) -> None:
    """The same bits as in float64, whose rounding to 16 bits is then the only one."""
    weight = torch.randn(5, 640, device=DEVICE).to(dtype)
    form = ours.quantise(weight, bits, 64, weight.abs() > 2)
    due = ours.dequantise(form, 640, torch.float64).to(dtype)
    assert torch.equal(ours.written_out(form, 640).view(torch.int16), due.view(torch.int16))


def test_refuses_what_does_not_fit() -> None:
    weight = torch.randn(2, 64)
    none = torch.zeros(2, 64, dtype=torch.bool)
    with pytest.raises(ValueError, match="bits = 2"):
        ours.quantise(weight, 2, 64, none)
    with pytest.raises(ValueError, match="group = 48 must divide K = 64"):
        ours.quantise(weight, 3, 48, none)
    long = torch.zeros(1, 2**16 + 64)
    with pytest.raises(ValueError, match="K = 65600; an outlier's column has 16 bits"):
        ours.quantise(long, 4, 64, long > 0)
    form = pack_weight(4, 64)
    x = torch.randn(2, 64, device=DEVICE, dtype=torch.float16)
    with pytest.raises(TypeError, match=r"x is torch.float32"):
        ours.quant_matmul(x.float(), form)
    with pytest.raises(TypeError, match="steps is torch.float16"):
        ours.quant_matmul(x.bfloat16(), form)
    with pytest.raises(ValueError, match="on meta"):
        ours.quant_matmul(x, form._replace(codes=form.codes.to("meta")))
    with pytest.raises(ValueError, match="K = 65"):
        ours.quant_matmul(torch.cat([x, x[:, :1]], 1), form)
    with pytest.raises(ValueError, match="starts .4,. beside codes of 4 rows"):
        ours.quant_matmul(x, form._replace(starts=form.starts[:-1]))
    with pytest.raises(ValueError, match="call contiguous"):
        ours.quant_matmul(x, form._replace(codes=form.codes.mT.contiguous().mT))
    with pytest.raises(ValueError, match="0 dimensions"):
        ours.quant_matmul(x[0, 0], form)
    with pytest.raises(ValueError, match="M = 65; up to 64 rows"):
        ours.fused(x[:1].expand(65, -1), form)


def test_sides_of_none_and_one() -> None:
    x = torch.randn(2, 64, device=DEVICE, dtype=torch.float16)
    form = pack_weight(4, 64)
    assert ours.quant_matmul(x[:0], form).shape == (0, 4)
    assert ours.quant_matmul(x.new_empty(3, 0, 64), form).shape == (3, 0, 4)
    assert ours.quant_matmul(x, pack_weight(0, 64)).shape == (2, 0)
    assert ours.quant_matmul(x[0], form).shape == (4,)
    nothing = ours.quant_matmul(x[:, :0], pack_weight(4, 0))
    assert nothing.shape == (2, 4) and not nothing.any()


def test_a_column_past_the_last_counts_for_nothing() -> None:
    """Nothing is read past the end of x, nor written past that of the weights."""
    form = pack_weight(4, 64)
    wild = form._replace(columns=torch.full_like(form.columns, -1))
    bare = ours.quantise(ours.dequantise(form, 64, torch.float16), 4, 64,
                         torch.zeros(4, 64, dtype=torch.bool, device=DEVICE))  # fmt: skip
    bare = bare._replace(codes=form.codes, steps=form.steps)
    x = torch.randn(65, 64, device=DEVICE, dtype=torch.float16)
    assert len(form.values)
    for m in (1, 3, 65):
        assert torch.equal(ours.quant_matmul(x[:m], wild), ours.quant_matmul(x[:m], bare))


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_gradient_of_x_is_the_product_with_the_weights() -> None:
    form = pack_weight(6, 128, 3, 64)
    truth = ours.dequantise(form, 128, torch.float64)
    x = torch.randn(2, 3, 128, device=DEVICE, dtype=torch.float16, requires_grad=True)
    dy = torch.randn(2, 3, 6, device=DEVICE, dtype=torch.float16)
    (dx,) = torch.autograd.grad(ours.quant_matmul(x, form), x, dy)
    due = dy.double() @ truth
    assert dx.shape == x.shape
    assert (dx.double() - due).norm() <= 1e-3 * due.norm()


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
def test_operators_obey_the_rules_of_torch() -> None:
    form = pack_weight(6, 64)
    x = torch.randn(3, 64, device=DEVICE, dtype=torch.float16, requires_grad=True)
    dy = torch.randn(3, 6, device=DEVICE, dtype=torch.float16)
    torch.library.opcheck(ours.product, (x, *form), test_utils=RULES)
    torch.library.opcheck(ours.product_backward, (dy, 64, *form), test_utils=RULES)
