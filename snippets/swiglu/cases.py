"""What verifies SwiGLU: apart and packed, each gradient by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.swiglu import swiglu as ours

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Each tensor is moved once, by whole sectors and 16 bytes a lane, with warps enough to
# keep memory busy: 64 bytes in flight a thread forwards, 96 backwards.
LIMITS = {
    "*": {
        "spilled_bytes": 0,
        "registers": 128,  # of narrow rows, each lane with addresses of its own
        "sectors_over_ideal": 1,
        "wide_accesses": 1,
        "warps": 32,
        "matrix_instructions": False,
    },
    "swiglu_forward": {"warps": 48},
}


def by(variant: str) -> Callable:
    """One variant of ours; one tensor less is a packed one."""

    def run(which: str, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if which == "forward":
            pair = given if len(given) == 2 else ours.halves(*given)
            return (ours.forward(*pair, variant),)
        if len(given) == 3:
            return ours.backward(*given, variant)
        return (ours.backward_packed(*given, variant),)

    return run


VARIANTS = {"unfused": by("unfused"), "fused": by("fused")}


def library(which: str, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same by PyTorch's own kernels."""
    if which == "forward":
        gate, up = given if len(given) == 2 else given[0].chunk(2, -1)
        return (F.silu(gate) * up,)
    dy, *rest = given
    gate, up = rest if len(rest) == 2 else rest[0].chunk(2, -1)
    dgate = torch.ops.aten.silu_backward(dy * up, gate)
    dup = dy * F.silu(gate)
    return (dgate, dup) if len(rest) == 2 else (torch.cat((dgate, dup), -1),)


@functools.cache
def compiler() -> Callable[..., tuple]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False, fullgraph=True)


def compiled(which: str, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same by the kernels that torch.compile writes."""
    return compiler()(which, *given)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(which: str, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The truth, in float64."""
    given = tuple(each.double() for each in given)
    if which == "forward":
        gate, up = given if len(given) == 2 else given[0].chunk(2, -1)
        return (gate * torch.sigmoid(gate) * up,)
    dy, *rest = given
    gate, up = rest if len(rest) == 2 else rest[0].chunk(2, -1)
    share = torch.sigmoid(gate)
    grads = dy * up * share * (1 + gate * (1 - share)), dy * gate * share
    return grads if len(rest) == 2 else (torch.cat(grads, -1),)


def case(m: int, f: int, dtype: str, *kills: str, **more: object) -> dict:
    """m rows of f columns; packed in rows of 2 f, or gate and up apart."""
    row = {"pass": "forward", "packed": False, "m": m, "f": f, "dtype": dtype, **more}
    return {**row, "kills": list(kills)} if kills else row


BACK = {"pass": "backward"}
PACKED = {"packed": True}
CASES = (
    case(1, 1, "float32", "unfused: silu is cut at 0", "sigmoid of -gate", value=-1.0),
    case(67, 17, "float32",
         "rows of gate and up taken as adjacent", "rows past the end", **PACKED),
    case(5, 781, "float32", "exp for exp2", "unfused: silu rounded to bfloat16"),
    case(3, 1025, "float32", "exp of gate over 1 plus itself", scale=1e4),
    case(3, 1027, "float16", "last tile of columns dropped", **PACKED),
    case(2, 2500, "bfloat16", "sigmoid for silu", **PACKED),
    case(1, 2, "float32", "dgate without its second term", **BACK),
    case(67, 17, "float32",
         "dup by the gate's rows", "rows of dy taken as adjacent", **BACK, **PACKED),
    case(3, 1025, "float32", "exp of gate over 1 plus itself", scale=1e4, **BACK),
    case(3, 1027, "float16", "dgate without up", **BACK),
    case(2, 2500, "bfloat16", "dup without silu", **BACK, **PACKED),
)  # fmt: skip
TIMED = (
    *(case(2**27 // f, f, "bfloat16") for f in (4096, 8192, 16384)),
    *(case(8192, f, "bfloat16", **PACKED) for f in (14336, 16384)),
    case(8192, 14336, "float16", **PACKED),
    case(8192, 14336, "float32", **PACKED),
    case(8192, 14336, "bfloat16", **BACK),
    case(8192, 14336, "bfloat16", **BACK, **PACKED),
)
# Llama 3 8B's width, which 16 divides like those of TIMED, of several tiles a row.
COUNTED = (
    case(16, 14336, "bfloat16"),
    case(16, 14336, "bfloat16", **PACKED),
    case(16, 14336, "bfloat16", **BACK),
    case(16, 14336, "bfloat16", **BACK, **PACKED),
)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", gate, up) or ("backward", dy, gate, up); packed is one for two."""
    m, f = case["m"], case["f"]
    dtype = getattr(torch, case["dtype"])

    def draw(n: int, scale: float = 1.0) -> torch.Tensor:
        x = torch.randn(m, n, generator=generator, device=device, dtype=dtype)
        return x * scale

    scale = case.get("scale", 1.0)
    tensors = [draw(2 * f, scale)] if case["packed"] else [draw(f, scale), draw(f)]
    if "value" in case:
        tensors[0].fill_(case["value"])
    return case["pass"], *([draw(f)] if case["pass"] == "backward" else []), *tensors


def cost(case: dict) -> dict:
    """FLOPs by element: 6 forward (scale, exp2, add, divide, two products) and 11
    backward, all of them in float32."""
    flops = 6 if case["pass"] == "forward" else 11
    return {"flops": flops * case["m"] * case["f"], "unit": "fp32"}
