"""How operands of a product become 8 bits: scales from the past, from now, by block.

A product of two eight-bit numbers is exact in more bits. So a cast to 8 bits and back,
and a product of what came back, is what a GPU makes, but for the bits of its sums.
"""

from __future__ import annotations

from collections import deque

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
HISTORY = 16  # maxima that a delayed scale looks back on
BLOCK = 16  # numbers that share a scale; 128 where matrices are large


def cast(x: torch.Tensor, largest: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x in 8 bits and back, scaled so that `largest` is the largest number there."""
    scale = torch.finfo(dtype).max / largest.clamp(min=1e-30)
    return (x * scale).to(dtype).to(x.dtype) / scale


# --8<-- [start:recipes]
class Half:
    """bfloat16, which needs no scale."""

    learns = True  # False while a model is tested: maxima of then are not kept

    def __call__(self, x: torch.Tensor, site: str, rows: bool) -> torch.Tensor:
        """x as an operand at a site; `rows`: it is reduced along its first dimension.

        A site is a layer and "x", "w" or "dy".
        """
        return x.bfloat16().to(x.dtype)


class Current(Half):
    """A scale for each tensor, from its own maximum: a pass over it before the cast."""

    def __call__(self, x: torch.Tensor, site: str, rows: bool) -> torch.Tensor:
        """Gradients have the wider range, all else the finer steps."""
        return cast(x, x.abs().amax(), E5M2 if site.endswith("dy") else E4M3)


class Delayed(Half):
    """A scale for each tensor, from maxima of the last casts at its site: one pass."""

    def __init__(self) -> None:
        self.past: dict[str, deque[torch.Tensor]] = {}
        self.largest: dict[str, torch.Tensor] = {}

    def __call__(self, x: torch.Tensor, site: str, rows: bool) -> torch.Tensor:
        """What is larger than all of the past saturates."""
        if not rows:  # the transposed copy is of the same bytes
            past = self.past.setdefault(site, deque(maxlen=HISTORY))
            now = x.abs().amax()
            self.largest[site] = torch.stack(tuple(past)).amax() if past else now
            if self.learns:
                past.append(now)
        largest = self.largest[site]
        x = torch.maximum(torch.minimum(x, largest), -largest)
        return cast(x, largest, E5M2 if site.endswith("dy") else E4M3)


class Block(Half):
    """A scale for BLOCK numbers in line, of weights for BLOCK x BLOCK; all E4M3."""

    def __call__(self, x: torch.Tensor, site: str, rows: bool) -> torch.Tensor:
        """Blocks lie along what is reduced, so a scale can leave a partial sum."""
        height = BLOCK if rows or site.endswith("w") else 1
        width = BLOCK if not rows or site.endswith("w") else 1
        tiles = x.unflatten(1, (-1, width)).unflatten(0, (-1, height))
        largest = tiles.abs().amax((1, 3), keepdim=True)
        return cast(tiles, largest, E4M3).flatten(0, 1).flatten(1, 2)
# --8<-- [end:recipes]


RECIPES: dict[str, type[Half]] = {
    "bfloat16": Half, "current": Current, "delayed": Delayed, "block": Block,
}  # fmt: skip
