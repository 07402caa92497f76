"""The plots of a calculator: bars against a limit, lines over an input, a timeline of ranks.

Where two configurations are compared, bars and timelines stand one beside the other on one scale,
and lines in one picture. Bars by `part` that have a limit are parts of one: it is their sum that
has to fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.live import quantities
from warpshelf.render import svg
from warpshelf.render.svg import Scale

Plot = Mapping[str, Any]
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
    _, comma, last = label.rpartition(", ")
    if comma:
        return last.strip()
    words = label.replace("(", " ").replace(")", " ").split()
    return words[-1] if words and words[-1] in UNITS else ""


def plot_title(name: str, plot: Plot) -> str:
    """The title of a plot, with the name of the configuration where there are two."""
    return f"{plot['title']}, {name}" if name else str(plot["title"])


def axes_caption(plot: Plot) -> str:
    """What is drawn, in which unit, and over or by what."""
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
    one, other = quantities.format_value(first, unit), quantities.format_value(last, unit)
    mark = f" {other.rpartition(' ')[2]}"
    return f"{one.removesuffix(mark) if one.endswith(mark) else one} to {other}"


def format_limit(name: str, value: float, unit: str) -> str:
    """A limit in words: its name tells its value, or the value follows."""
    shown = quantities.format_value(value, unit)
    return name if name.endswith(shown) else f"{name}: {shown}"


STEP = 40.0  # from one bar to the next
MARGIN = 4.0
LETTER = 14.0  # width of a part from which on its letter stands in it


def _stack_values(plot: Plot) -> dict[str, list[float]]:
    """The values of each bar, one of each series: parts of it where there are several."""
    labels = dict.fromkeys(str(label) for one in plot["series"] for label, _ in one["points"])
    points = [{str(label): value for label, value in one["points"]} for one in plot["series"]]
    return {label: [float(of.get(label, 0.0)) for of in points] for label in labels}


def bar_charts(pair: Sequence[tuple[str, Plot]]) -> list[str]:
    """Horizontal bars, those of all configurations on one scale."""
    pair = [(name, _stack_parts(plot)) for name, plot in pair]
    totals = [sum(parts) for _, plot in pair for parts in _stack_values(plot).values()]
    limits = [plot["limit"]["value"] for _, plot in pair if plot.get("limit")]
    most = max([*totals, *limits, 0.0]) or 1.0
    return [svg.render_figure(_draw_bar_chart(name, plot, most), "") for name, plot in pair]


def _stack_parts(plot: Plot) -> Plot:
    """Parts of a whole that has a limit as the parts of one bar, each with its value."""
    if plot["x"] != "part" or not plot.get("limit") or len(plot["series"]) != 1:
        return plot
    unit = axis_unit(plot["y"])
    series = [
        {
            "name": f"{label}: {quantities.format_value(value, unit)}",
            "points": [("together", value)],
        }
        for label, value in plot["series"][0]["points"]
    ]
    return {**plot, "series": series}


def _draw_bar_chart(name: str, plot: Plot, most: float) -> svg.Drawing:
    x = Scale(0, most, MARGIN, svg.WIDTH - MARGIN)
    unit, limit = axis_unit(plot["y"]), plot.get("limit")
    series, parts, said, y = plot["series"], [], [], 16.0
    for label, values in _stack_values(plot).items():
        total = sum(values)
        value = quantities.format_value(total, unit)
        if limit and unit in SIZES and total > limit["value"]:
            value += ", over"
        said.append(f"{label}: {value}")
        room = svg.WIDTH - 20 - len(value) * svg.TEXT * svg.BROAD
        parts.append(svg.draw_text(MARGIN, y, svg.fit_text(label, room)))
        parts.append(svg.draw_text(svg.WIDTH - MARGIN, y, value, end="end"))
        start = 0.0
        for index, part in enumerate(values):
            if part > 0:
                letter = svg.LETTERS[index % len(svg.LETTERS)] if len(series) > 1 else ""
                parts.append(_draw_bar(x(start), x(start + part), y + 6, index, letter))
            start += max(part, 0.0)
        if limit:
            parts.append(
                svg.draw_line(x(limit["value"]), y + 3, x(limit["value"]), y + 22, "ws-peak")
            )
        y += STEP
    y += 2
    if len(series) > 1:
        below, y = _draw_swatches(y, [str(one["name"]) for one in series])
        parts += below
        said += [f"parts: {', '.join(str(one['name']) for one in series)}"]
    if limit:
        words = format_limit(str(limit["name"]), limit["value"], unit)
        below, y = svg.draw_keys(y, [("ws-peak", words)])
        parts += below
        said.append(words)
    return svg.Drawing(plot_title(name, plot), said, y - 6, parts, axes_caption(plot))


def _draw_bar(left: float, right: float, y: float, index: int, letter: str = "") -> str:
    """A bar, with the letter of its part where it is broad enough."""
    words = ""
    if letter and right - left > LETTER:
        words = svg.draw_text(
            (left + right) / 2, y + 10.5, letter, end="middle", kind="ws-calc-part"
        )
    return (
        f'<rect x="{svg.coord(left)}" y="{svg.coord(y)}" '
        f'width="{svg.coord(max(right - left, 0.5))}" height="12" '
        f'class="ws-bar ws-s{index % svg.COLOURS}" fill="currentColor"/>{words}'
    )


def _draw_swatches(y: float, names: Sequence[str]) -> tuple[list[str], float]:
    """What the parts of bars are, in their order from the left."""
    parts = []
    for index, name in enumerate(names):
        parts.append(_draw_bar(MARGIN, MARGIN + 16, y - 11, index))
        parts.append(
            svg.draw_text(MARGIN + 24, y, svg.LETTERS[index % len(svg.LETTERS)], kind="ws-letter")
        )
        parts.append(svg.draw_text(MARGIN + 40, y, svg.fit_text(name, svg.WIDTH - 56)))
        y += svg.LINE
    return parts, y


LEFT, RANK, GAP = 62.0, 22.0, 5.0  # room for names, height of a row, room between rows
SPAN = 720.0  # width of the longest
NARROW = 7.5  # width of a character in a box


def timeline_charts(pair: Sequence[tuple[str, Plot]]) -> list[str]:
    """Who does what when, all configurations on one scale of time."""
    end = max((float(p[2]) for _, plot in pair for one in plot["series"] for p in one["points"]),
              default=0.0)  # fmt: skip
    return [_draw_timeline(name, plot, end or 1.0) for name, plot in pair]


def _draw_timeline(name: str, plot: Plot, end: float) -> str:
    series = plot["series"]
    rows = dict.fromkeys(str(point[0]) for one in series for point in one["points"])
    places = {row: index * (RANK + GAP) for index, row in enumerate(rows)}
    x = Scale(0, end, LEFT, LEFT + SPAN)
    parts = [svg.draw_text(0, y + RANK / 2 + 4.5, svg.fit_text(row, LEFT - 6))
             for row, y in places.items()]  # fmt: skip
    for index, one in enumerate(series):
        for row, start, stop, label in one["points"]:
            parts.append(_timeline_box(x(start), x(stop), places[str(row)], index, str(label)))
    foot = len(rows) * (RANK + GAP)
    unit = axis_unit(plot["x"])
    last = max((float(p[2]) for one in series for p in one["points"]), default=0.0)
    parts.append(svg.draw_line(x(last), -2, x(last), foot, "ws-line"))
    shown = quantities.format_value(last, unit)
    parts.append(svg.draw_text(min(x(last), LEFT + SPAN - 20), foot + 12, shown, end="middle"))
    at = LEFT
    for index, one in enumerate(series):
        parts.append(_timeline_box(at, at + 16, foot + 24, index, ""))
        parts.append(svg.draw_text(at + 22, foot + 40, str(one["name"])))
        at += 40 + len(str(one["name"])) * svg.TEXT * 0.55
    told = f"{len(rows)} rows, ends after {shown}; " + ", ".join(str(s["name"]) for s in series)
    title = plot_title(name, plot)
    drawn = svg.render_svg((-4, LEFT + SPAN + 24, foot + 54), title, told, parts)
    caption = escape_markdown(f"{title}. {axes_caption(plot)}")
    return (
        '<figure class="ws-diagram ws-timeline"><div class="ws-scroll" role="region" '
        f'tabindex="0" aria-label={quote_attribute(title)}>{drawn}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _timeline_box(left: float, right: float, y: float, index: int, words: str) -> str:
    filled = index % 2 == 0
    classes = f"ws-fill ws-s{index % 8}" if filled else f"ws-box ws-s{index % 8}"
    shape = (
        f'<rect x="{svg.coord(left + 0.5)}" y="{svg.coord(y + 0.7)}" '
        f'width="{svg.coord(max(right - left - 1, 0.5))}" height="{svg.coord(RANK - 1.4)}" '
        f'class="{classes}"/>'
    )
    if words and len(words) * NARROW <= right - left:
        kind = "ws-on ws-small" if filled else "ws-small"
        shape += svg.draw_text(
            (left + right) / 2, y + RANK / 2 + 4.2, words, end="middle", kind=kind
        )
    return shape


WIDE = 50.0  # times the smallest value from which on an axis counts in decades
TALL = 200.0
MARKED = 16  # points of a line up to which each has its mark


def line_chart(pair: Sequence[tuple[str, Plot]]) -> list[str]:
    """All series of all configurations in one picture."""
    series = [
        (f"{name}: {one['name']}" if name else str(one["name"]), _series_points(one))
        for name, plot in pair
        for one in plot["series"]
    ]
    series = [(called, points) for called, points in series if points]
    if not series:
        return []
    plot = pair[0][1]
    limits = _distinct_limits(pair)
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points] + [value for _, value in limits]
    x, across = _x_axis(min(xs), max(xs), str(plot["x"]))
    y, upwards = _y_axis(min(ys), max(ys), axis_unit(plot["y"]), str(plot["y"]))
    parts = [*upwards, *across, *(svg.draw_level(y(value), "ws-peak") for _, value in limits)]
    legend = []
    unit = axis_unit(plot["y"])
    for index, (called, points) in enumerate(series):
        kind = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.draw_polyline(((x(a), y(b)) for a, b in points), kind))
        every = 1 if len(points) <= MARKED else len(points)
        parts += [svg.draw_mark(x(a), y(b), index) for a, b in points[::-every]]
        ends = f": {format_span(points[0][1], points[-1][1], unit)}"
        legend.append(svg.LegendEntry(index, called, ends))
    heights = svg.spread_labels(
        [y(points[-1][1]) for _, points in series], svg.TEXT, svg.TOP, svg.TOP + svg.AREA
    )
    parts += [
        svg.draw_text(x(points[-1][0]) + 8, height + 4.5, entry.letter, kind="ws-letter ws-halo")
        for entry, (_, points), height in zip(legend, series, heights, strict=True)
    ]
    keys = [("ws-peak", format_limit(name, value, unit)) for name, value in limits]
    below, foot = svg.draw_legend(svg.FOOT, legend, keys)
    said = [entry.name + entry.value for entry in legend] + [words for _, words in keys]
    drawing = svg.Drawing(str(plot["title"]), said, foot - 8, [*parts, *below], axes_caption(plot))
    return [svg.render_figure(drawing, "")]


def _distinct_limits(pair: Sequence[tuple[str, Plot]]) -> list[tuple[str, float]]:
    """The limits of all configurations, each once, told apart where they differ."""
    found = [(name, of["limit"]) for name, of in pair if of.get("limit")]
    values = {float(limit["value"]) for _, limit in found}
    if len(values) == 1:
        found = [("", found[0][1])]
    return [
        (f"{name}: {limit['name']}" if name else str(limit["name"]), float(limit["value"]))
        for name, limit in found
    ]


def _series_points(one: Plot) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in one["points"]]


def _x_axis(low: float, high: float, name: str) -> tuple[Scale, list[str]]:
    """The axis at the foot: in decades where the values span many, with their labels."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    if low > 0 and high / low >= WIDE:
        x = svg.x_scale(low, high, log=True, margin=8)
        places = svg.decade_ticks(x)
        ends = [low, *(value for value in places if low < value < high), high]
        return x, [
            *svg.draw_x_labels(x, svg.label_ticks(ends if len(places) < 3 else places), name)
        ]
    step, top = svg.nice_step(high)
    start = 0.0 if low >= 0 and low < 0.5 * high else low
    x = svg.x_scale(start, top if start == 0 else high, margin=8)
    places = [step * n for n in range(int(top / step) + 1) if x.low <= step * n <= x.high]
    return x, [*svg.draw_x_labels(x, svg.label_ticks(places), name)]


def _y_axis(low: float, high: float, unit: str, name: str) -> tuple[Scale, list[str]]:
    """The axis on the left, in units that its largest value reaches."""
    factor, written = _axis_unit_scale(high, unit)
    written = written or name
    if low > 0 and high / low >= TALL:
        y = svg.y_scale(low / 1.2, high * 1.2, log=True)
        return y, [*svg.draw_y_axis(y, svg.label_ticks(svg.decade_ticks(y), factor), written)]
    if high <= 0:
        high = 1.0
    step, top = svg.nice_step(high / factor)
    y = svg.y_scale(min(0.0, low), top * factor)
    levels = [factor * step * n for n in range(int(top / step + 0.5) + 1)]
    return y, [*svg.draw_y_axis(y, svg.label_ticks(levels, factor), written)]


def _axis_unit_scale(most: float, unit: str) -> tuple[float, str]:
    """What values are divided by on an axis, and what they then count."""
    if unit == "B":
        power = next((p for p in (4, 3, 2, 1) if most >= 1024**p), 0)
        return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    if unit == "s":
        scales = ((86_400.0, "days"), (3_600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
        return next((one for one in scales if most >= 2 * one[0]), scales[-1])
    if unit in quantities.SCALED:
        said = quantities.format_scaled(most, unit).split(" ")[1]
        if said.endswith(unit) and len(said) == len(unit) + 1:
            return svg.prefix_factor(said), said
    return 1.0, unit


DRAW = {"bars": bar_charts, "lines": line_chart, "timeline": timeline_charts}


def draw_charts(found: Sequence[Sequence[Plot]], names: Sequence[str]) -> list[str]:
    """A figure for each plot of one or two results; `names` tell the results apart."""
    drawn: list[str] = []
    for place in range(max((len(plots) for plots in found), default=0)):
        pair = [(name, plots[place]) for name, plots in zip(names, found, strict=True)
                if place < len(plots)]  # fmt: skip
        kinds = {plot["kind"] for _, plot in pair}
        for kind in DRAW:
            if kind in kinds:
                drawn += DRAW[kind]([one for one in pair if one[1]["kind"] == kind])
    return drawn
