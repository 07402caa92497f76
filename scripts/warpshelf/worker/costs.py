"""What cases.py says of each case: what it costs, and what every record must show of it.

By default the bytes are those of each input tensor and each output once, in the dtypes due; there
are no FLOPs; and the unit is that of the first floating-point input. What is due follows from
cases.py alone, so any machine finds the same, even one that skips the case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from warpshelf.contract import values
from warpshelf.contract.values import Case, Obligations
from warpshelf.worker import accuracy

Checks = Any  # that of checks.py, which imports this module


UNITS = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int8: "int8",
}
SIDE_BYTES = 4 * 3  # of each element of a case of unknown tensors: two read, one written


class CostError(Exception):
    """cost() returned something malformed; the text says what."""


def declared_cost(proof: Obligations, case: Case) -> dict[str, Any]:
    """What cost() says of a case.

    Raises:
        WrongCost: it is malformed.
    """
    if proof.cost is None:
        return {}
    found = proof.cost(case)
    if what := values.cost_problem(found):
        raise CostError(f"{what} on case {case}")
    return dict(found)


def input_unit(inputs: Iterable[object]) -> str:
    """The unit of the first floating-point input; fp32 where there is none."""
    for item in inputs:
        if isinstance(item, torch.Tensor):
            if item.is_floating_point():
                name = str(item.dtype).removeprefix("torch.")
                return "fp8" if name.startswith("float8") else UNITS.get(item.dtype, "fp32")
            if item.dtype is torch.int8:
                return "int8"
    return "fp32"


def case_cost(
    proof: Obligations, case: Case, inputs: Sequence[object], refs: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """Bytes, FLOPs and unit of a case, of whose inputs `refs` is the truth.

    Raises:
        WrongCost: cost() is malformed.
    """
    dtypes = accuracy.expected_dtypes(case, inputs, refs)
    tensors = [item for item in inputs if isinstance(item, torch.Tensor)]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    size += sum(ref.numel() * dtype.itemsize for ref, dtype in zip(refs, dtypes, strict=False))
    return {"bytes": size, "flops": 0, "unit": input_unit(inputs), **declared_cost(proof, case)}


def cost_from_shapes(proof: Obligations, case: Case) -> dict[str, Any] | None:
    """The same before any input is made, where cost() says enough, or inputs() and reference()
    work on tensors that have shapes and no data; else None."""
    known = declared_cost(proof, case)
    if known.keys() >= {"bytes", "unit"}:
        return {"flops": 0, **known}
    assert proof.inputs is not None and proof.reference is not None
    try:
        shapes = proof.inputs(case, "meta", None)
        refs = accuracy.tensors_of(proof.reference(*shapes), "reference()")
        return case_cost(proof, case, shapes, refs)
    except Exception:  # whatever needs data
        return None


def estimate_cost(proof: Obligations, case: Case) -> dict[str, Any]:
    """Bytes, FLOPs and unit of a case, estimated from its sides where nothing better is known."""
    if found := cost_from_shapes(proof, case):
        return found
    elements = math.prod(max(1, case[side]) for side in values.side_keys(case))
    dtype = getattr(torch, str(case.get("dtype")), None)
    name = UNITS.get(dtype, "fp32") if isinstance(dtype, torch.dtype) else "fp32"
    return {"bytes": SIDE_BYTES * elements, "flops": 0, "unit": name, **declared_cost(proof, case)}


def due_rows(checks: Checks) -> list[dict[str, Any]]:
    """A row a case, of CASES, COUNTED, TIMED in order: its variants, peers, tolerance and cost."""
    proof = checks.proof
    known = dict(checks.dtypes)
    for index, case in enumerate(proof.cases):
        if values.case_form(case) not in known:
            known[values.case_form(case)] = _dtype_from_data(checks, index, case)
    found = []
    for timed, cases in ((False, proof.cases), (True, proof.timed)):
        for case in cases:
            # A form decides its dtypes. Tensors without data tell them too, but to make the first
            # of them torch imports a compiler: a second in a child that has no other need of it.
            dtype = (
                known.get(values.case_form(case))
                or _dtype_of_shapes(proof, case)
                or _declared_dtype(case)
            )
            row = {
                "case": dict(case),
                "timed": timed,
                "variants": proof.variants_for(case),
                "peers": list(proof.peers)[: None if timed else 1],  # the yardstick alone
                "tolerance": _case_tolerance(proof, case, dtype),
            }
            if timed and (cost := cost_from_shapes(proof, case)):
                row |= {key: cost[key] for key in ("bytes", "flops", "unit")}
            found.append(row)
    return found


def _dtype_of_shapes(proof: Obligations, case: Case) -> torch.dtype | None:
    """The dtype that decides the tolerance, from tensors without data; None where they fail."""
    assert proof.inputs is not None and proof.reference is not None
    try:
        shapes = proof.inputs(case, "meta", None)
        refs = accuracy.tensors_of(proof.reference(*shapes), "reference()")
        return accuracy.first_floating(accuracy.expected_dtypes(case, shapes, refs))
    except Exception:  # whatever needs data
        return None


def _dtype_from_data(checks: Checks, index: int, case: Case) -> torch.dtype:
    """The same from data."""
    given = checks.case_data(case, index)
    try:
        inputs = given.turn_inputs(0)
        return accuracy.first_floating(
            accuracy.expected_dtypes(case, inputs, given.turn_truth(0, inputs))
        )
    except Exception:  # memory does not hold it, or it has no truth: verification says so
        return _declared_dtype(case)


def _declared_dtype(case: Case) -> torch.dtype:
    dtype = getattr(torch, str(case.get("dtype")), None)
    return dtype if isinstance(dtype, torch.dtype) else torch.float32


def _case_tolerance(proof: Obligations, case: Case, dtype: torch.dtype) -> float:
    try:
        return accuracy.tolerance_of(dtype, declared_cost(proof, case).get("unit"), proof.tolerance)
    except accuracy.WrongResult:
        return 0.0  # none is known: nothing passes
