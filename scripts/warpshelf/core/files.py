"""Writing files so that a reader, or a kill at any moment, never meets half of one."""

from __future__ import annotations

import json
import lzma
import math
import os
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

DEEPEST = 16  # levels of lists and objects in each other
LARGEST_INTEGER = 10**30  # the FLOPs of a training run stay below
MANY = 24  # texts in a list that stands on one line
# Literals in text follow each other by four bits of the letter before, wherever they stand.
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
LARGEST_PACKED = 64 * 2**20  # bytes of one to unpack; a real one holds up to four mebibytes


def write_atomically(path: Path, text: str | bytes, *, durable: bool = True) -> bool:
    """Put `text` at `path` in one step; True where the file changed.

    What can be made again at any time need not be `durable`: it may be lost with the power.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=f".{path.name}", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


def dump_json(value: object) -> str:
    """JSON with sorted keys, one item a line, so that a difference shows as one."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def pretty_json(value: object) -> str:
    """JSON as a person reads it and a difference shows it: what stands in a list, a line each.

    Each key of `value` has a line of its own, and so has each item of a list of objects or lists,
    or of more than MANY texts; all else stands on the line of what it belongs to. Keys are in the
    order that they have.
    """
    if not isinstance(value, dict) or not value:
        return _compact_json(value) + "\n"
    rows = [f"{json.dumps(key)}: {_pretty_value(one, 1)}" for key, one in value.items()]
    return "{" + ",\n ".join(rows) + "}\n"


def _pretty_value(value: object, depth: int) -> str:
    if isinstance(value, dict) and any(map(_spans_lines, value.values())):
        text = ""
        for key, one in value.items():
            text += f"{json.dumps(key, ensure_ascii=False)}: {_pretty_value(one, depth)}"
            text += f",\n{' ' * depth}" if _spans_lines(one) else ", "
        return "{" + text.rstrip(", \n") + "}"
    if isinstance(value, list | tuple) and _spans_lines(value):
        # What stands in a list of lists is not broken again: a row of a table is a line.
        rows = [
            _compact_json(one) if isinstance(one, list) else _pretty_value(one, depth + 1)
            for one in value
        ]
        between = f"\n{' ' * (depth + 1)}"
        return f"[{between}" + f",{between}".join(rows) + "]"
    return _compact_json(value)


def _spans_lines(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_spans_lines, value.values()))
    if not isinstance(value, list | tuple) or not value:
        return False
    if isinstance(value[0], str):
        return len(value) > MANY
    return isinstance(value[0], dict | list | tuple)


def _compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def pack_json(value: object) -> bytes:
    """`value` as JSON, compressed: the same bytes at every time and on every machine."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return lzma.compress(text.encode("utf-8"), lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=XZ)


def unpack_json(data: bytes) -> object:
    """What `pack_json` was given.

    Raises:
        ValueError: these are no such bytes, or they hold more than LARGEST_PACKED.
    """
    try:
        return json.loads(_decompress_xz(data))
    except RecursionError:
        raise ValueError("nests too deep") from None


@lru_cache(maxsize=4)  # what is asked of one file is mostly asked several times in a row
def _decompress_xz(data: bytes) -> bytes:
    try:
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        text = reader.decompress(data, LARGEST_PACKED)
    except lzma.LZMAError as error:
        raise ValueError(f"is no file of xz: {error}") from None
    if not reader.eof or reader.unused_data:
        raise ValueError(f"is cut off, or holds more than {LARGEST_PACKED} bytes")
    return text


def read_sections(path: Path) -> dict[str, Any]:
    """The parts of a packed file by name; none where there is no file.

    Raises:
        OSError, ValueError: it cannot be read, or is none.
    """
    if not path.is_file():
        return {}
    if path.stat().st_size > LARGEST_PACKED:
        raise ValueError(f"is larger than {LARGEST_PACKED} bytes")
    value = unpack_json(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError("holds no object")
    return value


def replace_section(path: Path, name: str, value: object) -> bytes | None:
    """A packed file with a part replaced, or without it where `value` is empty; None: it goes.

    The other parts stay as they are; of a damaged file there are none.
    """
    try:
        known = read_sections(path)
    except (OSError, ValueError):
        known = {}
    known.pop(name, None)
    parts = {**known, name: value} if value else known
    return pack_json(dict(sorted(parts.items()))) if parts else None


def json_flaw(value: object) -> str | None:
    """Why `dump_json` could not write `value` so that it comes back the same; None where it can.

    Tuples count as lists. The walk keeps its own stack, so that no nesting exhausts Python's.
    """
    pending = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > DEEPEST:
            return f"nests more than {DEEPEST} levels deep"
        if isinstance(item, dict):
            pending.extend((inner, depth + 1) for pair in item.items() for inner in pair)
            if not all(isinstance(key, str) for key in item):
                return "has a key that is no string"
        elif isinstance(item, list | tuple):
            if not (depth < DEEPEST and _is_plain(item)):
                pending.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                return "holds half a surrogate pair"
        elif isinstance(item, float):
            if not math.isfinite(item):
                return f"holds {item}, which is no number of JSON"
        elif isinstance(item, int):
            if abs(item) >= LARGEST_INTEGER:
                return "holds an integer out of range"
        elif item is not None:
            return f"holds a {type(item).__name__}"
    return None


def _is_plain(items: Sequence[object]) -> bool:
    """Whether these are integers, None or texts without a flaw, seen without a walk."""
    kinds = set(map(type, items))
    if kinds == {str}:
        try:
            "".join(cast(Sequence[str], items)).encode("utf-8")
        except UnicodeEncodeError:
            return False
        return True
    if not kinds <= {int, type(None)}:
        return False
    numbers = cast(list[int], [one for one in items if one is not None])
    return not numbers or -LARGEST_INTEGER < min(numbers) <= max(numbers) < LARGEST_INTEGER
