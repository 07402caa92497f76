"""What verifies LayerNorm: each output by itself, mean, rstd and gradients too."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.layer_norm import gradients
from snippets.layer_norm import layer_norm as ours
from snippets.layer_norm.layer_norm import MAX_BYTES

NEEDS = {
    "seconds": 600,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Rows are moved by whole sectors, 16 bytes a lane. What is narrower is a row's mean,
# rstd and sums, which every lane loads: more of a tile of two rows than of a whole one.
LIMITS = {
    "*": {
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "matrix_instructions": False,
    },
    "layer_norm_one_pass": {"spilled_bytes": 0, "wide_accesses": 0.93, "warps": 32},
    # Long rows, on sm_80 and sm_90, spill a little, and backwards so do odd rows, which
    # are loaded element by element, and the longest on sm_100.
    "layer_norm_two_reads": {
        "spilled_bytes": 16,
        "wide_accesses": 0.97,
        "warps": 16,
    },
    "layer_norm_backward_one_pass": {
        "spilled_bytes": 32,
        "wide_accesses": 0.9,
        "warps": 16,
    },
    "layer_norm_backward_dots": {
        "spilled_bytes": 0,
        "wide_accesses": 0.9,
        "warps": 32,
    },
    "layer_norm_backward_columns": {
        "spilled_bytes": 0,
        "wide_accesses": 0.4,
        "warps": 16,
    },
    "layer_norm_sum_parts": {"spilled_bytes": 0, "wide_accesses": 0.85},
}
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
EPS = 1e-5


def by(variant: str) -> Callable:
    """One variant of ours, forwards or backwards."""

    def run(which: str, *told: object) -> tuple[torch.Tensor, ...]:
        kernels = ours.forward if which == "forward" else gradients.backward
        return tuple(x for x in kernels(*told, variant=variant) if x is not None)

    return run


VARIANTS = {"one pass": by("one pass"), "two reads": by("two reads")}


def library(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """The same by PyTorch's own kernels, which take one dtype of half and float32."""
    if which == "forward":
        x, weight, bias, eps = told
        y, *rest = torch.ops.aten.native_layer_norm(x, x.shape[-1:], weight, bias, eps)
        return y, *(each.flatten().float() for each in rest)
    dy, x, weight, bias, mean, rstd = told
    columns = [weight is not None, bias is not None]
    given = (dy, x, x.shape[-1:], mean[:, None], rstd[:, None], weight, bias)
    grads = torch.ops.aten.native_layer_norm_backward(*given, [True, *columns])
    kept = zip(grads, [True, *columns], strict=True)
    return tuple(each for each, wanted in kept if wanted)


@functools.cache
def compiler() -> Callable[..., tuple]:
    """torch.compile of what a model says, one kernel for each shape it meets."""

    def said(which: str, *told: object) -> tuple[torch.Tensor, ...]:
        if which == "forward":
            x, weight, bias, eps = told
            wide = x.float()
            var, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
            rstd = torch.rsqrt(var + eps)
            y = F.layer_norm(wide, x.shape[-1:], weight, bias, eps)
            return y.to(x.dtype), mean.flatten(), rstd.flatten()
        dy, x, weight, bias, mean, rstd = told
        dy, rstd = dy.float(), rstd[:, None]
        x_hat = (x.float() - mean[:, None]) * rstd
        g = dy if weight is None else dy * weight.float()
        dot, shift = (g * x_hat).mean(-1, keepdim=True), g.mean(-1, keepdim=True)
        found = [((g - shift - x_hat * dot) * rstd).to(x.dtype)]
        if weight is not None:
            found.append((dy * x_hat).sum(0).to(weight.dtype))
        if bias is not None:
            found.append(dy.sum(0).to(bias.dtype))
        return tuple(found)

    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(said, dynamic=False, fullgraph=True)


def compiled(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """The same by the kernels that torch.compile writes."""
    return compiler()(which, *told)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """The truth, in float64; backwards, of the mean and rstd that are given."""
    if which == "forward":
        x, weight, bias, eps = told
        x, n = x.double(), max(x.shape[-1], 1)
        mean = x.sum(-1) / n
        off = x - mean[..., None]
        rstd = (off.square().sum(-1) / n + eps).rsqrt()
        y = off * rstd[..., None] * (1 if weight is None else weight.double())
        y += 0 if bias is None else bias.double()
        return y, mean.flatten(), rstd.flatten()
    dy, x, weight, bias, mean, rstd = told
    n = max(x.shape[-1], 1)
    dy, rstd = dy.double(), rstd.double()[:, None]
    x_hat = (x.double() - mean.double()[:, None]) * rstd
    g = dy * (1 if weight is None else weight.double())
    dot = (g * x_hat).sum(-1, keepdim=True) / n
    found = [(g - g.sum(-1, keepdim=True) / n - x_hat * dot) * rstd]
    if weight is not None:
        found.append((dy * x_hat).sum(0))
    if bias is not None:
        found.append(dy.sum(0))
    return tuple(found)


def case(which: str, m: int, n: int, dtype: str, *kills: str, **more: object) -> dict:
    """A row of CASES, TIMED or COUNTED; weight and bias as x unless told."""
    row = {"pass": which, "m": m, "n": n, "dtype": dtype}
    row |= {"weight": dtype, "bias": dtype, **more}
    columns = [row[name] for name in ("weight", "bias") if row[name]]
    row["out"] = [dtype, *(["float32"] * 2 if which == "forward" else columns)]
    if n * WIDTHS[dtype] > MAX_BYTES[which]:
        row.setdefault("variants", ["two reads"])
    return {**row, "kills": list(kills)} if kills else row


FLOAT, HALF, BRAIN = "float32", "float16", "bfloat16"
CASES = (
    case("forward", 1, 2, FLOAT, "eps left out", scale=1e-4),
    case("forward", 67, 17, FLOAT,  # neither rows nor columns fill a block's tile
         "whole tiles of rows only", "columns taken as adjacent",
         "one pass without the row stride", "two reads without the row stride"),
    case("forward", 5, 127, HALF, "no mask of columns", bias=None, shift=20),
    case("forward", 5, 781, FLOAT,  # var is lost in the difference of two squares
         "one pass by the mean of squares", "two reads by the mean of squares",
         "lanes with the mean of the row only", weight=None, shift=30),
    case("forward", 9, 781, BRAIN, "y without the weight", "y without the bias",
         weight=FLOAT, bias=FLOAT),
    case("forward", 9, 16400, FLOAT,
         "one row a program", "the last chunk is not summed", shift=1),
    case("forward", 2, 40960, HALF,
         "chunks are not merged", "only the first is written", values="rising"),
    case("backward", 2, 7, FLOAT, "rstd is left out"),
    case("backward", 67, 17, FLOAT, "no mask of rows backwards",
         "dy without its row stride", "columns without the row stride of x", shift=3),
    case("backward", 37, 781, HALF, "dweight of the last rows only",
         "dbias of the last rows only"),
    case("backward", 9, 1025, BRAIN, "dx without the mean of g",
         "columns without the mean of g", weight=None, offset=1),
    case("backward", 5, 1027, BRAIN,
         "dx without the projection", "dx without the weight",
         "dots without the weight", weight=FLOAT, bias=None),
    case("backward", 37, 8200, FLOAT, "dots of the last chunk only",
         "columns written for one tile of rows"),
)  # fmt: skip
TIMED = (
    *(case("forward", 2**27 // n, n, BRAIN)
      for n in (256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)),
    *(case("forward", 2**26 // n, n, FLOAT) for n in (4096, 32768)),
    *(case("backward", 2**27 // n, n, BRAIN) for n in (256, 1024, 4096, 8192, 16384)),
    *(case("backward", 2**26 // n, n, FLOAT) for n in (4096, 32768)),
    # What Liger-Kernel reports: 4,096 rows of float32.
    *(case("forward", 4096, n, FLOAT) for n in (4096, 16384)),
    case("backward", 4096, 4096, FLOAT),
    # What Triton's tutorial plots: 4,096 rows of float16.
    *(case("backward", 4096, n, HALF) for n in (1024, 4096, 8192)),
)  # fmt: skip

# 16 divides all sides, so Triton compiles what it compiles for TIMED.
COUNTED = (
    case("forward", 16, 4096, BRAIN, variants=["one pass"]),
    case("forward", 16, 16384, BRAIN),
    case("backward", 16, 4096, BRAIN, variants=["one pass"]),
    case("backward", 16, 4096, HALF, variants=["one pass"]),
    case("backward", 16, 16384, BRAIN),
)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", x, weight, bias, eps), or ("backward", dy, x, weight, bias, mean,
    rstd); one element in a hundred is ten times as large."""

    def draw(dtype: str | None, *shape: int, outliers: bool = False):
        if dtype is None:
            return None
        told = {"generator": generator, "device": device}
        x = torch.randn(shape, **told)
        if outliers:
            x = torch.where(torch.rand(shape, **told) < 0.01, 10 * x, x)
            x = x * case.get("scale", 1) + case.get("shift", 0)
        if outliers and case.get("values") == "rising":
            x += torch.arange(shape[-1], device=device) / 2048
        return x.to(getattr(torch, dtype))

    m, n, dtype = case["m"], case["n"], case["dtype"]
    x = draw(dtype, m, n, outliers=True)
    weight, bias = draw(case["weight"], n), draw(case["bias"], n)
    if case["pass"] == "forward":
        return "forward", x, weight, bias, EPS
    mean = x.double().sum(-1, keepdim=True) / max(n, 1)
    rstd = ((x - mean).square().sum(-1) / max(n, 1) + EPS).rsqrt()
    dy = draw(dtype, m, n) + case.get("offset", 0)
    return "backward", dy, x, weight, bias, mean[:, 0].float(), rstd.float()


def cost(case: dict) -> dict:
    """FLOPs by element: 7 forward (sum, subtract, square, sum, and three of the result)
    and 13 backward (x_hat, the weight, two products, four sums, and five of dx), all
    in float32."""
    elements = case["m"] * case["n"]
    flops = 7 if case["pass"] == "forward" else 13
    return {"flops": flops * elements, "unit": "fp32"}
