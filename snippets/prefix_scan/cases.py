"""What verifies running sums of everything: what goes on from tile to tile."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.prefix_scan import prefix_scan as ours

NEEDS = {
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# Whole sectors, 16 bytes a lane; a tile's words and the shares' sums are narrower.
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 128, "matrix_instructions": False},
    "scan_shares": {"sectors_over_ideal": 1.01, "wide_accesses": 0.95, "warps": 16},
    "share_sums": {"sectors_over_ideal": 1.01, "wide_accesses": 0.95, "warps": 32},
    "scan_once": {"sectors_over_ideal": 1.01, "wide_accesses": 0.95, "warps": 32},
}


def variant(way: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """A way, as what is verified and timed."""

    def made(x: torch.Tensor) -> torch.Tensor:
        return ours.scan(x, way)

    return made


VARIANTS = {way: variant(way) for way in ("alone", "in shares", "look back")}


def library(x: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's own kernel."""
    return torch.cumsum(x, 0)


@functools.cache
def compiler() -> Callable[[torch.Tensor], torch.Tensor]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    return torch.compile(library, dynamic=False)


def compiled(x: torch.Tensor) -> torch.Tensor:
    """The same by the kernel that torch.compile writes."""
    return compiler()(x)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(x: torch.Tensor) -> torch.Tensor:
    """The truth, in float64."""
    return torch.cumsum(x.double(), 0)


def case(n: int, dtype: str, *kills: str) -> dict:
    """A row of CASES, TIMED or COUNTED."""
    return {"n": n, "dtype": dtype, **({"kills": [*kills]} if kills else {})}


CASES = (
    case(20001, "float32",  # five tiles, the last of them cut
         "no carry between tiles", "a share forgets those before it",
         "tiles before are left out", "a prefix without the tile itself",
         "the last tile is left out"),
    case(53000, "bfloat16",  # shares of several tiles
         "a share ends with its first tile"),
)  # fmt: skip
TIMED = (case(2**26, "float32"), case(2**27, "bfloat16"))
COUNTED = (case(2**16, "float32"),)  # as is timed, of four tiles a share


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple[torch.Tensor]:
    """(x,), which drifts: how far a walk about 0 comes is a matter of luck."""
    told = {"generator": generator, "device": device}
    x = torch.randn(case["n"], **told)
    x = torch.where(torch.rand(case["n"], **told) < 0.01, 10 * x, x) + 0.5  # outliers
    return (x.to(getattr(torch, case["dtype"])),)


def cost(case: dict) -> dict:
    """An addition for each element, in float32."""
    return {"flops": case["n"], "unit": "fp32"}
