"""Tiles on SMs: whole tiles leave a wave part empty, equal shares of iterations do not.

Shapes  the tiles of a product, each so many iterations along K, on SMs that run one
        block at a time
Bytes   a tile that several SMs share costs an exchange of partial sums for each share
        after its first
Error   exact: whole numbers of iterations. An exchange takes no time
Raises  ValueError for sizes below 1, and for more parts than iterations
Source  stream-k, colfax-stream-k
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

# --8<-- [start:model]


@dataclass(frozen=True)
class Share:
    """Iterations `begin` to `end` of a tile, which one SM does at a stretch."""

    tile: int
    begin: int
    end: int


@dataclass(frozen=True)
class Schedule:
    """What each SM does, in order and without a pause."""

    name: str
    sms: list[list[Share]]

    @property
    def makespan(self) -> int:
        """Iterations until the last SM is done."""
        return max(sum(s.end - s.begin for s in mine) for mine in self.sms)

    @property
    def efficiency(self) -> float:
        """Useful iterations over those that all SMs could have done."""
        useful = sum(s.end - s.begin for mine in self.sms for s in mine)
        return useful / (len(self.sms) * self.makespan)

    @property
    def shared(self) -> int:
        """Tiles that more than one SM works on."""
        owners = Counter(tile for mine in self.sms for tile in {s.tile for s in mine})
        return sum(count > 1 for count in owners.values())

    @property
    def exchanges(self) -> int:
        """Partial sums that travel: shares beyond one a tile."""
        shares = sum(len(mine) for mine in self.sms)
        return shares - len({s.tile for mine in self.sms for s in mine})


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"stream_k: {name} = {size} must be 1 or more")


def data_parallel(tiles: int, iterations: int, sms: int) -> Schedule:
    """A tile a block; equal blocks go to the SMs in turn."""
    return split_k(tiles, iterations, sms, 1)


def split_k(tiles: int, iterations: int, sms: int, parts: int) -> Schedule:
    """Each tile in `parts` blocks along K, as even as whole iterations allow."""
    _positive(tiles=tiles, iterations=iterations, sms=sms, parts=parts)
    if parts > iterations:
        raise ValueError(
            f"stream_k: parts = {parts} exceeds the {iterations} iterations of a tile"
        )
    mine: list[list[Share]] = [[] for _ in range(sms)]
    edges = [part * iterations // parts for part in range(parts + 1)]
    for block in range(tiles * parts):
        tile, part = divmod(block, parts)
        first = min(range(sms), key=lambda sm: sum(s.end - s.begin for s in mine[sm]))
        mine[first].append(Share(tile, edges[part], edges[part + 1]))
    name = f"split in {parts}" if parts > 1 else "data-parallel"
    return Schedule(name, mine)


# --8<-- [end:model]


# --8<-- [start:stream_k]
def stream_k(tiles: int, iterations: int, sms: int) -> Schedule:
    """All iterations in one line, cut into a piece for each SM."""
    _positive(tiles=tiles, iterations=iterations, sms=sms)
    total = tiles * iterations
    share, longer = divmod(total, sms)
    mine, at = [], 0
    for sm in range(sms):
        end = at + share + (sm < longer)
        mine.append(cut(at, end, iterations))
        at = end
    return Schedule("stream-K", mine)


def cut(begin: int, end: int, iterations: int) -> list[Share]:
    """Iterations `begin` to `end` of the line, at the edges of the tiles."""
    shares = []
    while begin < end:
        tile, offset = divmod(begin, iterations)
        stop = min(end, (tile + 1) * iterations)
        shares.append(Share(tile, offset, offset + stop - begin))
        begin = stop
    return shares


# --8<-- [end:stream_k]


# --8<-- [start:hybrid]
def hybrid(tiles: int, iterations: int, sms: int) -> Schedule:
    """Whole tiles first; the last full wave and the rest are streamed together."""
    _positive(tiles=tiles, iterations=iterations, sms=sms)
    full = tiles // sms
    whole = (full - 1 if tiles % sms and full else full) * sms
    mine: list[list[Share]] = [
        [Share(tile, 0, iterations) for tile in range(sm, whole, sms)]
        for sm in range(sms)
    ]
    if tiles > whole:
        rest = stream_k(tiles - whole, iterations, sms)
        for sm, shares in enumerate(rest.sms):
            mine[sm] += [Share(whole + s.tile, s.begin, s.end) for s in shares]
    return Schedule("hybrid", mine)


# --8<-- [end:hybrid]


def demo() -> None:
    """Four ways to run the tiles of three products on 132 SMs."""
    print("132 SMs, tiles of 128 x 256, 32 numbers of K an iteration; K = 4096")
    print(f"{'product':>14}{'tiles':>7}  {'way':16}{'time':>6}{'busy':>8}{'shares':>8}")
    for m, n in ((2048, 2048), (2304, 2304), (4096, 4096)):
        tiles, iterations = ceil(m / 128) * ceil(n / 256), 4096 // 32
        for made in (
            data_parallel(tiles, iterations, 132),
            split_k(tiles, iterations, 132, 2),
            stream_k(tiles, iterations, 132),
            hybrid(tiles, iterations, 132),
        ):
            print(
                f"{m:7} x {n:4}{tiles:7}  {made.name:16}{made.makespan:6}"
                f"{made.efficiency:8.1%}{made.exchanges:8}"
            )


if __name__ == "__main__":
    demo()
