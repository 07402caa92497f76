"""Maps of matrices for the copy engine of sm_90 and later: on a GPU, or for a CPU.

`tensor_map(x, (64, 64))` is what cp.async.bulk.tensor wants to know of a matrix, in memory of its
device. A kernel that is given its address executes fence.proxy.tensormap::generic.acquire on it
before the first copy. The driver makes it on a GPU, papergpu on a CPU.
"""

from __future__ import annotations

import importlib
from functools import lru_cache

import torch

BYTES = 128  # of a map
MAX_BOX = 256  # rows of a box
SWIZZLED = 128  # bytes of a box's line: eight lines of them are one pattern
# As CUDA numbers them.
ELEMENTS = {torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9}
SWIZZLE_128B = 3


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


def tensor_map(x: torch.Tensor, box: tuple[int, int]) -> torch.Tensor:
    """The map of a matrix, 128 bytes on its device, for boxes of so many rows and columns.

    Lines of a box are 128 bytes, swizzled; elements outside the matrix are copied as zeros.

    Raises:
        ValueError: the copy engine cannot read it, it is empty, or the box does not fit.
        RuntimeError: on a GPU the driver refuses it, on a CPU papergpu is missing.
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
    apart = x.stride(0) if x.shape[0] > 1 else -(-x.shape[1] * size // 16) * 16 // size
    return _made(x.data_ptr(), x.dtype, tuple(x.shape), apart, box, x.device)


@lru_cache(maxsize=256)
def _made(
    address: int,
    dtype: torch.dtype,
    shape: tuple[int, int],
    apart: int,
    box: tuple[int, int],
    device: torch.device,
) -> torch.Tensor:
    """A map is decided by an address and numbers, so that one that was made can be had again."""
    encode = _by_driver if device.type == "cuda" else _by_papergpu
    found = encode(address, dtype, shape, apart * dtype.itemsize, box)
    return torch.tensor(list(found), dtype=torch.uint8, device=device)  # begins on 64 bytes


def _by_papergpu(
    address: int, dtype: torch.dtype, shape: tuple[int, int], apart: int, box: tuple[int, int]
) -> bytes:
    try:
        paper = importlib.import_module("papergpu.tensormap")
    except ImportError as error:
        raise RuntimeError(
            "a tensor map: no GPU is here, and without one papergpu executes the kernels' PTX "
            f"(github.com/warpshelf/warpshelf has it): {error}"
        ) from error
    size = dtype.itemsize
    strides = (apart // size, 1)
    return paper.tiled(address, SWIZZLE_128B, size, ELEMENTS[dtype], box, shape, strides)


def _by_driver(
    address: int, dtype: torch.dtype, shape: tuple[int, int], apart: int, box: tuple[int, int]
) -> bytes:
    driver = importlib.import_module("cuda.bindings.driver")
    long, word = driver.cuuint64_t, driver.cuuint32_t
    code, found = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType(ELEMENTS[dtype]),
        2,
        address,
        [long(side) for side in reversed(shape)],
        [long(apart)],
        [word(side) for side in reversed(box)],
        [word(1), word(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle(SWIZZLE_128B),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if code:
        raise RuntimeError(f"the driver refuses a tensor map: {code.name}")
    return b"".join(int(part).to_bytes(8, "little") for part in found.opaque)
