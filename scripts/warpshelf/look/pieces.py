"""The pieces of source files that a view shows: whole functions, not single lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

# A line that goes on with what stands above it: indented, or opening or closing, or empty.
GOES_ON = re.compile(r"\s|[)}\]{]|$")
MARK = "--8<--"


def text(folder: Path, name: str) -> str | None:
    """A file of the snippet in `folder`, or shared by snippets; None where it is neither."""
    path = folder.parent.parent / name if name.startswith("snippets/") else folder / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def texts(folder: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """The lines of those files that are the snippet's own, or shared by snippets."""
    found = {name: text(folder, name) for name in names}
    return {name: one.splitlines() for name, one in found.items() if one is not None}


def pieces(
    texts: Mapping[str, Sequence[str]], lines: Collection[tuple[str, int]]
) -> list[dict[str, Any]]:
    """`{"file", "from", "text"}` of each piece, by file and line, that hold all of `lines`.

    `texts` has the lines of each file; of one that is not there, nothing is shown. A piece is what
    stands at the margin with all that is indented below it: a function, with the decorators and
    template heads above.
    """
    found: list[dict[str, Any]] = []
    for file in sorted({file for file, _ in lines if file in texts}):
        text = texts[file]
        wanted = {number for name, number in lines if name == file and 0 < number <= len(text)}
        for start, end in _blocks(text):
            if not any(start <= number < end for number in wanted):
                continue
            block, before = list(text[start - 1 : end - 1]), found[-1] if found else None
            if before and (before["file"], before["from"] + len(before["text"])) == (file, start):
                before["text"] += block
            else:
                found.append({"file": file, "from": start, "text": block})
    for piece in found:
        lines_of = piece["text"]
        while lines_of and _spare(lines_of[-1]):
            lines_of.pop()
        while lines_of and _spare(lines_of[0]):
            del lines_of[0]
            piece["from"] += 1
    return [piece for piece in found if piece["text"]]


def _blocks(text: Sequence[str]) -> list[tuple[int, int]]:
    """Where each block begins, and the line behind its last; lines are numbered from 1."""
    starts = [1] if text else []
    for number in range(2, len(text) + 1):
        if _spare(text[number - 2]) and not GOES_ON.match(text[number - 1]):
            starts.append(number)
    return list(zip(starts, [*starts, len(text) + 1][1:], strict=True))


def _spare(line: str) -> bool:
    """Whether a line separates: an empty one, or a mark of a section."""
    return not line.strip() or MARK in line
