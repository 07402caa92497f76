"""Products of numbers of few bits."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import papergpu  # noqa: E402

from snippets.fp8_gemm import cases, fp8_gemm, hopper, quantise, tensor_core  # noqa: E402
from snippets.quant_matmul import packing  # noqa: E402
from snippets.quant_matmul import quant_matmul as ours  # noqa: E402
from warpshelf.look import binary  # noqa: E402

# fp8_gemm: special values, bounds against what was rounded, and what is refused.

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
E4M3 = torch.float8_e4m3fn
NAN, INF = float("nan"), float("inf")


def draw_matrix(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def draw_fp8_operands(m: int = 20, n: int = 24, k: int = 144) -> list:
    a, b = draw_matrix(m, k).to(E4M3), draw_matrix(n, k).to(E4M3)
    wide = -(-k // 128)
    scales = draw_matrix(m, wide).abs() + 1, draw_matrix(-(-n // 128), wide).abs() + 1
    return [a, b, *scales]


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_keep_the_rules_of_operators() -> None:
    tests = ("test_faketensor",)  # test_schema multiplies, which e4m3 has not in PyTorch
    torch.library.opcheck(fp8_gemm.fp8_gemm, tuple(draw_fp8_operands()), test_utils=tests)
    for share in quantise.SHARES:
        told = (draw_matrix(20, 144), share)
        torch.library.opcheck(fp8_gemm.quantise, told, test_utils=tests)


@pytest.mark.parametrize("power", [False, True])
def test_the_whole_stays_within_its_bound(power: bool) -> None:
    x, w = draw_matrix(40, 300, dtype=torch.bfloat16), draw_matrix(72, 300, dtype=torch.bfloat16)
    x[3, 7] = 2000.0
    y = fp8_gemm.linear(x, w, power).double()
    x, w = x.double(), w.double()
    pairs = []
    for given, share in ((x, "row"), (w, "block")):
        scale = cases.rule(share, power, given)[1]
        step = cases.meant(torch.ones_like(given), scale, torch.float64)
        pairs.append((given.abs(), given.abs() / 16 + step / 1024))
    (left, e_left), (right, e_right) = pairs
    bound = left @ e_right.mT + e_left @ right.mT + e_left @ e_right.mT
    truth = x @ w.mT
    off = (y - truth).abs()
    assert bool((off <= bound + truth.abs() / 256).all())  # and c is rounded once
    assert float((y - truth).norm() / truth.norm()) < 0.05  # where errors cancel


@pytest.mark.parametrize("share", quantise.SHARES)
def test_infinity_and_nan_show_and_spoil_no_scale(share: str) -> None:
    x = draw_matrix(5, 140)
    zeroed = x.clone()
    zeroed[:, 2] = 0.0
    clean, scales = quantise.quantised(zeroed, share)
    x[:, 2] = torch.tensor([NAN, INF, -INF, 0.0, -0.0])
    q, spoiled = quantise.quantised(x, share)
    assert torch.equal(spoiled, scales)
    assert q.float()[:3, 2].isnan().all()
    assert q.view(torch.uint8)[3:, 2].tolist() == [0x00, 0x80]
    rest = [i for i in range(140) if i != 2]
    assert torch.equal(q.float()[:, rest], clean.float()[:, rest])


def test_nan_comes_out_where_it_went_in() -> None:
    a, b, a_scale, b_scale = draw_fp8_operands()
    a[3, 2] = NAN
    c = fp8_gemm.fp8_gemm(a, b, a_scale, b_scale)
    assert c[3].isnan().all()
    assert c[[i for i in range(20) if i != 3]].isfinite().all()


def test_each_value_of_e4m3_is_kept() -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(E4M3)
    x = codes.float().reshape(2, 128)  # each half holds a 448, so the scale is 1
    q, scale = quantise.quantised(x, "row")
    assert scale.flatten().tolist() == [1.0, 1.0]
    finite = x.isfinite()
    assert torch.equal(q.view(torch.uint8)[finite], codes.view(torch.uint8).view(2, 128)[finite])


@pytest.mark.parametrize("how", ["naive", "pointers", "descriptors", "specialised"])
def test_no_depth_gives_zeros(how: str) -> None:
    a, b, a_scale, b_scale = draw_fp8_operands(k=0)
    assert fp8_gemm.product(a, b, a_scale, b_scale, how=how).tolist() == [[0.0] * 24] * 20


@pytest.mark.skipif(DEVICE == "cuda", reason="says what papergpu launches for sm_90")
@pytest.mark.parametrize(
    ("how", "k", "promote", "named"),
    [
        ("specialised", 144, True, "hopper<1>"),
        ("specialised", 144, False, "fp8_gemm_described"),  # its sums would end all the same
        ("specialised", 145, True, "fp8_gemm_grouped"),  # no pairs, nor rows on 16 bytes
        ("descriptors", 145, True, "fp8_gemm_grouped"),
        ("naive", 145, True, "fp8_gemm_naive"),
        (None, 144, True, "fp8_gemm_described"),  # few rows
    ],
)
def test_what_a_way_cannot_take_it_leaves_to_another(how, k, promote, named) -> None:
    a, b, *scales = draw_fp8_operands(k=k)
    scales = scales if promote else [torch.tensor(1.0), torch.tensor(2.0)]
    launched: list[papergpu.Launched] = []
    with papergpu.on_launch(launched.append):
        fp8_gemm.product(a, b, *scales, promote=promote, how=how)
    assert [one.name for one in launched] == [named]


def test_no_product_of_the_specialised_kernel_waits_for_the_one_before() -> None:
    pytest.importorskip("cuda.core", exc_type=ImportError)
    code, symbols = hopper.KERNELS.cubin(["hopper<1>"], "sm_90")
    [symbol] = symbols.values()
    body = binary.split_functions(binary.run_cuobjdump("-sass", code))[symbol]
    assert body.count("QGMMA") == 4 and body.count("WARPGROUP.ARRIVE") == 1


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_rows_that_lie_beyond_two_to_the_31() -> None:
    far = 2**30 + 16  # elements from row to row; what lies between is never touched
    store = torch.empty(2 * far + 128, dtype=E4M3, device=DEVICE)
    a = store.as_strided((3, 128), (far, 1))
    small, b, a_scale, b_scale = draw_fp8_operands(3, 24, 128)
    a.copy_(small)
    due = fp8_gemm.product(small, b, a_scale, b_scale)
    for how in ("naive", "pointers"):
        assert torch.equal(fp8_gemm.product(a, b, a_scale, b_scale, how=how), due)


def test_a_model_of_fourteen_bits() -> None:
    one = torch.ones(1, 32)
    assert float(tensor_core.emulated(one, one, None)) == 32.0
    # Beside 2**13 a grain is 1 of 14 bits: what is smaller is lost, and a sum stays.
    a = torch.full((1, 128), 0.5)
    a[0, 0] = 2.0**13
    ones = torch.ones(1, 128)
    assert float(tensor_core.emulated(a, ones, None)) == 2.0**13
    assert float(tensor_core.emulated(a, ones, 32)) == 2.0**13 + 48
    assert float(tensor_core.emulated(a, ones, None, bits=24)) == 2.0**13 + 63.5


def test_the_table_knows_waves() -> None:
    assert fp8_gemm.chosen(4096, 7168, 132, 90).m == 128
    assert fp8_gemm.chosen(64, 7168, 132, 90).m == 64
    assert fp8_gemm.chosen(4096, 7168, 108, 80).m == 64
    assert all(128 % tile.n == 0 for tile in (*fp8_gemm.TILES, *fp8_gemm.SMALL))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda a, b, s, t: (a.float(), b, s, t), TypeError, "a is torch.float32, not"),
        (lambda a, b, s, t: (a, b, s.half(), t), TypeError, "a_scale is torch.float16, not"),
        (lambda a, b, s, t: (a, b.to("meta"), s, t), TypeError, "b is on meta"),
        (lambda a, b, s, t: (a[0], b, s, t), ValueError, "a has 1 dimensions; give it 2"),
        (lambda a, b, s, t: (a, b[:, 1:], s, t), ValueError, "a is 20 x 144 and b 24 x 143"),
        (lambda a, b, s, t: (a, b, s[:, 1:], t), ValueError, r"a_scale is \(20, 1\), not"),
        (lambda a, b, s, t: (a, b, s, t.mT), ValueError, r"b_scale is \(2, 1\), not \(1, 2\)"),
        (lambda a, b, s, t: (a, b, s, t[0, 0]), ValueError, r"b_scale is \(\), not \(1, 2\)"),
        (lambda a, b, s, t: (a, b, s, t, False), ValueError, "promote is False"),
    ],
)
def test_refuses_in_one_clear_line(change, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^fp8_gemm: .*{said}") as raised:
        fp8_gemm.product(*change(*draw_fp8_operands()))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        (lambda x: (x, "rows"), ValueError, "share 'rows' is none of tensor, row, block"),
        (lambda x: (x.double(), "row"), TypeError, "x is torch.float64, none of"),
        (lambda x: (x[0], "row"), ValueError, "x has 1 dimensions; give it 2"),
    ],
)
def test_the_quantiser_refuses_too(told, error: type, said: str) -> None:
    with pytest.raises(error, match=f"^fp8_gemm: {said}"):
        quantise.quantised(*told(draw_matrix(4, 8)))


# quant_matmul: packing and back, what is kept, what is refused, its gradient.

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
