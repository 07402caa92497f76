"""What a fleet has to do: each stale snippet once on each kind of machine that can run it.

Enters: snippets, the records that are here, a cluster, the kinds asked for. Leaves: items, and the
verdicts on those that need no run; kinds, as their nodes tell them, the nodes that are not to be
used for each, and what is wrong with nodes or with what was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from warpshelf.bench import assemble, pool
from warpshelf.bench.plan import COMPILE_SECONDS
from warpshelf.bench.run import Verdict
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding
from warpshelf.fleet import node
from warpshelf.fleet.cluster import Cluster, NoAnswer, Node, Work
from warpshelf.records import store
from warpshelf.records.ledger import without_gpu

# Beside its jobs a run imports torch, and the first on a node compiles the engine of papergpu.
START = 180.0  # seconds
NONE, PLACED, BROUGHT = range(3)  # where a current record is, if there is one
Held = Mapping[str, Mapping[str, tuple[str, str]]]  # digest and date, by snippet and machine


@dataclass(frozen=True)
class Kind:
    """One kind of machine in the cluster: what Ray calls its accelerator, None for a CPU.

    `machine` is as the records have it, with the GPUs of a whole node. `cpus` is how many of a
    node's cores one item may use.
    """

    accelerator: str | None
    machine: dict[str, Any] = field(hash=False)
    cpus: int = 1

    @property
    def slug(self) -> str:
        """What a record of it is named after."""
        return str(self.machine["slug"])

    @property
    def name(self) -> str:
        """What people call it."""
        return self.accelerator or "CPU"


@dataclass(frozen=True)
class Item:
    """One snippet to run once on one kind of machine."""

    snippet: Snippet
    kind: Kind
    workers: int | None = None

    @property
    def key(self) -> str:
        """Its name, as the cluster sees it."""
        return f"{self.snippet.id} on {self.kind.slug}"

    @property
    def gpus(self) -> int:
        """How many GPUs it holds while it runs."""
        return max(1, self.snippet.needs.get("gpus", 1)) if self.kind.accelerator else 0

    @property
    def cpus(self) -> int:
        """How many cores it holds: those that go with its GPUs."""
        return self.kind.cpus * max(1, self.gpus)

    @cached_property
    def limit(self) -> float:
        """Seconds after which its runner hangs: all its jobs in a row, each to its own limit."""
        work = assemble.SnippetRun(self.snippet, self.kind.machine, None)
        jobs = [*work.untimed_jobs(COMPILE_SECONDS), work.timing_job()]
        return START + pool.LOOK_SECONDS + sum(job.seconds for job in jobs if job is not None)

    def task_details(self) -> dict[str, Any]:
        """What the node is told."""
        return {
            "key": self.key,
            "snippet": self.snippet.id,
            "digest": self.snippet.digest,
            "slug": self.kind.slug,
            "only": "gpu" if self.kind.accelerator else "cpu",
            "workers": self.workers or max(1, self.cpus),
            "seconds": self.limit,
        }


@dataclass
class Agenda:
    """The items to run, the stalest first, and what is settled without."""

    items: list[Item] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def plan_items(
    snippets: Iterable[Snippet],
    kinds: list[Kind],
    held: Held,
    force: bool = False,
    workers: int | None = None,
) -> Agenda:
    """What is due on which of `kinds`, given the records of this checkout and those of `held`."""
    found = Agenda()
    rows: list[tuple[str, Item]] = []
    for snippet in snippets:
        if snippet.findings:
            found.verdicts.append(Verdict(snippet.id, "failed", "not run", snippet.findings))
            continue
        able, refused = _able_kinds(snippet, kinds)
        found.verdicts.extend(refused)
        made = _record_states(snippet, held)
        for kind in able:
            current, date = made.get(kind.slug, (NONE, ""))
            if current >= (BROUGHT if force else PLACED):
                found.verdicts.append(Verdict(snippet.id, "current", machine=kind.slug))
            else:
                rows.append((date, Item(snippet, kind, workers)))
    rows.sort(key=lambda row: (row[0], row[1].key))
    found.items = [item for _, item in rows]
    return found


def _able_kinds(snippet: Snippet, kinds: list[Kind]) -> tuple[list[Kind], list[Verdict]]:
    """The kinds that can run a snippet; the verdicts on the others, one if no GPU's can."""
    able: list[Kind] = []
    why: dict[Kind, str] = {}
    for kind in kinds:
        if kind.accelerator is None:
            # Of a kernel that cannot be executed there, what is due is listed all the same.
            reason = None if snippet.kind == "kernel" else snippet.cannot_run(None, 0)
            if reason:
                why[kind] = reason
            else:
                able.append(kind)
        elif snippet.wants_gpu:
            reason = snippet.cannot_run(kind.machine["sm"], kind.machine["gpus"])
            if reason:
                why[kind] = reason
            else:
                able.append(kind)
    if len(why) > 1 and not any(kind.accelerator for kind in able):
        reasons = ", ".join(f"{kind.name}: {reason}" for kind, reason in why.items())
        return able, [Verdict(snippet.id, "skipped", reasons, machine="any kind of this cluster")]
    return able, [
        Verdict(snippet.id, "skipped", reason, machine=kind.slug) for kind, reason in why.items()
    ]


def _record_states(snippet: Snippet, held: Held) -> dict[str, tuple[int, str]]:
    """Of each machine that a snippet has a record of: whether it is current, and when it was made.

    A record in its place and one that was brought home count alike, but where all is forced: what
    was brought home is this run's own, cut short, and another file begins another run.
    """
    records, _ = store.load_records(snippet)
    rows = [
        (one["machine"]["slug"], PLACED, one["digest"], one["date"]) for one in records.values()
    ]
    rows += [(slug, BROUGHT, *row) for slug, row in held.get(snippet.id, {}).items()]
    made: dict[str, tuple[int, str]] = {}
    for slug, where, digest, date in rows:
        state = where if digest == snippet.digest else NONE
        made[slug] = max(made.get(slug, (NONE, "")), (state, date))
    return made


def cpu_kind(machine: dict[str, Any]) -> Kind:
    """The CPU, as one of the kinds; any node's will do."""
    return Kind(None, without_gpu(machine))


LOOKING = node.DESCRIBING + 30  # seconds until a node that has not described itself is left out
START_THERE = (
    "start Ray there in an environment with torch (for its GPU, if it has one), Triton, NumPy, "
    "typer, rich and PyYAML"
)


@dataclass
class Inventory:
    """What there is: kinds, and by node why it is not used at all."""

    kinds: list[Kind] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    slugs: dict[str, str] = field(default_factory=dict)  # of a GPU, by node
    unfit: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # also of nodes that are lost
    gpus: bool = True  # whether those of the nodes are of use

    def update_nodes(self, nodes: Iterable[Node]) -> list[str]:
        """Know these as the nodes that are alive; the names of those that no longer are."""
        seen = nodes if self.gpus else [replace(one, accelerator=None, gpus=0) for one in nodes]
        before, self.nodes = self.nodes, {one.id: one for one in seen}
        self.names |= {one.id: one.name for one in self.nodes.values()}
        return [one.name for id_, one in before.items() if id_ not in self.nodes]

    def excluded_nodes(self, kind: Kind) -> set[str]:
        """The nodes that Ray must not choose for a kind: the unfit, and those of another device."""
        if kind.accelerator is None:
            return set(self.unfit)
        others = {
            id_ for id_, slug in self.slugs.items() if slug != kind.slug and id_ in self.nodes
        }
        return others | set(self.unfit)

    def fit_nodes(self, kind: Kind) -> list[Node]:
        """The nodes that are fit for a kind, among those last seen alive."""
        avoid = self.excluded_nodes(kind)
        return [
            one
            for one in self.nodes.values()
            if one.id not in avoid
            and (one.accelerator == kind.accelerator if kind.accelerator else one.cpus > 0)
        ]

    def node_name(self, id_: str) -> str:
        """What people call a node."""
        return self.names.get(id_, id_[:6] or "unknown")

    def exclude_node(self, id_: str, why: str) -> Finding | None:
        """Use a node no more; the line that says so, the first time."""
        if id_ in self.unfit:
            return None
        self.unfit[id_] = why
        mend = "free some space there" if node.FULL in why else START_THERE
        return Finding(f"node {self.node_name(id_)}", None, why, mend)

    def summary_line(self) -> str:
        """What there is, on one line."""
        told = []
        for kind in self.kinds:
            nodes = self.fit_nodes(kind)
            many = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
            if kind.accelerator:
                gpus = sum(one.gpus for one in nodes)
                told.append(f"{kind.name} ({kind.slug}): {gpus} on {many}")
            else:
                told.append(f"CPU: {sum(one.cpus for one in nodes)} cores on {many}")
        return "; ".join(told)


def discover_nodes(
    cluster: Cluster,
    look: Work = node.describe_machine,
    wanted: tuple[str, ...] | None = None,
    seconds: float = LOOKING,
    gpus: bool = True,
) -> Inventory:
    """Ask each node what it is. Of the accelerators those of `wanted`, all where it is None.

    Without `gpus` only CPUs matter, those of nodes with a GPU included.
    """
    found = Inventory(gpus=gpus)
    found.update_nodes(cluster.live_nodes())
    there = sorted({one.accelerator for one in found.nodes.values() if one.accelerator})
    for name in wanted or ():
        if name not in there:
            have = f"it has {', '.join(there)}" if there else "no node of it has a GPU"
            found.findings.append(Finding("--kinds", None, f"nobody has {name}", have))
    for one in found.nodes.values():
        if one.gpus and not one.accelerator:
            what = f"has {one.gpus} GPUs whose type Ray does not know"
            mend = """start Ray there with --resources='{"accelerator_type:H100": 1}' or its like"""
            found.findings.append(Finding(f"node {one.name}", None, what, mend))
    asked = {
        one.id: one
        for one in found.nodes.values()
        if wanted is None or one.accelerator in (None, *wanted)
    }
    machines = dict(_describe_nodes(cluster, look, asked, seconds, found))
    kinds: dict[str, Kind] = {}
    for id_, machine in sorted(machines.items(), key=lambda row: found.nodes[row[0]].name):
        one = found.nodes[id_]
        if not one.accelerator:
            continue
        found.slugs[id_] = slug = machine["slug"]
        # Its GPUs share a node's cores: so long as all are busy, no check of a CPU disturbs them.
        share, gpus = one.cpus // max(1, one.gpus), machine["gpus"]
        if slug in kinds:
            share = min(share, kinds[slug].cpus)
            gpus = max(gpus, kinds[slug].machine["gpus"])
        kinds[slug] = Kind(one.accelerator, {**machine, "gpus": gpus}, share)
    found.kinds = list(kinds.values())
    if fit := [machine for id_, machine in machines.items() if found.nodes[id_].cpus]:
        found.kinds.append(cpu_kind(fit[0]))
    return found


def _describe_nodes(
    cluster: Cluster, look: Work, asked: dict[str, Node], seconds: float, found: Inventory
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the nodes say of themselves; those that say nothing become unfit."""
    until = time.monotonic() + seconds
    # It holds nothing: a node whose GPUs are busy can say what they are.
    flying = {
        cluster.start_task(look, _describe_task(one), on=id_): id_ for id_, one in asked.items()
    }
    while flying and (left := until - time.monotonic()) > 0:
        for ref in cluster.wait_answers(min(left, 1.0)):
            id_, answer = flying.pop(ref), cluster.get_answer(ref)
            if isinstance(answer, NoAnswer):
                if any(one.id == id_ for one in cluster.live_nodes()):
                    _mark_unfit(found, id_, answer.why)
                else:  # it was lost meanwhile, and Ray told of it late
                    found.nodes.pop(id_)
            elif "machine" in answer:
                yield id_, answer["machine"]
            else:
                _mark_unfit(found, id_, str(answer["unfit"]))
    for id_ in flying.values():
        _mark_unfit(found, id_, f"did not say within {seconds:g} s what it is")
    cluster.cancel_tasks(flying)


def _mark_unfit(found: Inventory, id_: str, why: str) -> None:
    if finding := found.exclude_node(id_, why):
        found.findings.append(finding)


def _describe_task(one: Node) -> dict[str, Any]:
    return {"key": f"describe {one.id}", "gpus": one.gpus, "accelerator": one.accelerator}
