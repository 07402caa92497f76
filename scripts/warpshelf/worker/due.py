"""What every record of a kernel must show, whatever the machine: its cases, and what each allows.

It follows from cases.py alone, so any machine finds the same, even one that skips the case.
"""

from __future__ import annotations

from typing import Any

import torch

from warpshelf.contract import values
from warpshelf.contract.values import Case, Obligations
from warpshelf.worker import accuracy, costs
from warpshelf.worker.checks import Checks


def rows(checks: Checks) -> list[dict[str, Any]]:
    """A row a case, of CASES, COUNTED, TIMED in order: its variants, peers, tolerance and cost."""
    proof = checks.proof
    known = dict(checks.dtypes)
    for index, case in enumerate(proof.cases):
        if values.form(case) not in known:
            known[values.form(case)] = _dtype(checks, index, case)
    found = []
    for timed, cases in ((False, proof.cases), (True, proof.timed)):
        for case in cases:
            # A form decides its dtypes. Tensors without data tell them too, but to make the first
            # of them torch imports a compiler: a second in a child that has no other need of it.
            dtype = known.get(values.form(case)) or _from_shapes(proof, case) or _named(case)
            row = {
                "case": dict(case),
                "timed": timed,
                "variants": proof.applies(case),
                "peers": list(proof.peers)[: None if timed else 1],  # the yardstick alone
                "tolerance": _tolerance(proof, case, dtype),
            }
            if timed and (cost := costs.from_shapes(proof, case)):
                row |= {key: cost[key] for key in ("bytes", "flops", "unit")}
            found.append(row)
    return found


def _first(dtypes: list[torch.dtype]) -> torch.dtype:
    return next((dtype for dtype in dtypes if dtype.is_floating_point), dtypes[0])


def _from_shapes(proof: Obligations, case: Case) -> torch.dtype | None:
    """The dtype that decides the tolerance, from tensors without data; None where they fail."""
    assert proof.inputs is not None and proof.reference is not None
    try:
        shapes = proof.inputs(case, "meta", None)
        refs = accuracy.tensors_of(proof.reference(*shapes), "reference()")
        return _first(accuracy.expected_dtypes(case, shapes, refs))
    except Exception:  # whatever needs data
        return None


def _dtype(checks: Checks, index: int, case: Case) -> torch.dtype:
    """The same from data."""
    given = checks.given(case, index)
    try:
        inputs = given.inputs(0)
        return _first(accuracy.expected_dtypes(case, inputs, given.truth(0, inputs)))
    except Exception:  # memory does not hold it, or it has no truth: verification says so
        return _named(case)


def _named(case: Case) -> torch.dtype:
    dtype = getattr(torch, str(case.get("dtype")), None)
    return dtype if isinstance(dtype, torch.dtype) else torch.float32


def _tolerance(proof: Obligations, case: Case, dtype: torch.dtype) -> float:
    try:
        return accuracy.tolerance_of(dtype, costs.said(proof, case).get("unit"), proof.tolerance)
    except accuracy.Wrong:
        return 0.0  # none is known: nothing passes
