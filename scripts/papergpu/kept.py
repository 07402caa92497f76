"""Decoded kernels kept on disk, so that a kernel is decoded once and then read in a millisecond.

A file is named by the digest of its PTX and of this package's own sources: whatever could decode it
otherwise makes another name. It holds JSON and the arrays behind it. One that is cut short or
altered is decoded anew. All of them take half a gigabyte at most: see `LIMIT`.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from papergpu import store, tree
from papergpu.build import kept as folder
from papergpu.decode import decode
from papergpu.launch import Kernel, loaded
from papergpu.parse import parse
from papergpu.program import INSTRUCTION, Program
from papergpu.steps import Symbol
from papergpu.tree import Place, Variable
from papergpu.variables import Globals, Outline, memory_of, outline_of

MAGIC = b"papergpu"
LIMIT = 2 << 20  # bytes of each of the 256 folders that files are spread over by their digests
# What may stand in a file, beside numbers, texts, arrays and collections of them.
RECORDS: dict[str, type] = {
    one.__name__: one for one in (Globals, Outline, Place, Program, Symbol, Variable)
}
LONG = 16  # a list of more than so many items is kept in columns
T = TypeVar("T")


def kernel(ptx: str, name: str) -> Kernel:
    """The kernel `name` of a module, with memory of its own for the module's variables.

    Raises:
        Unreadable: it is no PTX.
        Unsupported: something in it is not executed.
    """

    def made() -> tuple[Program, Globals]:
        module = parse(ptx)
        return decode(module, name), memory_of(module)

    return loaded(*_kept(digest(name, ptx), made), ptx)


class Module:
    """A module of PTX, which is read where something of it is asked for that is not kept yet.

    `before` is the module whose place it takes: the variables of that one stay where they are.
    """

    def __init__(self, ptx: str, before: Module | None = None) -> None:
        self.ptx, self.before = ptx, before
        self.key: str = digest("", before.key if before else "", ptx)

    @cached_property
    def tree(self) -> tree.Module:
        """All of it."""
        return parse(self.ptx)

    @cached_property
    def outline(self) -> Outline:
        """What it declares."""
        before = self.before.outline.memory if self.before else None
        return _kept(self.key, lambda: outline_of(self.tree, before))

    def program(self, name: str) -> Program:
        """Its kernel `name`, decoded.

        Raises:
            Unsupported: something in it is not executed.
        """
        key = digest(name, self.key)
        return _kept(key, lambda: decode(self.tree, name, self.outline.memory))


def digest(*parts: str) -> str:
    """The name of a file that is decided by texts, and by this package."""
    found = hashlib.blake2b(sources(), digest_size=20)
    for part in parts:
        found.update(part.encode() + b"\0")
    return found.hexdigest()


@cache
def sources() -> bytes:
    """A digest of all that decides what a decoded kernel is."""
    digest = hashlib.blake2b()
    here = Path(__file__).parent
    for path in sorted([*here.rglob("*.py"), *(here / "core").iterdir()]):
        if path.is_file():
            digest.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


def _kept(name: str, make: Callable[[], T]) -> T:
    """What is kept by a name, or made and kept from now on; of the type that is made."""
    path = folder() / "decoded" / name[:2] / name[2:]
    data = store.read(path)
    found: T | None = _opened(data) if data is not None else None
    if found is None:
        found = make()
        store.write(path, _closed(found), LIMIT)
    return found


def _opened(data: bytes) -> Any:
    """What a file holds; None if it is not as it was written."""
    try:
        if data[:8] != MAGIC or zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "little"):
            return None
        start = 16 + int.from_bytes(data[12:16], "little")
        head = json.loads(data[16:start])
        parts = [data[start + at : start + end] for at, end in head["parts"]]
        return _unpacked(head["held"], parts)
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def _closed(value: Any) -> bytes:
    """The file that holds a value."""
    parts: list[bytes] = []
    held = _packed(value, parts)
    spans, at = [], 0
    for part in parts:
        spans.append((at, at + len(part)))
        at += len(part)
    head = json.dumps({"parts": spans, "held": held}).encode()
    data = len(head).to_bytes(4, "little") + head + b"".join(parts)
    return MAGIC + zlib.crc32(data).to_bytes(4, "little") + data


def _packed(value: Any, parts: list[bytes]) -> Any:
    """A value as JSON, whose arrays and bytes become `parts`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.ndarray):
        kind = "" if value.dtype == INSTRUCTION else value.dtype.str
        return {"array": _part(value.tobytes(), parts), "of": kind}
    if isinstance(value, bytes):
        short = value.rstrip(b"\0")  # a heap is nothing but zeros
        return {"bytes": _part(short, parts), "zeros": len(value) - len(short)}
    if isinstance(value, tuple):
        return {"tuple": [_packed(one, parts) for one in value]}
    if isinstance(value, frozenset):
        return {"set": [_packed(one, parts) for one in sorted(value)]}
    if isinstance(value, dict):
        return {"dict": [[_packed(one, parts) for one in pair] for pair in value.items()]}
    if isinstance(value, list):
        return _column(value, parts)
    if type(value).__name__ in RECORDS:
        names = [one.name for one in fields(value) if one.init]
        of = {name: _packed(getattr(value, name), parts) for name in names}
        return {"is": type(value).__name__, "of": of}
    raise TypeError(f"a program holds {type(value).__name__}, which {__name__} does not keep")


def _column(value: Sequence[Any], parts: list[bytes]) -> Any:
    """A list; a long one as its distinct values and an array of which stands where."""
    if len(value) <= LONG:
        return [_packed(one, parts) for one in value]
    if all(isinstance(one, tuple) and len(one) == len(value[0]) for one in value) and value[0]:
        columns = [_column(one, parts) for one in zip(*value, strict=True)]
        return {"columns": columns}
    if all(type(one) is int and 0 <= one < 1 << 63 for one in value):
        return {"ints": _part(np.array(value, np.int64).tobytes(), parts)}
    table: dict[Any, int] = {}
    at = np.array([table.setdefault(one, len(table)) for one in value], np.uint32)
    return {"table": [_packed(one, parts) for one in table], "at": _part(at.tobytes(), parts)}


def _part(data: bytes, parts: list[bytes]) -> int:
    parts.append(data)
    return len(parts) - 1


def _unpacked(value: Any, parts: Sequence[bytes]) -> Any:
    if isinstance(value, list):
        return [_unpacked(one, parts) for one in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return _array(parts[value["array"]], np.dtype(value["of"]) if value["of"] else INSTRUCTION)
    if "bytes" in value:
        return parts[value["bytes"]] + bytes(value["zeros"])
    if "tuple" in value:
        return tuple(_unpacked(one, parts) for one in value["tuple"])
    if "set" in value:
        return frozenset(_unpacked(one, parts) for one in value["set"])
    if "dict" in value:
        return {_unpacked(key, parts): _unpacked(one, parts) for key, one in value["dict"]}
    if "columns" in value:
        columns = [_unpacked(one, parts) for one in value["columns"]]
        return list(zip(*columns, strict=True))
    if "ints" in value:
        return _array(parts[value["ints"]], np.dtype(np.int64)).tolist()
    if "table" in value:
        table = [_unpacked(one, parts) for one in value["table"]]
        at = _array(parts[value["at"]], np.dtype(np.uint32))
        return [table[number] for number in at.tolist()]
    return RECORDS[value["is"]](
        **{name: _unpacked(one, parts) for name, one in value["of"].items()}
    )


def _array(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(data, dtype)
