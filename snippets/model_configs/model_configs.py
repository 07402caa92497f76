"""A model from its config.json: parameters, cache, layers, and what is not understood.

Shapes  layers that differ are told apart: windows, experts, latents, dense first ones
Bytes   cache of a token, in each layer: 2, for K and V, * groups of heads * width *
        bytes of an element; of a latent rank + rotary part, once; a window keeps no
        more than it sees
Error   parameters are exact: equal to the totals of published checkpoints
Raises  ValueError in one line: broken JSON by line and column, a field that is missing
        or of the wrong kind by its name
Source  model-configurations, mistral-7b, deepseek-v2, deepseek-v3, paged-attention,
        deepseek-v3-insights
"""

from __future__ import annotations

from dataclasses import replace

from snippets.model_configs import reading
from snippets.model_configs.families import ALIASES, FAMILIES, HARMLESS
from snippets.model_configs.fields import Fields, parse
from snippets.model_configs.layers import Attention, FeedForward, Layer, Model
from snippets.model_flops.model_flops import Decoder, Experts, Latent

__all__ = [
    "Attention", "FeedForward", "Layer", "Model", "cache_bytes", "decoder",
    "flops_per_token", "multiplied", "parameters", "read",
]  # fmt: skip
INSIDE = ("text_config", "language_config", "llm_config")  # of a model that also sees
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "seq_length",
)


# --8<-- [start:model]
def read(text: str) -> Model:
    """The model that a config.json describes; `unknown` has what was not understood."""
    whole = Fields(parse(text))
    inner, kind, notes = whole, whole.word("model_type"), []
    for name in INSIDE:
        if whole.has(name):
            inner = whole.inner(name)
            kind = inner.word("model_type") or kind
            notes.append("Only the text model is counted, not what sees or hears.")
            break
    kind = ALIASES.get(kind, kind)
    family = FAMILIES.get(kind)
    if family is None:
        named = f"model_type {kind[:40]!r} is not known" if kind else "No model_type"
        notes.append(f"{named}: counted as a Llama with the fields that it has.")
        family = FAMILIES["llama"]
    family = reading.told(kind, family, inner)
    hidden = inner.integer("hidden_size", "n_embd", "d_model", "n_embed")
    layers = reading.layers(kind, family, inner, hidden)
    vocabulary = inner.integer("vocab_size", default=family.defaults.get("vocab_size"))
    context = inner.integer(
        *CONTEXT, default=family.defaults.get(CONTEXT[0], 0), least=0
    )
    if family.table is not None and not context:
        raise ValueError(f"model_configs: no {CONTEXT[0]} ({CONTEXT[1]}); add it")
    outside = reading.norm(family, hidden) * (family.first_norm + family.last_norm)
    if inner.integer("word_embed_proj_dim", default=hidden) != hidden:
        inner.seen.remove("word_embed_proj_dim")  # two matrices more: not counted
    for name, value in family.defaults.items():
        if inner.values.get(name) is None:
            notes.append(f"{name} is left out: {value}, as in {kind}.")
    return Model(
        kind=kind,
        hidden=hidden,
        vocabulary=vocabulary,
        layers=layers,
        tied=reading.tied(family, whole, inner),
        vectors=outside + (vocabulary if family.head_bias else 0),
        positions=0 if family.table is None else context + family.table,
        predicting=reading.predicting(inner, layers, hidden),
        context=context,
        unknown=tuple(
            name for name in inner.unread() if name.rpartition(".")[2] not in HARMLESS
        ),
        notes=tuple(notes),
    )


def parameters(model: Model, active: bool = False, predicting: bool = False) -> int:
    """All parameters; or, `active`, all but the experts that a token does not meet.

    `predicting`: with the layers that predict further tokens.
    """
    tables = model.vocabulary * (1 if model.tied else 2) + model.positions
    layers = model.layers + (model.predicting if predicting else ())
    inside = sum(one.parameters(model.hidden, active) for one in layers)
    return tables * model.hidden + model.vectors + inside


def multiplied(model: Model) -> int:
    """Elements of the matrices that a token is multiplied with, so of no embedding."""
    met = sum(
        one.attention.weights(model.hidden)
        + one.feed_forward.weights(model.hidden, True)
        for one in model.layers
    )
    return met + model.vocabulary * model.hidden


def flops_per_token(model: Model, sequence: int, causal: bool = True) -> float:
    """Forward FLOPs, mean over a sequence: 2 a weight, 2 (key + value) a key seen.

    Without `causal` a token is counted as meeting all keys that its window could hold.
    """
    met = 0.0
    for one in model.layers:
        attention = one.attention
        seen = min(sequence, attention.window or sequence)
        keys = seen * (2 * sequence - seen + 1) / (2 * sequence) if causal else seen
        met += attention.heads * (attention.key + attention.value) * keys
    return 2 * multiplied(model) + 2 * met


def cache_bytes(model: Model, tokens: int = 1, element: float = 2) -> float:
    """Bytes of the cache of one sequence of `tokens`, elements of `element` bytes.

    A layer with a window keeps no more tokens than it sees.
    """
    kept = 0
    for one in model.layers:
        window = one.attention.window or tokens
        kept += min(tokens, window) * one.attention.cached()
    return kept * element


# --8<-- [end:model]


def decoder(model: Model) -> Decoder:
    """The same matrices in the form of model_flops, which knows no windows.

    Raises ValueError for what that form cannot say: experts in some later layers alone,
    values of another width than keys.
    """
    mixed = [one for one in model.layers if one.feed_forward.routed]
    dense = [one for one in model.layers if not one.feed_forward.routed]
    count = len(dense) if mixed else 0
    late = any(one.feed_forward.routed for one in model.layers[:count])
    attention = model.layers[0].attention
    width = attention.key - attention.rotary
    if late or width != attention.value:
        what = "experts in every other layer" if late else "keys wider than values"
        raise ValueError(
            f"model_configs: {what} have no form in model_flops; count them layer by "
            "layer"
        )
    plain = {replace(one.attention, window=0) for one in model.layers}
    if len(plain) > 1 or len({one.feed_forward for one in dense}) > 1:
        raise ValueError(
            "model_configs: layers differ by more than windows and experts"
        )
    experts = None
    if mixed:
        one = mixed[0].feed_forward
        if one.shared % one.size:
            raise ValueError(
                f"model_configs: shared width {one.shared} is no multiple of "
                f"{one.size}, an expert's; count it layer by layer"
            )
        experts = Experts(
            one.routed, one.chosen, one.size, one.shared // one.size, len(dense)
        )
    latent = None
    if attention.latent:
        latent = Latent(attention.query_rank, attention.latent, attention.rotary)
    last = model.layers[-1].feed_forward
    return Decoder(
        len(model.layers), model.hidden, attention.heads, attention.kv_heads, width,
        dense[0].feed_forward.size if dense else last.size, model.vocabulary,
        gated=last.gated, tied=model.tied, positions=model.positions,
        biases=model.layers[0].norms % (4 * model.hidden) == 0 and not last.gated,
        experts=experts, latent=latent,
    )  # fmt: skip


SHOWN = {
    "Llama 3.1 8B": """{"model_type": "llama", "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256}""",
    "Gemma 2 9B": """{"model_type": "gemma2", "hidden_size": 3584,
        "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256000,
        "sliding_window": 4096}""",
    "gpt-oss 20B": """{"model_type": "gpt_oss", "hidden_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32,
        "num_experts_per_tok": 4, "vocab_size": 201088, "sliding_window": 128}""",
    "DeepSeek-V2-Lite": """{"model_type": "deepseek_v2", "hidden_size": 2048,
        "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": null,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "vocab_size": 102400}""",
}


def demo(device: str = "cpu") -> None:
    """Sizes and caches of four models, and what is said of texts that are no model."""
    print(f"{'':18}{'params':>9}{'active':>9}{'cache of 1 token':>18}{'of 32768':>12}")
    for name, text in SHOWN.items():
        model = read(text)
        all_of, active = parameters(model) / 1e9, parameters(model, active=True) / 1e9
        one, many = cache_bytes(model), cache_bytes(model, 32_768) / 1e9
        print(f"{name:18}{all_of:8.2f}B{active:8.2f}B{one:16,.0f} B{many:9.2f} GB")
    odd = '{"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, '
    odd += '"intermediate_size": 32, "vocab_size": 9, "num_ears": 2}'
    print(f"not understood: {', '.join(read(odd).unknown)}")
    for text in ('{"hidden_size": 4096', '{"hidden_size": 4096.5}', "{}"):
        try:
            read(text)
        except ValueError as error:
            print(error)


if __name__ == "__main__":
    demo()
