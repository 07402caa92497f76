"""Drawings as SVG: shapes and words, and values as places in a picture with ticks and limits.

One way for every plot. The drawing area of a plot is as wide as the picture but for the margins,
and `AREA` high.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from warpshelf.core import units
from warpshelf.core.markup import escape_markdown, quote_attribute

WIDTH = 400.0
TEXT = 13.5  # height of the text
BROAD = 0.58  # width of a character over the height of the text, at most as a rule
LINE = 19.0  # from one line of the legend to the next
DASHED = {"ws-peak": "6 4", "ws-changed": "2 4"}  # by class
COLOURS = 8  # classes ws-s0 to ws-s7 of the style sheet
FILLED, HOLLOW = ' fill="currentColor"', ' fill="none" stroke="currentColor"'


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
    paint = f' stroke="currentColor"{_dash_attribute(kind)}'
    return _draw_shape("line", kind, paint, x1=x1, y1=y1, x2=x2, y2=y2)


def _draw_shape(tag: str, kind: str, paint: str, **places: float) -> str:
    where = " ".join(f'{name}="{coord(value)}"' for name, value in places.items())
    return f'<{tag} {where} class="{kind}"{paint}/>'


def draw_polyline(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through `points`."""
    where = " ".join(f"{coord(x)},{coord(y)}" for x, y in points)
    return f'<polyline points="{where}" class="{kind}"{HOLLOW}{_dash_attribute(kind)}/>'


def _dash_attribute(kind: str) -> str:
    dashes = next((dash for name, dash in DASHED.items() if name in kind), "")
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def draw_rect(x: float, y: float, wide: float, high: float, kind: str, paint: str = FILLED) -> str:
    """A rectangle of class `kind`, FILLED, HOLLOW, or with "" as the style sheet has it."""
    return _draw_shape("rect", kind, paint, x=x, y=y, width=wide, height=high)


def draw_mark(x: float, y: float, index: int, hollow: bool = False) -> str:
    """A circle, square, diamond or triangle by turns; a `hollow` one is a circle."""
    kind, paint = f"ws-s{index % COLOURS}", HOLLOW if hollow else FILLED
    if hollow or index % 4 == 0:
        return _draw_shape("circle", kind, paint, cx=x, cy=y, r=4.5)
    path = (
        f"M{coord(x - 4)} {coord(y - 4)}h8v8h-8z",
        f"M{coord(x)} {coord(y - 5.5)}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        f"M{coord(x)} {coord(y - 5)}l5 9h-10z",
    )[index % 4 - 1]
    return f'<path d="{path}" class="{kind}"{paint}/>'


def series_letter(index: int) -> str:
    """What stands at the marks of a series, by its place among all."""
    return chr(ord("A") + index % 26)


def fit_text(words: str, room: float) -> str:
    """`words` cut with an ellipsis to fit `room` units of width."""
    width = 0.0
    for place, character in enumerate(words):
        width += TEXT * (BROAD if ord(character) < 0x2E80 else 1.0)
        if width > room:
            return words[: max(place - 1, 0)].rstrip() + "…"
    return words


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
    placed, floor, roof = list(heights), low, high
    for i, height in zip(order, wished, strict=True):
        placed[i] = floor = max(height, floor)
        floor += gap
    for i in reversed(order):
        placed[i] = roof = min(placed[i], roof)
        roof -= gap
    return placed


def render_svg(
    box: tuple[float, float, float], title: str, told: str, parts: Iterable[str], style: str = ""
) -> str:
    """An `<svg>` from `box` (its top, its width, its height), with a text for screen readers."""
    top, width, height = map(coord, box)
    return (
        f'<svg viewBox="0 {top} {width} {height}" role="img" data-search-exclude="yes" '
        f'xmlns="http://www.w3.org/2000/svg" font-size="{TEXT}" fill="currentColor" '
        f'style="aspect-ratio:{width}/{height};{style}">'
        f"<title>{escape_markdown(title)}</title><desc>{escape_markdown(told)}</desc>\n"
        + "\n".join(part for part in parts if part)
        + "\n</svg>"
    )


def render_diagram(
    kind: str, box: tuple[float, float, float], title: str, told: str, parts: Iterable[str],
    caption: str, style: str = "",
) -> str:  # fmt: skip
    """A picture in a box that scrolls sideways, with its caption."""
    return (
        f'<figure class="ws-diagram ws-{kind}"><div class="ws-scroll" role="region" tabindex="0" '
        f"aria-label={quote_attribute(title)}>{render_svg(box, title, told, parts, style)}</div>"
        f"<figcaption>{escape_markdown(caption)}</figcaption></figure>"
    )


def render_figure(
    title: str, said: Iterable[str], height: float, parts: Iterable[str], note: str
) -> str:
    """A plot as an HTML block, with `said` for screen readers and `note` in its caption."""
    drawn = render_svg((0, WIDTH, height), title, "; ".join(said), parts)
    caption = f"{escape_markdown(title)}. {escape_markdown(note)}"
    return f'<figure class="ws-plot">{drawn}<figcaption>{caption}</figcaption></figure>'


def draw_keys(y: float, entries: Iterable[tuple[str, str]]) -> tuple[list[str], float]:
    """Lines of a class and what it means, from `y` on; and where they end."""
    parts = []
    for kind, words in entries:
        sample = draw_line(4, y - 4, 32, y - 4, kind)
        parts.append(sample + draw_text(40, y, fit_text(words, WIDTH - 40)))
        y += LINE
    return parts, y


LEFT, RIGHT, TOP = 44.0, 12.0, 30.0  # margins; on the left stand the labels of the ticks
AREA = 220.0
FOOT = TOP + AREA + 58  # where the legend begins
MOST = 7  # ticks of an axis in decades


def render_plot(
    title: str, parts: Iterable[str], legend: Iterable[tuple[str, str]], note: str, *,
    lines: Iterable[tuple[str, str]] = (), before: Iterable[str] = (), after: Iterable[str] = (),
    foot: float = FOOT,
) -> str:  # fmt: skip
    """A figure of `parts` in the area, over its legend.

    The legend has the name and the value of each series, in their order, then `lines`; a long name
    is cut, never its value. What is told in words is the legend between `before` and `after`.
    """
    drawn, said = list(parts), list(before)
    for index, (name, value) in enumerate(legend):
        room = WIDTH - 40 - len(value) * TEXT * BROAD
        sign = draw_text(24, foot, series_letter(index), kind="ws-letter")
        drawn.append(draw_mark(12, foot - 4.5, index) + sign)
        drawn.append(draw_text(40, foot, fit_text(name, room) + value))
        said.append(name + value)
        foot += LINE
    below, foot = draw_keys(foot, lines)
    return render_figure(title, [*said, *after], foot - 8, [*drawn, *below], note)


class Curve(NamedTuple):
    """A series in the area: its points, which of them are marked, and spreads as x, from, to."""

    points: Sequence[tuple[float, float]]
    marked: Sequence[tuple[float, float]]
    spreads: Sequence[tuple[float, float, float]] = ()


def draw_curves(curves: Sequence[Curve]) -> Iterator[str]:
    """All series, each with its letter at its last point."""
    for index, curve in enumerate(curves):
        kind = f"ws-curve ws-s{index % COLOURS}"
        yield draw_polyline(curve.points, kind)
        yield from (draw_line(x, low, x, high, kind) for x, low, high in curve.spreads)
        yield from (draw_mark(x, y, index) for x, y in curve.marked)
    ends = [curve.points[-1] for curve in curves]
    heights = spread_labels([y for _, y in ends], TEXT, TOP, TOP + AREA)
    for index, ((x, _), height) in enumerate(zip(ends, heights, strict=True)):
        yield draw_text(x + 8, height + 4.5, series_letter(index), kind="ws-letter ws-halo")


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
        low, high, here = self.low, self.high, value
        if self.log:
            low, high, here = map(math.log10, (low, high, here))
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


def draw_rate_axis(y: Scale, levels: Iterable[float], most: float, unit: str) -> Iterator[str]:
    """The axis of rates up to `most`, with the prefix that it has."""
    shown = units.format_rate(most, unit).split(" ")[1]
    yield from draw_y_axis(y, label_ticks(levels, prefix_factor(shown)), shown)


def draw_x_axis(x: Scale, ticks: Iterable[Tick], name: str, *, grid: bool = False) -> Iterator[str]:
    """The labels below the area, of those that would touch the first, and the name of the axis.

    With `grid` a line goes up the area at each tick, and no label is left out.
    """
    edge = -math.inf
    for value, words in ticks:
        place, half = x(value), len(words) * TEXT * 0.29
        if grid:
            yield draw_line(place, TOP, place, TOP + AREA, "ws-grid")
        elif place - half <= edge:
            continue
        else:
            place = min(place, WIDTH - half)
            edge = place + half + 6
        yield draw_text(place, TOP + AREA + 17, words, end="middle")
    yield draw_text(WIDTH - RIGHT, TOP + AREA + 35, name, end="end")


def draw_level(height: float, kind: str) -> str:
    """A line of class `kind` across the area."""
    return draw_line(LEFT, height, WIDTH - RIGHT, height, kind)
