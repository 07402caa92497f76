"""Checks a kernel's variants and peers, case by case, and keeps what the record takes from it."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from warpshelf import contract, verify
from warpshelf.child import Context, JobError

BFLOAT16 = "Triton's interpreter computes bfloat16 wrongly"


class Checks:
    """Verifies the variants and peers of a kernel, case by case."""

    def __init__(self, context: Context, device: str) -> None:
        self.context = context
        self.module = context.module
        self.device = device
        self.needs = context.job["needs"].get("variants", {})
        self.sm = context.job["machine"].get("sm") or 0
        self.rows: list[dict] = []
        self.skips: dict[str, str] = {}
        self.failures: dict[str, dict] = {}

    def answer(self) -> dict:
        """What the record takes from here."""
        return {
            "cases": self.rows,
            "skips": [{"what": what, "reason": why} for what, why in self.skips.items()],
            "failures": list(self.failures.values()),
        }

    def fail(self, name: str, what: str, mend: str = "") -> None:
        """Keep the first failure of a variant."""
        kind = "VARIANTS" if name in self.module.VARIANTS else "PEERS"
        line = self.context.job["lines"].get(kind)
        self.failures.setdefault(name, {"line": line, "what": what, "mend": mend})

    def draw(self, case: dict, index: int, turn: int) -> tuple:
        """Inputs of a case: the same at every run of the same turn, so that records are stable.

        Raises:
            JobError: inputs() gives no tuple of tensors and scalars, or a tensor of zeros alone.
        """
        generator = torch.Generator(self.device).manual_seed(7919 * (index + 1) + turn)
        inputs = self.module.inputs(case, self.device, generator)
        line = self.context.job["lines"].get("inputs")
        if not isinstance(inputs, tuple):
            what = f"inputs() returned {type(inputs).__name__} on case {case}"
            raise JobError(what, "return a tuple of tensors and plain scalars", line)
        for position, item in enumerate(inputs):
            if not isinstance(item, torch.Tensor | int | float | bool | str | None):
                what = f"input {position} is a {type(item).__name__} on case {case}"
                raise JobError(what, "return tensors and plain scalars only", line)
            zeros = isinstance(item, torch.Tensor) and item.is_floating_point() and item.numel()
            if zeros and not item.any():
                what = f"input {position} is all zeros on case {case}"
                raise JobError(what, "draw random values: zeros hide wrong indexing", line)
        return inputs

    def case(self, index: int, case: dict, timed: bool) -> dict:
        """Verify everything on one case; its row of the record."""
        context = self.context
        context.at(f"in cost() of case {case}")
        cost = self.module.cost(case)
        if what := contract.cost_problem(cost):
            raise JobError(f"{what} on case {case}", "mend it", context.job["lines"].get("cost"))
        row: dict = {"case": case, "timed": timed, "results": []}
        row |= {key: cost[key] for key in ("bytes", "flops", "unit")}
        reason = self._skip_case(case)
        if reason:
            self.skips.setdefault("bfloat16", reason)
            return row
        self.rows.append(row)
        library: verify.Errors | None = None
        library_dtype = None
        for position, name in enumerate(self.module.PEERS):
            if position > 0 and not timed:
                break  # small cases need the yardstick alone
            result, errors, dtype = self._peer(name, case, index, cost)
            row["results"].append(result)
            if position == 0:
                library, library_dtype = errors, dtype
        ours = (
            self._variant(name, case, index, cost, library, library_dtype)
            for name in self._chosen(case)
        )
        row["results"][:0] = [result for result in ours if result]
        return row

    def _chosen(self, case: dict) -> Iterable[str]:
        chosen = case.get("variants", self.module.VARIANTS)
        return [name for name in self.module.VARIANTS if name in chosen]

    def _skip_case(self, case: dict) -> str | None:
        wrong = self.device == "cpu" and self.context.job["uses_triton"]
        return BFLOAT16 if wrong and "bfloat16" in case.values() else None

    def _skip(self, name: str) -> str | None:
        needs = self.needs.get(name, {})
        if self.device == "cpu":
            return needs.get("cpu") or ("needs a GPU" if "sm" in needs else None)
        if self.sm < needs.get("sm", 0):
            return f"needs SM {needs['sm']}; this GPU is SM {self.sm}"
        return None

    def _check(self, name: str, case: dict, index: int, cost: dict, ours: bool):
        functions = self.module.VARIANTS if ours else self.module.PEERS
        self.context.at(f"in {'variant' if ours else 'peer'} {name!r} on case {case}")
        return verify.check(
            functions[name],
            lambda turn: self.draw(case, index, turn),
            self.module.reference,
            case,
            ours=ours,
            tolerance=lambda dtype: self._tolerance(dtype, cost),
        )

    def _tolerance(self, dtype: torch.dtype, cost: dict) -> float:
        overrides = getattr(self.module, "TOLERANCE", {})
        return verify.tolerance_of(dtype, cost["unit"], overrides)

    def _peer(self, name: str, case: dict, index: int, cost: dict):
        """A peer is untrusted: where it is wrong, that is recorded, and the run goes on."""
        result: dict = {"name": name, "role": "peer"}
        if reason := self._skip(name):
            return {**result, "verdict": "skipped", "reason": reason}, None, None
        try:
            errors, dtype = self._check(name, case, index, cost, ours=False)
            tolerance = self._tolerance(dtype, cost)
        except JobError:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, verify.Wrong) else _raised(error)
            return {**result, "verdict": "failed", "reason": reason}, None, None
        result |= _figures(errors, tolerance)
        return {**result, "verdict": "passed"}, errors, dtype

    def _variant(
        self,
        name: str,
        case: dict,
        index: int,
        cost: dict,
        library: verify.Errors | None,
        library_dtype: torch.dtype | None,
    ) -> dict | None:
        if name in self.failures:
            return None
        result: dict = {"name": name, "role": "variant"}
        if reason := self._skip(name):
            self.skips[name] = reason
            return {**result, "verdict": "skipped", "reason": reason}
        place = f"variant {name!r} is wrong on case {case}"
        try:
            errors, dtype = self._check(name, case, index, cost, ours=True)
            tolerance = self._tolerance(dtype, cost)
        except verify.Wrong as wrong:
            self.fail(name, f"{place}: {wrong}")
            return None
        result |= _figures(errors, tolerance)
        if library is not None and dtype is library_dtype and dtype.is_floating_point:
            limit = verify.library_limit(library, dtype)
            result["max_error_limit"] = _two_digits(limit)
            if not errors.largest <= limit:
                peer = next(iter(self.module.PEERS))
                what = f"{place}: largest error {errors.largest:.2g} over {limit:.2g}"
                self.fail(name, f"{what}, twice that of {peer}")
                return None
        return {**result, "verdict": "passed"}


def _figures(errors: verify.Errors, tolerance: float) -> dict:
    return {
        "error": _two_digits(errors.relative),
        "max_error": _two_digits(errors.largest),
        "tolerance": tolerance,
    }


def _two_digits(value: float) -> float:
    # More would differ from processor to processor and make every record a new one.
    return float(f"{value:.2g}") if value == value and abs(value) != float("inf") else 1e308


def _raised(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"raised {type(error).__name__}: {lines[0]}"[:300]
