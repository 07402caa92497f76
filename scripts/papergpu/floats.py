"""Floats: an operation on exact numbers, rounded once, and what is done to signs alone."""

from __future__ import annotations

from collections.abc import Callable

from papergpu.formats import FORMATS, NEAREST, Format, saturated
from papergpu.forms import Matched
from papergpu.handlers import handles
from papergpu.kinds import width
from papergpu.reals import Real, opposite, plus, times


def computed(found: Matched, operation: Callable[..., Real], *operands: int) -> int:
    """An operation on floats, each of its own format: flush, compute, round, flush, saturate."""
    shape, ftz = FORMATS[found.types[0]], "ftz" in found.slots
    given = [
        decoded(FORMATS[kind], bits, ftz)
        for bits, kind in zip(operands, found.types[1:], strict=True)
    ]
    bits = rounded(shape, operation(*given), found.slots.get("r", NEAREST))
    if ftz:
        bits = shape.zeroed(bits)
    if "relu" in found.slots and bits >> (shape.width - 1) and shape.decode(bits).kind != "nan":
        return 0
    return saturated(shape, bits) if "sat" in found.slots else bits


def decoded(shape: Format, bits: int, ftz: bool) -> Real:
    """What a pattern means; with `ftz` a subnormal one is zero."""
    return shape.decode(shape.zeroed(bits) if ftz else bits)


def rounded(shape: Format, value: Real, mode: str) -> int:
    """`value` in a format; a sum that cancels is -0 when rounding down and +0 otherwise."""
    if value.kind == "cancelled":
        value = Real(mode == "rm")
    return shape.encode(value, mode)


def difference(x: Real, y: Real) -> Real:
    """x - y."""
    return plus(x, opposite(y))


def fused(x: Real, y: Real, z: Real) -> Real:
    """x * y + z."""
    return plus(times(x, y), z)


@handles("fma")
def _fma(found: Matched, a: int, b: int, c: int) -> int:
    return computed(found, fused, a, b, c)


@handles("testp")
def _testp(found: Matched, a: int) -> int:
    shape = FORMATS[found.slots["t"]]
    kind, tiny = shape.decode(a).kind, shape.subnormal(a)
    return int({"finite": kind == "finite", "infinite": kind == "infinite",
                "number": kind != "nan", "notanumber": kind == "nan",
                "normal": kind == "finite" and not tiny,
                "subnormal": tiny}[found.slots["o"]])  # fmt: skip


def signed(found: Matched, a: int, change: Callable[[int], int]) -> int:
    """A float with another sign, its NaN untouched but for `.ftz`."""
    kind = FORMATS[found.types[0]]
    a = kind.zeroed(a) if "ftz" in found.slots else a
    top = kind.width - 1
    return a & ((1 << top) - 1) | change(a >> top & 1) << top


@handles("copysign")
def _copysign(found: Matched, a: int, b: int) -> int:
    top = width(found.types[0]) - 1
    return b & ((1 << top) - 1) | (a >> top & 1) << top
