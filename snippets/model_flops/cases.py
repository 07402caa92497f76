"""What model_flops must show: published counts of parameters, FLOPs and bytes."""

from __future__ import annotations

from typing import Any

from snippets.model_flops.model_flops import (
    GPT3,
    MODELS,
    Decoder,
    activation_bytes,
    cache_bytes_per_token,
    multiplied,
    parameters,
    six_n,
    state_bytes,
    training_flops_per_token,
)

# Only for memory: their vocabularies are not checked against anything.
OPT_13B = Decoder(40, 5120, 40, 40, 128, 4 * 5120, 50272, gated=False, biases=True)
MT_NLG = Decoder(105, 20480, 128, 128, 160, 4 * 20480, 50257, gated=False, biases=True)

# Values in a published checkpoint. Llama 2's also store head_dim / 2 rotary frequencies
# a layer.
STORED = {
    "Llama 2 7B": (6_738_417_664, "Llama-2-7b-hf"),
    "Llama 2 13B": (13_015_866_880, "Llama-2-13b-hf"),
    "Llama 2 70B": (68_976_653_312, "Llama-2-70b-hf"),
    "Llama 3.1 8B": (8_030_261_248, "Llama-3.1-8B"),
    "Llama 3.1 70B": (70_553_706_496, "Llama-3.1-70B"),
    "Llama 3.1 405B": (405_853_388_800, "Llama-3.1-405B"),
    "Mixtral 8x7B": (46_702_792_704, "Mixtral-8x7B-v0.1"),
}


def row(
    name: str, value: float, expected: float, rounding: float, unit: str, source: str
) -> dict[str, Any]:
    """One fact; `rounding` is half of the published last digit, 0 if it is exact."""
    return {
        "name": name,
        "value": value,
        "expected": expected,
        "tolerance": rounding / expected,
        "unit": unit,
        "source": source,
    }


def facts() -> list[dict[str, Any]]:
    """Our counts against published ones: parameters, training FLOPs, bytes."""
    return parameter_facts() + flops_facts() + byte_facts()


def parameter_facts() -> list[dict[str, Any]]:
    """Totals against checkpoints and papers."""
    rows = []
    for name, (expected, checkpoint) in STORED.items():
        model = MODELS[name]
        rotary = model.layers * model.head_dim // 2 if name.startswith("Llama 2") else 0
        what = "parameters and stored rotary frequencies" if rotary else "parameters"
        stored = parameters(model) + rotary
        source = f"safetensors total of {checkpoint}"
        rows.append(row(f"{name}: {what}", stored, expected, 0, "", source))
    mixtral, deepseek = MODELS["Mixtral 8x7B"], MODELS["DeepSeek-V3"]
    announced = "Mistral AI, Mixtral of experts, 2023: 12.9B"
    return [
        row("GPT-3 175B: parameters", parameters(GPT3), 174_600e6, 50e6, "", "gpt-3"),
        *rows,
        row(
            "Mixtral 8x7B: active",
            parameters(mixtral, True), 12.9e9, 0.05e9, "", announced,
        ),
        row(
            "DeepSeek-V3: parameters",
            parameters(deepseek), 671e9, 0.5e9, "", "deepseek-v3",
        ),
        row(
            "DeepSeek-V3: active, without the embedding table",
            multiplied(deepseek), 37e9, 0.5e9, "", "deepseek-v3",
        ),
    ]  # fmt: skip


def flops_facts() -> list[dict[str, Any]]:
    """Training compute against papers, and against Megatron's closed form."""
    s, h, layers = 2048, GPT3.hidden, GPT3.layers
    formula = 72 * layers * h * h + 12 * layers * s * h + 6 * h * GPT3.vocabulary
    ours = training_flops_per_token(GPT3, s)
    llama = MODELS["Llama 3.1 405B"]
    closed = "72 L h^2 (1 + s / 6h + V / 12hL), reducing-activation-recomputation"
    return [
        row(
            "GPT-3 175B: 6 N on 300e9 tokens",
            six_n(GPT3) * 300e9, 3.14e23, 0.005e23, "FLOP", "gpt-3",
        ),
        row(
            "GPT-3 175B: training FLOPs per token, s = 2048",
            ours, formula, 0, "FLOP", closed,
        ),
        row(
            "Llama 3.1 405B: 6 N on 15.6e12 tokens",
            six_n(llama) * 15.6e12, 3.8e25, 0.05e25, "FLOP", "llama3-herd",
        ),
    ]  # fmt: skip


def byte_facts() -> list[dict[str, Any]]:
    """Activation memory and ZeRO's stages against the papers that introduce them."""
    paper = "reducing-activation-recomputation"
    rows = []
    for name, model, saved in (
        ("GPT-3 175B", GPT3, 0.70),
        ("MT-NLG 530B", MT_NLG, 0.65),
    ):
        kept = activation_bytes(model, 2048, dropout=True)
        selective = activation_bytes(model, 2048, recompute="selective", dropout=True)
        what = f"{name}: activation memory saved by selective recomputation, s = 2048"
        rows.append(row(what, 1 - selective / kept, saved, 0.005, "", paper))
    s, h, a = 2048, GPT3.hidden, GPT3.heads
    layer = activation_bytes(GPT3, s, dropout=True) // GPT3.layers
    formula = 34 * s * h + 5 * a * s * s
    what = "GPT-3 175B: activation bytes of a layer, s = 2048, b = 1"
    rows.append(row(what, layer, formula, 0, "B", f"sbh (34 + 5as/h), {paper}"))
    what, source = "OPT-13B: cache of a token", "2 * 5120 * 40 * 2, paged-attention"
    rows.append(row(what, cache_bytes_per_token(OPT_13B), 819_200, 0, "B", source))
    published = (120, 0), (31.4, 0.05), (16.6, 0.05), (1.9, 0.05)
    for stage, (expected, rounding) in enumerate(published):
        what = f"7.5e9 parameters on 64 ranks, ZeRO stage {stage}"
        gigabytes = state_bytes(7_500_000_000, stage, 64) / 1e9
        rows.append(row(what, gigabytes, expected, rounding, "GB", "zero, figure 1"))
    return rows
