"""Small floats: every value that eight, six and four bits hold, and rounding to them.

Shapes  a format has a sign, some bits of exponent and some of mantissa; field 0 of the
        exponent is for subnormals, and what its highest field means differs
Error   of a normal value at most half of its last place, 2**-(mantissa + 1) relative;
        of a smaller one half of the smallest subnormal
Raises  ValueError for NaN, which has no nearest value
Source  fp8-formats, microscaling
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from math import copysign, isnan


# --8<-- [start:model]
@dataclass(frozen=True)
class Format:
    """A small float. `taken`: patterns at the top that are no finite value."""

    name: str
    exponent: int  # bits
    mantissa: int  # bits
    taken: int  # for infinity and NaN, of either sign

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent's field."""
        return 2 ** (self.exponent - 1) - 1

    def value(self, pattern: int) -> float:
        """The value of the lower bits `pattern`, without a sign."""
        field, fraction = divmod(pattern, 2**self.mantissa)
        lead = fraction / 2**self.mantissa
        if field == 0:
            return lead * 2.0 ** (1 - self.bias)
        return (1 + lead) * 2.0 ** (field - self.bias)

    @cached_property
    def values(self) -> list[float]:
        """All finite values from 0 on, in order; so in the order of their patterns."""
        count = 2 ** (self.exponent + self.mantissa) - self.taken
        return [self.value(pattern) for pattern in range(count)]

    @property
    def largest(self) -> float:
        return self.values[-1]

    @property
    def smallest(self) -> float:
        """The smallest subnormal."""
        return self.values[1]

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    def cast(self, x: float) -> float:
        """The nearest value; halfway the one with an even pattern; saturating."""
        if isnan(x):
            raise ValueError("float_formats: NaN has no nearest value")
        size = min(abs(x), self.largest)
        above = bisect_left(self.values, size)
        near = above
        if self.values[above] != size:
            below, gap = above - 1, self.values[above] - size
            other = size - self.values[below]
            if other < gap or (other == gap and below % 2 == 0):
                near = below
        return copysign(self.values[near], x)

    def spacing(self, x: float) -> float:
        """The distance to the next larger value, from 0 up to the largest."""
        above = bisect_left(self.values, x)
        low = above if self.values[above] == x else above - 1
        return self.values[low + 1] - self.values[low]


E4M3 = Format("E4M3", 4, 3, taken=1)  # NaN alone, in place of 480
E5M2 = Format("E5M2", 5, 2, taken=4)  # infinity, and three patterns of NaN
E3M2 = Format("E3M2", 3, 2, taken=0)
E2M3 = Format("E2M3", 2, 3, taken=0)
E2M1 = Format("E2M1", 2, 1, taken=0)
FORMATS = (E4M3, E5M2, E3M2, E2M3, E2M1)


def scaled(values: list[float], form: Format) -> tuple[float, list[float]]:
    """A scale that takes the largest to the end of the range, and the values cast."""
    scale = form.largest / max(map(abs, values))
    return scale, [form.cast(value * scale) / scale for value in values]


# --8<-- [end:model]


def demo() -> None:
    """Ranges of the formats, all of E2M1, and what one outlier does to a block."""
    ends = f"{'largest':>10}{'normal':>10}{'smallest':>11}"
    print(f"{'':6}{'bits':>5}{'values':>8}{ends}")
    for form in FORMATS:
        bits = 1 + form.exponent + form.mantissa
        ends = f"{form.smallest_normal:10.2g}{form.smallest:11.2g}"
        count = 2 * len(form.values) - 1  # 0 and -0 are one value
        print(f"{form.name:6}{bits:5}{count:8}{form.largest:10g}{ends}")
    print("\nE2M1 has", " ".join(f"{value:g}" for value in E2M1.values))
    for outlier in (1.0, 100.0, 1e6):
        block = [1.0, 0.3, -0.02, outlier]
        for form in (E4M3, E2M1):
            _, got = scaled(block, form)
            cells = " ".join(f"{value:8.3g}" for value in got[:3])
            print(f"1, 0.3 and -0.02 beside {outlier:<8g} {form.name}: {cells}")


if __name__ == "__main__":
    demo()
