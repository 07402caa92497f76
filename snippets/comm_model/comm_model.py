"""Time of a collective: hops and bytes of its algorithm, on links that ranks share.

Bytes   sent by a rank of n of an array of S: ring all-reduce 2 (n - 1) / n S, its
        halves and all-to-all (n - 1) / n S; through a switch that adds, in a node of g,
        (1 + 1 / g) S. Over a network port of a group with g ranks in a node, a g-th of
        what leaves the node
Error   by data set, in the record: measured rates of NCCL and DeepEP. Latencies are
        those of NCCL's own model, and not checked against measurements here
Raises  ValueError for a group that does not split over nodes, an unknown collective and
        no bytes, ranks or experts to choose from
Source  nccl, demystifying-nccl, nccl-double-binary-trees, nccl-tests-performance,
        deepep, ring-all-reduce
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

# --8<-- [start:machines]
RING = 0.90  # of a link's rate that chunks in a pipeline reach: fitted on one A100 node
PAIRS = 0.85  # the same where all ranks send to all, in pairs: fitted on the same node


@dataclass(frozen=True)
class Machine:
    """Nodes of `gpus`; rates in bytes a second, one way, before RING and PAIRS."""

    name: str
    gpus: int
    nvlink: float  # of one GPU, all its links, packet headers off
    port: float  # of one network port
    ports: int = 8  # of a node
    adds: float = 0.0  # of nvlink's rate, for sums made in the switch; 0: it cannot add

    @property
    def network(self) -> float:
        """A GPU's share of its node's network ports, bytes a second."""
        return self.ports * self.port / self.gpus


# Links times the rate that NCCL takes for one, and 12 GB/s for each 100 Gbit/s.
MACHINES = {
    "A100": Machine("A100", 8, 12 * 20.0e9, 24e9),
    "H100": Machine("H100", 8, 18 * 20.6e9, 48e9, adds=0.85),
    "H800": Machine("H800", 8, 8 * 20.6e9, 48e9, adds=0.85),
    "B200": Machine("B200", 8, 18 * 40.1e9, 48e9, adds=0.74),
    "GB200": Machine("GB200", 72, 18 * 40.1e9, 48e9, ports=72, adds=0.74),
}


@dataclass(frozen=True)
class Protocol:
    """How arrival is told; latencies of NCCL's model in seconds."""

    payload: float  # of the bytes on the wire
    start: float
    ring: tuple[float, float]  # a hop inside a node, and between nodes
    tree: tuple[float, float]


PROTOCOLS = {
    "LL": Protocol(1 / 2, 6.6e-6, (0.6e-6, 2.7e-6), (0.6e-6, 5.0e-6)),
    "LL128": Protocol(15 / 16, 14.0e-6, (1.9e-6, 4.0e-6), (1.25e-6, 8.5e-6)),
    "Simple": Protocol(1.0, 8.4e-6, (3.4e-6, 14.0e-6), (4.0e-6, 14.0e-6)),
}
SWITCH = 25e-6, 20.9e-6  # sums in the switch: in a node, and a step between nodes
# --8<-- [end:machines]


# --8<-- [start:model]
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Group:
    """`ranks` of a collective, `inside` of them in each node they touch."""

    machine: Machine
    ranks: int
    inside: int

    def __post_init__(self) -> None:
        at_most = min(self.ranks, self.machine.gpus)
        if self.ranks < 1 or not 1 <= self.inside <= at_most:
            where = f"in a node of {self.machine.gpus}"
            what = f"{self.inside} of {self.ranks} ranks {where}"
            raise ValueError(f"comm_model: {what}; give 1 to {max(at_most, 1)}")
        if self.ranks % self.inside:
            what = f"{self.ranks} ranks, {self.inside} in each node"
            raise ValueError(f"comm_model: {what}: use a divisor")

    @property
    def nodes(self) -> int:
        """Nodes that it touches."""
        return self.ranks // self.inside

    def rate(self) -> float:
        """Bytes a second that each rank passes to the next, in as many rings as pay.

        A ring leaves a node by one port, and each rank of the node brings its own: with
        one rank in a node there is one port, with eight there are eight.
        """
        if self.nodes == 1:
            return RING * self.machine.nvlink
        ports = self.inside * self.machine.network
        return RING * (min(self.machine.nvlink, ports) if self.inside > 1 else ports)


@dataclass(frozen=True)
class Time:
    """Seconds of one way to do it: waiting for hops, and moving bytes."""

    algorithm: str
    protocol: str
    latency: float
    transfer: float

    @property
    def total(self) -> float:
        """Seconds."""
        return self.latency + self.transfer


def ring_bytes(collective: str, size: float, ranks: int) -> float:
    """Bytes that each rank sends of an array of `size`, the whole one."""
    halves = 2 if collective == "all_reduce" else 1
    return halves * (ranks - 1) * size / ranks


def ways(collective: str, size: float, group: Group) -> Iterator[Time]:
    """Every algorithm and protocol for `size` bytes, the whole array's."""
    if collective not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        raise ValueError(f"comm_model: no collective {collective!r}; there are {known}")
    if size < 0:
        raise ValueError(f"comm_model: size = {size} bytes is below 0")
    n, nodes, inside = group.ranks, group.nodes, group.inside
    halves = 2 if collective == "all_reduce" else 1
    outside = halves * (nodes - 1)  # of a ring's hops
    deep = halves * (nodes - 1).bit_length()  # of a tree's
    sent = ring_bytes(collective, size, n)
    for name, by in PROTOCOLS.items():
        hops = (halves * (n - 1) - outside) * by.ring[0] + outside * by.ring[1]
        rate = by.payload * group.rate()
        yield Time("ring", name, by.start + hops, sent / rate)
        if collective == "all_reduce":
            hops = halves * (inside - 1) * by.tree[0] + deep * by.tree[1]
            # Two trees, each with half: the array goes up once and down once.
            moved = size if n == 2 else 2 * size
            yield Time("trees", name, by.start + hops, moved / rate)
    if collective == "all_reduce" and group.machine.adds and inside > 2:
        yield _in_switch(size, group, deep)


def _in_switch(size: float, group: Group, deep: int) -> Time:
    """Each rank gives the switch its array and the sum of a g-th; trees join nodes."""
    machine, inside = group.machine, group.inside
    within = (1 + 1 / inside) * size / (machine.adds * machine.nvlink)
    moved = {1: 0.0, 2: size}.get(group.nodes, 2 * size)
    between = moved / (RING * inside * machine.network)
    waited = SWITCH[0] + deep * SWITCH[1]
    return Time("switch", "Simple", waited, max(within, between))


def best(collective: str, size: float, group: Group) -> Time:
    """The way that takes least, as a library would choose; no time for one rank."""
    if group.ranks == 1:
        return Time("none", "none", 0.0, 0.0)
    return min(ways(collective, size, group), key=lambda way: way.total)


def all_to_all(size: float, group: Group) -> Time:
    """`size` bytes at each rank, an equal piece for every other; NVLink and network run
    at once."""
    n, inside, by = group.ranks, group.inside, PROTOCOLS["Simple"]
    piece = size / n
    within = (inside - 1) * piece / (PAIRS * group.machine.nvlink)
    between = (n - inside) * piece / (PAIRS * group.machine.network)
    hop = by.ring[1] if group.nodes > 1 else by.ring[0]
    return Time("pairs", "Simple", by.start + hop, max(within, between))


def send(size: float, machine: Machine, same_node: bool) -> Time:
    """One rank sends `size` bytes to another."""
    by = PROTOCOLS["Simple"]
    rate, hop = machine.network, by.ring[1]
    if same_node:
        rate, hop = machine.nvlink, by.ring[0]
    return Time("send", "Simple", by.start + hop, size / (RING * rate))


# --8<-- [end:model]


# --8<-- [start:experts]
@dataclass(frozen=True)
class Routing:
    """Each token goes to `chosen` of `experts`, all of them on `most` nodes at most."""

    experts: int
    chosen: int
    most: int  # nodes a token may be sent to

    def reached(self, places: int, group: Group) -> float:
        """Of `places` that share its nodes' experts, how many a token is sent to, mean.

        Any `chosen` experts of those nodes are as likely as any other.
        """
        nodes = min(self.most, group.nodes)
        open_to_it = self.experts * nodes // group.nodes
        if self.experts % group.ranks or not 0 < self.chosen <= open_to_it:
            what = f"{self.chosen} of {self.experts} experts over {group.ranks} ranks"
            raise ValueError(f"comm_model: {what}: give each rank as many")
        apart = open_to_it - open_to_it // places  # experts elsewhere
        return places * (1 - comb(apart, self.chosen) / comb(open_to_it, self.chosen))


def dispatch(size: float, routing: Routing, group: Group) -> tuple[float, float]:
    """Seconds to send `size` bytes of tokens from each rank to their experts, and the
    bytes that count for its rate.

    A token crosses the network once for each node it goes to, to the GPU with the
    number of its own; that one copies it to those that have its experts, over NVLink.
    Its own node and GPU count in the rate, and pass the same buffers.
    """
    machine = group.machine
    nodes = min(routing.most, group.nodes)
    to_nodes = routing.reached(nodes, group) * size
    copies = routing.reached(nodes * group.inside, group) * size
    crossing = to_nodes * (group.nodes - 1) / group.nodes
    over_network = crossing / (RING * machine.network)
    over_nvlink = copies / (RING * machine.nvlink)
    counted = to_nodes if group.nodes > 1 else copies
    return max(over_network, over_nvlink), counted


# --8<-- [end:experts]


def bus_rate(collective: str, size: float, seconds: float, ranks: int) -> float:
    """What nccl-tests prints: bytes a second that a ring would have sent."""
    return ring_bytes(collective, size, ranks) / seconds


def table(group: Group) -> Iterator[str]:
    """A line for each size: the best way to all-reduce, and what it reaches."""
    for power in range(10, 31, 4):
        size = float(2**power)
        way = best("all_reduce", size, group)
        rate = bus_rate("all_reduce", size, way.total, group.ranks) / 1e9
        how = f"{way.algorithm}, {way.protocol}"
        wait = 100 * way.latency / way.total
        told = f"{way.total * 1e6:10.1f}{rate:9.1f}{wait:8.0f} %"
        yield f"{2 ** (power - 10):>9,} KiB  {how:16}{told}"


def demo() -> None:
    """Which way is best at which size, and what a ring has of the network."""
    h100 = MACHINES["H100"]
    for group in (Group(h100, 8, 8), Group(h100, 512, 8)):
        print(f"all-reduce, {group.ranks} H100, {group.inside} in a node")
        print(f"{'size':>13}  {'best way':16}{'us':>10}{'bus GB/s':>9}{'latency':>10}")
        for line in table(group):
            print(line)
    print("ring of 64 H100, 1 GiB reduce-scattered: ranks in a node, bus GB/s, ms")
    for inside in (1, 2, 4, 8):
        group = Group(h100, 64, inside)
        way = best("reduce_scatter", 2.0**30, group)
        rate = bus_rate("reduce_scatter", 2.0**30, way.total, 64) / 1e9
        print(f"  {inside}{rate:9.1f}{way.total * 1e3:9.2f}")


if __name__ == "__main__":
    demo()
