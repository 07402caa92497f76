"""The plain model of one thread, held against numpy, torch's formats, and the C library."""

from __future__ import annotations

import ctypes
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from papergpu.formats import FORMATS
from papergpu.forms import FORMS, HANDLERS, UnknownForm, decode_integer, find_form, register_handler
from papergpu.reals import real
from papergpu.reference import evaluate

BITS16, BITS32, BITS64 = (st.integers(0, 2**n - 1) for n in (16, 32, 64))
LIBM = ctypes.CDLL("libm.so.6")
EDGES = [0x0, 0x80000000, 0x1, 0x807FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000,
         0xFF800000, 0x7FC00000, 0x3FFFFFFF]  # fmt: skip
FLOAT = st.one_of(BITS32, st.sampled_from(EDGES))


def as_f32(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def is_same_pattern(shape: str, got: int, expected: int) -> bool:
    """Equal patterns, or both NaN."""
    kind = FORMATS[shape]
    return got == expected or kind.decode(got).kind == kind.decode(expected).kind == "nan"


def list_opcodes() -> set[str]:
    return {word for form in FORMS if form.operands != ("-",) for word in form.slots[0][1]}


def test_every_form_of_the_table_is_executed() -> None:
    assert list_opcodes() == set(HANDLERS)


def test_an_opcode_has_one_handler() -> None:
    before = dict(HANDLERS)
    with pytest.raises(ValueError, match="two handlers compute add"):
        register_handler("add")(max)
    assert before == HANDLERS


def test_what_is_in_no_row_is_refused() -> None:
    for form in (
        "add.rn.s32",
        "sub.rn.ftz.f32.bf16",
        "max.f32.f32",
        "add",
        "add.rn.rn.f32",
        "frob.b32",
    ):
        with pytest.raises(UnknownForm, match="is not in the table"):
            find_form(form)


# Floats.


@pytest.mark.parametrize(
    ("form", "operation"),
    [("add.f32", np.add), ("sub.rn.f32", np.subtract), ("mul.f32", np.multiply),
     ("div.rn.f32", np.divide)],
)  # fmt: skip
def test_arithmetic_is_ieee(form: str, operation: np.ufunc) -> None:
    @given(FLOAT, FLOAT)
    def check_operation(a: int, b: int) -> None:
        with np.errstate(all="ignore"):
            expected = int(operation(as_f32(a), as_f32(b)).view(np.uint32))
        assert is_same_pattern("f32", evaluate(form, a, b), expected)

    check_operation()


@pytest.mark.parametrize(
    ("mode", "number"), [("rn", 0), ("rm", 0x400), ("rp", 0x800), ("rz", 0xC00)]
)
def test_each_rounding_is_the_processors(mode: str, number: int) -> None:
    """The C library's fma, add and root under the four modes of the floating environment."""
    calls = {}
    for name, count in (("fmaf", 3), ("sqrtf", 1)):
        calls[name] = getattr(LIBM, name)
        calls[name].restype = ctypes.c_float
        calls[name].argtypes = [ctypes.c_float] * count

    @given(FLOAT, FLOAT, FLOAT)
    @example(0x3F800000, 0x3F800000, 0xBF800000)  # cancels: -0 when rounding down
    def check_rounding(a: int, b: int, c: int) -> None:
        x, y, z = (float(as_f32(one)) for one in (a, b, c))
        LIBM.fesetround(number)
        try:
            fused, rooted = calls["fmaf"](x, y, z), calls["sqrtf"](x)
        finally:
            LIBM.fesetround(0)
        bits = [struct.unpack("<I", struct.pack("<f", one))[0] for one in (fused, rooted)]
        assert is_same_pattern("f32", evaluate(f"fma.{mode}.f32", a, b, c), bits[0])
        assert is_same_pattern("f32", evaluate(f"sqrt.{mode}.f32", a), bits[1])

    check_rounding()


@pytest.mark.parametrize("shape", ["f16", "bf16"])
def test_half_precision_is_torchs(shape: str) -> None:
    """torch adds and multiplies in fp32 and rounds once more, which two operands cannot show."""
    import torch

    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[shape]

    @given(st.lists(BITS16, min_size=16, max_size=16), st.lists(BITS16, min_size=16, max_size=16))
    def check_halves(left: list[int], right: list[int]) -> None:
        a, b = (
            torch.tensor(x, dtype=torch.int32).to(torch.int16).view(kind) for x in (left, right)
        )
        for form, value in (("add", a + b), ("sub", a - b), ("mul", a * b)):
            expected = value.view(torch.int16).tolist()
            for x, y, bits in zip(left, right, expected, strict=True):
                assert is_same_pattern(shape, evaluate(f"{form}.rn.{shape}", x, y), bits & 0xFFFF)

    check_halves()


@given(FLOAT, FLOAT)
@example(0x1, 0x1)
@example(0x00800000, 0x80800001)  # the difference is subnormal
def test_ftz_flushes_what_comes_and_what_goes(a: int, b: int) -> None:
    tiny = FORMATS["f32"]
    inner = evaluate("add.f32", tiny.flush_subnormal(a), tiny.flush_subnormal(b))
    assert evaluate("add.ftz.f32", a, b) == tiny.flush_subnormal(inner)
    assert not tiny.is_subnormal(evaluate("mul.rn.ftz.f32", a, b))


@given(FLOAT, FLOAT)
def test_sat_is_between_nought_and_one(a: int, b: int) -> None:
    value = float(as_f32(evaluate("add.sat.f32", a, b)))
    plain = float(as_f32(evaluate("add.f32", a, b)))
    assert value == (0.0 if math.isnan(plain) else min(max(plain, 0.0), 1.0))


@given(FLOAT, FLOAT)
def test_extremes_and_nan(a: int, b: int) -> None:
    x, y = float(as_f32(a)), float(as_f32(b))
    top, nan = evaluate("max.f32", a, b), evaluate("max.NaN.f32", a, b)
    if math.isnan(x) or math.isnan(y):
        assert is_same_pattern("f32", nan, 0x7FFFFFFF)
        assert is_same_pattern("f32", top, 0x7FFFFFFF if math.isnan(x) and math.isnan(y) else
                               b if math.isnan(x) else a)  # fmt: skip
    else:
        assert float(as_f32(top)) == max(x, y) and float(as_f32(evaluate("min.f32", a, b))) == min(
            x, y
        )


def test_minus_zero_is_the_smaller_one() -> None:
    assert evaluate("min.f32", 0x80000000, 0) == evaluate("min.f32", 0, 0x80000000) == 0x80000000
    assert evaluate("max.f32", 0x80000000, 0) == evaluate("max.f32", 0, 0x80000000) == 0


@given(FLOAT, FLOAT)
def test_comparisons_and_their_unordered_twins(a: int, b: int) -> None:
    x, y = as_f32(a), as_f32(b)
    either = bool(np.isnan(x) or np.isnan(y))
    for name, result in {"eq": x == y, "ne": not either and x != y, "lt": x < y, "le": x <= y,
                         "gt": x > y, "ge": x >= y}.items():  # fmt: skip
        assert evaluate(f"setp.{name}.f32", a, b) == int(bool(result))
        assert evaluate(f"setp.{name}u.f32", a, b) == int(bool(result) or either)
    assert evaluate("setp.num.f32", a, b) == 1 - evaluate("setp.nan.f32", a, b) == int(not either)


# Conversions: the small formats wholly, the large ones by examples.


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("f16", "float16"), ("bf16", "bfloat16"), ("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")],
)
def test_every_small_pattern_is_the_number_that_torch_reads(shape: str, kind: str) -> None:
    import torch

    size = FORMATS[shape].width
    raw = torch.arange(2**size, dtype=torch.int32)
    raw = raw.to(torch.int16 if size == 16 else torch.uint8)
    values = raw.view(getattr(torch, kind)).double().tolist()
    for bits, value in enumerate(values):
        found = FORMATS[shape].decode(bits)
        if math.isnan(value):
            assert found.kind == "nan"
        elif math.isinf(value):
            assert (found.kind, found.negative) == ("infinite", value < 0)
        else:
            assert float(found.value) == value and found.negative == (math.copysign(1, value) < 0)
            assert FORMATS[shape].encode(found) == bits


@given(FLOAT)
def test_a_float_becomes_half(a: int) -> None:
    import torch

    with np.errstate(all="ignore"):
        expected = int(np.float16(as_f32(a)).view(np.uint16))
    assert is_same_pattern("f16", evaluate("cvt.rn.f16.f32", a), expected)
    brain = torch.tensor([a if a < 2**31 else a - 2**32], dtype=torch.int32).view(torch.float32)
    expected = brain.bfloat16().view(torch.int16).item() & 0xFFFF
    assert is_same_pattern("bf16", evaluate("cvt.rn.bf16.f32", a), expected)


@given(FLOAT, FLOAT)
def test_eight_bits_saturate_and_the_first_stands_above(a: int, b: int) -> None:
    both = evaluate("cvt.rn.satfinite.e4m3x2.f32", a, b)
    for bits, given_ in ((both >> 8, a), (both & 255, b)):
        value, found = float(as_f32(given_)), FORMATS["e4m3"].decode(bits)
        if math.isnan(value):
            assert found.kind == "nan"
        else:
            assert abs(found.value) <= 448
            if abs(value) >= 448:
                assert abs(found.value) == 448


@given(BITS64)
def test_doubles_and_integers(a: int) -> None:
    value = struct.unpack("<d", struct.pack("<Q", a))[0]
    signed = decode_integer(a, "s64")
    assert evaluate("cvt.rn.f64.s64", a) == struct.unpack("<Q", struct.pack("<d", float(signed)))[0]
    if not math.isnan(value):
        cut = max(min(value, 2.0**40), -(2.0**40))
        expected = max(min(math.trunc(cut), 2**31 - 1), -(2**31))
        assert decode_integer(evaluate("cvt.rzi.s32.f64", a), "s32") == expected
        near = max(min(round(cut), 2**32 - 1), 0)
        assert evaluate("cvt.rni.u32.f64", a) == near


# Integers.


@given(BITS32, BITS32, BITS32)
def test_products_and_quotients(a: int, b: int, c: int) -> None:
    x, y = decode_integer(a, "s32"), decode_integer(b, "s32")
    assert evaluate("mul.hi.u32", a, b) == a * b >> 32
    assert evaluate("mul.wide.s32", a, b) == x * y % 2**64
    assert evaluate("mad.lo.s32", a, b, c) == (x * y + c) % 2**32
    assert decode_integer(evaluate("add.sat.s32", a, b), "s32") == max(
        min(x + y, 2**31 - 1), -(2**31)
    )
    if b:
        quotient = decode_integer(evaluate("div.s32", a, b), "s32")
        assert quotient == decode_integer(int(np.fix(x / y)) if abs(x) < 2**52 else 0, "s32")
        assert quotient * y + decode_integer(evaluate("rem.s32", a, b), "s32") == x or x == -(2**31)


@given(BITS32, st.integers(0, 300), st.integers(0, 300))
def test_fields_of_bits(a: int, start: int, length: int) -> None:
    first, count = start & 255, length & 255
    assert evaluate("bfe.u32", a, start, length) == (a >> first) % 2**count
    put = evaluate("bfi.b32", a, 0xFFFFFFFF, start, length)
    for i in range(32):
        expected = a >> (i - first) & 1 if first <= i < first + count else 1
        assert put >> i & 1 == expected


@given(BITS32, BITS32, BITS32, st.integers(0, 255))
def test_logic_of_three(a: int, b: int, c: int, table: int) -> None:
    expected = 0
    for one, x in ((0, ~a), (1, a)):
        for two, y in ((0, ~b), (1, b)):
            for three, z in ((0, ~c), (1, c)):
                if table >> (one << 2 | two << 1 | three) & 1:
                    expected |= x & y & z
    assert evaluate("lop3.b32", a, b, c, table) == expected % 2**32


@given(BITS32, BITS32, st.integers(0, 100))
def test_shifts(a: int, b: int, by: int) -> None:
    assert evaluate("shl.b32", a, by) == (a << by) % 2**32
    assert decode_integer(evaluate("shr.s32", a, by), "s32") == decode_integer(a, "s32") >> by
    assert evaluate("shr.u32", a, by) == a >> by
    turned = by % 32
    assert evaluate("shf.l.wrap.b32", a, a, by) == (a << turned | a >> (32 - turned)) % 2**32
    assert evaluate("shf.r.clamp.b32", a, b, by) == (b << 32 | a) >> min(by, 32) & 0xFFFFFFFF


@given(BITS32, BITS32, st.integers(0, 0xFFFF))
def test_bytes_are_permuted(a: int, b: int, choice: int) -> None:
    given_ = (b << 32 | a).to_bytes(8, "little")
    result = evaluate("prmt.b32", a, b, choice).to_bytes(4, "little")
    for i, byte in enumerate(result):
        nibble = choice >> 4 * i & 15
        source = given_[nibble & 7]
        assert byte == ((255 if source & 128 else 0) if nibble & 8 else source)


def test_one_is_one_in_every_format() -> None:
    ones = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "tf32": 0x3F800000, "e4m3": 0x38,
            "e5m2": 0x3C, "e2m1": 0x2, "e2m3": 0x8, "e3m2": 0xC}  # fmt: skip
    for name, bits in ones.items():
        assert FORMATS[name].encode(real(1)) == bits
    assert float(FORMATS["e2m1"].decode(7).value) == 6.0
    assert float(FORMATS["e2m3"].decode(31).value) == 7.5
    assert float(FORMATS["e3m2"].decode(31).value) == 28.0
