"""Products of a warpgroup, dense and sparse, against float64; what is late or missing."""

from __future__ import annotations

from typing import Any

import matrices
import numpy as np
import pytest
from matrices import Reals, draw_matrix, run_wgmma
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Result, Settings

from tests.papergpu.test_mma import choose_kept, expand_sparse, pack_metadata

DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}


def draw_operands(
    kinds: tuple[str, str, str], n: int, steps: int, seed: int = 1
) -> tuple[Reals, Reals, Reals]:
    d, a, b = kinds
    generator = np.random.default_rng(seed)
    k = DEPTH[a] * steps
    return (draw_matrix(generator, a, 64, k), draw_matrix(generator, b, k, n),
            draw_matrix(generator, "s8" if d == "s32" else d, 64, n))  # fmt: skip


def name_form(kinds: tuple[str, str, str], n: int) -> str:
    return f"m64n{n}k{DEPTH[kinds[1]]}.{'.'.join(kinds)}"


HALF = ("f32", "f16", "f16")
TYPES = [HALF, ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
         ("f32", "e4m3", "e5m2"), ("f16", "e5m2", "e4m3"), ("s32", "s8", "u8"),
         ("s32", "u8", "u8")]  # fmt: skip


@pytest.mark.parametrize("kinds", TYPES, ids=".".join)
@pytest.mark.parametrize("in_registers", [False, True])
def test_every_type(kinds: tuple[str, str, str], in_registers: bool) -> None:
    for n, width in ((8, 32), (24, 64), (128, 128), (256, 0)):
        steps = width // 32 or 2
        a, b, c = draw_operands(kinds, n, steps)
        expected = a @ b + c
        if kinds[0] == "f16":
            if steps > 1:
                a, b, c = np.round(a) // 8, np.round(b) // 8, np.round(c) // 8  # exact in halves
            expected = (a @ b + c).astype(np.float16)
        got = run_wgmma(name_form(kinds, n), kinds, a, b, c, width_a=width, width_b=width,
                        in_registers=in_registers)  # fmt: skip
        np.testing.assert_array_equal(got, expected, err_msg=f"{n} {width}")


@pytest.mark.parametrize("width_a", [0, 32, 64, 128])
@pytest.mark.parametrize("width_b", [0, 32, 64, 128])
def test_every_layout_of_halves(width_a: int, width_b: int) -> None:
    for across_a in (False, True):
        for across_b in (False, True):
            # Along k a row of the pattern holds `width` bytes: both must then have as many steps.
            steps = {width // 32 for width, across in ((width_a, across_a), (width_b, across_b))
                     if width and not across} or {2}  # fmt: skip
            if len(steps) > 1:
                continue
            a, b, c = draw_operands(HALF, 64, *steps)
            got = run_wgmma(name_form(HALF, 64), HALF, a, b, c, width_a=width_a, width_b=width_b,
                            across_a=across_a, across_b=across_b)  # fmt: skip
            np.testing.assert_array_equal(got, a @ b + c, err_msg=f"{across_a} {across_b}")


@pytest.mark.parametrize(("width", "base"), [(128, 1), (128, 5), (64, 2), (64, 3), (32, 1)])
def test_a_pattern_that_begins_between_its_multiples(width: int, base: int) -> None:
    a, b, c = draw_operands(HALF, 32, width // 32)
    got = run_wgmma(name_form(HALF, 32), HALF, a, b, c, width_a=width, width_b=width, base=base)
    np.testing.assert_array_equal(got, a @ b + c)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_width(n: int) -> None:
    a, b, c = draw_operands(HALF, n, 1, n)
    got = run_wgmma(name_form(HALF, n), HALF, a, b, c, width_a=32, width_b=32, across_b=n % 16 == 0)
    np.testing.assert_array_equal(got, a @ b + c)


def test_scales_negate_and_forget() -> None:
    a, b, c = draw_operands(HALF, 16, 4)
    for scales in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        got = run_wgmma(name_form(HALF, 16), HALF, a, b, c, scales=scales)
        np.testing.assert_array_equal(got, scales[0] * scales[1] * (a @ b) + c)
    np.testing.assert_array_equal(run_wgmma(name_form(HALF, 16), HALF, a, b, c, scale=0), a @ b)


def test_single_bits() -> None:
    kinds = ("s32", "s8", "s8")  # bytes that hold bits
    generator = np.random.default_rng(3)
    a, b = generator.integers(-128, 128, (64, 32)), generator.integers(-128, 128, (32, 8))
    c = draw_matrix(generator, "s8", 64, 8)
    both = (a[:, :, None] & b[None]) & 255
    expected = c + np.bitwise_count(both.astype(np.uint8)).sum(1)
    body = ("wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc"
            " {%d0, %d1, %d2, %d3}, %da0, %db0, 1;"
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")  # fmt: skip
    got = run_wgmma(
        name_form(kinds, 8),
        kinds,
        a.astype(float),
        b.astype(float),
        c,
        width_a=32,
        width_b=32,
        body=body,
    )
    np.testing.assert_array_equal(got, expected)


def test_integers_saturate() -> None:
    kinds = ("s32", "s8", "s8")
    a, b, c = np.full((64, 32), 127.0), np.full((32, 8), 127.0), np.full((64, 8), 2.0**31 - 1)
    for tail, expected in ((".satfinite", 2.0**31 - 1), ("", 127 * 127 * 32 - 2.0**31 - 1)):
        got = run_wgmma(name_form(kinds, 8) + tail, kinds, a, b, c, width_a=32, width_b=32)
        np.testing.assert_array_equal(got, expected)


def test_operations_are_counted() -> None:
    a, b, c = draw_operands(HALF, 64, 4)
    answer: list[Result] = []
    run_wgmma(
        name_form(HALF, 64),
        HALF,
        a,
        b,
        c,
        settings=Settings(threads=1, profile=True),
        answer=answer,
    )
    counts = answer[0].counts
    assert counts is not None and counts["operations"].sum() == 2 * 64 * 64 * 64


# What is late.

FENCE = "wgmma.fence.sync.aligned;"
COMMIT, WAIT = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"
UNCHECKED = Settings(threads=1, checks=False)
OVERWRITE = "bar.sync 0; mad.lo.u32 %y, %i, 4, %s; st.shared.b32 [%y], 0; bar.sync 0;"


def test_sums_are_old_until_they_are_waited_for() -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    plain = run_wgmma(name_form(HALF, 8), HALF, a, b, c)
    np.testing.assert_array_equal(plain, a @ b + c)
    for body in (f"{FENCE} ISSUE {COMMIT}", f"{FENCE} ISSUE {WAIT}",
                 f"{FENCE} ISSUE {COMMIT} wgmma.wait_group.sync.aligned 1;"):  # fmt: skip
        got = run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body, settings=UNCHECKED)
        np.testing.assert_array_equal(got, c)


def test_operands_are_read_late() -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    body = f"{FENCE} ISSUE {COMMIT} {OVERWRITE} {WAIT}"
    got = run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body, settings=UNCHECKED)
    assert (got != a @ b + c).any()


def test_a_in_registers_is_read_when_it_is_issued() -> None:
    """PTX leaves that open; Triton overwrites it before the wait, and ptxas mends that."""
    a, b, c = draw_operands(HALF, 8, 4)
    body = f"{FENCE} ISSUE {COMMIT} mov.b32 %a0, 0; {WAIT}"
    got = run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body, in_registers=True)
    np.testing.assert_array_equal(got, a @ b + c)


def test_a_group_waits_for_those_before_it() -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    more = (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3},"
        "%da0, %db0, 1, 1, 1, 0, 0;"
    )
    body = f"{FENCE} ISSUE {COMMIT} {more} {COMMIT} wgmma.wait_group.sync.aligned 1;"
    got = run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body, settings=UNCHECKED)
    np.testing.assert_array_equal(got, a @ b + c)
    body += WAIT
    got = run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body)
    np.testing.assert_array_equal(got, a @ b + c + a[:, :16] @ b[:16])


def test_who_waits_first_has_all_four_warps_products() -> None:
    """Warp 0 overwrites as soon as it has waited: the others have theirs none the less."""
    a, b, c = draw_operands(HALF, 8, 4)
    body = (f"{FENCE} ISSUE {COMMIT} setp.eq.u32 %who, %warp, 0; @!%who bar.sync 1; {WAIT}"
            "mov.b32 %v, 0; mad.lo.u32 %y, %i, 4, %s; @%who st.shared.b32 [%y], %v;"
            "@%who bar.sync 1;")  # fmt: skip
    got = run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body, settings=UNCHECKED)
    np.testing.assert_array_equal(got, a @ b + c)


@pytest.mark.parametrize("warp", range(4))
def test_who_has_waited_may_overwrite_what_all_four_have_read(warp: int) -> None:
    """A product is one operation of the four: CUTLASS has one of their threads release a tile."""
    a, b, c = draw_operands(HALF, 8, 4)
    write = (
        "mad.lo.u32 %y, %i, 4, %s; @%who st.shared.b32 [%y], %i; @%who st.shared.b32 [%y+2048], %i;"
    )
    body = f"{FENCE} ISSUE {COMMIT} {WAIT} setp.eq.u32 %who, %warp, {warp}; {write}"
    for seed in range(3):
        settings = Settings(threads=1, schedule="random", seed=seed)
        got = run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body, settings=settings)
        np.testing.assert_array_equal(got, a @ b + c)
    early = body.replace(f"{WAIT} setp", "setp") + WAIT
    with pytest.raises(Finding):
        run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=early)


# What is missing.


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (f"ISSUE {COMMIT} {WAIT}", "there is no wgmma.fence before the first wgmma.mma_async"),
        (f"{FENCE} mov.b32 %d1, 0; ISSUE {COMMIT} {WAIT}",
         "a register of its sums was written since"),
        (f"{FENCE} ISSUE {WAIT}",
         "is in flight: wgmma.commit_group, then wgmma.wait_group 0, before"),
        (f"{FENCE} ISSUE {COMMIT}", "in flight: put a wgmma.wait_group between"),
        (f"{FENCE} ISSUE {COMMIT} ret;",
         "is in flight: wgmma.wait_group 0 before its sums are read"),
        (f"setp.eq.u32 %who, %warp, 3; @%who exit; {FENCE} ISSUE {COMMIT} {WAIT}",
         "warp 3 has ended and has not executed the wgmma.mma_async that warp . waits for"),
        (f"setp.eq.u32 %who, %warp, 3; @%who bar.sync 2, 64; {FENCE} ISSUE {COMMIT} {WAIT}",
         "waits for warp 3 to execute the wgmma.mma_async of its warpgroup"),
        (f"and.b32 %v, %i, 1; cvt.u64.u32 %x, %v; add.u64 %db0, %db0, %x;"
         f"{FENCE} ISSUE {COMMIT} {WAIT}",
         "gives another descriptor of B than lane 0"),
        (f"or.b64 %db0, %db0, 16368; {FENCE} ISSUE {COMMIT} {WAIT}",
         "reads matrix B up to byte .* of shared memory, which has"),
        (f"setp.eq.u32 %who, %warp, 1; @%who add.u64 %x, %da0, 0; {FENCE}"
         "@%who bra other; ISSUE bra join; other: ISSUE join:" + COMMIT + WAIT,
         "all four warps of a warpgroup execute the same"),
    ],
)  # fmt: skip
def test_what_is_missing_is_found(body: str, says: str) -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    with pytest.raises(Finding, match=says):
        run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body)


@pytest.mark.parametrize(
    "touch", ["add.f32 %d127, %d1, %d1;", "mov.b32 %d1, 0;", "@%scale mov.b32 %d9, %d0;"]
)
def test_a_sum_that_is_touched_in_flight_is_found(touch: str) -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    body = f"{FENCE} ISSUE {COMMIT} {touch} {WAIT}"
    with pytest.raises(Finding, match="a sum of the wgmma.mma_async of .*, which is in flight"):
        run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body)
    body = (
        f"{FENCE} ISSUE {COMMIT} wgmma.wait_group.sync.aligned 1; mov.b32 %d9, %d8; {WAIT} {touch}"
    )
    run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body)


def test_registers_of_a_may_be_written_behind_the_fence() -> None:
    """LLVM moves them there in Triton's kernels; ptxas puts a fence of its own."""
    a, b, c = draw_operands(HALF, 8, 4)
    body = f"{FENCE} mov.b32 %a0, %a0; ISSUE {COMMIT} {WAIT}"
    run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body, in_registers=True)


def test_a_tile_that_is_overwritten_in_flight_is_found() -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    with pytest.raises(
        Finding, match="which what was begun at .* may still read: wait for it first"
    ):
        run_wgmma(
            name_form(HALF, 8), HALF, a, b, c, body=f"{FENCE} ISSUE {COMMIT} {OVERWRITE} {WAIT}"
        )
    run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=f"{FENCE} ISSUE {COMMIT} {WAIT} {OVERWRITE}")


def test_stores_that_no_fence_follows_are_found() -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    with pytest.raises(Finding, match="ordinary stores wrote with no fence since: add fence.proxy"):
        run_wgmma(
            name_form(HALF, 8), HALF, a, b, c, body=f"{OVERWRITE} {FENCE} ISSUE {COMMIT} {WAIT}"
        )
    body = f"{OVERWRITE} fence.proxy.async; bar.sync 0; {FENCE} ISSUE {COMMIT} {WAIT}"
    run_wgmma(name_form(HALF, 8), HALF, a, b, c, body=body)


def test_three_warps_are_no_warpgroup() -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    with pytest.raises(Finding, match="only 3 of this warpgroup are in the block"):
        run_wgmma(name_form(HALF, 8), HALF, a, b, c, threads=96)


@pytest.mark.parametrize(
    "text",
    [
        "m64n12k16.f32.f16.f16 {%d0, %d1}, %da0, %db0, 1, 1, 1, 0, 0;",
        "m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %da0, %db0, 1, 1, 1, 0;",
        "m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %da0, %db0, 1, 2, 1, 0, 0;",
        "m64n8k16.f32.f16.f16 {%d0, %d1, %d2}, %da0, %db0, 1, 1, 1, 0, 0;",
        "m64n8k32.f32.e4m3.e4m3 {%d0, %d1, %d2, %d3}, %da0, %db0, 1, 1, 1, 0, 0;",
        "m64n40k32.s32.s8.s8 {%d0}, %da0, %db0, 1;",
        "m64n8k16.f32.f16.bf16 {%d0, %d1, %d2, %d3}, %da0, %db0, 1, 1, 1, 0, 0;",
    ],
)
def test_what_is_no_form_is_refused(text: str) -> None:
    a, b, c = draw_operands(HALF, 8, 4)
    with pytest.raises(Unsupported):
        run_wgmma(name_form(HALF, 8), HALF, a, b, c, body="wgmma.mma_async.sync.aligned." + text)


# ---- with sparse matrices

SPARSE_DEPTH = {"f16": 32, "bf16": 32, "tf32": 16, "e4m3": 64, "e5m2": 64, "s8": 64, "u8": 64}
# The shape of mma.sp whose metadata the 16 rows of a warp have.
ALIKE = {16: "m16n8k32", 32: "m16n8k16", 8: "m16n8k64"}
SPARSE_TYPES = [HALF, ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
         ("f32", "e4m3", "e5m2"), ("s32", "s8", "u8"), ("s32", "u8", "u8")]  # fmt: skip


def name_sparse(kinds: tuple[str, str, str], n: int) -> str:
    return f"m64n{n}k{SPARSE_DEPTH[kinds[1]]}.{'.'.join(kinds)}"


def draw_sparse(
    kinds: tuple[str, str, str], n: int, steps: int, selector: int = 0
) -> tuple[Reals, Reals, Reals, Reals, np.ndarray]:
    """What is kept of a, b and c, all of a, and the metadata of each step and thread."""
    d, a, b = kinds
    generator = np.random.default_rng(n + steps)
    k, width = SPARSE_DEPTH[a], matrices.WIDTHS[a]
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


@pytest.mark.parametrize("kinds", SPARSE_TYPES, ids=".".join)
@pytest.mark.parametrize("in_registers", [False, True])
def test_every_sparse_type(kinds: tuple[str, str, str], in_registers: bool) -> None:
    for n, width, steps in ((8, 64, 1), (24, 128, 2), (64, 0, 2)):
        selector = 0 if matrices.WIDTHS[kinds[1]] == 8 else n % 3 // 2
        a, b, c, whole, words = draw_sparse(kinds, n, steps, selector)
        expected = c + whole @ b
        if kinds[0] == "f16":
            a, b, c, whole = np.round(a) // 8, np.round(b) // 8, np.round(c) // 8, whole
            rounded = np.where(whole != 0, np.round(whole) // 8, 0)
            expected = (rounded @ b + c).astype(np.float16)
        for order in ("forward", "backward"):
            got = run_wgmma(name_sparse(kinds, n), kinds, a, b, c, width_a=width // 2,
                            width_b=width, in_registers=in_registers, sparse=(words, selector),
                            settings=Settings(threads=1, order=order))  # fmt: skip
            np.testing.assert_array_equal(got, expected, err_msg=f"{n} {width}")


@pytest.mark.parametrize("width_b", [0, 32, 64, 128])
@pytest.mark.parametrize("width_a", [0, 32, 64, 128])
def test_transposed_matrices_lie_as_dense_ones_do(width_a: int, width_b: int) -> None:
    a, b, c, whole, words = draw_sparse(HALF, 64, 2, 1)
    got = run_wgmma(
        name_sparse(HALF, 64),
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
    a, b, c, whole, words = draw_sparse(HALF, 16, 2)
    for scales in ((1, 1), (-1, 1), (-1, -1)):
        got = run_wgmma(
            name_sparse(HALF, 16), HALF, a, b, c, width_a=64, scales=scales, sparse=(words, 0)
        )
        np.testing.assert_array_equal(got, scales[0] * scales[1] * (whole @ b) + c)
    got = run_wgmma(name_sparse(HALF, 16), HALF, a, b, c, width_a=64, scale=0, sparse=(words, 0))
    np.testing.assert_array_equal(got, whole @ b)


def test_operations_are_counted_of_what_is_kept() -> None:
    a, b, c, _, words = draw_sparse(HALF, 64, 2)
    answer: list[Result] = []
    settings = Settings(threads=1, profile=True)
    run_wgmma(name_sparse(HALF, 64), HALF, a, b, c, width_a=64, settings=settings, answer=answer,
              sparse=(words, 0))  # fmt: skip
    counts = answer[0].counts
    assert counts is not None and counts["operations"].sum() == 64 * 64 * 64


LATE = ("wgmma.fence.sync.aligned; ISSUE wgmma.commit_group.sync.aligned; {} "
        "wgmma.wait_group.sync.aligned 0;")  # fmt: skip


def find_wgmma_misuse(**more: Any) -> str:
    a, b, c, _, words = draw_sparse(HALF, 8, 2)
    options: dict[str, Any] = {"width_a": 64, "sparse": (words, 0), **more}
    with pytest.raises(Finding) as raised:
        run_wgmma(name_sparse(HALF, 8), HALF, a, b, c, **options)
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
    a, b, c, _, words = draw_sparse(("f32", "tf32", "tf32"), 8, 1)
    with pytest.raises(Finding, match="in a swizzle of 32, which is not executed"):
        run_wgmma(
            name_sparse(("f32", "tf32", "tf32"), 8),
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
    a, b, c, _, words = draw_sparse(kinds, 8, 1)
    with pytest.raises(Unsupported, match=f"its sparsity selector is {selector}: use one below"):
        run_wgmma(
            name_sparse(kinds, 8), kinds, a, b, c, width_a=32, width_b=64, sparse=(words, selector)
        )
