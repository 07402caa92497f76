"""Transformer arithmetic: parameters, FLOPs per token and memory follow from a dozen integers.

FLOPs   forward, per token: 2 for each parameter of a matrix that the token meets, and
        2 * layers * heads * (key + value width) * keys seen for attention's scores; training is 3
        times that. The rule 6 N counts every parameter once and attention not at all
Bytes   weights, gradients and Adam's state: 16 per parameter in mixed precision, split over N
        ranks by ZeRO's stages: 4 + 12 / N, 2 + 14 / N, 16 / N. Activations of a GPT layer:
        s b h (34 + 5 a s / h) in 16 bits. Cache: 2 * layers * heads of K * width, per token
Error   exact where a count is published exactly, else within the rounding of the published figure
Raises  ValueError for a stage, a way of recomputation or a model that a formula does not cover
Source  gpt-3, llama3-herd, deepseek-v3, scaling-laws, reducing-activation-recomputation, zero,
        paged-attention
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


# --8<-- [start:model]
@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward, in all but the first `dense_layers`."""

    routed: int
    chosen: int  # routed experts that a token meets
    size: int  # width of one expert
    shared: int = 0  # experts that every token meets
    dense_layers: int = 0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: queries, and keys with values, pass through a low rank."""

    query_rank: int
    key_value_rank: int
    rotary: int  # width of the key part that carries the position, shared by the heads


@dataclass(frozen=True)
class Decoder:
    """A decoder-only transformer. Widths are in elements; `head_dim` is without `latent.rotary`."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    gated: bool = True  # three feed-forward matrices instead of two
    tied: bool = False  # the output matrix is the embedding table
    biases: bool = False  # on every matrix, and LayerNorm instead of RMSNorm
    positions: int = 0  # rows of a learned position table
    experts: Experts | None = None
    latent: Latent | None = None


def attention_weights(model: Decoder) -> int:
    """Elements of one layer's attention matrices."""
    values = model.heads * model.head_dim
    if model.latent is None:
        keys = model.kv_heads * model.head_dim
        return model.hidden * (2 * values + 2 * keys)
    rank, rotary = model.latent, model.latent.rotary
    queries = (model.hidden + model.heads * (model.head_dim + rotary)) * rank.query_rank
    down = model.hidden * (rank.key_value_rank + rotary)
    return queries + down + rank.key_value_rank * 2 * values + values * model.hidden


def feed_forward_weights(model: Decoder, active: bool) -> int:
    """Elements of all layers' feed-forward matrices: those that a token meets, or all."""
    matrices = 3 if model.gated else 2
    dense = matrices * model.hidden * model.feed_forward
    mixture = model.experts
    if mixture is None:
        return model.layers * dense
    met = mixture.shared + (mixture.chosen if active else mixture.routed)
    layer = matrices * model.hidden * mixture.size * met + model.hidden * mixture.routed  # router
    return mixture.dense_layers * dense + (model.layers - mixture.dense_layers) * layer


def vectors(model: Decoder) -> int:
    """Norms and biases of the whole model."""
    norm = model.hidden * (2 if model.biases else 1)
    layer = 2 * norm
    if model.latent is not None:
        layer += model.latent.query_rank + model.latent.key_value_rank
    if model.biases:
        attention = (model.heads + 2 * model.kv_heads) * model.head_dim + model.hidden
        layer += attention + model.feed_forward * (2 if model.gated else 1) + model.hidden
    return model.layers * layer + norm


def parameters(model: Decoder, active: bool = False) -> int:
    """All parameters; or, `active`, all but the experts that a token does not meet."""
    table = model.vocabulary * model.hidden
    tables = table * (1 if model.tied else 2) + model.positions * model.hidden
    matrices = model.layers * attention_weights(model) + feed_forward_weights(model, active)
    return tables + matrices + vectors(model)


def multiplied(model: Decoder) -> int:
    """Elements of the matrices that one token is multiplied with: an embedding is looked up."""
    output = model.vocabulary * model.hidden
    return model.layers * attention_weights(model) + feed_forward_weights(model, True) + output


def flops_per_token(model: Decoder, sequence: int, causal: bool = False) -> int:
    """Forward FLOPs, mean over a sequence; papers count all its keys, `causal` only those seen."""
    widths = 2 * model.head_dim + (model.latent.rotary if model.latent else 0)
    full = 2 * model.layers * model.heads * widths * sequence
    attention = full * (sequence + 1) // (2 * sequence) if causal else full
    return 2 * multiplied(model) + attention


def training_flops_per_token(model: Decoder, sequence: int, causal: bool = False) -> int:
    """Forward and backward: the backward multiplies twice, for the input and for the weight."""
    return 3 * flops_per_token(model, sequence, causal)


def six_n(model: Decoder) -> int:
    """The rule of thumb for training FLOPs per token, 6 N, over active parameters."""
    return 6 * parameters(model, active=True)


def state_bytes(count: int, stage: int = 0, ranks: int = 1) -> float:
    """Bytes per rank of 16-bit weights (2) and gradients (2) and Adam's fp32 state (12).

    ZeRO's stage says what is split over the ranks: 1 the state, 2 also gradients, 3 also weights.
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"model_flops: ZeRO stage {stage} is not 0, 1, 2 or 3")
    if ranks < 1:
        raise ValueError(f"model_flops: ranks = {ranks} is below 1; give at least one")
    whole, split = ((16, 0), (4, 12), (2, 14), (0, 16))[stage]
    return whole * count + split * count / ranks


def cache_bytes_per_token(model: Decoder, element: int = 2) -> int:
    """Bytes of keys and values that decoding keeps for one token, `element` bytes each."""
    if model.latent is not None:
        return model.layers * (model.latent.key_value_rank + model.latent.rotary) * element
    return model.layers * 2 * model.kv_heads * model.head_dim * element


def activation_bytes(
    model: Decoder,
    sequence: int,
    batch: int = 1,
    recompute: str = "none",
    dropout: bool = False,
) -> int:
    """Bytes that the layers of a dense model keep for the backward, 16 bits an element.

    What each operation needs again is kept: with dropout (its masks take a byte) and GPT's
    widths that is s b h (34 + 5 a s / h) a layer. `recompute` "selective" makes the scores anew,
    as flash attention does; "full" keeps each layer's input alone.
    """
    if recompute not in ("none", "selective", "full"):
        raise ValueError(
            f"model_flops: recompute = {recompute!r} is unknown; use none, selective or full"
        )
    if model.experts or model.latent:
        raise ValueError("model_flops: activation_bytes covers dense models without latents")
    hidden, values = model.hidden, model.heads * model.head_dim
    mask = hidden if dropout else 0
    # input; query; key and value; input of the output matrix; mask
    attention = 2 * hidden + 2 * values + 4 * model.kv_heads * model.head_dim + 2 * values + mask
    # softmax's output; with dropout also its mask and its output
    scores = model.heads * sequence * (5 if dropout else 2)
    # input; what the activation takes and gives; gated also its factor and the product; mask
    feed_forward = 2 * hidden + model.feed_forward * (8 if model.gated else 4) + mask
    norms = 4 * hidden
    kept = {
        "none": attention + scores + feed_forward + norms,
        "selective": attention + feed_forward + norms,
        "full": 2 * hidden,
    }
    return sequence * batch * model.layers * kept[recompute]


# --8<-- [end:model]


GPT3 = Decoder(
    96, 12288, 96, 96, 128, 4 * 12288, 50257, gated=False, tied=True, biases=True, positions=2048
)
MODELS = {
    "GPT-3 175B": GPT3,
    "Llama 2 7B": Decoder(32, 4096, 32, 32, 128, 11008, 32000),
    "Llama 2 13B": Decoder(40, 5120, 40, 40, 128, 13824, 32000),
    "Llama 2 70B": Decoder(80, 8192, 64, 8, 128, 28672, 32000),
    "Llama 3.1 8B": Decoder(32, 4096, 32, 8, 128, 14336, 128256),
    "Llama 3.1 70B": Decoder(80, 8192, 64, 8, 128, 28672, 128256),
    "Llama 3.1 405B": Decoder(126, 16384, 128, 8, 128, 53248, 128256),
    "Mixtral 8x7B": Decoder(
        32, 4096, 32, 8, 128, 14336, 32000, experts=Experts(routed=8, chosen=2, size=14336)
    ),
    "DeepSeek-V3": Decoder(
        61, 7168, 128, 128, 128, 18432, 129280,
        experts=Experts(routed=256, chosen=8, size=2048, shared=1, dense_layers=3),
        latent=Latent(query_rank=1536, key_value_rank=512, rotary=64),
    ),
}  # fmt: skip
# Only for memory: their vocabularies are not checked against anything.
OPT_13B = Decoder(40, 5120, 40, 40, 128, 4 * 5120, 50272, gated=False, biases=True)
MT_NLG = Decoder(105, 20480, 128, 128, 160, 4 * 20480, 50257, gated=False, biases=True)

# Values in a published checkpoint. Llama 2's also store head_dim / 2 rotary frequencies a layer.
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
    """One fact; `rounding` is half of the published figure's last digit, 0 if it is exact."""
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
        source = f"safetensors total of {checkpoint}"
        rows.append(row(f"{name}: {what}", parameters(model) + rotary, expected, 0, "", source))
    mixtral, deepseek = MODELS["Mixtral 8x7B"], MODELS["DeepSeek-V3"]
    announced = "Mistral AI, Mixtral of experts, 2023: 12.9B"
    return [
        row("GPT-3 175B: parameters", parameters(GPT3), 174_600e6, 50e6, "", "gpt-3"),
        *rows,
        row("Mixtral 8x7B: active", parameters(mixtral, True), 12.9e9, 0.05e9, "", announced),
        row("DeepSeek-V3: parameters", parameters(deepseek), 671e9, 0.5e9, "", "deepseek-v3"),
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
        row("GPT-3 175B: 6 N on 300e9 tokens", six_n(GPT3) * 300e9, 3.14e23, 0.005e23, "FLOP",
            "gpt-3"),
        row("GPT-3 175B: training FLOPs per token, s = 2048", ours, formula, 0, "FLOP", closed),
        row("Llama 3.1 405B: 6 N on 15.6e12 tokens", six_n(llama) * 15.6e12, 3.8e25, 0.05e25,
            "FLOP", "llama3-herd"),
    ]  # fmt: skip


def byte_facts() -> list[dict[str, Any]]:
    """Activation memory and ZeRO's stages against the papers that introduce them."""
    paper = "reducing-activation-recomputation"
    rows = []
    for name, model, saved in (("GPT-3 175B", GPT3, 0.70), ("MT-NLG 530B", MT_NLG, 0.65)):
        kept = activation_bytes(model, 2048, dropout=True)
        selective = activation_bytes(model, 2048, recompute="selective", dropout=True)
        what = f"{name}: activation memory saved by selective recomputation, s = 2048"
        rows.append(row(what, 1 - selective / kept, saved, 0.005, "", paper))
    s, h, a = 2048, GPT3.hidden, GPT3.heads
    layer = activation_bytes(GPT3, s, dropout=True) // GPT3.layers
    what = "GPT-3 175B: activation bytes of a layer, s = 2048, b = 1"
    rows.append(row(what, layer, 34 * s * h + 5 * a * s * s, 0, "B", f"sbh (34 + 5as/h), {paper}"))
    what, source = "OPT-13B: cache of a token", "2 * 5120 * 40 * 2, paged-attention"
    rows.append(row(what, cache_bytes_per_token(OPT_13B), 819_200, 0, "B", source))
    published = (120, 0), (31.4, 0.05), (16.6, 0.05), (1.9, 0.05)
    for stage, (expected, rounding) in enumerate(published):
        what = f"7.5e9 parameters on 64 ranks, ZeRO stage {stage}"
        gigabytes = state_bytes(7_500_000_000, stage, 64) / 1e9
        rows.append(row(what, gigabytes, expected, rounding, "GB", "zero, figure 1"))
    return rows


def demo() -> None:
    """A table of published models: sizes, FLOPs, and memory before anything is sharded."""
    sequence = 2048
    print(f"training, sequences of {sequence}; activations of one sequence, scores made anew")
    heads = ("params", "active", "6 N", "FLOPs", "state", "activat.")
    units = ("1e9", "1e9", "G/token", "G/token", "GB", "GB")
    for cells in (heads, units):
        print(" " * 15 + "".join(f"{cell:>9}" for cell in cells))
    for name, model in MODELS.items():
        total = parameters(model)
        columns = [
            total,
            parameters(model, active=True),
            six_n(model),
            training_flops_per_token(model, sequence, causal=True),
            state_bytes(total),
        ]
        line = f"{name:15}" + "".join(f"{value / 1e9:9.1f}" for value in columns)
        if model.experts is None:
            kept = activation_bytes(model, sequence, recompute="selective")
            print(f"{line}{kept / 1e9:9.1f}")
        else:
            print(f"{line}{'-':>9}")
    print("- : the activation formula covers dense models")


if __name__ == "__main__":
    demo()
