"""The answers to the exercises of docs/models/, page by page."""

from math import ceil, prod, sqrt

from snippets.model_flops.model_flops import (
    MODELS,
    Decoder,
    activation_bytes,
    attention_weights,
    cache_bytes_per_token,
    feed_forward_weights,
    flops_per_token,
    multiplied,
    parameters,
    six_n,
    state_bytes,
    training_flops_per_token,
)
from snippets.training_time.layers import Plan
from snippets.training_time.training_time import bubble

# What an engine can answer, and how many at once.

INFERENCE_ENGINES_PEAK, INFERENCE_ENGINES_BANDWIDTH = (
    989e12,
    3.35e12,
)  # an H100 SXM's data sheet: bf16 flop/s, bytes/s
INFERENCE_ENGINES_SMALL, INFERENCE_ENGINES_LARGE = MODELS["Llama 3.1 8B"], MODELS["Llama 3.1 70B"]


def one_fast_stream() -> tuple[str, str]:
    read = 2 * parameters(INFERENCE_ENGINES_LARGE) + 8192 * cache_bytes_per_token(
        INFERENCE_ENGINES_LARGE
    )
    seconds = read / (8 * INFERENCE_ENGINES_BANDWIDTH)
    return f"{seconds * 1e3:.2f} ms", f"{1 / seconds:.0f} tokens a second"


def conversations_that_fit() -> tuple[str, str]:
    room = 0.9 * 80e9 - 2 * parameters(INFERENCE_ENGINES_SMALL)
    counts = [
        room // (4096 * cache_bytes_per_token(INFERENCE_ENGINES_SMALL, element))
        for element in (2, 1)
    ]
    return f"{counts[0]:.0f}", f"{counts[1]:.0f}"


def the_ridge_out_of_reach() -> tuple[str, str]:
    batch = round(INFERENCE_ENGINES_PEAK / INFERENCE_ENGINES_BANDWIDTH)
    cache = batch * 2048 * cache_bytes_per_token(INFERENCE_ENGINES_SMALL)
    return f"{batch} conversations", f"{cache / 1e9:.0f} GB"


def waste_of_a_block() -> tuple[str, str]:
    lengths = range(1, 1001)
    used, block = sum(lengths), 16
    paged = sum(ceil(length / block) * block for length in lengths)
    whole = 2048 * len(lengths)
    return f"{100 * (1 - used / paged):.1f} %", f"{100 * (1 - used / whole):.0f} %"


def a_chunk_for_free() -> tuple[str, str]:
    budget = int(INFERENCE_ENGINES_PEAK / INFERENCE_ENGINES_BANDWIDTH) - 64
    return f"{budget} tokens", f"{ceil(4096 / budget)} steps"


# Predicting a step.

PERFORMANCE_PROJECTION_LLAMA = MODELS["Llama 3.1 8B"]


def losses_multiply() -> tuple[str, str]:
    shares = [prod((0.70, 0.88, 0.92, m / (m + 7))) for m in (16, 64)]
    return f"{100 * shares[0]:.0f} %", f"{100 * shares[1]:.0f} %"


def a_faster_kernel() -> tuple[str, str]:
    share = 0.18
    return f"{1 / (1 - share + share / 2):.2f} times", f"{1 / (1 - share):.2f} times"


def a_layer_as_a_sum() -> tuple[str, str]:
    tokens, rate, bandwidth, gap = 4096, 0.7 * 989e12, 0.9 * 3.35e12, 3e-6
    h, f, d = (
        PERFORMANCE_PROJECTION_LLAMA.hidden,
        PERFORMANCE_PROJECTION_LLAMA.feed_forward,
        PERFORMANCE_PROJECTION_LLAMA.head_dim,
    )
    values = PERFORMANCE_PROJECTION_LLAMA.heads * d
    widths = (
        h + 2 * PERFORMANCE_PROJECTION_LLAMA.kv_heads * d,
        h,
        2 * f,
    )  # of Q, K, V; of the output; of gate and up
    products = [2 * tokens * h * width / rate for width in widths]
    products.append(2 * tokens * f * h / rate)
    assert (
        abs(
            sum(products) * rate / (2 * tokens)
            - attention_weights(PERFORMANCE_PROJECTION_LLAMA)
            - 3 * h * f
        )
        < 1
    )
    attention = 2 * values * tokens * (tokens + 1) / rate  # causal: half of 4 d a pair and head
    small = [
        2 * h,
        2 * h,
        3 * h,
        3 * h,
        2 * (values + PERFORMANCE_PROJECTION_LLAMA.kv_heads * d),
        3 * f,
    ]
    memory = [2 * tokens * elements / bandwidth for elements in small]
    kernels = [*products, attention, *memory]
    time = sum(kernels) + gap * len(kernels)
    return f"{time * 1e3:.2f} ms", f"{100 * sum(products) / time:.0f} %"


def what_stays_exposed() -> str:
    bytes_sent = 2 * 7 / 8 * 64 * 2**20
    exposed = max(0, 20e-6 + bytes_sent / 450e9 - 200e-6)
    return f"{exposed * 1e6:.0f} µs"


def twice_the_gpus() -> tuple[str, str]:
    def step_length(gpus: int) -> float:
        plan = Plan(gpus, 1536, 1, 2048, tensor=8, pipeline=12)
        forward, backward = 1.0, 2.0
        return plan.micro_batches * (forward + backward) + bubble(plan, [forward, backward], 1.0)

    first, second = step_length(384) / step_length(768), step_length(1536) / step_length(3072)
    return f"{first:.2f} times", f"{second:.2f} times"


# Bits, batches and outliers.

RIDGE = 989e12 / 3.35e12  # an H100 SXM's data sheet: flops a byte, bf16
QUANTIZATION_SMALL, QUANTIZATION_LARGE = MODELS["Llama 3.1 8B"], MODELS["Llama 3.1 70B"]


def bits_of_a_file() -> tuple[str, str]:
    bits = 4 + (16 + 16) / 64
    tables = 2 * QUANTIZATION_LARGE.vocabulary * QUANTIZATION_LARGE.hidden
    size = (parameters(QUANTIZATION_LARGE) - tables) * bits / 8 + tables * 2
    return f"{bits:.1f} bits", f"{size / 1e9:.1f} GB"


def gain_by_batch() -> tuple[str, str, str]:
    bits = 4 + 8 / 32
    turn = RIDGE * bits / 16
    return f"{16 / bits:.2f} times", f"{turn:.0f} tokens", f"{RIDGE / 128:.1f} times"


def the_cache_is_left() -> tuple[str, str]:
    cache = 16 * 8192 * cache_bytes_per_token(QUANTIZATION_SMALL)
    wide, narrow = (parameters(QUANTIZATION_SMALL) * bits / 8 for bits in (16, 4.125))
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


# Speculative decoding.

DRAFTING_PEAK, DRAFTING_BANDWIDTH = (
    989e12,
    3.35e12,
)  # an H100 SXM's data sheet, bf16


def _expected_tokens(kept: float, guesses: int) -> float:
    return sum(kept**i for i in range(guesses + 1))


def tokens_a_round() -> str:
    return f"{_expected_tokens(0.8, 4):.2f} tokens"


def how_far_to_guess() -> tuple[str, str]:
    kept, cost = 0.8, 0.1
    gains = {k: _expected_tokens(kept, k) / (1 + k * cost) for k in range(1, 30)}
    best = max(gains, key=gains.__getitem__)
    assert all(gains[k] > 0.96 * gains[best] for k in range(4, 9))  # "the top is flat"
    return f"{best} guesses", f"{gains[best]:.2f} times"


def overlap() -> tuple[str, str]:
    target, draft = (0.5, 0.3, 0.2), (0.7, 0.2, 0.1)
    kept = sum(map(min, target, draft))
    more = [max(0.0, p - q) for p, q in zip(target, draft, strict=True)]
    first, second, third = (f"{round(one / sum(more), 6):g}" for one in more)
    return f"{100 * kept:.0f} %", f"{first}, {second} and {third}"


def the_end_of_free() -> str:
    guesses, bytes_a_weight = 4, 2
    per_sequence = 2 * (guesses + 1) / bytes_a_weight
    return f"{ceil(DRAFTING_PEAK / DRAFTING_BANDWIDTH / per_sequence)} sequences"


def awake_experts() -> tuple[str, str]:
    experts, used, tokens = 256, 8, 4
    awake = experts * (1 - (1 - used / experts) ** tokens)
    return f"{awake:.1f} experts", f"{awake / used:.1f} times"


# What a training run costs.

TRAINING_COST_PEAK = 989e12  # an H100 SXM's data sheet: bf16 flop/s
HOUR = 3600


def hours_of_a_run() -> tuple[str, str]:
    hours = 6 * 13e9 * 2e12 / (0.4 * TRAINING_COST_PEAK) / HOUR
    days = hours / 0.9 / 256 / 24
    return f"{hours:,.0f} GPU-hours", f"{days:.1f} days"


def a_published_run() -> str:
    return f"{100 * 6 * 70e9 * 1.4e12 / (600_000 * HOUR * TRAINING_COST_PEAK):.0f} %"


def price_of_recomputation() -> tuple[str, str]:
    executed = 8 / 6 * 0.4
    return f"{100 * executed:.0f} %", f"{100 * (1 - 6 / 8):.0f} %"


def what_the_rule_leaves_out() -> tuple[str, str]:
    model = MODELS["Llama 3.1 8B"]
    extra = [
        training_flops_per_token(model, s, causal=True) / six_n(model) - 1 for s in (8192, 131072)
    ]
    return f"{100 * extra[0]:.0f} %", f"{100 * extra[1]:.0f} %"


def how_often_to_save() -> tuple[str, str]:
    stop, between = 30, 6 * HOUR
    every = sqrt(2 * stop * between)
    lost = stop / every + every / (2 * between)
    return f"{every / 60:.0f} minutes", f"{100 * lost:.1f} %"


# The transformer as a list of kernels.

TRANSFORMER_PEAK, TRANSFORMER_BANDWIDTH = (
    989e12,
    3.35e12,
)  # an H100 SXM's data sheet: bf16 flop/s, bytes/s
TRANSFORMER_LLAMA = MODELS["Llama 3.1 70B"]


def _weights_of_products() -> float:
    return (
        attention_weights(TRANSFORMER_LLAMA)
        + feed_forward_weights(TRANSFORMER_LLAMA, True) / TRANSFORMER_LLAMA.layers
    )


def turning_point() -> tuple[str, str]:
    rows = {byte: TRANSFORMER_PEAK / TRANSFORMER_BANDWIDTH * byte / 2 for byte in (2, 1)}
    return f"{rows[2]:.0f} rows", f"{rows[1]:.0f} rows"


def weights_of_a_layer() -> tuple[str, str]:
    weights = _weights_of_products()
    return f"{weights / 1e6:.0f} million weights", f"{2 * weights / 1e9:.2f} Gflop a token"


def unfused_steps() -> tuple[str, str]:
    h, f = TRANSFORMER_LLAMA.hidden, TRANSFORMER_LLAMA.feed_forward
    turned = (TRANSFORMER_LLAMA.heads + TRANSFORMER_LLAMA.kv_heads) * TRANSFORMER_LLAMA.head_dim
    elements = 2 * (2 * h) + 2 * (3 * h) + 2 * turned + 3 * f
    share = (2 * elements / TRANSFORMER_BANDWIDTH) / (2 * _weights_of_products() / TRANSFORMER_PEAK)
    return f"{2 * elements / 1e3:.0f} kB a token", f"{100 * share:.1f} %"


def cache_of_a_context() -> tuple[str, str]:
    grouped = 2**17 * cache_bytes_per_token(TRANSFORMER_LLAMA)
    full = grouped * TRANSFORMER_LLAMA.heads // TRANSFORMER_LLAMA.kv_heads
    return f"{grouped / 2**30:.0f} GiB", f"{full / 2**30:.0f} GiB"


# Parameters, FLOPs and bytes of a transformer.

TRANSFORMER_ARITHMETIC_SMALL, TRANSFORMER_ARITHMETIC_LARGE = (
    MODELS["Llama 3.1 8B"],
    MODELS["Llama 3.1 70B"],
)


def parameters_by_hand() -> tuple[str, str]:
    model = Decoder(48, 6144, 48, 8, 128, 16384, 100_352)
    rule = 12 * model.layers * model.hidden**2
    count = parameters(model)
    return f"{count / 1e9:.1f} billion", f"{100 * (rule / count - 1):.0f} % too many"


def when_attention_matters() -> str:
    sequence = 1
    while flops_per_token(TRANSFORMER_ARITHMETIC_SMALL, sequence, causal=True) < 4 * multiplied(
        TRANSFORMER_ARITHMETIC_SMALL
    ):
        sequence *= 2
    low = sequence // 2  # halve the interval that holds the first with twice the work
    while sequence - low > 1:
        middle = (low + sequence) // 2
        enough = flops_per_token(
            TRANSFORMER_ARITHMETIC_SMALL, middle, causal=True
        ) >= 4 * multiplied(TRANSFORMER_ARITHMETIC_SMALL)
        low, sequence = (low, middle) if enough else (middle, sequence)
    return f"{sequence:,} tokens"


def state_over_ranks() -> tuple[str, ...]:
    count = parameters(TRANSFORMER_ARITHMETIC_LARGE)
    return tuple(f"{state_bytes(count, stage, 256) / 1e9:.1f} GB" for stage in (1, 2, 3))


def activations_of_a_sequence() -> tuple[str, ...]:
    ways = ("none", "selective", "full")
    kept = [activation_bytes(TRANSFORMER_ARITHMETIC_SMALL, 8192, recompute=way) for way in ways]
    return tuple(f"{each / 1e9:.1f} GB" for each in kept)


def where_the_cache_takes_over() -> str:
    weights = 2 * parameters(TRANSFORMER_ARITHMETIC_SMALL)
    return f"{weights / (8192 * cache_bytes_per_token(TRANSFORMER_ARITHMETIC_SMALL)):.0f} sequences"
