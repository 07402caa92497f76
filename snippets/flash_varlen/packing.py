"""Packed sequences: which tile a block has, and where the copy engine sees an end."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets.flash_attention.tiles import PACKED, steps


# --8<-- [start:slots]
@triton.jit
def tile_of_slot(cu, other, slot, count, SIZE: tl.constexpr):
    """Of a slot: where its sequence begins, its rows and which tile of them; and where
    it begins in the other tensor, and its rows there.

    Tiles may not reach from one sequence into the next, so the number of tiles is known
    only to who reads all lengths. But floor(y / SIZE) - floor(x / SIZE) + 1 tiles are
    enough for rows x ... y - 1 wherever they lie. So sequence b gets the slots from
    cu[b] // SIZE + b on, T // SIZE + B are enough for all, and B at most are idle.
    """
    b, beyond = 0, count
    while beyond - b > 1:  # the last sequence whose slots begin here or before
        middle = (b + beyond) // 2
        if tl.load(cu + middle) // SIZE + middle <= slot:
            b = middle
        else:
            beyond = middle
    start = tl.load(cu + b)
    rows = tl.load(cu + b + 1) - start
    tile = slot - start // SIZE - b
    other_start = tl.load(other + b)
    return start, rows, tile, other_start, tl.load(other + b + 1) - other_start
# --8<-- [end:slots]


# --8<-- [start:descriptors]
def packed(tensor: torch.Tensor, rows: int, width: int) -> TensorDescriptor:
    """Packed sequences (1, H, T, D) as the copy engine sees them, each with an end.

    The engine fills with zeros what lies past a dimension's end, but the next sequence
    does not. So rows get three dimensions. The last has PACKED rows and ends where the
    sequence does: row r of s is PACKED - s + r of it. The middle one adds where the
    sequence ends among all. The first takes PACKED rows back: PACKED * 2**34 elements
    of 2 bytes are 2**65 bytes, and addresses have 64 bits.
    """
    _, heads, _, columns = tensor.shape
    _, head, row, _ = steps(tensor)
    return TensorDescriptor(
        tensor,
        [PACKED.value + 1, PACKED.value + 1, heads, PACKED.value, columns],
        [2**34 - row, row, head, row, 1],
        [1, 1, 1, rows, width],
    )
# --8<-- [end:descriptors]


def heads_first(tensor: torch.Tensor) -> torch.Tensor:
    """(T, H, D) as the one sequence (1, H, T, D)."""
    return tensor.transpose(0, 1).unsqueeze(0)


def strides(tensor: torch.Tensor) -> tuple[int, int, int, int]:
    """As flash_attention's kernels take them: a sequence is counted in rows."""
    _, head, row, column = tensor.stride()
    return row, head, row, column
