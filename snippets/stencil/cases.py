"""What stencil is held to: thin grids, ragged tiles, odd steps, several slabs."""

from __future__ import annotations

from functools import partial

import torch

from snippets.stencil import stencil

NEEDS = {
    "variants": {
        "four steps": {
            "sm": [80, 87, 90, 100, 103],
            "why": "four planes, each twice, take 128 KiB of shared memory",
        },
    },
}
SINGLE = ["naive", "tiled", "marching", "float4"]  # a step a sweep


def grid(z: int, y: int, x: int, steps: int, *kills: str, **more: object) -> dict:
    """A case: the sides of a grid, and the steps that it takes."""
    return {"z": z, "y": y, "x": x, "steps": steps, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    grid(1, 1, 1, 1, "whole tiles only"),
    grid(3, 3, 3, 3, "the rest of the steps dropped", "cells on a face take a step",
         "x taken for a spare grid"),
    grid(11, 18, 67, 2,
         "rows of the grid taken for quads", "tile unwaited for", "plane unwaited for",
         "one plane for all", "a strided grid taken for a dense",
         "the plane below forgotten", "west halo not loaded",
         "a cell too few takes a step"),
    grid(4, 11, 60, 4, "16 bytes at any address"),
    grid(13, 34, 132, 7, "every slab of as many planes"),
    grid(12, 31, 132, 3,
         "queue unwaited for", "one queue for all", "halo begins a row late",
         "slab begins a step late", "west for east", "every level at the newest plane",
         "halo columns written", "halo rows written", variants=["two steps"]),
)  # fmt: skip
TIMED = (
    grid(512, 512, 512, 1, variants=SINGLE),
    grid(512, 512, 512, 8),
    grid(256, 1024, 1024, 8),
    grid(509, 511, 513, 8),  # no row begins on 16 bytes
)
COUNTED = (
    grid(16, 60, 360, 1, variants=SINGLE),
    grid(16, 60, 360, 2, variants=["two steps"]),
    grid(16, 60, 360, 4, variants=["four steps"]),
)
# 32 registers let a multiprocessor have all 2048 threads. Of the last kernel a thread
# keeps 16 cells for each level: 64 registers leave room for two blocks of 16 warps,
# 128 for one. A row that begins a cell before its sector costs one more, which is 5 of
# 4 for a neighbour of the naive kernel, 6 of 4.25 for a row of a tile with its halo,
# and 17 of 16 for a row of 128 cells of which the first 4 are halo.
LIMITS = {
    "*": {"spilled_bytes": 0, "wavefronts_over_ideal": 1},
    "stencil_naive": {"registers": 32, "warps": 64, "sectors_over_ideal": 1.07},
    "stencil_tiled": {
        "registers": 32,
        "warps": 64,
        "shared_bytes": 4 * 10 * 10 * 34,
        "sectors_over_ideal": 1.4,
    },
    "stencil_marching": {
        "registers": 32,
        "warps": 64,
        "shared_bytes": 4 * 2 * 18 * 34,
        "sectors_over_ideal": 1,
    },
    "stencil_time": {"warps": 16, "wide_accesses": 1, "sectors_over_ideal": 17 / 16},
    "stencil_time<1, 1>": {"registers": 64, "warps": 32},
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, int, float, float]:
    """x (z, y, x), normal; the steps; weights that let a wrong cell grow."""
    sides = case["z"], case["y"], case["x"]
    x = torch.randn(sides, generator=generator, device=device)
    return x, case["steps"], -0.7, 0.35


def _stepped(x: torch.Tensor, c0: float, c1: float) -> torch.Tensor:
    """One step by torch, of a dtype of its own."""
    y = x.clone()
    if min(x.shape) > 2:
        own = x[1:-1, 1:-1, 1:-1]
        along = x[1:-1, 1:-1, :-2] + x[1:-1, 1:-1, 2:]
        up = x[1:-1, :-2, 1:-1] + x[1:-1, 2:, 1:-1]
        deep = x[:-2, 1:-1, 1:-1] + x[2:, 1:-1, 1:-1]
        y[1:-1, 1:-1, 1:-1] = c0 * own + c1 * (along + up + deep)
    return y


def reference(x: torch.Tensor, steps: int, c0: float, c1: float) -> torch.Tensor:
    """Step after step in float64."""
    x = x.double()
    for _ in range(steps):
        x = _stepped(x, c0, c1)
    return x


def slices(x: torch.Tensor, steps: int, c0: float, c1: float) -> torch.Tensor:
    """torch: seven shifted views, added."""
    x = x.clone()
    for _ in range(steps):
        x = _stepped(x, c0, c1)
    return x


def convolution(x: torch.Tensor, steps: int, c0: float, c1: float) -> torch.Tensor:
    """torch's 3 x 3 x 3 convolution, 20 of its 27 weights zero, and not in tf32."""
    x = x.clone()
    if min(x.shape) < 3:
        return x
    weights = x.new_zeros(3, 3, 3)
    weights[1, 1, 1] = c0
    for end in (0, 2):
        weights[end, 1, 1] = weights[1, end, 1] = weights[1, 1, end] = c1
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for _ in range(steps):
            inner = torch.nn.functional.conv3d(x[None], weights[None, None])
            x[1:-1, 1:-1, 1:-1] = inner[0]
    return x


VARIANTS = {way: partial(stencil.advance, way=way) for way in stencil.WAYS}
PEERS = {"torch": slices, "torch conv3d": convolution}


def cost(case: dict) -> dict:
    """8 bytes a cell of each sweep; the deepest way needs one for four steps."""
    cells, steps = case["z"] * case["y"] * case["x"], case["steps"]
    sweeps = -(-steps // 4)
    return {"bytes": 8 * cells * sweeps, "flops": 8 * cells * steps, "unit": "fp32"}
