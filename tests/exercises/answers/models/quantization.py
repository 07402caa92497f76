"""Bits, batches and outliers."""

from snippets.model_flops.model_flops import MODELS, cache_bytes_per_token, parameters

RIDGE = 989e12 / 3.35e12  # an H100 SXM's data sheet: flops a byte, bf16
SMALL, LARGE = MODELS["Llama 3.1 8B"], MODELS["Llama 3.1 70B"]


def bits_of_a_file() -> tuple[str, str]:
    bits = 4 + (16 + 16) / 64
    tables = 2 * LARGE.vocabulary * LARGE.hidden
    size = (parameters(LARGE) - tables) * bits / 8 + tables * 2
    return f"{bits:.1f} bits", f"{size / 1e9:.1f} GB"


def gain_by_batch() -> tuple[str, str, str]:
    bits = 4 + 8 / 32
    turn = RIDGE * bits / 16
    return f"{16 / bits:.2f} times", f"{turn:.0f} tokens", f"{RIDGE / 128:.1f} times"


def the_cache_is_left() -> tuple[str, str]:
    cache = 16 * 8192 * cache_bytes_per_token(SMALL)
    wide, narrow = (parameters(SMALL) * bits / 8 for bits in (16, 4.125))
    share, gain = narrow / (narrow + cache), (wide + cache) / (narrow + cache)
    return f"{100 * share:.0f} %", f"{gain:.2f} times"


def levels_that_are_left() -> tuple[str, str]:
    step = 60 / 127
    levels = {round(place / 1000 / step) for place in range(-1000, 1001)}
    apart = {round(place / 1000 / (1 / 127)) for place in range(-1000, 1001)}
    return f"{len(levels)} levels", f"{len(apart)} levels"


def weights_kept_whole() -> tuple[str, str]:
    kept, extra = 0.01, 0.1
    return f"{3 + kept * (16 + 16 - 3):.2f} bits", f"{100 * extra / (16 + 16 - 3):.2f} %"
