"""Checks a kernel's variants and peers, case by case, and keeps what the record takes from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from warpshelf.contract import architectures, values
from warpshelf.contract.values import Case
from warpshelf.records import agreement
from warpshelf.worker import accuracy, costs, memory, verify
from warpshelf.worker.accuracy import Wrong
from warpshelf.worker.context import Context, JobError, failure, raised
from warpshelf.worker.counts import Counts
from warpshelf.worker.share import Share
from warpshelf.worker.verify import Given
from warpshelf.worker.watch import Watch

Result = dict[str, Any]  # a row of the record's "results"


class OutOfMemory(Exception):
    """A case does not fit into memory; the text says while what."""


class Rejected(Exception):
    """The first failure of a hasty check, in words."""


class Checks:
    """Verifies the variants and peers of a kernel, case by case."""

    def __init__(self, context: Context, device: str, hasty: bool = False) -> None:
        self.context = context
        self.hasty = hasty  # the first failure ends it, by raising Rejected
        self.proof = context.proof
        self.device = device
        self.needs: dict[str, Any] = context.job["needs"]
        self.share = Share(**context.job["share"])
        target = context.job.get("target")  # whose PTX is executed, without a GPU
        self.sm = architectures.number(target) if target else context.job["machine"].get("sm") or 0
        self.place = ""  # what is being called, on which case
        self.watch = Watch(target, lambda under: context.at(f"{self.place}{under}"))
        self.counts = Counts(self.proof)
        self.rows: list[dict[str, Any]] = []
        self.skips: dict[str, str] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        self.dtypes: dict[object, torch.dtype] = {}  # by form of case, of the first output

    def answer(self) -> dict[str, Any]:
        """What the record takes from here."""
        return {
            "cases": self.rows,
            "skips": [{"what": what, "reason": why} for what, why in self.skips.items()],
            "failures": list(self.failures.values()),
        }

    def fail(self, name: str, what: str, mend: str = "") -> None:
        """Keep the first failure of a variant."""
        if self.hasty:
            raise Rejected(what)
        kind = "VARIANTS" if name in self.proof.variants else "PEERS"
        self.failures.setdefault(name, failure(what, mend, self.context.place(kind)))

    def draw(self, case: Case, index: int, turn: int) -> tuple[object, ...]:
        """Inputs of a case: the same at every run of the same turn, so that records are stable.

        Raises:
            JobError: inputs() gives no tuple of tensors and scalars, or a tensor of zeros alone.
        """
        assert self.proof.inputs is not None
        generator = torch.Generator(self.device).manual_seed(7919 * (index + 1) + turn)
        inputs = self.proof.inputs(case, self.device, generator)
        place = self.context.place("inputs")
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

    def given(self, case: Case, index: int) -> Given:
        """The inputs of a case and their truth."""
        assert self.proof.reference is not None
        return Given(lambda turn: self.draw(case, index, turn), self.proof.reference)

    def case(self, index: int, case: Case, timed: bool) -> dict[str, Any]:
        """Verify everything on one case; its row of the record.

        A case that memory does not hold is skipped, and has no results.
        """
        row: dict[str, Any] = {"case": case, "timed": timed, "results": []}
        try:
            self._case(row, index, case, timed)
        except Exception as error:
            if not isinstance(error, OutOfMemory) and not memory.out_of_memory(error):
                raise
            self.skips[f"case {case}"] = f"{agreement.OUT_OF_MEMORY} {self.context.place_now}"
            row["results"] = []
            if self.device == "cuda":
                torch.cuda.empty_cache()
            return row
        self.rows.append(row)
        return row

    def due(self) -> list[int]:
        """The numbers of the cases to verify here, of those that the job's share has."""
        every = self.share.chosen(self.proof)
        return [index for index in every if self._names(index)]

    def _names(self, index: int) -> list[str]:
        """The variants to verify here on case number `index`.

        Where PTX is executed, a variant meets every case on the first of its targets, and on the
        others those that are counted. A hasty check has one target.
        """
        names = self.proof.applies(self.proof.cases[index])
        if not self.watch.executes or self.hasty or self.watch.target == agreement.MAIN:
            return names
        return [name for name in names if self._first(name) or self._counts(name, index)]

    def _first(self, name: str) -> bool:
        """Whether this is the first of a variant's targets, on which it meets every case."""
        return self._targets(name)[:1] == [self.watch.target] or not self.watch.executes

    def _counts(self, name: str, index: int) -> bool:
        return self.counts.wants(name, index) and not self._skip(name)

    def count(self, chosen: Sequence[str] | None = None) -> None:
        """Launch what is counted, of all variants or the chosen ones, and look at no result."""
        for index, case in enumerate(self.proof.cases):
            for name in self.proof.applies(case):
                wanted = self.counts.wants(name, index) and (chosen is None or name in chosen)
                if not wanted or self._skip(name):
                    continue
                self._at(f"in variant {name!r} on case {case}")
                self.watch.begin(index, self._rank(name), counted=True)
                inputs = self.draw(case, index, 0)
                with self.watch.call():
                    self.proof.variants[name](*inputs)
                self.counts.keep(name, case, self.watch.launched)

    def _case(self, row: dict[str, Any], index: int, case: Case, timed: bool) -> None:
        given = self.given(case, index)
        cost = self._cost(case, given, timed)
        row |= {key: cost[key] for key in ("bytes", "flops", "unit")}
        library: accuracy.Errors | None = None
        library_dtype = None
        for position, name in enumerate(self.proof.peers):
            if position > 0 and not timed:
                break  # small cases need the yardstick alone
            result, errors, dtype = self._peer(name, case, given, cost)
            row["results"].append(result)
            if position == 0:
                library, library_dtype = errors, dtype
        ours = []
        for name in self.proof.applies(case) if timed else self._names(index):
            self._begin(name, index)
            mine = self._variant(name, case, given, cost, library, library_dtype)
            if mine and self.watch.launched:
                self.counts.keep(name, case, self.watch.launched)
            if mine and mine["verdict"] == "passed" and not timed:
                self._again(name, case, given, cost)
            if mine and name not in self.failures:
                ours.append(mine)
        if not timed and self.share.viewed(index):
            # After all variants: each view is compiled anew, and a hasty check may end before.
            for mine in [one for one in ours if one["verdict"] == "passed"]:
                if self._first(mine["name"]):
                    self._begin(mine["name"], index, further=True)
                    self._views(mine["name"], case, index, given, cost, mine)
            ours = [one for one in ours if one["name"] not in self.failures]
        row["results"][:0] = ours

    def _begin(self, name: str, index: int, further: bool = False) -> None:
        """Tell the watch that a variant's calls on a case begin, or that `further` ones do."""
        if self.watch.executes:
            counted = not further and not self.hasty and self.counts.wants(name, index)
            self.watch.begin(index, self._rank(name), counted, further)

    def _cost(self, case: Case, given: Given, timed: bool) -> dict[str, Any]:
        self.context.at(f"in cost() of case {case}")
        try:
            if timed and (found := costs.from_shapes(self.proof, case)):
                return found
            known = costs.said(self.proof, case)
            if known.keys() >= {"bytes", "unit"}:
                return {"flops": 0, **known}
            self.context.at(f"in inputs() on case {case}")
            inputs = given.inputs(0)
            self.context.at(f"in reference() on case {case}")
            return costs.of(self.proof, case, inputs, given.truth(0, inputs))
        except costs.WrongCost as wrong:
            raise JobError(str(wrong), "mend it", self.context.place("cost")) from None
        except Wrong as wrong:
            place = self.context.place("reference")
            raise JobError(f"{wrong} on case {case}", "", place) from None

    def _skip(self, name: str) -> str | None:
        return self._excuse(name, self.sm)

    def _excuse(self, name: str, sm: int) -> str | None:
        return agreement.excuse(self.needs, name, sm or None, self.device == "cpu")

    def _check(
        self, name: str, case: Case, given: Given, cost: dict[str, Any], ours: bool
    ) -> tuple[accuracy.Errors, torch.dtype]:
        functions = self.proof.variants if ours else self.proof.peers
        self._at(f"in {'variant' if ours else 'peer'} {name!r} on case {case}")
        errors, dtype = verify.check(
            functions[name],
            given,
            case,
            ours=ours,
            tolerance=lambda dtype: self._tolerance(dtype, cost),
            watch=self.watch if ours else None,
        )
        self.dtypes.setdefault(values.form(case), dtype)
        return errors, dtype

    def _tolerance(self, dtype: torch.dtype, cost: dict[str, Any]) -> float:
        return accuracy.tolerance_of(dtype, cost["unit"], self.proof.tolerance)

    def _peer(
        self, name: str, case: Case, given: Given, cost: dict[str, Any]
    ) -> tuple[Result, accuracy.Errors | None, torch.dtype | None]:
        """A peer is untrusted: where it is wrong, that is recorded, and the run goes on."""
        result: Result = {"name": name, "role": "peer"}
        if reason := self._skip(name):
            return {**result, "verdict": "skipped", "reason": reason}, None, None
        try:
            errors, dtype = self._check(name, case, given, cost, ours=False)
            tolerance = self._tolerance(dtype, cost)
        except JobError:
            raise
        except Exception as error:
            if memory.out_of_memory(error):
                raise OutOfMemory from error
            reason = str(error) if isinstance(error, Wrong) else raised(error)
            return {**result, "verdict": "failed", "reason": reason}, None, None
        result |= _figures(errors, tolerance)
        return {**result, "verdict": "passed"}, errors, dtype

    def _variant(
        self,
        name: str,
        case: Case,
        given: Given,
        cost: dict[str, Any],
        library: accuracy.Errors | None,
        library_dtype: torch.dtype | None,
    ) -> Result | None:
        if name in self.failures:
            return None
        result: Result = {"name": name, "role": "variant"}
        if reason := self._skip(name):
            self.skips[name] = reason
            return {**result, "verdict": "skipped", "reason": reason}
        place = f"variant {name!r} is wrong on case {case}"
        try:
            errors, dtype = self._check(name, case, given, cost, ours=True)
            tolerance = self._tolerance(dtype, cost)
        except Wrong as wrong:
            self.fail(name, f"{place}{self.watch.under}: {wrong}")
            return None
        result |= _figures(errors, tolerance)
        if library is not None and dtype is library_dtype and dtype.is_floating_point:
            limit = accuracy.library_limit(library, dtype)
            result["max_error_limit"] = _two_digits(limit)
            if not errors.largest <= limit:
                peer = next(iter(self.proof.peers))
                what = f"{place}{self.watch.under}: "
                what += f"largest error {errors.largest:.2g} over {limit:.2g}"
                self.fail(name, f"{what}, twice that of {peer}")
                return None
        return {**result, "verdict": "passed"}

    def _views(
        self,
        name: str,
        case: Case,
        index: int,
        given: Given,
        cost: dict[str, Any],
        result: Result,
    ) -> None:
        """Call a variant on every view of a case; what it refuses goes into its result."""
        refuses: dict[str, str] = {}
        drawn = memory.drawn(
            self.proof, self.draw, name, case, index, given, single=self.share.single
        )
        for view, of, inputs, refs in drawn:
            self._at(f"in variant {name!r} on case {of}, {view}")
            # One kernel does for all layouts, where Triton would compile one for each. What that
            # one cannot do, such as a copy that must be aligned, the layout's own may.
            what = self._view(name, of, inputs, refs, cost, view in memory.ALIGNED)
            if what is not None and what.startswith("raised "):
                what = self._view(name, of, inputs, refs, cost)
            if what is None:
                continue
            if what.startswith(f"{self.context.job['id']}: "):
                refuses[view] = what
                continue
            self._fail_view(name, f"case {of}, {view}", what)
            return
        if refuses:
            result["refuses"] = refuses

    def _again(self, name: str, case: Case, given: Given, cost: dict[str, Any]) -> None:
        """Call a variant once more under each schedule that it has not met."""
        while name not in self.failures and self.watch.left():
            self._at(f"in variant {name!r} on case {case}")
            inputs = given.inputs(0)
            what = self._view(name, case, inputs, given.truth(0, inputs), cost)
            if what is not None:
                self._fail_view(name, f"case {case}", what)

    def _fail_view(self, name: str, where: str, what: str) -> None:
        self.fail(name, f"variant {name!r} is wrong on {where}{self.watch.under}: {what}")

    def _at(self, place: str) -> None:
        self.place = place
        self.context.at(place)

    def _targets(self, name: str) -> list[str]:
        """The architectures for which a CPU executes a variant; a hasty check has one alone."""
        targets = (self.watch.target,) if self.hasty and self.watch.target else agreement.TARGETS
        return [one for one in targets if not self._excuse(name, architectures.number(one))]

    def _rank(self, name: str) -> int:
        """The number of this target among those of a variant."""
        targets = self._targets(name)
        return targets.index(self.watch.target) if self.watch.target in targets else 0

    def _view(
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
                with self.watch.call(specialize):
                    function(*inputs)
                return f"gave a result where {refs}: refuse it by a ValueError"
            verify.check_once(
                function,
                inputs,
                refs,
                case,
                lambda dtype: self._tolerance(dtype, cost),
                self.watch,
                specialize,
            )
        except Wrong as wrong:
            return str(wrong)
        except Exception as error:
            if memory.out_of_memory(error):
                raise OutOfMemory from error
            if self._refusal(error):
                return str(error)
            return raised(error)
        return None

    def _refusal(self, error: Exception) -> bool:
        """Whether an exception says in one clear line what the kernel cannot take."""
        text = str(error)
        clear = text.startswith(f"{self.context.job['id']}: ") and len(text.splitlines()) == 1
        return clear and isinstance(error, ValueError | TypeError)


def _figures(errors: accuracy.Errors, tolerance: float) -> Result:
    return {
        "error": _two_digits(errors.relative),
        "max_error": _two_digits(errors.largest),
        "tolerance": tolerance,
    }


def _two_digits(value: float) -> float:
    # More would differ from processor to processor and make every record a new one.
    return float(f"{value:.2g}") if value == value and abs(value) != float("inf") else 1e308
