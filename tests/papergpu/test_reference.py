"""The plain model of one thread, held against numpy, torch's formats, MPFR and the C library."""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from papergpu.formats import FORMATS
from papergpu.forms import FORMS, HANDLERS, UnknownForm, decode_integer, find_form, register_handler
from papergpu.reals import real
from papergpu.reference import evaluate
from thread_forms import draw_patterns, evaluate_columns

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


# Every conversion of 8 and 16 bits, and rounding, as numpy, torch and MPFR do them.

ALL = np.arange(1 << 16, dtype=np.uint64)
BYTES = np.arange(1 << 8, dtype=np.uint64)
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
UNSIGNED = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
ROUNDS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
SIZES = (8, 16, 32, 64)


@pytest.fixture(autouse=True)
def silent_numpy() -> Iterator[None]:
    """numpy warns of NaN and infinities, which are among what is tried."""
    with np.errstate(all="ignore"):
        yield


def widen_patterns(kind: str, bits: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """What patterns of f16 or bf16 mean."""
    small = np.asarray(bits).astype(np.uint16)
    if kind == "f16":
        return small.view(np.float16).astype(np.float64)
    return (small.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def round_numbers(kind: str, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """numpy's rounding of numbers to a format, NaN as the engine has it."""
    made = numbers.astype(FLOATS[kind]).view(UNSIGNED[kind]).astype(np.uint64)
    return np.where(np.isnan(numbers), np.uint64(FORMATS[kind].nan or 0), made)


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_every_half_becomes_the_wider_float(source: str) -> None:
    found = evaluate_columns([f"cvt.{to}.{source}" for to in ("f32", "f64")], [[ALL], [ALL]])
    for to, got in zip(("f32", "f64"), found, strict=True):
        assert (got == round_numbers(to, widen_patterns(source, ALL))).all(), to


@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ROUNDS)
def test_every_half_becomes_the_next_integer(source: str, mode: str) -> None:
    kinds = [f"{sign}{size}" for sign in "us" for size in SIZES if source == "f16" or size > 8]
    found = evaluate_columns([f"cvt.{mode}.{to}.{source}" for to in kinds], [[ALL]] * len(kinds))
    number = ROUNDS[mode](widen_patterns(source, ALL))
    for to, got in zip(kinds, found, strict=True):
        size = int(to[1:])
        low, high = (
            (-(1 << size - 1), (1 << size - 1) - 1) if to[0] == "s" else (0, (1 << size) - 1)
        )
        none = 1 << 63 if size == 64 else 0
        stored = (1 << max(16, size)) - 1
        want = [
            none if n != n else (low if n < low else high if n > high else int(n)) & stored
            for n in number.tolist()
        ]
        assert got.tolist() == want, to


@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ROUNDS)
def test_every_half_becomes_a_whole_one(source: str, mode: str) -> None:
    (got,) = evaluate_columns([f"cvt.{mode}.{source}.{source}"], [[ALL]])
    number = ROUNDS[mode](widen_patterns(source, ALL))
    made = widen_patterns(source, got)
    assert np.array_equal(made, number, equal_nan=True)
    assert (np.signbit(made) == np.signbit(number))[number == number].all()


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16"])
def test_every_short_integer_becomes_a_float(kind: str) -> None:
    targets = [to for to in ("f16", "f32", "f64") for _ in range(1)]
    found = evaluate_columns([f"cvt.rn.{to}.{kind}" for to in targets], [[ALL]] * len(targets))
    numbers = ALL.astype({"u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16}[kind])
    for to, got in zip(targets, found, strict=True):
        assert (got == round_numbers(to, numbers.astype(np.float64))).all(), to


def list_neighbours(kind: str, source: str) -> npt.NDArray[np.uint64]:
    """Every number of a small format, those halfway to the next, and their neighbours."""
    exact = widen_patterns(kind, np.arange(0x7C00 if kind == "f16" else 0x7F80))
    halfway = (exact[1:] + exact[:-1]) / 2
    number = np.concatenate([exact, halfway, [exact[-1] * (1 + 2.0**-12), exact[-1] * 1.5, 0.0]])
    one = number.astype(FLOATS[source])
    near = [one, np.nextafter(one, 0), np.nextafter(one, FLOATS[source](np.inf))]
    every = np.concatenate([*near, *(-part for part in near)])
    return np.concatenate([every.view(UNSIGNED[source]).astype(np.uint64)])


@pytest.mark.parametrize("source", ["f32", "f64"])
def test_what_lies_about_every_half_is_rounded_to_it(source: str) -> None:
    given = list_neighbours("f16", source)
    (got,) = evaluate_columns([f"cvt.rn.f16.{source}"], [[given]])
    number = given.astype(UNSIGNED[source]).view(FLOATS[source])
    assert (got == number.astype(np.float16).view(np.uint16)).all()


def test_what_lies_about_every_brain_float_is_rounded_to_it() -> None:
    import torch

    given = list_neighbours("bf16", "f32")
    found = evaluate_columns(
        ["cvt.rn.bf16.f32", "cvt.rn.bf16x2.f32"], [[given], [given, given[::-1]]]
    )
    number = torch.from_numpy(given.astype(np.uint32).view(np.float32).copy())
    want = number.to(torch.bfloat16).view(torch.int16).numpy().astype(np.uint16).astype(np.uint64)
    assert (found[0] == want).all()
    assert (found[1] == want << np.uint64(16) | want[::-1]).all()


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_other_roundings_take_the_number_beside(kind: str, mode: str) -> None:
    given = list_neighbours(kind, "f32")
    (got,) = evaluate_columns([f"cvt.{mode}.{kind}.f32"], [[given]])
    number = given.astype(np.uint32).view(np.float32).astype(np.float64)
    made = widen_patterns(kind, got)
    # It is on the side that the mode says, and the next one on the other side is beyond.
    below = made <= number if mode != "rp" else made >= number
    below = np.where((number < 0) & (mode == "rz"), made >= number, below)
    assert below.all()
    away = np.where(mode == "rp", got.astype(np.int64) - 1, got.astype(np.int64) + 1)
    negative = (got >> np.uint64(15)).astype(bool)
    away = np.where(mode != "rz", np.where(negative, 2 * got.astype(np.int64) - away, away), away)
    beside = widen_patterns(kind, (away & 0xFFFF).astype(np.uint64))
    inexact = (
        (made != number) & (number != 0) & np.isfinite(beside) & ((got & np.uint64(0x7FFF)) != 0)
    )
    between = (np.minimum(made, beside) < number) & (number < np.maximum(made, beside))
    assert between[inexact].all()


EIGHT = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}  # as torch names them


@pytest.mark.parametrize("kind", EIGHT)
def test_every_byte_is_torchs(kind: str) -> None:
    import torch

    (got,) = evaluate_columns([f"cvt.rn.f16x2.{kind}x2"], [[BYTES | BYTES[::-1] << np.uint64(8)]])
    number = torch.arange(256, dtype=torch.uint8).view(getattr(torch, EIGHT[kind])).float().numpy()
    want = round_numbers("f16", number.astype(np.float64))
    assert (got == (want | want[::-1] << np.uint64(16))).all()


@pytest.mark.parametrize("kind", EIGHT)
def test_every_half_becomes_torchs_byte(kind: str) -> None:
    """torch does not saturate: what is beyond the largest is made that before."""
    import torch

    wide = (widen_patterns("f16", ALL).astype(np.float32).view(np.uint32)).astype(np.uint64)
    zeros = np.zeros_like(ALL)
    found = evaluate_columns([f"cvt.rn.satfinite.{kind}x2.f16x2", f"cvt.rn.satfinite.{kind}x2.f32"],
                             [[ALL | ALL[::-1] << np.uint64(16)], [zeros, wide]])  # fmt: skip
    top = {"e4m3": 448.0, "e5m2": 57344.0}[kind]
    number = torch.from_numpy(widen_patterns("f16", ALL)).float().clamp(-top, top)
    want = number.to(getattr(torch, EIGHT[kind])).view(torch.uint8).numpy().astype(np.uint64)
    want = np.where(np.isnan(widen_patterns("f16", ALL)), np.uint64(0x7F), want)
    assert (found[0] == (want | want[::-1] << np.uint64(8))).all()
    assert (found[1] == want).all()


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_every_small_float_is_the_oracles(kind: str) -> None:
    size = 4 if kind == "e2m1" else 8
    mask = 63 if kind in ("e2m3", "e3m2") else (1 << size) - 1
    given = (BYTES & np.uint64(mask)) | (BYTES[::-1] & np.uint64(mask)) << np.uint64(size)
    forms = [f"cvt.rn{relu}.f16x2.{kind}x2" for relu in ("", ".relu")]
    for form, got in zip(forms, evaluate_columns(forms, [[given], [given]]), strict=True):
        assert got.tolist() == [evaluate(form, int(one)) for one in given]
        # And back: what a small float means is rounded to it.
        for at in (0, 16):
            one = widen_patterns("f16", got >> np.uint64(at) & np.uint64(0xFFFF)).astype(np.float32)
            bits = one.view(np.uint32).astype(np.uint64)
            back = f"cvt.rn.satfinite.{kind}x2.f32"
            (small,) = evaluate_columns([back], [[np.zeros_like(bits), bits]])
            (again,) = evaluate_columns([f"cvt.rn.f16x2.{kind}x2"], [[small]])
            same = widen_patterns("f16", again & np.uint64(0xFFFF)).astype(np.float32)
            keeps = np.isfinite(one)
            assert (same == one)[keeps].all()


# The bits of the random word that each of four floats takes, the most significant first, as they
# were read out of a GPU of sm_100 by words of one bit each: of bytes, and of e2m1.
TAKEN = {
    "e4m3": [range(16, 32), range(31, 15, -1), range(16), range(15, -1, -1)],
    "e2m1": [[*range(8, 16), *range(24, 32)], [*range(31, 23, -1), *range(15, 7, -1)],
             [*range(8), *range(16, 24)], [*range(23, 15, -1), *range(7, -1, -1)]],
}  # fmt: skip
LEAST = {"f16": (-14, 10), "bf16": (-126, 7), "e4m3": (-6, 3), "e5m2": (-14, 2), "e2m3": (0, 3),
         "e3m2": (-2, 2), "e2m1": (0, 1)}  # fmt: skip


@pytest.mark.parametrize("kind", LEAST)
def test_random_bits_carry_as_a_gpu_adds_them(kind: str) -> None:
    random = np.random.default_rng(7)
    least, mantissa = LEAST[kind]
    pair, count = kind in ("f16", "bf16"), 1024
    words = random.integers(0, 1 << 32, count, np.uint64)
    words[:64] = np.uint64(1) << np.arange(64, dtype=np.uint64) % np.uint64(32)
    given = [random.choice([-1, 1], count) * random.random(count)
             * np.exp2(random.integers(least - 3, least + 4, count))
             for _ in range(2 if pair else 4)]  # fmt: skip
    floats = [one.astype(np.float32) for one in given]
    form = f"cvt.rs.satfinite.{kind}{'x2' if pair else 'x4'}.f32"
    (got,) = evaluate_columns(
        [form], [[*(one.view(np.uint32).astype(np.uint64) for one in floats), words]]
    )
    size = 16 if pair else 4 if kind == "e2m1" else 8
    for at, one in enumerate(floats):
        if pair:  # the lower 13 of a half, or all 16
            wide = 13 if kind == "f16" else 16
            share = words >> np.uint64(16 * (1 - at)) & np.uint64((1 << wide) - 1)
        else:
            wide, share = 16, np.zeros_like(words)
            for bit in TAKEN["e2m1" if kind == "e2m1" else "e4m3"][at]:
                share = share << np.uint64(1) | words >> np.uint64(bit) & np.uint64(1)
        number = np.abs(one.astype(np.float64))
        power = np.maximum(np.frexp(number)[1] - 1, least)
        step = np.exp2(power - mantissa)
        want = np.floor(number / step + share / 2.0**wide) * step
        part = got >> np.uint64(size * (len(floats) - 1 - at)) & np.uint64((1 << size) - 1)
        shape = FORMATS[kind]
        made = [shape.decode(int(bits)) for bits in part]
        top = float(shape.decode(shape.max_finite).magnitude)
        assert [float(value.magnitude) for value in made] == np.minimum(want, top).tolist()
        assert [value.negative for value in made] == (one < 0).tolist()


def test_every_scale_is_torchs() -> None:
    import torch

    (got,) = evaluate_columns(["cvt.rn.bf16x2.ue8m0x2"], [[BYTES | BYTES[::-1] << np.uint64(8)]])
    number = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu).float()
    want = number.to(torch.bfloat16).view(torch.int16).numpy().astype(np.uint16).astype(np.uint64)
    want = np.where(np.isnan(number.numpy()), np.uint64(0x7FFF), want)
    assert (got == (want | want[::-1] << np.uint64(16))).all()


@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("words", ["", ".satfinite"])
def test_every_brain_float_becomes_the_scale_beside(mode: str, words: str) -> None:
    form = f"cvt.{mode}{words}.ue8m0x2.bf16x2"
    (got,) = evaluate_columns([form], [[ALL]])
    size = np.abs(widen_patterns("bf16", ALL))
    exact = np.log2(size)
    exponent = np.clip(np.floor(exact) if mode == "rz" else np.ceil(exact), -127, 128)
    want = np.where(size == 0, 0, exponent + 127)
    want = np.where(np.isinf(size), 255, want)
    want = np.minimum(want, 254) if words else want
    want = np.where(np.isnan(size), 255, want)
    assert (got & np.uint64(255) == want.astype(np.uint64)).all()


MODES = {"rn": 0, "rz": 1, "rp": 2, "rm": 3}  # MPFR's numbers
ARITHMETIC = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "sqrt": 1, "rcp": 1}


def evaluate_mpfr(mpfr: Any, opcode: str, a: Any, b: Any, c: Any) -> Any:
    if opcode == "fma":
        return mpfr.fma(a, b, c)
    if opcode in ("sqrt", "rcp"):
        return mpfr.sqrt(a) if opcode == "sqrt" else 1 / a
    return {"add": operator.add, "sub": operator.sub, "mul": operator.mul,
            "div": operator.truediv}[opcode](a, b)  # fmt: skip


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("opcode", ARITHMETIC)
def test_arithmetic_is_rounded_as_mpfr_does(opcode: str, mode: str, kind: str) -> None:
    gmpy2 = pytest.importorskip("gmpy2")
    shape = FORMATS[kind]
    form = f"{opcode}.{mode}.{kind}"
    random = np.random.default_rng(5)
    given = [draw_patterns(kind, 2048, random) for _ in range(ARITHMETIC[opcode])]
    (got,) = evaluate_columns([form], [given])
    least, top = shape.min_exponent - shape.mantissa + 1, shape.bias + 1
    context = gmpy2.context(precision=shape.mantissa + 1, emin=least, emax=top, subnormalize=True,
                            round=MODES[mode])  # fmt: skip
    floats = [one.astype(UNSIGNED[kind]).view(FLOATS[kind]).tolist() for one in given]
    with gmpy2.context(context):
        for bits, *numbers in zip(got.tolist(), *floats, strict=True):
            a, b, c = (*map(gmpy2.mpfr, numbers), None, None)[:3]
            want = evaluate_mpfr(gmpy2, opcode, a, b, c)
            made = UNSIGNED[kind](bits).view(FLOATS[kind]).item()
            if gmpy2.is_nan(want):
                assert made != made and bits == shape.nan
            else:
                assert made == want and np.signbit(made) == gmpy2.is_signed(want), (form, numbers)
