"""What implicit_gemm must show: sizes, counts, a product against a sum, a picture."""

from __future__ import annotations

from typing import Any

from snippets.facts import fact
from snippets.implicit_gemm import implicit_gemm as conv
from snippets.implicit_gemm.implicit_gemm import Shape

LAYER = Shape(2, 3, 6, 5, 4, 3, 3, pad=1)
SMALL = Shape(1, 1, 4, 4, 1, 3, 3)  # of the picture


def direct(shape: Shape, image: list[int], filters: list[list[int]]) -> list[list[int]]:
    """The sums of the definition, loop by loop."""
    out = []
    for n in range(shape.n):
        for p in range(shape.p):
            for q in range(shape.q):
                row = []
                for weights in filters:
                    total, at = 0, 0
                    for r in range(shape.r):
                        for s in range(shape.s):
                            y = p * shape.stride + r - shape.pad
                            x = q * shape.stride + s - shape.pad
                            inside = 0 <= y < shape.h and 0 <= x < shape.w
                            for c in range(shape.c):
                                if inside:
                                    row_start = (n * shape.h + y) * shape.w + x
                                    total += (
                                        image[row_start * shape.c + c] * weights[at]
                                    )
                                at += 1
                    row.append(total)
                out.append(row)
    return out


def numbers(shape: Shape) -> tuple[list[int], list[list[int]]]:
    """An image and filters of small whole numbers."""
    size = shape.n * shape.h * shape.w * shape.c
    depth = shape.gemm[2]
    image = [(7 * i) % 11 - 5 for i in range(size)]
    return image, [[(3 * i + k) % 7 - 3 for i in range(depth)] for k in range(shape.k)]


def facts() -> list[dict[str, Any]]:
    """The product against the definition, and counts against formulas."""
    image, filters = numbers(LAYER)
    gemm = conv.implicit_gemm(LAYER, image, filters)
    wrong = sum(
        a != b
        for x, y in zip(gemm, direct(LAYER, image, filters), strict=True)
        for a, b in zip(x, y, strict=True)
    )
    m, _, k = LAYER.gemm
    taken = conv.winograd((1, 2, 3, 4), (1, 0, 2))[1]
    rows = [
        ("implicit GEMM: wrong outputs", wrong, 0, "im2col"),
        ("im2col / input, 3 x 3 with padding 1", m * k / len(image), 3 * 3, "im2col"),
        ("F(2, 3): multiplications", taken, 4, "winograd-convolution"),
        # Nested for two dimensions: the square of both.
        ("F(2 x 2, 3 x 3): multiplications", taken**2, 16, "winograd-convolution"),
    ]
    return [fact(*row) for row in rows]


def grids() -> tuple[dict[str, Any], ...]:
    """The matrix of a 4 by 4 image under a window of 3 by 3."""
    rows, _, depth = SMALL.gemm
    cells = []
    for row in range(rows):
        places = [conv.source(SMALL, row, k) for k in range(depth)]
        cells.append([(str(at), at // SMALL.w) for at in places if at is not None])
    return (
        {
            "name": "im2col",
            "caption": "The matrix of an image of 4 by 4 pixels, numbered 0 to 15, "
            "under a window of 3 by 3. Im2col writes it; implicit GEMM computes for "
            "each load which pixel it is.",
            "across": "tap",
            "down": "output",
            "columns": [f"{r},{s}" for r in range(3) for s in range(3)],
            "rows": [f"{p},{q}" for p in range(SMALL.p) for q in range(SMALL.q)],
            "cells": cells,
            "legend": [(y, f"row {y} of the image") for y in range(SMALL.h)],
        },
    )
