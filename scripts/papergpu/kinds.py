"""The types of operands: their width, and the integers that patterns are."""

from __future__ import annotations

from functools import cache

PACKED = {"e4m3x2": 16, "e5m2x2": 16, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "e2m1x2": 8,
          "e4m3x4": 32, "e5m2x4": 32, "e2m3x4": 32, "e3m2x4": 32, "e2m1x4": 16}  # fmt: skip


@cache
def width(kind: str) -> int:
    """Bits of a type: 32 of `f32` and of `u16x2`, 1 of `pred`, 2 of the two predicates `preds`."""
    if kind in ("pred", "preds"):
        return 1 if kind == "pred" else 2
    if kind in PACKED:
        return PACKED[kind]
    number, _, pair = kind.lstrip("abfstu").partition("x")
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
