"""Attention's tiles: which a causal mask skips, and how decoding fills the SMs.

FLOPs   of a causal square of t by t tiles: t (t + 1) / 2 of them, a share of
        1/2 + 1 / (2 t); t of them need the mask
Bytes   of decoding: every part reads its keys and values once, and writes one row and
        one l for the merge
Error   exact: whole tiles
Raises  ValueError for sizes, tiles or parts below 1
Source  flash-attention-2, flash-decoding
"""

from __future__ import annotations

from enum import StrEnum


# --8<-- [start:model]
class Tile(StrEnum):
    """What a kernel does with a tile of the scores."""

    WHOLE = "whole"  # every score counts: no mask
    EDGE = "edge"  # some count: the mask is applied
    NONE = "none"  # none counts: it is never formed


def tiles(
    queries: int, keys: int, rows: int = 128, columns: int = 128, causal: bool = True
) -> list[list[Tile]]:
    """The tiles of `rows` queries and `columns` keys; the last query sees all keys."""
    _positive(queries=queries, keys=keys, rows=rows, columns=columns)
    shift = keys - queries  # query i sees keys up to i + shift
    grid = []
    for top in range(0, queries, rows):
        first, last = top + shift, min(top + rows, queries) - 1 + shift
        line = []
        for left in range(0, keys, columns):
            right = min(left + columns, keys) - 1
            if causal and left > last:
                line.append(Tile.NONE)
            elif causal and right > first or right + 1 - left < columns:
                line.append(Tile.EDGE)
            else:
                line.append(Tile.WHOLE)
        grid.append(line)
    return grid


def count(grid: list[list[Tile]], kind: Tile) -> int:
    """How many tiles are of a kind."""
    return sum(line.count(kind) for line in grid)
# --8<-- [end:model]


# --8<-- [start:decode]
def decode(sequences: int, parts: int, chunks: int, sms: int) -> list[list[str]]:
    """Who works on what when: a line for each step, a cell for each SM, "" if idle.

    One query each for `sequences` (sequences times heads of K), whose keys are `chunks`
    steps long. Each is cut into `parts`, one block a part; the last step merges.
    """
    _positive(sequences=sequences, parts=parts, chunks=chunks, sms=sms)
    blocks = []
    for one in range(sequences):
        cuts = [chunks * part // parts for part in range(parts + 1)]
        blocks += [(one, b - a) for a, b in zip(cuts, cuts[1:], strict=False) if b > a]
    free = [0] * sms
    work: list[list[str]] = [[] for _ in range(sms)]
    for one, length in blocks:
        at = min(range(sms), key=free.__getitem__)
        free[at] += length
        work[at] += [chr(ord("A") + one % 26)] * length
    steps = max(free)
    lines = [[line[i] if i < len(line) else "" for line in work] for i in range(steps)]
    if parts > 1:
        lines.append(["merge" if at < min(sequences, sms) else "" for at in range(sms)])
    return lines
# --8<-- [end:decode]


def busy(lines: list[list[str]]) -> float:
    """The share of places in which an SM reads keys."""
    places = [cell for line in lines for cell in line]
    return sum(cell not in ("", "merge") for cell in places) / len(places)


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"attention_tiles: {name} = {number} must be 1 or more")


def demo() -> None:
    """Tiles of causal squares, and four sequences on sixteen SMs."""
    print("causal, tiles of 128 x 128    whole  edge  never formed  share formed")
    for n in (512, 2048, 8192):
        grid = tiles(n, n)
        whole, edge, none = (count(grid, kind) for kind in Tile)
        share = (whole + edge) / (whole + edge + none)
        print(f"{n:6} queries and keys{whole:14}{edge:6}{none:14}{share:13.1%}")
    print("\ndecoding 4 sequences of 8 chunks on 16 SMs")
    for parts in (1, 2, 4, 8):
        lines = decode(4, parts, 8, 16)
        print(f"{parts} parts: {len(lines)} steps, {busy(lines):.0%} of the SMs' time")


if __name__ == "__main__":
    demo()
