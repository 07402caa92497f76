"""Values as places in a picture, with ticks, grid and limits: one way for every plot.

The drawing area of a plot is as wide as the picture but for the margins, and `AREA` high.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from warpshelf.core import units
from warpshelf.render import svg

LEFT, RIGHT, TOP = 44.0, 12.0, 30.0  # margins; on the left stand the labels of the ticks
AREA = 220.0
FOOT = TOP + AREA + 58  # where the legend begins
MOST = 7  # ticks of an axis in decades


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` on the way from `start` to `end`, by size or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where `value` is."""
        low, high = (math.log10(x) if self.log else x for x in (self.low, self.high))
        here = math.log10(value) if self.log else value
        return self.start + (self.end - self.start) * (here - low) / (high - low)


Tick = tuple[float, str]  # a value, and what is written at it


def across(low: float, high: float, *, log: bool = False, margin: float = 0.0) -> Scale:
    """The scale of an area from left to right, with `margin` more on each side."""
    return Scale(low, high, LEFT + margin, svg.WIDTH - RIGHT - 2 * margin, log)


def upwards(low: float, high: float, *, log: bool = False) -> Scale:
    """The scale of an area from its foot to its top."""
    return Scale(low, high, TOP + AREA, TOP, log)


def rounded(most: float) -> tuple[float, float]:
    """Step and top of a scale from 0 that reaches `most`, in about five steps of 1, 2 or 5."""
    step = 10.0 ** math.floor(math.log10(most / 2))
    step *= next(f for f in (1, 2, 5, 10) if most / (step * f) <= 6)
    return step, step * math.ceil(most / step)


def decades(scale: Scale) -> list[float]:
    """Powers of ten on a scale."""
    low, high = math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high))
    powers = range(low, high + 1)
    return [10.0**power for power in powers[:: max(1, math.ceil(len(powers) / MOST))]]


def prefix(unit: str) -> float:
    """The factor of a unit such as `TB/s`."""
    return next(10.0**power for name, power in units.PREFIXES if unit.startswith(name))


def labelled(values: Iterable[float], factor: float = 1.0) -> list[Tick]:
    """The ticks at `values`, written in units of `factor`."""
    return [(v, units.number(float(units.significant(v / factor)))) for v in values]


def rows(y: Scale, ticks: Iterable[Tick], unit: str) -> Iterator[str]:
    """A line across the area at each tick, its label on the left, and the unit above them all."""
    yield svg.text(4, 14, unit)
    for value, words in ticks:
        yield level(y(value), "ws-grid")
        yield svg.text(LEFT - 6, y(value) + 4.5, words, end="end")


def columns(x: Scale, ticks: Sequence[Tick], name: str) -> Iterator[str]:
    """A line up the area at each tick with its label below, and the name of the axis."""
    for value, words in ticks:
        yield svg.line(x(value), TOP, x(value), TOP + AREA, "ws-grid")
        yield _below(x(value), words)
    yield _name(name)


def sizes(x: Scale, ticks: Sequence[Tick], name: str) -> Iterator[str]:
    """The labels alone, and of those that would touch the first."""
    edge = -math.inf
    for value, words in ticks:
        half = len(words) * svg.TEXT * 0.29
        if x(value) - half > edge:
            place = min(x(value), svg.WIDTH - half)
            yield _below(place, words)
            edge = place + half + 6
    yield _name(name)


def level(height: float, kind: str) -> str:
    """A line of class `kind` across the area."""
    return svg.line(LEFT, height, svg.WIDTH - RIGHT, height, kind)


def _below(place: float, words: str) -> str:
    return svg.text(place, TOP + AREA + 17, words, end="middle")


def _name(name: str) -> str:
    return svg.text(svg.WIDTH - RIGHT, TOP + AREA + 35, name, end="end")
