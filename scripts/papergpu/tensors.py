"""The memory of torch's tensors: what a launch may touch, its names, and what is unwritten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing import reductions

from papergpu.launch import Memory
from papergpu.session import Undo, append_until_undone

T = TypeVar("T")


@dataclass
class _Unwritten:
    """A storage of which not every byte was written, and which are: 1 in `bytes`."""

    storage: Any
    bytes: npt.NDArray[np.uint8]
    version: int

    def has_expired(self) -> bool:
        return bool(self.storage.expired())


# By torch's own number of the storage, which is not given anew while a weak reference lives.
_unwritten: dict[int, _Unwritten] = {}
_touched: list[tuple[tuple[str, Any], ...]] = []


def touching(*tensors: Any, **named: Any) -> Undo:
    """Let launches touch tensors that are none of their arguments, until the end of `with`.

    They are those whose addresses stand in other tensors, or are passed as integers. Findings name
    them by their keyword.
    """
    given = (*((f"touched tensor {at}", one) for at, one in enumerate(tensors)), *named.items())
    for name, one in given:
        _require_tensor(name, one)  # what is none is refused here
    return append_until_undone(_touched, given)


def unwritten(tensor: T) -> T:
    """Note that nobody has written `tensor`: a kernel that reads it first is found out.

    What kernels write is noted from launch to launch. What torch writes in place makes all of it
    count as written, and so does `written`.
    """
    one = _require_tensor("the tensor", tensor)
    for key in [key for key, mark in _unwritten.items() if mark.has_expired()]:
        del _unwritten[key]
    storage = one.untyped_storage()
    found = _unwritten.get(storage._cdata)
    if found is None:
        weak: Any = reductions.StorageWeakRef
        found = _Unwritten(weak(storage), np.ones(storage.nbytes(), np.uint8), 0)
        _unwritten[storage._cdata] = found
    size = one.element_size()
    torch.from_numpy(found.bytes).as_strided(
        (*one.shape, size),
        (*(stride * size for stride in one.stride()), 1),
        one.storage_offset() * size,
    ).zero_()
    found.version = _write_count(one)
    return tensor


def written(tensor: T) -> T:
    """Note that all of the memory of `tensor` was written, by numpy say."""
    _unwritten.pop(_require_tensor("the tensor", tensor).untyped_storage()._cdata, None)
    return tensor


def written_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8] | None:
    """Of each byte of a tensor's storage whether it was written; None if all of it was."""
    key = tensor.untyped_storage()._cdata
    mark = _unwritten.get(key)
    if mark is None:
        return None
    if mark.has_expired() or mark.version != _write_count(tensor):
        del _unwritten[key]
        return None
    return mark.bytes


def find_tensor_memory(arguments: Iterable[tuple[str, Any]]) -> list[Memory]:
    """The memory that a launch may touch: the storages of the tensors among its arguments.

    Raises:
        ValueError: one of them is not on the CPU.
    """
    names: dict[int, list[str]] = {}
    storages: dict[int, Any] = {}
    maps: dict[int, npt.NDArray[np.uint8] | None] = {}
    for name, value in (*arguments, *(pair for given in _touched for pair in given)):
        tensor = _require_tensor(name, value)
        storage = tensor.untyped_storage()
        key = storage._cdata
        storages[key] = storage
        said = names.setdefault(key, [])
        if name not in said:
            said.append(name)
        maps[key] = written_bytes(tensor)
    return [
        Memory(storage.data_ptr(), storage.nbytes(), " and ".join(names[key]),
               written=maps[key])
        for key, storage in storages.items()
    ]  # fmt: skip


def unwrap_tensor(value: Any) -> torch.Tensor | None:
    """The tensor that a value is or stands for.

    A descriptor and a reinterpreted tensor have it as `base`. What else Triton takes for a tensor,
    as it says where its data begin, holds one around them.
    """
    while value is not None and not isinstance(value, torch.Tensor):
        held = getattr(value, "base", None)
        if held is None and hasattr(value, "data_ptr"):
            parts = getattr(value, "__dict__", {}).values()
            held = next((one for one in parts if _covers(one, value)), None)
        value = held
    return value


def _covers(tensor: Any, value: Any) -> bool:
    """Whether a value's data begin in the memory of a tensor."""
    if not isinstance(tensor, torch.Tensor):
        return False
    storage = tensor.untyped_storage()
    return bool(0 <= value.data_ptr() - storage.data_ptr() < storage.nbytes())


def _require_tensor(name: str, value: Any) -> torch.Tensor:
    found = unwrap_tensor(value)
    if found is None:
        raise ValueError(f"{name} is a {type(value).__name__}, not a tensor with known memory")
    device = found.untyped_storage().device  # the tensor itself may say that it is on CUDA
    if device.type != "cpu":
        raise ValueError(f"{name} is on {device}, but papergpu runs on the CPU: pass {name}.cpu()")
    if found.layout != torch.strided:
        raise ValueError(f"{name} is {found.layout}, in several pieces of memory: pass its parts")
    return found


def _write_count(tensor: torch.Tensor) -> int:
    """How often torch wrote the tensor in place; inference mode does not tell."""
    return 0 if tensor.is_inference() else tensor._version
