"""model_configs: published counts hold, usual mistakes break one, any text is read or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.model_configs import cases, families, fields, reading
from snippets.model_configs import model_configs as ours
from snippets.model_configs.layers import Attention, FeedForward, Model
from snippets.model_flops import model_flops

CONFIGS = {row["name"]: row["config"] for row in cases.ROWS}


def read_model(name: str, **changes: Any) -> Model:
    return ours.read(json.dumps(CONFIGS[name] | changes))


def test_facts_hold() -> None:
    rows = cases.facts()
    assert broken_facts(rows) == []
    assert len({row["name"] for row in rows}) == len(rows) > 50


def test_every_family_is_counted_against_a_checkpoint_or_named_here() -> None:
    kinds = {model.kind for model in cases.models().values()}
    told = {"granite", "cohere2"}  # alike: llama, cohere
    assert set(families.FAMILIES) - kinds == told


def test_published_configurations_are_understood_whole() -> None:
    for name, model in cases.models().items():
        assert model.unknown == (), name


# What known calculators get wrong.
@pytest.mark.parametrize(
    ("where", "name", "wrong", "fact"),
    [
        (Attention, "cached", lambda a: a.kv_heads * a.key, "opt-13b: cache"),  # no factor 2
        (Attention, "cached", lambda a: a.heads * 2 * a.key, "Llama-3.1-405B: cache"),
        (Attention, "cached", lambda a: a.kv_heads * 2 * a.value, "DeepSeek-V3: cache"),
        (FeedForward, "expert", lambda f, h: 2 * h * f.size, "Llama-2-7b: parameters"),
        (FeedForward, "expert", lambda f, h: 3 * h * f.size, "gpt2: parameters"),
        (FeedForward, "all_vectors", lambda f, active=False: 0, "gpt-oss-20b: parameters"),
        (FeedForward, "common", lambda f, h: h * f.routed, "DeepSeek-V2-Lite: parameters"),
        (Attention, "weights", lambda a, h: 4 * a.heads * a.key * h, "Qwen3-8B: parameters"),
    ],
)
def test_a_usual_mistake_breaks_a_fact(
    where: type, name: str, wrong: Any, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong)
    assert any(one.startswith(fact) for one in broken_facts(cases.facts()))


@pytest.mark.parametrize(
    ("kind", "trait"),
    [
        ("qwen2", {"query_bias": False}),
        ("qwen2_moe", {"shared_gate": False}),
        ("qwen3", {"head_norms": ""}),
        ("gemma2", {"norms": 2}),
        ("gemma", {"tied": False}),
        ("phi", {"norms": 2}),
        ("phi", {"head_bias": False}),
        ("gptj", {"query_bias": True}),
        ("opt", {"table": 0}),
        ("bloom", {"first_norm": False}),
        ("falcon", {"one_group": ""}),
        ("gpt_oss", {"sinks": False}),
        ("gpt_oss", {"router_bias": False}),
        ("deepseek_v3", {"router_bias": False}),
        ("olmo", {"norm": "scale"}),
        ("olmo2", {"head_norms": "head"}),
        ("starcoder2", {"inner_bias": False, "inner_field": "no"}),
        ("cohere", {"norms": 2}),
        ("stablelm", {"norm": "scale"}),
        ("glm4_moe", {"out_bias": None}),
        ("gemma3_text", {"head_norms": ""}),
    ],
)
def test_a_wrong_trait_breaks_a_fact(
    kind: str, trait: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(families.FAMILIES, kind, replace(families.FAMILIES[kind], **trait))
    found = cases.models()
    named = {name for name, model in found.items() if model.kind == kind}
    assert any(one.split(":")[0] in named for one in broken_facts(cases.facts()))


def list_windows(model: Model) -> list[int]:
    return [one.attention.window for one in model.layers]


def test_windows_of_each_family() -> None:
    assert list_windows(read_model("Mistral-7B-v0.1")) == [4096] * 32
    assert list_windows(read_model("Mistral-7B-v0.1", sliding_window=None)) == [0] * 32
    assert list_windows(read_model("gemma-2-9b"))[:4] == [4096, 0, 4096, 0]
    assert list_windows(read_model("gemma-3-1b"))[:7] == [512] * 5 + [0, 512]
    assert list_windows(read_model("gpt-oss-20b"))[:2] == [128, 0]
    off = read_model("Qwen2.5-7B", sliding_window=1024, use_sliding_window=False)
    assert list_windows(off) == [0] * 28
    on = read_model(
        "Qwen2.5-7B", sliding_window=1024, use_sliding_window=True, max_window_layers=26
    )
    assert list_windows(on) == [0] * 26 + [1024] * 2
    told = ["full_attention"] * 27 + ["sliding_attention"]
    last = read_model("Qwen2.5-7B", sliding_window=64, layer_types=told)
    assert list_windows(last) == [0] * 27 + [64]
    assert list_windows(read_model("Llama-4-Maverick"))[:5] == [8192] * 3 + [0, 8192]


def test_a_cache_grows_until_its_windows_are_full() -> None:
    model = read_model("gemma-2-9b")
    one = ours.cache_bytes(model)
    assert ours.cache_bytes(model, 4096) == 4096 * one
    assert ours.cache_bytes(model, 8192) == 6144 * one  # half of the layers go on
    assert ours.cache_bytes(model, 8192, element=1) == 3072 * one


def test_experts_stand_in_the_layers_that_have_them() -> None:
    def expert_layers(model: Model) -> list[int]:
        return [at for at, one in enumerate(model.layers) if one.feed_forward.routed]

    assert expert_layers(read_model("DeepSeek-V3")) == list(range(3, 61))
    assert expert_layers(read_model("Llama-4-Maverick")) == list(range(1, 48, 2))
    assert expert_layers(read_model("Qwen3-30B-A3B", decoder_sparse_step=2)) == list(
        range(1, 48, 2)
    )
    assert expert_layers(read_model("Qwen3-30B-A3B", mlp_only_layers=[0, 1])) == list(range(2, 48))
    inner = CONFIGS["Llama-4-Maverick"]["text_config"]
    named = read_model("Llama-4-Maverick", text_config=inner | {"moe_layers": [5, 7]})
    assert expert_layers(named) == [5, 7]


def test_what_changes_the_result_and_is_not_understood_is_named() -> None:
    assert read_model("Llama-3.1-8B", num_ears=2, cross_layer_sharing=True).unknown == (
        "num_ears",
        "cross_layer_sharing",
    )
    assert read_model("opt-125m", word_embed_proj_dim=512).unknown == ("word_embed_proj_dim",)
    assert read_model("mpt-7b", attn_config={"qk_ln": True}).unknown == ("attn_config.qk_ln",)
    strange = read_model("Llama-3.1-8B", model_type="strange")
    assert strange.notes == (
        "model_type 'strange' is not known: counted as a Llama with the fields that it has.",
    )
    assert ours.parameters(strange) == ours.parameters(read_model("Llama-3.1-8B"))
    seeing = ours.read(json.dumps({"text_config": CONFIGS["gemma-3-1b"], "vision_config": {}}))
    assert seeing.layers == read_model("gemma-3-1b").layers
    assert seeing.notes[0] == "Only the text model is counted, not what sees or hears."


LATENT = CONFIGS["DeepSeek-V2-Lite"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b" 2}', "line 2, column 6 is no JSON: Expecting ':' delimiter"),
        ("", "line 1, column 1 is no JSON"),
        ("[1]", r"\[1\] is no object of fields"),
        ("1" * 5000, "numbers or nesting beyond any model's"),
        ("[" * 200_000, "numbers or nesting beyond any model's"),
        ("x" * 1_000_001, "1000001 characters exceed 1000000"),
        ("{}", r"no hidden_size \(or n_embd, d_model, n_embed\); add it"),
        ({"vocab_size": None}, "no vocab_size; add it"),
        ({"num_attention_heads": "32"}, 'num_attention_heads = "32" is not a whole number'),
        ({"num_attention_heads": True}, "num_attention_heads = true is not a whole number"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000 is not from 1 to 10000"),
        ({"hidden_size": -1}, "hidden_size = -1 is not from 1 to"),
        ({"head_dim": None, "num_attention_heads": 24}, "24 does not divide hidden_size = 4096"),
        ({"num_key_value_heads": 7}, "num_key_value_heads = 7 does not divide"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings = 1 is not true or false"),
        ({"model_type": 3}, "model_type = 3 is not a string"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 32 layers"),
        ({"layer_types": ["mamba"] * 32}, "layer_types has 'mamba'; only full_attention"),
        ({"layer_types": [1] * 32}, "layer_types = .* is not a list of strings"),
        ({"is_encoder_decoder": True}, "llama is an encoder with a decoder"),
        ({"num_local_experts": 8}, "no num_experts_per_tok"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "9 exceeds the 8 experts"),
        (LATENT | {"v_head_dim": None}, "no v_head_dim; add it"),
        ({"model_type": "gpt2"}, r"no max_position_embeddings \(n_positions\); add it"),
        ({"text_config": [1]}, r"text_config = \[1\] is not an object of fields"),
        ({"text_config": {"model_type": "llama"}}, r"no text_config.hidden_size"),
    ],
)
def test_bad_input_gets_one_clear_line(text: Any, message: str) -> None:
    if isinstance(text, dict):
        base = {} if text.get("kv_lora_rank") else CONFIGS["Llama-3.1-8B"]
        if "gpt2" in text.values():
            base = {k: v for k, v in base.items() if k != "max_position_embeddings"}
        text = json.dumps(base | text)
    with pytest.raises(ValueError, match=f"^model_configs: .*{message}") as caught:
        ours.read(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


NAMES = sorted(
    {key for config in CONFIGS.values() for key in config}
    | {*reading.HEADS, *reading.GROUPS, *reading.LAYERS, *reading.EXPERTS, *reading.WIDTHS}
    | {"layer_types", "moe_layers", "mlp_only_layers", "no_rope_layers", "text_config", "no_bias"}
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70) | st.floats() | st.text(max_size=9)
    | st.sampled_from([*families.FAMILIES, 10**9, 10**400, 4096]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(NAMES), inner, max_size=9),
    max_leaves=12,
)  # fmt: skip
changes = st.dictionaries(st.sampled_from(NAMES), values, max_size=5)
quick = settings(max_examples=100)


def assert_read_or_refused(text: str) -> None:
    try:
        model = ours.read(text)
    except ValueError as error:
        assert str(error).startswith("model_configs: ") and "\n" not in str(error)
        return
    assert ours.parameters(model, active=True) <= ours.parameters(model)
    assert ours.parameters(model) > 0 < ours.cache_bytes(model)
    assert ours.cache_bytes(model, 9) <= 9 * ours.cache_bytes(model)


@quick
@given(st.sampled_from(sorted(CONFIGS)), changes)
def test_a_changed_configuration_is_read_or_refused(name: str, change: dict[str, Any]) -> None:
    assert_read_or_refused(json.dumps(CONFIGS[name] | change))


@quick
@given(values)
def test_any_json_is_read_or_refused(value: Any) -> None:
    assert_read_or_refused(json.dumps(value))


@quick
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert_read_or_refused(text)


@quick
@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_any_beginning_of_a_configuration_is_refused(name: str, data: st.DataObject) -> None:
    text = json.dumps(CONFIGS[name])
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(ValueError, match="^model_configs: line 1, column"):
        ours.read(text[:cut])


def test_model_flops_counts_the_same_matrices() -> None:
    for name, model in cases.models().items():
        if name == "Llama-4-Maverick":  # Scout has them in all
            with pytest.raises(ValueError, match="experts in every other layer have no form"):
                ours.decoder(model)
            continue
        same = ours.decoder(model)
        assert model_flops.multiplied(same) == ours.multiplied(model), name
        assert model_flops.parameters(same) == pytest.approx(ours.parameters(model), rel=2e-3)
        unbounded = replace(model, layers=tuple(
            replace(one, attention=replace(one.attention, window=0)) for one in model.layers
        ))  # fmt: skip
        for causal in (False, True):
            there = model_flops.flops_per_token(same, 512, causal)
            assert ours.flops_per_token(unbounded, 512, causal) == pytest.approx(there, rel=1e-9)
        if model.layers[0].attention.latent:
            assert model_flops.cache_bytes_per_token(same) == ours.cache_bytes(model)


def test_a_window_bounds_the_keys_that_are_met() -> None:
    layer = read_model("Mistral-7B-v0.1", sliding_window=3, num_hidden_layers=1)
    scores = ours.flops_per_token(layer, 5) - 2 * ours.multiplied(layer)
    assert scores == pytest.approx(2 * 32 * 256 * (1 + 2 + 3 + 3 + 3) / 5)


def test_fields_print_what_cannot_be_printed() -> None:
    with pytest.raises(ValueError, match="vocab_size = a number beyond any model's is not from"):
        fields.Fields({"vocab_size": 10**5000}).integer("vocab_size")


def test_demo_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    ours.demo()
    assert 5 < len(capsys.readouterr().out.splitlines()) <= 30
