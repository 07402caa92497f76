"""Weights rounded to codes of 3 or 4 bits, and how codes lie in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch

WIDE = {4: 64, 3: 32}  # numbers of 16 bits that lie side by side: a row of one tile
SLAB = {4: 256, 3: 512}  # weights of a row that are packed together
WORDS = {4: 64, 3: 96}  # the numbers of 16 bits that they fill


# --8<-- [start:pack]
class Packed(NamedTuple):
    """Weights (N, K): codes, what they stand for, and rows of outliers."""

    codes: torch.Tensor  # (N, slabs * WORDS) int16
    steps: torch.Tensor  # (K / group, N, 2) as x: scale; zero point, 0 to 2**bits - 1
    starts: torch.Tensor  # (N + 1,) int32: where each row's outliers begin
    columns: torch.Tensor  # (outliers,) int16, read without a sign
    values: torch.Tensor  # (outliers,) as x
    bits: int


def check_columns(k: int) -> None:
    if k > 2**16:
        raise ValueError(f"quant_matmul: K = {k}; an outlier's column has 16 bits, so "
                         f"cut the weights at {2**16}")  # fmt: skip


def quantise(weight: torch.Tensor, bits: int, group: int, kept: torch.Tensor) -> Packed:
    """Round to the nearest code; where `kept` is true the weight stays as it is."""
    n, k = weight.shape
    if bits not in SLAB:
        raise ValueError(f"quant_matmul: bits = {bits}; 3 and 4 are packed")
    if group < 1 or group % WIDE[bits] or k % group:
        raise ValueError(f"quant_matmul: group = {group} must divide K = {k} and be a "
                         f"multiple of {WIDE[bits]}; choose another")  # fmt: skip
    check_columns(k)
    top = 2**bits - 1
    # An outlier must not stretch the scale of its neighbours, so it counts as 0.
    parts = weight.float().masked_fill(kept, 0).reshape(n, k // group, group)
    low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
    scales = ((high - low) / top).clamp(min=1e-6).to(weight.dtype)
    zeros = (-low / scales.float()).round().clamp(0, top)
    codes = (parts / scales.float()[..., None]).round() + zeros[..., None]
    codes = codes.clamp(0, top).reshape(n, k)
    # The code of an outlier stands for 0 exactly, and the outlier is added to that.
    codes = torch.where(kept, zeros.repeat_interleave(group, 1), codes)
    starts = torch.zeros(n + 1, dtype=torch.int32, device=weight.device)
    starts[1:] = kept.sum(1).cumsum(0)
    columns = kept.nonzero()[:, 1].to(torch.int16)  # wraps, as it is read
    steps = torch.stack((scales.mT, zeros.mT.to(weight.dtype)), 2)
    return Packed(pack(codes.to(torch.int64), bits), steps, starts, columns,
                  weight[kept], bits)  # fmt: skip


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes (N, K) as tiles of 16-bit numbers, each of weights WIDE columns apart."""
    n, k = codes.shape
    slabs = -(-k // SLAB[bits])
    padded = codes.new_zeros(n, slabs * SLAB[bits])
    padded[:, :k] = codes
    at = padded.view(n, slabs, SLAB[bits] // WIDE[bits], WIDE[bits])
    if bits == 4:
        words = sum(at[:, :, j] << 4 * j for j in range(4))
    else:  # five in each of three tiles; the top bits of all three hold the sixteenth
        words = torch.cat(
            [sum(at[:, :, 5 * t + j] << 3 * j for j in range(5))
             | (at[:, :, 15] >> t & 1) << 15 for t in range(3)], 2)  # fmt: skip
    return words.to(torch.int16).reshape(n, slabs * WORDS[bits])


def unpack(words: torch.Tensor, bits: int, k: int) -> torch.Tensor:
    """Codes (N, K) of `pack`, back again."""
    n, wide, slabs = len(words), WIDE[bits], words.shape[1] // WORDS[bits]
    tiles = words.to(torch.int64).view(n, slabs, WORDS[bits] // wide, wide)
    if bits == 4:
        parts = [tiles[:, :, 0] >> 4 * j & 15 for j in range(4)]
    else:
        parts = [tiles[:, :, t] >> 3 * j & 7 for t in range(3) for j in range(5)]
        parts.append(sum((tiles[:, :, t] >> 15 & 1) << t for t in range(3)))
    return torch.stack(parts, 2).flatten(1)[:, :k]


def dequantise(packed: Packed, k: int, dtype: torch.dtype) -> torch.Tensor:
    """The weights (N, K) that a product with `packed` is a product with."""
    codes, steps, starts, columns, values, bits = packed
    group = k // len(steps) if len(steps) else 1
    scale, zero = steps.to(dtype).repeat_interleave(group, 0).unbind(2)
    weight = (unpack(codes, bits, k).to(dtype) - zero.mT) * scale.mT
    rows = torch.arange(len(starts) - 1, device=codes.device)
    rows = rows.repeat_interleave((starts[1:] - starts[:-1]).long())
    weight[rows, columns.long() & 0xFFFF] += values.to(dtype)
    return weight
# --8<-- [end:pack]
