"""What gemm_layouts is held to: four layouts, ragged, thin and whole tiles."""

from __future__ import annotations

from functools import partial

import torch

from snippets.gemm_layouts import gemm_layouts


def case(m: int, n: int, k: int, layout: str, *kills: str, **more: object) -> dict:
    """A case of a product; `columns` asks for C by columns."""
    return {"m": m, "n": n, "k": k, "layout": layout, "columns": False, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    case(1, 1, 1, "NN", "whole tiles only"),
    case(33, 129, 17, "NN", "a's rows taken for dense", "tiles numbered along columns",
         "quads of four only", "depth not bounded"),
    case(130, 20, 36, "NT", "b's columns taken for rows", "last slab dropped",
         "slabs unwaited for"),
    case(132, 136, 40, "TN", "padding without its words", "16 bytes at any address",
         "slabs overwritten while they are read", "next slab of a by its rows"),
    case(140, 132, 64, "TT", "swizzle that carries", "second half from the first",
         "quads turned wrongly", "columns of b taken for dense"),
    case(40, 259, 33, "NT", "the transpose for C", "swizzle of single elements",
         columns=True),
)  # fmt: skip
TIMED = (
    *(case(4096, 4096, 4096, layout) for layout in ("NN", "NT", "TN", "TT")),
    case(4096, 4096, 4096, "NN", columns=True),
    case(8191, 1023, 4095, "NT"),  # nothing begins on 16 bytes
)
COUNTED = tuple(case(256, 256, 64, layout) for layout in ("NN", "NT", "TN", "TT"))
# 64 sums and 128 registers leave a multiprocessor two blocks of 256 threads.
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 128},
    "gemm_tiled": {"warps": 16, "wide_accesses": 1, "instructions_per_fma": 1.4},
    **{
        f"gemm_tiled<{place}, {layout}, 1>": {"wavefronts_over_ideal": 1}
        for place in ("Plain", "Padded", "Swizzled")
        for layout in ("1, 0", "1, 1", "0, 0", "0, 1")
        if place == "Swizzled" or layout == "0, 0"
    },
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """a (m, k) and b (k, n), normal, each by rows or by columns; how C is to lie."""

    def draw(rows: int, columns: int, by: str) -> torch.Tensor:
        shape = (rows, columns) if by == "N" else (columns, rows)
        x = torch.randn(shape, generator=generator, device=device)
        return x if by == "N" else x.t()

    m, n, k = case["m"], case["n"], case["k"]
    first, second = case["layout"]
    return draw(m, k, first), draw(k, n, second), case["columns"]


def reference(a: torch.Tensor, b: torch.Tensor, columns: bool) -> torch.Tensor:
    """The product in float64."""
    return a.double() @ b.double()


def by(way: str, a: torch.Tensor, b: torch.Tensor, columns: bool) -> torch.Tensor:
    """One way of ours."""
    return gemm_layouts.product(a, b, way, columns)


VARIANTS = {way: partial(by, way) for way in gemm_layouts.WAYS}
PEERS = {"torch": lambda a, b, columns: a @ b}


def cost(case: dict) -> dict:
    """Two operations for each product of two elements."""
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
