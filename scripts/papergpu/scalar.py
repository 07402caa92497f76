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
from papergpu.functions import logarithm, power_of_two, sine, tangent
from papergpu.kinds import clamped, whole, width
from papergpu.reals import NAN, Real, infinity, opposite, over, plus, real, root, times

Handler = Callable[..., int | tuple[int, ...]]
HANDLERS: dict[str, Handler] = {"cvt": converted}


def evaluate(written: str, *operands: int) -> int:
    """The result of the form `written`, such as `add.rn.f32`, of operands given by their bits.

    Raises:
        Unknown: no row of the table of forms has it.
    """
    return results(written, *operands)[0]


def results(written: str, *operands: int) -> tuple[int, ...]:
    """All results of a form: the second is a carry, or another predicate.

    What takes a carry has it as its last operand.
    """
    words = written.split(".")
    pair = next((word for word in words if word in PAIRS), "")
    if pair and words[0] != "cvt":
        return _in_pairs(words, pair, operands)
    found = find(written, len(operands) + 1 - (words[0] in CARRIED or "cc" in words))
    given = HANDLERS[words[0]](found, *operands)
    made = given if isinstance(given, tuple) else (given,)
    kinds = (found.types[0].replace("bool", "b32"), *("b32" for _ in made[1:]))
    return tuple(one & ((1 << width(kind)) - 1) for one, kind in zip(made, kinds, strict=True))


PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32", "u16x2": "u16", "s16x2": "s16"}
CARRIED = ("addc", "subc", "madc")


def _in_pairs(words: list[str], pair: str, operands: Sequence[int]) -> tuple[int, ...]:
    """What is done to both halves apart."""
    single = {**PAIRS, "u32": "u16", "s32": "s16"}
    relu = words[0] in ("min", "max") and "relu" in words
    form = ".".join(single.get(word, word) for word in words if not (relu and word == "relu"))
    size = 2 * width(PAIRS[pair])
    both = words[0] == "setp"
    halves = []
    for at in (0, size // 2):
        part = [bits >> at & ((1 << size // 2) - 1) for bits in operands]
        if words[0] in ("setp", "set") and len(operands) > 2:
            part[2] = operands[2]  # the predicate that both are combined with
        made = evaluate(form, *part)
        halves.append(0 if relu and made >> (size // 2 - 1) else made)
    if both:
        return halves[0], halves[1]
    return (halves[0] | halves[1] << size // 2,)


def handles(name: str) -> Callable[[Handler], Handler]:
    """The function below executes the forms of that opcode."""

    def note(handler: Handler) -> Handler:
        HANDLERS[name] = handler
        return handler

    return note


# Integers.


def _integers(found: Matched, values: Sequence[int]) -> list[int]:
    return [whole(bits, kind) for bits, kind in zip(values, found.types[1:], strict=True)]


def _sum(found: Matched, a: int, b: int, sign: int, carry: int = 0) -> int | tuple[int, ...]:
    kind = found.types[0]
    if kind[0] in "fb":
        if "d" in found.slots:
            return _mixed(found, lambda x, y: plus(x, opposite(y) if sign < 0 else y), a, b)
        return _float(found, lambda x, y: plus(x, opposite(y) if sign < 0 else y), a, b)
    if "cc" in found.slots or found.form.name in ("addc", "subc"):
        size = width(kind)
        value = a + sign * (b + (carry if found.form.name in ("addc", "subc") else 0))
        return value, (value >> size & 1 if "cc" in found.slots else carry)
    x, y = _integers(found, (a, b))
    value = x + sign * y
    return clamped(value, kind) if "sat" in found.slots else value


@handles("add")
def _add(found: Matched, a: int, b: int, carry: int = 0) -> int | tuple[int, ...]:
    return _sum(found, a, b, 1, carry)


@handles("sub")
def _sub(found: Matched, a: int, b: int, carry: int = 0) -> int | tuple[int, ...]:
    return _sum(found, a, b, -1, carry)


HANDLERS["addc"], HANDLERS["subc"] = _add, _sub


@handles("mul")
def _mul(found: Matched, a: int, b: int) -> int:
    if found.types[0][0] in "fb":
        return _float(found, times, a, b)
    x, y = _integers(found, (a, b))
    return x * y >> (width(found.types[1]) if found.slots.get("h") == "hi" else 0)


@handles("mad")
def _mad(found: Matched, a: int, b: int, c: int, carry: int = 0) -> int | tuple[int, ...]:
    if found.types[0][0] == "f":
        return _float(found, lambda x, y, z: plus(times(x, y), z), a, b, c)
    x, y, z = _integers(found, (a, b, c))
    high = found.slots.get("h", "hi" if "hi" in found.slots else "") == "hi"
    size = width(found.types[1])
    value = x * y >> (size if high else 0)
    if "cc" in found.slots or found.form.name == "madc":
        value = (value & ((1 << size) - 1)) + c
        value += carry if found.form.name == "madc" else 0
        return value, (value >> size if "cc" in found.slots else carry)
    return clamped(value + z, "s32") if "sat" in found.slots else value + z


HANDLERS["madc"] = _mad


def _of_24(found: Matched, bits: int) -> int:
    """The lower 24 bits, with their sign where the type has one."""
    low = bits & 0xFFFFFF
    return low - (1 << 24) if found.types[0] == "s32" and low >> 23 else low


def _product_of_24(found: Matched, a: int, b: int) -> int:
    high = found.slots.get("h", "hi") == "hi"
    return _of_24(found, a) * _of_24(found, b) >> (16 if high else 0)


HANDLERS["mul24"] = _product_of_24


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
        return _approximated(found, a, b) if "k" in found.slots else _float(found, over, a, b)
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


def _extreme(found: Matched, values: Sequence[int], largest: bool) -> int:
    kind = found.types[0]
    if kind[0] in "us":
        best = (max if largest else min)(*_integers(found, values))
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


def _order(one: Real) -> tuple[int, Fraction, int]:
    beyond = 0 if one.kind == "finite" else -1 if one.negative else 1
    return beyond, one.value, -int(one.negative)


@handles("min")
def _min(found: Matched, *values: int) -> int:
    return _extreme(found, values, False)


@handles("max")
def _max(found: Matched, *values: int) -> int:
    return _extreme(found, values, True)


def _vabsdiff(found: Matched, a: int, b: int, c: int) -> int:
    """By halves or bytes; `.add` sums them onto c, which otherwise no part of the result is."""
    size = 16 if found.slots["v"] == "vabsdiff2" else 8
    parts = [
        abs(x - y) for x, y in zip(_parts(a, "u32", size), _parts(b, "u32", size), strict=True)
    ]
    if "add" in found.slots:
        return c + sum(parts)
    return sum(part << size * at for at, part in enumerate(parts))


HANDLERS["vabsdiff2"] = HANDLERS["vabsdiff4"] = _vabsdiff


@handles("popc")
def _popc(found: Matched, a: int) -> int:
    return a.bit_count()


@handles("clz")
def _clz(found: Matched, a: int) -> int:
    return width(found.types[1]) - a.bit_length()


@handles("bfind")
def _bfind(found: Matched, a: int) -> int:
    kind = found.types[1]
    if kind[0] == "s" and a >> (width(kind) - 1):
        a = ~a & ((1 << width(kind)) - 1)
    if not a:
        return -1
    return width(kind) - a.bit_length() if "shiftamt" in found.slots else a.bit_length() - 1


@handles("fns")
def _fns(found: Matched, mask: int, base: int, offset: int) -> int:
    """The bit that is the `offset`th from `base`; a base beyond the mask has none."""
    steps = whole(offset, "s32")
    if not steps:
        return base if base < 32 and mask >> base & 1 else -1
    order = range(base, 32) if steps > 0 else range(base, -1, -1)
    there = [at for at in order if mask >> at & 1] if base < 32 else []
    return there[abs(steps) - 1] if len(there) >= abs(steps) else -1


@handles("bmsk")
def _bmsk(found: Matched, a: int, b: int) -> int:
    """`b` ones from bit `a` on; nothing beyond 31, and where clamped all of them if b is."""
    if found.slots["m"] == "clamp":
        if a >= 32:
            return 0
    else:
        a, b = a & 31, b & 31
    return ((1 << min(b, 32)) - 1) << a


@handles("szext")
def _szext(found: Matched, a: int, b: int) -> int:
    size = b & 31 if found.slots["m"] == "wrap" or b < 32 else 32
    return whole(a & ((1 << size) - 1), f"{found.types[0][0]}{size}") if size else 0


@handles("cnot")
def _cnot(found: Matched, a: int) -> int:
    return int(not a)


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
    return _made(found, shape, operation(*given))


def _made(found: Matched, shape: Format, value: Real) -> int:
    bits = rounded(shape, value, found.slots.get("r", NEAREST))
    if "ftz" in found.slots:
        bits = shape.zeroed(bits)
    if "relu" in found.slots and bits >> (shape.width - 1) and shape.decode(bits).kind != "nan":
        return 0
    return saturated(shape, bits) if "sat" in found.slots else bits


def _mixed(found: Matched, operation: Callable[..., Real], *operands: int) -> int:
    """An operation on floats of several formats, rounded to that of the result."""
    given = [FORMATS[kind].decode(b) for b, kind in zip(operands, found.types[1:], strict=True)]
    return _made(found, FORMATS[found.types[0]], operation(*given))


@handles("fma")
def _fma(found: Matched, a: int, b: int, c: int) -> int:
    fused = _mixed if "d" in found.slots else _float
    return fused(found, lambda x, y, z: plus(times(x, y), z), a, b, c)


@handles("rcp")
def _rcp(found: Matched, a: int) -> int:
    return _approximated(found, a) if "k" in found.slots else _float(found, inverse, a)


@handles("sqrt")
def _sqrt(found: Matched, a: int) -> int:
    return _approximated(found, a) if "k" in found.slots else _float(found, root, a)


@handles("testp")
def _testp(found: Matched, a: int) -> int:
    shape = FORMATS[found.slots["t"]]
    kind, tiny = shape.decode(a).kind, shape.subnormal(a)
    return int({"finite": kind == "finite", "infinite": kind == "infinite",
                "number": kind != "nan", "notanumber": kind == "nan",
                "normal": kind == "finite" and not tiny,
                "subnormal": tiny}[found.slots["o"]])  # fmt: skip


# Approximations: their exact values, rounded once, and how far the PTX ISA lets them be away.


def inverse(x: Real) -> Real:
    """One by x."""
    return over(real(1), x)


def _by(function: Callable[[Fraction], Fraction], at_infinity: Real, x: Real) -> Real:
    """A function of finite numbers, with what it is at infinity; of a zero it is that zero."""
    if x.kind == "nan":
        return NAN
    if x.kind == "infinite":
        return at_infinity
    return x if not x.magnitude else real(function(x.value))


def _ex2(x: Real) -> Real:
    if x.kind == "infinite":
        return real(0) if x.negative else x
    if x.kind == "finite" and abs(x.value) > 2000:
        return real(Fraction(2) ** (-2000 if x.negative else 2000))
    return real(1) if x.kind == "finite" and not x.magnitude else _by(power_of_two, NAN, x)


def _lg2(x: Real) -> Real:
    if x.kind == "finite" and not x.magnitude:
        return infinity(True)
    return NAN if x.negative else _by(logarithm, x, x)


def _cos(x: Real) -> Real:
    if x.kind == "finite" and not x.magnitude:
        return real(1)
    return _by(lambda value: sine(value, 1), NAN, x)


EXACT: dict[str, Callable[[Real], Real]] = {
    "rcp": inverse, "sqrt": root, "rsqrt": lambda x: inverse(root(x)), "ex2": _ex2, "lg2": _lg2,
    "sin": lambda x: _by(sine, NAN, x), "cos": _cos,
    "tanh": lambda x: _by(tangent, real(-1 if x.negative else 1), x),
}  # fmt: skip
# The upper half of an f64, as rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 know it.
UPPER = Format("upper", 11, 20, nan=0x7FF80000, saved=32)


def exactly(written: str, *operands: int) -> Real:
    """What an approximate instruction is an approximation of."""
    found = find(written)
    shape, ftz = _approximate(found)
    given = [shape.decode(shape.zeroed(bits) if ftz else bits) for bits in operands]
    opcode = written.partition(".")[0]
    if opcode != "div":
        return EXACT[opcode](*given)
    a, b = given
    beyond = b.kind == "finite" and b.magnitude > Fraction(2) ** 126
    if found.slots["k"] == "approx" and beyond:
        return times(a, Real(b.negative))  # by a reciprocal that is flushed
    return over(a, b)


def _approximate(found: Matched) -> tuple[Format, bool]:
    kind, ftz = found.types[0], "ftz" in found.slots
    return (UPPER if ftz and kind == "f64" else FORMATS[kind]), ftz


def _approximated(found: Matched, *operands: int) -> int:
    shape, ftz = _approximate(found)
    form = ".".join(found.slots.values())
    bits = shape.encode(exactly(form, *operands))
    return shape.zeroed(bits) if ftz else bits


for _name in ("rsqrt", "sin", "cos", "lg2", "ex2", "tanh"):
    HANDLERS[_name] = _approximated


def allowed(written: str, *operands: int) -> Fraction:
    """How far an approximate instruction may be from `exactly` what it approximates."""
    found = find(written)
    opcode, kind = written.partition(".")[0], found.types[0]
    x, y = FORMATS[kind].decode(operands[0]), exactly(written, *operands)
    if kind != "f32":
        relative, absolute = {
            ("ex2", "f16"): (2**-9.9, 0.0), ("ex2", "bf16"): (2**-7, 0.0),
            ("tanh", "f16"): (0.0, 2**-10.987), ("tanh", "bf16"): (0.0, 2**-8),
        }.get((opcode, kind), (0.0, 0.0))  # fmt: skip
    else:
        ulp = 2.0 ** (max(_power(y), -126) - 23)
        wave = 2**-20.5 if abs(x.value) <= Fraction(2 * 3.141592653589793) else 2**-14.7
        near = Fraction(1, 2) < x.value < 2
        relative, absolute = {
            "rcp": (0.0, ulp), "div": (0.0, 2 * ulp), "ex2": (0.0, 2 * ulp), "sqrt": (2**-23, 0.0),
            "rsqrt": (2**-22.9, 0.0), "sin": (0.0, wave), "cos": (0.0, wave),
            "lg2": (0.0, 2**-22) if near else (2**-22, 0.0), "tanh": (2**-11, 0.0),
        }[opcode]  # fmt: skip
    return Fraction(relative) * y.magnitude + Fraction(absolute)


def _power(y: Real) -> int:
    """The exponent of the power of two below a number."""
    if not y.magnitude:
        return -1000
    power = y.magnitude.numerator.bit_length() - y.magnitude.denominator.bit_length()
    return power - (y.magnitude < Fraction(2) ** power)


# Comparisons, selections and bits.


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
    shape = FORMATS[kind]
    if "ftz" in found.slots:
        a, b = shape.zeroed(a), shape.zeroed(b)
    p, q = shape.decode(a), shape.decode(b)
    either = "nan" in (p.kind, q.kind)
    if what in ("num", "nan"):
        return either == (what == "nan")
    if either:
        return what.endswith("u")
    return _compared(what.removesuffix("u"), _order(p)[:2], _order(q)[:2])


def _with(found: Matched, holds: bool, combined: int) -> int:
    """A comparison combined with a predicate, if the row has one."""
    one, other = int(holds), combined & 1
    return {"and": one & other, "or": one | other, "xor": one ^ other}.get(
        found.slots.get("o", ""), one
    )


@handles("setp")
def _setp(found: Matched, a: int, b: int, combined: int = 0) -> tuple[int, int]:
    holds = _holds(found, a, b)
    return _with(found, holds, combined), _with(found, not holds, combined)


@handles("set")
def _set(found: Matched, a: int, b: int, combined: int = 0) -> int:
    kind = found.types[0]
    true = FORMATS[kind].encode(real(1)) if kind in FORMATS else -1
    return true if _with(found, _holds(found, a, b), combined) else 0


@handles("slct")
def _slct(found: Matched, a: int, b: int, c: int) -> int:
    if found.slots["t"] == "s32":
        return a if whole(c, "s32") >= 0 else b
    shape = FORMATS["f32"]
    value = shape.decode(shape.zeroed(c) if "ftz" in found.slots else c)
    return b if value.kind == "nan" or (value.negative and value != real(0, True)) else a


def _compared(what: str, x: tuple[int, Fraction], y: tuple[int, Fraction]) -> bool:
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[what]


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
def _lop3(
    found: Matched, a: int, b: int, c: int, table: int, combined: int = 0
) -> int | tuple[int, ...]:
    bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1 for i in range(32))
    made = sum(bit << i for i, bit in enumerate(bits))
    return (made, _with(found, made != 0, combined)) if "o" in found.slots else made


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


# Which of the eight bytes each of the four is, by the mode and the two bits of its operand.
MODES: dict[str, tuple[str, str, str, str]] = {  # as the ISA's table has them, highest byte first
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


@handles("prmt")
def _prmt(found: Matched, a: int, b: int, choice: int) -> int:
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


@handles("mov")
def _mov(found: Matched, a: int) -> int:
    return a
