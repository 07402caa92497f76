"""Transformer arithmetic: parameters, FLOPs and memory follow from a dozen integers.

FLOPs   forward, per token: 2 for each parameter of a matrix that the token meets, and
        2 * layers * heads * (key + value width) * keys seen for attention's scores;
        training is 3 times that. The rule 6 N counts every parameter once and attention
        not at all
Bytes   weights, gradients and Adam's state: 16 per parameter in mixed precision, split
        over N ranks by ZeRO's stages: 4 + 12 / N, 2 + 14 / N, 16 / N. Activations of a
        GPT layer: s b h (34 + 5 a s / h) in 16 bits. Cache: 2 * layers * heads of K *
        width, per token
Error   exact where a count is published exactly, else within the rounding of the
        published figure
Raises  ValueError for a stage, a way of recomputation or a model that a formula does
        not cover
Source  gpt-3, llama3-herd, deepseek-v3, scaling-laws,
        reducing-activation-recomputation, zero, paged-attention
"""

from __future__ import annotations

from dataclasses import dataclass


# --8<-- [start:model]
@dataclass(frozen=True)
class Experts:
    """A mixture of experts as feed-forward, in all but the first `dense_layers`."""

    routed: int
    chosen: int  # routed experts that a token meets
    size: int  # width of one expert
    shared: int = 0  # experts that every token meets
    dense_layers: int = 0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: queries, and keys with values, pass a low rank."""

    query_rank: int  # 0 where queries pass none
    key_value_rank: int
    rotary: int  # width of the key part that carries the position, shared by the heads


@dataclass(frozen=True)
class Decoder:
    """A decoder-only transformer; `head_dim` is without `latent.rotary`."""

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


# --8<-- [start:weights]
def attention_weights(model: Decoder) -> int:
    """Elements of one layer's attention matrices."""
    values = model.heads * model.head_dim
    if model.latent is None:
        keys = model.kv_heads * model.head_dim
        return model.hidden * (2 * values + 2 * keys)
    rank, rotary = model.latent, model.latent.rotary
    queries = model.heads * (model.head_dim + rotary)
    into = model.hidden * queries
    if rank.query_rank:
        into = (model.hidden + queries) * rank.query_rank
    down = model.hidden * (rank.key_value_rank + rotary)
    return into + down + rank.key_value_rank * 2 * values + values * model.hidden


def feed_forward_weights(model: Decoder, active: bool) -> int:
    """Elements of all layers' feed-forward matrices: that a token meets, or all."""
    matrices = 3 if model.gated else 2
    dense = matrices * model.hidden * model.feed_forward
    mixture = model.experts
    if mixture is None:
        return model.layers * dense
    met = mixture.shared + (mixture.chosen if active else mixture.routed)
    layer = (
        matrices * model.hidden * mixture.size * met + model.hidden * mixture.routed
    )  # router
    return mixture.dense_layers * dense + (model.layers - mixture.dense_layers) * layer
# --8<-- [end:weights]


def vectors(model: Decoder) -> int:
    """Norms and biases of the whole model."""
    norm = model.hidden * (2 if model.biases else 1)
    layer = 2 * norm
    if model.latent is not None:
        layer += model.latent.query_rank + model.latent.key_value_rank
    if model.biases:
        attention = (model.heads + 2 * model.kv_heads) * model.head_dim + model.hidden
        layer += (
            attention + model.feed_forward * (2 if model.gated else 1) + model.hidden
        )
    return model.layers * layer + norm


def parameters(model: Decoder, active: bool = False) -> int:
    """All parameters; or, `active`, all but the experts that a token does not meet."""
    table = model.vocabulary * model.hidden
    tables = table * (1 if model.tied else 2) + model.positions * model.hidden
    matrices = model.layers * attention_weights(model) + feed_forward_weights(
        model, active
    )
    return tables + matrices + vectors(model)


def multiplied(model: Decoder) -> int:
    """Elements of the matrices that a token is multiplied with, so of no embedding."""
    output = model.vocabulary * model.hidden
    return (
        model.layers * attention_weights(model)
        + feed_forward_weights(model, True)
        + output
    )


# --8<-- [start:flops]
def flops_per_token(model: Decoder, sequence: int, causal: bool = False) -> int:
    """Forward FLOPs, mean over a sequence.

    Papers count attention to all its keys, `causal` only to those that a token sees.
    """
    widths = 2 * model.head_dim + (model.latent.rotary if model.latent else 0)
    full = 2 * model.layers * model.heads * widths * sequence
    attention = full * (sequence + 1) // (2 * sequence) if causal else full
    return 2 * multiplied(model) + attention


def training_flops_per_token(
    model: Decoder, sequence: int, causal: bool = False
) -> int:
    """Forward and backward, which multiplies twice: for the input and the weight."""
    return 3 * flops_per_token(model, sequence, causal)
# --8<-- [end:flops]


def six_n(model: Decoder) -> int:
    """The rule of thumb for training FLOPs per token, 6 N, over active parameters."""
    return 6 * parameters(model, active=True)


def state_bytes(count: int, stage: int = 0, ranks: int = 1) -> float:
    """Bytes per rank of 16-bit weights (2), gradients (2) and Adam's fp32 state (12).

    ZeRO's stage says what is split over the ranks: 1 the state, 2 also gradients,
    3 also weights.
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"model_flops: ZeRO stage {stage} is not 0, 1, 2 or 3")
    if ranks < 1:
        raise ValueError(f"model_flops: ranks = {ranks} is below 1; give at least one")
    whole, split = ((16, 0), (4, 12), (2, 14), (0, 16))[stage]
    return whole * count + split * count / ranks


def cache_bytes_per_token(model: Decoder, element: int = 2) -> int:
    """Bytes of keys and values kept for a token, elements of `element` bytes."""
    if model.latent is not None:
        return (
            model.layers * (model.latent.key_value_rank + model.latent.rotary) * element
        )
    return model.layers * 2 * model.kv_heads * model.head_dim * element


def activation_bytes(
    model: Decoder,
    sequence: int,
    batch: int = 1,
    recompute: str = "none",
    dropout: bool = False,
) -> int:
    """Bytes that the layers of a dense model keep for the backward, 16 bits an element.

    What each operation needs again is kept: with dropout (its masks take a byte) and
    GPT's widths that is s b h (34 + 5 a s / h) a layer. `recompute` "selective" makes
    the scores anew, as flash attention does; "full" keeps each layer's input alone.
    """
    if recompute not in ("none", "selective", "full"):
        raise ValueError(
            f"model_flops: recompute = {recompute!r} is unknown; "
            "use none, selective or full"
        )
    if model.experts or model.latent:
        raise ValueError(
            "model_flops: activation_bytes covers dense models without latents"
        )
    hidden, values = model.hidden, model.heads * model.head_dim
    mask = hidden if dropout else 0
    # input; query; key and value; input of the output matrix; mask
    attention = (
        2 * hidden
        + 2 * values
        + 4 * model.kv_heads * model.head_dim
        + 2 * values
        + mask
    )
    # softmax's output; with dropout also its mask and its output
    scores = model.heads * sequence * (5 if dropout else 2)
    # input; what the activation takes and gives; gated also its factor and the product;
    # mask
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
    96,
    12288,
    96,
    96,
    128,
    4 * 12288,
    50257,
    gated=False,
    tied=True,
    biases=True,
    positions=2048,
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
        32, 4096, 32, 8, 128, 14336, 32000,
        experts=Experts(routed=8, chosen=2, size=14336),
    ),
    "DeepSeek-V3": Decoder(
        61, 7168, 128, 128, 128, 18432, 129280,
        experts=Experts(routed=256, chosen=8, size=2048, shared=1, dense_layers=3),
        latent=Latent(query_rank=1536, key_value_rank=512, rotary=64),
    ),
}  # fmt: skip


def demo() -> None:
    """A table of published models: sizes, FLOPs, memory before anything is sharded."""
    sequence = 2048
    assumed = "activations of one sequence, scores made anew"
    print(f"training, sequences of {sequence}; {assumed}")
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
