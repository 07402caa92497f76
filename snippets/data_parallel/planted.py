"""Ranks that fail in the midst of a step, each in its way, and what the others say."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from snippets import ranks
from snippets.collectives import Ring
from snippets.data_parallel.watch import MissingRank, Watch

WAYS = ("dies", "hangs", "raises", "none")
SECONDS = 1.5  # that a rank waits for others
LIMIT = 8.0  # after which `ranks.run` ends all


def on_rank(
    rank: int, size: int, way: str, culprit: int, when: int, folder: str
) -> str:
    """Sum over ranks in each of four steps, of which one goes wrong."""
    store = dist.FileStore(f"{folder}/store", size)
    watch = Watch(store, rank, size, SECONDS)
    dist.barrier()  # all have said that they are there
    group = Ring()
    for step in range(1, 5):
        if rank == culprit and step == when and way != "none":
            if way == "dies":
                os._exit(0)  # without a word
            if way == "raises":
                raise ValueError("out of luck")
            time.sleep(LIMIT)
        watch.reach(step)
        start = time.monotonic()
        try:
            watch.guard(lambda: group.all_reduce(torch.ones(8)))
        except MissingRank as error:
            took = time.monotonic() - start
            note = f"{took}\n{','.join(map(str, error.ranks))}\n{error}"
            part = Path(f"{folder}/{rank}.part")
            part.write_text(note)
            part.replace(f"{folder}/{rank}.note")  # in one step: this rank may be ended
            time.sleep(2 * SECONDS)  # others may still be waiting for this one
            return "missing"
    return "done"


class Told(NamedTuple):
    """The rank that `ranks.run` names from outside, and what each rank noted.

    A note: after how many seconds, which ranks it names, in which words.
    """

    outside: int | None
    notes: dict[int, tuple[float, str, str]]


def run(way: str, size: int, culprit: int, when: int) -> Told:
    """One rank fails in a step; what is said of it."""
    outside = None
    with tempfile.TemporaryDirectory() as folder:
        job = (way, culprit, when, folder)
        try:
            ranks.run(on_rank, size, *job, backend="gloo", seconds=LIMIT)
        except ranks.RankError as error:
            outside = error.rank
        notes = {}
        for rank in range(size):
            path = Path(f"{folder}/{rank}.note")
            if path.exists():
                took, named, words = path.read_text().split("\n", 2)
                notes[rank] = (float(took), named, words)
    return Told(outside, notes)
