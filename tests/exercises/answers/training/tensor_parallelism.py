"""Bytes and widths of a split layer."""

from snippets.model_flops.model_flops import MODELS

PEAK, NVLINK, NETWORK = 989e12, 450e9, 50e9  # data sheets: flop/s, bytes/s one way
LLAMA = MODELS["Llama 3.1 70B"]
RANKS = 8


def exchange_against_arithmetic() -> tuple[str, str]:
    intensity = 9 * 12288 / ((RANKS - 1) * 2)
    return f"{100 * PEAK / NVLINK / intensity:.0f} %", f"{PEAK / NETWORK / intensity:.1f} times"


def bytes_of_a_step() -> tuple[str, str]:
    layer = 8 * (RANKS - 1) / RANKS * 8192 * LLAMA.hidden * 2
    return f"{layer / 1e9:.2f} GB", f"{layer * LLAMA.layers / NVLINK:.2f} s"


def activations_in_two_parts() -> tuple[str, str]:
    each = 8192 * LLAMA.hidden * LLAMA.layers
    return f"{each * (10 + 24 / RANKS) / 1e9:.0f} GB", f"{each * 34 / RANKS / 1e9:.0f} GB"


def which_products_hide() -> tuple[str, str]:
    need = 2 * PEAK / (2 * NVLINK)
    heads = LLAMA.heads + 2 * LLAMA.kv_heads
    widths = {
        "Q, K and V": heads * LLAMA.head_dim / RANKS,
        "the output": LLAMA.heads * LLAMA.head_dim / RANKS,
        "gate and up": 2 * LLAMA.feed_forward / RANKS,
        "down": LLAMA.feed_forward / RANKS,
    }
    shown = [name for name, width in widths.items() if width < need]
    return " and ".join(shown), f"{100 * (1 - widths[shown[0]] / need):.0f} %"
