"""What verifies grouped GEMM: skewed and empty groups, a tail, both jagged sides."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from snippets.grouped_gemm import grouped_gemm as ours
from snippets.grouped_gemm.weights import weight_gradient

WORTH = 2**20  # elements above which a CPU is given a case to compile it, not to run it
NEEDS = {
    "seconds": 600,
    "variants": {"descriptors": {"sm": ">=90"}},
}
# Slabs arrive by whole sectors, 16 bytes a lane, and lie without bank conflicts; only
# the ends of the groups are narrow.
MOVES = {
    "sectors_over_ideal": 1.01,
    "wavefronts_over_ideal": 1.05,
    "wide_accesses": 0.9,
}
LIMITS = {
    "*": {
        "registers": 255,  # where each element has its own address; 180 elsewhere
        "shared_bytes": 227 * 1024,
        "matrix_instructions": True,
    },
    # On sm_100 the compiler stops at 128 registers, and a group's number or two finds
    # none.
    "grouped_persistent": {**MOVES, "warps": 8, "spilled_bytes": 8},
    # Two programs an SM, which each cover how the other begins and ends. On sm_100 a
    # thread keeps seven numbers elsewhere for that.
    "grouped_described": {**MOVES, "registers": 128, "warps": 16, "spilled_bytes": 28},
    "grouped_weights": {**MOVES, "warps": 8, "spilled_bytes": 0},
}


def case(m: int, e: int, k: int, n: int, dtype: str, *kills: str, **more) -> dict:
    """m rows for e groups; `transposed`: w lies along k, as the weights of a layer do.

    Groups are even, or one has most of the rows, some have none, and some rows none.
    """
    row = {"pass": "forward", "m": m, "e": e, "k": k, "n": n, "dtype": dtype}
    row |= {"skewed": True, **more}
    return {**row, "kills": list(kills)} if kills else row


EVEN = {"skewed": False}
POINTERS = {"variants": ["naive", "persistent"]}
DW = {"pass": "weights", "variants": ["persistent"]}
CASES = (
    case(150, 6, 72, 40, "float16",
         "rows past the last end by the last matrix",
         "naively, rows past the last end by the last matrix",
         "all groups by the first matrix", "naively, all groups by the first matrix",
         "a group goes on into the next", "naively, a group goes on into the next",
         "ends taken as adjacent", "last slab dropped", "depth taken for whole slabs",
         **POINTERS),
    case(300, 3, 64, 144, "bfloat16",
         "tiles counted from the first group on", "second strip over the first",
         "a program takes one tile only", "last band taken as full",
         variants=["persistent"]),
    case(150, 5, 136, 136, "bfloat16",
         "described, all groups by the first matrix",
         "described, slabs of the first depth for all",
         "described, a program takes one tile only", variants=["descriptors"]),
    case(90, 3, 72, 136, "float16",
         "described, columns of w that lie along k taken from the first tile",
         transposed=True, variants=["descriptors"]),
    case(100, 5, 40, 72, "float16",
         "dw, rows of the next group count", "dw, an empty group is not written",
         "dw, all groups from the first row", "dw, rows of x taken as adjacent",
         "dw, second half of a group dropped", **DW),
    case(70, 2, 144, 144, "bfloat16",
         "dw, a program takes one tile only", **DW),
)  # fmt: skip


def timed(m: int, e: int, k: int, n: int, **more: object) -> dict:
    return case(m, e, k, n, "bfloat16", **{**EVEN, **more})


FAST = {"variants": ["persistent", "descriptors"]}
TIMED = (
    timed(32768, 8, 768, 2048),
    timed(32768, 8, 768, 2048, skewed=True, **FAST),
    # DeepSeek-V3's 256 experts on 8 GPUs: the first product of a gated expert.
    timed(32768, 32, 7168, 4096, transposed=True, **FAST),
    timed(32768, 32, 2048, 7168, transposed=True, **FAST),
    timed(128, 32, 7168, 4096, transposed=True, **FAST),  # decoding: w is read once
    timed(32768, 32, 7168, 4096, **DW),
)
# Several whole tiles for each program, groups that are no multiple of a tile.
COUNTED = (
    case(700, 4, 256, 256, "bfloat16", transposed=True,
         variants=["naive", "persistent", "descriptors"]),
    case(700, 4, 256, 256, "bfloat16", **DW),
)  # fmt: skip


def sizes_of(case: dict) -> list[int]:
    """Rows of each group; the skewed leave an eighth of the rows to none."""
    m, e = case["m"], case["e"]
    if not case["skewed"] or e == 0:
        return [m // e + (i < m % e) for i in range(e)] if e else []
    m -= m // 8
    few = [0, m // 9, 1, 0, m // 5, m // 16]
    rest = [min(few[i % 6], m // e) for i in range(e - 1)]
    rest.insert(e // 3, m - sum(rest))  # the rest goes to one
    return rest


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", x, w, ends) or ("weights", x, dy, ends)."""
    dtype = getattr(torch, case["dtype"])
    m, e, k, n = (case[side] for side in "mekn")

    def drawn(*shape: int) -> torch.Tensor:
        if device == "cpu" and math.prod(shape) > WORTH:
            return torch.empty(shape, dtype=dtype)
        x = torch.randn(shape, generator=generator, device=device)
        rare = torch.rand(shape, generator=generator, device=device) < 0.01
        return torch.where(rare, 6 * x, x).to(dtype)  # one in a hundred is an outlier

    sizes = sizes_of(case)
    ends = torch.tensor(sizes, dtype=torch.int64).cumsum(0).to(device, torch.int32)
    x = drawn(m, k)
    if 0 < sum(sizes) < m:
        x[sum(sizes) :] = float("nan")  # rows of no group must not matter
    if case["pass"] == "weights":
        return case["pass"], x, drawn(m, n), ends
    w = drawn(e, k, n) / max(k, 1) ** 0.5
    if case.get("transposed"):
        w = w.mT.contiguous().mT
    return case["pass"], x, w, ends


def reference(which: str, x, other, ends):
    """The truth, in float64, a group at a time."""
    x, other = x.double(), other.double()
    first, parts = 0, []
    for e, end in enumerate(ends.tolist()):
        own = x[first:end]
        product = own @ other[e] if which == "forward" else own.mT @ other[first:end]
        parts.append(product)
        first = end
    if which == "forward":
        return torch.cat((*parts, x.new_zeros(x.shape[0] - first, other.shape[2])))
    return torch.stack(parts) if parts else x.new_zeros(0, x.shape[1], other.shape[1])


def library(which: str, x, other, ends):
    """The same by PyTorch; on a GPU, kernels of CUTLASS."""
    return F.grouped_mm(x if which == "forward" else x.mT, other, offs=ends)


def by(how: str):
    """One kernel of ours."""

    def run(which: str, x, other, ends):
        if which == "weights":
            return weight_gradient(x, other, ends)
        return ours.product(x, other, ends, how)

    return run


VARIANTS = {how: by(how) for how in ("naive", "persistent", "descriptors")}
PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """Two operations for each row of a group, and each number of its matrix."""
    return {"flops": 2 * sum(sizes_of(case)) * case["k"] * case["n"]}
