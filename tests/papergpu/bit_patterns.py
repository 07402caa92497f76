"""Patterns to try of each type: edges, where something happens, and random ones."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
from papergpu.formats import FORMATS
from papergpu.forms import type_bits
from papergpu.reals import real

Values = npt.NDArray[np.uint64]
SMALL = {"e4m3x2": 8, "e5m2x2": 8, "e2m3x2": 6, "e3m2x2": 6, "e2m1x2": 4, "ue8m0x2": 8}


@cache
def list_edges(kind: str) -> list[int]:
    """Patterns of a type at which something happens."""
    if kind in FORMATS:
        shape = FORMATS[kind]
        one = shape.encode(real(1))
        unit = 1 << shape.saved
        top = 1 << (shape.width - 1)
        inf = shape.max_finite + 1 << shape.saved
        near = [0, unit, (1 << shape.mantissa) - 1 << shape.saved,
                1 << shape.mantissa + shape.saved,
                one - unit, one, one + unit, shape.encode(real(2)), shape.encode(real(3)),
                shape.encode(real(Fraction(1, 2))), shape.encode(real(Fraction(5, 2))),
                shape.max_finite << shape.saved, inf, inf + unit, shape.nan or inf]  # fmt: skip
        return near + [value | top for value in near]
    size = type_bits(kind)
    numbers = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000,
               0x12345678, (1 << size - 1) - 1, 1 << size - 1, (1 << size - 1) + 1]  # fmt: skip
    return [one % (1 << size) for number in numbers for one in (number, -number)]


def draw_patterns(kind: str, count: int, random: np.random.Generator) -> Values:
    """Patterns of a type: edges, and random ones, floats of exponents near one another too."""
    if kind in ("pred", "preds"):
        return random.integers(0, 2, count, np.uint64)
    if kind.endswith("x2"):
        size = SMALL.get(kind) or type_bits(kind) // 2
        shift = 4 if kind == "e2m1x2" else 8 if kind in SMALL else size
        single = f"u{size}" if kind in SMALL else kind.removesuffix("x2")
        halves = [draw_patterns(single, count, random) for _ in range(2)]
        return halves[0] | halves[1] << np.uint64(shift)
    size = type_bits(kind)
    chosen = random.integers(0, 1 << size, count, np.uint64, endpoint=False) if size < 64 else (
        random.integers(0, 1 << 64, count, np.uint64))  # fmt: skip
    known = np.array(list_edges(kind), np.uint64)
    picked = known[random.integers(0, len(known), count)]
    how = random.random(count)
    if kind in FORMATS:  # exponents about that of 1
        shape = FORMATS[kind]
        exponent = shape.bias + random.integers(-6, 7, count)
        field = np.uint64(((1 << shape.exponent) - 1) << shape.mantissa + shape.saved)
        moved = exponent.astype(np.uint64) << np.uint64(shape.mantissa + shape.saved)
        close = (chosen & ~field) | (moved & field)
        return np.where(how < 0.4, picked, np.where(how < 0.75, close, chosen))
    small = chosen & np.uint64(31)
    return np.where(how < 0.5, picked, np.where(how < 0.6, small, chosen))
