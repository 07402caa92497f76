"""Every configuration of a kernel's SPACE: verified, and compiled and counted or timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from warpshelf.contract.values import Configuration, Space
from warpshelf.records import claim_check, limits
from warpshelf.records import space as rows
from warpshelf.worker import accuracy, costs, timing, verify
from warpshelf.worker.checks import Checks
from warpshelf.worker.context import JobContext, make_failure
from warpshelf.worker.timing import Summary
from warpshelf.worker.verify import View

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
        self._unit = costs.declared_cost(checks.proof, self.space.case).get("unit")
        target, targets = checks.watch.target, claim_check.TARGETS
        self.rank = targets.index(target) if target in targets else 0

    def correct_configurations(self) -> Iterator[tuple[int, Configuration]]:
        """The number of each configuration that gives the right result, and the configuration."""
        view = self.checks.case_data(self.space.case, 0).first_view()
        chosen = self.context.job.get("configurations")  # as rows have them; None is all
        for number, configuration in enumerate(self.space.configurations()):
            if len(self.failures) == MOST_WRONG:
                return
            if chosen is not None and rows.format_values(configuration.values()) not in chosen:
                continue
            self.checks.place = f"in the configuration {configuration}"
            self.context.report_place(self.checks.place)
            self.checks.watch.begin_case(number, self.rank)
            if self.is_correct(configuration, view):
                yield number, configuration

    def is_correct(self, configuration: Configuration, view: View) -> bool:
        """Whether the result of one configuration is the truth; if not, that is a failure."""
        overrides = self.checks.proof.tolerance
        allowed = partial(accuracy.tolerance_of, unit=self._unit, overrides=overrides)
        run = partial(self.space.run, **configuration)
        try:
            verify.check_view(run, view, allowed, self.checks.watch)
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
        found = {
            "parameters": [
                {"name": name, "values": list(values)} for name, values in space.parameters.items()
            ],
            "case": dict(space.case),
            "timed": dict(space.timed),
            **{key: cost[key] for key in ("flops", "bytes", "unit") if cost},
            "figures": list(figures),
            "rows": {target: lines},
        }
        return {"space": found, "failures": self.failures}


def compile_space(context: JobContext) -> dict[str, Any]:
    """The job: every configuration executed from the PTX for the job's target, verified on one case
    and counted on another.

    The cycles are those of the busiest SM in the case that a GPU would time, at least: no time.
    """
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
        lines.append(rows.format_row(configuration.values(), [*figures.values()]))
    return found.job_answer(target, rows.COMPILED, lines)


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
            lines.append(rows.format_row(configuration.values(), figures))
    sm = int(checks.context.job["machine"]["sm"])
    return found.job_answer(f"sm_{sm}", rows.TIMES, lines)
