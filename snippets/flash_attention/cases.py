"""Flash attention against float64: lse and each of the three gradients on its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from snippets.flash_attention import flash_attention as flash

HALF = (torch.float16, torch.bfloat16)
HELD = 2**31  # bytes of float64 scores that the reference holds at a time
WORTH = 2**24  # scores above which a CPU is given a case to compile it, not to run it
TOLERANCE = {"bfloat16": (8e-3, "backward makes D of rounded out, as the library does")}
NEEDS = {
    "seconds": 900,  # the reference multiplies in float64, 2**28 scores a head at most
    "variants": {
        "descriptors": {"sm": [90, 100, 103]},
        "cuDNN": {"sm": ">=80", "cpu": "cuDNN has attention for GPUs alone"},
    },
}
# Eight warps hold a tile's sums, in registers without spills, and no access takes more
# passes than it must. Only lse and delta are not moved 16 bytes at a time. Instructions
# are for each matrix instruction of the main loop, the masked one if two have as many,
# where most are needed: on sm_100, whose matrix instructions are few and large.
LIMITS = {
    "*": {
        "registers": 255,
        "spilled_bytes": 0,
        "shared_bytes": 227 * 1024,
        "warps": 8,
        "sectors_over_ideal": 1,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 0.75,
    },
    "flash_forward": {
        "matrix_instructions": True,
        "instructions_per_fma": 5,
        "wide_accesses": 0.9,
    },
    "flash_backward_keys": {"matrix_instructions": True, "instructions_per_fma": 7},
    "flash_backward_queries": {"matrix_instructions": True, "instructions_per_fma": 6},
    "flash_delta": {"matrix_instructions": False, "warps": 64},
}


def case(
    which: str, m: int, n: int, d: int, dtype: str, *kills: str, **more: object
) -> dict:
    """b sequences of m queries and n keys; h heads of keys, g of queries for each."""
    row = {"pass": which, "causal": False, "dtype": dtype, "b": 1, "h": 1, "g": 1}
    row |= {"m": m, "n": n, "d": d, **more}
    if which == "forward" and dtype != "float32":
        row["out"] = [dtype, "float32"]
    if dtype == "float32":
        row["variants"] = ["pointers"]  # "descriptors" would launch the same
    return {**row, "kills": list(kills)} if kills else row


CASES = (
    case("forward", 1, 1, 16, "float32", "lse to base 2", "ignores the scale"),
    case("forward", 17, 67, 80, "float32",
         "keys past the end are seen", "p is a power of 2, not of e", h=2),
    case("forward", 131, 70, 16, "float32",
         "a row without keys subtracts -inf", causal=True),
    case("forward", 40, 69, 64, "float32",
         "hidden keys count as logit 0", whole=True, shift=-100),
    case("forward", 127, 127, 64, "float16",
         "takes all for the first sequence", "a query sees the next key",
         b=2, h=2, causal=True),
    case("forward", 17, 261, 40, "float16",
         "takes the wrong head of keys", "mask aligned top left",
         g=2, h=2, causal=True),
    case("forward", 129, 300, 128, "float16",
         "last tile of keys dropped", "output not rescaled"),
    case("forward", 300, 129, 64, "float16",
         "no running maximum", causal=True, sharp=30),
    case("forward", 70, 129, 256, "float16",
         "too many tiles go without a mask", "a query does not see itself",
         causal=True),
    case("forward", 257, 257, 32, "float16",
         "ignores q and k", "ignores the scale", causal=True, scale=0.1),
    case("forward", 129, 1023, 128, "bfloat16", "sum not rescaled", g=2, causal=True),
    case("backward", 1, 2, 16, "float32", "dq without the scale", scale=0.05),
    case("backward", 17, 67, 80, "float32",
         "rows of k taken to be as far apart as those of q", h=2, scale=0.05),
    case("backward", 70, 70, 64, "float32",
         "dk and dv of the first head only", b=2, g=2, causal=True, scale=0.1),
    case("backward", 40, 69, 64, "float32",
         "keys past the end are seen backwards", whole=True, shift=-100),
    case("backward", 127, 127, 64, "float16",
         "a key is not seen by its own query", "takes all for the first sequence",
         b=2, h=2, causal=True),
    case("backward", 17, 161, 40, "float16",
         "takes the wrong head of keys backwards", "columns taken as adjacent",
         g=2, h=2, causal=True),
    case("backward", 150, 130, 128, "float16", "keys begin a tile late", causal=True),
    case("backward", 129, 255, 64, "float16", "last tile of queries dropped"),
    case("backward", 70, 65, 256, "float16",
         "keys without delta", "queries without delta"),
    case("backward", 200, 200, 32, "float16",
         "keys go without a mask a tile early", "p made anew from a lse of 0",
         causal=True, scale=0.1),
    case("backward", 129, 1023, 128, "bfloat16",
         "dk without the scale", "dv of the last tile of queries only",
         g=2, causal=True, exact=True),
    case("forward", 300, 300, 64, "float16",
         "a query sees a key left of its window", "first tile of a window skipped",
         causal=True, left=99),
    case("forward", 150, 270, 32, "float16",
         "sides of a window swapped", "left edge of a window not masked",
         left=200, right=30),
    case("forward", 70, 90, 16, "float32",
         "a tile of a narrow window twice", left=3, right=5),
    case("forward", 1, 1, 16, "float16", "lse to base 2", left=0, causal=True),
    case("backward", 300, 300, 64, "float16",
         "window ignored backwards", "last queries of a window skipped",
         g=2, causal=True, left=69),
    case("backward", 200, 330, 64, "float16",
         "far edge of a window not masked", left=150, right=20),
    case("backward", 90, 70, 16, "float32",
         "a query sees a key left of its window", left=3),
)  # fmt: skip
SIZES = (512, 1024, 2048, 4096, 8192, 16384)


def long(which: str, s: int, d: int, dtype: str, causal: bool, **more: object) -> dict:
    """16,384 tokens in sequences of s, as papers time it; of 2,048 columns, backward
    half of that, since it has twice the tensors."""
    columns = 2048 if which == "forward" else 1024
    told = {"b": 16384 // s, "h": columns // d, "causal": causal, **more}
    return case(which, s, s, d, dtype, **told)


TIMED = (
    *(long("forward", s, 128, "float16", c) for c in (False, True) for s in SIZES),
    *(long("backward", s, 128, "float16", c) for c in (False, True) for s in SIZES),
    *(
        long(which, s, 64, "bfloat16", c)
        for which in ("forward", "backward")
        for c in (False, True)
        for s in (1024, 4096, 16384)
    ),
    *(
        long(which, 8192, 256, "bfloat16", c)
        for which in ("forward", "backward")
        for c in (False, True)
    ),
    # Windows of 1,024 and 4,096 keys, the query's own included.
    *(
        long(which, 16384, 128, "bfloat16", True, left=left)
        for which in ("forward", "backward")
        for left in (1023, 4095)
    ),
    # Eight heads of queries share one of keys.
    *(
        case(which, 8192, 8192, 128, "float16", b=2, h=2, g=8, causal=True)
        for which in ("forward", "backward")
    ),
)

# As papers time it most, in a sequence of several tiles, of which some need no mask.
COUNTED = tuple(
    case(which, 512, 512, 128, "float16", causal=True, **more)
    for which in ("forward", "backward")
    for more in ({}, {"left": 255})
)


def sharpen(x: torch.Tensor, case: dict, generator: torch.Generator) -> torch.Tensor:
    """Add outliers: one element in a hundred is six times as large."""
    rare = torch.rand(x.shape, generator=generator, device=x.device) < 0.01
    x = torch.where(rare, 6 * x, x)
    return torch.round(x) if case.get("whole") else x


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", causal, scale, left, right, q, k, v), or "backward" and also out, lse
    and dout."""
    dtype, d = getattr(torch, case["dtype"]), case["d"]
    heads = {"q": case["h"] * case["g"], "k": case["h"]}
    shapes = {
        "q": (case["b"], heads["q"], case["m"], d),
        "k": (case["b"], heads["k"], case["n"], d),
    }
    drawn = {}
    for name, like in (("q", "q"), ("k", "k"), ("v", "k"), ("dout", "q")):
        x = torch.randn(shapes[like], generator=generator, device=device)
        drawn[name] = sharpen(x, case, generator)
    drawn["q"] = drawn["q"] * case.get("sharp", 1)
    if "shift" in case:  # moves every logit by it
        drawn["q"][..., :1] = case["shift"] * d**0.5
        drawn["k"][..., :1] = 1
    q, k, v, dout = (x.to(dtype) for x in drawn.values())
    window = (case.get("left", -1), case.get("right", -1))
    told = (case["causal"], case.get("scale"), *window, q, k, v)
    if case["pass"] == "forward":
        return "forward", *told
    if device == "cpu" and q.shape[2] * k.shape[2] > WORTH:
        out, lse = q, q[..., 0].float().contiguous()
    else:
        out, lse = truth(*told)
    wanted = torch.float32 if case.get("exact") else dtype
    return "backward", *told, out.to(wanted), lse.float(), dout


def visible(
    m: int, n: int, causal: bool, left: int, right: int, device: torch.device
) -> torch.Tensor:
    """Which keys (columns) a query (row) sees; the last one stands at the last key."""
    seen = torch.ones(m, n, dtype=torch.bool, device=device)
    if causal or right >= 0:
        seen = seen.tril(n - m + (0 if causal else right))
    return seen.triu(n - m - left) if left >= 0 else seen


def truth(
    causal: bool,
    scale: float | None,
    left: int,
    right: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """In float64: (out, lse), or with dout (dq, dk, dv). Some rows at a time."""
    b, h, m, d = q.shape
    n = k.shape[2]
    group = h // max(k.shape[1], 1)
    scale = max(d, 1) ** -0.5 if scale is None else scale
    double = {"dtype": torch.float64, "device": q.device}
    out, lse = torch.zeros(q.shape, **double), torch.zeros((b, h, m), **double)
    dq, dk, dv = (torch.zeros(x.shape, **double) for x in (q, k, v))
    if q.is_meta:  # asked for shapes alone
        return (out, lse) if dout is None else (dq, dk, dv)
    step = max(1, HELD // (8 * max(n, 1)))
    bounded = causal or max(left, right) >= 0
    seen = visible(m, n, causal, left, right, q.device) if bounded else None
    for at in [
        (i, j, r) for i in range(b) for j in range(h) for r in range(0, m, step)
    ]:
        i, j, rows = at[0], at[1], slice(at[2], at[2] + step)
        kv = (i, j // group)
        query, key, value = q[i, j, rows].double(), k[kv].double(), v[kv].double()
        s = query @ key.T * scale
        if seen is not None:
            s = s.masked_fill(~seen[rows], float("-inf"))
        total = torch.logsumexp(s, -1)
        # A row that sees nothing has lse = -inf, and -inf - -inf would be NaN.
        p = torch.exp(s - total.masked_fill(total == float("-inf"), 0)[:, None])
        out[i, j, rows], lse[i, j, rows] = p @ value, total
        if dout is not None:
            do = dout[i, j, rows].double()
            dv[kv] += p.T @ do
            dp = do @ value.T
            ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
            dq[i, j, rows] = ds @ key
            dk[kv] += ds.T @ query
    return (out, lse) if dout is None else (dq, dk, dv)


def reference(which: str, *told: object) -> tuple[torch.Tensor, ...]:
    """(out, lse), or (dq, dk, dv)."""
    if which == "forward":
        return truth(*told)
    *told, _, _, dout = told
    return truth(*told, dout)


def by(descriptors: bool):
    """Kernels that read by descriptor wherever layout and dtype allow it, or never."""

    def run(which, causal, scale, left, right, *tensors):
        told = {"descriptors": descriptors, "window": (left, right)}
        if which == "forward":
            return flash.forward(*tensors, causal, scale, **told)
        return flash.backward(*tensors, causal, scale, **told)

    return run


VARIANTS = {"descriptors": by(True), "pointers": by(False)}


def library(which, causal, scale, left, right, q, k, v, *rest):
    """PyTorch's FlashAttention where it takes the case, else its general function."""
    columns = all(x.stride(-1) == 1 for x in (q, k, v, *rest[:1], *rest[2:]))
    bounded = max(left, right) >= 0
    # With unlike lengths the library's causal mask hangs from the first query, but its
    # window from the last.
    aligned = q.shape[2] == k.shape[2] or not causal
    if not (
        q.is_cuda
        and q.dtype in HALF
        and aligned
        and columns
        and q.shape[3] % 8 == 0 != q.numel()
    ):
        return general(which, causal, scale, left, right, q, k, v, *rest)
    if bounded:
        return windowed(which, causal, scale, left, right, q, k, v, *rest)
    if which == "forward":
        call = torch.ops.aten._scaled_dot_product_flash_attention
        return tuple(call(q, k, v, 0.0, causal, scale=scale)[:2])
    out, lse, dout = rest
    call = torch.ops.aten._scaled_dot_product_flash_attention_backward
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
    return tuple(
        call(dout, q, k, v, out, lse, None, None, q.shape[2], k.shape[2], 0.0,
             causal, seed, seed[:1], scale=scale)
    )  # fmt: skip


def windowed(which, causal, scale, left, right, q, k, v, *rest):
    """PyTorch's FlashAttention as scaled_dot_product_attention does not offer it."""
    sides = {"window_size_left": left, "window_size_right": 0 if causal else right}
    told = (None, None, q.shape[2], k.shape[2], 0.0, causal)
    query, key, value = (x.transpose(1, 2) for x in (q, k, v))
    if which == "forward":
        call = torch.ops.aten._flash_attention_forward
        out, lse = call(query, key, value, *told, False, scale=scale, **sides)[:2]
        return out.transpose(1, 2), lse
    out, lse, dout = rest
    call = torch.ops.aten._flash_attention_backward
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
    out, dout = out.transpose(1, 2), dout.transpose(1, 2)
    found = call(dout, query, key, value, out, lse, *told, seed, seed[:1], scale=scale,
                 **sides)  # fmt: skip
    return tuple(x.transpose(1, 2) for x in found)


def general(which, causal, scale, left, right, q, k, v, *rest):
    """The same by scaled_dot_product_attention and a mask, on a CPU too."""
    m, n = q.shape[2], k.shape[2]
    mask = visible(m, n, causal, left, right, q.device)
    # A query with nothing to see is told to see all.
    some = mask.any(-1, keepdim=True)
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        group = q.shape[1] // max(k.shape[1], 1)
        key, value = (x.repeat_interleave(group, 1) for x in leaves[1:])
        out = F.scaled_dot_product_attention(
            leaves[0], key, value, mask | ~some, scale=scale
        )
        out = out * some
        if which == "backward":
            return torch.autograd.grad(out, leaves, rest[-1])
    s = (q.float() @ key.float().mT) * (q.shape[3] ** -0.5 if scale is None else scale)
    return out.detach(), torch.logsumexp(s.masked_fill(~mask, float("-inf")), -1)


def cudnn(which, causal, scale, left, right, q, k, v, *rest):
    """The same by cuDNN."""
    if max(left, right) >= 0:
        raise ValueError("PyTorch does not pass a window to cuDNN")
    if which == "forward":
        call = torch.ops.aten._scaled_dot_product_cudnn_attention
        out, lse = call(q, k, v, None, True, 0.0, causal, scale=scale)[:2]
        return out, lse.view(q.shape[:3])
    out, lse, dout = rest
    call = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    seed = torch.zeros((), dtype=torch.int64, device=q.device)
    return tuple(
        call(dout, q, k, v, out, lse.unsqueeze(-1), seed, seed, None, None, None,
             q.shape[2], k.shape[2], 0.0, causal, scale=scale)
    )  # fmt: skip


PEERS = {"torch": library, "cuDNN": cudnn}


def pairs(m: int, n: int, causal: bool, left: int, right: int) -> int:
    """How many keys m queries see of n, counted query by query."""
    right = 0 if causal else right if right >= 0 else m + n
    left = left if left >= 0 else m + n
    at = range(n - m, n)  # the key at which each query stands
    return sum(max(0, min(i + right, n - 1) - max(i - left, 0) + 1) for i in at)


def cost(case: dict) -> dict:
    """Two matrix products forward, five backward, of the pairs in sight."""
    sides = (case["causal"], case.get("left", -1), case.get("right", -1))
    heads = case["b"] * case["h"] * case["g"]
    products = 2 if case["pass"] == "forward" else 5
    seen = pairs(case["m"], case["n"], *sides)
    return {"flops": 2 * products * heads * seen * case["d"]}
