"""The bytes of a kernel's parameters, and the memory that they let it touch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from papergpu.launch import Memory
from papergpu.syntax_tree import Variable
from papergpu.variables import variable_bytes

KINDS = {"f": "f", "i": "i", "u": "i", "b": "i"}


def find_memory(value: Any, name: str) -> Memory | None:
    """The memory of a tensor or an array on the CPU; None if it is none.

    Raises:
        ValueError: it is on another device.
    """
    if isinstance(value, (ctypes.Array, ctypes.Structure)):
        whole = name.startswith("touching")
        return Memory(ctypes.addressof(value), ctypes.sizeof(value), name) if whole else None
    is_tensor = hasattr(value, "data_ptr") and hasattr(value, "stride")
    if not is_tensor and not isinstance(value, np.ndarray):
        return None
    shape = "x".join(map(str, value.shape)) or "1"
    told = f"{name} ({str(value.dtype).removeprefix('torch.')}, {shape})"
    if isinstance(value, np.ndarray):
        low, high = (
            np.lib.array_utils.byte_bounds(value) if value.size else (value.ctypes.data,) * 2
        )
        return Memory(low, high - low, told, read_only=not value.flags.writeable)
    if value.device.type != "cpu":
        raise ValueError(f"{name} is on {value.device}: move it to the CPU")
    extent = 0
    if value.numel():
        steps = zip(value.shape, value.stride(), strict=True)
        extent = (sum((n - 1) * step for n, step in steps) + 1) * value.element_size()
    return Memory(value.data_ptr(), extent, told, written=_find_written(value, extent))


def _find_written(tensor: Any, extent: int) -> npt.NDArray[np.uint8] | None:
    """Which of a tensor's bytes were written, where `papergpu.unwritten` says that not all were."""
    from papergpu import tensors  # which imports torch: it is there, if one of its tensors is

    found = tensors.written_bytes(tensor)
    start = tensor.storage_offset() * tensor.element_size()
    return None if found is None else found[start : start + extent]


def _describe_parameter(one: Variable) -> str:
    size = variable_bytes(one)
    if one.pointer is not None:
        return "a pointer"
    if one.count != 1 or one.lanes != 1:
        return f"a structure of {size} bytes"
    return f"{'a float' if one.type[0] == 'f' else 'an integer'} of {size} bytes"


def pack_parameter(value: Any, one: Variable, where: str) -> bytes:
    """A value as the bytes of a parameter.

    Raises:
        TypeError: it is of another kind or size than the parameter.
        ValueError: it is a number that the parameter cannot hold.
    """
    size = variable_bytes(one)
    wanted = _describe_parameter(one)
    floating = one.type[0] == "f" and one.count == 1
    structure = one.count != 1 or one.lanes != 1

    def type_error(what: str, mend: str) -> TypeError:
        return TypeError(f"{where} is {what}, but the kernel takes {wanted}: {mend}")

    if isinstance(value, np.ndarray) or (hasattr(value, "data_ptr") and hasattr(value, "stride")):
        if size != 8 or floating or structure:
            raise type_error("memory", "pass a number or a structure")
        at = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
        return int(at).to_bytes(8, "little")
    if isinstance(value, np.generic):
        kind = KINDS.get(value.dtype.kind, "V")
        if value.nbytes != size or (not structure and (kind == "f") != floating):
            number = f"np.{'float' if floating else 'int'}{8 * size}"
            fit = "a ctypes structure" if structure else number
            raise type_error(f"{value.dtype} of {value.nbytes} bytes", f"pass {fit}")
        return value.tobytes()
    if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)):
        if ctypes.sizeof(value) != size:
            raise type_error(
                f"{type(value).__name__} of {ctypes.sizeof(value)} bytes", "match its layout"
            )
        if isinstance(value, (ctypes.c_float, ctypes.c_double)) != floating and not structure:
            raise type_error(type(value).__name__, "pass the matching ctypes type")
        return bytes(value)
    if isinstance(value, (bytes, bytearray)):
        if len(value) != size:
            raise type_error(f"{len(value)} bytes", "match its layout")
        return bytes(value)
    if value is None and size == 8 and not floating:
        return bytes(8)
    if structure or not isinstance(value, (bool, int, float)):
        raise type_error(
            f"a {type(value).__name__}", "pass a tensor, a number or a ctypes structure"
        )
    if floating:
        if isinstance(value, int) and abs(value) > 1 << (24 if size == 4 else 53):
            raise ValueError(f"{where}: {value} does not fit exactly into {wanted}: pass a float")
        try:
            return struct.pack({4: "<f", 8: "<d"}[size], float(value))
        except OverflowError:
            raise ValueError(f"{where}: {value} exceeds {wanted}: pass np.float32") from None
    if isinstance(value, float):
        raise type_error("a float", "pass an int")
    if not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
        raise ValueError(f"{where}: {value} does not fit {wanted}: pass less, or fix the kernel")
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


def collect_memory(values: Sequence[Any], touching: Sequence[Any]) -> list[Memory]:
    """The memory of all tensors among a launch's arguments, and of what else it may touch."""
    found = [find_memory(value, f"argument {at}") for at, value in enumerate(values)]
    for at, value in enumerate(touching):
        one = value if isinstance(value, Memory) else find_memory(value, f"touching {at}")
        if one is None:
            raise TypeError(f"touching {at} is a {type(value).__name__}: pass a tensor or an array")
        found.append(one)
    return [one for one in found if one is not None]
