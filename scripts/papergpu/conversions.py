"""Conversions between types: widths, signs, and floats by one exact rounding."""

from __future__ import annotations

from fractions import Fraction

from papergpu.formats import FORMATS, NEAREST, TOWARDS_ZERO, Format, saturated
from papergpu.forms import Matched
from papergpu.kinds import clamped, whole, width
from papergpu.reals import Real, real

ROUNDS = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def converted(found: Matched, *operands: int) -> int:
    """The result of a `cvt`."""
    to, given = found.types[0], found.types[1]
    if to.endswith("x2"):
        shape = FORMATS[to.removesuffix("x2")]
        eight = shape.width == 8
        high, low = (
            _narrow(found, shape, FORMATS["f32"].decode(bits), saturate=eight) for bits in operands
        )
        return high << shape.width | low
    (bits,) = operands
    if to in FORMATS:
        if given in FORMATS:
            return _between(found, FORMATS[to], FORMATS[given], bits)
        return FORMATS[to].encode(real(whole(bits, given)), found.slots["r"])
    if given in FORMATS:
        return _to_integer(found, to, FORMATS[given], bits)
    value = whole(bits, given)
    return clamped(value, to) if "sat" in found.slots else value


def _narrow(found: Matched, shape: Format, value: Real, *, saturate: bool = False) -> int:
    bits = shape.encode(value, found.slots.get("r", NEAREST), saturate=saturate)
    negative = value.negative and value.kind != "nan"
    return 0 if "relu" in found.slots and negative else bits


def _between(found: Matched, to: Format, given: Format, bits: int) -> int:
    ftz = "ftz" in found.slots
    bits = given.zeroed(bits) if ftz and given.name == "f32" else bits
    result = to.encode(given.decode(bits), found.slots.get("r", NEAREST))
    result = to.zeroed(result) if ftz and to.name == "f32" else result
    return saturated(to, result) if "sat" in found.slots else result


def _to_integer(found: Matched, to: str, given: Format, bits: int) -> int:
    """Rounded to a whole number and clamped; NaN is 0, of 64 bits its sign bit alone."""
    bits = given.zeroed(bits) if "ftz" in found.slots else bits
    value = given.decode(bits)
    size = width(to)
    if value.kind == "nan":
        return 1 << 63 if size == 64 or given.name == "f64" else 0
    if value.kind == "infinite":
        return clamped(-(1 << 80) if value.negative else 1 << 80, to)
    mode = ROUNDS[found.slots["i"]]
    down = value.value.numerator // value.value.denominator
    rest = value.value - down
    if mode == TOWARDS_ZERO:
        mode = "rp" if value.negative else "rm"
    half = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down & 1)
    up = {"rn": half, "rm": False, "rp": rest > 0}[mode]
    return clamped(down + bool(up), to)
