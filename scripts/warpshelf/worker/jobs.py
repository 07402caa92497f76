"""The jobs of a child process: show, verify, time and compile a snippet, describe the machine.

The fork server imports this module, and torch with it, once. It must neither touch CUDA nor import
Triton: each child does so for itself, once its environment says how.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from warpshelf.contract import pictures, values
from warpshelf.records import limits
from warpshelf.worker import accuracy, costs, gpu, space, timing, verify
from warpshelf.worker.accuracy import WrongResult
from warpshelf.worker.checks import Checks, Rejected, Share, choose_cases, choose_device, rank_cases
from warpshelf.worker.context import JobContext, JobError, Task, cpu_seconds, make_failure
from warpshelf.worker.timing import Fault, Found, Summary
from warpshelf.worker.verify import CaseData, View

Answer = dict[str, Any]


def check_contract(context: JobContext) -> Answer:
    """Import the snippet and look at its values; what it offers, by name."""
    proof = context.proof
    return {
        "cases": list(proof.cases),
        "counted": list(proof.counted),
        "variants": list(proof.variants),
        "kills": [list(names) for names in proof.kills],
    }


def show_demo(context: JobContext) -> Answer:
    """The demo once, of a snippet whose record is trusted; cases.py is not even imported."""
    _run_demos(context, 1)
    return {"failures": []}


def _run_demos(context: JobContext, turns: int) -> float:
    """Run demo() so often, each between two marks; the seconds of CPU that the first took."""
    device, began, first = choose_device(), cpu_seconds(), 0.0
    for turn in range(1, turns + 1):
        context.report_place("in demo()")
        context.print_mark(f"demo {turn}")
        context.module.demo(*([] if context.job["kind"] == "model" else [device]))
        first = first or cpu_seconds() - began
    context.print_mark("end")
    return first


def verify_snippet(context: JobContext) -> Answer:
    """The demo twice, then every case or fact. Failures are gathered, one a variant. The answer has
    what the first demo took, so that a run which trusts the record knows it."""
    job, proof = context.job, context.proof
    spent = {"demo_seconds": round(_run_demos(context, 2), 2)} if job["demo"] else {}
    if job["kind"] != "kernel":
        found, predicted = _check_facts(context), _check_predictions(context)
        failures = found["failures"] + predicted.pop("failures", [])
        return found | predicted | pictures_of(context) | {"failures": failures} | spent
    checks = Checks(context)
    for index in checks.due_cases():
        checks.verify_case(index, proof.cases[index], timed=False)
    answer = checks.job_answer() | spent
    if checks.failures:  # what failed leaves no record, and so nothing to hold against what is due
        return answer
    if checks.device == "cuda":
        _compile_timed(checks)
    if job.get("viewed"):
        context.say({"goes on": True})
        answer |= _counted_views(context, checks)
    due = checks.due_rows() if job["due"] and checks.share is Share.ALL else []
    return answer | {"due": due}


def _compile_timed(checks: Checks) -> None:
    """Call once what will be timed, so that compilers' caches have it: many children compile at a
    time, and only one is timed. What is wrong with a call is said where it is timed."""
    proof = checks.proof
    for index, case in enumerate(proof.timed):
        checks.context.report_place(f"while compiling what is timed on {case}")
        with contextlib.suppress(Exception):
            inputs = checks.draw_inputs(case, index, 1)
            ours = [proof.variants[name] for name in proof.variants_for(case)]
            for function in (*ours, *proof.peers.values()):
                with contextlib.suppress(Exception):
                    function(*inputs)
        torch.cuda.synchronize()


def glance_at_snippet(context: JobContext) -> Answer:
    """The facts, or telling cases of a kernel until the job's seconds are spent; one at least. Of
    several children each has a `turn`, and every so many-th case."""
    proof = context.proof
    if context.job["kind"] != "kernel":
        found = _check_facts(context)
        return {"facts": len(found["facts"]), "failures": found["failures"]}
    checks = Checks(context, hasty=True)
    turn, turns = context.job["turn"]
    wanted = choose_cases(proof, Share.SOME)
    ran: list[int] = []
    failures: list[dict[str, Any]] = []
    for index in rank_cases(proof, wanted)[turn::turns]:
        if ran and cpu_seconds() > context.job["seconds"]:
            break
        try:
            checks.verify_case(index, proof.cases[index], timed=False)
        except Rejected as rejected:
            failures.append(make_failure(str(rejected), "", context.definition_place("VARIANTS")))
            break
        ran.append(index)
    return {
        "ran": ran,
        "cases": len(proof.cases),
        "kills": sorted({name for index in ran for name in proof.kills[index]}),
        "mutants": len({name for names in proof.kills for name in names}),
        "failures": failures,
    }


def judge_snippet(context: JobContext) -> Answer:
    """Which of the job's cases reject the snippet, a mutant: by case, the words in which it does. A
    case that rejects nothing has None; one of which no variant can run here is left out."""
    proof = context.proof
    found: dict[str, str | None] = {}
    for index in context.job["cases"]:
        checks = Checks(context, hasty=True)
        try:
            row = checks.verify_case(index, proof.cases[index], timed=False)
        except (JobError, Rejected) as error:
            found[str(index)] = str(error)
        except BaseException as error:  # also SystemExit: whatever a mutant does is a rejection
            found[str(index)] = f"raised {type(error).__name__}: {error}".splitlines()[0]
        else:
            if any(one["role"] == "variant" and "error" in one for one in row["results"]):
                found[str(index)] = None
    return {"judged": found}


def _check_facts(context: JobContext) -> Answer:
    context.report_place("in facts()")
    assert context.proof.facts is not None
    rows = context.proof.facts()
    place = context.definition_place("facts")
    if not isinstance(rows, Sequence) or not rows:
        raise JobError(f"facts() returned {rows!r:.60}", "return a list of rows", place)
    facts, failures = [], []
    for row in rows:
        if what := values.fact_problem(row):
            raise JobError(what, "fix the row", place)
        value, expected = row["value"], row["expected"]
        if not values.fact_holds(row):
            what = f"fact {row['name']!r}: {value} where {expected} is expected"
            failures.append(make_failure(what, f"see {row['source']}", place))
        if isinstance(value, float) and expected == 0:
            value = float(f"{value:.2g}")  # of an error more digits would differ by processor
        facts.append({**row, "value": value, "verdict": "passed"})
    return {"facts": facts, "failures": failures}


PROBLEMS: dict[str, Callable[[object], str | None]] = {
    "predictions": pictures.predictions_problem,
    "timelines": pictures.timelines_problem,
    "grids": pictures.grids_problem,
}


def _ask_for(context: JobContext, name: str) -> Any:
    """What an optional function of cases.py returns, or None without it."""
    if (offered := getattr(context.proof, name)) is None:
        return None
    context.report_place(f"in {name}()")
    rows = offered()
    if what := PROBLEMS[name](rows):
        raise JobError(what, f"fix what {name}() returns", context.definition_place(name))
    return rows


def _check_predictions(context: JobContext) -> Answer:
    """Published figures next to the model's, and the goals that they meet, if there are any."""
    rows, goals = _ask_for(context, "predictions"), context.proof.goals
    if rows is None:
        return {}
    place = context.definition_place("GOALS")
    if what := pictures.goals_problem(goals, rows):
        raise JobError(what, "fix the goal", place)
    failures = []
    for goal in goals:
        met, told = pictures.judge_goal(goal, rows)
        if not met:
            what = f"goal {goal['name']!r}: {told} where it asks for {pictures.describe_goal(goal)}"
            failures.append(make_failure(what, "fix the model", place))
    # What the last digits are may differ by the machine's mathematical library.
    kept = [{**row, "predicted": float(f"{row['predicted']:.9g}")} for row in rows]
    asked = [{**goal, "sets": list(goal["sets"])} for goal in goals]
    return {"predictions": kept, "goals": asked, "failures": failures}


def pictures_of(context: JobContext) -> dict[str, Any]:
    """The pictures that cases.py offers, as data that pages draw from, by what offers them."""
    found = {name: _ask_for(context, name) for name in ("timelines", "grids")}
    return {name: rows for name, rows in found.items() if rows is not None}


def compile_snippet(context: JobContext) -> Answer:
    """Ahead-of-time figures of every kernel, and the limits that they break."""
    from warpshelf.worker import compiled

    job, proof = context.job, context.proof
    context.report_place("while compiling")
    rows = compiled.compile_figures(proof, job["id"], has_cuda=job["has_cuda"], needs=job["needs"])
    broken = compiled.broken_limits(rows, proof.limits)
    return {"compiled": rows, "failures": _limit_failures(context, broken)}


def view_snippet(context: JobContext) -> Answer:
    """What became of every kernel on the job's target, and what its counted launches did. Of the
    job's `variants` where it names some; with `whole` the PTX of each is told as well."""
    checks = Checks(context)
    checks.count_launches(context.job.get("variants"))
    return {**_counted_views(context, checks), "variants": list(context.proof.variants)}


def _counted_views(context: JobContext, checks: Checks) -> Answer:
    """The views of what was counted, and the limits that they break."""
    from warpshelf.look import figures
    from warpshelf.worker import kernel_views

    job = context.job
    context.report_place("while reading its machine code")
    chosen = list(kernel_views.select_launches(checks.counts.counted_launches()))
    views = kernel_views.build_views(chosen, job["target"], Path(job["path"]).parent)
    broken = figures.limit_violations(views, context.proof.limits)
    found: Answer = {"views": views, "failures": _limit_failures(context, broken)}
    if job.get("whole"):
        found["modules"] = [kernel_views.kernel_ptx(one) for one in chosen]
    return found


def _limit_failures(context: JobContext, broken: Sequence[str]) -> list[dict[str, Any]]:
    """Failures of lines that name a figure and, behind their last semicolon, its mend."""
    place = context.definition_place("LIMITS")
    parts = (text.rpartition("; ") for text in broken)
    return [make_failure(what, mend, place) for what, _, mend in parts]


def reach_architecture(context: JobContext) -> Answer:
    """What every launch of the snippet asks of the job's architecture, and what cannot be there."""
    from warpshelf.worker import launch_limits

    return launch_limits.check_architecture(context)


def time_snippet(context: JobContext) -> Answer:
    """Verify and time each TIMED case on the GPU, with the ceilings of this very run."""
    proof, job = context.proof, context.job
    clock, checks = gpu.CudaClock(), Checks(context)
    units = {costs.estimate_cost(proof, case)["unit"] for case in proof.timed}
    context.report_place("while measuring the ceilings")
    ceilings = gpu.measure_ceilings(clock, job["machine"], units) if proof.timed else {}
    deadline = time.monotonic() + 0.9 * job["limit"]
    searched: Answer = {"failures": []}
    with gpu.LoadMonitor(gpu.current_driver()) as watch:
        for index, case in enumerate(proof.timed):
            given = checks.case_data(case, index)
            row = checks.verify_case(index, case, timed=True, given=given)
            if not row["results"]:
                continue
            passed = {one["name"]: one for one in row["results"] if one["verdict"] == "passed"}
            times = _time_case(checks, given, row["unit"], passed, clock, watch, deadline)
            least = limits.least_seconds(row, ceilings)
            for name, time_of in times.items():
                _record_time(checks, case, passed[name], time_of, least)
        if proof.space is not None and not checks.failures:
            with watch.under_load():
                searched = space.time_space(checks, clock, ceilings, deadline)
    answer = checks.job_answer()
    failures = answer["failures"] + searched["failures"]
    more = {"failures": failures, "ceilings": ceilings, "conditions": watch.load_conditions()}
    return answer | searched | more


def _time_case(
    checks: Checks,
    given: CaseData,
    unit: str,
    results: Mapping[str, Answer],
    clock: timing.Clock,
    watch: gpu.LoadMonitor,
    deadline: float,
) -> dict[str, Found]:
    """Time functions on a case. Its inputs end with the call: the next case needs the memory.

    Each is called once more, on the very tensors on which it was timed, and has to be right still.
    """
    functions = {**checks.proof.variants, **checks.proof.peers}
    inputs = given.turn_inputs(1)
    calls = {name: partial(functions[name], *inputs) for name in results}
    checks.context.report_place(f"while timing {given.case}")
    with watch.under_load():
        times = timing.time_interleaved(calls, clock, deadline=deadline)
    view = View("", given.case, inputs, given.turn_truth(1, inputs))
    allowed = partial(accuracy.tolerance_of, unit=unit, overrides=checks.proof.tolerance)
    for name, call in calls.items():
        try:
            verify.compare_outputs(accuracy.tensors_of(call(), "it"), view, allowed)
        except WrongResult as wrong:
            what = f"is right when it is verified, and wrong after it was timed: {wrong}"
            times[name] = Fault(what, "have each call compute the same")
    return times


def _record_time(
    checks: Checks, case: dict[str, Any], result: Answer, found: Found, least: float
) -> None:
    """Put a time into a function's result on a case, or why there is none.

    A time that the hardware cannot reach fails a variant. A peer is untrusted: it is recorded as
    failed, and the run goes on.
    """
    name, why, mend = result["name"], None, "look for a wrong cost()"
    if isinstance(found, Fault):
        why, mend = f"{name!r} {found}", found.mend
    elif isinstance(found, str):
        result["untimed"] = found
    else:
        why = timing.impossible_reason(name, found, least)
    if why and result["role"] == "variant":
        checks.record_failure(name, f"{why} on case {case}", mend)
    elif why:
        result |= {"verdict": "failed", "reason": why}
    elif isinstance(found, Summary):
        result["time"] = found.as_dict()


DOES: dict[Task, Callable[[JobContext], Answer]] = {
    Task.DESCRIBE: lambda context: {"machine": gpu.machine_description()},
    Task.LOOK: check_contract,
    Task.DUE: lambda context: {"due": Checks(context).due_rows()},
    Task.DEMO: show_demo,
    Task.VERIFY: verify_snippet,
    Task.GLANCE: glance_at_snippet,
    Task.JUDGE: judge_snippet,
    Task.TIME: time_snippet,
    Task.COMPILE: compile_snippet,
    Task.VIEW: view_snippet,
    Task.SPACE: space.compile_space,
    Task.REACH: reach_architecture,
}
