"""What lies in memory around a call: poison where nothing was written, inputs as they were.

Fresh memory is poisoned before it can be written, so an element that was never written shows. Where
a kernel's PTX is executed it is also marked as unwritten, so that reading it is found out.
Inputs must come back untouched, down to the last byte of their storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from warpshelf.worker import accuracy
from warpshelf.worker.accuracy import Wrong

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


class Poison(TorchFunctionMode):
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
            poison(result, self.byte)
            if self.marks and result.device.type == "cpu" and result.numel():
                import papergpu

                papergpu.unwritten(result)
        return result


def note_written(values: Iterable[object]) -> None:
    """Note for papergpu that all of each tensor and storage among `values` has been written."""
    import papergpu

    for item in _inside(values):
        if isinstance(item, torch.Tensor):
            if item.device.type == "cpu" and item.layout is torch.strided:
                papergpu.written(item)
        elif item.device.type == "cpu":
            papergpu.written(torch.empty(0, dtype=torch.uint8).set_(item))


def _inside(values: Iterable[object]) -> Iterator[torch.Tensor | torch.UntypedStorage]:
    for value in values:
        if isinstance(value, torch.Tensor | torch.UntypedStorage):
            yield value
        elif isinstance(value, torch.TypedStorage):
            yield value._untyped_storage
        elif isinstance(value, list | tuple):
            yield from _inside(value)
        elif isinstance(value, dict):
            yield from _inside(value.values())


def poison(tensor: torch.Tensor, byte: int = POISON) -> None:
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
    _storage(tensor).fill_(POISON if whole else byte)


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's whole storage."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


Kept = torch.Tensor | tuple[int, ...]  # bytes, or of many bytes a number for each piece


def keep(tensor: torch.Tensor) -> Kept:
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
    pieces = (piece for (piece,) in accuracy.chunks(flat))
    return tuple(int((piece.long() * weights[: piece.numel()]).sum()) for piece in pieces)


def unchanged(tensor: torch.Tensor, kept: Kept) -> bool:
    """Whether a tensor holds what it held when it was kept, bit for bit."""
    now = keep(tensor)
    if isinstance(now, torch.Tensor) and isinstance(kept, torch.Tensor):
        return now.shape == kept.shape and torch.equal(now, kept)
    return now == kept if type(now) is type(kept) else False


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's whole storage, as the widest integers that divide it."""
    flat = _storage(tensor)
    for width, dtype in ((8, torch.int64), (4, torch.int32), (2, torch.int16)):
        if flat.numel() % width == 0:
            return flat.view(dtype)
    return flat


def copies(inputs: Sequence[object]) -> list[Kept | None]:
    """The bytes behind each input, to compare with later."""
    return [keep(_words(item)) if isinstance(item, torch.Tensor) else None for item in inputs]


def check_untouched(inputs: Sequence[object], before: Sequence[Kept | None]) -> None:
    """See that no byte behind any input has changed.

    Raises:
        Wrong: one has.
    """
    for index, (item, old) in enumerate(zip(inputs, before, strict=True)):
        if isinstance(item, torch.Tensor) and old is not None and not unchanged(_words(item), old):
            raise Wrong(f"changed its input {index}")


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory, of the GPU or the machine, did not suffice."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
