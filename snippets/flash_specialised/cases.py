"""Each way of flash_specialised, and its gradients, against float64."""

from __future__ import annotations

import torch

from snippets.flash_specialised import flash_specialised as flash
from snippets.flash_specialised.backward import gradients

NEEDS = {
    "sm": 90,  # wgmma is an instruction of this architecture alone
    "variants": {
        "torch": {"cpu": "PyTorch has this operator for GPUs alone"},
        "cuDNN": {"cpu": "cuDNN has attention for GPUs alone"},
    },
}
MAIN = {
    "registers": 168,  # before setmaxnreg shares them out anew
    "shared_bytes": 227 * 1024,
    "matrix_instructions": True,
    "wavefronts_over_ideal": 1,
    "warps": 12,
}
LIMITS = {
    "*": {"spilled_bytes": 0, "sectors_over_ideal": 1},
    "flash": MAIN,
    "backward": MAIN,
    "prepare": {"registers": 40, "warps": 48},
    "bring": {"registers": 72, "warps": 28},
}


def case(s: int, dtype: str, causal: bool, *kills: str, **more: object) -> dict:
    """b sequences of s tokens; h heads of keys, g of queries for each."""
    row = {"s": s, "dtype": dtype, "causal": causal, "b": 1, "h": 1, "g": 1}
    row |= {"pass": "forward", "variants": list(flash.WAYS), "out": [dtype, "float32"]}
    return {**row, **more, **({"kills": list(kills)} if kills else {})}


def back(s: int, dtype: str, causal: bool, *kills: str, **more: object) -> dict:
    way = {"pass": "backward", "variants": ["gradients"], "out": [dtype] * 3}
    return case(s, dtype, causal, *kills, **way, **more)


CASES = (
    case(128, "float16", False, "both halves the first", "natural lse for base 2"),
    case(384, "bfloat16", False,
         "no running maximum", "output not rescaled", "sum not rescaled",
         "a stage filled before it is free", "always the first phase", "half of v",
         sharp=100),
    case(384, "float16", True,
         "a query does not see itself", "mask on the first half alone",
         "the softmax reads scores that are not there", "turns for one alone",
         "values left before their products are made", h=2),
    case(256, "bfloat16", True, "the wrong head of keys", b=2, h=2, g=2),
    back(256, "float16", False,
         "natural lse for the weights", "delta is left out", "dk without the scale",
         "one group's half of dq for both", "the other half is not awaited",
         "queries multiplied before they have landed", "dq leaves before it is there",
         "places of dq filled before the last have left", "one delta for all queries"),
    back(384, "bfloat16", True,
         "keys see queries before them", "the second tile without a mask",
         "the first head of queries alone", "a stage of queries filled too soon",
         "gradients of keys not awaited", b=2, h=2, g=2),
)  # fmt: skip
TIMED = tuple(
    made(s, "float16", causal, b=16384 // s, h=16 if made is case else 8)
    for made in (case, back)
    for s in (2048, 16384)
    for causal in (False, True)
)
COUNTED = (case(512, "float16", False), back(512, "float16", False))


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """(causal, q, k, v), backward also (out, lse, dout)."""
    heads = case["h"] * case["g"], case["h"], case["h"], case["h"] * case["g"]
    q, k, v, dout = (
        torch.randn(case["b"], n, case["s"], flash.DIM, generator=generator,
                    device=device)
        for n in heads
    )  # fmt: skip
    dtype = getattr(torch, case["dtype"])
    q, k, v, dout = (x.to(dtype) for x in (q * case.get("sharp", 1), k, v, dout))
    if case["pass"] == "forward":
        return case["causal"], q, k, v
    if device == "cpu" and case["s"] > 1024:  # compiled from its shapes alone
        out, lse = q, q[..., 0].float().contiguous()
    else:
        out, lse = reference(case["causal"], q, k, v)
    return case["causal"], q, k, v, out.to(dtype), lse.float(), dout


def reference(
    causal: bool,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """out and lse in float64; or, given out, lse and dout, (dq, dk, dv)."""
    group, scale = q.shape[1] // max(k.shape[1], 1), flash.DIM**-0.5
    key, value = (x.double().repeat_interleave(group, 1) for x in (k, v))
    s = q.double() @ key.mT * scale
    if causal:
        future = torch.ones(s.shape[2:], dtype=torch.bool, device=q.device).triu(1)
        s = s.masked_fill(future, float("-inf"))
    p = torch.softmax(s, -1)
    if not rest:
        return p @ value, torch.logsumexp(s, -1)
    dout = rest[2].double()
    dp = dout @ value.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    heads = (*k.shape[:2], group, *k.shape[2:])
    dk, dv = (x.view(heads).sum(2) for x in (ds.mT @ q.double(), p.mT @ dout))
    return ds @ key, dk, dv


def by(way: str):
    def run(causal, q, k, v, *rest):
        if not rest:
            return flash.attention(q, k, v, causal, way)
        out, lse, dout = rest
        return gradients(dout, q, k, v, out, lse, causal)

    return run


VARIANTS = {way: by(way) for way in (*flash.WAYS, "gradients")}


def library(causal, q, k, v, *rest):
    """PyTorch's FlashAttention-2."""
    if not rest:
        call = torch.ops.aten._scaled_dot_product_flash_attention
        return call(q, k, v, 0.0, causal)[:2]
    out, lse, dout = rest
    call = torch.ops.aten._scaled_dot_product_flash_attention_backward
    seed, s = torch.zeros(2, dtype=torch.uint64, device=q.device), q.shape[2]
    told = (None, None, s, s, 0.0, causal, seed, seed[:1])
    return call(dout, q, k, v, out, lse, *told)


def cudnn(causal, q, k, v, *rest):
    """The same by cuDNN."""
    if not rest:
        call = torch.ops.aten._scaled_dot_product_cudnn_attention
        out, lse = call(q, k, v, None, True, 0.0, causal)[:2]
        return out, lse.view(q.shape[:3])
    out, lse, dout = rest
    call = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    seed, s = torch.zeros((), dtype=torch.int64, device=q.device), q.shape[2]
    told = (seed, seed, None, None, None, s, s, 0.0, causal)
    return call(dout, q, k, v, out, lse.unsqueeze(-1), *told)


PEERS = {"torch": library, "cuDNN": cudnn}


def cost(case: dict) -> dict:
    """Two matrix products of the pairs in sight, five backward."""
    s, products = case["s"], 2 if case["pass"] == "forward" else 5
    pairs = s * (s + 1) // 2 if case["causal"] else s * s
    heads = case["b"] * case["h"] * case["g"]
    return {"flops": 2 * products * heads * pairs * flash.DIM}
