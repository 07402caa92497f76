"""What verifies RMSNorm: each output, rstd and the gradients among them, by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.rms_norm import gradients
from snippets.rms_norm import rms_norm as ours
from snippets.rms_norm.rms_norm import MAX_BYTES

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Rows are moved by whole sectors, 16 bytes a lane. What is narrower is a row's rstd and
# dot, which every lane loads: more of a tile of two rows than of a whole one.
LIMITS = {
    "*": {
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "matrix_instructions": False,
    },
    "rms_norm_one_pass": {"spilled_bytes": 0, "wide_accesses": 0.97, "warps": 32},
    "add_rms_norm_one_pass": {"spilled_bytes": 0, "wide_accesses": 0.97, "warps": 32},
    "rms_norm_two_reads": {"spilled_bytes": 0, "wide_accesses": 0.97, "warps": 32},
    # Odd rows, loaded element by element, and the longest, on sm_100, spill a little.
    "rms_norm_backward_one_pass": {
        "spilled_bytes": 32,
        "wide_accesses": 0.95,
        "warps": 16,
    },
    "rms_norm_backward_dots": {"spilled_bytes": 0, "wide_accesses": 0.97, "warps": 32},
    "rms_norm_backward_columns": {
        "spilled_bytes": 0,
        "wide_accesses": 0.6,
        "warps": 20,
    },
    "rms_norm_sum_parts": {"spilled_bytes": 0, "wide_accesses": 0.85},
}
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


def by(variant: str) -> Callable:
    """One variant of ours, forwards or backwards."""

    def run(which: str, *told: object) -> tuple[torch.Tensor, ...]:
        given = (ours.forward if which == "forward" else gradients.backward)(
            *told, variant=variant
        )
        return tuple(each for each in given if each is not None)

    return run


VARIANTS = {"one pass": by("one pass"), "two reads": by("two reads")}


def library(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """The same by PyTorch's own kernels."""
    if which == "forward":
        x, weight, eps, residual = told
        total = () if residual is None else (x + residual,)
        x = total[0] if total else x
        y, rstd = torch.ops.aten._fused_rms_norm(x, x.shape[-1:], weight, eps)
        return y, *total, rstd.flatten()
    dy, x, weight, rstd, dtotal = told
    if x.is_cuda:
        given = (dy, x, x.shape[-1:], rstd[:, None], weight, [True, weight is not None])
        grads = torch.ops.aten._fused_rms_norm_backward(*given)
    else:  # which a CPU has by autograd alone
        sources = [x.detach().requires_grad_()]
        if weight is not None:
            sources.append(weight.detach().requires_grad_())
        with torch.enable_grad():
            y = F.rms_norm(sources[0], x.shape[-1:], *sources[1:], eps=EPS)
        grads = torch.autograd.grad(y, sources, dy)
    dx = grads[0] if dtotal is None else grads[0] + dtotal
    return (dx,) if weight is None else (dx, grads[1])


@functools.cache
def compiler() -> Callable[..., tuple]:
    """torch.compile of what a model says, one kernel for each shape it meets."""

    def said(which: str, *told: object) -> tuple[torch.Tensor, ...]:
        if which == "forward":
            x, weight, eps, residual = told
            x = x if residual is None else x + residual
            wide = x.float()
            rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
            y = wide * rstd if weight is None else wide * rstd * weight.float()
            total = () if residual is None else (x,)
            return y.to(x.dtype), *total, rstd.flatten()
        dy, x, weight, rstd, dtotal = told
        x_hat = x.float() * rstd[:, None]
        g = dy.float() if weight is None else dy.float() * weight.float()
        dx = (g - x_hat * (g * x_hat).mean(-1, keepdim=True)) * rstd[:, None]
        dx = (dx if dtotal is None else dx + dtotal.float()).to(x.dtype)
        if weight is None:
            return (dx,)
        return dx, (dy.float() * x_hat).sum(0).to(weight.dtype)

    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(said, dynamic=False, fullgraph=True)


def compiled(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """The same by the kernels that torch.compile writes."""
    return compiler()(which, *told)


PEERS = {"torch": library, "torch.compile": compiled}
EPS = 1e-6


def reference(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """The truth, in float64; backwards, of the rstd that is given."""
    if which == "forward":
        x, weight, eps, residual = told
        x = x.double() if residual is None else x.double() + residual.double()
        mean = x.square().sum(-1) / max(x.shape[-1], 1)
        rstd = (mean + eps).rsqrt()
        y = x * rstd[..., None] * (1 if weight is None else weight.double())
        rstd = rstd.flatten()
        return (y, rstd) if residual is None else (y, x, rstd)
    dy, x, weight, rstd, dtotal = told
    dy, x_hat = dy.double(), x.double() * rstd.double()[:, None]
    g = dy * (1 if weight is None else weight.double())
    dot = (g * x_hat).sum(-1, keepdim=True) / max(x.shape[-1], 1)
    dx = (g - x_hat * dot) * rstd.double()[:, None]
    dx = dx if dtotal is None else dx + dtotal.double()
    return (dx,) if weight is None else (dx, (dy * x_hat).sum(0))


def case(which: str, m: int, n: int, dtype: str, *kills: str, **more: object) -> dict:
    """A row of CASES, TIMED or COUNTED; with a weight of x's dtype unless told."""
    row = {"pass": which, "m": m, "n": n, "dtype": dtype, "weight": dtype, **more}
    first, last = [dtype], ["float32"]
    if which == "backward":
        last = [row["weight"]] if row["weight"] else []
    elif "residual" in row:
        first.append(row["residual"])
    row["out"] = first + last
    if n * WIDTHS[dtype] > MAX_BYTES[which]:
        row.setdefault("variants", ["two reads"])
    return {**row, "kills": list(kills)} if kills else row


FLOAT, HALF, BRAIN = "float32", "float16", "bfloat16"
CASES = (
    case("forward", 1, 1, FLOAT, "eps left out", scale=1e-4),
    case("forward", 67, 17, FLOAT,  # neither rows nor columns fill a block's tile
         "whole tiles of rows only", "columns taken as adjacent",
         "one pass without the row stride", "two reads without the row stride"),
    case("forward", 5, 127, HALF, "no mask", "mean over the padded row"),
    case("forward", 3, 781, HALF, "squares in float16", weight=None, scale=500),
    case("forward", 9, 781, BRAIN, "y without the weight", weight=FLOAT),
    case("forward", 5, 1025, BRAIN, "the residual is left out", residual=BRAIN),
    case("forward", 3, 2064, HALF,  # beyond the largest float16
         "total in the dtype of x", "reads x again, not the sum",
         residual=FLOAT, far=1e5),
    case("forward", 9, 16400, FLOAT,
         "one row a program", "the last chunk is not summed"),
    case("forward", 2, 32800, HALF, "only the last chunk is written",
         "only the first chunk is summed"),
    case("backward", 1, 2, FLOAT, "dx without the projection"),
    case("backward", 67, 17, FLOAT,
         "no mask of rows backwards", "dy without its row stride",
         "no parts are summed", "columns without the row stride of x"),
    case("backward", 37, 781, HALF, "dweight of the last rows only"),
    case("backward", 9, 1025, BRAIN, "dtotal is left out", weight=None, dtotal=BRAIN),
    case("backward", 5, 1027, BRAIN, "dx without the weight",
         "dots without the weight", weight=FLOAT, dtotal=FLOAT),
    case("backward", 2, 16384, BRAIN, "the weight of the loop is left out",
         variants=["one pass"]),
    case("backward", 37, 8200, FLOAT, "dots of the first chunk only",
         "columns written for one tile of rows"),
)  # fmt: skip
TIMED = (
    *(case("forward", 2**27 // n, n, BRAIN)
      for n in (256, 1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144)),
    *(case("forward", 2**26 // n, n, FLOAT) for n in (4096, 32768, 131072)),
    case("forward", 2**15, 4096, BRAIN, residual=BRAIN),
    *(case("backward", 2**27 // n, n, BRAIN)
      for n in (256, 1024, 4096, 8192, 16384, 65536)),
    *(case("backward", 2**26 // n, n, FLOAT) for n in (4096, 32768)),
    case("backward", 2**15, 4096, BRAIN, dtotal=BRAIN),
)  # fmt: skip

# 16 divides all sides, so Triton compiles what it compiles for TIMED.
COUNTED = (
    case("forward", 16, 4096, BRAIN, variants=["one pass"]),
    case("forward", 16, 32768, BRAIN),
    case("forward", 16, 4096, BRAIN, residual=BRAIN, variants=["one pass"]),
    case("backward", 16, 4096, BRAIN, variants=["one pass"]),
    case("backward", 16, 16384, BRAIN, variants=["one pass"]),
    case("backward", 16, 32768, BRAIN),
)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", x, weight, eps, residual), or ("backward", dy, x, weight, rstd,
    dtotal); one element in a hundred is ten times as large."""

    def draw(dtype: str | None, *shape: int, outliers: bool = False):
        if dtype is None:
            return None
        told = {"generator": generator, "device": device}
        x = torch.randn(shape, **told)
        if outliers:
            x = torch.where(torch.rand(shape, **told) < 0.01, 10 * x, x)
        return x.to(getattr(torch, dtype))

    m, n, dtype = case["m"], case["n"], case["dtype"]
    x = draw(dtype, m, n, outliers=True) * case.get("scale", 1)
    weight = draw(case["weight"], n)
    if case["pass"] == "forward":
        residual = draw(case.get("residual"), m, n)
        if "far" in case:
            residual *= case["far"]
        return "forward", x, weight, EPS, residual
    rstd = (x.float().square().sum(-1) / max(n, 1) + EPS).rsqrt()
    dy, dtotal = draw(dtype, m, n), draw(case.get("dtotal"), m, n)
    return "backward", dy, x, weight, rstd, dtotal


def cost(case: dict) -> dict:
    """FLOPs by element: 4 forward (square, sum, two scales) and 9 backward (the weight,
    two products with x_hat, x_hat, two sums, and three to form dx), all in float32."""
    elements = case["m"] * case["n"]
    return {"flops": (4 if case["pass"] == "forward" else 9) * elements, "unit": "fp32"}
