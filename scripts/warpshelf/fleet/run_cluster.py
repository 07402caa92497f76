"""A fleet's run: items handed to Ray, answers taken in, and what is left said with its reason.

Enters: snippets, the address of a cluster, options. Leaves: verdicts, findings on nodes and kinds,
and the bundle with all records. Ray chooses the node, waits for a free GPU, and repeats what a lost
node had; what is done here is to hand out no more than it can use soon, and to notice what Ray
waits for without end.
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
from warpshelf.fleet.queue import LOOKING, Inventory, Item, Kind, discover_nodes, plan_items

GRACE = 120.0  # seconds that a kind may be without a node before its items are left
SLACK = 60.0  # seconds beyond its own limit after which a task is taken for unreachable
AHEAD = 16  # items handed to Ray for each kind, beyond those that its nodes can run at a time
LOOK = 2.0  # seconds between two looks at the nodes
TRIES = 3  # of one item on nodes that turn out unfit


@dataclass(frozen=True)
class Said:
    """An event: one line on the fleet itself; `wrong` where it is a finding."""

    line: str
    wrong: bool = True


@dataclass(frozen=True)
class Due:
    """An event: how many items are to be run."""

    items: int


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
    flying: int = 0
    manned: float = 0.0  # when it last had a node that is fit


@dataclass
class Fleet:
    """One run of a fleet. `tell` hears the plan, each verdict, and lines on the fleet itself.

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
    looking: float = LOOKING
    verdicts: list[Verdict] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    flights: dict[Ref, _RunningItem] = field(default_factory=dict)
    lanes: dict[str, _KindQueue] = field(default_factory=dict)
    kept: int = 0  # records that are in the file of `--out`

    def run_stale(
        self, snippets: Iterable[Snippet], address: str, plan: bool = False
    ) -> list[Verdict]:
        """Run whatever is stale among `snippets` on the kinds at `address`; every verdict.

        With `plan` nothing is run: it is said what would be.

        Raises:
            ShelfError: the cluster cannot be used, the file of `--out` cannot be carried on, or the
                disk here is full.
        """
        budget = self.options.budget
        deadline = math.inf if budget is None else time.monotonic() + budget
        chosen = list(snippets)
        assert self.options.out is not None
        with (
            ResultQueue(self.options.out, reads=plan) as spool,
            checkout_bundle.pack_checkout(self.project, chosen) as folder,
            Cluster(address, folder) as cluster,
        ):
            gpus = self.options.only != "cpu"
            there = discover_nodes(cluster, self.look, self.kinds, self.looking, gpus)
            for finding in there.findings:
                self._add_finding(finding)
            self.tell(Said(there.summary_line(), wrong=False))
            self._plan_items(chosen, there, spool)
            if plan:
                self._say_plan()
            else:
                self.kept = spool.count
                self._run_items(cluster, there, spool, deadline)
        return self.verdicts

    def _plan_items(self, snippets: list[Snippet], there: Inventory, spool: ResultQueue) -> None:
        only = self.options.only
        kinds = [
            one
            for one in there.kinds
            if only is None or (one.accelerator is None) == (only == "cpu")
        ]
        again = bool(self.options.repeats)
        due = plan_items(snippets, kinds, spool.made, again, self.options.workers)
        self.tell(Due(len(due.items)))
        for verdict in due.verdicts:
            self._add_verdict(verdict)
        for item in due.items:
            fresh = _KindQueue(item.kind, manned=time.monotonic())
            lane = self.lanes.setdefault(item.kind.slug, fresh)
            lane.waiting.append((item, 0))

    def _say_plan(self) -> None:
        for lane in self.lanes.values():
            names = ", ".join(item.snippet.id for item, _ in lane.waiting)
            line = f"{lane.kind.name} ({lane.kind.slug}): {len(lane.waiting)} to run: {names}"
            self.tell(Said(line, wrong=False))

    def mark_left(self, why: str) -> None:
        """Have a verdict on all that was planned and not reached."""
        items = [flight.item for flight in self.flights.values()]
        items += [item for lane in self.lanes.values() for item, _ in lane.waiting]
        for item in items:
            self._add_verdict(left_verdict(item, why))
        self.flights.clear()
        self.lanes.clear()

    def _run_items(
        self, cluster: Cluster, there: Inventory, spool: ResultQueue, deadline: float
    ) -> None:
        looked = -math.inf
        while any(lane.waiting or lane.flying for lane in self.lanes.values()):
            now = time.monotonic()
            if now >= deadline:
                self._cancel_items(cluster, SPENT)
                return
            if now - looked >= LOOK:
                looked = now
                for name in there.update_nodes(cluster.live_nodes()):
                    self.tell(Said(f"node {name}: is lost; Ray repeats what it was doing", False))
                self._watch_tasks(cluster, there, now)
            for lane in self.lanes.values():
                self._hand_out(cluster, there, lane)
            for ref in cluster.wait_answers(min(LOOK, max(0.0, deadline - now))):
                self._take_answer(cluster, there, spool, ref)

    def _hand_out(self, cluster: Cluster, there: Inventory, lane: _KindQueue) -> None:
        """Give Ray the next items of a kind, as many as it can soon use."""
        on_gpu = lane.kind.accelerator is not None
        units = sum(one.gpus if on_gpu else one.cpus for one in there.fit_nodes(lane.kind))
        while lane.waiting:
            if lane.flying >= units + AHEAD:
                return
            item, tries = lane.waiting.popleft()
            ref = cluster.start_task(
                self.work,
                item.task_details(),
                gpus=item.gpus,
                cpus=item.cpus,
                accelerator=item.kind.accelerator,
                avoid=there.excluded_nodes(item.kind),
            )
            self.flights[ref] = _RunningItem(item, tries)
            lane.flying += 1

    def _take_answer(
        self, cluster: Cluster, there: Inventory, spool: ResultQueue, ref: Ref
    ) -> None:
        """Take in one answer: keep its record, end its item or have it tried again."""
        answer = cluster.get_answer(ref)
        flight = self._pop_flight(ref)
        item, id_ = flight.item, "" if isinstance(answer, NoAnswer) else str(answer["node"])
        result = judge_answer(item, answer, there.node_name(id_))
        if (record := result.record) is not None:
            if self.options.origin and item.kind.accelerator:
                record["origin"] = self.options.origin
            with pool.defer_signals():  # a record and its verdict go together
                spool.save_record(record)
                self.kept = spool.count
                assert result.verdict is not None
                self._add_verdict(result.verdict)
            return
        if result.unfit and (finding := there.exclude_node(id_, result.unfit)):
            self._add_finding(finding)
        if result.slug:  # it came later: of the same accelerator, and yet another device
            there.slugs[id_] = result.slug
        if result.verdict is not None:
            self._add_verdict(result.verdict)
        elif flight.tries + 1 >= TRIES:
            self._add_verdict(left_verdict(item, result.why))
        else:
            self.lanes[item.kind.slug].waiting.appendleft((item, flight.tries + 1))

    def _watch_tasks(self, cluster: Cluster, there: Inventory, now: float) -> None:
        """See which items began, which take too long, and which wait for a kind that is gone."""
        by_key = {flight.item.key: flight for flight in self.flights.values()}
        for key, id_ in cluster.begun_tasks():
            if flight := by_key.get(key):
                flight.began, flight.node = now, id_
        for ref, flight in list(self.flights.items()):
            limit = flight.item.limit + self.slack
            if flight.began is not None and now - flight.began > limit:
                name = there.node_name(flight.node)
                self._pop_flight(ref)
                cluster.cancel_tasks([ref], force=True)
                self._add_verdict(
                    left_verdict(flight.item, f"node {name} did not answer within {limit:g} s")
                )
                what = f"did not answer to {flight.item.key} within {limit:g} s"
                self._add_finding(
                    Finding(f"node {name}", None, what, "see what became of its worker")
                )
        for slug, lane in self.lanes.items():
            if there.fit_nodes(lane.kind) or not (lane.waiting or lane.flying):
                lane.manned = now
            elif now - lane.manned > self.grace:
                why = f"no node with {lane.kind.name} is left"
                count = self._cancel_items(cluster, why, slug)
                what = f"{why}: {count} snippets were not run on {slug}"
                self._add_finding(
                    Finding("fleet", None, what, "add one, and run it again: it goes on")
                )

    def _cancel_items(self, cluster: Cluster, why: str, slug: str | None = None) -> int:
        """Give up all items, or those of one kind; how many."""
        count = 0
        for name, lane in self.lanes.items():
            if slug not in (None, name):
                continue
            mine = [ref for ref, one in self.flights.items() if one.item.kind == lane.kind]
            cluster.cancel_tasks(mine)
            items = [self._pop_flight(ref).item for ref in mine]
            items += [item for item, _ in lane.waiting]
            lane.waiting.clear()
            for item in items:
                self._add_verdict(left_verdict(item, why))
            count += len(items)
        return count

    def _pop_flight(self, ref: Ref) -> _RunningItem:
        flight = self.flights.pop(ref)
        self.lanes[flight.item.kind.slug].flying -= 1
        return flight

    def _add_finding(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.tell(Said(str(finding)))

    def _add_verdict(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.tell(verdict)
