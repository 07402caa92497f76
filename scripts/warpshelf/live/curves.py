"""Lines of a calculator over one of its inputs, those of all configurations in one picture."""

from __future__ import annotations

from collections.abc import Sequence

from warpshelf.live import labels, results
from warpshelf.live.labels import Plot
from warpshelf.render import svg
from warpshelf.render.svg import Scale

WIDE = 50.0  # times the smallest value from which on an axis counts in decades
TALL = 200.0
MARKED = 16  # points of a line up to which each has its mark


def lines(pair: Sequence[tuple[str, Plot]]) -> list[str]:
    """All series of all configurations in one picture."""
    series = [
        (f"{name}: {one['name']}" if name else str(one["name"]), _points(one))
        for name, plot in pair
        for one in plot["series"]
    ]
    series = [(called, points) for called, points in series if points]
    if not series:
        return []
    plot = pair[0][1]
    limits = _limits(pair)
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points] + [value for _, value in limits]
    x, across = _across(min(xs), max(xs), str(plot["x"]))
    y, upwards = _upwards(min(ys), max(ys), labels.unit_of(plot["y"]), str(plot["y"]))
    parts = [*upwards, *across, *(svg.level(y(value), "ws-peak") for _, value in limits)]
    legend = []
    unit = labels.unit_of(plot["y"])
    for index, (called, points) in enumerate(series):
        kind = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.path(((x(a), y(b)) for a, b in points), kind))
        every = 1 if len(points) <= MARKED else len(points)
        parts += [svg.mark(x(a), y(b), index) for a, b in points[::-every]]
        ends = f": {labels.span_of(points[0][1], points[-1][1], unit)}"
        legend.append(svg.Entry(index, called, ends))
    heights = svg.spread(
        [y(points[-1][1]) for _, points in series], svg.TEXT, svg.TOP, svg.TOP + svg.AREA
    )
    parts += [
        svg.text(x(points[-1][0]) + 8, height + 4.5, entry.letter, kind="ws-letter ws-halo")
        for entry, (_, points), height in zip(legend, series, heights, strict=True)
    ]
    keys = [("ws-peak", labels.limit_of(name, value, unit)) for name, value in limits]
    below, foot = svg.legend(svg.FOOT, legend, keys)
    said = [entry.name + entry.value for entry in legend] + [words for _, words in keys]
    drawing = svg.Drawing(
        str(plot["title"]), said, foot - 8, [*parts, *below], labels.axes_of(plot)
    )
    return [svg.figure(drawing, "")]


def _limits(pair: Sequence[tuple[str, Plot]]) -> list[tuple[str, float]]:
    """The limits of all configurations, each once, told apart where they differ."""
    found = [(name, of["limit"]) for name, of in pair if of.get("limit")]
    values = {float(limit["value"]) for _, limit in found}
    if len(values) == 1:
        found = [("", found[0][1])]
    return [
        (f"{name}: {limit['name']}" if name else str(limit["name"]), float(limit["value"]))
        for name, limit in found
    ]


def _points(one: Plot) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in one["points"]]


def _across(low: float, high: float, name: str) -> tuple[Scale, list[str]]:
    """The axis at the foot: in decades where the values span many, with their labels."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    if low > 0 and high / low >= WIDE:
        x = svg.across(low, high, log=True, margin=8)
        places = svg.decades(x)
        ends = [low, *(value for value in places if low < value < high), high]
        return x, [*svg.sizes(x, svg.labelled(ends if len(places) < 3 else places), name)]
    step, top = svg.rounded(high)
    start = 0.0 if low >= 0 and low < 0.5 * high else low
    x = svg.across(start, top if start == 0 else high, margin=8)
    places = [step * n for n in range(int(top / step) + 1) if x.low <= step * n <= x.high]
    return x, [*svg.sizes(x, svg.labelled(places), name)]


def _upwards(low: float, high: float, unit: str, name: str) -> tuple[Scale, list[str]]:
    """The axis on the left, in units that its largest value reaches."""
    factor, written = _units(high, unit)
    written = written or name
    if low > 0 and high / low >= TALL:
        y = svg.upwards(low / 1.2, high * 1.2, log=True)
        return y, [*svg.rows(y, svg.labelled(svg.decades(y), factor), written)]
    if high <= 0:
        high = 1.0
    step, top = svg.rounded(high / factor)
    y = svg.upwards(min(0.0, low), top * factor)
    levels = [factor * step * n for n in range(int(top / step + 0.5) + 1)]
    return y, [*svg.rows(y, svg.labelled(levels, factor), written)]


def _units(most: float, unit: str) -> tuple[float, str]:
    """What values are divided by on an axis, and what they then count."""
    if unit == "B":
        power = next((p for p in (4, 3, 2, 1) if most >= 1024**p), 0)
        return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    if unit == "s":
        scales = ((86_400.0, "days"), (3_600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
        return next((one for one in scales if most >= 2 * one[0]), scales[-1])
    if unit in results.SCALED:
        said = results.scaled(most, unit).split(" ")[1]
        if said.endswith(unit) and len(said) == len(unit) + 1:
            return svg.prefix(said), said
    return 1.0, unit
