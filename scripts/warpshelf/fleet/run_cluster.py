"""A fleet's run: hand items to Ray, take in answers, and report what is left with its reason.

Enters: snippets, the address of a cluster, options. Leaves: verdicts, findings on nodes and kinds,
and the bundle with all records. Ray chooses the node, waits for a free GPU, and repeats what a lost
node had; here no more is handed out than it can use soon, and what it waits for in vain is noticed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from warpshelf.bench import pool
from warpshelf.bench.plan import Options
from warpshelf.bench.run import SPENT, Verdict
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding
from warpshelf.core.project import Project
from warpshelf.fleet import checkout_bundle, node
from warpshelf.fleet.checkout_bundle import ResultQueue, judge_answer, left_verdict
from warpshelf.fleet.cluster import Cluster, NoAnswer, Ref, Work
from warpshelf.fleet.queue import Inventory, Item, Kind, discover_nodes, plan_items

GRACE = 120.0  # seconds that a kind may be without a node before its items are left
SLACK = 60.0  # seconds beyond its own limit after which a task is taken for unreachable
AHEAD = 16  # items handed to Ray for each kind, beyond those that its nodes can run at a time
LOOK = 2.0  # seconds between two looks at the nodes
TRIES = 3  # of one item on nodes that turn out unfit


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
    """One run of a fleet. `tell` hears how many items are due, each verdict, and lines of text.

    `kinds` are the accelerators to use, all by default. `work` and `look` are what a node does: run
    an item, say what it is.
    """

    project: Project
    options: Options
    kinds: tuple[str, ...] | None = None
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
        """Run whatever is stale among `snippets` on the kinds at `address`; every verdict.

        With `plan` it is only said what would run. A ShelfError says why the cluster, the file of
        `--out` or the disk here is of no use.
        """
        out, budget, only = self.options.out, self.options.budget, self.options.only
        deadline = math.inf if budget is None else time.monotonic() + budget
        chosen = list(snippets)
        assert out is not None
        with (
            ResultQueue(out, reads=plan) as spool,
            checkout_bundle.pack_checkout(self.project, chosen) as folder,
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
