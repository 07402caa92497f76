"""Sums and scans: the additions, steps, barriers and words of each scheme, by doing it.

FLOPs   of n numbers in a block: a tree n - 1 additions in log2 n steps; Hillis-Steele
        n log2 n - (n - 1) in log2 n; Blelloch 2 (n - 1) in 2 log2 n
Bytes   of device memory, in words: a sum n; a scan 4 n if each tile is scanned and
        corrected later, 3 n if it is summed first and scanned later, 2 n by look-back.
        What tiles tell each other is counted apart
Error   exact: whole numbers, any associative operator
Raises  ValueError for a length that a scheme has no tree for, and for tiles that wait
        for one that cannot start
Source  harris-reduction, kepler-reductions, gpu-gems-scan, decoupled-look-back,
        tensor-core-reduction-scan
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WARP = 32
Add = Callable[[Any, Any], Any]


@dataclass
class Count:
    """What a scheme did. `stages` holds the array after each step."""

    additions: int = 0
    steps: int = 0  # one after the other; the additions of a step run at once
    barriers: int = 0  # of the block
    words: int = 0  # of device memory, read or written
    messages: int = 0  # words by which tiles tell each other of sums
    atomics: int = 0
    launches: int = 1
    stages: list[list[Any]] = field(default_factory=list)

    def step(self, state: Sequence[Any], additions: int, barrier: bool = True) -> None:
        """Note a step that did `additions` and left `state`."""
        self.stages.append(list(state))
        self.steps += 1
        self.additions += additions
        self.barriers += barrier


# --8<-- [start:block]
# --8<-- [start:sums]
def tree_sum(x: Sequence[Any], add: Add = operator.add) -> tuple[Any, Count]:
    """A sum in shared memory: half of the threads stop at every step."""
    state, count = list(x), Count()
    alive = _power(len(state))
    while alive > 1:
        alive //= 2
        for thread in range(alive):
            state[thread] = add(state[thread], state[thread + alive])
        count.step(state, alive)
    return state[0], count


def shuffle_sum(x: Sequence[Any], warp: int = WARP) -> tuple[Any, Count]:
    """A sum of a block by shuffles: a tree in every warp, then one of their totals."""
    warps = [x[i : i + warp] for i in range(0, len(x), warp)]
    first = [tree_sum(lanes) for lanes in warps]
    total, second = tree_sum([total for total, _ in first])
    count = Count(additions=sum(one.additions for _, one in first) + second.additions)
    count.steps = first[0][1].steps + second.steps
    count.barriers = int(len(warps) > 1)  # between the warps' totals and their reader
    return total, count


# --8<-- [end:sums]


# --8<-- [start:scans]
def hillis_steele(x: Sequence[Any], add: Add = operator.add) -> tuple[list[Any], Count]:
    """An inclusive scan: element i adds the one 1, then 2, 4 ... places before it."""
    state, count, reach = list(x), Count(), 1
    while reach < len(state):
        # All read before any writes: two buffers in shared memory, a shuffle in a warp.
        new = [add(state[i - reach], state[i]) for i in range(reach, len(state))]
        state[reach:] = new
        count.step(state, len(new))
        reach *= 2
    return state, count


def blelloch(
    x: Sequence[Any],
    zero: Any = 0,
    add: Add = operator.add,
) -> tuple[list[Any], Count]:
    """An exclusive scan: sums up a tree, then prefixes down it."""
    state, count, n = list(x), Count(), _power(len(x))
    reach = 1
    while reach < n:
        for i in range(2 * reach - 1, n, 2 * reach):
            state[i] = add(state[i - reach], state[i])
        count.step(state, n // (2 * reach))
        reach *= 2
    state[-1] = zero  # the total is not a prefix of anything
    while reach > 1:
        reach //= 2
        for i in range(2 * reach - 1, n, 2 * reach):
            left, state[i - reach] = state[i - reach], state[i]
            state[i] = add(state[i], left)
        count.step(state, n // (2 * reach))
    return state, count


# --8<-- [end:scans]


def warp_scan(x: Sequence[Any], warp: int = WARP) -> tuple[list[Any], Count]:
    """An inclusive scan of a block: every warp's, one of their totals, one addition."""
    parts = [hillis_steele(x[i : i + warp]) for i in range(0, len(x), warp)]
    before, tops = hillis_steele([part[-1] for part, _ in parts])
    count = Count(additions=sum(one.additions for _, one in parts) + tops.additions)
    count.steps = parts[0][1].steps + tops.steps
    out = list(parts[0][0])
    for carry, (part, _) in zip(before, parts[1:], strict=False):
        out += [carry + value for value in part]
    if len(parts) > 1:
        count.additions += len(x) - len(parts[0][0])
        count.steps += 1
        count.barriers = 2  # totals written, totals scanned
    return out, count


def segmented(left: tuple[bool, Any], right: tuple[bool, Any]) -> tuple[bool, Any]:
    """The operator on (opens a segment, value) that makes any scan stop at heads."""
    return left[0] or right[0], right[1] if right[0] else left[1] + right[1]


# --8<-- [end:block]


# --8<-- [start:device]
# --8<-- [start:everything]
def two_launches(x: Sequence[int], tile: int) -> tuple[int, Count]:
    """A sum of everything: partial sums in one kernel, their sum in the next."""
    sums = [sum(part) for part in _tiles(x, tile)]
    return sum(sums), Count(words=len(x) + 2 * len(sums) + 1, launches=2)


def atomic_sum(x: Sequence[int], tile: int) -> tuple[int, Count]:
    """A sum of everything: each block adds its part to one word, in no set order."""
    sums = [sum(part) for part in _tiles(x, tile)]
    return sum(sums), Count(words=len(x), atomics=len(sums))


def last_block(x: Sequence[int], tile: int) -> tuple[int, Count]:
    """A sum of everything: who finds by a counter that all others are done adds up."""
    sums = [sum(part) for part in _tiles(x, tile)]
    words = len(x) + 2 * len(sums) + 1
    return sum(sums), Count(words=words, atomics=len(sums))


# --8<-- [end:everything]


def scan_then_propagate(x: Sequence[int], tile: int) -> tuple[list[int], Count]:
    """Scan each tile and write it; scan the totals; read all again and correct it."""
    tiles = [hillis_steele(part)[0] for part in _tiles(x, tile)]
    before = [0, *hillis_steele([part[-1] for part in tiles])[0]]
    out = [b + v for b, part in zip(before, tiles, strict=False) for v in part]
    return out, Count(words=4 * len(x), messages=4 * len(tiles), launches=3)


def reduce_then_scan(x: Sequence[int], tile: int) -> tuple[list[int], Count]:
    """Sum each tile, write that alone; scan the sums; read all again and scan it."""
    parts = _tiles(x, tile)
    before = [0, *hillis_steele([sum(part) for part in parts])[0]]
    out = []
    for carry, part in zip(before, parts, strict=False):
        out += [carry + value for value in hillis_steele(part)[0]]
    return out, Count(words=3 * len(x), messages=4 * len(parts), launches=3)


def look_back(
    x: Sequence[int],
    tile: int,
    late: Mapping[int, int] | None = None,
    resident: int = 0,
    order: Sequence[int] = (),
) -> tuple[list[int], Count]:
    """One pass: a tile publishes its sum (A), then adds up those before it until it
    meets a tile that knows its prefix (P), and publishes its own.

    Time goes in rounds: a tile loads and sums in its first, and asks one predecessor in
    each later one. `late` delays tiles by rounds, `resident` tiles run at a time (0:
    all), and tiles start in `order`. Stages are the tiles' states after each round.
    """
    parts, late = _tiles(x, tile), late or {}
    n, count = len(parts), Count(words=2 * len(x))
    state, told = ["-"] * n, [0] * n  # "-" not started, "X" started, then "A", "P"
    wait = [late.get(i, 0) for i in range(n)]
    asks, carry = list(range(-1, n - 1)), [0] * n
    todo = list(order or range(n))
    while set(state) != {"P"}:
        seen, knew, moved = list(state), list(told), False
        while todo and (not resident or sum(one in "XA" for one in state) < resident):
            state[todo.pop(0)] = "X"
        for i in range(n):
            if state[i] == "X":
                moved = True
                wait[i] -= 1
                if wait[i] < 0:
                    state[i], told[i] = "A" if i else "P", sum(parts[i])
                    count.messages += 1
            elif seen[i] == "A" and seen[asks[i]] in "AP":
                moved = True
                carry[i] += knew[asks[i]]
                count.messages += 1
                if seen[asks[i]] == "P":
                    state[i], told[i] = "P", carry[i] + told[i]
                    count.messages += 1
                asks[i] -= 1
        if not moved:
            raise ValueError("scan_steps: tiles wait for one that cannot start")
        count.stages.append(list(state))
        count.steps += 1
    out = []
    for add, part in zip(carry, parts, strict=True):
        out += [add + value for value in hillis_steele(part)[0]]
    return out, count


# --8<-- [end:device]


# --8<-- [start:matrix]
Matrix = list[list[int]]


def product(a: Matrix, b: Matrix) -> Matrix:
    """What a matrix unit does, at `side` ** 3 multiply-adds."""
    columns = list(zip(*b, strict=True))
    return [[sum(map(operator.mul, row, column)) for column in columns] for row in a]


def matrix_scan(x: Sequence[int], side: int = 16) -> tuple[list[int], int]:
    """An inclusive scan of side * side numbers, and how many products it took."""
    a = [list(x[i * side : (i + 1) * side]) for i in range(side)]
    upper = [[int(i <= j) for j in range(side)] for i in range(side)]
    below = [[int(j < i) for j in range(side)] for i in range(side)]
    ones = [[1] * side for _ in range(side)]
    rows = product(a, upper)  # each row scanned
    above = product(product(below, a), ones)  # the sum of the rows above, everywhere
    pairs = zip(rows, above, strict=True)
    return [v for row, add in pairs for v in map(operator.add, row, add)], 3


# --8<-- [end:matrix]


def _power(n: int) -> int:
    if n < 1 or n & (n - 1):
        what = f"{n} numbers make no full tree; pad to a power of two"
        raise ValueError(f"scan_steps: {what}")
    return n


def _tiles(x: Sequence[int], tile: int) -> list[Sequence[int]]:
    if not x or tile < 1:
        what = f"{len(x)} numbers in tiles of {tile}; give at least 1"
        raise ValueError(f"scan_steps: {what}")
    return [x[i : i + tile] for i in range(0, len(x), tile)]


def demo() -> None:
    """Each scheme on the same numbers."""
    x = [(7 * i) % 10 for i in range(1024)]
    print("a block of 1,024       additions  steps  barriers")
    for name, made in (
        ("tree sum", tree_sum(x)[1]),
        ("shuffle sum", shuffle_sum(x)[1]),
        ("Hillis-Steele scan", hillis_steele(x)[1]),
        ("Blelloch scan", blelloch(x)[1]),
        ("scan by warps", warp_scan(x)[1]),
    ):
        print(f"{name:22}{made.additions:10,}{made.steps:7}{made.barriers:10}")
    tile, n = 256, 64 * 256
    x = [(7 * i) % 10 for i in range(n)]
    heads = "words / n  messages  launches  atomics"
    print(f"\n{n // tile} tiles of {tile}{'':9}{heads}")
    for name, made in (
        ("sum, two launches", two_launches(x, tile)[1]),
        ("sum, atomics", atomic_sum(x, tile)[1]),
        ("sum, last block", last_block(x, tile)[1]),
        ("scan then propagate", scan_then_propagate(x, tile)[1]),
        ("reduce then scan", reduce_then_scan(x, tile)[1]),
        ("look-back", look_back(x, tile, resident=16)[1]),
    ):
        line = f"{name:22}{made.words / n:12.3f}{made.messages:10}"
        print(f"{line}{made.launches:10}{made.atomics:9}")
    scanned, products = matrix_scan(range(256))
    last = scanned[-1]
    print(f"\na scan of 256 by {products} products of 16 x 16; the last is {last}")


if __name__ == "__main__":
    demo()
