"""The kinds of machines that a cluster has, each told by its nodes themselves.

Enters: a cluster, the kinds asked for. Leaves: kinds, the nodes that are not to be used for each,
and what is wrong with nodes or with what was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from warpshelf.core.findings import Finding
from warpshelf.fleet import node
from warpshelf.fleet.agenda import Kind, cpu
from warpshelf.fleet.cluster import Cluster, Lost, Node, Work

LOOKING = node.DESCRIBING + 30  # seconds until a node that has not described itself is left out
START_THERE = (
    "start Ray there in an environment with torch (for its GPU, if it has one), Triton, NumPy, "
    "typer, rich and PyYAML"
)


@dataclass
class Muster:
    """What there is: kinds, and by node why it is not used at all."""

    kinds: list[Kind] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    slugs: dict[str, str] = field(default_factory=dict)  # of a GPU, by node
    unfit: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # also of nodes that are lost
    gpus: bool = True  # whether those of the nodes are of use

    def see(self, nodes: Iterable[Node]) -> list[str]:
        """Know these as the nodes that are alive; the names of those that no longer are."""
        seen = nodes if self.gpus else [replace(one, accelerator=None, gpus=0) for one in nodes]
        before, self.nodes = self.nodes, {one.id: one for one in seen}
        self.names |= {one.id: one.name for one in self.nodes.values()}
        return [one.name for id_, one in before.items() if id_ not in self.nodes]

    def avoid(self, kind: Kind) -> set[str]:
        """The nodes that Ray must not choose for a kind: the unfit, and those of another device."""
        if kind.accelerator is None:
            return set(self.unfit)
        others = {
            id_ for id_, slug in self.slugs.items() if slug != kind.slug and id_ in self.nodes
        }
        return others | set(self.unfit)

    def on(self, kind: Kind) -> list[Node]:
        """The nodes that are fit for a kind, among those last seen alive."""
        avoid = self.avoid(kind)
        return [
            one
            for one in self.nodes.values()
            if one.id not in avoid
            and (one.accelerator == kind.accelerator if kind.accelerator else one.cpus > 0)
        ]

    def name(self, id_: str) -> str:
        """What people call a node."""
        return self.names.get(id_, id_[:6] or "unknown")

    def exclude(self, id_: str, why: str) -> Finding | None:
        """Use a node no more; the line that says so, the first time."""
        if id_ in self.unfit:
            return None
        self.unfit[id_] = why
        mend = "free some space there" if node.FULL in why else START_THERE
        return Finding(f"node {self.name(id_)}", None, why, mend)

    def words(self) -> str:
        """What there is, on one line."""
        told = []
        for kind in self.kinds:
            nodes = self.on(kind)
            many = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
            if kind.accelerator:
                gpus = sum(one.gpus for one in nodes)
                told.append(f"{kind.name} ({kind.slug}): {gpus} on {many}")
            else:
                told.append(f"CPU: {sum(one.cpus for one in nodes)} cores on {many}")
        return "; ".join(told)


def muster(
    cluster: Cluster,
    look: Work = node.describe,
    wanted: tuple[str, ...] | None = None,
    seconds: float = LOOKING,
    gpus: bool = True,
) -> Muster:
    """Ask each node what it is. Of the accelerators those of `wanted`, all where it is None.

    Without `gpus` only CPUs matter, those of nodes with a GPU included.
    """
    found = Muster(gpus=gpus)
    found.see(cluster.nodes())
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
    machines = dict(_described(cluster, look, asked, seconds, found))
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
        found.kinds.append(cpu(fit[0]))
    return found


def _described(
    cluster: Cluster, look: Work, asked: dict[str, Node], seconds: float, found: Muster
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the nodes say of themselves; those that say nothing become unfit."""
    until = time.monotonic() + seconds
    # It holds nothing: a node whose GPUs are busy can say what they are.
    flying = {cluster.start(look, _question(one), on=id_): id_ for id_, one in asked.items()}
    while flying and (left := until - time.monotonic()) > 0:
        for ref in cluster.wait(min(left, 1.0)):
            id_, answer = flying.pop(ref), cluster.answer(ref)
            if isinstance(answer, Lost):
                if any(one.id == id_ for one in cluster.nodes()):
                    _unfit(found, id_, answer.why)
                else:  # it was lost meanwhile, and Ray told of it late
                    found.nodes.pop(id_)
            elif "machine" in answer:
                yield id_, answer["machine"]
            else:
                _unfit(found, id_, str(answer["unfit"]))
    for id_ in flying.values():
        _unfit(found, id_, f"did not say within {seconds:g} s what it is")
    cluster.cancel(flying)


def _unfit(found: Muster, id_: str, why: str) -> None:
    if finding := found.exclude(id_, why):
        found.findings.append(finding)


def _question(one: Node) -> dict[str, Any]:
    return {"key": f"describe {one.id}", "gpus": one.gpus, "accelerator": one.accelerator}
