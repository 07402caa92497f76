"""TPUs."""

from math import ceil

FLOPS, HBM = 1.97e14, 8.1e11  # a v5e


def one_array() -> tuple[str, str]:
    array = 2 * 128**2 * 1.5e9
    return f"{array / 1e12:.0f} Tflop/s", f"{FLOPS / array:.0f} arrays"


def _used(size: int, array: int) -> str:
    return f"{100 * (size / (ceil(size / array) * array)) ** 2:.0f} %"


def padding() -> tuple[str, str, str]:
    assert _used(128, 128) == "100 %"
    return _used(192, 128), _used(192, 256), _used(128, 256)


def batch() -> tuple[str, str]:
    return f"{FLOPS / HBM:.0f} rows", f"{FLOPS / (22 * HBM):.0f} rows"


def around_a_ring() -> tuple[str, str]:
    chips, size, both_ways = 16, 1e9, 2e11
    arriving = size * (chips - 1) / chips
    return f"{1e3 * arriving / both_ways:.1f} ms", f"{2e3 * arriving / both_ways:.1f} ms"
