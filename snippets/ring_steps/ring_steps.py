"""Collectives message by message: what each rank holds, sends and waits for.

Bytes   that the busiest of P ranks sends of an array of n: reduce-scatter and
        all-gather on a ring (P - 1) n / P; all-reduce on a ring, and by halving and
        doubling, 2 (P - 1) n / P; by doubling alone n log2 P; down and up one binary
        tree 3 n, two trees with half of the array each 2 n
Error   exact: counts of elements, and sums of whatever can be added
Raises  ValueError for no rank, no piece, a number of ranks that is no power of two
        where it must be, and parts that are not a list of chunks for each rank
Source  ring-all-reduce, bandwidth-optimal-all-reduce, mpich-collectives,
        nccl-double-binary-trees
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


# --8<-- [start:model]
@dataclass(frozen=True)
class Message:
    """Chunks of `source` that `target` adds to its own, or takes in their place."""

    source: int
    target: int
    chunks: tuple[int, ...]
    adds: bool


Step = tuple[Message, ...]  # all leave before any arrives; a rank sends and gets one


@dataclass(frozen=True)
class Collective:
    """An array cut into `chunks`, and the messages that carry them, step by step."""

    name: str
    ranks: int
    chunks: int
    steps: tuple[Step, ...]

    def run(self, parts: Sequence[Sequence[Any]]) -> list[list[list[Any]]]:
        """What each rank holds of each chunk: `parts`, then after each step."""
        if [len(part) for part in parts] != [self.chunks] * self.ranks:
            what = f"parts must be {self.ranks} lists of {self.chunks} chunks"
            raise ValueError(f"ring_steps: {self.name}: {what}")
        states = [[list(part) for part in parts]]
        for step in self.steps:
            before, after = states[-1], [list(part) for part in states[-1]]
            for one in step:
                for chunk in one.chunks:
                    got, own = before[one.source][chunk], before[one.target][chunk]
                    after[one.target][chunk] = got + own if one.adds else got
            states.append(after)
        return states

    def size(self, message: Message, n: int) -> int:
        """Elements in a message, of an array of `n`: chunks differ by one at most."""
        total = 0
        for chunk in message.chunks:
            total += n * (chunk + 1) // self.chunks - n * chunk // self.chunks
        return total

    def sent(self, n: int) -> list[int]:
        """Elements that each rank sends, of an array of `n`."""
        counts = [0] * self.ranks
        for step in self.steps:
            for one in step:
                counts[one.source] += self.size(one, n)
        return counts

    @property
    def hops(self) -> int:
        """The longest chain of messages of which each waits for the one before."""
        far = [[0] * self.chunks for _ in range(self.ranks)]
        for step in self.steps:
            before = [list(row) for row in far]
            for one in step:
                for chunk in one.chunks:
                    reached = before[one.source][chunk] + 1
                    far[one.target][chunk] = max(far[one.target][chunk], reached)
        return max(map(max, far))

    def time(self, n: int, latency: float, rate: float) -> float:
        """Seconds, if a step takes `latency` and its longest message at `rate`."""
        longest = [max(self.size(one, n) for one in step) for step in self.steps]
        return sum(latency + size / rate for size in longest)


# --8<-- [end:model]


# --8<-- [start:ring]
def reduce_scatter(p: int) -> Collective:
    """Each rank passes on the chunk that has just come, its own part added."""
    steps = [
        tuple(Message(r, (r + 1) % p, ((r - hop) % p,), True) for r in range(p))
        for hop in range(p - 1)
    ]
    return Collective("reduce-scatter, ring", _positive(ranks=p), p, tuple(steps))


def all_gather(p: int) -> Collective:
    """From where `reduce_scatter` ends: rank r has chunk r + 1, and passes it on."""
    steps = [
        tuple(Message(r, (r + 1) % p, ((r + 1 - hop) % p,), False) for r in range(p))
        for hop in range(p - 1)
    ]
    return Collective("all-gather, ring", _positive(ranks=p), p, tuple(steps))


def ring(p: int) -> Collective:
    """An all-reduce: the two halves, one after the other."""
    steps = reduce_scatter(p).steps + all_gather(p).steps
    return Collective("all-reduce, ring", p, p, steps)


# --8<-- [end:ring]


# --8<-- [start:doubling]
def doubling(p: int) -> Collective:
    """An all-reduce in log2 p exchanges of the whole array, each twice as far."""
    steps = []
    for apart in reversed(_halves(p)):
        steps.append(tuple(Message(r, r ^ apart, (0,), True) for r in range(p)))
    return Collective("all-reduce, doubling", p, 1, tuple(steps))


def halving(p: int) -> Collective:
    """An all-reduce: exchange halves, then quarters, and so on; then back again."""
    down, up = [], []
    for apart in _halves(p):
        # A rank has left what agrees with its number in the bits above `apart`.
        mine = [[c for c in range(p) if (c ^ r) < 2 * apart] for r in range(p)]
        near = [tuple(c for c in mine[r] if not (c ^ r) & apart) for r in range(p)]
        far = [tuple(c for c in mine[r] if (c ^ r) & apart) for r in range(p)]
        down.append(tuple(Message(r, r ^ apart, far[r], True) for r in range(p)))
        up.append(tuple(Message(r, r ^ apart, near[r], False) for r in range(p)))
    steps = (*down, *reversed(up))
    return Collective("all-reduce, halving and doubling", p, p, steps)


# --8<-- [end:doubling]


# --8<-- [start:trees]
def parents(p: int) -> list[int]:
    """A binary tree in the order of the ranks; rank 0 is its root, its own parent.

    The more often 2 divides a rank, the higher it stands: odd ranks are leaves.
    """
    found = [0] * _positive(ranks=p)
    for rank in range(1, p):
        low = rank & -rank
        above = (rank ^ low) | (2 * low)
        found[rank] = above if above < p else rank ^ low
    return found


def tree(p: int, pieces: int) -> Collective:
    """An all-reduce up and down one tree, `pieces` chunks following each other."""
    steps = _flow([parents(p)], p, pieces)
    return Collective("all-reduce, one tree", p, pieces, steps)


def two_trees(p: int, pieces: int) -> Collective:
    """Each tree takes every other of 2 `pieces` chunks.

    The second is the first with the ranks renamed, so that what is a leaf in one is no
    leaf in the other: mirrored, or moved on by one where `p` is odd.
    """
    first = parents(p)
    name = [(rank + 1) % p if p % 2 else p - 1 - rank for rank in range(p)]
    second = [0] * p
    for rank, above in enumerate(first):
        second[name[rank]] = name[above]
    steps = _flow([first, second], p, pieces)
    return Collective("all-reduce, two trees", p, 2 * pieces, steps)


def _flow(trees: Sequence[list[int]], p: int, pieces: int) -> tuple[Step, ...]:
    """Greedy, not the fewest steps: the oldest chunks that can go, go."""
    total = _positive(pieces=pieces) * len(trees)
    waiting = {  # (chunk, up or down, source, target)
        (chunk, up, *((rank, above) if up else (above, rank)))
        for chunk in range(total)
        for rank, above in enumerate(trees[chunk % len(trees)])
        for up in (True, False)
        if rank != above
    }
    steps = []
    while waiting:
        # A rank may send a chunk up once all of its children have, down once it got it.
        held = {(chunk, target) for chunk, up, _, target in waiting if up}
        held |= {(chunk, target, 0) for chunk, up, _, target in waiting if not up}
        sends, gets, step = set(), set(), []
        for chunk, up, source, target in sorted(waiting):
            ready = (chunk, source) not in held
            if not up:
                ready = ready and (chunk, source, 0) not in held
            if ready and source not in sends and target not in gets:
                sends.add(source)
                gets.add(target)
                step.append((chunk, up, source, target))
        waiting -= set(step)
        steps.append(tuple(Message(s, t, (c,), up) for c, up, s, t in step))
    return tuple(steps)


# --8<-- [end:trees]


def _halves(p: int) -> list[int]:
    """p / 2, p / 4, ... 1."""
    if _positive(ranks=p) & (p - 1):
        raise ValueError(f"ring_steps: ranks = {p} must be a power of two")
    return [p >> bit for bit in range(1, p.bit_length())]


def _positive(**numbers: int) -> int:
    ((name, number),) = numbers.items()
    if number < 1:
        raise ValueError(f"ring_steps: {name} = {number} must be 1 or more")
    return number


def letters(p: int, chunks: int) -> list[list[str]]:
    """Parts to look at: each chunk of a rank is the rank's digit, and adding joins."""
    return [[str(rank)] * chunks for rank in range(p)]


def table(p: int, n: int, latency: float, rate: float) -> Iterator[str]:
    """A line for each way to all-reduce `n` bytes over `p` ranks."""

    def seconds(made: Collective) -> float:
        return made.time(n, latency, rate)

    ways = [ring(p), doubling(p), halving(p)]
    for build in (tree, two_trees):
        ways.append(min((build(p, pieces) for pieces in (1, 4, 16)), key=seconds))
    for made in ways:
        most = max(made.sent(n)) / n
        counts = f"{len(made.steps):7}{made.hops:6}{most:9.3f}"
        yield f"{made.name:34}{counts}{seconds(made) * 1e6:10.0f}"


def demo() -> None:
    """A ring of four, hop by hop; then five ways to add up over 64 ranks."""
    made = reduce_scatter(4)
    states = made.run(letters(4, 4))
    print("reduce-scatter on a ring of 4: whose parts each chunk a-d of a rank holds")
    for hop, state in enumerate(states):
        row = "   ".join(" ".join(f"{held:4}" for held in rank) for rank in state)
        print(f"  hop {hop}   {row.rstrip()}")
    latency, rate = 5e-6, 50e9
    for n in (65_536, 16_000_000):
        print(f"\n{n:,} bytes, 64 ranks; 5 us a step, 50 GB/s")
        print(f"{'':34}{'steps':>7}{'hops':>6}{'sent / n':>9}{'us':>10}")
        for line in table(64, n, latency, rate):
            print(line)


if __name__ == "__main__":
    demo()
