"""Blockwise attention against float64: merge, gradients, chunks, feed-forward."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from snippets.blockwise_attention import blockwise_attention as blockwise
from snippets.blockwise_attention import feed_forward, merge_kernel
from snippets.blockwise_attention import merge as plain

HALF = (torch.float16, torch.bfloat16)
TOLERANCE = {"bfloat16": (8e-3, "backward makes D of rounded out, as the library does")}
NEEDS = {"seconds": 900}  # the reference of long sequences is multiplied in float64
# A merge is bytes alone: whole sectors, and warps enough to have many on the way.
MOVES = {"spilled_bytes": 0, "sectors_over_ideal": 1.05, "matrix_instructions": False}
LIMITS = {
    "*": {"shared_bytes": 227 * 1024},
    # Lanes of a float32 side move 16 bytes, of a 16-bit side beside it 8, of an lse 4.
    "merge_row": {"spilled_bytes": 0, "matrix_instructions": False},
    "merge_forward": {**MOVES, "warps": 48, "wide_accesses": 0.4},
    "merge_backward": {**MOVES, "warps": 40, "wide_accesses": 0.8},
    "flash_forward": {"matrix_instructions": True},
}
MERGES = ["row", "merge", "in place"]
WAYS = ["one pass", "chunks"]


def case(which: str, dtype: str, *kills: str, **sizes: object) -> dict:
    """One row of CASES, TIMED or COUNTED.

    Of a merge, b by h by s rows of d columns; the second side's dtype is `other`. Of
    attention, b sequences of m queries and n keys in h heads, g of queries for each.
    Of a feed-forward, s rows of d columns and f hidden ones.
    """
    row: dict[str, object] = {"pass": which, "dtype": dtype, **sizes}
    other = sizes.get("other", dtype)
    if which == "merge":
        wide = dtype if dtype == other else "float32"
        row |= {"out": [wide, "float32"], "variants": MERGES}
        if wide != dtype:
            row["variants"] = MERGES[:2]  # in place a sum cannot become wider
    elif which == "merge backward":
        row |= {"out": [dtype, "float32", other, "float32"], "variants": ["merge"]}
    else:
        row["variants"] = WAYS
        if which == "attention":
            row["out"] = [dtype, "float32"]
    return {**row, "kills": list(kills)} if kills else row


def attention(which: str, m: int, n: int, queries: int, keys: int, *kills: str, **more):
    """Attention of m queries to n keys, by chunks of `queries` and `keys`."""
    row = {"b": 1, "h": 1, "g": 1, "m": m, "n": n, "d": 32, "causal": False, **more}
    dtype = row.pop("dtype", "float32")
    return case(which, dtype, *kills, **row, queries=queries, keys=keys)


CASES = (
    case("merge", "float32", "-inf is subtracted from -inf", "log2 for log",
         "a row without keys is read", "rows are as far apart as those of out1",
         "row by row, a row without keys is read", b=1, h=1, s=17, d=1),
    case("merge", "float32", "the maximum is left out", "takes the second lse whole",
         "heads lie in one run", "row by row, the last columns missing",
         "row by row, sides are swapped", b=2, h=3, s=5, d=127, scale=1e4),
    case("merge", "float32", "the sum is not divided",
         "sides are swapped", "in place before all have read",
         b=1, h=2, s=33, d=260, scale=1.0),
    case("merge", "float32", "last rows missing",
         "16 bits between the sides", b=2, h=2, s=17, d=64,
         other="bfloat16"),
    case("merge", "float16", "columns taken as adjacent", b=2, h=1, s=70, d=80),
    case("merge", "bfloat16", "columns in whole vectors only", b=1, h=1, s=130, d=1023),
    case("merge backward", "float32", "dlse1 without the share of its side",
         "moved with the wrong sign", "moved without the other's share",
         b=1, h=2, s=17, d=20),
    case("merge backward", "bfloat16", "dout2 by the share of the other",
         "dlse of a row without keys is taken", b=1, h=1, s=40, d=127, other="float32"),
    # No length that 16 divides: each would be a kernel more to compile.
    attention("attention", 40, 90, 17, 33, "the second block in place of both",
              "chunks of keys that divide alone", h=3),
    attention("attention", 70, 70, 70, 31, "rows that see all are left out",
              "hidden keys are seen by the first row", b=2, g=2, causal=True),
    attention("attention", 90, 40, 33, 15, "blind rows are not written",
              h=4, causal=True),  # some queries see no key
    attention("attention", 33, 200, 18, 65, "the second block in place of both",
              dtype="float16", h=3, causal=True),
    attention("attention backward", 40, 90, 17, 33,
              "dk of the last chunk of queries only", "dq of the last block only", g=2,
              d=64),
    attention("attention backward", 50, 70, 31, 31, "backward forgets the mask",
              causal=True, scale=0.3, d=64),
    case("feed-forward", "float32", "rows of the last chunk left out", s=37, d=20, f=80,
         chunk=16),
    case("feed-forward backward", "float32", "dw1 of the last chunk only",
         "gelu's slope left out", s=37, d=20, f=80, chunk=16),
    case("feed-forward backward", "bfloat16", "dw2 of the last chunk only", s=64, d=32,
         f=128, chunk=17),
)  # fmt: skip
TIMED = (
    # A merge in place of bf16 into float32, in 16 heads of 65,536 queries, as between
    # chunks; two bf16 sides, and their gradient.
    case("merge", "float32", b=1, h=16, s=65536, d=128, other="bfloat16"),
    case("merge", "bfloat16", b=1, h=16, s=65536, d=128),
    case("merge backward", "bfloat16", b=1, h=16, s=65536, d=128),
    *(
        attention("attention", 32768, 32768, 32768, keys, h=16, d=128, dtype="bfloat16",
                  causal=causal)
        for causal in (False, True)
        for keys in (2048, 8192, 16384)
    ),
    attention("attention backward", 32768, 32768, 32768, 8192, h=8, d=128,
              dtype="bfloat16", causal=True, exact=True),
    *(
        case(which, "bfloat16", s=32768, d=4096, f=16384, chunk=chunk)
        for which in ("feed-forward", "feed-forward backward")
        for chunk in (2048, 8192)
    ),
)  # fmt: skip
COUNTED = (
    case("merge", "float32", b=1, h=4, s=256, d=128, other="bfloat16"),
    case("merge", "bfloat16", b=1, h=4, s=256, d=128),
    case("merge backward", "bfloat16", b=1, h=4, s=256, d=128),
    attention("attention", 256, 1024, 256, 512, d=128, dtype="bfloat16"),
)  # fmt: skip


def drawn(shape: tuple, device: str, generator: torch.Generator) -> torch.Tensor:
    """Normal, with one element in a hundred six times as large."""
    x = torch.randn(shape, generator=generator, device=device)
    rare = torch.rand(shape, generator=generator, device=device) < 0.01
    return torch.where(rare, 6 * x, x)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """The pass, its plain numbers and its tensors."""
    which, dtype = case["pass"], getattr(torch, case["dtype"])
    if which.startswith("merge"):
        return which, *sides(case, device, generator)
    if which.startswith("feed"):
        s, d, f = case["s"], case["d"], case["f"]
        x, dout = (drawn((s, d), device, generator).to(dtype) for _ in range(2))
        w1 = (drawn((d, f), device, generator) / max(d, 1) ** 0.5).to(dtype)
        w2 = (drawn((f, d), device, generator) / max(f, 1) ** 0.5).to(dtype)
        given = (x, w1, w2)
        return which, case["chunk"], *given, *([dout] if "backward" in which else [])
    b, h, g, m, n, d = (case[name] for name in "bhgmnd")
    told = (case["queries"], case["keys"], case["causal"], case.get("scale"))
    shapes = ((b, h * g, m, d), (b, h, n, d), (b, h, n, d), (b, h * g, m, d))
    *qkv, dout = (drawn(shape, device, generator).to(dtype) for shape in shapes)
    if which == "attention":
        return which, *told, *qkv
    out, lse = whole(*told[2:], *qkv)
    out = out.to(torch.float32 if case.get("exact") else dtype)
    return which, *told, *qkv, out, lse.float(), dout


def sides(case: dict, device: str, generator: torch.Generator) -> list:
    """Two outs and their lses, of which some are -inf; backward also dout and dlse."""
    dtypes = case["dtype"], case.get("other", case["dtype"])
    shape = tuple(case[name] for name in "bhsd")
    made = []
    for number, name in enumerate(dtypes):
        out = drawn(shape, device, generator)
        lse = torch.randn(shape[:3], generator=generator, device=device)
        lse = lse * case.get("scale", 3.0)
        place = torch.arange(lse.numel(), device=device).view(lse.shape)
        none = place % 5 == 2 * number  # of five rows one has no key here, one there
        none |= place % 11 == 3  # and of eleven one neither
        lse[none] = -math.inf
        out[none & (place % 2 == 0)] = math.nan  # what some kernels leave there
        made += [out.to(getattr(torch, name)), lse]
    if case["pass"] == "merge":
        return made
    dout = drawn(shape, device, generator)
    dlse = torch.randn(shape[:3], generator=generator, device=device)
    dlse[(made[1] == -math.inf) & (made[3] == -math.inf)] = math.nan
    return [*made, dout.to(getattr(torch, promoted(*dtypes))), dlse]


def promoted(one: str, other: str) -> str:
    """The name of the wider dtype."""
    return one if one == other else "float32"


def whole(
    causal: bool, scale: float | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse of all keys at once, in float64, a head at a time."""
    m, n, d = q.shape[2], k.shape[2], q.shape[3]
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.zeros(q.shape[:3], dtype=torch.float64, device=q.device)
    if q.is_meta:
        return out, lse
    hidden = torch.ones(m, n, dtype=torch.bool, device=q.device).triu(n - m + 1)
    group = q.shape[1] // max(k.shape[1], 1)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            key, value = (x[b, h // group].double() for x in (k, v))
            s = (
                q[b, h].double()
                @ key.T
                * (max(d, 1) ** -0.5 if scale is None else scale)
            )
            s = s.masked_fill(hidden, -math.inf) if causal else s
            lse[b, h] = torch.logsumexp(s, -1)
            shift = lse[b, h].masked_fill(lse[b, h] == -math.inf, 0)
            out[b, h] = torch.exp(s - shift[:, None]) @ value
    return out, lse


def reference(which: str, *told) -> tuple[torch.Tensor, ...]:
    """The truth, in float64; gradients by autograd's own rules."""
    if which == "merge":
        return plain.merge(*(x.double() for x in told))
    if which == "merge backward":
        leaves = [x.double().requires_grad_() for x in told[:4]]
        given = [x.double() for x in told[4:]]
        with torch.enable_grad():
            made = plain.merge(*leaves)
            # -inf has no gradient, nor an influence
            made = [x.masked_fill(x == -math.inf, 0) for x in made]
            return torch.autograd.grad(made, leaves, given)
    if which.startswith("feed"):
        leaves = [x.double().requires_grad_() for x in told[1:4]]
        with torch.enable_grad():
            out = feed_forward.feed_forward(*leaves)
            if which == "feed-forward":
                return (out.detach(),)
            return torch.autograd.grad(out, leaves, told[4].double())
    _, _, causal, scale, *tensors = told
    if which == "attention":
        return whole(causal, scale, *tensors)
    q, k, v, _, _, dout = (x.double() for x in tensors)
    _, lse = whole(causal, scale, q, k, v)
    return attention_gradients(causal, scale, q, k, v, lse, dout)


def attention_gradients(causal, scale, q, k, v, lse, dout) -> tuple[torch.Tensor, ...]:
    """dq, dk, dv in float64, a head at a time."""
    m, n, d = q.shape[2], k.shape[2], q.shape[3]
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    if q.is_meta:
        return dq, dk, dv
    scale = max(d, 1) ** -0.5 if scale is None else scale
    hidden = torch.ones(m, n, dtype=torch.bool, device=q.device).triu(n - m + 1)
    group = q.shape[1] // max(k.shape[1], 1)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            at = b, h // group
            s = q[b, h] @ k[at].T * scale
            s = s.masked_fill(hidden, -math.inf) if causal else s
            p = torch.exp(s - lse[b, h].masked_fill(lse[b, h] == -math.inf, 0)[:, None])
            dv[at] += p.T @ dout[b, h]
            dp = dout[b, h] @ v[at].T
            ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
            dq[b, h] = ds @ k[at]
            dk[at] += ds.T @ q[b, h]
    return dq, dk, dv


def merged(which: str, *told) -> tuple[torch.Tensor, ...]:
    """The merge, or its gradient, in tensors of their own."""
    if which == "merge":
        return merge_kernel.merge(*told)
    *given, dout, dlse = told
    return merge_kernel.merge_gradients(dout, dlse, *given)


def by_row(which: str, *told) -> tuple[torch.Tensor, ...]:
    """The merge by a program for each row."""
    return blockwise.merge_by_row(*told)


def in_place(which: str, *told) -> tuple[torch.Tensor, ...]:
    """The merge into copies of the first side."""
    out, lse = told[0].clone(), told[1].clone()
    merge_kernel.merge_into(out, lse, out, lse, *told[2:])
    return out, lse


def one_pass(which: str, *told) -> tuple[torch.Tensor, ...]:
    """All queries and keys, or all rows, at once."""
    if which.startswith("feed"):
        return by_rows(which, max(told[1].shape[0], 1), *told[1:])
    queries, keys = (max(tensor.shape[2], 1) for tensor in told[4:6])
    return by_blocks(which, queries, keys, *told[2:])


def chunks(which: str, *told) -> tuple[torch.Tensor, ...]:
    """By the case's chunks."""
    return (by_rows if which.startswith("feed") else by_blocks)(which, *told)


def by_rows(which: str, chunk: int, *told) -> tuple[torch.Tensor, ...]:
    """A feed-forward."""
    feed_forward.check(*told[:3], chunk)
    if which == "feed-forward":
        return (feed_forward.forward(*told, chunk),)
    *given, dout = told
    return feed_forward.backward(dout, *given, chunk)


def by_blocks(
    which, queries, keys, causal, scale, *tensors
) -> tuple[torch.Tensor, ...]:
    """Attention."""
    way = blockwise.forward if which == "attention" else blockwise.backward
    return way(*tensors, causal, scale, queries, keys)


VARIANTS = {
    "row": by_row,
    "merge": merged,
    "in place": in_place,
    "one pass": one_pass,
    "chunks": chunks,
}


def library(which: str, *told) -> tuple[torch.Tensor, ...]:
    """The same by PyTorch's own functions."""
    if which == "merge":
        out1, lse1, out2, lse2 = told
        out, lse = plain.merge(out1.float(), lse1, out2.float(), lse2)
        return out.to(torch.promote_types(out1.dtype, out2.dtype)), lse
    with torch.enable_grad():
        if which == "merge backward":
            leaves = [x.detach().requires_grad_() for x in told[:4]]
            out, lse = library("merge", *leaves)
            made = [x.masked_fill(x == -math.inf, 0) for x in (out, lse)]
            return torch.autograd.grad(made, leaves, told[4:])
        if which.startswith("feed"):
            leaves = [x.detach().requires_grad_() for x in told[1:4]]
            out = feed_forward.feed_forward(*leaves)
            if which == "feed-forward":
                return (out.detach(),)
            return torch.autograd.grad(out, leaves, told[4])
        return scaled_dot_product(which, *told[2:])


def scaled_dot_product(
    which, causal, scale, q, k, v, *rest
) -> tuple[torch.Tensor, ...]:
    """PyTorch's attention; its FlashAttention where that takes the case."""
    m, n = q.shape[2], k.shape[2]
    if (
        q.is_cuda
        and q.dtype in HALF
        and m == n
        and all(x.is_contiguous() for x in (q, k, v))
    ):
        if which == "attention":
            call = torch.ops.aten._scaled_dot_product_flash_attention
            return tuple(call(q, k, v, 0.0, causal, scale=scale)[:2])
        out, lse, dout = rest[0].to(q.dtype), *rest[1:]  # float32 if exact
        call = torch.ops.aten._scaled_dot_product_flash_attention_backward
        seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
        return tuple(
            call(dout, q, k, v, out, lse, None, None, m, n, 0.0, causal, seed, seed[:1],
                 scale=scale)
        )  # fmt: skip
    mask = torch.ones(m, n, dtype=torch.bool, device=q.device)
    mask = mask.tril(n - m) if causal else mask
    some = mask.any(-1, keepdim=True)  # told to see all where there is nothing to see
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    key, value = (
        x.repeat_interleave(q.shape[1] // max(k.shape[1], 1), 1) for x in leaves[1:]
    )
    out = F.scaled_dot_product_attention(
        leaves[0], key, value, mask | ~some, scale=scale
    )
    out = out * some
    if which == "attention backward":
        return torch.autograd.grad(out, leaves, rest[-1])
    s = (q.float() @ key.float().mT) * (q.shape[3] ** -0.5 if scale is None else scale)
    lse = torch.logsumexp(s.masked_fill(~mask, -math.inf), -1)
    return out.detach(), lse.detach()


PEERS = {"torch": library}


def cost(case: dict) -> dict:
    """Products of attention and feed-forward; a merge is its bytes, and 3 operations an
    element, or 7 backward."""
    which = case["pass"]
    if which.startswith("merge"):
        count = 3 if which == "merge" else 7
        elements = case["b"] * case["h"] * case["s"] * case["d"]
        return {"flops": count * elements, "unit": "fp32"}
    if which.startswith("feed"):
        products = 2 if which == "feed-forward" else 4
        return {"flops": 2 * products * case["s"] * case["d"] * case["f"]}
    m, n = case["m"], case["n"]
    pairs = m * n
    if case["causal"]:
        pairs = (max(0, n - m + 1) + n) * min(m, n) // 2 if n else 0
    products = 2 if which == "attention" else 5
    heads = case["b"] * case["h"] * case["g"]
    return {"flops": 2 * products * heads * pairs * case["d"]}
