"""Maps of matrices for the copy engine of sm_90 and later: on a GPU, or for a CPU.

`tensor_map(x, (64, 64))` is what cp.async.bulk.tensor wants to know of a matrix, for a parameter
`const __grid_constant__ Map` of 128 bytes that begins on 64. cuda-core makes it on a GPU, papergpu
on a CPU.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

MAX_BOX = 256  # rows of a box
SWIZZLED = 128  # bytes of a box's line: eight lines of them are one pattern
# As CUDA numbers them.
ELEMENTS = {torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9}
SWIZZLE_128B = 3
PROMOTION_128B = 2  # of what is read into the L2 at a time


def mappable(x: torch.Tensor) -> bool:
    """Whether the copy engine can read a matrix: rows on 16 bytes, their elements side by side."""
    size = x.element_size()
    return (
        x.ndim == 2
        and x.dtype in ELEMENTS
        and x.data_ptr() % 16 == 0
        and (x.shape[1] <= 1 or x.stride(1) == 1)
        and (x.shape[0] <= 1 or (x.stride(0) > 0 and x.stride(0) * size % 16 == 0))
    )


def tensor_map(x: torch.Tensor, box: tuple[int, int]) -> Any:
    """The map of a matrix for boxes of so many rows and columns, as `cuda.Source.launch` takes it.

    Lines of a box are 128 bytes, swizzled; elements outside the matrix are copied as zeros.

    Raises:
        ValueError: the copy engine cannot read it, it is empty, or the box does not fit.
        RuntimeError: on a GPU cuda-core is too old, on a CPU papergpu is missing.
    """
    rows, columns = box
    if not mappable(x) or not x.numel():
        raise ValueError(
            f"a matrix of {x.dtype}, {tuple(x.shape)} with strides {x.stride()}, cannot be mapped: "
            "rows must not be empty, begin on 16 bytes and have their elements side by side"
        )
    if not 1 <= rows <= MAX_BOX or columns * x.element_size() != SWIZZLED:
        raise ValueError(
            f"a box of {rows} x {columns}: it has 1 to {MAX_BOX} rows, of {SWIZZLED} bytes"
        )
    size = x.element_size()
    if len(x) == 1:  # whose stride means nothing, but has to be a multiple of 16 bytes
        x = x.as_strided(x.shape, (-(-x.shape[1] * size // 16) * 16 // size, 1))
    return _by_core(x, box) if x.is_cuda else _by_papergpu(x, box)


def _by_papergpu(x: torch.Tensor, box: tuple[int, int]) -> np.void:
    try:
        paper = importlib.import_module("papergpu.tensormap")
    except ImportError as error:
        raise RuntimeError(
            "a tensor map: no GPU is here, and without one papergpu executes the kernels' PTX "
            f"(github.com/warpshelf/warpshelf has it): {error}"
        ) from error
    size, element = x.element_size(), ELEMENTS[x.dtype]
    sides, strides = tuple(x.shape), (x.stride(0), 1)
    return np.void(paper.tiled(x.data_ptr(), SWIZZLE_128B, size, element, box, sides, strides))


def _by_core(x: torch.Tensor, box: tuple[int, int]) -> Any:
    view = importlib.import_module("cuda.core.utils").StridedMemoryView
    if not hasattr(view, "as_tensor_map"):
        raise RuntimeError("tensor maps need cuda-core 1.0 or later; upgrade it")
    kinds = importlib.import_module("cuda.core._tensor_map")
    with torch.cuda.device_of(x):
        return view.from_any_interface(x, stream_ptr=-1).as_tensor_map(
            box, swizzle=kinds.TensorMapSwizzle(SWIZZLE_128B),
            l2_promotion=kinds.TensorMapL2Promotion(PROMOTION_128B),
        )
