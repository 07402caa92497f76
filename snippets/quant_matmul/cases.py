"""What verifies quant_matmul: both widths, ragged sides, splits and outliers."""

from __future__ import annotations

import torch

from snippets.quant_matmul import quant_matmul as ours

# Codes become weights in registers: no bank is asked twice, no sector read twice, and
# two blocks of an SM have each other's latency. Of outliers and steps a row has its own
# few, so they share sectors with what is not asked for.
LIMITS = {
    "*": {"spilled_bytes": 0, "shared_bytes": 99 * 1024, "wavefronts_over_ideal": 1},
    "quant_split": {
        "matrix_instructions": True, "registers": 128, "warps": 16,
        "sectors_over_ideal": 1, "instructions_per_fma": 3.2,
    },
    "quant_merge": {"registers": 168, "warps": 12, "sectors_over_ideal": 1.2},
    "quant_unpack": {
        "registers": 64, "warps": 32, "sectors_over_ideal": 1.3, "wide_accesses": 0.7,
    },
}  # fmt: skip


def case(
    m: int, n: int, k: int, bits: int, group: int, dtype: str, *kills: str, **more
) -> dict:
    row = {"m": m, "n": n, "k": k, "bits": bits, "group": group, "dtype": dtype, **more}
    if m > ours.FEW:
        row["variants"] = ["unpacked"]
    return {**row, "kills": list(kills)} if kills else row


CASES = (
    case(3, 70, 640, 4, 64, "float16",
         "zero points ignored", "scale of the first group for all",
         "step of one group for all of a slab", "last split left out",
         "outliers left out", "x taken as adjacent", "last slab dropped",
         "last code of each number taken for its first",
         "outliers as many as the first row has"),
    case(17, 130, 1056, 3, 96, "bfloat16",
         "only the first outliers of a row", "the sixteenth left as it was"),
    case(40, 33, 512, 3, 128, "float16", "rows of x past the first tile dropped"),
    case(1, 2, 33024, 4, 33024, "bfloat16", "columns read with a sign"),
    case(65, 9, 2560, 4, 128, "float16",
         "outliers written with no barrier", "outliers not written"),
)  # fmt: skip
TIMED = (
    *(case(m, 8192, 8192, bits, 128, "bfloat16")
      for m in (1, 16, 64) for bits in (4, 3)),
    case(4096, 8192, 8192, 4, 128, "bfloat16"),
)  # fmt: skip
COUNTED = (
    case(16, 256, 2048, 4, 128, "bfloat16"),
    case(16, 256, 2048, 3, 128, "bfloat16"),
)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """x, then the fields of `Packed`: 0.8 % of the weights are kept."""
    m, n, k = case["m"], case["n"], case["k"]
    dtype = getattr(torch, case["dtype"])
    x = torch.randn(m, k, generator=generator, device=device).to(dtype)
    weight = torch.randn(n, k, generator=generator, device=device)
    kept = torch.rand(n, k, generator=generator, device=device) < 0.008
    weight = torch.where(kept, 6 * weight, weight + 0.5).to(dtype)
    return x, *ours.quantise(weight, case["bits"], case["group"], kept)


def whole(fields: tuple) -> ours.Packed:
    """Weights as they are packed: x alone may have any strides."""
    return ours.Packed(*(each.contiguous() for each in fields[:-1]), fields[-1])


def reference(x, *fields):
    """The truth: float64 on the weights that the codes and outliers stand for."""
    packed = ours.Packed(*fields)
    return x.double() @ ours.dequantise(packed, x.shape[1], torch.float64).mT


def unpacked(x, *fields):
    """Weights written in 16 bits first; the form for many rows."""
    return ours.unpacked(x, whole(fields))


def fused(x, *fields):
    """Unpacked in registers, on the way to the tensor cores."""
    return ours.fused(x, whole(fields))


def library(x, *fields):
    """PyTorch, an operation at a time."""
    weight = ours.dequantise(ours.Packed(*fields), x.shape[1], torch.float32)
    return x @ weight.to(x.dtype).mT


VARIANTS = {"unpacked": unpacked, "fused": fused}
PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """A product; bytes are those of inputs and output."""
    return {"flops": 2 * case["m"] * case["n"] * case["k"]}
