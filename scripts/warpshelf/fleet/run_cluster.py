"""A fleet's run: pack what nodes read, hand items to Ray, take in answers, report what is left.

Ray chooses the node, waits for a free GPU, and repeats what a lost node had; here no more is handed
out than it can use soon, and what it waits for in vain is noticed. An answer is a verdict and a
record, which is kept only if it is whole, of the code that was sent, and of the kind it was for.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import warpshelf
from warpshelf.bench import assemble, pool
from warpshelf.bench.plan import Options
from warpshelf.bench.run import SPENT, Verdict
from warpshelf.contract import digest
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json, json_flaw, write_atomically
from warpshelf.core.findings import Finding, file_error
from warpshelf.core.project import Project
from warpshelf.fleet import node
from warpshelf.fleet.cluster import Cluster, NoAnswer, Ref, Work
from warpshelf.fleet.queue import Inventory, Item, Kind, discover_nodes, plan_items
from warpshelf.records import bundle
from warpshelf.records.schema import Record, shape_problem, validation_error

GRACE = 120.0  # seconds that a kind may be without a node before its items are left
SLACK = 60.0  # seconds beyond its own limit after which a task is taken for unreachable
AHEAD = 16  # items handed to Ray for each kind, beyond those that its nodes can run at a time
LOOK = 2.0  # seconds between two looks at the nodes
TRIES = 3  # of one item on nodes that turn out unfit
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
    """What is in the file `out`, and in the folder beside it a file a record: to keep the last of
    thousands costs no more than the first, and none is lost.

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


@dataclass
class _RunningItem:
    """An item that Ray has; where it runs, and since when, once that is known."""

    item: Item
    tries: int
    began: float | None = None
    node: str = ""


@dataclass
class _KindQueue:
    """The items of one kind that Ray does not have yet, each with the tries that it has had."""

    kind: Kind
    waiting: deque[tuple[Item, int]] = field(default_factory=deque)
    manned: float = 0.0  # when it last had a node that is fit


@dataclass
class Fleet:
    """One run of a fleet. `tell` hears how many items are due, each verdict, and lines of text;
    `work` and `look` are what a node does: run an item, say what it is."""

    project: Project
    options: Options
    kinds: tuple[str, ...] | None = None  # the accelerators to use, all by default
    tell: Callable[[object], None] = lambda event: None
    work: Work = node.run
    look: Work = node.describe_machine
    grace: float = GRACE
    slack: float = SLACK
    verdicts: list[Verdict] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    kept: int = 0  # records that are in the file of `--out`
    _flights: dict[Ref, _RunningItem] = field(default_factory=dict, init=False)
    _lanes: dict[str, _KindQueue] = field(default_factory=dict, init=False)
    _cluster: Cluster = field(init=False)
    _there: Inventory = field(init=False)

    def run_stale(
        self, snippets: Iterable[Snippet], address: str, plan: bool = False
    ) -> list[Verdict]:
        """Run whatever is stale among `snippets` on the kinds at `address`, or with `plan` say what
        would run; every verdict. A ShelfError says why the cluster, the file of `--out` or the disk
        here is of no use."""
        out, budget, only = self.options.out, self.options.budget, self.options.only
        deadline = math.inf if budget is None else time.monotonic() + budget
        chosen = list(snippets)
        assert out is not None
        with (
            ResultQueue(out, reads=plan) as spool,
            pack_checkout(self.project, chosen) as folder,
            Cluster(address, folder) as self._cluster,
        ):
            there = discover_nodes(self._cluster, self.look, self.kinds, only != "cpu")
            self._there = there
            for finding in there.findings:
                self._report_event(finding)
            self.tell(there.summary_line())
            kinds = [one for one in there.kinds if only in (None, one.only)]
            again = bool(self.options.repeats)
            items, settled = plan_items(chosen, kinds, spool.made, again, self.options.workers)
            self.tell(len(items))
            for verdict in settled:
                self._report_event(verdict)
            for item in items:
                fresh = _KindQueue(item.kind, manned=time.monotonic())
                self._lanes.setdefault(item.kind.slug, fresh).waiting.append((item, 0))
            if plan:
                for slug, lane in self._lanes.items():
                    names = ", ".join(item.snippet.id for item, _ in lane.waiting)
                    self.tell(f"{lane.kind.name} ({slug}): {len(lane.waiting)} to run: {names}")
            else:
                self.kept = len(spool.records)
                self._run_items(spool, deadline)
        return self.verdicts

    def mark_left(self, why: str, slug: str | None = None) -> list[Ref]:
        """Have a verdict on all that was not reached, of one kind if named; what Ray has of it."""
        refs = [ref for ref, one in self._flights.items() if slug in (None, one.item.kind.slug)]
        items = [self._flights.pop(ref).item for ref in refs]
        for name, lane in self._lanes.items():
            if slug in (None, name):
                items += [item for item, _ in lane.waiting]
                lane.waiting.clear()
        for item in items:
            self._report_event(left_verdict(item, why))
        return refs

    def _run_items(self, spool: ResultQueue, deadline: float) -> None:
        looked = -math.inf
        while self._flights or any(lane.waiting for lane in self._lanes.values()):
            now = time.monotonic()
            if now >= deadline:
                self._cluster.cancel_tasks(self.mark_left(SPENT))
                return
            if now - looked >= LOOK:
                looked = now
                for name in self._there.update_nodes(self._cluster.live_nodes()):
                    self.tell(f"node {name}: is lost; Ray repeats its work")
                self._watch_tasks(now)
                self._watch_kinds(now)
            for lane in self._lanes.values():
                self._hand_out(lane)
            for ref in self._cluster.wait_answers(min(LOOK, max(0.0, deadline - now))):
                self._take_answer(spool, ref)

    def _hand_out(self, lane: _KindQueue) -> None:
        """Give Ray the next items of a kind, as many as it can soon use."""
        kind, nodes = lane.kind, self._there.fit_nodes(lane.kind)
        units = sum(one.gpus if kind.accelerator else one.cpus for one in nodes)
        room = units + AHEAD - self._count_flights(kind)
        for _ in range(min(room, len(lane.waiting))):
            item, tries = lane.waiting.popleft()
            ref = self._cluster.start_task(
                self.work,
                item.task_details(),
                gpus=item.gpus,
                cpus=item.cpus,
                accelerator=kind.accelerator,
                avoid=self._there.excluded_nodes(kind),
            )
            self._flights[ref] = _RunningItem(item, tries)

    def _count_flights(self, kind: Kind) -> int:
        return sum(one.item.kind.slug == kind.slug for one in self._flights.values())

    def _take_answer(self, spool: ResultQueue, ref: Ref) -> None:
        """Take in one answer: keep its record, end its item or have it tried again."""
        answer = self._cluster.get_answer(ref)
        flight = self._flights.pop(ref)
        item, id_ = flight.item, "" if isinstance(answer, NoAnswer) else str(answer["node"])
        result = judge_answer(item, answer, self._there.node_name(id_))
        if (record := result.record) is not None:
            if self.options.origin and item.kind.accelerator:
                record["origin"] = self.options.origin
            with pool.defer_signals():  # a record and its verdict go together
                spool.save_record(record)
                self.kept = len(spool.records)
                assert result.verdict is not None
                self._report_event(result.verdict)
            return
        if result.unfit and (finding := self._there.exclude_node(id_, result.unfit)):
            self._report_event(finding)
        if result.slug:  # it came later: of the same accelerator, and yet another device
            self._there.slugs[id_] = result.slug
        if result.verdict is None and flight.tries + 1 < TRIES:
            self._lanes[item.kind.slug].waiting.appendleft((item, flight.tries + 1))
        else:
            self._report_event(result.verdict or left_verdict(item, result.why))

    def _watch_tasks(self, now: float) -> None:
        """Note which items began, and cancel those that take too long."""
        by_key = {flight.item.key: flight for flight in self._flights.values()}
        for key, id_ in self._cluster.begun_tasks():
            if flight := by_key.get(key):
                flight.began, flight.node = now, id_
        for ref, flight in list(self._flights.items()):
            limit = flight.item.limit + self.slack
            if flight.began is not None and now - flight.began > limit:
                name = self._there.node_name(flight.node)
                del self._flights[ref]
                self._cluster.cancel_tasks([ref], force=True)
                why = f"node {name} did not answer within {limit:g} s"
                self._report_event(left_verdict(flight.item, why))
                what = f"did not answer to {flight.item.key} within {limit:g} s"
                mend = "look at its worker there"
                self._report_event(Finding(f"node {name}", None, what, mend))

    def _watch_kinds(self, now: float) -> None:
        """Give up on snippets that wait for a kind that is gone."""
        for slug, lane in self._lanes.items():
            idle = not (lane.waiting or self._count_flights(lane.kind))
            if idle or self._there.fit_nodes(lane.kind):
                lane.manned = now
            elif now - lane.manned > self.grace:
                why, count = f"no node with {lane.kind.name} is left", len(self.verdicts)
                self._cluster.cancel_tasks(self.mark_left(why, slug))
                what = f"{why}: {len(self.verdicts) - count} snippets were not run on {slug}"
                mend = "add one and run again to continue"
                self._report_event(Finding("fleet", None, what, mend))

    def _report_event(self, found: Verdict | Finding) -> None:
        if isinstance(found, Finding):
            self.findings.append(found)
            self.tell(str(found))
        else:
            self.verdicts.append(found)
            self.tell(found)
