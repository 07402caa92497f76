"""What each family of models has that its configuration does not say.

A family is a `model_type`: its norms, its biases, whether its feed-forward has a gate,
what holds where a field is left out. Anything else is a field of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


# --8<-- [start:family]
@dataclass(frozen=True)
class Family:
    """Traits; the defaults are those of Llama."""

    gated: bool = True
    norms: int = 2  # of a layer, each of the hidden size
    norm: str = "scale"  # or "scale and shift", or "none": without parameters
    tied: bool = False  # where tie_word_embeddings is left out
    query_bias: bool = False  # on queries, keys and values; attention_bias sets it
    out_bias: bool | None = None  # of attention; None is as query_bias
    inner_bias: bool = False  # of the feed-forward; mlp_bias sets it
    head_bias: bool = False  # of the output matrix
    head_norms: str = ""  # of queries and keys: "head", or "all" heads in one
    table: int | None = None  # a table of positions, with so many rows more than told
    first_norm: bool = False  # one more, after the embedding
    last_norm: bool = True
    windows: str = ""  # who sees a window where layer_types is left out
    sinks: bool = False  # a learned logit a head, which takes attention from the keys
    bias_field: str = "attention_bias"
    inner_field: str = "mlp_bias"
    router_bias: bool = False
    shared_gate: bool = False  # on the shared expert
    wide: bool = False  # a feed-forward of 4 * hidden where its width is left out
    one_group: str = ""  # flag of a single head of keys and values
    defaults: Mapping[str, int] = field(default_factory=dict)  # of fields left out


# --8<-- [end:family]


SHIFT = "scale and shift"
BIASED = {"query_bias": True, "inner_bias": True, "norm": SHIFT, "gated": False}

# Gemma 3's configurations leave out what is as in its library.
GEMMA_3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "vocab_size": 262_208, "sliding_window": 4096, "max_position_embeddings": 131_072,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    # Llama and what differs from it by a field alone
    "llama": Family(),
    "granite": Family(),
    "mistral": Family(windows="every"),
    "mixtral": Family(windows="every"),
    "phi3": Family(windows="every"),
    "qwen2": Family(query_bias=True, out_bias=False, windows="qwen"),
    "qwen2_moe": Family(
        query_bias=True, out_bias=False, windows="qwen", shared_gate=True
    ),
    "qwen3": Family(head_norms="head", windows="qwen"),
    "qwen3_moe": Family(head_norms="head", windows="qwen"),
    "deepseek": Family(),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(router_bias=True),
    "kimi_k2": Family(router_bias=True),
    "glm4_moe": Family(out_bias=False, router_bias=True),
    "llama4_text": Family(windows="llama4"),
    "gpt_oss": Family(
        query_bias=True, inner_bias=True, router_bias=True, sinks=True, windows="even"
    ),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True, norms=4, windows="even"),
    "gemma3_text": Family(
        tied=True, norms=4, windows="pattern", head_norms="head", defaults=GEMMA_3
    ),
    "olmo": Family(norm="none"),
    "olmo2": Family(head_norms="all"),
    "cohere": Family(norms=1, tied=True),
    "cohere2": Family(norms=1, tied=True, windows="pattern"),
    "stablelm": Family(norm=SHIFT, bias_field="use_qkv_bias", out_bias=False),
    # two matrices, and biases
    "gpt2": Family(tied=True, table=0, wide=True, **BIASED),
    "gpt_bigcode": Family(
        tied=True, table=0, wide=True, one_group="multi_query", **BIASED
    ),
    "gpt_neox": Family(**BIASED),
    "gptj": Family(
        norms=1, head_bias=True, norm=SHIFT, inner_bias=True, gated=False, wide=True
    ),
    "opt": Family(
        tied=True, table=2, bias_field="enable_bias", inner_field="enable_bias",
        **BIASED,
    ),
    "bloom": Family(tied=True, first_norm=True, wide=True, **BIASED),
    "phi": Family(norms=1, head_bias=True, **BIASED),
    "starcoder2": Family(
        tied=True, bias_field="use_bias", inner_field="use_bias", windows="every",
        **BIASED,
    ),
    "falcon": Family(
        norm=SHIFT, gated=False, tied=True, bias_field="bias", inner_field="bias",
        wide=True, one_group="multi_query",
    ),
    "mpt": Family(tied=True, gated=False, wide=True),
}  # fmt: skip
ALIASES = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
}

# Fields that change neither a count nor a cache, whatever they say.
NO_MATTER = """
_name_or_path activation_function add_cross_attention alibi
apply_residual_connection_post_layernorm architectures attention_dropout
attention_multiplier attention_probs_dropout_prob attention_softmax_in_fp32
attn_impl attn_implementation attn_logit_softcapping attn_pdrop attn_scale
attn_temperature_tuning attn_type attn_uses_sequence_id auto_map aux_loss_alpha
bad_words_ids begin_suppress_tokens boi_token_index bos_token_id
cache_implementation chunk_size_feed_forward classifier_dropout clip_qkv
cls_token_id cross_attention_hidden_size decoder_sparse_step decoder_start_token_id
diversity_penalty do_sample dropout dtype early_stopping emb_pdrop embd_pdrop
embedding_fraction embedding_multiplier encoder_no_repeat_ngram_size eoi_token_index
eos_token_id ep_size exponential_decay_length_penalty fc_type ffn_type
final_logit_softcapping finetuning_task first_k_dense_replace floor_scale
forced_bos_token_id forced_eos_token_id gradient_checkpointing hidden_act
hidden_activation hidden_dropout hidden_dropout_prob id2label image_token_index
init_device initial_context_length initializer_factor initializer_range
is_encoder_decoder label2id layer_norm_elementwise_affine layer_norm_eps
layer_norm_epsilon layerdrop learned_pos_emb length_penalty logit_scale
logits_scaling masked_softmax_fusion max_length max_window_layers mlp_only_layers
mm_tokens_per_image model_type moe_layer_freq n_group no_repeat_ngram_size
no_rope_layer_interval no_rope_layers norm_eps norm_topk_prob norm_type
num_beam_groups num_beams num_return_sequences offset_alibi
original_max_position_embeddings output_attentions output_hidden_states
output_router_logits output_scores pad_token_id partial_rotary_factor
pipeline_parallel_degree prefix prefix_lm pretraining_tp problem_type pruned_heads
quantization_config query_pre_attn_scalar remove_invalid_values
reorder_and_upcast_attn repetition_penalty resid_pdrop residual_dropout
residual_multiplier return_dict return_dict_in_generate rms_norm_eps rope_interleave
rope_local_base_freq rope_parameters rope_scaling rope_theta rope_type rotary_dim
rotary_emb_base rotary_pct routed_scaling_factor router_aux_loss_coef
router_aux_loss_factor router_jitter_noise router_z_loss_coef
scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights
scale_qk scoring_func sep_token_id seq_aux seq_length skip_bias_add
skip_bias_add_qkv slow_but_exact softmax_scale summary_activation
summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
suppress_tokens swiglu_limit task_specific_params temperature tensor_parallel_degree
tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p topk_group
topk_method torch_dtype torchscript transformers_version typical_p unk_index
use_bfloat16 use_cache use_parallel_residual use_return_dict use_sliding_window
verbose
"""
HARMLESS = frozenset(NO_MATTER.split())
