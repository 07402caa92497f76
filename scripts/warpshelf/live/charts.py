"""The plots of a calculator: bars against a limit, lines over an input, a timeline of ranks.

If two configurations are compared, bars and timelines stand side by side on one scale,
and lines in one picture. Bars by `part` that have a limit are parts of one: it is their sum that
has to fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpshelf.live import quantities
from warpshelf.live.quantities import format_value
from warpshelf.render import svg
from warpshelf.render.svg import Scale

Plot = Mapping[str, Any]
Pair = Sequence[tuple[str, Plot]]  # a plot of each configuration, with the configuration's name
SIZES = ("B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")  # what a limit is a room of
UNITS = (  # what a label may be, or end with
    "FLOP/s", "TFLOP/s", "FLOP", "B/s", "GB/s", "s", "ms", "µs", "h", "days", "%", "tokens/s",
    *SIZES,
)  # fmt: skip
WRITTEN_OUT = {"seconds": "s", "bytes": "B", "FLOPs": "FLOP"}


def axis_unit(label: str) -> str:
    """The unit that the label of an axis ends with: `ms` of `step, ms`, `FLOP` of `FLOP`."""
    if label in WRITTEN_OUT:
        return WRITTEN_OUT[label]
    if ", " in label:
        return label.rpartition(", ")[2].strip()
    last = label.replace("(", " ").replace(")", " ").split()[-1:]
    return last[0] if last and last[0] in UNITS else ""


def _plot_title(name: str, plot: Plot) -> str:
    return f"{plot['title']}, {name}" if name else str(plot["title"])


def _axes_caption(plot: Plot) -> str:
    """What is drawn, in which unit, and against what."""
    label = str(plot["y"])
    said = f"in {label}" if label in UNITS else label
    if label in quantities.SCALED or label in ("B", "s"):
        said = ""  # each value is written with a unit of its own size
    if plot["x"]:
        said += f" {'by' if plot['kind'] == 'bars' else 'over'} {plot['x']}"
    said = said.strip()
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def format_span(first: float, last: float, unit: str) -> str:
    """The ends of a line in words: `1.2 to 3.4 ms`, `218 GFLOP to 4.34 TFLOP`."""
    one, other = format_value(first, unit), format_value(last, unit)
    mark = other.rpartition(" ")[2]
    return f"{one.removesuffix(f' {mark}')} to {other}"


def _format_limit(name: str, value: float, unit: str) -> str:
    """A limit in words: its name holds its value, or the value follows."""
    shown = format_value(value, unit)
    return name if name.endswith(shown) else f"{name}: {shown}"


STEP = 40.0  # from one bar to the next
MARGIN = 4.0
LETTER = 14.0  # width of a part from which on its letter stands in it


def bar_charts(pair: Pair) -> list[str]:
    """Horizontal bars, those of all configurations on one scale."""
    drawn, most = [], 0.0
    for name, plot in pair:
        series, limit = plot["series"], plot.get("limit")
        if plot["x"] == "part" and limit and len(series) == 1:
            # Parts of a whole that has a limit are the parts of one bar, each with its value.
            unit = axis_unit(plot["y"])
            series = [
                {"name": f"{label}: {format_value(value, unit)}", "points": [("together", value)]}
                for label, value in series[0]["points"]
            ]
        bars: dict[str, list[float]] = {}
        for place, one in enumerate(series):
            for label, value in one["points"]:
                bars.setdefault(str(label), [0.0] * len(series))[place] = float(value)
        most = max([most, *map(sum, bars.values()), *([limit["value"]] if limit else [])])
        drawn.append((name, plot, [str(one["name"]) for one in series], bars))
    x = Scale(0, most or 1.0, MARGIN, svg.WIDTH - MARGIN)
    return [_draw_bar_chart(x, *one) for one in drawn]


def _draw_bar_chart(
    x: Scale, name: str, plot: Plot, series: Sequence[str], bars: Mapping[str, Sequence[float]]
) -> str:
    """The bars by their labels, each of as many parts as there are series."""
    unit, limit = axis_unit(plot["y"]), plot.get("limit")
    parts, said, y = [], [], 16.0
    for label, values in bars.items():
        total, start = sum(values), 0.0
        value = format_value(total, unit)
        if limit and unit in SIZES and total > limit["value"]:
            value += ", over"
        said.append(f"{label}: {value}")
        room = svg.WIDTH - 20 - len(value) * svg.TEXT * svg.BROAD
        parts.append(svg.draw_text(MARGIN, y, svg.fit_text(label, room)))
        parts.append(svg.draw_text(svg.WIDTH - MARGIN, y, value, end="end"))
        for index, part in enumerate(values):
            if part > 0:
                left, right = x(start), x(start + part)
                shape = _draw_bar(left, right - left, y + 6, index)
                if len(series) > 1 and right - left > LETTER:
                    at, letter = ((left + right) / 2, y + 16.5), svg.series_letter(index)
                    shape += svg.draw_text(*at, letter, end="middle", kind="ws-calc-part")
                parts.append(shape)
                start += part
        if limit:
            place = x(limit["value"])
            parts.append(svg.draw_line(place, y + 3, place, y + 22, "ws-peak"))
        y += STEP
    y += 2
    if len(series) > 1:
        for index, called in enumerate(series):
            parts.append(_draw_bar(MARGIN, 16, y - 11, index))
            letter = svg.series_letter(index)
            parts.append(svg.draw_text(MARGIN + 24, y, letter, kind="ws-letter"))
            parts.append(svg.draw_text(MARGIN + 40, y, svg.fit_text(called, svg.WIDTH - 56)))
            y += svg.LINE
        said.append(f"parts: {', '.join(series)}")
    if limit:
        words = _format_limit(str(limit["name"]), limit["value"], unit)
        below, y = svg.draw_keys(y, [("ws-peak", words)])
        parts += below
        said.append(words)
    return svg.render_figure(_plot_title(name, plot), said, y - 6, parts, _axes_caption(plot))


def _draw_bar(left: float, width: float, y: float, index: int) -> str:
    return svg.draw_rect(left, y, max(width, 0.5), 12, f"ws-bar ws-s{index % svg.COLOURS}")


LEFT, RANK, GAP = 62.0, 22.0, 5.0  # room for names, height of a row, room between rows
SPAN = 720.0  # width of the longest
NARROW = 7.5  # width of a character in a box


def timeline_charts(pair: Pair) -> list[str]:
    """Who does what when, all configurations on one scale of time."""
    ends = [[float(point[2]) for one in plot["series"] for point in one["points"]]
            for _, plot in pair]  # fmt: skip
    x = Scale(0, max(map(max, filter(None, ends)), default=0.0) or 1.0, LEFT, LEFT + SPAN)
    drawn = []
    for (name, plot), own in zip(pair, ends, strict=True):
        series, last = plot["series"], max(own, default=0.0)
        rows = dict.fromkeys(str(point[0]) for one in series for point in one["points"])
        places = {row: index * (RANK + GAP) for index, row in enumerate(rows)}
        parts = [svg.draw_text(0, y + RANK / 2 + 4.5, svg.fit_text(row, LEFT - 6))
                 for row, y in places.items()]  # fmt: skip
        for index, one in enumerate(series):
            for row, start, stop, label in one["points"]:
                box = (x(start), x(stop), places[str(row)])
                parts.append(_timeline_box(*box, index, str(label)))
        foot, at = len(rows) * (RANK + GAP), LEFT
        parts.append(svg.draw_line(x(last), -2, x(last), foot, "ws-line"))
        shown = format_value(last, axis_unit(plot["x"]))
        end = min(x(last), LEFT + SPAN - 20)
        parts.append(svg.draw_text(end, foot + 12, shown, end="middle"))
        names = [str(one["name"]) for one in series]
        for index, called in enumerate(names):
            parts.append(_timeline_box(at, at + 16, foot + 24, index, ""))
            parts.append(svg.draw_text(at + 22, foot + 40, called))
            at += 40 + len(called) * svg.TEXT * 0.55
        told = f"{len(rows)} rows, ends after {shown}; {', '.join(names)}"
        title, box = _plot_title(name, plot), (-4, LEFT + SPAN + 24, foot + 54)
        caption = f"{title}. {_axes_caption(plot)}"
        drawn.append(svg.render_diagram("timeline", box, title, told, parts, caption))
    return drawn


def _timeline_box(left: float, right: float, y: float, index: int, words: str) -> str:
    filled = index % 2 == 0
    kind = f"{'ws-fill' if filled else 'ws-box'} ws-s{index % svg.COLOURS}"
    shape = svg.draw_rect(left + 0.5, y + 0.7, max(right - left - 1, 0.5), RANK - 1.4, kind, "")
    if words and len(words) * NARROW <= right - left:
        kind = "ws-on ws-small" if filled else "ws-small"
        middle = (left + right) / 2
        shape += svg.draw_text(middle, y + RANK / 2 + 4.2, words, end="middle", kind=kind)
    return shape


WIDE = 50.0  # times the smallest value from which on an axis counts in decades
TALL = 200.0
MARKED = 16  # points of a line up to which each has its mark


def line_chart(pair: Pair) -> list[str]:
    """All series of all configurations in one picture."""
    series = [
        (f"{name}: {one['name']}" if name else str(one["name"]),
         [(float(x), float(y)) for x, y in one["points"]])
        for name, plot in pair
        for one in plot["series"]
        if one["points"]
    ]  # fmt: skip
    if not series:
        return []
    plot, found = pair[0][1], [(name, of["limit"]) for name, of in pair if of.get("limit")]
    unit = axis_unit(plot["y"])
    if len({float(limit["value"]) for _, limit in found}) == 1:  # else they are told apart
        found = [("", found[0][1])]
    limits = [
        (f"{name}: {limit['name']}" if name else str(limit["name"]), float(limit["value"]))
        for name, limit in found
    ]
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points] + [value for _, value in limits]
    x, across = _x_axis(min(xs), max(xs), str(plot["x"]))
    y, upwards = _y_axis(min(ys), max(ys), unit, str(plot["y"]))
    curves, legend = [], []
    for called, points in series:
        places = [(x(a), y(b)) for a, b in points]
        every = 1 if len(points) <= MARKED else len(points)
        curves.append(svg.Curve(places, places[::-every]))
        legend.append((called, f": {format_span(points[0][1], points[-1][1], unit)}"))
    levels = [svg.draw_level(y(value), "ws-peak") for _, value in limits]
    parts = [*upwards, *across, *levels, *svg.draw_curves(curves)]
    words = [_format_limit(name, value, unit) for name, value in limits]
    keys = [("ws-peak", one) for one in words]
    title, caption = str(plot["title"]), _axes_caption(plot)
    return [svg.render_plot(title, parts, legend, caption, lines=keys, after=words)]


def _x_axis(low: float, high: float, name: str) -> tuple[Scale, list[str]]:
    if high <= low:
        high = low + (abs(low) or 1.0)
    if low > 0 and high / low >= WIDE:
        x = svg.x_scale(low, high, log=True, margin=8)
        places = svg.decade_ticks(x)
        if len(places) < 3:
            places = [low, *(value for value in places if low < value < high), high]
    else:
        step, top = svg.nice_step(high)
        start = 0.0 if low >= 0 and low < 0.5 * high else low
        x = svg.x_scale(start, top if start == 0 else high, margin=8)
        places = [step * n for n in range(int(top / step) + 1) if x.low <= step * n <= x.high]
    return x, list(svg.draw_x_axis(x, svg.label_ticks(places), name))


def _y_axis(low: float, high: float, unit: str, name: str) -> tuple[Scale, list[str]]:
    """The axis on the left, in units that its largest value reaches."""
    factor, written = _axis_unit_scale(high, unit)
    if low > 0 and high / low >= TALL:
        y = svg.y_scale(low / 1.2, high * 1.2, log=True)
        levels = svg.decade_ticks(y)
    else:
        step, top = svg.nice_step((high if high > 0 else 1.0) / factor)
        y = svg.y_scale(min(0.0, low), top * factor)
        levels = [factor * step * n for n in range(int(top / step + 0.5) + 1)]
    return y, list(svg.draw_y_axis(y, svg.label_ticks(levels, factor), written or name))


def _axis_unit_scale(most: float, unit: str) -> tuple[float, str]:
    """What values are divided by on an axis, and what they then count."""
    if unit == "B":
        power = next((p for p in (4, 3, 2, 1) if most >= 1024**p), 0)
        return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    if unit == "s":
        scales = ((86_400.0, "days"), (3_600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
        return next((one for one in scales if most >= 2 * one[0]), scales[-1])
    if unit in quantities.SCALED:
        said = format_value(most, unit).split(" ")[1]
        if said.endswith(unit) and len(said) == len(unit) + 1:
            return svg.prefix_factor(said), said
    return 1.0, unit


DRAW = {"bars": bar_charts, "lines": line_chart, "timeline": timeline_charts}


def draw_charts(found: Sequence[Sequence[Plot]], names: Sequence[str]) -> list[str]:
    """A figure for each plot of one or two results; `names` tell the results apart."""
    drawn: list[str] = []
    for place in range(max(map(len, found), default=0)):
        pair = [(name, plots[place]) for name, plots in zip(names, found, strict=True)
                if place < len(plots)]  # fmt: skip
        for kind, draw in DRAW.items():
            if same := [one for one in pair if one[1]["kind"] == kind]:
                drawn += draw(same)
    return drawn
