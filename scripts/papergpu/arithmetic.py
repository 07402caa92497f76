"""Sums, products and quotients of integers; those of floats are handed on by their type."""

from __future__ import annotations

from collections.abc import Sequence

from papergpu.floats import approximated, computed, difference, fused, signed
from papergpu.forms import Matched, clamped, handles, whole, width
from papergpu.reals import over, plus, times


def _integers(found: Matched, values: Sequence[int]) -> list[int]:
    return [whole(bits, kind) for bits, kind in zip(values, found.types[1:], strict=True)]


def _sum(found: Matched, a: int, b: int, sign: int, carry: int = 0) -> int | tuple[int, ...]:
    kind = found.types[0]
    if kind[0] in "fb":
        return computed(found, plus if sign > 0 else difference, a, b)
    if "cc" in found.slots or found.form.name in ("addc", "subc"):
        size = width(kind)
        value = a + sign * (b + (carry if found.form.name in ("addc", "subc") else 0))
        return value, (value >> size & 1 if "cc" in found.slots else carry)
    x, y = _integers(found, (a, b))
    value = x + sign * y
    return clamped(value, kind) if "sat" in found.slots else value


@handles("add", "addc")
def _add(found: Matched, a: int, b: int, carry: int = 0) -> int | tuple[int, ...]:
    return _sum(found, a, b, 1, carry)


@handles("sub", "subc")
def _sub(found: Matched, a: int, b: int, carry: int = 0) -> int | tuple[int, ...]:
    return _sum(found, a, b, -1, carry)


@handles("mul")
def _mul(found: Matched, a: int, b: int) -> int:
    if found.types[0][0] in "fb":
        return computed(found, times, a, b)
    x, y = _integers(found, (a, b))
    return x * y >> (width(found.types[1]) if found.slots.get("h") == "hi" else 0)


@handles("mad", "madc")
def _mad(found: Matched, a: int, b: int, c: int, carry: int = 0) -> int | tuple[int, ...]:
    if found.types[0][0] == "f":
        return computed(found, fused, a, b, c)
    x, y, z = _integers(found, (a, b, c))
    high = found.slots.get("h", "hi" if "hi" in found.slots else "") == "hi"
    size = width(found.types[1])
    value = x * y >> (size if high else 0)
    if "cc" in found.slots or found.form.name == "madc":
        value = (value & ((1 << size) - 1)) + c
        value += carry if found.form.name == "madc" else 0
        return value, (value >> size if "cc" in found.slots else carry)
    return clamped(value + z, "s32") if "sat" in found.slots else value + z


def _of_24(found: Matched, bits: int) -> int:
    """The lower 24 bits, with their sign where the type has one."""
    low = bits & 0xFFFFFF
    return low - (1 << 24) if found.types[0] == "s32" and low >> 23 else low


@handles("mul24")
def _product_of_24(found: Matched, a: int, b: int) -> int:
    high = found.slots.get("h", "hi") == "hi"
    return _of_24(found, a) * _of_24(found, b) >> (16 if high else 0)


@handles("mad24")
def _mad24(found: Matched, a: int, b: int, c: int) -> int:
    value = _product_of_24(found, a, b) + whole(c, found.types[0])
    return clamped(value, "s32") if "sat" in found.slots else value


@handles("sad")
def _sad(found: Matched, a: int, b: int, c: int) -> int:
    x, y, z = _integers(found, (a, b, c))
    return z + abs(x - y)


def _parts(bits: int, kind: str, size: int) -> list[int]:
    return [whole(bits >> at, f"{kind[0]}{size}") for at in range(0, 32, size)]


@handles("dp4a")
def _dp4a(found: Matched, a: int, b: int, c: int) -> int:
    x, y = _parts(a, found.slots["x"], 8), _parts(b, found.slots["y"], 8)
    return c + sum(p * q for p, q in zip(x, y, strict=True))


@handles("dp2a")
def _dp2a(found: Matched, a: int, b: int, c: int) -> int:
    x, y = _parts(a, found.slots["x"], 16), _parts(b, found.slots["y"], 8)
    chosen = y[2:] if found.slots["h"] == "hi" else y[:2]
    return c + sum(p * q for p, q in zip(x, chosen, strict=True))


@handles("div")
def _div(found: Matched, a: int, b: int) -> int:
    if found.types[0][0] == "f":
        return approximated(found, a, b) if "k" in found.slots else computed(found, over, a, b)
    x, y = _integers(found, (a, b))
    if not y:  # unspecified; the hardware's answer is all ones
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


@handles("rem")
def _rem(found: Matched, a: int, b: int) -> int:
    x, y = _integers(found, (a, b))
    if not y:  # unspecified as well
        return x
    return abs(x) % abs(y) * (-1 if x < 0 else 1)


@handles("abs")
def _abs(found: Matched, a: int) -> int:
    kind = found.types[0]
    if kind[0] == "s":
        return abs(whole(a, kind))
    return signed(found, a, lambda sign: 0)


@handles("neg")
def _neg(found: Matched, a: int) -> int:
    kind = found.types[0]
    if kind[0] == "s":
        return -whole(a, kind)
    return signed(found, a, lambda sign: 1 - sign)


@handles("vabsdiff2", "vabsdiff4")
def _vabsdiff(found: Matched, a: int, b: int, c: int) -> int:
    """By halves or bytes; `.add` sums them onto c, which otherwise no part of the result is."""
    size = 16 if found.slots["v"] == "vabsdiff2" else 8
    parts = [
        abs(x - y) for x, y in zip(_parts(a, "u32", size), _parts(b, "u32", size), strict=True)
    ]
    if "add" in found.slots:
        return c + sum(parts)
    return sum(part << size * at for at, part in enumerate(parts))
