"""From the fields of a configuration to layers, by the traits of its family."""

from __future__ import annotations

from dataclasses import replace

from snippets.model_configs.families import Family
from snippets.model_configs.fields import MOST_LAYERS, Fields
from snippets.model_configs.layers import Attention, FeedForward, Layer

HEADS = ("num_attention_heads", "n_head", "n_heads")
GROUPS = ("num_key_value_heads", "num_kv_heads")
WIDTHS = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token")


def told(kind: str, family: Family, fields: Fields) -> Family:
    """The family with what this configuration says of it."""
    if fields.flag("is_encoder_decoder", default=False):
        raise ValueError(
            f"model_configs: {kind or 'this'} is an encoder with a decoder; "
            "paste the configuration of a decoder alone"
        )
    family = replace(
        family,
        query_bias=fields.flag(family.bias_field, default=family.query_bias),
        inner_bias=fields.flag(family.inner_field, default=family.inner_bias),
        head_bias=fields.flag("lm_head_bias", default=family.head_bias),
    )
    if kind == "falcon":
        many = fields.flag("new_decoder_architecture", default=False)
        beside = fields.flag("parallel_attn", default=True)
        norms = fields.integer("num_ln_in_parallel_attn", default=2 if many else 1)
        groups = "" if many else family.one_group
        fields.has("multi_query")
        return replace(family, norms=norms if beside else 2, one_group=groups)
    if kind == "mpt" and not fields.flag("no_bias", default=True):
        return replace(family, query_bias=True, inner_bias=True, norm="scale and shift")
    if kind == "opt":
        return replace(
            family, last_norm=fields.flag("do_layer_norm_before", default=True)
        )
    if kind == "stablelm" and fields.flag("use_parallel_residual", default=False):
        return replace(family, norms=1)
    if kind in ("cohere", "glm4_moe") and fields.flag("use_qk_norm", default=False):
        return replace(family, head_norms="all" if kind == "cohere" else "head")
    if kind == "llama4_text":  # its norm of queries and keys has no parameters
        fields.has("use_qk_norm")
    return family


def norm(family: Family, width: int) -> int:
    """Parameters of a norm."""
    return width * {"none": 0, "scale": 1, "scale and shift": 2}[family.norm]


def tied(family: Family, whole: Fields, inner: Fields) -> bool:
    """Whether the output matrix is the embedding table; either object may say so."""
    outside = whole.flag("tie_word_embeddings", default=family.tied)
    return inner.flag("tie_word_embeddings", default=outside)


def layers(kind: str, family: Family, fields: Fields, hidden: int) -> tuple[Layer, ...]:
    """All layers; those alike are one object."""
    count = fields.integer(*LAYERS, most=MOST_LAYERS)
    attention = _attention(family, fields, hidden)
    windows = _windows(kind, family, fields, count)
    feed_forwards, mixed = _feed_forwards(kind, family, fields, hidden, count)
    made: dict[tuple[int, bool], Layer] = {}
    for window, mixes in set(zip(windows, mixed, strict=True)):
        made[window, mixes] = Layer(
            replace(attention, window=window),
            feed_forwards[mixes],
            family.norms * norm(family, hidden),
        )
    return tuple(made[one] for one in zip(windows, mixed, strict=True))


def predicting(
    fields: Fields, found: tuple[Layer, ...], hidden: int
) -> tuple[Layer, ...]:
    """DeepSeek's modules that predict further tokens: a layer, a joint, three norms."""
    count = fields.integer(
        "num_nextn_predict_layers", default=0, least=0, most=MOST_LAYERS
    )
    one = replace(
        found[-1], norms=found[-1].norms + 3 * hidden, joint=2 * hidden * hidden
    )
    return (one,) * count


def _attention(family: Family, fields: Fields, hidden: int) -> Attention:
    heads = fields.integer(*HEADS, default=family.defaults.get(HEADS[0]))
    if fields.has("kv_lora_rank"):
        return _latent_attention(family, fields, heads, hidden)
    groups = family.defaults.get(GROUPS[0], heads)
    if family.one_group and fields.flag(family.one_group, default=True):
        groups = 1
        fields.has(*GROUPS)
    else:
        groups = fields.inner("attn_config").integer("kv_n_heads", default=groups)
        groups = fields.integer(*GROUPS, default=groups)
    if heads % groups:
        raise ValueError(
            f"model_configs: num_key_value_heads = {groups} does not divide "
            f"num_attention_heads = {heads}"
        )
    width = fields.integer(
        "head_dim", default=family.defaults.get("head_dim", 0), least=0
    )
    if not width:
        if hidden % heads:
            raise ValueError(
                f"model_configs: num_attention_heads = {heads} does not divide "
                f"hidden_size = {hidden}, and there is no head_dim; add it"
            )
        width = hidden // heads
    rows = (heads + 2 * groups) * width
    vectors = rows if family.query_bias else 0
    vectors += hidden if _out_bias(family) else 0
    vectors += {"": 0, "head": 2 * width, "all": (heads + groups) * width}[
        family.head_norms
    ]
    vectors += heads if family.sinks else 0
    return Attention(heads, groups, width, width, vectors=vectors)


def _latent_attention(
    family: Family, fields: Fields, heads: int, hidden: int
) -> Attention:
    fields.has(*GROUPS, "head_dim", "qk_head_dim")  # which say nothing here
    rotary = fields.integer("qk_rope_head_dim", least=0)
    latent = fields.integer("kv_lora_rank")
    queries = fields.integer("q_lora_rank", default=0, least=0)
    down = (
        rotary + latent + queries
    )  # attention_bias is on these alone, and on the output
    biases = down + hidden if family.query_bias else 0
    return Attention(
        heads, heads,
        key=fields.integer("qk_nope_head_dim") + rotary,
        value=fields.integer("v_head_dim"),
        latent=latent, rotary=rotary, query_rank=queries,
        vectors=latent + queries + biases,
    )  # fmt: skip


def _out_bias(family: Family) -> bool:
    return family.query_bias if family.out_bias is None else family.out_bias


def _windows(kind: str, family: Family, fields: Fields, count: int) -> list[int]:
    """Tokens that each layer sees; 0 is all."""
    if kind == "llama4_text":
        size = fields.integer("attention_chunk_size", default=8192, least=0)
    elif family.windows or fields.has("layer_types"):
        size = fields.integer(
            "sliding_window", default=family.defaults.get("sliding_window", 0), least=0
        )
    else:
        return [0] * count
    kinds = fields.words("layer_types")
    if kinds is not None:
        _of_length("layer_types", kinds, count)
        within = ("sliding_attention", "chunked_attention")
        for one in kinds:
            if one not in (*within, "full_attention"):
                raise ValueError(
                    f"model_configs: layer_types has {one!r}; only full_attention, "
                    "sliding_attention and chunked_attention are counted"
                )
        seen = [one in within for one in kinds]
    elif family.windows == "qwen":
        used = fields.flag("use_sliding_window", default=False)
        first = fields.integer("max_window_layers", default=count, least=0)
        seen = [used and at >= first for at in range(count)]
    elif family.windows == "even":
        seen = [at % 2 == 0 for at in range(count)]
    elif family.windows == "pattern":
        usual = 6 if kind == "gemma3_text" else 4
        turn = fields.integer("sliding_window_pattern", default=usual)
        seen = [(at + 1) % turn != 0 for at in range(count)]
    elif family.windows == "llama4":
        turns = fields.integers("no_rope_layers") or [
            int((at + 1) % 4 != 0) for at in range(count)
        ]
        _of_length("no_rope_layers", turns, count)
        seen = [bool(one) for one in turns]
    else:
        seen = [True] * count
    if fields.flag("use_sliding_window", default=True) is False:
        seen = [False] * count
    return [size if one else 0 for one in seen]


def _of_length(name: str, values: list, count: int) -> None:
    if len(values) != count:
        raise ValueError(
            f"model_configs: {name} has {len(values)} entries for {count} layers"
        )


def _feed_forwards(
    kind: str, family: Family, fields: Fields, hidden: int, count: int
) -> tuple[dict[bool, FeedForward], list[bool]]:
    """The dense one under False, the mixture under True; and which layers mix."""
    routed = fields.integer(*EXPERTS, default=0, least=0)
    mixed = _mixed(kind, fields, count) if routed > 1 else [False] * count
    ratio = fields.integer("expansion_ratio", "ff_factor", default=4)
    usual = ratio * hidden if family.wide else None
    made: dict[bool, FeedForward] = {}
    if not all(mixed):
        names = ("intermediate_size_mlp",) if kind == "llama4_text" else WIDTHS
        size = fields.integer(*names, default=usual)
        biases = _biases(family, size, hidden) if family.inner_bias else 0
        made[False] = FeedForward(size, family.gated, vectors=biases)
    if any(mixed):
        size = fields.integer("moe_intermediate_size", *WIDTHS, default=usual)
        fields.has("intermediate_size_mlp")
        chosen = fields.integer(*CHOSEN)
        if chosen > routed:
            raise ValueError(
                f"model_configs: {CHOSEN[0]} = {chosen} exceeds the {routed} experts"
            )
        alike = 1 if kind == "llama4_text" else 0
        alike = fields.integer("n_shared_experts", default=alike, least=0)
        shared = fields.integer("shared_expert_intermediate_size", default=0, least=0)
        shared = shared or alike * size
        vectors = routed if family.router_bias else 0
        vectors += hidden if family.shared_gate and shared else 0
        biases = _biases(family, size, hidden) if family.inner_bias else 0
        made[True] = FeedForward(
            size, family.gated, routed, chosen, shared, vectors, biases
        )
    return made, mixed


def _biases(family: Family, size: int, hidden: int) -> int:
    return (2 if family.gated else 1) * size + hidden


def _mixed(kind: str, fields: Fields, count: int) -> list[bool]:
    """Which layers have experts."""
    if kind == "llama4_text":
        step = fields.integer("interleave_moe_layer_step", default=1, least=0)
        named = fields.integers("moe_layers")
        if named is not None:
            return [at in named for at in range(count)]
        return [step > 0 and (at + 1) % step == 0 for at in range(count)]
    first = fields.integer("first_k_dense_replace", default=0, least=0)
    every = fields.integer("moe_layer_freq", default=1)
    step = fields.integer("decoder_sparse_step", default=1)
    dense = fields.integers("mlp_only_layers") or []
    return [
        at >= first and at % every == 0 and (at + 1) % step == 0 and at not in dense
        for at in range(count)
    ]
