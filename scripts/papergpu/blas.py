"""The products of cuBLAS, on memory of a program: multiplied by numpy, their operands checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from papergpu.launch import Memory

# cudaDataType: what its elements are in memory; those of bfloat16 are numpy's 16 bits.
KINDS = {0: "f4", 1: "f8", 2: "f2", 3: "i1", 10: "i4", 14: "u2"}
BFLOAT16 = 14
RELU, BIAS, GELU = 2, 4, 32  # of cublasLtEpilogue_t


class Matrix(NamedTuple):
    """Matrices by columns: `ld` elements from one column to the next, `stride` from one matrix to
    the next; `turned` if they are multiplied as they stand by rows."""

    at: int
    type: int
    ld: int
    stride: int
    turned: int


def widen(x: npt.NDArray[Any], kind: int, wide: str) -> npt.NDArray[Any]:
    """Elements as numbers to compute with."""
    if kind == BFLOAT16:
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(wide)


def narrow(x: npt.NDArray[Any], kind: int) -> npt.NDArray[Any]:
    """Numbers rounded to the elements of a type, to nearest even."""
    if kind != BFLOAT16:
        return x.astype(KINDS[kind])
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


class Operands(NamedTuple):
    """What a call may read and write: allocations by their addresses.

    `view(at, size)` gives bytes at an address.
    """

    call: str
    blocks: Mapping[int, Memory]
    view: Callable[[int, int], npt.NDArray[np.uint8]]

    def elements(
        self, name: str, one: Matrix, rows: int, columns: int, batch: int, writes: bool = False
    ) -> npt.NDArray[Any]:
        """The elements, (batch, columns, rows).

        Raises:
            ValueError: they are not all within one allocation, or somewhere nobody wrote.
        """
        if one.type not in KINDS:
            raise ValueError(
                f"{self.call}: {name} has data type {one.type}, which is not supported"
            )
        if one.ld < rows:
            raise ValueError(
                f"{self.call}: {name} has {rows} rows, and ld{name.lower()} is {one.ld}"
            )
        size = np.dtype(KINDS[one.type]).itemsize
        shape = (batch, columns, rows)
        steps = (one.stride * size, one.ld * size, size)
        end = sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + size
        does = "writes" if writes else "reads"
        held = [m for m in self.blocks.values() if m.at <= one.at < m.at + m.size]
        if not held:
            raise ValueError(
                f"{self.call} {does} {name} at {one.at:#x}, where nothing is allocated"
            )
        [memory] = held
        offset = one.at - memory.at
        if offset + end > memory.size:
            raise ValueError(
                f"{self.call} {does} {name}, {rows} x {columns}, {end} bytes from byte {offset} of "
                f"{memory.name} on; pass its sizes, or allocate more"
            )

        def lay_out(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
            return np.lib.stride_tricks.as_strided(data, (*shape, size), (*steps, 1))

        if memory.written is not None:
            written = lay_out(memory.written[offset:])
            if writes:
                written[...] = 1
            elif not written.all():
                raise ValueError(
                    f"{self.call} reads {name} where nobody wrote, in {memory.name}: write it first"
                )
        return lay_out(self.view(one.at, end)).view(KINDS[one.type])[..., 0]


def multiply(
    operands: Operands,
    sizes: tuple[int, int, int, int],
    scales: tuple[float, float],
    matrices: tuple[Matrix, Matrix, Matrix, Matrix],
    epilogue: tuple[int, int],
) -> None:
    """D = alpha op(A) op(B) + beta C for m, n, k and a batch; then bias, ReLU and GELU by bits.

    Raises:
        ValueError: an operand is not where it should be, or something is not supported.
    """
    (m, n, k, batch), (alpha, beta), (a, b, c, d) = sizes, scales, matrices
    kind, bias = epilogue
    if kind & ~(1 | RELU | BIAS | GELU):
        raise ValueError(f"{operands.call}: epilogue {kind} is not supported")
    if not m * n * batch:
        return
    wide = {1: "f8", 10: "f8"}.get(d.type, "f4")
    product: Any = 0
    if k and alpha:
        factors = []
        for name, one, rows, columns in (("A", a, m, k), ("B", b, k, n)):
            shape = (columns, rows) if one.turned else (rows, columns)
            x = widen(operands.elements(name, one, *shape, batch), one.type, wide)
            factors.append(x if one.turned else x.swapaxes(1, 2))
        product = alpha * (factors[0] @ factors[1])
    if beta:
        old = widen(operands.elements("C", c, m, n, batch), c.type, wide)
        product = product + beta * old.swapaxes(1, 2)
    if kind & BIAS:
        row = operands.elements("bias", Matrix(bias, d.type, m, 0, 0), m, 1, 1)
        product = product + widen(row, d.type, wide)[0].T
    if kind & RELU:
        product = np.maximum(product, 0)
    if kind & GELU:
        product = (
            0.5 * product * (1 + np.tanh(0.7978845608028654 * (product + 0.044715 * product**3)))
        )
    out = operands.elements("D" if d != c else "C", d, m, n, batch, writes=True)
    out[...] = narrow(np.broadcast_to(product, (batch, m, n)).swapaxes(1, 2), d.type)
