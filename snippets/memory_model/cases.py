"""What memory_model must show: published peaks, papers' formulas, executed tables."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from snippets.facts import fact
from snippets.memory_model.calculator import BANDS
from snippets.memory_model.held import held
from snippets.memory_model.kept import kept
from snippets.memory_model.lived import of_loss
from snippets.memory_model.memory_model import (
    GIB,
    elements,
    losses,
    peak,
    sharded,
)
from snippets.memory_model.plan import Plan
from snippets.model_configs.layers import Attention, FeedForward, Layer, Model
from snippets.model_configs.model_configs import parameters, read
from snippets.pipeline_schedules import pipeline_schedules

HERE = Path(__file__).parent
UNITS = {"GiB": GIB, "GB": 1e9}
PAPER = "reducing-activation-recomputation"
SIMUMAX, TITAN = BANDS["megatron"], BANDS["fsdp"]
ZERO_BUBBLE = "Zero Bubble, 2023"
GOALS = (
    {"name": "within 5 % on 80 % of rows", "sets": (SIMUMAX, ZERO_BUBBLE, TITAN),
     "within": 0.05, "share": 0.8},
    {"name": "within 10 % on 95 % of rows", "sets": (SIMUMAX, ZERO_BUBBLE, TITAN),
     "within": 0.10, "share": 0.95},
    {"name": "nothing fitted: Megatron's worst row", "sets": (SIMUMAX,), "worst": 0.02},
    {"name": "FSDP's worst row", "sets": (TITAN,), "worst": 0.05},
)  # fmt: skip


def models() -> dict[str, Model]:
    """The models that were trained, before layers were cut away."""
    texts = json.loads((HERE / "models.json").read_text("utf-8"))
    return {name: read(json.dumps(fields)) for name, fields in texts.items()}


def rows() -> list[dict[str, str]]:
    """The published peaks with their inputs."""
    with (HERE / "published.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def plan(row: dict[str, str]) -> Plan:
    """The run that a row describes."""
    said = row["options"].split()
    numbers = (
        "tensor", "pipeline", "data", "context", "expert", "chunks", "micro_batches",
        "sequence", "micro_batch",
    )  # fmt: skip
    made = Plan(
        **{name: int(row[name]) for name in numbers},
        schedule=row["schedule"],
        recompute=row["recompute"],
        trimmed="trimmed" in said,
        dropout="dropout" in said,
        flash="scores" not in said,
        gradient=2 if "fp16" in said else 4,
        fused_loss="unfused" not in said,
        compiled="compiled" in said,
    )
    return replace(made, stack="fsdp", zero=3) if "fsdp" in said else made


def predictions() -> list[dict[str, Any]]:
    """Each published peak and the model's."""
    known, made = models(), []
    for row in rows():
        model = known[row["model"]]
        model = replace(model, layers=model.layers[: int(row["layers"])])
        made.append(
            {
                "set": row["set"],
                "name": row["name"],
                "predicted": peak(model, plan(row)).total / UNITS[row["unit"]],
                "published": float(row["value"]),
                "unit": row["unit"],
                "source": row["source"],
                "fitted": row["fitted"] == "1",
            }
        )
    return made


def facts() -> list[dict[str, Any]]:
    """Formulas of papers, executed schedules, sums over ranks, what torch has alive."""
    return formulas() + states() + schedules() + sums() + logits()


def gpt(hidden: int, heads: int) -> Layer:
    """A layer of GPT's widths."""
    width = hidden // heads
    return Layer(
        Attention(heads, heads, width, width),
        FeedForward(4 * hidden, False),
        4 * hidden,
    )


def formulas() -> list[dict[str, Any]]:
    """Bytes that a layer of GPT-3 keeps, for a sequence of 2048."""
    s, h, a, made = 2048, 12_288, 96, []
    square = 5 * a * s / h
    for t, parallel, name, due in (
        (1, False, "one rank", 34 + square),
        (8, False, "8 tensor ranks", 10 + 24 / 8 + square / 8),
        (8, True, "8 ranks, sequence too", (34 + square) / 8),
    ):
        for recompute in ("none", "selective", "full"):
            run = Plan(
                s, tensor=t, sequence_parallel=parallel, flash=False, dropout=True,
                recompute=recompute,
            )  # fmt: skip
            expected = s * h * due
            if recompute == "selective":
                expected -= s * h * square / t
            if recompute == "full":
                expected = 2 * s * h / (t if parallel else 1)
            made.append(
                fact(
                    f"GPT-3, a layer on {name}, recompute {recompute}",
                    kept(gpt(h, a), h, run), expected, f"{PAPER}, table 2", unit="B",
                )
            )  # fmt: skip
    return made


def states() -> list[dict[str, Any]]:
    """ZeRO's figure 1: 7.5e9 parameters on 64 ranks, gradients in 16 bits."""
    made = []
    for stage, (due, rounding) in enumerate(
        ((120, 0), (31.4, 0.05), (16.6, 0.05), (1.9, 0.05))
    ):
        run = Plan(1, data=64, zero=stage, gradient=2)
        value = sum(sharded(run, 7.5e9, 0)) / 1e9
        name = f"7.5e9 parameters on 64 ranks, ZeRO stage {stage}"
        made.append(fact(name, value, due, "zero, figure 1", rounding / due, "GB"))
    return made


def schedules() -> list[dict[str, Any]]:
    """Micro-batches held, against the executed tables."""
    built = {
        "gpipe": pipeline_schedules.gpipe,
        "1f1b": pipeline_schedules.one_f_one_b,
        "interleaved": pipeline_schedules.interleaved,
        "zb-h1": pipeline_schedules.zero_bubble_h1,
        "zb-h2": pipeline_schedules.zero_bubble_h2,
        "zb-v": pipeline_schedules.zero_bubble_v,
        "dualpipe": pipeline_schedules.dualpipe,
        "dualpipe-v": pipeline_schedules.dualpipe_v,
    }
    made = []
    for name, build in built.items():
        for p, m in ((2, 4), (4, 8), (4, 32), (8, 24)):
            chunks = 3 if name == "interleaved" else 1
            table = build(p, m, 3) if chunks > 1 else build(p, m)
            run = Plan(1, pipeline=p, micro_batches=m, schedule=name, chunks=chunks)
            most = max(held(run, rank) for rank in range(p))
            due = table.peak / (2 if name == "dualpipe" else 1)  # of both its stages
            source = "executed table of pipeline_schedules"
            made.append(fact(f"{name}, p {p}, m {m}: held at most", most, due, source))
            if name in ("1f1b", "interleaved", "gpipe"):
                last = table.held(p - 1) / table.chunks
                what = f"{name}, p {p}, m {m}: held by the last rank"
                made.append(fact(what, held(run, p - 1), last, source))
    return made


def sums() -> list[dict[str, Any]]:
    """Parameters of all ranks, against those of the model."""
    made = []
    for name in ("DeepSeek-V3, 1 dense", "Llama 3.1 405B", "GPT 1.5B"):
        model = models()[name]
        run = Plan(
            1, data=8, pipeline=4, expert=8 if "DeepSeek" in name else 1,
            stack="fsdp", zero=3,
        )  # fmt: skip
        total = 0.0
        for rank in range(run.pipeline):
            layers = Counter(one for part in run.layers(model, rank) for one in part)
            first, last = run.ends(rank)
            layers.update(model.predicting if last else ())
            common, experts = elements(model, run, layers, first, last)
            total += common + run.expert * experts
        due = parameters(model, predicting=True)
        what = f"{name}: parameters of 4 pipeline ranks"
        made.append(fact(what, total, due, "parameters of model_configs", 1e-12))
    return made


def logits() -> list[dict[str, Any]]:
    """Bytes a logit of torch's cross entropy, without the 16-bit ones that are gone."""
    model = models()["Llama 3.1 8B"]
    run = Plan(64, stack="fsdp", zero=3)
    norm = 4 * run.tokens * model.hidden
    value = (losses(model, run) - norm) / (run.tokens * model.vocabulary) - 2
    source = "storages alive in torch"
    return [
        fact("cross entropy in 32 bits: bytes a logit", value, of_loss(), source, 0.01)
    ]
