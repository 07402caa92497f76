"""The gradients, by specialised warps as well: five products for a pair of tiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda, tensor_maps
from snippets.flash_specialised.flash_specialised import (
    DIM,
    LOG2E,
    TILE,
    TYPES,
    checked,
)

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
ROWS = 64  # queries of a tile
# Bytes: keys and values, two stages of queries and dout, of the gradients of scores and
# of lse and delta, what leaves of dq, five barriers.
SHARED = (2 * TILE + 4 * ROWS + 2 * ROWS) * DIM * 2 + (ROWS * DIM + 4 * ROWS) * 4 + 40


# --8<-- [start:launch]
def gradients(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk, dv like q, k, v; out and lse are what `attention` gave, dout is like out.

    Sums of dq, float32, are added up by the copy engine in any order: the last bits of
    two runs may differ.

    Raises:
        TypeError, ValueError: as `checked` says of q, k and v.
        ValueError: dout, out or lse is not such a tensor, or not contiguous.
    """
    b, h, s, d = checked(q, k, v)
    for name, x in {"dout": dout, "out": out, "lse": lse}.items():
        due = (q.dtype, q.shape) if x is not lse else (torch.float32, q.shape[:3])
        if (x.dtype, x.shape, x.device) != (*due, q.device):
            raise ValueError(
                f"flash_specialised: {name} is {x.dtype}, {tuple(x.shape)}, on "
                f"{x.device}, beside q of {tuple(q.shape)} on {q.device}; give what "
                "attention gave"
            )
        if not x.is_contiguous() or x.data_ptr() % 16:
            raise ValueError(
                f"flash_specialised: {name} is not contiguous from a multiple of 16 "
                "bytes on; give a copy"
            )
    if not q.numel():
        return tuple(torch.zeros_like(x) for x in (q, k, v))
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    dtype, rows, scale = TYPES[q.dtype], b * h * s, d**-0.5
    facts = q.new_empty((2, rows), dtype=torch.float32)
    sums = q.new_zeros((rows, d), dtype=torch.float32)
    KERNELS.launch(
        f"prepare<{dtype}>", rows // 8, 256, facts, out, dout, lse, np.int32(rows)
    )
    maps = [
        tensor_maps.tensor_map(x.view(-1, d), (box, 64))
        for x, box in ((q, ROWS), (dout, ROWS), (k, TILE), (v, TILE))
    ]
    KERNELS.launch(
        f"backward<{dtype}, {causal:d}>",
        (s // TILE, b * k.shape[1]),
        384,
        *(sums, dk, dv, q, dout, k, v, facts),
        *maps,
        *(np.int32(s), np.int32(h // k.shape[1]), np.float32(scale * LOG2E)),
        shared=SHARED,
    )
    KERNELS.launch(f"bring<{dtype}>", rows // ROWS, 256, dq, sums, np.float32(scale))
    return dq, dk, dv
# --8<-- [end:launch]
