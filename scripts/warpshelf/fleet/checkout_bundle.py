"""What goes to the nodes of a cluster, what comes back, and whether to keep it.

There goes a folder with what a run reads. Home comes an answer for each item: a verdict and a
record, which is kept only if it is whole, of the code that was sent, and of the kind it was for.
Until the file of `--out` is written, in one step, each record is a file of its own in the folder
beside it: keeping the last of thousands costs no more than the first, and none is lost.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import warpshelf
from warpshelf.bench import assemble
from warpshelf.bench.run import Verdict
from warpshelf.contract import digest
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json, json_flaw, write_atomically
from warpshelf.core.findings import Finding, file_error
from warpshelf.core.project import Project
from warpshelf.fleet.cluster import NoAnswer
from warpshelf.fleet.queue import Item
from warpshelf.records import bundle
from warpshelf.records.schema import Record, shape_problem, validation_error

TOOLING = Path(warpshelf.__file__).parents[1]
PACKAGES = ("warpshelf", "papergpu")
LINE = re.compile(r"(?P<path>.*?)(?::(?P<line>\d+))?: (?P<what>.*?)(?:; (?P<mend>[^;]*))?", re.S)


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
        for path in (*digest.record_files(project.root, read), project.root / "mkdocs.yml"):
            target = folder / path.relative_to(project.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        if commit := assemble.checkout_commit(project.root):
            note = folder / assemble.TRAVELS_WITH
            note.parent.mkdir(exist_ok=True)
            note.write_text(f"{commit}\n", encoding="utf-8")
        yield folder


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
        self.records: dict[tuple[str, str], str | Path] = {}  # the text in the bundle, or the file
        self.made: dict[str, dict[str, tuple[str, str]]] = {}  # digest and date, by both

    def __enter__(self) -> ResultQueue:
        """Take up what earlier runs brought home; a ShelfError where that is damaged."""
        for record in bundle.read_bundle(self.out) if self.out.exists() else ():
            self._add_record(record, dump_json(record))
        for path in sorted(self.folder.glob("[a-z]*.json")):
            try:
                record = json.loads(path.read_text(encoding="utf-8"))
                wrong = record_fault(record)
            except (OSError, ValueError, RecursionError) as error:
                wrong = str(error)
            if wrong:
                mend = "remove it and run again"
                raise file_error(path.as_posix(), f"is not a record: {wrong}", mend)
            self._add_record(record, path)
        return self

    def __exit__(self, *_: object) -> None:
        parts = any(isinstance(one, Path) for one in self.records.values())
        if not (self.full or self.reads) and (parts or not self.out.exists()):
            texts = (
                one if isinstance(one, str) else one.read_text("utf-8")
                for _, one in sorted(self.records.items())
            )
            with self._catch_full_disk(self.out):
                write_atomically(self.out, bundle.join_texts(texts))
            shutil.rmtree(self.folder, ignore_errors=True)

    def save_record(self, record: Record) -> None:
        """Write one more record at once; ShelfError if the disk is full."""
        path = self.folder / f"{record['snippet']}.{record['machine']['slug']}.json"
        with self._catch_full_disk(path):
            write_atomically(path, dump_json(record))
        self._add_record(record, path)

    def _add_record(self, record: Record, kept: str | Path) -> None:
        name, slug = record["snippet"], record["machine"]["slug"]
        self.records[name, slug] = kept
        self.made.setdefault(name, {})[slug] = record["digest"], record["date"]

    @contextmanager
    def _catch_full_disk(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.full = True
            mend = f"free some space and run again; finished records are in {self.folder.name}/"
            raise file_error(path.as_posix(), error.strerror or str(error), mend) from None


def record_fault(record: object) -> str | None:
    """Why `record`, as it came from elsewhere, cannot be kept; None where it can."""
    wrong = json_flaw(record) or shape_problem(record)
    return wrong or (validation_error(record) if isinstance(record, dict) else None)


class ItemOutcome(NamedTuple):
    """How a try of an item ended. Without a verdict it is to be tried again."""

    verdict: Verdict | None = None
    record: Record | None = None
    why: str = ""  # it is to be tried again
    unfit: str = ""  # what makes its node useless to all
    slug: str = ""  # of what device its node is instead


def judge_answer(item: Item, answer: dict[str, Any] | NoAnswer, where: str) -> ItemOutcome:
    """What to make of the `answer` to `item` from the node named `where`."""
    name, kind = item.snippet.id, item.kind.slug

    def failed(what: str) -> ItemOutcome:
        path = item.snippet.project.relative_path(item.snippet.path)
        finding = Finding(path, None, what, f"run `shelf run {name}` there to see more")
        return ItemOutcome(Verdict(name, "failed", "", (finding,), machine=kind))

    if isinstance(answer, NoAnswer):
        return ItemOutcome(None if answer.again else left_verdict(item, answer.why), why=answer.why)
    if why := answer.get("unfit"):
        return ItemOutcome(why=f"node {where}: {why}", unfit=why)
    if why := answer.get("failed"):
        return failed(f"on node {where} {why}")
    row, record = answer["row"], answer["record"]
    if record is not None:
        if wrong := record_fault(record):
            return failed(f"node {where} sent an invalid record: {wrong}")
        if (slug := record["machine"]["slug"]) != kind:
            return ItemOutcome(why=f"node {where} is of the kind {slug}", slug=slug)
        if (record["snippet"], record["digest"]) != (name, item.snippet.digest):
            what = f"node {where} ran different code than this checkout has"
            return failed(f"{what}: did it change meanwhile?")
    elif row["state"] == "passed":
        return failed(f"node {where} sent no record")
    found = tuple(map(_parse_finding, row["findings"]))
    note = ", ".join(filter(None, (row["note"], f"node {where}" if found else "")))
    seconds, told = row["seconds"], tuple(row["errors"])
    return ItemOutcome(Verdict(name, row["state"], note, found, seconds, kind, told), record)


def left_verdict(item: Item, why: str) -> Verdict:
    """The verdict on what was not run."""
    return Verdict(item.snippet.id, "left", why, machine=item.kind.slug)


def _parse_finding(line: str) -> Finding:
    """A finding from the line that it was printed as; it prints as the same line again."""
    found = LINE.fullmatch(line)
    if found is None:
        return Finding("node", None, line, "")
    number = int(found["line"]) if found["line"] else None
    return Finding(found["path"], number, found["what"], found["mend"] or "")
