"""The types of operands: their width, and the integers that patterns are."""

from __future__ import annotations


def width(kind: str) -> int:
    """Bits of a type: 32 of `f32` and of `u16x2`, 1 of `pred`."""
    if kind == "pred":
        return 1
    if kind in ("e4m3x2", "e5m2x2"):
        return 16
    number, _, pair = kind.lstrip("abfsu").partition("x")
    return int(number) * int(pair or 1)


def whole(bits: int, kind: str) -> int:
    """The integer that a pattern is, by its type."""
    size = width(kind)
    bits &= (1 << size) - 1
    return bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits


def clamped(value: int, kind: str) -> int:
    """The integer of that type next to `value`."""
    size = width(kind)
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if kind[0] == "s" else (0, 2**size - 1)
    return min(max(value, low), high)
