"""What tensor_core_scan is held to: short rows and long ones, infinities, any start."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.tensor_core_scan import tensor_core_scan as ours

NEEDS = {
    "seconds": 300,
    "variants": {
        "wmma": {"sm": ">=80", "why": "tiles of bfloat16"},
        "mma": {"sm": ">=80", "why": "mma of bfloat16"},
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
QUICK = ["naive", "shuffles", "wmma", "mma"]  # CUB takes a second and more to compile
LONG = ["shuffles", "wmma", "mma", "cub"]


def case(
    job: str, m: int, n: int, dtype: str = "float16", *kills: str, **more: object
) -> dict:
    """A case; `values` may be "infinite": some are."""
    return {"job": job, "m": m, "n": n, "dtype": dtype, **more,
            **({"kills": [*kills]} if kills else {})}  # fmt: skip


CASES = (
    case("sums", 37, 16, "bfloat16", "an infinity in the other half",
         "halves the other way round", variants=QUICK, values="infinite"),
    case("scan", 19, 13, "float16", "rows beyond the last", "half a group is all of it",
         variants=QUICK),
    case("scan", 9, 100, "bfloat16", "an infinity before its place",
         "16 bytes at any address", variants=QUICK, values="infinite"),
    case("scan", 17, 64, "float16", "one piece of three", "sums of other segments",
         "the diagonal of sums", "a place without itself", "rows taken for dense",
         variants=QUICK),
    case("scan", 5, 248, "float16", "places in another order", "a matrix unwaited for",
         "triangles unwaited for", "a sum to the left is left out", variants=QUICK),
    case("sums", 2, 4707, "bfloat16", "sums of two lanes in four",
         "one half of a tile"),
    case("scan", 2, 4712, "float16", "sums unwaited for", "one turn for all",
         "a warp before itself", "the half before is left out"),
)  # fmt: skip
TIMED = (
    *(case(job, 2**27 // n, n, variants=QUICK) for n in (16, 64, 256)
      for job in ("sums", "scan")),
    *(case(job, 2**27 // n, n, variants=LONG) for n in (1024, 16384, 262144)
      for job in ("sums", "scan")),
)  # fmt: skip
COUNTED = (
    case("scan", 512, 64, variants=QUICK),
    case("sums", 1024, 16, variants=["mma"]),
    case("scan", 4, 8192, variants=LONG),
    case("sums", 4, 8192, variants=LONG),
)
# A sum leaves two bytes a row beside its loads of 16; WMMA goes through shared memory.
_ONCE = {"warps": 24, "wide_accesses": 0.98, "sectors_over_ideal": 1}
_PRODUCTS = {"matrix_instructions": True, "wavefronts_over_ideal": 1}
LIMITS = {
    "*": {"spilled_bytes": 0},
    "short_rows": {**_ONCE, "warps": 32, "wide_accesses": 0.66},
    "long_rows": _ONCE,
    "long_rows<Shuffles, __half, 1, 1>": {"warps": 32},
    "long_rows<Products, __half, 1, 1>": {"warps": 32, **_PRODUCTS},
    "short_rows<Products, __half, 1, 16, 0>": _PRODUCTS,
}


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple[str, torch.Tensor]:
    """What to do, and x."""
    m, n = case["m"], case["n"]
    x = torch.rand(m, n, generator=generator, device=device) + 0.1
    if case.get("values") == "infinite":
        x[1::3, n // 2] = torch.inf
        x[2::3, n - 1] = -torch.inf
    return case["job"], x.to(getattr(torch, case["dtype"]))


def library(job: str, x: torch.Tensor) -> torch.Tensor:
    """The same by torch's own kernels."""
    return x.cumsum(-1) if job == "scan" else x.sum(-1)


@functools.cache
def compiler() -> Callable[..., torch.Tensor]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False, fullgraph=True)


def compiled(job: str, x: torch.Tensor) -> torch.Tensor:
    """The same by the kernels that torch.compile writes."""
    return compiler()(job, x)


def variant(way: str) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """A way, as what is verified and timed."""

    def made(job: str, x: torch.Tensor) -> torch.Tensor:
        return ours.run(job, way, x)

    return made


VARIANTS = {way: variant(way) for way in ours.WAYS}
PEERS = {"torch": library, "torch.compile": compiled}


def reference(job: str, x: torch.Tensor) -> torch.Tensor:
    """The truth, in float64."""
    return library(job, x.double())


def cost(case: dict) -> dict:
    """What has to be read and written, and one addition for each element."""
    size = case["m"] * case["n"]
    out = size if case["job"] == "scan" else case["m"]
    return {"bytes": 2 * (size + out), "flops": size, "unit": "fp32"}
