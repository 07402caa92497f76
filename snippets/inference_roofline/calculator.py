"""The form of inference_roofline: how fast a model answers, and how many fit."""

from __future__ import annotations

from typing import Any

from snippets.inference_roofline.described import described
from snippets.inference_roofline.inference_roofline import (
    Draft,
    Speeds,
    cache_bytes,
    check,
    generate,
    most,
    need,
    prefill,
    step,
    weight_bytes,
)
from snippets.inference_roofline.machines import GROUPED, MACHINES, V6_A100, V6_H100
from snippets.inference_roofline.passes import Costs, Pass, Serving
from snippets.model_flops.model_flops import MODELS

TODAY, THEN = "shared keys read once, steps as graphs", "TensorRT-LLM 0.6.1, 2023"
OLD = {"A100": V6_A100, "H100": V6_H100}
BITS = ("16", "8", "4")


def _integer(name: str, label: str, group: str, default: int, most: int, unit: str,
             help: str, least: int = 1) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "label": label, "group": group, "kind": "integer",
            "default": default, "least": least, "most": most, "unit": unit,
            "help": help}  # fmt: skip


def _choice(name: str, label: str, group: str, choices: tuple[str, ...], default: str,
            help: str) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "label": label, "group": group, "kind": "choice",
            "choices": choices, "default": default, "unit": "",
            "help": help}  # fmt: skip


INPUTS = (
    _choice("model", "Model", "Model", tuple(MODELS), "Llama 3.1 70B",
            "A decoder whose sizes are known here."),
    {"name": "config", "label": "config.json", "group": "Model", "kind": "config",
     "default": "", "unit": "", "help": "A model's own file, in place of the choice."},
    _choice("weights", "Weights", "Model", BITS, "8", "Bits of a weight."),
    _choice("activations", "Activations", "Model", ("16", "8"), "8",
            "Bits of what the products take; 8 needs a GPU with 8-bit floats."),
    _choice("cache", "Cache", "Model", BITS, "8", "Bits of a key or value."),
    _integer("window", "Window", "Model", 0, 10_000_000, "keys",
             "Keys that a token sees in such a layer; 0 for none, or the file's.", 0),
    _integer("windowed", "Windowed layers", "Model", 0, 1000, "",
             "Layers with that window; 0 for none, or the file's.", 0),
    _choice("gpu", "GPU", "Machine", tuple(MACHINES), "H100", "Data-sheet limits."),
    _integer("tensor", "Tensor parallel", "Machine", 4, 64, "GPUs",
             "GPUs that split each layer and hold one batch."),
    _integer("expert", "Expert parallel", "Machine", 1, 1024, "GPUs",
             "GPUs that share a layer's experts; 1 splits each over tensor ranks."),
    _choice("engine", "Kernels", "Machine", (TODAY, THEN), TODAY,
            "The first is not fitted on anything; the second is what was measured."),
    _integer("batch", "Batch", "Load", 32, 100_000, "sequences",
             "Sequences that are served together, of one tensor group."),
    _integer("prompt", "Prompt", "Load", 2048, 10_000_000, "tokens", "Tokens of each."),
    _integer("answer", "Answer", "Load", 512, 10_000_000, "tokens", "Tokens of each."),
    _integer("guesses", "Guesses", "Speculation", 0, 32, "a round",
             "Tokens that a draft proposes and one pass checks; 0 for none.", 0),
    {"name": "acceptance", "label": "Kept", "group": "Speculation", "kind": "number",
     "default": 0.8, "least": 0.0, "most": 1.0, "unit": "",
     "help": "Probability that a guess is kept, each alike."},
    {"name": "guess", "label": "Cost of a guess", "group": "Speculation",
     "kind": "number", "default": 0.1, "least": 0.0, "most": 10.0,
     "unit": "of a step", "help": "What the draft takes for it."},
)  # fmt: skip


def calculate(**inputs: Any) -> dict[str, Any]:
    """Times, rates and bytes for the values of INPUTS."""
    asked = {one["name"]: one["default"] for one in INPUTS} | inputs
    machine = MACHINES[asked["gpu"]]
    model, window, windowed, read = described(asked["model"], asked["config"])
    known = GROUPED if asked["engine"] == TODAY else OLD
    need(asked["gpu"] in known,
         f"{THEN} is known on {' and '.join(OLD)}, not {asked['gpu']}; "
         "choose the other kernels")  # fmt: skip
    serving = Serving(
        weights=int(asked["weights"]),
        activations=int(asked["activations"]),
        cache=int(asked["cache"]),
        tensor=asked["tensor"],
        expert=asked["expert"],
        window=asked["window"] or window,
        windowed=asked["windowed"] or windowed,
    )
    costs = Costs(model, serving, machine, known[asked["gpu"]])
    batch, prompt, answer = asked["batch"], asked["prompt"], asked["answer"]
    check(costs, batch=batch, prompt=prompt, answer=answer)
    draft = None
    if asked["guesses"]:
        draft = Draft(asked["guesses"], asked["acceptance"], asked["guess"])
    tokens = prompt + answer
    weights, each = weight_bytes(model, serving), cache_bytes(model, serving, tokens)
    fit = most(model, serving, machine, tokens)
    told = generate(costs, batch, prompt, answer, draft)
    parts = step(costs, batch, prompt + answer / 2)
    first = prefill(costs, batch, prompt)
    sizes = _sizes(max(fit, batch))
    curve = [generate(costs, one, prompt, answer, draft) for one in sizes]
    rows = [
        _row("weights", weights, "B", "bits / 8 * parameters / GPUs; tables in 16 bits",
             "zero", "Llama 2 70B: weights on 8 GPUs together"),
        _row("cache of a sequence", each, "B",
             "2 layers * heads of K * width * bits / 8 * tokens / GPUs",
             "paged-attention", "Llama 2 70B: cache on 8 GPUs together"),
        _row("sequences that fit", fit, "", "(0.9 memory - weights) / cache",
             "paged-attention",
             "Llama 3.1 8B: sequences of 4096 on 80 GB, a tenth kept free"),
        _row("time to first token", told.first, "s", "a pass over all prompts",
             "databricks-llm-inference",
             "Llama 3.1 8B: operations of a prompt of 1024"),
        _row("time per output token", told.each, "s", "mean over the steps",
             "databricks-llm-inference",
             "Llama 3.1 8B: bytes of cache that a step reads"),
        _row("output tokens/s of a GPU", told.throughput, "1/s",
             "batch * answer / seconds / GPUs", "tensorrt-llm-performance", SERVED),
        _row("output tokens/s of a sequence", 1 / told.each if told.each else 0.0,
             "1/s", "1 / time per output token", "databricks-llm-inference",
             SERVED),
        *(
            _row(f"a step's {name}", value, "s", formula, source, test)
            for (name, formula, source, test), value in zip(PARTS, parts, strict=True)
        ),
    ]  # fmt: skip
    if draft is not None:
        rows.append(
            _row("tokens of a round", draft.tokens, "", "1 + a + a^2 + ... + a^guesses",
                 "speculative-decoding", "tokens of a round, 4 guesses kept with 0.8")
        )  # fmt: skip
    return {
        "answer": _answer(batch, fit, told.first, told.each, told.throughput),
        "rows": tuple(rows),
        "plots": _plots(sizes, curve, parts, first),
        "band": BAND if asked["engine"] == THEN else None,
        "notes": (*read, *(NOTES if asked["engine"] == THEN else (*NOTES, UNFITTED))),
    }  # fmt: skip


SERVED = "static batches and first tokens, no row of the model seen"  # a goal
PARTS = (
    ("products", "operations / rate + bytes / bandwidth, of each product",
     "llm-viewer", "Llama 3.1 8B: bytes of products, a token"),
    ("attention", "largest of bytes / bandwidth, operations / rate, reads / L2",
     "paged-attention", "Llama 3.1 8B: bytes of cache that a step reads"),
    ("norms and sums", "bytes written and read between products / bandwidth",
     "llm-viewer", SERVED),
    ("messages", "2 (t - 1) / t * batch * hidden * 2 bytes / link, twice a layer",
     "databricks-llm-inference", SERVED),
    ("gaps", "kernels * seconds between two", "databricks-llm-inference", SERVED),
)  # fmt: skip
NOTES = (
    "A static batch: all prompts are read in one pass, then all sequences go on "
    "together. No queue, no chunks, nothing overlaps.",
    "Experts are chosen evenly; a busy expert makes a step longer.",
)
BAND = {
    "set": "TensorRT-LLM 0.6.1, throughput, by constants of the other models",
    "within": 0.10,
}
UNFITTED = "These kernels were not in the rows that the constants are fitted on."


def _row(name: str, value: float, unit: str, formula: str, source: str,
         test: str) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "value": value, "unit": unit, "formula": formula,
            "source": source, "test": test}  # fmt: skip


def _answer(batch: int, fit: int, first: float, each: float, rate: float) -> str:
    told = f"{1e3 * first:.4g} ms to the first token, {1e3 * each:.4g} ms for each more"
    if batch > fit:
        return f"A batch of {batch} does not fit, at most {fit}; it would take {told}."
    return f"{told}; {rate:.4g} output tokens a second and GPU."


def _plots(
    sizes: list[int], told: list[Speeds], parts: Pass, first: Pass
) -> tuple[dict[str, Any], ...]:
    """Throughput and time per token by batch, and the parts of both passes."""

    def plot(kind: str, title: str, x: str, y: str, name: str, points: Any) -> dict:
        series = {"name": name, "points": tuple(points)}
        return {"kind": kind, "title": title, "x": x, "y": y, "series": (series,),
                "limit": None}  # fmt: skip

    def shares(title: str, name: str, one: Pass) -> dict:
        names = [part[0] for part in PARTS]
        points = zip(names, [1e3 * seconds for seconds in one], strict=True)
        return plot("bars", title, "", "ms", name, points)

    batch = "sequences of a batch"
    rates = [(n, one.throughput) for n, one in zip(sizes, told, strict=True)]
    each = [(n, 1e3 * one.each) for n, one in zip(sizes, told, strict=True)]
    return (
        plot("lines", "Throughput by batch", batch, "output tokens/s of a GPU",
             "predicted", rates),
        plot("lines", "Time per output token by batch", batch, "ms", "predicted", each),
        shares("Where a decode step's time goes", "decode step", parts),
        shares("Where the first token's time goes", "prefill", first),
    )  # fmt: skip


def _sizes(top: int) -> list[int]:
    """Powers of two below `top`, and it."""
    sizes = [1]
    while 2 * sizes[-1] < top:
        sizes.append(2 * sizes[-1])
    return sorted({*sizes, top})
