"""Exact numbers with what floats have beside them: signs of zero, infinities, NaN."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
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


def infinity(negative: bool) -> Real:
    """An infinity of that sign."""
    return Real(negative, kind="infinite")


def real(value: Fraction | int, zero: bool = False) -> Real:
    """A finite number; `zero` is the sign of one that is zero."""
    value = Fraction(value)
    return Real(value < 0 if value else zero, abs(value))


def opposite(x: Real) -> Real:
    """`x` with the other sign."""
    return Real(not x.negative, x.magnitude, x.kind)


def plus(x: Real, y: Real) -> Real:
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


def times(x: Real, y: Real) -> Real:
    """The exact product."""
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind):
        return NAN
    if "infinite" in (x.kind, y.kind):
        zero = any(one.kind == "finite" and not one.magnitude for one in (x, y))
        return NAN if zero else infinity(negative)
    return Real(negative, x.magnitude * y.magnitude)


def over(x: Real, y: Real) -> Real:
    """The exact quotient."""
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind) or x.kind == y.kind == "infinite":
        return NAN
    if x.kind == "infinite":
        return infinity(negative)
    if y.kind == "infinite":
        return Real(negative)
    if not y.magnitude:
        return infinity(negative) if x.magnitude else NAN
    return Real(negative, x.magnitude / y.magnitude)


def root(x: Real) -> Real:
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
