"""What comm_model must show: executed bytes and hops, and published rates."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from snippets.comm_model import comm_model as model
from snippets.comm_model.comm_model import MACHINES, PROTOCOLS, Group, Routing
from snippets.facts import fact
from snippets.ring_steps import ring_steps as steps

RANKS = (2, 4, 8, 64)
SIZE = 2**20  # bytes, which every number of ranks here divides
EXECUTED = {
    "all_reduce": steps.ring,
    "all_gather": steps.all_gather,
    "reduce_scatter": steps.reduce_scatter,
}
RING, TREES = "ring-all-reduce, executed", "nccl-double-binary-trees, executed"
NODE = ("NCCL, one node of 8 GPUs", "NVLink SHARP, one node of 8 GPUs")
GOALS = (
    {"name": "a node of GPUs that nothing was fitted on", "sets": NODE, "median": 0.05},
    {"name": "any of them", "sets": NODE, "worst": 0.16},
    {"name": "DeepEP", "sets": ("DeepEP, 8 to 64 H800",), "within": 0.1, "share": 1.0},
)


def facts() -> list[dict[str, Any]]:
    """Bytes, hops and ports of the formulas against messages that were counted."""
    rows = []
    for collective in EXECUTED:
        for ranks in RANKS:
            rows += ring_facts(collective, ranks)
    for nodes in (4, 8, 64):
        rows += tree_facts(nodes)
    for inside in (1, 2, 4, 8):
        rows.append(port_fact(inside))
    rows += [*routing_facts(), *link_facts()]
    return rows


def ways(collective: str, group: Group) -> dict[tuple[str, str], model.Time]:
    """Each way by its algorithm and protocol."""
    found = model.ways(collective, SIZE, group)
    return {(way.algorithm, way.protocol): way for way in found}


def ring_facts(collective: str, ranks: int) -> list[dict[str, Any]]:
    """Bytes that a rank sends, and hops that it waits for, in rings that were run."""
    made = EXECUTED[collective](ranks)
    group = Group(MACHINES["H100"], ranks, min(ranks, 8))
    by, title = PROTOCOLS["LL"], f"{made.name}, {ranks} ranks"
    sent = model.ring_bytes(collective, SIZE, ranks)
    waited = ways(collective, group)["ring", "LL"].latency - by.start
    crossings = [0] * made.chunks
    for one in (message for step in made.steps for message in step):
        (chunk,) = one.chunks
        crossings[chunk] += one.source // 8 != one.target // 8
    across = min(crossings)
    due = (made.hops - across) * by.ring[0] + across * by.ring[1]
    # NCCL's count, nodes - 1 for each half, leaves out one crossing of an all-reduce.
    close = 0.03 if across else 1e-12
    return [
        fact(
            f"{title}: bytes that a rank sends",
            sent,
            max(made.sent(SIZE)),
            RING,
            0,
            "B",
        ),
        fact(
            f"{title}: seconds of its hops, 8 in a node", waited, due, RING, close, "s"
        ),
    ]


def tree_facts(nodes: int) -> list[dict[str, Any]]:
    """Two trees over nodes of one rank each."""
    made, group = steps.two_trees(nodes, 4), Group(MACHINES["H100"], nodes, 1)
    by, title = PROTOCOLS["Simple"], f"{made.name}, {nodes} nodes"
    way = ways("all_reduce", group)["trees", "Simple"]
    hops = (way.latency - by.start) / by.tree[1]
    moved = way.transfer * by.payload * group.rate()
    return [
        fact(f"{title}: hops waited for", hops, made.hops, TREES, 1e-12),
        fact(
            f"{title}: bytes of the busiest",
            moved,
            max(made.sent(SIZE)),
            TREES,
            1e-12,
            "B",
        ),
    ]


def port_fact(inside: int) -> dict[str, Any]:
    """Bytes through a port, counted where a ring crosses from node to node."""
    h100 = MACHINES["H100"]  # a port for each GPU, and here no other limit
    group = Group(replace(h100, nvlink=1e3 * h100.nvlink), 16, inside)
    made = steps.reduce_scatter(16)
    out = [0] * group.nodes
    for one in (message for step in made.steps for message in step):
        if one.source // inside != one.target // inside:
            out[one.source // inside] += made.size(one, SIZE)
    way = ways("reduce_scatter", group)["ring", "Simple"]
    through = way.transfer * model.RING * h100.port
    # Each of `inside` rings has its part of the array and a port of its own.
    what = f"reduce-scatter of 16 ranks, {inside} in a node: bytes through a port"
    return fact(what, through, max(out) / inside, RING, 1e-12, "B")


def routing_facts() -> list[dict[str, Any]]:
    """Places that a token reaches, against every choice of nodes and experts."""
    routing, group = Routing(16, 3, 2), Group(MACHINES["H800"], 8, 2)
    each = routing.experts // group.ranks  # experts of a GPU
    ranks, nodes, crossing, cases = 0, 0, 0, 0
    for allowed in combinations(range(group.nodes), routing.most):
        open_to_it = [e for e in range(16) if e // each // group.inside in allowed]
        for chosen in combinations(open_to_it, routing.chosen):
            at = {e // each for e in chosen}
            reached = {rank // group.inside for rank in at}
            ranks, nodes, cases = ranks + len(at), nodes + len(reached), cases + 1
            crossing += len(reached - {0})  # the sender is on node 0
    seconds, counted = model.dispatch(1e9, routing, group)
    network = model.RING * group.machine.network
    source = "every choice of 2 of 4 nodes and 3 of their 8 experts"
    told = (
        ("GPUs that a token reaches", routing.reached(4, group), ranks),
        ("nodes that a token reaches", counted / 1e9, nodes),
        ("nodes over the network", seconds * network / 1e9, crossing),
    )
    return [fact(what, mean, due / cases, source, 1e-12) for what, mean, due in told]


def link_facts() -> list[dict[str, Any]]:
    """What NCCL's maintainers say of a link."""
    rate = MACHINES["H100"].nvlink / 1e9
    said, line = "nccl-tests issue 212, a maintainer", PROTOCOLS["LL128"].payload * 128
    return [
        fact("H100: NVLink without packet headers", rate, 370, said, 0.005, "GB/s"),
        fact(
            "LL128: payload of a line of 128 bytes",
            line,
            120,
            "demystifying-nccl",
            0,
            "B",
        ),
    ]


def published() -> list[dict[str, str]]:
    """The rows of published.tsv."""
    path = Path(__file__).with_name("published.tsv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def predicted(row: dict[str, str]) -> float:
    """The model's rate for a published row, in GB/s as the source counts it."""
    group = Group(MACHINES[row["machine"]], int(row["ranks"]), int(row["inside"]))
    size, what = float(row["size"]), row["collective"]
    if what in ("dispatch", "combine"):
        routing = Routing(int(row["experts"]), int(row["chosen"]), int(row["nodes"]))
        seconds, counted = model.dispatch(size, routing, group)
        return counted / seconds / 1e9
    if what == "all_to_all":
        seconds = model.all_to_all(size, group).total
    else:
        seconds = model.best(what, size, group).total
    return model.bus_rate(what, size, seconds, group.ranks) / 1e9


def predictions() -> list[dict[str, Any]]:
    """Every published row beside what the model says."""
    return [
        {
            "set": row["set"],
            "name": f"{row['machine']}, {row['collective']}, {row['ranks']} ranks",
            "predicted": predicted(row),
            "published": float(row["value"]),
            "unit": row["unit"],
            "source": row["source"],
            "fitted": row["fitted"] == "yes",
        }
        for row in published()
    ]
