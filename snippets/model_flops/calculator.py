"""The arithmetic of a transformer as a form: its inputs, and what follows from them."""

from __future__ import annotations

from typing import Any

from snippets.model_flops.model_flops import (
    Decoder,
    Experts,
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

INPUTS = (
    {
        "name": "layers", "label": "Layers", "group": "Model", "kind": "integer",
        "default": 32, "least": 1, "most": 1000, "unit": "",
        "help": "Transformer layers.",
    },
    {
        "name": "hidden", "label": "Hidden size", "group": "Model", "kind": "integer",
        "default": 4096, "least": 1, "most": 1_000_000, "unit": "",
        "help": "Width of the residual stream.",
    },
    {
        "name": "heads", "label": "Query heads", "group": "Model", "kind": "integer",
        "default": 32, "least": 1, "most": 4096, "unit": "",
        "help": "Attention heads of a layer.",
    },
    {
        "name": "kv_heads", "label": "Key and value heads", "group": "Model",
        "kind": "integer", "default": 8, "least": 1, "most": 4096, "unit": "",
        "help": "Fewer than query heads where groups share them.",
    },
    {
        "name": "head_dim", "label": "Head width", "group": "Model", "kind": "integer",
        "default": 128, "least": 1, "most": 65_536, "unit": "",
        "help": "Elements of one head's query.",
    },
    {
        "name": "feed_forward", "label": "Feed-forward size", "group": "Model",
        "kind": "integer", "default": 14336, "least": 1, "most": 10_000_000, "unit": "",
        "help": "Inner width, of one expert where there are several.",
    },
    {
        "name": "gated", "label": "Gated feed-forward", "group": "Model",
        "kind": "flag", "default": True,
        "help": "Three matrices, as in SwiGLU, instead of two.",
    },
    {
        "name": "vocabulary", "label": "Vocabulary", "group": "Model",
        "kind": "integer", "default": 128256, "least": 1, "most": 10_000_000,
        "unit": "tokens", "help": "Rows of the embedding table.",
    },
    {
        "name": "tied", "label": "Tied output", "group": "Model", "kind": "flag",
        "default": False, "help": "The output matrix is the embedding table.",
    },
    {
        "name": "experts", "label": "Experts", "group": "Experts", "kind": "integer",
        "default": 1, "least": 1, "most": 4096, "unit": "",
        "help": "Of each layer; 1 is a dense model.",
    },
    {
        "name": "chosen", "label": "Experts that a token meets", "group": "Experts",
        "kind": "integer", "default": 1, "least": 1, "most": 4096, "unit": "",
        "help": "Chosen by the router.",
    },
    {
        "name": "sequence", "label": "Sequence", "group": "Work", "kind": "integer",
        "default": 8192, "least": 1, "most": 100_000_000, "unit": "tokens",
        "help": "Attention's work grows with it.",
    },
    {
        "name": "causal", "label": "Causal count", "group": "Work", "kind": "flag",
        "default": False,
        "help": "Count only the keys that a token sees; papers count all.",
    },
    {
        "name": "tokens", "label": "Training tokens", "group": "Work", "kind": "number",
        "default": 15e12, "least": 1, "most": 1e18, "unit": "",
        "help": "Of the whole run.",
    },
    {
        "name": "stage", "label": "ZeRO stage", "group": "Work", "kind": "choice",
        "default": "0", "choices": ("0", "1", "2", "3"),
        "help": "What of the state is split over the ranks.",
    },
    {
        "name": "ranks", "label": "Data-parallel ranks", "group": "Work",
        "kind": "integer", "default": 8, "least": 1, "most": 1_000_000, "unit": "",
        "help": "Over which the state is split.",
    },
)  # fmt: skip
SEQUENCES = tuple(2**power for power in range(9, 21))


def model_of(inputs: dict[str, Any]) -> Decoder:
    """The decoder that the form describes."""
    if inputs["heads"] % inputs["kv_heads"]:
        raise ValueError(
            f"model_flops: {inputs['kv_heads']} key and value heads do not divide "
            f"{inputs['heads']} query heads; use a divisor"
        )
    if inputs["chosen"] > inputs["experts"]:
        raise ValueError(
            f"model_flops: a token cannot meet {inputs['chosen']} of "
            f"{inputs['experts']} experts; choose at most {inputs['experts']}"
        )
    mixture = None
    if inputs["experts"] > 1:
        mixture = Experts(inputs["experts"], inputs["chosen"], inputs["feed_forward"])
    return Decoder(
        inputs["layers"], inputs["hidden"], inputs["heads"], inputs["kv_heads"],
        inputs["head_dim"], inputs["feed_forward"], inputs["vocabulary"],
        gated=inputs["gated"], tied=inputs["tied"], experts=mixture,
    )  # fmt: skip


def calculate(**inputs: Any) -> dict[str, Any]:
    """Parameters, FLOPs and bytes of the model that the form describes."""
    model, sequence = model_of(inputs), inputs["sequence"]
    total, active = parameters(model), parameters(model, active=True)
    work = training_flops_per_token(model, sequence, inputs["causal"])
    forward = flops_per_token(model, sequence, inputs["causal"])
    scores = forward - 2 * multiplied(model)
    state = state_bytes(total, int(inputs["stage"]), inputs["ranks"])
    attended = model.layers * attention_weights(model)
    fed = feed_forward_weights(model, active=True)
    parts = (
        ("attention matrices", 2 * attended),
        ("attention scores", scores),
        ("feed-forward", 2 * fed),
        ("output matrix", 2 * model.vocabulary * model.hidden),
    )
    split = ("16", "(4 + 12 / ranks)", "(2 + 14 / ranks)", "16 / ranks")
    return {
        "answer": (
            f"{total / 1e9:.2f} billion parameters, {work / 1e9:.1f} GFLOP of training "
            f"for each token of a sequence of {sequence}"
        ),
        "rows": (
            line(
                "parameters", total, "",
                "tables + layers * (attention + feed-forward + norms) + norm",
                "llama3-herd", "Llama 3.1 8B: parameters",
            ),
            line(
                "active parameters", active, "",
                "parameters without the experts that a token does not meet",
                "deepseek-v3", "Mixtral 8x7B: active",
            ),
            line(
                "6 N, a token", six_n(model), "FLOP", "6 * active parameters",
                "scaling-laws", "GPT-3 175B: 6 N on 300e9 tokens",
            ),
            line(
                "training, a token", work, "FLOP",
                "3 * (2 * multiplied + 4 * layers * heads * head width * keys seen)",
                "reducing-activation-recomputation",
                "GPT-3 175B: training FLOPs per token, s = 2048",
            ),
            line(
                "training run", work * inputs["tokens"], "FLOP", "training * tokens",
                "scaling-laws", "Llama 3.1 405B: 6 N on 15.6e12 tokens",
            ),
            line(
                "weights, gradients and optimizer, a rank", state, "B",
                f"{split[int(inputs['stage'])]} * parameters",
                "zero", "7.5e9 parameters on 64 ranks, ZeRO stage 0",
            ),
            line(
                "cache of a sequence", cache_bytes_per_token(model) * sequence, "B",
                "2 * layers * key and value heads * head width * 2 bytes * sequence",
                "paged-attention", "OPT-13B: cache of a token",
            ),
        ),
        "plots": (
            {
                "kind": "bars", "title": "Forward FLOPs of a token, by part",
                "x": "part", "y": "FLOP",
                "series": ({"name": "forward", "points": parts},), "limit": None,
            },
            {
                "kind": "lines", "title": "Training FLOPs of a token over the sequence",
                "x": "sequence, tokens", "y": "FLOP",
                "series": (
                    {
                        "name": "counted",
                        "points": tuple(
                            (
                                length,
                                training_flops_per_token(
                                    model, length, inputs["causal"]
                                ),
                            )
                            for length in SEQUENCES
                        ),
                    },
                ),
                "limit": {"name": "6 N", "value": six_n(model)},
            },
        ),
        "band": None,
        "notes": (
            "Biases, LayerNorm's second vector and learned positions are left out.",
            "Latent attention and shared experts are in the code, not in this form.",
        ),
    }  # fmt: skip


def line(
    name: str, value: float, unit: str, formula: str, source: str, test: str
) -> dict[str, Any]:
    """One row of the table."""
    return {
        "name": name, "value": value, "unit": unit,
        "formula": formula, "source": source, "test": test,
    }  # fmt: skip
