"""Bits: counted, found, moved, shifted, permuted, and combined by tables of truth."""

from __future__ import annotations

from papergpu.comparisons import combined
from papergpu.forms import Matched
from papergpu.handlers import handles
from papergpu.kinds import whole, width


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
    found: Matched, a: int, b: int, c: int, table: int, other: int = 0
) -> int | tuple[int, ...]:
    bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1 for i in range(32))
    made = sum(bit << i for i, bit in enumerate(bits))
    return (made, combined(found, made != 0, other)) if "o" in found.slots else made


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
