"""What one thread's instructions compute, as plainly as it can be said: the truth for quick code.

Operands and results are bit patterns, as Python integers without sign. Integers are computed
without bounds and cut once, floats as fractions and rounded once, so nothing here can share a
rounding error, an overflow or a vectorised shortcut with an engine. It is far slower, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from papergpu.conversions import converted
from papergpu.formats import FORMATS, NEAREST, Format, saturated
from papergpu.forms import Matched, find
from papergpu.kinds import clamped, whole, width
from papergpu.reals import NAN, Real, opposite, over, plus, real, root, times

Handler = Callable[..., int]
HANDLERS: dict[str, Handler] = {"cvt": converted}


def evaluate(written: str, *operands: int) -> int:
    """The result of the form `written`, such as `add.rn.f32`, of operands given by their bits.

    Raises:
        Unknown: no row of the table of forms has it.
    """
    found = find(written)
    result = HANDLERS[written.partition(".")[0]](found, *operands)
    return result & ((1 << width(found.types[0])) - 1)


def handles(name: str) -> Callable[[Handler], Handler]:
    """The function below executes the forms of that opcode."""

    def note(handler: Handler) -> Handler:
        HANDLERS[name] = handler
        return handler

    return note


# Integers.


def _integers(found: Matched, values: Sequence[int]) -> list[int]:
    return [whole(bits, kind) for bits, kind in zip(values, found.types[1:], strict=True)]


def _pairs(found: Matched, a: int, b: int, sign: int) -> int:
    halves = [((a >> at) + sign * (b >> at)) & 0xFFFF for at in (0, 16)]
    return halves[0] | halves[1] << 16


def _sum(found: Matched, a: int, b: int, sign: int) -> int:
    kind = found.types[0]
    if kind[0] in "fb":
        return _float(found, lambda x, y: plus(x, opposite(y) if sign < 0 else y), a, b)
    if kind.endswith("x2"):
        return _pairs(found, a, b, sign)
    x, y = _integers(found, (a, b))
    value = x + sign * y
    return clamped(value, kind) if "sat" in found.slots else value


@handles("add")
def _add(found: Matched, a: int, b: int) -> int:
    return _sum(found, a, b, 1)


@handles("sub")
def _sub(found: Matched, a: int, b: int) -> int:
    return _sum(found, a, b, -1)


@handles("mul")
def _mul(found: Matched, a: int, b: int) -> int:
    if found.types[0][0] in "fb":
        return _float(found, times, a, b)
    x, y = _integers(found, (a, b))
    return x * y >> (width(found.types[1]) if found.slots.get("h") == "hi" else 0)


@handles("mad")
def _mad(found: Matched, a: int, b: int, c: int) -> int:
    x, y, z = _integers(found, (a, b, c))
    high = found.slots.get("h", "hi" if "hi" in found.slots else "") == "hi"
    value = (x * y >> (width(found.types[1]) if high else 0)) + z
    return clamped(value, "s32") if "sat" in found.slots else value


@handles("div")
def _div(found: Matched, a: int, b: int) -> int:
    if found.types[0][0] == "f":
        return _float(found, over, a, b)
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
    return _signed(found, a, lambda sign: 0)


@handles("neg")
def _neg(found: Matched, a: int) -> int:
    kind = found.types[0]
    if kind[0] == "s":
        return -whole(a, kind)
    return _signed(found, a, lambda sign: 1 - sign)


def _signed(found: Matched, a: int, change: Callable[[int], int]) -> int:
    """A float with another sign, its NaN untouched but for `.ftz`."""
    kind = FORMATS[found.types[0]]
    a = kind.zeroed(a) if "ftz" in found.slots else a
    top = kind.width - 1
    return a & ((1 << top) - 1) | change(a >> top & 1) << top


@handles("copysign")
def _copysign(found: Matched, a: int, b: int) -> int:
    top = width(found.types[0]) - 1
    return b & ((1 << top) - 1) | (a >> top & 1) << top


def _extreme(found: Matched, a: int, b: int, largest: bool) -> int:
    kind = found.types[0]
    if kind[0] in "us":
        return (max if largest else min)(*_integers(found, (a, b)))
    shape = FORMATS[kind]
    if "ftz" in found.slots:
        a, b = shape.zeroed(a), shape.zeroed(b)
    x, y = shape.decode(a), shape.decode(b)
    if "nan" in (x.kind, y.kind):
        if "NaN" in found.slots or x.kind == y.kind:
            return shape.encode(NAN)
        return b if x.kind == "nan" else a
    # A zero with its sign: -0 is below +0.
    return a if (_order(x) >= _order(y)) == largest else b


def _order(one: Real) -> tuple[int, Fraction, int]:
    beyond = 0 if one.kind == "finite" else -1 if one.negative else 1
    return beyond, one.value, -int(one.negative)


@handles("min")
def _min(found: Matched, a: int, b: int) -> int:
    return _extreme(found, a, b, False)


@handles("max")
def _max(found: Matched, a: int, b: int) -> int:
    return _extreme(found, a, b, True)


@handles("popc")
def _popc(found: Matched, a: int) -> int:
    return a.bit_count()


@handles("clz")
def _clz(found: Matched, a: int) -> int:
    return width(found.types[1]) - a.bit_length()


@handles("brev")
def _brev(found: Matched, a: int) -> int:
    size = width(found.types[0])
    return int(f"{a:0{size}b}"[::-1], 2)


@handles("bfe")
def _bfe(found: Matched, a: int, start: int, length: int) -> int:
    kind = found.types[0]
    size = width(kind)
    start, length = start & 255, length & 255
    last = min(start + length - 1, size - 1)
    fill = 0 if kind[0] == "u" or not length else a >> last & 1
    taken = [a >> start + i & 1 if i < length and start + i < size else fill for i in range(size)]
    return sum(bit << i for i, bit in enumerate(taken))


@handles("bfi")
def _bfi(found: Matched, a: int, b: int, start: int, length: int) -> int:
    size = width(found.types[0])
    start, length = start & 255, length & 255
    for i in range(length):
        if start + i < size:
            b = b & ~(1 << start + i) | (a >> i & 1) << start + i
    return b


# Floats.


def rounded(shape: Format, value: Real, mode: str) -> int:
    """`value` in a format; a sum that cancels is -0 when rounding down and +0 otherwise."""
    if value.kind == "cancelled":
        value = Real(mode == "rm")
    return shape.encode(value, mode)


def _float(found: Matched, operation: Callable[..., Real], *operands: int) -> int:
    """An operation on floats of one format: flush, compute, round, flush, saturate."""
    shape = FORMATS[found.types[0]]
    ftz = "ftz" in found.slots
    given = [shape.decode(shape.zeroed(bits) if ftz else bits) for bits in operands]
    bits = rounded(shape, operation(*given), found.slots.get("r", NEAREST))
    if ftz:
        bits = shape.zeroed(bits)
    return saturated(shape, bits) if "sat" in found.slots else bits


@handles("fma")
def _fma(found: Matched, a: int, b: int, c: int) -> int:
    return _float(found, lambda x, y, z: plus(times(x, y), z), a, b, c)


@handles("rcp")
def _rcp(found: Matched, a: int) -> int:
    return _float(found, lambda x: over(real(1), x), a)


@handles("sqrt")
def _sqrt(found: Matched, a: int) -> int:
    return _float(found, root, a)


# Comparisons, selections and bits.


@handles("setp")
def _setp(found: Matched, a: int, b: int) -> int:
    kind, what = found.types[1], found.slots["c"]
    if kind not in FORMATS:
        signed = kind.replace("b", "u")
        x, y = whole(a, signed), whole(b, signed)
        if what in ("lo", "ls", "hi", "hs"):
            x, y = whole(a, f"u{width(kind)}"), whole(b, f"u{width(kind)}")
        name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(what, what)
        return _compared(name, (0, Fraction(x)), (0, Fraction(y)))
    shape = FORMATS[kind]
    if "ftz" in found.slots:
        a, b = shape.zeroed(a), shape.zeroed(b)
    p, q = shape.decode(a), shape.decode(b)
    either = "nan" in (p.kind, q.kind)
    if what in ("num", "nan"):
        return int(either == (what == "nan"))
    if either:
        return int(what.endswith("u"))
    return _compared(what.removesuffix("u"), _order(p)[:2], _order(q)[:2])


def _compared(what: str, x: tuple[int, Fraction], y: tuple[int, Fraction]) -> int:
    return int(
        {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[what]
    )


@handles("selp")
def _selp(found: Matched, a: int, b: int, chosen: int) -> int:
    return a if chosen else b


@handles("and")
def _and(found: Matched, a: int, b: int) -> int:
    return a & b


@handles("or")
def _or(found: Matched, a: int, b: int) -> int:
    return a | b


@handles("xor")
def _xor(found: Matched, a: int, b: int) -> int:
    return a ^ b


@handles("not")
def _not(found: Matched, a: int) -> int:
    return ~a


@handles("lop3")
def _lop3(found: Matched, a: int, b: int, c: int, table: int) -> int:
    bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1 for i in range(32))
    return sum(bit << i for i, bit in enumerate(bits))


@handles("shl")
def _shl(found: Matched, a: int, by: int) -> int:
    return a << min(by, 64)


@handles("shr")
def _shr(found: Matched, a: int, by: int) -> int:
    return whole(a, found.types[0]) >> min(by, 64)


@handles("shf")
def _shf(found: Matched, low: int, high: int, by: int) -> int:
    by = by & 31 if found.slots["m"] == "wrap" else min(by, 32)
    both = high << 32 | low
    return both << by >> 32 if found.slots["s"] == "l" else both >> by


@handles("prmt")
def _prmt(found: Matched, a: int, b: int, choice: int) -> int:
    both, result = b << 32 | a, 0
    for i in range(4):
        chosen = choice >> 4 * i & 15
        byte = both >> 8 * (chosen & 7) & 255
        if chosen & 8:  # its sign alone, eight times
            byte = 255 if byte >> 7 else 0
        result |= byte << 8 * i
    return result


@handles("mov")
def _mov(found: Matched, a: int) -> int:
    return a
