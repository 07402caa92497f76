"""Plots: rates of one measured record as inline SVG that follows the page's colours.

A sweep over at least four sizes is drawn as lines, other timed cases as bars; where the cost
and the limits are known, a roofline comes on top. What has no time is named, never drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

from warpshelf import origin, svg, tables, units

LEFT, RIGHT, TOP = 44.0, 12.0, 30.0
AREA = 220.0  # height of the drawing area
BARS = 3  # cases drawn as bars; the table has all
SIZES = 4  # timed sizes that make a line
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Point:
    """One measured rate, with the rates at p80 and p20 of the time around it."""

    x: float
    rate: float
    low: float
    high: float


def plots(record: dict) -> list[str]:
    """The figures of a measured record, each one HTML block; none where nothing was timed."""
    cases = [case for case in tables.timed(record) if any(map(tables.time_of, case["results"]))]
    if not cases:
        return []
    sweep = _sweep(cases)
    found = [_lines(record, *sweep)] if sweep else _bars(record, cases)
    return [drawn for drawn in (*found, _roofline(record, cases)) if drawn]


def _note(record: dict, cases: list[dict]) -> str:
    absent = {
        f"{result['name']} ({tables.missing(result) or 'was not timed'})": None
        for case in cases
        for result in case["results"]
        if not tables.time_of(result)
    }
    left_out = f" Not drawn: {'; '.join(absent)}." if absent else ""
    return f"{origin.line(record)}.{left_out}"


def _point(x: float, limit: tables.Bound, time: dict) -> Point | None:
    rates = [limit.rate(time[key]) for key in ("median", "p80", "p20")]
    if any(rate is None or not 1e-30 < rate < 1e30 for rate in rates):
        return None
    return Point(x, *rates)  # type: ignore[arg-type]


def _limits(limit: tables.Bound) -> list[tuple[str, str, float]]:
    known = (("ws-ceiling", "measured limit", limit.ceiling), ("ws-peak", "peak", limit.peak))
    return [
        (kind, f"{name} {units.rate(rate, limit.unit)}", rate)
        for kind, name, rate in known
        if rate is not None and 1e-30 < rate < 1e30
    ]


def _bars(record: dict, cases: list[dict]) -> list[str]:
    names = units.labels([case["case"] for case in cases])
    drawn = [(n, c, b) for n, c in zip(names, cases, strict=True) if (b := tables.bound(record, c))]
    found = [_bar_chart(record, *item) for item in drawn[:BARS]]
    return [figure for figure in found if figure]


def _bar_chart(record: dict, name: str, case: dict, limit: tables.Bound) -> str:
    points = {}
    for index, result in enumerate(case["results"]):
        time = tables.time_of(result)
        point = _point(0.0, limit, time) if time else None
        if point:
            points[index] = point
    if not points:
        return ""
    lines = _limits(limit)
    most = max([p.high for p in points.values()] + [rate for *_, rate in lines])
    scale = (svg.WIDTH - 8) / most
    parts, said, y = [], [], 16.0
    for index, result in enumerate(case["results"]):
        point = points.get(index)
        value = f"{result['verdict']}, no time"
        if point:
            value = units.rate(point.rate, limit.unit)
            value += "".join(
                f", {units.share(point.rate / rate)} of peak"
                for kind, _, rate in lines
                if kind == "ws-peak"
            )
        said.append(f"{result['name']}: {value}")
        peer = " (peer)" if result["role"] == "peer" else ""
        room = svg.WIDTH - 20 - (len(value) + len(peer)) * svg.TEXT * svg.BROAD
        parts.append(svg.text(4, y, svg.shortened(result["name"], room) + peer))
        parts.append(svg.text(svg.WIDTH - 4, y, value, end="end"))
        if point:
            colour = 0 if result["role"] == "variant" else 1
            parts.append(
                f'<rect x="4" y="{svg.at(y + 5)}" width="{svg.at(point.rate * scale)}" height="11" '
                f'class="ws-bar ws-s{colour}" fill="currentColor"/>'
            )
            low, high = 4 + point.low * scale, 4 + point.high * scale
            parts.append(svg.line(low, y + 10.5, high, y + 10.5, "ws-spread"))
        for kind, _, rate in lines:
            parts.append(svg.line(4 + rate * scale, y + 3, 4 + rate * scale, y + 19, kind))
        y += 38
    for kind, words, _ in lines:
        parts.append(svg.key(kind, y, words))
        y += svg.LINE
    kind = "Bytes" if limit.unit == "B/s" else "FLOPs"
    title = f"{kind} per second, {name}"
    note = "Longer is faster; the thin line is p20 to p80. " + _note(record, [case])
    return svg.figure(title, "; ".join(said), y - 6, parts, note)


def _sweep(cases: list[dict]) -> tuple[str, list[tuple[float, dict]]] | None:
    """The largest set of timed cases that differ in one number, with that number's name.

    Sides that are always equal to each other, as of square matrices, count as one; so does a side
    with another that shrinks as it grows, so that their product stays: rows of every length.
    """
    best: tuple[str, list[tuple[float, dict]]] | None = None
    keys = list(dict.fromkeys(key for case in cases for key in case["case"]))
    sides = [k for k in keys if all(units.finite(c["case"].get(k)) is not None for c in cases)]
    choices = [(key,) for key in sides]
    square = [k for k in sides if all(c["case"][k] == c["case"][sides[0]] for c in cases)]
    if len(square) > 1:
        choices.append(tuple(square))
    traded = [(b, a) for a, b in combinations(sides, 2)]
    for choice in (*choices, *traded):
        product = choice in traded
        name = f"{choice[0]}, {choice[1]} × {choice[0]} the same" if product else " = ".join(choice)
        groups: dict[str, dict[float, dict]] = {}
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


def _lines(record: dict, key: str, sweep: list[tuple[float, dict]]) -> str:
    cases = [case for _, case in sweep]
    limit = tables.bound(record, cases[-1])  # the largest size says which rate is worth drawing
    if limit is None:
        return ""
    field = "bytes" if limit.unit == "B/s" else "flops"
    series: dict[tuple[str, str], list[Point]] = {}
    for size, case in sweep:
        amount = units.finite(case.get(field)) or 0.0
        own = tables.Bound(amount, limit.unit, limit.ceiling, limit.peak)
        for result in case["results"]:
            time = tables.time_of(result)
            point = _point(size, own, time) if time else None
            if point:
                series.setdefault((result["role"], result["name"]), []).append(point)
    if not series:
        return ""
    lines = _limits(limit)
    high = [p.high for points in series.values() for p in points] + [rate for *_, rate in lines]
    step, top, unit = _linear(max(high), limit.unit)
    first, last = math.log(sweep[0][0]), math.log(sweep[-1][0])

    def x(size: float) -> float:
        room = svg.WIDTH - LEFT - RIGHT - 24
        return LEFT + 8 + room * (math.log(size) - first) / (last - first)

    def y(value: float) -> float:
        return TOP + AREA * (1 - value / top)

    parts = [svg.text(4, 14, unit)]
    for tick in range(int(top / step + 0.5) + 1):
        parts.append(svg.line(LEFT, y(tick * step), svg.WIDTH - RIGHT, y(tick * step), "ws-grid"))
        shown = units.number(float(units.significant(tick * step / _prefix(unit))))
        parts.append(svg.text(LEFT - 6, y(tick * step) + 4.5, shown, end="end"))
    edge = -math.inf
    for size, _ in sweep:
        words = units.number(size)
        half = len(words) * svg.TEXT * 0.29
        if x(size) - half > edge:
            place = min(x(size), svg.WIDTH - half)
            parts.append(svg.text(place, TOP + AREA + 17, words, end="middle"))
            edge = place + half + 6
    parts.append(svg.text(svg.WIDTH - RIGHT, TOP + AREA + 35, key, end="end"))
    for kind, _, rate in lines:
        parts.append(svg.line(LEFT, y(rate), svg.WIDTH - RIGHT, y(rate), kind))
    entries, said, ends = [], [], []
    for index, ((role, name), points) in enumerate(series.items()):
        colour = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.path(((x(p.x), y(p.rate)) for p in points), colour))
        parts.extend(svg.line(x(p.x), y(p.low), x(p.x), y(p.high), colour) for p in points)
        parts.extend(svg.mark(x(p.x), y(p.rate), index) for p in points)
        best = units.rate(max(p.rate for p in points), limit.unit)
        value = f"{' (peer)' if role == 'peer' else ''}, up to {best}"
        entries.append((LETTERS[index % 26], index, name, value))
        said.append(name + value)
        ends.append(points[-1])
    heights = svg.spread([y(p.rate) for p in ends], svg.TEXT, TOP, TOP + AREA)
    for (letter, *_), point, height in zip(entries, ends, heights, strict=True):
        parts.append(svg.text(x(point.x) + 8, height + 4.5, letter, kind="ws-letter ws-halo"))
    foot = TOP + AREA + 58
    parts.extend(svg.legend(foot, entries))
    foot += svg.LINE * len(entries)
    for kind, words, _ in lines:
        parts.append(svg.key(kind, foot, words))
        foot += svg.LINE
    title = f"{'Bytes' if field == 'bytes' else 'FLOPs'} per second over {key}"
    return svg.figure(title, "; ".join(said), foot - 8, parts, _note(record, cases))


def _prefix(unit: str) -> float:
    """The factor of a unit such as `TB/s`."""
    return next(10.0**power for name, power in units.PREFIXES if unit.startswith(name))


def _linear(most: float, unit: str) -> tuple[float, float, str]:
    """Step and top of an axis from 0 that reaches `most`, and its unit."""
    step = 10.0 ** math.floor(math.log10(most / 2))
    step *= next(f for f in (1, 2, 5, 10) if most / (step * f) <= 6)
    return step, step * math.ceil(most / step), units.rate(most, unit).split(" ")[1]


def _roofline(record: dict, cases: list[dict]) -> str:
    """Rate over arithmetic intensity for the timed case with most work, under both roofs."""
    ceilings = record.get("ceilings", {})
    worked = [c for c in cases if (c.get("flops") or 0) > 0 and (c.get("bytes") or 0) > 0]
    if not worked:
        return ""
    case = max(worked, key=lambda c: c["flops"])
    unit = case.get("unit", "")
    roofs = []
    for kind, name, slope, flat in (
        ("ws-ceiling", "measured limit", "copy_bytes_per_second", "matrix_flops_per_second"),
        ("ws-peak", "peak", "peak_bytes_per_second", "peak_flops_per_second"),
    ):
        bandwidth = units.finite(ceilings.get(slope))
        rate = units.finite(ceilings.get(flat, {}).get(unit))
        if bandwidth and rate and min(bandwidth, rate) > 1 and max(bandwidth, rate) < 1e30:
            words = f"{name}: {units.rate(bandwidth, 'B/s')}, {units.rate(rate, 'FLOP/s')}"
            roofs.append((kind, words, bandwidth, rate))
    intensity = case["flops"] / case["bytes"]
    work = tables.Bound(float(case["flops"]), "FLOP/s", None, None)
    points = [
        (result, point)
        for result in case["results"]
        if (time := tables.time_of(result)) and (point := _point(intensity, work, time))
    ]
    if not roofs or not points:
        return ""
    ridges = [rate / bandwidth for *_, bandwidth, rate in roofs]
    left, right = (math.log10(f(ridges + [intensity])) for f in (min, max))
    left, right = left - 0.9, right + 0.9
    rates = [p.rate for _, p in points]
    bottom = math.log10(min(rates + [b * 10**left for *_, b, _ in roofs]))
    bottom, top = bottom - 0.1, math.log10(max(rates + [rate for *_, rate in roofs])) + 0.25

    def x(value: float) -> float:
        return LEFT + (svg.WIDTH - LEFT - RIGHT) * (math.log10(value) - left) / (right - left)

    def y(value: float) -> float:
        return TOP + AREA * (top - math.log10(value)) / (top - bottom)

    unit_shown = units.rate(10**top, "FLOP/s").split(" ")[1]
    scale = _prefix(unit_shown)
    parts = [svg.text(4, 14, unit_shown)]
    for power in _decades(bottom, top):
        height = y(10.0**power)
        parts.append(svg.line(LEFT, height, svg.WIDTH - RIGHT, height, "ws-grid"))
        words = units.number(float(units.significant(10.0**power / scale)))
        parts.append(svg.text(LEFT - 6, height + 4.5, words, end="end"))
    for power in _decades(left, right):
        place = x(10.0**power)
        parts.append(svg.line(place, TOP, place, TOP + AREA, "ws-grid"))
        words = units.number(float(units.significant(10.0**power)))
        parts.append(svg.text(place, TOP + AREA + 17, words, end="middle"))
    parts.append(svg.text(svg.WIDTH - RIGHT, TOP + AREA + 35, "FLOP/byte", end="end"))
    for kind, _, bandwidth, rate in roofs:
        corner = rate / bandwidth
        knots = (10**left, corner, 10**right)
        parts.append(svg.path(((x(k), y(min(k * bandwidth, rate))) for k in knots), kind))
    heights = svg.spread([y(p.rate) for _, p in points], svg.TEXT, TOP + 6, TOP + AREA - 4)
    entries, said = [], []
    for index, ((result, point), height) in enumerate(zip(points, heights, strict=True)):
        letter, place = LETTERS[index % 26], x(point.x)
        parts.append(svg.mark(place, y(point.rate), index))
        if abs(height - y(point.rate)) > 3:
            parts.append(svg.line(place + 6, y(point.rate), place + 17, height, "ws-leader"))
        parts.append(svg.text(place + 19, height + 4.5, letter, kind="ws-letter ws-halo"))
        peer = " (peer)" if result["role"] == "peer" else ""
        value = f"{peer}, {units.rate(point.rate, 'FLOP/s')}"
        entries.append((letter, index, result["name"], value))
        said.append(result["name"] + value)
    foot = TOP + AREA + 58
    parts.extend(svg.legend(foot, entries))
    foot += svg.LINE * len(entries)
    for kind, words, *_ in roofs:
        parts.append(svg.key(kind, foot, words))
        foot += svg.LINE
    names = units.labels([c["case"] for c in cases])
    title = f"Roofline for {unit}, {names[cases.index(case)]}"
    said.insert(0, f"{units.significant(intensity)} FLOP/byte")
    return svg.figure(title, "; ".join(said), foot - 8, parts, _note(record, [case]))


def _decades(low: float, high: float) -> list[int]:
    """Powers of ten on an axis, at most seven."""
    powers = range(math.ceil(low), math.floor(high) + 1)
    return list(powers[:: max(1, math.ceil(len(powers) / 7))])
