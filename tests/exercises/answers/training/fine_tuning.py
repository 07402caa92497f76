"""What tuning a model takes."""

from snippets.model_flops.model_flops import MODELS, Decoder, attention_weights, parameters

SMALL, LARGE = MODELS["Llama 3.1 8B"], MODELS["Llama 3.1 70B"]


def _ends(model: Decoder) -> int:
    """The sum of both sides of a layer's matrices: an adapter has rank times that."""
    h, f, values = model.hidden, model.feed_forward, model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    shapes = [(h, values), (h, keys), (h, keys), (values, h), (h, f), (h, f), (f, h)]
    assert sum(p * q for p, q in shapes) == attention_weights(model) + 3 * h * f
    return sum(p + q for p, q in shapes)


def adapters_of_a_larger_model() -> tuple[str, str, str]:
    new = 16 * _ends(LARGE) * LARGE.layers
    count, tables = parameters(LARGE), 2 * LARGE.vocabulary * LARGE.hidden
    plain = 2 * count + 16 * new
    quantized = (count - tables) * 4.127 / 8 + 2 * tables + 16 * new
    return f"{new / 1e6:.0f} million", f"{plain / 1e9:.0f} GB", f"{quantized / 1e9:.0f} GB"


def rank_of_one_percent() -> str:
    rank = 1
    while rank * _ends(SMALL) * SMALL.layers < 0.01 * parameters(SMALL):
        rank += 1
    return f"{rank}"


def tokens_that_hide_offloading() -> tuple[str, str]:
    rate, bus, memory = 400e12, 32e9, 300e9
    over_bus = 4 / bus * rate / 6
    on_host = 28 / memory * rate / 6
    return f"{over_bus:,.0f} tokens", f"{over_bus + on_host:,.0f} tokens"


def padding() -> tuple[str, str]:
    lengths = (100, 900, 300, 2048, 150, 500)
    wasted = 1 - sum(lengths) / (len(lengths) * max(lengths))
    return f"{100 * wasted:.0f} %", f"{1 / (1 - wasted):.1f} times"


def logits_in_chunks() -> tuple[str, str]:
    row = 4 * SMALL.vocabulary
    return f"{2 * 16384 * row / 1e9:.1f} GB", f"{2 * 1024 * row / 1e9:.1f} GB"
