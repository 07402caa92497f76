"""BPipe's parking: the first ranks of 1F1B leave activations with the last.

Rank i holds p - i micro-batches, so rank i and rank p - 1 - i hold p + 1 together: no
rank needs more than half of that, and room for one on its way.
"""

from __future__ import annotations

from typing import NamedTuple

from snippets.pipeline_schedules.schedule import Kind, Pass, Schedule


class Move(NamedTuple):
    """What is kept of a micro-batch goes to the partner, or comes back."""

    what: str  # "park" and "return" send, "keep" and "load" receive
    micro_batch: int
    partner: int


# --8<-- [start:parking]
Row = list[tuple[float, int, Pass | Move]]  # by time, and what is first at one time


def limit(p: int) -> int:
    """Micro-batches that a rank may hold: half of p + 2, rounded up."""
    return (p + 3) // 2


def parked(made: Schedule) -> list[list[Pass | Move]]:
    """Rows of a schedule with one chunk, in which no rank holds more than `limit`."""
    p = made.ranks
    rows: list[Row] = [[(one.start, 1, one) for one in made.of(r)] for r in range(p)]
    for rank in range(p // 2):
        park(rank, p, rows[rank], rows[p - 1 - rank])
    return [[step for *_, step in sorted(row, key=lambda x: x[:2])] for row in rows]


def park(rank: int, p: int, row: Row, other: Row) -> None:
    """Add to a rank's row, and to that of its partner, what they lend each other."""
    here: list[int] = []  # micro-batches, the last of them needed last
    away: set[int] = set()
    for start, _, one in list(row):
        j, forward = one.micro_batch, one.kind is Kind.FORWARD
        if len(here) == limit(p) and (forward or j in away):
            last = here.pop()
            away.add(last)
            row.append((start, 0, Move("park", last, p - 1 - rank)))
            other.append((start, 2, Move("keep", last, rank)))
        if forward:
            here.append(j)
        elif j in away:
            row.append((start, 0, Move("load", j, p - 1 - rank)))
            other.append((start, -1, Move("return", j, rank)))
        else:
            here.remove(j)
# --8<-- [end:parking]
