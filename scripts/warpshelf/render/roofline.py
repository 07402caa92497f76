"""Rates over arithmetic intensity, under the limits of bandwidth and arithmetic."""

from __future__ import annotations

from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import axes, rates, svg, tables

ROOFS = (
    ("ws-ceiling", "measured limit", "copy_bytes_per_second", "matrix_flops_per_second"),
    ("ws-peak", "peak", "peak_bytes_per_second", "peak_flops_per_second"),
)


def most_work(cases: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The timed case with most FLOPs, among those with a cost in bytes as well."""
    worked = [c for c in cases if (c.get("flops") or 0) > 0 and (c.get("bytes") or 0) > 0]
    return max(worked, key=lambda c: c["flops"], default=None)


def drawing(record: Record, name: str, case: dict[str, Any]) -> svg.Drawing | None:
    """The rates of `case`, called `name`, under both roofs; None where a limit or a time lacks."""
    unit = case.get("unit", "")
    roofs = _roofs(record, unit)
    intensity = case["flops"] / case["bytes"]
    work = rates.Bound(float(case["flops"]), "FLOP/s")
    points = [
        (result, point)
        for result in case["results"]
        if (point := rates.point(intensity, work, tables.time_of(result)))
    ]
    if not roofs or not points:
        return None
    reach = [intensity, *(rate / bandwidth for *_, bandwidth, rate in roofs)]
    x = axes.across(min(reach) / 10**0.9, max(reach) * 10**0.9, log=True)
    found = [point.rate for _, point in points]
    lowest = min(found + [bandwidth * x.low for *_, bandwidth, _ in roofs])
    highest = max(found + [rate for *_, rate in roofs]) * 10**0.25
    y = axes.upwards(lowest / 10**0.1, highest, log=True)
    shown = units.rate(highest, "FLOP/s").split(" ")[1]
    parts = [
        *axes.rows(y, axes.labelled(axes.decades(y), axes.prefix(shown)), shown),
        *axes.columns(x, axes.labelled(axes.decades(x)), "FLOP/byte"),
    ]
    for kind, _, bandwidth, rate in roofs:
        knots = (x.low, rate / bandwidth, x.high)
        parts.append(svg.path(((x(k), y(min(k * bandwidth, rate))) for k in knots), kind))
    low, high = axes.TOP + 6, axes.TOP + axes.AREA - 4
    heights = svg.spread([y(point.rate) for _, point in points], svg.TEXT, low, high)
    legend = []
    for index, ((result, point), height) in enumerate(zip(points, heights, strict=True)):
        peer = " (peer)" if result["role"] == "peer" else ""
        value = f"{peer}, {units.rate(point.rate, 'FLOP/s')}"
        entry = svg.Entry(index, result["name"], value)
        place = x(point.x)
        parts.append(svg.mark(place, y(point.rate), index))
        if abs(height - y(point.rate)) > 3:
            parts.append(svg.line(place + 6, y(point.rate), place + 17, height, "ws-leader"))
        parts.append(svg.text(place + 19, height + 4.5, entry.letter, kind="ws-letter ws-halo"))
        legend.append(entry)
    below, foot = svg.legend(axes.FOOT, legend, [(kind, words) for kind, words, *_ in roofs])
    said = [f"{units.significant(intensity)} FLOP/byte", *(e.name + e.value for e in legend)]
    return svg.Drawing(f"Roofline for {unit}, {name}", said, foot - 8, [*parts, *below])


def _roofs(record: Record, unit: str) -> list[tuple[str, str, float, float]]:
    """The roofs known: class, words, bandwidth, rate."""
    ceilings = record.get("ceilings", {})
    roofs = []
    for kind, name, slope, flat in ROOFS:
        bandwidth = units.finite(ceilings.get(slope))
        rate = units.finite(ceilings.get(flat, {}).get(unit))
        if bandwidth and rate and min(bandwidth, rate) > 1 and max(bandwidth, rate) < 1e30:
            words = f"{name}: {units.rate(bandwidth, 'B/s')}, {units.rate(rate, 'FLOP/s')}"
            roofs.append((kind, words, bandwidth, rate))
    return roofs
