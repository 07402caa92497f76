"""Choosing: K of E experts for each token, and their weights; ties are decided.

Shapes  logits (T, E), bias (E,) or None -> experts (T, K) int32, weights (T, K) and
        mean (E,) of the scores, float32
"""

from __future__ import annotations

from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

from snippets.moe_routing.checks import MAX_E, check_beside, check_rows

LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
NEVER = tl.constexpr(-(2**63))  # below every key
LAST = tl.constexpr(2**31 - 1)
TINY = tl.constexpr(1e-20)  # weights whose sum is smaller are not blown up


# --8<-- [start:keys]
@triton.jit
def key_of(value, col):
    """One integer that orders by value, then by the lower column: ties are decided."""
    bits = (value + 0.0).to(tl.int32, bitcast=True)  # -0.0 + 0.0 is 0.0
    order = tl.where(bits < 0, bits ^ LAST, bits)  # a negative number's bits run down
    order = tl.where(value != value, LAST, order)
    return (order.to(tl.int64) << 32) | (LAST - col).to(tl.int64)


@triton.jit
def take(keys):
    """Of each row the column with the largest key, and the keys without it."""
    best = tl.max(keys, 1)
    col = LAST - (best & LAST).to(tl.int32)
    return col, tl.where(keys == best[:, None], NEVER, keys)


@triton.jit
def columns(E: tl.constexpr, GROUPS: tl.constexpr, G: tl.constexpr, P: tl.constexpr):
    """Experts as G groups of P, both powers of two, and which of them there are."""
    each: tl.constexpr = E // GROUPS
    at = tl.arange(0, G * P)
    return at // P * each + at % P, (at // P < GROUPS) & (at % P < each)


@triton.jit
def scores_of(logits, here, SIGMOID: tl.constexpr):
    if SIGMOID:
        scores = 1 / (1 + tl.exp2(-LOG2E * logits))
    else:
        top = tl.max(tl.where(here, logits, float("-inf")), 1)
        top = tl.where(top == float("-inf"), 0.0, top)  # -inf - -inf would be NaN
        scores = tl.where(here, tl.exp2(LOG2E * (logits - top[:, None])), 0.0)
        total = tl.sum(scores, 1)
        scores /= tl.where(total == 0, 1.0, total)[:, None]
    return tl.where(here, scores, 0.0)
# --8<-- [end:keys]


# --8<-- [start:route]
@triton.jit
def moe_route(experts, weights, sums, logits, bias, logits_stride, bias_stride, t,
              first, past, scale, E: tl.constexpr, K: tl.constexpr, K2: tl.constexpr,
              GROUPS: tl.constexpr, TOP: tl.constexpr, G: tl.constexpr,
              P: tl.constexpr, ROWS: tl.constexpr, SIGMOID: tl.constexpr,
              NORMALISE: tl.constexpr):
    col, exists = columns(E, GROUPS, G, P)
    place = tl.arange(0, K2)[None, :]
    seen = tl.zeros([G * P], tl.float32)
    for block in tl.range(tl.program_id(0), tl.cdiv(t, ROWS), tl.num_programs(0)):
        row = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        here = (row < t)[:, None] & exists[None, :]
        at = row[:, None] * logits_stride[0] + col[None, :] * logits_stride[1]
        given = tl.load(logits + at, mask=here, other=0.0).to(tl.float32)
        scores = scores_of(given, here, SIGMOID)
        seen += tl.sum(scores, 0)
        # A softmax keeps the order of the logits, and does not round two to a tie.
        rated = scores if SIGMOID else given
        if bias is not None:  # moves the choice, not the weight
            rated += tl.load(bias + col * bias_stride, mask=exists, other=0.0)[None, :]
        keys = tl.where((exists & (col >= first) & (col < past))[None, :],
                        key_of(rated, tl.broadcast_to(col[None, :], rated.shape)),
                        NEVER)
        if TOP < GROUPS:  # first the groups, each by the sum of its best two
            cube = tl.where(exists[None, :], rated, float("-inf")).reshape(ROWS, G, P)
            inner = tl.broadcast_to(tl.arange(0, P)[None, None, :], cube.shape)
            ranked = key_of(cube, inner)
            one = ranked == tl.max(ranked, 2)[:, :, None]
            rest = tl.where(one, NEVER, ranked)
            two = rest == tl.max(rest, 2)[:, :, None]
            both = tl.sum(tl.where(one | (two & (rest != NEVER)), cube, 0.0), 2)
            group = tl.broadcast_to(tl.arange(0, G)[None, :], both.shape)
            open_keys = tl.where(group < GROUPS, key_of(both, group), NEVER)
            kept = tl.zeros([ROWS, G], tl.int32)
            for _ in tl.static_range(TOP):
                best, open_keys = take(open_keys)
                kept = tl.where(group == best[:, None], 1, kept)
            kept = tl.broadcast_to(kept[:, :, None], cube.shape).reshape(ROWS, G * P)
            keys = tl.where(kept == 1, keys, NEVER)
        chosen = tl.zeros([ROWS, K2], tl.int32)
        weight = tl.zeros([ROWS, K2], tl.float32)
        for j in tl.static_range(K):
            best, keys = take(keys)
            own = tl.sum(tl.where(col[None, :] == best[:, None], scores, 0.0), 1)
            chosen = tl.where(place == j, best[:, None], chosen)
            weight = tl.where(place == j, own[:, None], weight)
        if NORMALISE:
            weight /= tl.maximum(tl.sum(weight, 1), TINY)[:, None]
        at = row[:, None] * K + place
        live = (row < t)[:, None] & (place < K)
        tl.store(experts + at, chosen, mask=live)
        tl.store(weights + at, weight * scale, mask=live)
    tl.store(sums + tl.program_id(0) * E + col, seen, mask=exists)
# --8<-- [end:route]


# --8<-- [start:routeback]
@triton.jit
def moe_route_backward(dlogits, logits, experts, dweights, dmean, logits_stride, t,
                       scale, E: tl.constexpr, E2: tl.constexpr, K: tl.constexpr,
                       ROWS: tl.constexpr, SIGMOID: tl.constexpr,
                       NORMALISE: tl.constexpr):
    """Scores are computed again; each gets what its weight and the mean ask of it."""
    col = tl.arange(0, E2)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = (row < t)[:, None] & (col < E)[None, :]
    at = row[:, None] * logits_stride[0] + col[None, :] * logits_stride[1]
    given = tl.load(logits + at, mask=here, other=0.0).to(tl.float32)
    scores = scores_of(given, here, SIGMOID)
    slope = tl.zeros([ROWS, E2], tl.float32)
    chosen = tl.zeros([ROWS, E2], tl.int32)
    for j in tl.static_range(K):
        best = tl.load(experts + row * K + j, mask=row < t, other=-1)
        dw = tl.load(dweights + row * K + j, mask=row < t, other=0.0) * scale
        own = col[None, :] == best[:, None]
        slope = tl.where(own, dw[:, None], slope)
        chosen = tl.where(own, 1, chosen)
    if NORMALISE:  # w = s / total: all that were chosen share in the total
        total = tl.sum(tl.where(chosen == 1, scores, 0.0), 1)
        floor = tl.maximum(total, TINY)
        shared = tl.where(total > TINY, tl.sum(slope * scores, 1) / floor, 0.0)
        slope = tl.where(chosen == 1, slope - shared[:, None], 0.0) / floor[:, None]
    slope += (tl.load(dmean + col, mask=col < E, other=0.0) / t)[None, :]
    if SIGMOID:
        slope *= scores * (1 - scores)
    else:
        slope = scores * (slope - tl.sum(slope * scores, 1)[:, None])
    tl.store(dlogits + row[:, None] * E + col[None, :],
             slope.to(dlogits.dtype.element_ty), mask=here)
# --8<-- [end:routeback]


# --8<-- [start:launch]
class Gate(NamedTuple):
    """How logits become a choice and its weights."""

    k: int = 1  # experts for each token
    score: str = "softmax"  # or "sigmoid"
    normalise: bool = False  # weights of a token add up to 1, before the scale
    scale: float = 1.0
    groups: int = 1  # into which the experts are cut
    top_groups: int = 1  # of which a token's experts come
    first: int = 0  # the only experts that may be chosen: from this one
    past: int = MAX_E  # up to before this one


def switch() -> Gate:
    """Of Switch Transformers: the best expert, weighed by its probability."""
    return Gate()


def deepseek_v3(
    k: int = 8, groups: int = 8, top_groups: int = 4, scale: float = 2.5
) -> Gate:
    """Of DeepSeek-V3; its bias is for `route` and decides the choice alone."""
    return Gate(k, "sigmoid", True, scale, groups, top_groups)


def programs_at_most(device: torch.device) -> int:
    """Programs that a GPU runs at a time, each of which adds up its own scores."""
    if device.type != "cuda":
        return 3
    return 8 * torch.cuda.get_device_properties(device).multi_processor_count


def choose(
    logits: torch.Tensor, bias: torch.Tensor | None, gate: Gate
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """experts, weights and the mean of the scores."""
    check_gate(logits, bias, gate)
    (t, e), k = logits.shape, gate.k
    experts = torch.empty((t, k), dtype=torch.int32, device=logits.device)
    weights = torch.empty((t, k), dtype=torch.float32, device=logits.device)
    if t == 0:
        return experts, weights, torch.zeros(e, device=logits.device)
    g = triton.next_power_of_2(gate.groups)
    p = triton.next_power_of_2(e // gate.groups)
    rows = min(max(1024 // (g * p), 1), triton.next_power_of_2(t))
    programs = min(triton.cdiv(t, rows), programs_at_most(logits.device))
    sums = torch.empty((programs, e), dtype=torch.float32, device=logits.device)
    with torch.cuda.device_of(logits):
        moe_route[(programs,)](
            experts, weights, sums, logits, bias, logits.stride(),
            None if bias is None else bias.stride(0), t, gate.first,
            min(gate.past, e), float(gate.scale), E=e, K=k,
            K2=triton.next_power_of_2(k), GROUPS=gate.groups, TOP=gate.top_groups,
            G=g, P=p, ROWS=rows, SIGMOID=gate.score == "sigmoid",
            NORMALISE=gate.normalise, num_warps=4,
        )  # fmt: skip
    return experts, weights, sums.sum(0) / t


def choose_backward(
    logits: torch.Tensor,
    experts: torch.Tensor,
    dweights: torch.Tensor,
    dmean: torch.Tensor,
    gate: Gate,
) -> torch.Tensor:
    """dlogits, contiguous."""
    check_rows("logits", logits)
    t, e = logits.shape
    due = {"experts": (t, gate.k), "dweights": (t, gate.k), "dmean": (e,)}
    check_beside(logits, due, experts, dweights, dmean)
    dlogits = torch.empty((t, e), dtype=logits.dtype, device=logits.device)
    if t:
        e2 = triton.next_power_of_2(e)
        rows = min(max(1024 // e2, 1), triton.next_power_of_2(t))
        with torch.cuda.device_of(logits):
            moe_route_backward[(triton.cdiv(t, rows),)](
                dlogits, logits, experts.contiguous(), dweights.float().contiguous(),
                dmean.float().contiguous(), logits.stride(), t, float(gate.scale),
                E=e, E2=e2, K=gate.k, ROWS=rows, SIGMOID=gate.score == "sigmoid",
                NORMALISE=gate.normalise, num_warps=4,
            )  # fmt: skip
    return dlogits

# --8<-- [end:launch]


def check_gate(logits: torch.Tensor, bias: torch.Tensor | None, gate: Gate) -> None:
    """See that a gate can choose among the experts.

    Raises:
        TypeError: a dtype or device is another than it takes.
        ValueError: shapes do not fit, or too few experts may be chosen.
    """
    check_rows("logits", logits)
    e = logits.shape[1]
    if not 0 < e <= MAX_E:
        raise ValueError(f"moe_routing: {e} experts; give it 1 to {MAX_E}")
    if gate.score not in ("softmax", "sigmoid"):
        raise ValueError(
            f"moe_routing: score {gate.score!r}; give 'softmax' or 'sigmoid'"
        )
    if gate.groups < 1 or e % gate.groups or not 0 < gate.top_groups <= gate.groups:
        raise ValueError(
            f"moe_routing: {gate.top_groups} of {gate.groups} groups of {e} experts; "
            "cut them into equal groups and take some"
        )
    local = gate.first > 0 or gate.past < e
    if local and gate.top_groups < gate.groups:
        raise ValueError(
            f"moe_routing: experts {gate.first} to {gate.past} of {gate.groups} groups;"
            " take all groups where tokens stay local"
        )
    some = min(gate.past, e) - max(gate.first, 0)
    some = min(some, gate.top_groups * (e // gate.groups))
    if not 0 < gate.k <= some:
        raise ValueError(
            f"moe_routing: k = {gate.k} of {some} experts that may be chosen; "
            f"give 1 to {some}"
        )
    if bias is not None and bias.dtype != torch.float32:
        raise TypeError(f"moe_routing: bias is {bias.dtype}; give float32")
    check_beside(logits, {"bias": (e,)}, bias)
