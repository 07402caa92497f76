"""Matmul as an operator, and a product in several languages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import exhaustive, read_demo
from snippet_facts import is_close

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import papergpu  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from snippets.matmul import cases, layer, matmul  # noqa: E402
from snippets.matmul_languages import matmul_languages as langs  # noqa: E402
from warpshelf.worker import kernel_views  # noqa: E402

# matmul: what its cases, which call the kernels, cannot see of the operator.

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


# matmul_languages: what it refuses, and what its languages are compiled to alike.

A, B = torch.ones(128, 32).half(), torch.ones(32, 128).half()
LOOPS = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}


def expand_zero(*shape: int) -> torch.Tensor:
    """Zeros of which no memory is behind any but the first."""
    return torch.zeros(1, dtype=torch.float16).expand(shape)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: langs.product(A, B, "Fortran"), ValueError, "no language 'Fortran'; there are CU"),
        (lambda: langs.product(A.float(), B), TypeError, "a is torch.float32, not torch.float16"),
        (lambda: langs.product(A, B.bfloat16()), TypeError, "b is torch.bfloat16, not"),
        (lambda: langs.product(A[0], B), ValueError, "a has 1 dimensions, not 2; reshape it"),
        (lambda: langs.product(A, A), ValueError, "a is 128 x 32 and b is 128 x 32; a's columns"),
        (lambda: langs.product(A[:100], B), ValueError, "100 x 32 by 32 x 128 is no whole number"),
        (lambda: langs.product(A[:, :8], B[:8]), ValueError, "K of 32; pad with zeros, or take"),
        (lambda: langs.product(A, B[:, :64]), ValueError, "128 x 32 by 32 x 64 is no whole"),
        (
            lambda: langs.product(A, expand_zero(32, 2**23)),
            ValueError,
            "a side over what a grid and",
        ),
        (
            lambda: langs.product(expand_zero(2**31, 32), B),
            ValueError,
            "2147483648 x 32 by 32 x 128 has a",
        ),
        (lambda: langs.product(B.t(), B), ValueError, r"rows of a must .* \(1, 128\), .* a\.clone"),
        (
            lambda: langs.product(A, torch.ones(32, 132).half()[:, :128]),
            ValueError,
            r"rows of b must begin on 16 bytes, .* its strides are \(132, 1\)",
        ),
        (
            lambda: langs.product(torch.ones(128 * 32 + 4).half()[4:].view(128, 32), B),
            ValueError,
            "rows of a must begin .* begins at 0x[0-9a-f]+8; pass",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(
    call: Callable[[], object], kind: type[Exception], message: str
) -> None:
    launched = []
    with papergpu.on_launch(launched.append), pytest.raises(kind, match="^matmul_languages: ") as e:
        call()
    assert e.match(message)
    assert not launched


@pytest.mark.parametrize("language", langs.LANGUAGES)
def test_nothing_in_is_nothing_out(language: str) -> None:
    for m, n, k in ((0, 128, 32), (128, 0, 32), (128, 128, 0)):
        a, b = torch.ones(m, k).half(), torch.ones(k, n).half()
        found = langs.product(a, b, language)
        assert found.shape == (m, n)
        assert not found.any()


@pytest.mark.parametrize("language", langs.LANGUAGES)
def test_all_are_the_same_sums(language: str) -> None:
    draw = torch.Generator().manual_seed(1)
    a = torch.randint(-8, 9, (256, 320), generator=draw).half()
    b = torch.randint(-8, 9, (320, 128), generator=draw).half()
    assert torch.equal(langs.product(a, b, language), (a.double() @ b.double()).half())


@pytest.mark.parametrize("language", langs.LANGUAGES)
def test_extreme_values(language: str) -> None:
    a, b = torch.zeros(128, 64).half(), torch.zeros(64, 128).half()
    a[0], b[:, 0] = 65504, 65504  # their sum is finite, and beyond float16
    a[1, 5], a[2, 5], a[3, 5] = float("inf"), float("nan"), -0.0
    b[5, 1] = 2
    found = langs.product(a, b, language)
    assert found[0, 0] == float("inf")
    assert found[1, 1] == float("inf")
    assert found[1, 2].isnan() and found[2].isnan().all()
    assert not found[3].any()
    assert not found[4:].any()


def read_main_loop(language: str, target: str) -> tuple[dict[str, int], str]:
    """What a language's main loop executes, by kind, and the PTX of all."""
    launched: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(launched.append):
        langs.product(A, B, language)
    [made] = kernel_views.build_views(
        [kernel_views.KernelLaunches(language, {}, launched)], target, langs.KERNELS.path.parent
    )
    return max((one["kinds"] for one in made["loops"]), key=lambda one: one.get("matrix", 0)), (
        launched[0].ptx
    )


@pytest.mark.parametrize("target", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
def test_the_same_loop_in_each_language(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each says mma.sync it is the same; Triton alone changes with the architecture."""
    monkeypatch.setenv("PAPERGPU_TARGET", target)  # of CUDA C++; Triton is told apart
    for language in langs.LANGUAGES:
        papergpu.activate(target)
        try:
            kinds, ptx = read_main_loop(language, target)
        finally:
            papergpu.deactivate()
        said = LOOPS[target] if language == "Triton" else "mma.sync"
        assert f"{said}." in ptx
        assert kinds["copy async 16"] == 8  # 16 KiB by 128 threads
        if said == "mma.sync":
            assert kinds["matrix"] == 64  # 128 x 128 x 32 by four warps, 16 x 8 x 16 each
            assert kinds["load shared 16"] == 16
        else:
            assert "load shared 16" not in kinds  # the matrix unit reads shared memory


def test_demo_finds_every_language_right() -> None:
    text = read_demo(langs)
    assert text.count("right") == len(langs.LANGUAGES) and "wrong" not in text


def draw_whole_numbers(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two matrices, and their product as all must find it."""
    draw = torch.Generator().manual_seed(2)
    a = torch.randint(-8, 9, (m, k), generator=draw).half()
    b = torch.randint(-8, 9, (k, n), generator=draw).half()
    return a, b, (a.double() @ b.double()).half()


def test_helion_finds_the_same() -> None:
    pytest.importorskip("helion", reason="it is not installed with the rest")
    from snippets.matmul_languages import in_helion

    a, b, exact = draw_whole_numbers(256, 128, 96)
    assert torch.equal(in_helion.gemm_helion(a, b), exact)


def test_tilelang_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tilelang", reason="it is not installed with the rest")
    from snippets import cuda
    from snippets.matmul_languages import in_tilelang

    monkeypatch.setenv("PAPERGPU_TARGET", "sm_80")
    a, b, exact = draw_whole_numbers(256, 128, 96)
    path = tmp_path / "gemm.cu"
    path.write_text(in_tilelang.source("sm_80", 256, 128, 96))
    c = torch.empty_like(exact)
    kernels = cuda.Source(path, in_tilelang.flags())
    kernels.launch("gemm_kernel", (2, 1), 128, a, b, c, shared=in_tilelang.SHARED)
    assert torch.equal(c, exact)
