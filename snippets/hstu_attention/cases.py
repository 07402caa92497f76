"""HSTU's attention against float64: history, targets, window, bias, three gradients."""

from __future__ import annotations

import torch

from snippets.flash_attention import cases as dense
from snippets.hstu_attention import hstu_attention as hstu

NEEDS = {
    "seconds": 600,
    "variants": {"descriptors": {"sm": [90, 100, 103]}},
}
# Tiles of sums and scores fill the registers of eight warps; no access takes more
# passes than it must. Instructions are for each multiply-add or matrix instruction of
# the masked loop, where the mask is most of them.
LIMITS = {
    "*": {
        "registers": 255,
        "spilled_bytes": 16,  # of hstu_backward_keys at D = 128 on sm_90: all is full
        "shared_bytes": 227 * 1024,
        "warps": 8,
        "sectors_over_ideal": 1.02,
        "wavefronts_over_ideal": 1,
        "wide_accesses": 0.75,
    },
    **{
        name: {"matrix_instructions": True, "instructions_per_fma": 5}
        for name in ("hstu_forward", "hstu_backward_keys", "hstu_backward_queries")
    },
}


def case(
    which: str, rows: list[int], d: int, e: int, dtype: str, *kills: str, **more: object
) -> dict:
    """Sequences of so many rows, h heads, d columns of q and k, e of v."""
    row = {"pass": which, "dtype": dtype, "h": 1, "d": d, "e": e, "rows": rows, **more}
    if dtype == "float32":
        row["variants"] = ["pointers"]  # "descriptors" would launch the same
    return {**row, "kills": list(kills)} if kills else row


BOTH = ("forward", "backward")
CASES = (
    case("forward", [1, 0, 17, 40], 16, 16, "float32",
         "every program takes the longest sequence", "a power of 2, not of e",
         "not divided by the longest", h=2),
    case("forward", [45, 3, 0, 70], 16, 16, "float32",
         "bias of the first head only", "targets keep their own place",
         targets=[20, 3, 0, 0], span=33, h=2),
    case("forward", [300, 1, 131], 64, 64, "float16",
         "targets do not see themselves", "a row sees the next one",
         "last tile of a sequence dropped", "the history's last tile is not masked",
         h=2, targets=[150, 0, 131]),
    case("forward", [260, 70], 40, 64, "bfloat16",
         "window off by one", "edge of the window skipped", window=100,
         targets=[30, 0]),
    case("backward", [1, 0, 17, 40], 16, 16, "float32",
         "dk without alpha", "dq without alpha", "dv not divided by the longest",
         h=2, alpha=0.3),
    case("backward", [45, 3, 70], 16, 16, "float32",
         "derivative without its second term", targets=[20, 3, 0], span=33),
    case("backward", [300, 1, 131], 64, 64, "float16",
         "targets give keys nothing", "targets do not see themselves",
         "last tile of keys has no gradient", "takes the first head",
         h=2, targets=[150, 0, 131]),
    case("backward", [260, 70], 40, 64, "bfloat16",
         "window ignored backwards", "far edge of the window skipped", window=100,
         targets=[30, 0]),
)  # fmt: skip

# Lengths as skewed as those of users: 32 histories of 16 to 8,192 rows.
SKEWED = [max(16, 8192 >> (i * 9 // 32)) - 7 * i % 16 for i in range(32)]
EVEN = [4096] * 4
TIMED = (
    *(case(w, EVEN, d, d, "bfloat16", h=8, longest=4096)
      for d in (64, 128) for w in BOTH),
    *(case(w, SKEWED, 128, 128, "bfloat16", h=4, longest=8192,
           targets=[min(n // 4, 512) for n in SKEWED]) for w in BOTH),
    *(case(w, SKEWED, 128, 128, "bfloat16", h=4, longest=8192, window=1024)
      for w in BOTH),
)  # fmt: skip

# Of the same dtype and widths, with sequences that fill no tile.
COUNTED = tuple(
    case(which, [300, 1, 211], d, d, "bfloat16", longest=512)
    for d in (64, 128) for which in BOTH
)  # fmt: skip


def starts(rows: list[int], device: str) -> torch.Tensor:
    """Where each sequence begins, and the end of all."""
    return torch.tensor([0, *rows]).cumsum(0).to(device, torch.int32)


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """("forward", longest, alpha, window, cu, targets, bias, q, k, v), or "backward"
    and also dout."""
    h, total = case["h"], sum(case["rows"])
    drawn = []
    for width in (case["d"], case["d"], case["e"], case["e"]):
        x = torch.randn(total, h, width, generator=generator, device=device)
        drawn.append(dense.sharpen(x, case, generator))
    tensors = [x.to(getattr(torch, case["dtype"])) for x in drawn]
    bias = targets = None
    if "span" in case:
        bias = torch.randn(h, case["span"], generator=generator, device=device)
    if "targets" in case:
        targets = torch.tensor(case["targets"], dtype=torch.int32, device=device)
    longest = case.get("longest", max(case["rows"]))
    alpha = case.get("alpha", max(case["d"], 1) ** -0.5)
    told = (longest, alpha, case.get("window"), starts(case["rows"], device))
    count = 3 if case["pass"] == "forward" else 4
    return case["pass"], *told, targets, bias, *tensors[:count]


def truth(longest, alpha, window, cu, targets, bias, q, k, v) -> torch.Tensor:
    """In float64, a sequence at a time, row by row of the definition."""
    out = torch.zeros(v.shape, dtype=torch.float64, device=q.device)
    if q.is_meta:  # asked for shapes alone
        return out
    aims = [0] * len(cu) if targets is None else targets.tolist()
    parts = []
    for b, (start, end) in enumerate(zip(cu.tolist(), cu.tolist()[1:], strict=False)):
        query, key, value = (x[start:end].double().transpose(0, 1) for x in (q, k, v))
        stand = torch.arange(end - start, device=q.device)
        itself = stand[:, None] == stand
        stand = stand.clamp(max=end - start - aims[b])
        apart = stand[:, None] - stand
        x = alpha * query @ key.mT
        if bias is not None:
            x = x + bias.double()[:, apart.clamp(0, bias.shape[1] - 1)]
        near = apart > 0
        if window is not None:
            near &= apart <= window
        p = torch.where(near | itself, x * torch.sigmoid(x), 0.0)
        parts.append((p @ value / longest).transpose(0, 1))
    return torch.cat(parts) if parts else out


def reference(which: str, *told) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """out, or (dq, dk, dv)."""
    if which == "forward":
        return truth(*told)
    *told, q, k, v, dout = told
    if q.is_meta:
        return tuple(x.double() for x in (q, k, v))
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        out = truth(*told, *leaves)
        return torch.autograd.grad(out, leaves, dout.double())


def by(descriptors: bool):
    """Kernels that read by descriptor wherever layout and dtype allow it, or never."""

    def run(which, longest, alpha, window, cu, targets, bias, *tensors):
        call = hstu.forward if which == "forward" else hstu.backward
        told = (cu, longest, alpha, targets, bias, window, descriptors)
        return call(*tensors, *told)

    return run


VARIANTS = {"descriptors": by(True), "pointers": by(False)}


def naive(which, longest, alpha, window, cu, targets, bias, *tensors):
    """The padded form, and autograd's gradients of it."""
    told = (cu, int(longest), alpha, targets, bias, window)
    if which == "forward":
        return hstu.padded(*tensors, *told)
    leaves = [x.detach().requires_grad_() for x in tensors[:3]]
    with torch.enable_grad():
        return torch.autograd.grad(hstu.padded(*leaves, *told), leaves, tensors[3])


PEERS = {"padded": naive}


def pairs(rows: int, targets: int, window: int | None) -> int:
    """Scores of a sequence that are in sight."""
    history = rows - targets
    reach = history if window is None else min(window, history)
    short = min(reach, max(history - 1, 0))  # rows that see fewer than `reach` before
    before = short * (short + 1) // 2 + max(history - 1 - short, 0) * reach
    return before + rows + targets * reach


def cost(case: dict) -> dict:
    """Two products forward, five backward, of the pairs in sight."""
    aims = case.get("targets", [0] * len(case["rows"]))
    both = zip(case["rows"], aims, strict=True)
    seen = case["h"] * sum(pairs(n, t, case.get("window")) for n, t in both)
    d, e = case["d"], case["e"]
    each = d + e if case["pass"] == "forward" else 3 * d + 2 * e
    return {"flops": 2 * each * seen}
