"""The shape of a record, and the claims that no run writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from warpshelf.contract import pictures
from warpshelf.contract.snippet import ID
from warpshelf.contract.values import fact_holds
from warpshelf.core import files
from warpshelf.core.files import NUMBER, pretty_json
from warpshelf.records import limits, space
from warpshelf.records.ledger import LONGEST_SLUG

Record = dict[str, Any]  # shaped as RECORD has it

SCHEMA = 1
MACHINE = re.compile(rf"(?=.{{1,{LONGEST_SLUG}}}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
PERSON = re.compile(r"(?=\S)[^\x00-\x1f\x7f<>]{1,80}(?<=\S)")
JOB = re.compile(r"https://[a-z0-9.-]+/[\w.-]+/[\w.-]+/actions/runs/[0-9]{1,20}", re.ASCII)


def _typed_keys(kind: Any, names: str) -> dict[str, Any]:
    """Keys whose values are all of one kind, in the order in which a file has them."""
    return dict.fromkeys(names.split(), kind)


OPEN = {"*": object}
COST = {"bytes?": int, "written?": int, "flops?": int, "unit?": str}
TIME = _typed_keys(NUMBER, "median p20 p80") | {
    "n": int, "void?": int, "cv?": NUMBER, "host?": bool
}  # fmt: skip
RESULT = {
    "name": str,
    "role": ("variant", "peer"),
    "verdict": ("passed", "failed", "skipped"),
    **_typed_keys(NUMBER, "error? tolerance? max_error? max_error_limit?"),
    "refuses?": {"*": str},
    "reason?": str,
    "time?": TIME,
    "untimed?": str,
}
CASE = {"case": OPEN, "timed": bool, **COST, "results": [RESULT]}
DUE = {"case": OPEN, "timed": bool, "variants": [str], "peers": [str], "tolerance": NUMBER, **COST}
FACT = {
    "name": str,
    **_typed_keys(NUMBER, "value expected tolerance"),
    **_typed_keys(str, "unit source"),
    "verdict": ("passed",),
}
COMPILED = {
    **_typed_keys(str, "kernel variant language arch"),
    **_typed_keys(int, "registers spilled_bytes shared_bytes"),
    "matrix_instructions": bool,
    "compiler": str,
}
# By which tasks a run's children may have taken seconds, all together; on a CPU those of CPU.
SPENT = ("due", "demo", "verify", "compile", "view", "space", "time")
LONGEST_TASK = 7 * 86_400  # seconds
MACHINE_SHAPE = {
    "slug": MACHINE,
    "device": str,
    "gpus": int,
    **_typed_keys((int, type(None)), "memory_bytes sm sms"),
    **_typed_keys((str, type(None)), "driver cuda torch triton"),
    **_typed_keys(str, "python os"),
}
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
    "origin?": {"who?": PERSON, "job?": JOB},  # that handed it in; a record of a CPU needs none
    "seconds?": {f"{task}?": NUMBER for task in SPENT},  # that it took; claims nothing
    "targets?": [space.TARGET],  # of a kernel on a CPU: the architectures whose PTX it executed
    "demo": str,
    "cases?": [CASE],
    "facts?": [FACT],
    "predictions?": [pictures.PREDICTION],  # of a model: published figures beside its own
    "goals?": [pictures.GOAL],  # what errors of these it keeps to
    "ceilings?": {
        "copy_bytes_per_second?": NUMBER,
        "matrix_flops_per_second?": {"*": NUMBER},
        "peak_bytes_per_second?": NUMBER,
        "peak_flops_per_second?": {"*": NUMBER},
        "l2_bytes?": int,
    },
    "conditions?": {"load?": {"*": (int, float, type(None))}, "slowed_by?": [str]},
    "compiled?": [COMPILED],
    "skips?": [{"what": str, "reason": str}],
    "due?": [DUE],  # of a kernel on a CPU: what every record of it must show, see claim_check.py
    "space?": space.SPACE,  # of a kernel: every configuration of its SPACE
    "grids?": [pictures.GRID],
    "timelines?": [pictures.TIMELINE],
}


def record_text(record: Record) -> str:
    """A record as a file has it: JSON, its keys in the order of RECORD, a result a line."""
    return pretty_json(files.order_keys(record, RECORD))


def timed_results(record: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each result that has a time, behind the row of its case."""
    for row in record.get("cases", ()):
        yield from ((row, result) for result in row["results"] if "time" in result)


def result_key(row: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What a function on a case is known by in every record."""
    return json.dumps([row["case"], result["role"], result["name"]], sort_keys=True)


def shape_problem(value: object) -> str | None:
    """The first place where `value` is not shaped as a record, in words; None where all is well."""
    return files.shape_problem(value, RECORD, "record")


def validation_error(record: Record) -> str | None:
    """What a well-shaped record claims that no run writes."""
    return next(_impossible_claims(record), None)


def _impossible_claims(record: Record) -> Iterator[str]:
    """The first is what counts: what follows may rest on what it refuses."""
    machine = record["machine"]
    gpu = machine["gpus"] > 0
    if record["schema"] != SCHEMA:
        yield f"has schema {record['schema']}, which does not exist"
    try:
        datetime.strptime(record["date"], "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        yield f"was made on {record['date']}, which is not a date"
    if gpu == (machine["slug"] == "cpu") or machine["gpus"] < 0:
        yield "the machine's slug and its number of GPUs disagree"
    for key in ("sm", "sms") if gpu else ():
        if (machine[key] or 0) < 1:
            yield f"is of a GPU with {machine[key]} for its {key}"
    if "origin" in record and len(record["origin"]) != 1:
        yield "its origin must name either a person or a job"
    if "origin" in record and not gpu:
        yield "is a CPU record with an origin, which only a GPU record has"
    for case in record.get("cases", ()):
        least = (1 - limits.ROUNDING) * limits.least_seconds(case, record.get("ceilings", {}))
        for result in case["results"]:
            for what in _impossible_results(result, gpu and case["timed"], least):
                yield f"{result['role']} {result['name']!r} {what}"
    for fact in record.get("facts", ()):
        if not fact_holds(fact):
            yield f"fact {fact['name']!r} passed with {fact['value']} instead of {fact['expected']}"
    yield from _missed_predictions(record)
    for task, seconds in record.get("seconds", {}).items():
        if not 0 <= seconds <= LONGEST_TASK:
            yield f"took {seconds} s to {task}"
    if "space" in record:
        yield from space.malformed_space(record)
    if "grids" in record and (wrong := pictures.grids_problem(record["grids"])):
        yield wrong
    if "timelines" in record and (wrong := pictures.timelines_problem(record["timelines"])):
        yield wrong


def _impossible_results(result: Mapping[str, Any], timed: bool, least: float) -> Iterator[str]:
    """What is impossible about a result whose time is `least` seconds or more."""
    passed = result["verdict"] == "passed"
    if result["role"] == "variant" and result["verdict"] == "failed":
        yield "failed; a failed run leaves no record"
    if (time := result.get("time")) is not None:
        if not (timed and passed):
            yield "has a time, but did not pass or was not timed on a GPU"
        if "untimed" in result:
            yield "has both a time and a reason for having none"
        ordered = 0 < time["p20"] <= time["median"] <= time["p80"] and time["median"] >= least
        if not ordered or time["n"] < 1 or time.get("void", 0) < 0:
            yield f"has no possible time: {time}"
    if passed:
        # Errors are recorded to two digits, so one just below a tolerance may come out above it.
        limit, most = result.get("tolerance", -1), result.get("max_error_limit", math.inf)
        within = 0 <= result.get("error", -1) <= max(limit, float(f"{limit:.2g}"))
        if not (within and 0 <= result.get("max_error", 0) <= most):
            yield "passed with an error over its tolerance"


def _missed_predictions(record: Record) -> Iterator[str]:
    rows, goals = record.get("predictions"), record.get("goals")
    if rows is None:
        if goals is not None:
            yield "has goals but no predictions"
        return
    if wrong := pictures.predictions_problem(rows) or pictures.goals_problem(goals or (), rows):
        yield wrong
    for goal in goals or ():
        met, told = pictures.judge_goal(goal, rows)
        if not met:
            yield f"goal {goal['name']!r} passed with {told}"
