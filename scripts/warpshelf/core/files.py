"""Atomic writing of one or several files, and the parts and the shape of data read from them."""

from __future__ import annotations

import contextlib
import json
import lzma
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints, is_typeddict

DEEPEST = 16  # levels of lists and objects in each other
LARGEST_INTEGER = 10**30  # the FLOPs of a training run stay below
MANY = 24  # texts in a list that stands on one line
# Literals in text follow each other by four bits of the letter before, wherever they stand.
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
YAML_KEY = re.compile(rb"^([A-Za-z_][\w-]*):(?=\s|\Z)", re.M)
SURROGATE = re.compile("[\ud800-\udfff]")
LARGEST_PACKED = 64 * 2**20  # bytes of one to unpack; a real one holds up to four mebibytes


def write_atomically(path: Path, text: str | bytes, *, durable: bool = True) -> bool:
    """Put `text` at `path` in one step; True where the file changed.

    What can be made again at any time need not be `durable`: it may be lost with the power.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    if _read_or_none(path) == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with _stage_file(path) as staged:
        _fill_file(staged, data, durable)
        os.replace(staged, path)
    return True


def _read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


@contextlib.contextmanager
def _stage_file(path: Path) -> Iterator[Path]:
    """A name next to `path` that no file has yet; one that is made of it goes if that fails."""
    staged = path.with_name(f".{secrets.token_hex(8)}.{path.name}")
    try:
        yield staged
    except BaseException:
        staged.unlink(missing_ok=True)
        raise


def _fill_file(path: Path, data: bytes, durable: bool = True) -> None:
    with path.open("xb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.chmod(path, 0o644)


def split_mapping(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The keys of a YAML mapping at the start of a line: each with its line, from 1, and its value.

    A value is YAML of its own whose lines are numbered as in the file: empty ones stand for those
    above it. Text above the first key, if it is no comment, comes with the key "".
    """
    heads = list(YAML_KEY.finditer(data))
    starts = [*(head.start() for head in heads), len(data)]
    if has_text(data[: starts[0]]):
        yield "", 1, data[: starts[0]]
    for head, end in zip(heads, starts[1:], strict=True):
        above = data.count(b"\n", 0, head.start())
        yield head[1].decode(), above + 1, b"\n" * above + data[head.end() : end]


def has_text(data: bytes) -> bool:
    """Whether YAML has more than empty lines and comments."""
    return any(line and line[:1] != b"#" for line in map(bytes.strip, data.splitlines()))


def dump_json(value: object) -> str:
    """JSON with sorted keys, one item a line, so that a difference shows as one."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def pretty_json(value: object) -> str:
    """JSON as a person reads it and a difference shows it: what stands in a list, a line each.

    Each key of `value` has a line of its own, and so has each item of a list of objects or lists,
    or of more than MANY texts; all else stands on the line of what it belongs to.
    """
    return _pretty_value(value, 0) + "\n"


def _pretty_value(value: object, depth: int) -> str:
    if not value or not (_spans_lines(value) if depth else isinstance(value, dict)):
        return _compact_json(value)
    below = f"\n{' ' * max(1, depth)}"
    if isinstance(value, dict):
        text = ""
        for key, one in value.items():
            text += f"{_compact_json(key)}:{_pretty_value(one, max(1, depth))},"
            text += below if not depth or _spans_lines(one) else ""
        return "{" + text.rstrip(", \n") + "}"
    # What stands in a list of lists is not broken again: a row of a table is a line.
    rows = [
        _compact_json(one) if isinstance(one, list) else _pretty_value(one, depth + 1)
        for one in cast(Sequence[object], value)
    ]
    return f"[{below} " + f",{below} ".join(rows) + "]"


def _spans_lines(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_spans_lines, value.values()))
    if not isinstance(value, list | tuple) or not value:
        return False
    first = value[0]
    return len(value) > MANY if isinstance(first, str) else isinstance(first, dict | list | tuple)


def _compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def pack_json(value: object) -> bytes:
    """`value` as JSON, compressed: the same bytes at every time and on every machine."""
    text = _compact_json(value).encode("utf-8")
    return lzma.compress(text, lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=XZ)


def unpack_json(data: bytes) -> object:
    """What `pack_json` was given; ValueError where it was not, or would be over LARGEST_PACKED."""
    try:
        return json.loads(_decompress_xz(data))
    except RecursionError:
        raise ValueError("nests too deep") from None


@lru_cache(maxsize=4)  # the same file is mostly read several times in a row
def _decompress_xz(data: bytes) -> bytes:
    try:
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        text = reader.decompress(data, LARGEST_PACKED)
    except lzma.LZMAError as error:
        raise ValueError(f"is not an xz file: {error}") from None
    if not reader.eof or reader.unused_data:
        raise ValueError(f"is cut off, or holds more than {LARGEST_PACKED} bytes")
    return text


def read_sections(path: Path) -> dict[str, Any]:
    """The parts of a packed file by name, none without a file; OSError or ValueError if bad."""
    if not path.is_file():
        return {}
    if path.stat().st_size > LARGEST_PACKED:
        raise ValueError(f"is larger than {LARGEST_PACKED} bytes")
    value = unpack_json(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError("does not hold an object")
    return value


def replace_section(path: Path, name: str, value: object) -> bytes | None:
    """A packed file with a part replaced, or without it where `value` is empty; None: it goes.

    Of a damaged file there are no other parts.
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
                return "has a key that is not a string"
        elif isinstance(item, list | tuple):
            kinds = set(map(type, item))
            if kinds == {str}:  # a view has long lists of these, told in one go
                pending.append(("".join(item), depth + 1))
            elif kinds == {int}:
                pending.extend((inner, depth + 1) for inner in (min(item), max(item)))
            else:
                pending.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, str):
            if not item.isascii() and SURROGATE.search(item):
                return "holds half a surrogate pair"
        elif isinstance(item, float):
            if not math.isfinite(item):
                return f"holds {item}, which JSON cannot write"
        elif isinstance(item, int):
            if abs(item) >= LARGEST_INTEGER:
                return "holds an integer out of range"
        elif item is not None:
            return f"holds a {type(item).__name__}"
    return None


# Several files that change together, or not at all: written beside their places, then moved in. A
# disk that fills up is met while nothing has changed yet, since moving a file takes no room.


class Batch:
    """Changes that are made by one `commit`."""

    def __init__(self) -> None:
        self._texts: dict[Path, bytes | None] = {}  # None: the file goes

    def write(self, path: Path, text: str | bytes) -> None:
        """Have `text` stand at `path`."""
        self._texts[path] = text if isinstance(text, bytes) else text.encode("utf-8")

    def remove(self, path: Path) -> None:
        """Have no file at `path`."""
        self._texts[path] = None

    def commit(self) -> list[Path]:
        """Make all changes, or none if one raises OSError; the files that are other than before."""
        changes = {path: data for path, data in self._texts.items() if _read_or_none(path) != data}
        staged: dict[Path, Path] = {}
        kept: dict[Path, Path] = {}
        folders: list[Path] = []
        try:
            for path, data in changes.items():
                if data is not None:
                    missing = [one for one in path.parents if not one.exists()]
                    for folder in reversed(missing):
                        folder.mkdir()
                        folders.append(folder)
                    with _stage_file(path) as beside:
                        _fill_file(beside, data)
                    staged[path] = beside
            for path in filter(Path.is_file, changes):
                with _stage_file(path) as beside:
                    _link_file(path, beside)
                kept[path] = beside
            for path, data in changes.items():
                if data is None:
                    path.unlink(missing_ok=True)
                else:
                    os.replace(staged[path], path)
        except BaseException:
            for path, data in changes.items():
                # What is still staged was not moved; what was to go and is there has not gone.
                if path.exists() if data is None else path not in staged or staged[path].exists():
                    continue
                with contextlib.suppress(OSError):
                    if path in kept:
                        os.replace(kept[path], path)
                    else:
                        path.unlink(missing_ok=True)
            _remove_files([*staged.values(), *kept.values()])
            for folder in reversed(folders):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        _remove_files(kept.values())
        return [path for path, data in changes.items() if data is not None]


def _link_file(path: Path, second: Path) -> None:
    """Have a file stay under a second name when its own is given to another; or a copy of it."""
    try:
        os.link(path, second)
    except OSError:  # not every file system has links
        shutil.copy2(path, second)


def _remove_files(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


# What data read from a file must look like, as data; the first place that departs, in words.
#
# A shape is one of
#   a type, or a tuple of types   the value is an instance; a bool is no int
#   a tuple of texts              the value is one of them
#   a compiled pattern            the value is text, and matches whole
#   a list of one shape           the value is a list of such values
#   a dict                        the value is an object with just these keys: one that ends in "?"
#                                 may be absent, and the key "*" stands for any
#   a function                    it returns what is wrong with the value, or None

Shape = Any  # as above; a recursive alias would say no more
NUMBER = (int, float)


def shape_problem(value: object, shape: Shape, place: str) -> str | None:
    """The first thing in `value` that is not as `shape` has it, said with its place; None if none.

    Floats must be finite and integers within what `dump_json` writes.
    """
    if isinstance(shape, dict):
        return _problem_in_dict(value, shape, place)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is not a list"
        # A view has long lists of integers and of texts.
        alike = shape[0] in (int, str) and {*map(type, value)} <= {shape[0]}
        if alike and (shape[0] is str or max(map(abs, value), default=0) < LARGEST_INTEGER):
            return None
        items = ((item, shape[0], f"{place}[{index}]") for index, item in enumerate(value))
        return next(filter(None, starmap(shape_problem, items)), None)
    if isinstance(shape, re.Pattern):
        good = isinstance(value, str) and shape.fullmatch(value)
        return None if good else f"{place} is {value!r:.60}"
    if isinstance(shape, tuple) and isinstance(shape[0], str):
        known = ", ".join(shape)
        return None if value in shape else f"{place} is {value!r:.60}, not one of {known}"
    if callable(shape) and not isinstance(shape, type):
        found = shape(value)
        return f"{place} {found}" if found else None
    kinds: tuple[type, ...] = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(value, bool) and bool not in kinds and object not in kinds:
        return f"{place} is {value!r}"
    if not isinstance(value, kinds) or (isinstance(value, float) and not math.isfinite(value)):
        return f"{place} is {value!r:.60}"
    if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        return f"{place} is out of range"
    return None


def _problem_in_dict(value: object, shape: dict[str, Shape], place: str) -> str | None:
    if not isinstance(value, dict):
        return f"{place} is not an object"
    if "*" in shape:
        items = ((item, shape["*"], f"{place}.{key}") for key, item in value.items())
        return next(filter(None, starmap(shape_problem, items)), None)
    names = {key.rstrip("?") for key in shape}
    if unknown := sorted(value.keys() - names, key=str):
        return f"{place} has the unknown key {unknown[0]!r:.60}"
    for key, inner in shape.items():
        name = key.rstrip("?")
        if name not in value:
            if key == name:
                return f"{place} lacks {name!r}"
        elif found := shape_problem(value[name], inner, f"{place}.{name}"):
            return found
    return None


def shape_of(kind: Any) -> Shape:
    """The shape of the values of a type; of `Annotated[type, shape]` it is what stands there.

    Every key of a TypedDict is required, whether its type is total or not.
    """
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {key: shape_of(one) for key, one in hints.items()}
    if hasattr(kind, "__metadata__"):
        return kind.__metadata__[0]
    if get_origin(kind) is list:
        return [shape_of(*get_args(kind))]
    if get_origin(kind) is dict:
        return {"*": shape_of(get_args(kind)[1])}
    return {float: NUMBER, Any: object}.get(kind, kind)


def order_keys(value: object, shape: Shape) -> Any:
    """A value that is as `shape` has it, its keys in the order of the shape; others sorted."""
    if isinstance(shape, list) and isinstance(value, list):
        return [order_keys(item, shape[0]) for item in value]
    if not isinstance(value, dict):
        return value
    if not isinstance(shape, dict) or "*" in shape:
        inner = shape["*"] if isinstance(shape, dict) else object
        return {key: order_keys(value[key], inner) for key in sorted(value)}
    names = {key.rstrip("?"): inner for key, inner in shape.items()}
    return {key: order_keys(value[key], inner) for key, inner in names.items() if key in value}
