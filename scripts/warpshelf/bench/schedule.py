"""When jobs end that share a machine: what each takes goes in, its end under the pool out."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """One job: what it will take, whether it holds a share of the GPU, whether nothing runs beside.

    `begun` has it run already, for what is left of its seconds.
    """

    seconds: float
    on_gpu: bool = False
    alone: bool = False
    begun: bool = False


def ends(loads: Sequence[Load], workers: int, most_on_gpu: int, start: float = 0.0) -> list[float]:
    """When each ends, `workers` at a time and `most_on_gpu` of them on the GPU.

    As in `Pool.run`, the first that may start does; one that runs alone waits for all others.
    """
    found = [start] * len(loads)
    now, running = start, list[tuple[float, bool]]()  # ends, and whether on the GPU
    waiting: dict[bool, deque[int]] = {True: deque(), False: deque()}
    for place, load in enumerate(loads):
        if load.begun:
            found[place] = start + load.seconds
            heapq.heappush(running, (found[place], load.on_gpu))
        elif not load.alone:
            waiting[load.on_gpu].append(place)
    while waiting[True] or waiting[False]:
        free = sum(on_gpu for _, on_gpu in running) < most_on_gpu
        able = [line for line in (waiting[False], waiting[free]) if line]
        if len(running) >= workers or not able:
            now = heapq.heappop(running)[0]
            continue
        place = min(able, key=lambda line: line[0]).popleft()
        found[place] = now + loads[place].seconds
        heapq.heappush(running, (found[place], loads[place].on_gpu))
    now = max(found, default=start)
    for place, load in enumerate(loads):
        if load.alone and not load.begun:
            now += load.seconds
            found[place] = now
    return found
