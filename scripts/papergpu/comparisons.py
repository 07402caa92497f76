"""What numbers are compared for: predicates, one of two by a sign, the least and the largest."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from papergpu.floats import decoded
from papergpu.formats import FORMATS
from papergpu.forms import Matched
from papergpu.handlers import handles
from papergpu.kinds import whole, width
from papergpu.reals import NAN, Real, real


def _order(one: Real) -> tuple[int, Fraction, int]:
    beyond = 0 if one.kind == "finite" else -1 if one.negative else 1
    return beyond, one.value, -int(one.negative)


def _extreme(found: Matched, values: Sequence[int], largest: bool) -> int:
    kind = found.types[0]
    if kind[0] in "us":
        best = (max if largest else min)(whole(one, kind) for one in values)
        return max(best, 0) if "relu" in found.slots else best
    shape = FORMATS[kind]
    top = shape.width - 1
    if "ftz" in found.slots:
        values = [shape.zeroed(one) for one in values]
    sign = sum(one >> top for one in values) & 1
    if "abs" in found.slots:
        values = [one & ((1 << top) - 1) for one in values]
    numbers = [one for one in values if shape.decode(one).kind != "nan"]
    if not numbers or ("NaN" in found.slots and len(numbers) < len(values)):
        return shape.encode(NAN)
    # A zero with its sign: -0 is below +0.
    best = (max if largest else min)(numbers, key=lambda one: _order(shape.decode(one)))
    return best & ((1 << top) - 1) | sign << top if "xorsign" in found.slots else best


@handles("min")
def _min(found: Matched, *values: int) -> int:
    return _extreme(found, values, False)


@handles("max")
def _max(found: Matched, *values: int) -> int:
    return _extreme(found, values, True)


def _holds(found: Matched, a: int, b: int) -> bool:
    """Whether the comparison of a row holds."""
    kind, what = found.types[1], found.slots["c"]
    if kind not in FORMATS:
        signed = kind.replace("b", "u")
        x, y = whole(a, signed), whole(b, signed)
        if what in ("lo", "ls", "hi", "hs"):
            x, y = whole(a, f"u{width(kind)}"), whole(b, f"u{width(kind)}")
        name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(what, what)
        return _compared(name, (0, Fraction(x)), (0, Fraction(y)))
    shape, ftz = FORMATS[kind], "ftz" in found.slots
    p, q = decoded(shape, a, ftz), decoded(shape, b, ftz)
    either = "nan" in (p.kind, q.kind)
    if what in ("num", "nan"):
        return either == (what == "nan")
    if either:
        return what.endswith("u")
    return _compared(what.removesuffix("u"), _order(p)[:2], _order(q)[:2])


def _compared(what: str, x: tuple[int, Fraction], y: tuple[int, Fraction]) -> bool:
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[what]


def combined(found: Matched, holds: bool, other: int) -> int:
    """A comparison combined with a predicate, if the row has one."""
    one, other = int(holds), other & 1
    return {"and": one & other, "or": one | other, "xor": one ^ other}.get(
        found.slots.get("o", ""), one
    )


@handles("setp")
def _setp(found: Matched, a: int, b: int, other: int = 0) -> tuple[int, int]:
    holds = _holds(found, a, b)
    return combined(found, holds, other), combined(found, not holds, other)


@handles("set")
def _set(found: Matched, a: int, b: int, other: int = 0) -> int:
    kind = found.types[0]
    true = FORMATS[kind].encode(real(1)) if kind in FORMATS else -1
    return true if combined(found, _holds(found, a, b), other) else 0


@handles("slct")
def _slct(found: Matched, a: int, b: int, c: int) -> int:
    if found.slots["t"] == "s32":
        return a if whole(c, "s32") >= 0 else b
    value = decoded(FORMATS["f32"], c, "ftz" in found.slots)
    return b if value.kind == "nan" or (value.negative and value != real(0, True)) else a


@handles("selp")
def _selp(found: Matched, a: int, b: int, chosen: int) -> int:
    return a if chosen else b
