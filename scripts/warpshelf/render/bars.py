"""The rates of one timed case, one below another, with the limits across them."""

from __future__ import annotations

from typing import Any

from warpshelf.core import units
from warpshelf.render import rates, svg, tables
from warpshelf.render.axes import Scale

STEP = 38.0  # from one bar to the next
MARGIN = 4.0


def drawing(name: str, case: dict[str, Any], limit: rates.Bound) -> svg.Drawing | None:
    """The bars of `case`, which is called `name`; None where nothing was timed."""
    results = case["results"]
    points = [rates.point(0.0, limit, tables.time_of(result)) for result in results]
    drawn = [point for point in points if point]
    if not drawn:
        return None
    lines = limit.limits()
    most = max([point.high for point in drawn] + [rate for *_, rate in lines])
    x = Scale(0, most, MARGIN, svg.WIDTH - MARGIN)
    parts, said, y = [], [], 16.0
    for result, point in zip(results, points, strict=True):
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
        parts.append(svg.text(MARGIN, y, svg.shortened(result["name"], room) + peer))
        parts.append(svg.text(svg.WIDTH - MARGIN, y, value, end="end"))
        if point:
            colour = 0 if result["role"] == "variant" else 1
            parts.append(
                f'<rect x="{svg.at(x(0))}" y="{svg.at(y + 5)}" '
                f'width="{svg.at(x(point.rate) - x(0))}" height="11" '
                f'class="ws-bar ws-s{colour}" fill="currentColor"/>'
            )
            parts.append(svg.line(x(point.low), y + 10.5, x(point.high), y + 10.5, "ws-spread"))
        parts += [svg.line(x(rate), y + 3, x(rate), y + 19, kind) for kind, _, rate in lines]
        y += STEP
    below, y = svg.keys(y, [(kind, words) for kind, words, _ in lines])
    title = f"{limit.quantity} per second, {name}"
    remark = "Longer is faster; the thin line is p20 to p80. "
    return svg.Drawing(title, said, y - 6, [*parts, *below], remark)
