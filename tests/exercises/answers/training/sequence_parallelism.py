"""Attention on a ring."""

from snippets.model_flops.model_flops import MODELS, cache_bytes_per_token
from snippets.ring_orders import ring_orders as orders

LLAMA = MODELS["Llama 3.1 8B"]


def tokens_a_rank_needs() -> tuple[str, str]:
    rate, wire, element = 600e12, 50e9, 2
    full = element * rate / (2 * wire)
    sharing = LLAMA.heads // LLAMA.kv_heads
    return f"{full:,.0f} tokens", f"{2 * full / sharing:,.0f} tokens"


def what_the_order_costs() -> tuple[str, str]:
    ranks, tokens = 8, 256
    plain, zigzag = (orders.time(order, ranks, tokens) for order in ("plain", "zigzag"))
    return f"{plain / zigzag:.2f} times", f"{100 * orders.busy('plain', ranks, tokens):.0f} %"


def bytes_of_a_million_tokens() -> tuple[str, str]:
    ranks, tokens = 16, 2**20
    forward = (ranks - 1) * tokens // ranks * cache_bytes_per_token(LLAMA)
    return f"{forward / 1e9:.0f} GB", f"{forward / 50e9:.1f} s"


def striped_is_nearly_even() -> tuple[str, str]:
    ranks = 4
    ratio = [
        orders.time("striped", ranks, n) / orders.time("zigzag", ranks, n) - 1 for n in (16, 256)
    ]
    return f"{100 * ratio[0]:.0f} %", f"{100 * ratio[1]:.1f} %"
