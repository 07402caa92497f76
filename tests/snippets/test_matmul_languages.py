"""What snippets/matmul_languages refuses, and what its languages are compiled to alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import papergpu
import pytest
import torch
from conftest import exhaustive, read_demo

from snippets.matmul_languages import matmul_languages as ours
from warpshelf.worker import kernel_views

A, B = torch.ones(128, 32).half(), torch.ones(32, 128).half()
LOOPS = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}


def expand_zero(*shape: int) -> torch.Tensor:
    """Zeros of which no memory is behind any but the first."""
    return torch.zeros(1, dtype=torch.float16).expand(shape)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.product(A, B, "Fortran"), ValueError, "no language 'Fortran'; there are CU"),
        (lambda: ours.product(A.float(), B), TypeError, "a is torch.float32, not torch.float16"),
        (lambda: ours.product(A, B.bfloat16()), TypeError, "b is torch.bfloat16, not"),
        (lambda: ours.product(A[0], B), ValueError, "a has 1 dimensions, not 2; reshape it"),
        (lambda: ours.product(A, A), ValueError, "a is 128 x 32 and b is 128 x 32; a's columns"),
        (lambda: ours.product(A[:100], B), ValueError, "100 x 32 by 32 x 128 is no whole number"),
        (lambda: ours.product(A[:, :8], B[:8]), ValueError, "K of 32; pad with zeros, or take"),
        (lambda: ours.product(A, B[:, :64]), ValueError, "128 x 32 by 32 x 64 is no whole"),
        (
            lambda: ours.product(A, expand_zero(32, 2**23)),
            ValueError,
            "a side over what a grid and",
        ),
        (
            lambda: ours.product(expand_zero(2**31, 32), B),
            ValueError,
            "2147483648 x 32 by 32 x 128 has a",
        ),
        (lambda: ours.product(B.t(), B), ValueError, r"rows of a must .* \(1, 128\), .* a\.clone"),
        (
            lambda: ours.product(A, torch.ones(32, 132).half()[:, :128]),
            ValueError,
            r"rows of b must begin on 16 bytes, .* its strides are \(132, 1\)",
        ),
        (
            lambda: ours.product(torch.ones(128 * 32 + 4).half()[4:].view(128, 32), B),
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


@pytest.mark.parametrize("language", ours.LANGUAGES)
def test_nothing_in_is_nothing_out(language: str) -> None:
    for m, n, k in ((0, 128, 32), (128, 0, 32), (128, 128, 0)):
        a, b = torch.ones(m, k).half(), torch.ones(k, n).half()
        found = ours.product(a, b, language)
        assert found.shape == (m, n)
        assert not found.any()


@pytest.mark.parametrize("language", ours.LANGUAGES)
def test_all_are_the_same_sums(language: str) -> None:
    draw = torch.Generator().manual_seed(1)
    a = torch.randint(-8, 9, (256, 320), generator=draw).half()
    b = torch.randint(-8, 9, (320, 128), generator=draw).half()
    assert torch.equal(ours.product(a, b, language), (a.double() @ b.double()).half())


@pytest.mark.parametrize("language", ours.LANGUAGES)
def test_extreme_values(language: str) -> None:
    a, b = torch.zeros(128, 64).half(), torch.zeros(64, 128).half()
    a[0], b[:, 0] = 65504, 65504  # their sum is finite, and beyond float16
    a[1, 5], a[2, 5], a[3, 5] = float("inf"), float("nan"), -0.0
    b[5, 1] = 2
    found = ours.product(a, b, language)
    assert found[0, 0] == float("inf")
    assert found[1, 1] == float("inf")
    assert found[1, 2].isnan() and found[2].isnan().all()
    assert not found[3].any()
    assert not found[4:].any()


def read_main_loop(language: str, target: str) -> tuple[dict[str, int], str]:
    """What a language's main loop executes, by kind, and the PTX of all."""
    launched: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(launched.append):
        ours.product(A, B, language)
    [made] = kernel_views.build_views(
        [kernel_views.KernelLaunches(language, {}, launched)], target, ours.KERNELS.path.parent
    )
    return max((one["kinds"] for one in made["loops"]), key=lambda one: one.get("matrix", 0)), (
        launched[0].ptx
    )


@pytest.mark.parametrize("target", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
def test_the_same_loop_in_each_language(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each says mma.sync it is the same; Triton alone changes with the architecture."""
    monkeypatch.setenv("PAPERGPU_TARGET", target)  # of CUDA C++; Triton is told apart
    for language in ours.LANGUAGES:
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
    text = read_demo(ours)
    assert text.count("right") == len(ours.LANGUAGES) and "wrong" not in text


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
