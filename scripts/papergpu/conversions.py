"""Conversions between types: widths, signs, and floats by one exact rounding."""

from __future__ import annotations

from fractions import Fraction

from papergpu.formats import FORMATS, NEAREST, Format, saturate_bits
from papergpu.forms import Matched, clamp_integer, decode_integer, register_handler, type_bits
from papergpu.reals import NAN, Real, real


@register_handler("cvt")
def evaluate_cvt(found: Matched, *operands: int) -> int:
    """The result of a `cvt`."""
    to, given = found.types[0], found.types[1]
    if "pack" in found.slots:
        return _pack_integers(found, *operands)
    if found.slots.get("r") == "rs":
        return _round_stochastic(found, *operands)
    if to.endswith("x2"):
        if len(operands) == 2:  # the first of two floats becomes the upper part
            values = [FORMATS[given].decode(bits) for bits in operands]
        else:
            size = type_bits(given) // 2
            halves = operands[0] >> size, operands[0] & ((1 << size) - 1)
            values = [_decode_half(given, bits) for bits in halves]
        high, low = (_encode_half(found, to.removesuffix("x2"), value) for value in values)
        return high << type_bits(to) // 2 | low
    (bits,) = operands
    if to in FORMATS:
        if given in FORMATS:
            return _convert_float(found, FORMATS[to], FORMATS[given], bits)
        return FORMATS[to].encode(real(decode_integer(bits, given)), found.slots["r"])
    if given in FORMATS:
        return _convert_to_integer(found, to, FORMATS[given], bits)
    value = decode_integer(bits, given)
    return clamp_integer(value, to) if "sat" in found.slots else value


def _round_stochastic(found: Matched, *operands: int) -> int:
    """Floats by random bits, the first of them uppermost in the result."""
    to = found.types[0]
    *given, random = operands
    name, _, count = to.partition("x")
    size, shape = type_bits(to) // int(count), FORMATS[name]
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
        value = _add_random_bits(FORMATS["f32"].decode(bits), shape, Fraction(share, 1 << wide))
        made = made << size | _encode_float(
            found, shape, value, saturate="satfinite" in found.slots
        )
    return made


def _add_random_bits(value: Real, shape: Format, more: Fraction) -> Real:
    """The number of a format, of any size, below a magnitude and `more` of the step from there."""
    if value.kind != "finite" or not value.magnitude:
        return value
    power = shape.min_exponent
    while Fraction(2) ** (power + 1) <= value.magnitude:
        power += 1
    step = Fraction(2) ** (power - shape.mantissa)
    steps = value.magnitude / step + more
    return Real(value.negative, steps.numerator // steps.denominator * step)


def _decode_half(pair: str, bits: int) -> Real:
    """What half of a pair means: `e4m3` of `e4m3x2`."""
    name = pair.removesuffix("x2")
    if name == "ue8m0":  # a power of two from 2**-127 on
        return NAN if bits == 255 else real(Fraction(2) ** (bits - 127))
    return FORMATS[name].decode(bits)


def _encode_half(found: Matched, name: str, value: Real) -> int:
    saturate = "satfinite" in found.slots
    if name == "ue8m0":
        return _encode_scale(value, found.slots["r"] == "rp", saturate)
    return _encode_float(found, FORMATS[name], value, saturate=saturate)


def _encode_scale(value: Real, up: bool, saturate: bool) -> int:
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


def _pack_integers(found: Matched, a: int, b: int, onto: int = 0) -> int:
    """Two integers clamped, the first above the second, above them what was there."""
    to = found.slots["d"]
    size = type_bits(to)
    high, low = (
        clamp_integer(decode_integer(bits, "s32"), to) & ((1 << size) - 1) for bits in (a, b)
    )
    return onto << 2 * size | high << size | low


def _encode_float(found: Matched, shape: Format, value: Real, *, saturate: bool = False) -> int:
    mode = found.slots.get("r", NEAREST)
    bits = shape.encode(value, NEAREST if mode == "rs" else mode, saturate=saturate)
    negative = value.negative and value.kind != "nan"
    return 0 if "relu" in found.slots and negative else bits


def _convert_float(found: Matched, to: Format, given: Format, bits: int) -> int:
    ftz = "ftz" in found.slots
    bits = given.flush_subnormal(bits) if ftz and given.name == "f32" else bits
    value = given.decode(bits)
    if "i" in found.slots and value.kind == "finite":
        value = real(_round_to_integer(value, found.slots["i"]), value.negative)
    result = _encode_float(found, to, value, saturate="satfinite" in found.slots)
    result = to.flush_subnormal(result) if ftz and to.name == "f32" else result
    return saturate_bits(to, result) if "sat" in found.slots else result


def _round_to_integer(value: Real, mode: str) -> int:
    """A finite number as a whole one."""
    down = value.value.numerator // value.value.denominator
    rest = value.value - down
    if mode == "rzi":
        mode = "rpi" if value.negative else "rmi"
    half = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down & 1)
    return down + bool({"rni": half, "rmi": False, "rpi": rest > 0}[mode])


def _convert_to_integer(found: Matched, to: str, given: Format, bits: int) -> int:
    """Rounded to a whole number and clamped; NaN is 0, of 64 bits its sign bit alone."""
    bits = given.flush_subnormal(bits) if "ftz" in found.slots else bits
    value = given.decode(bits)
    if value.kind == "nan":
        return 1 << 63 if type_bits(to) == 64 or given.name == "f64" else 0
    if value.kind == "infinite":
        return clamp_integer(-(1 << 80) if value.negative else 1 << 80, to)
    return clamp_integer(_round_to_integer(value, found.slots["i"]), to)
