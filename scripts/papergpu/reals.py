"""Exact numbers with what floats have beside them: signs of zero, infinities, NaN.

Of transcendental functions they have far more bits than a format has. A value is a whole number of
2**-`BITS`; series are summed until their terms are nought. Their error is some units of that, and
no result but those that are exact (of 0, of powers of two, of whole exponents) is so near a number
of 24 or 53 bits, or the middle between two, that it would matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt

FRACTION_BITS = 200  # beyond which a square root is told from its neighbours by its remainder


@dataclass(frozen=True)
class Real:
    """A sign and a magnitude: `kind` is finite, infinite or nan, and zero has a sign as well."""

    negative: bool
    magnitude: Fraction = Fraction(0)
    kind: str = "finite"

    @property
    def value(self) -> Fraction:
        """The number, of a finite one."""
        return -self.magnitude if self.negative else self.magnitude


NAN = Real(False, kind="nan")


def make_infinity(negative: bool) -> Real:
    """An infinity of that sign."""
    return Real(negative, kind="infinite")


def real(value: Fraction | int, zero: bool = False) -> Real:
    """A finite number; `zero` is the sign of one that is zero."""
    value = Fraction(value)
    return Real(value < 0 if value else zero, abs(value))


def negate_real(x: Real) -> Real:
    """`x` with the other sign."""
    return Real(not x.negative, x.magnitude, x.kind)


def add_reals(x: Real, y: Real) -> Real:
    """The exact sum; two zeros of unlike signs are told to the rounding as such."""
    if "nan" in (x.kind, y.kind) or (x.kind == y.kind == "infinite" and x.negative != y.negative):
        return NAN
    if x.kind != y.kind:
        return x if x.kind == "infinite" else y
    if x.kind == "infinite":
        return x
    value = x.value + y.value
    if value:
        return real(value)
    exact = x.negative == y.negative and not x.magnitude and not y.magnitude
    return Real(x.negative) if exact else Real(False, kind="cancelled")


def multiply_reals(x: Real, y: Real) -> Real:
    """The exact product."""
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind):
        return NAN
    if "infinite" in (x.kind, y.kind):
        zero = any(one.kind == "finite" and not one.magnitude for one in (x, y))
        return NAN if zero else make_infinity(negative)
    return Real(negative, x.magnitude * y.magnitude)


def divide_reals(x: Real, y: Real) -> Real:
    """The exact quotient."""
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind) or x.kind == y.kind == "infinite":
        return NAN
    if x.kind == "infinite":
        return make_infinity(negative)
    if y.kind == "infinite":
        return Real(negative)
    if not y.magnitude:
        return make_infinity(negative) if x.magnitude else NAN
    return Real(negative, x.magnitude / y.magnitude)


def square_root(x: Real) -> Real:
    """The square root, near enough that every rounding of it is that of the exact one."""
    if x.kind == "nan" or (x.negative and (x.magnitude or x.kind == "infinite")):
        return NAN
    if x.kind == "infinite" or not x.magnitude:
        return x
    # An even power of two makes the operand a whole number of enough bits; a bit is set behind the
    # root's last where it is not exact, which no rounding mistakes for a tie.
    shift = 2 * FRACTION_BITS + 2 * x.magnitude.denominator.bit_length()
    scaled = x.magnitude * 2**shift
    found = isqrt(int(scaled))
    exact = found * found == scaled
    return real(Fraction(2 * found + (not exact), 2 * 2 ** (shift // 2)))


# ---- transcendental functions

BITS = 700
ONE = 1 << BITS


def to_fixed_point(value: Fraction) -> int:
    """A number as a whole number of units, cut."""
    return value.numerator * ONE // value.denominator


def sum_arctangent(inverse: int, sign: int) -> int:
    """atan(1 / inverse) for a `sign` of -1, atanh for +1."""
    power, total, number = ONE // inverse, 0, 1
    while power:
        total += power // number
        power = sign * (power // (inverse * inverse))
        number += 2
    return total


@cache
def pi() -> int:
    return 4 * (4 * sum_arctangent(5, -1) - sum_arctangent(239, -1))


@cache
def ln2() -> int:
    return 2 * sum_arctangent(3, 1)


def exponential(units: int) -> int:
    """e to a power, of 0 and more."""
    doublings = max(0, units.bit_length() - BITS + 8)
    term, total, number = ONE, ONE, 0
    small = units >> doublings
    while term:
        number += 1
        term = term * small // (ONE * number)
        total += term
    for _ in range(doublings):
        total = total * total >> BITS
    return total


def power_of_two(x: Fraction) -> Fraction:
    """2 to the power of x."""
    whole = x.numerator // x.denominator
    rest = x - whole
    if not rest:
        return Fraction(2) ** whole
    return Fraction(exponential(to_fixed_point(rest) * ln2() >> BITS), ONE) * Fraction(2) ** whole


def binary_logarithm(x: Fraction) -> Fraction:
    """The power of two that x is, of a positive x."""
    whole = x.numerator.bit_length() - x.denominator.bit_length()
    rest = x / Fraction(2) ** whole
    if rest == 1:
        return Fraction(whole)
    ratio = to_fixed_point((rest - 1) / (rest + 1))
    power, total, number = ratio, 0, 1
    square = ratio * ratio >> BITS
    while power not in (0, -1):
        total += power // number
        power = power * square >> BITS
        number += 2
    return whole + Fraction(2 * total, ln2())


def hyperbolic_tangent(x: Fraction) -> Fraction:
    """The hyperbolic tangent of x."""
    if abs(x) > 64:  # nearer to 1 than any format tells
        near = 1 - Fraction(1, 1 << 150)
        return near if x > 0 else -near
    if abs(x) < Fraction(1, 1 << 100):
        return x - x**3 / 3
    grown = exponential(to_fixed_point(2 * abs(x)))
    found = Fraction(grown - ONE, grown + ONE)
    return found if x > 0 else -found


def sine(x: Fraction, quarters: int = 0) -> Fraction:
    """The sine of x and as many quarters of a turn: of one, the cosine."""
    if not quarters and abs(x) < Fraction(1, 1 << 100):
        return x - x**3 / 6
    # No float is beyond 2**128: the turns that are taken away cost no more than as many bits.
    quarter = pi() // 2
    turns, rest = divmod(to_fixed_point(x), quarter)
    number = (turns + quarters) % 4
    term, total, step = (ONE, 0, 0) if number & 1 else (rest, 0, 1)
    while term not in (0, -1):
        total += term
        term = -(term * rest * rest >> 2 * BITS) // ((step + 1) * (step + 2))
        step += 2
    return Fraction(-total if number & 2 else total, ONE)
