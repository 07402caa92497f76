"""Plots of the times of a record: bars of one case, rates over sizes, and the roofline."""

from __future__ import annotations

from itertools import combinations

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.svg import Scale
from warpshelf.render.tables import Case

STEP = 38.0  # from one bar to the next
MARGIN = 4.0


def draw_bars(name: str, case: Case, limit: tables.Bound, note: str) -> str:
    """The bars of `case`, which is called `name`; "" where nothing was timed."""
    results = case["results"]
    points = [tables.rate_point(0.0, limit, tables.result_time(result)) for result in results]
    highest = [point.high for point in points if point]
    if not highest:
        return ""
    lines = limit.known_limits()
    x = Scale(0, max(highest + [rate for *_, rate in lines]), MARGIN, svg.WIDTH - MARGIN)
    parts, said, y = [], [], 16.0
    for result, point in zip(results, points, strict=True):
        value = f"{result['verdict']}, no time"
        if point:
            value = units.format_rate(point.rate, limit.unit)
            peaks = [rate for kind, _, rate in lines if kind == "ws-peak"]
            value += "".join(f", {units.format_percent(point.rate / one)} of peak" for one in peaks)
        said.append(f"{result['name']}: {value}")
        peer = tables.mark_peer(result["role"])
        room = svg.WIDTH - 20 - (len(value) + len(peer)) * svg.TEXT * svg.BROAD
        parts.append(svg.draw_text(MARGIN, y, svg.fit_text(result["name"], room) + peer))
        parts.append(svg.draw_text(svg.WIDTH - MARGIN, y, value, end="end"))
        if point:
            colour = "ws-bar ws-s0" if result["role"] == "variant" else "ws-bar ws-s1"
            parts.append(svg.draw_rect(x(0), y + 5, x(point.rate) - x(0), 11, colour))
            ends = x(point.low), y + 10.5, x(point.high), y + 10.5
            parts.append(svg.draw_line(*ends, "ws-spread"))
        parts += [svg.draw_line(x(rate), y + 3, x(rate), y + 19, kind) for kind, _, rate in lines]
        y += STEP
    below, y = svg.draw_keys(y, [(kind, words) for kind, words, _ in lines])
    title = f"{tables.COUNTED[limit.unit]} per second, {name}"
    note = f"Longer is faster; the thin line is p20 to p80. {note}"
    return svg.render_figure(title, said, y - 6, [*parts, *below], note)


def draw_roofline(record: Record, name: str, case: Case, note: str) -> str:
    """The rates of `case`, called `name`, under both roofs; "" if a limit or a time is missing."""
    moved, worked = tables.case_bounds(record, case)
    roofs = []  # class, words, bandwidth, rate
    for kind, called, bandwidth, rate in (
        ("ws-ceiling", "measured limit", moved.ceiling, worked.ceiling),
        ("ws-peak", "peak", moved.peak, worked.peak),
    ):
        if bandwidth and rate and min(bandwidth, rate) > 1 and max(bandwidth, rate) < 1e30:
            known = units.format_rate(bandwidth, "B/s"), units.format_rate(rate, "FLOP/s")
            roofs.append((kind, f"{called}: {', '.join(known)}", bandwidth, rate))
    intensity = case["flops"] / case["bytes"]
    points = [
        (result, point.rate)
        for result, time in tables.timed_results(case)
        if (point := tables.rate_point(intensity, worked, time))
    ]
    if not roofs or not points:
        return ""
    reach = [intensity, *(rate / bandwidth for *_, bandwidth, rate in roofs)]
    x = svg.x_scale(min(reach) / 10**0.9, max(reach) * 10**0.9, log=True)
    found = [rate for _, rate in points]
    lowest = min(found + [bandwidth * x.low for *_, bandwidth, _ in roofs])
    highest = max(found + [rate for *_, rate in roofs]) * 10**0.25
    y = svg.y_scale(lowest / 10**0.1, highest, log=True)
    ticks = svg.label_ticks(svg.decade_ticks(x))
    parts = [
        *svg.draw_rate_axis(y, svg.decade_ticks(y), highest, "FLOP/s"),
        *svg.draw_x_axis(x, ticks, "FLOP/byte", grid=True),
    ]
    for kind, _, bandwidth, rate in roofs:
        knots = (x.low, rate / bandwidth, x.high)
        parts.append(svg.draw_polyline(((x(k), y(min(k * bandwidth, rate))) for k in knots), kind))
    low, high, place = svg.TOP + 6, svg.TOP + svg.AREA - 4, x(intensity)
    heights = svg.spread_labels([y(rate) for rate in found], svg.TEXT, low, high)
    legend = []
    for index, ((result, rate), height) in enumerate(zip(points, heights, strict=True)):
        parts.append(svg.draw_mark(place, y(rate), index))
        if abs(height - y(rate)) > 3:
            parts.append(svg.draw_line(place + 6, y(rate), place + 17, height, "ws-leader"))
        letter = svg.series_letter(index)
        parts.append(svg.draw_text(place + 19, height + 4.5, letter, kind="ws-letter ws-halo"))
        value = f"{tables.mark_peer(result['role'])}, {units.format_rate(rate, 'FLOP/s')}"
        legend.append((result["name"], value))
    lines = [(kind, words) for kind, words, *_ in roofs]
    told = f"{units.format_significant(intensity)} FLOP/byte"
    title = f"Roofline for {case.get('unit', '')}, {name}"
    return svg.render_plot(title, parts, legend, note, lines=lines, before=[told])


SIZES = 4  # timed sizes that make a line
Sized = list[tuple[float, Case]]  # cases by their size, the smallest first


def find_sweep(cases: list[Case]) -> tuple[str, Sized] | None:
    """The largest set of timed cases that differ in one number, with that number's name.

    Sides that are always equal to each other, as of square matrices, count as one; so does a side
    with another that shrinks as it grows, so that their product stays: rows of every length.
    """
    keys = dict.fromkeys(key for case in cases for key in case["case"])
    sides = [
        k for k in keys if all(units.finite_float(c["case"].get(k)) is not None for c in cases)
    ]
    square = tuple(k for k in sides if all(c["case"][k] == c["case"][sides[0]] for c in cases))
    choices: list[tuple[str, tuple[str, ...], bool]] = [(side, (side,), False) for side in sides]
    if len(square) > 1:
        choices.append((" = ".join(square), square, False))
    for other, side in combinations(sides, 2):
        choices.append((f"{side}, {other} × {side} the same", (side, other), True))
    best: tuple[str, Sized] | None = None
    for name, choice, product in choices:
        groups: dict[str, dict[float, Case]] = {}
        for case in cases:
            values = case["case"]
            left_out = (*choice, "variants")
            rest = sorted((k, repr(v)) for k, v in values.items() if k not in left_out)
            if product:
                rest.append(("×", repr(values[choice[0]] * values[choice[1]])))
            if (size := float(values[choice[0]])) > 0:
                groups.setdefault(repr(rest), {})[size] = case
        for group in groups.values():
            if len(group) >= max(SIZES, len(best[1]) + 1 if best else 0):
                best = (name, sorted(group.items()))
    return best


def draw_size_sweep(record: Record, name: str, sized: Sized, note: str) -> str:
    """The rates of each variant over the size called `name`; "" where none can be drawn."""
    limit = tables.case_bound(record, sized[-1][1])  # the largest says which rate is worth drawing
    if limit is None:
        return ""
    series: dict[tuple[str, str], list[tables.RatePoint]] = {}
    for size, case in sized:
        amount = units.finite_float(case.get(tables.COUNTED[limit.unit].lower())) or 0.0
        for result, time in tables.timed_results(case):
            if point := tables.rate_point(size, tables.Bound(amount, limit.unit), time):
                series.setdefault((result["role"], result["name"]), []).append(point)
    if not series:
        return ""
    lines = limit.known_limits()
    high = [p.high for points in series.values() for p in points] + [rate for *_, rate in lines]
    step, top = svg.nice_step(max(high))
    x, y = svg.x_scale(sized[0][0], sized[-1][0], log=True, margin=8), svg.y_scale(0, top)
    levels = [tick * step for tick in range(int(top / step + 0.5) + 1)]
    parts = [
        *svg.draw_rate_axis(y, levels, max(high), limit.unit),
        *svg.draw_x_axis(x, [(size, units.format_number(size)) for size, _ in sized], name),
        *(svg.draw_level(y(rate), kind) for kind, _, rate in lines),
        *draw_rate_curves(x, y, list(series.values())),
    ]
    legend = []
    for (role, called), points in series.items():
        best = units.format_rate(max(p.rate for p in points), limit.unit)
        legend.append((called, f"{tables.mark_peer(role)}, up to {best}"))
    title = f"{tables.COUNTED[limit.unit]} per second over {name}"
    keys = [(kind, words) for kind, words, _ in lines]
    return svg.render_plot(title, parts, legend, note, lines=keys)


def draw_rate_curves(x: Scale, y: Scale, series: list[list[tables.RatePoint]]) -> list[str]:
    """Series of rates, each point marked and with its spread."""
    curves = []
    for points in series:
        places = [(x(p.x), y(p.rate)) for p in points]
        spreads = [(x(p.x), y(p.low), y(p.high)) for p in points]
        curves.append(svg.Curve(places, places, spreads))
    return list(svg.draw_curves(curves))


BARS = 3  # cases drawn as bars; the table has all


def draw_plots(record: Record, apart: str = "") -> list[str]:
    """The figures of a measured record, each one HTML block; none where nothing was timed.

    `apart` tells the record from others of the same kind of device, where there are any.
    """
    cases = [case for case in tables.timed_cases(record) if tables.timed_results(case)]
    named = tables.label_cases(cases)

    def note(shown: list[Case]) -> str:
        """Where the rates come from, and which functions have none."""
        absent = {
            f"{result['name']} ({tables.missing_reason(result) or 'was not timed'})": None
            for case in shown
            for result in case["results"]
            if not tables.result_time(result)
        }
        left_out = f" Not drawn: {'; '.join(absent)}." if absent else ""
        return f"{snippet_page.origin_line(record, apart)}.{left_out}"

    if found := find_sweep(cases):
        drawn = [draw_size_sweep(record, *found, note([case for _, case in found[1]]))]
    else:
        limits = [(*one, limit) for one in named if (limit := tables.case_bound(record, one[1]))]
        limits.sort(key=lambda one: -one[2].amount)  # the largest case first
        drawn = [draw_bars(name, case, limit, note([case])) for name, case, limit in limits[:BARS]]
    costed = [one for one in named if all((one[1].get(key) or 0) > 0 for key in ("flops", "bytes"))]
    if costed:
        name, case = max(costed, key=lambda one: one[1]["flops"])
        drawn.append(draw_roofline(record, name, case, note([case])))
    return [one for one in drawn if one]
