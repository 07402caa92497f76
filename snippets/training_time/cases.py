"""What training_time must show: counts, executed schedules, published steps."""

from __future__ import annotations

import csv
from dataclasses import fields
from functools import cache
from math import fsum
from pathlib import Path
from typing import Any

from snippets.facts import fact
from snippets.model_flops import model_flops as arithmetic
from snippets.model_flops.model_flops import MODELS, Decoder, Experts, Latent
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.schedule import Costs
from snippets.training_time import layers
from snippets.training_time import training_time as model
from snippets.training_time.kernels import GPUS, START, Product
from snippets.training_time.layers import Plan, Stack
from snippets.training_time.training_time import STACKS, Step

Row = dict[str, str]
HERE = Path(__file__).parent
TABLES = "Megatron-LM 2021, A100, table 1", "Megatron-LM 2021, A100, table 2"
CALCULON = "Calculon's eight rows, A100"
BLOOM, NEOX = "BLOOM, by Megatron-LM's constant", "GPT-NeoX and Pythia, A100 40 GB"
NEMO, BRIDGE = "NeMo 24.07, H100, fp8", "Megatron Bridge, H100, fp8"
TITAN = "torchtitan, H100 500 W"
DENSE = "SimuMax's runs on 8 B200, dense"
SPARSE = "SimuMax's runs on 8 B200, experts"
GOALS = (
    {
        "name": "bf16 and fp16 on more than 64 GPUs",
        "sets": (*TABLES, CALCULON, BLOOM, NEOX),
        "within": 0.10,
        "share": 0.9,
    },
    {
        "name": "fp8 on more than 64 GPUs",
        "sets": (NEMO, BRIDGE, TITAN),
        "within": 0.20,
        "share": 0.9,
    },
    {
        "name": "Calculon's rows that were not fitted",
        "sets": (CALCULON,),
        "mean": 0.0365,
    },
    {"name": "B200, dense", "sets": (DENSE,), "median": 0.05},
    {"name": "B200, experts", "sets": (SPARSE,), "worst": 0.10},
)


def table(name: str) -> list[Row]:
    """The rows of a file beside this one."""
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@cache
def decoders() -> dict[str, Decoder]:
    """The models of models.tsv."""
    found = {}
    for row in table("models.tsv"):
        sizes = {name: int(value) for name, value in row.items() if value.isdigit()}
        parts: dict[str, Any] = {}
        for name, kind in (("experts", Experts), ("latent", Latent)):
            own = {one.name: sizes.pop(one.name) for one in fields(kind)
                   if one.name in sizes}  # fmt: skip
            parts[name] = kind(**own) if own else None
        for flag in ("gated", "tied", "biases"):
            parts[flag] = bool(sizes.pop(flag))
        found[row["name"]] = Decoder(**sizes, **parts)
    return found


def plan_of(row: Row) -> Plan:
    """The layout of a published row."""
    given: dict[str, Any] = {}
    for one in fields(Plan):
        text = row[one.name]
        given[one.name] = int(text) if text.isdigit() else text
    for flag in ("scattered", "fused", "dropout"):
        given[flag] = bool(given[flag])
    return Plan(**given)


def predicted(row: Row, stack: Stack | None = None) -> float:
    """The model's figure for a published row, in the row's unit."""
    one, plan = decoders()[row["model"]], plan_of(row)
    seconds = model.step(one, plan, stack or STACKS[row["stack"]]).total
    tokens = plan.batch * plan.sequence
    if row["unit"] == "TFLOP/s":
        return megatron_flops(one, plan) / (plan.gpus * seconds * 1e12)
    if row["unit"] == "1/s":
        return tokens / (plan.gpus * seconds)
    if row["unit"] == "h":
        return int(row["tokens"]) / tokens * seconds * plan.gpus / 3600
    return seconds * {"s": 1.0, "ms": 1e3}[row["unit"]]


def megatron_flops(one: Decoder, plan: Plan) -> float:
    """FLOPs of a step as Megatron-LM counts them, the second forward included."""
    s, h, count = plan.sequence, one.hidden, one.layers
    per_token = 96 * count * h * h
    per_token += 16 * count * s * h + 6 * h * one.vocabulary
    return per_token * s * plan.batch


def predictions() -> list[dict[str, Any]]:
    """Every published row beside what the model says."""
    return [*step_rows(), *product_rows()]


def step_rows() -> list[dict[str, Any]]:
    """Steps of training runs."""
    found = []
    for row in table("published.tsv"):
        how = {"full": ", full", "selective": ", selective"}.get(row["recompute"], "")
        name = f"{row['model']} on {row['gpus']}"
        if row["set"] == CALCULON:
            name += how
        elif row["set"] in (DENSE, SPARSE, TITAN):
            name = row["id"].removeprefix("simumax-ms-").removeprefix("titan-tps-")
            name = name.removesuffix("_cef").replace("_", " ")
        elif row["unit"] == "h":
            name += ", hours"
        found.append(prediction(row, name, predicted(row)))
    return found


def product_rows() -> list[dict[str, Any]]:
    """Single matrix products."""
    found = []
    for row in table("products.tsv"):
        m, n, k = (int(row[side]) for side in "mnk")
        rate = 2 * m * n * k / Product(m, n, k).seconds(GPUS[row["gpu"]]) / 1e12
        row["set"] = "Matrix products"
        found.append(prediction(row, f"{row['gpu']}, {m} x {n} x {k}", rate))
    return found


def prediction(row: Row, name: str, value: float) -> dict[str, Any]:
    """A row of predictions()."""
    return {
        "set": row["set"],
        "name": name,
        "predicted": value,
        "published": float(row["value"]),
        "unit": row["unit"],
        "source": row["source"],
        "fitted": row["fitted"] == "yes",
    }


def facts() -> list[dict[str, Any]]:
    """Counts against those of the whole model; the bubble against schedules."""
    rows = [*flops_facts(), *parameter_facts(), *bubble_facts(), *sum_facts()]
    rows += published_facts()
    errors = [abs(row["predicted"] / row["published"] - 1) for row in step_rows()
              if row["set"] == CALCULON]  # fmt: skip
    what = f"{CALCULON}: mean error of all, four of them fitted"
    return [
        *rows,
        fact(what, fsum(errors) / len(errors), 0, "calculon: 3.65 %", 0.0365),
    ]


LAYOUTS = (
    ("GPT-3 175B", Plan(64, 64, 1, 2048, 8, 8)),
    ("Llama 3.1 70B", Plan(64, 64, 1, 4096, 8, 1)),
    ("DeepSeek-V3", Plan(64, 64, 1, 4096, 1, 1, expert=64)),
)


def flops_facts() -> list[dict[str, Any]]:
    """Products of all ranks against two operations a weight that a token meets."""
    rows = []
    for name, plan in LAYOUTS:
        one = MODELS[name]
        dense = one.experts.dense_layers if one.experts else one.layers
        total = back = 0.0
        for count, sparse in ((dense, False), (one.layers - dense, True)):
            made = layers.matrices(one, plan, sparse)
            ways = [g for p in made for g in layers.gradients(p, STACKS[NEMO])]
            total += count * plan.tensor * fsum(map(operations, made))
            back += count * plan.tensor * fsum(map(operations, ways))
        met = 2 * (arithmetic.multiplied(one) - one.vocabulary * one.hidden)
        source = "model_flops: two for each weight that a token meets"
        title = f"{name}, {plan.tensor} by tensor, {plan.expert} by expert: FLOPs"
        rows.append(
            fact(f"{title} a token, forward", total / plan.tokens, met, source, 1e-12)
        )
        what = f"{title} backward over forward"
        rows.append(fact(what, back / total, 2, "for the input and the weight", 1e-12))
    one, plan, stack = MODELS["Llama 3.1 70B"], LAYOUTS[1][1], STACKS[BRIDGE]
    rate = stack.gpu.attention * stack.gpu.peak
    seconds = layers.attention(one, plan, stack)[0] - START
    counted = seconds * rate * plan.tensor * one.layers / plan.tokens
    s = plan.sequence
    met = arithmetic.flops_per_token(one, s) - 2 * arithmetic.multiplied(one)
    what = "Llama 3.1 70B, 8 by tensor: FLOPs a token of attention under its mask"
    rows.append(fact(what, counted, met / 2, "model_flops: half of all scores", 1e-12))
    s, one = 2048, decoders()["Megatron 1T"]
    plan = Plan(3072, 3072, 1, s, 8, 64)
    forward = arithmetic.flops_per_token(one, s)
    again = forward - 2 * one.hidden * one.vocabulary
    what = "Megatron 1T: FLOPs of a step with recomputation, as its paper counts them"
    due = (3 * forward + again) * s * plan.batch
    rows.append(
        fact(what, megatron_flops(one, plan), due, "model_flops", 1e-12, "FLOP")
    )
    return rows


def operations(one: Product) -> float:
    """FLOPs of a product."""
    return 2 * one.batch * one.m * one.n * one.k


def parameter_facts() -> list[dict[str, Any]]:
    """What all ranks hold together, each parameter once."""
    rows = []
    for name, plan in LAYOUTS[1:]:
        shared, own = model.parameters(MODELS[name], plan)
        held = shared * plan.tensor + own * plan.expert
        due = arithmetic.parameters(MODELS[name])
        what = f"{name}: parameters of all ranks"
        rows.append(fact(what, held, due, "model_flops", 1e-12))
    return rows


def bubble_facts() -> list[dict[str, Any]]:
    """The closed form of a bubble against schedules that were run."""
    rows, ways = [], [3.0, 7.0]
    for p, m, v in ((4, 8, 1), (8, 16, 1), (4, 8, 3), (8, 16, 2)):
        plan = Plan(p, m, 1, 64, 1, p, chunks=v)
        costs = Costs(3, 4, 3)
        made = schedules.one_f_one_b(p, m, costs)
        if v > 1:  # whose unit of time is a chunk's
            made = schedules.interleaved(p, m, v, costs)
        idle = made.makespan / v - m * 10
        what = f"1F1B, {p} stages, {m} micro-batches, {v} chunks: bubble"
        found = model.bubble(plan, ways, 3.0)
        rows.append(fact(what, found, idle, "pipeline_schedules, executed", 1e-12))
    return rows


def sum_facts() -> list[dict[str, Any]]:
    """Terms that add up to what a pass through all stages takes."""
    one, stack = decoders()["GPT-3 175B"], STACKS["Megatron-LM 2021, A100"]
    plan = Plan(96, 96, 1, 2048, 8, 12, zero=0, scattered=False, fused=False)
    found = model.step(one, plan, stack)
    terms, _ = model.stage(one, plan, stack)
    both = fsum(seconds for term in terms.values() for seconds in term)
    m, p = plan.micro_batches, plan.pipeline
    last = model.logits(one, plan, stack)
    due = (m + p - 1) * both + m * last + found.optimizer
    what = "GPT-3 175B on 96 A100: terms of a step together"
    source = "(m + p - 1) stages, m times the logits, and the optimizer"
    return [fact(what, found.total, due, source, 1e-12, "s")]


def published_facts() -> list[dict[str, Any]]:
    """Two figures that were published beside a step's time, out of that time."""
    row = next(one for one in table("published.tsv") if one["id"].startswith("dsv3"))
    one, plan, seconds = decoders()[row["model"]], plan_of(row), float(row["value"])
    used = 100 * model.mfu(one, plan, STACKS[row["stack"]], seconds)
    steps = 1e12 / (plan.batch * plan.sequence)
    hours = steps * seconds * plan.gpus / 3600
    title, source = "DeepSeek-V3's published step", "deepseek-v3-insights, table 4"
    other = "deepseek-v3, table 1"
    return [
        fact(f"{title}: MFU with all of attention", used, 43.73, source, 0.005, "%"),
        fact(f"{title}: hours of 10^12 tokens", hours, 180e3, other, 0.005, "h"),
    ]


def fitted_share(stack: str) -> float:
    """The share at which the rows that it is fitted on are right on average."""
    rows = [row for row in table("published.tsv")
            if row["fitted"] == "yes" and row["stack"] == stack]  # fmt: skip
    low, high = 0.05, 1.5
    for _ in range(40):
        middle = (low + high) / 2
        tried = replace_share(STACKS[stack], middle)
        if fsum(slowness(row, tried) - 1 for row in rows) > 0:
            low = middle  # steps too long
        else:
            high = middle
    return (low + high) / 2


def replace_share(stack: Stack, share: float) -> Stack:
    """The same software with another constant."""
    return Stack(**{**vars(stack), "share": share})


def slowness(row: Row, stack: Stack) -> float:
    """Predicted over published seconds of a step, whatever the row's unit."""
    ratio = predicted(row, stack) / float(row["value"])
    return 1 / ratio if row["unit"] in ("TFLOP/s", "1/s") else ratio


def terms(step: Step) -> dict[str, float]:
    """A step's terms by name."""
    return {one.name: getattr(step, one.name) for one in fields(step)}
