"""Floats: an operation on exact numbers, rounded once, and what is done to signs alone.

Of approximations it has the exact values, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from papergpu.formats import FORMATS, NEAREST, Format, saturate_bits
from papergpu.forms import Matched, find_form, register_handler, type_bits
from papergpu.reals import (
    NAN,
    Real,
    add_reals,
    binary_logarithm,
    divide_reals,
    hyperbolic_tangent,
    make_infinity,
    multiply_reals,
    negate_real,
    power_of_two,
    real,
    sine,
    square_root,
)


def evaluate_float(found: Matched, operation: Callable[..., Real], *operands: int) -> int:
    """An operation on floats, each of its own format: flush, compute, round, flush, saturate."""
    shape, ftz = FORMATS[found.types[0]], "ftz" in found.slots
    given = [
        decode_float(FORMATS[kind], bits, ftz)
        for bits, kind in zip(operands, found.types[1:], strict=True)
    ]
    value, mode = operation(*given), found.slots.get("r", NEAREST)
    if value.kind == "cancelled":  # a sum, which is -0 when rounding down and +0 otherwise
        value = Real(mode == "rm")
    bits = shape.encode(value, mode)
    if ftz:
        bits = shape.flush_subnormal(bits)
    if "relu" in found.slots and bits >> (shape.width - 1) and shape.decode(bits).kind != "nan":
        return 0
    return saturate_bits(shape, bits) if "sat" in found.slots else bits


def decode_float(shape: Format, bits: int, ftz: bool) -> Real:
    """What a pattern means; with `ftz` a subnormal one is zero."""
    return shape.decode(shape.flush_subnormal(bits) if ftz else bits)


def subtract_reals(x: Real, y: Real) -> Real:
    """x - y."""
    return add_reals(x, negate_real(y))


def multiply_add_reals(x: Real, y: Real, z: Real) -> Real:
    """x * y + z."""
    return add_reals(multiply_reals(x, y), z)


@register_handler("fma")
def _evaluate_fma(found: Matched, a: int, b: int, c: int) -> int:
    return evaluate_float(found, multiply_add_reals, a, b, c)


@register_handler("testp")
def _evaluate_testp(found: Matched, a: int) -> int:
    shape = FORMATS[found.slots["t"]]
    kind, tiny = shape.decode(a).kind, shape.is_subnormal(a)
    return int({"finite": kind == "finite", "infinite": kind == "infinite",
                "number": kind != "nan", "notanumber": kind == "nan",
                "normal": kind == "finite" and not tiny,
                "subnormal": tiny}[found.slots["o"]])  # fmt: skip


def change_sign(found: Matched, a: int, change: Callable[[int], int]) -> int:
    """A float with another sign, its NaN untouched but for `.ftz`."""
    kind = FORMATS[found.types[0]]
    a = kind.flush_subnormal(a) if "ftz" in found.slots else a
    top = kind.width - 1
    return a & ((1 << top) - 1) | change(a >> top & 1) << top


@register_handler("copysign")
def _evaluate_copysign(found: Matched, a: int, b: int) -> int:
    top = type_bits(found.types[0]) - 1
    return b & ((1 << top) - 1) | (a >> top & 1) << top


# ---- approximations


def invert_real(x: Real) -> Real:
    """One by x."""
    return divide_reals(real(1), x)


def _apply_finite(function: Callable[[Fraction], Fraction], at_infinity: Real, x: Real) -> Real:
    """A function of finite numbers, with what it is at infinity; of a zero it is that zero."""
    if x.kind == "nan":
        return NAN
    if x.kind == "infinite":
        return at_infinity
    return x if not x.magnitude else real(function(x.value))


def _exact_ex2(x: Real) -> Real:
    if x.kind == "infinite":
        return real(0) if x.negative else x
    if x.kind == "finite" and abs(x.value) > 2000:
        return real(Fraction(2) ** (-2000 if x.negative else 2000))
    return (
        real(1) if x.kind == "finite" and not x.magnitude else _apply_finite(power_of_two, NAN, x)
    )


def _exact_lg2(x: Real) -> Real:
    if x.kind == "finite" and not x.magnitude:
        return make_infinity(True)
    return NAN if x.negative else _apply_finite(binary_logarithm, x, x)


def _exact_cos(x: Real) -> Real:
    if x.kind == "finite" and not x.magnitude:
        return real(1)
    return _apply_finite(lambda value: sine(value, 1), NAN, x)


EXACT: dict[str, Callable[[Real], Real]] = {
    "rcp": invert_real, "sqrt": square_root, "rsqrt": lambda x: invert_real(square_root(x)),
    "ex2": _exact_ex2, "lg2": _exact_lg2,
    "sin": lambda x: _apply_finite(sine, NAN, x), "cos": _exact_cos,
    "tanh": lambda x: _apply_finite(hyperbolic_tangent, real(-1 if x.negative else 1), x),
}  # fmt: skip
# The upper half of an f64, as rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 know it.
UPPER = Format("upper", 11, 20, nan=0x7FF80000, saved=32)


def evaluate_exact(written: str, *operands: int) -> Real:
    """The function that an approximate instruction approximates."""
    found = find_form(written)
    shape, ftz = _operand_format(found)
    given = [decode_float(shape, bits, ftz) for bits in operands]
    opcode = written.partition(".")[0]
    if opcode != "div":
        return EXACT[opcode](*given)
    a, b = given
    beyond = b.kind == "finite" and b.magnitude > Fraction(2) ** 126
    if found.slots["k"] == "approx" and beyond:
        return multiply_reals(a, Real(b.negative))  # by a reciprocal that is flushed
    return divide_reals(a, b)


def _operand_format(found: Matched) -> tuple[Format, bool]:
    kind, ftz = found.types[0], "ftz" in found.slots
    return (UPPER if ftz and kind == "f64" else FORMATS[kind]), ftz


@register_handler("rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
def evaluate_approximate(found: Matched, *operands: int) -> int:
    """What an approximate instruction gives here: its exact value, rounded to the nearest."""
    shape, ftz = _operand_format(found)
    form = ".".join(found.slots.values())
    bits = shape.encode(evaluate_exact(form, *operands))
    return shape.flush_subnormal(bits) if ftz else bits


def evaluate_either(operation: Callable[..., Real], found: Matched, *operands: int) -> int:
    """An operation, approximate where the form says so."""
    if "k" in found.slots:
        return evaluate_approximate(found, *operands)
    return evaluate_float(found, operation, *operands)


register_handler("rcp")(partial(evaluate_either, invert_real))
register_handler("sqrt")(partial(evaluate_either, square_root))
