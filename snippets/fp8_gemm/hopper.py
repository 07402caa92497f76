"""The kernel for Hopper: blocks that stay, and two warpgroups that promote in turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda, tensor_maps

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
TILE, STAGES = 128, 6  # rows and columns of a tile and depth of a slab; slabs in flight
SHARED = STAGES * (2 * TILE * TILE + 16)  # bytes


# --8<-- [start:launch]
def launch(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    sms: int,
) -> None:
    """c = a b^T. The copy engine takes pairs: it moves e4m3 as if it were float16."""
    (m, k), n, blocked = a.shape, b.shape[0], a_scale.ndim > 0
    tiles = -(-m // TILE) * -(-n // TILE)
    pairs = [x.view(torch.float16) for x in (a, b)]
    maps = [tensor_maps.tensor_map(x, (TILE, TILE // 2)) for x in pairs]
    strides = (*a_scale.stride(), *b_scale.stride()) if blocked else (0, 0, 0, 0)
    KERNELS.launch(
        f"hopper<{blocked:d}>",
        min(tiles, sms),
        384,
        *(c, *pairs, a_scale, b_scale),
        *maps,
        *np.int64(strides),
        *np.int32([m, n, k]),
        shared=SHARED,
    )
# --8<-- [end:launch]
