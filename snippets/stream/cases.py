"""What stream is held to: every operation, alignment and remainder; what is timed."""

from __future__ import annotations

import torch

from snippets.stream import stream

NEEDS = {"variants": {"bulk copy": {"sm": ">=90"}}}
# A multiprocessor holds two blocks of 115712 bytes; 64 registers leave it 1024 threads.
# Every byte of a sector is asked for, and float4 moves 16 bytes a lane.
LIMITS = {
    "*": {
        "registers": 64,
        "spilled_bytes": 0,
        "shared_bytes": 115_712,
        "sectors_over_ideal": 1,
    },
    "stream_float4": {"wide_accesses": 1},
}

# offset: where a begins in its allocation, in elements; b begins there too, or at
# offset_b, and then the two never reach a 16-byte boundary together.
CASES = (
    {"op": "copy", "n": 1, "kills": ["tail begins too late"]},
    {"op": "scale", "n": 2, "offset": 3, "kills": ["factor of scale forgotten"]},
    {"op": "add", "n": 3, "kills": ["second input forgotten", "tail left out"]},
    {"op": "triad", "n": 5, "offset": 1, "kills": ["head left out"]},
    {"op": "copy", "n": 17, "offset": 2, "kills": ["last quad left out"]},
    {"op": "triad", "n": 127, "kills": ["factor of triad forgotten"]},
    {"op": "scale", "n": 1023, "offset": 1, "kills": ["head left out"]},
    {
        "op": "add", "n": 4099, "offset": 3, "offset_b": 1,
        "kills": ["one element a thread"],
    },
    {
        "op": "triad", "n": 4099, "offset": 0, "offset_b": 2,
        "kills": ["second input forgotten"],
    },
    {
        "op": "copy", "n": 70_001,
        "kills": ["one tile only", "distance of elements ignored"],
    },
    {"op": "scale", "n": 70_002, "offset": 2, "kills": ["one tile only"]},
    {
        "op": "add", "n": 70_003, "offset": 1,
        "kills": ["one element a thread", "last quad left out"],
    },
    {
        "op": "triad", "n": 70_004, "offset": 3,
        "kills": ["one tile only", "factor of triad forgotten"],
    },
    {"op": "copy", "n": 1023, "values": "infinite", "kills": ["copy computes"]},
    {
        "op": "scale", "n": 1023, "values": "extreme",
        "kills": ["scale overflows on the way"],
    },
    {
        "op": "add", "n": 1023, "values": "extreme",
        "kills": ["add overflows on the way"],
    },
)
TIMED = (
    *({"op": op, "n": 2**28} for op in stream.OPS),
    {"op": "copy", "n": 2**24},
    {"op": "copy", "n": 2**20},  # both arrays stay in the L2 cache
)

COUNTED = tuple({"op": op, "n": 2**18} for op in stream.OPS)  # aligned, many tiles


def inputs(
    case: dict, device: torch.device | str, generator: torch.Generator
) -> tuple:
    """(op, a, b or None, s): a and b at the case's offsets, with its kind of values."""
    n, offset = case["n"], case.get("offset", 0)

    def vector(skip: int) -> torch.Tensor:
        v = torch.randn(skip + n, generator=generator, device=device)
        if case.get("values") == "extreme":  # exponents up to where a sum overflows
            power = torch.rand(skip + n, generator=generator, device=device) * 270 - 148
            v = v.sign() * torch.exp2(power)
        elif case.get("values") == "infinite":
            v[skip::7], v[skip + 3 :: 7] = torch.inf, -torch.inf
        return v[skip:]

    a = vector(offset)
    second = case["op"] in ("add", "triad")
    return case["op"], a, vector(case.get("offset_b", offset)) if second else None, 0.75


def reference(
    op: str, a: torch.Tensor, b: torch.Tensor | None, s: float
) -> torch.Tensor:
    """The operation in float64."""
    x = s * a.double() if op == "scale" else a.double()
    return x if b is None else x + (s if op == "triad" else 1) * b.double()


def library(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """torch's own kernels, into a new tensor."""
    if op == "copy":
        return torch.empty_like(a).copy_(a)
    if op == "scale":
        return torch.mul(a, s)
    return torch.add(a, b, alpha=s if op == "triad" else 1)


VARIANTS = {
    "float": stream.floats,
    "float4": stream.float4s,
    "bulk copy": stream.bulk_copies,
}
PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """The operations on each element."""
    each = {"copy": 0, "scale": 1, "add": 1, "triad": 2}[case["op"]]
    return {"flops": each * case["n"]}
