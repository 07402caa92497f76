"""What conv1d is held to: starts of rows, every width, thin and ragged groups."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from snippets.conv1d import conv1d as ours

NEEDS = {
    "sm": ">=80",
    "why": "cp.async, and arithmetic on pairs of bfloat16",
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "fused": {
            "sm": [80, 87, 90, 100, 103],
            "why": "256 channels and a slab take 103 KiB of shared memory",
        },
        "cluster": {"sm": ">=90", "why": "clusters of blocks"},
        "torch.compile": {"cpu": "it would compile C++ for each shape; a GPU times it"},
    },
}


def along(
    b: int, d: int, length: int, w: int, dtype: str, *kills: str, **more: object
) -> dict:
    """A case of the depthwise convolution; plain leaves bias and SiLU out."""
    return {"op": "depthwise", "dtype": dtype, "plain": False, **more,
            "b": b, "d": d, "l": length, "w": w, "variants": [*ours.DEPTHWISE],
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


def across(
    b: int, c: int, t: int, k: int, s: int, groups: int, *kills: str, **more: object
) -> dict:
    """A case of the dense one; cluster is a way of its own where a group is shared."""
    share = ours.parts(b * groups, k // groups, 132)
    ways = [*ours.DENSE] if share > 1 else [*ours.DENSE[:2]]
    return {"op": "dense", "b": b, "c": c, "t": t, "k": k, "s": s, "groups": groups,
            "variants": ways, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    along(1, 1, 1, 4, "float32", "whole packs only"),
    along(2, 3, 1540, 4, "float32",
          "16 bytes at any address", "row before the first seen",
          "nothing before a warp's packs", "neighbours from around",
          "taps backwards", "bias dropped", "first image for all",
          "an input too early"),
    along(1, 1, 4132, 8, "float32", "one pack before is enough",
          "second block begins at 0"),
    along(2, 3, 4136, 4, "bfloat16", "always what came round first",
          "halves of a word swapped"),
    along(3, 2, 333, 4, "float16", "packs beyond the end written", "SiLU dropped"),
    along(2, 3, 96, 1, "float16", "bias where there is none", plain=True),
    across(1, 9, 19, 20, 5, 1, "16 bytes of every row", "outputs without room",
           "epsilon dropped", scale=1e-3),
    across(2, 200, 20, 36, 5, 2,
           "slab unwaited for", "slab unwaited for by the other lanes",
           "shares over a slab that is read", "shares unwaited for",
           "shares overwritten", "words unwaited for", "variance by E[x^2] - E[x]^2",
           "sum of one block for all", offset=20.0),
    across(1, 20, 8, 80, 3, 1, "times before the first", "channels beyond the last",
           "rows of the next block", "exponential of all",
           "16 bytes of x at any address", "sums of other blocks unwaited for",
           gain=60.0),
)  # fmt: skip
TIMED = (
    *(along(1, 12_288, 16_384, 4, dtype, plain=True)
      for dtype in ("bfloat16", "float16", "float32")),
    along(8, 4096, 2048, 4, "bfloat16"),
    along(8, 4096, 2047, 4, "bfloat16"),  # no row but the first begins on 16 bytes
    across(1, 512, 16, 512, 5, 8),
    across(1, 1024, 16, 1024, 5, 8),
    across(1, 2048, 4, 2048, 5, 8),
    across(1, 2048, 16, 2048, 5, 8),
    across(64, 512, 16, 512, 5, 8),
)  # fmt: skip
COUNTED = (
    along(2, 4, 8192, 4, "float32"),
    along(2, 4, 8192, 4, "bfloat16"),
    across(1, 256, 16, 128, 5, 1),
)

# A lane of `deep` has 64 bytes of inputs on their way: with 32 warps 64 KiB. Taps are
# single elements that all lanes of a warp read, and what of the pack before a warp's is
# needed may be loaded so too: the rest of the bytes is moved 16 at a time. Of W inputs
# of a warp of the naive kernel W - 1 begin off a sector: 5 or 3 of them for 4 or 2. Two
# blocks of dense_fused, with 32 sums a lane, share a multiprocessor's registers, and
# its shared memory except on sm_80.
LIMITS = {
    "*": {"spilled_bytes": 0},
    "depthwise_naive": {"registers": 32, "warps": 64, "sectors_over_ideal": 1.25},
    "depthwise": {"warps": 32, "sectors_over_ideal": 1, "wide_accesses": 0.5},
    "depthwise<float, 4, 4, 4>": {"wide_accesses": 0.8},
    "depthwise<Bfloat16, 8, 4, 4>": {"wide_accesses": 0.89},
    "dense_conv": {"warps": 48, "sectors_over_ideal": 1.4},
    "dense_norm": {"warps": 64, "sectors_over_ideal": 1, "wavefronts_over_ideal": 1},
    "dense_fused": {
        "registers": 128, "warps": 8, "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1.1, "wide_accesses": 0.98,
    },
    "dense_fused<5, 16, 4, true>": {"warps": 16, "instructions_per_fma": 1.8},
}  # fmt: skip


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple:
    """The operation and what it is of: normal numbers, with means that are not 0."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    if case["op"] == "depthwise":
        b, d, length, w = (case[side] for side in "bdlw")
        dtype = getattr(torch, case["dtype"])
        x, weight = draw(b, d, length).to(dtype), draw(d, w).to(dtype)
        bias = None if case["plain"] else draw(d).to(dtype)
        return "depthwise", x, weight, bias, not case["plain"]
    b, c, t, k, s = (case[side] for side in "bctks")
    scale, weight = case.get("scale", 1.0), draw(k, c, s)
    x = scale * draw(b, c, t)
    # A mean of many deviations: E[x^2] - E[x]^2 would lose what the variance is.
    offset = case.get("offset", 2.0)
    bias = scale * (offset * (c * s) ** 0.5 + draw(k))
    gamma = case.get("gain", 1.0) * (1 + 0.3 * draw(k))
    return "dense", x, weight, bias, case["groups"], gamma, 0.3 * draw(k)


def reference(op: str, x: torch.Tensor, weight: torch.Tensor, *more) -> torch.Tensor:
    """The definition in float64, tap by tap."""
    x, weight = x.double(), weight.double()
    width, length = weight.shape[-1], x.shape[2]
    if op == "depthwise":
        bias, silu = more
        padded = F.pad(x, (width - 1, 0))
        y = sum(weight[:, w, None] * padded[..., w : w + length] for w in range(width))
        if bias is not None:
            y = y + bias.double()[:, None]
        return y * torch.sigmoid(y) if silu else y
    bias, groups, gamma, beta = more
    padded = F.pad(x, (width // 2, width // 2))
    taps = (weight[..., s] @ padded[..., s : s + length] for s in range(width))
    y = sum(taps) + bias.double()[:, None]
    grouped = y.reshape(len(y), groups, len(weight) // groups * length)
    off = grouped - grouped.mean(-1, keepdim=True)
    y = (off / (off.square().mean(-1, keepdim=True) + 1e-5).sqrt()).view(y.shape)
    y = y * gamma.double()[:, None] + beta.double()[:, None]
    return y * torch.tanh(torch.logaddexp(y, torch.zeros_like(y)))


def by(way: str) -> Callable:
    """One way of ours, of the operation that has it."""

    def run(op: str, *given) -> torch.Tensor:
        return getattr(ours, op)(*given, way=way)

    return run


def calls(op: str, x: torch.Tensor, weight: torch.Tensor, *more) -> torch.Tensor:
    """torch's calls one after another."""
    width, length = weight.shape[-1], x.shape[2]
    if op == "depthwise":
        bias, silu = more
        own = weight[:, None]
        y = F.conv1d(x, own, bias, padding=width - 1, groups=x.shape[1])[..., :length]
        return F.silu(y) if silu else y
    bias, groups, gamma, beta = more
    y = F.conv1d(x, weight, bias, padding=width // 2)
    return F.mish(F.group_norm(y, groups, gamma, beta))


def plainly(run: Callable) -> Callable:
    """With float32 products in float32: cuDNN takes TF32 unless told."""

    def calling(*given) -> torch.Tensor:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return run(*given)

    return calling


@functools.cache
def compiler() -> Callable:
    """torch.compile of the calls, compiled anew for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(calls, dynamic=False, fullgraph=True)


def compiled(*given) -> torch.Tensor:
    """The same by what torch.compile makes of them."""
    return compiler()(*given)


VARIANTS = {way: by(way) for way in (*ours.DEPTHWISE, *ours.DENSE)}
PEERS = {"torch": plainly(calls), "torch.compile": plainly(compiled)}


def cost(case: dict) -> dict:
    """What must cross memory, and two operations for each tap of an output."""
    if case["op"] == "depthwise":
        b, d, length, w = (case[side] for side in "bdlw")
        size = getattr(torch, case["dtype"]).itemsize
        outputs = b * d * length
        own = d * (w + (not case["plain"]))
        return {
            "bytes": size * (2 * outputs + own),
            "flops": 2 * w * outputs,
            "unit": "fp32",
        }
    b, c, t, k, s = (case[side] for side in "bctks")
    moved = ours.moved("fused", b, c, t, k, s) + 12 * k
    return {"bytes": moved, "flops": 2 * b * k * t * c * s, "unit": "fp32"}
