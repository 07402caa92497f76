"""The jobs of a child that need no verdict yet: look at the machine, verify and time on its GPU."""

from __future__ import annotations

import time
from typing import Any

import torch

from warpshelf.records import limits
from warpshelf.worker import costs, gpu, space, timing
from warpshelf.worker.checks import Checks
from warpshelf.worker.context import Context
from warpshelf.worker.gpu import Watch
from warpshelf.worker.timing import Summary, Untimed


def describe_machine(context: Context) -> dict[str, Any]:
    """This machine, as a record has it."""
    return {"machine": gpu.describe()}


def device() -> str:
    """The device to verify on: "cuda" where there is one."""
    if torch.cuda.is_available():
        return "cuda"
    torch.set_num_threads(1)  # one core a child; and sums always in one order
    return "cpu"


def time_snippet(context: Context) -> dict[str, Any]:
    """Verify and time each TIMED case on the GPU, with the ceilings of this very run."""
    proof, job = context.proof, context.job
    clock = gpu.CudaClock()
    checks = Checks(context, device())
    units = {costs.guess(proof, case)["unit"] for case in proof.timed}
    context.at("while measuring the ceilings")
    ceilings = gpu.ceilings(clock, job["machine"], units) if proof.timed else {}
    deadline = time.monotonic() + 0.9 * job["limit"]
    with Watch(gpu.driver()) as watch:
        for index, case in enumerate(proof.timed):
            row = checks.case(index, case, timed=True)
            if row["results"]:
                times = _times(checks, index, case, row, clock, watch, deadline)
                _keep(checks, case, row, times, ceilings)
        searched: dict[str, Any] = {"failures": []}
        if context.proof.space is not None and not checks.failures:
            with watch.load():
                searched = space.timed(checks, clock, ceilings, deadline)
    answer = checks.answer()
    return {
        **answer,
        **searched,
        "failures": answer["failures"] + searched["failures"],
        "ceilings": ceilings,
        "conditions": watch.conditions(),
    }


def _passed(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {result["name"]: result for result in row["results"] if result["verdict"] == "passed"}


def _times(
    checks: Checks,
    index: int,
    case: dict[str, Any],
    row: dict[str, Any],
    clock: timing.Clock,
    watch: Watch,
    deadline: float,
) -> dict[str, Summary | Untimed]:
    """Time whatever passed a case."""
    functions = {**checks.proof.variants, **checks.proof.peers}
    inputs = checks.draw(case, index, 2)
    calls = {name: (lambda f=functions[name]: f(*inputs)) for name in _passed(row)}
    checks.context.at(f"while timing {case}")
    with watch.load():
        return timing.interleave(calls, clock, deadline=deadline)


def _keep(
    checks: Checks,
    case: dict[str, Any],
    row: dict[str, Any],
    times: dict[str, Summary | Untimed],
    ceilings: dict[str, Any],
) -> None:
    """Put the times into a case's row, or why there is none.

    A time that the hardware cannot reach fails a variant. A peer is untrusted: it is recorded as
    failed, and the run goes on.
    """
    results = _passed(row)
    least = limits.least_seconds(row, ceilings)
    for name, found in times.items():
        result = results[name]
        if isinstance(found, Untimed):
            result["untimed"] = found.reason
            continue
        try:
            timing.refuse_impossible(name, found, least)
        except timing.Impossible as error:
            if result["role"] == "variant":
                checks.fail(name, f"{error} on case {case}", "look for a wrong cost()")
            else:
                result |= {"verdict": "failed", "reason": str(error)}
            continue
        result["time"] = found.as_dict()
