"""What an engine can answer, and how many at once."""

from math import ceil

from snippets.model_flops.model_flops import MODELS, cache_bytes_per_token, parameters

PEAK, BANDWIDTH = 989e12, 3.35e12  # an H100 SXM's data sheet: bf16 flop/s, bytes/s
SMALL, LARGE = MODELS["Llama 3.1 8B"], MODELS["Llama 3.1 70B"]


def one_fast_stream() -> tuple[str, str]:
    read = 2 * parameters(LARGE) + 8192 * cache_bytes_per_token(LARGE)
    seconds = read / (8 * BANDWIDTH)
    return f"{seconds * 1e3:.2f} ms", f"{1 / seconds:.0f} tokens a second"


def conversations_that_fit() -> tuple[str, str]:
    room = 0.9 * 80e9 - 2 * parameters(SMALL)
    counts = [room // (4096 * cache_bytes_per_token(SMALL, element)) for element in (2, 1)]
    return f"{counts[0]:.0f}", f"{counts[1]:.0f}"


def the_ridge_out_of_reach() -> tuple[str, str]:
    batch = round(PEAK / BANDWIDTH)
    cache = batch * 2048 * cache_bytes_per_token(SMALL)
    return f"{batch} conversations", f"{cache / 1e9:.0f} GB"


def waste_of_a_block() -> tuple[str, str]:
    lengths = range(1, 1001)
    used, block = sum(lengths), 16
    paged = sum(ceil(length / block) * block for length in lengths)
    whole = 2048 * len(lengths)
    return f"{100 * (1 - used / paged):.1f} %", f"{100 * (1 - used / whole):.0f} %"


def a_chunk_for_free() -> tuple[str, str]:
    budget = int(PEAK / BANDWIDTH) - 64
    return f"{budget} tokens", f"{ceil(4096 / budget)} steps"
