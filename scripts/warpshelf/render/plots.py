"""Plots of the times of a record: bars of one case, rates over sizes, and the roofline."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.svg import Scale

STEP = 38.0  # from one bar to the next
MARGIN = 4.0


def draw_bars(name: str, case: dict[str, Any], limit: tables.Bound) -> svg.Drawing | None:
    """The bars of `case`, which is called `name`; None where nothing was timed."""
    results = case["results"]
    points = [tables.rate_point(0.0, limit, tables.result_time(result)) for result in results]
    drawn = [point for point in points if point]
    if not drawn:
        return None
    lines = limit.known_limits()
    most = max([point.high for point in drawn] + [rate for *_, rate in lines])
    x = Scale(0, most, MARGIN, svg.WIDTH - MARGIN)
    parts, said, y = [], [], 16.0
    for result, point in zip(results, points, strict=True):
        value = f"{result['verdict']}, no time"
        if point:
            value = units.format_rate(point.rate, limit.unit)
            value += "".join(
                f", {units.format_percent(point.rate / rate)} of peak"
                for kind, _, rate in lines
                if kind == "ws-peak"
            )
        said.append(f"{result['name']}: {value}")
        peer = " (peer)" if result["role"] == "peer" else ""
        room = svg.WIDTH - 20 - (len(value) + len(peer)) * svg.TEXT * svg.BROAD
        parts.append(svg.draw_text(MARGIN, y, svg.fit_text(result["name"], room) + peer))
        parts.append(svg.draw_text(svg.WIDTH - MARGIN, y, value, end="end"))
        if point:
            colour = 0 if result["role"] == "variant" else 1
            parts.append(
                f'<rect x="{svg.coord(x(0))}" y="{svg.coord(y + 5)}" '
                f'width="{svg.coord(x(point.rate) - x(0))}" height="11" '
                f'class="ws-bar ws-s{colour}" fill="currentColor"/>'
            )
            parts.append(
                svg.draw_line(x(point.low), y + 10.5, x(point.high), y + 10.5, "ws-spread")
            )
        parts += [svg.draw_line(x(rate), y + 3, x(rate), y + 19, kind) for kind, _, rate in lines]
        y += STEP
    below, y = svg.draw_keys(y, [(kind, words) for kind, words, _ in lines])
    title = f"{limit.quantity} per second, {name}"
    remark = "Longer is faster; the thin line is p20 to p80. "
    return svg.Drawing(title, said, y - 6, [*parts, *below], remark)


ROOFS = (
    ("ws-ceiling", "measured limit", "copy_bytes_per_second", "matrix_flops_per_second"),
    ("ws-peak", "peak", "peak_bytes_per_second", "peak_flops_per_second"),
)


def most_flops_case(cases: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The timed case with most FLOPs, among those with a cost in bytes as well."""
    worked = [c for c in cases if (c.get("flops") or 0) > 0 and (c.get("bytes") or 0) > 0]
    return max(worked, key=lambda c: c["flops"], default=None)


def draw_roofline(record: Record, name: str, case: dict[str, Any]) -> svg.Drawing | None:
    """The rates of `case`, called `name`, under both roofs; None where a limit or a time lacks."""
    unit = case.get("unit", "")
    roofs = _known_roofs(record, unit)
    intensity = case["flops"] / case["bytes"]
    work = tables.Bound(float(case["flops"]), "FLOP/s")
    points = [
        (result, point)
        for result in case["results"]
        if (point := tables.rate_point(intensity, work, tables.result_time(result)))
    ]
    if not roofs or not points:
        return None
    reach = [intensity, *(rate / bandwidth for *_, bandwidth, rate in roofs)]
    x = svg.x_scale(min(reach) / 10**0.9, max(reach) * 10**0.9, log=True)
    found = [point.rate for _, point in points]
    lowest = min(found + [bandwidth * x.low for *_, bandwidth, _ in roofs])
    highest = max(found + [rate for *_, rate in roofs]) * 10**0.25
    y = svg.y_scale(lowest / 10**0.1, highest, log=True)
    shown = units.format_rate(highest, "FLOP/s").split(" ")[1]
    parts = [
        *svg.draw_y_axis(y, svg.label_ticks(svg.decade_ticks(y), svg.prefix_factor(shown)), shown),
        *svg.draw_x_grid(x, svg.label_ticks(svg.decade_ticks(x)), "FLOP/byte"),
    ]
    for kind, _, bandwidth, rate in roofs:
        knots = (x.low, rate / bandwidth, x.high)
        parts.append(svg.draw_polyline(((x(k), y(min(k * bandwidth, rate))) for k in knots), kind))
    low, high = svg.TOP + 6, svg.TOP + svg.AREA - 4
    heights = svg.spread_labels([y(point.rate) for _, point in points], svg.TEXT, low, high)
    legend = []
    for index, ((result, point), height) in enumerate(zip(points, heights, strict=True)):
        peer = " (peer)" if result["role"] == "peer" else ""
        value = f"{peer}, {units.format_rate(point.rate, 'FLOP/s')}"
        entry = svg.LegendEntry(index, result["name"], value)
        place = x(point.x)
        parts.append(svg.draw_mark(place, y(point.rate), index))
        if abs(height - y(point.rate)) > 3:
            parts.append(svg.draw_line(place + 6, y(point.rate), place + 17, height, "ws-leader"))
        parts.append(
            svg.draw_text(place + 19, height + 4.5, entry.letter, kind="ws-letter ws-halo")
        )
        legend.append(entry)
    below, foot = svg.draw_legend(svg.FOOT, legend, [(kind, words) for kind, words, *_ in roofs])
    said = [f"{units.format_significant(intensity)} FLOP/byte", *(e.name + e.value for e in legend)]
    return svg.Drawing(f"Roofline for {unit}, {name}", said, foot - 8, [*parts, *below])


def _known_roofs(record: Record, unit: str) -> list[tuple[str, str, float, float]]:
    """The roofs known: class, words, bandwidth, rate."""
    ceilings = record.get("ceilings", {})
    roofs = []
    for kind, name, slope, flat in ROOFS:
        bandwidth = units.finite_float(ceilings.get(slope))
        rate = units.finite_float(ceilings.get(flat, {}).get(unit))
        if bandwidth and rate and min(bandwidth, rate) > 1 and max(bandwidth, rate) < 1e30:
            words = (
                f"{name}: {units.format_rate(bandwidth, 'B/s')}, "
                f"{units.format_rate(rate, 'FLOP/s')}"
            )
            roofs.append((kind, words, bandwidth, rate))
    return roofs


SIZES = 4  # timed sizes that make a line
Sized = list[tuple[float, dict[str, Any]]]  # cases by their size, the smallest first


def find_sweep(cases: list[dict[str, Any]]) -> tuple[str, Sized] | None:
    """The largest set of timed cases that differ in one number, with that number's name.

    Sides that are always equal to each other, as of square matrices, count as one; so does a side
    with another that shrinks as it grows, so that their product stays: rows of every length.
    """
    best: tuple[str, Sized] | None = None
    keys = list(dict.fromkeys(key for case in cases for key in case["case"]))
    sides = [
        k for k in keys if all(units.finite_float(c["case"].get(k)) is not None for c in cases)
    ]
    choices: list[tuple[str, ...]] = [(key,) for key in sides]
    square = [k for k in sides if all(c["case"][k] == c["case"][sides[0]] for c in cases)]
    if len(square) > 1:
        choices.append(tuple(square))
    traded = [(b, a) for a, b in combinations(sides, 2)]
    for choice in (*choices, *traded):
        product = choice in traded
        name = f"{choice[0]}, {choice[1]} × {choice[0]} the same" if product else " = ".join(choice)
        groups: dict[str, dict[float, dict[str, Any]]] = {}
        for case in cases:
            left_out = (*choice, "variants")
            rest = sorted((k, repr(v)) for k, v in case["case"].items() if k not in left_out)
            if product:
                rest.append(("×", repr(case["case"][choice[0]] * case["case"][choice[1]])))
            size = float(case["case"][choice[0]])
            if size > 0:
                groups.setdefault(repr(rest), {})[size] = case
        for group in groups.values():
            if len(group) >= max(SIZES, len(best[1]) + 1 if best else 0):
                best = (name, sorted(group.items()))
    return best


def draw_size_sweep(record: Record, name: str, sized: Sized) -> svg.Drawing | None:
    """The rates of each variant over the size called `name`; None where none can be drawn."""
    limit = tables.case_bound(record, sized[-1][1])  # the largest says which rate is worth drawing
    series = _rate_series(limit, sized) if limit else {}
    if not limit or not series:
        return None
    lines = limit.known_limits()
    high = [p.high for points in series.values() for p in points] + [rate for *_, rate in lines]
    step, top = svg.nice_step(max(high))
    unit = units.format_rate(max(high), limit.unit).split(" ")[1]
    x = svg.x_scale(sized[0][0], sized[-1][0], log=True, margin=8)
    y = svg.y_scale(0, top)
    levels = [tick * step for tick in range(int(top / step + 0.5) + 1)]
    parts = [
        *svg.draw_y_axis(y, svg.label_ticks(levels, svg.prefix_factor(unit)), unit),
        *svg.draw_x_labels(x, [(size, units.format_number(size)) for size, _ in sized], name),
        *(svg.draw_level(y(rate), kind) for kind, _, rate in lines),
    ]
    legend, ends = [], []
    for index, ((role, called), points) in enumerate(series.items()):
        colour = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.draw_polyline(((x(p.x), y(p.rate)) for p in points), colour))
        parts += [svg.draw_line(x(p.x), y(p.low), x(p.x), y(p.high), colour) for p in points]
        parts += [svg.draw_mark(x(p.x), y(p.rate), index) for p in points]
        best = units.format_rate(max(p.rate for p in points), limit.unit)
        value = f"{' (peer)' if role == 'peer' else ''}, up to {best}"
        legend.append(svg.LegendEntry(index, called, value))
        ends.append(points[-1])
    heights = svg.spread_labels([y(p.rate) for p in ends], svg.TEXT, svg.TOP, svg.TOP + svg.AREA)
    parts += [
        svg.draw_text(x(end.x) + 8, height + 4.5, entry.letter, kind="ws-letter ws-halo")
        for entry, end, height in zip(legend, ends, heights, strict=True)
    ]
    below, foot = svg.draw_legend(svg.FOOT, legend, [(kind, words) for kind, words, _ in lines])
    title = f"{limit.quantity} per second over {name}"
    said = [entry.name + entry.value for entry in legend]
    return svg.Drawing(title, said, foot - 8, [*parts, *below])


def _rate_series(
    limit: tables.Bound, sized: Sized
) -> dict[tuple[str, str], list[tables.RatePoint]]:
    """The measured rates of each function, by role and name."""
    field = "bytes" if limit.unit == "B/s" else "flops"
    series: dict[tuple[str, str], list[tables.RatePoint]] = {}
    for size, case in sized:
        own = tables.Bound(units.finite_float(case.get(field)) or 0.0, limit.unit)
        for result in case["results"]:
            if point := tables.rate_point(size, own, tables.result_time(result)):
                series.setdefault((result["role"], result["name"]), []).append(point)
    return series


BARS = 3  # cases drawn as bars; the table has all


def draw_plots(record: Record, apart: str = "") -> list[str]:
    """The figures of a measured record, each one HTML block; none where nothing was timed.

    `apart` tells the record from others of the same kind of device, where there are any.
    """
    cases = [
        case for case in tables.timed_cases(record) if any(map(tables.result_time, case["results"]))
    ]
    if not cases:
        return []
    names = dict(
        zip(map(id, cases), units.case_labels([case["case"] for case in cases]), strict=True)
    )
    drawn: list[tuple[svg.Drawing | None, list[dict[str, Any]]]] = []
    if found := find_sweep(cases):
        drawn.append((draw_size_sweep(record, *found), [case for _, case in found[1]]))
    else:
        limits = [(case, limit) for case in cases if (limit := tables.case_bound(record, case))]
        for case, limit in limits[:BARS]:
            drawn.append((draw_bars(names[id(case)], case, limit), [case]))
    if (most := most_flops_case(cases)) is not None:
        drawn.append((draw_roofline(record, names[id(most)], most), [most]))
    return [svg.render_figure(one, _plot_note(record, shown, apart)) for one, shown in drawn if one]


def _plot_note(record: Record, cases: list[dict[str, Any]], apart: str) -> str:
    """Where the rates come from, and which functions have none."""
    absent = {
        f"{result['name']} ({tables.missing_reason(result) or 'was not timed'})": None
        for case in cases
        for result in case["results"]
        if not tables.result_time(result)
    }
    left_out = f" Not drawn: {'; '.join(absent)}." if absent else ""
    return f"{', '.join(filter(None, (snippet_page.origin_line(record), apart)))}.{left_out}"
