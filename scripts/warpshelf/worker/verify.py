"""A kernel's output against a float64 truth, with the ways to cheat closed.

A function is called twice on each case, and once on each view of it: the same values in another
layout, with NaN (-1 in integers) between and beside them. Its inputs must come back untouched, down
to the last byte of their storage. The second call finds new values in the same tensors, so a result
kept from the first call shows. Fresh memory is poisoned before it can be written and, where PTX is
executed, marked as unwritten.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from warpshelf.contract.values import Case
from warpshelf.worker import accuracy
from warpshelf.worker.accuracy import WORDS, Errors, WrongResult, tensors_of
from warpshelf.worker.context import describe_error
from warpshelf.worker.watch import CallWatch

Tensor = torch.Tensor
Inputs = Sequence[object]
Function = Callable[..., object]
Tolerance = Callable[[torch.dtype], float]  # the relative error allowed, by dtype

POISON = 255  # as a byte, everywhere: NaN in each floating dtype, -1 in each signed integer
OTHER_POISON = 85  # for integers and booleans on the second call, should the truth be -1 or true
KEPT_SHARE = 1 / 8  # of a GPU's free memory that the truth of a turn may hold between calls
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
    """Fills memory that a factory such as `torch.empty` hands out before anyone can read it. With
    `marks`, papergpu also hears that nobody has written it, and finds out who reads it.

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
        if fresh and isinstance(result, Tensor):
            fill_poison(result, self.byte)
            if self.marks and result.device.type == "cpu" and result.numel():
                import papergpu

                papergpu.unwritten(result)
        return result


def note_written(values: Iterable[object]) -> None:
    """Note for papergpu that all of each tensor and storage among `values` has been written."""
    import papergpu

    for item in values:
        if isinstance(item, list | tuple):
            note_written(item)
        elif isinstance(item, dict):
            note_written(item.values())
        elif isinstance(item, torch.TypedStorage):
            note_written([item._untyped_storage])
        elif isinstance(item, torch.UntypedStorage) and item.device.type == "cpu":
            papergpu.written(torch.empty(0, dtype=torch.uint8).set_(item))
        elif isinstance(item, Tensor) and (item.device.type, item.layout) == ("cpu", torch.strided):
            papergpu.written(item)


def fill_poison(tensor: Tensor, byte: int = POISON) -> None:
    """Overwrite a fresh tensor and whatever else its storage holds: integers with `byte`, booleans
    with whether that is POISON, numbers of floating point with NaN."""
    if tensor.numel() == 0 or tensor.device.type == "meta":
        return
    if tensor.dtype is torch.bool:
        tensor.fill_(byte == POISON)
    else:
        whole = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        _storage_bytes(tensor).fill_(POISON if whole else byte)


def _storage_bytes(tensor: Tensor) -> Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def _storage_places(items: Inputs) -> set[int]:
    return {item.untyped_storage().data_ptr() for item in items if isinstance(item, Tensor)}


def take_fingerprint(tensor: Tensor) -> Tensor:
    """What tells later whether an element has changed: a copy; of many bytes a number a piece."""
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
    flat = flat.view(WORDS[flat.element_size()])
    if flat.nbytes <= COPIED:
        return flat.clone()
    # Odd weights, drawn at random: no single change leaves the sum (mod 2**64) as it was.
    size = min(accuracy.CHUNK, flat.numel())
    generator = torch.Generator(flat.device).manual_seed(0)
    weights = torch.empty(size, dtype=torch.int64, device=flat.device)
    weights.random_(-(2**62), 2**62, generator=generator).mul_(2).add_(1)
    pieces = (piece for (piece,) in accuracy.split_chunks(flat))
    return torch.stack([(piece.long() * weights[: piece.numel()]).sum() for piece in pieces])


def input_fingerprints(inputs: Inputs) -> list[Tensor | None]:
    """What tells later whether a byte behind an input has changed."""
    stored = [_storage_bytes(item) if isinstance(item, Tensor) else None for item in inputs]
    # Seen as the widest integers that divide it.
    return [
        None if flat is None else take_fingerprint(flat.view(WORDS[math.gcd(flat.numel(), 8)]))
        for flat in stored
    ]


def check_untouched(inputs: Inputs, before: Sequence[Tensor | None]) -> None:
    """WrongResult if a byte behind any input has changed."""
    for index, (old, now) in enumerate(zip(before, input_fingerprints(inputs), strict=True)):
        if old is not None and now is not None and not torch.equal(old, now):
            raise WrongResult(f"changed its input {index}")


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory, of the GPU or the machine, did not suffice."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


VIEWS = ("padded rows", "column-strided", "transposed", "misaligned", "expanded")
NEW_VALUES = ("expanded",)  # whose truth is not that of the case
ALIGNED = ("padded rows",)  # in which strides divide and pointers align as in the case
PADDING = 16  # elements after each row: 16-byte loads stay aligned where they were
ALL_BYTES = 2**16  # of inputs up to which every view is drawn; of larger ones a single one


def _padded_tensor(shape: Sequence[int], tensor: Tensor) -> Tensor:
    """A tensor of NaN (-1 in integers) of this shape, of the dtype and device of another."""
    wide = torch.empty(tuple(shape), dtype=tensor.dtype, device=tensor.device)
    if wide.is_floating_point() and wide.element_size() > 1:
        return wide.fill_(math.nan)  # not the NaN that stands for what was never written
    fill_poison(wide)
    return wide


def _tensor_view(name: str, tensor: Tensor) -> Tensor:
    """A tensor in the layout of a view; itself where the view leaves it as it is."""
    *rows, columns = tensor.shape or (1,)
    if name == "padded rows" and tensor.ndim > 1:
        return _padded_tensor((*rows, columns + PADDING), tensor)[..., :columns].copy_(tensor)
    if name == "column-strided" and tensor.ndim:
        return _padded_tensor((*rows, 2 * columns), tensor)[..., ::2].copy_(tensor)
    if name == "transposed" and tensor.ndim > 1:
        return tensor.mT.contiguous().mT
    if name == "misaligned":
        return _padded_tensor((tensor.numel() + 1,), tensor)[1:].view(tensor.shape).copy_(tensor)
    if name == "expanded" and tensor.ndim and tensor.is_floating_point() and len(tensor) > 1:
        return tensor[:1].clone().expand(tensor.shape)
    return tensor


def _layout_differs(tensor: object, view: object) -> bool:
    if not isinstance(tensor, Tensor) or not isinstance(view, Tensor) or tensor.numel() == 0:
        return False
    if view.storage_offset() != tensor.storage_offset():
        return True
    sizes = zip(tensor.shape, tensor.stride(), view.stride(), strict=True)
    return any(size > 1 and old != new for size, old, new in sizes)


def draw_view(name: str, inputs: Inputs) -> list[object] | None:
    """Inputs in the layout of a view; None where that leaves every one of them as it is."""
    drawn = [_tensor_view(name, one) if isinstance(one, Tensor) else one for one in inputs]
    return drawn if any(map(_layout_differs, inputs, drawn)) else None


def case_views(
    inputs: Inputs, index: int, single: bool = False
) -> Iterator[tuple[str, list[object]]]:
    """The views of the inputs of case number `index`, by name: all of them, or of inputs of over
    ALL_BYTES bytes a `single` one, the first from where `index` points that changes something."""
    size = sum(item.nbytes for item in inputs if isinstance(item, Tensor))
    single = single or size > ALL_BYTES
    turn = index % len(VIEWS) if single else 0
    drawn = ((name, draw_view(name, inputs)) for name in VIEWS[turn:] + VIEWS[:turn])
    changed = ((name, view) for name, view in drawn if view is not None)
    return itertools.islice(changed, 1 if single else None)


class View(NamedTuple):
    """Inputs of a case in some layout, and their truth, or in words why they have none."""

    name: str
    case: Case
    inputs: Inputs
    refs: Sequence[Tensor]
    why: str = ""

    def due_dtypes(self) -> list[torch.dtype]:
        """The dtype that each output must have, as many as the case's `out` names."""
        return accuracy.expected_dtypes(self.case, self.inputs, self.refs)


def describe_wrong(error: Exception) -> str:
    """What is wrong with a function that raised this, or whose result did."""
    return str(error) if isinstance(error, WrongResult) else describe_error(error)


def reference_truth(reference: Function, inputs: Inputs) -> Sequence[Tensor]:
    """The reference's result; WrongResult if it is not float64 (or integer), or holds NaN."""
    refs = tensors_of(reference(*inputs), "reference()")
    for ref in (ref for ref in refs if ref.is_floating_point()):
        if ref.dtype is not torch.float64:
            raise WrongResult(f"reference() returned {ref.dtype}; compute it in float64")
        if accuracy.describe_marked(torch.isnan, ref):
            raise WrongResult("reference() returned NaN, which no kernel can be compared with")
    return refs


def refill_inputs(inputs: Inputs, fresh: Inputs) -> Inputs:
    """Put fresh values into the very tensors of `inputs`; where that cannot be, use `fresh`."""
    for old, new in zip(inputs, fresh, strict=True):
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            sides = zip(old.stride(), old.shape, strict=True)
            if old.shape != new.shape or any(stride == 0 and size > 1 for stride, size in sides):
                return fresh
        elif isinstance(old, Tensor) or (old != new and not (old != old and new != new)):
            return fresh
    for old, new in zip(inputs, fresh, strict=True):
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            old.copy_(new)
    return inputs


def _kept_truth(refs: Sequence[Tensor]) -> Sequence[Tensor]:
    """A truth to keep: where it is, or in the machine's memory where it would fill the GPU's."""
    size = sum(ref.nbytes for ref in refs)
    if not refs[0].is_cuda or size <= KEPT_SHARE * torch.cuda.mem_get_info()[0]:
        return refs
    return [ref.cpu() for ref in refs]


class CaseData:
    """The inputs of a case and their truth, by turn; small inputs are made once, and each truth is:
    in float64 it may take a thousand times the kernel's time. `draw(turn)` returns new inputs, the
    same for the same turn."""

    def __init__(self, case: Case, draw: Callable[[int], Inputs], reference: Function) -> None:
        self.case = case
        self.reference = reference
        self._draw = draw
        self._inputs: dict[int, list[object]] = {}
        self._truths: dict[int, tuple[torch.device, Sequence[Tensor]]] = {}

    def turn_inputs(self, turn: int) -> Inputs:
        """Inputs of one's own."""
        if turn not in self._inputs:
            made = self._draw(turn)
            tensors = [item for item in made if isinstance(item, Tensor)]
            whole = (
                x.is_contiguous() and x.untyped_storage().nbytes() == x.nbytes for x in tensors
            )
            if not all(whole) or sum(item.nbytes for item in tensors) > COPIED:
                return made
            self._inputs[turn] = list(made)
        kept = self._inputs[turn]
        return [item.clone() if isinstance(item, Tensor) else item for item in kept]

    def turn_truth(self, turn: int, inputs: Inputs) -> Sequence[Tensor]:
        """The truth of a turn's inputs, which nothing has changed yet."""
        if turn not in self._truths:
            refs = reference_truth(self.reference, inputs)
            if _storage_places(refs) & _storage_places(inputs):
                return refs  # the next turn's values come into the same tensors
            if not refs[0].is_cuda and sum(ref.numel() for ref in refs) > COPIED:
                return refs
            self._truths[turn] = refs[0].device, _kept_truth(refs)
        device, kept = self._truths[turn]
        return kept if kept[0].device == device else [ref.to(device) for ref in kept]

    def first_view(self) -> View:
        """Inputs of the first turn as they are drawn, and their truth."""
        inputs = self.turn_inputs(0)
        return View("", self.case, inputs, self.turn_truth(0, inputs))


def check_function(
    function: Function, given: CaseData, tolerance: Tolerance, watch: CallWatch, ours: bool
) -> tuple[Errors, torch.dtype]:
    """Call `function` twice on inputs of a case and compare both results with the truth; a wrong
    one is a WrongResult.

    `ours` turns on what a library need not do: writing every element of fresh memory, and
    returning a new result each time. At no time is there more than the inputs twice, or once with
    two results and one truth: a case may fill half of a GPU.
    """
    poisons = (POISON, OTHER_POISON) if ours else (None, None)
    view = given.first_view()
    inputs = view.inputs
    outs, errors, dtype = check_view(function, view, tolerance, watch, poisons[0])
    del view
    kept = [take_fingerprint(out) for out in outs]
    storages = _storage_places(inputs)
    inputs = refill_inputs(inputs, given.turn_inputs(1))
    view = View("", given.case, inputs, given.turn_truth(1, inputs))
    try:
        _, later, _ = check_view(function, view, tolerance, watch, poisons[1])
    except WrongResult as wrong:
        raise WrongResult(f"right on its first call, wrong on the second: {wrong}") from None
    for out, old in zip(outs, kept, strict=True):
        aliased = _storage_places([out]) <= storages
        if ours and not aliased and not torch.equal(take_fingerprint(out), old):
            what = "the second call changed the result of the first: allocate a new output"
            raise WrongResult(what)
    return errors.max_with(later), dtype


def check_view(
    function: Function,
    view: View,
    tolerance: Tolerance,
    watch: CallWatch,
    poison: int | None = POISON,
    specialize: bool = True,
) -> tuple[Sequence[Tensor], Errors, torch.dtype]:
    """Call a function on a view, once: its results, how far they are off, and the dtype that
    decides the tolerance. WrongResult if it is wrong. `poison` is a byte to fill fresh memory."""
    inputs, named, due = view.inputs, len(view.due_dtypes()), len(view.refs)
    if named != due:
        raise WrongResult(f"the case's `out` names {named} dtypes for {due} outputs")
    before = input_fingerprints(inputs)
    with contextlib.ExitStack() as around:
        around.enter_context(watch.watch_call(specialize))
        if poison is not None:
            around.enter_context(PoisonMode(poison, marks=watch.executes))
        outs = tensors_of(function(*inputs), "it")
    if any(out.is_cuda for out in outs):
        torch.cuda.synchronize()
    check_untouched(inputs, before)
    return outs, *compare_outputs(outs, view, tolerance)


def compare_outputs(
    outs: Sequence[Tensor], view: View, tolerance: Tolerance
) -> tuple[Errors, torch.dtype]:
    """How far results on a view are off, and the dtype that decides the tolerance. WrongResult if
    one is further off than it allows."""
    refs, dtypes = view.refs, view.due_dtypes()
    dtype = accuracy.first_floating(dtypes)
    allowed = tolerance(dtype)
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
    return errors, dtype
