"""Every conversion of 8 and 16 bits, and rounding, as numpy, torch and MPFR do them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from papergpu.formats import FORMATS
from papergpu.reference import evaluate
from thread_forms import draw_patterns, evaluate_columns

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
