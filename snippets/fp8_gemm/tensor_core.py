"""A model of the sums of Hopper's FP8 tensor cores, which keep few bits."""

from __future__ import annotations

import torch


# --8<-- [start:emulation]
def emulated(
    a: torch.Tensor, b: torch.Tensor, every: int | None, bits: int = 14
) -> torch.Tensor:
    """a b^T by a model of Hopper's tensor core, in float64; no GPU computes so here.

    An instruction adds 32 products to the sum so far. All are shifted to the largest
    exponent among them, and what lies below its highest `bits` bits is cut off, down.
    After `every` products float32 takes the sum over, and the next begins at 0.
    """
    a, b = a.double(), b.double()
    total = a.new_zeros(a.shape[0], b.shape[0])
    inner = total.clone()
    for start in range(0, a.shape[1], 32):
        step = slice(start, start + 32)
        terms = torch.cat(
            [a[:, None, step] * b[None, :, step], inner[..., None]], dim=-1
        )
        largest = terms.abs().amax(-1, keepdim=True)
        exponent = torch.frexp(largest).exponent - 1
        grain = torch.ldexp(torch.ones_like(largest), exponent - (bits - 1))
        inner = ((terms / grain).floor() * grain).sum(-1)
        if every is not None and (start + 32) % every == 0:
            total = (total + inner).float().double()
            inner = torch.zeros_like(inner)
    return total + inner
# --8<-- [end:emulation]
