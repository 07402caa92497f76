"""Conversions between types: widths, signs, and floats by one exact rounding."""

from __future__ import annotations

from fractions import Fraction

from papergpu.formats import FORMATS, NEAREST, Format, saturated
from papergpu.forms import Matched, clamped, handles, whole, width
from papergpu.reals import NAN, Real, real


@handles("cvt")
def converted(found: Matched, *operands: int) -> int:
    """The result of a `cvt`."""
    to, given = found.types[0], found.types[1]
    if "pack" in found.slots:
        return _packed(found, *operands)
    if found.slots.get("r") == "rs":
        return _stochastic(found, *operands)
    if to.endswith("x2"):
        if len(operands) == 2:  # the first of two floats becomes the upper part
            values = [FORMATS[given].decode(bits) for bits in operands]
        else:
            values = [_decoded(given, bits) for bits in _halves(operands[0], width(given) // 2)]
        high, low = (_encoded(found, to.removesuffix("x2"), value) for value in values)
        return high << width(to) // 2 | low
    (bits,) = operands
    if to in FORMATS:
        if given in FORMATS:
            return _between(found, FORMATS[to], FORMATS[given], bits)
        return FORMATS[to].encode(real(whole(bits, given)), found.slots["r"])
    if given in FORMATS:
        return _to_integer(found, to, FORMATS[given], bits)
    value = whole(bits, given)
    return clamped(value, to) if "sat" in found.slots else value


def _stochastic(found: Matched, *operands: int) -> int:
    """Floats by random bits, the first of them uppermost in the result."""
    to = found.types[0]
    *given, random = operands
    name, _, count = to.partition("x")
    size, shape = width(to) // int(count), FORMATS[name]
    high, low = random >> 16, random & 0xFFFF
    if name == "f16":  # 13 of each half
        shares = [(high & 0x1FFF, 13), (low & 0x1FFF, 13)]
    elif name == "bf16":
        shares = [(high, 16), (low, 16)]
    else:
        if name == "e2m1":  # the upper bytes of both halves, and the lower ones
            high, low = high >> 8 << 8 | low >> 8, (high & 0xFF) << 8 | low & 0xFF
        turned = [int(f"{one:016b}"[::-1], 2) for one in (high, low)]
        shares = [(turned[0], 16), (high, 16), (turned[1], 16), (low, 16)]
    made = 0
    for bits, (share, wide) in zip(given, shares, strict=True):
        value = _carried(FORMATS["f32"].decode(bits), shape, Fraction(share, 1 << wide))
        made = made << size | _narrow(found, shape, value, saturate="satfinite" in found.slots)
    return made


def _carried(value: Real, shape: Format, more: Fraction) -> Real:
    """The number of a format, of any size, below a magnitude and `more` of the step from there."""
    if value.kind != "finite" or not value.magnitude:
        return value
    power = shape.least
    while Fraction(2) ** (power + 1) <= value.magnitude:
        power += 1
    step = Fraction(2) ** (power - shape.mantissa)
    steps = value.magnitude / step + more
    return Real(value.negative, steps.numerator // steps.denominator * step)


def _halves(bits: int, size: int) -> tuple[int, int]:
    return bits >> size, bits & ((1 << size) - 1)


def _decoded(pair: str, bits: int) -> Real:
    """What half of a pair means: `e4m3` of `e4m3x2`."""
    name = pair.removesuffix("x2")
    if name == "ue8m0":  # a power of two from 2**-127 on
        return NAN if bits == 255 else real(Fraction(2) ** (bits - 127))
    return FORMATS[name].decode(bits)


def _encoded(found: Matched, name: str, value: Real) -> int:
    saturate = "satfinite" in found.slots
    if name == "ue8m0":
        return _scale(value, found.slots["r"] == "rp", saturate)
    return _narrow(found, FORMATS[name], value, saturate=saturate)


def _scale(value: Real, up: bool, saturate: bool) -> int:
    """The power of two at or below the magnitude, or at or above it; NaN is 255, as is infinity."""
    if value.kind == "nan":
        return 255
    if value.kind == "infinite":
        return 254 if saturate else 255
    exponent = -127
    while exponent < 128 and Fraction(2) ** (exponent + 1) <= value.magnitude:
        exponent += 1
    exponent += up and Fraction(2) ** exponent < value.magnitude
    return min(exponent + 127, 254 if saturate else 255)


def _packed(found: Matched, a: int, b: int, onto: int = 0) -> int:
    """Two integers clamped, the first above the second, above them what was there."""
    to = found.slots["d"]
    size = width(to)
    high, low = (clamped(whole(bits, "s32"), to) & ((1 << size) - 1) for bits in (a, b))
    return onto << 2 * size | high << size | low


def _narrow(found: Matched, shape: Format, value: Real, *, saturate: bool = False) -> int:
    mode = found.slots.get("r", NEAREST)
    bits = shape.encode(value, NEAREST if mode == "rs" else mode, saturate=saturate)
    negative = value.negative and value.kind != "nan"
    return 0 if "relu" in found.slots and negative else bits


def _between(found: Matched, to: Format, given: Format, bits: int) -> int:
    ftz = "ftz" in found.slots
    bits = given.zeroed(bits) if ftz and given.name == "f32" else bits
    value = given.decode(bits)
    if "i" in found.slots and value.kind == "finite":
        value = real(_rounded(value, found.slots["i"]), value.negative)
    result = _narrow(found, to, value, saturate="satfinite" in found.slots)
    result = to.zeroed(result) if ftz and to.name == "f32" else result
    return saturated(to, result) if "sat" in found.slots else result


def _rounded(value: Real, mode: str) -> int:
    """A finite number as a whole one."""
    down = value.value.numerator // value.value.denominator
    rest = value.value - down
    if mode == "rzi":
        mode = "rpi" if value.negative else "rmi"
    half = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down & 1)
    return down + bool({"rni": half, "rmi": False, "rpi": rest > 0}[mode])


def _to_integer(found: Matched, to: str, given: Format, bits: int) -> int:
    """Rounded to a whole number and clamped; NaN is 0, of 64 bits its sign bit alone."""
    bits = given.zeroed(bits) if "ftz" in found.slots else bits
    value = given.decode(bits)
    if value.kind == "nan":
        return 1 << 63 if width(to) == 64 or given.name == "f64" else 0
    if value.kind == "infinite":
        return clamped(-(1 << 80) if value.negative else 1 << 80, to)
    return clamped(_rounded(value, found.slots["i"]), to)
