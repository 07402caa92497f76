"""What hopper_gemm is held to: four layouts, both types, whole and ragged tiles."""

from __future__ import annotations

from functools import partial

import torch

from snippets.hopper_gemm import hopper_gemm

NEEDS = {"sm": 90}  # wgmma is an instruction of this architecture alone


def case(
    m: int, n: int, k: int, layout: str, dtype: str, *kills: str, **more: object
) -> dict:
    """A case of a product; N is for a matrix by rows, T for one by columns."""
    return {"m": m, "n": n, "k": k, "layout": layout, "dtype": dtype, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    case(8, 8, 8, "NN", "float16", "whole tiles only", "fewer bytes expected",
         "slabs multiplied before they land", "sums written before they are made",
         "barriers used before they are there", "boxes over one another",
         "a block's number in what is described"),
    case(136, 520, 72, "NN", "bfloat16", "tiles numbered across", "groups all 16 high",
         "groups across side by side", "both halves of A the first",
         "always the first phase", "two sums written twice"),
    case(200, 261, 392, "NT", "float16", "stage filled before it is free",
         "stage left before its products are made", "chunks of C beyond its end",
         "next slabs over those of the other warpgroup", "last depth left out",
         "one block's warps make room for both"),
    case(136, 264, 64, "TN", "float16", "steps across taken for steps along",
         "sums turned before they are there", "both parts of B at one place"),
    case(64, 133, 200, "TT", "bfloat16", "b described as it is not",
         "next part over the one that is read", "both blocks ask for the same part"),
)  # fmt: skip
TIMED = (
    *(case(side, side, side, "NT", "bfloat16") for side in (2048, 4096, 6144, 8192)),
    *(case(4096, 4096, 4096, layout, "float16") for layout in ("NN", "TN", "TT")),
    case(16, 4096, 4096, "NT", "bfloat16"),  # one row of tiles for 132 multiprocessors
    case(4096, 4096, 512, "NT", "bfloat16"),  # few slabs to a tile
)
COUNTED = tuple(case(256, 512, 256, layout, "float16") for layout in ("NN", "NT"))
# 128 sums a thread: one block, of 8 or 12 warps. What is moved is moved once, and no
# bank is asked twice. Four products of a slab take 512 cycles, in which there is room
# for the instructions beside them.
LIMITS = {
    "*": {
        "matrix_instructions": True,
        "spilled_bytes": 0,
        "shared_bytes": 227 * 1024,
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 1,
    },
    "gemm_together": {"registers": 168, "warps": 8, "instructions_per_fma": 28},
    "gemm_specialised": {"registers": 168, "warps": 12, "instructions_per_fma": 24},
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), normal, each by rows or by columns."""

    def draw(rows: int, columns: int, by: str) -> torch.Tensor:
        shape = (rows, columns) if by == "N" else (columns, rows)
        x = torch.randn(shape, generator=generator, device=device)
        x = x.to(getattr(torch, case["dtype"]))
        return x if by == "N" else x.t()

    m, n, k = case["m"], case["n"], case["k"]
    first, second = case["layout"]
    return draw(m, k, first), draw(k, n, second)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product in float64."""
    return a.double() @ b.double()


VARIANTS = {way: partial(hopper_gemm.product, way=way) for way in hopper_gemm.WAYS}
PEERS = {"torch": torch.matmul}


def cost(case: dict) -> dict:
    """Two operations for each product of two elements."""
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
