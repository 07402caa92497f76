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
    "stream_read<1>": {"wide_accesses": 0.9, "warps": 64},
}

ALONE = {"variants": ["float", "float4"]}  # of what reads or writes alone
# offset: where a begins in its allocation, in elements; b begins there too, or at
# offset_b, and then the two never reach a 16-byte boundary together. top: where the
# largest element is.
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
    {"op": "fill", "n": 4101, "offset": 1, "kills": ["a number of its own"], **ALONE},
    {
        "op": "read", "n": 9, "offset": 1, "top": 2, "kills": ["head is not read"],
        **ALONE,
    },
    {
        "op": "read", "n": 4097, "top": 4096,
        "kills": ["tail is not read", "warps unwaited for"], **ALONE,
    },
    {
        "op": "read", "n": 8192, "top": 5119,
        "kills": ["the first warp for all", "half a warp"], **ALONE,
    },
    {"op": "read", "n": 40_001, "top": 5130, "kills": ["one load of four"], **ALONE},
    {
        "op": "read", "n": 20_000, "top": 9000, "rounds": 3, "variants": ["float4"],
        "kills": ["only the tiles of others"],
    },
)
SWEEP = tuple(2**k for k in range(20, 29))  # 4 MB to 1 GB: the L2, and beyond
TIMED = (
    *({"op": op, "n": 2**28} for op in stream.OPS),
    {"op": "copy", "n": 2**24},
    {"op": "copy", "n": 2**20},
    *({"op": op, "n": 2**28, **ALONE} for op in ("read", "fill")),
    *({"op": "read", "n": n, "rounds": 16, "variants": ["float4"]} for n in SWEEP),
)

COUNTED = (  # aligned, many tiles
    *({"op": op, "n": 2**18} for op in stream.OPS),
    *({"op": op, "n": 2**18, **ALONE} for op in ("read", "fill")),
)


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
    if "top" in case:
        a[case["top"]] = 9.0
    second = case["op"] in ("add", "triad")
    b = vector(case.get("offset_b", offset)) if second else None
    return case["op"], a, b, case.get("rounds", 1) if case["op"] == "read" else 0.75


def reference(
    op: str, a: torch.Tensor, b: torch.Tensor | None, s: float
) -> torch.Tensor:
    """The operation in float64."""
    if op == "read":
        return a.double().amax()
    if op == "fill":
        return torch.full_like(a, s, dtype=torch.float64)
    x = s * a.double() if op == "scale" else a.double()
    return x if b is None else x + (s if op == "triad" else 1) * b.double()


def library(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """torch's own kernels, into a new tensor."""
    if op == "copy":
        return torch.empty_like(a).copy_(a)
    if op == "fill":
        return torch.full_like(a, s)
    if op == "read":
        return a.amax()
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
    """The operations on each element; and the bytes of what reads or writes alone."""
    each = {"copy": 0, "scale": 1, "add": 1, "triad": 2, "read": 1, "fill": 0}
    alone = case["op"] in ("read", "fill")
    return {"flops": each[case["op"]] * case["n"]} | (
        {"bytes": 4 * case["n"]} if alone else {}
    )
