"""What matmul_languages is held to: fewer slabs than stages and more, rows apart."""

from __future__ import annotations

from functools import partial

import torch

from snippets.matmul_languages import matmul_languages


def case(m: int, n: int, k: int, *kills: str, **more: object) -> dict:
    """A case of a product; `apart`: elements from row to row beyond those of a row."""
    return {"m": m, "n": n, "k": k, **more, **({"kills": [*kills]} if kills else {})}


CASES = (
    case(128, 128, 32, "slabs multiplied before they are there",
         "copies beyond the last slab", "turned before all have written",
         "chunks of a row of A in their order", "Gluon copies beyond the last slab"),
    case(256, 128, 64, "rows of A taken for dense", "groups end with the slabs",
         "Triton takes tiles the other way round",
         "Gluon does not await the last zeros", apart=8),
    case(128, 256, 160, "the same half of a slab twice", "B read untransposed",
         "Triton goes along B by a row of A", "Gluon awaits a slab too few"),
    case(128, 128, 288, "one slab too few awaited", "turned over slabs that are read",
         "Gluon asks for the slab that is multiplied", apart=24),
)  # fmt: skip
TIMED = tuple(case(side, side, side) for side in (1024, 2048, 4096, 8192))
COUNTED = (case(256, 256, 256),)
# 128 sums a thread leave a multiprocessor two blocks of 4 warps. What the three have in
# common: 16 bytes at a time, and no bank asked twice.
LIMITS = {
    "*": {
        "spilled_bytes": 0, "matrix_instructions": True, "warps": 8, "wide_accesses": 1,
        "sectors_over_ideal": 1,
    },
    "gemm_cuda": {"wavefronts_over_ideal": 1, "instructions_per_fma": 2.6},
    "gemm_gluon": {"wavefronts_over_ideal": 1.1, "instructions_per_fma": 2.6},
    "gemm_triton": {"wavefronts_over_ideal": 1.1},
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), normal."""
    apart, found = case.get("apart", 0), []
    for rows, columns in ((case["m"], case["k"]), (case["k"], case["n"])):
        x = torch.randn(rows, columns + apart, generator=generator, device=device)
        found.append(x.half()[:, :columns])
    return tuple(found)


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product in float64."""
    return a.double() @ b.double()


VARIANTS = {
    language: partial(matmul_languages.product, language=language)
    for language in matmul_languages.LANGUAGES
}
PEERS = {"torch": torch.matmul}


def cost(case: dict) -> dict:
    """Two operations for each product of two elements."""
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
