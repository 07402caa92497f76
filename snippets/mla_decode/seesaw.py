"""The kernel for Hopper: two warpgroups make scores in turn, and share both outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda, tensor_maps

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
TYPES = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
    torch.int32: "int",
    torch.int64: "long long",
}
ROWS, L, R = 64, 512, 64  # queries of a tile, rows of a block; columns, and turned ones
# Bytes: queries, two blocks of rows, weights, what the groups tell, five barriers.
SHARED = 3 * ROWS * (L + R) * 2 + ROWS * ROWS * 2 + 4 * ROWS * 4 + 5 * 8


def fits(q: torch.Tensor, cache: torch.Tensor, rope: int) -> bool:
    """Whether the kernel takes them: 16 bits, 512 + 64 columns, 64 rows on one page."""
    return (
        q.dtype in (torch.float16, torch.bfloat16)
        and (q.shape[3] - rope, rope) == (L, R)
        and cache.shape[1] % ROWS == 0
        and all(x.is_contiguous() and x.data_ptr() % 16 == 0 for x in (q, cache))
        and max(q.numel(), cache.numel()) // (L + R) < 2**31
    )


# --8<-- [start:launch]
def launch(
    out: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    longest: int,
    chunk: int,
    scale2: float,
) -> None:
    """Parts of `chunk` rows, a multiple of 64, into out (parts, B, T, H, L) float32 and
    lse to base 2; or all into out (B, T, H, L) and lse."""
    b, t, h, width = q.shape
    maps = [tensor_maps.tensor_map(x.view(-1, width), (ROWS, 64)) for x in (q, cache)]
    lengths = lengths.to(table.dtype)
    strides = np.int64([*table.stride(), *lengths.stride()])
    numbers = np.int32([b, h, t, cache.shape[1], longest, chunk])
    KERNELS.launch(
        f"seesaw<{TYPES[q.dtype]}, {TYPES[table.dtype]}, {TYPES[out.dtype]}>",
        -(-t * h // ROWS) * b * -(-longest // chunk),
        256,
        *(out, lse, q, cache, table, lengths),
        *maps,
        *strides,
        *numbers,
        np.float32(scale2),
        shared=SHARED,
    )
# --8<-- [end:launch]
