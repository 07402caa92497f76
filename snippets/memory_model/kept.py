"""What a layer keeps for its backward pass, in bytes a token and rank.

Elements have 2 bytes, statistics 4, dropout masks 1. `t` ranks split what heads and
feed-forward make; with sequence parallelism the rest too.
"""

from __future__ import annotations

from snippets.memory_model.plan import Plan
from snippets.model_configs.layers import Attention, FeedForward, Layer


# --8<-- [start:kept]
def kept(layer: Layer, hidden: int, plan: Plan) -> float:
    """Bytes of a micro-batch, for the way of recomputing that `plan` has."""
    outside = plan.tensor if plan.sequence_parallel else 1
    entry = 2 * hidden / outside  # the layer's input
    if plan.recompute == "full":
        return plan.tokens * entry
    if plan.recompute == "products":
        return plan.tokens * (entry + products(layer, hidden, plan))
    return plan.tokens * whole(layer, hidden, plan)


def whole(layer: Layer, hidden: int, plan: Plan) -> float:
    """Bytes a token where the layer is not recomputed, scores perhaps."""
    outside = plan.tensor if plan.sequence_parallel else 1
    # Two norms: what each takes and gives. Two masks of dropout.
    around = 2 * (2 + 2) * hidden + (2 * hidden if plan.dropout else 0)
    inside = attention(layer.attention, plan) / plan.tensor
    return around / outside + inside + feed_forward(layer.feed_forward, hidden, plan)


def attention(one: Attention, plan: Plan) -> float:
    """Bytes a token between the norm and the residual, of all heads."""
    query, value = one.heads * one.key, one.heads * one.value
    groups = held_groups(one, plan)
    elements = query + groups * (one.key + one.value) + value  # q, k, v, output
    if one.latent:  # ranks: what each norm takes and gives, of a rank's rows or of all
        low = 2 * one.query_rank + 2 * one.latent + one.rotary
        elements += low if plan.sequence_parallel else low * plan.tensor
    if plan.context > 1 and plan.stack == "megatron":
        elements += value  # the output as the ranks exchange it, and as it comes back
    if plan.flash:
        return 2 * elements + 4 * one.heads  # a sum of exponentials a row
    if plan.recompute == "selective":
        return 2 * elements
    keys = min(one.window or plan.sequence, plan.sequence)
    each = 5 if plan.dropout else 2  # softmax; its mask and what dropout gives
    return 2 * elements + each * one.heads * keys


def held_groups(one: Attention, plan: Plan) -> int:
    """Heads of keys and values on all tensor ranks, each of which has one at least."""
    return one.heads if one.latent else max(one.kv_heads, plan.tensor)


def feed_forward(one: FeedForward, hidden: int, plan: Plan) -> float:
    """Bytes a token and rank between the second norm and the residual."""
    # Of the width: what the activation takes and gives. Fused, a gate's product is not
    # kept apart from what the last matrix takes.
    widths = (3 if plan.stack == "megatron" else 4) if one.gated else 2
    if not one.routed:
        return 2 * widths * one.size / plan.tensor
    # Router: scores in 32 bits, and where each token goes. A token lies there as often
    # as it has experts, on average of all ranks on each.
    router = 8 * one.routed
    shared = 2 * widths * one.shared / plan.tensor
    routed = one.chosen * (2 * hidden + 2 * widths * one.size / plan.tensor + 4)
    return router + shared + routed


# --8<-- [end:kept]


# --8<-- [start:rest]
def products(layer: Layer, hidden: int, plan: Plan) -> float:
    """Bytes a token where every second product is kept, and attention's output.

    In their order, of q, k, v, output, gate, up and down, those are q, v, gate and
    down; a compiler drops the last, since nothing needs it again.
    """
    one, after = layer.attention, layer.feed_forward
    outside = plan.tensor if plan.sequence_parallel else 1
    inside = 2 * one.heads * one.key + 2 * held_groups(one, plan) * one.value
    inside += 2 * one.heads * one.value + 4 * one.heads
    inside += 2 * after.size * (after.chosen or 1)
    return inside / plan.tensor + (0 if plan.compiled else 2 * hidden / outside)


def passing(layer: Layer, hidden: int, plan: Plan) -> float:
    """Bytes beside what is kept while backward goes through one layer."""
    one, after = layer.attention, layer.feed_forward
    groups = held_groups(one, plan)
    both = one.heads * one.key + groups * (one.key + one.value)
    # Gradients of the widths, and the input gathered with its gradient.
    width = after.size * (after.chosen or 1) + after.shared
    rows = 2 * (3 if after.gated else 2) * width / plan.tensor
    rows += 2 * 2 * hidden * (after.chosen or 1)
    if plan.context > 1 and plan.stack == "megatron":  # sent, received, in order, whole
        rows = max(rows, 4 * 2 * both / plan.tensor)
    if not plan.flash:  # gradients of softmax's output and input
        keys = min(one.window or plan.sequence, plan.sequence)
        rows = max(rows, 2 * 2 * one.heads * keys / plan.tensor)
    if plan.recompute in ("full", "products"):
        rows += whole(layer, hidden, plan)
    return plan.tokens * rows


# --8<-- [end:rest]
