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

from papergpu import file_cache, syntax_tree
from papergpu.decode import decode
from papergpu.ir import Symbol
from papergpu.launch import Kernel, bind_memory
from papergpu.parse import parse
from papergpu.program import INSTRUCTION, Program
from papergpu.syntax_tree import Place, Variable
from papergpu.variables import Globals, Outline, layout_globals, outline_module

MAGIC = b"papergpu"
LIMIT = 2 << 20  # bytes of each of the 256 folders that files are spread over by their digests
# What may stand in a file, beside numbers, texts, arrays and collections of them.
RECORDS: dict[str, type] = {
    one.__name__: one for one in (Globals, Outline, Place, Program, Symbol, Variable)
}
LONG = 16  # a list of more than so many items is kept in columns
T = TypeVar("T")


def load_kernel(ptx: str, name: str) -> Kernel:
    """The kernel `name` of a module, with memory of its own for the module's variables.

    Raises:
        Unreadable: it is no PTX.
        Unsupported: something in it is not executed.
    """

    def decode_kernel() -> tuple[Program, Globals]:
        module = parse(ptx)
        return decode(module, name), layout_globals(module)

    return bind_memory(*_load_or_make(cache_key(name, ptx), decode_kernel), ptx)


class Module:
    """A module of PTX, which is read where something of it is asked for that is not kept yet.

    `before` is the module whose place it takes: the variables of that one stay where they are.
    """

    def __init__(self, ptx: str, before: Module | None = None) -> None:
        self.ptx, self.before = ptx, before
        self.key: str = cache_key("", before.key if before else "", ptx)

    @cached_property
    def tree(self) -> syntax_tree.Module:
        """All of it."""
        return parse(self.ptx)

    @cached_property
    def outline(self) -> Outline:
        """What it declares."""
        before = self.before.outline.memory if self.before else None
        return _load_or_make(self.key, lambda: outline_module(self.tree, before))

    def load_program(self, name: str) -> Program:
        """Its kernel `name`, decoded.

        Raises:
            Unsupported: something in it is not executed.
        """
        key = cache_key(name, self.key)
        return _load_or_make(key, lambda: decode(self.tree, name, self.outline.memory))


def cache_key(*parts: str) -> str:
    """The name of a file that is decided by texts, and by this package."""
    found = hashlib.blake2b(digest_sources(), digest_size=20)
    for part in parts:
        found.update(part.encode() + b"\0")
    return found.hexdigest()


@cache
def digest_sources() -> bytes:
    """A digest of all that decides what a decoded kernel is."""
    digest = hashlib.blake2b()
    here = Path(__file__).parent
    for path in sorted([*here.rglob("*.py"), *(here / "core").iterdir()]):
        if path.is_file():
            digest.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


def _load_or_make(name: str, make: Callable[[], T]) -> T:
    """What is kept by a name, or made and kept from now on; of the type that is made."""
    path = file_cache.cache_dir() / "decoded" / name[:2] / name[2:]
    data = file_cache.read_cached(path)
    found: T | None = _unpack_file(data) if data is not None else None
    if found is None:
        found = make()
        file_cache.write_cached(path, _pack_file(found), LIMIT)
    return found


def _unpack_file(data: bytes) -> Any:
    """What a file holds; None if it is not as it was written."""
    try:
        if data[:8] != MAGIC or zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "little"):
            return None
        start = 16 + int.from_bytes(data[12:16], "little")
        head = json.loads(data[16:start])
        parts = [data[start + at : start + end] for at, end in head["parts"]]
        return _unpack_value(head["held"], parts)
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def _pack_file(value: Any) -> bytes:
    """The file that holds a value."""
    parts: list[bytes] = []
    held = _pack_value(value, parts)
    spans, at = [], 0
    for part in parts:
        spans.append((at, at + len(part)))
        at += len(part)
    head = json.dumps({"parts": spans, "held": held}).encode()
    data = len(head).to_bytes(4, "little") + head + b"".join(parts)
    return MAGIC + zlib.crc32(data).to_bytes(4, "little") + data


def _pack_value(value: Any, parts: list[bytes]) -> Any:
    """A value as JSON, whose arrays and bytes become `parts`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.ndarray):
        kind = "" if value.dtype == INSTRUCTION else value.dtype.str
        return {"array": _add_part(value.tobytes(), parts), "of": kind}
    if isinstance(value, bytes):
        short = value.rstrip(b"\0")  # a heap is nothing but zeros
        return {"bytes": _add_part(short, parts), "zeros": len(value) - len(short)}
    if isinstance(value, tuple):
        return {"tuple": [_pack_value(one, parts) for one in value]}
    if isinstance(value, frozenset):
        return {"set": [_pack_value(one, parts) for one in sorted(value)]}
    if isinstance(value, dict):
        return {"dict": [[_pack_value(one, parts) for one in pair] for pair in value.items()]}
    if isinstance(value, list):
        return _pack_list(value, parts)
    if type(value).__name__ in RECORDS:
        names = [one.name for one in fields(value) if one.init]
        of = {name: _pack_value(getattr(value, name), parts) for name in names}
        return {"is": type(value).__name__, "of": of}
    raise TypeError(f"a program holds {type(value).__name__}, which {__name__} does not keep")


def _pack_list(value: Sequence[Any], parts: list[bytes]) -> Any:
    """A list; a long one as its distinct values and an array of which stands where."""
    if len(value) <= LONG:
        return [_pack_value(one, parts) for one in value]
    if all(isinstance(one, tuple) and len(one) == len(value[0]) for one in value) and value[0]:
        columns = [_pack_list(one, parts) for one in zip(*value, strict=True)]
        return {"columns": columns}
    if all(type(one) is int and 0 <= one < 1 << 63 for one in value):
        return {"ints": _add_part(np.array(value, np.int64).tobytes(), parts)}
    table: dict[Any, int] = {}
    at = np.array([table.setdefault(one, len(table)) for one in value], np.uint32)
    return {
        "table": [_pack_value(one, parts) for one in table],
        "at": _add_part(at.tobytes(), parts),
    }


def _add_part(data: bytes, parts: list[bytes]) -> int:
    parts.append(data)
    return len(parts) - 1


def _unpack_value(value: Any, parts: Sequence[bytes]) -> Any:
    if isinstance(value, list):
        return [_unpack_value(one, parts) for one in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return _read_array(
            parts[value["array"]], np.dtype(value["of"]) if value["of"] else INSTRUCTION
        )
    if "bytes" in value:
        return parts[value["bytes"]] + bytes(value["zeros"])
    if "tuple" in value:
        return tuple(_unpack_value(one, parts) for one in value["tuple"])
    if "set" in value:
        return frozenset(_unpack_value(one, parts) for one in value["set"])
    if "dict" in value:
        return {_unpack_value(key, parts): _unpack_value(one, parts) for key, one in value["dict"]}
    if "columns" in value:
        columns = [_unpack_value(one, parts) for one in value["columns"]]
        return list(zip(*columns, strict=True))
    if "ints" in value:
        return _read_array(parts[value["ints"]], np.dtype(np.int64)).tolist()
    if "table" in value:
        table = [_unpack_value(one, parts) for one in value["table"]]
        at = _read_array(parts[value["at"]], np.dtype(np.uint32))
        return [table[number] for number in at.tolist()]
    return RECORDS[value["is"]](
        **{name: _unpack_value(one, parts) for name, one in value["of"].items()}
    )


def _read_array(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(data, dtype)
