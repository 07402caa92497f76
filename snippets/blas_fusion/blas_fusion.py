"""Sequences of BLAS calls, one kernel for each call and fused: bytes decide.

Shapes  axpydot: w, v, u (n,) -> z = w - a v (n,) and r = z u ();
        bicgk: matrix (m, n), p (n,), r (m,) -> q = A p (m,), s = A^T r (n,);
        gemver: matrix (m, n), u1, u2, y (m,), v1, v2, z (n,)
        -> B = A + u1 v1^T + u2 v2^T (m, n), x = b B^T y + z (n,), w = a B x (m,);
        all float32, any side 0 or more
Bytes   fused, of matrices and long vectors: axpydot 16 n, bicgk 4 m n, gemver 12 m n
Error   within 5e-6 of float64; the same bits every time on the same device
Raises  TypeError for another dtype; ValueError for other shapes, for a vector that is
        not dense, a matrix whose rows are not, over 2**31 blocks, or no such way
Source  filipovic-kernel-fusion-blas
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
WAYS = ("chain", "fused")
BLOCKS = 512  # that a sweep over a matrix wants: some for each multiprocessor
STRIPS = (16, 256)  # rows of a block, at least and at most

Matrix = Vector = torch.Tensor


def _refuse_unlike(way: str, sides: dict[str, tuple[torch.Tensor, tuple]]) -> None:
    """`sides` has each tensor, by name, with the shape that it must have."""
    if way not in WAYS:
        raise ValueError(f"blas_fusion: no way {way!r}; there are {', '.join(WAYS)}")
    for name, (x, shape) in sides.items():
        if x.dtype != torch.float32:
            raise TypeError(
                f"blas_fusion: {name} is {x.dtype}, not float32; convert it"
            )
        if tuple(x.shape) != shape:
            raise ValueError(
                f"blas_fusion: {name} has shape {tuple(x.shape)}, not {shape}"
            )
        if x.shape[-1] > 1 and x.stride(-1) != 1:
            raise ValueError(
                f"blas_fusion: elements of {name} lie {x.stride(-1)} apart, they must "
                f"lie side by side; pass {name}.contiguous()"
            )


def _sides(matrix: torch.Tensor) -> tuple[int, int]:
    if matrix.ndim != 2:
        raise ValueError(
            f"blas_fusion: matrix has {matrix.ndim} dimensions, not 2; reshape it"
        )
    return matrix.shape[0], matrix.shape[1]


def _length(w: torch.Tensor) -> int:
    if w.ndim != 1:
        raise ValueError(f"blas_fusion: w has {w.ndim} dimensions, not 1; flatten it")
    return w.shape[0]


def _at_most(blocks: int) -> int:
    if blocks > cuda.MAX_GRID[0]:
        raise ValueError(f"blas_fusion: {blocks} blocks are over 2**31 - 1; split it")
    return blocks


def _aligned(*tensors: torch.Tensor) -> bool:
    return all(x.data_ptr() % 16 == 0 for x in tensors)


# --8<-- [start:shares]
def shares(m: int, n: int, v: int) -> tuple[int, int, int]:
    """Tiles of columns, strips of rows, and rows of a strip, from the sides alone.

    v: elements that a thread reads at a time.
    """
    tiles = -(-n // (256 * v))
    wanted = -(-m * tiles // BLOCKS) if tiles else 1
    least, most = STRIPS
    rows = min(max(-(-wanted // 8) * 8, least), most)
    return tiles, -(-m // rows), rows
# --8<-- [end:shares]


# --8<-- [start:launch]
def _vectors(way: str, w, v, u, z, r, a: float) -> None:
    """Run "axpy", "dot" or "axpydot"; what it has no use for may be any vector."""
    n = w.numel()
    width = 4 if _aligned(w, v, u, z) else 1
    blocks = _at_most(-(-n // (1024 * width)))
    axpy, dot = (str(job in way).lower() for job in ("axpy", "dot"))
    parts = torch.empty(blocks if "dot" in way else 1, device=w.device)
    ticket = torch.zeros(1, dtype=torch.int32, device=w.device)
    name = f"vectors<{width}, {axpy}, {dot}>"
    sizes = np.int64(n), np.float32(a)
    KERNELS.launch(name, blocks, 256, w, v, u, z, parts, ticket, r, *sizes)


def _sweep(matrix, b=None, ranks=(), right=None, left=None) -> tuple:
    """One pass: B from the ranks (u, v), and parts of B right and of B^T left."""
    m, n = matrix.shape
    apart = matrix.stride(0) if m > 1 else n
    across = [v for _, v in ranks] + [x for x in (right, matrix, b) if x is not None]
    wide = n % 4 == 0 and apart % 4 == 0 and _aligned(*across)
    tiles, strips, rows = shares(m, n, 4 if wide else 1)
    row_parts = matrix.new_empty(tiles if right is not None else 0, m)
    column_parts = matrix.new_empty(strips if left is not None else 0, n)
    if m and n:
        blocks = _at_most(tiles * strips)
        jobs = (str(x is not None).lower() for x in (right, left))
        name = f"sweep<{4 if wide else 1}, {len(ranks)}, {', '.join(jobs)}>"
        factors = [x for pair in (*ranks, *[(matrix, matrix)] * 2)[:2] for x in pair]
        vectors = (matrix if x is None else x for x in (right, left))
        sizes = np.int64(m), np.int64(n), np.int32(rows)
        KERNELS.launch(
            name, blocks, 256, matrix, np.int64(apart), matrix if b is None else b,
            *factors, *vectors, row_parts, column_parts, *sizes,
        )  # fmt: skip
    return row_parts, column_parts


def _gather(parts: torch.Tensor, a: float = 1.0, plus=None) -> Vector:
    """a times the sum of `parts` (count, n), and `plus`."""
    count, n = parts.shape
    y = parts.new_empty(n)
    if n:
        more = y if plus is None else plus
        sizes = np.int64(n), np.int64(count), np.float32(a)
        name = f"gather<{str(plus is not None).lower()}>"
        KERNELS.launch(name, _at_most(-(-n // 128)), 128, parts, more, y, *sizes)
    return y
# --8<-- [end:launch]


# --8<-- [start:sequences]
def axpydot(w: Vector, v: Vector, u: Vector, a: float, way: str = "fused") -> tuple:
    """z = w - a v and r = z u, in two kernels or in one."""
    n = _length(w)
    _refuse_unlike(way, {"w": (w, (n,)), "v": (v, (n,)), "u": (u, (n,))})
    z = torch.empty_like(w)
    r = w.new_zeros(())
    if n == 0:
        return z, r
    if way == "fused":
        _vectors("axpydot", w, v, u, z, r, a)
    else:
        _vectors("axpy", w, v, w, z, r, a)
        _vectors("dot", z, z, u, z, r, a)
    return z, r


def bicgk(matrix: Matrix, p: Vector, r: Vector, way: str = "fused") -> tuple:
    """q = A p and s = A^T r, the matrix read twice or once."""
    m, n = _sides(matrix)
    _refuse_unlike(way, {"matrix": (matrix, (m, n)), "p": (p, (n,)), "r": (r, (m,))})
    if way == "fused":
        of_rows, of_columns = _sweep(matrix, right=p, left=r)
        return _gather(of_rows), _gather(of_columns)
    q = _gather(_sweep(matrix, right=p)[0])
    return q, _gather(_sweep(matrix, left=r)[1])


def gemver(
    matrix: Matrix, u1: Vector, v1: Vector, u2: Vector, v2: Vector, y: Vector,
    z: Vector, a: float, b: float, way: str = "fused",
) -> tuple:  # fmt: skip
    """B, x and w: four passes over a matrix, or two."""
    m, n = _sides(matrix)
    by_rows = {"u1": u1, "u2": u2, "y": y}
    by_columns = {"v1": v1, "v2": v2, "z": z}
    _refuse_unlike(way, {
        "matrix": (matrix, (m, n)),
        **{name: (x, (m,)) for name, x in by_rows.items()},
        **{name: (x, (n,)) for name, x in by_columns.items()},
    })  # fmt: skip
    updated = matrix.new_empty(m, n)
    if way == "fused":
        parts = _sweep(matrix, updated, ((u1, v1), (u2, v2)), left=y)[1]
    else:
        _sweep(matrix, updated, ((u1, v1),))
        _sweep(updated, updated, ((u2, v2),))  # in place
        parts = _sweep(updated, left=y)[1]
    x = _gather(parts, b, z)  # whole before w begins
    return updated, x, _gather(_sweep(updated, right=x)[0], a)
# --8<-- [end:sequences]


# --8<-- [start:moved]
def moved(job: str, way: str, m: int, n: int) -> int:
    """Bytes that a sequence reads and writes, where 4 elements are read at a time.

    Vectors are counted once a kernel. For "axpydot" m is 1.
    """
    if job == "axpydot":
        return 4 * n * {"chain": 5, "fused": 4}[way]
    tiles, strips, _ = shares(m, n, 4)
    rows, columns = 2 * tiles * m + m, 2 * strips * n + n  # parts, and the result
    if job == "bicgk":
        passes = {"chain": 2, "fused": 1}[way]
        return 4 * (passes * m * n + rows + columns + m + n)
    passes = {"chain": 6, "fused": 3}[way]
    return 4 * (passes * m * n + rows + columns + 3 * m + 4 * n)
# --8<-- [end:moved]


def demo(device: str) -> None:
    """Each sequence both ways on small integers, against torch; and the bytes."""
    draw = torch.Generator(device).manual_seed(0)

    def whole(*shape: int) -> torch.Tensor:
        return torch.randint(-3, 4, shape, generator=draw, device=device).float()

    m, n = 40, 1028
    a = whole(m, n)
    p, v1, v2, z = (whole(n) for _ in range(4))
    r, u1, u2, y = (whole(m) for _ in range(4))
    b = a + u1.outer(v1) + u2.outer(v2)
    x = b.t() @ y + z
    d = p - 2 * v1
    jobs = {
        "axpydot": (lambda way: axpydot(p, v1, v2, 2.0, way), (d, d @ v2)),
        "bicgk": (lambda way: bicgk(a, p, r, way), (a @ p, a.t() @ r)),
        "gemver": (
            lambda way: gemver(a, u1, v1, u2, v2, y, z, 2.0, 1.0, way),
            (b, x, 2 * (b @ x)),
        ),
    }
    for job, (run, wanted) in jobs.items():
        right = [way for way in WAYS if all(map(torch.equal, run(way), wanted))]
        print(f"{job}: right by {', '.join(right)}")
    print("\nside 16384, of axpydot 2**28 elements: bytes, and the speed-up they allow")
    for job in jobs:
        sides = (1, 2**28) if job == "axpydot" else (16384, 16384)
        chain, fused = (moved(job, way, *sides) for way in WAYS)
        print(f"{job:8} {chain:12} {fused:12} {chain / fused:6.3f}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
