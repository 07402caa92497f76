"""Products of a warp against float64, their fragments laid out as the PTX ISA's formulas say.

Products with sparse matrices against float64: what is kept is put back into a dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matrices
import numpy as np
import pytest
from matrices import (
    Reals,
    decode_sums,
    draw_matrix,
    encode_numbers,
    pack_registers,
    run_instruction,
    unpack_registers,
    write_instruction_ptx,
)
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Settings
from ptx_launch import execute_ptx, load_kernel

# For each shape and width of a and b: row and column of element i of lane (g, t), g = lane / 4 and
# t = lane % 4, as the chapter "Matrix fragments for mma" writes them, for a and for b; then the
# number of elements in each.
Where = Callable[[int, int, int], tuple[int, int]]
SHAPES: dict[tuple[str, int], tuple[Where, int, Where, int]] = {
    ("m8n8k4", 64): (lambda g, t, i: (g, t), 1, lambda g, t, i: (t, g), 1),
    ("m16n8k4", 64): (lambda g, t, i: (g + 8 * i, t), 2, lambda g, t, i: (t, g), 1),
    ("m16n8k8", 64): (lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4), 4,
                      lambda g, t, i: (t if i == 0 else t + 4, g), 2),
    ("m16n8k16", 64): (lambda g, t, i: (g if i % 2 == 0 else g + 8,
                                        i * 2 + t if i % 2 == 0 else i * 2 - 2 + t), 8,
                       lambda g, t, i: (t + i * 4, g), 4),
    ("m16n8k4", 32): (lambda g, t, i: (g if i == 0 else g + 8, t), 2, lambda g, t, i: (t, g), 1),
    ("m16n8k8", 32): (lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4), 4,
                      lambda g, t, i: (t if i == 0 else t + 4, g), 2),
    ("m16n8k8", 16): (lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)), 4,
                      lambda g, t, i: (t * 2 + i, g), 2),
    ("m16n8k16", 16): (lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8,
                                        t * 2 + (i & 1) if i < 4 else t * 2 + (i & 1) + 8), 8,
                       lambda g, t, i: (t * 2 + (i & 1) if i < 2 else t * 2 + (i & 1) + 8, g), 4),
    ("m8n8k16", 8): (lambda g, t, i: (g, t * 4 + i), 4, lambda g, t, i: (t * 4 + i, g), 4),
    ("m16n8k16", 8): (lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)), 8,
                      lambda g, t, i: (t * 4 + i, g), 4),
    ("m16n8k32", 8): (lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8,
                                       t * 4 + (i & 3) if i < 8 else t * 4 + (i & 3) + 16), 16,
                      lambda g, t, i: (t * 4 + (i & 3) if i < 4 else t * 4 + (i & 3) + 16, g), 8),
    ("m8n8k32", 4): (lambda g, t, i: (g, t * 8 + i), 8, lambda g, t, i: (t * 8 + i, g), 8),
    ("m16n8k32", 4): (lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)), 16,
                      lambda g, t, i: (t * 8 + i, g), 8),
    ("m16n8k64", 4): (lambda g, t, i: (g if i < 8 or 16 <= i < 24 else g + 8,
                                       t * 8 + (i & 7) if i < 16 else t * 8 + (i & 7) + 32), 32,
                      lambda g, t, i: (t * 8 + (i & 7) if i < 8 else t * 8 + (i & 7) + 32, g), 16),
    ("m8n8k128", 1): (lambda g, t, i: (g, t * 32 + i), 32, lambda g, t, i: (t * 32 + i, g), 32),
    ("m16n8k128", 1): (lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)), 64,
                       lambda g, t, i: (t * 32 + i, g), 32),
    ("m16n8k256", 1): (lambda g, t, i: (g if i < 32 or 64 <= i < 96 else g + 8,
                                        t * 32 + (i & 31) + 128 * (i >= 64)),
                       128,
                       lambda g, t, i: (t * 32 + i if i < 32 else t * 32 + (i & 31) + 128, g), 64),
}  # fmt: skip


def locate_dense_sum(g: int, t: int, i: int) -> tuple[int, int]:
    """Row and column of sum i, for shapes of 8 and of 16 rows alike."""
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def fill_fragment(matrix: Reals, kind: str, where: Where, count: int) -> np.ndarray:
    """The registers in which the lanes of a warp hold a matrix."""
    at = [[where(lane >> 2, lane % 4, i) for i in range(count)] for lane in range(32)]
    elements = np.array([[matrix[place] for place in row] for row in at])
    return pack_registers(encode_numbers(elements, kind), kind)


def gather_sums(registers: np.ndarray, kind: str, where: Where, rows: int) -> Reals:
    """The matrix of sums that registers hold."""
    elements = decode_sums(unpack_registers(registers, kind), kind)
    found = np.full((rows, 8), np.nan)
    for lane in range(32):
        for i, value in enumerate(elements[lane]):
            found[where(lane >> 2, lane % 4, i)] = value
    return found


def multiply_mma(
    form: str,
    shape: str,
    kinds: tuple[str, str, str, str],
    a: Reals,
    b: Reals,
    c: Reals,
    settings: Settings | None = None,
) -> Reals:
    """d of `mma`, of a, b and c as matrices."""  # fmt: skip
    d_kind, a_kind, b_kind, c_kind = kinds
    at_a, count_a, at_b, count_b = SHAPES[shape, matrices.WIDTHS[a_kind]]
    rows = a.shape[0]
    each = "b64" if a_kind == "f64" else "b32"
    given = [
        (each, fill_fragment(a, a_kind, at_a, count_a)),
        (each, fill_fragment(b, b_kind, at_b, count_b)),
        (each, fill_fragment(c, c_kind, locate_dense_sum, rows // 4)),
    ]
    results = rows // 8 if d_kind == "f16" else rows // 4
    return gather_sums(
        run_instruction(form, given, (each, results), settings), d_kind, locate_dense_sum, rows
    )


def list_dense_forms() -> list[tuple[str, str, tuple[str, str, str, str]]]:
    found = []

    def add_forms(
        shapes: str, d: str, a: str, b: str, c: str, tail: str = "", head: str = ""
    ) -> None:
        for shape in shapes.split():
            form = f"mma.sync.aligned.{shape}.row.col{head}.{d}.{a}.{b}.{c}{tail}"
            found.append((form, shape, (d, a, b, c)))

    for d in ("f16", "f32"):
        for c in ("f16", "f32"):
            add_forms("m16n8k8 m16n8k16", d, "f16", "f16", c)
    add_forms("m16n8k8 m16n8k16", "f32", "bf16", "bf16", "f32")
    add_forms("m16n8k4 m16n8k8", "f32", "tf32", "tf32", "f32")
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            add_forms("m16n8k16 m16n8k32", "f32", a, b, "f32")
    add_forms("m16n8k16 m16n8k32", "f16", "e4m3", "e5m2", "f16")
    small = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
    for a, b in zip(small, (*small[2:], *small[:2]), strict=True):
        for d, kind in (("f32", ".kind::f8f6f4"), ("f16", ".kind::f8f6f4")):
            add_forms("m16n8k32", d, a, b, d, head=kind)
    form = "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e5m2.f32"
    found.append((form, "m16n8k32", ("f32", "e2m1", "e5m2", "f32")))
    add_forms("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "f64", "f64", "f64", "f64")
    add_forms("m16n8k8", "f64", "f64", "f64", "f64", head=".rn")
    for a, b in (("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8")):
        add_forms("m8n8k16 m16n8k16 m16n8k32", "s32", a, b, "s32")
        add_forms("m8n8k32 m16n8k32 m16n8k64", "s32", a[0] + "4", b[0] + "4", "s32")
    for how in ("xor", "and"):
        add_forms("m8n8k128 m16n8k128 m16n8k256", "s32", "b1", "b1", "s32", tail=f".{how}.popc")
    return found


@pytest.mark.parametrize(
    ("form", "shape", "kinds"), list_dense_forms(), ids=[one[0][17:] for one in list_dense_forms()]
)
def test_every_shape_and_type(form: str, shape: str, kinds: tuple[str, str, str, str]) -> None:
    generator = np.random.default_rng(len(form))
    m, n, k = (int(part) for part in shape[1:].replace("n", "k").split("k"))
    _, a_kind, b_kind, c_kind = kinds
    a, b = draw_matrix(generator, a_kind, m, k), draw_matrix(generator, b_kind, k, n)
    c = draw_matrix(generator, "s8" if c_kind == "s32" else c_kind, m, n)
    found = (a[:, :, None] != b[None]).sum(1) if "xor" in form else a @ b
    expected = c + found
    if "f16" in (kinds[0], c_kind):
        expected = expected.astype(np.float16 if kinds[0] == "f16" else np.float64)
    for order in ("forward", "backward"):
        settings = Settings(threads=1, order=order)
        np.testing.assert_array_equal(multiply_mma(form, shape, kinds, a, b, c, settings), expected)


# Products with scaled blocks, by kind, size of factors, their type, and types of a and b.
SCALED = [
    ("mxf8f6f4", "", "ue8m0", "e4m3", "e2m1"),
    ("mxf8f6f4", ".scale_vec::1X", "ue8m0", "e5m2", "e3m2"),
    ("mxf8f6f4", ".scale_vec::1X", "ue8m0", "e2m3", "e4m3"),
    ("mxf4", "", "ue8m0", "e2m1", "e2m1"), ("mxf4", ".scale_vec::2X", "ue8m0", "e2m1", "e2m1"),
    ("mxf4nvf4", ".scale_vec::2X", "ue8m0", "e2m1", "e2m1"),
    ("mxf4nvf4", ".scale_vec::4X", "ue4m3", "e2m1", "e2m1"),
]  # fmt: skip


def write_scaled_product(
    one: tuple[str, ...], a: Reals, b: Reals, c: Reals, factors: Sequence[np.ndarray],
    where: Sequence[object], late: bool = False,
) -> tuple[str, list[np.ndarray]]:  # fmt: skip
    """The PTX of a product and its arrays; `where` is byte and thread of a's factors and of b's."""
    kind, size, factor, a_kind, b_kind = one
    shape = f"m16n8k{a.shape[1]}"
    a_kind, b_kind = (a_kind, b_kind) if kind == "mxf8f6f4" else ("packed", "packed")
    at_a, count_a, at_b, count_b = SHAPES[shape, matrices.WIDTHS[a_kind]]
    given = [("b32", fill_fragment(a, a_kind, at_a, count_a)),
             ("b32", fill_fragment(b, b_kind, at_b, count_b)),
             ("b32", fill_fragment(c, "f32", locate_dense_sum, 4)),
             *(("b32", words[None].astype(np.uint64)) for words in factors)]  # fmt: skip
    what = (f"kind::{kind}.block_scale{size}", f"{shape}.row.col")
    what = (*what[:: 1 if late else -1], "f32", *one[3:], "f32", factor)
    form = f"mma.sync.aligned.{'.'.join(what)}"
    text, arrays = write_instruction_ptx(form, given, ("b32", 4))
    said = "%v4_0, {{{}, {}}}, %v5_0, {{{}, {}}}".format(*where)
    assert "{%v4_0}, {%v5_0}" in text
    return text.replace("{%v4_0}, {%v5_0}", said).replace("sm_90a", "sm_120a"), arrays


@pytest.mark.parametrize("one", SCALED, ids=["-".join(one) for one in SCALED])
def test_blocks_are_scaled(one: tuple[str, ...]) -> None:
    generator = np.random.default_rng(len("".join(one)))
    kind, _, factor, *types = one
    k, scales = (32, 1) if kind == "mxf8f6f4" else (64, 4 if factor == "ue4m3" else 2)
    a, b = draw_matrix(generator, types[0], 16, k), draw_matrix(generator, types[1], k, 8)
    c = draw_matrix(generator, "f32", 16, 8)
    codes = (110, 140) if factor == "ue8m0" else (0, 127)
    words = [generator.integers(*codes, (32, 4), np.uint8) for _ in "ab"]
    numbers = [2.0 ** (w - 127.0) if factor == "ue8m0" else decode_e4m3(w) for w in words]
    for byte_a, byte_b in {1: ((0, 3), (2, 1)), 2: ((0, 2), (2, 0)), 4: ((0, 0),)}[scales]:
        for thread_a in range(2):
            for thread_b in range(4):
                rows = [r % 8 * 4 + 2 * thread_a + r // 8 for r in range(16)]
                left = numbers[0][rows, byte_a : byte_a + scales]
                right = numbers[1][[4 * n + thread_b for n in range(8)], byte_b : byte_b + scales]
                expected = c + (a * left.repeat(k // scales, 1)) @ (
                    b * right.repeat(k // scales, 1).T
                )
                where, late = (byte_a, thread_a, byte_b, thread_b), thread_b == 1
                raw = [w.view(np.uint32)[:, 0] for w in words]
                text, arrays = write_scaled_product(one, a, b, c, raw, where, late)
                execute_ptx(text, *arrays)
                found = gather_sums(arrays[0].astype(np.uint64), "f32", locate_dense_sum, 16)
                np.testing.assert_array_equal(found, expected.astype(np.float32))


def decode_e4m3(codes: np.ndarray) -> Reals:
    import torch

    return torch.tensor(codes).view(torch.float8_e4m3fn).to(torch.float64).numpy()


def test_where_factors_lie_may_be_in_registers_that_all_lanes_share() -> None:
    ones, none = np.ones((16, 32)), np.zeros((16, 8))
    factors = [np.full(32, 0x80817F7F, np.uint32)] * 2
    set_up = "mov.u32 %lane, %tid.x;\n.reg .b16 %h<2>; mov.b16 %h0, 1; cvt.u16.u32 %h1, {};"
    for said, wrong in (("2", ""), ("%lane", "lane"), ("7", "7")):
        where = ("%h1", "%h0", 3, "%h0")
        text, arrays = write_scaled_product(SCALED[0], ones, ones[:8].T, none, factors, where)
        text = text.replace("mov.u32 %lane, %tid.x;", set_up.format(said))
        if not wrong:
            execute_ptx(text, *arrays)
            assert (arrays[0].view(np.float32) == 32 * 4 * 2).all()
            continue
        with pytest.raises(Finding, match="byte-id-a"):
            execute_ptx(text, *arrays)


def test_factors_of_no_number_and_of_great_ones() -> None:
    a, b, none = np.full((16, 32), 448.0), np.full((32, 8), 0.5), np.zeros((16, 8))
    for high, low, expected in ((254, 0, 32 * 224.0), (255, 127, np.nan), (254, 254, np.inf)):
        factors = [np.full(32, high, np.uint32), np.full(32, low, np.uint32)]
        text, arrays = write_scaled_product(SCALED[0], a, b, none, factors, (0, 0, 0, 0))
        execute_ptx(text, *arrays)
        found = arrays[0].view(np.float32)
        np.testing.assert_array_equal(found, np.float32(expected))


FP4 = ("e2m1", "e2m1")


@pytest.mark.parametrize(
    "one",
    [
        ("mxf4", "", "ue8m0", "e4m3", "e4m3"),
        ("mxf4nvf4", "", "ue8m0", *FP4),
        ("mxf4nvf4", ".scale_vec::2X", "ue4m3", *FP4),
        ("mxf8f6f4", ".scale_vec::2X", "ue8m0", *FP4),
    ],
)
def test_kinds_and_factors_that_do_not_go_together_are_refused(one: tuple[str, ...]) -> None:
    k = 32 if one[0] == "mxf8f6f4" else 64
    zeros = [np.zeros(size) for size in ((16, k), (k, 8), (16, 8))]
    text, _ = write_scaled_product(one, *zeros, [np.zeros(32, np.uint32)] * 2, (0, 0, 0, 0))
    with pytest.raises(Unsupported, match="do not go together"):
        load_kernel(text)


def test_one_hot_products_find_their_place() -> None:
    form, shape, kinds = (
        "m16n8k16.row.col.f32.f16.f16.f32",
        "m16n8k16",
        ("f32", "f16", "f16", "f32"),
    )
    b = np.arange(128, dtype=np.float64).reshape(16, 8)
    for row, k in ((0, 0), (3, 5), (8, 8), (15, 15), (11, 2)):
        a = np.zeros((16, 16))
        a[row, k] = 1
        expected = np.zeros((16, 8))
        expected[row] = b[k]
        got = multiply_mma(f"mma.sync.aligned.{form}", shape, kinds, a, b, np.zeros((16, 8)))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("kind", "tiny", "large"),
    [("f16", 2**-24, 65504.0), ("e5m2", 2**-16, 57344.0), ("bf16", 2**-133, 2.0**127)],
)
def test_special_numbers_stay_what_they_are(kind: str, tiny: float, large: float) -> None:
    held = np.array([0.0, tiny, -tiny, 2**-14, large, np.inf, -np.inf, np.nan])
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    a[:8, 0], b[0] = held, 1
    name = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
    got = multiply_mma(name, "m16n8k16", ("f32", kind, kind, "f32"), a, b, np.zeros((16, 8)))
    np.testing.assert_array_equal(got[:8], np.repeat(held[:, None], 8, 1))


def test_of_e4m3_all_values() -> None:
    every = np.arange(256, dtype=np.uint8)
    import torch

    real = torch.tensor(every).view(torch.float8_e4m3fn).to(torch.float64).numpy()
    for half in (0, 128):
        a, b = real[half : half + 128].reshape(16, 8), np.zeros((16, 8))
        wide = np.zeros((16, 16))
        got = []
        for k in range(8):  # one column at a time, for NaN spreads over its row
            wide[:] = 0
            wide[:, 0], b[0] = a[:, k], 1
            name = "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32"
            kinds = ("f32", "e4m3", "e4m3", "f32")
            got.append(multiply_mma(name, "m16n8k16", kinds, wide, b, np.zeros((16, 8)))[:, 0])
        np.testing.assert_array_equal(np.stack(got, 1), a)


def test_tf32_drops_the_low_bits() -> None:
    a, b = np.zeros((16, 8)), np.zeros((8, 8))
    a[:, 0], b[0] = 1 + 2**-10 + 2**-12, 1 + 2**-11
    name = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    got = multiply_mma(name, "m16n8k8", ("f32", "tf32", "tf32", "f32"), a, b, np.zeros((16, 8)))
    np.testing.assert_array_equal(got, 1 + 2**-10)


def test_integers_wrap_or_saturate() -> None:
    a, b = np.full((8, 16), -128.0), np.full((16, 8), 127.0)
    c = np.full((8, 8), -(2.0**31))
    kinds = ("s32", "s8", "s8", "s32")
    exact = -(2**31) - 128 * 127 * 16
    form = "mma.sync.aligned.m8n8k16.row.col{}.s32.s8.s8.s32"
    np.testing.assert_array_equal(
        multiply_mma(form.format(""), "m8n8k16", kinds, a, b, c), exact + 2**32
    )
    np.testing.assert_array_equal(
        multiply_mma(form.format(".satfinite"), "m8n8k16", kinds, a, b, c), -(2.0**31)
    )
    np.testing.assert_array_equal(
        multiply_mma(form.format(".satfinite"), "m8n8k16", kinds, a, -b, -c - 1), 2.0**31 - 1
    )


def test_the_order_of_sums_is_a_setting() -> None:
    a, b = np.ones((16, 16)), np.zeros((16, 8))
    b[0], b[1], b[2] = 1024, -1024, 2**-20
    name, kinds = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ("f32", "f16", "f16", "f32")
    found = {}
    for order in ("forward", "backward"):
        settings = Settings(threads=1, order=order)
        found[order] = multiply_mma(name, "m16n8k16", kinds, a, b, np.zeros((16, 8)), settings)
    assert (found["forward"] == 2**-20).all() and (found["backward"] == 0).all()


@pytest.mark.parametrize("la", ["row", "col"])
@pytest.mark.parametrize("lb", ["row", "col"])
@pytest.mark.parametrize(
    ("d", "c"), [("f16", "f16"), ("f32", "f32"), ("f32", "f16"), ("f16", "f32")]
)
def test_the_four_products_of_volta(la: str, lb: str, d: str, c: str) -> None:
    generator = np.random.default_rng(7)
    a, b = draw_matrix(generator, "f16", 4, 8, 4), draw_matrix(generator, "f16", 4, 4, 8)
    sums = draw_matrix(generator, "f16", 4, 8, 8)

    def spread_quads(whole: Reals, kind: str, count: int, where: Where) -> np.ndarray:
        elements = np.zeros((32, count))
        for lane in range(32):
            for i in range(count):
                elements[lane, i] = whole[(lane % 16 // 4, *where(lane, 0, i))]
        return pack_registers(encode_numbers(elements, kind), kind)

    def upper_rows(lane: int) -> int:
        return 4 if lane >= 16 else 0

    def locate_a(lane: int, _: int, i: int) -> tuple[int, int]:
        return (
            (lane % 4 + upper_rows(lane), i)
            if la == "row"
            else (i % 4 + upper_rows(lane), lane % 4)
        )

    def locate_b(lane: int, _: int, i: int) -> tuple[int, int]:
        return (lane % 4, i + upper_rows(lane)) if lb == "row" else (i, lane % 4 + upper_rows(lane))

    def locate_half(lane: int, _: int, i: int) -> tuple[int, int]:
        return lane % 4 + upper_rows(lane), i

    def locate_float(lane: int, _: int, i: int) -> tuple[int, int]:
        return (lane & 1) + (i & 2) + upper_rows(lane), (i & 4) + (lane & 2) + (i & 1)

    given = [
        ("b32", spread_quads(a, "f16", 4, locate_a)),
        ("b32", spread_quads(b, "f16", 4, locate_b)),
        ("b32", spread_quads(sums, c, 8, locate_half if c == "f16" else locate_float)),
    ]
    form = f"mma.sync.aligned.m8n8k4.{la}.{lb}.{d}.f16.f16.{c}"
    got = run_instruction(form, given, ("b32", 4 if d == "f16" else 8))
    expected = a @ b + sums
    if d == "f16":
        expected = expected.astype(np.float16)
    np.testing.assert_array_equal(
        got, spread_quads(expected, d, 8, locate_half if d == "f16" else locate_float)
    )


@pytest.mark.parametrize(
    "form",
    [
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64.rz",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ],
)
def test_what_is_no_form_is_refused(form: str) -> None:
    given = [("b32", np.zeros((2, 32), np.uint64))] * 3
    with pytest.raises(Unsupported):
        run_instruction(form, given, ("b32", 4))


def test_too_few_registers_are_refused() -> None:
    given = [("b32", np.zeros((count, 32), np.uint64)) for count in (4, 3, 4)]
    with pytest.raises(Unsupported, match="b has 3 registers but takes 2"):
        run_instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", given, ("b32", 4))


# Sparse products.

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


def choose_kept(generator: np.random.Generator, k: int, tf32: bool, ordered: bool) -> Bits:
    """Of 16 rows and the chunks of k, which elements are kept, in the order of the registers."""
    if tf32:
        return generator.integers(0, 2, (16, k // 2, 1))
    found = np.argsort(generator.random((16, k // 4, 4)), axis=2)[:, :, :2]
    return np.sort(found, axis=2) if ordered else found


def pack_metadata(kept: Bits, shape: str, width: int, selector: int, other: int) -> Bits:
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


def expand_sparse(stored: Reals, kept: Bits) -> Reals:
    """Matrix a with its zeros."""
    rows, chunks, each = kept.shape
    out = np.zeros((rows, chunks, 2 * each))
    np.put_along_axis(out, kept, stored.reshape(rows, chunks, each), axis=2)
    return out.reshape(rows, -1)


def fill_sparse_fragments(stored: Reals, b: Reals, kinds: tuple[str, ...]) -> tuple[Bits, Bits]:
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
    return (pack_registers(encode_numbers(np.array(elements_a), kinds[1]), kinds[1]),
            pack_registers(encode_numbers(np.array(elements_b), kinds[2]), kinds[2]))  # fmt: skip


def locate_sparse_sum(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + 8 * (i >= 2), lane % 4 * 2 + (i & 1)


def pack_operands(
    shape: str, kinds: tuple[str, ...], stored: Reals, b: Reals, c: Reals, words: Bits
) -> tuple[list[tuple[str, Bits]], tuple[str, int]]:
    a_words, b_words = fill_sparse_fragments(stored, b, kinds)
    elements = np.array([[c[locate_sparse_sum(lane, i)] for i in range(4)] for lane in range(32)])
    c_words = pack_registers(encode_numbers(elements, kinds[3]), kinds[3])
    given = [("b32", one) for one in (a_words, b_words, c_words, words)]
    return given, ("b32", 2 if kinds[0] == "f16" else 4)


def gather_sparse_sums(registers: Bits, kind: str) -> Reals:
    elements, found = decode_sums(unpack_registers(registers, kind), kind), np.full((16, 8), np.nan)
    for lane in range(32):
        for i in range(4):
            found[locate_sparse_sum(lane, i)] = elements[lane, i]
    return found


def list_sparse_forms() -> list[tuple[str, str, tuple[str, ...]]]:
    found = []
    for variant in ("sp", "sp::ordered_metadata"):
        for shapes, *kinds in (
            ("m16n8k16 m16n8k32", "f16", "f16", "f16", "f16"),
            ("m16n8k16 m16n8k32", "f32", "f16", "f16", "f32"),
            ("m16n8k16 m16n8k32", "f32", "bf16", "bf16", "f32"),
            ("m16n8k8 m16n8k16", "f32", "tf32", "tf32", "f32"),
            ("m16n8k64", "f32", "e4m3", "e5m2", "f32"),
            ("m16n8k64", "f32", "e3m2", "e2m1", "f32"),
            ("m16n8k64", "f16", "e2m1", "e5m2", "f16"),
            ("m16n8k32 m16n8k64", "s32", "s8", "u8", "s32"),
            ("m16n8k32 m16n8k64", "s32", "u8", "s8", "s32"),
        ):
            for shape in shapes.split():
                small = kinds[1] in matrices.SMALL
                if small and variant == "sp":
                    continue
                head = "row.col.kind::f8f6f4" if small else "row.col"
                form = f"mma.{variant}.sync.aligned.{shape}.{head}.{'.'.join(kinds)}"
                found.append((form, shape, tuple(kinds)))
    return found


@pytest.mark.parametrize(
    ("form", "shape", "kinds"), list_sparse_forms(), ids=[one[0][4:] for one in list_sparse_forms()]
)
def test_every_shape_type_and_selector(form: str, shape: str, kinds: tuple[str, ...]) -> None:
    generator = np.random.default_rng(len(form))
    k, width = int(shape.partition("k")[2]), matrices.WIDTHS[kinds[1]]
    for selector in range(SELECTORS[shape, width]):
        stored, b = (
            draw_matrix(generator, kinds[1], 16, k // 2),
            draw_matrix(generator, kinds[2], k, 8),
        )
        c = draw_matrix(generator, "s8" if kinds[3] == "s32" else kinds[3], 16, 8)
        kept = choose_kept(generator, k, kinds[1] == "tf32", "ordered" in form)
        # What no lane gives would be refused if it were looked at.
        words = pack_metadata(kept, shape, width, selector, 0)
        expected = c + expand_sparse(stored, kept) @ b
        if kinds[0] == "f16":
            expected = expected.astype(np.float16)
        for order in ("forward", "backward"):
            got = run_instruction(form, *pack_operands(shape, kinds, stored, b, c, words),
                                  Settings(threads=1, order=order), selector)  # fmt: skip
            np.testing.assert_array_equal(gather_sparse_sums(got, kinds[0]), expected)


BYTES = ("s32", "s8", "s8", "s32")
FORM = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALVES = ("f32", "f16", "f16", "f32")


def test_what_is_left_out_is_not_multiplied() -> None:
    """An infinity that only zeros of a meet leaves no trace."""
    stored, b = np.ones((16, 8)), np.ones((16, 8))
    b[1::4], b[2::4] = np.inf, np.nan
    kept = np.tile([0, 3], (16, 4, 1))
    words = pack_metadata(kept, "m16n8k16", 16, 0, 0)
    got = run_instruction(
        FORM, *pack_operands("m16n8k16", HALVES, stored, b, np.zeros((16, 8)), words), selector=0
    )
    np.testing.assert_array_equal(gather_sparse_sums(got, "f32"), 8)


def test_integers_saturate_where_they_are_told_to() -> None:
    kinds = BYTES
    stored, b, c = np.full((16, 16), 100.0), np.full((32, 8), 100.0), np.full((16, 8), 2.0**31 - 1)
    words = pack_metadata(
        choose_kept(np.random.default_rng(1), 32, False, True), "m16n8k32", 8, 1, 0
    )
    for word, expected in ((".satfinite", 2.0**31 - 1), ("", 16e4 - 2.0**31 - 1)):
        form = f"mma.sp.sync.aligned.m16n8k32.row.col{word}.s32.s8.s8.s32"
        got = run_instruction(
            form, *pack_operands("m16n8k32", kinds, stored, b, c, words), selector=1
        )
        np.testing.assert_array_equal(gather_sparse_sums(got, "s32"), expected)


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
    given = pack_operands(
        shape, kinds, np.ones((16, k // 2)), np.ones((k, 8)), np.ones((16, 8)), words
    )
    with pytest.raises(Finding) as raised:
        run_instruction(form, *given, selector=1)
    assert said in str(raised.value) and "thread (9, 0, 0)" in str(raised.value)


@pytest.mark.parametrize(
    ("form", "kinds", "selector", "said"),
    [(FORM, HALVES, 4, "its sparsity selector is 4: use one below 4"),
     (FORM.replace("k16", "k32"), HALVES, 2, "its sparsity selector is 2: use one below 2"),
     ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", BYTES, 1, "below 1"),
     (FORM.replace("row.col.f32", "row.col.f16"), ("f16", *HALVES[1:]), 0, "both must be one type"),
     ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", BYTES, 0, "not in the table")],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    form: str, kinds: tuple[str, ...], selector: int, said: str
) -> None:
    shape = form.split(".")[4]
    k = int(shape.partition("k")[2])
    words = np.full((1, 32), 0x44444444, np.uint64)
    given = pack_operands(
        shape, kinds, np.ones((16, k // 2)), np.ones((k, 8)), np.ones((16, 8)), words
    )
    text, _ = write_instruction_ptx(form, *given, selector)
    with pytest.raises(Unsupported) as raised:
        load_kernel(text)
    assert said in str(raised.value) and form in str(raised.value)
