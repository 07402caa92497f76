"""What `shelf check --fix` changes in the lists by itself, and nothing else in them.

All bytes but those of the mend stay as they are: comments, blank lines, quotes, folds, CRLF. What
was mended is read again before it reaches the disk, and must say what it said before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from warpshelf.core.files import write_atomically
from warpshelf.core.findings import Finding
from warpshelf.edit.edits import Edit, Mend, flat, spaces, values
from warpshelf.readings.entries import KeyPath, Reader
from warpshelf.readings.model import GLOSSARY

BOM = "\ufeff"


def fix(root: Path) -> tuple[list[Mend], list[Finding]]:
    """Mend every list below `root`/docs that can be, and say what was left alone, and why.

    A file is written once, in one step, or not at all.
    """
    mended: list[Mend] = []
    left: list[Finding] = []
    for file in sorted((root / "docs").rglob("*.yml")):
        names = file.relative_to(root / "docs").parts
        if file.is_symlink() or not file.is_file() or any(name.startswith(".") for name in names):
            continue
        path = file.relative_to(root).as_posix()
        if path == GLOSSARY:
            continue
        data = file.read_bytes()
        after, done, finding = mend(path, data)
        if finding:
            left.append(finding)
        elif done:
            write_atomically(file, after.decode("utf-8"))
            mended += done
    return mended, left


def mend(path: str, data: bytes) -> tuple[bytes, list[Mend], Finding | None]:
    """`data` mended, what was done, and a finding if it had to be left as it is."""
    reader = Reader(path, data)
    if not reader.entries:  # nothing there, or what `shelf check` says of the file comes first
        return data, [], None
    text = data.decode("utf-8")
    mark = BOM if text.startswith(BOM) else ""
    text = text.removeprefix(BOM)
    done: list[Mend] = []
    for group in (values, spaces):
        edits = list(group(path, text, reader))
        if not edits:
            continue
        text = _applied(text, edits)
        after = Reader(path, text.encode())
        if not _same(reader, after, edits):
            what = "would not read the same with its mends, so it was left alone"
            return data, [], Finding(path, edits[0].mend.line, what, "mend it by hand")
        done += [edit.mend for edit in edits]
        reader = after
    return (mark + text).encode(), sorted(done), None


def _applied(text: str, edits: Iterable[Edit]) -> str:
    parts, done = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


def _same(before: Reader, after: Reader, edits: Iterable[Edit]) -> bool:
    """Whether the same was read before and after, save for what the edits change."""
    wanted = [_leaves(entry.fields) for entry in before.entries]
    for edit in edits:
        if edit.place:
            wanted[edit.place[0]][edit.place[1]] = edit.value
    was = [finding.what for finding in before.findings]
    return [_leaves(entry.fields) for entry in after.entries] == wanted and all(
        finding.what in was for finding in after.findings
    )


def _leaves(fields: dict[str, Any]) -> dict[KeyPath, Any]:
    """Each value by its place; of a list its length, of a mapping its keys in any order.

    Texts by their words: how the space between them is written may change.
    """
    found: dict[KeyPath, Any] = {}
    for place, value in flat(fields):
        if isinstance(value, str):
            found[place] = " ".join(value.split())
        elif isinstance(value, dict):
            found[place] = frozenset(value)
        else:
            found[place] = len(value) if isinstance(value, list) else value
    return found
