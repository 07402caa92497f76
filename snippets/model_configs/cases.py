"""What model_configs must show: counts of published checkpoints, caches of papers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from snippets.facts import fact
from snippets.model_configs.model_configs import (
    Model,
    cache_bytes,
    parameters,
    read,
)

# Fields of published configurations, and the parameters of their checkpoints.
ROWS = json.loads((Path(__file__).parent / "configs.json").read_text("utf-8"))


def models() -> dict[str, Model]:
    """Every model of configs.json."""
    return {row["name"]: read(json.dumps(row["config"])) for row in ROWS}


def facts() -> list[dict[str, Any]]:
    """Parameters to the last, active ones and caches as papers print them."""
    found = models()
    return counted(found) + active(found) + caches(found)


def counted(found: dict[str, Model]) -> list[dict[str, Any]]:
    """All parameters against checkpoints, as those store them."""
    rows = []
    for row in ROWS:
        if "parameters" not in row:
            continue
        model = found[row["name"]]
        table = model.vocabulary * model.hidden
        value, what = parameters(model), "parameters"
        if "beside" in row:  # the tower that sees, and what leads from it
            value, what = value + row["beside"], "parameters, with those that see"
        if "stored_twice" in row:
            value, what = value + table, "parameters, the tied matrix twice"
        if "tables_again" in row:  # as the module that predicts stores them
            value = parameters(model, predicting=True) + 2 * table
            what = "parameters, with what predicts and tables for it"
        rows.append(
            fact(f"{row['name']}: {what}", value, row["parameters"], row["source"])
        )
    return rows


def active(found: dict[str, Model]) -> list[dict[str, Any]]:
    """Parameters that a token meets, against announcements; within their rounding."""
    rows = []
    announced = (
        ("Mixtral-8x7B-v0.1", 12.9, 0.05, "Mistral AI, Mixtral of experts, 2023"),
        ("Mixtral-8x22B-v0.1", 39, 0.5, "Mistral AI, Cheaper, better, faster, 2024"),
        ("Qwen1.5-MoE-A2.7B", 2.7, 0.05, "its name"),
        ("Qwen3-235B-A22B", 22, 0.5, "its name"),
        ("DeepSeek-V2", 21, 0.5, "deepseek-v2"),
        ("Llama-4-Maverick", 17, 0.5, "its name, 17B-128E"),
    )
    for name, expected, rounding, source in announced:
        value = parameters(found[name], active=True) / 1e9
        rows.append(
            fact(f"{name}: active", value, expected, source, rounding / expected, "1e9")
        )
    for name, expected in (("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)):
        model = found[name]
        value = parameters(model, active=True) - model.vocabulary * model.hidden
        rows.append(
            fact(
                f"{name}: active, without the embedding table", value / 1e9, expected,
                "OpenAI, gpt-oss model card, 2025, table 1", 0.005 / expected, "1e9",
            )
        )  # fmt: skip
    return rows


def caches(found: dict[str, Model]) -> list[dict[str, Any]]:
    """Bytes of the cache, 16 bits an element."""
    paper = "deepseek-v3-insights, table 1"
    rows = [
        fact(f"{name}: cache of a token", cache_bytes(found[name]), expected, source,
             unit="B")
        for name, expected, source in (
            ("DeepSeek-V3", 70_272, paper),
            ("Qwen2.5-72B", 327_680, paper),
            ("Llama-3.1-405B", 516_096, paper),
            ("opt-13b", 819_200, "2 * 5120 * 40 * 2, paged-attention"),
        )
    ]  # fmt: skip
    mistral = found["Mistral-7B-v0.1"]
    whole = 32_768 * cache_bytes(mistral)
    rows.append(
        fact(
            "Mistral-7B: what a window of 4096 saves of the cache of 32,768 tokens",
            whole / cache_bytes(mistral, 32_768), 8, "mistral-7b: 8x", unit="×",
        )
    )  # fmt: skip
    return rows
