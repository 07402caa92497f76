"""What autotune is held to: six corners of its space on ragged tiles, and all of it."""

from __future__ import annotations

from functools import partial

import torch

from snippets.autotune import autotune

# A tile, a patch and a slab are each cut off by an edge in some case, and whole in
# another; k is shorter than any slab, a multiple of all of them, or of none.
CASES = (
    {"m": 1, "n": 1, "k": 1, "kills": ["last slab dropped", "ragged slab taken whole"]},
    {
        "m": 137, "n": 129, "k": 67,
        "kills": [
            "misaligned rows taken for aligned",
            "no barrier between two buffers",
            "end of a ragged row dropped",
        ],
    },
    {
        "m": 128, "n": 256, "k": 64,
        "kills": [
            "no barrier before a slab is used",
            "no barrier after a slab was used",
            "buffers never swapped",
        ],
    },
    {
        "m": 33, "n": 132, "k": 3,
        "kills": ["row stride of B ignored", "quad of A transposed wrongly"],
    },
    {
        "m": 1, "n": 1023, "k": 33,
        "kills": [
            "rows of A beyond the last",
            "columns of B beyond the last",
            "tiles numbered along columns",
        ],
    },
    {
        "m": 1023, "n": 1, "k": 31,
        "kills": ["row stride of A ignored", "spread rows stored together"],
    },
)
TIMED = (
    {"m": 2048, "n": 2048, "k": 2048},
    {"m": 4096, "n": 4096, "k": 4096},
)
COUNTED = ({"m": 256, "n": 256, "k": 256},)  # whole tiles, aligned, many slabs
LIMITS = {
    "*": {"shared_bytes": 49_152},
    # What the default is for: 16 bytes an access and little beside the multiply-adds.
    "sgemm_tile<128, 128, 8, 8, 8, 1, 2>": {
        "registers": 128,
        "spilled_bytes": 0,
        "warps": 16,
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1.1,
        "wide_accesses": 1,
        "instructions_per_fma": 1.25,
    },
}


def _sizes(*values: int) -> dict[str, int]:
    return dict(zip(autotune.PARAMETERS, values, strict=True))


CORNERS = {
    "default": autotune.DEFAULT,
    "one buffer": {**autotune.DEFAULT, "buffers": 1},
    "patches together": {**autotune.DEFAULT, "spread": 0},
    "small tiles": _sizes(32, 32, 16, 4, 4, 0, 1),
    "tall patches": _sizes(128, 64, 16, 16, 4, 1, 2),
    "wide patches": _sizes(32, 128, 16, 4, 16, 0, 1),
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), normal."""
    sides = (case["m"], case["k"]), (case["k"], case["n"])
    a, b = (torch.randn(s, generator=generator, device=device) for s in sides)
    return a, b


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product in float64."""
    return a.double() @ b.double()


def library(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torch.mm, on a GPU cuBLAS in full float32: TF32 would be another problem."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        return torch.mm(a, b)
    finally:
        matmul.fp32_precision = before


VARIANTS = {name: partial(autotune.multiply, **s) for name, s in CORNERS.items()}
PEERS = {"torch": library}

# --8<-- [start:counted]
SIDE, DEPTH = 4096, 256  # of the product that is timed; steps of k that are counted
SMS = 132  # of an H100 or H200


def one_block(*, bm: int, bn: int, **_: int) -> dict[str, int]:
    """A single tile of C, and a few slabs of k."""
    return {"m": bm, "n": bn, "k": DEPTH}


def busiest(cycles: float, *, bm: int, bn: int, **_: int) -> float:
    """What that makes of the SM that computes most tiles of the whole product."""
    tiles = (SIDE // bm) * (SIDE // bn)
    return cycles * (SIDE / DEPTH) * -(-tiles // SMS)
# --8<-- [end:counted]


SPACE = {
    "parameters": autotune.PARAMETERS,
    "allowed": autotune.allowed,
    "run": autotune.multiply,
    "case": {"m": 137, "n": 130, "k": 67},
    "counted": one_block,
    "scaled": busiest,
    "timed": {"m": SIDE, "n": SIDE, "k": SIDE},
}
NEEDS = {"seconds": 900}  # several hundred configurations are compiled and timed


def cost(case: dict) -> dict:
    """Two operations a multiply-add."""
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
