"""Comparisons (predicates, one of two by a sign, the least and the largest), and bits.

Bits are counted, found, moved, shifted, permuted, and combined by tables of truth.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from papergpu.floats import decode_float
from papergpu.formats import FORMATS
from papergpu.forms import Handler, Matched, decode_integer, register_handler, type_bits
from papergpu.reals import NAN, Real, real


def _sort_key(one: Real) -> tuple[int, Fraction, int]:
    beyond = 0 if one.kind == "finite" else -1 if one.negative else 1
    return beyond, one.value, -int(one.negative)


def _evaluate_extreme(pick: Callable[..., Any], found: Matched, *values: int) -> int:
    kind = found.types[0]
    if kind[0] in "us":
        best: int = pick(decode_integer(one, kind) for one in values)
        return max(best, 0) if "relu" in found.slots else best
    shape = FORMATS[kind]
    top = shape.width - 1
    if "ftz" in found.slots:
        values = tuple(shape.flush_subnormal(one) for one in values)
    sign = sum(one >> top for one in values) & 1
    if "abs" in found.slots:
        values = tuple(one & ((1 << top) - 1) for one in values)
    numbers = [one for one in values if shape.decode(one).kind != "nan"]
    if not numbers or ("NaN" in found.slots and len(numbers) < len(values)):
        return shape.encode(NAN)
    # A zero with its sign: -0 is below +0.
    best = pick(numbers, key=lambda one: _sort_key(shape.decode(one)))
    return best & ((1 << top) - 1) | sign << top if "xorsign" in found.slots else best


def _compare_operands(found: Matched, a: int, b: int) -> bool:
    """Whether the comparison of a row holds."""
    kind, what = found.types[1], found.slots["c"]
    if kind not in FORMATS:
        unsigned = what in ("lo", "ls", "hi", "hs")
        shown = f"u{type_bits(kind)}" if unsigned else kind.replace("b", "u")
        x, y = decode_integer(a, shown), decode_integer(b, shown)
        name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(what, what)
        return _compare_keys(name, (0, Fraction(x)), (0, Fraction(y)))
    shape, ftz = FORMATS[kind], "ftz" in found.slots
    p, q = decode_float(shape, a, ftz), decode_float(shape, b, ftz)
    either = "nan" in (p.kind, q.kind)
    if what in ("num", "nan"):
        return either == (what == "nan")
    if either:
        return what.endswith("u")
    return _compare_keys(what.removesuffix("u"), _sort_key(p)[:2], _sort_key(q)[:2])


def _compare_keys(what: str, x: tuple[int, Fraction], y: tuple[int, Fraction]) -> bool:
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[what]


def combine_predicate(found: Matched, holds: bool, other: int) -> int:
    """A comparison combined with a predicate, if the row has one."""
    one, other = int(holds), other & 1
    return {"and": one & other, "or": one | other, "xor": one ^ other}.get(
        found.slots.get("o", ""), one
    )


@register_handler("setp")
def _evaluate_setp(found: Matched, a: int, b: int, other: int = 0) -> tuple[int, int]:
    holds = _compare_operands(found, a, b)
    return combine_predicate(found, holds, other), combine_predicate(found, not holds, other)


@register_handler("set")
def _evaluate_set(found: Matched, a: int, b: int, other: int = 0) -> int:
    kind = found.types[0]
    true = FORMATS[kind].encode(real(1)) if kind in FORMATS else -1
    return true if combine_predicate(found, _compare_operands(found, a, b), other) else 0


@register_handler("slct")
def _evaluate_slct(found: Matched, a: int, b: int, c: int) -> int:
    if found.slots["t"] == "s32":
        return a if decode_integer(c, "s32") >= 0 else b
    value = decode_float(FORMATS["f32"], c, "ftz" in found.slots)
    return b if value.kind == "nan" or (value.negative and value != real(0, True)) else a


# ---- bits


@register_handler("bfind")
def _evaluate_bfind(found: Matched, a: int) -> int:
    kind = found.types[1]
    if kind[0] == "s" and a >> (type_bits(kind) - 1):
        a = ~a & ((1 << type_bits(kind)) - 1)
    if not a:
        return -1
    return type_bits(kind) - a.bit_length() if "shiftamt" in found.slots else a.bit_length() - 1


@register_handler("fns")
def _evaluate_fns(found: Matched, mask: int, base: int, offset: int) -> int:
    """The bit that is the `offset`th from `base`; a base beyond the mask has none."""
    steps = decode_integer(offset, "s32")
    if not steps:
        return base if base < 32 and mask >> base & 1 else -1
    order = range(base, 32) if steps > 0 else range(base, -1, -1)
    there = [at for at in order if mask >> at & 1] if base < 32 else []
    return there[abs(steps) - 1] if len(there) >= abs(steps) else -1


@register_handler("bmsk")
def _evaluate_bmsk(found: Matched, a: int, b: int) -> int:
    """`b` ones from bit `a` on; nothing beyond 31, and where clamped all of them if b is."""
    if found.slots["m"] == "clamp":
        if a >= 32:
            return 0
    else:
        a, b = a & 31, b & 31
    return ((1 << min(b, 32)) - 1) << a


@register_handler("szext")
def _evaluate_szext(found: Matched, a: int, b: int) -> int:
    size = b & 31 if found.slots["m"] == "wrap" or b < 32 else 32
    return decode_integer(a & ((1 << size) - 1), f"{found.types[0][0]}{size}") if size else 0


@register_handler("bfe")
def _evaluate_bfe(found: Matched, a: int, start: int, length: int) -> int:
    kind = found.types[0]
    size = type_bits(kind)
    start, length = start & 255, length & 255
    last = min(start + length - 1, size - 1)
    fill = 0 if kind[0] == "u" or not length else a >> last & 1
    taken = [a >> start + i & 1 if i < length and start + i < size else fill for i in range(size)]
    return sum(bit << i for i, bit in enumerate(taken))


@register_handler("bfi")
def _evaluate_bfi(found: Matched, a: int, b: int, start: int, length: int) -> int:
    size = type_bits(found.types[0])
    start, length = start & 255, length & 255
    for i in range(length):
        if start + i < size:
            b = b & ~(1 << start + i) | (a >> i & 1) << start + i
    return b


@register_handler("lop3")
def _evaluate_lop3(
    found: Matched, a: int, b: int, c: int, table: int, other: int = 0
) -> int | tuple[int, ...]:
    bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1 for i in range(32))
    made = sum(bit << i for i, bit in enumerate(bits))
    return (made, combine_predicate(found, made != 0, other)) if "o" in found.slots else made


@register_handler("shf")
def _evaluate_shf(found: Matched, low: int, high: int, by: int) -> int:
    by = by & 31 if found.slots["m"] == "wrap" else min(by, 32)
    both = high << 32 | low
    return both << by >> 32 if found.slots["s"] == "l" else both >> by


# Which of the eight bytes each of the four is, by the mode and the two bits of its operand.
MODES: dict[str, tuple[str, str, str, str]] = {  # as the ISA's table has them, highest byte first
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


@register_handler("prmt")
def _evaluate_prmt(found: Matched, a: int, b: int, choice: int) -> int:
    both, result = b << 32 | a, 0
    if "m" in found.slots:
        bytes_ = [both >> 8 * int(n) & 255 for n in MODES[found.slots["m"]][choice & 3]]
        return bytes_[0] << 24 | bytes_[1] << 16 | bytes_[2] << 8 | bytes_[3]
    for i in range(4):
        chosen = choice >> 4 * i & 15
        byte = both >> 8 * (chosen & 7) & 255
        if chosen & 8:  # its sign alone, eight times
            byte = 255 if byte >> 7 else 0
        result |= byte << 8 * i
    return result


BRIEF: dict[str, Handler] = {
    "min": partial(_evaluate_extreme, min),
    "max": partial(_evaluate_extreme, max),
    "selp": lambda found, a, b, chosen: a if chosen else b,
    "popc": lambda found, a: a.bit_count(),
    "clz": lambda found, a: type_bits(found.types[1]) - a.bit_length(),
    "brev": lambda found, a: int(f"{a:0{type_bits(found.types[0])}b}"[::-1], 2),
    "cnot": lambda found, a: int(not a),
    "and": lambda found, a, b: a & b,
    "or": lambda found, a, b: a | b,
    "xor": lambda found, a, b: a ^ b,
    "not": lambda found, a: ~a,
    "shl": lambda found, a, by: a << min(by, 64),
    "shr": lambda found, a, by: decode_integer(a, found.types[0]) >> min(by, 64),
    "mov": lambda found, a: a,
}
for _opcode, _handler in BRIEF.items():
    register_handler(_opcode)(_handler)
