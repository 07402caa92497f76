"""A kernel's output against a float64 truth, with the ways to cheat closed.

A function is called twice on each case, and once on each view of it. Its inputs must come back
untouched, and memory that it takes is poisoned. The second call finds new values in the same
tensors, so a result kept from the first call shows. What stands around each call is a `CallWatch`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from warpshelf.contract.values import Case
from warpshelf.worker import accuracy, memory
from warpshelf.worker.accuracy import Errors, WrongResult, tensors_of
from warpshelf.worker.context import describe_error
from warpshelf.worker.watch import CallWatch

Function = Callable[..., object]
Tolerance = Callable[[torch.dtype], float]  # the relative error allowed, by dtype
Tensors = Sequence[torch.Tensor]


class View(NamedTuple):
    """Inputs of a case in some layout, and their truth."""

    name: str
    case: Case
    inputs: Sequence[object]
    refs: Tensors

    def due_dtypes(self) -> list[torch.dtype]:
        """The dtype that each output must have."""
        return accuracy.expected_dtypes(self.case, self.inputs, self.refs)


def describe_wrong(error: Exception) -> str:
    """What is wrong with a function that raised this, or whose result did."""
    return str(error) if isinstance(error, WrongResult) else describe_error(error)


def reference_truth(reference: Function, inputs: Sequence[object]) -> Tensors:
    """The reference's result; WrongResult if it is not float64 (or integer), or holds NaN."""
    refs = tensors_of(reference(*inputs), "reference()")
    for ref in (ref for ref in refs if ref.is_floating_point()):
        if ref.dtype is not torch.float64:
            raise WrongResult(f"reference() returned {ref.dtype}; compute it in float64")
        if accuracy.describe_marked(torch.isnan, ref):
            raise WrongResult("reference() returned NaN, which no kernel can be compared with")
    return refs


def refill_inputs(inputs: Sequence[object], fresh: Sequence[object]) -> Sequence[object]:
    """Put fresh values into the very tensors of `inputs`; where that cannot be, use `fresh`."""
    for old, new in zip(inputs, fresh, strict=True):
        if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
            sides = zip(old.stride(), old.shape, strict=True)
            if old.shape != new.shape or any(stride == 0 and size > 1 for stride, size in sides):
                return fresh
        elif isinstance(old, torch.Tensor) or (old != new and not (old != old and new != new)):
            return fresh
    for old, new in zip(inputs, fresh, strict=True):
        if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
            old.copy_(new)
    return inputs


class CaseData:
    """The inputs of a case and their truth, by turn; what is small is made once. `draw(turn)`
    returns new inputs, the same for the same turn."""

    def __init__(
        self, case: Case, draw: Callable[[int], Sequence[object]], reference: Function
    ) -> None:
        self.case = case
        self.reference = reference
        self._draw = draw
        self._inputs: dict[int, list[object]] = {}
        self._truths: dict[int, Tensors] = {}

    def turn_inputs(self, turn: int) -> Sequence[object]:
        """Inputs of one's own."""
        if turn not in self._inputs:
            made = self._draw(turn)
            tensors = [item for item in made if isinstance(item, torch.Tensor)]
            whole = all(
                item.is_contiguous() and item.untyped_storage().nbytes() == item.nbytes
                for item in tensors
            )
            if not whole or sum(item.nbytes for item in tensors) > memory.COPIED:
                return made
            self._inputs[turn] = list(made)
        kept = self._inputs[turn]
        return [item.clone() if isinstance(item, torch.Tensor) else item for item in kept]

    def turn_truth(self, turn: int, inputs: Sequence[object]) -> Tensors:
        """The truth of a turn's inputs, which nothing has changed yet."""
        if turn in self._truths:
            return self._truths[turn]
        refs = reference_truth(self.reference, inputs)
        if turn in self._inputs and sum(ref.numel() for ref in refs) <= memory.COPIED:
            self._truths[turn] = refs
        return refs

    def first_view(self) -> View:
        """Inputs of the first turn as they are drawn, and their truth."""
        inputs = self.turn_inputs(0)
        return View("", self.case, inputs, self.turn_truth(0, inputs))


def check_function(
    function: Function, given: CaseData, tolerance: Tolerance, watch: CallWatch, ours: bool
) -> tuple[Errors, torch.dtype]:
    """Call `function` twice on inputs of a case and compare both results with the truth.

    `ours` turns on what a library need not do: writing every element of fresh memory, and
    returning a new result each time. At no time is there more than the inputs twice, or once with
    two results and one truth: a case may fill half of a GPU. WrongResult if it is wrong in any way.
    """
    poisons = (memory.POISON, memory.OTHER_POISON) if ours else (None, None)
    view = given.first_view()
    inputs = view.inputs
    outs, errors, dtype = check_view(function, view, tolerance, watch, poisons[0])
    del view
    kept = [memory.take_fingerprint(out) for out in outs]
    storages = {
        item.untyped_storage().data_ptr() for item in inputs if isinstance(item, torch.Tensor)
    }
    inputs = refill_inputs(inputs, given.turn_inputs(1))
    view = View("", given.case, inputs, given.turn_truth(1, inputs))
    try:
        _, later, _ = check_view(function, view, tolerance, watch, poisons[1])
    except WrongResult as wrong:
        raise WrongResult(f"right on its first call, wrong on the second: {wrong}") from None
    for out, old in zip(outs, kept, strict=True):
        aliased = out.untyped_storage().data_ptr() in storages
        if ours and not aliased and not torch.equal(memory.take_fingerprint(out), old):
            what = "the second call changed the result of the first: allocate a new output"
            raise WrongResult(what)
    return errors.max_with(later), dtype


def check_view(
    function: Function,
    view: View,
    tolerance: Tolerance,
    watch: CallWatch,
    poison: int | None = memory.POISON,
    specialize: bool = True,
) -> tuple[Tensors, Errors, torch.dtype]:
    """Call a function on a view, once, and compare the result with the truth.

    Its results, how far they are off, and the dtype that decides the tolerance. WrongResult if it
    is wrong in any way. With `poison`, a byte, memory that it takes is filled first.
    """
    _, _, inputs, refs = view
    dtypes = view.due_dtypes()
    dtype = accuracy.first_floating(dtypes)
    allowed = tolerance(dtype)
    before = memory.input_fingerprints(inputs)
    with contextlib.ExitStack() as around:
        around.enter_context(watch.watch_call(specialize))
        if poison is not None:
            around.enter_context(memory.PoisonMode(poison, marks=watch.executes))
        outs = tensors_of(function(*inputs), "it")
    if any(out.is_cuda for out in outs):
        torch.cuda.synchronize()
    memory.check_untouched(inputs, before)
    if len(outs) != len(refs):
        raise WrongResult(f"returned {len(outs)} tensors where {len(refs)} are due")
    errors = Errors(0.0, 0.0, 0.0)
    for index, (out, ref, due) in enumerate(zip(outs, refs, dtypes, strict=True)):
        try:
            found = accuracy.compare_output(out, ref, due)
            if not found.relative <= allowed:
                raise WrongResult(f"relative error {found.relative:.2g} over {allowed:g}")
        except WrongResult as wrong:
            raise WrongResult(f"output {index}: {wrong}" if len(outs) > 1 else str(wrong)) from None
        errors = errors.max_with(found)
    return outs, errors, dtype
