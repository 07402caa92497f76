"""A convolution as a product, with the matrix that im2col writes, or without it.

FLOPs   2 C R S for each of N P Q K outputs; Winograd F(m, r) multiplies m + r - 1 times
        for m outputs of r taps, not m r times
Bytes   the matrix has N P Q rows of C R S: with stride 1 and full padding R S times the
        input
Error   exact: whole numbers, and halves in Winograd's transforms
Raises  ValueError where the window does not fit
Source  im2col, winograd-convolution
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


# --8<-- [start:model]
@dataclass(frozen=True)
class Shape:
    """A convolution: N images of C channels, H by W; K filters of R by S taps."""

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        if self.p < 1 or self.q < 1:
            raise ValueError(
                f"implicit_gemm: {self.r} x {self.s} taps do not fit into "
                f"{self.h} x {self.w} with padding {self.pad}"
            )

    @property
    def p(self) -> int:
        """Rows of an output."""
        return (self.h + 2 * self.pad - self.r) // self.stride + 1

    @property
    def q(self) -> int:
        """Columns of an output."""
        return (self.w + 2 * self.pad - self.s) // self.stride + 1

    @property
    def gemm(self) -> tuple[int, int, int]:
        """M, N and K of the product."""
        return self.n * self.p * self.q, self.k, self.c * self.r * self.s


# --8<-- [start:implicit]
def source(shape: Shape, row: int, depth: int) -> int | None:
    """Where element (row, depth) of the matrix lies in the input, None in the padding.

    The input is N, H, W, C in memory, so that neighbours in depth are channels.
    """
    n, rest = divmod(row, shape.p * shape.q)
    p, q = divmod(rest, shape.q)
    tap, c = divmod(depth, shape.c)
    r, s = divmod(tap, shape.s)
    y, x = p * shape.stride + r - shape.pad, q * shape.stride + s - shape.pad
    if not (0 <= y < shape.h and 0 <= x < shape.w):
        return None
    return ((n * shape.h + y) * shape.w + x) * shape.c + c


def implicit_gemm(
    shape: Shape, image: Sequence[int], filters: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The product, each element of the matrix fetched where it comes from."""
    rows, _, depth = shape.gemm
    out = []
    for row in range(rows):
        places = [source(shape, row, k) for k in range(depth)]
        taken = [0 if at is None else image[at] for at in places]
        out.append([sum(map(int.__mul__, taken, weights)) for weights in filters])
    return out
# --8<-- [end:implicit]


# --8<-- [start:winograd]
def winograd(x: Sequence[int], g: Sequence[int]) -> tuple[list[Fraction], int]:
    """F(2, 3): two outputs of three taps from four inputs, and its multiplications."""
    half = Fraction(1, 2)
    weights = (g[0], half * (g[0] + g[1] + g[2]), half * (g[0] - g[1] + g[2]), g[2])
    inputs = (x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3])
    m = [Fraction(a) * b for a, b in zip(inputs, weights, strict=True)]
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]], len(m)
# --8<-- [end:winograd]
# --8<-- [end:model]


def demo() -> None:
    """Three layers as products, and what im2col would write for them."""
    print("layer                  M         N      K   im2col / input   flops / byte")
    for name, shape in (
        ("dense 3 x 3", Shape(8, 256, 56, 56, 256, 3, 3, pad=1)),
        ("pointwise 1 x 1", Shape(8, 256, 56, 56, 256, 1, 1)),
        ("a depthwise channel", Shape(8, 1, 56, 56, 1, 3, 3, pad=1)),
    ):
        m, n, k = shape.gemm
        read = shape.n * shape.c * shape.h * shape.w
        moved = 2 * (read + n * k + m * n)  # bytes in 16 bits, each tensor once
        line = f"{name:20}{m:10,}{n:6}{k:7,}{m * k / read:14.1f}"
        print(f"{line}{2 * m * n * k / moved:15.0f}")
    out, multiplications = winograd((1, 2, 3, 4), (1, 0, 2))
    print(f"F(2, 3): {[int(one) for one in out]} by {multiplications} multiplications")


if __name__ == "__main__":
    demo()
