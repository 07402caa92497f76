"""A topic's list with one entry more; what stands there stays as it is, to the byte."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.readings.entries import Reader

WIDTH = 88  # columns after which PyYAML ends a line at the next space
EMPTY = re.compile(r"(?m)^\[[ \t]*\][ \t]*(?:\r?\n|\Z)")  # a list that holds nothing yet


def dump(values: Mapping[str, Any], indent: int, newline: str) -> str:
    """An entry as YAML, its dash at column `indent`; it reads back as `values`."""
    lines: list[str] = []
    for key, value in values.items():
        if key == "added":
            lines.append(f'{key}: "{value}"')
        elif isinstance(value, list | tuple) and not any(isinstance(v, Mapping) for v in value):
            lines += f"{key}: {_yaml(list(value), flow=True)}".rstrip("\n").split("\n")
        else:
            value = [dict(version) for version in value] if key == "also" else value
            first, *rest = _yaml({key: value}, flow=False).rstrip("\n").split("\n")
            lines += [first, *(f"  {line}" if key == "also" else line for line in rest)]
    pad = " " * indent
    marked = [f"{pad}{'- ' if not n else '  '}{line}" for n, line in enumerate(lines)]
    return newline.join(line.rstrip(" ") for line in marked) + newline


def _yaml(value: Any, *, flow: bool) -> str:
    text: str = yaml.safe_dump(
        value, allow_unicode=True, default_flow_style=flow, sort_keys=False, width=WIDTH
    )
    return text


def blank(data: bytes) -> bool:
    """Whether a list's file holds nothing but comments and white space."""
    return not re.sub(rb"(?m)^\s*#.*$", b"", data).strip()


def extended(path: str, old: bytes, values: Mapping[str, Any]) -> tuple[bytes, str]:
    """The bytes of the list `old` with an entry behind the rest, and that entry's own lines.

    Line ends, the column of the dashes and the habit of a blank line between entries are kept.

    Raises:
        ShelfError: `old` is no list that can take an entry, at `path`.
    """
    reader = Reader(path, old)
    if reader.findings and not blank(old):
        raise ShelfError(reader.findings)
    newline = "\r\n" if old.count(b"\r\n") * 2 > old.count(b"\n") else "\n"
    before = old.decode("utf-8")
    if reader.indent is None and not reader.entries:
        before = EMPTY.sub("", before, count=1)
    elif reader.indent is None:
        mend = "write it as lines that start with -"
        raise ShelfError(Finding(path, None, "the list is written as [ … ]", mend))
    text = dump(values, reader.indent or 0, newline)
    gap = "" if not before or before.endswith("\n") else newline
    if (
        re.search(r"\n[ \r]*\n(?: *#.*\n)* *- ", before)
        and before.rstrip(" \r\n") + newline * 2 != before
    ):
        gap += newline  # the file keeps a blank line between its entries
    data = (before + gap + text).encode("utf-8")
    after = Reader(path, data)
    kept = [entry.fields for entry in reader.entries]
    if after.findings or [entry.fields for entry in after.entries] != [*kept, dict(values)]:
        mend = "see that the file is a plain list of entries, or add this one by hand"
        said = after.findings or [Finding(path, None, "an entry cannot be appended", mend)]
        raise ShelfError(said)
    return data, text
