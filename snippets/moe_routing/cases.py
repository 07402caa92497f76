"""What verifies routing: each step by itself, indices exact, and each gradient."""

from __future__ import annotations

import torch

from snippets.moe_routing import choice, move
from snippets.moe_routing import moe_routing as ours

NEEDS = {"seconds": 600}
# Rows are moved by whole sectors, 16 bytes a lane; indices go where they must. A row of
# logits is read once, and what is left of a gate is shuffles.
ROWS = {"sectors_over_ideal": 1.01, "wide_accesses": 0.85, "warps": 24}
LIMITS = {
    "*": {"spilled_bytes": 0, "registers": 168, "matrix_instructions": False},
    "moe_route": {"sectors_over_ideal": 1.05, "warps": 12},
    "moe_route_backward": {"sectors_over_ideal": 1.05, "warps": 24},
    "moe_permute": {**ROWS, "warps": 48},
    "moe_combine": {**ROWS, "wide_accesses": 0.7},  # each lane asks for slot and weight
    "moe_weigh": ROWS,
}
GATES = {
    "switch": choice.switch(),
    "two": choice.Gate(k=2),
    "mixtral": choice.Gate(k=2, normalise=True),
    "grouped": choice.deepseek_v3(k=4, groups=3, top_groups=2),
    "deepseek": choice.deepseek_v3(),
    "local": ours.local(choice.switch(), 1, 4, 16),
}


def case(which: str, t: int, dtype: str, *kills: str, **more: object) -> dict:
    """t tokens; `experts` and `gate`, or `top` choices for each; rows of h."""
    row = {"pass": which, "t": t, "dtype": dtype, **more}
    if which == "route":
        row["out"] = ["int32", "float32", "float32"]
    elif which == "weigh":
        row["out"] = "float32"
    if which != "sort":
        row["variants"] = ["blocks"]
    return {**row, "kills": list(kills)} if kills else row


CASES = (
    case("route", 37, "float32", "ties go to the highest expert",
         "negative numbers in their bits' order", "the last expert is not seen",
         experts=7, gate="two"),
    case("route", 19, "float32", "no maximum", "a row of -inf subtracts -inf",
         experts=8, gate="mixtral", scale=1e4, hidden=True),
    case("route", 130, "float32", "bias moves the weight too", "groups by their best",
         "all groups are open", "scale forgotten", "mean of the last rows alone",
         "rows past the end count", "weights do not add up to 1",
         experts=24, gate="grouped", biased=True),
    case("route", 9, "float16", "experts of other ranks are chosen",
         experts=16, gate="local"),
    case("route back", 21, "float32", "softmax without what all share",
         "gradient of the mean forgotten", experts=7, gate="two"),
    case("route back", 21, "float32", "a total that does not move",
         "sigmoid without its slope", "gradient without the scale",
         experts=24, gate="grouped"),
    case("sort", 150, "int32", "capacity and one more", "groups are not filled up",
         "a copy counts itself", "blocks before forgotten", "the dropped have a slot",
         "naively, capacity and one more", "naively, places by the first block",
         experts=5, top=2, capacity=40, align=16),
    case("sort", 700, "int32", "experts past the first 32 forgotten",
         "chunks of blocks start anew", experts=40, top=13, capacity=None, align=1),
    case("permute", 33, "float16", "rows of the wrong token", "padding is not 0",
         h=72, top=2, experts=3, capacity=17, align=8),
    case("permute", 17, "float32", "permuted without weights",
         h=1027, top=2, experts=3, capacity=None, align=1, weighted=True),
    case("combine", 33, "bfloat16", "the dropped give the last row",
         "only the first choice comes back", h=72, top=3, experts=4, capacity=20,
         align=1, weighted=True),
    case("combine", 5, "float32", "combined without weights",
         "last tile of columns dropped",
         h=1100, top=2, experts=4, capacity=None, align=4, weighted=True),
    case("weigh", 21, "float16", "weights of the dropped from the last row",
         "only the first columns weigh", h=1100, top=2, experts=3, capacity=9, align=1),
)  # fmt: skip


# DeepSeek-V3's layer: 8 of 256 experts, rows of 7168.
DEEP = {"experts": 256, "top": 8, "capacity": None, "align": 128}
TIMED = (
    case("route", 16384, "float32", experts=256, gate="deepseek", biased=True),
    case("route back", 16384, "float32", experts=256, gate="deepseek"),
    case("route", 16384, "bfloat16", experts=8, gate="mixtral"),
    case("sort", 16384, "int32", **DEEP),
    case("permute", 4096, "bfloat16", h=7168, **DEEP),
    case("combine", 4096, "bfloat16", h=7168, weighted=True, **DEEP),
    case("weigh", 4096, "bfloat16", h=7168, **DEEP),
)
FEW = DEEP | {"experts": 16, "top": 4, "align": 1}
COUNTED = (
    case("route", 64, "float32", experts=256, gate="deepseek", biased=True),
    case("route back", 64, "float32", experts=256, gate="deepseek"),
    case("sort", 256, "int32", experts=256, top=8, capacity=None, align=128),
    case("permute", 16, "bfloat16", h=2048, **FEW),
    case("combine", 16, "bfloat16", h=2048, weighted=True, **FEW),
    case("weigh", 16, "bfloat16", h=2048, **FEW),
)


def scored(logits: torch.Tensor, gate: choice.Gate) -> torch.Tensor:
    """Scores of the logits; 0 in a row of -inf."""
    if gate.score == "sigmoid":
        return logits.sigmoid()
    return logits.softmax(1).masked_fill((logits == -torch.inf).all(1)[:, None], 0)


def chosen(scores, logits, bias, gate: choice.Gate) -> torch.Tensor:
    """Experts by a stable sort: of equals the first."""
    rated = scores if gate.score == "sigmoid" else logits
    rated = rated if bias is None else rated + bias
    t, e = rated.shape
    allowed = torch.arange(e, device=rated.device)
    allowed = (allowed >= gate.first) & (allowed < gate.past)
    # A sort among those allowed, since a logit of an expert allowed may be -inf.
    outside = (~allowed).expand(t, e).clone()
    if gate.top_groups < gate.groups:
        each = rated.view(t, gate.groups, e // gate.groups)
        both = each.topk(min(2, each.shape[2]), 2).values.sum(2)
        order = both.sort(dim=1, descending=True, stable=True).indices
        closed = torch.zeros_like(both, dtype=torch.bool)
        closed = closed.scatter(1, order[:, gate.top_groups :], True)
        outside |= closed.repeat_interleave(each.shape[2], 1)
    by_value = rated.sort(dim=1, descending=True, stable=True).indices
    by_place = outside.gather(1, by_value).int().sort(dim=1, stable=True).indices
    return by_value.gather(1, by_place)[:, : gate.k].int()


def weights_of(scores, experts, gate: choice.Gate) -> torch.Tensor:
    weights = scores.gather(1, experts.long())
    if gate.normalise:
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-20)
    return weights * gate.scale


def arranged(experts, e: int, capacity: int | None, align: int) -> tuple:
    """By a stable sort of all copies."""
    flat = experts.flatten().long()
    key = torch.where((flat >= 0) & (flat < e), flat, e)
    counts = torch.bincount(key, minlength=e + 1)
    order = key.argsort(stable=True)
    at = torch.arange(flat.numel(), device=flat.device)
    rank = torch.empty_like(at)
    rank[order] = at - (counts.cumsum(0) - counts)[key[order]]
    limit = flat.numel() if capacity is None else capacity
    filled = (counts.clamp(max=limit) + align - 1) // align * align
    filled[e] = 0
    ends = filled.cumsum(0)
    kept = (key < e) & (rank < limit)
    slots = torch.where(kept, (ends - filled)[key] + rank, -1)
    rows = ours.room(flat.numel(), e, capacity, align)
    sources = torch.full((rows,), -1, device=flat.device)
    sources[slots[kept]] = at[kept]
    found = slots.view(experts.shape), sources, counts[:e], ends[:e]
    return tuple(each.int() for each in found)


def drawn_choices(case: dict, device: str, generator: torch.Generator) -> torch.Tensor:
    """Skewed: expert 0 has most, the last but one none, and some choices are none."""
    e = case["experts"]
    shape = case["t"], case["top"]
    share = torch.rand(shape, generator=generator, device=device)
    experts = (share**2 * e).int().clamp(max=e - 1)
    experts = torch.where(experts == e - 2, e - 1, experts)
    none = torch.rand(shape, generator=generator, device=device) < 0.02
    return torch.where(none, -1, experts).int()


def inputs(case: dict, device: str, generator: torch.Generator) -> tuple:
    """The pass and what its function takes."""
    which, t = case["pass"], case["t"]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    if which in ("route", "route back"):
        e, gate = case["experts"], GATES[case["gate"]]
        # Few values, so that many are equal; no sums of two sigmoids are by chance.
        logits = (normal(t, e) * 4).round() / 4 + 0.07
        logits = logits * case.get("scale", 1)
        if case.get("hidden"):  # experts that a row must not take, and a row of them
            hide = torch.rand(t, e, generator=generator, device=device) < 0.2
            logits = logits.masked_fill(hide, -torch.inf)
            logits[t // 2 : t // 2 + 1] = -torch.inf
        logits = logits.to(getattr(torch, case["dtype"]))
        bias = 0.1 * normal(e) if case.get("biased") else None
        if which == "route":
            return which, case["gate"], logits, bias
        exact = logits.double()
        experts = chosen(scored(exact, gate), exact, bias, gate)
        return which, case["gate"], logits, experts, normal(t, gate.k), normal(e)
    experts = drawn_choices(case, device, generator)
    told = case["experts"], case["capacity"], case["align"]
    if which == "sort":
        return which, experts, *told
    slots, sources, _, _ = arranged(experts, *told)
    dtype = getattr(torch, case["dtype"])
    h, top = case["h"], case["top"]
    weights = normal(t, top) if case.get("weighted") else None
    if which == "permute":
        return which, normal(t, h).to(dtype), sources, top, weights
    y = normal(sources.shape[0], h).to(dtype)
    if which == "combine":
        return which, y, slots, weights
    return which, normal(t, h).to(dtype), y, slots


def library(which: str, *given):
    """The same by PyTorch's own kernels."""
    if which == "route":
        gate, logits, bias = GATES[given[0]], *given[1:]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        scores = scored(logits, gate)
        experts = chosen(scores, logits, bias, gate)
        mean = scores.sum(0) / max(len(scores), 1)
        return experts, weights_of(scores, experts, gate), mean
    if which == "route back":
        gate, logits, experts, dweights, dmean = GATES[given[0]], *given[1:]
        leaf = logits.detach()
        leaf = (leaf if leaf.dtype == torch.float64 else leaf.float()).requires_grad_()
        with torch.enable_grad():
            scores = scored(leaf, gate)
            weights = weights_of(scores, experts, gate)
            total = (weights * dweights).sum()
            total = total + (scores.sum(0) / max(len(leaf), 1) * dmean).sum()
            (found,) = torch.autograd.grad(total, leaf)
        return found.to(logits.dtype)
    if which == "sort":
        return arranged(*given)
    if which == "permute":
        x, sources, top, weights = given
        live = (sources >= 0)[:, None]
        copies = sources.long().clamp(min=0)
        if not len(x):
            return x.new_zeros(sources.shape[0], x.shape[1])
        y = x[copies // top]
        if weights is not None:
            y = (y * weights.flatten()[copies][:, None]).to(x.dtype)
        return torch.where(live, y, torch.zeros((), dtype=x.dtype, device=x.device))
    y, slots = given[-3:-1] if which == "combine" else given[-2:]
    live = (slots >= 0)[:, :, None]
    at = slots.long().clamp(min=0)
    rows = y[at] if len(y) else y.new_zeros(*slots.shape, y.shape[1])
    rows = rows if rows.dtype == torch.float64 else rows.float()
    rows = torch.where(live, rows, torch.zeros((), dtype=rows.dtype, device=y.device))
    if which == "combine":
        weights = given[-1]
        rows = rows if weights is None else rows * weights[:, :, None]
        return rows.sum(1).to(y.dtype)
    return (rows * given[0][:, None]).sum(2)


def reference(which: str, *given):
    """The truth, in float64."""
    exact = (
        each.double() if torch.is_tensor(each) and each.is_floating_point() else each
        for each in given
    )
    return library(which, *exact)


def by(how: str):
    """One way of ours; only the sort has two."""

    def run(which: str, *given):
        if which == "route":
            return choice.choose(*given[1:], GATES[given[0]])
        if which == "route back":
            return choice.choose_backward(*given[1:], GATES[given[0]])
        if which == "sort":
            return tuple(ours.sorted_by(*given, how))
        if which == "permute":
            return move.gathered(*given)
        if which == "combine":
            return move.summed(*given)
        return move.weighed(*given)

    return run


VARIANTS = {how: by(how) for how in ("naive", "blocks")}
PEERS = {"torch": library}
