"""Drawings as SVG: shapes and words, and values as places in a picture with ticks and limits.

One way for every plot. The drawing area of a plot is as wide as the picture but for the margins,
and `AREA` high.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown

WIDTH = 400.0
TEXT = 13.5  # height of the text
BROAD = 0.58  # width of a character over the height of the text, at most as a rule
LINE = 19.0  # from one line of the legend to the next
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DASHED = {"ws-peak": "6 4", "ws-changed": "2 4"}  # by class
COLOURS = 8  # classes ws-s0 to ws-s7 of the style sheet


def coord(value: float) -> str:
    """A coordinate, to a tenth."""
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def draw_text(x: float, y: float, words: str, *, end: str = "start", kind: str = "") -> str:
    """Plain `words` with the base line at `y`; `end` is start, middle or end."""
    extra = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{end}"' if end != "start" else ""
    return f'<text x="{coord(x)}" y="{coord(y)}"{anchor}{extra}>{escape_markdown(words)}</text>'


def draw_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A line of class `kind`; a peak and a change are dashed."""
    return (
        f'<line x1="{coord(x1)}" y1="{coord(y1)}" x2="{coord(x2)}" y2="{coord(y2)}" class="{kind}" '
        f'stroke="currentColor"{_dash_attribute(kind)}/>'
    )


def draw_polyline(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through `points`."""
    where = " ".join(f"{coord(x)},{coord(y)}" for x, y in points)
    return (
        f'<polyline points="{where}" class="{kind}" fill="none" '
        f'stroke="currentColor"{_dash_attribute(kind)}/>'
    )


def _dash_attribute(kind: str) -> str:
    dashes = next((dash for name, dash in DASHED.items() if name in kind), "")
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def draw_mark(x: float, y: float, index: int) -> str:
    """A circle, square, diamond or triangle by turns."""
    kind = f'class="ws-s{index % COLOURS}" fill="currentColor"'
    shapes = {
        1: f"M{coord(x - 4)} {coord(y - 4)}h8v8h-8z",
        2: f"M{coord(x)} {coord(y - 5.5)}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        3: f"M{coord(x)} {coord(y - 5)}l5 9h-10z",
    }
    if index % 4 == 0:
        return f'<circle cx="{coord(x)}" cy="{coord(y)}" r="4.5" {kind}/>'
    return f'<path d="{shapes[index % 4]}" {kind}/>'


def fit_text(words: str, room: float) -> str:
    """`words` cut with an ellipsis to fit `room` units of width."""
    width, kept = 0.0, ""
    for character in words:
        width += TEXT * (BROAD if ord(character) < 0x2E80 else 1.0)
        if width > room:
            return kept[:-1].rstrip() + "…"
        kept += character
    return kept


def spread_labels(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near `heights`, at least `gap` apart, between `low` and `high` where they fit."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    # Neighbours that would touch join into a block, which stands around the mean of its members.
    blocks: list[list[float]] = []  # wished top of the block, members
    for i in order:
        blocks.append([heights[i], 1])
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][1] * gap > blocks[-1][0]:
            top, count = blocks.pop()
            above, others = blocks[-1]
            mean = (above * others + (top - others * gap) * count) / (others + count)
            blocks[-1] = [mean, others + count]
    wished = [top + i * gap for top, count in blocks for i in range(int(count))]
    placed, floor = list(heights), low
    for i, height in zip(order, wished, strict=True):
        placed[i] = floor = max(height, floor)
        floor += gap
    roof = high
    for i in reversed(order):
        placed[i] = roof = min(placed[i], roof)
        roof -= gap
    return placed


@dataclass(frozen=True)
class Drawing:
    """What a plot shows: its title, the same in words, its height and its parts."""

    title: str
    said: Sequence[str]
    height: float
    parts: Sequence[str]
    remark: str = ""  # how to read it


@dataclass(frozen=True)
class LegendEntry:
    """A line of a legend: a function by its place among the series, its name, its value."""

    index: int
    name: str
    value: str

    @property
    def letter(self) -> str:
        """What stands at its mark as well."""
        return LETTERS[self.index % len(LETTERS)]


def render_svg(
    box: tuple[float, float, float],
    title: str,
    told: str,
    parts: Iterable[str],
    *,
    style: str = "",
) -> str:
    """An `<svg>` from `box` (its top, its width, its height), told in words for who sees none."""
    own = f' style="{style}"' if style else ""
    top, width, height = map(coord, box)
    return (
        f'<svg viewBox="0 {top} {width} {height}" role="img" data-search-exclude="yes" '
        f'xmlns="http://www.w3.org/2000/svg" font-size="{TEXT}" fill="currentColor"{own}>'
        f"<title>{escape_markdown(title)}</title><desc>{escape_markdown(told)}</desc>\n"
        + "\n".join(part for part in parts if part)
        + "\n</svg>"
    )


def render_figure(drawing: Drawing, note: str) -> str:
    """A drawing as an HTML block, with its caption."""
    told = "; ".join(drawing.said)
    caption = f"{escape_markdown(drawing.title)}. {escape_markdown(drawing.remark + note)}"
    return (
        '<figure class="ws-plot">'
        + render_svg((0, WIDTH, drawing.height), drawing.title, told, drawing.parts)
        + f"<figcaption>{caption}</figcaption></figure>"
    )


def draw_keys(y: float, entries: Iterable[tuple[str, str]]) -> tuple[list[str], float]:
    """Lines of a class and what it means, from `y` on; and where they end."""
    parts = []
    for kind, words in entries:
        sample = draw_line(4, y - 4, 32, y - 4, kind)
        parts.append(sample + draw_text(40, y, fit_text(words, WIDTH - 40)))
        y += LINE
    return parts, y


def draw_legend(
    y: float, entries: Iterable[LegendEntry], lines: Iterable[tuple[str, str]] = ()
) -> tuple[list[str], float]:
    """Marks and letters with name and value, then `lines`; a long name is cut, never its value."""
    parts = []
    for entry in entries:
        room = WIDTH - 40 - len(entry.value) * TEXT * BROAD
        sign = draw_text(24, y, entry.letter, kind="ws-letter")
        parts.append(draw_mark(12, y - 4.5, entry.index) + sign)
        parts.append(draw_text(40, y, fit_text(entry.name, room) + entry.value))
        y += LINE
    below, y = draw_keys(y, lines)
    return [*parts, *below], y


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


def x_scale(low: float, high: float, *, log: bool = False, margin: float = 0.0) -> Scale:
    """The scale of an area from left to right, with `margin` more on each side."""
    return Scale(low, high, LEFT + margin, WIDTH - RIGHT - 2 * margin, log)


def y_scale(low: float, high: float, *, log: bool = False) -> Scale:
    """The scale of an area from its foot to its top."""
    return Scale(low, high, TOP + AREA, TOP, log)


def nice_step(most: float) -> tuple[float, float]:
    """Step and top of a scale from 0 that reaches `most`, in about five steps of 1, 2 or 5."""
    step = 10.0 ** math.floor(math.log10(most / 2))
    step *= next(f for f in (1, 2, 5, 10) if most / (step * f) <= 6)
    return step, step * math.ceil(most / step)


def decade_ticks(scale: Scale) -> list[float]:
    """Powers of ten on a scale."""
    low, high = math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high))
    powers = range(low, high + 1)
    return [10.0**power for power in powers[:: max(1, math.ceil(len(powers) / MOST))]]


def prefix_factor(unit: str) -> float:
    """The factor of a unit such as `TB/s`."""
    return next(10.0**power for name, power in units.PREFIXES if unit.startswith(name))


def label_ticks(values: Iterable[float], factor: float = 1.0) -> list[Tick]:
    """The ticks at `values`, written in units of `factor`."""
    return [(v, units.format_number(float(units.format_significant(v / factor)))) for v in values]


def draw_y_axis(y: Scale, ticks: Iterable[Tick], unit: str) -> Iterator[str]:
    """A line across the area at each tick, its label on the left, and the unit above them all."""
    yield draw_text(4, 14, unit)
    for value, words in ticks:
        yield draw_level(y(value), "ws-grid")
        yield draw_text(LEFT - 6, y(value) + 4.5, words, end="end")


def draw_x_grid(x: Scale, ticks: Sequence[Tick], name: str) -> Iterator[str]:
    """A line up the area at each tick with its label below, and the name of the axis."""
    for value, words in ticks:
        yield draw_line(x(value), TOP, x(value), TOP + AREA, "ws-grid")
        yield _tick_label(x(value), words)
    yield _axis_name(name)


def draw_x_labels(x: Scale, ticks: Sequence[Tick], name: str) -> Iterator[str]:
    """The labels alone, and of those that would touch the first."""
    edge = -math.inf
    for value, words in ticks:
        half = len(words) * TEXT * 0.29
        if x(value) - half > edge:
            place = min(x(value), WIDTH - half)
            yield _tick_label(place, words)
            edge = place + half + 6
    yield _axis_name(name)


def draw_level(height: float, kind: str) -> str:
    """A line of class `kind` across the area."""
    return draw_line(LEFT, height, WIDTH - RIGHT, height, kind)


def _tick_label(place: float, words: str) -> str:
    return draw_text(place, TOP + AREA + 17, words, end="middle")


def _axis_name(name: str) -> str:
    return draw_text(WIDTH - RIGHT, TOP + AREA + 35, name, end="end")
