"""What travels to the nodes of a cluster, what comes home, and what that is worth.

There goes a folder with what a run reads, and nothing of what it wrote: the tooling, the snippets,
the records that snippets read, the commit. A snippet's digest there is the one here.

Home comes an answer for each item, from a machine that is not ours: a verdict and a record, which
is kept only if it is whole, of the code that was sent, and of the kind it was for; or else another
try is due. Until the file of `--out` is written, in one step, each record is a file of its own in
the folder beside it, so that keeping the last of thousands costs no more than keeping the first,
and none is lost with the process.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import warpshelf
from warpshelf.bench import assemble
from warpshelf.bench.run import Verdict
from warpshelf.contract import digest
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json, json_flaw, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.fleet.cluster import NoAnswer
from warpshelf.fleet.queue import Item
from warpshelf.records import bundle
from warpshelf.records.schema import Record, shape_problem, validation_error

TOOLING = Path(warpshelf.__file__).parents[1]
PACKAGES = ("warpshelf", "papergpu")


@contextmanager
def pack_checkout(project: Project, snippets: Iterable[Snippet]) -> Iterator[Path]:
    """The copy, in a temporary folder of its own; gone when this is left."""
    with tempfile.TemporaryDirectory(prefix="shelf-parcel-") as name:
        folder = Path(name)
        leave = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
        for package in PACKAGES:
            shutil.copytree(TOOLING / package, folder / "scripts" / package, ignore=leave)
        # Views and records are most of a checkout's bytes, and a run there starts from none.
        without = shutil.ignore_patterns("__pycache__", ".*", "results")
        shutil.copytree(project.snippets, folder / "snippets", ignore=without)
        read = {id_ for one in snippets for id_ in one.needs.get("records", ())}
        for path in digest.record_files(project.root, read):
            target = folder / path.relative_to(project.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        shutil.copyfile(project.root / "mkdocs.yml", folder / "mkdocs.yml")
        if commit := assemble.checkout_commit(project.root):
            note = folder / assemble.TRAVELS_WITH
            note.parent.mkdir(exist_ok=True)
            note.write_text(f"{commit}\n", encoding="utf-8")
        yield folder


Key = tuple[str, str]  # a snippet and a machine


class ResultQueue:
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

    def __enter__(self) -> ResultQueue:
        """Take up what earlier runs brought home.

        Raises:
            ShelfError: the file is no bundle, or one in the folder is no record.
        """
        for record in bundle.read_bundle(self.out) if self.out.exists() else ():
            self.texts[self._index_record(record)] = dump_json(record)
        for path in sorted(self.folder.glob("[a-z]*.json")):
            self.parts[self._index_record(self._read_part(path))] = path
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if not (self.full or self.reads) and (self.parts or not self.out.exists()):
            self._merge_parts()

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(len(row) for row in self.made.values())

    def save_record(self, record: Record) -> None:
        """Keep one more record, at once and for good.

        Raises:
            ShelfError: the disk does not take it; the folder stays, for the next run to take up.
        """
        slug = record["machine"]["slug"]
        path = self.folder / f"{record['snippet']}.{slug}.json"
        with self._catch_full_disk(path):
            write_atomically(path, dump_json(record))
        self.parts[self._index_record(record)] = path

    def _merge_parts(self) -> None:
        keys = sorted(self.texts.keys() | self.parts.keys())
        with self._catch_full_disk(self.out):
            write_atomically(self.out, bundle.join_texts(self._record_text(key) for key in keys))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _record_text(self, key: Key) -> str:
        return self.parts[key].read_text("utf-8") if key in self.parts else self.texts[key]

    @contextmanager
    def _catch_full_disk(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.full = True
            mend = f"free some space and run it again; what came home is in {self.folder.name}/"
            what = error.strerror or str(error)
            raise ShelfError(Finding(path.as_posix(), None, what, mend)) from None

    def _index_record(self, record: Record) -> Key:
        key = record["snippet"], record["machine"]["slug"]
        self.made.setdefault(key[0], {})[key[1]] = record["digest"], record["date"]
        return key

    def _read_part(self, path: Path) -> Record:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            wrong = record_fault(record)
        except (OSError, ValueError, RecursionError) as error:
            wrong = str(error)
        if wrong:
            what = f"is not a record: {wrong}"
            raise ShelfError(Finding(path.as_posix(), None, what, "remove it, and run it again"))
        return dict(record)


def record_fault(record: object) -> str | None:
    """Why `record`, as it came from elsewhere, cannot be kept; None where it can."""
    wrong = json_flaw(record) or shape_problem(record)
    return wrong or (validation_error(record) if isinstance(record, dict) else None)


LINE = re.compile(r"(?P<path>.*?)(?::(?P<line>\d+))?: (?P<what>.*?)(?:; (?P<mend>[^;]*))?", re.S)


@dataclass(frozen=True)
class ItemOutcome:
    """How a try of an item ended. Without a verdict it is to be tried again, `why` says the reason.

    `unfit` says what makes its node useless to all, `slug` that it is of a device by that name.
    """

    verdict: Verdict | None = None
    record: Record | None = None
    why: str = ""
    unfit: str = ""
    slug: str = ""


def judge_answer(item: Item, answer: dict[str, Any] | NoAnswer, where: str) -> ItemOutcome:
    """What `answer` to `item`, which comes from the node named `where`, is worth."""
    if isinstance(answer, NoAnswer):
        return ItemOutcome(None if answer.again else left_verdict(item, answer.why), why=answer.why)
    if why := answer.get("unfit"):
        return ItemOutcome(why=f"node {where}: {why}", unfit=why)
    if why := answer.get("failed"):
        return ItemOutcome(_failed_verdict(item, f"on node {where} {why}"))
    row, record = answer["row"], answer["record"]
    if record is not None:
        if wrong := record_fault(record):
            return ItemOutcome(
                _failed_verdict(item, f"node {where} sent what is no record: {wrong}")
            )
        slug = record["machine"]["slug"]
        if slug != item.kind.slug:
            return ItemOutcome(why=f"node {where} is of the kind {slug}", slug=slug)
        if (record["snippet"], record["digest"]) != (item.snippet.id, item.snippet.digest):
            what = f"node {where} ran other code than this checkout's"
            return ItemOutcome(_failed_verdict(item, f"{what}: did it change meanwhile?"))
    elif row["state"] == "passed":
        return ItemOutcome(_failed_verdict(item, f"node {where} sent no record"))
    found = tuple(_parse_finding(line) for line in row["findings"])
    note = ", ".join(filter(None, (row["note"], f"node {where}" if found else "")))
    seconds, told = row["seconds"], tuple(row["errors"])
    verdict = Verdict(item.snippet.id, row["state"], note, found, seconds, item.kind.slug, told)
    return ItemOutcome(verdict, record)


def left_verdict(item: Item, why: str) -> Verdict:
    """The verdict on what was not run."""
    return Verdict(item.snippet.id, "left", why, machine=item.kind.slug)


def _failed_verdict(item: Item, what: str) -> Verdict:
    path = item.snippet.project.relative_path(item.snippet.path)
    finding = Finding(path, None, what, f"run `shelf run {item.snippet.id}` there to see more")
    return Verdict(item.snippet.id, "failed", "", (finding,), machine=item.kind.slug)


def _parse_finding(line: str) -> Finding:
    """A finding from the line that it was printed as; it prints as the same line again."""
    found = LINE.fullmatch(line)
    if found is None:
        return Finding("node", None, line, "")
    number = int(found["line"]) if found["line"] else None
    return Finding(found["path"], number, found["what"], found["mend"] or "")
