"""The arguments of a Triton launch: which are passed, and as which bytes."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from papergpu.tensors import unwrap_tensor


class Argument(NamedTuple):
    """One argument as the kernel takes it; `name` is such as `x_ptr` or `pair[1]`."""

    name: str
    type: str
    value: Any


def flatten_arguments(
    names: Sequence[str], types: Sequence[Any], values: Sequence[Any], descriptors: Iterable[Any]
) -> Iterator[Argument]:
    """The arguments that become parameters: tuples opened, constants left out.

    `descriptors` are what the compiler says of each tensor descriptor among them, in order; where
    it says nothing, the kernel takes a descriptor by its parts.
    """
    left = iter(descriptors)
    for name, kind, value in zip(names, types, values, strict=True):
        if isinstance(kind, tuple | list):
            yield from flatten_arguments(name_parts(name, value), kind, value, left)
        elif kind.startswith("tensordesc"):
            yield from _flatten_descriptor(name, value, next(left, None))
        elif kind != "constexpr":
            yield Argument(name, kind, value)


def name_parts(name: str, value: Any) -> list[str]:
    """The names of the parts of a tuple."""
    fields = getattr(value, "_fields", None)
    return [f"{name}.{one}" for one in fields] if fields else [
        f"{name}[{at}]" for at in range(len(value))]  # fmt: skip


def _flatten_descriptor(name: str, value: Any, meta: Any) -> Iterator[Argument]:
    """A tensor descriptor of the host: a map for the copying hardware, or its parts.

    How many parts there are differs by version of Triton, which therefore takes it apart itself.
    """
    from triton.backends.nvidia import driver

    make = driver.make_tensordesc_arg
    given = (value, meta, None, None)
    made = list(make(*given[: len(inspect.signature(make).parameters)]))
    rank = len(value.shape)
    behind = ["i32"] * rank + ["i64"] * rank
    if meta is not None:
        types = ["nvTmaDesc", *behind]
    else:
        flags = len(made) - 1 - 4 * rank
        types = ["*i8", *["i64"] * (2 * rank), *["i1"] * flags, *behind]
    for kind, one in zip(types, made, strict=True):
        yield Argument(name, kind, one)


def find_tensors(names: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The tensors among the arguments, with their names, whether or not the kernel takes them.

    Raises:
        TypeError: one says where its data are, but not how far they reach.
    """
    for name, value in zip(names, values, strict=True):
        if isinstance(value, tuple | list):
            yield from find_tensors(name_parts(name, value), value)
        else:
            found = unwrap_tensor(value)
            if found is not None:
                yield name, found
            elif hasattr(value, "data_ptr"):
                kind = type(value).__name__
                raise TypeError(f"{name} is a {kind} of unknown memory: keep its tensor in it")


def pack_argument(argument: Argument) -> bytes:
    """An argument's bytes, as Triton's own launcher writes them.

    Raises:
        TypeError: its value is none of its type.
    """
    name, kind, value = argument
    try:
        return _pack_value(kind, value)
    except (TypeError, ValueError, struct.error, OverflowError) as error:
        raise TypeError(f"{name} = {value!r} cannot be passed as {kind}: {error}") from None


def _pack_value(kind: str, value: Any) -> bytes:
    if kind.startswith("*") or kind == "ptr":
        if value is None:
            return bytes(8)
        address = value if isinstance(value, int) else value.data_ptr()
        return int(address).to_bytes(8, "little")
    if kind == "nvTmaDesc":
        return bytes(value)
    if kind in ("i1", "u1"):
        return bytes([bool(value)])
    if kind[0] in "iu" and kind[1:].isdigit():
        size = int(kind[1:])
        return (int(value) & ((1 << size) - 1)).to_bytes(size // 8, "little")
    number = float(value)
    if kind == "fp64":
        return struct.pack("<d", number)
    if kind == "fp16":
        return struct.pack("<e", number)
    if kind in ("fp32", "f32", "bf16"):
        with np.errstate(over="ignore"):
            single = np.float32(number).tobytes()
        return single[2:] if kind == "bf16" else single  # cut off, not rounded
    raise TypeError("unknown type")
