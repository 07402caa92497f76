"""Paged attention against float64: pages anywhere, ragged lengths, poison past ends."""

from __future__ import annotations

import torch

from snippets.paged_attention import paged_attention as paged

HALF = (torch.float16, torch.bfloat16)
NOWHERE = 2**30  # a page that no cache has: what is past an end must not be read
NEEDS = {"seconds": 600}
LIMITS = {
    "*": {"registers": 255, "spilled_bytes": 0, "shared_bytes": 227 * 1024},
    # Pages arrive by whole sectors, 16 bytes a lane (the rest is the table, whose
    # entries every lane asks for), and lie without conflicts; two programs an SM.
    "paged_parts": {
        "matrix_instructions": True, "warps": 8, "sectors_over_ideal": 1.01,
        "wavefronts_over_ideal": 1.1, "wide_accesses": 0.85, "instructions_per_fma": 16,
    },
    "paged_by_head": {"matrix_instructions": False},
    "paged_merge": {
        "matrix_instructions": False, "registers": 64, "sectors_over_ideal": 1.1,
        "warps": 28,
    },
}  # fmt: skip


def case(
    b: int, h: int, g: int, d: int, s: int, p: int, dtype: str, *kills: str, **more
) -> dict:
    """b sequences of up to s keys in pages of p; h heads of keys, g of queries to each;
    t tokens a sequence."""
    row = {"dtype": dtype, "b": b, "t": 1, "h": h, "g": g, "d": d, "s": s, "p": p}
    row |= {"index": "int32", **more}
    if dtype != "float32":
        row["out"] = [dtype, "float32"]
    return {**row, "kills": list(kills)} if kills else row


BOTH = {"variants": ["a head", "parts"]}
PARTS = {"variants": ["parts"]}
CASES = (
    case(1, 1, 1, 64, 1, 256, "float32", "ignores the scale", "one lse to base 2"),
    case(3, 2, 2, 80, 67, 16, "float32",
         "dead keys count as logit 0", "naively, dead keys count as logit 0",
         "columns taken as adjacent", "naively, the table is not followed",
         shift=-100, whole=True, chunk=32, **BOTH),
    case(4, 3, 2, 64, 150, 16, "float16",
         "takes the wrong head of keys", "heads of a group by turns",
         "the merge reads parts that nobody wrote", "lse to base 2",
         "the table is read past the end", chunk=128),
    case(2, 2, 2, 64, 140, 16, "float16",
         "no running maximum", "naively, no running maximum", sharp=1000, chunk=128,
         **BOTH),
    case(2, 2, 2, 64, 800, 16, "float16",
         "output not rescaled", "sum not rescaled", "the table is a tile late",
         **PARTS),
    case(3, 2, 2, 64, 140, 16, "float16",
         "all tokens see all keys", "a token does not see itself",
         "a row without keys subtracts -inf", "the merge subtracts -inf",
         t=3, chunk=128, **BOTH),
    case(3, 1, 4, 128, 200, 32, "bfloat16",
         "the merge weighs all parts alike", "lengths taken as adjacent",
         "values past the end are read", chunk=64, index="int64", **BOTH),
    case(2, 2, 2, 64, 300, 48, "float16",
         "slots of the first tile for all", chunk=128, **PARTS),
    case(2, 1, 2, 64, 300, 256, "float16",
         "slots of a large page from its start", "pages taken as adjacent",
         chunk=128, **PARTS),
    case(2, 2, 24, 64, 140, 16, "float16",
         "only the first tile of rows", t=3, chunk=128, **PARTS),
    case(2, 1, 4, 256, 70, 16, "float16",
         "the merge drops the last part", chunk=32, **PARTS),
)  # fmt: skip


def timed(b: int, s: int, dtype: str = "bfloat16", **more: object) -> dict:
    """Heads as those of Llama 3 8B, in pages of 16 unless told."""
    sides = {"h": 8, "g": 4, "d": 128, "p": 16} | more
    return case(b=b, s=s, dtype=dtype, **sides)


TIMED = (
    timed(1, 131072, even=True, variants=["a group", "parts"]),
    timed(4, 32768, even=True, variants=["a group", "parts"]),
    timed(16, 8192, even=True),
    timed(16, 16384, variants=["a group", "parts"]),  # ragged
    timed(64, 8192, variants=["a group", "parts"]),  # ragged
    timed(16, 8192, even=True, p=64, **PARTS),
    timed(16, 8192, even=True, t=4, **PARTS),
    timed(16, 8192, even=True, h=1, g=32, **PARTS),
    # Pages in their order: what a library takes as one piece.
    timed(1, 131072, even=True, order=True, **PARTS),
    timed(16, 8192, even=True, order=True, **PARTS),
)

# As is timed most: heads of 128 in pages of 16, of which several tiles are in flight.
COUNTED = (case(2, 2, 4, 128, 512, 16, "bfloat16", even=True, chunk=256),)


def lengths_of(case: dict) -> list[int]:
    """The longest first, then 1, 0, and others between; all alike if `even`."""
    b, s = case["b"], case["s"]
    if case.get("even") or s == 0:
        return [s] * b
    return [s, 1, 0, *(s * (7919 * i % 1000) // 1000 for i in range(1, b))][:b]


def sharpen(x: torch.Tensor, case: dict, generator: torch.Generator) -> torch.Tensor:
    """Add outliers: one element in a hundred is six times as large."""
    rare = torch.rand(x.shape, generator=generator, device=x.device) < 0.01
    x = torch.where(rare, 6 * x, x)
    return torch.round(x) if case.get("whole") else x


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """(q, k, v, table, lengths, scale, chunk, whether pages lie in their order)."""
    dtype, p = getattr(torch, case["dtype"]), case["p"]
    lengths = lengths_of(case)
    counts = [-(-length // p) for length in lengths] if p else [0] * case["b"]
    total = sum(counts) + (0 if case.get("order") else 2)  # and two that nobody has
    drawn = {}
    shapes = {"q": (case["b"], case["t"], case["h"] * case["g"], case["d"])}
    shapes |= dict.fromkeys("kv", (total, p, case["h"], case["d"]))
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=generator, device=device)
        drawn[name] = sharpen(x, case, generator)
    drawn["q"] *= case.get("sharp", 1)
    if "shift" in case:  # moves every logit by it
        drawn["q"][..., :1] = case["shift"] * case["d"] ** 0.5
        drawn["k"][..., :1] = 1
    order = list(range(total))
    if not case.get("order"):
        order = torch.randperm(total, generator=generator, device=device).tolist()
    # The first slice stands for all where a view repeats it: it must be live, whole.
    if counts and lengths[0] >= p > 0:
        order.remove(0)
        order.insert(0, 0)
    table = torch.full((case["b"], max(counts, default=0)), NOWHERE)
    live = torch.zeros(total, p, dtype=torch.bool)
    given = iter(order)
    for row, count in enumerate(counts):
        for column in range(count):
            page = next(given)
            table[row, column] = page
            live[page, : lengths[row] - column * p] = True
    if counts and lengths[0] >= p > 0:
        for name in "kv":
            drawn[name][~live.to(device)] = float("nan")
    index = getattr(torch, case["index"])
    q, k, v = (x.to(dtype) for x in drawn.values())
    told = [x.to(device, index) for x in (table, torch.tensor(lengths))]
    in_order = bool(case.get("order"))
    return q, k, v, *told, case.get("scale"), case.get("chunk"), in_order


def reference(q, k, v, table, lengths, scale, *_) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse in float64, a sequence and a head of keys at a time."""
    b, t, h_q, d = q.shape
    page, h_kv = k.shape[1:3]
    group = h_q // max(h_kv, 1)
    double = {"dtype": torch.float64, "device": q.device}
    out = torch.zeros(q.shape, **double)
    lse = torch.full((b, t, h_q), float("-inf"), **double)
    if q.is_meta or q.numel() == 0 or k.numel() == 0:
        return out, lse
    scale = d**-0.5 if scale is None else scale
    for row, length in enumerate(lengths.clamp(max=table.shape[1] * page).tolist()):
        at = table[row, : -(-length // page)].long()
        pos = torch.arange(length, device=q.device)
        limit = length - t + 1 + torch.arange(t, device=q.device)
        hidden = (pos[None, :] >= limit[:, None]).repeat_interleave(group, 0)
        for h in range(h_kv if length else 0):
            heads = slice(h * group, h * group + group)
            keys, values = (x[at, :, h].flatten(0, 1)[:length].double() for x in (k, v))
            s = q[row, :, heads].double().flatten(0, 1) @ keys.T * scale
            s = s.masked_fill(hidden, float("-inf"))
            total = torch.logsumexp(s, -1)
            # A row that sees nothing has lse = -inf, and -inf - -inf would be NaN.
            shift = total.masked_fill(total == float("-inf"), 0)
            weight = torch.exp(s - shift[:, None])
            out[row, :, heads] = (weight @ values).view(t, group, d)
            lse[row, :, heads] = total.view(t, group)
    return out, lse


def by(**way: object):
    """One of our ways: naively, uncut, or in parts as the case says or as suits."""

    def run(q, k, v, table, lengths, scale, chunk, in_order):
        told = {"chunk": chunk} | way
        return paged.decode(q, k, v, table, lengths, scale, **told)

    return run


VARIANTS = {
    "a head": by(by_head=True),
    "a group": by(chunk=2**30),
    "parts": by(),
}


def gathered(q, k, v, table, lengths, scale, chunk, in_order):
    """PyTorch's attention once the pages are copied into one piece, padded to the
    longest. With pages in their order and no length short nothing is copied, and
    FlashAttention takes what is there."""
    b, t, h_q, d = q.shape
    scale = d**-0.5 if scale is None else scale
    if in_order and t == 1 and q.is_cuda and q.dtype in HALF:
        key, value = (x.view(b, -1, *x.shape[2:]).transpose(1, 2) for x in (k, v))
        call = torch.ops.aten._scaled_dot_product_flash_attention
        out, lse = call(q.transpose(1, 2), key, value, 0.0, False, scale=scale)[:2]
        return out.transpose(1, 2), lse.transpose(1, 2)
    pages = table.long().clamp(0, max(k.shape[0] - 1, 0))
    pos = torch.arange(table.shape[1] * k.shape[1], device=q.device)
    dead = pos[None, :] >= lengths[:, None]
    group = h_q // max(k.shape[2], 1)
    key, value = (
        x[pages]
        .flatten(1, 2)
        .masked_fill(dead[:, :, None, None], 0)
        .repeat_interleave(group, 2)
        .transpose(1, 2)
        for x in (k, v)
    )
    limit = lengths[:, None] - t + 1 + torch.arange(t, device=q.device)
    seen = pos[None, None, :] < limit[:, :, None]
    some = seen.any(-1, keepdim=True)  # else it would divide by 0
    query = q.transpose(1, 2)
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, (seen | ~some)[:, None], scale=scale
    )
    s = query.float() @ key.float().mT * scale
    lse = torch.logsumexp(s.masked_fill(~seen[:, None], float("-inf")), -1)
    return (out * some[:, None]).transpose(1, 2), lse.transpose(1, 2)


PEERS = {"torch": gathered}


def cost(case: dict) -> dict:
    """Live keys and values once, queries, output and lse once; two products."""
    size = 4 if case["dtype"] == "float32" else 2
    keys = sum(lengths_of(case))
    rows = case["b"] * case["t"] * case["h"] * case["g"]
    moved = 2 * keys * case["h"] * case["d"] * size + rows * (2 * case["d"] * size + 4)
    table = 4 * sum(-(-length // case["p"]) for length in lengths_of(case))
    flops = 4 * keys * case["t"] * case["h"] * case["g"] * case["d"]
    return {"bytes": moved + table + 4 * case["b"], "flops": flops}
