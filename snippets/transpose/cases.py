"""What transpose is held to: tiles cut by every edge, thin matrices; what is timed."""

from __future__ import annotations

from functools import partial

import torch

from snippets.transpose import transpose

CASES = (
    {"m": 1, "n": 1, "kills": ["whole tiles only"]},
    {
        "m": 17, "n": 129,
        "kills": ["tiles numbered along columns", "a column for a row"],
    },
    {
        "m": 129, "n": 17,
        "kills": ["rows as long as those of x", "padding without its words"],
    },
    {"m": 1, "n": 1023, "kills": ["elements of a row taken for neighbours"]},
    {
        "m": 1023, "n": 1,
        "kills": ["tile written past the last row", "row stride ignored"],
    },
    {
        "m": 64, "n": 128,
        "kills": [
            "squares turned wrongly",
            "swizzle that carries",
            "row stride of squares ignored",
            "16 bytes at any address",
        ],
    },
    {
        "m": 68, "n": 132,
        "kills": ["squares without a barrier", "squares past the last column"],
    },
    {"m": 66, "n": 132, "kills": ["16 bytes where rows of y are not aligned"]},
    {"m": 68, "n": 130, "kills": ["16 bytes where rows of x are not aligned"]},
    {"m": 130, "n": 131, "kills": ["tile without a barrier"]},
    {"m": 127, "n": 33, "values": "infinite", "kills": ["computes"]},
)
TIMED = (
    {"m": 1024, "n": 1024},  # both stay in the L2 cache
    {"m": 4096, "n": 4096},
    {"m": 8192, "n": 8192},
    {"m": 16384, "n": 16384},
    {"m": 64, "n": 2**20},  # rows of one tile
    {"m": 2**20, "n": 64},
    {"m": 8191, "n": 8191},  # no row begins on 16 bytes, nor on a sector
)
COUNTED = ({"m": 512, "n": 512},)
TOLERANCE = {"float32": (0.0, "a transpose moves elements and computes nothing")}
# 32 registers let a multiprocessor have all 2048 threads, 40 six blocks of 256.
# A tile lets sectors be read and written whole; a pad or a swizzle keeps its columns
# out of one bank; float4 moves 16 bytes a lane.
LIMITS = {
    "*": {"spilled_bytes": 0},
    "transpose_naive": {"registers": 32, "shared_bytes": 0},
    "transpose_tiled": {
        "registers": 32,
        "shared_bytes": 4 * 32 * 33,
        "sectors_over_ideal": 1,
    },
    "transpose_tiled<Padded>": {"wavefronts_over_ideal": 1},
    "transpose_tiled<Swizzled>": {"wavefronts_over_ideal": 1},
    "transpose_float4": {
        "registers": 40,
        "shared_bytes": 4 * 64 * 64,
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 1,
    },
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor]:
    """x (m, n), normal; of "infinite" some are infinite, which no arithmetic keeps."""
    x = torch.randn(case["m"], case["n"], generator=generator, device=device)
    if case.get("values") == "infinite":
        x[::7], x[3::7] = torch.inf, -torch.inf
    return (x,)


def reference(x: torch.Tensor) -> torch.Tensor:
    """The transpose in float64."""
    return x.double().t()


VARIANTS = {way: partial(transpose.transpose, way=way) for way in transpose.WAYS}
PEERS = {"torch": lambda x: x.t().contiguous()}
