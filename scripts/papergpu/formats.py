"""Floating formats by their bits: what a pattern means, and how an exact value is rounded to one.

Everything here is exact: a finite number is a `Fraction`, and rounding is done on it once. That is
slow, and is meant to be: it is what quick code is held against.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from papergpu.reals import NAN, Real, make_infinity, real

NEAREST, TOWARDS_ZERO, DOWN, UP, AWAY = "rn", "rz", "rm", "rp", "rna"


@dataclass(frozen=True)
class Format:
    """A binary floating format.

    `infinite` says whether the largest exponent is kept for infinities and NaN; `nan` is the
    pattern of the NaN that instructions produce, None where there is none. `saved` are bits below
    the mantissa that the container has and the format does not use (tf32).
    """

    name: str
    exponent: int
    mantissa: int
    infinite: bool = True
    nan: int | None = None
    saved: int = 0

    @property
    def width(self) -> int:
        """Bits of the container."""
        return 1 + self.exponent + self.mantissa + self.saved

    @property
    def bias(self) -> int:
        """What is taken from the exponent's field."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def max_finite(self) -> int:
        """The pattern of the largest finite number, without container bits."""
        top = (1 << (self.exponent + self.mantissa)) - 1
        if self.infinite:
            return top - (1 << self.mantissa)
        return top - 1 if self.nan is not None else top

    def decode(self, bits: int) -> Real:
        """What a pattern means."""
        bits >>= self.saved
        negative = bool(bits >> (self.exponent + self.mantissa) & 1)
        field = bits >> self.mantissa & ((1 << self.exponent) - 1)
        part = bits & ((1 << self.mantissa) - 1)
        if self.infinite and field == (1 << self.exponent) - 1:
            return NAN if part else make_infinity(negative)
        if not self.infinite and bits & ((1 << (self.exponent + self.mantissa)) - 1) == self.nan:
            return NAN
        whole = part + (1 << self.mantissa) if field else part
        power = max(field, 1) - self.bias - self.mantissa
        return Real(negative, Fraction(whole) * Fraction(2) ** power)

    def encode(self, given: Real, mode: str = NEAREST, *, saturate: bool = False) -> int:
        """The pattern of `given`, rounded by `mode`.

        `saturate` makes the largest finite number of what would be infinite, as `.satfinite` does.
        """
        sign = int(given.negative) << (self.exponent + self.mantissa)
        if given.kind == "nan":
            if self.nan is None:
                return self.max_finite << self.saved
            return self.nan << self.saved
        if given.kind == "infinite":
            return (
                sign | (self.max_finite if saturate else self._overflow_pattern())
            ) << self.saved
        pattern = self._round_magnitude(given, mode)
        if pattern > self.max_finite:
            inward = mode == TOWARDS_ZERO or mode == (UP if given.negative else DOWN)
            finite = saturate or (inward and self.infinite)
            pattern = self.max_finite if finite else self._overflow_pattern()
        return (sign | pattern) << self.saved

    def _overflow_pattern(self) -> int:
        """What stands for a number over the largest: infinity, else NaN, else the largest."""
        if self.infinite:
            return self.max_finite + 1
        return self.nan if self.nan is not None else self.max_finite

    def _round_magnitude(self, given: Real, mode: str) -> int:
        """The magnitude as a pattern, with the next ones for what is too large for it."""
        if not given.magnitude:
            return 0
        top = given.magnitude
        power = top.numerator.bit_length() - top.denominator.bit_length()
        power -= top < Fraction(2) ** power
        power = max(power, self.min_exponent)
        scaled = top / Fraction(2) ** (power - self.mantissa)
        whole, rest = divmod(scaled.numerator, scaled.denominator)
        half = 2 * rest - scaled.denominator
        if mode == NEAREST:
            up = half > 0 or (half == 0 and whole & 1 == 1)
        elif mode == AWAY:
            up = half >= 0
        else:
            up = rest > 0 and mode == (DOWN if given.negative else UP)
        # The pattern of a normal number counts on from that of the smallest one, so that a carry
        # out of the mantissa is a carry into the exponent.
        return whole + up + ((power - self.min_exponent) << self.mantissa)

    def is_subnormal(self, bits: int) -> bool:
        """Whether a pattern is of a number below the smallest normal one, and not zero."""
        bits >>= self.saved
        return not bits >> self.mantissa & ((1 << self.exponent) - 1) and bool(
            bits & ((1 << self.mantissa) - 1)
        )

    def flush_subnormal(self, bits: int) -> int:
        """`bits`, a subnormal number made a zero of its sign, as `.ftz` does."""
        return bits & 1 << (self.width - 1) if self.is_subnormal(bits) else bits


def saturate_bits(shape: Format, bits: int) -> int:
    """Between 0 and 1; NaN becomes +0."""
    value = shape.decode(bits)
    if value.kind == "nan" or value.negative:
        return 0
    one = shape.encode(real(1))
    return one if value.kind == "infinite" or value.magnitude > 1 else bits


FORMATS = {
    one.name: one
    for one in (
        Format("f16", 5, 10, nan=0x7FFF),
        Format("bf16", 8, 7, nan=0x7FFF),
        Format("f32", 8, 23, nan=0x7FFFFFFF),
        Format("f64", 11, 52, nan=0x7FF8000000000000),
        Format("tf32", 8, 10, nan=0x3FFFF, saved=13),
        Format("e4m3", 4, 3, infinite=False, nan=0x7F),
        Format("e5m2", 5, 2, nan=0x7F),
        Format("e2m1", 2, 1, infinite=False),
        Format("e2m3", 2, 3, infinite=False),
        Format("e3m2", 3, 2, infinite=False),
    )
}
