"""What a fleet has to do: each stale snippet once on each kind of machine that can run it; and the
kinds and nodes that there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from warpshelf.bench import assemble, pool
from warpshelf.bench.run import Verdict
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import Finding
from warpshelf.fleet import node
from warpshelf.fleet.cluster import Cluster, NoAnswer, Node, Work
from warpshelf.records import store
from warpshelf.records.ledger import without_gpu

# Beside its jobs a run imports torch, and the first on a node compiles the engine of papergpu.
START = 180.0  # seconds
LOOKING = node.DESCRIBING + 30  # seconds until a node that has not described itself is left out
START_THERE = (
    "start Ray there in an environment with torch (for its GPU, if it has one), Triton, NumPy, "
    "typer, rich and PyYAML"
)
NONE, PLACED, BROUGHT = range(3)  # where a current record is, if there is one
Held = Mapping[str, Mapping[str, tuple[str, str]]]  # digest and date, by snippet and machine


@dataclass(frozen=True)
class Kind:
    """One kind of machine in the cluster: what Ray calls its accelerator, None for a CPU."""

    accelerator: str | None
    machine: dict[str, Any] = field(hash=False)  # as records have it, with the GPUs of a whole node
    cpus: int = 1  # how many of a node's cores one item may use

    @property
    def slug(self) -> str:
        """What a record of it is named after."""
        return str(self.machine["slug"])

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.accelerator or "CPU"

    @property
    def only(self) -> str:
        """What `shelf run --only` calls it."""
        return "gpu" if self.accelerator else "cpu"

    def refusal_reason(self, snippet: Snippet) -> str | None:
        """Why it cannot run a snippet; "" if the snippet does not need such a machine."""
        if self.accelerator:
            able = snippet.cannot_run(self.machine["sm"], self.machine["gpus"])
            return able if snippet.wants_gpu else ""
        # Of a kernel that cannot be executed there, what is due is listed all the same.
        return None if snippet.kind == "kernel" else snippet.cannot_run(None, 0)


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
        jobs = [*work.untimed_jobs(), work.timing_job()]
        return START + pool.LOOK_SECONDS + sum(job.seconds for job in jobs if job is not None)

    def task_details(self) -> dict[str, Any]:
        """What the node is told."""
        return {
            "key": self.key,
            "snippet": self.snippet.id,
            "digest": self.snippet.digest,
            "slug": self.kind.slug,
            "only": self.kind.only,
            "workers": self.workers or max(1, self.cpus),
            "seconds": self.limit,
        }


def plan_items(
    snippets: Iterable[Snippet],
    kinds: list[Kind],
    held: Held,
    force: bool = False,
    workers: int | None = None,
) -> tuple[list[Item], list[Verdict]]:
    """The items to run, the stalest first, and the verdicts on what is settled without: what is
    current by a record of this checkout or by one of `held`. With `force` the latter alone count:
    they are this run's own, which was cut short."""
    verdicts: list[Verdict] = []
    rows: list[tuple[str, Item]] = []
    for snippet in snippets:
        if snippet.findings:
            verdicts.append(Verdict(snippet.id, "failed", "not run", snippet.findings))
            continue
        reasons = {kind: kind.refusal_reason(snippet) for kind in kinds}
        able = [kind for kind, why in reasons.items() if why is None]
        refused = {kind: why for kind, why in reasons.items() if why}
        if len(refused) > 1 and not any(kind.accelerator for kind in able):
            told = ", ".join(f"{kind.name}: {why}" for kind, why in refused.items())
            machine = "any kind of this cluster"
            verdicts.append(Verdict(snippet.id, "skipped", told, machine=machine))
        else:
            for kind, why in refused.items():
                verdicts.append(Verdict(snippet.id, "skipped", why, machine=kind.slug))
        made = _record_states(snippet, held)
        for kind in able:
            current, date = made.get(kind.slug, (NONE, ""))
            if current >= (BROUGHT if force else PLACED):
                verdicts.append(Verdict(snippet.id, "current", machine=kind.slug))
            else:
                rows.append((date, Item(snippet, kind, workers)))
    rows.sort(key=lambda row: (row[0], row[1].key))
    return [item for _, item in rows], verdicts


def _record_states(snippet: Snippet, held: Held) -> dict[str, tuple[int, str]]:
    """Of each machine with a record: where a current one is, and when the newest was made."""
    placed = store.load_records(snippet)[0].values()
    rows = [(one["machine"]["slug"], PLACED, one["digest"], one["date"]) for one in placed]
    rows += [(slug, BROUGHT, *row) for slug, row in held.get(snippet.id, {}).items()]
    made: dict[str, tuple[int, str]] = {}
    for slug, where, digest, date in rows:
        state = where if digest == snippet.digest else NONE
        made[slug] = max(made.get(slug, (NONE, "")), (state, date))
    return made


def cpu_kind(machine: dict[str, Any]) -> Kind:
    """The CPU, as one of the kinds; any node's will do."""
    return Kind(None, without_gpu(machine))


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
        slugs = self.slugs if kind.accelerator else {}
        others = {id_ for id_, slug in slugs.items() if slug != kind.slug and id_ in self.nodes}
        return others | set(self.unfit)

    def fit_nodes(self, kind: Kind) -> list[Node]:
        """The nodes that are fit for a kind, among those last seen alive."""
        avoid = self.excluded_nodes(kind)
        left = [one for one in self.nodes.values() if one.id not in avoid]
        if kind.accelerator is None:
            return [one for one in left if one.cpus > 0]
        return [one for one in left if one.accelerator == kind.accelerator]

    def node_name(self, id_: str) -> str:
        """The name of a node for people."""
        return self.names.get(id_, id_[:6] or "unknown")

    def exclude_node(self, id_: str, why: str) -> Finding | None:
        """Stop using a node; the finding that says so, the first time."""
        if id_ in self.unfit:
            return None
        self.unfit[id_] = why
        mend = "free some space there" if node.FULL in why else START_THERE
        return Finding(f"node {self.node_name(id_)}", None, why, mend)

    def summary_line(self) -> str:
        """The kinds of machine in the cluster, on one line."""
        told = []
        for kind in self.kinds:
            nodes = self.fit_nodes(kind)
            many = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
            gpus, cpus = (sum(getattr(one, key) for one in nodes) for key in ("gpus", "cpus"))
            held = (
                f"{kind.name} ({kind.slug}): {gpus}" if kind.accelerator else f"CPU: {cpus} cores"
            )
            told.append(f"{held} on {many}")
        return "; ".join(told)


def discover_nodes(
    cluster: Cluster,
    look: Work = node.describe_machine,
    wanted: tuple[str, ...] | None = None,
    gpus: bool = True,
) -> Inventory:
    """Have each node describe itself: only those `wanted`, if given; only CPUs without `gpus`."""
    found = Inventory(gpus=gpus)
    found.update_nodes(cluster.live_nodes())
    there = sorted({one.accelerator for one in found.nodes.values() if one.accelerator})
    have = f"the cluster has {', '.join(there)}" if there else "the cluster has no GPU"
    unknown = [name for name in wanted or () if name not in there]
    found.findings += [Finding("--kinds", None, f"no node has {name}", have) for name in unknown]
    for one in found.nodes.values():
        if one.gpus and not one.accelerator:
            what = f"has {one.gpus} GPUs whose type Ray does not know"
            mend = """start Ray there with --resources='{"accelerator_type:H100": 1}' or similar"""
            found.findings.append(Finding(f"node {one.name}", None, what, mend))
    machines: dict[str, dict[str, Any]] = {}
    for id_, said in _describe_nodes(cluster, look, wanted, found):
        if not isinstance(said, str):
            machines[id_] = said
        elif finding := found.exclude_node(id_, said):
            found.findings.append(finding)
    kinds: dict[str, Kind] = {}
    for id_, machine in sorted(machines.items(), key=lambda row: found.nodes[row[0]].name):
        one = found.nodes[id_]
        if not one.accelerator:
            continue
        found.slugs[id_] = slug = machine["slug"]
        # Its GPUs share a node's cores: so long as all are busy, no check of a CPU disturbs them.
        share, count = one.cpus // max(1, one.gpus), machine["gpus"]
        if slug in kinds:
            share = min(share, kinds[slug].cpus)
            count = max(count, kinds[slug].machine["gpus"])
        kinds[slug] = Kind(one.accelerator, {**machine, "gpus": count}, share)
    found.kinds = list(kinds.values())
    if fit := [machine for id_, machine in machines.items() if found.nodes[id_].cpus]:
        found.kinds.append(cpu_kind(fit[0]))
    return found


def _describe_nodes(
    cluster: Cluster, look: Work, wanted: tuple[str, ...] | None, found: Inventory
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """The machine that each node describes, or in words why it is unfit."""
    until = time.monotonic() + LOOKING
    flying = {}
    for id_, one in found.nodes.items():
        if wanted is None or one.accelerator in (None, *wanted):
            # It holds nothing: a node whose GPUs are busy can say what they are.
            task = {"key": f"describe {id_}", "gpus": one.gpus, "accelerator": one.accelerator}
            flying[cluster.start_task(look, task, on=id_)] = id_
    while flying and (left := until - time.monotonic()) > 0:
        for ref in cluster.wait_answers(min(left, 1.0)):
            id_, answer = flying.pop(ref), cluster.get_answer(ref)
            if not isinstance(answer, NoAnswer):
                yield id_, answer.get("machine") or str(answer["unfit"])
            elif any(one.id == id_ for one in cluster.live_nodes()):
                yield id_, answer.why
            else:  # it was lost meanwhile, and Ray told of it late
                found.nodes.pop(id_)
    yield from ((id_, f"did not describe itself within {LOOKING:g} s") for id_ in flying.values())
    cluster.cancel_tasks(flying)
