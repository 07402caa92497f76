"""FP8 products: special values, bounds against what was rounded, and what is refused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from snippets.fp8_gemm import cases, fp8_gemm, quantise, tensor_core  # noqa: E402

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


@pytest.mark.parametrize("how", ["naive", "pointers", "descriptors"])
def test_no_depth_gives_zeros(how: str) -> None:
    a, b, a_scale, b_scale = draw_fp8_operands(k=0)
    assert fp8_gemm.product(a, b, a_scale, b_scale, how=how).tolist() == [[0.0] * 24] * 20


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
