"""A feed-forward some rows at a time: its hidden activations never exist whole.

Shapes  x (..., D); w1 (D, F); w2 (F, D); out as x: gelu(x w1) w2, all of one dtype
Bytes   held beside inputs, outputs and gradients, with C rows in a chunk and e bytes an
        element: 2 C F e forward, max(3 C, 2 C + D) F e backward, and nothing from one
        to the other. All rows at once keep 2 S F e
FLOPs   4 S D F forward, 8 S D F backward and 2 S D F of it again, for x w1
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def feed_forward(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    """All rows at once."""
    return F.gelu(x @ w1) @ w2


# --8<-- [start:chunks]
def forward(
    x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, chunk: int
) -> torch.Tensor:
    """The same of `chunk` rows at a time; x is (S, D)."""
    out = torch.empty_like(x)
    for rows, part in zip(x.split(chunk), out.split(chunk), strict=True):
        part.copy_(F.gelu(rows @ w1) @ w2)
    return out


def backward(
    dout: torch.Tensor, x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dx, dw1, dw2; hidden activations are made anew from x, chunk by chunk."""
    if (dout.shape, dout.dtype, dout.device) != (x.shape, x.dtype, x.device):
        raise ValueError(
            f"blockwise_attention: dout is {tuple(dout.shape)} of {dout.dtype} on "
            f"{dout.device}; make it {tuple(x.shape)} of {x.dtype} on {x.device}, as x"
        )
    wide = torch.promote_types(x.dtype, torch.float32)  # sums over chunks keep digits
    dx = torch.empty_like(x)
    dw1, dw2 = (torch.zeros_like(w, dtype=wide) for w in (w1, w2))
    chunks = zip(*(tensor.split(chunk) for tensor in (dout, x, dx)), strict=True)
    for dout_rows, rows, dx_rows in chunks:
        before = rows @ w1
        hidden = F.gelu(before)
        dw2 += hidden.mT @ dout_rows
        del hidden  # makes room for its gradient
        dhidden = dout_rows @ w2.mT
        dbefore = torch.ops.aten.gelu_backward(dhidden, before)
        del dhidden, before
        dw1 += rows.mT @ dbefore
        dx_rows.copy_(dbefore @ w1.mT)
        del dbefore
    return dx, dw1.to(w1.dtype), dw2.to(w2.dtype)


class Chunked(torch.autograd.Function):
    """Keeps inputs alone, which exist anyway."""

    @staticmethod
    def forward(ctx, x, w1, w2, chunk):
        ctx.save_for_backward(x, w1, w2)
        ctx.chunk = chunk
        return forward(x.reshape(-1, x.shape[-1]), w1, w2, chunk).view(x.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout):
        x, w1, w2 = ctx.saved_tensors
        rows = [tensor.reshape(-1, x.shape[-1]) for tensor in (dout, x)]
        dx, dw1, dw2 = backward(*rows, w1, w2, ctx.chunk)
        return dx.view(x.shape), dw1, dw2, None


# --8<-- [end:chunks]


def chunked_feed_forward(
    x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, chunk: int
) -> torch.Tensor:
    """gelu(x w1) w2 by chunks of rows, differentiable.

    Raises:
        ValueError: shapes do not fit, or chunk is not positive.
        TypeError: dtypes or devices differ.
    """
    check(x, w1, w2, chunk)
    return Chunked.apply(x, w1, w2, chunk)


def check(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, chunk: int) -> None:
    """See that they belong together."""
    alike = {(tensor.dtype, tensor.device) for tensor in (x, w1, w2)}
    if len(alike) > 1 or not x.dtype.is_floating_point:
        told = ", ".join(f"{one.dtype} on {one.device}" for one in (x, w1, w2))
        raise TypeError(
            f"blockwise_attention: x, w1 and w2 are {told}; bring them to one floating-"
            "point dtype and device"
        )
    if (
        x.ndim < 1
        or w1.ndim != 2
        or (x.shape[-1], w1.shape[1]) != w2.shape[::-1]
        or (w1.shape[0] != x.shape[-1])
    ):
        told = ", ".join(str(tuple(one.shape)) for one in (x, w1, w2))
        raise ValueError(
            f"blockwise_attention: the shapes {told} do not fit; give x (..., D), w1 "
            "(D, F) and w2 (F, D)"
        )
    if chunk < 1:
        raise ValueError(f"blockwise_attention: chunk = {chunk} has no row; give it 1")
