"""What sgemm is held to: every rung on ragged, thin and whole tiles; what is timed."""

from __future__ import annotations

from functools import partial

import torch

from snippets.sgemm import sgemm

# Every rung's block, warp, patch and slab is cut off by an edge in some case, and whole
# in another; k is shorter than any slab, a multiple of all of them, or of none.
CASES = (
    {"m": 1, "n": 1, "k": 1, "kills": ["last slab dropped", "quads of four only"]},
    {
        "m": 17, "n": 129, "k": 1,
        "kills": [
            "tiles numbered along columns",
            "squares of a patch side by side",
            "elements of a row taken for neighbours",
        ],
    },
    {
        "m": 129, "n": 17, "k": 3,
        "kills": [
            "rows of a thread apart",
            "end of a ragged row dropped",
            "quad transposed wrongly",
        ],
    },
    {"m": 128, "n": 256, "k": 64, "kills": ["one slab too many", "patch transposed"]},
    {
        "m": 1, "n": 1023, "k": 33,
        "kills": ["tiles overwritten while they are read", "rows of B as long as C's"],
    },
    {
        "m": 1023, "n": 1, "k": 31,
        "kills": ["row stride ignored", "tiles used before they are complete"],
    },
    {"m": 129, "n": 132, "k": 65, "kills": ["next slab over the present one"]},
    {
        "m": 259, "n": 261, "k": 127,
        "kills": ["buffers never swapped", "buffers without a barrier"],
    },
    {"m": 65, "n": 140, "k": 72, "values": "outliers", "kills": ["one slab too many"]},
)
FAST = ["2-D coarse", "float4", "warp tiles", "double buffered"]
TIMED = (
    {"m": 256, "n": 256, "k": 256},
    {"m": 512, "n": 512, "k": 512},
    {"m": 1024, "n": 1024, "k": 1024},
    {"m": 2048, "n": 2048, "k": 2048},
    {"m": 4096, "n": 4096, "k": 4096},
    {"m": 8192, "n": 8192, "k": 8192, "variants": FAST},
    {"m": 16, "n": 4096, "k": 4096},  # too few tiles for the multiprocessors
    {"m": 4096, "n": 4096, "k": 64},  # hardly any work to a byte of C
    {"m": 4095, "n": 4095, "k": 4095, "variants": FAST},  # no row begins on 16 bytes
)
COUNTED = ({"m": 256, "n": 256, "k": 256},)  # whole tiles, aligned, many slabs
# 64 accumulators and 128 registers leave a multiprocessor two blocks of 256 threads.
# Each rung keeps what it is there for: neighbours that read neighbours, 16 bytes an
# access, no two words in one bank, and few instructions beside the multiply-adds.
LIMITS = {
    "*": {"registers": 128, "spilled_bytes": 0, "shared_bytes": 16_640, "warps": 16},
    "sgemm_coalesced": {"sectors_over_ideal": 1},
    "sgemm_shared": {"sectors_over_ideal": 1, "wavefronts_over_ideal": 1},
    "sgemm_coarse_1d": {"instructions_per_fma": 1.8},
    "sgemm_coarse_2d": {"instructions_per_fma": 1.3},
    "sgemm_float4": {"wide_accesses": 1, "instructions_per_fma": 1.2},
    "sgemm_warp_tiles": {
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 1,
        "instructions_per_fma": 1.2,
    },
    "sgemm_double_buffered": {
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 1,
        "instructions_per_fma": 1.25,
    },
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), normal; of "outliers" one in 64 is 1000 times as large."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        x = torch.randn(rows, columns, generator=generator, device=device)
        if case.get("values") == "outliers":
            chosen = torch.rand(x.shape, generator=generator, device=device) < 1 / 64
            x = torch.where(chosen, 1000 * x, x)
        return x

    return matrix(case["m"], case["k"]), matrix(case["k"], case["n"])


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


VARIANTS = {rung: partial(sgemm.multiply, rung=rung) for rung in sgemm.RUNGS}
PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """Two operations a multiply-add."""
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
