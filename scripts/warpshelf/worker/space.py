"""Every configuration of a kernel's SPACE: verified, and compiled and counted or timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from warpshelf.contract.values import Configuration, Space
from warpshelf.records import claim_check, limits
from warpshelf.records import space as rows
from warpshelf.worker import accuracy, costs, timing, verify
from warpshelf.worker.accuracy import WrongResult
from warpshelf.worker.context import JobContext, JobError, describe_error, make_failure

if TYPE_CHECKING:
    from warpshelf.worker.checks import Checks

MOST_WRONG = 3  # configurations that are told; more say no more
TOGETHER = 32  # configurations that are timed in turns
MEND = "mend the kernel, or leave the configuration out in allowed()"


class SpaceSearch:
    """The configurations of a space, each called on the case that verifies it."""

    def __init__(self, checks: Checks) -> None:
        space = checks.proof.space
        assert space is not None
        self.space: Space = space
        self.checks = checks
        self.context: JobContext = checks.context
        self.failures: list[dict[str, Any]] = []
        self._unit = costs.declared_cost(checks.proof, self.space.case).get("unit")
        target, targets = checks.watch.target, claim_check.TARGETS
        self.rank = targets.index(target) if target in targets else 0

    def inputs_and_truth(self, case: dict[str, Any]) -> tuple[Sequence[object], Sequence[Any]]:
        """The inputs of a case, the same in every run, and their truth."""
        given = self.checks.case_data(case, 0)
        inputs = given.turn_inputs(0)
        return inputs, given.turn_truth(0, inputs)

    def correct_configurations(self) -> Iterator[tuple[int, Configuration]]:
        """The number of each configuration that gives the right result, and the configuration."""
        inputs, truth = self.inputs_and_truth(self.space.case)
        chosen = self.context.job.get("configurations")  # as rows have them; None is all
        for number, configuration in enumerate(self.space.configurations()):
            if len(self.failures) == MOST_WRONG:
                return
            if chosen is not None and rows.format_values(configuration.values()) not in chosen:
                continue
            self.report_configuration(configuration)
            self.checks.watch.begin_case(number, self.rank)
            try:
                self.verify_configuration(configuration, inputs, truth, self.space.case)
            except (WrongResult, JobError) as error:
                self.record_failure(configuration, f"is wrong on {self.space.case}: {error}")
            except Exception as error:
                self.record_failure(configuration, f"{describe_error(error)} on {self.space.case}")
            else:
                yield number, configuration

    def verify_configuration(
        self,
        configuration: Configuration,
        inputs: Sequence[object],
        truth: Sequence[Any],
        case: dict[str, Any],
    ) -> None:
        """Call one configuration and compare its result with the truth.

        Raises:
            Wrong: it is wrong in any way.
        """
        function = partial(self.space.run, **configuration)
        verify.check_once(function, inputs, truth, case, self._allowed_error, self.checks.watch)

    def _allowed_error(self, dtype: Any) -> float:
        return accuracy.tolerance_of(dtype, self._unit, self.checks.proof.tolerance)

    def report_configuration(self, configuration: Configuration) -> None:
        """Tell the parent which configuration comes next."""
        self.checks.place = f"in the configuration {configuration}"
        self.context.report_place(self.checks.place)

    def record_failure(self, configuration: Configuration, what: str) -> None:
        """Keep what is wrong with one configuration."""
        said = f"the configuration {configuration} {what}"
        self.failures.append(make_failure(said, MEND, self.context.definition_place("SPACE")))

    def job_answer(self, target: str, figures: Sequence[str], lines: list[str]) -> dict[str, Any]:
        """What the record takes from here."""
        cost = costs.cost_from_shapes(self.checks.proof, self.space.timed)
        known = {key: cost[key] for key in ("flops", "bytes", "unit")} if cost else {}
        parameters = [
            {"name": name, "values": list(values)} for name, values in self.space.parameters.items()
        ]
        found = {
            "parameters": parameters,
            "case": dict(self.space.case),
            "timed": dict(self.space.timed),
            **known,
            "figures": list(figures),
            "rows": {target: lines},
        }
        return {"space": found, "failures": self.failures}


def compile_space(checks: Checks, target: str) -> dict[str, Any]:
    """Every configuration executed from its PTX: verified on one case, counted on another.

    The cycles are those of the busiest SM in the case that a GPU would time, at least: no time.
    """
    from warpshelf.worker import kernel_views

    found = SpaceSearch(checks)
    lines = []
    for number, configuration in found.correct_configurations():
        case = found.space.counted(**configuration)
        checks.watch.begin_case(number, found.rank, counted=True)
        inputs = checks.draw_inputs(case, 0, 0)
        with checks.watch.watch_call():
            found.space.run(*inputs, **configuration)
        launches = [("", case, list(checks.watch.launched))]
        figures = dict.fromkeys(kernel_views.FIGURES, 0.0)
        for one in kernel_views.select_launches(launches):
            figures = kernel_views.kernel_figures(one, target, checks.context.job["id"])
        figures["cycles"] = found.space.scaled(figures["cycles"], **configuration)
        lines.append(rows.format_row(configuration.values(), [*figures.values()]))
    return found.job_answer(target, rows.COMPILED, lines)


def time_space(
    checks: Checks,
    clock: timing.Clock,
    ceilings: dict[str, Any],
    deadline: float,
) -> dict[str, Any]:
    """Every configuration verified on two cases and timed on the larger one.

    Raises:
        TimeoutError: the deadline came before the last of them.
    """
    found = SpaceSearch(checks)
    case = found.space.timed
    inputs, truth = found.inputs_and_truth(case)
    chosen = []
    for _, configuration in found.correct_configurations():
        try:
            found.verify_configuration(configuration, inputs, truth, case)
        except Exception as error:
            what = str(error) if isinstance(error, WrongResult) else describe_error(error)
            found.record_failure(configuration, f"is wrong on {case}: {what}")
        else:
            chosen.append(configuration)
    cost = costs.cost_from_shapes(checks.proof, case)
    least = limits.least_seconds(cost, ceilings) if cost else 0.0
    lines: list[str] = []
    for start in range(0, 0 if found.failures else len(chosen), TOGETHER):
        found.context.report_place(f"while timing configurations {start} to {start + TOGETHER - 1}")
        calls = {
            str(number): partial(found.space.run, *inputs, **configuration)
            for number, configuration in enumerate(chosen[start : start + TOGETHER])
        }
        if time.monotonic() > deadline:
            raise TimeoutError(f"{start} of {len(chosen)} configurations before the time limit")
        times = timing.time_interleaved(calls, clock, warm_up=0.0, sampling=0.0, deadline=deadline)
        for configuration, one in zip(chosen[start:], times.values(), strict=False):
            if isinstance(one, timing.Untimed):
                found.record_failure(configuration, f"has no time on {case}: {one.reason}")
                continue
            try:
                timing.refuse_impossible(str(configuration), one, least)
            except timing.ImpossibleTime as error:
                found.record_failure(configuration, f"on {case}: {error}")
            figures = one.median, one.p20, one.p80, one.n
            lines.append(rows.format_row(configuration.values(), figures))
    sm = int(checks.context.job["machine"]["sm"])
    return found.job_answer(f"sm_{sm}", rows.TIMES, lines)
