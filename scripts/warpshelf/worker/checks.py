"""Checks a kernel's variants and peers, on all cases or a share of them, for the record."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from warpshelf.contract import architectures, values
from warpshelf.contract.values import Case, Obligations
from warpshelf.records import claim_check
from warpshelf.worker import accuracy, costs, memory, verify
from warpshelf.worker.accuracy import WrongResult
from warpshelf.worker.context import JobContext, JobError, describe_error, make_failure
from warpshelf.worker.verify import CaseData
from warpshelf.worker.watch import CallWatch, LaunchCounts

# How much of a kernel one verification takes on: all of its cases and views, or a share of them.
#
# A record needs all. Tests that repeat it for every architecture take a share, since most of their
# time goes into compiling, anew for each architecture, case and view.


@dataclass(frozen=True)
class Share:
    """Everything, unless it says otherwise.

    Of the cases those whose numbers are in `cases`; without `counted`, none that kills nothing and
    is there only to be counted. Of these so many as are `telling`: those that together reject the
    most mutants, small ones first. Views of one case in `views` (0: of none); of these a `single`
    one.
    """

    cases: Collection[int] | None = None
    counted: bool = True
    telling: int | None = None
    views: int = 1
    single: bool = False

    def chosen_cases(self, proof: Obligations) -> list[int]:
        """The numbers of the cases to verify."""
        every = range(len(proof.cases))
        wanted = [index for index in every if self.cases is None or index in self.cases]
        if not self.counted:
            wanted = [index for index in wanted if index not in proof.counted or proof.kills[index]]
        return wanted if self.telling is None else sorted(rank_cases(proof, wanted)[: self.telling])

    def draws_views(self, index: int) -> bool:
        """Whether views are drawn of case number `index`."""
        return self.views > 0 and index % self.views == 0

    @property
    def whole(self) -> bool:
        """Whether it leaves nothing out, so that a record may rest on it."""
        return self == Share()


def rank_cases(proof: Obligations, among: Collection[int]) -> list[int]:
    """Numbers of cases by what each tells that those before it do not; of equals the smaller.

    Each rejects as many mutants as it can that no case before it does.
    """
    left, known, order = set(among), set[str](), []

    def rank_key(index: int) -> tuple[int, int, int]:
        sides = (side for side in proof.cases[index].values() if isinstance(side, int) and side)
        kills = proof.kills[index]
        return -len({*kills} - known), -len(kills), math.prod(sides)

    while left:
        best = min(sorted(left), key=rank_key)
        left.remove(best)
        known.update(proof.kills[best])
        order.append(best)
    return order


Result = dict[str, Any]  # a row of the record's "results"


class OutOfMemory(Exception):
    """A case does not fit into memory; the text says while what."""


class Rejected(Exception):
    """The first failure of a hasty check, in words."""


class Checks:
    """Verifies the variants and peers of a kernel, case by case."""

    def __init__(self, context: JobContext, device: str, hasty: bool = False) -> None:
        self.context = context
        self.hasty = hasty  # the first failure ends it, by raising Rejected
        self.proof = context.proof
        self.device = device
        self.needs: dict[str, Any] = context.job["needs"]
        self.share = Share(**context.job["share"])
        target = context.job.get("target")  # whose PTX is executed, without a GPU
        self.sm = (
            architectures.sm_version(target) if target else context.job["machine"].get("sm") or 0
        )
        self.place = ""  # what is being called, on which case
        self.watch = CallWatch(target, lambda under: context.report_place(f"{self.place}{under}"))
        self.counts = LaunchCounts(self.proof)
        self.rows: list[dict[str, Any]] = []
        self.skips: dict[str, str] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        self.dtypes: dict[object, torch.dtype] = {}  # by form of case, of the first output

    def job_answer(self) -> dict[str, Any]:
        """What the record takes from here."""
        return {
            "cases": self.rows,
            "skips": [{"what": what, "reason": why} for what, why in self.skips.items()],
            "failures": list(self.failures.values()),
        }

    def record_failure(self, name: str, what: str, mend: str = "") -> None:
        """Keep the first failure of a variant."""
        if self.hasty:
            raise Rejected(what)
        kind = "VARIANTS" if name in self.proof.variants else "PEERS"
        self.failures.setdefault(
            name, make_failure(what, mend, self.context.definition_place(kind))
        )

    def draw_inputs(self, case: Case, index: int, turn: int) -> tuple[object, ...]:
        """Inputs of a case: the same at every run of the same turn, so that records are stable.

        Raises:
            JobError: inputs() gives no tuple of tensors and scalars, or a tensor of zeros alone.
        """
        assert self.proof.inputs is not None
        generator = torch.Generator(self.device).manual_seed(7919 * (index + 1) + turn)
        inputs = self.proof.inputs(case, self.device, generator)
        place = self.context.definition_place("inputs")
        if not isinstance(inputs, tuple):
            what = f"inputs() returned {type(inputs).__name__} on case {case}"
            raise JobError(what, "return a tuple of tensors and plain scalars", place)
        for position, item in enumerate(inputs):
            if not isinstance(item, torch.Tensor | int | float | bool | str | None):
                what = f"input {position} is a {type(item).__name__} on case {case}"
                raise JobError(what, "return tensors and plain scalars only", place)
            if not isinstance(item, torch.Tensor) or not item.is_floating_point():
                continue
            if item.numel() and not item.any():
                what = f"input {position} is all zeros on case {case}"
                raise JobError(what, "draw random values: zeros hide wrong indexing", place)
        return inputs

    def case_data(self, case: Case, index: int) -> CaseData:
        """The inputs of a case and their truth."""
        assert self.proof.reference is not None
        return CaseData(lambda turn: self.draw_inputs(case, index, turn), self.proof.reference)

    def verify_case(self, index: int, case: Case, timed: bool) -> dict[str, Any]:
        """Verify everything on one case; its row of the record.

        A case that memory does not hold is skipped, and has no results.
        """
        row: dict[str, Any] = {"case": case, "timed": timed, "results": []}
        try:
            self._fill_row(row, index, case, timed)
        except Exception as error:
            if not isinstance(error, OutOfMemory) and not memory.out_of_memory(error):
                raise
            self.skips[f"case {case}"] = f"{claim_check.OUT_OF_MEMORY} {self.context.place_now}"
            row["results"] = []
            if self.device == "cuda":
                torch.cuda.empty_cache()
            return row
        self.rows.append(row)
        return row

    def due_cases(self) -> list[int]:
        """The numbers of the cases to verify here, of those that the job's share has."""
        every = self.share.chosen_cases(self.proof)
        return [index for index in every if self._due_variants(index)]

    def _due_variants(self, index: int) -> list[str]:
        """The variants to verify here on case number `index`.

        Where PTX is executed, a variant meets every case on the first of its targets, and on the
        others those that are counted. A hasty check has one target.
        """
        names = self.proof.variants_for(self.proof.cases[index])
        if not self.watch.executes or self.hasty or self.watch.target == claim_check.MAIN:
            return names
        return [
            name for name in names if self._is_first_target(name) or self._is_counted(name, index)
        ]

    def _is_first_target(self, name: str) -> bool:
        """Whether this is the first of a variant's targets, on which it meets every case."""
        return self._variant_targets(name)[:1] == [self.watch.target] or not self.watch.executes

    def _is_counted(self, name: str, index: int) -> bool:
        return self.counts.wants_case(name, index) and not self._skip_reason(name)

    def count_launches(self, chosen: Sequence[str] | None = None) -> None:
        """Launch what is counted, of all variants or the chosen ones, and look at no result."""
        for index, case in enumerate(self.proof.cases):
            for name in self.proof.variants_for(case):
                wanted = self.counts.wants_case(name, index) and (chosen is None or name in chosen)
                if not wanted or self._skip_reason(name):
                    continue
                self._set_place(f"in variant {name!r} on case {case}")
                self.watch.begin_case(index, self._target_rank(name), counted=True)
                inputs = self.draw_inputs(case, index, 0)
                with self.watch.watch_call():
                    self.proof.variants[name](*inputs)
                self.counts.add_launches(name, case, self.watch.launched)

    def _fill_row(self, row: dict[str, Any], index: int, case: Case, timed: bool) -> None:
        given = self.case_data(case, index)
        cost = self._case_cost(case, given, timed)
        row |= {key: cost[key] for key in ("bytes", "flops", "unit")}
        library: accuracy.Errors | None = None
        library_dtype = None
        for position, name in enumerate(self.proof.peers):
            if position > 0 and not timed:
                break  # small cases need the yardstick alone
            result, errors, dtype = self._check_peer(name, case, given, cost)
            row["results"].append(result)
            if position == 0:
                library, library_dtype = errors, dtype
        ours = []
        for name in self.proof.variants_for(case) if timed else self._due_variants(index):
            self._begin_calls(name, index)
            mine = self._check_variant(name, case, given, cost, library, library_dtype)
            if mine and self.watch.launched:
                self.counts.add_launches(name, case, self.watch.launched)
            if mine and mine["verdict"] == "passed" and not timed:
                self._repeat_schedules(name, case, given, cost)
            if mine and name not in self.failures:
                ours.append(mine)
        if not timed and self.share.draws_views(index):
            # After all variants: each view is compiled anew, and a hasty check may end before.
            for mine in [one for one in ours if one["verdict"] == "passed"]:
                if self._is_first_target(mine["name"]):
                    self._begin_calls(mine["name"], index, further=True)
                    self._check_views(mine["name"], case, index, given, cost, mine)
            ours = [one for one in ours if one["name"] not in self.failures]
        row["results"][:0] = ours

    def _begin_calls(self, name: str, index: int, further: bool = False) -> None:
        """Tell the watch that a variant's calls on a case begin, or that `further` ones do."""
        if self.watch.executes:
            counted = not further and not self.hasty and self.counts.wants_case(name, index)
            self.watch.begin_case(index, self._target_rank(name), counted, further)

    def _case_cost(self, case: Case, given: CaseData, timed: bool) -> dict[str, Any]:
        self.context.report_place(f"in cost() of case {case}")
        try:
            if timed and (found := costs.cost_from_shapes(self.proof, case)):
                return found
            known = costs.declared_cost(self.proof, case)
            if known.keys() >= {"bytes", "unit"}:
                return {"flops": 0, **known}
            self.context.report_place(f"in inputs() on case {case}")
            inputs = given.turn_inputs(0)
            self.context.report_place(f"in reference() on case {case}")
            return costs.case_cost(self.proof, case, inputs, given.turn_truth(0, inputs))
        except costs.CostError as wrong:
            raise JobError(str(wrong), "mend it", self.context.definition_place("cost")) from None
        except WrongResult as wrong:
            place = self.context.definition_place("reference")
            raise JobError(f"{wrong} on case {case}", "", place) from None

    def _skip_reason(self, name: str) -> str | None:
        return self._unsupported_reason(name, self.sm)

    def _unsupported_reason(self, name: str, sm: int) -> str | None:
        return claim_check.skip_reason(self.needs, name, sm or None, self.device == "cpu")

    def _check_function(
        self, name: str, case: Case, given: CaseData, cost: dict[str, Any], ours: bool
    ) -> tuple[accuracy.Errors, torch.dtype]:
        functions = self.proof.variants if ours else self.proof.peers
        self._set_place(f"in {'variant' if ours else 'peer'} {name!r} on case {case}")
        errors, dtype = verify.check_function(
            functions[name],
            given,
            case,
            ours=ours,
            tolerance=lambda dtype: self._dtype_tolerance(dtype, cost),
            watch=self.watch if ours else None,
        )
        self.dtypes.setdefault(values.case_form(case), dtype)
        return errors, dtype

    def _dtype_tolerance(self, dtype: torch.dtype, cost: dict[str, Any]) -> float:
        return accuracy.tolerance_of(dtype, cost["unit"], self.proof.tolerance)

    def _check_peer(
        self, name: str, case: Case, given: CaseData, cost: dict[str, Any]
    ) -> tuple[Result, accuracy.Errors | None, torch.dtype | None]:
        """A peer is untrusted: where it is wrong, that is recorded, and the run goes on."""
        result: Result = {"name": name, "role": "peer"}
        if reason := self._skip_reason(name):
            return {**result, "verdict": "skipped", "reason": reason}, None, None
        try:
            errors, dtype = self._check_function(name, case, given, cost, ours=False)
            tolerance = self._dtype_tolerance(dtype, cost)
        except JobError:
            raise
        except Exception as error:
            if memory.out_of_memory(error):
                raise OutOfMemory from error
            reason = str(error) if isinstance(error, WrongResult) else describe_error(error)
            return {**result, "verdict": "failed", "reason": reason}, None, None
        result |= _error_figures(errors, tolerance)
        return {**result, "verdict": "passed"}, errors, dtype

    def _check_variant(
        self,
        name: str,
        case: Case,
        given: CaseData,
        cost: dict[str, Any],
        library: accuracy.Errors | None,
        library_dtype: torch.dtype | None,
    ) -> Result | None:
        if name in self.failures:
            return None
        result: Result = {"name": name, "role": "variant"}
        if reason := self._skip_reason(name):
            self.skips[name] = reason
            return {**result, "verdict": "skipped", "reason": reason}
        place = f"variant {name!r} is wrong on case {case}"
        try:
            errors, dtype = self._check_function(name, case, given, cost, ours=True)
            tolerance = self._dtype_tolerance(dtype, cost)
        except WrongResult as wrong:
            self.record_failure(name, f"{place}{self.watch.under}: {wrong}")
            return None
        result |= _error_figures(errors, tolerance)
        if library is not None and dtype is library_dtype and dtype.is_floating_point:
            limit = accuracy.library_limit(library, dtype)
            result["max_error_limit"] = _round_two_digits(limit)
            if not errors.largest <= limit:
                peer = next(iter(self.proof.peers))
                what = f"{place}{self.watch.under}: "
                what += f"largest error {errors.largest:.2g} over {limit:.2g}"
                self.record_failure(name, f"{what}, twice that of {peer}")
                return None
        return {**result, "verdict": "passed"}

    def _check_views(
        self,
        name: str,
        case: Case,
        index: int,
        given: CaseData,
        cost: dict[str, Any],
        result: Result,
    ) -> None:
        """Call a variant on every view of a case; what it refuses goes into its result."""
        refuses: dict[str, str] = {}
        drawn = memory.variant_views(
            self.proof, self.draw_inputs, name, case, index, given, single=self.share.single
        )
        for view, of, inputs, refs in drawn:
            self._set_place(f"in variant {name!r} on case {of}, {view}")
            # One kernel does for all layouts, where Triton would compile one for each. What that
            # one cannot do, such as a copy that must be aligned, the layout's own may.
            what = self._check_view(name, of, inputs, refs, cost, view in memory.ALIGNED)
            if what is not None and what.startswith("raised "):
                what = self._check_view(name, of, inputs, refs, cost)
            if what is None:
                continue
            if what.startswith(f"{self.context.job['id']}: "):
                refuses[view] = what
                continue
            self._fail_view(name, f"case {of}, {view}", what)
            return
        if refuses:
            result["refuses"] = refuses

    def _repeat_schedules(
        self, name: str, case: Case, given: CaseData, cost: dict[str, Any]
    ) -> None:
        """Call a variant once more under each schedule that it has not met."""
        while name not in self.failures and self.watch.schedules_left():
            self._set_place(f"in variant {name!r} on case {case}")
            inputs = given.turn_inputs(0)
            what = self._check_view(name, case, inputs, given.turn_truth(0, inputs), cost)
            if what is not None:
                self._fail_view(name, f"case {case}", what)

    def _fail_view(self, name: str, where: str, what: str) -> None:
        self.record_failure(name, f"variant {name!r} is wrong on {where}{self.watch.under}: {what}")

    def _set_place(self, place: str) -> None:
        self.place = place
        self.context.report_place(place)

    def _variant_targets(self, name: str) -> list[str]:
        """The architectures for which a CPU executes a variant; a hasty check has one alone."""
        targets = (self.watch.target,) if self.hasty and self.watch.target else claim_check.TARGETS
        return [
            one
            for one in targets
            if not self._unsupported_reason(name, architectures.sm_version(one))
        ]

    def _target_rank(self, name: str) -> int:
        """The number of this target among those of a variant."""
        targets = self._variant_targets(name)
        return targets.index(self.watch.target) if self.watch.target in targets else 0

    def _check_view(
        self,
        name: str,
        case: Case,
        inputs: Sequence[object],
        refs: Sequence[torch.Tensor] | str,
        cost: dict[str, Any],
        specialize: bool = True,
    ) -> str | None:
        """What is wrong with a variant on one view, or the words in which it refuses; or None.

        Where there is no truth, `refs` says why, and a refusal is what is due.
        """
        function = self.proof.variants[name]
        try:
            if isinstance(refs, str):
                with self.watch.watch_call(specialize):
                    function(*inputs)
                return f"gave a result where {refs}: refuse it by a ValueError"
            verify.check_once(
                function,
                inputs,
                refs,
                case,
                lambda dtype: self._dtype_tolerance(dtype, cost),
                self.watch,
                specialize,
            )
        except WrongResult as wrong:
            return str(wrong)
        except Exception as error:
            if memory.out_of_memory(error):
                raise OutOfMemory from error
            if self._is_refusal(error):
                return str(error)
            return describe_error(error)
        return None

    def _is_refusal(self, error: Exception) -> bool:
        """Whether an exception says in one clear line what the kernel cannot take."""
        text = str(error)
        clear = text.startswith(f"{self.context.job['id']}: ") and len(text.splitlines()) == 1
        return clear and isinstance(error, ValueError | TypeError)


def _error_figures(errors: accuracy.Errors, tolerance: float) -> Result:
    return {
        "error": _round_two_digits(errors.relative),
        "max_error": _round_two_digits(errors.largest),
        "tolerance": tolerance,
    }


def _round_two_digits(value: float) -> float:
    # More would differ from processor to processor and make every record a new one.
    return float(f"{value:.2g}") if value == value and abs(value) != float("inf") else 1e308
