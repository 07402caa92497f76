"""The jobs of a child process: show, verify, time and compile a snippet, describe the machine.

The fork server imports this module, and torch with it, once. It must neither touch CUDA nor import
Triton: each child does so for itself, once its environment says how.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from warpshelf.contract import pictures, values
from warpshelf.contract.values import Configuration, Space
from warpshelf.records import claim_check, limits
from warpshelf.records import space as space_rows
from warpshelf.worker import costs, gpu, timing, verify
from warpshelf.worker.accuracy import WrongResult, tensors_of
from warpshelf.worker.checks import Checks, Rejected, Share, choose_cases, choose_device, rank_cases
from warpshelf.worker.context import JobContext, JobError, cpu_seconds, make_failure
from warpshelf.worker.timing import Fault, Found, Summary
from warpshelf.worker.verify import CaseData, View

Answer = dict[str, Any]


def describe_machine(context: JobContext) -> Answer:
    """This machine as a record has it."""
    return {"machine": gpu.machine_description()}


def check_contract(context: JobContext) -> Answer:
    """Import the snippet and look at its values; what it offers, by name."""
    proof = context.proof
    return {
        "cases": list(proof.cases),
        "counted": list(proof.counted),
        "variants": list(proof.variants),
        "kills": [list(names) for names in proof.kills],
    }


def list_due(context: JobContext) -> Answer:
    """What every record of the snippet must have."""
    return {"due": Checks(context).due_rows()}


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
                searched = time_space(checks, clock, ceilings, deadline)
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
    """Time functions on a case, each of which has to be right still afterwards, on the very tensors
    on which it was timed. These end with the call: the next case needs the memory."""
    functions = {**checks.proof.variants, **checks.proof.peers}
    inputs = given.turn_inputs(1)
    calls = {name: partial(functions[name], *inputs) for name in results}
    checks.context.report_place(f"while timing {given.case}")
    with watch.under_load():
        times = timing.time_interleaved(calls, clock, deadline=deadline)
    view = View("", given.case, inputs, given.turn_truth(1, inputs))
    allowed = checks.tolerance_for(unit)
    for name, call in calls.items():
        try:
            verify.compare_outputs(tensors_of(call(), "it"), view, allowed)
        except WrongResult as wrong:
            what = f"is right when it is verified, and wrong after it was timed: {wrong}"
            times[name] = Fault(what, "have each call compute the same")
    return times


def _record_time(
    checks: Checks, case: dict[str, Any], result: Answer, found: Found, least: float
) -> None:
    """Put a time into a function's result on a case, or why there is none. One that the hardware
    cannot reach fails a variant; of a peer, which is untrusted, it is recorded."""
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


# Every configuration of a kernel's SPACE: verified, and compiled and counted or timed.

MOST_WRONG = 3  # configurations that are told; more say no more
TOGETHER = 32  # configurations that are timed in turns
MEND = "fix the kernel, or exclude the configuration in allowed()"


class SpaceSearch:
    """The configurations of a space, each called on the case that verifies it."""

    def __init__(self, checks: Checks) -> None:
        assert checks.proof.space is not None
        self.space: Space = checks.proof.space
        self.checks = checks
        self.context = checks.context
        self.failures: list[dict[str, Any]] = []
        unit = costs.declared_cost(checks.proof, self.space.case).get("unit")
        self.allowed = checks.tolerance_for(unit)
        target, targets = checks.watch.target, claim_check.TARGETS
        self.rank = targets.index(target) if target in targets else 0

    def correct_configurations(self) -> Iterator[tuple[int, Configuration]]:
        """The number of each configuration that gives the right result, and the configuration."""
        view = self.checks.case_data(self.space.case, 0).first_view()
        chosen = self.context.job.get("configurations")  # as rows have them; None is all
        for number, configuration in enumerate(self.space.configurations()):
            if len(self.failures) == MOST_WRONG:
                return
            row = space_rows.format_values(configuration.values())
            if chosen is not None and row not in chosen:
                continue
            self.checks.set_place(f"in the configuration {configuration}")
            self.checks.watch.begin_case(number, self.rank)
            if self.is_correct(configuration, view):
                yield number, configuration

    def is_correct(self, configuration: Configuration, view: View) -> bool:
        """Whether the result of one configuration is the truth; if not, that is a failure."""
        run = partial(self.space.run, **configuration)
        try:
            verify.check_view(run, view, self.allowed, self.checks.watch)
        except Exception as error:
            what = f"is wrong on {view.case}: {verify.describe_wrong(error)}"
            self.record_failure(configuration, what)
            return False
        return True

    def record_failure(self, configuration: Configuration, what: str) -> None:
        """Keep what is wrong with one configuration."""
        said = f"the configuration {configuration} {what}"
        self.failures.append(make_failure(said, MEND, self.context.definition_place("SPACE")))

    def job_answer(self, target: str, figures: Sequence[str], lines: list[str]) -> dict[str, Any]:
        """What the record takes from here."""
        space = self.space
        cost = costs.early_cost(self.checks.proof, space.timed) or {}
        named = [{"name": name, "values": [*some]} for name, some in space.parameters.items()]
        found = {
            "parameters": named,
            "case": dict(space.case),
            "timed": dict(space.timed),
            **{key: cost[key] for key in ("flops", "bytes", "unit") if cost},
            "figures": list(figures),
            "rows": {target: lines},
        }
        return {"space": found, "failures": self.failures}


def survey_space(context: JobContext) -> Answer:
    """Every configuration executed from the PTX for the job's target, verified on one case and
    counted on another. The cycles are at least those of the busiest SM in the case to time."""
    from warpshelf.worker import kernel_views

    checks, target = Checks(context), context.job["target"]
    found, lines = SpaceSearch(checks), []
    for number, configuration in found.correct_configurations():
        case = found.space.counted(**configuration)
        checks.watch.begin_case(number, found.rank, counted=True)
        inputs = checks.draw_inputs(case, 0, 0)
        with checks.watch.watch_call():
            found.space.run(*inputs, **configuration)
        figures = dict.fromkeys(kernel_views.FIGURES, 0.0)
        for one in kernel_views.select_launches([("", case, list(checks.watch.launched))]):
            figures = kernel_views.kernel_figures(one, target, context.job["id"])
        figures["cycles"] = found.space.scaled(figures["cycles"], **configuration)
        lines.append(space_rows.format_row(configuration.values(), [*figures.values()]))
    return found.job_answer(target, space_rows.COMPILED, lines)


def time_space(
    checks: Checks, clock: timing.Clock, ceilings: dict[str, Any], deadline: float
) -> dict[str, Any]:
    """Every configuration verified on two cases and timed on the larger one. TimeoutError if the
    deadline comes before the last of them."""
    found = SpaceSearch(checks)
    case = found.space.timed
    view = checks.case_data(case, 0).first_view()
    right = found.correct_configurations()
    chosen = [configuration for _, configuration in right if found.is_correct(configuration, view)]
    cost = costs.early_cost(checks.proof, case)
    least = limits.least_seconds(cost, ceilings) if cost else 0.0
    lines: list[str] = []
    for start in range(0, 0 if found.failures else len(chosen), TOGETHER):
        found.context.report_place(f"while timing configurations {start} to {start + TOGETHER - 1}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{start} of {len(chosen)} configurations before the time limit")
        some = chosen[start : start + TOGETHER]
        calls = {
            str(number): partial(found.space.run, *view.inputs, **configuration)
            for number, configuration in enumerate(some)
        }
        times = timing.time_interleaved(calls, clock, warm_up=0.0, sampling=0.0, deadline=deadline)
        for configuration, one in zip(some, times.values(), strict=True):
            if not isinstance(one, Summary):
                found.record_failure(configuration, f"has no time on {case}: {one}")
                continue
            if why := timing.impossible_reason(str(configuration), one, least):
                found.record_failure(configuration, f"on {case}: {why}")
            figures = one.median, one.p20, one.p80, one.n
            lines.append(space_rows.format_row(configuration.values(), figures))
    sm = int(checks.context.job["machine"]["sm"])
    return found.job_answer(f"sm_{sm}", space_rows.TIMES, lines)
