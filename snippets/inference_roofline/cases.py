"""What inference_roofline must show: exact counts, published speeds and the errors."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from math import inf, log
from pathlib import Path
from typing import Any

from snippets.facts import fact
from snippets.inference_roofline import machines
from snippets.inference_roofline.fitting import fitted
from snippets.inference_roofline.inference_roofline import (
    Draft,
    cache_bytes,
    generate,
    most,
    prefill,
    step,
    token_time,
    weight_bytes,
)
from snippets.inference_roofline.machines import GROUPED, MACHINES, Engine, Machine
from snippets.inference_roofline.passes import Costs, Serving
from snippets.model_flops.model_flops import (
    MODELS,
    Decoder,
    cache_bytes_per_token,
    flops_per_token,
    multiplied,
    parameters,
)

HERE = Path(__file__).parent
# Beside those of model_flops: what the published rows are of.
SERVED = {
    "GPT-J 6B": Decoder(28, 4096, 16, 16, 256, 16384, 50400, gated=False),
    "LLaMA 7B": MODELS["Llama 2 7B"],
    "LLaMA 70B": MODELS["Llama 2 70B"],
    "Falcon 180B": Decoder(80, 14848, 232, 8, 64, 4 * 14848, 65024, gated=False),
    "DeepSeek-V3": MODELS["DeepSeek-V3"],
}
THROUGHPUT = "TensorRT-LLM 0.6.1, throughput"
FIRST = "TensorRT-LLM 0.5, first token"
APART = ", by constants of the other models"
EXPERTS = "DeepSeek-V3 with expert parallelism"
PRODUCTS = "16-bit products of matrices"
FREE = ("bandwidth", "fp8 in 0.6.1", "ports", "fp8 in 0.5", "16 bits in 0.5")
Row = dict[str, str]

GOALS = (
    {
        "name": "static batches and first tokens, no row of the model seen",
        "sets": (THROUGHPUT + APART, FIRST + APART),
        "median": 0.10,
    },
    {"name": "the same, no row far off", "sets": (THROUGHPUT + APART,), "worst": 0.15},
    {"name": "products of matrices", "sets": (PRODUCTS,), "median": 0.10},
    {"name": "expert parallelism", "sets": (EXPERTS,), "worst": 0.25},
)


def table(name: str) -> list[Row]:
    """The rows of a file of published figures."""
    with (HERE / f"{name}.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def engine(row: Row, free: Sequence[float] | None = None) -> Engine:
    """The software of a row; `free` are other values of the fitted constants."""
    gpu = row["gpu"]
    if row["engine"] not in ("0.5", "0.6.1"):
        return GROUPED[gpu]
    chosen = {
        ("0.6.1", "A100"): machines.V6_A100,
        ("0.6.1", "H100"): machines.V6_H100,
        ("0.5", "A100"): machines.V5_A100,
        ("0.5", "H100"): machines.V5_H100,
    }[row["engine"], gpu]
    if free is None:
        return chosen
    bandwidth, new, ports, old, old_16 = free
    products = dict(chosen.products)
    if gpu == "H100":
        products[8] = new if row["engine"] == "0.6.1" else old
    elif row["engine"] == "0.5":
        products[16] = old_16
    return replace(chosen, bandwidth=bandwidth, ports=ports, products=products)


def predicted(
    row: Row, free: Sequence[float] | None = None, grouped: bool | None = None
) -> float:
    """What the model says of a row, in the row's unit."""
    made = engine(row, free)
    if grouped is not None:
        made = replace(made, grouped=grouped)
    serving = Serving(
        weights=int(row["weights"]),
        activations=int(row["weights"]),
        cache=int(row["cache"]),
        tensor=int(row["tensor"]),
        expert=int(row["expert"]),
    )
    model, machine = SERVED[row["model"]], MACHINES[row["gpu"]]
    costs = Costs(model, serving, machine, made)
    batch, prompt = int(row["batch"]), int(row["prompt"])
    if row["quantity"] == "first":
        return 1e3 * prefill(costs, batch, prompt).total
    if row["quantity"] == "prefill":
        return batch * prompt / prefill(costs, batch, prompt).total / serving.tensor
    if row["quantity"] == "step":
        return batch / step(costs, batch, prompt).total / serving.tensor
    return generate(costs, batch, prompt, int(row["answer"])).throughput


def fit(rows: Sequence[Row]) -> list[float]:
    """The constants in FREE, on `rows`."""

    def residuals(free: Sequence[float]) -> list[float]:
        return [log(predicted(row, free) / float(row["value"])) for row in rows]

    return fitted(residuals, len(FREE))


def predictions() -> list[dict[str, Any]]:
    """Published speeds: by constants that saw no row of the model, then all."""
    rows = table("published")
    told = [row for row in rows if row["engine"] in ("0.5", "0.6.1")]
    kinds = {"0.5": FIRST, "0.6.1": THROUGHPUT}
    left = {
        model: fit([row for row in told if row["model"] != model])
        for model in dict.fromkeys(row["model"] for row in told)
    }
    found = []
    for row in told:
        if sum(like(row, one) for one in told) > 1:
            value = predicted(row, left[row["model"]])
            found.append(prediction(row, kinds[row["engine"]] + APART, value, False))
    for row in told:
        found.append(prediction(row, kinds[row["engine"]], predicted(row), True))
    found += [
        prediction(row, EXPERTS, predicted(row), False)
        for row in rows
        if row not in told
    ]
    return found + products()


def like(row: Row, other: Row) -> bool:
    """Whether one constant at least is of these two alone: software and GPU agree."""
    return (row["engine"], row["gpu"]) == (other["engine"], other["gpu"])


def prediction(row: Row, name: str, value: float, seen: bool) -> dict[str, Any]:
    """A row of predictions()."""
    lengths = f"{row['batch']} of {row['prompt']} in"
    if row["answer"] != "1":
        lengths += f", {row['answer']} out"
    gpus = f"{row['tensor']} {row['gpu']}" if row["expert"] == "1" else row["gpu"]
    shared = "" if row["expert"] == "1" else f", experts over {row['expert']}"
    what = {"step": ", decode", "prefill": ", prefill"}.get(row["quantity"], "")
    return {
        "set": name,
        "name": f"{row['model']} on {gpus}{shared}{what}: {lengths}",
        "predicted": value,
        "published": float(row["value"]),
        "unit": row["unit"],
        "source": row["source"],
        "fitted": seen,
    }


def products() -> list[dict[str, Any]]:
    """Single products of matrices; one of each GPU gave its share for 16 bits."""
    found = []
    for row in table("products"):
        m, n, k = (int(row[key]) for key in "mnk")
        made = {"A100": machines.V6_A100, "H100": machines.V6_H100}[row["gpu"]]
        costs = Costs(SERVED["LLaMA 7B"], Serving(), MACHINES[row["gpu"]], made)
        seconds = costs.product(m, k, n, bits=int(row["bits"])) + made.gap
        found.append({
            "set": PRODUCTS,
            "name": f"{m} x {n} x {k} on {row['gpu']}",
            "predicted": 2 * m * n * k / seconds / 1e12,
            "published": float(row["value"]),
            "unit": row["unit"],
            "source": row["source"],
            "fitted": m == n == k,
        })  # fmt: skip
    return found


# A machine on which only one thing takes time: its seconds are operations, or bytes.
ONE = {16: 1.0, 8: 1.0}
FREE_OF_BYTES = Machine(inf, inf, ONE, inf, inf, inf)
FREE_OF_WORK = Machine(inf, 1.0, {16: inf, 8: inf}, inf, inf, inf)
EXACT = Engine(1.0, ONE, 1.0, 1.0, grouped=True, gap=0.0, message=0.0)


def facts() -> list[dict[str, Any]]:
    """Operations and bytes against counts of their own; speculation; agreement."""
    return counted() + stored() + guessed() + constants()


def counted() -> list[dict[str, Any]]:
    """A pass on a machine whose seconds are operations, or bytes."""
    rows, s = [], 1024
    for name in ("Llama 3.1 8B", "Mixtral 8x7B", "DeepSeek-V3"):
        model = MODELS[name]
        costs = Costs(model, Serving(), FREE_OF_BYTES, EXACT)
        told = prefill(costs, 1, s)
        spared = 2 * (s - 1) * model.hidden * model.vocabulary  # logits of all but one
        due = s * flops_per_token(model, s, causal=True) - spared
        rows.append(
            fact(f"{name}: operations of a prompt of {s}", told.total, due,
                 "model_flops, causal, logits of the last token", 1e-12, "FLOP")
        )  # fmt: skip
        costs = Costs(model, Serving(), FREE_OF_WORK, EXACT)
        told = step(costs, 1, s)
        kept = s * cache_bytes_per_token(model)
        rows.append(
            fact(f"{name}: bytes of cache that a step reads", told.attention, kept,
                 "model_flops, 16 bits", 1e-12, "B")
        )  # fmt: skip
        weights = 2 * multiplied(model)
        rows.append(
            fact(f"{name}: bytes of products, a token", told.products, weights,
                 "model_flops: weights that a token meets; rows on top", 1e-3, "B")
        )  # fmt: skip
    model = MODELS["DeepSeek-V3"]
    costs = Costs(model, Serving(), FREE_OF_BYTES, EXACT)
    due = 2 * model.layers * model.heads * (512 + 64 + 512) * s
    told = step(costs, 1, s).attention
    rows.append(
        fact("DeepSeek-V3: operations of absorbed attention, a token", told, due,
             "2 (576 + 512) a head and row, deepseek-v2", 1e-12, "FLOP")
    )  # fmt: skip
    costs = Costs(model, Serving(), FREE_OF_WORK, EXACT)
    batch = 10**6  # all experts wake
    told = step(costs, batch, 1).products - step(costs, batch - 1, 1).products
    rest = step(costs, batch, 1).products - batch * told
    tables = model.vocabulary * model.hidden  # the one that is looked up
    vectors = parameters(model) - tables - _matrices(model)
    due = 2 * (parameters(model) - tables - vectors)
    rows.append(
        fact("DeepSeek-V3: bytes of weights with every expert awake", rest, due,
             "all matrices, model_flops", 1e-6, "B")
    )  # fmt: skip
    return rows


def _matrices(model: Decoder) -> int:
    """Elements of all matrices, the embedding table not among them."""
    awake = replace(model, experts=replace(model.experts, chosen=model.experts.routed))
    return multiplied(awake)


def stored() -> list[dict[str, Any]]:
    """Memory: published sizes, and splits that must add up."""
    model, split = MODELS["Llama 2 70B"], Serving(tensor=8)
    small, deep = MODELS["Llama 3.1 8B"], MODELS["DeepSeek-V3"]
    windowed = Serving(window=4096, windowed=small.layers // 2)
    return [
        fact("Llama 2 70B: weights on 8 GPUs together", 8 * weight_bytes(model, split),
             2 * parameters(model), "2 bytes a parameter", 1e-12, "B"),
        fact("DeepSeek-V3: weights on 8 GPUs together, over those of one",
             8 * weight_bytes(deep, split) - weight_bytes(deep, Serving()),
             7 * 2 * deep.layers * deep.hidden * (1536 + 512 + 64),
             "into the latents on each, deepseek-v3", 1e-9, "B"),
        fact("Llama 2 70B: cache on 8 GPUs together",
             8 * cache_bytes(model, split, 100), 100 * cache_bytes_per_token(model),
             "model_flops", 1e-12, "B"),
        fact("Llama 2 70B on 16 GPUs: cache of a head of keys twice",
             16 * cache_bytes(model, Serving(tensor=16), 100),
             200 * cache_bytes_per_token(model), "8 heads of keys on 16", 1e-12, "B"),
        fact("DeepSeek-V3: a token's latent rows on each of 8 GPUs",
             cache_bytes(deep, split, 1), 70_272,
             "70.272 KB, deepseek-v3-insights, table 1", 1e-12, "B"),
        fact("half of the layers with a window of 4096, at 8192 tokens",
             cache_bytes(small, windowed, 8192), 6144 * cache_bytes_per_token(small),
             "16 layers of 4096, 16 of 8192", 1e-12, "B"),
        fact("Llama 3.1 8B: sequences of 4096 on 80 GB, a tenth kept free",
             most(small, Serving(), MACHINES["H100"], 4096), 104,
             "the exercise on inference engines"),
    ]  # fmt: skip


def guessed() -> list[dict[str, Any]]:
    """Speculation against its formulas."""
    costs = Costs(MODELS["Llama 3.1 8B"], Serving(), FREE_OF_WORK, EXACT)
    draft, plain = Draft(4, 0.8), step(costs, 1, 10**7).total
    a, k = draft.acceptance, draft.guesses
    gain = plain / token_time(costs, 1, 10**7, Draft(k, a, cost=0.1))
    return [
        fact("tokens of a round, 4 guesses kept with 0.8", draft.tokens,
             (1 - a ** (k + 1)) / (1 - a), "speculative-decoding", 1e-12),
        fact("gain where memory bounds, a guess a tenth of a step", gain,
             (1 - a ** (k + 1)) / (1 - a) / (1 + 0.1 * k), "speculative-decoding",
             1e-3),
    ]  # fmt: skip


def constants() -> list[dict[str, Any]]:
    """The constants of machines.py against a fit of all rows."""
    rows = table("published")
    every = fit([row for row in rows if row["engine"] in ("0.5", "0.6.1")])
    stated = (
        machines.BANDWIDTH, machines.V6_H100.products[8], machines.PORTS,
        machines.V5_H100.products[8], machines.V5_A100.products[16],
    )  # fmt: skip
    return [
        fact(f"constant: {name}", value, due, "least squares on all rows", 0.01)
        for name, value, due in zip(FREE, stated, every, strict=True)
    ]
