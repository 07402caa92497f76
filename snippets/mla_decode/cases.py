"""Latent attention against float64: pages anywhere, ragged lengths, poison past end."""

from __future__ import annotations

import torch

from snippets.mla_decode import mla_decode as mla

NOWHERE = 2**30  # a page that no cache has: what is past an end must not be read
NEEDS = {"seconds": 600, "variants": {"seesaw": {"sm": 90, "why": "wgmma"}}}
LIMITS = {
    "*": {"registers": 255, "shared_bytes": 227 * 1024},
    # Rows arrive by whole sectors, 16 bytes a lane (the rest is the table, whose
    # entries every lane asks for).
    # Half of the scores a warp group leaves no register: 12 go to local memory, and the
    # operands of products fall by two fifths.
    "mla_parts": {"matrix_instructions": True, "warps": 4, "sectors_over_ideal": 1.01,
                  "wide_accesses": 0.8, "spilled_bytes": 48},
    "seesaw": {"matrix_instructions": True, "warps": 8, "spilled_bytes": 0,
               "sectors_over_ideal": 1, "wavefronts_over_ideal": 1},
    "mla_by_head": {"matrix_instructions": False, "spilled_bytes": 0},
    "mla_merge": {"matrix_instructions": False, "registers": 64, "spilled_bytes": 0},
}  # fmt: skip


def case(b: int, h: int, s: int, p: int, dtype: str, *kills: str, **more) -> dict:
    """b sequences of up to s rows in pages of p; h heads, t tokens a sequence."""
    row = {"dtype": dtype, "b": b, "t": 1, "h": h, "s": s, "p": p}
    row |= {"latent": 64, "rope": 16, "index": "int32"}
    row |= {"variants": ["a head", "one part", "parts"], **more}
    if dtype != "float32":
        row["out"] = [dtype, "float32"]
    return {**row, "kills": list(kills)} if kills else row


BOTH = {"variants": ["a head", "parts"]}
PARTS = {"variants": ["parts"]}
REAL = {"latent": 512, "rope": 64}
SEESAW = {"variants": ["seesaw"]} | REAL
CASES = (
    case(1, 1, 1, 256, "float32", "ignores the scale", "one lse to base 2"),
    case(3, 3, 67, 16, "float32",
         "dead rows count as logit 0", "naively, dead rows count as logit 0",
         "columns taken as adjacent", "naively, the table is not followed",
         shift=-100, whole=True, chunk=32, **BOTH),
    case(4, 6, 150, 16, "float16",
         "the turned columns are left out", "naively, the turned columns are left out",
         "the merge reads parts that nobody wrote", "lse to base 2",
         "the table is read past the end", "turned columns from the start", chunk=64),
    case(2, 2, 140, 16, "float16",
         "no running maximum", "naively, no running maximum", sharp=1000, chunk=64,
         **BOTH),
    case(2, 4, 400, 16, "float16",
         "output not rescaled", "sum not rescaled", "the table is a tile late",
         chunk=2**20, **PARTS),
    case(3, 4, 140, 16, "float16",
         "all tokens see all rows", "a token does not see itself",
         "a query without rows subtracts -inf", "the merge subtracts -inf",
         "tokens and heads by turns", t=3, chunk=64, **BOTH),
    case(3, 40, 200, 48, "bfloat16",
         "the merge weighs all parts alike", "lengths taken as adjacent",
         "rows past the end are read", "slots of the first tile for all",
         "only the first tile of queries", "the merge drops the last part",
         t=2, latent=128, chunk=64, index="int64", **PARTS),
    case(2, 2, 300, 256, "float16",
         "slots of a large page from its start", "pages taken as adjacent",
         chunk=128, **PARTS),
    case(3, 40, 300, 64, "bfloat16",
         "rows past the end are not cleared", "both groups the same columns",
         "always the first phase", "the turned half is not awaited",
         "maxima are not told", "half of the sums", "block after block of the cache",
         "natural lse for base 2", "no fence before the other's products",
         "tokens see all rows", "scores taken before they are made",
         t=2, first=4, **SEESAW),
    case(2, 4, 450, 256, "float16", "every block from its page's start",
         "output kept as it was", "whole parts to base 2",
         t=3, chunk=192, index="int64", **SEESAW),
)  # fmt: skip


def timed(b: int, h: int, s: int, t: int = 1, **more: object) -> dict:
    """DeepSeek-V2's rows, in pages of 64 as FlashMLA has them."""
    return case(b, h, s, 64, "bfloat16", **({"t": t, "even": True} | REAL | more))


SPLIT = {"variants": ["one part", "parts"]}
MANY = {"variants": ["parts", "seesaw"]}
TIMED = (
    timed(1, 16, 131_072, **SPLIT),
    timed(128, 16, 4096),
    timed(128, 16, 8192, even=False, **SPLIT),
    timed(128, 128, 4096, variants=["one part", "parts", "seesaw"]),
    timed(128, 128, 4096, 2, **MANY),
    timed(128, 128, 8192, 2, **MANY),
    timed(16, 128, 8192, **MANY),
    timed(1, 128, 131_072, **MANY),
)

# What is timed, in a few rows: a tile of 16 heads, cut, and one of 64, whole.
COUNTED = (
    timed(1, 16, 256, chunk=128, **PARTS),
    timed(1, 64, 256, variants=["one part", "seesaw"]),
)


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
    """(q, cache, table, lengths, scale, rope, chunk)."""
    dtype, p = getattr(torch, case["dtype"]), case["p"]
    width = case["latent"] + case["rope"]
    lengths = lengths_of(case)
    counts = [-(-length // p) for length in lengths] if p else [0] * case["b"]
    total = sum(counts) + 2  # and two that nobody has
    shapes = ((case["b"], case["t"], case["h"], width), (total, p, width))
    q, cache = (
        sharpen(torch.randn(shape, generator=generator, device=device), case, generator)
        for shape in shapes
    )
    q *= case.get("sharp", 1)
    if "shift" in case:  # moves every logit by it
        q[..., :1] = case["shift"] * width**0.5
        cache[..., :1] = 1
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
            cache[page] *= case.get("first", 1) if column == 0 else 1
            live[page, : lengths[row] - column * p] = True
    if counts and lengths[0] >= p > 0:
        cache[~live.to(device)] = float("nan")
    index = getattr(torch, case["index"])
    told = [x.to(device, index) for x in (table, torch.tensor(lengths))]
    known = (width**-0.5, case["rope"], case.get("chunk"))
    return q.to(dtype), cache.to(dtype), *told, *known


def reference(q, cache, table, lengths, scale, rope, *_) -> tuple[torch.Tensor, ...]:
    """out and lse in float64, a sequence at a time."""
    b, t, h, width = q.shape
    page, latent = cache.shape[1], width - rope
    double = {"dtype": torch.float64, "device": q.device}
    out = torch.zeros((b, t, h, latent), **double)
    lse = torch.full((b, t, h), float("-inf"), **double)
    if q.is_meta or q.numel() == 0 or cache.numel() == 0:
        return out, lse
    for row, length in enumerate(lengths.clamp(max=table.shape[1] * page).tolist()):
        if length == 0:
            continue
        at = table[row, : -(-length // page)].long()
        rows = cache[at].flatten(0, 1)[:length].double()
        s = torch.einsum("thw,sw->ths", q[row].double(), rows) * scale
        limit = length - t + 1 + torch.arange(t, device=q.device)
        hidden = torch.arange(length, device=q.device)[None, :] >= limit[:, None]
        s = s.masked_fill(hidden[:, None], float("-inf"))
        total = torch.logsumexp(s, -1)
        # A query that sees nothing has lse = -inf, and -inf - -inf would be NaN.
        shift = total.masked_fill(total == float("-inf"), 0)
        weight = torch.exp(s - shift[..., None])
        out[row] = weight @ rows[:, :latent]
        lse[row] = total
    return out, lse


def by(**way: object):
    """One of our ways: naively, uncut, or in parts as the case says or as suits."""

    def run(q, cache, table, lengths, scale, rope, chunk):
        told = {"chunk": chunk} | way
        return mla.decode(q, cache, table, lengths, scale, rope, **told)

    return run


VARIANTS = {
    "a head": by(way="by head"),
    "one part": by(way="tiles", chunk=2**30),
    "parts": by(way="tiles"),
    "seesaw": by(way="seesaw"),
}


def gathered(q, cache, table, lengths, scale, rope, chunk):
    """PyTorch's attention once the pages are copied into one piece, padded to the
    longest, with one head of keys for all."""
    t, latent = q.shape[1], q.shape[3] - rope
    pages = table.long().clamp(0, max(cache.shape[0] - 1, 0))
    pos = torch.arange(table.shape[1] * cache.shape[1], device=q.device)
    dead = pos[None, :] >= lengths[:, None]
    rows = cache[pages].flatten(1, 2).masked_fill(dead[:, :, None], 0)[:, None]
    limit = lengths[:, None] - t + 1 + torch.arange(t, device=q.device)
    seen = pos[None, None, :] < limit[:, :, None]
    some = seen.any(-1, keepdim=True)  # else it would divide by 0
    query = q.transpose(1, 2)
    keys = rows.expand(-1, q.shape[2], -1, -1)
    out = torch.nn.functional.scaled_dot_product_attention(
        query, keys, keys[..., :latent], (seen | ~some)[:, None], scale=scale
    )
    s = query.float() @ rows.float().mT * scale
    lse = torch.logsumexp(s.masked_fill(~seen[:, None], float("-inf")), -1)
    return (out * some[:, None]).transpose(1, 2), lse.transpose(1, 2)


PEERS = {"torch": gathered}


def cost(case: dict) -> dict:
    """Live rows once, queries, output and lse once; two products."""
    size = 4 if case["dtype"] == "float32" else 2
    latent, width = case["latent"], case["latent"] + case["rope"]
    live, queries = sum(lengths_of(case)), case["t"] * case["h"]
    moved = live * width * size
    moved += case["b"] * queries * ((width + latent) * size + 4)
    table = 4 * sum(-(-length // case["p"]) for length in lengths_of(case))
    flops = 2 * live * queries * (width + latent)
    return {"bytes": moved + table + 4 * case["b"], "flops": flops}
