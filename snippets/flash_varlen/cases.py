"""Packed sequences against float64, one by one: out, lse and three gradients."""

from __future__ import annotations

import torch

from snippets.flash_attention import cases as dense
from snippets.flash_varlen import flash_varlen as flash

TOLERANCE = dense.TOLERANCE
NEEDS = {
    "seconds": 900,
    "variants": {"descriptors": {"sm": [90, 100, 103]}},
}
# As flash_attention's, but lse and delta begin on no sector, and blocks read cu.
LIMITS = {
    "*": {
        "registers": 255,
        "spilled_bytes": 16,  # a place in the batch, of tiles that take all registers
        "shared_bytes": 227 * 1024,
        "warps": 8,
        "sectors_over_ideal": 1.02,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 0.75,
    },
    "varlen_forward": {
        "matrix_instructions": True,
        "instructions_per_fma": 5,
        "wide_accesses": 0.8,
    },
    "varlen_backward_keys": {"matrix_instructions": True, "instructions_per_fma": 7},
    "varlen_backward_queries": {"matrix_instructions": True, "instructions_per_fma": 6},
    "flash_delta": {"matrix_instructions": False, "warps": 64},
}


def case(
    which: str,
    queries: list[int],
    keys: list[int] | None,
    d: int,
    dtype: str,
    *kills: str,
    **more: object,
) -> dict:
    """Sequences of so many queries and keys; h heads of keys, g of queries for each."""
    row = {"pass": which, "causal": False, "dtype": dtype, "h": 1, "g": 1, "d": d}
    row |= {"queries": queries, "keys": keys or queries, **more}
    if which == "forward" and dtype != "float32":
        row["out"] = [dtype, "float32"]
    if dtype == "float32":
        row["variants"] = ["pointers"]  # "descriptors" would launch the same
    return {**row, "kills": list(kills)} if kills else row


BOTH = ("forward", "backward")
CASES = (
    case("forward", [1, 0, 17, 40], None, 16, "float32",
         "every slot is the first sequence's", "lse begins at the first sequence",
         h=2, causal=True),
    case("forward", [130, 1, 0, 67], [3, 140, 70, 0], 64, "float16",
         "takes cu_q for keys", "last tile of a sequence dropped",
         "mask aligned top left", "keys of the next sequence are seen",
         h=2, g=2, causal=True),
    case("forward", [100, 33, 131], None, 40, "bfloat16",
         "window off by one", left=40, right=9),
    case("backward", [1, 0, 17, 40], None, 16, "float32",
         "delta begins at the first sequence", "dk and dv without the heads of a group",
         "dq without the scale", h=2, g=2, causal=True, scale=0.1),
    case("backward", [130, 1, 0, 67], [3, 140, 70, 0], 64, "float16",
         "takes cu_kv for queries", "dk and dv of the next sequence are overwritten",
         "last tile of keys has no gradient", h=2, g=2, causal=True),
    case("backward", [100, 33, 131], None, 40, "bfloat16",
         "window ignored backwards", "dq of the last keys left out", left=40, right=9),
)  # fmt: skip

# 16,384 tokens in sequences of very unlike lengths, of 7 to 4,096, one of them empty.
LENGTHS = [4096, 7, 1024, 3001, 333, 0, 2048, 95, 1500, 611, 3669]
TIMED = (
    *(case(w, LENGTHS, None, 128, "float16", h=8, causal=c)
      for w in BOTH for c in (False, True)),
    *(case(w, LENGTHS, None, 128, "float16", h=2, g=8, causal=True, left=1023)
      for w in BOTH),
)  # fmt: skip

# Of the same dtype and width, with sequences that fill no tile.
COUNTED = tuple(
    case(which, [300, 1, 211], None, 128, "float16", causal=True) for which in BOTH
)


def starts(lengths: list[int], device: str) -> torch.Tensor:
    """Where each sequence begins, and the end of all."""
    return torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", causal, scale, left, right, longest of queries and of keys, cu_q,
    cu_kv, q, k, v), or "backward" and also out, lse and dout.

    Backward, tensors are one slice each: the verifier puts the first slice in place of
    all, and if that were the first row, lse would not be that of q and k."""
    h, g, d = case["h"], case["g"], case["d"]
    t_q, t_kv = sum(case["queries"]), sum(case["keys"])
    drawn = []
    for shape in ((t_q, h * g, d), (t_kv, h, d), (t_kv, h, d), (t_q, h * g, d)):
        x = torch.randn(shape, generator=generator, device=device)
        drawn.append(dense.sharpen(x, case, generator))
    q, k, v, dout = (x.to(getattr(torch, case["dtype"])) for x in drawn)
    told = (
        *(case["causal"], case.get("scale"), case.get("left", -1)),
        *(case.get("right", -1), max(case["queries"]), max(case["keys"])),
        *(starts(case["queries"], device), starts(case["keys"], device)),
    )
    if case["pass"] == "forward":
        return "forward", *told, q, k, v
    if device == "cpu" and told[4] * told[5] > dense.WORTH:
        out, lse = q, q[..., 0].T.float().contiguous()
    else:
        out, lse = truth(*told, q, k, v)
    tensors = (q, k, v, out.to(q.dtype), lse.float(), dout)
    return "backward", *told, *(x[None] for x in tensors)


def truth(
    causal: bool,
    scale: float | None,
    left: int,
    right: int,
    _longest_q: int,
    _longest_kv: int,
    cu_q: torch.Tensor,
    cu_kv: torch.Tensor,
    *tensors: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """In float64: (out, lse), or with dout (dq, dk, dv). A sequence at a time."""
    q, k = tensors[:2]
    rows = [q, q[..., :1]] if len(tensors) == 3 else [q, k, k]
    found = [torch.zeros(x.shape, dtype=torch.float64, device=q.device) for x in rows]
    if not q.is_meta:  # else asked for shapes alone
        ends = zip(cu_q.tolist(), cu_q.tolist()[1:], strict=False)
        ends_kv = zip(cu_kv.tolist(), cu_kv.tolist()[1:], strict=False)
        for mine, others in zip(ends, ends_kv, strict=True):
            at, at_kv = slice(*mine), slice(*others)
            parts = (at, at_kv, at_kv, at)
            alone = [
                flash.heads_first(x[part])
                for x, part in zip(tensors, parts, strict=False)
            ]
            due = dense.truth(causal, scale, left, right, *alone)
            if len(tensors) == 3:
                parts, due = (at, at), (due[0], due[1][..., None])
            for x, part, given in zip(found, parts, due, strict=False):
                x[part] = given[0].transpose(0, 1)
    if len(tensors) == 3:
        return found[0], found[1][..., 0].T
    return tuple(found)


def reference(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """(out, lse), or (dq, dk, dv)."""
    if which == "forward":
        return truth(*told)
    *told, q, k, v, _, _, dout = told
    return truth(*told, *(x[0] for x in (q, k, v, dout)))


def by(descriptors: bool):
    """Kernels that read by descriptor wherever layout and dtype allow it, or never."""

    def run(which, causal, scale, left, right, _, __, cu_q, cu_kv, *tensors):
        told = {"descriptors": descriptors, "window": (left, right)}
        if which == "forward":
            return flash.forward(*tensors, cu_q, cu_kv, causal, scale, **told)
        q, k, v, *rest = (x[0] for x in tensors)
        return flash.backward(q, k, v, cu_q, cu_kv, *rest, causal, scale, **told)

    return run


VARIANTS = {"descriptors": by(True), "pointers": by(False)}


def library(which, causal, scale, left, right, longest, longest_kv, *tensors):
    """PyTorch's FlashAttention, which takes packed sequences; on a CPU one by one."""
    cu_q, cu_kv, *tensors = tensors
    q, k, v, *rest = tensors if which == "forward" else (x[0] for x in tensors)
    told = (causal, scale, left, right)
    columns = all(x.stride(-1) == 1 for x in (q, k, v, *rest[:1], *rest[2:]))
    even = q.shape[-1] % 8 == 0 != q.numel()
    if not (q.is_cuda and q.dtype in dense.HALF and columns and even):
        return one_by_one(which, *told, cu_q, cu_kv, q, k, v, *rest)
    sides = {"window_size_left": left, "window_size_right": 0 if causal else right}
    told = (cu_q, cu_kv, longest, longest_kv, 0.0, causal)
    if which == "forward":
        call = torch.ops.aten._flash_attention_forward
        return tuple(call(q, k, v, *told, False, scale=scale, **sides)[:2])
    out, lse, dout = rest
    call = torch.ops.aten._flash_attention_backward
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
    return tuple(
        call(dout, q, k, v, out, lse, *told, seed, seed[:1], scale=scale, **sides)
    )


def one_by_one(which, causal, scale, left, right, cu_q, cu_kv, q, k, v, *rest):
    """A call of scaled_dot_product_attention for each sequence."""
    rows = [q, q[..., 0].T] if which == "forward" else [q, k, v]
    found = [torch.zeros_like(x) for x in rows]
    if which == "forward":
        found[1] = found[1].float()
    ends = zip(cu_q.tolist(), cu_q.tolist()[1:], strict=False)
    ends_kv = zip(cu_kv.tolist(), cu_kv.tolist()[1:], strict=False)
    for mine, others in zip(ends, ends_kv, strict=True):
        at, at_kv = slice(*mine), slice(*others)
        if mine[0] == mine[1] or others[0] == others[1]:
            if which == "forward":
                found[1][:, at] = float("-inf")
            continue
        alone = [flash.heads_first(x[p]) for x, p in ((q, at), (k, at_kv), (v, at_kv))]
        done = [flash.heads_first(rest[-1][at])] if rest else []
        due = dense.general(which, causal, scale, left, right, *alone, *done)
        if which == "forward":
            found[0][at], found[1][:, at] = due[0][0].transpose(0, 1), due[1][0]
            continue
        for x, part, given in zip(found, (at, at_kv, at_kv), due, strict=True):
            x[part] = given[0].transpose(0, 1)
    return tuple(found)


PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """Two matrix products forward, five backward, of the pairs in sight."""
    sides = (case["causal"], case.get("left", -1), case.get("right", -1))
    both = zip(case["queries"], case["keys"], strict=True)
    seen = sum(dense.pairs(m, n, *sides) for m, n in both)
    products = 2 if case["pass"] == "forward" else 5
    return {"flops": 2 * products * case["h"] * case["g"] * seen * case["d"]}
