"""STREAM's copy, scale, add and triad: how close a kernel comes to the memory's bandwidth.

Shapes  a, b (n,) float32, contiguous -> c (n,) float32; s a number. b is None for copy and scale
Bytes   every input read once, c written once: 8 * n for copy and scale, 12 * n for add and triad
Error   copy, scale and add bit for bit what torch gives; triad may fuse, within 5e-6 of float64
Raises  ValueError if an input is not contiguous; KeyError for another operation
Source  stream-benchmark, gpu-benches, cudadma
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from snippets import cuda

SOURCE = cuda.Source(Path(__file__).with_suffix(".cu"))
OPS = {"copy": "Copy", "scale": "Scale", "add": "Add", "triad": "Triad"}

NEEDS = {"variants": {"bulk copy": {"sm": 90, "cpu": "bulk copies have no host execution"}}}
# A multiprocessor has room for two blocks of 115712 bytes; 64 registers leave it 1024 threads.
LIMITS = {"*": {"registers": 64, "spilled_bytes": 0, "shared_bytes": 115_712}}

# offset: where a begins in its allocation, in elements; b begins there too, or at offset_b.
CASES = (
    {"op": "copy", "n": 0},
    {"op": "copy", "n": 1},
    {"op": "scale", "n": 2, "offset": 3},  # shorter than the way to a 16-byte boundary: no body
    {"op": "add", "n": 3},
    {"op": "triad", "n": 5, "offset": 1},
    {"op": "copy", "n": 17, "offset": 2},
    {"op": "triad", "n": 127},
    {"op": "scale", "n": 1023, "offset": 1},
    {"op": "add", "n": 4099, "offset": 3, "offset_b": 1},  # inputs that never align together
    {"op": "triad", "n": 4099, "offset": 0, "offset_b": 2},
    {"op": "copy", "n": 70_001},  # more tiles than one, the last one short
    {"op": "scale", "n": 70_002, "offset": 2},
    {"op": "add", "n": 70_003, "offset": 1},
    {"op": "triad", "n": 70_004, "offset": 3},
    {"op": "copy", "n": 1023, "values": "infinite"},  # arithmetic on a copy would make NaN
    {"op": "scale", "n": 1023, "values": "extreme"},  # down to subnormal numbers
    {"op": "add", "n": 1023, "values": "extreme"},
)
TIMED = (
    *({"op": op, "n": 2**28} for op in OPS),
    {"op": "copy", "n": 2**24},
    {"op": "copy", "n": 2**20},  # both arrays stay in the L2 cache
)


def _inputs_of(op: str) -> int:
    return 2 if op in ("add", "triad") else 1


def inputs(case: dict, device: torch.device | str, generator: torch.Generator) -> tuple:
    """(op, a, b or None, s), a and b at the case's offsets, with values as the case names them."""
    n, offset = case["n"], case.get("offset", 0)

    def vector(skip: int) -> torch.Tensor:
        v = torch.randn(skip + n, generator=generator, device=device, dtype=torch.float32)
        if case.get("values") == "extreme":  # every exponent but those that two terms overflow
            power = torch.rand(skip + n, generator=generator, device=device) * 270 - 148
            v = v.sign() * torch.exp2(power)
        elif case.get("values") == "infinite":
            v[skip::7], v[skip + 3 :: 7] = torch.inf, -torch.inf
        return v[skip:]

    a = vector(offset)
    b = vector(case.get("offset_b", offset)) if _inputs_of(case["op"]) == 2 else None
    return case["op"], a, b, 0.75


def reference(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """The operation in float64."""
    x = a.double() if op in ("copy", "add", "triad") else s * a.double()
    return x if b is None else x + (s if op == "triad" else 1) * b.double()


@cache
def _multiprocessors(device: torch.device) -> int:
    on_gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 1


def _output(a: torch.Tensor) -> torch.Tensor:
    """A new vector that starts where `a` does between 16-byte boundaries, so that both can move
    16 bytes at a time."""
    if not a.is_contiguous():
        raise ValueError(f"stream: a has stride {a.stride(0)}, it must be 1; pass a.contiguous()")
    offset = a.data_ptr() % 16 // 4
    return torch.empty(offset + a.numel(), dtype=a.dtype, device=a.device)[offset:]


def _run(kernel: str, op: str, a, b, s, tile: int, waves: int, block: int, shared: int = 0):
    c, n = _output(a), a.numel()
    if b is not None and not b.is_contiguous():
        raise ValueError(f"stream: b has stride {b.stride(0)}, it must be 1; pass b.contiguous()")
    if n:
        grid = min(-(-n // tile), waves * _multiprocessors(a.device))
        arguments = (a, a if b is None else b, c, np.float32(s), np.int64(n))
        SOURCE.launch(f"{kernel}<{OPS[op]}>", grid, block, *arguments, shared=shared)
    return c


# --8<-- [start:launch]
def floats(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """One element a step; 8 blocks of 256 threads fill a multiprocessor."""
    return _run("stream_float", op, a, b, s, tile=256, waves=8, block=256)


def float4s(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """16 bytes an access, 4 loads in flight; a block a tile, so that the hardware balances them."""
    return _run("stream_float4", op, a, b, s, tile=4096, waves=4096, block=256)


def bulk_copies(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """Two resident blocks a multiprocessor, each with a ring of 12 tiles of 8 KiB."""
    return _run("stream_bulk", op, a, b, s, tile=2048, waves=2, block=160, shared=12 * 8192)
# --8<-- [end:launch]


def library(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """torch's own kernels, into a new tensor."""
    if op == "copy":
        return torch.empty_like(a).copy_(a)
    if op == "scale":
        return torch.mul(a, s)
    return torch.add(a, b, alpha=s if op == "triad" else 1)


VARIANTS = {"float": floats, "float4": float4s, "bulk copy": bulk_copies}
PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """Compulsory bytes and floating-point operations of a case."""
    flops = {"copy": 0, "scale": 1, "add": 1, "triad": 2}[case["op"]]
    arrays = 1 + _inputs_of(case["op"])
    return {"bytes": 4 * arrays * case["n"], "flops": flops * case["n"], "unit": "fp32"}


def demo() -> None:
    """The four operations on 1009 whole numbers, against torch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.arange(1009, dtype=torch.float32, device=device)
    b = a.flip(0).contiguous()
    for op, formula in zip(OPS, ("a", "3 a", "a + b", "a + 3 b"), strict=True):
        arguments = (op, a, b if _inputs_of(op) == 2 else None, 3.0)
        c, expected = float4s(*arguments), library(*arguments)
        difference = (c - expected).abs().max().item()
        values = ", ".join(f"{v:.0f}" for v in c[:3].tolist())
        print(f"{op:5}  c = {formula:7} = {values}, ...  max difference to torch: {difference:g}")


if __name__ == "__main__":
    demo()
