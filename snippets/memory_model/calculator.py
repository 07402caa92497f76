"""The form, the table and the plots of the calculator for memory in training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snippets.memory_model.memory_model import GIB, Memory, by_rank
from snippets.memory_model.plan import SCHEDULES, Plan
from snippets.model_configs.layers import Attention, FeedForward, Layer, Model
from snippets.model_configs.model_configs import parameters, read

# The published runs whose error is to be expected, by stack.
BANDS = {"megatron": "Megatron on B200, SimuMax, 2026", "fsdp": "torchtitan, 2024"}
STACKS = {"Megatron": "megatron", "PyTorch FSDP": "fsdp"}
GRADIENTS = {"32 bits": 4, "16 bits": 2}
RECOMPUTE = {
    "nothing": "none",
    "scores": "selective",
    "every second product": "products",
    "whole layers": "full",
}


def _integer(
    name: str, group: str, label: str, default: int, help: str, **rest: Any
) -> dict[str, Any]:
    return {
        "name": name, "label": label, "group": group, "kind": "integer",
        "default": default, "least": 1, "most": 10**6, "unit": "", "help": help, **rest,
    }  # fmt: skip


def _choice(
    name: str, group: str, label: str, choices: Any, default: str, help: str
) -> dict[str, Any]:
    return {
        "name": name, "label": label, "group": group, "kind": "choice",
        "choices": tuple(choices), "default": default, "unit": "", "help": help,
    }  # fmt: skip


def _flag(
    name: str, group: str, label: str, default: bool, help: str
) -> dict[str, Any]:
    return {
        "name": name, "label": label, "group": group, "kind": "flag",
        "default": default, "unit": "", "help": help,
    }  # fmt: skip


MODEL, RUN, SPLIT, KEEP = "Model", "Batch", "Parallelism", "What is kept"
INPUTS = (
    {"name": "config", "label": "config.json", "group": MODEL, "kind": "config",
     "default": "", "unit": "",
     "help": "A pasted Hugging Face configuration, in place of the fields below."},
    _integer("layers", MODEL, "Layers", 32, "Layers of the model.", most=1000),
    _integer("hidden", MODEL, "Hidden size", 4096, "Width between the layers."),
    _integer("heads", MODEL, "Heads", 32, "Heads of queries.", most=1000),
    _integer("groups", MODEL, "Key-value heads", 8, "Heads of keys and values.",
             most=1000),
    _integer("head_dim", MODEL, "Head width", 128, "Width of one head.", most=10_000),
    _integer("feed_forward", MODEL, "Feed-forward width", 14_336,
             "Width of the feed-forward, or of one expert."),
    _integer("vocabulary", MODEL, "Vocabulary", 128_256, "Rows of the tables.",
             most=10**7),
    _integer("experts", MODEL, "Experts", 0, "Experts to choose from; 0 for none.",
             least=0, most=10_000),
    _integer("chosen", MODEL, "Experts of a token", 0, "Experts that a token meets.",
             least=0, most=1000),
    _flag("gated", MODEL, "Gated", True, "Three feed-forward matrices, not two."),
    _flag("tied", MODEL, "Tied", False, "One table for input and output."),
    _integer("sequence", RUN, "Sequence", 8192, "Tokens of a sequence.",
             most=10**8, unit="tokens"),
    _integer("micro_batch", RUN, "Micro-batch", 1, "Sequences that go through at once.",
             most=10_000),
    _integer("micro_batches", RUN, "Micro-batches", 8, "Of a step, on each data rank.",
             most=10_000),
    _integer("data", SPLIT, "Data ranks", 4, "Copies with batches of their own.",
             most=100_000),
    _integer("tensor", SPLIT, "Tensor ranks", 2, "Ranks that split each matrix.",
             most=1024),
    _integer("pipeline", SPLIT, "Pipeline ranks", 1, "Ranks that split the layers.",
             most=256),
    _integer("context", SPLIT, "Context ranks", 1, "Ranks that split each sequence.",
             most=1024),
    _integer("expert", SPLIT, "Expert ranks", 1,
             "Of data and context ranks, that hold different experts.", most=10_000),
    _choice("schedule", SPLIT, "Pipeline schedule", SCHEDULES, "1f1b",
            "The order of forward and backward passes."),
    _integer("chunks", SPLIT, "Chunks", 1,
             "Slices of the model a rank, of the interleaved schedule.", most=64),
    _choice("stack", KEEP, "Software", STACKS, "Megatron",
            "What keeps which buffers: Megatron with Transformer Engine, or FSDP."),
    _choice("zero", KEEP, "ZeRO stage", "0123", "1",
            "1 splits Adam's state, 2 also gradients, 3 also weights; FSDP: 2 or 3."),
    _choice("gradient", KEEP, "Gradients", GRADIENTS, "32 bits",
            "In what they are summed over micro-batches."),
    _choice("recompute", KEEP, "Recompute", RECOMPUTE, "nothing",
            "What backward makes anew."),
    _flag("sequence_parallel", KEEP, "Sequence parallelism", True,
          "Tensor ranks split what lies between the products as well."),
    _flag("flash", KEEP, "Flash attention", True, "Scores never lie in memory."),
    _flag("dropout", KEEP, "Dropout", False, "Masks are kept, a byte an element."),
    _flag("fused_loss", KEEP, "Fused loss", True,
          "Megatron: no copy of the logits in 32 bits."),
    {"name": "memory", "label": "Memory of a GPU", "group": KEEP, "kind": "number",
     "default": 79, "least": 1, "most": 10_000, "unit": "GiB",
     "help": "What it has for tensors: of an H100 with 80 GB about 79 GiB."},
)  # fmt: skip

FORMULAS = {  # of each part: formula, source, the fact that holds it
    "weights": (
        "2 B * parameters of the rank / the ranks that ZeRO 3 splits them over",
        "zero", "7.5e9 parameters on 64 ranks, ZeRO stage 3",
    ),
    "gradients": (
        "2 or 4 B * parameters of the rank, over the ranks from ZeRO 2 on",
        "zero", "7.5e9 parameters on 64 ranks, ZeRO stage 2",
    ),
    "optimizer": (
        "12 B * parameters of the rank, over data * context ranks from ZeRO 1 on",
        "zero", "7.5e9 parameters on 64 ranks, ZeRO stage 1",
    ),
    "activations": (
        "bytes of a layer * layers of the rank * micro-batches that it holds",
        "reducing-activation-recomputation",
        "GPT-3, a layer on 8 ranks, sequence too, recompute none",
    ),
    "transient": (
        "the larger of: logits and what the loss makes of them; what one layer needs "
        "while it goes backward",
        "torchtitan-benchmarks", "cross entropy in 32 bits: bytes a logit",
    ),
    "buffers": (
        "Megatron: a 16-bit gradient for each shape of a matrix; FSDP: whole weights "
        "of tables and two layers, and what the allocator cannot reuse",
        "simumax", "Llama 3.1 405B: parameters of 4 pipeline ranks",
    ),
}  # fmt: skip
STEPS = (1, 2, 4, 8, 16, 32, 64, 128)  # times the data ranks, of the plot by GPUs


# --8<-- [start:calculate]
def calculate(**inputs: Any) -> dict[str, Any]:
    """The table and plots of one run; ValueError in one line for what cannot be."""
    said = checked(inputs)
    model = described(said)
    plan = planned(said)
    ranks = by_rank(model, plan)
    fullest = max(ranks, key=lambda one: one.total)
    limit = {"name": f"{said['memory']:g} GiB", "value": said["memory"]}
    need = fullest.total / GIB
    room = said["memory"] - need
    verdict = "it fits" if room >= 0 else f"{-room:.1f} GiB too many"
    answer = f"{need:.1f} GiB of {said['memory']:g} GiB on a GPU: {verdict}"
    plots = [
        {"kind": "bars", "title": "Memory by part, on the fullest GPU", "x": "part",
         "y": "GiB", "limit": limit,
         "series": ({"name": "GiB", "points": parts(fullest)},)},
        {"kind": "lines", "title": "Memory by number of GPUs, with more data ranks",
         "x": "GPUs", "y": "GiB", "limit": limit, "series": by_gpus(model, plan)},
    ]  # fmt: skip
    if plan.pipeline > 1:
        points = tuple((f"rank {one.rank}", one.total / GIB) for one in ranks)
        series = ({"name": "GiB", "points": points},)
        plots.append(
            {"kind": "bars", "title": "Memory by pipeline rank", "x": "rank",
             "y": "GiB", "limit": limit, "series": series},
        )  # fmt: skip
    return {
        "answer": answer,
        "rows": rows(model, plan, fullest),
        "plots": tuple(plots),
        "band": {"set": BANDS[plan.stack], "within": 0.05},
        "notes": notes(model, plan),
    }


# --8<-- [end:calculate]


def checked(inputs: dict[str, Any]) -> dict[str, Any]:
    """All inputs, the defaults for those that are not given."""
    known = {one["name"]: one for one in INPUTS}
    for name, value in inputs.items():
        if name not in known:
            raise ValueError(f"memory_model: there is no input {name!r:.40}")
        one = known[name]
        kind = {"integer": int, "number": (int, float), "flag": bool}.get(
            one["kind"], str
        )
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            raise ValueError(
                f"memory_model: {name} = {value!r:.40} is no {one['kind']}"
            )
        if "least" in one and not one["least"] <= value <= one["most"]:
            raise ValueError(
                f"memory_model: {name} = {value} is not from {one['least']} to "
                f"{one['most']}"
            )
        if "choices" in one and value not in one["choices"]:
            words = ", ".join(one["choices"])
            raise ValueError(f"memory_model: {name} = {value!r:.40}; use {words}")
    return {name: one["default"] for name, one in known.items()} | inputs


def described(said: dict[str, Any]) -> Model:
    """The model of the pasted configuration, or else of the fields."""
    if said["config"].strip():
        return read(said["config"])
    heads, groups = said["heads"], said["groups"]
    if heads % groups:
        raise ValueError(
            f"memory_model: groups = {groups} does not divide {heads} heads; "
            "use a divisor"
        )
    experts, chosen = said["experts"], said["chosen"]
    if chosen > experts or (experts and not chosen):
        raise ValueError(
            f"memory_model: {chosen} of {experts} experts for a token; "
            "use 1 to as many as there are"
        )
    width = said["head_dim"]
    layer = Layer(
        Attention(heads, groups, width, width),
        FeedForward(said["feed_forward"], said["gated"], experts, chosen),
        2 * said["hidden"],
    )
    return Model(
        "fields", said["hidden"], said["vocabulary"], (layer,) * said["layers"],
        said["tied"], said["hidden"],
    )  # fmt: skip


def planned(said: dict[str, Any]) -> Plan:
    """The plan of the fields."""
    names = (
        "sequence", "micro_batch", "micro_batches", "data", "tensor", "pipeline",
        "context", "expert", "schedule", "chunks", "sequence_parallel", "flash",
        "dropout", "fused_loss",
    )  # fmt: skip
    return Plan(
        **{name: said[name] for name in names},
        stack=STACKS[said["stack"]],
        recompute=RECOMPUTE[said["recompute"]],
        zero=int(said["zero"]),
        gradient=GRADIENTS[said["gradient"]],
    )


def parts(made: Memory) -> tuple[tuple[str, float], ...]:
    """Each part in GiB."""
    return tuple((name, getattr(made, name) / GIB) for name in FORMULAS)


def rows(model: Model, plan: Plan, made: Memory) -> tuple[dict[str, Any], ...]:
    """The lines of the table, in bytes."""
    lines = [
        {"name": name, "value": getattr(made, name), "unit": "B", "formula": formula,
         "source": source, "test": test}
        for name, (formula, source, test) in FORMULAS.items()
    ]  # fmt: skip
    counted = {
        "unit": "", "source": "model-configurations",
        "test": "Llama 3.1 405B: parameters of 4 pipeline ranks",
    }  # fmt: skip
    lines.append(
        {"name": "total", "value": made.total, "unit": "B", "formula": "the sum",
         "source": "simumax", "test": "nothing fitted: Megatron's worst row"},
    )  # fmt: skip
    lines += [
        {"name": "parameters", "value": parameters(model), "formula": "of all GPUs",
         **counted},
        {"name": "active parameters", "value": parameters(model, active=True),
         "formula": "those that a token meets", **counted},
        {"name": "GPUs", "value": plan.gpus,
         "formula": "data * tensor * pipeline * context", **counted},
    ]  # fmt: skip
    return tuple(lines)


def by_gpus(model: Model, plan: Plan) -> tuple[dict[str, Any], ...]:
    """Memory with more data ranks, by ZeRO's stage.

    Of each pipeline rank it is a + b / data, so that two points give all.
    """
    series = []
    for stage in (2, 3) if plan.stack == "fsdp" else (0, 1, 2, 3):
        staged = replace(plan, zero=stage)
        few = by_rank(model, staged)
        many = by_rank(model, replace(staged, data=plan.data * STEPS[-1]))
        points = []
        for step in STEPS:
            share = (1 / step - 1 / STEPS[-1]) / (1 - 1 / STEPS[-1])
            most = max(
                share * one.total + (1 - share) * other.total
                for one, other in zip(few, many, strict=True)
            )
            points.append((plan.gpus * step, most / GIB))
        series.append({"name": f"ZeRO {stage}", "points": tuple(points)})
    return tuple(series)


def notes(model: Model, plan: Plan) -> tuple[str, ...]:
    """What was assumed and what is left out."""
    said = list(model.notes)
    if model.unknown:
        said.append(f"Not understood, and not counted: {', '.join(model.unknown)}.")
    said.append("CUDA's own memory and NCCL's come on top.")
    if plan.stack == "fsdp":
        said.append("This is what torch reserves, 6 % over what it uses.")
        if plan.recompute == "none":
            said.append("No published run checks FSDP without recomputation.")
    elif plan.zero > 1:
        said.append(
            "Megatron itself has ZeRO 0 and 1; the buffers of others are a guess."
        )
    if any(one.feed_forward.routed for one in model.layers):
        said.append("Experts are taken as evenly busy; the busiest rank needs more.")
    return tuple(said)
