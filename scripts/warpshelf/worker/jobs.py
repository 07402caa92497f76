"""The jobs of a child process: show, verify, time and compile a snippet, describe the machine.

The fork server imports this module, and torch with it, once. It must neither touch CUDA nor import
Triton: each child does so for itself, once its environment says how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from warpshelf.contract import pictures, values
from warpshelf.contract.pictures import grids_problem, timelines_problem
from warpshelf.contract.values import Obligations
from warpshelf.records import limits
from warpshelf.worker import costs, gpu, space, timing
from warpshelf.worker.checks import Checks, Rejected, Share, rank_cases
from warpshelf.worker.context import JobContext, JobError, Task, cpu_seconds, make_failure
from warpshelf.worker.gpu import LoadMonitor
from warpshelf.worker.timing import Summary, Untimed


def check_contract(context: JobContext) -> dict[str, Any]:
    """Import the snippet and look at its values; what it offers, by name."""
    proof = context.proof
    return {
        "cases": list(proof.cases),
        "counted": list(proof.counted),
        "variants": list(proof.variants),
        "kills": [list(names) for names in proof.kills],
    }


def list_due(context: JobContext) -> dict[str, Any]:
    """What every record of a kernel must show, of one that cannot be verified here."""
    return {"due": costs.due_rows(Checks(context, _torch_device()))}


def show_demo(context: JobContext) -> dict[str, Any]:
    """The demo once, of a snippet whose record is trusted; cases.py is not even imported."""
    _run_demos(context, 1)
    return {"failures": []}


def _run_demos(context: JobContext, turns: int) -> float:
    """Run demo() so often, each between two marks; the seconds of CPU that the first took."""
    device, began, first = _torch_device(), cpu_seconds(), 0.0
    for turn in range(1, turns + 1):
        context.report_place("in demo()")
        context.print_mark(f"demo {turn}")
        context.module.demo(*([] if context.job["kind"] == "model" else [device]))
        first = first or cpu_seconds() - began
    context.print_mark("end")
    return first


def verify_snippet(context: JobContext) -> dict[str, Any]:
    """The demo twice, then every case or fact. Failures are gathered, one a variant.

    The answer has what the first demo took, so that a run which trusts the record knows it.
    """
    proof = context.proof
    spent = {"demo_seconds": round(_run_demos(context, 2), 2)} if context.job["demo"] else {}
    return _verify_proof(context, proof) | spent


def _verify_proof(context: JobContext, proof: Obligations) -> dict[str, Any]:
    job, device = context.job, _torch_device()
    if job["kind"] != "kernel":
        found = _check_facts(context)
        predicted = _check_predictions(context)
        failures = found["failures"] + predicted.pop("failures", [])
        return found | predicted | pictures_of(context) | {"failures": failures}
    checks = Checks(context, device)
    for index in checks.due_cases():
        checks.verify_case(index, proof.cases[index], timed=False)
    answer = checks.job_answer()
    if checks.failures:  # what failed leaves no record, and so nothing to hold against what is due
        return answer
    viewed: dict[str, Any] = {}
    if job.get("viewed"):
        context.say({"goes on": True})
        viewed = _counted_views(context, checks)
    wanted = checks.share.whole and job["due"]
    return {**answer, **viewed, "due": costs.due_rows(checks) if wanted else []}


def glance_at_snippet(context: JobContext) -> dict[str, Any]:
    """The facts, or telling cases of a kernel until the job's seconds are spent; one at least.

    Of several children each has a `turn`, and every so many-th case.
    """
    proof = context.proof
    if context.job["kind"] != "kernel":
        found = _check_facts(context)
        return {"facts": len(found["facts"]), "failures": found["failures"]}
    checks = Checks(context, _torch_device(), hasty=True)
    turn, turns = context.job["turn"]
    wanted = Share(counted=False, views=0).chosen_cases(proof)
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


def judge_snippet(context: JobContext) -> dict[str, Any]:
    """Which of the job's cases reject the snippet, a mutant: by case, the words in which it does.

    A case that rejects nothing has None; one of which no variant can run here is left out.
    """
    proof, device = context.proof, _torch_device()
    found: dict[str, str | None] = {}
    for index in context.job["cases"]:
        checks = Checks(context, device, hasty=True)
        try:
            row = checks.verify_case(index, proof.cases[index], timed=False)
        except JobError as error:
            found[str(index)] = str(error)
        except Rejected as rejected:
            found[str(index)] = str(rejected)
        except BaseException as error:  # also SystemExit: whatever a mutant does is a rejection
            found[str(index)] = f"raised {type(error).__name__}: {error}".splitlines()[0]
        else:
            if any(one["role"] == "variant" and "error" in one for one in row["results"]):
                found[str(index)] = None
    return {"judged": found}


def _check_facts(context: JobContext) -> dict[str, Any]:
    context.report_place("in facts()")
    assert context.proof.facts is not None
    rows = context.proof.facts()
    place = context.definition_place("facts")
    if not isinstance(rows, Sequence) or not rows:
        raise JobError(f"facts() returned {rows!r:.60}", "return a list of rows", place)
    failures = []
    for row in rows:
        if what := values.fact_problem(row):
            raise JobError(what, "mend the row", place)
        if not values.fact_holds(row):
            value, expected = row["value"], row["expected"]
            what = f"fact {row['name']!r}: {value} where {expected} is expected"
            failures.append(make_failure(what, f"see {row['source']}", place))
    return {
        "facts": [{**row, "value": _stable_value(row), "verdict": "passed"} for row in rows],
        "failures": failures,
    }


def _check_predictions(context: JobContext) -> dict[str, Any]:
    """Published figures beside the model's, and the goals that they meet; nothing without any."""
    offered, goals = context.proof.predictions, context.proof.goals
    if offered is None:
        return {}
    context.report_place("in predictions()")
    rows = offered()
    if what := pictures.predictions_problem(rows):
        raise JobError(what, "mend the row", context.definition_place("predictions"))
    if what := pictures.goals_problem(goals, rows):
        raise JobError(what, "mend the goal", context.definition_place("GOALS"))
    failures = []
    for goal in goals:
        met, told = pictures.judge_goal(goal, rows)
        if not met:
            what = f"goal {goal['name']!r}: {told} where it asks for {pictures.describe_goal(goal)}"
            failures.append(make_failure(what, "mend the model", context.definition_place("GOALS")))
    # What the last digits are may differ by the machine's mathematical library.
    kept = [{**row, "predicted": float(f"{row['predicted']:.9g}")} for row in rows]
    asked = [{**goal, "sets": list(goal["sets"])} for goal in goals]
    return {"predictions": kept, "goals": asked, "failures": failures}


def pictures_of(context: JobContext) -> dict[str, Sequence[dict[str, Any]]]:
    """The pictures that cases.py offers, as data that pages draw from, by what offers them."""
    kinds = {
        "timelines": (context.proof.timelines, timelines_problem),
        "grids": (context.proof.grids, grids_problem),
    }
    found: dict[str, Sequence[dict[str, Any]]] = {}
    for name, (offered, problem) in kinds.items():
        if offered is None:
            continue
        context.report_place(f"in {name}()")
        rows: Sequence[dict[str, Any]] = offered()
        if what := problem(rows):
            raise JobError(what, f"mend what {name}() returns", context.definition_place(name))
        found[name] = rows
    return found


def _stable_value(row: dict[str, Any]) -> int | float:
    """The value to record: an error to two digits, since more differs by processor."""
    value = row["value"]
    return float(f"{value:.2g}") if isinstance(value, float) and row["expected"] == 0 else value


def compile_snippet(context: JobContext) -> dict[str, Any]:
    """Ahead-of-time figures of every kernel, and the limits that they break."""
    from warpshelf.worker import compiled

    job, proof = context.job, context.proof
    context.report_place("while compiling")
    rows = compiled.compile_figures(proof, job["id"], has_cuda=job["has_cuda"], needs=job["needs"])
    return {
        "compiled": rows,
        "failures": _limit_failures(context, compiled.broken_limits(rows, proof.limits)),
    }


def view_snippet(context: JobContext) -> dict[str, Any]:
    """What became of every kernel on the job's target, and what its counted launches did.

    Of the job's `variants` where it names some; with `whole` the PTX of each is told as well.
    """
    checks = Checks(context, _torch_device())
    checks.count_launches(context.job.get("variants"))
    return {**_counted_views(context, checks), "variants": list(context.proof.variants)}


def _counted_views(context: JobContext, checks: Checks) -> dict[str, Any]:
    """The views of what was counted, and the limits that they break."""
    from warpshelf.look import figures
    from warpshelf.worker import kernel_views

    job = context.job
    context.report_place("while reading its machine code")
    folder = Path(job["path"]).parent
    chosen = list(kernel_views.select_launches(checks.counts.counted_launches()))
    found = kernel_views.build_views(chosen, job["target"], folder)
    broken = figures.limit_violations(found, context.proof.limits)
    return {
        "views": found,
        "failures": _limit_failures(context, broken),
        **(
            {"modules": [kernel_views.kernel_ptx(one) for one in chosen]}
            if job.get("whole")
            else {}
        ),
    }


def survey_space(context: JobContext) -> dict[str, Any]:
    """Every configuration of the snippet's SPACE, on the job's target."""
    return space.compile_space(Checks(context, _torch_device()), context.job["target"])


def reach_architecture(context: JobContext) -> dict[str, Any]:
    """What every launch of the snippet asks of the job's architecture, and what cannot be there."""
    from warpshelf.worker import launch_limits

    return launch_limits.check_architecture(context)


def _limit_failures(context: JobContext, broken: Sequence[str]) -> list[dict[str, Any]]:
    """Failures of lines that name a figure and, behind their last semicolon, its mend."""
    place = context.definition_place("LIMITS")
    return [
        make_failure(what, mend, place)
        for what, _, mend in (text.rpartition("; ") for text in broken)
    ]


def describe_machine(context: JobContext) -> dict[str, Any]:
    """This machine, as a record has it."""
    return {"machine": gpu.machine_description()}


def _torch_device() -> str:
    """The device to verify on: "cuda" where there is one."""
    if torch.cuda.is_available():
        return "cuda"
    torch.set_num_threads(1)  # one core a child; and sums always in one order
    return "cpu"


def time_snippet(context: JobContext) -> dict[str, Any]:
    """Verify and time each TIMED case on the GPU, with the ceilings of this very run."""
    proof, job = context.proof, context.job
    clock = gpu.CudaClock()
    checks = Checks(context, _torch_device())
    units = {costs.estimate_cost(proof, case)["unit"] for case in proof.timed}
    context.report_place("while measuring the ceilings")
    ceilings = gpu.measure_ceilings(clock, job["machine"], units) if proof.timed else {}
    deadline = time.monotonic() + 0.9 * job["limit"]
    with LoadMonitor(gpu.current_driver()) as watch:
        for index, case in enumerate(proof.timed):
            row = checks.verify_case(index, case, timed=True)
            if row["results"]:
                times = _time_case(checks, index, case, row, clock, watch, deadline)
                _record_times(checks, case, row, times, ceilings)
        searched: dict[str, Any] = {"failures": []}
        if context.proof.space is not None and not checks.failures:
            with watch.under_load():
                searched = space.time_space(checks, clock, ceilings, deadline)
    answer = checks.job_answer()
    return {
        **answer,
        **searched,
        "failures": answer["failures"] + searched["failures"],
        "ceilings": ceilings,
        "conditions": watch.load_conditions(),
    }


def _passed_results(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {result["name"]: result for result in row["results"] if result["verdict"] == "passed"}


def _time_case(
    checks: Checks,
    index: int,
    case: dict[str, Any],
    row: dict[str, Any],
    clock: timing.Clock,
    watch: LoadMonitor,
    deadline: float,
) -> dict[str, Summary | Untimed]:
    """Time whatever passed a case."""
    functions = {**checks.proof.variants, **checks.proof.peers}
    inputs = checks.draw_inputs(case, index, 2)
    calls = {name: (lambda f=functions[name]: f(*inputs)) for name in _passed_results(row)}
    checks.context.report_place(f"while timing {case}")
    with watch.under_load():
        return timing.time_interleaved(calls, clock, deadline=deadline)


def _record_times(
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
    results = _passed_results(row)
    least = limits.least_seconds(row, ceilings)
    for name, found in times.items():
        result = results[name]
        if isinstance(found, Untimed):
            result["untimed"] = found.reason
            continue
        try:
            timing.refuse_impossible(name, found, least)
        except timing.ImpossibleTime as error:
            if result["role"] == "variant":
                checks.record_failure(name, f"{error} on case {case}", "look for a wrong cost()")
            else:
                result |= {"verdict": "failed", "reason": str(error)}
            continue
        result["time"] = found.as_dict()


DOES: dict[Task, Callable[[JobContext], dict[str, Any]]] = {
    Task.DESCRIBE: describe_machine,
    Task.LOOK: check_contract,
    Task.DUE: list_due,
    Task.DEMO: show_demo,
    Task.VERIFY: verify_snippet,
    Task.GLANCE: glance_at_snippet,
    Task.JUDGE: judge_snippet,
    Task.TIME: time_snippet,
    Task.COMPILE: compile_snippet,
    Task.VIEW: view_snippet,
    Task.SPACE: survey_space,
    Task.REACH: reach_architecture,
}
