"""The jobs of a child process: verify, time and compile a snippet, describe the machine.

The fork server imports this module, and torch with it, once. It must neither touch CUDA nor import
Triton: each child does so for itself, once its environment says how.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from warpshelf import contract, machine, timing
from warpshelf.checks import Checks
from warpshelf.child import Context, JobError


def describe_machine(context: Context) -> dict:
    """This machine, as a record has it."""
    return {"machine": machine.describe()}


def check_contract(context: Context) -> dict:
    """Import the snippet and look at its values; what it offers, by name."""
    module, job = context.module, context.job
    found = contract.problems(module, job["kind"], job["needs"])
    if found:
        error = JobError("", "")
        error.failures = [
            {"line": job["lines"].get(name), "what": what, "mend": mend}
            for name, what, mend in found
        ]
        raise error
    if job["kind"] != "kernel":
        return {"cases": [], "variants": []}
    return {"cases": list(module.CASES), "variants": list(module.VARIANTS)}


def verify_snippet(context: Context) -> dict:
    """The demo twice, then every case or fact. Failures are gathered, one a variant."""
    module, job = context.module, context.job
    check_contract(context)
    device = _device()
    if job["demo"]:
        for turn in ("demo 1", "demo 2"):
            context.at("in demo()")
            context.mark(turn)
            module.demo()
        context.mark("end")
    if job["kind"] != "kernel":
        return _facts(context)
    checks = Checks(context, device)
    chosen = job.get("cases")
    for index, case in enumerate(module.CASES):
        if chosen is None or index in chosen:
            checks.case(index, case, timed=False)
    return checks.answer()


def time_snippet(context: Context) -> dict:
    """Verify and time each TIMED case on the GPU, with the ceilings of this very run."""
    from warpshelf import gpu

    module, job = context.module, context.job
    check_contract(context)
    clock = gpu.CudaClock()
    checks = Checks(context, _device())
    before = machine.conditions()
    units = {module.cost(case)["unit"] for case in module.TIMED}
    context.at("while measuring the ceilings")
    ceilings = gpu.ceilings(clock, job["machine"], units) if module.TIMED else {}
    deadline = time.monotonic() + 0.9 * job["limit"]
    for index, case in enumerate(module.TIMED):
        row = checks.case(index, case, timed=True)
        _time_case(checks, index, case, row, clock, ceilings, deadline)
    after = machine.conditions()
    return {
        **checks.answer(),
        "ceilings": ceilings,
        "conditions": {"before": before, "after": after},
    }


def _time_case(
    checks: Checks,
    index: int,
    case: dict,
    row: dict,
    clock: timing.Clock,
    ceilings: dict,
    deadline: float,
) -> None:
    module, context = checks.module, checks.context
    results = {result["name"]: result for result in row["results"] if result["verdict"] == "passed"}
    functions = {**module.VARIANTS, **module.PEERS}
    inputs = checks.draw(case, index, 2)
    calls = {name: (lambda f=functions[name]: f(*inputs)) for name in results}
    context.at(f"while timing {case}")
    times = timing.interleave(calls, clock, deadline=deadline)
    least = timing.least_seconds(row, ceilings)
    for name, summary in times.items():
        try:
            timing.refuse_impossible(name, summary, least)
        except timing.Impossible as error:
            if name in module.VARIANTS:
                checks.fail(name, f"{error} on case {case}", "look for a wrong cost()")
            continue
        results[name]["time"] = summary.as_dict()


def _facts(context: Context) -> dict:
    context.at("in facts()")
    rows = context.module.facts()
    line = context.job["lines"].get("facts")
    if not isinstance(rows, Sequence) or not rows:
        raise JobError(f"facts() returned {rows!r:.60}", "return a list of rows", line)
    failures = []
    for row in rows:
        if what := contract.fact_problem(row):
            raise JobError(what, "mend the row", line)
        if not contract.fact_holds(row):
            value, expected = row["value"], row["expected"]
            what = f"fact {row['name']!r}: {value} where {expected} is expected"
            failures.append({"line": line, "what": what, "mend": f"see {row['source']}"})
    return {
        "facts": [{**row, "value": _stable(row), "verdict": "passed"} for row in rows],
        "failures": failures,
    }


def _stable(row: dict) -> int | float:
    """The value to record: an error to two digits, since more differs by processor."""
    value = row["value"]
    return float(f"{value:.2g}") if isinstance(value, float) and row["expected"] == 0 else value


def compile_snippet(context: Context) -> dict:
    """Ahead-of-time figures of every kernel, and the limits that they break."""
    from warpshelf import compiled

    job = context.job
    module = context.module
    context.at("while compiling")
    rows = compiled.figures(module, job["id"], has_cuda=job["has_cuda"], needs=job["needs"])
    broken = compiled.broken_limits(rows, getattr(module, "LIMITS", {}))
    line = job["lines"].get("LIMITS")
    return {
        "compiled": rows,
        "failures": [
            {"line": line, "what": what, "mend": mend}
            for what, _, mend in (text.rpartition("; ") for text in broken)
        ],
    }


def _device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    torch.set_num_threads(1)  # one core a child; and sums always in one order
    return "cpu"
