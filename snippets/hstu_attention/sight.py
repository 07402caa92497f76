"""Histories in tiles: the tile of a program, the keys it sees, what a score gives."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from snippets.flash_attention.tiles import LOG2E


# --8<-- [start:plan]
def plan(cu: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences by falling length, and the tiles of `size` rows before each of them.

    The longest start first, so that at the end only short ones are left to even out
    the load. Worked out where cu is: nothing waits for the GPU."""
    lengths, order = cu.diff().sort(descending=True, stable=True)
    tiles = torch.div(lengths + size - 1, size, rounding_mode="floor")
    before = torch.cat([cu[:1], tiles.cumsum(0, dtype=torch.int32)])
    return order.to(torch.int32), before


@triton.jit
def tile_of_program(order, before, cu, targets, heads, count, SIZE: tl.constexpr):
    """Of a program: its sequence's first row, rows and history, head and tile.

    All heads of a sequence, then the next: tiles that share keys are neighbours, so
    that L2 serves them. A program without a tile has first >= rows.
    """
    program = tl.program_id(0)
    at, beyond = 0, count
    while beyond - at > 1:  # the last sequence whose programs begin here or before
        middle = (at + beyond) // 2
        if tl.load(before + middle) * heads <= program:
            at = middle
        else:
            beyond = middle
    b = tl.load(order + at)
    start = tl.load(cu + b)
    rows = tl.load(cu + b + 1) - start
    begin = tl.load(before + at)
    tiles = tl.maximum(tl.load(before + at + 1) - begin, 1)
    head = (program - begin * heads) // tiles
    tile = (program - begin * heads) % tiles
    history = rows
    if targets is not None:
        history = tl.minimum(tl.maximum(rows - tl.load(targets + b), 0), rows)
    if head >= heads:
        tile = tiles
    return start, rows, history, head, tile, tiles
# --8<-- [end:plan]


# --8<-- [start:seen_keys]
@triton.jit
def seen_keys(first, rows, history, window, M: tl.constexpr, N: tl.constexpr):
    """Of M queries from `first` on: all see the keys inner ... outer - 1, whole tiles.

    Some see some of the tiles in three more stretches: `left` tiles from begin on, at
    the window's edge; `edge` tiles from outer on, at the diagonal or the history's end;
    `self` tiles from own on, where targets see themselves.
    """
    nearest = tl.minimum(first, history)
    begin = tl.maximum(nearest - window, 0) // N * N
    outer = nearest // N * N
    farthest = tl.minimum(first + M - 1, history)
    inner = tl.minimum(tl.cdiv(tl.maximum(farthest - window, 0), N) * N, outer)
    past = tl.cdiv(tl.minimum(first + M, history), N) * N
    own = tl.maximum(past, first // N * N)
    left, edge = (inner - begin) // N, (past - outer) // N
    itself = tl.cdiv(tl.maximum(tl.minimum(first + M, rows) - own, 0), N)
    return begin, left, inner, outer, edge, own, itself
# --8<-- [end:seen_keys]


# --8<-- [start:band]
@triton.jit
def seeing_queries(first, rows, history, window, M: tl.constexpr, N: tl.constexpr):
    """Of N keys from `first` on: the queries inner ... outer - 1 see them all; some see
    some in the `left` tiles from begin on, and in those from outer to end - 1."""
    begin = first // M * M
    end = rows
    if first + N - 1 < history - window:  # too far back for targets
        end = tl.minimum(first + N + window, rows)
    if first >= history:  # targets see no target but themselves
        end = tl.minimum(first + N, rows)
    inner = tl.cdiv(first + N, M) * M
    outer = tl.cdiv(rows, M) * M  # what is past the last query adds zeros
    if history - first > window:
        outer = (first + window + 1) // M * M
    if first + N > history:
        outer = inner
    inner = tl.minimum(inner, tl.cdiv(end, M) * M)
    outer = tl.maximum(outer, inner)
    return begin, (inner - begin) // M, inner, outer, end


@triton.jit
def sight(row, col, history, window):
    """Whether query `row` sees key `col`."""
    apart = tl.minimum(row, history) - col
    return (apart > 0) & (apart <= window) | (row == col)
# --8<-- [end:band]


# --8<-- [start:silu]
@triton.jit
def silu(s, alpha, bias, row, col, history, window, span, BIAS: tl.constexpr,
         MASK: tl.constexpr):
    """SiLU(alpha * s + bias) = x * gate, and the gate 1 / (1 + exp(-x)); 0 if unseen.

    Two visits to the special function unit a score: an exp2 and a reciprocal. Where
    exp2 overflows, the reciprocal of infinity is the right 0.
    """
    x = s * alpha
    if BIAS:
        apart = tl.minimum(row, history) - tl.minimum(col, history)
        x += tl.load(bias + tl.minimum(tl.maximum(apart, 0), span - 1))
    gate = libdevice.fast_dividef(1.0, 1.0 + tl.exp2(x * -LOG2E))
    if MASK:
        gate = tl.where(sight(row, col, history, window), gate, 0.0)
    return x * gate, gate
# --8<-- [end:silu]
