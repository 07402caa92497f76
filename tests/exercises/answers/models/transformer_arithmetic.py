"""Parameters, FLOPs and bytes of a transformer."""

from snippets.model_flops.model_flops import (
    MODELS,
    Decoder,
    activation_bytes,
    cache_bytes_per_token,
    flops_per_token,
    multiplied,
    parameters,
    state_bytes,
)

SMALL, LARGE = MODELS["Llama 3.1 8B"], MODELS["Llama 3.1 70B"]


def parameters_by_hand() -> tuple[str, str]:
    model = Decoder(48, 6144, 48, 8, 128, 16384, 100_352)
    rule = 12 * model.layers * model.hidden**2
    count = parameters(model)
    return f"{count / 1e9:.1f} billion", f"{100 * (rule / count - 1):.0f} % too many"


def when_attention_matters() -> str:
    sequence = 1
    while flops_per_token(SMALL, sequence, causal=True) < 4 * multiplied(SMALL):
        sequence *= 2
    low = sequence // 2  # halve the interval that holds the first with twice the work
    while sequence - low > 1:
        middle = (low + sequence) // 2
        enough = flops_per_token(SMALL, middle, causal=True) >= 4 * multiplied(SMALL)
        low, sequence = (low, middle) if enough else (middle, sequence)
    return f"{sequence:,} tokens"


def state_over_ranks() -> tuple[str, ...]:
    count = parameters(LARGE)
    return tuple(f"{state_bytes(count, stage, 256) / 1e9:.1f} GB" for stage in (1, 2, 3))


def activations_of_a_sequence() -> tuple[str, ...]:
    ways = ("none", "selective", "full")
    kept = [activation_bytes(SMALL, 8192, recompute=way) for way in ways]
    return tuple(f"{each / 1e9:.1f} GB" for each in kept)


def where_the_cache_takes_over() -> str:
    weights = 2 * parameters(SMALL)
    return f"{weights / (8192 * cache_bytes_per_token(SMALL)):.0f} sequences"
