"""The records that have come home so far: one file each, and one bundle of them in the end.

Enters: records, as they arrive. Leaves: the file of `--out`, written in one step. Until then each
record is a file of its own in the folder beside it, so that keeping the last of thousands costs no
more than keeping the first, and none is lost with the process.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from warpshelf.core.files import dump, flaw, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.records import bundle
from warpshelf.records.schema import Record, contradiction, problem

Key = tuple[str, str]  # a snippet and a machine


class Spool:
    """What is in the file `out` and in the folder beside it, by snippet and machine.

    A context manager: leaving it, however that comes, merges all into `out` and removes the folder,
    unless the disk takes nothing more, or it only `reads`.
    """

    def __init__(self, out: Path, reads: bool = False) -> None:
        self.out = out
        self.reads = reads
        self.folder = out.with_name(f"{out.name}.parts")
        self.full = False
        self.texts: dict[Key, str] = {}  # of the bundle, as `dump` writes each
        self.parts: dict[Key, Path] = {}
        self.made: dict[str, dict[str, tuple[str, str]]] = {}  # digest and date, by both

    def __enter__(self) -> Spool:
        """Take up what earlier runs brought home.

        Raises:
            ShelfError: the file is no bundle, or one in the folder is no record.
        """
        for record in bundle.read(self.out) if self.out.exists() else ():
            self.texts[self._note(record)] = dump(record)
        for path in sorted(self.folder.glob("[a-z]*.json")):
            self.parts[self._note(self._read(path))] = path
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if not (self.full or self.reads) and (self.parts or not self.out.exists()):
            self._merge()

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(len(row) for row in self.made.values())

    def keep(self, record: Record) -> None:
        """Keep one more record, at once and for good.

        Raises:
            ShelfError: the disk does not take it; the folder stays, for the next run to take up.
        """
        slug = record["machine"]["slug"]
        path = self.folder / f"{record['snippet']}.{slug}.json"
        with self._writing(path):
            write_atomically(path, dump(record))
        self.parts[self._note(record)] = path

    def _merge(self) -> None:
        keys = sorted(self.texts.keys() | self.parts.keys())
        with self._writing(self.out):
            write_atomically(self.out, bundle.text_of(self._text(key) for key in keys))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _text(self, key: Key) -> str:
        return self.parts[key].read_text("utf-8") if key in self.parts else self.texts[key]

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.full = True
            mend = f"free some space and run it again; what came home is in {self.folder.name}/"
            what = error.strerror or str(error)
            raise ShelfError(Finding(path.as_posix(), None, what, mend)) from None

    def _note(self, record: Record) -> Key:
        key = record["snippet"], record["machine"]["slug"]
        self.made.setdefault(key[0], {})[key[1]] = record["digest"], record["date"]
        return key

    def _read(self, path: Path) -> Record:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            wrong = faults(record)
        except (OSError, ValueError, RecursionError) as error:
            wrong = str(error)
        if wrong:
            what = f"is not a record: {wrong}"
            raise ShelfError(Finding(path.as_posix(), None, what, "remove it, and run it again"))
        return dict(record)


def faults(record: object) -> str | None:
    """Why `record`, as it came from elsewhere, cannot be kept; None where it can."""
    wrong = flaw(record) or problem(record)
    return wrong or (contradiction(record) if isinstance(record, dict) else None)
