"""Writing files so that a reader, or a kill at any moment, never meets half of one."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

DEEPEST = 16  # levels of lists and objects in each other
LARGEST_INTEGER = 10**30  # the FLOPs of a training run stay below


def write_atomically(path: Path, text: str, *, durable: bool = True) -> bool:
    """Put `text` at `path` in one step; True where the file changed.

    What can be made again at any time need not be `durable`: it may be lost with the power.
    """
    data = text.encode("utf-8")
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


def dump(value: object) -> str:
    """JSON with sorted keys, one item a line, so that a difference shows as one."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def flaw(value: object) -> str | None:
    """Why `dump` could not write `value`, or not so that it comes back the same; None where it can.

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
            if not (depth < DEEPEST and _plain(item)):
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


def _plain(items: Sequence[object]) -> bool:
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
