"""Each step of flash attention against float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from snippets.flash_steps import flash_steps as flash

NEEDS = {
    "seconds": 300,
    "variants": {  # elsewhere descriptors become pointers, which spill
        "described": {"sm": [90, 100, 103]},
        "backward": {"sm": [90, 100, 103]},
    },
}
LIMITS = {
    # 4 bytes of flash_described on sm_100, where all registers are full
    "*": {"registers": 255, "spilled_bytes": 4, "matrix_instructions": True},
}
# The steps that do what is asked: all keys, those up to a query's own, these with lse
# and shared heads, or its gradients.
STEPS = {
    "all": ["tiled"],
    "causal": ["causal", "grouped", "described"],
    "grouped": ["grouped", "described"],
    "backward": ["backward"],
}


def case(which: str, s: int, d: int, *kills: str, **more: int) -> dict:
    """b sequences of s tokens; h heads of keys, g of queries for each."""
    row = {"pass": which, "dtype": "float16", "b": 1, "h": 1, "g": 1, "s": s, "d": d}
    row |= {**more, "variants": STEPS[which]}
    if which == "grouped":
        row["out"] = ["float16", "float32"]
    return {**row, "kills": list(kills)} if kills else row


CASES = (
    case("all", 128, 16, "all heads are the first", b=2),
    case("all", 256, 128,
         "no running maximum", "output not rescaled", "sum not rescaled", sharp=30),
    case("causal", 256, 32,
         "a query does not see itself", "half of the diagonal dropped", h=2),
    case("grouped", 128, 64, "lse to base 2", "the wrong head of keys", h=2, g=2),
    case("backward", 256, 64,
         "dq without the scale", "dk without the scale", "dq without delta",
         "dk without delta", "one head of a group",
         "a key is not seen by its own query", g=2),
)  # fmt: skip
TIMED = tuple(
    case(which, 4096, 128, b=2, h=h)
    for which, h in zip(STEPS, (16, 16, 16, 8), strict=True)
)
COUNTED = (case("all", 512, 64), case("causal", 512, 64), case("backward", 256, 64))


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("all", q, k, v), or with "backward" also out, lse and dout."""
    shape = (case["s"], case["d"])
    heads = {"q": case["h"] * case["g"], "k": case["h"]}
    q, k, v, dout = (
        torch.randn(case["b"], heads[one], *shape, generator=generator, device=device)
        for one in "qkkq"
    )
    q, k, v, dout = ((x.half()) for x in (q * case.get("sharp", 1), k, v, dout))
    if case["pass"] != "backward":
        return case["pass"], q, k, v
    out, lse = truth("backward", q, k, v)
    return case["pass"], q, k, v, out.half(), lse.float(), dout


def truth(
    which: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """In float64: (out, lse), or with dout (dq, dk, dv)."""
    with torch.enable_grad():
        leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
        group = q.shape[1] // max(k.shape[1], 1)
        key, value = (x.repeat_interleave(group, 1) for x in leaves[1:])
        s = leaves[0] @ key.mT * max(q.shape[3], 1) ** -0.5
        if which != "all":
            future = torch.ones(s.shape[2:], dtype=torch.bool, device=q.device).triu(1)
            s = s.masked_fill(future, float("-inf"))
        out = torch.softmax(s, -1) @ value
        if dout is not None:
            return torch.autograd.grad(out, leaves, dout.double())
    return out.detach(), torch.logsumexp(s.detach(), -1)


def reference(which: str, *tensors: torch.Tensor) -> torch.Tensor | tuple:
    """out; or (out, lse) if "grouped", (dq, dk, dv) if "backward"."""
    q, k, v, *rest = tensors
    found = truth(which, q, k, v, *rest[2:])
    return found if which in ("grouped", "backward") else found[0]


def forward(step):
    """A step with lse, asked for it or not."""

    def run(which, q, k, v):
        found = step(q, k, v)
        return found if which == "grouped" else found[0]

    return run


VARIANTS = {
    "tiled": lambda which, *tensors: flash.tiled(*tensors),
    "causal": lambda which, *tensors: flash.causal(*tensors),
    "grouped": forward(flash.grouped),
    "described": forward(flash.described),
    "backward": lambda which, *tensors: flash.backward(*tensors),
}


def library(which: str, *tensors: torch.Tensor) -> torch.Tensor:
    """The same by PyTorch's function, which keeps lse to itself."""
    if which in ("grouped", "backward"):
        raise ValueError("scaled_dot_product_attention returns no lse")
    return F.scaled_dot_product_attention(*tensors, is_causal=which == "causal")


PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """Two matrix products forward, five backward, of the pairs in sight."""
    s, products = case["s"], 5 if case["pass"] == "backward" else 2
    pairs = s * s if case["pass"] == "all" else s * (s + 1) // 2
    heads = case["b"] * case["h"] * case["g"]
    return {"flops": 2 * products * heads * pairs * case["d"]}
