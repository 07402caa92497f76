"""The shape of a record, and the claims that no run would have written."""

from __future__ import annotations

import math
import re
from datetime import datetime

from warpshelf import timing
from warpshelf.contract import fact_holds
from warpshelf.files import LARGEST_INTEGER
from warpshelf.machine import LONGEST_SLUG
from warpshelf.snippet import ID

SCHEMA = 1
MACHINE = re.compile(rf"(?=.{{1,{LONGEST_SLUG}}}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ROUNDING = 1e-3  # of a time and of the peak rates, which a record has to four digits
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)

# What each value must be. A list means "a list of these"; a trailing "?" marks a key that may be
# absent; a dict with the key "*" has any keys.
NUMBER = (int, float)
TIME = {"median": NUMBER, "p20": NUMBER, "p80": NUMBER, "n": int}
RESULT = {
    "name": str,
    "role": ("variant", "peer"),
    "verdict": ("passed", "failed", "skipped"),
    "reason?": str,
    "error?": NUMBER,
    "tolerance?": NUMBER,
    "max_error?": NUMBER,
    "max_error_limit?": NUMBER,
    "time?": TIME,
}
CASE = {
    "case": {"*": object},
    "timed": bool,
    "bytes?": int,
    "flops?": int,
    "unit?": str,
    "results": [RESULT],
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
RECORD = {
    "schema": int,
    "method": int,
    "snippet": ID,
    "kind": ("kernel", "program", "model"),
    "digest": DIGEST,
    "date": DATE,
    "commit": (str, type(None)),
    "command": str,
    "machine": MACHINE_SHAPE,
    "demo": str,
    "cases?": [CASE],
    "facts?": [FACT],
    "ceilings?": {
        "copy_bytes_per_second?": NUMBER,
        "matrix_flops_per_second?": {"*": NUMBER},
        "peak_bytes_per_second?": NUMBER,
        "peak_flops_per_second?": {"*": NUMBER},
    },
    "conditions?": {"before?": CONDITIONS, "after?": CONDITIONS},
    "compiled?": [COMPILED],
    "skips?": [{"what": str, "reason": str}],
}


def problem(value: object, shape: object = None, place: str = "record") -> str | None:
    """The first place where `value` is not shaped as a record, in words; None where all is well."""
    shape = RECORD if shape is None else shape
    if isinstance(shape, dict):
        return _problem_in_dict(value, shape, place)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is no list"
        for index, item in enumerate(value):
            if found := problem(item, shape[0], f"{place}[{index}]"):
                return found
        return None
    if isinstance(shape, re.Pattern):
        good = isinstance(value, str) and shape.fullmatch(value)
        return None if good else f"{place} is {value!r:.60}"
    if isinstance(shape, tuple) and isinstance(shape[0], str):
        known = ", ".join(shape)
        return None if value in shape else f"{place} is {value!r:.60}, not one of {known}"
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(value, bool) and bool not in kinds and object not in kinds:
        return f"{place} is {value!r}"
    if not isinstance(value, kinds):
        return f"{place} is {value!r:.60}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is {value!r}"
    if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        return f"{place} is out of range"
    return None


def _problem_in_dict(value: object, shape: dict, place: str) -> str | None:
    if not isinstance(value, dict):
        return f"{place} is no object"
    if "*" in shape:
        pairs = ((item, shape["*"], f"{place}.{key}") for key, item in value.items())
        return next((found for pair in pairs if (found := problem(*pair))), None)
    names = {key.rstrip("?") for key in shape}
    if unknown := sorted(value.keys() - names):
        return f"{place} has the unknown key {unknown[0]!r:.60}"
    for key, inner in shape.items():
        name = key.rstrip("?")
        if name not in value:
            if key == name:
                return f"{place} lacks {name!r}"
        elif found := problem(value[name], inner, f"{place}.{name}"):
            return found
    return None


def contradiction(record: dict) -> str | None:
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
    for case in record.get("cases", ()):
        for result in case["results"]:
            what = f"{result['role']} {result['name']!r}"
            if result["role"] == "variant" and result["verdict"] == "failed":
                return f"{what} failed; a failed run leaves no record"
            if "time" in result:
                if not gpu or result["verdict"] != "passed" or not case["timed"]:
                    return f"{what} has a time though it was not timed on a GPU after passing"
                if not _possible(result["time"], case, record.get("ceilings", {})):
                    return f"{what} has no possible time: {result['time']}"
            if result["verdict"] == "passed" and not _within(result):
                return f"{what} passed with an error over its tolerance"
    for fact in record.get("facts", ()):
        if not fact_holds(fact):
            return f"fact {fact['name']!r} passed with {fact['value']} for {fact['expected']}"
    return None


def _possible(time: dict, case: dict, ceilings: dict) -> bool:
    if not 0 < time["p20"] <= time["median"] <= time["p80"] or time["n"] < 1:
        return False
    if not {"bytes", "flops", "unit"} <= case.keys():
        return True
    return time["median"] >= (1 - ROUNDING) * timing.least_seconds(case, ceilings)


def _within(result: dict) -> bool:
    # Errors are recorded to two digits, so one just below a tolerance may come out above it.
    limit = result.get("tolerance", -1)
    if not 0 <= result.get("error", -1) <= max(limit, float(f"{limit:.2g}")):
        return False
    return 0 <= result.get("max_error", 0) <= result.get("max_error_limit", math.inf)
