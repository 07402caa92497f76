"""Several files that change together, or not at all: written beside their places, then moved in.

Enters: texts and their paths. Leaves: all of them in place, or everything as it was. A disk that
fills up is met while nothing has changed yet, since moving a file takes no room.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path


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
        """Make all changes; the paths of the files that were written and are other than before.

        Raises:
            OSError: one of them cannot be made; then none is.
        """
        changes = {path: data for path, data in self._texts.items() if _read_or_none(path) != data}
        staged: dict[Path, Path] = {}
        kept: dict[Path, Path] = {}
        folders: list[Path] = []
        try:
            for path, data in changes.items():
                if data is not None:
                    _make_folders(path.parent, folders)
                    staged[path] = _write_beside(path, data)
            for path in changes:
                if path.is_file():
                    kept[path] = _link_beside(path)
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


def _read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it, and tell `made` which were not there."""
    missing: list[Path] = []
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    for one in missing:
        one.mkdir()
        made.append(one)


def _write_beside(path: Path, data: bytes) -> Path:
    """A file next to `path` that holds `data`, for good; it goes where that fails."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=f".{path.name}", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _link_beside(path: Path) -> Path:
    """Another name of a file, under which it stays when `path` is replaced; or a copy of it."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=f".{path.name}", dir=path.parent)
    os.close(handle)
    second = Path(name)
    try:
        second.unlink()
        try:
            os.link(path, second)
        except OSError:  # not every file system has links
            shutil.copy2(path, second)
    except BaseException:
        second.unlink(missing_ok=True)
        raise
    return second


def _remove_files(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
