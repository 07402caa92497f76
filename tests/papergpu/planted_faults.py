"""Small sound kernels of CUDA C++, and the faults that can be planted in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from papergpu.cuda import Settings, Source

Launch = Callable[..., Any]
RUNS = (("robin", 0), ("random", 1), ("far", 2))


@dataclass(frozen=True)
class Fault:
    """A text replaced by another, and what the finding must say (a regular expression)."""

    old: str
    new: str
    says: str


@dataclass(frozen=True)
class Sound:
    """A kernel with nothing wrong; `run` launches it and asserts that its result is right."""

    name: str
    source: str
    run: Callable[[Launch], None]
    faults: Mapping[str, Fault]
    target: str = "sm_80"
    options: tuple[str, ...] = field(default=())

    def plant_fault(self, fault: Fault) -> str:
        assert self.source.count(fault.old) == 1, f"{self.name}: {fault.old!r} is not there once"
        return self.source.replace(fault.old, fault.new)


def make_launcher(
    sound: Sound, text: str, schedule: str, seed: int, limit: int = 3_000_000
) -> Launch:
    """A function that launches kernels of `text` under one schedule."""
    source = Source(text, sound.options, target=sound.target, name=f"{sound.name}.cu")
    settings = Settings(schedule=schedule, seed=seed, limit=limit)

    def launch_scheduled(kernel: str, grid: Any, block: Any, *args: Any, **more: Any) -> Any:
        return source.launch(kernel, grid, block, *args, settings=settings, **more)

    return launch_scheduled


def draw_whole_numbers(*shape: int, seed: int = 7) -> np.ndarray:
    """Whole numbers as floats: their sums are the same in any order."""
    drawn = np.random.default_rng(seed).integers(-8, 9, shape)
    return drawn.astype(np.float32)
