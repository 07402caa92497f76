"""Floats: an operation on exact numbers, rounded once, and what is done to signs alone.

Of approximations it has the exact values, rounded once, and how far the PTX ISA lets them be away.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from papergpu.formats import FORMATS, NEAREST, Format, saturated
from papergpu.forms import Matched, find, handles, width
from papergpu.reals import (
    NAN,
    Real,
    infinity,
    logarithm,
    opposite,
    over,
    plus,
    power_of_two,
    real,
    root,
    sine,
    tangent,
    times,
)


def computed(found: Matched, operation: Callable[..., Real], *operands: int) -> int:
    """An operation on floats, each of its own format: flush, compute, round, flush, saturate."""
    shape, ftz = FORMATS[found.types[0]], "ftz" in found.slots
    given = [
        decoded(FORMATS[kind], bits, ftz)
        for bits, kind in zip(operands, found.types[1:], strict=True)
    ]
    bits = rounded(shape, operation(*given), found.slots.get("r", NEAREST))
    if ftz:
        bits = shape.zeroed(bits)
    if "relu" in found.slots and bits >> (shape.width - 1) and shape.decode(bits).kind != "nan":
        return 0
    return saturated(shape, bits) if "sat" in found.slots else bits


def decoded(shape: Format, bits: int, ftz: bool) -> Real:
    """What a pattern means; with `ftz` a subnormal one is zero."""
    return shape.decode(shape.zeroed(bits) if ftz else bits)


def rounded(shape: Format, value: Real, mode: str) -> int:
    """`value` in a format; a sum that cancels is -0 when rounding down and +0 otherwise."""
    if value.kind == "cancelled":
        value = Real(mode == "rm")
    return shape.encode(value, mode)


def difference(x: Real, y: Real) -> Real:
    """x - y."""
    return plus(x, opposite(y))


def fused(x: Real, y: Real, z: Real) -> Real:
    """x * y + z."""
    return plus(times(x, y), z)


@handles("fma")
def _fma(found: Matched, a: int, b: int, c: int) -> int:
    return computed(found, fused, a, b, c)


@handles("testp")
def _testp(found: Matched, a: int) -> int:
    shape = FORMATS[found.slots["t"]]
    kind, tiny = shape.decode(a).kind, shape.subnormal(a)
    return int({"finite": kind == "finite", "infinite": kind == "infinite",
                "number": kind != "nan", "notanumber": kind == "nan",
                "normal": kind == "finite" and not tiny,
                "subnormal": tiny}[found.slots["o"]])  # fmt: skip


def signed(found: Matched, a: int, change: Callable[[int], int]) -> int:
    """A float with another sign, its NaN untouched but for `.ftz`."""
    kind = FORMATS[found.types[0]]
    a = kind.zeroed(a) if "ftz" in found.slots else a
    top = kind.width - 1
    return a & ((1 << top) - 1) | change(a >> top & 1) << top


@handles("copysign")
def _copysign(found: Matched, a: int, b: int) -> int:
    top = width(found.types[0]) - 1
    return b & ((1 << top) - 1) | (a >> top & 1) << top


# ---- approximations


def inverse(x: Real) -> Real:
    """One by x."""
    return over(real(1), x)


def _by(function: Callable[[Fraction], Fraction], at_infinity: Real, x: Real) -> Real:
    """A function of finite numbers, with what it is at infinity; of a zero it is that zero."""
    if x.kind == "nan":
        return NAN
    if x.kind == "infinite":
        return at_infinity
    return x if not x.magnitude else real(function(x.value))


def _ex2(x: Real) -> Real:
    if x.kind == "infinite":
        return real(0) if x.negative else x
    if x.kind == "finite" and abs(x.value) > 2000:
        return real(Fraction(2) ** (-2000 if x.negative else 2000))
    return real(1) if x.kind == "finite" and not x.magnitude else _by(power_of_two, NAN, x)


def _lg2(x: Real) -> Real:
    if x.kind == "finite" and not x.magnitude:
        return infinity(True)
    return NAN if x.negative else _by(logarithm, x, x)


def _cos(x: Real) -> Real:
    if x.kind == "finite" and not x.magnitude:
        return real(1)
    return _by(lambda value: sine(value, 1), NAN, x)


EXACT: dict[str, Callable[[Real], Real]] = {
    "rcp": inverse, "sqrt": root, "rsqrt": lambda x: inverse(root(x)), "ex2": _ex2, "lg2": _lg2,
    "sin": lambda x: _by(sine, NAN, x), "cos": _cos,
    "tanh": lambda x: _by(tangent, real(-1 if x.negative else 1), x),
}  # fmt: skip
# The upper half of an f64, as rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 know it.
UPPER = Format("upper", 11, 20, nan=0x7FF80000, saved=32)


def exactly(written: str, *operands: int) -> Real:
    """What an approximate instruction is an approximation of."""
    found = find(written)
    shape, ftz = _format(found)
    given = [decoded(shape, bits, ftz) for bits in operands]
    opcode = written.partition(".")[0]
    if opcode != "div":
        return EXACT[opcode](*given)
    a, b = given
    beyond = b.kind == "finite" and b.magnitude > Fraction(2) ** 126
    if found.slots["k"] == "approx" and beyond:
        return times(a, Real(b.negative))  # by a reciprocal that is flushed
    return over(a, b)


def _format(found: Matched) -> tuple[Format, bool]:
    kind, ftz = found.types[0], "ftz" in found.slots
    return (UPPER if ftz and kind == "f64" else FORMATS[kind]), ftz


@handles("rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
def approximated(found: Matched, *operands: int) -> int:
    """What an approximate instruction gives here: its exact value, rounded to the nearest."""
    shape, ftz = _format(found)
    form = ".".join(found.slots.values())
    bits = shape.encode(exactly(form, *operands))
    return shape.zeroed(bits) if ftz else bits


@handles("rcp")
def _rcp(found: Matched, a: int) -> int:
    return approximated(found, a) if "k" in found.slots else computed(found, inverse, a)


@handles("sqrt")
def _sqrt(found: Matched, a: int) -> int:
    return approximated(found, a) if "k" in found.slots else computed(found, root, a)


def allowed(written: str, *operands: int) -> Fraction:
    """How far an approximate instruction may be from `exactly` what it approximates."""
    found = find(written)
    opcode, kind = written.partition(".")[0], found.types[0]
    x, y = FORMATS[kind].decode(operands[0]), exactly(written, *operands)
    if kind != "f32":
        relative, absolute = {
            ("ex2", "f16"): (2**-9.9, 0.0), ("ex2", "bf16"): (2**-7, 0.0),
            ("tanh", "f16"): (0.0, 2**-10.987), ("tanh", "bf16"): (0.0, 2**-8),
        }.get((opcode, kind), (0.0, 0.0))  # fmt: skip
    else:
        ulp = 2.0 ** (max(_power(y), -126) - 23)
        wave = 2**-20.5 if abs(x.value) <= Fraction(2 * 3.141592653589793) else 2**-14.7
        near = Fraction(1, 2) < x.value < 2
        relative, absolute = {
            "rcp": (0.0, ulp), "div": (0.0, 2 * ulp), "ex2": (0.0, 2 * ulp), "sqrt": (2**-23, 0.0),
            "rsqrt": (2**-22.9, 0.0), "sin": (0.0, wave), "cos": (0.0, wave),
            "lg2": (0.0, 2**-22) if near else (2**-22, 0.0), "tanh": (2**-11, 0.0),
        }[opcode]  # fmt: skip
    return Fraction(relative) * y.magnitude + Fraction(absolute)


def _power(y: Real) -> int:
    """The exponent of the power of two below a number."""
    if not y.magnitude:
        return -1000
    power = y.magnitude.numerator.bit_length() - y.magnitude.denominator.bit_length()
    return power - (y.magnitude < Fraction(2) ** power)
