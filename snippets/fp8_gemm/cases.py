"""What verifies fp8_gemm: products of what e4m3 stands for, and a quantiser's bits."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.fp8_gemm import fp8_gemm as ours
from snippets.fp8_gemm import quantise
from snippets.fp8_gemm.quantise import E4M3

WORTH = 2**20  # elements above which a CPU is given a case to compile it, not to run it
NEEDS = {
    "seconds": 600,  # the reference multiplies in float64
    "variants": {
        "descriptors": {"sm": ">=90"},
        "unpromoted": {"sm": ">=90"},
        "specialised": {"sm": 90, "why": "wgmma"},
        "scaled_mm": {"sm": 90, "cpu": "cuBLAS has it for GPUs alone"},
    },
}
# A tile of sums twice over, the tensor core's and ours, fills registers: one block of
# eight warps. What is moved is moved once, and no bank is asked twice.
TENSOR_CORES = {
    "matrix_instructions": True,
    "spilled_bytes": 0,
    "sectors_over_ideal": 1,
    "wavefronts_over_ideal": 1,
    "warps": 8,
}
BYTES_ONLY = {
    "matrix_instructions": False,
    "spilled_bytes": 0,
    "wavefronts_over_ideal": 1,
}
LIMITS = {
    "*": {"registers": 255, "shared_bytes": 227 * 1024},
    "fp8_gemm_naive": TENSOR_CORES,
    "fp8_gemm_grouped": TENSOR_CORES,
    "fp8_gemm_described": TENSOR_CORES,
    "hopper": {**TENSOR_CORES, "registers": 168, "warps": 12},
    "fp8_amax": {**BYTES_ONLY, "sectors_over_ideal": 1, "warps": 64},
    # A lane's 16 values are one store of 16 bytes and two loads, each half of a sector;
    # the second finds the sector in L1.
    "fp8_quantise": {**BYTES_ONLY, "sectors_over_ideal": 1.67, "warps": 16},
}


def product(m: int, n: int, k: int, scales: str, *kills: str, **more: object) -> dict:
    """A product, with the `scales` of two tensors or of rows and blocks."""
    row = {"pass": "multiply", "m": m, "n": n, "k": k, "scales": scales, **more}
    row["out"] = "bfloat16"
    return {**row, "kills": list(kills)} if kills else row


def cast(m: int, k: int, share: str, dtype: str, *kills: str, **more: bool) -> dict:
    """A quantisation, whose bytes are compared as such."""
    row = {"pass": "quantise", "m": m, "k": k, "share": share, "dtype": dtype}
    row |= {"power": False, "out": ["uint8", "float32"], "variants": ["pointers"]}
    row |= more
    return {**row, "kills": list(kills)} if kills else row


CASES = (
    product(67, 131, 300, "blocks",
            "last slab dropped", "every depth is taken for whole slabs",
            "naive, scales of the first slab for all",
            "columns past the edge are written",
            variants=["naive", "pointers"]),
    product(40, 272, 640, "blocks",  # five slabs, and tiles of half a block
            "a block of b is twice as wide", "a's scale of the first slab for all",
            "b's scale of the first slab for all", "last group taken as full",
            "specialised, a's scale of the first slab for all",
            "specialised, b's scale of the first block for all",
            "specialised, a sum goes on into the next slab",
            "specialised, a stage filled too soon", "specialised, one tile a block",
            variants=["pointers", "descriptors", "specialised"]),
    product(150, 145, 272, "blocks",
            "a's scales of the first rows for all",
            "b's scale of the first block for all",
            "specialised, multiplied before it is there",
            "specialised, both groups the same rows",
            "specialised, fours past an odd edge",
            variants=["descriptors", "specialised"]),
    product(70, 136, 400, "tensors",
            "b's scale is forgotten", "a sum ends with its slab", "sums begin at one",
            "specialised, no scale of tensors",
            variants=["pointers", "descriptors", "unpromoted", "specialised"]),
    cast(37, 300, "row", "bfloat16",
         "negative numbers have no size", "nothing below 2^-10",
         "zeros are divided by zero", "fullest value is 440"),
    cast(33, 136, "row", "float32", "power of two below", "power of two above always",
         power=True),
    cast(150, 200, "block", "float16", "maximum of the least row",
         "blocks of the first row for all", power=True),
    cast(133, 257, "tensor", "float32", "last tile's maximum"),
)  # fmt: skip
FEW = {"variants": ["pointers", "descriptors", "specialised"]}
TIMED = (
    product(4096, 7168, 16384, "blocks", **FEW),
    product(4096, 2112, 7168, "blocks", **FEW),
    product(64, 7168, 16384, "blocks", **FEW),  # as many bytes as the weights have
    product(8192, 8192, 8192, "tensors",
            variants=["pointers", "descriptors", "unpromoted", "specialised"]),
    product(8192, 8192, 8192, "blocks",
            variants=["naive", "pointers", "descriptors", "specialised"]),
    cast(8192, 7168, "row", "bfloat16"),
    cast(8192, 7168, "row", "bfloat16", power=True),
    cast(7168, 16384, "block", "bfloat16"),
    cast(8192, 7168, "tensor", "bfloat16"),
)  # fmt: skip
COUNTED = (
    product(256, 256, 512, "blocks",
            variants=["naive", "pointers", "descriptors", "specialised"]),
    product(256, 256, 512, "tensors", variants=["unpromoted", "descriptors"]),
    cast(256, 1024, "row", "bfloat16"),
    cast(256, 512, "block", "bfloat16"),
    cast(256, 512, "tensor", "bfloat16"),
)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("multiply", a, b and their scales), or ("quantise", share, power, x)."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    def between(*shape: int) -> torch.Tensor:  # 1 and 2: none is like another
        return 1 + torch.rand(shape, generator=generator, device=device)

    m, k = case["m"], case["k"]
    wide = -(-k // 128)
    large = device == "cpu" and m * k > WORTH
    if case["pass"] == "quantise" and large:
        x = torch.empty(m, k, dtype=getattr(torch, case["dtype"]))
        return "quantise", case["share"], case["power"], x
    if case["pass"] == "quantise":
        x = drawn(m, k)
        # Each group has a size of its own, some far below, some are zero or -0.
        steps = torch.randint(-6, 7, (m, wide), generator=generator, device=device)
        steps[::5] -= 15 if case["dtype"] == "float16" else 60
        x *= torch.exp2(steps.float()).repeat_interleave(128, dim=1)[:, :k]
        x[3::7] = -0.0
        if case["share"] == "row":
            x[1, ::128] = 8 * 448.0  # the scale is a power of two as it is
        x = x.to(getattr(torch, case["dtype"]))
        return "quantise", case["share"], case["power"], x
    n = case["n"]
    if large or (device == "cpu" and n * k > WORTH):
        a, b = torch.empty(m, k, dtype=E4M3), torch.empty(n, k, dtype=E4M3)
    else:
        a = (100 * drawn(m, k)).clamp(-448, 448).to(E4M3)
        b = (0.1 * drawn(n, k)).to(E4M3)
    if case["scales"] == "tensors":
        scales = between(), between()
    else:
        scales = between(wide, m).mT, between(-(-n // 128), wide)
    return "multiply", a, b, *scales


def meant(q: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a matrix in e4m3 stands for: of its scales each has as many rows as fit."""
    if scale.ndim:
        tall = 1 if scale.shape[0] == q.shape[0] else 128
        scale = scale.repeat_interleave(tall, 0).repeat_interleave(128, 1)
        scale = scale[: q.shape[0], : q.shape[1]]
    return q.to(dtype) * scale.to(dtype)


def rule(share: str, power: bool, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The contract of the quantiser, in single operations of float32: q and scales."""
    (m, k), wide = x.shape, -(-x.shape[1] // 128)
    if x.numel() == 0:
        shape = {"row": (m, wide), "block": (-(-m // 128), wide), "tensor": ()}[share]
        return x.to(E4M3), torch.ones(shape, device=x.device)
    tall = {"row": 1, "block": 128, "tensor": m}[share]
    deep = k if share == "tensor" else 128
    x = x.float()
    sized = x.abs().where(x.isfinite(), 0.0)
    padded = F.pad(sized, (0, -k % deep, 0, -m % tall))
    parts = padded.reshape(padded.shape[0] // tall, tall, padded.shape[1] // deep, deep)
    # By a tensor: by a number torch multiplies with its inverse on a GPU.
    scale = parts.amax(dim=(1, 3)).clamp(min=2.0**-100) / x.new_tensor(448.0)
    if power:
        fraction, exponent = torch.frexp(scale)
        scale = torch.exp2((exponent - (fraction == 0.5).int()).float())
    factor = (1 / scale).repeat_interleave(tall, 0).repeat_interleave(deep, 1)[:m, :k]
    q = (x * factor).clamp(-448, 448).where(x.isfinite(), float("nan")).to(E4M3)
    return q, scale.reshape(()) if share == "tensor" else scale.reshape(-1, wide)


def reference(which: str, *told: object) -> object:
    """The truth: a product in float64, a quantisation by its rule."""
    if which == "quantise":
        q, scale = rule(*told)
        return q.view(torch.uint8), scale.double()
    a, b, a_scale, b_scale = told
    return meant(a, a_scale, torch.float64) @ meant(b, b_scale, torch.float64).mT


def by(how: str, promote: bool = True) -> Callable:
    """One kernel of ours; the quantiser, which has one way, is its own."""

    def run(which: str, *told: object) -> object:
        if which == "multiply":
            return ours.product(*told, promote=promote, how=how)
        share, power, x = told
        q, scale = quantise.quantised(x, share, power)
        return q.view(torch.uint8), scale

    return run


VARIANTS = {
    "naive": by("naive"),
    "pointers": by("pointers"),
    "descriptors": by("descriptors"),
    "unpromoted": by("descriptors", promote=False),
    "specialised": by("specialised"),
}


def eager(which: str, *told: object) -> object:
    """What needs no kernel of its own: one operation at a time, in bfloat16."""
    if which == "quantise":
        q, scale = rule(*told)
        return q.view(torch.uint8), scale
    a, b, a_scale, b_scale = told
    return meant(a, a_scale, torch.bfloat16) @ meant(b, b_scale, torch.bfloat16).mT


@functools.cache
def compiler() -> Callable:
    """torch.compile of the quantiser's rule, one graph for each shape it meets."""
    return torch.compile(rule, dynamic=False, fullgraph=True)


def scaled_mm(which: str, *told: object) -> object:
    """cuBLAS, and the quantiser as torch.compile fuses it."""
    if which == "quantise":
        q, scale = compiler()(*told)
        return q.view(torch.uint8), scale
    a, b, a_scale, b_scale = told
    kinds = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
    if a_scale.ndim == 0:
        kinds = F.ScalingType.TensorWise, F.ScalingType.TensorWise
    else:  # slabs in fours: with fewer the result was silently wrong, pytorch#166752
        b_scale = F.pad(b_scale, (0, -b_scale.shape[1] % 4)).mT
    return F.scaled_mm(a, b.mT, a_scale, kinds[0], b_scale, kinds[1])


PEERS = {"torch": eager, "scaled_mm": scaled_mm}


def cost(case: dict) -> dict:
    """A product takes 2 m n k; a quantiser only moves bytes."""
    if case["pass"] == "quantise":
        return {"unit": "fp32"}
    return {"flops": 2 * case["m"] * case["n"] * case["k"], "unit": "fp8"}
