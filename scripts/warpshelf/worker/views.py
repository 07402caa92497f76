"""The views that are drawn from each case: the same values in another layout.

What lies between and beside the elements of a view is NaN (-1 in integers), so that a kernel that
takes rows or columns as adjacent shows. `expanded` alone changes the values: the first slice stands
for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from warpshelf.contract import values
from warpshelf.contract.values import Case, Obligations
from warpshelf.worker.accuracy import Wrong
from warpshelf.worker.context import raised
from warpshelf.worker.memory import poison
from warpshelf.worker.verify import Given

PADDING = 16  # elements after each row: 16-byte loads stay aligned where they were
ALL_BYTES = 2**16  # of inputs up to which every view is drawn; of larger ones a single one

Tensor = torch.Tensor


def _inside(shape: Sequence[int], tensor: Tensor) -> Tensor:
    """A tensor of NaN (-1 in integers) of this shape, of the dtype and device of another."""
    wide = torch.empty(tuple(shape), dtype=tensor.dtype, device=tensor.device)
    if wide.is_floating_point() and wide.element_size() > 1:
        return wide.fill_(math.nan)  # not the NaN that stands for what was never written
    poison(wide)
    return wide


def _padded_rows(tensor: Tensor) -> Tensor:
    if tensor.ndim < 2:
        return tensor
    *rows, columns = tensor.shape
    return _inside((*rows, columns + PADDING), tensor)[..., :columns].copy_(tensor)


def _column_strided(tensor: Tensor) -> Tensor:
    if tensor.ndim < 1:
        return tensor
    *rows, columns = tensor.shape
    return _inside((*rows, 2 * columns), tensor)[..., ::2].copy_(tensor)


def _transposed(tensor: Tensor) -> Tensor:
    if tensor.ndim < 2:
        return tensor
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _misaligned(tensor: Tensor) -> Tensor:
    return _inside((tensor.numel() + 1,), tensor)[1:].view(tensor.shape).copy_(tensor)


def _expanded(tensor: Tensor) -> Tensor:
    if tensor.ndim < 1 or not tensor.is_floating_point() or tensor.shape[0] < 2:
        return tensor
    return tensor[:1].clone().expand(tensor.shape)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "padded rows": _padded_rows,
    "column-strided": _column_strided,
    "transposed": _transposed,
    "misaligned": _misaligned,
    "expanded": _expanded,
}
NEW_VALUES = ("expanded",)  # whose truth is not that of the case


def _differs(tensor: Tensor, view: Tensor) -> bool:
    if tensor.numel() == 0:
        return False
    if view.storage_offset() != tensor.storage_offset():
        return True
    sizes = zip(tensor.shape, tensor.stride(), view.stride(), strict=True)
    return any(size > 1 and old != new for size, old, new in sizes)


def draw(name: str, inputs: Sequence[object]) -> list[object] | None:
    """Inputs in the layout of a view; None where that leaves every one of them as it is."""
    drawn: list[object] = []
    changed = False
    for item in inputs:
        if isinstance(item, torch.Tensor):
            view = VIEWS[name](item)
            changed = changed or _differs(item, view)
            drawn.append(view)
        else:
            drawn.append(item)
    return drawn if changed else None


def of_case(
    inputs: Sequence[object], index: int, single: bool = False
) -> Iterator[tuple[str, list[object]]]:
    """The views of the inputs of case number `index`, by name.

    All of them for inputs of at most ALL_BYTES bytes; of larger ones, and where a `single` one is
    asked for, the first that changes something, counted from one that `index` chooses.
    """
    size = sum(
        math.prod(item.shape) * item.element_size()
        for item in inputs
        if isinstance(item, torch.Tensor)
    )
    names = list(VIEWS)
    single = single or size > ALL_BYTES
    if single:
        turn = index % len(names)
        names = names[turn:] + names[:turn]
    for name in names:
        changed = draw(name, inputs)
        if changed is None:
            continue
        yield name, changed
        if single:
            return


Drawn = tuple[str, Case, Sequence[object], Sequence[Tensor] | str]


def drawn(
    proof: Obligations,
    make: Callable[[Case, int, int], Sequence[object]],
    name: str,
    case: Case,
    index: int,
    given: Given,
    single: bool = False,
) -> Iterator[Drawn]:
    """Each view that a variant meets of case number `index`, and each of its sides emptied.

    A name, the case that it is of, its inputs and their truth, or why there is none. `make` makes
    the inputs of a case, by its number and a turn. With `single` one view alone is drawn.
    """
    inputs = given.inputs(0)
    truth: Sequence[Tensor] = ()
    for view, of_view in of_case(inputs, index, single):
        if view in NEW_VALUES:
            try:
                new = given.truth_of(of_view)
            except Wrong:
                continue  # such values have no truth
            yield view, case, of_view, new
        else:
            truth = truth or given.truth(0, inputs)
            yield view, case, of_view, truth
    for side in _empty_sides(proof, name, case, index):
        emptied = {**case, side: 0}
        try:
            made = make(emptied, index, 0)
        except Exception:
            continue  # no inputs of this kind have such a side
        try:
            yield f"{side} empty", emptied, made, given.truth_of(made)
        except Exception as error:
            why = str(error) if isinstance(error, Wrong) else f"reference() {raised(error)}"
            yield f"{side} empty", emptied, made, why


def _empty_sides(proof: Obligations, name: str, case: Case, index: int) -> list[str]:
    """The sides to empty for a variant: each of the first case of a form that is for it."""
    form = values.form(case)
    first = next(
        number
        for number, other in enumerate(proof.cases)
        if values.form(other) == form and name in proof.applies(other)
    )
    return [side for side in values.sides(case) if case[side] != 0] if first == index else []
