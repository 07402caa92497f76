"""Checks a kernel's variants and peers, on all cases or a share of them, for the record."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import torch

from warpshelf.contract import architectures, values
from warpshelf.contract.values import Case, Obligations
from warpshelf.records import claim_check
from warpshelf.worker import accuracy, costs, verify
from warpshelf.worker.accuracy import Errors, WrongResult
from warpshelf.worker.context import JobContext, JobError, describe_error, make_failure
from warpshelf.worker.verify import CaseData, Tolerance, View
from warpshelf.worker.watch import CallWatch, LaunchCounts


class Share(StrEnum):
    """How much of a kernel one verification covers: a record needs all.

    SOME draws one view of every tenth case, since each is compiled anew, and leaves out cases that
    are there only to be counted; TELLING is the case that rejects the most mutants, with no view.
    """

    ALL = "all"
    SOME = "some"
    TELLING = "telling"


def choose_cases(proof: Obligations, share: Share) -> list[int]:
    """The numbers of the cases to verify."""
    every = list(range(len(proof.cases)))
    if share is Share.ALL:
        return every
    killing = [index for index in every if index not in proof.counted or proof.kills[index]]
    return killing if share is Share.SOME else rank_cases(proof, killing)[:1]


def rank_cases(proof: Obligations, among: Collection[int]) -> list[int]:
    """Numbers of cases by how many mutants each rejects that those before it do not; of equals the
    smaller."""
    left, known, order = sorted(among), set[str](), []

    def rank_key(index: int) -> tuple[int, int, int]:
        sides = (side for side in proof.cases[index].values() if isinstance(side, int) and side)
        kills = proof.kills[index]
        return -len({*kills} - known), -len(kills), math.prod(sides)

    while left:
        best = min(left, key=rank_key)
        left.remove(best)
        known.update(proof.kills[best])
        order.append(best)
    return order


Result = dict[str, Any]  # a row of the record's "results"
Off = tuple[Errors, torch.dtype]  # how far a function is off, and in which dtype


class Rejected(Exception):
    """The first failure of a hasty check, in words."""


def choose_device() -> str:
    """The device to verify on: "cuda" where there is one."""
    if torch.cuda.is_available():
        return "cuda"
    torch.set_num_threads(1)  # one core a child; and sums always in one order
    return "cpu"


class Checks:
    """Verifies the variants and peers of a kernel, case by case."""

    def __init__(self, context: JobContext, hasty: bool = False) -> None:
        self.context = context
        self.hasty = hasty  # the first failure ends it, by raising Rejected
        self.proof = context.proof
        self.device = choose_device()
        self.share = Share(context.job.get("share", Share.ALL))
        target = context.job.get("target")  # whose PTX is executed, without a GPU
        machine_sm = context.job["machine"].get("sm")
        self.sm = architectures.sm_version(target) if target else machine_sm or 0
        self.place = ""  # what is being called, on which case
        # The number of this target among those that a CPU executes a variant for, if it is one.
        targets = (target,) if hasty and target else claim_check.TARGETS
        self.ranks: dict[str, int | None] = {}
        for name in self.proof.variants:
            able = {t: not self._skip_reason(name, architectures.sm_version(t)) for t in targets}
            mine = [one for one in targets if able[one]]
            self.ranks[name] = mine.index(target) if target in mine else None
        self.watch = CallWatch(target, lambda under: context.report_place(f"{self.place}{under}"))
        self.counts = LaunchCounts(self.proof)
        self.rows: list[dict[str, Any]] = []
        self.skips: dict[str, str] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        self.dtypes: dict[object, torch.dtype] = {}  # by form of case, of the first output

    def job_answer(self) -> dict[str, Any]:
        """The results for the record."""
        return {
            "cases": self.rows,
            "skips": [{"what": what, "reason": why} for what, why in self.skips.items()],
            "failures": list(self.failures.values()),
        }

    def record_failure(self, name: str, what: str, mend: str = "") -> None:
        """Keep the first failure of a variant."""
        if self.hasty:
            raise Rejected(what)
        place = self.context.definition_place("VARIANTS")
        self.failures.setdefault(name, make_failure(what, mend, place))

    def _fail_variant(self, name: str, where: str, what: object) -> None:
        said = f"variant {name!r} is wrong on {where}{self.watch.conditions}: {what}"
        self.record_failure(name, said)

    def draw_inputs(self, case: Case, index: int, turn: int) -> tuple[object, ...]:
        """Inputs of a case: the same at every run of the same turn, so that records are stable.
        JobError if inputs() gives no tuple of tensors and scalars, or a tensor of zeros alone."""
        assert self.proof.inputs is not None
        generator = torch.Generator(self.device).manual_seed(7919 * (index + 1) + turn)
        inputs: tuple[object, ...] = self.proof.inputs(case, self.device, generator)
        if problem := _input_problem(inputs):
            place = self.context.definition_place("inputs")
            raise JobError(f"{problem[0]} on case {case}", problem[1], place)
        return inputs

    def tolerance_for(self, unit: str | None) -> Tolerance:
        """The relative error allowed by dtype, where cost() names this unit."""
        return partial(accuracy.tolerance_of, unit=unit, overrides=self.proof.tolerance)

    def case_data(self, case: Case, index: int) -> CaseData:
        """The inputs of a case and their truth."""
        assert self.proof.reference is not None
        return CaseData(case, partial(self.draw_inputs, case, index), self.proof.reference)

    def due_cases(self) -> list[int]:
        """The numbers of the cases to verify here, of those that the job's share has."""
        return [one for one in choose_cases(self.proof, self.share) if self._due_variants(one)]

    def _due_variants(self, index: int) -> list[str]:
        """The variants to verify here on case number `index`: where PTX is executed, on the first
        of a variant's targets every case, and on the others those that are counted."""
        names = self.proof.variants_for(self.proof.cases[index])
        if not self.watch.executes or self.hasty or self.watch.target == claim_check.MAIN:
            return names
        elsewhere = (name for name in names if self.counts.wants_case(name, index))
        counted = {name for name in elsewhere if self.ranks[name] is not None}
        return [name for name in names if self.ranks[name] == 0 or name in counted]

    def _skip_reason(self, name: str, sm: int) -> str | None:
        needs = self.context.job["needs"]
        return claim_check.skip_reason(needs, name, sm or None, self.device == "cpu")

    def count_launches(self, chosen: Sequence[str] | None = None) -> None:
        """Launch what is counted, of all variants or the chosen ones, and look at no result."""
        for index, case in enumerate(self.proof.cases):
            for name in self.proof.variants_for(case):
                wanted = self.counts.wants_case(name, index) and (chosen is None or name in chosen)
                if not wanted or self._skip_reason(name, self.sm):
                    continue
                self.set_place(f"in variant {name!r} on case {case}")
                self._begin_calls(name, index)
                inputs = self.draw_inputs(case, index, 0)
                with self.watch.watch_call():
                    self.proof.variants[name](*inputs)
                self.counts.add_launches(name, case, self.watch.launched)

    def verify_case(
        self, index: int, case: Case, timed: bool, given: CaseData | None = None
    ) -> dict[str, Any]:
        """Verify everything on one case; its row of the record. A case that memory does not hold is
        skipped, and has no results."""
        row: dict[str, Any] = {"case": case, "timed": timed, "results": []}
        try:
            self._fill_row(row, index, given or self.case_data(case, index), timed)
        except Exception as error:
            if not verify.out_of_memory(error):
                raise
            self.skips[f"case {case}"] = f"{claim_check.OUT_OF_MEMORY} {self.context.place_now}"
            if self.device == "cuda":
                torch.cuda.empty_cache()
            return {**row, "results": []}
        self.rows.append(row)
        return row

    def _fill_row(self, row: dict[str, Any], index: int, given: CaseData, timed: bool) -> None:
        case = given.case
        cost = self._case_cost(given, timed)
        row |= {key: cost[key] for key in ("bytes", "flops", "unit")}
        if timed and "written" in cost:
            row["written"] = cost["written"]
        allowed = self.tolerance_for(cost["unit"])
        library = None
        # Of the peers small cases need the yardstick alone, which is the first.
        for position, name in enumerate([*self.proof.peers][: None if timed else 1]):
            result, off = self._check_function("peer", name, given, allowed)
            row["results"].append(result)
            library = off if position == 0 else library
        ours: list[Result] = []
        for name in self.proof.variants_for(case) if timed else self._due_variants(index):
            if name in self.failures:
                continue
            self._begin_calls(name, index)
            mine, _ = self._check_function("variant", name, given, allowed, library)
            ours.append(mine)
            if name not in self.failures:
                self.counts.add_launches(name, case, self.watch.launched)
            # Once more under each schedule that it has not met.
            while not timed and name not in self.failures and self.watch.schedules_left():
                self.set_place(f"in variant {name!r} on case {case}")
                if what := self._view_problem(name, given.first_view(), allowed):
                    self._fail_variant(name, f"case {case}", what)
        sparse = self.share is Share.SOME and index % 10 == 0
        if not timed and (sparse or self.share is Share.ALL):
            # After all variants: each view is compiled anew, and a hasty check may end before.
            for mine in ours:
                name = mine["name"]
                first = not self.watch.executes or self.ranks[name] == 0
                if first and mine["verdict"] == "passed" and name not in self.failures:
                    self._begin_calls(name, index, further=True)
                    self._check_views(mine, self._draw_views(name, given, index), allowed)
        row["results"][:0] = [mine for mine in ours if mine["name"] not in self.failures]

    def _begin_calls(self, name: str, index: int, further: bool = False) -> None:
        """Tell the watch that a variant's calls on a case begin, or that `further` ones do."""
        counted = not further and not self.hasty and self.counts.wants_case(name, index)
        self.watch.begin_case(index, self.ranks[name] or 0, counted, further)

    def set_place(self, place: str) -> None:
        """Tell the parent, and the watch for its calls, what comes next."""
        self.place = place
        self.context.report_place(place)

    def _case_cost(self, given: CaseData, timed: bool) -> dict[str, Any]:
        case = given.case
        self.context.report_place(f"in cost() of case {case}")
        try:
            if found := costs.early_cost(self.proof, case, shapes=timed):
                return found
            self.context.report_place(f"in inputs() on case {case}")
            inputs = given.turn_inputs(0)
            self.context.report_place(f"in reference() on case {case}")
            return costs.case_cost(self.proof, View("", case, inputs, given.turn_truth(0, inputs)))
        except costs.CostError as wrong:
            raise JobError(str(wrong), "fix cost", self.context.definition_place("cost")) from None
        except WrongResult as wrong:
            place = self.context.definition_place("reference")
            raise JobError(f"{wrong} on case {case}", "", place) from None

    def _check_function(
        self, role: str, name: str, given: CaseData, allowed: Tolerance, library: Off | None = None
    ) -> tuple[Result, Off | None]:
        """The result of a variant or a peer on a case, and how far it is off, if that is known. A
        peer is untrusted: where it is wrong, that is recorded, and the run goes on."""
        ours, result = role == "variant", {"name": name, "role": role}
        if reason := self._skip_reason(name, self.sm):
            if ours:
                self.skips[name] = reason
            return {**result, "verdict": "skipped", "reason": reason}, None
        self.set_place(f"in {role} {name!r} on case {given.case}")
        function = (self.proof.variants if ours else self.proof.peers)[name]
        limits: dict[str, float] = {}
        try:
            watch = self.watch if ours else CallWatch()
            errors, dtype = verify.check_function(function, given, allowed, watch, ours)
            if library and dtype is library[1] and dtype.is_floating_point:
                limit = accuracy.library_limit(*library)
                limits["max_error_limit"] = _round_two_digits(limit)
                if not errors.largest <= limit:
                    said = f"largest error {errors.largest:.2g} over {limit:.2g}"
                    raise WrongResult(f"{said}, twice that of {next(iter(self.proof.peers))}")
        except Exception as error:
            if ours and isinstance(error, WrongResult):
                self._fail_variant(name, f"case {given.case}", error)
            elif ours or isinstance(error, JobError) or verify.out_of_memory(error):
                raise
            return {**result, "verdict": "failed", "reason": verify.describe_wrong(error)}, None
        self.dtypes.setdefault(values.case_form(given.case), dtype)
        off = {"error": errors.relative, "max_error": errors.largest}
        figures = {key: _round_two_digits(value) for key, value in off.items()}
        passed = {"tolerance": allowed(dtype), "verdict": "passed"}
        return {**result, **figures, **limits, **passed}, (errors, dtype)

    def _check_views(self, result: Result, views: Iterator[View], allowed: Tolerance) -> None:
        """Call a variant on views of a case; what it refuses goes into its result."""
        name, refuses = result["name"], dict[str, str]()
        for view in views:
            self.set_place(f"in variant {name!r} on case {view.case}, {view.name}")
            # One kernel does for all layouts, where Triton would compile one for each. What that
            # one cannot do, such as a copy that must be aligned, the layout's own may.
            what = self._view_problem(name, view, allowed, view.name in verify.ALIGNED)
            if what is not None and what.startswith("raised "):
                what = self._view_problem(name, view, allowed)
            if what is not None and what.startswith(f"{self.context.job['id']}: "):
                refuses[view.name] = what
            elif what is not None:
                self._fail_variant(name, f"case {view.case}, {view.name}", what)
                return
        if refuses:
            result["refuses"] = refuses

    def _draw_views(self, name: str, given: CaseData, index: int) -> Iterator[View]:
        """Each view of a case that a variant gets, and empty sides for the first of a form."""
        _, case, inputs, refs, _ = given.first_view()  # of inputs that no call has changed yet
        for view, drawn in verify.case_views(inputs, index, self.share is Share.SOME):
            if view not in verify.NEW_VALUES:
                yield View(view, case, drawn, refs)
                continue
            with contextlib.suppress(WrongResult):  # such values may have no truth
                yield View(view, case, drawn, verify.reference_truth(given.reference, drawn))
        form = values.case_form(case)
        for other in self.proof.cases[:index]:
            if name in self.proof.variants_for(other) and values.case_form(other) == form:
                return
        for side in (side for side in values.side_keys(case) if case[side]):
            label, emptied = f"{side} empty", {**case, side: 0}
            try:
                made = self.draw_inputs(emptied, index, 0)
            except Exception:
                continue  # no inputs of this kind have such a side
            try:
                yield View(label, emptied, made, verify.reference_truth(given.reference, made))
            except WrongResult as wrong:
                yield View(label, emptied, made, (), str(wrong))
            except Exception as error:
                yield View(label, emptied, made, (), f"reference() {describe_error(error)}")

    def _view_problem(
        self, name: str, view: View, allowed: Tolerance, specialize: bool = True
    ) -> str | None:
        """What is wrong with a variant on one view, or the words in which it refuses; or None. A
        refusal, which is due where there is no truth, is a ValueError or TypeError of one line that
        begins with the snippet's name."""
        function = self.proof.variants[name]
        try:
            if view.why:
                with self.watch.watch_call(specialize):
                    function(*view.inputs)
                return f"returned a result where {view.why}: raise a ValueError instead"
            verify.check_view(function, view, allowed, self.watch, specialize=specialize)
        except Exception as error:
            if verify.out_of_memory(error):
                raise
            text = str(error)
            clear = text.startswith(f"{self.context.job['id']}: ") and len(text.splitlines()) == 1
            refuses = clear and isinstance(error, ValueError | TypeError)
            return text if refuses else verify.describe_wrong(error)
        return None

    def due_rows(self) -> list[dict[str, Any]]:
        """What every record must have: a row for each case of CASES, COUNTED, TIMED, in order. It
        follows from cases.py alone, so any machine finds the same, even one that skips the case."""
        proof, found = self.proof, []
        for index, case in enumerate(proof.cases):
            if values.case_form(case) not in self.dtypes:
                made = self.case_data(case, index).first_view
                self.dtypes[values.case_form(case)] = _deciding_dtype(case, made)
        cases = [(False, case) for case in proof.cases] + [(True, case) for case in proof.timed]
        for timed, case in cases:
            # Tensors without data tell the dtypes too, but to make the first of them torch imports
            # a compiler: a second in a child that has no other need of it.
            dtype = self.dtypes.get(values.case_form(case))
            dtype = dtype or _deciding_dtype(case, partial(costs.view_shapes, proof, case))
            tolerance, unit = 0.0, costs.declared_cost(proof, case).get("unit")
            with contextlib.suppress(WrongResult):  # none is known: nothing passes
                tolerance = accuracy.tolerance_of(dtype, unit, proof.tolerance)
            row = {
                "case": dict(case),
                "timed": timed,
                "variants": proof.variants_for(case),
                "peers": list(proof.peers)[: None if timed else 1],  # the yardstick alone
                "tolerance": tolerance,
            }
            if timed and (cost := costs.early_cost(proof, case)):
                row |= {key: cost[key] for key in ("bytes", "flops", "unit")}
            found.append(row)
        return found


def _deciding_dtype(case: Case, make: Callable[[], View]) -> torch.dtype:
    """The dtype that decides the tolerance of a case, where its inputs and truth can be made."""
    with contextlib.suppress(Exception):  # memory, data or truth is missing: verification says so
        return accuracy.first_floating(make().due_dtypes())
    return costs.declared_dtype(case)


def _input_problem(inputs: object) -> tuple[str, str] | None:
    """What is wrong with what inputs() returned, and the mend; or None."""
    if not isinstance(inputs, tuple):
        what = f"inputs() returned {type(inputs).__name__}"
        return what, "return a tuple of tensors and plain scalars"
    for position, item in enumerate(inputs):
        if isinstance(item, torch.Tensor):
            # On a GPU fp8 has no any().
            bits = item.view(torch.uint8) if item.itemsize == 1 else item
            if item.is_floating_point() and item.numel() and not bits.any():
                mend = "draw random values: zeros hide wrong indexing"
                return f"input {position} is all zeros", mend
        elif not isinstance(item, int | float | bool | str | None):
            what = f"input {position} is a {type(item).__name__}"
            return what, "return tensors and plain scalars only"
    return None


def _round_two_digits(value: float) -> float:
    # More would differ from processor to processor and make every record a new one.
    return float(f"{value:.2g}") if math.isfinite(value) else 1e308
