"""Products with sparse matrices against float64: what is kept is put back into a dense matrix."""

from __future__ import annotations

import matrices
import numpy as np
import pytest
from executing import kernel
from matrices import Reals, decoded, encoded, numbers, one_instruction, packed, text_of, unpacked
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Settings

Bits = np.ndarray
# Of each shape and width of a: which lane of a group of four gives the metadata of row g (0) or
# g + 8 (1) and of a piece of k, by the selector, and from which bit on; a piece is 4 chunks, or 8
# of bytes. From the chapter "Matrix fragments for mma.sp", and the layouts of CUTLASS for sm_80.
GIVES = {
    ("m16n8k16", 16): lambda row, piece, f: (f, 16 * row),
    ("m16n8k32", 16): lambda row, piece, f: (2 * f + piece, 16 * row),
    ("m16n8k8", 32): lambda row, piece, f: (f, 16 * row),
    ("m16n8k16", 32): lambda row, piece, f: (2 * f + piece, 16 * row),
    ("m16n8k32", 8): lambda row, piece, f: (2 * f + row, 0),
    ("m16n8k64", 8): lambda row, piece, f: (2 * piece + row, 0),
}
SELECTORS = {("m16n8k16", 16): 4, ("m16n8k32", 16): 2, ("m16n8k8", 32): 4, ("m16n8k16", 32): 2,
             ("m16n8k32", 8): 2, ("m16n8k64", 8): 1}  # fmt: skip


def kept_at(generator: np.random.Generator, k: int, tf32: bool, ordered: bool) -> Bits:
    """Of 16 rows and the chunks of k, which elements are kept, in the order of the registers."""
    if tf32:
        return generator.integers(0, 2, (16, k // 2, 1))
    found = np.argsort(generator.random((16, k // 4, 4)), axis=2)[:, :, :2]
    return np.sort(found, axis=2) if ordered else found


def metadata(kept: Bits, shape: str, width: int, selector: int, other: int) -> Bits:
    """The register with it, of a warp; bits of lanes that give none are `other`."""
    rows, chunks, each = kept.shape
    nibbles = kept[:, :, 0] | kept[:, :, 1] << 2 if each == 2 else np.where(kept[:, :, 0], 14, 4)
    per = 8 if width == 8 else 4
    words = np.full(32, other, np.uint64)
    touched = np.zeros(32, bool)
    for row in range(rows):
        for chunk in range(chunks):
            lane, first = GIVES[shape, width](row // 8, chunk // per, selector)
            lane += row % 8 * 4
            if not touched[lane]:
                words[lane], touched[lane] = 0, True
            words[lane] |= np.uint64(int(nibbles[row, chunk]) << first + 4 * (chunk % per))
    return words[None]


def dense(stored: Reals, kept: Bits) -> Reals:
    """Matrix a with its zeros."""
    rows, chunks, each = kept.shape
    out = np.zeros((rows, chunks, 2 * each))
    np.put_along_axis(out, kept, stored.reshape(rows, chunks, each), axis=2)
    return out.reshape(rows, -1)


def fragments(stored: Reals, b: Reals, kinds: tuple[str, ...]) -> tuple[Bits, Bits]:
    """The registers of a, 16 rows of what is kept, and of b."""
    per = max(1, 32 // matrices.WIDTHS[kinds[1]])
    elements_a, elements_b = [], []
    for lane in range(32):
        g, t = lane >> 2, lane % 4
        elements_a.append([stored[g + 8 * row, piece + t * per + e]
                           for piece in range(0, stored.shape[1], 4 * per)
                           for row in range(2) for e in range(per)])  # fmt: skip
        places = [piece + t * per + e for piece in range(0, len(b), 4 * per) for e in range(per)]
        elements_b.append([b[place, g] for place in places])
    return (packed(encoded(np.array(elements_a), kinds[1]), kinds[1]),
            packed(encoded(np.array(elements_b), kinds[2]), kinds[2]))  # fmt: skip


def sums_at(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + 8 * (i >= 2), lane % 4 * 2 + (i & 1)


def operands(
    shape: str, kinds: tuple[str, ...], stored: Reals, b: Reals, c: Reals, words: Bits
) -> tuple[list[tuple[str, Bits]], tuple[str, int]]:
    a_words, b_words = fragments(stored, b, kinds)
    elements = np.array([[c[sums_at(lane, i)] for i in range(4)] for lane in range(32)])
    c_words = packed(encoded(elements, kinds[3]), kinds[3])
    given = [("b32", one) for one in (a_words, b_words, c_words, words)]
    return given, ("b32", 2 if kinds[0] == "f16" else 4)


def gathered(registers: Bits, kind: str) -> Reals:
    elements, found = decoded(unpacked(registers, kind), kind), np.full((16, 8), np.nan)
    for lane in range(32):
        for i in range(4):
            found[sums_at(lane, i)] = elements[lane, i]
    return found


def forms() -> list[tuple[str, str, tuple[str, ...]]]:
    found = []
    for variant in ("sp", "sp::ordered_metadata"):
        for shapes, *kinds in (
            ("m16n8k16 m16n8k32", "f16", "f16", "f16", "f16"),
            ("m16n8k16 m16n8k32", "f32", "f16", "f16", "f32"),
            ("m16n8k16 m16n8k32", "f32", "bf16", "bf16", "f32"),
            ("m16n8k8 m16n8k16", "f32", "tf32", "tf32", "f32"),
            ("m16n8k64", "f32", "e4m3", "e5m2", "f32"),
            ("m16n8k32 m16n8k64", "s32", "s8", "u8", "s32"),
            ("m16n8k32 m16n8k64", "s32", "u8", "s8", "s32"),
        ):
            for shape in shapes.split():
                form = f"mma.{variant}.sync.aligned.{shape}.row.col.{'.'.join(kinds)}"
                found.append((form, shape, tuple(kinds)))
    return found


@pytest.mark.parametrize(("form", "shape", "kinds"), forms(), ids=[one[0][4:] for one in forms()])
def test_every_shape_type_and_selector(form: str, shape: str, kinds: tuple[str, ...]) -> None:
    generator = np.random.default_rng(len(form))
    k, width = int(shape.partition("k")[2]), matrices.WIDTHS[kinds[1]]
    for selector in range(SELECTORS[shape, width]):
        stored, b = numbers(generator, kinds[1], 16, k // 2), numbers(generator, kinds[2], k, 8)
        c = numbers(generator, "s8" if kinds[3] == "s32" else kinds[3], 16, 8)
        kept = kept_at(generator, k, kinds[1] == "tf32", "ordered" in form)
        # What no lane gives would be refused if it were looked at.
        words = metadata(kept, shape, width, selector, 0)
        expected = c + dense(stored, kept) @ b
        if kinds[0] == "f16":
            expected = expected.astype(np.float16)
        for order in ("forward", "backward"):
            got = one_instruction(form, *operands(shape, kinds, stored, b, c, words),
                                  Settings(threads=1, order=order), selector)  # fmt: skip
            np.testing.assert_array_equal(gathered(got, kinds[0]), expected)


BYTES = ("s32", "s8", "s8", "s32")
FORM = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALVES = ("f32", "f16", "f16", "f32")


def test_what_is_left_out_is_not_multiplied() -> None:
    """An infinity that only zeros of a meet leaves no trace."""
    stored, b = np.ones((16, 8)), np.ones((16, 8))
    b[1::4], b[2::4] = np.inf, np.nan
    kept = np.tile([0, 3], (16, 4, 1))
    words = metadata(kept, "m16n8k16", 16, 0, 0)
    got = one_instruction(FORM, *operands("m16n8k16", HALVES, stored, b, np.zeros((16, 8)), words),
                          selector=0)  # fmt: skip
    np.testing.assert_array_equal(gathered(got, "f32"), 8)


def test_integers_saturate_where_they_are_told_to() -> None:
    kinds = BYTES
    stored, b, c = np.full((16, 16), 100.0), np.full((32, 8), 100.0), np.full((16, 8), 2.0**31 - 1)
    words = metadata(kept_at(np.random.default_rng(1), 32, False, True), "m16n8k32", 8, 1, 0)
    for word, expected in ((".satfinite", 2.0**31 - 1), ("", 16e4 - 2.0**31 - 1)):
        form = f"mma.sp.sync.aligned.m16n8k32.row.col{word}.s32.s8.s8.s32"
        got = one_instruction(form, *operands("m16n8k32", kinds, stored, b, c, words), selector=1)
        np.testing.assert_array_equal(gathered(got, "s32"), expected)


@pytest.mark.parametrize(
    ("form", "kinds", "word", "said"),
    [(FORM, HALVES, 0x4445, "bits 0 to 3 keep elements 1 and 1 of row 2: they must differ"),
     (FORM.replace("mma.sp.", "mma.sp::ordered_metadata."), HALVES, 0x4144,
      "bits 8 to 11 keep elements 1 and 0 of row 2: with .sp::ordered_metadata they must increase"),
     ("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", ("f32", "tf32", "tf32", "f32"),
      0x4844, "of tf32 they are 0b0100 or 0b1110")],
)  # fmt: skip
def test_metadata_without_a_meaning_is_found(
    form: str, kinds: tuple[str, ...], word: int, said: str
) -> None:
    shape = form.split(".")[4]
    k = int(shape.partition("k")[2])
    words = np.full((1, 32), 0x44444444, np.uint64)
    words[0, 9] = 0x44440000 | word
    given = operands(shape, kinds, np.ones((16, k // 2)), np.ones((k, 8)), np.ones((16, 8)), words)
    with pytest.raises(Finding) as raised:
        one_instruction(form, *given, selector=1)
    assert said in str(raised.value) and "thread (9, 0, 0)" in str(raised.value)


@pytest.mark.parametrize(
    ("form", "kinds", "selector", "said"),
    [(FORM, HALVES, 4, "its sparsity selector is 4: below 4"),
     (FORM.replace("k16", "k32"), HALVES, 2, "its sparsity selector is 2: below 2"),
     ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", BYTES, 1, "below 1"),
     (FORM.replace("row.col.f32", "row.col.f16"), ("f16", *HALVES[1:]), 0, "both are of one type"),
     ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", BYTES, 0, "no row")],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    form: str, kinds: tuple[str, ...], selector: int, said: str
) -> None:
    shape = form.split(".")[4]
    k = int(shape.partition("k")[2])
    words = np.full((1, 32), 0x44444444, np.uint64)
    given = operands(shape, kinds, np.ones((16, k // 2)), np.ones((k, 8)), np.ones((16, 8)), words)
    text, _ = text_of(form, *given, selector)
    with pytest.raises(Unsupported) as raised:
        kernel(text)
    assert said in str(raised.value) and form in str(raised.value)
