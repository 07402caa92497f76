"""A kernel's output against a float64 truth, with the ways to cheat closed.

A function is called twice on each case, and once on each view of it. Its inputs must come back
untouched, and memory that it takes is poisoned. The second call finds new values in the same
tensors, so a result kept from the first call shows. What stands around each call is a `CallWatch`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

import torch

from warpshelf.contract.values import Case
from warpshelf.worker import memory
from warpshelf.worker.accuracy import (
    Errors,
    WrongResult,
    compare_output,
    describe_marked,
    expected_dtypes,
    first_floating,
    tensors_of,
)
from warpshelf.worker.memory import (
    OTHER_POISON,
    POISON,
    PoisonMode,
    check_untouched,
    input_fingerprints,
)
from warpshelf.worker.watch import CallWatch

Function = Callable[..., object]


def reference_truth(reference: Function, inputs: Sequence[object]) -> tuple[torch.Tensor, ...]:
    """The reference's result.

    Raises:
        Wrong: it is not float64 (or integer), or holds NaN.
    """
    refs = tensors_of(reference(*inputs), "reference()")
    for ref in refs:
        if ref.is_floating_point() and ref.dtype is not torch.float64:
            raise WrongResult(f"reference() returned {ref.dtype}; compute it in float64")
        if ref.is_floating_point() and describe_marked(torch.isnan, ref, of=ref.shape):
            raise WrongResult("reference() returned NaN, which no kernel can be compared with")
    return refs


def refill_inputs(inputs: Sequence[object], fresh: Sequence[object]) -> Sequence[object]:
    """Put fresh values into the very tensors of `inputs`; where that cannot be, use `fresh`."""
    for old, new in zip(inputs, fresh, strict=True):
        if not isinstance(old, torch.Tensor):
            if old != new and not (old != old and new != new):
                return fresh
        elif not isinstance(new, torch.Tensor) or old.shape != new.shape or _has_overlap(old):
            return fresh
    for old, new in zip(inputs, fresh, strict=True):
        if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
            old.copy_(new)
    return inputs


def _has_overlap(tensor: torch.Tensor) -> bool:
    return any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )


class CaseData:
    """The inputs of a case and their truth, by turn; what is small is made once.

    `draw(turn)` returns new inputs, the same for the same turn.
    """

    def __init__(self, draw: Callable[[int], Sequence[object]], reference: Function) -> None:
        self._draw = draw
        self._reference = reference
        self._inputs: dict[int, list[object]] = {}
        self._truths: dict[int, tuple[torch.Tensor, ...]] = {}

    def turn_inputs(self, turn: int) -> Sequence[object]:
        """Inputs of one's own."""
        if turn not in self._inputs:
            made = self._draw(turn)
            tensors = [item for item in made if isinstance(item, torch.Tensor)]
            sizes = [item.numel() * item.element_size() for item in tensors]
            whole = all(
                item.is_contiguous() and item.untyped_storage().nbytes() == size
                for item, size in zip(tensors, sizes, strict=True)
            )
            if sum(sizes) > memory.COPIED or not whole:
                return made
            self._inputs[turn] = list(made)
        kept = self._inputs[turn]
        return [item.clone() if isinstance(item, torch.Tensor) else item for item in kept]

    def turn_truth(self, turn: int, inputs: Sequence[object]) -> tuple[torch.Tensor, ...]:
        """The truth of a turn's inputs, which nothing has changed yet.

        Raises:
            Wrong: the reference gives none.
        """
        if turn in self._truths:
            return self._truths[turn]
        refs = reference_truth(self._reference, inputs)
        if turn in self._inputs and sum(ref.numel() for ref in refs) <= memory.COPIED:
            self._truths[turn] = refs
        return refs

    def truth_for(self, inputs: Sequence[object]) -> tuple[torch.Tensor, ...]:
        """The truth of other inputs."""
        return reference_truth(self._reference, inputs)


def check_function(
    function: Function,
    given: CaseData,
    case: Case,
    *,
    ours: bool,
    tolerance: Callable[[torch.dtype], float] = lambda dtype: math.inf,
    watch: CallWatch | None = None,
) -> tuple[Errors, torch.dtype]:
    """Call `function` twice on inputs of a case and compare both results with the truth.

    `ours` turns on what a library need not do: writing every element of fresh memory, and
    returning a new result each time. `tolerance` gives the relative error allowed of the first
    floating-point output's dtype.

    At no time is there more than the inputs twice, or once with two results and one truth: a
    case may fill half of a GPU.

    Raises:
        Wrong: it is wrong in any way.
    """
    inputs = given.turn_inputs(0)
    refs = given.turn_truth(0, inputs)
    dtypes = due_dtypes(case, inputs, refs)
    dtype = first_floating(dtypes)
    allowed = tolerance(dtype)
    before = input_fingerprints(inputs)
    outs = _call_function(function, inputs, POISON if ours else None, watch)
    check_untouched(inputs, before)
    errors = _compare_all(outs, refs, dtypes, allowed)
    del refs
    kept = [memory.take_fingerprint(out) for out in outs]
    storages = {
        item.untyped_storage().data_ptr() for item in inputs if isinstance(item, torch.Tensor)
    }
    inputs = refill_inputs(inputs, given.turn_inputs(1))
    later = given.turn_truth(1, inputs)
    before = input_fingerprints(inputs)
    second = _call_function(function, inputs, OTHER_POISON if ours else None, watch)
    try:
        check_untouched(inputs, before)
        errors = errors.max_with(_compare_all(second, later, dtypes, allowed))
    except WrongResult as wrong:
        raise WrongResult(f"right on its first call, wrong on the second: {wrong}") from None
    for out, old in zip(outs, kept, strict=True):
        aliased = out.untyped_storage().data_ptr() in storages
        if ours and not aliased and not memory.is_unchanged(out, old):
            raise WrongResult(
                "the second call changed the result of the first: allocate a new output"
            )
    return errors, dtype


def check_once(
    function: Function,
    inputs: Sequence[object],
    refs: Sequence[torch.Tensor],
    case: Case,
    allowed: Callable[[torch.dtype], float],
    watch: CallWatch,
    specialize: bool = True,
) -> None:
    """Call one of ours on inputs in some layout, once, and compare the result with the truth.

    Raises:
        Wrong: it is wrong in any way.
    """
    dtypes = due_dtypes(case, inputs, refs)
    before = input_fingerprints(inputs)
    outs = _call_function(function, inputs, POISON, watch, specialize)
    check_untouched(inputs, before)
    _compare_all(outs, refs, dtypes, allowed(first_floating(dtypes)))


def due_dtypes(
    case: Case, inputs: Sequence[object], refs: Sequence[torch.Tensor]
) -> list[torch.dtype]:
    """The dtype due of each output.

    Raises:
        Wrong: the case's `out` names too few or too many, or no dtypes.
    """
    dtypes = expected_dtypes(case, inputs, refs)
    if len(dtypes) != len(refs):
        raise WrongResult(f"the case's `out` names {len(dtypes)} dtypes for {len(refs)} outputs")
    return dtypes


def _call_function(
    function: Function,
    inputs: Sequence[object],
    byte: int | None,
    watch: CallWatch | None = None,
    specialize: bool = True,
) -> tuple[torch.Tensor, ...]:
    with contextlib.ExitStack() as around:
        if watch is not None:
            around.enter_context(watch.watch_call(specialize))
        if byte is not None:
            around.enter_context(PoisonMode(byte, marks=watch is not None and watch.executes))
        outs = tensors_of(function(*inputs), "it")
    if any(out.is_cuda for out in outs):
        torch.cuda.synchronize()
    return outs


def _compare_all(
    outs: Sequence[torch.Tensor],
    refs: Sequence[torch.Tensor],
    dtypes: Sequence[torch.dtype],
    allowed: float,
) -> Errors:
    if len(outs) != len(refs):
        raise WrongResult(f"returned {len(outs)} tensors where {len(refs)} are due")
    errors = Errors(0.0, 0.0, 0.0)
    for index, (out, ref, dtype) in enumerate(zip(outs, refs, dtypes, strict=True)):
        try:
            found = compare_output(out, ref, dtype)
            if not found.relative <= allowed:
                raise WrongResult(f"relative error {found.relative:.2g} over {allowed:g}")
            errors = errors.max_with(found)
        except WrongResult as wrong:
            raise WrongResult(f"output {index}: {wrong}" if len(outs) > 1 else str(wrong)) from None
    return errors
