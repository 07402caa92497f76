"""Sums, products and quotients of integers; those of floats are passed on by type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from papergpu.floats import (
    change_sign,
    evaluate_either,
    evaluate_float,
    multiply_add_reals,
    subtract_reals,
)
from papergpu.forms import Matched, clamp_integer, decode_integer, register_handler, type_bits
from papergpu.reals import add_reals, divide_reals, multiply_reals


def _decode_integers(found: Matched, values: Sequence[int]) -> list[int]:
    return [decode_integer(bits, kind) for bits, kind in zip(values, found.types[1:], strict=True)]


def _evaluate_sum(
    sign: int, found: Matched, a: int, b: int, carry: int = 0
) -> int | tuple[int, ...]:
    kind = found.types[0]
    if kind[0] in "fb":
        return evaluate_float(found, add_reals if sign > 0 else subtract_reals, a, b)
    if "cc" in found.slots or found.form.name in ("addc", "subc"):
        size = type_bits(kind)
        value = a + sign * (b + (carry if found.form.name in ("addc", "subc") else 0))
        return value, (value >> size & 1 if "cc" in found.slots else carry)
    x, y = _decode_integers(found, (a, b))
    value = x + sign * y
    return clamp_integer(value, kind) if "sat" in found.slots else value


@register_handler("mul")
def _evaluate_mul(found: Matched, a: int, b: int) -> int:
    if found.types[0][0] in "fb":
        return evaluate_float(found, multiply_reals, a, b)
    x, y = _decode_integers(found, (a, b))
    return x * y >> (type_bits(found.types[1]) if found.slots.get("h") == "hi" else 0)


@register_handler("mad", "madc")
def _evaluate_mad(found: Matched, a: int, b: int, c: int, carry: int = 0) -> int | tuple[int, ...]:
    if found.types[0][0] == "f":
        return evaluate_float(found, multiply_add_reals, a, b, c)
    x, y, z = _decode_integers(found, (a, b, c))
    high = found.slots.get("h", "hi" if "hi" in found.slots else "") == "hi"
    size = type_bits(found.types[1])
    value = x * y >> (size if high else 0)
    if "cc" in found.slots or found.form.name == "madc":
        value = (value & ((1 << size) - 1)) + c
        value += carry if found.form.name == "madc" else 0
        return value, (value >> size if "cc" in found.slots else carry)
    return clamp_integer(value + z, "s32") if "sat" in found.slots else value + z


def _decode_24_bits(found: Matched, bits: int) -> int:
    """The lower 24 bits, with their sign where the type has one."""
    low = bits & 0xFFFFFF
    return low - (1 << 24) if found.types[0] == "s32" and low >> 23 else low


@register_handler("mul24")
def _evaluate_mul24(found: Matched, a: int, b: int) -> int:
    high = found.slots.get("h", "hi") == "hi"
    return _decode_24_bits(found, a) * _decode_24_bits(found, b) >> (16 if high else 0)


@register_handler("mad24")
def _evaluate_mad24(found: Matched, a: int, b: int, c: int) -> int:
    value = _evaluate_mul24(found, a, b) + decode_integer(c, found.types[0])
    return clamp_integer(value, "s32") if "sat" in found.slots else value


@register_handler("sad")
def _evaluate_sad(found: Matched, a: int, b: int, c: int) -> int:
    x, y, z = _decode_integers(found, (a, b, c))
    return z + abs(x - y)


def _split_register(bits: int, kind: str, size: int) -> list[int]:
    return [decode_integer(bits >> at, f"{kind[0]}{size}") for at in range(0, 32, size)]


@register_handler("dp4a")
def _evaluate_dp4a(found: Matched, a: int, b: int, c: int) -> int:
    x, y = _split_register(a, found.slots["x"], 8), _split_register(b, found.slots["y"], 8)
    return c + sum(p * q for p, q in zip(x, y, strict=True))


@register_handler("dp2a")
def _evaluate_dp2a(found: Matched, a: int, b: int, c: int) -> int:
    x, y = _split_register(a, found.slots["x"], 16), _split_register(b, found.slots["y"], 8)
    chosen = y[2:] if found.slots["h"] == "hi" else y[:2]
    return c + sum(p * q for p, q in zip(x, chosen, strict=True))


@register_handler("div")
def _evaluate_div(found: Matched, a: int, b: int) -> int:
    if found.types[0][0] == "f":
        return evaluate_either(divide_reals, found, a, b)
    x, y = _decode_integers(found, (a, b))
    if not y:  # unspecified; the hardware's answer is all ones
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


@register_handler("rem")
def _evaluate_rem(found: Matched, a: int, b: int) -> int:
    x, y = _decode_integers(found, (a, b))
    if not y:  # unspecified as well
        return x
    return abs(x) % abs(y) * (-1 if x < 0 else 1)


@register_handler("vabsdiff2", "vabsdiff4")
def _evaluate_vabsdiff(found: Matched, a: int, b: int, c: int) -> int:
    """By halves or bytes; `.add` sums them onto c, which otherwise no part of the result is."""
    size = 16 if found.slots["v"] == "vabsdiff2" else 8
    parts = [
        abs(x - y)
        for x, y in zip(
            _split_register(a, "u32", size), _split_register(b, "u32", size), strict=True
        )
    ]
    if "add" in found.slots:
        return c + sum(parts)
    return sum(part << size * at for at, part in enumerate(parts))


def _evaluate_sign(
    integer: Callable[[int], int], sign: Callable[[int], int], found: Matched, a: int
) -> int:
    kind = found.types[0]
    return integer(decode_integer(a, kind)) if kind[0] == "s" else change_sign(found, a, sign)


register_handler("add", "addc")(partial(_evaluate_sum, 1))
register_handler("sub", "subc")(partial(_evaluate_sum, -1))
register_handler("abs")(partial(_evaluate_sign, abs, lambda sign: 0))
register_handler("neg")(partial(_evaluate_sign, int.__neg__, lambda sign: 1 - sign))
