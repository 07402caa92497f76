"""What lies in memory around a call, and in what layout the inputs of a case come to it.

Fresh memory is poisoned before it can be written, so an element that was never written shows. Where
a kernel's PTX is executed it is also marked as unwritten, so that reading it is found out.
Inputs must come back untouched, down to the last byte of their storage.

From each case views are drawn: the same values in another layout. What lies between and beside
the elements of a view is NaN (-1 in integers), so that a kernel that takes rows or columns as
adjacent shows. `expanded` alone changes the values: the first slice stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from warpshelf.contract import values
from warpshelf.contract.values import Case, Obligations
from warpshelf.worker import accuracy
from warpshelf.worker.accuracy import WrongResult
from warpshelf.worker.context import describe_error

CaseData = Any  # that of verify.py, which imports this module

POISON = 255  # as a byte, everywhere: NaN in each floating dtype, -1 in each signed integer
OTHER_POISON = 85  # for integers and booleans on the second call, should the truth be -1 or true
COPIED = 2**20  # bytes up to which a copy is kept to compare with, or inputs to hand out again

# What torch does with a tensor that cannot write it: ask for its properties, make views of it, or
# others like it. Whatever else is given a tensor counts as having written all of it.
HARMLESS = frozenset(
    """
    __get__ __len__ size stride dim ndimension numel nelement element_size storage_offset data_ptr
    untyped_storage get_device is_contiguous is_floating_point is_complex is_signed is_inference
    is_pinned is_shared view view_as reshape reshape_as expand expand_as transpose t permute movedim
    moveaxis swapaxes swapdims unsqueeze squeeze flatten unflatten ravel narrow select split chunk
    tensor_split unbind diagonal as_strided detach contiguous unfold __getitem__
    zeros_like ones_like full_like new_zeros new_ones new_full
    """.split()  # noqa: SIM905 (a word a line would be a page)
)


class PoisonMode(TorchFunctionMode):
    """Fills memory that a factory such as `torch.empty` hands out before anyone can read it.

    With `marks` it notes as well that nobody has written it, for kernels that papergpu executes:
    one that reads an element before it was written is found out.

    A dispatch mode would see more (factories called from C++), but its first use imports all of
    torch's compiler, two seconds in every child.
    """

    def __init__(self, byte: int = POISON, marks: bool = False) -> None:
        super().__init__()
        self.byte = byte
        self.marks = marks

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        fresh = "empty" in name
        if self.marks and not fresh and name not in HARMLESS:
            note_written((*args, *(kwargs or {}).values()))
        result = func(*args, **(kwargs or {}))
        if fresh and isinstance(result, torch.Tensor):
            fill_poison(result, self.byte)
            if self.marks and result.device.type == "cpu" and result.numel():
                import papergpu

                papergpu.unwritten(result)
        return result


def note_written(values: Iterable[object]) -> None:
    """Note for papergpu that all of each tensor and storage among `values` has been written."""
    import papergpu

    for item in _nested_tensors(values):
        if isinstance(item, torch.Tensor):
            if item.device.type == "cpu" and item.layout is torch.strided:
                papergpu.written(item)
        elif item.device.type == "cpu":
            papergpu.written(torch.empty(0, dtype=torch.uint8).set_(item))


def _nested_tensors(values: Iterable[object]) -> Iterator[torch.Tensor | torch.UntypedStorage]:
    for value in values:
        if isinstance(value, torch.Tensor | torch.UntypedStorage):
            yield value
        elif isinstance(value, torch.TypedStorage):
            yield value._untyped_storage
        elif isinstance(value, list | tuple):
            yield from _nested_tensors(value)
        elif isinstance(value, dict):
            yield from _nested_tensors(value.values())


def fill_poison(tensor: torch.Tensor, byte: int = POISON) -> None:
    """Overwrite every element of a fresh tensor, and whatever else its storage holds.

    `byte` goes into integers, and into booleans as false unless it is POISON; a floating-point
    tensor gets NaN whatever it is.
    """
    if tensor.numel() == 0 or tensor.device.type == "meta":
        return
    if tensor.dtype is torch.bool:
        tensor.fill_(byte == POISON)
        return
    whole = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    _storage_bytes(tensor).fill_(POISON if whole else byte)


def _storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's whole storage."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


Kept = torch.Tensor | tuple[int, ...]  # bytes, or of many bytes a number for each piece


def take_fingerprint(tensor: torch.Tensor) -> Kept:
    """What tells later whether an element has changed: a copy, of a large tensor a fingerprint."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.reshape(-1)
    if flat.dtype is torch.bool:
        flat = flat.view(torch.uint8)
    words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = flat.view(words[flat.element_size()])
    if flat.numel() * flat.element_size() <= COPIED:
        return flat.clone()
    # Odd weights, drawn at random: no single change leaves the sum (mod 2**64) as it was.
    generator = torch.Generator(flat.device).manual_seed(0)
    weights = torch.randint(
        -(2**62),
        2**62,
        (min(accuracy.CHUNK, flat.numel()),),
        generator=generator,
        device=flat.device,
        dtype=torch.int64,
    )
    weights.mul_(2).add_(1)
    pieces = (piece for (piece,) in accuracy.split_chunks(flat))
    return tuple(int((piece.long() * weights[: piece.numel()]).sum()) for piece in pieces)


def is_unchanged(tensor: torch.Tensor, kept: Kept) -> bool:
    """Whether a tensor holds what it held when it was kept, bit for bit."""
    now = take_fingerprint(tensor)
    if isinstance(now, torch.Tensor) and isinstance(kept, torch.Tensor):
        return now.shape == kept.shape and torch.equal(now, kept)
    return now == kept if type(now) is type(kept) else False


def _storage_words(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's whole storage, as the widest integers that divide it."""
    flat = _storage_bytes(tensor)
    for width, dtype in ((8, torch.int64), (4, torch.int32), (2, torch.int16)):
        if flat.numel() % width == 0:
            return flat.view(dtype)
    return flat


def input_fingerprints(inputs: Sequence[object]) -> list[Kept | None]:
    """The bytes behind each input, to compare with later."""
    return [
        take_fingerprint(_storage_words(item)) if isinstance(item, torch.Tensor) else None
        for item in inputs
    ]


def check_untouched(inputs: Sequence[object], before: Sequence[Kept | None]) -> None:
    """See that no byte behind any input has changed.

    Raises:
        Wrong: one has.
    """
    for index, (item, old) in enumerate(zip(inputs, before, strict=True)):
        if (
            isinstance(item, torch.Tensor)
            and old is not None
            and not is_unchanged(_storage_words(item), old)
        ):
            raise WrongResult(f"changed its input {index}")


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory, of the GPU or the machine, did not suffice."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


PADDING = 16  # elements after each row: 16-byte loads stay aligned where they were
ALL_BYTES = 2**16  # of inputs up to which every view is drawn; of larger ones a single one

Tensor = torch.Tensor


def _padded_tensor(shape: Sequence[int], tensor: Tensor) -> Tensor:
    """A tensor of NaN (-1 in integers) of this shape, of the dtype and device of another."""
    wide = torch.empty(tuple(shape), dtype=tensor.dtype, device=tensor.device)
    if wide.is_floating_point() and wide.element_size() > 1:
        return wide.fill_(math.nan)  # not the NaN that stands for what was never written
    fill_poison(wide)
    return wide


def _padded_rows(tensor: Tensor) -> Tensor:
    if tensor.ndim < 2:
        return tensor
    *rows, columns = tensor.shape
    return _padded_tensor((*rows, columns + PADDING), tensor)[..., :columns].copy_(tensor)


def _column_strided(tensor: Tensor) -> Tensor:
    if tensor.ndim < 1:
        return tensor
    *rows, columns = tensor.shape
    return _padded_tensor((*rows, 2 * columns), tensor)[..., ::2].copy_(tensor)


def _transposed_view(tensor: Tensor) -> Tensor:
    if tensor.ndim < 2:
        return tensor
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _misaligned_view(tensor: Tensor) -> Tensor:
    return _padded_tensor((tensor.numel() + 1,), tensor)[1:].view(tensor.shape).copy_(tensor)


def _expanded_view(tensor: Tensor) -> Tensor:
    if tensor.ndim < 1 or not tensor.is_floating_point() or tensor.shape[0] < 2:
        return tensor
    return tensor[:1].clone().expand(tensor.shape)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "padded rows": _padded_rows,
    "column-strided": _column_strided,
    "transposed": _transposed_view,
    "misaligned": _misaligned_view,
    "expanded": _expanded_view,
}
NEW_VALUES = ("expanded",)  # whose truth is not that of the case
ALIGNED = ("padded rows",)  # in which strides divide and pointers align as in the case


def _layout_differs(tensor: Tensor, view: Tensor) -> bool:
    if tensor.numel() == 0:
        return False
    if view.storage_offset() != tensor.storage_offset():
        return True
    sizes = zip(tensor.shape, tensor.stride(), view.stride(), strict=True)
    return any(size > 1 and old != new for size, old, new in sizes)


def draw_view(name: str, inputs: Sequence[object]) -> list[object] | None:
    """Inputs in the layout of a view; None where that leaves every one of them as it is."""
    drawn: list[object] = []
    changed = False
    for item in inputs:
        if isinstance(item, torch.Tensor):
            view = VIEWS[name](item)
            changed = changed or _layout_differs(item, view)
            drawn.append(view)
        else:
            drawn.append(item)
    return drawn if changed else None


def case_views(
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
        changed = draw_view(name, inputs)
        if changed is None:
            continue
        yield name, changed
        if single:
            return


Drawn = tuple[str, Case, Sequence[object], Sequence[Tensor] | str]


def variant_views(
    proof: Obligations,
    make: Callable[[Case, int, int], Sequence[object]],
    name: str,
    case: Case,
    index: int,
    given: CaseData,
    single: bool = False,
) -> Iterator[Drawn]:
    """Each view that a variant meets of case number `index`, and each of its sides emptied.

    A name, the case that it is of, its inputs and their truth, or why there is none. `make` makes
    the inputs of a case, by its number and a turn. With `single` one view alone is drawn.
    """
    inputs = given.turn_inputs(0)
    truth: Sequence[Tensor] = ()
    for view, of_view in case_views(inputs, index, single):
        if view in NEW_VALUES:
            try:
                new = given.truth_for(of_view)
            except WrongResult:
                continue  # such values have no truth
            yield view, case, of_view, new
        else:
            truth = truth or given.turn_truth(0, inputs)
            yield view, case, of_view, truth
    for side in _empty_sides(proof, name, case, index):
        emptied = {**case, side: 0}
        try:
            made = make(emptied, index, 0)
        except Exception:
            continue  # no inputs of this kind have such a side
        try:
            yield f"{side} empty", emptied, made, given.truth_for(made)
        except Exception as error:
            why = (
                str(error)
                if isinstance(error, WrongResult)
                else f"reference() {describe_error(error)}"
            )
            yield f"{side} empty", emptied, made, why


def _empty_sides(proof: Obligations, name: str, case: Case, index: int) -> list[str]:
    """The sides to empty for a variant: each of the first case of a form that is for it."""
    form = values.case_form(case)
    first = next(
        number
        for number, other in enumerate(proof.cases)
        if values.case_form(other) == form and name in proof.variants_for(other)
    )
    return [side for side in values.side_keys(case) if case[side] != 0] if first == index else []
