"""What verifies RoPE: q and k each by itself, in both conventions and layouts."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from snippets.rope import rope as ours
from snippets.rope.rope import Turns

NEEDS = {
    "seconds": 300,  # torch.compile compiles anew for each of the timed shapes
    "variants": {
        "torch.compile": {"cpu": "it would compile C++ for every shape; a GPU times it"}
    },
}
# 32 bytes of each half in flight a thread, and warps enough to keep memory busy.
LIMITS = {
    "*": {
        "spilled_bytes": 0,
        "matrix_instructions": False,
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
    },
    # Eight of nine accesses are heads, by 16 bytes; the ninth are angles.
    "rope_shared": {"warps": 24, "wide_accesses": 0.85},
}


def by(variant: str) -> Callable:
    """One variant of ours."""

    def run(which: str, q: torch.Tensor, k: torch.Tensor, *told: object) -> tuple:
        return ours.turn(q, k, Turns(*told), which == "backward", variant=variant)

    return run


VARIANTS = {"alone": by("alone"), "shared": by("shared")}


def by_formula(
    which: str, q: torch.Tensor, k: torch.Tensor, turns: Turns
) -> tuple[torch.Tensor, ...]:
    """Both turned by PyTorch, in the dtype that the tables or q have."""
    axis = 2 if turns.heads_first else 1
    d, length = q.shape[3], q.shape[axis]
    if turns.positions is None:
        p = turns.offset + torch.arange(length, device=q.device)[None, :]
    else:
        p = turns.offset + turns.positions.long()
    if turns.cos is None or turns.sin is None:
        r = d if turns.rotary_dim is None else turns.rotary_dim
        wide = {"dtype": torch.float64, "device": q.device}
        rate = turns.base ** (torch.arange(0, r, 2, **wide) / -max(r, 1))
        angle = p[..., None] * rate
        cos, sin = angle.cos(), angle.sin()
        if q.dtype != torch.float64:
            cos, sin = cos.float(), sin.float()
    else:
        r = 2 * turns.cos.shape[1]
        cos, sin = turns.cos[p], turns.sin[p]
    cos, sin = (x.unsqueeze(3 - axis) for x in (cos, sin))
    sin = -sin if which == "backward" else sin
    outs = []
    for x in (q, k):
        turning, rest = x[..., :r], x[..., r:]
        if turns.interleaved:
            a, c = turning[..., 0::2], turning[..., 1::2]
            y = torch.stack((a * cos - c * sin, c * cos + a * sin), -1).flatten(-2)
        else:
            a, c = turning[..., : r // 2], turning[..., r // 2 :]
            y = torch.cat((a * cos - c * sin, c * cos + a * sin), -1)
        outs.append(torch.cat((y.to(x.dtype), rest), -1))
    return tuple(outs)


def library(which: str, q: torch.Tensor, k: torch.Tensor, *told: object) -> tuple:
    """The same by PyTorch's own kernels."""
    return by_formula(which, q, k, Turns(*told))


@functools.cache
def compiler() -> Callable[..., tuple]:
    """torch.compile of `library`, one kernel for each shape it meets."""
    # At the default limit of 8 shapes torch.compile would fall back to eager, unseen.
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 1024
    return torch.compile(library, dynamic=False, fullgraph=True)


def compiled(which: str, q: torch.Tensor, k: torch.Tensor, *told: object) -> tuple:
    """The same by the kernels that torch.compile writes."""
    return compiler()(which, q, k, *told)


PEERS = {"torch": library, "torch.compile": compiled}


def reference(which: str, q: torch.Tensor, k: torch.Tensor, *told: object) -> tuple:
    """The truth, in float64."""
    turns = Turns(*told)
    if turns.cos is not None and turns.sin is not None:
        turns = turns._replace(cos=turns.cos.double(), sin=turns.sin.double())
    return by_formula(which, q.double(), k.double(), turns)


def case(
    b: int, s: int, h: int, g: int, d: int, dtype: str, *kills: str, **more: object
) -> dict:
    """b sequences of s tokens; h heads of q and g of k, of d columns."""
    row = {"pass": "forward", "tables": True, "interleaved": False}
    row |= {"heads_first": False, "dtype": dtype, "b": b, "s": s, "h": h, "g": g}
    row |= {"d": d, **more}
    return {**row, "kills": list(kills)} if kills else row


BACK = {"pass": "backward"}
PAIRED = {"interleaved": True}
FIRST = {"heads_first": True}
CASES = (
    case(1, 2, 1, 1, 2, "float32", "turns the other way"),
    case(2, 5, 3, 1, 16, "float32",
         "k by the heads of q", "second sequence goes on counting", offset=3),
    case(2, 3, 9, 2, 24, "float32",
         "first group of heads only", "ignores the offset", offset=7, **FIRST),
    case(2, 5, 2, 1, 20, "float32",
         "other columns not copied", "pairs half of D apart", rotary=12, **PAIRED),
    case(2, 5, 2, 1, 20, "float32", "halves half of D apart", rotary=12),
    case(2, 3, 2, 2, 16, "float16", "ignores the position ids", ids=60),
    case(1, 3, 2, 1, 16, "float32", "angles of float32", ids=1_000_000, tables=False),
    case(2, 3, 2, 1, 12, "bfloat16", "whole turns kept in one float",
         offset=16_000_000, tables=False, **PAIRED),
    case(1, 5, 2, 1, 16, "float32", "backward turns forwards", **BACK),
    case(2, 3, 3, 2, 12, "bfloat16",
         "tables rounded to 8 bits", "interleaved turns one column", **BACK, **PAIRED),
)  # fmt: skip
# Llama 3 8B's heads.
LLAMA = (32, 8, 128)
TIMED = (
    case(4, 4096, *LLAMA, "bfloat16"),
    case(4, 4096, *LLAMA, "bfloat16", **FIRST),
    case(4, 4096, *LLAMA, "bfloat16", **PAIRED),
    case(4, 4096, *LLAMA, "bfloat16", tables=False),
    case(4, 4096, *LLAMA, "float16"),
    case(4, 4096, *LLAMA, "float32"),
    case(4, 4096, *LLAMA, "bfloat16", **BACK),
    case(64, 1, *LLAMA, "bfloat16", ids=4096),
)
COUNTED = (
    case(1, 16, *LLAMA, "bfloat16"),
    case(1, 16, *LLAMA, "bfloat16", **PAIRED),
    case(1, 16, *LLAMA, "bfloat16", tables=False),
)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """The pass, q, k and what Turns is told."""
    b, s, d = case["b"], case["s"], case["d"]
    dtype = getattr(torch, case["dtype"])
    r, offset = min(case.get("rotary", d), d), case.get("offset", 0)

    def draw(heads: int) -> torch.Tensor:
        shape = (b, heads, s, d) if case["heads_first"] else (b, s, heads, d)
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)

    q, k = draw(case["h"]), draw(case["g"])
    positions = None
    if "ids" in case:
        positions = torch.randint(case["ids"], (b, s), generator=generator,
                                  device=device)  # fmt: skip
    cos = sin = None
    if case["tables"]:
        p = torch.arange(case.get("ids", s) + offset, device=device)
        pair = torch.arange(0, r, 2, device=device, dtype=torch.float64)
        rate = 10_000.0 ** (pair / -max(r, 1))
        angle = p[:, None] * rate
        cos, sin = angle.cos().float(), angle.sin().float()
    told = (positions, offset, 10_000.0, r, case["interleaved"], case["heads_first"])
    return case["pass"], q, k, cos, sin, *told


def cost(case: dict) -> dict:
    """FLOPs by pair: 4 products and 2 sums, in float32."""
    heads = case["h"] + case["g"]
    pairs = case["b"] * case["s"] * heads * case.get("rotary", case["d"]) // 2
    return {"flops": 6 * pairs, "unit": "fp32"}
