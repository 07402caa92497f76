"""What the page of training_time computes as a reader types: a step, term by term."""

from __future__ import annotations

from typing import Any

from snippets.model_configs import model_configs as configs
from snippets.model_flops.model_flops import Decoder, Experts, Latent
from snippets.training_time import training_time as model
from snippets.training_time.layers import WORDS, Plan, Stack
from snippets.training_time.training_time import STACKS

Input = dict[str, Any]


def number(
    name: str,
    label: str,
    where: str,
    default: int,
    most: int,
    help_: str,
    least: int = 1,
) -> Input:
    """A whole number of the form."""
    return {
        "name": name, "label": label, "group": where, "kind": "integer",
        "default": default, "least": least, "most": most, "unit": "", "help": help_,
    }  # fmt: skip


def choice(
    name: str, label: str, where: str, known: tuple[str, ...], help_: str
) -> Input:
    """One of several words."""
    return {
        "name": name, "label": label, "group": where, "kind": "choice",
        "default": known[0], "choices": known, "unit": "", "help": help_,
    }  # fmt: skip


def flag(name: str, label: str, where: str, default: bool, help_: str) -> Input:
    """Yes or no."""
    return {
        "name": name, "label": label, "group": where, "kind": "flag",
        "default": default, "unit": "", "help": help_,
    }  # fmt: skip


SHAPE, MIXTURE, RUN, SPLIT = "Model", "Experts and latents", "Run", "Parallelism"
FIRST = "NeMo 24.07, H100, fp8"
ORDER = (FIRST, *(name for name in STACKS if name != FIRST))
INPUTS = (
    {
        "name": "config", "label": "config.json", "group": SHAPE, "kind": "config",
        "default": "", "unit": "",
        "help": "A pasted Hugging Face configuration, in place of the fields below.",
    },
    number("layers", "Layers", SHAPE, 80, 1000, "Transformer layers."),
    number("hidden", "Hidden size", SHAPE, 8192, 10**6, "Width of the residual."),
    number("heads", "Attention heads", SHAPE, 64, 4096, "Query heads."),
    number("kv_heads", "Key-value heads", SHAPE, 8, 4096, "Fewer if grouped."),
    number("head_dim", "Head size", SHAPE, 128, 4096, "Width of one head."),
    number("feed_forward", "Feed-forward size", SHAPE, 28672, 10**7, "Dense layer."),
    number("vocabulary", "Vocabulary", SHAPE, 128256, 10**7, "Rows of the table."),
    flag("gated", "Gated feed-forward", SHAPE, True, "Three matrices, as in SwiGLU."),
    flag("tied", "Tied embeddings", SHAPE, False, "The output matrix is the table."),
    number("routed", "Experts", MIXTURE, 0, 10**5, "Routed experts of a layer.", 0),
    number("chosen", "Chosen", MIXTURE, 8, 10**4, "Experts that a token meets."),
    number("expert_size", "Expert size", MIXTURE, 2048, 10**6, "Width of one expert."),
    number("shared", "Shared experts", MIXTURE, 0, 100, "That every token meets.", 0),
    number("dense_layers", "Dense layers", MIXTURE, 0, 1000, "Without experts.", 0),
    number("query_rank", "Query rank", MIXTURE, 0, 10**5, "Latent; or 0.", 0),
    number("kv_rank", "Key-value rank", MIXTURE, 0, 10**5, "Latent; or 0.", 0),
    number("rotary", "Rotary size", MIXTURE, 64, 4096, "Latent attention's own part."),
    choice("stack", "GPU and software", RUN, ORDER, "Each has one fitted constant."),
    {
        "name": "share", "label": "Share of kernel speed", "group": RUN,
        "kind": "number", "default": 0.0, "least": 0.0, "most": 1.5, "unit": "",
        "help": "0 takes the constant of the software; or measure a small run.",
    },
    number("gpus", "GPUs", RUN, 64, 10**6, "All of the run."),
    number("batch", "Sequences a step", RUN, 256, 10**7, "The global batch."),
    number("micro_batch", "Micro-batch", RUN, 1, 10**4, "Sequences at once."),
    number("sequence", "Sequence", RUN, 8192, 10**8, "Tokens of a sequence."),
    {
        "name": "tokens", "label": "Tokens of the run", "group": RUN, "kind": "number",
        "default": 1e12, "least": 1.0, "most": 1e16, "unit": "tokens",
        "help": "For the days.",
    },
    number("tensor", "Tensor", SPLIT, 4, 1024, "Ranks that share a layer."),
    number("pipeline", "Pipeline", SPLIT, 8, 1024, "Stages."),
    number("chunks", "Chunks of a stage", SPLIT, 5, 128, "Interleaved if above 1."),
    number("context", "Context", SPLIT, 1, 1024, "Ranks that share a sequence."),
    number("expert", "Expert", SPLIT, 1, 4096, "Ranks that share the experts."),
    number("zero", "ZeRO stage", SPLIT, 1, 3, "3 gathers weights by layer.", 0),
    flag("scattered", "Sequence parallel", SPLIT, True, "Beside tensor parallelism."),
    choice("recompute", "Recompute", SPLIT, WORDS["recompute"], "What is made again."),
    choice("schedule", "Schedule", SPLIT, WORDS["schedule"], "Of the pipeline."),
    choice("exchange", "Expert exchange", SPLIT, WORDS["exchange"], "Tokens' way."),
    flag("fused", "Fused attention", SPLIT, True, "Flash attention or alike."),
    flag("dropout", "Dropout", SPLIT, False, "Masks are made and applied."),
)  # fmt: skip

# What a term is, where it comes from, and the fact or the test that holds it.
PRODUCTS = "GPT-3 175B, 8 by tensor, 1 by expert: FLOPs a token, forward"
TWICE = "GPT-3 175B, 8 by tensor, 1 by expert: FLOPs backward over forward"
MASKED = "Llama 3.1 70B, 8 by tensor: FLOPs a token of attention under its mask"
BUBBLE = "1F1B, 8 stages, 16 micro-batches, 2 chunks: bubble"
SUM = "GPT-3 175B on 96 A100: terms of a step together"
FORMULAS = {
    "products": ("micro-batches * layers / stages * (forward + 2 * forward) / share",
                 "reducing-activation-recomputation", PRODUCTS),
    "attention": ("3.5 * half the scores if fused, else products and passes over all",
                  "reducing-activation-recomputation", MASKED),
    "memory": ("bytes of every tensor once in, once out / (0.85 * bandwidth * share)",
               "reducing-activation-recomputation", SUM),
    "logits": ("micro-batches * (3 products + 28 bytes a logit) on the last stage",
               "megatron-interleaved-1f1b", SUM),
    "recomputed": ("forward passes that are made again in the backward pass",
                   "reducing-activation-recomputation", TWICE),
    "tensor": ("2 gathers and 2 scatters a layer, each way, less what hides",
               "reducing-activation-recomputation", SUM),
    "context": ("keys and values gathered, gradients added up", "llama3-herd", SUM),
    "expert": ("tokens to their experts and back, each way", "deepep", SUM),
    "sends": ("activations to the next stage, and back",
              "megatron-interleaved-1f1b", SUM),
    "bubble": ("(stages - 1) / chunks * one micro-batch's passes, or a schedule run",
               "megatron-interleaved-1f1b", BUBBLE),
    "data": ("gradients reduced, weights gathered, less what hides", "zero", SUM),
    "optimizer": ("30 bytes * parameters of the shard / (0.85 * bandwidth)",
                  "zero", SUM),
}  # fmt: skip

BANDS = {
    "Megatron-LM 2021, A100": "Megatron-LM 2021, A100, table 1",
    "Megatron-LM 2022, A100": "Calculon's eight rows, A100",
    "GPT-NeoX, A100 40 GB": "GPT-NeoX and Pythia, A100 40 GB",
    "NeMo 24.07, H100, fp8": "NeMo 24.07, H100, fp8",
    "Megatron Bridge, H100, fp8": "Megatron Bridge, H100, fp8",
    "torchtitan, H100 500 W, fp8": "torchtitan, H100 500 W",
    "torchtitan, H100 500 W, fp8, async TP": "torchtitan, H100 500 W",
    "Megatron Core, B200, bf16": "SimuMax's runs on 8 B200, dense",
}
NOTES = (
    "Stragglers, failures, checkpoints and data loading are left out, and tokens are "
    "spread evenly over experts.",
    "Whether it fits into memory is another page's question.",
)


def calculate(**inputs: Any) -> dict[str, Any]:
    """Answer, rows, plots, band and notes for the values of a form.

    Raises ValueError, in one line, for what cannot be.
    """
    given = {one["name"]: one["default"] for one in INPUTS} | inputs
    made, notes = decoder(given)
    plan, stack = layout(given), software(given)
    spent = model.step(made, plan, stack)
    rate = plan.batch * plan.sequence / spent.total
    days = given["tokens"] / rate / 86400
    used = model.mfu(made, plan, stack, spent.total)
    answer = (
        f"{spent.total:.4g} s a step, {rate / plan.gpus:,.0f} tokens/s a GPU, MFU "
        f"{100 * used:.1f} % of bf16: {given['tokens']:.4g} tokens take "
        f"{days:,.1f} days"
    )
    rows = [
        row(name, seconds, "s", *FORMULAS[name])
        for name, seconds in vars(spent).items()
    ]
    rows += [
        row("step", spent.total, "s", "the sum of the above", "calculon", SUM),
        row("tokens a GPU", rate / plan.gpus, "1/s", "batch * sequence / (gpus * step)",
            "calculon", SUM),
        row("MFU", used, "", "model FLOPs * tokens / (gpus * step * bf16 peak)",
            "palm", PRODUCTS),
        row("days", days, "d", "tokens / (tokens a second) / 86400", "calculon", SUM),
        row("GPU-hours", 24 * days * plan.gpus, "h", "24 * days * gpus",
            "calculon", SUM),
    ]  # fmt: skip
    parts = tuple((name, seconds) for name, seconds in vars(spent).items() if seconds)
    plots = [bars(parts)]
    if len(more := scaled(made, plan, stack)) > 1:
        plots.append(lines(more))
    name = BANDS.get(given["stack"])
    band = {"set": name, "within": 0.2 if stack.fp8 else 0.1} if name else None
    return {
        "answer": answer, "rows": tuple(rows), "plots": tuple(plots), "band": band,
        "notes": (*NOTES, *notes),
    }  # fmt: skip


def decoder(given: Input) -> tuple[Decoder, tuple[str, ...]]:
    """The model of a form or of its configuration; and what was not understood."""
    if given["config"].strip():
        read = configs.read(given["config"])
        notes = list(read.notes)
        if read.unknown:
            notes.append(f"Not understood: {', '.join(read.unknown)}.")
        if any(one.attention.window for one in read.layers):
            notes.append("Windows are left out: attention counts the whole sequence.")
        return configs.decoder(read), tuple(notes)
    experts = latent = None
    if given["routed"]:
        names = ("routed", "chosen", "expert_size", "shared", "dense_layers")
        experts = Experts(*(given[name] for name in names))
    if given["kv_rank"]:
        if not given["query_rank"]:
            raise ValueError(
                "training_time: query_rank = 0 beside a key-value rank; give both"
            )
        latent = Latent(given["query_rank"], given["kv_rank"], given["rotary"])
    names = ("layers", "hidden", "heads", "kv_heads", "head_dim", "feed_forward")
    sizes = [given[name] for name in names]
    made = Decoder(
        *sizes, given["vocabulary"], gated=given["gated"], tied=given["tied"],
        experts=experts, latent=latent,
    )  # fmt: skip
    return made, ()


def layout(given: Input) -> Plan:
    """The plan of a form."""
    names = Plan.__dataclass_fields__
    return Plan(**{name: given[name] for name in names})


def software(given: Input) -> Stack:
    """The stack of a form, with its own share or the reader's."""
    if given["stack"] not in STACKS:
        known = ", ".join(STACKS)
        raise ValueError(f"training_time: no stack {given['stack']!r}; use {known}")
    stack = STACKS[given["stack"]]
    if given["share"] < 0:
        raise ValueError(
            f"training_time: share = {given['share']} is below 0; use 0 or more"
        )
    if given["share"]:
        stack = Stack(**{**vars(stack), "share": given["share"]})
    return stack


def scaled(made: Decoder, plan: Plan, stack: Stack) -> tuple[tuple[int, float], ...]:
    """Tokens a second by GPUs, at the same batch, as far as it splits."""
    found = []
    # A schedule that is run takes too long to run it for every number of GPUs.
    for times in range(-3, 7) if plan.schedule == "1F1B" else ():
        gpus = plan.gpus * 2**times
        try:
            other = Plan(**{**vars(plan), "gpus": int(gpus)})
            seconds = model.step(made, other, stack).total
        except ValueError:
            continue
        if gpus == int(gpus):
            found.append((int(gpus), plan.batch * plan.sequence / seconds))
    return tuple(found)


def row(
    name: str, value: float, unit: str, formula: str, source: str, test: str
) -> dict[str, Any]:
    """A line of the table."""
    return {
        "name": name, "value": value, "unit": unit, "formula": formula,
        "source": source, "test": test,
    }  # fmt: skip


def bars(parts: tuple[tuple[str, float], ...]) -> dict[str, Any]:
    """The parts of a step."""
    series = ({"name": "step", "points": parts},)
    return {
        "kind": "bars", "title": "Where the time of a step goes", "x": "part",
        "y": "seconds", "series": series, "limit": None,
    }  # fmt: skip


def lines(points: tuple[tuple[int, float], ...]) -> dict[str, Any]:
    """Rate against GPUs, beside a rate that grows with them."""
    gpus, rate = points[0]
    even = tuple((more, rate * more / gpus) for more, _ in points)
    series = (
        {"name": "this plan", "points": points},
        {"name": "in proportion", "points": even},
    )
    return {
        "kind": "lines", "title": "More GPUs, the same batch", "x": "GPUs",
        "y": "tokens/s", "series": series, "limit": None,
    }  # fmt: skip
