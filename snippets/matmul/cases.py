"""What verifies matmul: edges, depths, layouts, each epilogue and its gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.matmul import layer, matmul

WORTH = 2**20  # elements above which a CPU is given a case to compile it, not to run it
NEEDS = {
    "seconds": 900,  # the reference multiplies in float64
    "variants": {
        "descriptors": {"sm": ">=90"},
        "torch.compile": {"cpu": "it would compile C++ by shape; a GPU times it"},
    },
}
TENSOR_CORES = {"matrix_instructions": True}
LIMITS = {
    # 128 x 256 sums are 128 registers for each of 256 threads; slabs fill what is left.
    "*": {
        "registers": 255,
        "spilled_bytes": 0,
        "shared_bytes": 227 * 1024,
        "warps": 8,
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 1,
    },
    "matmul_naive": TENSOR_CORES,
    "matmul_grouped": TENSOR_CORES,
    "matmul_persistent": TENSOR_CORES,
    "matmul_described": TENSOR_CORES,
    "matmul_slope": {"matrix_instructions": False},
}


def case(m: int, n: int, k: int, dtype: str, *kills: str, **more: object) -> dict:
    """`transposed`: b lies along k, as the weights of a layer do."""
    row = {"pass": "forward", "m": m, "n": n, "k": k, "dtype": dtype, **more}
    if row["pass"] == "backward" and row.get("activation") is None:
        raise ValueError("a case of a gradient has an activation")
    return {**row, "kills": list(kills)} if kills else row


BACK = {"pass": "backward"}
FULL = {"bias": True, "residual": True}
CASES = (
    case(17, 33, 0, "float16", "sums begin at one",  # the product is 0
         activation="relu", **FULL, variants=["naive", "persistent"]),
    case(67, 131, 127, "float32",
         "last slab dropped", "float32 rounded to tf32", "gelu without the cube",
         "columns past the edge are written", "bias taken as adjacent",
         "residual taken to be as long as c", "a program takes one tile only",
         activation="gelu_tanh", **FULL, variants=["grouped", "persistent"]),
    case(65, 72, 200, "float16",
         "silu without its factor", "bias of the first strip for all",
         "described, residual of the first columns for all",
         activation="silu", **FULL, variants=["naive", "descriptors"]),
    case(150, 300, 72, "bfloat16",
         "relu lets small negative numbers through", "last group taken as full",
         "every depth is taken for whole slabs", "second strip over the first",
         activation="relu", bias=True, variants=["grouped"]),
    case(136, 1032, 136, "float16",
         "described, second strip over the first", "a program takes one tile only",
         "described, columns of b that lie along k taken from the wrong tile",
         transposed=True, variants=["descriptors"]),
    case(40, 72, 136, "bfloat16",
         "slope of silu is its sigmoid", "the last block of slopes is not written",
         "described, rows of a that lie along m taken from the wrong tile",
         activation="silu", **BACK, variants=["naive", "descriptors"]),
    case(33, 17, 40, "float32",
         "slope of gelu without the inner derivative",
         "neighbours of a taken to lie along k",
         activation="gelu_tanh", **BACK, variants=["naive", "persistent"]),
    case(40, 33, 24, "float16", "slope of relu is one everywhere",
         activation="relu", **BACK, variants=["grouped"]),
)  # fmt: skip
FEW = {"variants": ["persistent", "descriptors"]}
TIMED = (
    *(case(s, s, s, "bfloat16") for s in (1024, 2048, 4096, 8192)),
    case(8192, 8192, 512, "bfloat16"),  # short loops: what an epilogue costs
    case(16, 4096, 4096, "bfloat16"),  # too few tiles for the multiprocessors
    case(8192, 4096, 16384, "bfloat16", transposed=True, **FEW),
    # Both layers of a feed-forward block of 4,096 columns.
    case(8192, 16384, 4096, "bfloat16", bias=True, activation="gelu_tanh", **FEW),
    case(8192, 4096, 16384, "bfloat16", **FULL, **FEW),
    case(4096, 4096, 4096, "bfloat16", activation="silu", **BACK, **FEW),
    case(2048, 2048, 2048, "float32", variants=["persistent"]),
)
# Several whole tiles for each program: plain, and with all that is done behind them.
COUNTED = (
    case(512, 512, 256, "float16", transposed=True),
    case(512, 512, 256, "bfloat16", activation="silu", **FULL),
)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", activation, a, b, bias, residual), or "backward" and a, b, z, dc."""
    dtype = getattr(torch, case["dtype"])

    def drawn(*shape: int) -> torch.Tensor:
        if device == "cpu" and math.prod(shape) > WORTH:
            return torch.empty(shape, dtype=dtype)
        x = torch.randn(shape, generator=generator, device=device)
        rare = torch.rand(shape, generator=generator, device=device) < 0.01
        return torch.where(rare, 6 * x, x).to(dtype)  # one in a hundred is an outlier

    m, n, k = case["m"], case["n"], case["k"]
    a, b = drawn(m, k), drawn(k, n) / max(k, 1) ** 0.5
    if case.get("transposed"):
        b = b.mT.contiguous().mT
    last = drawn(m, n) if case.get("residual") or case["pass"] == "backward" else None
    middle = drawn(n) if case.get("bias") else None
    if case["pass"] == "backward":
        middle = drawn(m, n)
        # What cancels shows how dz is rounded, and no more than that.
        b, last = b.abs(), last.abs()
    return case["pass"], case.get("activation"), a, b, middle, last


APPLY: dict[str | None, Callable] = {
    None: lambda z: z,
    "relu": F.relu,
    "silu": F.silu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
}
SLOPE: dict[str, Callable] = {
    "relu": lambda dc, z: torch.ops.aten.threshold_backward(dc, z, 0),
    "silu": torch.ops.aten.silu_backward,
    "gelu_tanh": functools.partial(torch.ops.aten.gelu_backward, approximate="tanh"),
}


def library(which, activation, a, b, middle, last):
    """The same by cuBLAS, and PyTorch's kernels behind it."""
    if which == "backward":
        dz = SLOPE[activation](last, middle)
        return dz @ b.mT, a.mT @ dz
    z = a @ b if middle is None else torch.addmm(middle, a, b)
    c = APPLY[activation](z)
    return c if last is None else c + last


def reference(which, activation, *tensors):
    """The truth, in float64."""
    double = (x if x is None else x.double() for x in tensors)
    return library(which, activation, *double)


@functools.cache
def compiler() -> Callable[..., torch.Tensor]:
    """torch.compile of `library`, one graph for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False, fullgraph=True)


def compiled(which, *told):
    """The same by cuBLAS or Triton as torch.compile chooses, its epilogues fused."""
    return compiler()(which, *told)


def by(how: str) -> Callable:
    """One kernel of ours, for the product and for those of its gradients."""

    def run(which, activation, a, b, middle, last):
        if which == "forward":
            return matmul.product(a, b, middle, last, activation, how=how)[0]
        dz = layer.slope(last, middle, activation)
        pairs = (dz, b.mT), (a.mT, dz)
        return tuple(matmul.product(*pair, how=how)[0] for pair in pairs)

    return run


VARIANTS = {how: by(how) for how in ("naive", "grouped", "persistent", "descriptors")}
PEERS = {"torch": library, "torch.compile": compiled}


def cost(case: dict) -> dict:
    """A product takes 2 m n k; the gradients are two."""
    products = 1 if case["pass"] == "forward" else 2
    return {"flops": 2 * products * case["m"] * case["n"] * case["k"]}
