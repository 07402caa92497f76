"""Products of a warpgroup with sparse matrices, against float64."""

from __future__ import annotations

from typing import Any

import matrices
import numpy as np
import pytest
from matrices import Reals, draw_matrix, run_wgmma
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Result, Settings

from tests.papergpu.test_mma import choose_kept, expand_sparse, pack_metadata

DEPTH = {"f16": 32, "bf16": 32, "tf32": 16, "e4m3": 64, "e5m2": 64, "s8": 64, "u8": 64}
# The shape of mma.sp whose metadata the 16 rows of a warp have.
ALIKE = {16: "m16n8k32", 32: "m16n8k16", 8: "m16n8k64"}
HALF = ("f32", "f16", "f16")
TYPES = [HALF, ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
         ("f32", "e4m3", "e5m2"), ("s32", "s8", "u8"), ("s32", "u8", "u8")]  # fmt: skip


def name_form(kinds: tuple[str, str, str], n: int) -> str:
    return f"m64n{n}k{DEPTH[kinds[1]]}.{'.'.join(kinds)}"


def draw_operands(
    kinds: tuple[str, str, str], n: int, steps: int, selector: int = 0
) -> tuple[Reals, Reals, Reals, Reals, np.ndarray]:
    """What is kept of a, b and c, all of a, and the metadata of each step and thread."""
    d, a, b = kinds
    generator = np.random.default_rng(n + steps)
    k, width = DEPTH[a], matrices.WIDTHS[a]
    stored = draw_matrix(generator, a, 64, k // 2 * steps)
    right = draw_matrix(generator, b, k * steps, n)
    sums = draw_matrix(generator, "s8" if d == "s32" else d, 64, n)
    whole, words = np.zeros((64, k * steps)), np.zeros((steps, 128), np.uint64)
    for step in range(steps):
        for warp in range(4):
            kept = choose_kept(generator, k, a == "tf32", True)
            rows = slice(16 * warp, 16 * warp + 16)
            piece = stored[rows, step * k // 2 : (step + 1) * k // 2]
            whole[rows, step * k : (step + 1) * k] = expand_sparse(piece, kept)
            said = pack_metadata(kept, ALIKE[width], width, selector, 0)
            words[step, 32 * warp : 32 * warp + 32] = said
    return stored, right, sums, whole, words


@pytest.mark.parametrize("kinds", TYPES, ids=".".join)
@pytest.mark.parametrize("in_registers", [False, True])
def test_every_type(kinds: tuple[str, str, str], in_registers: bool) -> None:
    for n, width, steps in ((8, 64, 1), (24, 128, 2), (64, 0, 2)):
        selector = 0 if matrices.WIDTHS[kinds[1]] == 8 else n % 3 // 2
        a, b, c, whole, words = draw_operands(kinds, n, steps, selector)
        expected = c + whole @ b
        if kinds[0] == "f16":
            a, b, c, whole = np.round(a) // 8, np.round(b) // 8, np.round(c) // 8, whole
            rounded = np.where(whole != 0, np.round(whole) // 8, 0)
            expected = (rounded @ b + c).astype(np.float16)
        for order in ("forward", "backward"):
            got = run_wgmma(name_form(kinds, n), kinds, a, b, c, width_a=width // 2, width_b=width,
                            in_registers=in_registers, sparse=(words, selector),
                            settings=Settings(threads=1, order=order))  # fmt: skip
            np.testing.assert_array_equal(got, expected, err_msg=f"{n} {width}")


@pytest.mark.parametrize("width_b", [0, 32, 64, 128])
@pytest.mark.parametrize("width_a", [0, 32, 64, 128])
def test_transposed_matrices_lie_as_dense_ones_do(width_a: int, width_b: int) -> None:
    a, b, c, whole, words = draw_operands(HALF, 64, 2, 1)
    got = run_wgmma(
        name_form(HALF, 64),
        HALF,
        a,
        b,
        c,
        width_a=width_a,
        width_b=width_b,
        across_a=True,
        across_b=True,
        sparse=(words, 1),
    )
    np.testing.assert_array_equal(got, whole @ b + c)


def test_scales_and_what_was_there() -> None:
    a, b, c, whole, words = draw_operands(HALF, 16, 2)
    for scales in ((1, 1), (-1, 1), (-1, -1)):
        got = run_wgmma(
            name_form(HALF, 16), HALF, a, b, c, width_a=64, scales=scales, sparse=(words, 0)
        )
        np.testing.assert_array_equal(got, scales[0] * scales[1] * (whole @ b) + c)
    got = run_wgmma(name_form(HALF, 16), HALF, a, b, c, width_a=64, scale=0, sparse=(words, 0))
    np.testing.assert_array_equal(got, whole @ b)


def test_operations_are_counted_of_what_is_kept() -> None:
    a, b, c, _, words = draw_operands(HALF, 64, 2)
    answer: list[Result] = []
    settings = Settings(threads=1, profile=True)
    run_wgmma(name_form(HALF, 64), HALF, a, b, c, width_a=64, settings=settings, answer=answer,
              sparse=(words, 0))  # fmt: skip
    counts = answer[0].counts
    assert counts is not None and counts["operations"].sum() == 64 * 64 * 64


LATE = ("wgmma.fence.sync.aligned; ISSUE wgmma.commit_group.sync.aligned; {} "
        "wgmma.wait_group.sync.aligned 0;")  # fmt: skip


def find_wgmma_misuse(**more: Any) -> str:
    a, b, c, _, words = draw_operands(HALF, 8, 2)
    options: dict[str, Any] = {"width_a": 64, "sparse": (words, 0), **more}
    with pytest.raises(Finding) as raised:
        run_wgmma(name_form(HALF, 8), HALF, a, b, c, **options)
    return str(raised.value)


def test_faults_are_found() -> None:
    words = np.full((2, 128), 0x44444444, np.uint64)
    words[1, 37] = 0x44444F44
    said = find_wgmma_misuse(sparse=(words, 0))
    assert "bits 8 to 11 keep elements 3 and 3 of row 1: they must differ" in said
    assert "thread (37, 0, 0)" in said
    # Of b 64 bytes along k are held until the wait, the last 16 of a row too.
    late = ("bar.sync 0; add.u32 %y, %s, {}; setp.eq.u32 %who, %i, 0;"
            "@%who st.shared.b32 [%y], 0; bar.sync 0;")  # fmt: skip
    where_b = 2048 * 64 + 8192
    for at in (0, where_b, where_b + 48):
        said = find_wgmma_misuse(body=LATE.format(late.format(at)))
        assert f"writes byte {at} of shared memory, which" in said and "may still read" in said


def test_a_narrow_swizzle_along_k_is_not_executed() -> None:
    a, b, c, _, words = draw_operands(("f32", "tf32", "tf32"), 8, 1)
    with pytest.raises(Finding, match="in a swizzle of 32, which is not executed"):
        run_wgmma(
            name_form(("f32", "tf32", "tf32"), 8),
            ("f32", "tf32", "tf32"),
            a,
            b[:8],
            c,
            width_a=32,
            width_b=32,
            sparse=(words, 0),
        )


@pytest.mark.parametrize(("kinds", "selector"), [(HALF, 2), (("s32", "s8", "s8"), 1)])
def test_a_selector_that_is_none_is_refused(kinds: tuple[str, str, str], selector: int) -> None:
    a, b, c, _, words = draw_operands(kinds, 8, 1)
    with pytest.raises(Unsupported, match=f"its sparsity selector is {selector}: use one below"):
        run_wgmma(
            name_form(kinds, 8), kinds, a, b, c, width_a=32, width_b=64, sparse=(words, selector)
        )
