"""The shape of a record, and the claims that no run would have written."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

from warpshelf.contract.pictures import (
    NAME,
    PASS_KINDS,
    cell_problem,
    goals_problem,
    grids_problem,
    judge_goal,
    legend_problem,
    predictions_problem,
    timelines_problem,
)
from warpshelf.contract.snippet import ID
from warpshelf.contract.values import fact_holds
from warpshelf.core import files
from warpshelf.core.files import NUMBER, pretty_json
from warpshelf.records import limits, space
from warpshelf.records.ledger import LONGEST_SLUG
from warpshelf.records.limits import ROUNDING

Record = dict[str, Any]  # shaped as RECORD has it

SCHEMA = 1
MACHINE = re.compile(rf"(?=.{{1,{LONGEST_SLUG}}}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
PERSON = re.compile(r"(?=\S)[^\x00-\x1f\x7f<>]{1,80}(?<=\S)")
JOB = re.compile(r"https://[a-z0-9.-]+/[\w.-]+/[\w.-]+/actions/runs/[0-9]{1,20}", re.ASCII)

TIME = {"median": NUMBER, "p20": NUMBER, "p80": NUMBER, "n": int, "void?": int, "cv?": NUMBER}
RESULT = {
    "name": str,
    "role": ("variant", "peer"),
    "verdict": ("passed", "failed", "skipped"),
    "error?": NUMBER,
    "tolerance?": NUMBER,
    "max_error?": NUMBER,
    "max_error_limit?": NUMBER,
    "refuses?": {"*": str},
    "reason?": str,
    "time?": TIME,
    "untimed?": str,
}
CASE = {
    "case": {"*": object},
    "timed": bool,
    "bytes?": int,
    "flops?": int,
    "unit?": str,
    "results": [RESULT],
}
DUE = {
    "case": {"*": object},
    "timed": bool,
    "variants": [str],
    "peers": [str],
    "tolerance": NUMBER,
    "bytes?": int,
    "flops?": int,
    "unit?": str,
}
FACT = {
    "name": str,
    "value": NUMBER,
    "expected": NUMBER,
    "tolerance": NUMBER,
    "unit": str,
    "source": str,
    "verdict": ("passed",),
}
PREDICTION = {
    "set": str,
    "name": str,
    "predicted": NUMBER,
    "published": NUMBER,
    "unit": str,
    "source": str,
    "fitted": bool,
}
GOAL = {
    "name": str,
    "sets": [str],
    "within?": NUMBER,
    "share?": NUMBER,
    "mean?": NUMBER,
    "median?": NUMBER,
    "worst?": NUMBER,
}
PASS = {
    "rank": int,
    "start": int,
    "end": int,
    "kind": PASS_KINDS,
    "micro_batch": int,
    "chunk": int,
}
TIMELINE = {
    "name": NAME,
    "title": str,
    "note": str,
    "other?": str,
    "unit": int,
    "held": [NUMBER],
    "passes": [PASS],
}
GRID = {
    "name": NAME,
    "caption": str,
    "across": str,
    "down": str,
    "columns": [str],
    "rows": [str],
    "cells": [[cell_problem]],
    "legend?": [legend_problem],
}
COMPILED = {
    "kernel": str,
    "variant": str,
    "language": str,
    "arch": str,
    "registers": int,
    "spilled_bytes": int,
    "shared_bytes": int,
    "matrix_instructions": bool,
    "compiler": str,
}
CONDITIONS = {"*": (int, float, type(None))}
# What the children of a run may have taken: by task, over all children of that task; on a CPU in
# seconds of CPU.
SPENT = ("due", "demo", "verify", "compile", "view", "space", "time")
LONGEST_TASK = 7 * 86_400  # seconds
MACHINE_SHAPE = {
    "slug": MACHINE,
    "device": str,
    "gpus": int,
    "memory_bytes": (int, type(None)),
    "sm": (int, type(None)),
    "sms": (int, type(None)),
    "driver": (str, type(None)),
    "cuda": (str, type(None)),
    "torch": (str, type(None)),
    "triton": (str, type(None)),
    "python": str,
    "os": str,
}
# A person by the name they go by, or a job of this project by the address of its log.
ORIGIN = {"who?": PERSON, "job?": JOB}
RECORD = {  # in the order in which a file has it
    "schema": int,
    "method": int,
    "snippet": ID,
    "kind": ("kernel", "program", "model"),
    "digest": DIGEST,
    "date": DATE,
    "commit": (str, type(None)),
    "command": str,
    "machine": MACHINE_SHAPE,
    "origin?": ORIGIN,  # who or what handed it in; a record of a CPU needs none
    "seconds?": {f"{task}?": NUMBER for task in SPENT},  # that it took; claims nothing
    "targets?": [space.TARGET],  # of a kernel on a CPU: the architectures whose PTX it executed
    "demo": str,
    "cases?": [CASE],
    "facts?": [FACT],
    "predictions?": [PREDICTION],  # of a model: published figures beside its own
    "goals?": [GOAL],  # what errors of these it keeps to
    "ceilings?": {
        "copy_bytes_per_second?": NUMBER,
        "matrix_flops_per_second?": {"*": NUMBER},
        "peak_bytes_per_second?": NUMBER,
        "peak_flops_per_second?": {"*": NUMBER},
    },
    "conditions?": {"load?": CONDITIONS, "slowed_by?": [str]},
    "compiled?": [COMPILED],
    "skips?": [{"what": str, "reason": str}],
    "due?": [DUE],  # of a kernel on a CPU: what every record of it must show, see claim_check.py
    "space?": space.SPACE,  # of a kernel: every configuration of its SPACE
    "grids?": [GRID],
    "timelines?": [TIMELINE],
}


def record_text(record: Record) -> str:
    """A record as a file has it: JSON, its keys in the order of RECORD, a result a line."""
    return pretty_json(files.order_keys(record, RECORD))


def shape_problem(value: object) -> str | None:
    """The first place where `value` is not shaped as a record, in words; None where all is well."""
    return files.shape_problem(value, RECORD, "record")


def validation_error(record: Record) -> str | None:
    """What a well-shaped record claims that no run of ours would have written."""
    if record["schema"] != SCHEMA:
        return f"is of schema {record['schema']}, which never was"
    try:
        datetime.strptime(record["date"], "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return f"was made on {record['date']}, which is no date"
    gpu = record["machine"]["gpus"] > 0
    if gpu == (record["machine"]["slug"] == "cpu") or record["machine"]["gpus"] < 0:
        return "the machine's slug and its number of GPUs disagree"
    for key in ("sm", "sms") if gpu else ():
        if (record["machine"][key] or 0) < 1:
            return f"is of a GPU with {record['machine'][key]} for its {key}"
    if "origin" in record and len(record["origin"]) != 1:
        return "its origin names a person and a job, or neither"
    if "origin" in record and not gpu:
        return "is of a CPU, which anyone can check, and has an origin"
    for case in record.get("cases", ()):
        for result in case["results"]:
            what = f"{result['role']} {result['name']!r}"
            if result["role"] == "variant" and result["verdict"] == "failed":
                return f"{what} failed; a failed run leaves no record"
            if "time" in result:
                if not gpu or result["verdict"] != "passed" or not case["timed"]:
                    return f"{what} has a time though it was not timed on a GPU after passing"
                if "untimed" in result:
                    return f"{what} has a time, and a reason for having none"
                if not _is_possible_time(result["time"], case, record.get("ceilings", {})):
                    return f"{what} has no possible time: {result['time']}"
            if result["verdict"] == "passed" and not _is_within_tolerance(result):
                return f"{what} passed with an error over its tolerance"
    for fact in record.get("facts", ()):
        if not fact_holds(fact):
            return f"fact {fact['name']!r} passed with {fact['value']} for {fact['expected']}"
    if wrong := _prediction_error(record):
        return wrong
    for task, seconds in record.get("seconds", {}).items():
        if not 0 <= seconds <= LONGEST_TASK:
            return f"took {seconds} s to {task}"
    if "space" in record and (wrong := space.validation_error(record)):
        return wrong
    if "grids" in record and (malformed := grids_problem(record["grids"])):
        return malformed
    return timelines_problem(record["timelines"]) if "timelines" in record else None


def _prediction_error(record: Record) -> str | None:
    rows, goals = record.get("predictions"), record.get("goals")
    if rows is None:
        return "has goals of no predictions" if goals is not None else None
    if wrong := predictions_problem(rows) or goals_problem(goals or (), rows):
        return wrong
    for goal in goals or ():
        met, told = judge_goal(goal, rows)
        if not met:
            return f"goal {goal['name']!r} passed with {told}"
    return None


def _is_possible_time(time: dict[str, Any], case: dict[str, Any], ceilings: dict[str, Any]) -> bool:
    if (
        not 0 < time["p20"] <= time["median"] <= time["p80"]
        or time["n"] < 1
        or time.get("void", 0) < 0
    ):
        return False
    if not {"bytes", "flops", "unit"} <= case.keys():
        return True
    median: float = time["median"]
    return median >= (1 - ROUNDING) * limits.least_seconds(case, ceilings)


def _is_within_tolerance(result: dict[str, Any]) -> bool:
    # Errors are recorded to two digits, so one just below a tolerance may come out above it.
    limit: float = result.get("tolerance", -1)
    error: float = result.get("error", -1)
    largest: float = result.get("max_error", 0)
    most: float = result.get("max_error_limit", math.inf)
    return 0 <= error <= max(limit, float(f"{limit:.2g}")) and 0 <= largest <= most
