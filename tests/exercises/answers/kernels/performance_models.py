"""Performance models: bounds of an H100 SXM by its data sheet."""

from math import ceil

BANDWIDTH, BF16, FP8, EXPONENTIALS = 3.35e12, 989e12, 1979e12, 3.9e12


def side_of_the_ridge() -> tuple[str, str]:
    def first(rate: float, element: int) -> int:
        return next(
            n for n in range(1, 10_000) if 2 * n**3 / (3 * element * n * n) >= rate / BANDWIDTH
        )

    return str(first(BF16, 2)), str(first(FP8, 1))


def a_decoding_step() -> tuple[str, str]:
    n = 8192

    def memory(m: int) -> float:
        return 2 * (n * n + 2 * m * n) / BANDWIDTH

    most = max(m for m in range(1, 2000) if memory(m) >= 2 * m * n * n / BF16)
    return f"{most} tokens", f"{1e6 * memory(1):.1f} µs"


def threads_for_a_copy() -> str:
    each = BANDWIDTH * 600e-9 / (132 * 512)
    return f"{ceil(each / 16)} loads"


def softmax_in_three_passes() -> tuple[str, str]:
    elements = 4096 * 32768
    least, taken = 4 * 2 * elements, 4 * 4 * elements
    return f"{taken / least:.1f} times", f"{1e6 * taken / BANDWIDTH:.0f} µs"


def exponentials() -> str:
    return f"{BANDWIDTH / EXPONENTIALS:.2f} bytes"
