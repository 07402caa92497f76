"""The form of parallel_planner: a plan for a model and a cluster, and its limits."""

from __future__ import annotations

from math import fsum
from typing import Any

from snippets.model_configs import model_configs
from snippets.model_flops.model_flops import MODELS, Decoder, flops_per_token
from snippets.parallel_planner.costs import Cluster, Transformer
from snippets.parallel_planner.parallel_planner import Plan, even, mixed

# bytes; FLOP/s of 16 bits; bytes/s of the memory, of a node's links, between nodes
GPUS = {
    "A100": (80e9, 312e12, 0.86 * 2.039e12, 222e9, 25e9),
    "H100": (80e9, 989e12, 0.86 * 3.35e12, 370e9, 50e9),
    "H200": (141e9, 989e12, 0.86 * 4.8e12, 370e9, 50e9),
    "B200": (180e9, 2250e12, 0.86 * 8e12, 702e9, 50e9),
}
ALIKE, OWN = "one for all stages", "each stage its own"
FOUND = "dense, 8 GPUs, little memory, the plan: a step"  # as by trying all plans
COSTS = "the planner's costs"  # a goal
MOST_OWN = 12  # GPUs up to which the form gives each stage its own


def _integer(name: str, label: str, group: str, default: int, most: int, unit: str,
             help: str) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "label": label, "group": group, "kind": "integer",
            "default": default, "least": 1, "most": most, "unit": unit,
            "help": help}  # fmt: skip


def _choice(name: str, label: str, group: str, choices: tuple[str, ...],
            help: str, default: str) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "label": label, "group": group, "kind": "choice",
            "choices": choices, "default": default, "unit": "",
            "help": help}  # fmt: skip


INPUTS = (
    _choice("model", "Model", "Model", tuple(MODELS),
            "A decoder whose sizes are known here.", "Llama 3.1 70B"),
    {"name": "config", "label": "config.json", "group": "Model", "kind": "config",
     "default": "", "unit": "", "help": "A model's own file, in place of the choice."},
    _integer("sequence", "Sequence", "Load", 8192, 10_000_000, "tokens",
             "Tokens of a sequence."),
    _integer("batch", "Batch", "Load", 256, 1_000_000, "sequences",
             "Sequences of a step, on all GPUs together."),
    _integer("gpus", "GPUs", "Cluster", 64, 100_000, "", "GPUs of the cluster."),
    _integer("node", "Node", "Cluster", 8, 1024, "GPUs",
             "GPUs that share fast links; a tensor group stays in one."),
    _choice("gpu", "GPU", "Cluster", tuple(GPUS), "Memory, rates and links.", "H100"),
    {"name": "share", "label": "Share of the rate", "group": "Cluster",
     "kind": "number", "default": 0.6, "least": 0.05, "most": 1.0, "unit": "",
     "help": "Of the matrix rate, what large products reach in training."},
    {"name": "usable", "label": "Usable memory", "group": "Cluster", "kind": "number",
     "default": 0.9, "least": 0.1, "most": 1.0, "unit": "",
     "help": "Share of a GPU's memory that a plan may fill."},
    _choice("layouts", "Layouts", "Search", (ALIKE, OWN),
            f"Each its own only on up to {MOST_OWN} GPUs.", ALIKE),
)  # fmt: skip


def calculate(**inputs: Any) -> dict[str, Any]:
    """The plan for the values of INPUTS, its stages, and how the time scales."""
    asked = {one["name"]: one["default"] for one in INPUTS} | inputs
    model, notes = _model(asked["model"], asked["config"])
    plan = _plan(asked, model, asked["gpus"])
    layout, stages = plan.stages[0].layout, plan.stages
    passing = fsum(one.time for one in stages)
    slowest = max(one.time for one in stages)
    sync = max(one.sync for one in stages)
    tokens = asked["batch"] * asked["sequence"]
    work = 3 * tokens * flops_per_token(model, asked["sequence"], causal=True)
    rate = work / plan.time / asked["gpus"]
    own = len({one.layout for one in stages}) > 1
    again = sum(one.recomputed for one in stages)
    shape = "stages" if own else f"stages of {layout.words}"
    rows = (
        _row("time of a step", plan.time, "s",
             "sum of stages + (m - 1) * slowest + exchange of gradients", "alpa",
             "dense, 8 GPUs, slow links, one layout: a step"),
        _row("micro-batches", plan.micro_batches, "", "batch / sequences of one",
             "megatron-interleaved-1f1b", FOUND),
        _row("slowest stage, a micro-batch", slowest, "s", "costs of its units",
             "piper", FOUND),
        _row("first micro-batch through all stages", passing, "s", "sum of stages",
             "alpa", FOUND),
        _row("gradients and new weights", sync, "s",
             "6 bytes * parameters * (ranks - 1) / ranks / link", "zero", FOUND),
        _row("share in which the slowest stage waits", plan.bubble, "",
             "1 - m * slowest / step", "megatron-interleaved-1f1b", FOUND),
        _row("GPUs of the plan", plan.gpus, "", "data * tensor * context of each stage",
             "megatron-interleaved-1f1b",
             "Llama 3.1 405B on 10000 GPUs: GPUs of the plan, over those there are"),
        _row("layers recomputed", again, "", "fewest that fit, stage by stage", "piper",
             FOUND),
        _row("fullest GPU", max(one.bytes for one in stages), "B",
             "state + activations * micro-batches in flight", "zero",
             "Llama 3.1 70B, stage 1 of 4, recomputed none: bytes"),
        _row("tokens a second", tokens / plan.time, "1/s", "batch * sequence / step",
             "megatron-interleaved-1f1b", COSTS),
        _row("model FLOP/s of a GPU", rate, "FLOP/s",
             "3 * forward operations * tokens / step / GPUs", "palm", COSTS),
    )  # fmt: skip
    limit = GPUS[asked["gpu"]][0] * asked["usable"]
    return {
        "answer": f"{len(stages)} {shape}, {plan.micro_batches} micro-batches: "
                  f"{plan.time:.4g} s a step, {rate / 1e12:.4g} TFLOP/s a GPU.",
        "rows": rows,
        "plots": _plots(asked, model, plan, limit),
        "band": {"set": "Megatron-LM, 2021, their layouts by the planner's costs",
                 "within": 0.15},
        "notes": (
            *notes,
            "No interleaved stages, and gradients are exchanged after the last pass.",
            "The plan is the best of its cost model. Time the best few on the cluster.",
        ),
    }  # fmt: skip


def _model(name: str, config: str) -> tuple[Decoder, list[str]]:
    if not config.strip():
        return MODELS[name], []
    model = model_configs.read(config)
    notes = list(model.notes)
    if any(one.attention.window for one in model.layers):
        notes.append("Windows are not counted: every layer sees all keys.")
    if model.unknown:
        notes.append(f"Not understood, and left out: {', '.join(model.unknown)}.")
    return model_configs.decoder(model), notes


def _plan(asked: dict[str, Any], model: Decoder, gpus: int) -> Plan:
    memory, rate, bandwidth, link, network = GPUS[asked["gpu"]]
    cluster = Cluster(gpus, asked["node"], memory, asked["usable"], rate,
                      asked["share"], bandwidth, link, network)  # fmt: skip
    costs = Transformer(model, cluster, asked["sequence"])
    if asked["layouts"] == ALIKE:
        return even(costs, cluster, asked["batch"])
    if gpus > MOST_OWN or costs.units > 4 * MOST_OWN:
        raise ValueError(
            f"parallel_planner: {gpus} GPUs and {costs.units} units are too many for a "
            f"layout of each stage's own; use up to {MOST_OWN} and {4 * MOST_OWN}"
        )
    return mixed(costs, cluster, asked["batch"])


def _row(name: str, value: float, unit: str, formula: str, source: str,
         test: str) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "value": value, "unit": unit, "formula": formula,
            "source": source, "test": test}  # fmt: skip


def _plots(
    asked: dict[str, Any], model: Decoder, plan: Plan, limit: float
) -> tuple[dict[str, Any], ...]:
    """Memory and time by stage, and the step by the number of GPUs."""

    def plot(kind: str, title: str, x: str, y: str, name: str, points: Any,
             limit: Any = None) -> dict[str, Any]:  # fmt: skip
        series = {"name": name, "points": tuple(points)}
        return {"kind": kind, "title": title, "x": x, "y": y, "series": (series,),
                "limit": limit}  # fmt: skip

    named = [(f"stage {i}", one) for i, one in enumerate(plan.stages, 1)]
    sizes = []
    for count in sorted({max(asked["gpus"] >> i, 1) for i in (0, 1, 2)}):
        if count == asked["gpus"]:
            sizes.append((count, plan.time))
            continue
        try:
            sizes.append((count, _plan(asked, model, count).time))
        except ValueError:
            continue  # it does not fit on fewer
    return (
        plot("bars", "Memory of a GPU by stage", "", "B", "bytes",
             [(name, one.bytes) for name, one in named],
             {"name": "usable", "value": limit}),
        plot("bars", "Time of a micro-batch by stage", "", "ms", "forward and backward",
             [(name, 1e3 * one.time) for name, one in named]),
        plot("lines", "Time of a step by GPUs", "GPUs", "s", "best plan", sizes),
    )  # fmt: skip
