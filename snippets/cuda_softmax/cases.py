"""What cuda_softmax is held to: short and long rows, -inf, large logits, gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.cuda_softmax import cuda_softmax as ours

NEEDS = {
    "seconds": 300,
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
ANY = ["naive", "tree", "streamed"]  # ways for rows of any length
LONG = [*ANY, "blocks"]


def case(m: int, n: int, dtype: str = "float32", *kills: str, **more: object) -> dict:
    """A case; `values` may be "large", or "masked": -inf but for a few."""
    return {"pass": "forward", "m": m, "n": n, "dtype": dtype, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


BACK = {"pass": "backward"}
CASES = (
    case(1, 1, "float32", "a row too many", "the row's unwaited for"),
    case(11, 37, "float32", "what is beyond the row is 0", "a step too few"),
    case(3, 1000, "float32", "without the maximum", "the sum is not rescaled",
         "16 bytes at any address", values="large"),
    case(2, 2056, "float16", "-inf is subtracted from -inf", "exp for exp2",
         values="masked", variants=LONG),
    case(3, 132, "bfloat16", "a gradient without the sum", "rows taken for dense",
         "halves unwaited for", **BACK),
    case(2, 1036, "float32", "warps unwaited for", "the first element is left out",
         **BACK, variants=LONG),
)  # fmt: skip
TIMED = (
    *(case(2**27 // n, n, "bfloat16") for n in (256, 1024)),
    *(case(2**27 // n, n, "bfloat16", variants=LONG) for n in (4096, 16384)),
    *(case(2**27 // n, n, "bfloat16", variants=ANY[1:]) for n in (65536, 131072)),
    case(2**14, 4096, "float32", variants=LONG),
    case(2**16, 1024, "bfloat16", **BACK),
    case(2**12, 16384, "bfloat16", **BACK, variants=LONG),
)
COUNTED = (case(64, 512, "bfloat16"), case(16, 512, "bfloat16", **BACK))
_ONCE = {"wide_accesses": 1, "sectors_over_ideal": 1, "wavefronts_over_ideal": 1}
LIMITS = {
    "*": {"spilled_bytes": 0},
    # Of a gradient every other word is read, the sums alone: 1.35.
    "softmax_tree": {**_ONCE, "wide_accesses": 0, "wavefronts_over_ideal": 1.4},
    "softmax_held": {"warps": 32, **_ONCE},
    "softmax_streamed": {"warps": 64, **_ONCE},
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """x, or y and dy."""
    m, n, dtype = case["m"], case["n"], getattr(torch, case["dtype"])
    x = torch.randn(m, n, generator=generator, device=device)
    if case["pass"] == "backward":
        dy = torch.randn(m, n, generator=generator, device=device)
        return torch.softmax(x, -1).to(dtype), dy.to(dtype)
    values = case.get("values")
    if values == "large":
        x = x * 1e4
    if values == "masked":
        x[:, : n - 3] = -torch.inf
        x[:, 5] = 1
    return (x.to(dtype),)


def library(*tensors: torch.Tensor) -> torch.Tensor:
    """The same by torch's own kernels."""
    if len(tensors) == 1:
        return torch.softmax(tensors[0], -1)
    y, dy = tensors
    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


@functools.cache
def compiler() -> Callable[..., torch.Tensor]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False, fullgraph=True)


def compiled(*tensors: torch.Tensor) -> torch.Tensor:
    """The same by the kernels that torch.compile writes."""
    return compiler()(*tensors)


VARIANTS = {way: functools.partial(ours.run, way) for way in ours.WAYS}
PEERS = {"torch": library, "torch.compile": compiled}


def reference(*tensors: torch.Tensor) -> torch.Tensor:
    """The truth, in float64."""
    if len(tensors) == 1:
        return torch.softmax(tensors[0].double(), -1)
    y, dy = (x.double() for x in tensors)
    return y * (dy - (y * dy).sum(-1, keepdim=True))


def cost(case: dict) -> dict:
    """What has to be read and written, and no more."""
    size = torch.empty((), dtype=getattr(torch, case["dtype"])).element_size()
    moved = 2 if case["pass"] == "forward" else 3
    return {"bytes": moved * case["m"] * case["n"] * size, "unit": "fp32"}
