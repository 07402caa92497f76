"""What each case costs: what cost() says, else each input and output once, in the dtypes due, no
FLOPs, and the unit of the first floating-point input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from warpshelf.contract import values
from warpshelf.contract.values import Case, Obligations
from warpshelf.worker.accuracy import tensors_of
from warpshelf.worker.verify import View
from warpshelf.worker.watch import case_size

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
    """What cost() says of a case; CostError if it is malformed."""
    found = proof.cost(case) if proof.cost is not None else {}
    if what := values.cost_problem(found):
        raise CostError(f"{what} on case {case}")
    return dict(found)


def declared_dtype(case: Case) -> torch.dtype:
    """The dtype that a case names, or float32."""
    dtype = getattr(torch, str(case.get("dtype")), None)
    return dtype if isinstance(dtype, torch.dtype) else torch.float32


def input_unit(inputs: Iterable[object]) -> str:
    """That of the first floating-point input; fp32 where there is none."""
    dtypes = (item.dtype for item in inputs if isinstance(item, torch.Tensor))
    known = (dtype for dtype in dtypes if dtype.is_floating_point or dtype is torch.int8)
    dtype = next(known, torch.float32)
    return "fp8" if str(dtype).startswith("torch.float8") else UNITS.get(dtype, "fp32")


def case_cost(proof: Obligations, view: View) -> dict[str, Any]:
    """Bytes, FLOPs and unit of a case, of its inputs and their truth; the bytes of the truth are
    `written`."""
    outs = zip(view.refs, view.due_dtypes(), strict=False)  # a wrong `out` fails functions
    written = sum(ref.numel() * dtype.itemsize for ref, dtype in outs)
    size = written + sum(item.nbytes for item in view.inputs if isinstance(item, torch.Tensor))
    known = {"bytes": size, "written": written, "flops": 0, "unit": input_unit(view.inputs)}
    return known | declared_cost(proof, view.case)


def view_shapes(proof: Obligations, case: Case) -> View:
    """Inputs and their truth as tensors without data; what needs some raises anything."""
    assert proof.inputs is not None and proof.reference is not None
    inputs = proof.inputs(case, "meta", None)
    return View("", case, inputs, tensors_of(proof.reference(*inputs), "reference()"))


def early_cost(proof: Obligations, case: Case, shapes: bool = True) -> dict[str, Any] | None:
    """Bytes, FLOPs and unit of a case before any input is made, or None. They are known where
    cost() says enough, or, with `shapes`, from tensors without data."""
    known = declared_cost(proof, case)
    if known.keys() >= {"bytes", "unit"}:
        return {"flops": 0, **known}
    try:
        return case_cost(proof, view_shapes(proof, case)) if shapes else None
    except Exception:  # whatever needs data
        return None


def estimate_cost(proof: Obligations, case: Case) -> dict[str, Any]:
    """Bytes, FLOPs and unit of a case, estimated from its sides where nothing better is known."""
    if found := early_cost(proof, case):
        return found
    known = {"bytes": SIDE_BYTES * case_size(case), "flops": 0}
    return known | {"unit": UNITS.get(declared_dtype(case), "fp32")} | declared_cost(proof, case)
