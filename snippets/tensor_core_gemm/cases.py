"""What tensor_core_gemm is held to: both types, whole and ragged tiles, many slabs."""

from __future__ import annotations

from functools import partial

import torch

from snippets.tensor_core_gemm import tensor_core_gemm

NEEDS = {"sm": ">=80", "why": "tiles of bfloat16, and cp.async"}
BLOCKS = [*tensor_core_gemm.WAYS[1:]]  # the ways whose blocks share slabs: any sides


def case(m: int, n: int, k: int, dtype: str, *kills: str, **more: object) -> dict:
    """A case of a product; WMMA as first written takes multiples of 16 alone."""
    ragged = any(side % 16 for side in (m, n, k))
    return {"m": m, "n": n, "k": k, "dtype": dtype, **more,
            **({"variants": BLOCKS} if ragged else {}),
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    case(1, 1, 1, "float16", "whole tiles only", "sums over slabs that are read"),
    case(160, 80, 48, "bfloat16", "tiles numbered across",
         "a warp beyond the last column", "sums read before they are there",
         "sums of the first kernel read before they are there",
         "next sums over those being read"),
    case(130, 136, 72, "float16", "rows of a taken for dense", "outside is copied",
         "groups all 8 high",
         "16 bytes at any address", "halves of a word swapped", "swizzle that carries",
         "slabs overwritten while they are read", "rows beyond the last",
         "slabs multiplied before they are there", "turned before all have written",
         "columns beyond the last", "four columns of fragments alike"),
    case(65, 133, 231, "bfloat16", "last element of an odd row", "b read untransposed",
         "second half of a slab from the first", "chunks of C beyond its end"),
    case(64, 72, 256, "float16", "a slab too early", "slabs taken without the others",
         "groups end with the slabs", "next slab over the present one"),
)  # fmt: skip
TIMED = (
    *(case(side, side, side, "float16") for side in (1024, 2048, 4096, 8192)),
    case(4096, 4096, 4096, "bfloat16"),
    case(16, 4096, 4096, "float16"),  # too few tiles for the multiprocessors
    case(4095, 4095, 4095, "float16"),  # no row begins on 16 bytes
)
COUNTED = tuple(case(256, 256, 256, dtype) for dtype in ("float16", "bfloat16"))
# 128 sums a thread leave a multiprocessor two blocks of 4 warps. Shared memory serves
# all but what WMMA's padding and its sums on their way out cost; the last rung has few
# instructions beside the products, and its loads for both ways of copying a slab.
_BLOCKS = {"warps": 8, "wide_accesses": 1, "sectors_over_ideal": 1}
LIMITS = {
    "*": {"spilled_bytes": 0, "matrix_instructions": True},
    "gemm_shared": {**_BLOCKS, "wavefronts_over_ideal": 1.4},
    "gemm_async": {**_BLOCKS, "wavefronts_over_ideal": 1.4},
    "gemm_ldmatrix": {
        **_BLOCKS, "wavefronts_over_ideal": 1, "instructions_per_fma": 2.6
    },
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), normal."""
    dtype = getattr(torch, case["dtype"])
    sides = (case["m"], case["k"]), (case["k"], case["n"])
    a, b = (torch.randn(one, generator=generator, device=device) for one in sides)
    return a.to(dtype), b.to(dtype)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product in float64."""
    return a.double() @ b.double()


VARIANTS = {
    way: partial(tensor_core_gemm.product, way=way) for way in tensor_core_gemm.WAYS
}
PEERS = {"torch": torch.matmul}


def cost(case: dict) -> dict:
    """Two operations for each product of two elements."""
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
