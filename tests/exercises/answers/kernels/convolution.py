"""Convolution."""

from snippets.implicit_gemm.implicit_gemm import Shape, winograd

MEMORY, PEAK = 3.35e12, 989e12  # bytes and bf16 flops a second of an H100
LAYER = Shape(8, 256, 56, 56, 256, 3, 3, pad=1)


def dense_or_not() -> tuple[str, ...]:
    m, n, k = LAYER.gemm
    image, filters, out = m * LAYER.c, n * k, m * n
    dense = 2 * m * n * k / (2 * (image + filters + out))
    one = Shape(8, 1, 56, 56, 1, 3, 3, pad=1)  # a channel by itself, 256 times
    rows, _, taps = one.gemm
    depthwise = 2 * rows * taps / (2 * (rows + taps + rows))
    return f"{dense:.0f} flops a byte", f"{depthwise:.1f} flops a byte"


def what_im2col_writes() -> tuple[str, ...]:
    m, n, k = LAYER.gemm
    size = 2 * m * k
    moved, products = 2 * size / MEMORY, 2 * m * n * k / PEAK
    return f"{size / 1e6:.0f} MB", f"{1e6 * moved:.0f} µs", f"{1e6 * products:.0f} µs"


def neighbours() -> tuple[str, ...]:
    own, width = 8, 4
    return f"{100 * (width - 1) / own:.1f} %", f"{32 * own * 2 // 32} sectors"


def multiplications_saved() -> tuple[str, ...]:
    _, taken = winograd((1, 2, 3, 4), (1, 2, 3))
    small = (2 * 3) ** 2 / taken**2
    large = (4 * 3) ** 2 / (4 + 3 - 1) ** 2
    return f"{small:.2f}", f"{large:.0f}"
