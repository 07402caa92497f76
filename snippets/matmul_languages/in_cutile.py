"""The same product in cuTile, whose compiler makes machine code of it with no PTX between."""

from __future__ import annotations

import io

import cuda.tile as ct
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    KernelSignature,
    export_kernel,
)


# --8<-- [start:kernel]
@ct.kernel
def gemm_cutile(c, a, b, SIDE: ct.Constant[int], DEPTH: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    sums = ct.full((SIDE, SIDE), 0, ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(SIDE, DEPTH))):
        x = ct.load(a, index=(row, k), shape=(SIDE, DEPTH))
        y = ct.load(b, index=(k, column), shape=(DEPTH, SIDE))
        sums = ct.mma(x, y, sums)
    ct.store(c, index=(row, column), tile=ct.astype(sums, ct.float16))
# --8<-- [end:kernel]


def binary(arch: str) -> tuple[bytes, str, int]:
    """The cubin, its symbol and no dynamic shared memory: whole tiles, rows on 16 bytes."""
    matrix = ArrayConstraint(
        ct.float16, 2, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(),
        may_alias_internally=False, stride_constant=(None, 1),
        stride_divisible_by=(8, 1), shape_divisible_by=(128, 32),
        base_addr_divisible_by=16,
    )  # fmt: skip
    parameters = [matrix, matrix, matrix, 128, 32]
    convention = CallingConvention.cutile_python_v1()
    signature = KernelSignature(parameters, convention, symbol="gemm_cutile")
    made = io.BytesIO()
    export_kernel(
        gemm_cutile, [signature], made, gpu_code=arch, output_format="cubin"
    )
    return made.getvalue(), "gemm_cutile", 0
