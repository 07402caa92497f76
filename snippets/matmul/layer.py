"""The product as an operator of torch: a layer with gradients of all that it takes.

dz = dc * activation'(z) is one kernel; da = dz b' and db = a' dz are products of
matmul.py, on transposed views.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from snippets.matmul import matmul
from snippets.matmul.matmul import sigmoid


# --8<-- [start:backward]
@triton.jit
def matmul_slope(dz, dc, z, size, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr):
    """dz = dc * activation'(z), element by element."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(z + at, mask=at < size, other=0.0).to(tl.float32)
    if ACTIVATION == "relu":
        slope = tl.where(t > 0, 1.0, 0.0)
    elif ACTIVATION == "silu":
        part = sigmoid(t)
        slope = part * (1 + t * (1 - part))
    else:
        part = sigmoid(1.5957691216057308 * (t + 0.044715 * t * t * t))
        inner = 1.5957691216057308 * (1 + 3 * 0.044715 * t * t)
        slope = part * (1 + t * (1 - part) * inner)
    given = tl.load(dc + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(dz + at, (given * slope).to(dz.dtype.element_ty), mask=at < size)
# --8<-- [end:backward]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::matmul", mutates_args=())
def operator(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str | None,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    c, z = matmul.product(a, b, bias, residual, activation, keep)
    return c, a.new_empty(0) if z is None else z


def check_slope(dc: torch.Tensor, z: torch.Tensor) -> None:
    """See that dc is as z; TypeError or ValueError says what does not."""
    matmul.check_alike({"dc": dc, "z": z})
    matmul.check(dc.shape == z.shape, ValueError, f"dc is {tuple(dc.shape)}; with this "
                 f"z it must be {tuple(z.shape)}")  # fmt: skip


@torch.library.custom_op("warpshelf::matmul_slope", mutates_args=())
def slope(dc: torch.Tensor, z: torch.Tensor, activation: str) -> torch.Tensor:
    """dz = dc * activation'(z)."""
    check_slope(dc, z)
    dc, z = dc.contiguous(), z.contiguous()
    dz = torch.empty_like(dc)
    if size := dz.numel():
        with torch.cuda.device_of(dz):
            matmul_slope[(triton.cdiv(size, 2048),)](
                dz, dc, z, size, BLOCK=2048, ACTIVATION=activation
            )
    return dz


@operator.register_fake
def _(a, b, bias, residual, activation, keep):
    shape = a.shape[0], b.shape[1]
    return a.new_empty(shape), a.new_empty(shape if keep else 0)


@slope.register_fake
def _(dc, z, activation):
    check_slope(dc, z)
    return dc.new_empty(dc.shape)


def remember(ctx, inputs, output) -> None:
    a, b, _, _, ctx.activation, _ = inputs
    z = output[1]
    ctx.mark_non_differentiable(z)
    ctx.save_for_backward(a, b, None if ctx.activation is None else z)


def backward(ctx, dc, _):
    a, b, z = ctx.saved_tensors
    if ctx.activation is not None and z.shape != dc.shape:
        raise RuntimeError("matmul: z was not kept; call linear, or give keep=True")
    wanted = ctx.needs_input_grad
    dz = dc if ctx.activation is None else slope(dc, z, ctx.activation)
    # By the same kernel: a transpose is other strides, and nothing moves.
    da = operator(dz, b.mT, None, None, None, False)[0] if wanted[0] else None
    db = operator(a.mT, dz, None, None, None, False)[0] if wanted[1] else None
    dbias = dz.sum(0) if wanted[2] else None
    return da, db, dbias, dc if wanted[3] else None, None, None


operator.register_autograd(backward, setup_context=remember)


def linear(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """activation(a b + bias) + residual, with gradients of all four tensors."""
    matmul.checked(a, b, bias, residual, activation)
    learns = any(x is not None and x.requires_grad for x in (a, b, bias))
    keep = activation is not None and learns and torch.is_grad_enabled()
    return operator(a, b, bias, residual, activation, keep)[0]
# --8<-- [end:operator]
