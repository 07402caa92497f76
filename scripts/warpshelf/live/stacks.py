"""Bars of a calculator: parts end to end, all configurations on one scale, against a limit.

Bars by `part` that have a limit are parts of one: it is their sum that has to fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpshelf.live import labels, results
from warpshelf.live.labels import Plot
from warpshelf.render import svg
from warpshelf.render.svg import Scale

STEP = 40.0  # from one bar to the next
MARGIN = 4.0
LETTER = 14.0  # width of a part from which on its letter stands in it


def _stacks(plot: Plot) -> dict[str, list[float]]:
    """The values of each bar, one of each series: parts of it where there are several."""
    labels = dict.fromkeys(str(label) for one in plot["series"] for label, _ in one["points"])
    points = [{str(label): value for label, value in one["points"]} for one in plot["series"]]
    return {label: [float(of.get(label, 0.0)) for of in points] for label in labels}


def bars(pair: Sequence[tuple[str, Plot]]) -> list[str]:
    """Horizontal bars, those of all configurations on one scale."""
    pair = [(name, _summed(plot)) for name, plot in pair]
    totals = [sum(parts) for _, plot in pair for parts in _stacks(plot).values()]
    limits = [plot["limit"]["value"] for _, plot in pair if plot.get("limit")]
    most = max([*totals, *limits, 0.0]) or 1.0
    return [svg.figure(_bars(name, plot, most), "") for name, plot in pair]


def _summed(plot: Plot) -> Plot:
    """Parts of a whole that has a limit as the parts of one bar, each with its value."""
    if plot["x"] != "part" or not plot.get("limit") or len(plot["series"]) != 1:
        return plot
    unit = labels.unit_of(plot["y"])
    series = [
        {"name": f"{label}: {results.shown(value, unit)}", "points": [("together", value)]}
        for label, value in plot["series"][0]["points"]
    ]
    return {**plot, "series": series}


def _bars(name: str, plot: Plot, most: float) -> svg.Drawing:
    x = Scale(0, most, MARGIN, svg.WIDTH - MARGIN)
    unit, limit = labels.unit_of(plot["y"]), plot.get("limit")
    series, parts, said, y = plot["series"], [], [], 16.0
    for label, values in _stacks(plot).items():
        total = sum(values)
        value = results.shown(total, unit)
        if limit and unit in labels.SIZES and total > limit["value"]:
            value += ", over"
        said.append(f"{label}: {value}")
        room = svg.WIDTH - 20 - len(value) * svg.TEXT * svg.BROAD
        parts.append(svg.text(MARGIN, y, svg.shortened(label, room)))
        parts.append(svg.text(svg.WIDTH - MARGIN, y, value, end="end"))
        start = 0.0
        for index, part in enumerate(values):
            if part > 0:
                letter = svg.LETTERS[index % len(svg.LETTERS)] if len(series) > 1 else ""
                parts.append(_bar(x(start), x(start + part), y + 6, index, letter))
            start += max(part, 0.0)
        if limit:
            parts.append(svg.line(x(limit["value"]), y + 3, x(limit["value"]), y + 22, "ws-peak"))
        y += STEP
    y += 2
    if len(series) > 1:
        below, y = _swatches(y, [str(one["name"]) for one in series])
        parts += below
        said += [f"parts: {', '.join(str(one['name']) for one in series)}"]
    if limit:
        words = labels.limit_of(str(limit["name"]), limit["value"], unit)
        below, y = svg.keys(y, [("ws-peak", words)])
        parts += below
        said.append(words)
    return svg.Drawing(labels.titled(name, plot), said, y - 6, parts, labels.axes_of(plot))


def _bar(left: float, right: float, y: float, index: int, letter: str = "") -> str:
    """A bar, with the letter of its part where it is broad enough."""
    words = ""
    if letter and right - left > LETTER:
        words = svg.text((left + right) / 2, y + 10.5, letter, end="middle", kind="ws-calc-part")
    return (
        f'<rect x="{svg.at(left)}" y="{svg.at(y)}" width="{svg.at(max(right - left, 0.5))}" '
        f'height="12" class="ws-bar ws-s{index % svg.COLOURS}" fill="currentColor"/>{words}'
    )


def _swatches(y: float, names: Sequence[str]) -> tuple[list[str], float]:
    """What the parts of bars are, in their order from the left."""
    parts = []
    for index, name in enumerate(names):
        parts.append(_bar(MARGIN, MARGIN + 16, y - 11, index))
        parts.append(
            svg.text(MARGIN + 24, y, svg.LETTERS[index % len(svg.LETTERS)], kind="ws-letter")
        )
        parts.append(svg.text(MARGIN + 40, y, svg.shortened(name, svg.WIDTH - 56)))
        y += svg.LINE
    return parts, y
