"""The transformer as a list of kernels."""

from snippets.model_flops.model_flops import (
    MODELS,
    attention_weights,
    cache_bytes_per_token,
    feed_forward_weights,
)

PEAK, BANDWIDTH = 989e12, 3.35e12  # an H100 SXM's data sheet: bf16 flop/s, bytes/s
LLAMA = MODELS["Llama 3.1 70B"]


def _products() -> float:
    return attention_weights(LLAMA) + feed_forward_weights(LLAMA, True) / LLAMA.layers


def turning_point() -> tuple[str, str]:
    rows = {byte: PEAK / BANDWIDTH * byte / 2 for byte in (2, 1)}
    return f"{rows[2]:.0f} rows", f"{rows[1]:.0f} rows"


def weights_of_a_layer() -> tuple[str, str]:
    weights = _products()
    return f"{weights / 1e6:.0f} million weights", f"{2 * weights / 1e9:.2f} Gflop a token"


def unfused_steps() -> tuple[str, str]:
    h, f = LLAMA.hidden, LLAMA.feed_forward
    turned = (LLAMA.heads + LLAMA.kv_heads) * LLAMA.head_dim
    elements = 2 * (2 * h) + 2 * (3 * h) + 2 * turned + 3 * f
    share = (2 * elements / BANDWIDTH) / (2 * _products() / PEAK)
    return f"{2 * elements / 1e3:.0f} kB a token", f"{100 * share:.1f} %"


def cache_of_a_context() -> tuple[str, str]:
    grouped = 2**17 * cache_bytes_per_token(LLAMA)
    full = grouped * LLAMA.heads // LLAMA.kv_heads
    return f"{grouped / 2**30:.0f} GiB", f"{full / 2**30:.0f} GiB"
