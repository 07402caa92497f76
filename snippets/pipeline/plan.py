"""A schedule's table as an executor needs it: ways, rows, and who waits for what."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from snippets.pipeline.parking import Move, parked
from snippets.pipeline_schedules import pipeline_schedules as tables
from snippets.pipeline_schedules.schedule import Kind, Pass, Schedule

SCHEDULES: dict[str, Callable[[int, int], Schedule]] = {
    "GPipe": tables.gpipe,
    "1F1B": tables.one_f_one_b,
    "BPipe": tables.one_f_one_b,  # and parked
    "PipeDream": tables.one_f_one_b,  # and updated after each micro-batch
    "interleaved": tables.interleaved,
    "ZB-H1": tables.zero_bubble_h1,
    "ZB-H2": tables.zero_bubble_h2,
    "ZB-V": tables.zero_bubble_v,
    "DualPipe": tables.dualpipe,
    "DualPipeV": tables.dualpipe_v,
}
Place = tuple[int, int]  # a rank and its chunk


class Message(NamedTuple):
    """What is sent: a pass's result or kept activations, and of which slice."""

    what: str  # "forward", "backward", "park" or "return"
    micro_batch: int
    slice: int = -1


# --8<-- [start:plan]
class Plan:
    """A table, the way of each micro-batch through it, and who waits for what."""

    def __init__(self, name: str, p: int, m: int) -> None:
        if name not in SCHEDULES:
            raise ValueError(
                f"pipeline: no schedule {name!r}; there are {', '.join(SCHEDULES)}"
            )
        self.name, self.made = name, SCHEDULES[name](p, m)
        made = self.made
        self.rows: list[list[Pass | Move]] = [list(made.of(rank)) for rank in range(p)]
        if name == "BPipe":
            self.rows = parked(made)
        self.ways: list[list[Place]] = [[] for _ in range(m)]
        for one in made.passes:  # by start: a micro-batch goes through slices in turn
            if one.kind is Kind.FORWARD:
                self.ways[one.micro_batch].append((one.rank, one.chunk))
        self.slices = len(self.ways[0])

    def at(self, rank: int) -> dict[int, int]:
        """Which slice each chunk of a rank is."""
        return {
            chunk: index
            for way in self.ways
            for index, (place, chunk) in enumerate(way)
            if place == rank
        }

    def destination(self, step: Pass | Move) -> tuple[int, Message]:
        """Which rank waits for what a step makes, and what that is; -1 at the ends."""
        if isinstance(step, Move):
            to = step.partner if step.what in ("park", "return") else -1
            return to, Message(step.what, step.micro_batch)
        way = self.ways[step.micro_batch]
        at, forward = way.index((step.rank, step.chunk)), step.kind is Kind.FORWARD
        to = at + 1 if forward else at - 1
        message = Message("forward" if forward else "backward", step.micro_batch, at)
        ends = step.kind is Kind.WEIGHT or not 0 <= to < len(way)
        return -1 if ends else way[to][0], message
# --8<-- [end:plan]
